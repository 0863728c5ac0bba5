"""What happens to the machine amid a session: workers and compilers killed, caches lost and damaged, clocks put back.

Nothing wrong is ever loaded, nothing hangs, and the op answers all the time.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from workbench.build import cache, process
from workbench.judge import verdicts
from workbench.trial import worker

TWICE = """\
//! n = x.numel()
//! out = empty_like(x)
template <typename T> void twice(const T* x, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];  // SAYS
}
"""
WRONG = TWICE.replace("2 * x[i]", "3 * x[i]")
MANY = pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.slow)])


def text(says: object) -> str:
    """A cell that nobody has compiled yet."""
    return TWICE.replace("// SAYS", f"(void)sizeof(int[{says} + 1]);")


@pytest.fixture
def op(fresh_cache):
    live.gone("robust::twice")
    verdicts._passed.clear()

    @wb.op("robust::twice")
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.cases
    def _(t):
        yield t(4, 8)
        yield wb.case("odd", t(5, 3))

    wb.cpp(twice, TWICE)
    yield twice
    live.gone("robust::twice")


def answers(op: wb.Op, dtype: torch.dtype = torch.float32) -> None:
    x = torch.arange(7, dtype=dtype) - 3
    assert torch.equal(op(x), 2 * x)


# ---- processes that are killed


@MANY
def test_a_worker_killed_at_any_moment_is_replaced(op, rounds):
    for n in range(rounds):
        pid = worker().pid
        killer = threading.Timer(random.Random(n).uniform(0, 0.1), os.kill, (pid, signal.SIGKILL))
        killer.start()
        wb.cpp(op, text(n))
        killer.join()
        assert op.runs("forward", "cpu").number == len(op.versions) - 1
        answers(op)


@MANY
def test_children_of_the_worker_killed_at_any_moment(op, rounds):
    """Those that wait for a job are replaced; one that had it is taken for a kernel that killed itself."""
    for n in range(rounds):
        time.sleep(0.02 * n)
        children = Path(f"/proc/{worker().pid}/task/{worker().pid}/children").read_text().split()
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        wb.cpp(op, text(100 + n))
        answers(op)


@MANY
def test_a_compiler_killed_at_any_moment(op, rounds):
    said: list[str] = []
    for n in range(3 * rounds):
        done = threading.Event()

        after = random.Random(n).uniform(0, 0.05) if n else 0.0

        def kill(after=after, done=done):
            while not process._running and not done.is_set():
                time.sleep(0.001)
            time.sleep(after)
            for child in list(process._running):
                os.killpg(child.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            wb.cpp(op, text(200 + n))
        except wb.BuildError as error:
            said.append(str(error))
        finally:
            done.set()
            killer.join()
        answers(op)
        wb.cpp(op, text(200 + n))  # and again it is built
        answers(op)
    assert said
    for words in said:
        assert "the compiler was ended by SIGKILL" in words
        assert "twice forward still runs v" in words


# ---- a cache that is lost or damaged


def test_a_cache_that_is_lost_amid_a_session(op, fresh_cache):
    wb.cpp(op, text(0))
    number = op.runs("forward", "cpu").number

    def lose():
        shutil.rmtree(fresh_cache, ignore_errors=True)

    lose()
    answers(op)
    lose()
    answers(op, torch.float64)  # a form that is built and tried at this call, beside those that were lost

    lose()

    @op.cases
    def _(t):
        yield wb.case("another", t(3, 3))

    assert op.runs("forward", "cpu").number == number  # judged again, and still there
    lose()
    op.restore(1)
    lose()
    assert op.versions[number](torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    lose()
    wb.cpp(op, text(0))
    answers(op)
    lose()
    assert op.check().ok


DAMAGE = {
    "flipped": lambda data, at: data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :],
    "cut": lambda data, at: data[:at],
    "zeroed": lambda data, at: data[:at] + bytes(len(data) - at),
    "longer": lambda data, at: data + b"more",
    "emptied": lambda data, at: b"",
}


@pytest.mark.parametrize(
    "how", [h if h in {"flipped", "cut"} else pytest.param(h, marks=pytest.mark.slow) for h in DAMAGE]
)
def test_what_is_damaged_in_the_store_is_never_used(op, fresh_cache, how):
    """Each file of it in turn, while this process knows it, and as a process does that finds it so."""
    made = random.Random(how)
    files = [
        f
        for f in sorted(Path(fresh_cache).rglob("*"))
        if f.is_file() and f.name in {"body.so", "launcher.so", "meta.json", "trial.json"}
    ]
    assert {f.name for f in files} == {"body.so", "launcher.so", "meta.json", "trial.json"}
    for restarted in (False, True):
        for file in files:
            data = file.read_bytes()
            file.unlink()  # what is loaded stays as it was
            file.write_bytes(DAMAGE[how](data, made.randrange(max(1, len(data)))))
        if restarted:
            cache._stores.clear()
            verdicts._passed.clear()
        wb.cpp(op, TWICE)
        answers(op)
        with pytest.raises(wb.TrialError, match="differs"):
            wb.cpp(op, WRONG)
        answers(op)


def test_a_build_of_another_cell_in_its_place_is_not_loaded(op, fresh_cache):
    """A whole build under a key that is not its own: the wrong kernel's, which would load without a word."""
    with pytest.raises(wb.TrialError, match="differs"):
        wb.cpp(op, WRONG)
    bodies = sorted(Path(fresh_cache).glob("objects/*/*/body.so"), key=lambda f: f.stat().st_mtime)
    right, wrong = bodies[0].parent, bodies[-1].parent
    shutil.rmtree(right)
    shutil.copytree(wrong, right)
    cache._stores.clear()
    wb.cpp(op, TWICE)
    answers(op)


def test_a_cache_of_another_user_is_refused(op, fresh_cache, monkeypatch):
    if os.geteuid():
        pytest.skip("only root can give files away")
    os.chown(fresh_cache, 4242, 4242)
    cache._stores.clear()
    with pytest.raises(wb.ToolchainError, match=r"belongs to another user \(uid 4242\)"):
        wb.cpp(op, text(7))
    answers(op)
    os.chown(fresh_cache, 0, 0)


# ---- a clock that is put forward or back


@pytest.mark.parametrize("years", [-30, 30])
def test_a_clock_that_jumps(op, fresh_cache, years, monkeypatch):
    when = time.time() + years * 365 * 86400
    for file in Path(fresh_cache).rglob("*"):
        os.utime(file, (when, when))
    wb.cpp(op, text(1))
    answers(op)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + years * 365 * 86400)
    cache._stores.clear()
    began = time.monotonic()
    wb.cpp(op, text(2))
    wb.cpp(op, TWICE)
    answers(op)
    assert time.monotonic() - began < 60
    store = cache.store()
    store.limit_bytes = 1
    store.evict()
    wb.cpp(op, text(2))
    answers(op)


def test_a_header_that_is_as_old_as_before_but_not_the_same(op, tmp_path, monkeypatch):
    """A checkout of another branch may set a file's time back."""
    monkeypatch.chdir(tmp_path)
    header, cell = (
        tmp_path / "factor.h",
        TWICE.replace("2 * x", "FACTOR * x").replace("template", '#include "factor.h"\ntemplate'),
    )
    header.write_text("#define FACTOR 2\n")
    wb.cpp(op, cell)
    found = header.stat()
    header.write_text("#define FACTOR 30\n")
    os.utime(header, ns=(found.st_atime_ns, found.st_mtime_ns - 10**9))
    with pytest.raises(wb.TrialError, match="differs"):
        wb.cpp(op, cell)
    answers(op)


# ---- no room


def test_a_limit_on_the_size_of_files_is_no_room(op, fresh_cache):
    """As a quota: the compiler cannot write its output, here nor in the temporary folder."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(wb.ToolchainError, match="no room to build in"):
            wb.cpp(op, text(9))
        answers(op)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
        cache._instead.clear()
    wb.cpp(op, text(9))
    answers(op)


def test_the_disk_is_full_at_any_write(tmp_path, monkeypatch):
    """The n-th thing that is written cannot be: the build is made elsewhere, or next time, and is whole."""
    import errno

    from workbench.build import store

    count = {"left": -1}

    def failing(function):
        def call(*args, **kwargs):
            count["left"] -= 1
            if count["left"] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **kwargs)

        return call

    for owner, name in (
        (os, "rename"),
        (os, "mkdir"),
        (os, "write"),
        (os, "utime"),
        (Path, "write_text"),
        (Path, "mkdir"),
    ):
        monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    for n in range(1, 40):
        monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / str(n)))
        key = store.key({"n": n})

        def make(folder):
            (folder / "body.so").write_bytes(b"code")
            return store.Made("body.so", "body", 0.1)

        count["left"] = n
        build = cache.build(key, make)
        count["left"], reached = -1, count["left"] <= 0
        assert Path(build.path).read_bytes() == b"code"
        kept = store.Store(tmp_path / str(n)).find(key)
        assert kept is None or Path(kept.path).read_bytes() == b"code"
        if not reached:
            break
    assert n > 5, "there are more writes than that"
