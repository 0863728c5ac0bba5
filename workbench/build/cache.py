"""Which store builds go to: the one in the cache folder or, when that cannot be written to, a temporary one."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .. import settings
from ..errors import Diagnostic, ToolchainError
from . import eviction, listing, process
from .result import Build, Made
from .store import LIMIT_BYTES, Store, Unwritable

LIMIT_FILE = "limit"  # bytes, in the cache folder
_stores: dict[tuple[Path, str], Store] = {}
_instead: dict[Path, tuple[Path, Diagnostic]] = {}  # a cache that cannot be written to: the folder in its place, a note
_mutex = threading.Lock()


def store(shelf: str = "", *, limit_bytes: int = LIMIT_BYTES, verify: bool = True) -> Store:
    """The store that is in use now. `shelf` names a separate one beside it, with a limit of its own."""
    return _store(settings.cache_dir(), shelf, limit_bytes, verify)


def limit_bytes() -> int:
    """What the builds in the cache may take in all: what `workbench cache limit` said, else 5 GB."""
    return _limit(settings.cache_dir())


def set_limit(bytes_: int) -> None:
    """Remember another limit, also for later processes. OSError where the cache cannot be written to."""
    root = settings.private(settings.cache_dir())
    (root / LIMIT_FILE).write_text(f"{bytes_}\n", encoding="ascii")
    _store(root, "").limit_bytes = bytes_


def clear() -> tuple[int, int]:
    """Throw away all builds that no live process uses: the bytes freed, and how many builds stay."""
    root, freed = settings.cache_dir(), 0
    for shelf in listing.families(root):
        held = _store(root, shelf, verify=False)
        freed += eviction.evict(held.root, 0, held.used(), held.discard, fresh_s=0.0)
    return freed, len(listing.entries(root))


def _limit(root: Path) -> int:
    try:
        return int((root / LIMIT_FILE).read_text("ascii"))
    except (OSError, ValueError):
        return LIMIT_BYTES


def _store(root: Path, shelf: str, limit_bytes: int = LIMIT_BYTES, verify: bool = True) -> Store:
    with _mutex:
        place = root, shelf
        if place not in _stores:
            limit_bytes = limit_bytes if shelf else _limit(root)
            _stores[place] = Store(root / shelf if shelf else root, limit_bytes=limit_bytes, verify=verify)
        return _stores[place]


def build(key: str, make: Callable[[Path], Made], labels: tuple[str, ...] = ()) -> Build:
    """`Store.build` in the cache folder. When that cannot be written to, in a temporary folder that lasts as long as
    this process; such builds carry a warning that says so.

    Raises BuildError from `make`, ToolchainError when others can write to the cache or no folder can be used at all.
    """
    root = settings.cache_dir()
    if root not in _instead:
        try:
            return _store(root, "").build(key, make, labels)
        except Unwritable as error:
            _use_instead(root, error.__cause__)
    return _store(root, "").find(key, labels) or _build_instead(root, key, make, labels)


def _build_instead(root: Path, key: str, make: Callable[[Path], Made], labels: tuple[str, ...]) -> Build:
    folder, note = _instead[root]
    try:
        return _with_note(_store(folder, "").build(key, make, labels), note)
    except Unwritable as error:
        raise ToolchainError(
            f"there is no room to build in: neither the cache {root} nor {folder} can be written to "
            f"({_reason(error.__cause__)}). Set WORKBENCH_CACHE to a folder with free space"
        ) from error


def _use_instead(root: Path, cause: BaseException | None) -> None:
    with _mutex:  # a launcher and a body are built side by side
        if root not in _instead:
            _instead[root] = _made_instead(root, cause)


def _made_instead(root: Path, cause: BaseException | None) -> tuple[Path, Diagnostic]:
    try:
        made = Path(tempfile.mkdtemp(prefix="workbench-"))
    except OSError as error:
        raise ToolchainError(
            f"there is no room to build in: the cache {root} cannot be written to ({_reason(cause)}), "
            f"and there is no temporary folder ({_reason(error)}). Set WORKBENCH_CACHE to a folder with free space"
        ) from error
    atexit.register(_remove, made, os.getpid())
    note = Diagnostic(
        str(root), 0, 0, "warning",
        f"the cache cannot be written to ({_reason(cause)}): builds go to {made} and are lost when this process ends. "
        "Set WORKBENCH_CACHE to a folder that can be written to",
    )  # fmt: skip
    return made, note


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked worker leaves it to its parent
        process.end_all()  # else a compiler writes on
        with contextlib.suppress(OSError):
            shutil.rmtree(folder, ignore_errors=True)


def _reason(error: BaseException | None) -> str:
    if not isinstance(error, OSError):
        return "unknown"
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}"


def _with_note(build: Build, note: Diagnostic) -> Build:
    return replace(build, diagnostics=(*build.diagnostics, note))
