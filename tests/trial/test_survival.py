"""Each way of dying, three times in a row in one worker, and right values after it."""

from __future__ import annotations

import os
import time

import pytest
import torch

NULL = "it writes through a null pointer (address 0x0); an argument that is None is null"
DEATHS = {
    "null_pointer": ("SIGSEGV", f"stopped by SIGSEGV: {NULL}"),
    "wild_pointer": ("SIGSEGV", "stopped by SIGSEGV: it writes at 0x123456789abc, which is no memory of its own"),
    "noncanonical": ("SIGSEGV", "stopped by SIGSEGV: a wild pointer"),
    "null_in_thread": ("SIGSEGV", f"stopped by SIGSEGV: {NULL}"),
    "calls_abort": ("SIGABRT", "stopped by SIGABRT: it called abort()"),
    "failed_assert": ("SIGABRT", 'Assertion `n < 0 && "n is negative"\' failed.'),
    "throws_in_thread": (
        "SIGABRT",
        "terminate called after throwing an instance of 'std::runtime_error' what():  boom",
    ),
    "divides_by_zero": ("SIGFPE", "stopped by SIGFPE: an integer division by zero"),
    "traps": ("SIGILL", "a __builtin_trap"),
    "raises_segv": ("SIGSEGV", "stopped by SIGSEGV"),
    "kills_itself": ("SIGKILL", "killed by SIGKILL"),
    "overflows_the_stack": ("SIGSEGV", "the stack overflowed"),
    "overflows_with_an_array": ("SIGSEGV", "the stack overflowed"),
    "corrupts_the_heap": ("SIGABRT", "stopped by SIGABRT: free(): double free"),
    "calls_exit": ("", "it ended the process: exit(3)"),
    "calls_exit_0": ("", "it ended the process: exit(0)"),
    "calls_quick_exit": ("", "it ended the process: exit(0)"),
    "closes_all_files": ("", "it closed the file descriptors of the process that ran it"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_what_dies_is_named_and_the_next_job_is_right(run, x, shared_worker, name):
    signal, detail = DEATHS[name]
    for _ in range(3):
        before, died, after = run("twice", name, "twice", x=x).results
        assert (died.status, died.signal) == ("crash", signal), died
        assert detail in died.detail
        assert died.case == "case 1"
        assert before.ok and torch.equal(before.outputs[0], 2 * x)  # what came before the crash still came back
        assert (after.status, after.detail) == ("skip", "not reached")
        worker = shared_worker.pid
        assert torch.equal(run("twice", x=x).results[0].outputs[0], 2 * x)
        assert shared_worker.pid == worker


@pytest.mark.parametrize("name", ["spins", "sleeps", "stops", "spins_in_threads", "floods_for_ever"])
def test_what_hangs_is_stopped_at_the_limit(run, x, name):
    for _ in range(3):
        started = time.monotonic()
        before, hung, after = run("twice", name, "twice", x=x, limit_s=0.5).results
        assert time.monotonic() - started < 3
        assert (hung.status, hung.signal, hung.case) == ("hang", "", "case 1")
        assert hung.detail.startswith("still running after 0.5")
        assert torch.equal(before.outputs[0], 2 * x)
        assert after.status == "skip"
        assert torch.equal(run("twice", x=x).results[0].outputs[0], 2 * x)


@pytest.mark.slow
def test_all_memory_taken_is_an_error_and_leaves_some_to_others(run, x):
    result = run("takes_all_memory", x=x, limit_s=100).results[0]
    assert result.status == "crash"
    assert "std::bad_alloc" in result.detail or result.signal == "SIGKILL"
    assert run("twice", x=x).ok


def test_a_kernel_that_kills_the_worker_is_named_and_the_worker_replaced(run, x, shared_worker):
    for _ in range(3):
        worker = shared_worker.pid
        result = run("kills_its_worker", x=x).results[0]
        assert (result.status, result.detail) == ("crash", "it killed the process that watches over it, twice")
        assert torch.equal(run("twice", x=x).results[0].outputs[0], 2 * x)
        assert shared_worker.pid != worker


def test_garbage_in_every_file_is_no_wrong_answer(run, x):
    for _ in range(3):
        result = run("writes_into_all_files", x=x).results[0]
        assert result.status == "crash" or torch.equal(result.outputs[0], 2 * x)
        assert torch.equal(run("twice", x=x).results[0].outputs[0], 2 * x)


LEFT = {
    "leaves_a_thread": "a thread that still runs",
    "leaves_a_process": "a process, started by it and not waited for",
    "leaves_a_daemon": "a process, started by it and not waited for",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_behind_is_told_and_ended(run, x, shared_worker, name):
    for _ in range(3):
        left, after = run(name, "twice", x=x).results
        assert (left.status, left.detail) == ("process", f"it changes, or leaves behind: {LEFT[name]}")
        assert after.status == "skip"
        assert torch.equal(run("twice", x=x).results[0].outputs[0], 2 * x)
    deadline = time.monotonic() + 10
    while len(left := descendants(shared_worker.pid)) > 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(left) <= 2  # the children that wait for a job


def descendants(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(p) for p in file.read().split()]
    return children + [p for c in children for p in descendants(c)]


def test_an_exception_is_an_error_with_its_message(shared_worker, x):
    from workbench.trial import Job, Made, Step

    steps = (
        Step("aten::mm", (x, x), case="bad"),
        Step("aten::relu", (Made(0),), case="needs it"),
        Step("aten::relu", (x,), case="good"),
        Step("aten::no_such_op", (x,), case="unknown"),
    )
    bad, needs, good, unknown = shared_worker.run(Job(steps), 20).results
    assert bad.status == "error" and bad.detail.startswith(
        "mat1 and mat2 shapes cannot be multiplied (5x123 and 5x123)"
    )
    assert (needs.status, needs.detail) == ("skip", "needs result 0 of step 0, which there is not")
    assert torch.equal(good.outputs[0], x.relu())
    assert unknown.status == "error" and "no_such_op" in unknown.detail


def test_a_library_that_does_not_load_is_an_error(shared_worker, x):
    from tests.trial.rogue import Rogue
    from workbench.trial import Job, Step

    job = Job((Step("rogue::twice", (x,)),), (Rogue("/no/such.so", ("twice",)),), ("rogue::twice(Tensor x) -> Tensor",))
    result = shared_worker.run(job, 20).results[0]
    assert result.status == "error" and "/no/such.so" in result.detail


def test_prints_come_back_with_their_step(run, x):
    answer = run("prints", "twice", "prints", x=x)
    assert [r.printed for r in answer.results] == ["n is 615 and x is 0\n", "", "n is 615 and x is 0\n"]
    assert answer.printed == "n is 615 and x is 0\n" * 2
    died = run("prints_and_dies", x=x).results[0]
    assert (died.status, died.printed) == ("crash", "before the end")


def test_a_flood_is_cut(run, x):
    answer = run("floods", x=x)
    assert answer.ok
    assert answer.printed.endswith("\n... truncated: 1540000 bytes in all")
    assert 65_536 <= len(answer.printed) < 65_600


def test_stdin_is_empty(run, x):
    assert run("reads_stdin", x=x).results[0].printed == "read 0\n"


def test_descriptors_of_the_notebook_stay_few(run, x):
    run("twice", x=x)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run("twice", "null_pointer", x=x)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
