"""What the text of a CUDA cell does wrong at its launches. How a cell is refused for it: `test_bad_input_gpu_code.py`."""

from __future__ import annotations

import pytest

from workbench.build import cuda_slips
from workbench.source import Source


@pytest.mark.parametrize("text", [
    "cg::this_grid().sync();",
    "auto g = cooperative_groups::this_grid(); cg::sync(g);",
    "cg::grid_group g{cg::this_grid()}; g.barrier_arrive();",
    "void f(cg::grid_group& g) { g . sync (); }",
])  # fmt: skip
def test_a_wait_for_the_grid(text):
    at = cuda_slips.grid_sync(text)
    assert at is not None and ("sync" in text[at:] or "barrier" in text[at:])


@pytest.mark.parametrize("text", [
    "int i = cg::this_grid().thread_rank();",
    "auto g = cg::this_grid(); auto b = cg::this_thread_block(); b.sync();",
    "auto grid = cg::this_grid(); cg::sync(block);",
])  # fmt: skip
def test_a_grid_that_is_only_asked(text):
    assert cuda_slips.grid_sync(text) is None


KERNEL = "__global__ void k(int* x) {\n  cg::this_grid().sync();  // all\n}\n"


def test_a_host_cell_that_waits_for_its_grid_is_warned_unless_it_launches_so():
    (said,) = cuda_slips.lint(Source(f"{KERNEL}void f() {{ k<<<1, 1>>>(x); }}", "cuda", "cell [2]", first_line=2))
    assert (said.line, said.severity) == (3, "warning")
    assert "launch it with cudaLaunchCooperativeKernel, not with <<<>>>" in said.message
    assert cuda_slips.lint(Source(f"{KERNEL}void f() {{ cudaLaunchCooperativeKernel(k, 1, 1, a); }}", "cuda")) == ()
    assert cuda_slips.lint(Source("// this_grid().sync()", "cuda")) == ()


SHARED = "template <typename T> __global__ void k(T* x) {\n  extern __shared__ float s[];\n}\n"


@pytest.mark.parametrize(("body", "words"), [
    ("k<float><<<1, 32>>>(x);", "k: 's' is as long as <<<grid, block, bytes>>> says, and this says none"),
    ("my::k<float><<<1, 32, 0, s>>>(x);", "k: 's' is as long as"),
    ("int n = 1; k<float>(x);", "k is a kernel, and is called without <<<grid, block, 0, stream>>>"),
    ("if (n) { my::k(x); }", "k is a kernel, and is called without"),
])  # fmt: skip
def test_a_launch_that_leaves_out_what_its_kernel_needs(body, words):
    (said,) = cuda_slips.lint(Source(f"{SHARED}void f() {{\n  {body}\n}}\n", "cuda", "cell [2]", first_line=2))
    assert (said.line, said.severity, said.excerpt) == (6, "warning", f"  {body}")
    assert said.message.startswith(words)


@pytest.mark.parametrize(
    "body", ["k<float><<<1, 32, 4 * n, s>>>(x);", "k<float><<<1, 32, bytes>>>(x);", "other(k<float>);", "auto p = k;"]
)
def test_a_launch_with_all_of_it(body):
    assert cuda_slips.lint(Source(f"{SHARED}void f() {{\n  {body}\n}}\n", "cuda")) == ()
