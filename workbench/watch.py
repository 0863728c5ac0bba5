"""`%wb watch`: files that are loaded again when they are saved.

One thread looks at all of them, a few times a second. What it loads waits for its turn beside cells; what goes wrong
is shown, and the watch goes on. Nothing here knows a notebook: `show` is given.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from . import cells, files, loading
from .build import includes, triton_beside
from .errors import SchemaError, WorkbenchError
from .reports.report import Line, Watched
from .source import directives_of
from .turn import turn

EVERY_S = 0.2  # between two looks
SETTLE_S = 0.15  # a file must stay as it is this long: editors write in pieces
PATIENCE_S = 1.0  # so long if it is empty or gone: they also delete, and write anew

State = Mapping[str, tuple[int, int, int]]  # by path: time of modification in ns, size, inode


class Watch:
    """One watched path.

    >>> watch = Watch("kernels/rmsnorm", print)
    >>> watch.load()                # now
    >>> watch.poll()                # and again, if a file was saved and has settled

    `show` gets a `Watched` after every load. `clock` is in seconds; `look` gives the state of files.
    """

    def __init__(
        self,
        path: str | Path,
        show: Callable[[Watched], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        look: Callable[[Iterable[Path]], State] | None = None,
    ) -> None:
        self.path = Path(os.path.abspath(Path(path).expanduser()))
        if not self.path.exists():
            raise SchemaError(f"there is no file or folder {str(path)!r} here ({Path.cwd()})")
        self._show, self._clock, self._look = show, clock, look or stats
        self._lines: dict[tuple[str, str], Line] = {}
        self._headers: dict[Path, tuple[Path, ...]] = {}
        self._seen: State = {}
        self._pending: State | None = None
        self._since = 0.0
        self.report = Watched(files.shown(self.path))
        self.stopped = False

    # ------------------------------------------------------------ looking

    def poll(self) -> bool:
        """Look once; True if something had changed, has settled, and was loaded."""
        now = self._state()
        if now == self._seen:
            self._pending = None
            return False
        if now != self._pending:
            self._pending, self._since = now, self._clock()
        gone = any(path not in now for path in self._seen)
        unfinished = gone or any(not s[1] for path, s in now.items() if s != self._seen.get(path))
        if self._clock() - self._since < (PATIENCE_S if unfinished else SETTLE_S):
            return False
        with turn:
            return not self.stopped and self._reload()

    def _state(self) -> State:
        headers = (h for found in self._headers.values() for h in found)
        return self._look([*self._files(), *headers])

    def _files(self) -> list[Path]:
        """The files in their order; none for a moment, when an editor has just moved them away."""
        recipe = loading.recipe(self.path)
        try:
            if recipe:
                return list(recipe.files)
            return loading.files_of(self.path) if self.path.is_dir() else [self.path]
        except (OSError, SchemaError):
            return []

    # ------------------------------------------------------------ loading

    def load(self) -> None:
        """Load all of it now."""
        with turn:
            self._run(self._files())

    def _reload(self) -> bool:
        """Load what changed. A file whose text was built already, as by the cell that wrote it, is left alone."""
        before, now = self._seen, self._state()
        present = self._files()
        changed = [
            f for f in present
            if any(before.get(str(h), now.get(str(h))) != now.get(str(h)) for h in self._headers.get(f, ()))
            or (before.get(str(f)) != now.get(str(f)) and str(f) in now and not files.is_built(f))
        ]  # fmt: skip
        gone = sorted(files.shown(p) for p in before if p not in now)
        if changed and changed[0].name == "op.py":
            changed = present  # another reference or other cases: everything is judged again
        self._pending = None
        notes = (f"{', '.join(gone)} is gone; what was built of it stays installed",) if gone else ()
        if changed or notes != self.report.notes:
            self._run(changed, notes)
        else:
            self._remember()
        return bool(changed)

    def _remember(self) -> None:
        """What the files are like now, before they are read: what is saved meanwhile is a change."""
        recipe = loading.recipe(self.path)
        self._headers = {f: _headers(f, recipe) for f in self._files()}
        self._seen = self._state()

    def _run(self, changed: list[Path], notes: tuple[str, ...] = ()) -> None:
        error = ""
        self._remember()
        try:
            with cells.telling(self._told):
                recipe = loading.recipe(self.path)
                if recipe and changed:
                    recipe.load()
                else:
                    loading.load_files(changed)
        except BaseException as raised:  # whatever is in the files: the watch goes on
            error = self._error(raised)
        self.report = Watched(files.shown(self.path), tuple(self._lines.values()), error, notes=notes)
        self._tell()

    def _told(self, line: Line) -> None:
        self._lines.pop((line.op, line.slot), None)
        self._lines[line.op, line.slot] = line
        self._refused = line if not line.installed else None

    _refused: Line | None = None

    def _error(self, raised: BaseException) -> str:
        """What no line has told yet."""
        if self._refused is not None and isinstance(raised, WorkbenchError):
            self._refused = None
            return ""
        if isinstance(raised, WorkbenchError):
            return f"{type(raised).__name__}: {raised}"
        if isinstance(raised, KeyboardInterrupt):
            return "interrupted; save the file again, or load it"
        own = [f for f in traceback.extract_tb(raised.__traceback__) if self._is_ours(f.filename)]
        place = f"{files.shown(own[-1].filename)}, line {own[-1].lineno}: " if own else ""
        return f"{place}{''.join(traceback.format_exception_only(raised)).strip()}"

    def _is_ours(self, file: str) -> bool:
        folder = self.path if self.path.is_dir() else self.path.parent
        return os.path.realpath(file).startswith(os.path.realpath(folder) + os.sep)

    def stop(self) -> None:
        """No more loads; what is shown says so."""
        self.stopped = True
        self.report = Watched(self.report.path, self.report.lines, self.report.error, "stopped", self.report.notes)
        with contextlib.suppress(Exception):
            self._show(self.report)

    def _tell(self) -> None:
        if not self.stopped:
            with contextlib.suppress(Exception):  # a closed output must not end the watch
                self._show(self.report)


def stats(paths: Iterable[Path]) -> State:
    """The state of those files that are there."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            found[str(path)] = status.st_mtime_ns, status.st_size, status.st_ino
    return found


def _headers(file: Path, recipe: loading.Recipe | None) -> tuple[Path, ...]:
    """The user's headers that a file includes."""
    try:
        text = files.source(file) if files.language(file) == "triton" else files.source(file, files.SOURCES)
    except SchemaError:  # op.py, or not to be read just now
        return ()
    if recipe:
        return tuple(map(Path, recipe.headers(text)))
    if text.language == "triton":
        return tuple(map(Path, triton_beside.beside(text)))
    words = [w for _, said in directives_of(text) if said.startswith("flags ") for w in shlex.split(said[6:])]
    return tuple(map(Path, includes.of(text, words)))


# ---------------------------------------------------------------- the thread

_watches: dict[Path, Watch] = {}
_wake = threading.Event()
_starting = threading.Lock()
_thread: threading.Thread | None = None


def start(path: str | Path, show: Callable[[Watched], None] = print) -> Watch:
    """Load a path now and after every save; `show` gets what came of it. Watched already: that watch ends.

    >>> watch.start("kernels/rmsnorm")
    """
    global _thread
    made = Watch(path, show)
    stop(made.path)
    made.load()
    with _starting:
        _watches[made.path] = made
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_loop, name="workbench-watch", daemon=True)
            _thread.start()
    return made


def stop(path: str | Path | None = None) -> list[Watch]:
    """End the watch of a path, or all of them; those that were ended."""
    wanted = None if path is None else Path(os.path.abspath(Path(path).expanduser()))
    with _starting:
        ended = [_watches.pop(p) for p in list(_watches) if wanted in (None, p)]
    for each in ended:
        each.stop()
    _wake.set()
    return ended


def listed() -> list[Watch]:
    """The watches that go on."""
    return list(_watches.values())


def _loop() -> None:
    global _thread
    while True:
        _wake.wait(EVERY_S)
        _wake.clear()
        with _starting:
            if not _watches:
                _thread = None
                return
        for each in listed():
            with contextlib.suppress(Exception):  # a folder may go away while it is looked at
                each.poll()


@atexit.register
def _at_exit() -> None:
    for each in _watches.values():
        each.stopped = True
    _watches.clear()
    _wake.set()


__all__ = ["Watch", "listed", "start", "stats", "stop"]
