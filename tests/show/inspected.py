"""Sample inspections. All figures are made up."""

from __future__ import annotations

import dataclasses

from workbench.reports.inspection import Comparison, Entry, Finding, FunctionRow, Inspection, KernelRow, Stage
from workbench.source import Source

CELL = """//! out = empty_like(x)
//! grid = cdiv(x.numel(), 256)
//! block = 256
__global__ void scale(const float* x, float* out, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n)
    out[i] = 2 * x[i];
}
"""
SASS = (
    Entry("        LDC R1, c[0x0][0x28]", 5),
    Entry("        S2R R0, SR_TID.X", 6),
    Entry("   @P0  EXIT", 7),
    Entry(".L_x_0:"),
    Entry("        LDG.E R2, desc[UR4][R2.64]", 8),
    Entry("        FADD R5, R2, R2", 3, (8,)),
    Entry("        STL [R1], R5", 8),
    Entry("        EXIT", 9),
)


def kernel(**changes) -> Inspection:
    made = Inspection(
        op="lab::scale", version=3, slot="forward", device="cuda", how="raw CUDA", dtype="float32", target="sm_90",
        toolchain="NVRTC 13.0", source=Source(CELL, "cuda", "cell [4]", 2), seconds=0.26,
        rows=(KernelRow("scale<float, 256>", 38, 0, 0, 1024, 0, 256, 0.75, "registers: 38 a thread", 6),),
        stages=(Stage("ptx", (Entry("ld.global.f32 %f1, [%rd1];", 8),)), Stage("sass", SASS, (("global loads of 4 bytes", 1), ("FMA", 12)))),
        findings=(Finding(8, "spills 8 bytes a thread", bad=True), Finding(0, "with `__launch_bounds__` more warps would fit")),
        others=("bfloat16",),
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def function() -> Inspection:
    return kernel(
        version=1, device="cpu", how="raw C++", target="x86_64", toolchain="gcc 12 -O3", findings=(), others=(), seconds=0.0,
        rows=(FunctionRow("scale", 41, 32, 2, 1), FunctionRow("helper", 3, 0, 0, 0)), stages=(Stage("remarks", ()), Stage("assembly", SASS)),
    )  # fmt: skip


def both() -> Comparison:
    later = (
        *SASS[:4],
        Entry("        LDG.E.128 R4, desc[UR4][R6.64]", 8),
        Entry("        FADD R9, R4, R4", 3, (8,)),
        SASS[7],
    )
    stages = (Stage("ptx", ()), Stage("sass", later, (("global loads of 16 bytes", 1), ("FMA", 12))))
    rows = (KernelRow("scale<float, 256>", 32, 0, 0, 1024, 0, 256, 1.0, "nothing: all 64 warps are in use", 8),)
    return Comparison(kernel(), kernel(version=5, stages=stages, rows=rows))


def wide() -> Inspection:
    """An inspection with lines of 170 columns in its source and in its last stage."""
    long = f"  // {'a long remark ' * 12}"
    entries = (*SASS, Entry(f"        CALL.ABS {'a_mangled_name_' * 11}", 8))
    return kernel(source=Source(CELL.rstrip() + f"\n{long}\n", "cuda", "cell [4]", 2), stages=(Stage("sass", entries),))


def wide_pair() -> Comparison:
    """Two of these side by side."""
    later = dataclasses.replace(
        wide().stages[0], entries=(*SASS, Entry(f"        CALL.REL {'another_mangled_name_' * 8}", 8))
    )
    return Comparison(wide(), dataclasses.replace(wide(), version=5, stages=(later,)))
