"""Profiles as samples for the tests of how they look: a GPU with everything, a CPU with little."""

import dataclasses

from workbench.reports.profiling import Advice, Counters, Phase, Profile, ProfileRow, Span


def gpu(**changed):
    report = Profile(
        op="lab::rmsnorm",
        case="llama bfloat16",
        device="cuda",
        device_name="NVIDIA H200",
        calls=20,
        phases=(
            Phase("forward", "v7 raw CUDA", 47.2, 60.0, 41.2, 11.3, 1, peak_bytes=64 << 20, kept_bytes=64 << 20, moved_bytes=134_225_920),
            Phase("backward", "reference's vjp", 520.0, 600.0, 412.0, 180.0, 11, 1, (5.0, 2.0), 256 << 20, moved_bytes=201_334_784,
                  flops=1_000_000_000),
        ),
        kernels=(
            ProfileRow("vectorized_elementwise_kernel<4, Mul>", "kernel", "backward", 8, 300.0, 300.0, 0.73, 0.0, 32, 0, (65536, 1, 1), (128, 1, 1), 1.0, "nothing: all 64 warps are in use"),
            ProfileRow("rmsnorm<float, 512>", "kernel", "forward", 1, 41.2, 41.2, 1.0, 0.0, 40, 1024, (8192, 1, 1), (512, 1, 1), 0.75, "registers: 40 a thread"),
            ProfileRow("Memset (Device)", "copy", "backward", 1, 2.0, 2.0, 0.005),
        ),
        ops=(ProfileRow("lab::rmsnorm_forward", "op", "forward", 1, 8.1, 9.0, 0.27, 41.2),),
        timeline=(
            Span("forward", "phase", "", 0.0, 30.0, 0, "forward"),
            Span("backward", "phase", "", 40.0, 60.0, 0, "backward"),
            Span("lab::rmsnorm", "op", "CPU", 2.0, 24.0, 0, "forward"),
            Span("lab::rmsnorm_forward", "op", "CPU", 6.0, 18.0, 1, "forward"),
            Span("rmsnorm<float, 512>", "kernel", "GPU", 20.0, 41.0, 0, "forward"),
        ),
        memory=((0.0, 0), (8.0, 4096), (52.0, 12288), (90.0, 4096)),
        counters=(Counters("rmsnorm<float, 512>", "forward", 40.9, 0.73, 0.88, 0.31, 0.87, 0.0, 40, (("long_scoreboard", 0.61), ("wait", 0.08))),),
        advice=(Advice("bandwidth-bound", "forward", "bandwidth-bound at 76 % of copy"), Advice("several launches", "backward", "11 kernels where one would do: they take 412 us. Write the backward as one kernel, or let `torch.compile` fuse it")),
        notes=("something to know",),
        copy_gb_per_s=4300.0,
        threads=16,
        seconds=1.25,
    )  # fmt: skip
    return dataclasses.replace(report, **changed)


def cpu(**changed):
    report = Profile(
        op="lab::scale",
        case="4x8 float32",
        device="cpu",
        device_name="2 threads of Xeon",
        calls=3,
        phases=(Phase("forward", "v1 raw C++", 3.1, 9.0, 1.2, 1.9, 1, threads_busy=0.98, peak_bytes=128),),
        kernels=(ProfileRow("lab::scale", "kernel", "forward", 1, 1.2, 1.2, 1.0),),
        ops=(ProfileRow("lab::scale", "op", "forward", 1, 1.2, 1.2, 0.4),),
        threads=2,
    )
    return dataclasses.replace(report, **changed)
