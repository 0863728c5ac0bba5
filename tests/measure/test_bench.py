"""Benchmarks of real ops, by a clock that says what it was told; what they come to as text and html."""

import json
import sys
from functools import partial

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.measure.fakes import Clock, Scripted
from workbench.errors import WorkbenchError
from workbench.judge.lending import Lent
from workbench.measure import bench as measured
from workbench.measure import ceilings, memory
from workbench.measure.bench import bench
from workbench.measure.profile import profile
from workbench.reports.measurement import Bench, Ceiling, headline

CELL = """\
//! n = x.numel()
//! out = empty(x.shape)
void double_(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = FORM;
}
"""


@pytest.fixture(autouse=True)
def known_ceilings(monkeypatch):
    monkeypatch.setattr(ceilings, "copy_bandwidth", lambda device: Ceiling("copy bandwidth", 10.0, "", "2030-01-01"))
    monkeypatch.setattr(ceilings, "matrix_rate", lambda device, dtype: Ceiling("matrix rate", 100.0, dtype))
    monkeypatch.setattr(ceilings, "machine", lambda device: "2 threads of a processor")


@pytest.fixture
def double(namespace):
    @wb.op(f"{namespace}::double_")
    def double_(x: Tensor) -> Tensor:
        return x * 2

    @double_.cases
    def _(t):
        yield t(4, 128)
        yield wb.case("large", t(1000, 1000), bench=True)

    return double_


@pytest.fixture
def versions(double):
    wb.cpp(double, CELL.replace("FORM", "x[i] * 2"))
    wb.cpp(double, CELL.replace("FORM", "x[i] + x[i]"))
    return double


def run(op, **options):
    seconds = options.pop("seconds", {"v2": 1e-3, "v1": 1.14e-3, "reference": 2e-3, "torch_compile": 1.001e-3})
    options.setdefault("against", ["former", "reference"])
    return bench(op, clock=Scripted(**seconds), now=Clock(), lend=partial(Lent, op), **options)


def cells(report):
    return [(r.contestant, r.status, r.verdict) for r in report.rows]


def test_times_rates_and_verdicts(versions):
    report = run(versions)
    ours, former, reference = report.rows
    assert cells(report) == [("v2", "timed", ""), ("v1", "timed", "FASTER"), ("reference", "timed", "FASTER")]
    assert ours.time_us == pytest.approx(1000, rel=2e-3)
    assert former.ratio == pytest.approx(1.14, rel=4e-3)
    assert former.ratio_low < former.ratio < former.ratio_high
    assert ours.gb_per_s == pytest.approx(8.0, rel=2e-3), "four megabytes read, four written, in a millisecond"
    assert (ours.share, ours.ceiling) == (pytest.approx(0.8, rel=2e-3), "copy bandwidth")
    assert reference.peak_mb == pytest.approx(4.0, rel=0.01), "its output"
    assert report.ok
    assert headline(report, "forward", "cpu") == (ours.time_us, ours.share, "copy bandwidth", "large float32")
    assert headline(report, "backward", "cpu") is headline(report, "forward", "cuda") is headline(None, "", "") is None


def test_an_op_against_itself_is_the_same(versions):
    assert cells(run(versions, against=[versions, 2], seconds={"others": 1e-3}))[1:] == [
        (versions.qualname, "timed", "SAME"), ("v2 (2)", "timed", "SAME"),
    ]  # fmt: skip


def test_another_result_is_told_and_not_timed(versions):
    report = run(
        versions,
        against={"wrong": lambda x: x * 2.1, "right": lambda x: x + x, "raises": lambda x: x[9999]},
        seconds={"v2": 1e-3, "right": 2e-3},
    )
    assert cells(report) == [
        ("v2", "timed", ""), ("wrong", "differs", ""), ("right", "timed", "FASTER"), ("raises", "failed", ""),
    ]  # fmt: skip
    assert " of 1000000 elements differ, most at [" in report.rows[1].detail
    assert "IndexError: index 9999 is out of bounds" in report.rows[3].detail
    assert not report.ok
    assert "  wrong on large fp32: out: " in str(report)


def test_an_op_that_differs_is_not_timed_nor_is_what_would_be_held_against_it(double):
    wb.cpp(double, CELL.replace("FORM", "x[i] * 2.1f"), force=True)
    report = run(double, against="reference")
    assert cells(report) == [("v1", "differs", ""), ("reference", "skip", "")]
    assert report.rows[1].detail == "not timed: v1 was not"


def test_a_former_version_ran_and_the_op_is_as_it_was(versions, monkeypatch):
    seen = []
    monkeypatch.setattr(Lent, "enter", _watched(Lent.enter, seen, "in"))
    report = run(versions, against=1)
    assert report.rows[1].status == "timed"
    assert "in" in seen
    assert versions.runs().number == 2
    assert torch.equal(versions(torch.ones(3)), 2 * torch.ones(3))


def _watched(function, seen, word):
    def call(self):
        seen.append(word)
        return function(self)

    return call


def test_a_lent_version_is_the_one_that_runs(double):
    wb.cpp(double, CELL.replace("FORM", "x[i] * 2"))
    wb.cpp(double, CELL.replace("FORM", "x[i] * 2.1f"), force=True)
    lent = Lent(double, double.versions[1])
    assert double(torch.ones(1)).item() == pytest.approx(2.1)
    lent.enter()
    assert double(torch.ones(1)).item() == 2
    lent.leave()
    lent.leave()
    assert double(torch.ones(1)).item() == pytest.approx(2.1)
    with pytest.raises(WorkbenchError, match="v0 of double_ cannot be timed: it is the reference"):
        Lent(double, double.versions[0])


@pytest.mark.slow
def test_torch_compile_is_compiled_for_each_size(double):
    report = run(double, against="compile", sweep={"x.shape[0]": list(range(2, 12))}, seconds={"others": 1e-4})
    assert {r.status for r in report.rows} == {"timed"}, "ten sizes: more than Dynamo recompiles"
    assert report.sweep == ("x.shape[0]",)
    assert [dict(r.values)["x.shape[0]"] for r in report.rows if r.own] == list(range(2, 12))


def test_a_backward_is_timed_where_one_was_written(double):
    assert {r.slot for r in run(double, against="reference").rows} == {"forward"}

    @double.backward
    def _(grad_out):
        return grad_out * 2

    report = run(double, against="reference")
    assert [(r.slot, r.contestant, r.status) for r in report.rows] == [
        ("forward", "double_", "timed"), ("forward", "reference", "timed"),
        ("backward", "double_", "timed"), ("backward", "reference", "timed"),
    ]  # fmt: skip
    assert report.work_of(report.rows[2]).bytes == 12e6, "x and the incoming gradient read, its own written"


def test_a_mutating_op_starts_each_turn_from_the_same_values(namespace):
    @wb.op(f"{namespace}::grow_", mutates=("x",))
    def grow_(x: Tensor) -> None:
        x.mul_(2)

    @grow_.cases
    def _(t):
        yield t(4, 4, low=1, high=2)

    class Watching(Scripted):
        def sample(self, calls, orders):
            for call in calls:
                call.before()
                before = held[0].clone()
                call.run()
                assert torch.equal(held[0], before * 2)
                assert before.max() < 2
            return super().sample(calls, orders)

    held = []
    from workbench.measure import prepare

    restoring = prepare.restoring

    def caught(tensors):
        held[:] = tensors
        return restoring(tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "restoring", caught)
        report = bench(grow_, "reference", clock=Watching(), now=Clock(), lend=partial(Lent, grow_), budget=1)
    assert {r.status for r in report.rows} == {"timed"}
    assert report.work_of(report.rows[0]).bytes == 128


def test_bytes_and_operations_come_from_the_case_else_from_the_reference(namespace):
    @wb.op(f"{namespace}::mm")
    def mm(x: Tensor, y: Tensor) -> Tensor:
        return x @ y

    @mm.cases
    def _(t):
        yield wb.case("counted", t(8, 16), t(16, 4))
        yield wb.case("said", t(8, 16), t(16, 4), bytes=1000, flops=2000)

    report = run(mm, against=[], cases=["counted", "said"], seconds={"mm": 1e-6}, backward=True)
    counted, said, back, _ = (report.work_of(r) for r in report.rows)
    assert (counted.bytes, counted.flops, counted.source) == (4 * (128 + 64 + 32), 2 * 8 * 16 * 4, "its tensors")
    assert (said.bytes, said.flops, said.source) == (1000, 2000, "the case")
    assert back.flops == 2 * counted.flops
    assert report.rows[1].gflop_per_s == pytest.approx(2.0, rel=5e-3)
    assert report.rows[1].gb_per_s == pytest.approx(1.0, rel=5e-3)
    with pytest.raises(WorkbenchError, match="flops is a number of at least 0, got -1"):
        wb.case("bad", torch.ones(1), flops=-1)


def test_an_interrupt_keeps_the_rows_so_far(versions):
    class Interrupted(Scripted):
        def sample(self, calls, orders):
            if len(self.warmed) > 2:
                raise KeyboardInterrupt
            return super().sample(calls, orders)

    report = bench(
        versions,
        ["former"],
        ["4x128", "large"],
        clock=Interrupted(others=1e-3),
        now=Clock(),
        lend=partial(Lent, versions),
    )
    assert report.stopped
    assert [r.case for r in report.rows] == ["4x128", "4x128"]
    assert report.notes[0] == "stopped by an interrupt after 1 of 2"
    assert versions.runs().number == 2
    assert torch.equal(versions(torch.ones(3)), 2 * torch.ones(3))


def test_an_interrupt_among_the_samples_of_a_case_keeps_them(versions):
    class Interrupted(Scripted):
        count = 0

        def sample(self, calls, orders):
            self.count += len(orders)
            if self.count > 5:
                raise KeyboardInterrupt
            return super().sample(calls, orders)

        def rounds(self, calls):
            return 1

    clock = Interrupted(others=1e-3)
    report = bench(
        versions, ["former"], ["4x128", "large"], clock=clock, now=Clock(), lend=partial(Lent, versions)
    )  # fmt: skip
    assert report.stopped and {(r.case, r.samples) for r in report.rows} == {("4x128", 5)}
    assert report.notes[0] == "stopped by an interrupt after 0 of 2, and in the middle of 4x128 float32"
    assert versions.runs().number == 2


def test_progress_is_told(versions):
    told = []
    run(versions, tell=told.append)
    assert [told[0].at, told[0].done, told[0].of] == ["large float32: results first", 0, 1]
    assert "large float32: 12 samples of 3" in [t.at for t in told]


@pytest.mark.parametrize("budget", [0, -1, True, "4"])
def test_a_budget_of_nothing_is_refused(double, budget):
    with pytest.raises(WorkbenchError, match="seconds above 0 are wanted"):
        run(double, against=[], budget=budget)


@pytest.mark.parametrize(
    ("against", "said"),
    [
        ("best", "no such contestant"),
        (9, "no version 9; the last one is 0"),
        (2.5, "what is that"),
        ("former", "no former version"),
    ],
)
def test_contestants_that_mean_nothing(double, against, said):
    with pytest.raises(WorkbenchError, match=said):
        run(double, against=against)


def test_options_that_do_not_fit_here(double):
    with pytest.raises(WorkbenchError, match="there are 'cpu' and 'cuda'"):
        run(double, device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(WorkbenchError, match="no GPU here"):
            run(double, device="cuda")

    double.compare(lambda x, out: out)
    wb.cpp(double, CELL.replace("FORM", "x[i] * 2"))  # values are judged by compare: no default gradient
    with pytest.raises(WorkbenchError, match="not differentiable, or has no reference"):
        run(double, backward=True)


def test_a_case_that_does_not_fit_in_memory_is_a_row(double, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 3_000_000)
    report = run(double, cases=["4x128", "large"], against="reference")
    assert [(r.case, r.status) for r in report.rows] == [("4x128", "timed"), ("4x128", "timed"), ("large", "failed")]
    assert report.rows[2].detail == "does not fit in memory: it needs at least 8 MB, 3 MB are free"
    swept = run(double, cases="4x128", sweep={"x.shape[0]": [4, 1 << 40]}, against="reference")
    assert [r.status for r in swept.rows] == ["timed", "timed", "failed"]
    assert "it needs at least 1,126 TB" in swept.rows[2].detail


class Failing(Scripted):
    """Warming up `name`, or taking samples, raises on calls of small tensors."""

    def __init__(self, name="", **seconds):
        super().__init__(**seconds)
        self.name, self.small = name, False

    def warm(self, call):
        self.small = call.run().numel() < 1000
        if self.small and call.name == self.name:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore.")
        super().warm(call)

    def sample(self, calls, orders):
        if self.small and not self.name:
            raise RuntimeError("CUDA error: unspecified launch failure\nMore.")
        return super().sample(calls, orders)


LACKS = "does not fit in memory: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(("name", "rows"), [
    ("", [("failed", "CUDA error: unspecified launch failure"), ("skip", "not timed: v2 was not")]),
    ("v2", [("failed", LACKS), ("skip", "not timed: v2 was not")]),
    ("v1", [("timed", ""), ("failed", LACKS)]),
])  # fmt: skip
def test_what_raises_while_it_is_timed_is_a_row_and_the_rest_goes_on(versions, name, rows):
    options = {"clock": Failing(name, others=1e-3), "now": Clock(), "lend": partial(Lent, versions)}
    report = bench(versions, ["former"], ["4x128", "large"], **options)
    assert [(r.case, r.status, r.detail) for r in report.rows] == [
        *[("4x128", *row) for row in rows], ("large", "timed", ""), ("large", "timed", "")]  # fmt: skip
    assert not report.stopped and not report.ok and versions.runs().number == 2
    assert str(report)


def test_a_benchmark_in_which_something_raised_is_the_last_one(versions, monkeypatch):
    def raising(*args, **keywords):
        raise ValueError("no good")

    monkeypatch.setattr(measured, "compare", raising)
    report = versions.bench(against=[], cases="4x128", budget=0.1)
    assert versions.last_bench is report and [(r.status, r.detail) for r in report.rows] == [("failed", "no good")]


def test_no_room_to_measure_the_copy_bandwidth_costs_the_share_alone(versions, monkeypatch):
    monkeypatch.setattr(ceilings, "copy_bandwidth", lambda device: None)
    report = run(versions)
    assert [r.status for r in report.rows] == ["timed"] * 3 and report.rows[0].gb_per_s > 0
    assert "the copy bandwidth could not be measured, for want of memory: no share of it is told" in report.notes
    assert all(r.ceiling != "copy bandwidth" for r in report.rows) and str(report)


@pytest.mark.slow
def test_dicts_and_frames(versions, monkeypatch):
    report = run(versions, sweep={"x.shape[0]": [2, 4]}, cases="large")
    made = json.loads(json.dumps(report.to_dict()))
    assert made["ok"] is True
    assert made["rows"][3]["values"] == {"x.shape[0]": 4}
    assert {"time_us", "low_us", "high_us", "ratio", "gb_per_s", "peak_mb", "launch_us"} <= set(made["rows"][0])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(WorkbenchError, match="needs pandas, which is not installed"):
        report.to_dataframe()


@pytest.mark.slow
def test_a_frame_has_a_column_for_each_field_and_each_swept_name(versions, monkeypatch):
    class Pandas:
        DataFrame = list

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    frame = run(versions, sweep={"x.shape[0]": [2, 4]}, cases="large").to_dataframe()
    assert [row["x.shape[0]"] for row in frame] == [2, 2, 2, 4, 4, 4]
    assert "values" not in frame[0]


def test_the_op_keeps_its_last_benchmark(versions):
    report = versions.bench(against=[], cases="4x128", budget=0.1)
    assert isinstance(report, Bench)
    assert versions.last_bench is report
    versions.cases(lambda t: iter([(t(2, 2),)]))
    assert versions.last_bench is None


def test_random_results_are_not_compared(namespace):
    @wb.op(f"{namespace}::drop")
    def drop(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x)

    @drop.cases
    def _(t):
        yield t(4, 128)

    drop(torch.ones(4))
    report = run(drop, against="reference")
    assert {r.status for r in report.rows} == {"timed"}
    assert report.notes[0] == "results were not compared: the reference draws random numbers"


def test_interpreted_kernels_are_not_timed(double):
    wb.triton(double, "@triton.jit\ndef k(x, out, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n"
        "    for s in range(0, n, B):\n        tl.store(out + s + i, tl.load(x + s + i, mask=s + i < n) * 2, mask=s + i < n)\n"
        "def double_(x):\n    out = torch.empty_like(x)\n    k[(1,)](x, out, x.numel(), B=128)\n    return out\n")  # fmt: skip
    if not torch.cuda.is_available():
        with pytest.raises(WorkbenchError, match="interpreter here, whose time says nothing"):
            run(double)


@pytest.mark.slow
def test_what_prints_is_not_timed(versions, capfd):
    """A bench calls it thousands of times, and each of them would be on the page."""
    wb.cpp(versions, CELL.replace("FORM", '(i ? 0 : printf("here\\n")) * 0 + x[i] * 2'))
    said = r"v3 of double_ prints, and its time is that of printing\. Take that out, and run its cell again"
    with pytest.raises(WorkbenchError, match=said):
        run(versions)
    with pytest.raises(WorkbenchError, match=said):
        profile(versions)
    wb.cpp(versions, CELL.replace("FORM", "2 * x[i]"))
    capfd.readouterr()
    assert [r.contestant for r in run(versions, seconds={"v4": 1e-3, "v2": 1e-3, "reference": 2e-3}).rows][:2] == [
        "v4",
        "v2",
    ]
    with pytest.raises(WorkbenchError, match=said):
        run(versions, against=[3])
    assert "here" not in "".join(capfd.readouterr())


def test_an_interpreted_backward_is_left_out_or_nothing_is_timed(double):
    wb.triton(f"{double.qualname}.backward", "@triton.jit\ndef k(g, out, n, B: tl.constexpr):\n    i = tl.arange(0, B)\n"
        "    for s in range(0, n, B):\n        tl.store(out + s + i, tl.load(g + s + i, mask=s + i < n) * 2, mask=s + i < n)\n"
        "def backward(grad_out, x):\n    out = torch.empty_like(x)\n    k[(1,)](grad_out, out, x.numel(), B=128)\n    return out\n")  # fmt: skip
    if not torch.cuda.is_available():
        with pytest.raises(
            WorkbenchError,
            match=r"the backward of .* interpreter here, .*`double_.bench\(backward=False\)` leaves it out",
        ):
            run(double)
        assert {r.slot for r in run(double, backward=False, against="reference").rows} == {"forward"}


CUDA = """\
//! n = x.numel()
//! out = empty_like(x)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void double_(const float* x, float* out, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = x[i] * 2;
}
"""


@pytest.mark.slow
def test_kernels_that_wait_for_a_gpu_are_named_and_nothing_is_timed_in_their_place(double):
    wb.cuda(double, CUDA)
    if not torch.cuda.is_available():
        with pytest.raises(WorkbenchError) as raised:
            run(double)
        assert (
            f"{double.qualname} has no kernel for this machine to bench: v1 (forward, raw CUDA) waits for a GPU. "
            in str(raised.value)
        )
        assert "`double_.bench(device='cpu')` takes the reference" in str(raised.value)
        assert run(double, device="cpu", against="reference").version == "reference"
        wb.cpp(double, CELL.replace("FORM", "x[i] * 2"))
        assert run(double, seconds={"v2": 1e-3, "reference": 2e-3}, against="reference").rows[0].contestant == "v2"


def test_noise_is_told(versions):
    class Noisy(Scripted):
        def sample(self, calls, orders):
            return [[1e-3 * (1 + 0.4 * ((r + i) % 2)) for i in range(len(calls))] for r, _ in enumerate(orders)]

    report = bench(versions, "reference", clock=Noisy(), now=Clock(), lend=partial(Lent, versions), budget=1)
    assert any(n.startswith("noisy: the middle half of the times of v2 on large float32 is ") for n in report.notes)


def test_threads_that_wait_for_each_other_prove_nothing(versions, monkeypatch):
    """One contestant takes far longer on two threads than on one: other work holds the cores."""
    from workbench.measure import bench as module
    from workbench.measure.extras import Extras

    def costs(call, clock, device):
        return Extras(alone_us=300.0 if call.name == "reference" else 1000.0)

    monkeypatch.setattr(module, "extras", costs)
    report = run(versions)
    assert cells(report) == [("v2", "timed", ""), ("v1", "timed", "FASTER"), ("reference", "timed", "UNCLEAR")]
    assert report.rows[2].detail == "held up: 300 us on one thread"
    assert report.notes[0].startswith("held up: what takes several times as long on all threads")
    assert report.advice[-1] == "Unclear against reference on large float32: a machine that is left alone would tell."
    monkeypatch.setattr(
        module, "extras", lambda call, clock, device: Extras(alone_us=300.0 if call.name == "v2" else 0)
    )
    assert [r.verdict for r in run(versions).rows] == ["", "UNCLEAR", "UNCLEAR"]


def test_torch_gets_its_threads_back():
    from workbench.measure.extras import alone_us

    seen, before = [], torch.get_num_threads()

    def run_():
        seen.append(torch.get_num_threads())
        raise KeyboardInterrupt

    if before > 1:
        with pytest.raises(KeyboardInterrupt):
            alone_us(run_)
        assert seen == [1]
    assert torch.get_num_threads() == before


def test_on_a_gpus_clock_launches_stand_apart(versions):
    from tests.measure.fakes import Gpu
    from workbench.measure.clock import GpuClock

    gpu = Gpu(launch_s=12e-6, event_s=1e-6)
    kernel = gpu.kernel(5e-6)

    def rival(x):
        kernel()
        return x * 2

    clock = GpuClock(gpu, overhead_s=1e-6)
    report = bench(versions, {"rival": rival}, clock=clock, now=Clock(), lend=partial(Lent, versions), budget=1)
    assert report.rows[1].time_us == pytest.approx(5.0)
    assert report.rows[1].launch_us == pytest.approx(12.0)
    assert gpu.flushed > 12
