"""A full check on live ops: what its rows say of right and wrong kernels, of refusals, and of an interrupt."""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import gone
from workbench.case import make
from workbench.check import full, quick
from workbench.check.expect import expected
from workbench.check.full import doubt, special
from workbench.check.full.finding import Finding
from workbench.judge import tryout, tryout_pool
from workbench.trial import Worker, allocator

SCALE = """\
//! n = x.numel()
//! out = empty_like(x)
template <typename T>
void scale(const T* x, T* out, double k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = T(x[i] * k);
}
"""
LAST = "i < n", "i < n - n % 2"  # the last of an odd count is never written


@pytest.fixture(autouse=True, scope="module")
def guarded():
    assert allocator.wait()


@pytest.fixture
def scale():
    """Always under one name, so that its launcher is built once."""
    gone("full::scale")

    @wb.op("full::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    scale.cases(lambda t: [t(4, 8)])
    return scale


def check(op, *only, tell=lambda progress: None):
    tries = [*tryout.tries_of(op), *tryout.tries_of(op, "backward")]
    return full.check(op, lambda: tries, lambda: quick.check(op, "full"), device="cpu", only=only, tell=tell)


def row(report, name, about=""):
    return next(r for r in report.rows if r.check == name and r.case.startswith(about))


def test_the_whole_of_it_on_a_right_kernel(scale):
    wb.cpp(scale, SCALE)
    report = scale.check("full")
    assert report.ok and report.level == "full" and scale.last_check is report
    names = list(dict.fromkeys(r.check for r in report.rows))
    assert names[:4] == ["agreement", "schema", "autograd registration", "fake"], "the quick rows come first"
    for name in ("sizes", "layouts", "values", "dtypes", "scalars", "memory", "determinism", "metadata", "requires_grad",
                 "directional derivatives", "compiled, dynamic shapes", "export", "inductor", "autocast", "vmap"):  # fmt: skip
        assert any(r.check == name and r.status == "pass" for r in report.rows), name
    assert (
        row(report, "sizes", "empty").detail
        == "3 inputs: values, shapes, dtypes and strides as the reference's, exactly"
    )
    assert row(report, "CUDA graph").status == "skip" and "no GPU here" in row(report, "CUDA graph").detail
    assert row(report, "second derivatives").status == "pass"
    assert "1 graph" in row(report, "compiled, dynamic shapes").detail
    assert row(report, "sizes", "past 2**31 elements").detail.startswith("not run: it takes about ")


def test_a_failure_is_the_smallest_input_its_place_and_a_cure(scale):
    wb.cpp(scale, SCALE.replace(*LAST))
    report = check(scale, "sizes")
    odd = row(report, "sizes", "odd")
    assert odd.status == "fail" and not report.ok
    assert odd.detail == (
        "differs: 2 of 4 inputs fail, smallest found: x float32[1, 1], k=2.0: out: 1 of 1 elements differ, most at "
        "[0, 0]: nan where -1.09512 was wanted; 1 were never written; out is made on line 2"
    )
    assert odd.cure.startswith("Elements are not written")
    assert odd.mismatch.total > 1 and odd.mismatch.unwritten == 1, "the picture is of a larger input"
    assert odd.mismatch.worst[0][0] == tuple(n - 1 for n in odd.mismatch.shape)
    shape = odd.mismatch.shape
    assert odd.mismatch.on == f"x float32[{shape[0]}, {shape[1]}], k=2.0"
    assert re.search(r"out, (\d+) x (\d+), on x float32\[\1, \2\], k=2.0: 1 of", str(report))
    assert row(report, "sizes", "empty").status == "pass"


def test_a_number_in_the_code_is_named_with_its_line(scale):
    wb.cpp(scale, SCALE.replace("T(x[i] * k)", "T(x[i] * k * (n > 1000 ? k : 1))"))
    found = row(check(scale, "sizes"), "sizes", "around numbers")
    assert "; 1000 stands on line 5: `for (int64_t i = 0;" in found.detail
    assert "x float32[" in found.detail and found.mismatch.histogram[0][0] == 0, "off by a factor of 2"


def test_a_crash_costs_nothing_and_hides_no_other_input(scale):
    wb.cpp(scale, SCALE.replace("  for", "  if (n == 19 * 8) *(volatile int*)nullptr = 1;\n  for"))
    report = check(scale, "sizes", "layouts")
    odd = row(report, "sizes", "odd")
    assert odd.status == "fail" and odd.detail.startswith(
        "crashes: 1 of 4 inputs fail, smallest found: x float32[19, 8]"
    )
    assert "null pointer" in odd.detail and odd.cure == "An argument that is None is null: test for it first."
    assert all(r.status == "pass" for r in report.rows if r.check == "layouts")


def test_many_cores_find_what_two_do(scale, monkeypatch):
    """More workers share the inputs there, forks of the first; none is left afterwards."""
    wb.cpp(scale, SCALE.replace("{\n  for", "{\n  if (n == 15) __builtin_trap();\n  for").replace(*LAST))
    twin, run = Worker.twin, Worker.run
    made, ran = [], []
    monkeypatch.setattr(Worker, "twin", lambda self: made.append(twin(self)) or made[-1])
    monkeypatch.setattr(Worker, "run", lambda self, *job: ran.append(self) or run(self, *job))

    def found(cores):
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        return [(r.check, r.case, r.status) for r in check(scale, "sizes", "layouts", "values").rows]

    two = found(2)
    assert not made and [status for *_, status in two].count("fail") >= 2
    assert found(16) == two
    assert len(made) == 3 and set(made) & set(ran)
    assert all(one.pid is None for one in made), "closed"


def test_what_the_author_rules_out_is_no_failure(scale):
    wb.cpp(scale, "//! require x.shape[-1] % 8 == 0\n" + SCALE)
    report = check(scale, "sizes")
    assert report.ok
    assert "that the kernel refuses, and says so" in row(report, "sizes", "odd").detail
    assert "require x.shape[-1] % 8 == 0 is not met" in row(report, "sizes", "odd").detail


def test_what_the_reference_refuses_is_no_failure():
    gone("full::pick")

    @wb.op("full::pick")
    def pick(x: Tensor, k: int = 1) -> Tensor:
        if not 0 <= k < x.shape[0]:
            raise ValueError(f"no row {k}")
        return x[k].clone()

    pick.cases(lambda t: [t(4, 8)])
    body = "//! _, cols = x.shape\n//! out = empty(cols)\nvoid pick(const float* x, float* out, int64_t k, int64_t cols) {\n  for (int64_t c = 0; c < cols; ++c) out[c] = x[k * cols + c];\n}\n"
    wb.cpp(pick, body)
    scalars = row(check(pick, "scalars"), "scalars", "k")
    assert scalars.status == "pass" and "1 more: the reference refuses it (ValueError: no row -1)" in scalars.detail
    wb.cpp(pick, body.replace("x[k *", "x[k * 10000 *"), force=True, cases="none")
    scalars = row(check(pick, "scalars"), "scalars", "k")
    assert scalars.status == "fail" and "reads past the end of x" in scalars.detail, "of k=1 the reference takes"
    wb.cpp(pick, "//! require 0 <= k\n" + body)
    assert "1 that both refuse (ValueError: no row -1)" in row(check(pick, "scalars"), "scalars", "k").detail


def test_a_dtype_that_no_case_has_is_tried_and_promised_nothing(scale):
    wb.cpp(scale, SCALE.replace("T(x[i] * k)", "sizeof(T) == 8 ? T(0) : T(x[i] * k)"))
    report = check(scale, "dtypes")
    found = row(report, "dtypes", "float64")
    assert found.status == "skip" and "a first call with these dtypes is tried and then refused" in found.detail
    with pytest.raises(Exception, match="was tried for x float64 and differs"):
        scale(torch.randn(5, 5, dtype=torch.float64))
    assert row(report, "dtypes", "bfloat16").status == "pass"


def test_a_dtype_that_is_wrong_and_answered_all_the_same(scale):
    """Its first call is tried on float32 values in float64, on which no rounding shows."""
    wb.cpp(scale, SCALE.replace("T(x[i] * k)", "T(float(x[i]) * float(k))"))
    found = row(check(scale, "dtypes"), "dtypes", "float64")
    assert found.status == "fail" and found.mismatch.histogram[0][0] in {None, -9, -8}


def test_python_kernels_are_judged_too(scale):
    @scale.kernel("cpu")
    def _(x, k=2.0):
        y = x * k
        return x if k == 1 else y[: len(x)] if len(x) % 2 else y

    report = check(scale, "scalars", "sizes")
    assert "shares memory with x" in row(report, "scalars", "k").detail
    assert row(report, "sizes", "odd").status == "pass", "a view of a tensor of its own is one"

    @scale.kernel("cpu")
    def _(x, k=2.0):
        y = x * k
        x.mul_(1 if len(x) % 2 == 0 else 3)
        return y

    odd = row(check(scale, "sizes"), "sizes", "odd")
    assert odd.detail.startswith("writes to an input") and "changes the argument x" in odd.detail

    @scale.kernel("cpu")
    def _(x, k=2.0):
        y = torch.empty_like(x)
        y[: len(x) // 2 * 2] = x[: len(x) // 2 * 2] * k
        return y

    assert "nan where" in row(check(scale, "sizes"), "sizes", "odd").detail, "new memory is poisoned"


def test_an_op_without_a_kernel_has_the_rows_of_this_process(scale):
    report = check(scale, "metadata", "vmap")
    assert report.ok and row(report, "sweeps").detail == "not run: no kernel is installed, the reference itself runs"
    assert row(report, "metadata").status == row(report, "vmap").status == "pass"


def test_an_op_without_cases_says_so(scale):
    scale._cases = ()
    assert "give it some with @op.cases" in check(scale).rows[0].detail


def test_an_interrupt_keeps_the_rows_so_far(scale):
    wb.cpp(scale, SCALE)

    def tell(progress):
        if progress.at == "vmap":
            raise KeyboardInterrupt

    report = check(scale, "layouts", "metadata", "vmap", "streams", tell=tell)
    assert [r.check for r in report.rows[-2:]] == ["metadata", "stopped"] and row(report, "layouts").status == "pass"
    assert row(report, "stopped").status == "skip" and "stopped by an interrupt" in row(report, "stopped").detail
    assert torch.equal(scale(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.timeout(120)  # the endless loop has 300 s
def test_an_interrupt_ends_what_runs_and_tells_of_what_ran(scale, monkeypatch):
    """A kernel that would go on for minutes is in no one's way afterwards."""
    monkeypatch.setattr(tryout_pool, "LIMIT_S", 300.0)
    monkeypatch.setattr(full.run, "CHUNK", 8)
    wb.cpp(scale, SCALE.replace("  for", "  volatile bool on = n > 2000;\n  while (on) {}\n  for"))
    interrupted = []

    def tell(progress):
        if progress.at.endswith("waiting") and not interrupted:
            interrupted.append(threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)))
            interrupted[0].start()

    report = check(scale, "sizes", tell=tell)
    assert interrupted and report.rows[-1].check == "stopped"
    assert row(report, "sizes", "one").status == "pass", str(report)
    wb.cpp(scale, SCALE)
    assert check(scale, "layouts").ok


def test_progress_counts_up_to_its_end(scale):
    wb.cpp(scale, SCALE)
    told = []
    check(scale, "sizes", "vmap", tell=told.append)
    assert all(p.done <= p.of and p.op == "full::scale" for p in told)
    assert any(p.at == "forward cpu: sizes" for p in told) and told[-1].at == "vmap"
    assert [p.done for p in told] == sorted(p.done for p in told)


def test_a_gradient_that_is_wrong_for_other_sizes_only(scale):
    wb.cpp(scale, SCALE)
    wb.cpp(
        "full::scale.backward",
        """\
//! n = x.numel()
//! grad_x = empty_like(x)
void backward(const float* grad_out, const float* x, float* grad_x, double k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) grad_x[i] = grad_out[i] * float(k) * (n > 100 ? 2 : 1);
}
""",
    )
    report = check(scale, "sizes", "gradients")
    found = row(report, "gradients", "sizes")
    assert found.status == "fail" and "grad_x: " in found.detail and found.mismatch.output == "grad_x"
    assert found.cure == "The backward is not the reference's derivative: look at that gradient."
    assert row(report, "sizes", "odd").status == "pass"


def test_repeated_runs():
    (case,) = make(lambda t: [t(4, 8)], wb.schema.parse("lab::f(Tensor x) -> Tensor"))
    same, other = Finding(case, "agree"), Finding(case, "agree", differing=3)
    assert special.determinism([same, same]).detail == "all of 24 runs give the same bits"
    note = special.determinism([same, other])
    assert note.status == "pass" and "3 further runs on 4x8 float32 give other bits than the first" in note.detail
    torch.use_deterministic_algorithms(True)
    try:
        assert special.determinism([other]).status == "fail"
    finally:
        torch.use_deterministic_algorithms(False)
    wrong = Finding(case, "mismatch", "out: 1 of 32 elements differ")
    race = special.determinism([replace(wrong, differing=1)])
    assert race.status == "fail" and race.cure.startswith("A race")
    alike = special.determinism([wrong])  # as wrong each time
    assert alike.status == "fail" and alike.detail.startswith("all of 24 runs") and "race" not in alike.cure
    assert special.determinism([Finding(case, "skip", "no reference")]).detail == "not judged: no reference"


def test_a_second_opinion_where_the_reference_was_lucky():
    op = wb.schema.parse("lab::f(Tensor x) -> Tensor")

    def reference(x):
        return (x * 3 + 1e4) - 1e4  # off by up to 5e-4, unless by luck

    (case,) = make(lambda t: [torch.full((1,), 0.5)], op)
    wanted = expected(reference, op, case)
    lucky = doubt.second_opinion(wanted, lambda c: expected(reference, op, c))
    assert (wanted.outputs[0].value - wanted.outputs[0].true).abs().max() == 0 and lucky.outputs[0].own is not None
    assert doubt.doubtful(1.5) and not doubt.doubtful(0.9) and not doubt.doubtful(float("inf"))


def test_counts_past_a_limit_are_run_where_there_is_memory(scale):
    wb.cpp(
        scale,
        SCALE.replace("int64_t i = 0", "uint16_t i = 0")
        .replace("++i)", "++i) if (i != 65535 || n < 65536)")
        .replace("i < n", "i < (n & 65535)"),
    )
    tries = tryout.tries_of(scale)[0]
    families = full.run.Full(scale, "cpu", [], (), lambda p: None).families
    made = list(special.huge(tries, scale.schema, families, limit=1 << 16))
    long = list(special.huge(tries, scale.schema, families, limit=1 << 16, limit_s=0))
    tries.close()
    assert [r.case for r in long] == ["past 2**16 elements", "past 2**16 bytes"]
    assert {r.status for r in long} == {"skip"} and "not run: it takes about " in long[0].detail
    assert [r.case for r in made] == ["past 2**16 elements", "past 2**16 bytes"]
    assert made[0].status == "fail" and "elements differ" in made[0].detail
