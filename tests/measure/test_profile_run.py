"""Sessions of torch's profiler: one at a time, and none left behind."""

import gc
import json
import os
import signal
import threading
import weakref

import pytest
import torch
from torch.autograd import profiler as autograd
from torch.profiler import ProfilerActivity

from workbench.errors import WorkbenchError
from workbench.measure import profile_run, profile_trace

CPU = [ProfilerActivity.CPU]


def nothing_runs():
    assert not torch.autograd._profiler_enabled()
    assert not autograd._is_profiler_enabled


def names(trace):
    return {e.get("name") for e in json.loads(trace)["traceEvents"]}


def test_a_session_gives_its_trace_as_often_as_it_is_asked():
    with profile_run.session() as trace:
        torch.ones(3) + 1
    nothing_runs()
    assert "aten::add" in names(trace())


def test_a_session_is_quiet(capfd):
    with profile_run.session():
        torch.ones(3) + 1
    assert capfd.readouterr() == ("", "")
    assert "KINETO_LOG_LEVEL" not in os.environ


def test_garbage_from_before_is_not_freed_inside_for_torch_would_write_a_warning_on_it():
    tensor = torch.ones(1000)
    cycle = [tensor]
    cycle.append(cycle)
    seen = weakref.ref(tensor)
    gc.disable()
    try:
        del tensor, cycle
        assert seen() is not None
        with profile_run.session():
            assert seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("what", [ValueError("of the op"), KeyboardInterrupt()])
def test_what_is_raised_inside_leaves_no_profiler(what):
    with pytest.raises(type(what)), profile_run.session():
        raise what
    nothing_runs()
    with profile_run.session() as trace:  # and the next one works
        torch.ones(3) + 1
    assert "aten::add" in names(trace())


def test_an_interrupt_while_it_begins_leaves_no_profiler(monkeypatch):
    start = torch.profiler.profile.start

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        start(self)
        assert torch.autograd._profiler_enabled()  # the interrupt waits until it has begun

    monkeypatch.setattr(torch.profiler.profile, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), profile_run.session():
        pytest.fail("not reached")
    nothing_runs()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_it_ends_leaves_no_profiler(monkeypatch):
    stop = torch.profiler.profile.stop

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        stop(self)

    monkeypatch.setattr(torch.profiler.profile, "stop", interrupted)
    with pytest.raises(KeyboardInterrupt), profile_run.session():
        pass
    nothing_runs()


def test_a_stop_that_fails_leaves_no_profiler(monkeypatch):
    def failing(self):
        raise RuntimeError("no")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(torch.profiler.profile, "stop", failing)
        with profile_run.session():
            pass
    nothing_runs()


def test_a_profiler_that_runs_goes_on_and_is_told_of():
    with torch.profiler.profile(activities=CPU) as outer:
        torch.ones(3) + 1
        with pytest.raises(
            WorkbenchError, match="a torch profiler is running already.*It goes on undisturbed: end it, then"
        ):
            with profile_run.session():
                pytest.fail("not reached")
        torch.ones(3) * 2
    assert {"aten::add", "aten::mul"} <= {e.name for e in outer.events()}


def test_a_profiler_of_another_thread_goes_on_and_is_told_of():
    ready, go, seen = threading.Event(), threading.Event(), []

    def other():
        with torch.profiler.profile(activities=CPU) as profiler:
            torch.ones(3) + 1
            ready.set()
            go.wait(60)
            torch.ones(3) * 2
        seen.extend(e.name for e in profiler.events())

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait(60)
    try:
        assert not torch.autograd._profiler_enabled()  # in this thread: asking torch is not enough
        with pytest.raises(WorkbenchError, match="running already"):
            profile_run.refuse_a_second()
    finally:
        go.set()
        thread.join()
    assert {"aten::add", "aten::mul"} <= set(seen)


def test_a_profiler_that_warms_up_goes_on_and_is_told_of():
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with torch.profiler.profile(activities=CPU, schedule=schedule) as profiler:
        with pytest.raises(WorkbenchError, match="warming up by its schedule"):
            profile_run.refuse_a_second()
        profiler.step()
        torch.ones(3) + 1
    assert "aten::add" in {e.name for e in profiler.events()}
    profile_run.refuse_a_second()  # it has ended


def test_calls_alone_are_timed_phase_by_phase():
    def call(mark):
        with mark("forward"):
            torch.ones(1000).sum()
        with mark("backward"):
            pass

    found, count = profile_run.alone(call, budget_s=60.0)
    assert set(found) == {"forward", "backward"}
    assert found["forward"].wall_us > found["backward"].wall_us >= 0
    assert count == profile_run.MOST_CALLS


def test_a_call_that_takes_long_is_made_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(profile_run.time, "perf_counter", lambda: now[0])
    made = []

    def call(mark):
        made.append(1)
        with mark("forward"):
            now[0] += 30.0

    found, count = profile_run.alone(call)
    assert (len(made), count) == (profile_run.WARM_CALLS + 1, 1)
    assert found["forward"].wall_us == 30e6


def test_traced_calls_are_marked_and_one_is_made_before_them():
    def call(mark):
        with mark("forward"):
            torch.ones(3) + 1

    calls = profile_trace.calls(profile_run.read(profile_run.traced(call, 4)))
    assert len(calls) == 5
    assert all("aten::add" in {e.name for e in c.events} for c in calls)


def test_what_an_event_costs_is_measured_once():
    first = profile_run.event_cost_us()
    assert 0 <= first < 100
    assert profile_run.event_cost_us() == first
    nothing_runs()


def test_a_trace_that_is_no_json_is_an_error():
    with pytest.raises(WorkbenchError, match="torch's trace cannot be read .*nothing was profiled"):
        profile_run.read(b'{"traceEvents": [')
