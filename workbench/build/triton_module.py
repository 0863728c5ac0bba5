"""A Triton cell as a module of its own: a clean namespace, real source lines, its helper modules beside it.

One text may be loaded twice, for the compiler and for Triton's interpreter: which of the two `triton.jit` makes is
decided while the text runs. A changed text, or a changed helper, is another module; those that run are left alone.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib
import inspect
import linecache
import os
import re
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..errors import BuildError, Diagnostic, WorkbenchError
from ..source import Source
from ..turn import free_in_forks
from . import triton_driver, triton_hints, triton_text
from .triton_beside import absolute, beside, file_of, files_of, package_of, read
from .triton_kernels import innermost
from .triton_text import padded

# `workbench_triton_1f2e3d4c5b6a7988.helpers`, and `(<helpers.py, 1f2e3d4c>)` of its file
OUR_NAMES = re.compile(r"workbench_triton_[0-9a-f]{16}\.| \(<[^<>]*, [0-9a-f]{8}>\)")
# Triton's switches and its patches of tl are global: one text is loaded, run or built at once.
LOCK = free_in_forks(threading.RLock())

_modules: dict[str, types.ModuleType] = {}
_spans: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}  # by file: lines of each function, without decorators
_labels: dict[str, str] = {}  # by file name of a module: how the user knows it


def load(source: Source, *, interpreted: bool = False) -> types.ModuleType:
    """The module of a cell. SchemaError for a name that it lacks, BuildError, on its line, for what raises meanwhile.

    >>> load(Source("def f(x): return torch.empty_like(x)", "triton")).f(torch.ones(2))

    The same text with the same helpers is loaded once.
    """
    triton_text.check_names(source)
    closure = beside(source)
    told = (source.text, source.file, source.first_line, source.path, sorted(closure.items()), interpreted)
    digest = hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()
    names = _libdevice() if interpreted else nullcontext()
    device = triton_driver.standing_in("cpu" if interpreted else "cuda:0")
    with LOCK, jit_makes(interpreted), names, device, _own_lines():
        if digest not in _modules:
            _modules[digest] = _Loading(source.path, interpreted).cell(source, digest)
        return _modules[digest]


def digest(source: Source) -> str:
    """Of all that decides what a cell does: its text and those of the modules beside it."""
    told = (source.text, sorted(beside(source).values()))
    return hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()


def label(file: str) -> str:
    """How the user knows the file of a frame: `cell [3]`, `helper.py`; "" for one that is no cell's."""
    return _labels.get(file, "")


# ---------------------------------------------------------------- loading


@contextmanager
def jit_makes(interpreted: bool) -> Iterator[None]:
    """Inside, `triton.jit` makes interpreted functions, or compiled ones; the environment is left alone."""
    from triton import knobs

    knob = vars(knobs.runtime)
    former = knob.get("interpret")
    knob["interpret"] = interpreted
    try:
        yield
    finally:
        if former is None:
            knob.pop("interpret", None)
        else:
            knob["interpret"] = former


def _libdevice() -> AbstractContextManager:
    from .triton_libdevice import bound  # with numpy, which only the interpreter needs

    return bound()


class _Loading:
    """One load: what its text imports from beside the notebook is loaded in the same way."""

    def __init__(self, folder: str, interpreted: bool) -> None:
        self.folder, self.interpreted = folder, interpreted
        self.loaded: dict[str, types.ModuleType] = {}

    def cell(self, source: Source, digest: str) -> types.ModuleType:
        module = self._module(f"workbench_triton_{digest[:16]}", f"<{source.file}, {digest[:8]}>")
        vars(module).update(torch=importlib.import_module("torch"), triton=importlib.import_module("triton"),
                            tl=importlib.import_module("triton.language"))  # fmt: skip
        self._run(module, source)
        return module

    def _module(self, name: str, file: str) -> types.ModuleType:
        module = types.ModuleType(name)
        own: dict[str, Any] = {**vars(builtins), "__import__": self._import}
        vars(module).update(__file__=file, __builtins__=own)
        sys.modules[name] = module  # so that pickles, inspect and Inductor find what is in it
        return module

    def _run(self, module: types.ModuleType, source: Source) -> None:
        file, text = str(module.__file__), padded(source)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        _labels[file] = source.file
        tree = triton_text.parse(source)
        found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        first = [n.decorator_list[0].lineno if n.decorator_list else n.lineno for n in found]
        last = [n.end_lineno or n.lineno for n in found]
        _spans[file] = {(n.name, f): (n.lineno, e) for n, f, e in zip(found, first, last, strict=True)}
        try:
            exec(compile(tree, file, "exec"), vars(module))  # the user's own text, as a notebook runs it
            rewrite(vars(module))
        except WorkbenchError:
            sys.modules.pop(module.__name__, None)
            raise
        except Exception as error:
            sys.modules.pop(module.__name__, None)
            raise raised(error, source.file) from error

    def _import(
        self, name: str, globals: Mapping[str, Any] | None = None, locals: Any = None, fromlist: Any = (),
        level: int = 0,
    ) -> Any:  # fmt: skip
        """`import`, as the cell's text sees it: modules beside the notebook are this load's own."""
        package = (globals or {}).get("__package__") or ""
        full = absolute(name, package, level)
        if not files_of(self.folder, full):
            return builtins.__import__(name, globals, locals, fromlist, level)
        parts = full.split(".")
        first = self._beside(parts[0])
        last = first
        for i in range(1, len(parts)):
            last = self._beside(".".join(parts[: i + 1]))
        for item in fromlist or ():
            if not hasattr(last, item) and file_of(self.folder, f"{full}.{item}"):
                self._beside(f"{full}.{item}")
        return last if fromlist else first

    def _beside(self, name: str) -> types.ModuleType:
        if name in self.loaded:
            return self.loaded[name]
        file = file_of(self.folder, name)
        if not file:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        source = Source(read(file), "triton", os.path.relpath(file, self.folder), 1, self.folder)
        package = package_of(self.folder, file)
        told = (source.text, file, sorted(beside(source, package).items()), self.interpreted)
        key = hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()
        if key not in _modules:
            module = self._module(f"workbench_triton_{key[:16]}.{name}", f"<{source.file}, {key[:8]}>")
            module.__package__ = package
            self.loaded[name] = module  # a circle of imports meets what there is of it, as in Python
            self._run(module, source)
            _modules[key] = module
        self.loaded[name] = _modules[key]
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(self._beside(parent), last, _modules[key])
        return _modules[key]


def raised(error: BaseException, file: str) -> BuildError:
    """What a cell's own text raised while it was loaded, on the innermost of its lines."""
    where, line, excerpt = _place(error, file)
    said = _said(error, excerpt)
    found = Diagnostic(where, line, 1, "error", said, excerpt)
    return BuildError(said, diagnostics=(found,), log=str(found), line=line, file=where)


def told(error: BaseException, file: str) -> str:
    """What a launch raised, in one sentence with the cell's line: "cell [3], line 7: ValueError: ...".

    The interpreter wraps what a kernel raises; the first cause is told.
    """
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    where, line, excerpt = _place(error, file)
    text = _said(error, excerpt) if getattr(error, "node", None) is None else str(error)
    return (f"{where}, line {line}: " if line else "") + text


def _said(error: BaseException, excerpt: str) -> str:
    """Its kind and words, and what was probably meant; an assertion without words says what it asserts."""
    words = OUR_NAMES.sub("", str(error)) or (excerpt if isinstance(error, AssertionError) else "")
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return text + triton_hints.hint(text, error)


def _place(error: BaseException, file: str) -> tuple[str, int, str]:
    """(file as the user knows it, line, its text) of the innermost frame in a cell."""
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    own = [(f, line) for f, line in frames if label(f)]
    if not own:
        return file, 0, ""
    inner, line = own[-1]
    return label(inner), line, linecache.getline(inner, line).strip()


# ---------------------------------------------------------------- sources


@contextmanager
def _own_lines() -> Iterator[None]:
    """Triton reads sources through inspect, whose reading of decorators has had faults: spans of the tree have none."""
    usual = inspect.getsourcelines

    def getsourcelines(thing: Any) -> tuple[list[str], int]:
        code = getattr(thing, "__code__", None)
        spans = _spans.get(code.co_filename) if code is not None else None
        span = spans.get((code.co_name, code.co_firstlineno)) if code is not None and spans is not None else None
        if code is None or span is None:
            return usual(thing)
        return linecache.getlines(code.co_filename)[span[0] - 1 : span[1]], span[0]

    inspect.getsourcelines = getsourcelines  # type: ignore[assignment]
    try:
        yield
    finally:
        inspect.getsourcelines = usual


def rewrite(names: Mapping[str, object]) -> None:
    """Let the interpreter read its sources now, while they are known to be right."""
    for value in list(names.values()):
        inner = innermost(value)
        if type(inner).__name__ == "InterpretedFunction":
            inner.rewrite()
