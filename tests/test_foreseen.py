"""What is said of a CUDA cell that cannot be run here: launches that no GPU takes, checks and shapes that are wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import directives, gpu
from workbench.errors import TrialError
from workbench.inspect import launchable
from workbench.schema import parse
from workbench.source import Source, functions

CELL = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! out = empty(x.shape)
//! grid = rows
//! block = 256
//! shared = 1024
template <typename T> __global__ void times(const T* x, const T* w, T* out, int cols) {
  for (int c = threadIdx.x; c < cols; c += blockDim.x) out[blockIdx.x * cols + c] = x[blockIdx.x * cols + c] * w[c];
}
"""
without_gpu = pytest.mark.skipif(gpu.present(), reason="a GPU refuses these by itself")


@pytest.fixture(scope="module")
def times():
    @wb.op("foreseen::times")
    def times(x: Tensor, w: Tensor) -> Tensor:
        return x * w

    @times.cases
    def _(t):
        yield t(4, 8), t(8)
        yield wb.case("no rows", t(0, 8), t(8))

    return times


@without_gpu
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("block = 256", "block = cols * 256", "raises on 4x8 float32: block = cols * 256: the block is 2048, a block has at most 1024 threads (line 6)"),
        ("block = 256", "block = 1, 1, cols * 16", "raises on 4x8 float32: block = 1, 1, cols * 16: the block is (1, 1, 128), its third size is at most 64 (line 6)"),
        ("block = 256", "block = cols - 8", "raises on 4x8 float32: block = cols - 8: the block is 0, it needs at least 1 thread (line 6)"),
        ("grid = rows", "grid = rows // 256", ("raises on 4x8 float32: grid = rows // 256: the grid is 0, it needs at least 1 block; "
         "write cdiv(a, b) for a // b, or max(1, ...) where there may be no work (line 5)")),
        ("grid = rows", "grid = 1, rows * 100000", "its second and third size are at most 65535; put the largest first (line 5)"),
        ("grid = rows", "grid = rows * 2147483647", "its first size is at most 2147483647 (line 5)"),
        ("shared = 1024", "shared = cols * 32768", ("shared = cols * 32768: 262144 bytes of shared memory are more than the 232448 "
         "that a block of sm_90 may have (line 7)")),
        ("shared = 1024", "cluster = rows * 4", "cluster = rows * 4: the cluster is 16, it has 1 to 8 blocks (line 7)"),
        ("shared = 1024", "cluster = 3", "cluster = 3: the cluster (3, 1, 1) does not divide the grid (4, 1, 1) (line 7)"),
        ("shared = 1024", "shared = 0 - cols", "-8 bytes of shared memory, which is negative (line 7)"),
        ("w.shape == (cols,)", "w.shape == (rows,)", "raises on 4x8 float32: require w.shape == (rows,) is not met (line 3)"),
        ("*_, cols", "_, _, cols", "raises on 4x8 float32: _, _, cols = x.shape needs 3 dimensions, got 2 (line 1)"),
        ("empty(x.shape)", "empty(rows)", "differs on 4x8 float32: out has shape (4,), the reference gives (4, 8)"),
        ("empty(x.shape)", "empty(x.shape, dtype=float32)", ""),
    ],
)  # fmt: skip
def test_what_no_gpu_would_take_is_not_installed(times, old, new, said):
    wb.cuda(times, CELL)
    former = times.slots["forward", "cuda"].number
    if not said:
        wb.cuda(times, CELL.replace(old, new))
        assert times.last_line.unrun == "compiled for sm_90, not run: no GPU here"
        return
    with pytest.raises(TrialError) as caught:
        wb.cuda(times, CELL.replace(old, new))
    assert said in str(caught.value)
    line = times.last_line
    assert (line.installed, line.still) == (False, f"v{former}")
    assert times.slots["forward", "cuda"].number == former
    assert "versions" not in line.hint  # it cannot be called here


@without_gpu
def test_another_dtype_than_the_references(times):
    text = CELL.replace("empty(x.shape)", "empty(x.shape, dtype=float64)").replace("T* out", "double* out")
    with pytest.raises(TrialError, match=r"out is float64, the reference gives float32"):
        wb.cuda(times, text)


@without_gpu
def test_what_only_a_gpu_could_tell_is_told_as_not_run(times):
    wrong = CELL.replace("* w[c]", "+ w[c]")
    wb.cuda(times, wrong)
    assert {(o.status, o.detail) for o in times.last_line.rows} == {("skip", "compiled, not run")}
    assert str(times.slots["forward", "cuda"]).endswith("compiled, not run")


def test_calls_on_nothing_and_names_that_only_a_call_tells_are_passed_over():
    schema = parse("foreseen::f(Tensor x) -> Tensor")
    cell = "//! n = x.numel()\n//! out = empty(x.shape)\n//! grid = min(n, sm_count) // 1000\n//! block = x.stride(0)\n__global__ void f(const float* x, float* out) {}\n"
    source = Source(cell, "cuda")
    declaration = directives.parse(source, schema, functions=functions(cell, "cuda"))
    assert launchable.refused(declaration, {"x": torch.empty(0)}, "sm_90") == ""
    assert launchable.refused(declaration, {}, "sm_90") == ""
    assert launchable.refused(declaration, {"x": torch.empty(5)}, "sm_90").startswith(
        "grid = min(n, sm_count) // 1000: the grid is 0"
    )
    assert launchable.refused(declaration, {"x": torch.empty(5000)}, "sm_90").startswith("grid")
