"""Versions: what they say of themselves, and what calling one does."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from tests import live
from tests.live import SCALE, SCALE_BACKWARD

X = torch.linspace(-2, 3, 24).reshape(4, 6)


@pytest.fixture
def scale():
    op = live.scale()
    wb.cpp(op, SCALE)
    with pytest.raises(wb.TrialError):
        wb.cpp(op, SCALE.replace("x[i] * k", "x[i] + k").replace("// Times k", "// Plus k"))
    wb.cpp("live::scale.backward", SCALE_BACKWARD)
    return op


def test_what_was_held_against_nothing_is_not_said_to_agree(namespace):
    bare = wb.cpp(f"{namespace}::scale", SCALE.replace("template <typename T>\n", "").replace("T", "float"))
    assert str(bare.versions[1]) == "v1 forward cpu raw C++ not tried"
    if not torch.cuda.is_available():
        body = "template <typename T> __global__ void fill(const T* x, T* out) { out[threadIdx.x] = x[threadIdx.x]; }"
        bare = wb.cuda(f"{namespace}::fill", f"//! out = empty_like(x)\n//! grid = 1\n//! block = 32\n{body}")
        assert str(bare.versions[1]) == "v1 forward cuda raw CUDA compiled, not run"


def test_every_build_is_a_version(scale):
    reference, first, refused, backward = scale.versions
    assert [v.number for v in scale.versions] == [0, 1, 2, 3]
    assert (reference.how, first.how, refused.title, backward.slot) == ("reference", "raw C++", "Plus k", "backward")
    assert not first.refused and refused.refused.startswith("differs on 4x8 float32") and first.seconds > 0
    assert str(first) == "v1 forward cpu raw C++ agreed" and str(refused).startswith(
        "v2 forward cpu raw C++ refused: differs"
    )
    assert first.source.text == SCALE and first.trial.ok and not refused.trial.ok


def test_what_does_not_compile_is_no_version(scale):
    with pytest.raises(wb.BuildError):
        wb.cpp(scale, SCALE.replace("x[i]", "y[i]"))
    assert len(scale.versions) == 4


def test_calling_a_version(scale):
    reference, first, refused, backward = scale.versions
    assert torch.equal(reference(X, 3.0), X * 3) and torch.equal(first(X, 3.0), X * 3)
    assert torch.allclose(refused(X, k=3.0), X + 3)
    assert torch.allclose(refused(X.t(), 3.0), X.t() + 3) and refused(X.t(), 3.0).stride() == X.t().stride()
    assert torch.allclose(refused(X.double(), 3.0), X.double() + 3)  # built for it, in the worker
    with pytest.raises(wb.SchemaError, match="v3 is a backward"):
        backward(X, 3.0)
    assert torch.equal(scale(X, 3.0), X * 3)


def test_a_former_version_runs_in_the_worker(scale):
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1e-6"))
    assert torch.equal(scale.versions[1](torch.zeros(2)), torch.zeros(2))
    assert scale.versions[4](torch.zeros(2)).tolist() == pytest.approx([1e-6] * 2)


def test_a_mutating_version_writes_to_the_arguments_it_is_called_with():
    live.gone("live::bump_")

    @wb.op("live::bump_", mutates="x")
    def bump_(x: torch.Tensor) -> None:
        x.add_(1)

    @bump_.cases
    def _(t):
        yield (t(3, 4),)

    text = "//! n = x.numel()\nvoid bump_(float* x, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] += 2; }"
    with pytest.raises(wb.TrialError):
        wb.cpp(bump_, text)
    x = torch.zeros(5)
    assert bump_.versions[1](x) is None and x.tolist() == [2.0] * 5
    bump_(x)
    assert x.tolist() == [3.0] * 5


def test_a_call_that_a_version_cannot_take(scale):
    with pytest.raises(wb.SchemaError, match="complex64"):
        scale.versions[2](X.to(torch.complex64), 3.0)
    with pytest.raises(Exception, match="k|argument"):
        scale.versions[2](X, 3.0, 4.0)
