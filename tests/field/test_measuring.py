"""What people met while tuning, timing and profiling (field reports F40 to F43, F47, F51 to F53)."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.measure.fakes import Clock
from workbench.measure.clock import Call, CpuClock
from workbench.measure.timing import Timed, compare


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Timing in a fraction of its time: statuses are what counts here."""
    monkeypatch.setattr("workbench.measure.clock.WARM_S", 0.002)
    monkeypatch.setattr("workbench.tune.search.ROUNDS", ((0.002, 1.4),))
    monkeypatch.setattr("workbench.tune.search.FINAL_S", 0.002)


def statuses(report, name: str) -> dict:
    return {r.config[name]: r.status for r in report.rows}


def doubled(namespace: str, text: str):
    @wb.op(f"{namespace}::twice")
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.cases(lambda t: iter([(t(16, 32),)]))
    wb.cpp(twice, text)
    return twice


# ---------------------------------------------------------------- tuning


def test_f40_a_kernel_that_accumulates_is_tuned_on_copies(namespace):
    """x += y by two configurations: the user's tensors are as they were, and the first call afterwards adds once."""

    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    add_.cases(lambda t: iter([(t(64), t(64))]))
    wb.cpp(
        add_,
        """
//! tune STEP = 1, 2
//! n = x.numel()
void add_(float* x, const float* y, int64_t n) {
  for (int64_t k = 0; k < STEP; ++k) for (int64_t i = k; i < n; i += STEP) x[i] += y[i];
}
""",
    )
    case = add_.case_list()[0]
    before = [t.clone() for t in case.args]
    assert statuses(add_.tune("64"), "STEP") == {1: "timed", 2: "timed"}
    assert all(torch.equal(a, b) for a, b in zip(case.args, before, strict=True))
    x, y = torch.randn(64), torch.randn(64)
    wanted = x + y
    add_(x, y)
    assert torch.equal(x, wanted)
    live.gone(add_.qualname)


def test_f41_two_configurations_that_write_a_half_each_fail_alone(namespace):
    """Into one buffer, the second would fill the holes of the first."""
    twice = doubled(
        namespace,
        """
//! tune HALF = 0, 1, 2
//! n = x.numel()
//! out = empty(x.shape)
void twice(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) if (HALF == 0 || (HALF == 1) == (i < n / 2)) out[i] = 2 * x[i];
}
""",
    )
    report = twice.tune("16x32")
    assert statuses(report, "HALF") == {0: "timed", 1: "mismatch", 2: "mismatch"}
    assert "never written" in next(r.reason for r in report.rows if r.config["HALF"] == 1)
    live.gone(twice.qualname)


def test_f42_what_fails_is_a_row_with_its_reason_and_the_rest_is_timed(namespace, monkeypatch):
    monkeypatch.setattr("workbench.judge.tryout_pool.LIMIT_S", 0.5)
    twice = doubled(
        namespace,
        """
//! tune MODE = 0, 1, 2, 3
//! n = x.numel()
//! out = empty(x.shape)
void twice(const float* x, float* out, int64_t n) {
  static_assert(MODE != 1, "mode 1 is not written yet");
  volatile bool on = MODE == 3;
  while (on) {}
  if (MODE == 2) *reinterpret_cast<volatile int*>(8) = 1;
  for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];
}
""",
    )
    report = twice.tune("16x32")
    assert statuses(report, "MODE") == {0: "timed", 1: "build", 2: "crash", 3: "hang"}
    said = {r.config["MODE"]: r.reason for r in report.rows}
    assert "mode 1 is not written yet" in said[1] and "SIGSEGV" in said[2] and "did not end" in said[3]
    assert report.ok and report.best.config == {"MODE": 0}
    live.gone(twice.qualname)


TUNED = """
import sys, workbench as wb
from torch import Tensor
@wb.op("f43::twice")
def twice(x: Tensor) -> Tensor:
    return x * 2
twice.cases(lambda t: iter([(t(16, 32),)]))
wb.cpp(twice, '''
//! tune STEP = %s
//! n = x.numel()
//! out = empty(x.shape)
void twice(const float* x, float* out, int64_t n) { for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i] + 0 * STEP; }
''')
print(twice.tune("16x32").trials)
"""


@pytest.mark.slow
def test_f43_a_restart_tunes_nothing_again_and_one_value_more_costs_one_trial(fresh_cache):
    """`fresh_cache` is in the environment of the processes."""
    found = []
    for values in ("1, 2, 3", "1, 2, 3", "1, 2, 3, 4"):
        done = subprocess.run([sys.executable, "-c", TUNED % values], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(int(done.stdout.split()[-1]))
    assert found == [3, 0, 1]


# ---------------------------------------------------------------- timing


def test_f47_slow_first_calls_and_a_drift_decide_nothing():
    """Ten calls of a hundred times as long, then a machine that slows down by a fifth: the op is the same as itself."""
    clock, noise = Clock(), random.Random(3)
    calls_made = [0]

    def run():
        calls_made[0] += 1
        slow = 100 if calls_made[0] <= 10 else 1 + 0.2 * min(calls_made[0] / 4000, 1)
        clock.at += 100e-6 * slow * noise.uniform(1, 1.05)

    calls = [Call("op", run), Call("again", run)]
    timer = CpuClock(clock)
    for call in calls:
        timer.warm(call)
    timed = compare(timer, calls, Timed(("op", "again"), 0.02), 5.0, now=clock)
    assert timed.verdict(1) == "SAME"
    assert 100e-6 <= timed.seconds(0).mid <= 126e-6


# ---------------------------------------------------------------- profiling


def profiled(namespace: str):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k + 1

    scale.cases(lambda t: iter([(t(4, 8), 3.0), wb.case("tiny", t(1))]))
    return scale


@pytest.mark.slow
def test_f51_the_third_profile_of_a_session_is_as_right_as_the_first(namespace):
    scale = profiled(namespace)
    for _ in range(3):
        report = scale.profile("4x8")
        phases = {s.name: s for s in report.timeline if s.kind == "phase"}
        kernels = [s for s in report.timeline if s.kind == "kernel"] or [s for s in report.timeline if s.kind == "op"]
        assert set(phases) == {"forward", "backward"} and kernels
        assert {k.name for k in report.kernels if k.phase == "forward"} >= {"aten::mul", "aten::add"}
        first, last = phases["forward"], phases["backward"]
        assert all(first.start_us <= s.start_us <= last.start_us + last.duration_us for s in kernels)


def test_f52_a_trace_is_exported_and_shown_as_often_as_one_likes(namespace, tmp_path):
    report = profiled(namespace).profile("4x8")

    def shown() -> str:
        return re.sub(r"wb-[0-9a-f]{8}", "", report._repr_mimebundle_()["text/html"])  # a name for the radio buttons

    first = shown()
    for name in ("a.json", "b.json"):
        report.export_chrome_trace(tmp_path / name)
    assert shown() == first
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads((tmp_path / "b.json").read_text())


def test_f53_a_profile_of_a_tiny_call_stays_small(namespace, tmp_path):
    """It makes some calls, however short one is, and keeps no stacks."""
    report = profiled(namespace).profile("tiny")
    path = tmp_path / "trace.json"
    report.export_chrome_trace(path)
    assert path.stat().st_size < 2 << 20
    assert len(report.timeline) < 2000
