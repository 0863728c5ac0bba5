"""The folder of a deployment: written aside, put in its place at the end. What a user put or changed there stays."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import SaveError
from ..saving import write

MANIFEST = "deployed.json"


@dataclass(frozen=True)
class Former:
    """What an earlier deployment left: `texts` are the digests of what it wrote for people, `made` its other files."""

    root: Path
    texts: Mapping[str, str] = field(default_factory=dict)
    made: frozenset[str] = frozenset()

    def edited(self, path: str) -> bool:
        """Is that text another one than was written?"""
        return path in self.texts and write.digest_of(self.root / path) not in ("", self.texts[path])

    @property
    def foreign(self) -> list[str]:
        """The files that somebody else put there."""
        ours = {*self.texts, *self.made, MANIFEST}
        return [path for path in paths(self.root) if path not in ours]


def former(root: Path) -> Former:
    """What lies in the target already. SaveError for a folder of something else."""
    if not root.exists() or not any(root.iterdir()):
        return Former(root)
    try:
        manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        return Former(root, dict(manifest["files"]), frozenset(manifest.get("made", ())))
    except (OSError, ValueError, KeyError, TypeError):
        raise SaveError(
            f"{root} holds something else than a deployment (there is no {MANIFEST}): name a new folder",
            asked=True,
        ) from None


def settled(before: Former, folder: Path, texts: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The digests of the texts that now lie in `folder`, and those among them that keep a change made by hand.

    A changed text stays as it is where the new one would be what was written before. SaveError with the difference
    where it would not.
    """
    digests = {path: write.digest_of(folder / path) for path in texts}
    edited = [p for p in digests if before.edited(p) and write.digest_of(before.root / p) != digests[p]]
    if found := [p for p in edited if digests[p] != before.texts[p]]:
        raise SaveError(
            f"{', '.join(found)} in {before.root} {'was' if len(found) == 1 else 'were'} changed by hand, and would be "
            "written otherwise: deploy to another folder and merge, or undo the change, and deploy again\n"
            f"{write.difference(before.root, folder, found)}"
        )
    for path in edited:
        shutil.copy2(before.root / path, folder / path)
    return digests, edited


def carry(before: Former, folder: Path) -> None:
    """What others put into the former folder goes into the new one. SaveError where its place is taken now."""
    for path in before.foreign:
        place = folder / path
        if place.exists():
            raise SaveError(f"{before.root / path} is of no earlier deployment and would be written over: move it away")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(before.root / path, place, follow_symlinks=False)


def paths(root: Path) -> list[str]:
    """All files below a folder."""
    if not root.exists():
        return []
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_symlink() or not p.is_dir())


@contextmanager
def staged(root: Path) -> Iterator[tuple[Path, Path]]:
    """A folder beside its place, for `place`, and one for what nobody keeps; what was not placed is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="deploy-") as temporary:
        aside = write.aside(root)
        try:
            yield aside, Path(temporary)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def place(aside: Path, root: Path) -> None:
    """The new folder in the place of the former one; that one back where it cannot be."""
    former = aside.with_name(f"{aside.name}-former")
    if root.exists():
        os.replace(root, former)
    try:
        os.replace(aside, root)
    except BaseException:
        if former.exists():
            os.replace(former, root)
        raise
    shutil.rmtree(former, ignore_errors=True)
