"""What a package may be called and where it may lie. Pure checks; each refusal says what would do."""

from __future__ import annotations

import keyword
import os
import re
import sys
from functools import partial
from pathlib import Path

from ..errors import SaveError

_refused = partial(SaveError, asked=True)
_TAKEN = frozenset({"torch", "triton", "numpy", "workbench", "setuptools", "pip", "test", "tests", "src", "site",
                    "pytest", "judge"})  # fmt: skip
# Modules of a package besides those of its ops, and how those of an op end that stand beside its own.
MODULES = frozenset({"__init__", "__main__", "__pycache__", "_check", "_classes", "_ops", "_package", "_runtime"})
BESIDE = ("_functions", "_triton", "_triton_backward")
# What the functions in an op's module look up there when they are called.
_LOOKED_UP = frozenset({"Adopted", "Argument", "NAMESPACE", "OP", "Op", "SCHEMA", "Schema", "Tensor", "torch"})


def package_name(name: str) -> str:
    """The import name of a package: `rmsnorm_ops`. `rmsnorm-ops` is taken for it.

    SaveError for what Python cannot import, or what would hide a module of the standard library or of torch.
    """
    if not isinstance(name, str) or not name.strip():
        raise _refused(f"a package needs a name, such as 'rmsnorm_ops', got {name!r}")
    given, name = name, name.strip().replace("-", "_").replace(".", "_")
    if not re.fullmatch(r"[A-Za-z](?:\w*[A-Za-z0-9])?", name, re.ASCII):
        instead = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_0123456789") or "my_ops"
        raise _refused(
            f"{given!r} is no package name: letters, digits and '_', a letter first; for instance name={instead.lower()!r}"
        )
    if keyword.iskeyword(name):
        raise _refused(f"{given!r} is a word of Python's own, which no import can name; for instance name='{name}_ops'")
    if name.lower() in {m.lower() for m in sys.stdlib_module_names}:
        raise _refused(
            f"{given!r} would hide Python's own module {name.lower()!r} wherever it is installed; for instance name='{name}_ops'"
        )
    if name.lower() in _TAKEN:
        raise _refused(f"{given!r} is the name of another package; for instance name='{name}_ops'")
    return name.lower()


def version(text: str) -> str:
    """A version as PEP 440 has it, in its normal form. SaveError, with one that would do, for anything else."""
    from packaging.version import InvalidVersion, Version

    try:
        return str(Version(str(text)))
    except InvalidVersion:
        found = ".".join(re.findall(r"\d+", str(text))[:3]) or "0.1.0"
        raise _refused(f"{text!r} is no version (PEP 440); for instance version={found!r}") from None


def release(text: str) -> tuple[int, int, int]:
    """The numbers of a version: major, minor, micro.

    >>> release("1.4rc1")
    (1, 4, 0)
    """
    from packaging.version import Version

    major, minor, micro = (*Version(text).release, 0, 0)[:3]
    return major, minor, micro


def target(path: str | os.PathLike) -> Path:
    """The folder that a package is written to. SaveError where it cannot be one."""
    if not isinstance(path, (str, os.PathLike)):
        raise _refused(f"the path of a folder to write to is wanted, got {path!r}")
    if not str(path).strip():
        raise _refused("a package needs a folder to lie in, for instance wb.save([op], 'rmsnorm_ops')")
    found = Path(path).expanduser()
    final = Path(os.path.abspath(found))
    if final in (Path("/"), Path.home(), Path.cwd()):
        raise _refused(
            f"{final} is no folder for a package of its own: name one inside it, for instance {final / 'my_ops'}"
        )
    if final.exists() and not final.is_dir():
        raise _refused(f"{final} is a file; a package is a folder")
    parent = next(p for p in final.parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise _refused(f"{final} cannot be made: {parent} cannot be written to; choose another folder")
    if final.exists() and not os.access(final, os.W_OK):
        raise _refused(f"{final} cannot be written to; choose another folder, or change its rights (chmod u+w)")
    return final


def inside(root: Path, path: str) -> Path:
    """A file of the package: SaveError for a path that leaves its folder."""
    found = Path(os.path.normpath(root / path))
    if not found.is_relative_to(root) or os.path.isabs(path):
        raise _refused(f"{path} lies outside {root}; nothing is written there")
    return found


def module(op: str) -> str:
    """The module of an op, which is no other's and none of the package's own: `_rmsnorm`; for `check` it is `_check_op`."""
    name = f"_{op}"
    return f"{name}_op" if name in MODULES or name.endswith((*BESIDE, "_op")) else name


def function(op: str) -> str:
    """What the public function is called in that module: as the op, or with `_` behind where that is looked up there."""
    return f"{op}_" if op in _LOOKED_UP else op


def imported(op: str, name: str = "") -> str:
    """The statement that brings an op's function from its module, under a name of another module's.

    >>> imported("rmsnorm"), imported("check", "f")
    ('from ._rmsnorm import rmsnorm', 'from ._check_op import check as f')
    """
    found, name = function(op), name or op
    return f"from .{module(op)} import {found}" + (f" as {name}" if name != found else "")


def different(names: list[tuple[str, str]]) -> None:
    """SaveError where two ops, (short name, qualified name), would have one function, or one the name of a module."""
    seen: dict[str, str] = {}
    for short, qualname in names:
        if short in seen:
            both = qualname if seen[short] == qualname else f"{seen[short]} and {qualname}"
            said = "is given twice" if seen[short] == qualname else "would both be the function " + repr(short)
            raise _refused(
                f"{both} {said}: save {'it once' if seen[short] == qualname else 'them in packages of their own'}"
            )
        seen[short] = qualname
    modules = MODULES | {f"{module(short)}{end}" for short, _ in names for end in ("", *BESIDE)}
    hidden = next((both for both in names if both[0] in modules), None)
    if hidden:
        raise SaveError(
            f"{hidden[1]}: a package has a module {hidden[0]} of its own, which the function would hide: name the op otherwise, "
            f"for instance {hidden[0].strip('_')!r}"
        )
