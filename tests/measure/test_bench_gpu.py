"""What only a GPU can show of a benchmark. `benchmarks/bench_trust.py --gpu` has the figures."""

import statistics

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.measure import ceilings, cupti, nvml
from workbench.measure.clock import Call, GpuClock
from workbench.measure.device import Cuda
from workbench.measure.extras import launch_us
from workbench.reports.measurement import headline

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

CELL = """\
//! n = x.numel()
//! turns = TURNS
//! out = empty(x.shape)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void double_(const float* x, float* out, long long n, int turns) {
  long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  for (int j = 0; j < turns; ++j) asm volatile("add.f32 %0, %0, 0f00000000;" : "+f"(v));
  out[i] = v * 2;
}
"""


@pytest.fixture
def double(namespace):
    @wb.op(f"{namespace}::double_")
    def double_(x: Tensor) -> Tensor:
        return x * 2

    @double_.cases
    def _(t):
        yield t(4, 128)
        yield wb.case("large", t(1 << 22), bench=True)

    wb.cuda(double_, CELL.replace("TURNS", "1300"))
    wb.cuda(double_, CELL.replace("TURNS", "1000"))
    return double_


def test_against_itself_its_former_version_and_the_reference(double):
    report = double.bench(against=[double, "former", "reference"], budget=10)
    own, same, former, reference = report.rows
    assert report.device == "cuda"
    assert report.cold
    assert (same.verdict, former.verdict) == ("SAME", "FASTER")
    assert former.ratio == pytest.approx(1.3, rel=0.06)
    assert reference.time_us > 0
    assert own.launch_us > 0.5
    assert own.peak_mb == pytest.approx(16.8, rel=0.05)
    assert 0 < own.share < 1.1
    assert headline(report, "forward", "cuda")[2] == "copy bandwidth"
    assert double.runs("forward", "cuda").number == 2
    x = torch.ones(5, device="cuda")
    assert torch.equal(double(x), 2 * x)


def test_a_small_kernel_is_measured_as_cupti_does():
    x, y = (torch.ones(1 << 20, device="cuda") for _ in range(2))
    device = Cuda()
    clock = GpuClock(device, cold=True, overhead_s=ceilings.event_overhead_s(), compared=cupti.overhead_of)
    call = Call("mul", lambda: torch.mul(x, 3, out=y))
    clock.warm(call)
    took = [s for _ in range(100) for (s,) in clock.sample([call], [[0]] * clock.rounds([call]))]
    events = statistics.median(took[len(took) // 2 :]) * 1e6  # a GPU that was idle takes a while until its clocks rise

    def both():
        for _ in range(600):
            device.flush()
            call.run()

    kernels = [us for name, us in cupti.durations_us(both) if "elementwise" in name and "Fill" not in name][-60:]
    if not kernels:
        pytest.skip("CUPTI does not tell here")
    assert events == pytest.approx(statistics.median(kernels), rel=0.03)
    assert 1e-6 < clock.overheads["mul"] < 10e-6


def test_a_look_by_cupti_leaves_launches_as_cheap_as_they_were():
    x = torch.ones(1024, device="cuda")
    clock = GpuClock(Cuda())
    before = launch_us(lambda: x * 2, clock)
    assert cupti.durations_us(lambda: x * 2)
    assert launch_us(lambda: x * 2, clock) < 1.5 * before


def test_a_warm_cache_is_quicker():
    x, y = (torch.ones(1 << 20, device="cuda") for _ in range(2))
    took = {}
    for cold in (True, False):
        clock = GpuClock(Cuda(), cold=cold)
        call = Call("mul", lambda: torch.mul(x, 3, out=y))
        clock.warm(call)
        took[cold] = statistics.median(s for (s,) in clock.sample([call], [[0]] * 40))
    assert took[False] < took[True]


def test_backward_and_compiled(double):
    report = double.bench(against=["torch.compile", "reference"], backward=True, budget=10)
    assert {(r.slot, r.status) for r in report.rows} == {("forward", "timed"), ("backward", "timed")}


def test_a_case_larger_than_the_device_is_a_row(double):
    report = double.bench(against="reference", cases="4x128", sweep={"x.shape[0]": [4, 1 << 40]})
    assert [r.status for r in report.rows] == ["timed", "timed", "failed"]
    assert "does not fit in memory" in report.rows[2].detail


def test_the_clock_is_known():
    reading = nvml.Meter().read()
    if reading is None:
        pytest.skip("NVML does not tell here")
    assert 100 < reading.mhz < 4000
