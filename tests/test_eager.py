"""Between the graphs of compiled code: Dynamo sees each Python frame there, and leaves those of ops alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb

COPY = """
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

def positive(x):
    found = x[x > 0]
    out = torch.empty_like(found)
    kernel[(triton.cdiv(found.numel(), 64),)](found, out, found.numel(), B=64)
    return out
"""


def frames() -> int:
    """How many Dynamo has looked at."""
    return torch._dynamo.utils.counters["frames"]["total"]


def traced() -> bool:
    """Would Dynamo look at the frames that are called from here?"""
    return bool(torch._C._dynamo.eval_frame.get_eval_frame_callback())


@pytest.fixture
def positive(namespace):
    """What it gives depends on values, which breaks the graph at each call."""

    @wb.op(f"{namespace}::positive")
    def positive(x: Tensor) -> Tensor:
        return x[x > 0]

    positive.cases(lambda t: [t(4, 8), t(5, 13)])
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield positive
    torch._dynamo.reset()


@pytest.fixture
def compiled(positive):
    return torch.compile(lambda x: positive(x + 1) * 2, backend="eager")


X = torch.tensor([1.0, -3.0, 2.0])


def test_the_reference(compiled):
    assert compiled(X).tolist() == [4, 6]
    assert frames() <= 5, "those around the call, none of the op's own"


def test_a_python_kernel(positive, compiled):
    seen = []

    @positive.kernel("cpu")
    def _(x):
        seen.append(traced())
        return torch.tensor([v for v in x.flatten().tolist() if v > 0])

    assert compiled(X).tolist() == [4, 6]
    assert seen and not any(seen)


def test_triton_in_the_interpreter(positive, compiled):
    wb.triton(positive, COPY)
    assert positive.slots["forward", "cpu"].kernel.interpreted
    assert compiled(X).tolist() == [4, 6]


def test_a_backward(positive, namespace):
    seen = []

    @wb.op(f"{namespace}::square")
    def square(x: Tensor) -> Tensor:
        return x * x

    @square.backward
    def _(grad_out, x):
        seen.append(traced())
        return 2 * x * grad_out

    def step(x):
        count = positive(x.detach()).numel()
        square(x).sum().backward()
        return x.grad + count

    x = X.clone().requires_grad_()
    assert torch.compile(step, backend="eager")(x).tolist() == [4, -4, 6]
    assert seen == [False]
    assert frames() <= 9
