import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.errors import WorkbenchError
from workbench.measure.contestants import by_slot, compiled, fitted


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0, *, shift: float = 0.0) -> Tensor:
        return x * k + shift

    return scale


def names(op, against):
    return [c.name for c in by_slot(op, against, ["forward"], "cpu", lambda version: None)["forward"]]


def test_without_a_kernel_the_op_has_its_own_name(scale):
    assert names(scale, None) == ["scale", "torch.compile", "reference"]
    assert names(scale, []) == ["scale"]
    assert names(scale, ["compile", "reference", 0, "reference"]) == [
        "scale", "torch.compile", "reference", "reference (2)", "reference (3)",
    ]  # fmt: skip


def test_an_op_without_reference_stands_alone(namespace):
    op = wb.op(f"{namespace}::bare(Tensor x) -> Tensor")
    assert names(op, None) == ["bare"]


CELL = """//! out = empty(x.shape)
//! n = x.numel()
void scale(const float* x, float* out, float k, float shift, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = FORM;
}
"""
BACKWARD = """//! grad_x = empty_like(x)
//! n = x.numel()
void backward(const float* grad_out, float* grad_x, float k, int64_t n) {
  for (int64_t i = 0; i < n; ++i) grad_x[i] = grad_out[i] * k;
}
"""


def test_a_version_stands_in_the_slot_that_it_fills(scale):
    scale.cases(lambda t: iter([(t(4, 8),)]))
    wb.cpp(scale, CELL.replace("FORM", "x[i] * k + shift"))
    wb.cpp(scale, CELL.replace("FORM", "k * x[i] + shift"))
    wb.cpp(f"{scale.qualname}.backward", BACKWARD)

    def found(against):
        made = by_slot(scale, against, ["forward", "backward"], "cpu", lambda version: None)
        return {slot: [c.name for c in some] for slot, some in made.items()}

    assert found([1]) == found("former") == {"forward": ["v2", "v1"]}
    assert found([1, "reference"]) == {"forward": ["v2", "v1", "reference"], "backward": ["v3", "reference"]}
    assert found([3]) == {"backward": ["v3", "v3 (2)"]}
    assert found([]) == {"forward": ["v2"], "backward": ["v3"]}
    with pytest.raises(WorkbenchError, match="v1 of scale is for forward cpu, measured is backward cpu"):
        by_slot(scale, [1], ["backward"], "cpu", lambda version: None)


def test_callables_and_names_for_them(scale):
    assert names(scale, {"mine": torch.mul, "yours": lambda x: x}) == ["scale", "mine", "yours"]
    assert names(scale, [torch.mul, lambda x: x, scale]) == ["scale", "mul", "a lambda", scale.qualname]


def test_a_callable_may_leave_out_what_is_at_its_default(scale):
    two = fitted(lambda x: x * 2, scale)
    assert two(torch.ones(1), 2.0).item() == 2
    with pytest.raises(TypeError, match="it takes no k, which is 3.0 here"):
        two(torch.ones(1), 3.0)
    every = lambda *args: args
    assert fitted(every, scale) is every
    assert fitted(torch.mul, scale) is torch.mul, "built in: called as the op is"


def test_what_is_compiled_is_a_copy_whose_recompilations_are_its_own():
    offset = 3

    def add(x, *, k=1):
        return x + k + offset

    made = compiled(add)
    inner = made._torchdynamo_orig_callable
    assert inner is not add
    assert inner.__code__ is not add.__code__
    assert inner(torch.zeros(1)).item() == 4
    assert inner(torch.zeros(1), k=2).item() == 5
