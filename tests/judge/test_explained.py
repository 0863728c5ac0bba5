"""What a text says of wrong values: an output that is added to, and was never set."""

from __future__ import annotations

import pytest
from torch import Tensor

import workbench as wb
from workbench.errors import TrialError
from workbench.judge.explained import adds

TOTALS = """\
//! n, d = x.shape
//! out = empty(d, 2)
void totals(const float* x, float* out, int64_t n, int64_t d) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < d; ++j) { out[2 * j] += x[i * d + j]; out[2 * j + 1] += 1.0f; }
}
"""


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("out[i] += x[i];", True), ("out[row[i] * n + j] -= x[i];", True), ("out[i]*=2;", True),
        ("atomicAdd(&out[i], x[i]);", True), ("atomicAdd(out + i, x[i]);", True),
        ("out[i] = 0; out[i] += x[i];", False), ("out[i] = x[i];", False), ("if (out[i] == 0) y[i] += 1;", False),
        ("// out[i] += 1\\ny[i] += out[i];", False), ("std::fill(out, out + n, 0); out[i] += 1;", False),
        ("memset(out, 0, n); out[i] += 1;", False), ("s.out[i] += 1;", False), ("about[i] += 1;", False),
    ],
)  # fmt: skip
def test_what_adds_to_an_output_that_it_never_sets(text, is_so):
    assert adds(text, ("out",)) is is_so


def test_the_refusal_says_so_instead_of_never_written(namespace):
    @wb.op(f"{namespace}::totals")
    def totals(x: Tensor) -> Tensor:
        return x.new_tensor(0) + x.sum(0)[:, None] * x.new_tensor([1.0, 0.0]) + x.new_tensor([0.0, float(x.shape[0])])

    @totals.cases
    def _(t):
        yield t(4, 8)

    with pytest.raises(TrialError) as caught:
        wb.cpp(totals, TOTALS)
    why = "it adds to what was there, which is poison: `//! out = zeros(d, 2)`"
    assert f"it differs on 4x8 float32: 16 of 16 elements differ: {why}; out most at [0, 0]: nan" in str(caught.value)
    assert str(caught.value).count("poison") == 1 and "never written" not in str(caught.value)
    assert why in totals.last_line.refused and "never written" not in str(totals.last_line)
    wb.cpp(totals, TOTALS.replace("empty", "zeros"))
    assert totals.last_line.installed
