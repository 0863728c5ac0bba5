"""`op.tune` from beginning to end: every configuration is a row, the best one runs, and nothing is tuned twice."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from workbench import tuned
from workbench.errors import SchemaError
from workbench.measure.clock import CpuClock
from workbench.tune import one as one_case
from workbench.tune.raw import RawSpace
from workbench.tune.shelf import Shelf

ROOT = Path(__file__).parents[1]
CELL = """
//! tune STEP = {values}
//! n = x.numel()
//! out = empty_like(x)
template <int STEP> void scale(const float* x, float* out, double k, int64_t n) {{
  static_assert(STEP != 7, "seven is not supported");
  if (STEP == 5 && n > 1000) *(volatile int*)nullptr = 0;
  for (int64_t i = 0; i < n; ++i) {{
    if (STEP == 2) for (volatile int j = 0; j < 40; ++j);
    out[i] = float(x[i] * (STEP == 3 ? 1.5 : k));
    if (STEP == 4 && n > 1000 && i == n / 2) break;
  }}
}}
"""


def scale_op(namespace, values="2, 1, 3, 4, 5, 7"):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(5, 7)
        yield wb.case("big", t(64, 300), bench=True)

    wb.cpp(scale, CELL.format(values=values))
    return scale


@pytest.fixture
def quick(monkeypatch):
    """Timing in a fraction of its time: what is far apart is told apart all the same."""
    monkeypatch.setattr("workbench.measure.clock.WARM_S", 0.002)
    monkeypatch.setattr("workbench.tune.search.ROUNDS", ((0.002, 1.4), (0.004, 1.2)))
    monkeypatch.setattr("workbench.tune.search.FINAL_S", 0.002)


@pytest.fixture
def scale(namespace, quick):
    op = scale_op(namespace)
    yield op
    live.gone(op.qualname)


@pytest.fixture
def shelves(monkeypatch) -> list[Shelf]:
    """Where results were kept."""
    found = []
    monkeypatch.setattr(tuned, "Shelf", lambda key: found.append(Shelf(key)) or found[-1])
    return found


def statuses(report):
    return {r.config["STEP"]: r.status for r in report.rows}


def test_each_configuration_is_a_row_with_its_reason(scale):
    report = scale.tune("big")
    assert statuses(report) == {2: "timed", 1: "timed", 3: "mismatch", 4: "mismatch", 5: "crash", 7: "build"}
    reasons = {r.config["STEP"]: r.reason for r in report.rows}
    assert "elements differ" in reasons[3] and "never written" in reasons[4]
    assert "SIGSEGV" in reasons[5] and reasons[7] == "line 6: static assertion failed: seven is not supported"
    assert report.ok and report.best.config == {"STEP": 1} and report.trials == 6
    assert report.line == "//! tune STEP = 1, 2, 3, 4, 5, 7"
    assert report.speedup > 2 and report.cases == ("big float32",)
    assert scale.last_tuning is report
    json.dumps(report.to_dict())


def test_the_winner_runs_for_its_sizes_alone(namespace, quick):
    op = scale_op(namespace, "2, 1")
    kernel = op.slots["forward", "cpu"].kernel
    before = kernel._launcher.installed
    report = op.tune("big")
    assert dict(op.tuned) == {("forward", "cpu", ("float32",), ((64, 300),)): {"STEP": 1}}
    assert report.frozen and kernel._launcher.installed is not before
    x = torch.randn(64, 300)
    assert torch.equal(op(x), x * 2)
    times = {}
    for shape in ((64, 300), (300, 64)):  # the same work: the first in STEP 1, the other in STEP 2, which wastes time
        x, best = torch.randn(shape), 1.0
        for _ in range(30):
            started = time.perf_counter()
            op(x)
            best = min(best, time.perf_counter() - started)
        times[shape] = best
    assert times[300, 64] > 2 * times[64, 300]
    assert wb.cpp(op, CELL.format(values="1, 2")).tuned == {}
    live.gone(op.qualname)


def test_tuning_again_tries_nothing(scale):
    first = scale.tune("big")
    again = scale.tune("big")
    assert again.trials == 0 and again.best.config == first.best.config and again.line == first.line
    assert all(r.remembered for r in again.rows) and statuses(again) == statuses(first)


def test_one_value_more_costs_one_trial(scale):
    scale.tune("big")
    wb.cpp(scale, CELL.format(values="2, 1, 3, 4, 5, 7, 6"))
    report = scale.tune("big")
    assert report.trials == 1 and statuses(report)[6] == "timed"
    assert {r.config["STEP"] for r in report.rows if not r.remembered} == {1, 6}, "the best so far is timed beside it"
    assert scale.tune("big").trials == 0


@pytest.mark.slow
def test_another_process_tries_nothing(namespace):
    program = f"""if True:
        import time, torch, workbench as wb
        from torch import Tensor
        @wb.op("{namespace}::tuned_twice")
        def scale(x: Tensor, k: float = 2.0) -> Tensor:
            return x * k
        @scale.cases
        def _(t):
            yield wb.case("big", t(64, 300), bench=True)
            yield t(5, 7)
        wb.cpp(scale, {CELL.replace("void scale(", "void tuned_twice(").format(values="2, 1, 3")!r})
        report = scale.tune("big", budget=20)
        print(report.trials, report.best.config, dict(scale.tuned))
    """
    said = [
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=200, check=True
        ).stdout
        for _ in range(2)
    ]
    frozen = "{('forward', 'cpu', ('float32',), ((64, 300),)): {'STEP': 1}}"
    assert [s.splitlines()[-1] for s in said] == [f"3 {{'STEP': 1}} {frozen}", f"0 {{'STEP': 1}} {frozen}"]


def test_results_that_were_held_against_another_reference_are_not_taken(namespace, quick):
    def op_with(reference):
        op = wb.op(f"{namespace}::scale")(reference)

        @op.cases
        def _(t):
            yield wb.case("big", t(64, 300))

        return op

    def twice(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    def half_more(x: Tensor, k: float = 2.0) -> Tensor:
        return x * 1.5

    wb.cpp(op_with(twice), CELL.format(values="1, 3"))
    assert statuses(wb.ops[f"{namespace}::scale"].tune()) == {1: "timed", 3: "mismatch"}
    op = op_with(half_more)
    wb.cpp(op, CELL.format(values="3, 1"))
    report = op.tune()
    assert statuses(report) == {3: "timed", 1: "mismatch"} and report.best.config == {"STEP": 3}
    assert op.tune().trials == 0
    live.gone(op.qualname)


def test_a_corrupt_store_is_told_and_tuned_anew(scale, shelves):
    scale.tune("big")
    file = shelves[0].path
    file.write_text(file.read_text()[:100])
    report = scale.tune("big")
    assert report.trials == 6 and report.ok
    assert any("corrupt" in n and "tuned anew" in n for n in report.notes)
    assert scale.tune("big").trials == 0


def test_a_row_that_says_nonsense_is_tried_again(scale, shelves):
    scale.tune("big")
    shelves[0].add({"STEP=1": {"status": "timed", "time_us": "fast"}})
    report = scale.tune("big")
    assert report.trials == 1 and report.best.config == {"STEP": 1}


def test_an_interrupt_keeps_the_best_so_far(scale, monkeypatch):
    usual, count = one_case._seconds, []

    def seconds(*given):
        count.append(1)
        if len(count) == 2:
            raise KeyboardInterrupt
        return usual(*given)

    monkeypatch.setattr(one_case, "_seconds", seconds)
    report = scale.tune("big")
    assert report.ended == "interrupted" and report.stopped and report.best.config == {"STEP": 2}
    assert statuses(report)[1] == "not reached"
    assert list(scale.tuned.values()) == [{"STEP": 2}]
    monkeypatch.setattr(one_case, "_seconds", usual)
    again = scale.tune("big")
    assert again.best.config == {"STEP": 1} and again.trials == 1


@pytest.mark.parametrize("last", [False, True], ids=["built first", "built last"])
def test_a_short_budget_says_what_was_not_reached(scale, monkeypatch, last):
    usual = RawSpace.build
    order = {"key": lambda built: built[0].config["STEP"] == 2, "reverse": not last}
    monkeypatch.setattr(RawSpace, "build", lambda self, some: iter(sorted(usual(self, some), **order)))
    report = scale.tune("big", budget=1e-6)
    assert report.ok and report.best.config == {"STEP": 2}
    assert report.ended == "the budget of 1e-06 s ended" and not report.stopped
    assert set(statuses(report).values()) == {"timed", "not reached"}
    assert "5 configurations not reached, the next call goes on with them" in str(report)
    assert scale.tune("big").trials == 5


def test_all_configurations_fail(namespace, quick):
    op = scale_op(namespace, "4, 7")
    report = op.tune("big")
    assert not report.ok and report.best is None and report.line == "" and not report.frozen
    assert "no configuration was found: all of them failed, the reasons are below" in str(report)
    assert dict(op.tuned) == {}
    x = torch.randn(3)
    assert torch.equal(op(x), x * 2)
    live.gone(op.qualname)


def test_a_hang_is_a_row(namespace, quick, monkeypatch):
    monkeypatch.setattr("workbench.judge.tryout_pool.LIMIT_S", 0.5)
    text = CELL.format(values="1, 2").replace(
        "if (STEP == 2) for (volatile int j = 0; j < 40; ++j);", "if (STEP == 2) for (volatile int j = 0; ; ++j);"
    )
    op = scale_op(namespace, "1")
    wb.cpp(op, text)
    report = op.tune("big")
    assert statuses(report) == {1: "timed", 2: "hang"}
    assert "did not end" in report.rows[1].reason
    live.gone(op.qualname)


@pytest.mark.slow
def test_a_hang_does_not_outlast_the_budget(namespace, quick, monkeypatch):
    monkeypatch.setattr("workbench.judge.tryout_pool.LIMIT_S", 60.0)
    text = CELL.format(values="1, 2, 6").replace("volatile int j = 0; j < 40; ++j", "volatile int j = 0;; ++j")
    op = scale_op(namespace, "1")
    wb.cpp(op, text.replace("if (STEP == 2)", "if (STEP == 2 || STEP == 6)"))
    report = op.tune("big", budget=2)
    assert statuses(report) == {1: "timed", 2: "not reached", 6: "not reached"}
    assert {r.reason for r in report.rows[1:]} <= {"the budget ended while it was tried", "the budget ended before it"}
    assert report.ended == "the budget of 2 s ended"
    monkeypatch.setattr("workbench.judge.tryout_pool.LIMIT_S", 0.5)
    assert statuses(op.tune("big")) == {1: "timed", 2: "hang", 6: "hang"}, "what was not reached is tried again"
    live.gone(op.qualname)


def test_an_interrupt_before_anything_was_timed_says_so(scale, monkeypatch):
    def interrupted(self, some):
        raise KeyboardInterrupt

    monkeypatch.setattr(RawSpace, "build", interrupted)
    report = scale.tune("big")
    assert set(statuses(report).values()) == {"not reached"} and report.ended == "interrupted"
    assert {r.reason for r in report.rows} == {"an interrupt came before it"}
    assert "no configuration was timed: it ended before that, and what was installed runs" in str(report)
    assert not report.frozen and torch.equal(scale(torch.ones(3)), 2 * torch.ones(3))


def test_each_sample_of_a_mutating_op_starts_from_the_same_values(namespace, quick, monkeypatch):
    """Halved again and again a tensor holds denormal numbers in the end, which take a CPU many times as long."""

    @wb.op(f"{namespace}::halve_", mutates="x")
    def halve_(x: Tensor) -> None:
        x.mul_(0.5)

    @halve_.cases
    def _(t):
        yield torch.ones(100)

    wb.cpp(
        halve_,
        "//! tune STEP = 1, 2\n//! n = x.numel()\n"
        "void halve_(float* x, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] *= 0.5f; }",
    )
    seen, usual = [], CpuClock._quickest

    def quickest(self, call, blocks, count):
        seen.append(next(c.cell_contents for c in call.run.__closure__ if isinstance(c.cell_contents, list))[0].max())
        return usual(self, call, blocks, count)

    monkeypatch.setattr(CpuClock, "_quickest", quickest)
    assert halve_.tune().ok
    assert len(seen) > 3 and set(map(float, seen)) == {1.0}
    live.gone(halve_.qualname)


def test_a_mutating_op_is_tuned_on_copies(namespace, quick):
    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    @add_.cases
    def _(t):
        yield t(100), t(100)

    wb.cpp(
        add_,
        """
//! tune STEP = 1, 2
//! n = x.numel()
void add_(float* x, const float* y, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] += STEP == 2 ? 2 * y[i] : y[i]; }
""",
    )
    case = add_.case_list()[0]
    before = [t.clone() for t in case.args]
    report = add_.tune("100")
    assert statuses(report) == {1: "timed", 2: "mismatch"}
    assert all(torch.equal(a, b) for a, b in zip(case.args, before, strict=True))
    live.gone(add_.qualname)


def test_a_backward_is_tuned_with_what_its_forward_saves(namespace, quick):
    @wb.op(f"{namespace}::square", returns="y", saves="twice")
    def square(x: Tensor) -> Tensor:
        return x * x

    @square.cases
    def _(t):
        yield t(50)

    wb.cpp(
        square,
        """
//! n = x.numel()
//! y = empty_like(x)
//! twice = empty_like(x)
void square(const float* x, float* y, float* twice, int64_t n) { for (int64_t i = 0; i < n; ++i) y[i] = x[i] * x[i], twice[i] = 2 * x[i]; }
""",
    )
    wb.cpp(
        f"{square.qualname}.backward",
        """
//! tune STEP = 1, 2
//! n = twice.numel()
//! grad_x = empty_like(twice)
void backward(const float* grad_y, const float* twice, float* grad_x, int64_t n) { for (int64_t i = 0; i < n; ++i) grad_x[i] = STEP * grad_y[i] * twice[i]; }
""",
    )
    report = square.tune(slot="backward")
    assert statuses(report) == {1: "timed", 2: "mismatch"} and report.slot == "backward"
    x = torch.randn(50, requires_grad=True)
    square(x).sum().backward()
    assert torch.allclose(x.grad, 2 * x.detach())
    live.gone(square.qualname)


def test_several_cases_each_have_their_winner(scale):
    report = scale.tune(["big", "5x7"])
    assert report.cases == ("big float32", "5x7 float32") and report.ok
    assert {case for case, _ in report.winners} == set(report.cases)
    assert len(scale.tuned) == 2
    assert report.line.startswith("//! tune STEP = ")


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"case": "bug"}, "scale.tune: there is no case 'bug'; did you mean 'big'? its cases are 5x7, big"),
        ({"case": []}, "scale.tune: no case is named; without any those with bench=True are taken, else the largest"),
        ({"budget": 0}, "budget is in seconds and more than 0, got 0; None for no limit"),
        ({"budget": -1.0}, "budget is in seconds and more than 0, got -1.0"),
        ({"budget": float("nan")}, "budget is in seconds and more than 0, got nan"),
        ({"budget": "long"}, "budget is in seconds and more than 0, got 'long'"),
        ({"configs": [{"STEP": 9}]}, "configs= widens the space of a Triton cell; v1 of scale is raw C++: write the values into the cell, '//! tune STEP = ...'"),
        ({"slot": "sideways"}, "slot is 'forward' or 'backward', got 'sideways'"),
        ({"slot": "backward"}, "the backward runs the reference, and that has nothing to tune"),
        ({"device": "cuda"}, "the forward on cuda runs the reference, and that has nothing to tune"),
        ({"device": "tpu"}, "device is 'cpu' or 'cuda', got 'tpu'"),
    ],
    ids=lambda v: str(v)[:24],
)  # fmt: skip
def test_what_cannot_be_tuned(scale, given, said):
    with pytest.raises(SchemaError) as error:
        scale.tune(**given)
    assert said in str(error.value)


def test_nothing_to_tune(namespace):
    op = scale_op(namespace, "1")
    with pytest.raises(SchemaError, match=r"v1 \(raw C\+\+\) has nothing to tune: write a line such as"):
        op.tune("big")
    op.restore(0)
    with pytest.raises(SchemaError, match="the forward runs the reference, and that has nothing to tune; write a cell"):
        op.tune("big")
    wb.cpp(op, "Tensor scale(Tensor x, double k) { return x; }", force=True)
    with pytest.raises(SchemaError, match=r"v2 \(host C\+\+\) has nothing to tune: `tune` lines are for raw cells"):
        op.tune("big")
    live.gone(op.qualname)


def test_an_op_without_cases(namespace):
    @wb.op(f"{namespace}::f")
    def f(x: Tensor) -> Tensor:
        return x + 1

    wb.cpp(
        f,
        "//! tune A = 1, 2\n//! n = x.numel()\n//! out = empty_like(x)\nvoid f(const float* x, float* out, int64_t n) { for (int64_t i = 0; i < n; ++i) out[i] = x[i] + 1; }",
    )
    with pytest.raises(SchemaError, match="nothing to tune until it was tried: call the op once, or give it cases"):
        f.tune()
    f(torch.ones(3))
    assert f.tune().ok
    live.gone(f.qualname)


# ---------------------------------------------------------------- elsewhere


def test_threads_of_an_executor_measure_and_the_best_are_timed_here(scale):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        report = scale.tune("big", executor=pool)
    assert statuses(report) == {2: "timed", 1: "timed", 3: "mismatch", 4: "mismatch", 5: "crash", 7: "build"}
    assert report.best.config == {"STEP": 1} and report.trials == 6
    assert {r.place for r in report.rows if r.status != "timed"} == {os.uname().nodename}
    assert scale.tune("big").trials == 0
    for qualname in [q for q in wb.ops if q.startswith("wb_tune_")]:
        live.gone(qualname)


@pytest.mark.slow
def test_processes_of_an_executor_measure(scale):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        report = scale.tune("big", executor=pool)
    assert statuses(report) == {2: "timed", 1: "timed", 3: "mismatch", 4: "mismatch", 5: "crash", 7: "build"}
    assert report.notes == ()


class Losing(concurrent.futures.Executor):
    """Runs its first task in a thread, loses the others; takes no work after `most`."""

    def __init__(self, most=100):
        self.count, self.most = 0, most

    def submit(self, fn, /, *args, **kwargs):
        self.count += 1
        if self.count > self.most:
            raise concurrent.futures.BrokenExecutor("the pool is closed")
        future = concurrent.futures.Future()
        if self.count == 1:
            threading.Thread(target=lambda: future.set_result(fn(*args, **kwargs))).start()
        else:
            future.set_exception(BrokenProcessPool("a process was killed"))
        return future


@pytest.mark.parametrize(("most", "said"), [(100, "a worker of the executor was lost (BrokenProcessPool: a process was killed)"),
                                            (1, "the executor takes no work (BrokenExecutor: the pool is closed)")])  # fmt: skip
def test_a_lost_worker_is_told_and_the_rest_is_done_here(scale, most, said):
    report = scale.tune("big", executor=Losing(most))
    assert statuses(report) == {2: "timed", 1: "timed", 3: "mismatch", 4: "mismatch", 5: "crash", 7: "build"}
    assert any(n.startswith(said) for n in report.notes), report.notes
    for qualname in [q for q in wb.ops if q.startswith("wb_tune_")]:
        live.gone(qualname)
