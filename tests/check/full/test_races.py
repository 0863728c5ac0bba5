"""Kernels with threads: a failing input that is run again, and what is then said of the rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import Tensor

import workbench as wb
from workbench.case import make
from workbench.check import full, quick
from workbench.check.cure_table import BATCHING, NO_RULE, RACE, THREADS
from workbench.check.full import races
from workbench.check.full.finding import Finding, vary
from workbench.check.full.rows import Tried
from workbench.check.full.transforms import _without_rule
from workbench.check.full.variant import Variant
from workbench.judge import tryout
from workbench.reports.report import Mismatch, Row
from workbench.source import Source
from workbench.trial import allocator

SCHEMA = wb.schema.parse("lab::f(Tensor x) -> Tensor")
(CASE,) = make(lambda t: [t(4, 8)], SCHEMA)
# Each run sees how often it was called: what threads do by chance, a counter does each time.
TURNS = """\
//! n = x.numel()
//! out = empty_like(x)
static int turn = 0;
void turns(const float* x, float* out, int64_t n) {
  float wrong = n > 300 && turn++ % 2 ? 1.0f : 0.0f;
  #pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + 1.0f + wrong;
}
"""


def off(count: int, got: float) -> Finding:
    return Finding(
        CASE, "mismatch", "out: some differ", mismatch=Mismatch("out", (4, 8), count, 32, 0, (((0, 1), got, 1.0),))
    )


@pytest.mark.parametrize(
    ("found", "is_so"),
    [
        ([off(3, 2.0), off(3, 2.0)], False), ([off(3, 2.0), off(3, 2.001)], False), ([off(3, 2.0), off(4, 2.0)], True),
        ([off(3, 2.0), off(3, 5.0)], True), ([off(3, 2.0), Finding(CASE, "agree")], True),
        ([Finding(CASE, "agree"), Finding(CASE, "agree", share=0.5)], False), ([off(3, 2.0)], False),
    ],
)  # fmt: skip
def test_runs_that_differ_by_more_than_the_order_of_sums(found, is_so):
    assert vary(found) is is_so


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("#pragma omp parallel for\nfor (;;) {}", True), ("std::thread t;", True), ("at::parallel_for(0, n, 1, f);", True),
        ("std::atomic<int> n;", True), ("#pragma omp simd\nfor (;;) {}", False), ("// omp parallel", False),
    ],
)  # fmt: skip
def test_which_texts_have_threads(text, is_so):
    kernel = SimpleNamespace(source=Source(text, "cpp"))
    tries = SimpleNamespace(kernel=kernel, sequential=False, unrunnable="", device="cpu")
    assert races.parallel(tries) is is_so
    tries.sequential = True
    assert not races.parallel(tries)


class Again:
    """A kernel with threads that gives these findings when it is run again."""

    kernel, sequential, unrunnable, device, slot = (
        SimpleNamespace(source=Source("#pragma omp parallel", "cpp")),
        False,
        "",
        "cpu",
        "forward",
    )

    def __init__(self, found: Finding) -> None:
        self.found = found

    def submit(self, cases, *, repeats=1, spread=False):
        assert len(cases) == 1 and repeats == races.AGAIN
        return SimpleNamespace(result=lambda: [self.found])


def test_a_failing_input_that_comes_out_otherwise_is_a_race():
    (family,) = full.run.sizes_of([CASE], SCHEMA)
    t = Tried(Variant("sizes", "odd", CASE, family), off(3, 2.0))
    assert races.of([t], Again(off(3, 2.0)), SCHEMA) is None
    assert races.of([t], Again(off(5, 2.0)), SCHEMA) is t
    assert races.of([t], Again(Finding(CASE, "agree", differing=1)), SCHEMA) is t
    row = races.told(
        Row("sizes", "odd", "fail", "differs: 1 of 4 inputs fail, smallest found: x: out differ", "look at indices")
    )
    assert row.detail.startswith(
        "a race: run again it gives another result: differs: 1 of 4 inputs fail, one of them: x"
    )
    assert row.cure == RACE


def test_what_a_race_explains_is_not_put_down_to_other_reasons():
    differs = Row("compiled = eager", "4x8", "fail", "elements differ", "Does the op keep state?")
    swept = Row("sizes", "odd", "fail", "elements differ", "Look at indices.")
    raises = Row("vmap", "4x8", "fail", "RuntimeError: no", "Leave it out.")
    assert [r.cure for r in races.reworded([differs, swept, raises], found=True)] == [
        RACE,
        f"Look at indices. {THREADS}",
        "Leave it out.",
    ]
    assert [r.cure for r in races.reworded([differs, swept], found=False)] == [
        f"Does the op keep state? {THREADS}",
        "Look at indices.",
    ]


def test_who_gave_no_batching_rule_is_not_told_to_leave_it_out():
    row = Row("vmap", "x", "fail", "elements differ between vmap and a loop", BATCHING)
    without, own = (SimpleNamespace(definition=SimpleNamespace(vmap=rule)) for rule in (None, len))
    assert _without_rule(without, row).cure == NO_RULE and _without_rule(own, row).cure == BATCHING


def test_a_full_check_says_first_that_it_is_a_race(namespace):
    assert allocator.wait()

    @wb.op(f"{namespace}::turns")
    def turns(x: Tensor) -> Tensor:
        return x + 1

    turns.cases(lambda t: [t(4, 8)])
    wb.cpp(turns, TURNS)
    tries = tryout.tries_of(turns)
    report = full.check(turns, lambda: tries, lambda: quick.check(turns, "full"), device="cpu", only=("sizes",))
    failed = [r for r in report.rows if r.status == "fail" and r.check == "sizes"]
    assert failed and all(r.detail.startswith(races.SAID) and r.cure == RACE for r in failed), str(report)
