"""What a build is, as plain data, and the exchange of the user's file names in it. Where it is kept: `store.py`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import BuildError, Diagnostic
from .resources import Resources


@dataclass(frozen=True)
class Build:
    """What a text compiled to.

    `path` is the shared object (or cubin), `tier` what it is ("body", "launcher", ...), `seconds` what the compiler
    took, also when `cached` says that it did not run now. `diagnostics` are its warnings, `log` its whole output. Of a
    cubin, `names` are the symbols of the kernels that were asked for and `resources` what each of them takes.
    """

    key: str
    path: str
    tier: str
    seconds: float
    cached: bool
    diagnostics: tuple[Diagnostic, ...] = ()
    resources: tuple[Resources, ...] = ()
    names: tuple[str, ...] = ()
    note: str = ""
    log: str = ""

    @property
    def there(self) -> bool:
        """Is its file there still? A cache may be cleared amid a session."""
        return os.path.exists(self.path)


@dataclass(frozen=True)
class Made:
    """What `make` left in the folder that it was given: the file `artefact`, and what is to be said about it.

    `labels` are the names that the text gave to the user's files, in order: another cell with the same code has
    others, and a hit puts those in.
    """

    artefact: str
    tier: str
    seconds: float
    diagnostics: tuple[Diagnostic, ...] = ()
    resources: tuple[Resources, ...] = ()
    names: tuple[str, ...] = ()
    note: str = ""
    log: str = ""
    labels: tuple[str, ...] = ()
    toolchain: str = ""


def relabelled(build: Build, former: tuple[str, ...], labels: tuple[str, ...]) -> Build:
    """That build again, as if the user's files had always been called `labels`: another cell with the same code."""
    if former == labels or not labels:
        return build
    names = dict(zip(former, labels))
    said = tuple(replace(d, file=names.get(d.file, d.file)) for d in build.diagnostics)
    return replace(build, diagnostics=said, log=_with_names(build.log, names))


def renamed(error: BuildError, names: dict[str, str]) -> BuildError:
    """That error again, as if the user's files had always had those names."""
    return BuildError(
        error.message,
        diagnostics=tuple(replace(d, file=names.get(d.file, d.file)) for d in error.diagnostics),
        log=_with_names(error.log, names),
        line=error.line,
        file=names.get(error.file, error.file),
    )


def _with_names(log: str, names: Mapping[str, str]) -> str:
    """File names at the places where compilers put them: before a colon or a parenthesis."""
    changed = {old: new for old, new in names.items() if old != new}
    if not changed:
        return log
    pattern = "|".join(re.escape(old) for old in sorted(changed, key=len, reverse=True))
    return re.sub(rf"(?<![\w/])({pattern})(?=[:(])", lambda match: changed[match[1]], log)
