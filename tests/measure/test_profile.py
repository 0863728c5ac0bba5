"""`op.profile` on a CPU, for real: what it names, chooses, keeps, and says no to."""

import gzip
import json
import os

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import NORM, NORM_BACKWARD
from workbench import which
from workbench.errors import WorkbenchError
from workbench.measure import ceilings, memory, profile_run
from workbench.reports.measurement import COPY, Ceiling


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few calls, and a ceiling that nobody measures here."""
    monkeypatch.setattr(profile_run, "BUDGET_S", 0.02)
    monkeypatch.setattr(ceilings, "copy_bandwidth", lambda device: Ceiling(COPY, 10.0))


def scaled(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k + 1

    @scale.cases(dtypes=(torch.float32, torch.bfloat16))
    def _(t):
        yield t(4, 8), 3.0
        yield wb.case("odd", t(5, 3))
        yield wb.case("large", t(300, 100), bench=True)

    return scale


def test_a_reference_is_seen_through_the_ops_that_it_calls(namespace):
    op = scaled(namespace)
    report = op.profile("odd")
    assert op.last_profile is report and report.ok
    assert (report.op, report.case, report.device) == (f"{namespace}::scale", "odd float32", "cpu")
    forward, backward = report.phases
    assert (forward.name, forward.runs, backward.name, backward.runs) == (
        "forward",
        "reference",
        "backward",
        "reference's vjp",
    )
    assert {k.name for k in report.kernels if k.phase == "forward"} >= {"aten::mul", "aten::add"}
    assert forward.launches >= 2 and 0 < forward.kernel_us < forward.traced_us and forward.wall_us > 0
    assert forward.moved_bytes == 2 * 5 * 3 * 4 and forward.peak_bytes >= 5 * 3 * 4
    assert sum(k.share for k in report.kernels if k.phase == "forward") == pytest.approx(1.0)
    assert {o.name for o in report.ops} >= {f"{namespace}::scale", "aten::mul"}
    assert {"several launches", "dispatch dominates"} & {a.rule for a in report.advice}
    assert [s.name for s in report.timeline if s.kind == "phase"] == ["forward", "backward"]
    assert report.timeline[0].start_us == 0.0 and all(s.start_us >= 0 for s in report.timeline)
    assert len(report.memory) > 1


def test_native_code_is_a_kernel_forward_and_backward(namespace):
    @wb.op(f"{namespace}::norm", returns="y", saves="rstd")
    def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @norm.cases
    def _(t):
        yield t(64, 256), t(256)

    wb.cpp(norm, NORM)
    wb.cpp(f"{namespace}::norm.backward", NORM_BACKWARD)
    report = norm.profile()
    found = {(k.name, k.phase): k.count for k in report.kernels}
    assert found == {(f"{namespace}::norm_forward", "forward"): 1, (f"{namespace}::norm_backward", "backward"): 1}
    assert [p.runs for p in report.phases] == ["v1 raw C++", "v2 raw C++"]
    assert [p.launches for p in report.phases] == [1, 1]
    assert report.phase("forward").moved_bytes == (2 * 64 * 256 + 256) * 4


def test_without_a_name_the_case_to_be_measured_else_the_largest(namespace):
    op = scaled(namespace)
    assert which.case(op, verb="profile").label == "large float32"
    assert which.case(op, "4x8 bfloat16", verb="profile").label == "4x8 bfloat16"
    assert which.case(op, "odd", verb="profile").label == "odd float32"

    @wb.op(f"{namespace}::plain")
    def plain(x: Tensor) -> Tensor:
        return -x

    @plain.cases
    def _(t):
        yield t(4)
        yield t(8, 8)
        yield t(5)

    assert which.case(plain, verb="profile").label == "8x8 float32"


def test_a_case_that_there_is_none_of_is_told_with_those_that_there_are(namespace):
    op = scaled(namespace)
    with pytest.raises(WorkbenchError, match="there is no case 'lllama'; its cases are 4x8, odd, large"):
        op.profile("lllama")
    with pytest.raises(WorkbenchError, match="there is no case 'larg'; did you mean 'large'"):
        op.profile("larg")


def test_an_op_without_cases_is_profiled_on_a_call_like_its_last(namespace):
    @wb.op(f"{namespace}::plain")
    def plain(x: Tensor) -> Tensor:
        return -x

    with pytest.raises(WorkbenchError, match="there are no cases, and plain was not called yet. Give it one"):
        plain.profile()
    plain(torch.ones(3, 4))
    assert plain.profile().case == "3x4 float32"


def test_a_mutating_op_has_no_backward_phase(namespace):
    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    @add_.cases
    def _(t):
        yield t(8, 8), t(8, 8)

    report = add_.profile()
    assert [p.name for p in report.phases] == ["forward"]
    assert report.notes == ("backward not profiled: the op writes its arguments",)
    assert report.phases[0].moved_bytes == 3 * 8 * 8 * 4


def test_integers_have_no_backward_phase(namespace):
    @wb.op(f"{namespace}::count")
    def count(x: Tensor) -> Tensor:
        return (x > 2).sum()

    @count.cases
    def _(t):
        yield t(8, 8, dtype=torch.int32)

    report = count.profile()
    assert [p.name for p in report.phases] == ["forward"]


def test_a_ceiling_of_a_busy_machine_is_told(namespace, monkeypatch):
    monkeypatch.setattr(ceilings, "copy_bandwidth", lambda device: Ceiling(COPY, 10.0, busy=True))
    (note,) = scaled(namespace).profile("odd", backward=False).notes
    assert note.startswith("the copy bandwidth was measured while other work shared the cores")


def test_backward_can_be_left_out(namespace):
    report = scaled(namespace).profile("odd", backward=False)
    assert [p.name for p in report.phases] == ["forward"] and report.notes == ()
    with pytest.raises(WorkbenchError, match=r"has no phase 'backward'; it has forward"):
        report.phase("backward")


def test_the_trace_is_written_any_number_of_times(namespace, tmp_path):
    report = scaled(namespace).profile("odd")
    for path in (tmp_path / "a.json", tmp_path / "b.json", tmp_path / "a.json"):
        assert report.export_chrome_trace(path) == os.fspath(path)
    first, second = ((tmp_path / n).read_bytes() for n in ("a.json", "b.json"))
    assert first == second
    assert f"{namespace}::scale" in {e.get("name") for e in json.loads(first)["traceEvents"]}
    report.export_chrome_trace(tmp_path / "c.json.gz")
    assert gzip.decompress((tmp_path / "c.json.gz").read_bytes()) == first
    with pytest.raises(WorkbenchError, match="was not written to .*No such file or directory; the report keeps it"):
        report.export_chrome_trace(tmp_path / "nowhere" / "a.json")


def test_the_report_goes_to_json_without_its_trace(namespace):
    report = scaled(namespace).profile("odd")
    data = json.loads(json.dumps(report.to_dict()))
    assert data["ok"] is True and "trace" not in data
    assert data["kernels"][0]["self_us"] > 0 and data["phases"][0]["name"] == "forward"


def test_a_profiler_that_runs_is_said_and_goes_on(namespace):
    op = scaled(namespace)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as outer:
        with pytest.raises(WorkbenchError, match="a torch profiler is running already"):
            op.profile("odd")
        op(torch.ones(3))
    assert "aten::mul" in {e.name for e in outer.events()}
    assert op.profile("odd").ok


@pytest.mark.slow
def test_an_interrupt_leaves_no_profiler_and_the_op_as_it_was(namespace):
    calls = []

    @wb.op(f"{namespace}::slow")
    def slow(x: Tensor) -> Tensor:
        if torch.autograd._profiler_enabled():
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
        return x + 1

    @slow.cases
    def _(t):
        yield t(3)

    with pytest.raises(KeyboardInterrupt):
        slow.profile(backward=False)
    profile_run.refuse_a_second()
    assert slow.last_profile is None
    assert torch.equal(slow(torch.zeros(2)), torch.ones(2))
    assert slow.profile(backward=False).ok


def test_a_case_beyond_memory_is_told_as_such(namespace):
    @wb.op(f"{namespace}::huge")
    def huge(x: Tensor, n: int) -> Tensor:
        return x.new_empty(n).fill_(1)

    @huge.cases
    def _(t):
        yield wb.case("huge", t(3), 1 << 50, bench=True)

    with pytest.raises(WorkbenchError, match="case 'huge float32' does not fit in memory: .*Profile a smaller case"):
        huge.profile()
    profile_run.refuse_a_second()


def test_a_case_whose_tensors_alone_are_too_large_is_not_made(namespace, monkeypatch):
    @wb.op(f"{namespace}::plain")
    def plain(x: Tensor) -> Tensor:
        return -x

    @plain.cases
    def _(t):
        yield t(3)
        yield wb.case("vast", t(4096, 4096), bench=True)

    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 20)
    with pytest.raises(WorkbenchError, match="case 'vast float32' does not fit in memory: it needs at least"):
        plain.profile()


def test_what_an_op_raises_comes_through(namespace):
    @wb.op(f"{namespace}::bad")
    def bad(x: Tensor) -> Tensor:
        return x.reshape(7)

    @bad.cases
    def _(t):
        yield t(3)

    with pytest.raises(RuntimeError, match="shape"):
        bad.profile()
    profile_run.refuse_a_second()


def test_a_device_that_is_not_there(namespace):
    op = scaled(namespace)
    with pytest.raises(WorkbenchError, match="it is 'cpu' or 'cuda'"):
        op.profile(device="mps")
    if not torch.cuda.is_available():
        with pytest.raises(WorkbenchError, match="there is no GPU here that torch can use"):
            op.profile(device="cuda")


@pytest.mark.gpu
def test_a_kernel_of_a_gpu_is_on_the_timeline(namespace):
    op = scaled(namespace)
    report = op.profile("large float32", device="cuda", counters=False)
    forward = report.phase("forward")
    assert forward.launches == 2 and forward.kernel_us > 0
    assert {s.track for s in report.timeline if s.kind == "kernel"} == {"GPU"}
    assert any("elementwise" in k.name and k.registers for k in report.kernels)
    assert {k.phase for k in report.kernels} == {"forward", "backward"}


CUDA_SCALE = """\
//! n = x.numel()
//! out = empty_like(x)
//! grid = cdiv(n, 256)
//! block = 256
template <typename T>
__global__ void scale(const T* x, T* out, float k, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * k + 1);
}
"""


@pytest.mark.gpu
def test_a_cuda_cell_has_its_resources_and_its_counters_or_a_note_says_why(namespace):
    op = scaled(namespace)
    wb.cuda(op, CUDA_SCALE)
    report = op.profile("large float32")
    (kernel,) = [k for k in report.kernels if k.phase == "forward"]
    assert kernel.name.startswith("scale") and kernel.registers > 0 and kernel.block == (256, 1, 1)
    assert report.phase("forward").runs == "v1 raw CUDA" and report.phase("forward").launches == 1
    assert report.counters or any("counters" in n for n in report.notes)
    for counted in report.counters:
        assert 0 < counted.occupancy <= 1 and 0 < counted.memory_share <= 1 and counted.duration_us > 0


@pytest.mark.gpu
def test_a_gpus_figures_fit_together(namespace):
    report = scaled(namespace).profile("large float32", device="cuda", counters=False)
    forward = report.phase("forward")
    assert forward.kernel_us == pytest.approx(sum(k.self_us for k in report.kernels if k.phase == "forward"), rel=0.5)
    assert forward.dispatch_us > 0 and len(forward.gaps_us) == 1 and forward.peak_bytes >= 300 * 100 * 4
