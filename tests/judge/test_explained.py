"""What a text says of wrong values: an output that is added to, and was never set."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.errors import TrialError
from workbench.judge.explained import adds, narrow
from workbench.source import Source

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


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("template <typename T>\nvoid f(const T* x, float eps) {}", 6), ("void f(const T* x) {\n  float s = 0;", 6),
        ("void f(const T* x) {\n\n  y[0] = T(float(x[0]));", 7), ("void f(const float* x, float *y) {", 0),
        ("// float s\nvoid f(T* x) { std::vector<float> v; float4 w; }", 0),
    ],
)  # fmt: skip
def test_the_line_that_computes_in_float(text, line):
    assert narrow(Source(text, "cpp", file="cell [1]", first_line=5)) == line


def test_float_in_a_form_for_float64_is_named(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float) -> Tensor:
        return x * k

    @scale.cases(dtypes=(torch.float32, torch.float64))
    def _(t):
        yield t(4, 8), 0.1

    text = """\
//! n = x.numel()
//! out = empty(x.shape)
template <typename T> void scale(const T* x, T* out, float k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * k;
}
"""
    with pytest.raises(TrialError):
        wb.cpp(scale, text)
    said = "differs on 4x8 float64: 32 of 32 elements differ: line 3 computes in float, which has 7 of their 16 digits"
    assert scale.last_line.refused == said
    with pytest.raises(TrialError):
        wb.cpp(scale, text.replace("x[i] * k", "x[i] + k"))
    assert "float," not in scale.last_line.refused, "no rounding is that far off"
    wb.cpp(scale, text.replace("float k", "double k"))
    assert scale.last_line.installed
