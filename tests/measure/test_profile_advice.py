"""Each rule with figures for which it holds, what it then says, and figures that are just not enough."""

from dataclasses import replace

import pytest

from workbench.measure import profile_advice
from workbench.measure.profile_seen import Seen
from workbench.reports.profiling import Counters, Phase, ProfileRow

# A kernel of one launch on an H200 at half of the copy bandwidth: nothing is wrong with it but that.
PHASE = Phase("forward", "v7 raw CUDA", 105.0, 110.0, 100.0, 12.0, 1, moved_bytes=200_000_000, threads_busy=2.0)
ROW = ProfileRow(
    "norm<float>", "kernel", "forward", 1, 100.0, 100.0, 1.0, 0.0, 40, 0, (8192, 1, 1), (256, 1, 1), 1.0, "nothing"
)
GPU = Seen(PHASE, (ROW,), (), "cuda", 4000.0, 16, 132)
CPU = replace(GPU, device="cpu", copy_gb_per_s=12.0, multiprocessors=0, threads=2, kernels=(replace(ROW, grid=(), block=()),),
              phase=replace(PHASE, wall_us=40_500.0, kernel_us=40_000.0, dispatch_us=100.0))  # fmt: skip
COUNTED = Counters("norm<float>", "forward", 100.0, 0.9, 0.5, 0.4)


def on(seen, kernels=None, counters=(), **changed):
    kernels = seen.kernels if kernels is None else kernels
    mine = {k: changed.pop(k) for k in list(changed) if k in Seen.__dataclass_fields__}
    return replace(seen, phase=replace(seen.phase, **changed), kernels=kernels, counters=counters, **mine)


def row(**changed):
    return (replace(ROW, **changed),)


TABLE = {  # rule -> (it holds, what it says, it does not)
    "host copies": (
        on(GPU, (ROW, replace(ROW, name="Memcpy DtoH (Device -> Pageable)", kind="copy"))),
        "(Memcpy DtoH (Device -> Pageable))",
        on(GPU, (ROW, replace(ROW, name="Memcpy DtoD", kind="copy"))),
    ),
    "waits for the GPU": (on(GPU, waits_us=30.0), "waits 30 us for the GPU", on(GPU, waits_us=20.0)),
    "several launches": (
        on(GPU, launches=11, kernel_us=412.0),
        "11 kernels where one would do: they take 412 us, moving what goes in and comes out once would take 50 us. Write the forward",
        on(GPU, launches=2, kernel_us=412.0),
    ),
    "dispatch dominates": (
        on(GPU, kernel_us=4.0, dispatch_us=12.0),
        "launching dominates: 12 us on the CPU for 4 us of kernels",
        on(GPU, kernel_us=12.0, dispatch_us=12.0),
    ),
    "idle between launches": (
        on(GPU, launches=2, gaps_us=(40.0,)),
        "idles 40 us of 140 us, in 1 gap between launches (the longest 40 us)",
        on(GPU, launches=2, gaps_us=(20.0,)),
    ),
    "copies": (
        on(CPU, (*row(name="lab::f_forward", self_us=28_000.0), replace(ROW, name="aten::copy_", self_us=12_000.0))),
        "copies take 12 ms of 40 ms",
        on(CPU, (*row(name="lab::f_forward"), replace(ROW, name="aten::copy_", self_us=7000.0))),
    ),
    "small grid": (
        on(GPU, row(grid=(16, 2, 1))),
        "`norm<float>` has 32 blocks for 132 multiprocessors: 100 have nothing to do",
        on(GPU, row(grid=(132, 1, 1))),
    ),
    "busy machine": (on(CPU, threads_busy=0.4), "had 0.4 of one CPU", on(CPU, threads_busy=0.9)),
    "one thread": (on(CPU, threads_busy=0.98), "one thread is busy of 2 (0.98 on average)", on(CPU, threads_busy=1.8)),
    "tensor cores": (
        on(GPU, half_inputs=True, tensor_cores=False, flops=137_000_000_000),
        "Tensor Cores are unused at these shapes: 137 GFLOP of matrix products at 1,370 TFLOP/s",
        on(GPU, half_inputs=True, tensor_cores=True, flops=137_000_000_000),
    ),
    "bandwidth-bound": (
        on(GPU, kernel_us=57.5),
        "bandwidth-bound at 87 % of copy (3,478 of 4,000 GB/s): this is done",
        on(GPU, kernel_us=84.0),
    ),
    "below the ceiling": (on(GPU), "at 50 % of copy (2,000 of 4,000 GB/s) with one launch", on(GPU, launches=3)),
    "latency-bound": (
        on(GPU, kernel_us=5.0, dispatch_us=3.0, moved_bytes=4_000),
        "latency-bound: 5 us a kernel",
        on(GPU, kernel_us=50.0, moved_bytes=4_000),
    ),
    "registers": (
        on(GPU, row(occupancy=0.25, limiter="registers: 128 a thread")),
        "occupancy of `norm<float>` is limited to 25 % by registers: 128 a thread: `__launch_bounds__`",
        on(GPU, row(occupancy=0.75, limiter="registers: 40 a thread")),
    ),
    "shared memory": (
        on(GPU, row(occupancy=0.12, limiter="shared memory: 100 KB a block")),
        "limited to 12 % by shared memory: 100 KB a block: a smaller tile",
        on(GPU, row(occupancy=0.12, limiter="registers: 168 a thread")),
    ),
    "blocks": (
        on(GPU, row(occupancy=0.25, limiter="blocks: at most 32, and one has 1 warp")),
        "larger blocks",
        on(GPU, row(occupancy=0.5, limiter="blocks: at most 32, and one has 1 warp")),
    ),
    "compute-bound": (
        on(GPU, counters=(replace(COUNTED, compute_share=0.91),)),
        "`norm<float>` is compute-bound, at 91 % of what",
        on(GPU, counters=(replace(COUNTED, compute_share=0.91, memory_share=0.93),)),
    ),
    "stalls": (
        on(GPU, counters=(replace(COUNTED, stalls=(("long_scoreboard", 0.61), ("wait", 0.1))),)),
        "warps of `norm<float>` wait 61 % of the time for data from global or local memory",
        on(GPU, counters=(replace(COUNTED, stalls=(("long_scoreboard", 0.2),)),)),
    ),
    "intermediate results": (
        on(CPU, peak_bytes=300 << 20, kept_bytes=100 << 20),
        "200 MB of intermediate results are allocated, written and read again beside 191 MB",
        on(CPU, peak_bytes=120 << 20, kept_bytes=100 << 20),
    ),
}  # fmt: skip


def told(seen):
    return {a.rule: a.text for a in profile_advice.advice(seen)}


def test_every_rule_is_in_the_table():
    assert [r.name for r in profile_advice.RULES] == list(TABLE)


@pytest.mark.parametrize("rule", TABLE)
def test_a_rule_speaks_where_it_holds(rule):
    holds, sentence, _ = TABLE[rule]
    assert sentence in told(holds)[rule]


@pytest.mark.parametrize("rule", TABLE)
def test_a_rule_is_silent_where_it_does_not(rule):
    assert rule not in told(TABLE[rule][2])


def test_a_kernel_that_is_done_is_told_nothing_else():
    assert list(told(on(GPU, kernel_us=57.5))) == ["bandwidth-bound"]


def test_on_a_cpu_the_words_are_those_of_a_cpu():
    assert "memory-bound at 90 % of copy (10.8 of 12 GB/s)" in told(on(CPU, kernel_us=18_500.0))["bandwidth-bound"]
    assert "9 ops that compute where one would do" in told(on(CPU, launches=9))["several launches"]
    assert (
        "dispatch dominates: 60 us on the CPU for 9 us"
        in told(on(CPU, kernel_us=9.0, dispatch_us=60.0))["dispatch dominates"]
    )
    assert "Is the loop vectorized?" in told(on(CPU))["below the ceiling"]


def test_a_bandwidth_beyond_that_of_a_copy_is_a_caches():
    assert "116 % of copy" in told(on(GPU, kernel_us=43.0))["bandwidth-bound"]
    assert told(on(GPU, kernel_us=43.0))["bandwidth-bound"].endswith("part of it comes from a cache")


def test_where_no_ceiling_was_measured_none_is_spoken_of():
    assert not {"bandwidth-bound", "below the ceiling"} & set(told(on(GPU, copy_gb_per_s=0.0)))
    assert (
        "they take 412 us. Write" in told(on(GPU, copy_gb_per_s=0.0, launches=11, kernel_us=412.0))["several launches"]
    )


def test_matrix_products_are_not_judged_by_bandwidth():
    seen = on(GPU, flops=137_000_000_000, kernel_us=50.0)
    assert not {"bandwidth-bound", "several launches", "below the ceiling"} & set(told(seen))


def test_several_matrix_products_are_not_to_be_made_into_one_kernel():
    """Those of a small size are bound by neither arithmetic nor memory, and yet nothing fuses them."""
    few = on(GPU, copy_gb_per_s=0.0, launches=3, kernel_us=412.0)
    assert "several launches" in told(few)
    several = on(GPU, copy_gb_per_s=0.0, launches=3, kernel_us=412.0, moved_bytes=327_680, flops=8_388_608)
    assert "several launches" not in told(several)


@pytest.mark.parametrize(
    "torchs", [on(CPU, native=False, threads_busy=0.98), on(CPU, row(name="aten::mul"), threads_busy=0.98)]
)
def test_nobody_is_told_to_write_pragmas_into_torch(torchs):
    assert "one thread" in told(on(CPU, threads_busy=0.98))
    assert "one thread" not in told(torchs)
    assert told(torchs)["below the ceiling"].endswith("arithmetic or latency limits it, not memory")


def test_advice_names_the_phase():
    seen = on(GPU, name="backward", launches=11, kernel_us=412.0)
    assert profile_advice.advice(seen)[0].phase == "backward"
    assert "Write the backward as one kernel" in profile_advice.advice(seen)[0].text
