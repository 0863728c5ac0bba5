"""Whose time a kernel's is, in real profiles on a CPU, and which kernels are not profiled at all."""

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.errors import WorkbenchError
from workbench.measure import profile as profiling
from workbench.measure import profile_machine, profile_run


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Few calls, and a ceiling that nobody measures here."""
    monkeypatch.setattr(profile_run, "BUDGET_S", 0.02)
    monkeypatch.setattr(profile_machine, "copy_gb_per_s", lambda device: 10.0)


CUDA = """\
//! n = x.numel()
//! out = empty_like(x)
//! grid = cdiv(n, 256)
//! block = 256
__global__ void slow(const float* x, float* out, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = x[i] + 1;
}
"""
SPIN = """\
//! n = x.numel()
//! out = empty(x.shape)
void slow(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    volatile float y = x[i];
    for (int j = 0; j < 200; ++j) y = y * 0.5f;
    out[i] = x[i] + 1;
  }
}
"""
SPIN_ON_TENSORS = """\
#include <torch/extension.h>
torch::Tensor slow(const torch::Tensor& x) {
  auto out = at::empty_like(x);
  const float* from = x.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    volatile float y = from[i];
    for (int j = 0; j < 200; ++j) y = y * 0.5f;
    out.data_ptr<float>()[i] = from[i] + 1;
  }
  return out;
}
"""


TRITON_SLOW = """\
@triton.jit
def add_one(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    for s in range(0, n, B):
        tl.store(out + s + i, tl.load(x + s + i, mask=s + i < n) + 1, mask=s + i < n)
def slow(x):
    out = torch.empty_like(x)
    add_one[(1,)](x, out, x.numel(), B=2048)
    return out
"""


def slow(namespace):
    @wb.op(f"{namespace}::slow")
    def slow(x: Tensor) -> Tensor:
        return x + 1

    @slow.cases
    def _(t):
        yield t(100, 100)

    return slow


def in_python(op):
    @op.kernel("cpu")
    def _(x):
        return torch.tensor([v + 1 for v in x.flatten().tolist()]).reshape(x.shape)


KERNELS = {
    "raw": lambda op: wb.cpp(op, SPIN),
    "C++ on tensors": lambda op: wb.cpp(op, SPIN_ON_TENSORS),
    "Python": in_python,
}


@pytest.mark.parametrize("how", KERNELS)
def test_the_time_of_a_kernel_that_saves_nothing_is_the_kernels(namespace, how):
    op = slow(namespace)
    KERNELS[how](op)
    report = op.profile()
    forward = report.phase("forward")
    assert forward.kernel_us > 0.5 * forward.traced_us and forward.kernel_us > forward.dispatch_us
    assert f"{namespace}::slow_forward" in {k.name for k in report.kernels if k.phase == "forward"}
    assert "dispatch dominates" not in {a.rule for a in report.advice if a.phase == "forward"}


def test_a_backward_that_leaves_a_gradient_out_is_native_all_the_same(namespace):
    @wb.op(f"{namespace}::times")
    def times(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    @times.cases
    def _(t):
        yield t(64, 64), t(64, 64)

    code = "//! n = x.numel()\n//! grad_x = empty(x.shape)\nvoid backward(const float* grad_out, const float* w, float* grad_x, int64_t n) {\n  for (int64_t i = 0; i < n; ++i) grad_x[i] = grad_out[i] * w[i];\n}\n"
    wb.cpp(f"{namespace}::times.backward", code)
    found = {k.name: k.count for k in times.profile().kernels if k.phase == "backward"}
    assert found[f"{namespace}::times_partial_backward"] == 1 and f"{namespace}::times_backward" not in found


def never(*_):
    pytest.fail("nothing may be called")


def test_an_interpreted_kernel_is_not_profiled(namespace, monkeypatch):
    op = slow(namespace)
    wb.triton(op, TRITON_SLOW)
    if not torch.cuda.is_available():
        monkeypatch.setattr(profiling, "Calls", never)
        for device in (None, "cpu"):
            with pytest.raises(
                WorkbenchError, match="slow runs in Triton's interpreter here, whose time says nothing of a GPU's"
            ):
                op.profile(device=device)


def test_an_op_whose_kernels_wait_for_a_gpu_is_not_profiled(namespace, monkeypatch):
    op = slow(namespace)
    wb.cuda(op, CUDA)
    if not torch.cuda.is_available():
        with monkeypatch.context() as patched:
            patched.setattr(profiling, "Calls", never)
            with pytest.raises(WorkbenchError) as raised:
                op.profile()
        assert str(raised.value).startswith(
            f"{op.qualname} has no kernel for this machine to profile: v1 (forward, raw CUDA) waits for a GPU. `slow.profile(device='cpu')`"
        )
        assert op.profile(device="cpu").phase("forward").runs == "reference"
