import pytest
import recorded

from workbench.measure import profile_figures as figures
from workbench.measure import profile_machine
from workbench.measure import profile_trace as trace
from workbench.measure.profile_trace import Event


def events(*spans, kind="op", track="t"):
    return [Event(name, kind, track, start, took) for name, start, took in spans]


def test_events_of_a_thread_nest_and_keep_what_is_their_own():
    outer, first, second, inner = made = events(("a", 0, 10), ("b", 1, 3), ("c", 5, 4), ("d", 6, 2))
    trace.nest(made)
    assert [e.depth for e in made] == [0, 1, 1, 2]
    assert (outer.own_us, first.own_us, second.own_us, inner.own_us) == (3, 3, 2, 2)
    assert inner.parent is second and second.parent is outer and outer.parent is None


def test_threads_do_not_nest_in_one_another():
    one, other = Event("a", "op", "t1", 0, 10), Event("b", "op", "t2", 2, 3)
    trace.nest([one, other])
    assert other.depth == 0 and one.own_us == 10


def kernels_of(*spans, native=(), computes=lambda name: True):
    made = events(*spans)
    trace.nest(made)
    trace.mark_kernels(made, native, computes)
    return [e.name for e in made if e.kernel]


def test_the_own_time_of_native_code_and_of_leaves_is_work():
    spans = ("lab::f", 0, 90), ("_Forward", 1, 80), ("lab::f_forward", 2, 70), ("aten::empty", 3, 1)
    assert kernels_of(*spans, native={"lab::f", "lab::f_forward"}) == ["lab::f_forward"]
    assert kernels_of(("lab::f", 0, 90), native={"lab::f", "lab::f_forward"}) == ["lab::f"]


def test_a_reference_works_in_the_ops_that_it_calls():
    spans = ("lab::f", 0, 90), ("aten::mul", 2, 20), ("aten::sum", 30, 9), ("aten::as_strided", 31, 1)
    assert kernels_of(*spans) == ["aten::mul", "aten::sum"]


def test_a_matrix_product_works_though_it_copies_its_bias_first():
    assert kernels_of(("aten::addmm", 0, 12), ("aten::copy_", 1, 9)) == ["aten::addmm", "aten::copy_"]
    assert kernels_of(("aten::mean", 0, 30), ("aten::sum", 1, 27)) == ["aten::sum"]


def test_an_op_without_code_of_its_own_works_in_what_it_calls():
    spans = ("aten::linear", 0, 90), ("aten::addmm", 80, 5)
    assert kernels_of(*spans, computes=lambda name: name != "aten::linear") == ["aten::addmm"]


def test_an_op_that_calls_itself_works_once():
    assert kernels_of(("aten::mul", 0, 90), ("aten::mul", 10, 20)) == ["aten::mul"]


def test_torch_is_asked_which_of_its_ops_compute():
    assert [profile_machine.computes(n) for n in ("aten::addmm", "aten::mul", "aten::linear", "no::op")] == [
        True,
        True,
        False,
        False,
    ]


def test_autograd_and_functions_without_an_op_are_no_work():
    assert kernels_of(("autograd::engine::evaluate_function: X", 0, 9), ("MulBackward0", 20, 9)) == []


def test_a_gradient_that_a_library_wrote_in_cpp_is_work():
    outer = "autograd::engine::evaluate_function: torch::autograd::CppNode<Slow>"
    spans = (outer, 0, 90), ("torch::autograd::CppNode<Slow>", 1, 88), ("aten::empty_like", 2, 1)
    assert kernels_of(*spans) == ["torch::autograd::CppNode<Slow>"]
    assert kernels_of(*spans, ("aten::mul", 5, 70)) == ["aten::mul"]
    assert (
        kernels_of(
            (f"{outer.partition(':')[0]}::x: torch::autograd::AccumulateGrad", 0, 9),
            ("torch::autograd::AccumulateGrad", 1, 8),
        )
        == []
    )


def test_calls_are_told_apart_by_their_marks():
    first, second = trace.calls(recorded.gpu(), {"lab::rmsnorm_forward"})
    assert first.marks == {"forward": (1000.0, 1030.0), "backward": (1040.0, 1140.0)}
    assert (first.traced_us, second.traced_us) == (130.0, 132.0)
    assert "aten::randn" not in {e.name for e in first.events}


def test_a_kernel_belongs_to_the_phase_that_launched_it():
    first = trace.calls(recorded.gpu())[0]
    on_device = [(e.name, e.phase, e.parent.name) for e in first.events if e.kind in trace.ON_DEVICE]
    assert on_device[0] == (recorded.KERNEL, "forward", "lab::rmsnorm_forward")  # it runs on into the backward
    assert [phase for _, phase, _ in on_device] == ["forward", "backward", "backward", "backward"]
    assert on_device[3] == ("Memset (Device)", "backward", "aten::zero_")


def test_a_kernel_without_its_launch_is_found_by_its_op():
    raw = recorded.gpu()
    raw["traceEvents"] = [e for e in raw["traceEvents"] if e.get("cat") != "cuda_driver"]
    for e in raw["traceEvents"]:
        if e.get("name") == recorded.KERNEL:
            e["args"]["External id"] = e["args"]["correlation"] + 1
    first = trace.calls(raw)[0]
    found = next(e for e in first.events if e.name == recorded.KERNEL)
    assert (found.phase, found.parent.name) == ("forward", "lab::rmsnorm_forward")


@pytest.mark.parametrize("raw", [{}, {"traceEvents": []}, {"traceEvents": [{"ph": "M", "name": "process_name"}]}])
def test_a_trace_without_calls_has_none(raw):
    assert trace.calls(raw) == []


# ---------------------------------------------------------------- figures


@pytest.fixture
def calls():
    return trace.calls(recorded.gpu(), {"lab::rmsnorm_forward"})


def test_a_phase_on_a_gpu_in_figures(calls):
    forward = figures.phase("forward", calls, "cuda", runs="v7 raw CUDA")
    assert (forward.kernel_us, forward.launches, forward.copies, forward.gaps_us) == (40, 1, 0, ())
    assert (forward.traced_us, forward.dispatch_us) == (31, 31)
    assert (forward.peak_bytes, forward.kept_bytes) == (4096, 4096)
    backward = figures.phase("backward", calls, "cuda")
    assert (backward.kernel_us, backward.launches, backward.copies, backward.gaps_us) == (40, 2, 1, (5, 2))
    assert backward.idle_us == 7
    assert (backward.peak_bytes, backward.kept_bytes) == (8192, 0)


def test_what_the_profiler_adds_is_taken_off_the_dispatch(calls):
    # Two ops and a launch in the forward.
    assert figures.phase("forward", calls, "cuda", event_cost_us=1.5).dispatch_us == 31 - 3 * 1.5


def test_dispatch_is_no_more_than_a_call_without_the_profiler_has_room_for():
    assert figures.capped(192, 18, 85, "cpu") == 67
    assert figures.capped(545, 99_333, 90_000, "cpu") == 545  # the machine was slower under the profiler
    assert figures.capped(31, 40, 25, "cuda") == 25
    assert figures.capped(31, 40, 0, "cuda") == 31


def test_waiting_for_the_gpu_is_no_dispatch(calls):
    for call in calls:
        waits = Event("cudaStreamSynchronize", "launch", "thread 41", call.start_us + 25, 4.0, {}, "forward")
        call.events.append(waits)
    forward = figures.phase("forward", calls, "cuda")
    assert (forward.waits_us, forward.dispatch_us) == (4, 27)


def test_pauses_are_between_what_overlaps_taken_together():
    assert figures.gaps([(0, 4), (6, 9), (7, 8), (10, 12)]) == (2, 1)
    assert figures.gaps([]) == figures.gaps([(1, 2)]) == ()


def test_the_table_by_kernel(calls):
    rows = figures.kernels(calls, "cuda", 90)
    assert [(r.name, r.kind, r.phase, r.count, r.self_us) for r in rows] == [
        ("rmsnorm<float, 512>", "kernel", "forward", 1, 40),
        (
            "vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float>, std::array<char*, 3ul> >",
            "kernel",
            "backward",
            2,
            30,
        ),
        ("Memset (Device)", "copy", "backward", 1, 10),
    ]
    assert [r.share for r in rows] == [1.0, 0.75, 0.25]
    assert (rows[0].registers, rows[0].shared_bytes, rows[0].block, rows[0].occupancy) == (40, 1024, (512, 1, 1), 0.75)
    assert rows[0].limiter == "registers: 40 a thread"
    assert (rows[2].registers, rows[2].occupancy) == (0, 0.0)


def test_the_table_by_op_has_own_time_and_that_of_its_kernels(calls):
    rows = {(r.name, r.phase): r for r in figures.ops(calls)}
    forward = rows["lab::rmsnorm_forward", "forward"]
    assert (forward.self_us, forward.total_us, forward.device_us) == (18, 18, 40)  # its launch is its own
    assert rows["lab::rmsnorm", "forward"].self_us == 6
    mul = rows["aten::mul", "backward"]
    assert (mul.count, mul.self_us, mul.total_us, mul.device_us) == (2, 40, 40, 30)


def test_an_op_inside_one_of_its_name_is_counted_once():
    made = events(("aten::mean", 10, 50), ("aten::mean", 20, 30))
    call = trace.Call({"forward": (0.0, 100.0)}, made)
    trace.nest(made)
    for e in made:
        e.phase = "forward"
    (row,) = figures.ops([call])
    assert (row.count, row.self_us, row.total_us, row.share) == (2, 50, 50, 0.5)


def test_a_row_is_the_median_over_the_calls():
    found = []
    for took in (10.0, 12.0, 900.0):
        made = events(("aten::mul", 1, took))
        trace.nest(made)
        trace.mark_kernels(made, ())
        made[0].phase = "forward"
        found.append(trace.Call({"forward": (0.0, took + 2)}, made))
    (row,) = figures.kernels(found, "cpu")
    assert (row.self_us, row.share) == (12.0, 1.0)
    assert figures.phase("forward", found, "cpu").kernel_us == 12.0


def test_the_timeline_is_of_the_median_call_and_counts_from_its_begin(calls):
    call = figures.median(calls)
    spans = figures.timeline(call, "cuda")
    assert [(s.name, s.start_us, s.duration_us) for s in spans if s.kind == "phase"] == [
        ("forward", 0, 30),
        ("backward", 40, 100),
    ]
    kernel = next(s for s in spans if s.name == "rmsnorm<float, 512>")
    assert (kernel.track, kernel.start_us, kernel.duration_us, kernel.phase) == ("GPU", 20, 40, "forward")
    assert {s.track for s in spans if s.kind == "op"} == {"CPU", "CPU, autograd"}
    assert [(s.name, s.depth) for s in spans if s.track == "CPU" and s.kind == "op"] == [
        ("lab::rmsnorm", 0),
        ("lab::rmsnorm_forward", 1),
    ]


def test_memory_over_time(calls):
    assert figures.memory(calls[0], "cuda") == ((0.0, 0), (8.0, 4096), (52.0, 12288), (120.0, 4096))
    assert figures.memory(calls[0], "cpu") == ((0.0, 0),)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (recorded.KERNEL, "rmsnorm<float, 512>"),
        ("aten::mul", "aten::mul"),
        ("Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pageable)"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 10>(float*, int)", "softmax_warp_forward<float, 10>"),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_cublas",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_cublas",
        ),
        ("void f<(Kind)2>(int)", "f<(Kind)2>"),
    ],
)
def test_a_kernel_is_named_without_what_it_takes(name, short):
    assert figures.short(name) == short
