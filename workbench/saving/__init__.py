"""An op as a package that anyone can install: `wb.save`. It knows nothing of where it was made.

What an op holds is read in `collect`, made into texts by the modules beside it, and written by `write`, all or nothing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import SaveError, WorkbenchError
from ..reports.saving import Change, Saved
from ..turn import in_turn
from . import collect, evolution, licences, names, project, sources, write
from .model import Package
from .origin import digest

LAYOUTS = ("python", "kernels")


@in_turn
def save(
    ops: Any,
    path: str | os.PathLike,
    *,
    name: str = "",
    version: str = "0.1.0",
    layout: str = "python",
    title: str = "",
    license: str = "Apache-2.0",
) -> Saved:
    """Write ops as a complete project: sources as they were run, host code, Python, tests, benchmarks, README.

    >>> print(wb.save([rmsnorm], "rmsnorm_ops"))
    rmsnorm_ops 0.1.0 | lab::rmsnorm | 54 files in /home/me/rmsnorm_ops | 0.1 s
    install it: pip install --no-build-isolation /home/me/rmsnorm_ops

    `ops` is an op or several, `path` the folder, `name` what is imported (the folder's name where it is not given),
    `version` a version of PEP 440. `layout` is "python", a project for pip, or "kernels", one for Hugging Face's
    kernel-builder. `title` is one sentence, for its README. `license` is an SPDX expression, "MIT"; the texts of the usual
    ones are written. Saved again over an earlier package, files that were edited by hand and not made anew keep their
    edits; where both changed nothing is written. The report says what the new version changes for callers.

    Raises SaveError, naming the cell, for what cannot be saved, for a name, version, licence or folder that will not
    do, and for a conflict, with the difference. Nothing is then changed on the disk.
    """
    started = time.perf_counter()
    try:
        return _save(_listed(ops), path, name, version, layout, title, license, started)
    except WorkbenchError as error:
        error.still = error.still or "nothing was written"
        if isinstance(error, SaveError):
            raise
        made = SaveError(error.message, line=error.line, file=error.file)
        made.still = error.still
        raise made from error


def _listed(ops: Any) -> list[Any]:
    found = list(ops) if isinstance(ops, Iterable) and not hasattr(ops, "schema") else [ops]
    if not found:
        raise SaveError("there is no op to save: wb.save([op, ...], path)")
    for op in found:
        if not hasattr(op, "slots") or not hasattr(op, "schema"):
            raise SaveError(f"wb.save takes ops, made with wb.op or by a cell; got {type(op).__name__} {op!r:.40}")
    return found


def _save(
    ops: list[Any],
    path: str | os.PathLike,
    name: str,
    version: str,
    layout: str,
    title: str,
    licence: str,
    started: float,
) -> Saved:
    if layout not in LAYOUTS:
        raise SaveError(f"layout is one of {', '.join(map(repr, LAYOUTS))}, got {layout!r}", asked=True)
    root = names.target(path)
    called, numbered = names.package_name(name or root.name), names.version(version)
    spdx = licences.expression(licence)
    names.different([(op.name, op.qualname) for op in ops])
    before = write.former(root)
    together = [op.qualname for op in ops]
    kept = sources.apart([collect.saved(op, together) for op in ops])
    package = Package(called, numbered, kept, layout, title)
    facts = project.Facts.now()
    package, facts = _dated(package, facts, spdx, before)
    metadata = {op.qualname: evolution.metadata(op) for op in ops}
    changes: tuple[Change, ...] = ()
    if before:
        changes = evolution.renamed(before.manifest.get("name", called), called)
        changes += evolution.changes(before.manifest.get("ops", {}), {op.qualname: op.schema for op in ops}, metadata)
    edited = _written(package, root, before, facts, metadata)
    advised = evolution.advised(before.manifest["version"], changes) if before and changes else ""
    return Saved(
        str(root), called, numbered, layout, tuple(together), len(package.files) + len(package.data) + 1,
        time.perf_counter() - started, changes, "" if advised and names.release(numbered) >= names.release(advised) else advised, edited,
        tuple(said for op in package.ops for said in op.doubts),
    )  # fmt: skip


def _dated(
    package: Package, facts: project.Facts, licence: str, before: write.Former | None
) -> tuple[Package, project.Facts]:
    """The package, of the day of the one before where nothing but the day is new: another day is no change."""
    if before is not None:
        earlier = replace(facts, date=str(before.manifest.get("date", facts.date)))
        made = _filled(package, earlier, licence)
        if all(before.files.get(p) == digest(text) for p, text in made.files.items()):
            return made, earlier
    return _filled(package, facts, licence), facts


def _filled(package: Package, facts: project.Facts, licence: str) -> Package:
    if package.layout == "kernels":
        from .kernels_layout import files

        return files(package, facts, licence=licence)
    return project.files(package, facts, licence=licence)


def _written(
    package: Package, root: Path, before: write.Former | None, facts: project.Facts, metadata: dict
) -> tuple[str, ...]:
    aside, digests = write.stage(package, root)
    try:
        if before is not None and (found := write.conflicts(before, root, aside, digests)):
            listed = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
            shown = write.difference(root, aside, found)
            raise SaveError(
                f"{listed} in {root} {'was' if len(found) == 1 else 'were'} changed by hand, and would be written otherwise: "
                f"save to another folder and merge, or undo the change, and save again\n{shown}"
            )
        return write.place(aside, root, digests, before, project.manifest(package, digests, facts, metadata))
    finally:
        shutil.rmtree(aside, ignore_errors=True)


__all__ = ["Saved", "save"]
