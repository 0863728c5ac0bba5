"""`wb.cpp`, `wb.cuda` and `wb.triton`: what the cell magics call.

They find or make the op, build its slot, and raise if that was refused.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import torch

from . import blocks, files, install, tiers
from .adopt import adoption
from .adopt.ops import Ops, handed
from .build.triton_text import offering
from .define import define, find, forget, meant
from .errors import BuildError, SchemaError, WorkbenchError
from .judge import verdict
from .op import Op
from .reference import Definition
from .reports.report import Line
from .source import LANGUAGE_DEVICES, Source
from .turn import turn

listeners: list[Callable[[Line], None]] = []  # who is told of every line; the notebook's magic shows it
_instead: ContextVar[Callable[[Line], None] | None] = ContextVar("instead", default=None)


def cpp(
    target: str | Op | None,
    source: str,
    *,
    force: bool = False,
    cases: str | list[str] | None = None,
    file: str | None = None,
    entry: str = "",
) -> Op | Ops:
    """Put a C++ function into a slot of an op: build it, try it, install it if it agrees with the reference.

    >>> wb.cpp("scale", '''
    ... //! n = x.numel()
    ... //! out = empty(x.shape)
    ... template <typename T> void scale(const T* x, T* out, double k, int64_t n) {
    ...   for (int64_t i = 0; i < n; ++i) out[i] = T(x[i] * k);
    ... }
    ... ''')
    <lab::scale(Tensor x, float k=2.0) -> Tensor | forward cpu v1>

    `target` is an op, its name, or `"name.backward"`; a name that no op bears makes one, its schema read from the
    function. None: the source's own TORCH_LIBRARY or PYBIND11_MODULE blocks say what it defines; its op comes back, or
    all of them in a namespace. `force` installs a kernel that merely differs; `cases` names the cases to try ("none":
    none at all). `file` also writes the source there (`wb.load` reads it). `entry` is the function to call, where it is
    not named like the op. In a notebook the line of the cell is shown; elsewhere it is in `op.last_line`.

    Raises SchemaError, BuildError or TrialError; each says what is still installed, and nothing is lost.
    """
    return run(target, _source(source, "cpp"), force=force, cases=cases, file=file, entry=entry)


def cuda(
    target: str | Op | None,
    source: str,
    *,
    force: bool = False,
    cases: str | list[str] | None = None,
    file: str | None = None,
    entry: str = "",
) -> Op | Ops:
    """Put CUDA code into a slot of an op; the arguments are those of `wb.cpp`.

    >>> wb.cuda("scale", '''
    ... //! n = x.numel()
    ... //! out = empty(x.shape)
    ... //! grid = cdiv(n, 256)
    ... //! block = 256
    ... template <typename T> __global__ void scale(const T* x, T* out, float k, long long n) {
    ...   long long i = blockIdx.x * 256ll + threadIdx.x;
    ...   if (i < n) out[i] = T(float(x[i]) * k);
    ... }
    ... ''')

    It is compiled for the GPU at hand. Where there is none it is compiled for WORKBENCH_ARCH (or sm_90) and kept in
    its slot, and the line says that it was not run. Raises what `wb.cpp` raises, and ToolchainError where the
    compiler is missing (`pip install kernel-workbench[cuda]`).
    """
    return run(target, _source(source, "cuda"), force=force, cases=cases, file=file, entry=entry)


def triton(
    target: str | Op,
    source: str,
    *,
    force: bool = False,
    cases: str | list[str] | None = None,
    file: str | None = None,
    entry: str = "",
    interpret: bool = False,
) -> Op | Ops:
    """Put a Triton launcher into a slot of an op; the other arguments are those of `wb.cpp`.

    >>> wb.triton("scale", '''
    ... @triton.jit
    ... def kernel(x, out, k, n, BLOCK: tl.constexpr):
    ...     i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ...     tl.store(out + i, tl.load(x + i, i < n) * k, i < n)
    ...
    ... def scale(x, k=2.0):
    ...     out = torch.empty_like(x)
    ...     kernel[(triton.cdiv(x.numel(), 256),)](x, out, k, x.numel(), BLOCK=256)
    ...     return out
    ... ''')

    The text is a module of its own, in which `torch`, `triton` and `tl` are there. The function named like the op
    takes its arguments by name and returns its outputs, then what it saves; `backward` may stand beside it. Where
    there is no GPU it is tried by Triton's interpreter, compiled for WORKBENCH_ARCH (or sm_90), and the interpreter
    also runs the op on tensors of the CPU. `interpret` runs it in this process, where breakpoint() and print work.

    Raises what `wb.cpp` raises, and ToolchainError where Triton cannot be imported.
    """
    caller = sys._getframe(1)
    with offering({**caller.f_globals, **caller.f_locals}):
        text = _source(source, "triton")
        return run(target, text, force=force, cases=cases, file=file, entry=entry, interpret=interpret)


def _source(text: str, language: str) -> Source:
    if not isinstance(text, str):
        cure = f"; a file is loaded by wb.load({str(text)!r})" if isinstance(text, Path) else ""
        raise SchemaError(f"the source is the text of a cell, a string; got {type(text).__name__}{cure}")
    return Source(text, language, path=os.getcwd(), first_line=1)


def run(
    target: str | Op | None,
    text: Source,
    *,
    force: bool = False,
    cases: str | list[str] | None = None,
    file: str | None = None,
    entry: str = "",
    interpret: bool = False,
    born: Callable[[Op], str] | None = None,
) -> Op | Ops:
    """Build a source into its target; shows the line, raises what was refused.

    `born` is told of an op that this makes, and says by what name it is at hand.
    """
    with turn, _placed(text):
        text = files.readable(text)
        if entry is not None and not isinstance(entry, str):
            raise SchemaError(f"entry is the name of a function of the source, got {entry!r}")
        if target is None and text.language == "triton":
            raise SchemaError("a Triton cell fills a slot of an op: name it, e.g. '%%triton rmsnorm'")
        if target is None:
            return run_blocks(adoption.Wanted((text,)), force=force, cases=_case_names(cases), file=file)
        op, qualname, slot = find(target)
        if slot == "forward" and blocks.defines(text, qualname):
            return run_blocks(adoption.Wanted((text,)), force=force, cases=_case_names(cases), file=file)
        if op is not None and op.registration.foreign:
            raise SchemaError(f"{qualname} is defined by a TORCH_LIBRARY block, and so are its kernels: edit that cell")
        if file:
            files.write_cell(file, text, target if isinstance(target, str) else qualname)
        names = _case_names(cases)
        with install.keeping(op, slot, LANGUAGE_DEVICES[text.language]):
            made = _new(text, qualname, slot, entry) if op is None else _reborn(op, text, slot, entry)
            line = _build(made, text, slot, force, names, entry, interpret, is_new=op is None, born=born)
            if line.installed and slot == "forward" and tiers.has_backward(text):
                line = _build(made, text, "backward", force, names, "", interpret)
        if not line.installed:
            raise verdict.refusal_error(line)
        return made


def run_blocks(
    wanted: adoption.Wanted, *, force: bool = False, cases: list[str] | None = None, file: str | None = None
) -> Op | Ops:
    """Build what says by itself what it defines; shows the line, raises what was refused."""
    with turn, _placed(wanted.sources[0]):
        if file:
            files.write_cell(file, wanted.sources[0], "")
        extension, line = adoption.run(wanted, force=force, cases=cases)
        for op in extension.ops.values():
            op.last_line = line
        _tell(None, line)
        if not line.installed:
            raise verdict.refusal_error(line)
        return handed(extension)


@contextmanager
def _placed(text: Source) -> Iterator[None]:
    """Errors that know their line alone get the name of the cell or file."""
    try:
        yield
    except WorkbenchError as error:
        error.file = error.file or (text.file if error.line else "")
        raise


@contextmanager
def telling(listener: Callable[[Line], None]) -> Iterator[None]:
    """Lines of what is built inside, in this thread, go to `listener` alone."""
    before = _instead.set(listener)
    try:
        yield
    finally:
        _instead.reset(before)


def _build(
    op: Op, text: Source, slot: str, force: bool, cases: list[str] | None, entry: str, interpret: bool, *,
    is_new: bool = False, born: Callable[[Op], str] | None = None,
) -> Line:  # fmt: skip
    """One slot, and its line; an op whose first cell did not get so far is gone again."""
    started = time.perf_counter()
    try:
        line = install.cell(op, text, slot, force=force, cases=cases, function=entry, interpret=interpret)
    except BaseException as error:
        if isinstance(error, BuildError):
            _tell(op, verdict.uncompiled(op, slot, text.language, error, time.perf_counter() - started))
        if is_new:
            forget(op)
        raise
    if is_new and line.installed:
        line = replace(line, notes=(_newly(op, born(op) if born else ""), *line.notes))
    _tell(op, line)
    return line


def _newly(op: Op, name: str) -> str:
    """What is to be said of an op that a cell has made, where its name may be a slip for another's."""
    said = f"new op {op.qualname}: no reference, so it is compared with nothing"
    ways = [f'wb.ops["{op.qualname}"]', f"torch.ops.{op.qualname.replace('::', '.')}"]
    near = meant(op.qualname)
    return f"{said}; {f'{near} Else call' if near else 'call'} it as {' or '.join([name] if name else ways)}"


def _tell(op: Op | None, line: Line) -> None:
    if op is not None:
        op.last_line = line
    instead = _instead.get()
    for tell in [instead] if instead else listeners:
        tell(line)


def _new(text: Source, qualname: str, slot: str, entry: str) -> Op:
    """An op for a name that none bears, its schema read from the function's signature."""
    near = meant(qualname)
    if slot != "forward":
        hint = f"; {near}" if near else ""
        raise SchemaError(f"there is no op {qualname} whose {slot} this could be; define it with wb.op first{hint}")
    try:
        schema = tiers.infer_schema(text, qualname, entry)
    except SchemaError as error:
        # Who meant an op that is there must not be told what a new one lacks as if that were the mistake.
        known = near or "run the cell that defines it first."
        error.message = f"there is no op {qualname}; {known} For a new one: {error.message}"
        raise
    return define(Definition(schema, born_of_a_cell=True))


def _reborn(op: Op, text: Source, slot: str, entry: str) -> Op:
    """An op whose schema came from a cell takes another one from the cell's new signature, once that compiles."""
    if slot != "forward" or not op.definition.born_of_a_cell or op.reference is not None:
        return op
    schema = tiers.infer_schema(text, op.qualname, entry)
    if str(schema) == str(op.schema):
        return op
    kernel = tiers.kernel(text, schema, slot, function=entry)
    kernel.build([{a.name: torch.float32 for a in schema.arguments if a.is_tensor}])
    return define(Definition(schema, born_of_a_cell=True))


def _case_names(cases: str | list[str] | None) -> list[str] | None:
    if cases is None:
        return None
    if isinstance(cases, str):
        names = [c.strip() for c in cases.split(",") if c.strip()]
        if not names:
            raise SchemaError("cases names no case; 'none' means that none is to be tried")
        return [] if names == ["none"] else names
    if isinstance(cases, (list, tuple)) and all(isinstance(c, str) for c in cases):
        return list(cases)
    raise SchemaError(f"cases are names, as in cases=['odd', 'llama'], or \"none\"; got {cases!r}")


__all__ = ["Line", "cpp", "cuda", "run", "telling", "triton"]
