"""The key of a build, and the store of finished builds: content addressed, built aside, renamed into place.

    objects/ab/abcd.../   one build: the artefact and meta.json, which says what it is and how long it must be
    staging/              builds in progress, and what is on its way out
    locks/                one lock for each 4096th of all keys: the same build in two processes runs one compiler
    users/                which builds each live process uses, so that none of them is evicted

A build counts only when its folder was renamed into `objects` whole and its size and digest are those in meta.json:
what was killed, cut short or put there by someone else is thrown away and built again. How to compile is not here.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from .. import settings
from ..errors import BuildError, Diagnostic
from . import eviction, journal, process, result
from .resources import Resources
from .result import Build, Made

LAYOUT = "1"  # part of every key; another number makes all former builds strangers
LIMIT_BYTES = 5_000_000_000
LOOK_S = 0.25  # between looks whether it is worth waiting for another process
UNWRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.ENOENT,
              errno.EIO, errno.ESTALE, errno.EEXIST, errno.ENAMETOOLONG, errno.EFBIG}  # fmt: skip


def key(parts: Mapping[str, object]) -> str:
    """The sha256 of everything that changes a binary, each value with its type and length; 64 hexadecimal digits.

    >>> key({"flags": ("-O2",), "text": "void f();"}) == key({"text": "void f();", "flags": ["-O2"]})
    True

    Raises TypeError for anything but str, bytes, int, float, bool, None and tuples, lists and mappings of them:
    nothing is keyed by how it happens to print.
    """
    digest = hashlib.sha256()

    def add(value: object) -> None:
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
            digest.update(b"s%d:" % len(value) + value)
        elif isinstance(value, bytes):
            digest.update(b"y%d:" % len(value) + value)
        elif value is None or isinstance(value, (bool, int, float)):
            digest.update(f"{type(value).__name__}:{value!r};".encode())
        elif isinstance(value, (tuple, list)):
            digest.update(b"l%d:" % len(value))
            for part in value:
                add(part)
        elif isinstance(value, Mapping):
            digest.update(b"m%d:" % len(value))
            for name in sorted(value):
                add(name)
                add(value[name])
        else:
            raise TypeError(f"a key cannot hold {type(value).__name__}")

    add({"layout": LAYOUT, **parts})
    made = digest.hexdigest()
    journal.note(made, parts)
    return made


class Unwritable(Exception):
    """A store's folder cannot be built in; the cause says why."""


class Passing(Exception):
    """Carries a BuildError that need not happen again (no memory, no time, a file that is missing now)."""


class Store:
    """Finished builds below one folder.

    >>> store = Store(Path("/tmp/builds"))
    >>> store.build(key({"text": text}), make).cached          # make(folder) compiles into folder: Made
    False

    Nothing is made on disk before the first build.
    """

    def __init__(self, root: Path, *, limit_bytes: int = LIMIT_BYTES, verify: bool = True) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self._verify = verify  # read every artefact once per process, to compare its digest
        self._known: dict[str, tuple[Build, tuple[str, ...], tuple[int, int]]] = {}
        self._failed: dict[str, tuple[BuildError, tuple[str, ...]]] = {}
        self._lease = eviction.Lease(root / "users")
        self._grown = limit_bytes  # so that the first build of a process looks at the whole
        self._mutex = threading.Lock()

    def folder(self, key: str) -> Path:
        return self.root / "objects" / key[:2] / key

    def find(self, key: str, labels: tuple[str, ...] = ()) -> Build | None:
        """The finished build of that key, or None. What turns out to be cut short or foreign is thrown away."""
        known = self._known.get(key)
        if known is not None:
            build, former, looks = known
            with contextlib.suppress(OSError):
                if _looks(os.stat(build.path)) == looks:
                    return result.relabelled(build, former, labels)
            self._known.pop(key, None)
        folder = self.folder(key)
        try:
            if not settings.owned(self.root) or not settings.owned(folder):
                return None
            build, former, looks = self._read(folder, key)
        except (FileNotFoundError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
            self.discard(key)
            return None
        except OSError:
            return None  # not readable just now, which says nothing about it
        self._known[key] = build, former, looks
        self._lease.add(key)
        with contextlib.suppress(OSError):
            os.utime(folder / "meta.json")  # when it was last used
        return result.relabelled(build, former, labels)

    def _read(self, folder: Path, key: str) -> tuple[Build, tuple[str, ...], tuple[int, int]]:
        meta = json.loads((folder / "meta.json").read_text("utf-8"))
        path = folder / os.path.basename(meta["artefact"])
        found = path.stat()
        if meta["key"] != key or found.st_size != meta["size"]:
            raise ValueError("cut short, or another build")
        if self._verify and _digest(path) != meta["sha256"]:
            raise ValueError("its bytes have changed")
        said = tuple(Diagnostic(**d) for d in meta["diagnostics"])
        taken = tuple(Resources(**r) for r in meta["resources"])
        build = Build(
            key, str(path), meta["tier"], float(meta["seconds"]), True, said, taken, tuple(meta["names"]), meta["note"],
            meta["log"],
        )  # fmt: skip
        return build, tuple(meta["labels"]), _looks(found)

    def discard(self, key: str) -> None:
        """Take a build out of the store; those who have it loaded keep it."""
        self._known.pop(key, None)
        with contextlib.suppress(OSError):
            away = tempfile.mkdtemp(dir=self._made("staging"), prefix="gone-")
            os.rename(self.folder(key), os.path.join(away, "build"))
            shutil.rmtree(away, ignore_errors=True)

    def build(self, key: str, make: Callable[[Path], Made], labels: tuple[str, ...] = ()) -> Build:
        """The build of that key: found, or made by `make(folder)` and put in place.

        The same build in another process is waited for, not repeated. A BuildError of `make` is remembered by this
        process, unless it came as Passing, and raised again at once. Raises Unwritable when the folder cannot be used.
        """
        found = self._known_outcome(key, labels)
        if found is None:
            with self._locked(key):
                found = self._known_outcome(key, labels) or self._build(key, make, labels)
        journal.asked(key, cached=found.cached)
        return found

    def _known_outcome(self, key: str, labels: tuple[str, ...]) -> Build | None:
        found = self.find(key, labels)
        if found is None and key in self._failed:
            error, former = self._failed[key]
            raise result.renamed(error, dict(zip(former, labels)))
        return found

    def _build(self, key: str, make: Callable[[Path], Made], labels: tuple[str, ...]) -> Build:
        with _or_unwritable():
            folder = Path(tempfile.mkdtemp(dir=self._made("staging"), prefix=f"{key[:8]}-"))
        try:
            with _or_unwritable():
                made = make(folder)
                if not (folder / made.artefact).exists():
                    raise BuildError(
                        f"the compiler ended without an error and made no {made.artefact}: a flag, or a wrapper around "
                        "it, has it make something else"
                    )
                size = self._publish(key, folder, made)
        except Passing as passing:
            raise passing.args[0] from None
        except BuildError as error:
            self._failed[key] = error, labels
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._grow(size)
        build = self.find(key, labels)
        if build is None:
            raise Unwritable from FileNotFoundError(errno.ENOENT, "a finished build vanished", str(self.folder(key)))
        return replace(build, cached=False)

    def _publish(self, key: str, folder: Path, made: Made) -> int:
        artefact = folder / made.artefact
        size = artefact.stat().st_size
        for extra in folder.iterdir():  # the compiler's temporary files
            if extra != artefact:
                shutil.rmtree(extra) if extra.is_dir() else extra.unlink()
        meta = {**asdict(made), "key": key, "size": size, "sha256": _digest(artefact), "made": time.time()}
        meta["parts"] = journal.of(key)
        (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        final = self.folder(key)
        self._made("objects")
        final.parent.mkdir(mode=0o755, exist_ok=True)
        try:
            os.rename(folder, final)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
            if self.find(key) is None:  # what is in the way is no build
                self.discard(key)
                os.rename(folder, final)
        return size

    def _made(self, name: str) -> Path:
        """A folder of the store, made anew if someone has cleared the cache meanwhile."""
        folder = settings.private(self.root) / name
        folder.mkdir(mode=0o755, exist_ok=True)  # whatever the umask says, nobody else writes there
        return folder

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Two keys may share a lock, so no build may start another one inside its `make`."""
        import filelock

        with _or_unwritable():
            lock = filelock.FileLock(str(self._made("locks") / f"{key[:3]}.lock"))
            while True:
                try:
                    lock.acquire(timeout=LOOK_S, poll_interval=0.01)
                    break
                except filelock.Timeout:  # another process builds, for minutes maybe: this one may be ending
                    process.look_up()
        try:
            yield
        finally:
            lock.release()

    def _grow(self, size: int) -> None:
        with self._mutex:
            self._grown += size
            if self._grown < self.limit_bytes // 20:
                return
            self._grown = 0
        threading.Thread(target=self.evict, name="workbench-evict", daemon=True).start()

    def evict(self) -> int:
        """Bring the store below its limit: least recently used builds go first, builds in use never. Bytes freed."""
        return eviction.evict(self.root, self.limit_bytes, self.used(), self.discard)

    def used(self) -> set[str]:
        """The keys that live processes use."""
        return self._lease.of_all()


def _looks(found: os.stat_result) -> tuple[int, int]:
    """What changes with a file's bytes: enough to see that one which was read is still the same."""
    return found.st_size, found.st_mtime_ns


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def _or_unwritable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in UNWRITABLE:
            raise Unwritable from error
        raise
