from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import pytest

from workbench.build import cache, eviction, process, store
from workbench.build.result import Made
from workbench.build.store import Passing, Store, Unwritable, key
from workbench.errors import BuildError, Diagnostic, ToolchainError

KEY = key({"text": "void f();"})
WARNING = Diagnostic("cell [3]", 2, 5, "warning", "unused", "int x;")


def maker(content=b"code", *, said=(), labels=("cell [3]",), log=""):
    """A `make` that writes `content`, and the list of the folders it was called with."""
    calls = []

    def make(folder):
        calls.append(folder)
        (folder / "body.so").write_bytes(content)
        (folder / "cc1.tmp").write_text("a compiler's own file")
        return Made("body.so", "body", 0.5, said, log=log, labels=labels)

    return make, calls


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cache"


# ---- keys


def test_key_is_the_same_in_any_order_and_in_any_process():
    assert key({"a": 1, "b": ("x", None)}) == key({"b": ["x", None], "a": 1})
    assert key({"text": "void f();", "n": 3}) == "1584b57d314dbe24b563660cfd39ba2cf673d22b4131e54b043775355b43da18"


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, "1"), (1, True), (1, 1.0), (None, "None"), ("x", b"x"), (("ab", "c"), ("a", "bc")), ((), ""), ((), {}),
     (("a", ("b",)), ("a", "b"))],
)  # fmt: skip
def test_key_tells_types_and_lengths_apart(one, other):
    assert key({"v": one}) != key({"v": other})


def test_key_refuses_what_it_could_only_print():
    with pytest.raises(TypeError, match="a key cannot hold object"):
        key({"v": object()})


# ---- finding and making


def test_a_build_is_made_once_and_found_after_a_restart(root):
    make, calls = maker(said=(WARNING,), log="all of it")
    first = Store(root).build(KEY, make, ("cell [3]",))
    assert (first.cached, first.tier, first.seconds, first.log) == (False, "body", 0.5, "all of it")
    assert Path(first.path).read_bytes() == b"code"
    again = Store(root).build(KEY, make, ("cell [3]",))
    assert again.cached and len(calls) == 1
    assert (again.path, again.diagnostics, again.log, again.seconds) == (first.path, (WARNING,), "all of it", 0.5)


def test_nothing_is_made_before_the_first_build(root):
    assert Store(root).find(KEY) is None
    assert not root.exists()


def test_only_the_artefact_and_its_description_are_kept(root):
    store_ = Store(root)
    made = store_.build(KEY, maker()[0])
    assert sorted(p.name for p in Path(made.path).parent.iterdir()) == ["body.so", "meta.json"]
    assert list((root / "staging").iterdir()) == []


def test_another_cell_with_the_same_code_has_its_own_name_in_what_is_said(root):
    log = "cell [3]:2:5: warning: unused\n/usr/include/x.h:3: of cell [3]:2\n"
    Store(root).build(KEY, maker(said=(WARNING,), log=log)[0], ("cell [3]",))
    found = Store(root).build(KEY, maker()[0], ("cell [8]",))
    assert found.cached and found.diagnostics[0].file == "cell [8]"
    assert found.log == "cell [8]:2:5: warning: unused\n/usr/include/x.h:3: of cell [8]:2\n"


def test_going_back_to_an_earlier_text_takes_less_than_2_ms(root):
    store_ = Store(root)
    store_.build(KEY, maker(b"x" * 20_000)[0])
    times = []
    for _ in range(50):
        began = time.perf_counter()
        assert store_.build(KEY, maker()[0]).cached
        times.append(time.perf_counter() - began)
    assert min(times) < 0.002


# ---- what does not count


def test_a_truncated_build_is_made_again(root):
    path = Path(Store(root).build(KEY, maker()[0]).path)
    path.write_bytes(b"co")
    assert Store(root).find(KEY) is None
    again = Store(root).build(KEY, maker()[0])
    assert not again.cached and Path(again.path).read_bytes() == b"code"


def test_a_build_with_other_bytes_is_made_again(root):
    Path(Store(root).build(KEY, maker()[0]).path).write_bytes(b"CODE")
    assert not Store(root).build(KEY, maker()[0]).cached


def test_a_build_that_this_process_knows_and_someone_cut_short_is_made_again(root):
    store_ = Store(root)
    path = Path(store_.build(KEY, maker()[0]).path)
    path.write_bytes(b"")
    assert not store_.build(KEY, maker()[0]).cached


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"key": 1}'])
def test_a_description_that_makes_no_sense_is_no_build(root, text):
    Path(Store(root).build(KEY, maker()[0]).path).with_name("meta.json").write_text(text)
    assert not Store(root).build(KEY, maker()[0]).cached


def test_a_build_of_another_key_is_no_build(root):
    other = key({"text": "other"})
    store_ = Store(root)
    store_.build(KEY, maker()[0])
    shutil.copytree(store_.folder(KEY), store_.folder(other))
    assert Store(root).find(other) is None


def test_a_folder_with_no_description_is_in_nobodys_way(root):
    store_ = Store(root)
    store_.folder(KEY).mkdir(parents=True)
    (store_.folder(KEY) / "body.so").write_bytes(b"half")
    for folder in (root, *root.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o700)
    assert Path(store_.build(KEY, maker()[0]).path).read_bytes() == b"code"


def test_a_compiler_that_makes_no_file_is_not_taken_for_a_full_disk(root):
    with pytest.raises(BuildError, match="the compiler ended without an error and made no body.so"):
        Store(root).build(KEY, lambda folder: Made("body.so", "body", 0.5))
    assert not list((root / "staging").iterdir())


def test_a_make_that_dies_leaves_nothing_that_counts(root):
    def make(folder):
        (folder / "body.so").write_bytes(b"half")
        raise KeyboardInterrupt

    store_ = Store(root)
    with pytest.raises(KeyboardInterrupt):
        store_.build(KEY, make)
    assert list((root / "staging").iterdir()) == [] and store_.find(KEY) is None
    assert not store_.build(KEY, maker()[0]).cached  # the lock is free, too


def test_a_process_that_is_killed_leaves_nothing_that_counts(root):
    code = (
        "import os, sys; from pathlib import Path; from workbench.build.store import Store\n"
        "def make(folder):\n"
        "    (folder / 'body.so').write_bytes(b'half'); os.kill(os.getpid(), 9)\n"
        f"Store(Path({str(root)!r})).build({KEY!r}, make)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env={**os.environ, "PYTHONPATH": os.getcwd()}, timeout=120
    )
    assert done.returncode == -9
    assert len(list((root / "staging").iterdir())) == 1
    assert not Store(root).build(KEY, maker()[0]).cached


# ---- others at the same time


def test_two_at_once_run_one_make(root):
    begun = threading.Event()
    calls, builds = [], []

    def make(folder):
        calls.append(folder)
        begun.set()
        time.sleep(0.2)
        return maker()[0](folder)

    def build():
        builds.append(Store(root).build(KEY, make))  # a Store of its own: locks as another process does

    threads = [threading.Thread(target=build) for _ in range(3)]
    threads[0].start()
    assert begun.wait(10)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert sorted(b.cached for b in builds) == [False, True, True]
    assert len({b.path for b in builds}) == 1


def test_a_thread_that_waits_for_another_process_ends_when_it_is_told_to(root):
    """That process may build for minutes, and Python's end waits for the threads of a pool."""
    held = filelock.FileLock(str(Store(root)._made("locks") / f"{KEY[:3]}.lock"))
    stopped, ended = threading.Event(), []

    def wait() -> None:
        process.end_with(stopped)
        try:
            Store(root).build(KEY, maker()[0])
        except KeyboardInterrupt:
            ended.append("told to")

    with held:
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        time.sleep(0.1)
        stopped.set()
        thread.join(5)
        assert ended == ["told to"]
    assert not Store(root).build(KEY, maker()[0]).cached


def test_a_build_that_someone_else_put_in_place_meanwhile_is_used(root):
    ready = Path(Store(root).build(KEY, maker(b"theirs")[0]).path).parent
    aside = root / "aside"
    os.rename(ready, aside)

    def make(folder):
        made = maker(b"ours..")[0](folder)
        os.rename(aside, ready)
        return made

    assert Path(Store(root).build(KEY, make).path).read_bytes() == b"theirs"


def test_a_stranger_put_in_the_way_meanwhile_is_thrown_out(root):
    store_ = Store(root)

    def make(folder):
        store_.folder(KEY).mkdir(parents=True)
        (store_.folder(KEY) / "junk").write_text("x")
        return maker()[0](folder)

    assert Path(store_.build(KEY, make).path).read_bytes() == b"code"


def test_a_cache_cleared_under_our_feet_is_made_anew(root):
    store_ = Store(root)
    store_.build(KEY, maker()[0])
    shutil.rmtree(root)
    again = store_.build(KEY, maker()[0])
    assert not again.cached and Path(again.path).read_bytes() == b"code"


# ---- failures


def failing(error):
    calls = []

    def make(folder):
        calls.append(folder)
        raise error

    return make, calls


def test_a_failure_is_remembered_with_its_messages_by_this_process_only(root):
    said = Diagnostic("cell [3]", 4, 1, "error", "no", "int x")
    make, calls = failing(BuildError("no", diagnostics=(said,), log="cell [3]:4:1: error: no", line=4, file="cell [3]"))
    store_ = Store(root)
    for labels, name in (("cell [3]",), "cell [3]"), (("cell [5]",), "cell [5]"):
        with pytest.raises(BuildError) as caught:
            store_.build(KEY, make, labels)
        assert (caught.value.diagnostics[0].file, caught.value.file) == (name, name)
        assert caught.value.log == f"{name}:4:1: error: no"
        assert str(caught.value) == f"{name}, line 4: no"
    assert len(calls) == 1
    assert not Store(root).build(KEY, maker()[0]).cached  # another process tries for itself


def test_a_failure_that_may_pass_is_tried_again(root):
    make, calls = failing(Passing(BuildError("no memory")))
    store_ = Store(root)
    for _ in range(2):
        with pytest.raises(BuildError, match="no memory"):
            store_.build(KEY, make)
    assert len(calls) == 2


# ---- a bounded size


def aged(root, name, age_s, size=100):
    """A build of `size` bytes that was last used `age_s` ago, by a process that is no more."""
    digits = key({"n": name})
    made = Store(root).build(digits, maker(b"x" * size)[0])
    when = time.time() - age_s
    os.utime(Path(made.path).with_name("meta.json"), (when, when))
    for path in (root / "users").iterdir():
        path.unlink()
    return digits


def test_the_least_recently_used_go_first(root):
    keys = [aged(root, n, 10_000 - n, 10_000) for n in range(5)]
    store_ = Store(root, limit_bytes=40_000)
    assert store_.evict() >= 20_000
    left = [k for k in keys if store_.folder(k).exists()]
    assert left == keys[2:]
    assert store_.evict() == 0


def test_what_is_in_use_stays(root):
    keys = [aged(root, n, 10_000 - n, 10_000) for n in range(3)]
    mine, theirs = Store(root, limit_bytes=100), eviction.Lease(root / "users")
    assert mine.find(keys[0])
    os.utime(mine.folder(keys[0]) / "meta.json", (1, 1))
    theirs.add(keys[1])  # another live process
    mine.evict()
    assert [mine.folder(k).exists() for k in keys] == [True, True, False]


def test_what_was_used_this_minute_stays(root):
    keys = [aged(root, 0, 5, 10_000), aged(root, 1, 5_000, 10_000)]
    Store(root, limit_bytes=100).evict()
    assert [Store(root).folder(k).exists() for k in keys] == [True, False]


def test_the_lists_of_dead_processes_are_removed(root):
    aged(root, 0, 5)
    dead = root / "users" / "4242-x"
    dead.write_text("0" * 64)
    os.utime(dead, (1, 1))
    assert eviction.Lease(root / "users").of_all() == set()
    assert not dead.exists()


def test_old_leftovers_are_swept(root):
    Store(root).build(KEY, maker()[0])
    old, new = root / "staging" / "old", root / "staging" / "new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (1, 1))
    Store(root).evict()
    assert (old.exists(), new.exists()) == (False, True)


# ---- a cache that cannot be used


def test_a_cache_that_others_can_write_to_is_refused_for_reading_too(root):
    Store(root).build(KEY, maker()[0])
    root.chmod(0o777)
    for act in (lambda: Store(root).find(KEY), lambda: Store(root).build(KEY, maker()[0])):
        with pytest.raises(ToolchainError, match="can be written to by others"):
            act()


def test_builds_side_by_side_share_the_temporary_cache(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "cache"))
    real, together = cache._store, threading.Barrier(2, timeout=10)

    def late(root, shelf, *more):
        made = real(root, shelf, *more)
        if root == tmp_path / "file" / "cache":
            monkeypatch.setattr(made, "build", refuse)
        return made

    def refuse(*_):
        together.wait()  # both have found out before either has done something about it
        raise Unwritable from NotADirectoryError(errno.ENOTDIR, "Not a directory")

    monkeypatch.setattr(cache, "_store", late)
    with ThreadPoolExecutor(2) as pool:
        keys = KEY, key({"text": "void g();"})
        built = list(pool.map(lambda k: cache.build(k, maker()[0]), keys))
    assert built[0].diagnostics == built[1].diagnostics
    assert len({Path(b.path).parents[3] for b in built}) == 1


def test_a_cache_that_cannot_be_made_is_replaced_by_a_temporary_one(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "cache"))
    first = cache.build(KEY, maker()[0])
    note = first.diagnostics[-1]
    assert (note.severity, note.file) == ("warning", str(tmp_path / "file" / "cache"))
    assert "the cache cannot be written to (Not a directory" in note.message and "Set WORKBENCH_CACHE" in note.message
    assert Path(first.path).read_bytes() == b"code" and str(tmp_path) not in first.path
    again = cache.build(KEY, maker()[0])
    assert again.cached and again.diagnostics == (note,)


def test_a_disk_that_is_full_is_left_for_a_temporary_folder(fresh_cache):
    def make(folder):
        if str(folder).startswith(fresh_cache):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return maker()[0](folder)

    made = cache.build(KEY, make)
    assert "No space left on device" in made.diagnostics[-1].message
    assert not made.path.startswith(fresh_cache)


def test_a_cache_that_can_only_be_read_still_gives_what_it_has(fresh_cache, monkeypatch):
    kept = cache.build(KEY, maker()[0])

    def read_only(*a, **k):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(
        Store, "_made", lambda self, name: read_only() if str(self.root) == fresh_cache else made(self, name)
    )
    other = cache.build(key({"text": "new"}), maker()[0])
    assert "Read-only file system" in other.diagnostics[-1].message
    found = cache.build(KEY, maker()[0])
    assert found.cached and found.path == kept.path


made = Store._made


def test_no_room_anywhere_says_so(fresh_cache):
    def make(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        ToolchainError, match="no room to build in.*No space left.*Set WORKBENCH_CACHE to a folder with"
    ):
        cache.build(KEY, make)


def test_an_error_that_is_not_the_disks_is_not_taken_for_one(root):
    make, _ = failing(OSError(errno.EINVAL, "odd"))
    with pytest.raises(OSError, match="odd"):
        Store(root).build(KEY, make)
    make, _ = failing(OSError(errno.EROFS, "read-only"))
    with pytest.raises(Unwritable):
        Store(root).build(KEY, make)


def test_all_of_a_key_changes_with_the_layout(monkeypatch):
    monkeypatch.setattr(store, "LAYOUT", "2")
    assert key({"text": "void f();"}) != KEY
