"""The life of a worker: started, shared by nobody, replaced, ended."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from workbench.errors import ToolchainError
from workbench.trial import Job, Step, Worker, warm, worker

ROOT = str(Path(__file__).parents[2])


def doubled(worker, x):
    result = worker.run(Job((Step("aten::add.Tensor", (x, x)),)), 20).results[0]
    assert result.ok, result
    assert torch.equal(result.outputs[0], 2 * x)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition, limit_s: float = 10.0):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def own():
    made = Worker()
    yield made
    made.close()


def test_warm_returns_at_once_and_run_waits(own, x):
    started = time.monotonic()
    own.warm()
    assert time.monotonic() - started < 0.3  # importing torch takes longer than that
    pid = own.pid
    own.warm()
    assert own.pid == pid
    doubled(own, x)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_was_killed_is_replaced_without_a_word(own, x, number):
    doubled(own, x)
    for _ in range(3):
        pid = own.pid
        os.kill(pid, number)
        doubled(own, x)
        assert own.pid != pid


def test_jobs_that_follow_each_other_without_a_pause_leave_nothing_behind(own, x):
    """Their processes are buried, though the worker is never idle; no child holds what another one's watch needs."""
    for _ in range(40):
        doubled(own, x)
        assert len(os.listdir(f"/proc/{own.pid}/fd")) < 50  # 4 a process, 40 processes
    with open(f"/proc/{own.pid}/task/{own.pid}/children") as file:
        children = [int(p) for p in file.read().split()]
    assert len(children) <= 8
    for pid in filter(alive, children):
        with contextlib.suppress(FileNotFoundError):
            assert len(os.listdir(f"/proc/{pid}/fd")) < 16


def test_a_waiting_child_that_was_killed_is_replaced(own, x):
    doubled(own, x)
    time.sleep(0.3)
    with open(f"/proc/{own.pid}/task/{own.pid}/children") as file:
        children = [int(p) for p in file.read().split()]
    assert children
    os.kill(children[0], signal.SIGKILL)
    os.kill(children[-1], signal.SIGKILL)
    doubled(own, x)


def test_a_stopped_worker_is_a_hang_and_is_replaced(own, x, monkeypatch):
    monkeypatch.setattr(warm, "GRACE_S", 0.5)
    doubled(own, x)
    pid = own.pid
    os.kill(pid, signal.SIGSTOP)
    result = own.run(Job((Step("aten::add.Tensor", (x, x)),)), 0.5).results[0]
    assert (result.status, result.detail) == ("hang", "no answer within 0.5 s")
    assert not alive(pid)
    doubled(own, x)


def spinning(rogue_path, x) -> Job:
    from tests.trial.rogue import Rogue

    return Job((Step("rogue::spins", (x,)),), (Rogue(rogue_path, ("spins",)),), ("rogue::spins(Tensor x) -> Tensor",))


def children_of(first) -> list[int]:
    """Dead ones that nobody has waited for, too."""
    with open(f"/proc/{first.pid}/task/{first.pid}/children") as file:
        return [int(p) for p in file.read().split()]


def twins_of(first) -> list[int]:
    """Its children with a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        return [pid for pid in children_of(first) if os.getsid(pid) == pid]
    return twins_of(first)


@pytest.fixture
def twin(own, x):
    doubled(own, x)
    made = own.twin()
    yield made
    made.close()


def test_a_twin_is_a_fork_that_works_for_itself(own, twin, x, rogue_path):
    doubled(twin, x)
    (pid,) = twins_of(own)
    busy = threading.Thread(target=twin.run, args=(spinning(rogue_path, x), 1.0))
    busy.start()
    doubled(own, x)
    assert busy.is_alive()
    busy.join()
    doubled(twin, x)
    assert twins_of(own) == [pid]


def test_a_twin_that_was_closed_is_gone_and_begins_again(own, twin, x):
    doubled(twin, x)
    twin.close()
    wait_for(lambda: not any(alive(pid) for pid in twins_of(own)))
    wait_for(lambda: len(children_of(own)) == 2)  # those that wait for a job: the twin's own are gone, too
    doubled(twin, x)
    assert not twins_of(own)  # it has a process of its own


def test_a_twin_s_job_can_be_abandoned(own, twin, x, rogue_path):
    threading.Timer(0.5, twin.abandon).start()
    result = twin.run(spinning(rogue_path, x), 30.0).results[0]
    assert (result.status, result.detail) == ("crash", "stopped by an interrupt")
    doubled(twin, x)
    doubled(own, x)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_twin_that_was_killed_or_stopped_is_replaced(own, twin, x, number, monkeypatch):
    doubled(twin, x)
    (pid,) = twins_of(own)
    os.kill(pid, number)
    if number == signal.SIGSTOP:
        monkeypatch.setattr(warm, "GRACE_S", 0.5)
        result = twin.run(Job((Step("aten::neg", (x,)),)), 0.5).results[0]
        assert result.status == "hang"
    doubled(twin, x)
    own.close()
    wait_for(lambda: not alive(pid))


def test_a_twin_is_replaced_when_the_first_has_died(own, twin, x):
    doubled(twin, x)
    (pid,) = twins_of(own)
    os.kill(own.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    doubled(twin, x)
    doubled(own, x)


def test_a_twin_of_a_worker_at_work_has_a_process_of_its_own(own, x, rogue_path):
    busy = threading.Thread(target=own.run, args=(spinning(rogue_path, x), 2.0))
    doubled(own, x)
    busy.start()
    time.sleep(0.2)
    other = own.twin()
    try:
        assert not twins_of(own)
        assert busy.is_alive()
        doubled(other, x)
        assert other.pid
    finally:
        busy.join()
        other.close()


def test_close_ends_it_and_run_begins_again(own, x):
    doubled(own, x)
    pid = own.pid
    own.close()
    own.close()
    assert not alive(pid)
    doubled(own, x)


def test_an_interrupt_leaves_a_worker_that_works(own, x, rogue_path):
    doubled(own, x)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        own.run(spinning(rogue_path, x), 60)
    doubled(own, x)


def test_threads_take_turns(own, x):
    threads = [threading.Thread(target=doubled, args=(own, x + i)) for i in range(4)]
    failures = []
    old, threading.excepthook = threading.excepthook, failures.append
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    threading.excepthook = old
    assert not failures


def test_a_forked_notebook_gets_a_worker_of_its_own(x):
    doubled(worker(), x)
    pid = worker().pid
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            doubled(worker(), x)
            os.write(write, b"%d" % worker().pid)
            worker().close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert int(os.read(read, 20)) not in {0, pid}
    os.close(read)
    assert worker().pid == pid
    doubled(worker(), x)


PROGRAM = """
import os, sys, time, torch
from workbench.trial import Job, Step, worker
x = torch.ones(3)
assert worker().run(Job((Step("aten::add.Tensor", (x, x)),)), 20).ok
print(worker().pid, flush=True)
{}
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(1)",
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "os.fork() or time.sleep(30); os.kill(os.getpid(), 9)",
    ],
)
def test_the_worker_ends_with_its_notebook(end, monkeypatch):
    done = subprocess.Popen([sys.executable, "-c", PROGRAM.format(end)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pid = int(done.stdout.readline())
    done.wait()
    # With a fork of the notebook left alive, the pipe stays open: the worker looks every few seconds.
    wait_for(lambda: not alive(pid))


def test_the_notebook_s_surroundings_reach_the_child(own, x, monkeypatch, tmp_path):
    doubled(own, x)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("SAID_LATER", "yes")
    monkeypatch.chdir(tmp_path)
    step = Step("where::am_i", ())
    result = own.run(Job((step,), (WhereAmI(),), ("where::am_i() -> str",)), 20).results[0]
    torch.set_num_threads(before)
    assert result.outputs == (f"yes {tmp_path} 2 or more",)


class WhereAmI:
    def load(self, allocate):
        library = torch.library.Library("where", "FRAGMENT")

        def am_i():
            threads = "2 or more" if torch.get_num_threads() >= 2 else "1"  # with one, races hide
            return f"{os.environ['SAID_LATER']} {os.getcwd()} {threads}"

        library.impl("am_i", am_i, "CompositeExplicitAutograd")
        return library


def test_a_worker_that_cannot_start_says_why(own, x, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ToolchainError, match=r"the trial worker does not start \(it died\)"):
        doubled(own, x)
    monkeypatch.undo()
    doubled(own, x)


def test_a_job_that_cannot_be_sent_is_the_caller_s_error(own, x):
    with pytest.raises(TypeError, match="the worker takes plain CPU tensors"):
        own.run(Job((Step("aten::relu", (torch.zeros(1, device="meta"),)),)), 20)
    doubled(own, x)


def test_a_process_with_more_than_a_thousand_open_files_has_a_worker():
    """A worker inherits the number of its socket from the notebook, and `select` takes none above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"this process may open {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    some = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with contextlib.closing(Worker()) as worker:
            answer = worker.run(Job((Step("aten::neg", (torch.ones(2),)),)), 20.0)
        assert answer.results[0].status == "ok", answer.results[0].detail
        assert torch.equal(answer.results[0].outputs[0], -torch.ones(2))
    finally:
        for fd in some:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
