"""Sample reports: one of each kind that a notebook can show. All figures are made up."""

from __future__ import annotations

import dataclasses
import math
import random

from workbench.errors import Diagnostic
from workbench.reports.card import Card, HistoryRow, SlotRow
from workbench.reports.report import Check, Line, Mismatch, Outcome, Row, Trial

CASES = ("small", "odd", "one row", "wide", "empty", "strided")
DTYPES = ("float32", "float16", "bfloat16")
CELL = """// two elements per thread
//! *_, cols = x.shape
//! require w.shape == (cols,)
//! out = empty(x.shape)
template <typename T>
void rmsnorm(const T* x, const T* w, T* out, double eps, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {  // a row at a time
    float s = 0.f;
    for (int64_t c = 0; c < cols; ++c) s += float(x[r * cols + c]) * x[r * cols + c];
    const float scale = 1.f / std::sqrt(s / cols + eps);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = T(x[r * cols + c] * scale * w[c]);
  }
}
"""


def agreeing() -> Trial:
    outcomes = [Outcome(c, d, "agree", 0.6 if (c, d) == ("odd", "bfloat16") else 0.2) for c in CASES for d in DTYPES]
    return Trial(tuple(outcomes), seconds=0.031)


def installed(**changes) -> Line:
    line = Line(
        op="lab::rmsnorm",
        slot="forward",
        language="cuda",
        version=7,
        installed=True,
        seconds=0.052,
        trial=agreeing(),
        resources="38 regs, no spills",
        rough_us=41.0,
        rough_case="llama",
        former=6,
        former_us=47.0,
    )
    return dataclasses.replace(line, **changes)


def never_written(rows: int = 40, columns: int = 96, period: int = 32, last: int = 3) -> Mismatch:
    """The last 3 of every 32 columns hold poison in the first 36 rows, and a few elements elsewhere are wrong."""
    chance = random.Random(3)
    wrong = tuple(
        tuple(
            1.0 if (c % period >= period - last and r < 36) or chance.random() < 0.004 else 0.0 for c in range(columns)
        )
        for r in range(rows)
    )
    worst = (((0, 29), math.nan, 0.8123), ((0, 30), math.nan, -1.2044), ((7, 61), math.nan, 0.0391))
    return Mismatch("out", (rows, columns), 270, rows * columns, 270, worst, wrong)


def refused(**changes) -> Line:
    failed = [
        Outcome("odd", "float32", "mismatch", mismatch=never_written()),
        Outcome("wide", "float32", "mismatch", detail="3 of 512 elements differ"),
    ]
    line = Line(
        op="lab::rmsnorm",
        slot="forward",
        language="cuda",
        version=8,
        installed=False,
        seconds=0.061,
        trial=Trial((Outcome("small", "float32", "agree", 0.3), *failed), seconds=0.02),
        refused="differs on odd float32: 270 of 3,840 elements never written.",
        still="v7",
        hint="line 9 of the cell: `for (int c = threadIdx.x; c < cols - 3; c += BLOCK)`\n"
        "Try it anyway: `rmsnorm.versions[8](x, w)`, or `--force`.",
    )
    return dataclasses.replace(line, **changes)


@dataclasses.dataclass(frozen=True)
class Uncompiled(Line):
    diagnostics: tuple[Diagnostic, ...] = ()


def uncompiled() -> Line:
    return Uncompiled(
        op="lab::rmsnorm",
        slot="backward",
        language="cpp",
        version=9,
        installed=False,
        seconds=0.048,
        still="v7",
        refused="line 9: use of undeclared identifier 'colz'",
        hint="Did you mean `cols`?",
        diagnostics=(
            Diagnostic(
                "cell",
                9,
                27,
                "error",
                "use of undeclared identifier 'colz'",
                "  for (int64_t c = 0; c < colz; ++c) s += x[c];",
            ),
            Diagnostic("cell", 12, 5, "error", "no matching function for call to 'f<float>'", "    f<float>(x);"),
            Diagnostic("cell", 3, 6, "note", "candidate template ignored: substitution failure", "void f(T* x) {"),
        ),
    )


def check() -> Check:
    return Check(
        "lab::kv_write_",
        (
            Row("agreement", "12 cases x 3 dtypes", "pass", "largest error 0.8 of allowed (scaled, float16)"),
            Row(
                "mutation",
                "views of one base",
                "fail",
                "writes v, which is not declared.",
                "Add it to `mutates`, or write to a copy. Line 14.",
            ),
            Row(
                "strides, fake, aliasing",
                "9 layouts",
                "pass",
                "real and fake agree for transposed, sliced, expanded, padded",
            ),
            Row("compiled = eager", "dynamic shapes", "pass", "1 graph for 5 sizes"),
            Row("gradients", "", "skip", "in-place op, no argument wants a gradient"),
            Row("memcheck", "", "skip", "compute-sanitizer is not installed: `check(sanitize=True)` would use it"),
        ),
        seconds=1.24,
    )


OMP = CELL.replace("  for (int64_t r", "  #pragma omp parallel for\n  for (int64_t r")
MEASURED = {"time_us": 41.2, "case": "llama", "ratio": 1.14, "against": 6, "verdict": "FASTER"}


def card(**changes) -> Card:
    copy = "copy bandwidth"
    card = Card(
        name="lab::rmsnorm",
        signature="(Tensor x, Tensor w, float eps=1e-06) -> Tensor",
        doc="Root mean square norm over the last dimension.",
        slots=(
            SlotRow(
                "forward cuda",
                "v7",
                "raw CUDA",
                "18 of 18",
                True,
                41.2,
                0.87,
                "38 regs, 1.1 KB shared",
                case="llama",
                ceiling=copy,
            ),
            SlotRow(
                "forward cpu",
                "v2",
                "raw C++",
                "18 of 18",
                True,
                9800.0,
                0.63,
                "AVX-512, OpenMP",
                case="llama",
                ceiling=copy,
            ),
            SlotRow(
                "backward",
                "reference's vjp",
                "",
                "6 of 6",
                True,
                412.0,
                0.21,
                "11 launches: worth a kernel",
                case="llama",
                ceiling=copy,
            ),
        ),
        history=(
            HistoryRow(
                1,
                "forward cpu",
                "raw C++",
                "former",
                1.1,
                "18 of 18",
                "the reference, as loops",
                time_us=19600.0,
                case="llama",
                rough=True,
                text=CELL,
            ),
            HistoryRow(
                2,
                "forward cpu",
                "raw C++",
                "installed",
                0.12,
                "18 of 18",
                "OpenMP over rows",
                text=OMP,
                before=CELL,
                time_us=9800.0,
                case="llama",
                verdict="FASTER",
                ratio=2.0,
                against=1,
            ),
            HistoryRow(
                6,
                "forward cuda",
                "raw CUDA",
                "former",
                0.05,
                "18 of 18",
                "one row a block",
                resources="32 regs, no spills",
                time_us=46.9,
                case="llama",
            ),
            HistoryRow(
                7,
                "forward cuda",
                "raw CUDA",
                "installed",
                0.052,
                "18 of 18",
                "two elements per thread",
                resources="38 regs, no spills",
                **MEASURED,
            ),
            HistoryRow(
                8,
                "forward cuda",
                "raw CUDA",
                "refused",
                0.061,
                "17 of 18",
                "",
                "differs on odd float32",
                resources="38 regs, no spills",
            ),
        ),
        check=dataclasses.replace(check(), op="lab::rmsnorm"),
        code=(("forward cpu", "cpp", CELL),),
        notes=("The backward is still the reference's.",),
    )
    return dataclasses.replace(card, **changes)


def large() -> Card:
    """A card after a long day: 200 versions, 40 check rows, two long cells."""
    history = tuple(
        HistoryRow(
            v,
            "forward cpu",
            "raw C++",
            "refused" if v % 3 == 0 else "former",
            0.06,
            "18 of 18",
            f"try {v}: unroll by {v}",
            resources="38 regs, no spills",
            time_us=41.0 + v,
            case="llama",
            rough=True,
            text=CELL.replace("s = 0.f", f"s = {v}.f"),
            before=CELL.replace("s = 0.f", f"s = {v - 1}.f"),
        )
        for v in range(1, 201)
    )
    rows = tuple(
        Row(f"check {i}", "12 cases x 3 dtypes", "pass", "largest error 0.8 of allowed " * 2) for i in range(40)
    )
    return card(
        history=history,
        check=Check("lab::rmsnorm", rows, seconds=2.0),
        code=(("forward cpu", "cpp", CELL * 20), ("backward", "cuda", CELL * 20)),
        opened="History",
    )


TRITON = """@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
"""
RESOURCES = "interpreted | compiled for sm_90: 24 regs, no spills, 16 bytes shared"


def wide() -> Card:
    """A card with long lines: what Triton says of its registers, a refusal in full, code of 60 lines and 180 columns."""
    code = (
        TRITON
        + "".join(f"    value_{i} = {i}\n" for i in range(56))
        + f"    tl.store(y + i, {' + '.join(['tl.load(x + i)'] * 10)})\n"
    )
    refusal = (
        "goes out of bounds on 100 float32: reads past the end of x (shape (100,), float32): flat element 112 of 100; "
        * 2
    )
    history = (
        *card().history[:2],
        HistoryRow(3, "forward cuda", "Triton", "former", 3.1, "18 of 18", "first", resources=RESOURCES, text=TRITON, **MEASURED),
        HistoryRow(4, "forward cuda", "Triton", "installed", 3.2, "18 of 18", "", resources=RESOURCES, text=code, before=TRITON),
        HistoryRow(5, "forward cuda", "Triton", "refused", 0.3, "0 of 18", "", refusal, resources=RESOURCES, text=TRITON, before=code),
    )  # fmt: skip
    return card(history=history, code=(("forward cuda", "triton", code),), opened="History")
