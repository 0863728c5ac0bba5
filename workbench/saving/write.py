"""A package onto the disk: all of it or none, and never over a change made by hand.

Every file is written aside first; what is there is replaced file by file, and put back where that fails midway.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SaveError
from . import names
from .model import Package
from .project import MANIFEST

SHOWN_LINES = 24  # of each file


@dataclass(frozen=True)
class Former:
    """What lies in the target already: what its manifest says, and which of its files were edited since."""

    manifest: Mapping[str, Any]
    edited: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()

    @property
    def files(self) -> Mapping[str, str]:
        return self.manifest.get("files", {})


def former(root: Path) -> Former | None:
    """What was saved to that folder before; None for a new or an empty one. SaveError for a folder of something else."""
    if not root.exists() or not any(root.iterdir()):
        return None
    try:
        manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        listed = dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SaveError(
            f"{root} holds something else than a saved package (there is no {MANIFEST}): name a new folder, or empty it",
            asked=True,
        ) from None
    there = {p: digest_of(root / p) for p in listed}
    edited = frozenset(p for p, d in there.items() if d and d != listed[p])
    return Former(manifest, edited, frozenset(p for p, d in there.items() if not d))


def aside(root: Path) -> Path:
    """A new folder beside a place that it will take, with the rights that a folder has here. SaveError if it cannot be."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        made = root.parent / f".{root.name}.new-{uuid.uuid4().hex[:8]}"  # tempfile's would be its owner's alone
        made.mkdir()
    except OSError as error:
        raise SaveError(f"{root} cannot be written: {error.strerror}; choose another folder") from None
    return made


def stage(package: Package, root: Path) -> tuple[Path, dict[str, str]]:
    """Every file of the package in a folder beside its place, and their digests. The caller removes the folder."""
    made = aside(root)
    try:
        for path, text in package.files.items():
            place = names.inside(made, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", newline="\n")
        for path, make in package.data.items():
            place = names.inside(made, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            make(str(place))
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        raise SaveError(f"{root} cannot be written: {error.strerror}; nothing was changed") from None
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made, {p: digest_of(made / p) for p in (*package.files, *package.data)}


def conflicts(before: Former, root: Path, aside: Path, digests: Mapping[str, str]) -> list[str]:
    """The files that were edited by hand and that the new package has otherwise, too; also those of the user's own that
    lie where it has one.
    """
    changed = [p for p in before.edited if p in digests and digests[p] not in (before.files[p], digest_of(root / p))]
    dropped = [p for p in before.edited if p not in digests]
    removed = [p for p in before.gone if p in digests and digests[p] != before.files[p]]
    own = [p for p in digests if p not in before.files and (root / p).exists() and digest_of(root / p) != digests[p]]
    return sorted({*changed, *dropped, *removed, *own})


def difference(root: Path, aside: Path, paths: list[str]) -> str:
    """What was made by hand and what would be written, as a diff; of each file the first lines."""
    lines: list[str] = []
    for path in paths:
        mine, theirs = (_lines(folder / path) for folder in (root, aside))
        own = f"{path} (as it is)", f"{path} (as it would be written)"
        found = list(difflib.unified_diff(mine, theirs, *own, n=1, lineterm=""))
        lines += found[:SHOWN_LINES]
        lines += [f"... {len(found) - SHOWN_LINES} more lines of {path}"] if len(found) > SHOWN_LINES else []
    return "\n".join(lines)


def place(aside: Path, root: Path, digests: Mapping[str, str], before: Former | None, manifest: str) -> tuple[str, ...]:
    """Put the staged files in their places; the files that keep a change made by hand are returned."""
    if before is None:
        (aside / MANIFEST).write_text(manifest, encoding="utf-8", newline="\n")
        if root.exists():
            root.rmdir()
        os.replace(aside, root)
        return ()
    kept = tuple(sorted(p for p in (*before.edited, *before.gone) if p in digests and digests[p] == before.files[p]))
    fresh = [p for p in digests if p not in kept and digest_of(root / p) != digests[p]]
    stale = [p for p in before.files if p not in digests and (root / p).exists()]
    (aside / MANIFEST).write_text(manifest, encoding="utf-8", newline="\n")
    _replace(aside, root, [*fresh, MANIFEST], stale)
    return kept


def _replace(aside: Path, root: Path, fresh: list[str], stale: list[str]) -> None:
    """File by file, with the former ones put back if one fails."""
    backup = Path(tempfile.mkdtemp(prefix=".former-", dir=aside))
    moved: list[str] = []
    made: list[str] = []
    try:
        for path in (*fresh, *stale):
            if (root / path).exists():
                (backup / path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(root / path, backup / path)
                moved.append(path)
            if path in fresh:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(aside / path, root / path)
                made.append(path)
    except OSError as error:
        for path in made:
            (root / path).unlink(missing_ok=True)
        for path in moved:
            os.replace(backup / path, root / path)
        raise SaveError(f"{root} cannot be written: {error.strerror}; it is as it was") from None
    for path in stale:
        folder = (root / path).parent
        while folder != root and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        return ["(no text)"]


def digest_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return ""
