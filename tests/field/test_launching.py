"""What people met when launching kernels (field reports F45, F46), behind a driver that records what it is asked.

On a GPU: tests/tiers/test_raw_cuda_gpu.py captures and replays a graph, uses side streams and a second GPU.
"""

from __future__ import annotations

import pytest
import torch

from tests.build.cuda_tools import CONTEXT, LAUNCH, SET_CONTEXT, cuda_cell, fake_driver, load_cuda
from workbench.build import cuda_launches
from workbench.source import Source

LIBRARY = torch.library.Library("field_launching", "FRAGMENT")
TWO = """\
//! n = x.numel()
//! out = empty(x.shape)
//! grid = cdiv(n, 32)
//! block = 32
__global__ void first(const float* x, float* out, int n) { int i = blockIdx.x * 32 + threadIdx.x; if (i < n) out[i] = x[i]; }
//! grid = 1
//! block = 1
__global__ void second(float* out, int n) { for (int i = 0; i < n; ++i) out[i] += 1; }
"""


@pytest.fixture(scope="module")
def driver():
    with fake_driver() as found:
        yield found


@pytest.fixture(scope="module")
def op(driver):
    made = cuda_cell("field_launching::two(Tensor x) -> Tensor", TWO)
    LIBRARY.define("two(Tensor x) -> Tensor")
    LIBRARY.define("two_forward(Tensor x) -> Tensor")
    load_cuda(made).launcher.register()
    made.install(made.same(torch.float32))
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return lambda x, held=made: torch.ops.field_launching.two.default.redispatch(keys, x)


# ---------------------------------------------------------------- F45: the default stream


@pytest.mark.parametrize("stream", [0, 0x10, 0x20])
def test_f45_every_kernel_of_a_raw_cell_is_launched_on_the_current_stream(op, driver, stream):
    driver.library.fake_reset()
    driver.set(stream=stream)
    op(torch.ones(40))
    assert [r.stream or 0 for r in driver.launches()] == [stream, stream]


def test_f45_a_librarys_launches_without_a_stream_are_flagged_each_on_its_line():
    text = """\
#include <torch/extension.h>
#define GO(T) k<T><<<g, b>>>(x)
void f(at::Tensor x) {
  for (int i = 0; i < 3; ++i) k<float><<<dim3(1, 2), f<int, 3>(n)>>>(x);
  if (x.numel() > 0) { k<<<g, b, 0, at::cuda::getCurrentCUDAStream()>>>(x); }
  // k<<<g, b>>>(x);
  auto s = "k<<<g, b>>>(x)";
  k<<<g, b, 1024>>>(x), k<<<g, b, 0, 0>>>(x);
}
"""
    said = cuda_launches.lint(Source(text, "cuda", "cell [3]", 2), "full")
    assert [(d.file, d.line, d.severity) for d in said] == [("cell [3]", line, "warning") for line in (3, 5, 9, 9)]
    assert all("is launched on the default stream: write <<<" in d.message for d in said)
    assert "1024, at::cuda::getCurrentCUDAStream()>>>" in said[2].message  # what is there stays
    host = cuda_launches.lint(Source("k<<<g, b>>>(x);", "cuda"), "host")
    assert "wb::current_stream()" in host[0].message  # what that tier has


# ---------------------------------------------------------------- F46: the device


@pytest.mark.parametrize("former", [0, 0x7777, CONTEXT], ids=["none", "another", "its own"])
def test_f46_kernels_run_in_the_context_of_their_tensors_gpu_and_the_former_comes_back(op, driver, former):
    op(torch.ones(2))
    driver.library.fake_reset()
    driver.current = former
    op(torch.ones(40))
    assert driver.current == former
    asked = driver.take()
    assert [r.context for r in asked if r.what == LAUNCH] == [CONTEXT, CONTEXT]
    assert len([r for r in asked if r.what == SET_CONTEXT]) == (0 if former == CONTEXT else 2)


def test_f46_tensors_on_two_devices_never_reach_a_kernel(driver):
    made = cuda_cell("field_launching::add(Tensor x, Tensor w) -> Tensor", "//! out = empty_like(x)\n//! grid = 1\n//! block = 1\n"
                     "__global__ void add(const float* x, const float* w, float* out) { *out = *x + *w; }")  # fmt: skip
    LIBRARY.define("add(Tensor x, Tensor w) -> Tensor")
    LIBRARY.define("add_forward(Tensor x, Tensor w) -> Tensor")
    load_cuda(made).launcher.register()
    made.install(made.same(torch.float32))
    driver.library.fake_reset()
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    with pytest.raises(RuntimeError, match=r"w is on device type .*, x on cpu"):
        torch.ops.field_launching.add.default.redispatch(keys, torch.ones(1), torch.ones(1, device="meta"))
    assert not driver.launches()


def test_f46_a_librarys_code_without_a_guard_is_noted_with_the_line_to_write():
    text = "void f(at::Tensor x) {\n  k<<<g, b, 0, s>>>(x);\n}"
    [said] = cuda_launches.lint_guard(Source(text, "cuda", "cell [3]", 2))
    assert said.line == 3 and "`const c10::cuda::CUDAGuard guard(x.device());`" in said.message
    guarded = text.replace("{\n", "{\n  const c10::cuda::CUDAGuard guard(x.device());\n")
    assert not cuda_launches.lint_guard(Source(guarded, "cuda", "cell [3]", 2))
