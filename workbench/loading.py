"""`wb.load`: ops from files, in the same syntax as cells.

A folder of `kernels/` holds one op: `op.py` (reference and cases), `NAME.cpp` (its forward), `NAME.backward.cpp`.
"""

from __future__ import annotations

import hashlib
import re
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import blocks, cells, define, files
from .adopt import adoption
from .adopt.ops import Ops
from .build import extension
from .errors import SchemaError
from .op import Op
from .source import Source
from .turn import turn


def load(
    path: str | Path,
    sources: Sequence[str] | None = None,
    *,
    name: str = "",
    extra_cflags: Sequence[str] = (),
    extra_cuda_cflags: Sequence[str] = (),
    extra_ldflags: Sequence[str] = (),
    extra_include_paths: Sequence[str] = (),
) -> list[Op]:
    """The ops that a file or a folder defines, built, tried and installed as cells are.

    >>> [rmsnorm] = wb.load("kernels/rmsnorm")
    >>> [relu] = wb.load("kernels/smooth_relu/smooth_relu.cpp")       # one file: the slot that its name says
    >>> ops = wb.load("ext/", sources=["a.cpp", "b.cpp"], extra_include_paths=["include"])

    In a folder `op.py` comes first, but behind a file with a custom class; then forwards, then backwards. With
    `sources` the folder is an extension, whose TORCH_LIBRARY or PYBIND11_MODULE blocks say what it defines; the
    options (`extra_cflags`, `extra_cuda_cflags`, `extra_ldflags`, `extra_include_paths`) are those of
    `torch.utils.cpp_extension.load`, and paths begin in the folder. `name` is its name, else the folder's.

    Raises SchemaError for a path that holds no op, and what cells raise, on the lines of the file; what was loaded
    before the error stays.
    """
    if not isinstance(path, (str, Path)) or not str(path):
        raise SchemaError(f"wb.load takes the path of a file or a folder, got {path!r}")
    where = Path(path).expanduser()
    if not where.exists():
        raise SchemaError(f"there is no file or folder {str(path)!r} here ({Path.cwd()})")
    options = {"extra_cflags": extra_cflags, "extra_cuda_cflags": extra_cuda_cflags,
               "extra_ldflags": extra_ldflags, "extra_include_paths": extra_include_paths}  # fmt: skip
    if sources is not None:
        return _extension(where, sources, name, options)
    given = [option for option, value in {"name": name, **options}.items() if value]
    if given:
        raise SchemaError(f"{', '.join(given)}: only with sources=[...]; a kernel file says its flags in '//! flags'")
    found = load_files(files_of(where) if where.is_dir() else [where])
    if not found:
        cure = "put a reference under @wb.op(...) into op.py, or a kernel into NAME.cpp"
        raise SchemaError(f"{where} defines no op: {cure}")
    return found


def load_files(paths: Iterable[Path]) -> list[Op]:
    """The ops of these files, run in this order; a kernel's bare name means the op of an earlier one."""
    found: dict[str, Op] = {}
    with turn:
        for file in paths:
            ops = (
                _run(file) if file.suffix == ".py" and not files.language(file) else _build(file, list(found.values()))
            )
            found |= {op.qualname: op for op in ops}
    return list(found.values())


def _extension(folder: Path, names: Sequence[str], name: str, options: Mapping[str, Sequence[str]]) -> list[Op]:
    """Sources that say by themselves what they define, as one extension."""
    if not folder.is_dir():
        raise SchemaError(f"{folder} is no folder: with sources=[...] it is the one that they lie in")
    folder = folder.absolute()
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise SchemaError(f"sources is a list of files, got {'the string ' if isinstance(names, str) else ''}{names!r}")
    if not names:
        raise SchemaError(f"the extension in {folder} has no sources")
    paths = tuple(_inside(folder, n) for n in names)
    texts = tuple(files.source(p, files.SOURCES) for p in paths)
    found = [str(_inside(folder, f)) for f in options["extra_include_paths"]]
    name = name or re.sub(r"\W", "_", folder.resolve().name, flags=re.ASCII)
    _recipes[folder.resolve()] = Recipe(folder, paths, {"name": name, **options})
    for file, text in zip(paths, texts, strict=True):
        files.built(file, text.text)
    wanted = adoption.Wanted(texts, name, options={**options, "extra_include_paths": found})
    return _listed(cells.run_blocks(wanted))


def _inside(folder: Path, name: str) -> Path:
    """A path that begins in the folder; one that is only where Python runs is taken, too, as torch takes it."""
    path = Path(name).expanduser()
    return path if not (folder / path).exists() and path.exists() else folder / path


def _listed(handed: Op | Ops) -> list[Op]:
    return [handed] if isinstance(handed, Op) else list(handed)


@dataclass(frozen=True)
class Recipe:
    """How the extension in a folder was loaded, for loading it again."""

    folder: Path
    files: tuple[Path, ...]
    options: Mapping[str, Any]

    def headers(self, text: Source) -> dict[str, str]:
        """The user's headers that one of its sources includes, with their digests."""
        folders = [str(_inside(self.folder, f)) for f in self.options["extra_include_paths"]]
        return extension.headers_of([text], extra_cflags=self.options["extra_cflags"], extra_include_paths=folders)

    def load(self) -> list[Op]:
        return load(self.folder, [str(f) for f in self.files], **self.options)


def recipe(folder: Path) -> Recipe | None:
    """How `wb.load(folder, sources=...)` was last called in this process; None if it was not."""
    return _recipes.get(folder.resolve())


_recipes: dict[Path, Recipe] = {}


def files_of(folder: Path) -> list[Path]:
    """What a folder holds, in the order in which it must run: custom classes, op.py, forwards, backwards."""
    kernels = [f for f in sorted(folder.iterdir()) if files.language(f) and f.is_file()]
    kernels.sort(key=lambda f: (files.target(f).endswith(".backward"), f.name))
    first = folder / "op.py"
    if not first.exists() and not kernels:
        inner = sorted({str(f.parent) for f in folder.glob("*/*") if f.name == "op.py" or files.language(f)})
        also = f"; load one of the folders in it: {', '.join(inner[:6])}" if inner else ""
        raise SchemaError(f"{folder} holds no op.py and no kernel ({', '.join(files.KINDS)}){also}")
    classes = [f for f in kernels if _has_classes(f)]  # op.py names them
    return [*classes, *([first] if first.exists() else []), *(f for f in kernels if f not in classes)]


def _has_classes(file: Path) -> bool:
    try:
        return blocks.has_classes(files.source(file))
    except SchemaError:  # it cannot be read: said when it is to be built
        return False


def _build(file: Path, near: Sequence[Op]) -> list[Op]:
    """A kernel for the slot that the file's name says; where no op bears it, what the text's own blocks define."""
    text = files.source(file)
    files.built(file, text.text)
    name, dot, slot = files.target(file).partition(".")
    here = [op for op in near if op.name == name]
    target = f"{here[0].qualname}{dot}{slot}" if len(here) == 1 else f"{name}{dot}{slot}"
    known = bool(here) or any(op.name == name for op in define.ops.values())
    return _listed(cells.run(None if blocks.has_blocks(text) and not known else target, text))


def _run(file: Path) -> list[Op]:
    """Run a Python file as a module of its own; its ops are those that it holds by name.

    Not by an importer: that would trust bytecode of the same second and length, and leave it beside the file.
    """
    where = file.resolve()
    module = types.ModuleType(f"workbench_loaded_{hashlib.sha256(str(where).encode()).hexdigest()[:12]}_{file.stem}")
    module.__file__ = str(where)
    try:
        code = compile(file.read_bytes(), str(where), "exec")
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}") from error
    files.built(file, files.read(file))
    sys.modules[module.__name__] = module  # so that pickles and inspect find it
    exec(code, vars(module))
    return [v for v in vars(module).values() if isinstance(v, Op)]
