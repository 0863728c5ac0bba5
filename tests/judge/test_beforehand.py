"""A case that is only there to be timed cannot hurt the process that times it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import cells
from workbench.judge import beforehand, examine

CELL = """\
//! rows, cols = x.shape
//! out = empty(rows)
void rowsum(const float* x, float* out, int64_t rows, int64_t cols) {{
  for (int64_t r = 0; r < rows; ++r) {{
    {per_row}
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += {value};
    out[r] = sum;
  }}
}}
"""
PLAIN = CELL.format(per_row="", value="x[r * cols + c]")


@pytest.fixture
def rowsum(namespace):
    @wb.op(f"{namespace}::rowsum")
    def rowsum(x: Tensor) -> Tensor:
        return x.sum(-1)

    @rowsum.cases
    def _(t):
        yield t(4, 8)
        yield wb.case("wide", t(16, 1 << 16), bench=True)

    return rowsum


def line_of(op, text: str):
    lines = []
    with cells.telling(lines.append):
        wb.cpp(op, text)
    return lines[-1]


def test_a_sound_kernel_is_timed(rowsum):
    line = line_of(rowsum, PLAIN)
    assert line.rough_case == "wide" and line.rough_us > 0 and not any("not timed" in n for n in line.notes)
    x = torch.randn(3, 5)
    torch.testing.assert_close(rowsum(x), x.sum(-1))


@pytest.mark.parametrize(
    ("per_row", "value", "said"),
    [
        ("float row[64]; for (int64_t c = 0; c < cols; ++c) row[c] = x[r * cols + c];", "row[c]", "SIG"),
        ("if (cols > 1000) out[rows + r] = 1;", "x[r * cols + c]", "out"),
        ("volatile bool on = cols > 1000; while (on) {}", "x[r * cols + c]", "still running"),
    ],
    ids=["a buffer too small", "a write behind", "no end"],
)
def test_what_it_would_do_is_told_and_not_done(rowsum, monkeypatch, per_row, value, said):
    monkeypatch.setattr(examine, "LIMIT_S", 1.0)
    line = line_of(rowsum, CELL.format(per_row=per_row, value=value))
    assert line.installed and line.rough_us == 0
    (note,) = [n for n in line.notes if n.startswith("not timed on wide: ")]
    assert said in note and note.endswith("A call like it can end this process")
    good = line_of(rowsum, PLAIN)
    assert good.installed and good.rough_us > 0


def test_a_case_of_the_trial_is_not_run_again(namespace, monkeypatch):
    @wb.op(f"{namespace}::rowsum")
    def rowsum(x: Tensor) -> Tensor:
        return x.sum(-1)

    rowsum.cases(lambda t: iter([(t(4, 8),), (t(40, 8),)]))

    class Nobody:
        def of(self, *_):
            raise AssertionError("it was tried in the trial")

    monkeypatch.setattr(beforehand, "Parcel", Nobody())
    assert line_of(rowsum, PLAIN).rough_us > 0


def test_a_mutating_op_is_tried_on_what_it_was_given(namespace):
    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor) -> None:
        x.add_(y)

    @add_.cases
    def _(t):
        yield t(8), t(8)
        yield wb.case("long", t(1 << 16), t(1 << 16), bench=True)

    line = line_of(
        add_,
        "//! n = x.numel()\n//! require y.shape == x.shape\nvoid add_(float* x, const float* y, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] += y[i]; }",
    )
    assert line.rough_us > 0 and not line.notes
