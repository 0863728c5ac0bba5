"""`wb.load`: ops from files, in the same syntax as cells.

A folder of `kernels/` holds one op: `op.py` (reference and cases), `NAME.cpp` (its forward), `NAME.backward.cpp`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from . import cells
from .errors import SchemaError
from .op import Op
from .source import Source

LANGUAGES = {".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp"}
HEADERS = (".h", ".hpp", ".cuh", ".inl")


def load(path: str | Path) -> list[Op]:
    """The ops that a file or a folder defines, built, tried and installed as cells are.

    >>> [rmsnorm] = wb.load("kernels/rmsnorm")
    >>> [relu] = wb.load("kernels/smooth_relu/smooth_relu.cpp")       # one file: the slot that its name says

    In a folder `op.py` comes first, then forwards, then backwards. Raises SchemaError for a path that holds no op,
    and what cells raise, on the lines of the file; what was loaded before the error stays.
    """
    where = Path(path).expanduser()
    if not where.exists():
        raise SchemaError(f"there is no file or folder {str(path)!r} here ({Path.cwd()})")
    files = _files(where) if where.is_dir() else [where]
    found: dict[str, Op] = {}
    for file in files:
        ops = _run(file) if file.suffix == ".py" else [_build(file)]
        found |= {op.qualname: op for op in ops}
    if not found:
        raise SchemaError(f"{where} defines no op: put a reference under @wb.op(...) into op.py, or a kernel into NAME.cpp")
    return list(found.values())


def _files(folder: Path) -> list[Path]:
    """What a folder holds, in the order in which it must run."""
    kernels = [f for f in sorted(folder.iterdir()) if f.suffix in LANGUAGES]
    kernels.sort(key=lambda f: (_target(f).endswith(".backward"), f.name))
    first = folder / "op.py"
    if not first.exists() and not kernels:
        raise SchemaError(f"{folder} holds no op.py and no kernel ({', '.join(LANGUAGES)})")
    return [*([first] if first.exists() else []), *kernels]


def _target(file: Path) -> str:
    """`rmsnorm.backward.cpp` -> `rmsnorm.backward`."""
    return file.name[: -len(file.suffix)]


def _build(file: Path) -> Op:
    if file.suffix not in LANGUAGES:
        raise SchemaError(f"{file}: a kernel file ends in {', '.join(LANGUAGES)} or .py, got {file.suffix or 'no suffix'!r}")
    text = file.read_text(encoding="utf-8")
    return cells.run(_target(file), Source(text, LANGUAGES[file.suffix], str(file), 1, str(file.parent.resolve())))


def _run(file: Path) -> list[Op]:
    """Run a Python file as a module of its own; its ops are those that it holds by name."""
    name = f"workbench_loaded_{file.resolve().parent.name}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise SchemaError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that pickles and inspect find it
    spec.loader.exec_module(module)
    return [v for v in vars(module).values() if isinstance(v, Op)]
