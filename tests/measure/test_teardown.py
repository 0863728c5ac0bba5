"""A session of torch's profiler on a GPU leaves nothing that waits: not at the process's end, not for the next one."""

import subprocess
import sys
import threading

import pytest

from workbench.measure import teardown

SESSIONS = """
import json, sys, torch
from torch.profiler import ProfilerActivity, profile
from workbench.measure import cupti, profile_run

*kinds, last = sys.argv[1:]
for kind in kinds:
    x = torch.ones(1000, device="cpu" if kind.endswith("cpu") else "cuda")
    if kind == "own":
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            x + 1
            torch.cuda.synchronize()
        seen = [e for e in trace.events() if e.device_type.name == "CUDA" and "elementwise" in e.name]
    elif kind == "own_cpu":
        with profile(activities=[ProfilerActivity.CPU]):
            x + 1
        seen = []
    else:
        with profile_run.session(kind) as trace:
            x + 1
            if kind == "cuda":
                torch.cuda.synchronize()
        seen = [e for e in cupti.on_device(json.loads(trace())["traceEvents"]) if "elementwise" in e["name"]]
    print(kind, len(seen), flush=True)
assert torch.cuda.is_initialized() == (last == "initialized")
"""

GRAPHS = """
import json, sys, torch
from workbench.measure import cupti, profile_run

x = torch.ones(1000, device="cuda")
if sys.argv[1] == "captured":
    graph, y = torch.cuda.CUDAGraph(), torch.empty_like(x)
    with torch.cuda.graph(graph):
        torch.add(x, 1, out=y)
    replay = lambda: (graph.replay(), y)[1]
else:
    replay = torch.compile(lambda x: x + 1, mode="reduce-overhead")
    replay = lambda compiled=replay: compiled(x)
for _ in range(5):
    assert replay().sum().item() == 2000
for _ in range(4):
    with profile_run.session("cuda") as trace:
        replay()
        torch.cuda.synchronize()
    seen = [e for e in cupti.on_device(json.loads(trace())["traceEvents"]) if e["cat"] == "kernel"]
    print(len(seen), flush=True)
    assert replay().sum().item() == 2000
"""


class Waiting:
    """A thread that began after `before` was taken, and ends once it was called so often, as torch's does."""

    def __init__(self, calls: int) -> None:
        self.before = teardown.threads()
        self.left, self.over = calls, threading.Event()
        self.thread = threading.Thread(target=self.over.wait, daemon=True)
        self.thread.start()

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.over.set()
            self.thread.join()


def test_it_calls_until_the_thread_that_began_has_ended(monkeypatch):
    waiting = Waiting(3)
    monkeypatch.setattr(teardown, "call_cuda", waiting)
    assert teardown.finish(waiting.before)
    assert waiting.left == 0


def test_nothing_is_called_where_no_thread_began(monkeypatch):
    monkeypatch.setattr(teardown, "call_cuda", lambda: pytest.fail("called"))
    assert teardown.finish(teardown.threads())


def test_a_thread_that_stays_is_not_waited_for_for_ever(monkeypatch):
    waiting = Waiting(10**9)
    monkeypatch.setattr(teardown, "call_cuda", waiting)
    assert not teardown.finish(waiting.before, limit_s=0.02)
    assert waiting.left < 10**9
    waiting.over.set()


def test_where_threads_are_not_listed_nothing_is_waited_for(monkeypatch, tmp_path):
    monkeypatch.setattr(teardown, "THREADS", str(tmp_path / "none"))
    assert teardown.threads() == frozenset()
    monkeypatch.setattr(teardown, "call_cuda", lambda: pytest.fail("called"))
    assert teardown.finish(teardown.threads())


@pytest.mark.gpu
@pytest.mark.parametrize(
    "kinds",
    ["cuda", " ".join(["cuda"] * 20), "cuda own cuda own cuda", "own cuda", "own_cpu own cpu cuda", "cpu own cuda cpu"],
    ids=["ours", "ours in quick succession", "in turn", "after theirs", "after theirs of a CPU", "a CPU's"],
)
def test_each_session_sees_its_kernel_whoever_profiled_before_and_the_process_ends(kinds):
    """One whose last act was a session hung at its exit; one of ours after somebody else's saw nothing."""
    printed = run(SESSIONS, *kinds.split(), "initialized")
    assert printed == "".join(f"{kind} {0 if kind.endswith('cpu') else 1}\n" for kind in kinds.split())


@pytest.mark.gpu
def test_their_session_that_leaves_torchs_thread_waiting_spoils_none_of_ours(monkeypatch):
    monkeypatch.setenv(teardown.VARIABLE, "1")
    assert run(SESSIONS, "own", "cuda", "own", "cuda", "initialized") == "own 1\ncuda 1\n" * 2


@pytest.mark.gpu
def test_a_session_of_a_cpu_wants_nothing_of_a_gpu_that_is_there():
    assert run(SESSIONS, "cpu", "cpu", "not initialized") == "cpu 0\ncpu 0\n"


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["captured", "compiled"])
def test_graphs_are_replayed_in_sessions_and_after_them(how):
    """torch's own sessions leave CUPTI where CUDA graphs are in use, since some versions of CUDA died of its end."""
    kernels = list(map(int, run(GRAPHS, how).split()))
    assert len(kernels) == 4 and len(set(kernels)) == 1 and kernels[0] >= 1


def run(script, *words):
    """What a script printed, in a process of its own, which ends."""
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
