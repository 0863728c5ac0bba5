"""`check(sanitize=True)`: a row for each tool and kernel, whatever the tool saw; the tool itself on a GPU, and for C++."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from workbench import gpu, toolchain
from workbench.build import sanitized
from workbench.judge import sanitize
from workbench.trial import sanitizer
from workbench.trial.findings import Finding

SCALE = """\
//! n = x.numel()
//! out = empty(x.shape)
//! grid = cdiv(n, 256)
//! block = 256
template <typename T> __global__ void scale(const T* x, T* out, float k, long long n) {
  long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < n) out[i] = T(float(x[i]) * k);
}
"""
RACE = SCALE.replace("  if (i < n)", "  __shared__ int seen[256];\n  seen[threadIdx.x] = 1;\n  if (i < n)").replace(
    "* k)", "* k + (seen[255 - threadIdx.x] == 12345))"
)


ON_CPU = """\
//! n = x.numel()
//! out = empty_like(x)
void scale(const float* x, float* out, double k, int64_t n) {
  float last = x[n - 1];
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * k;
  out[n - 1] = last * k;
}
"""
PAST = ON_CPU.replace(
    "  out[n", "  if (n == 15) { volatile float past = x[n]; }\n  out[n"
)  # within the 64 bytes that a trial leaves
ON_TENSORS = """\
Tensor scale(const Tensor& x, double k) {
  Tensor out = torch::stable::empty_like(x);
  float* made = new float[3]();
  for (int64_t i = 0; i < x.numel(); ++i) out.mutable_data_ptr<float>()[i] = x.const_data_ptr<float>()[i] * k;
  delete[] made;
  if (x.numel() == 15) out.mutable_data_ptr<float>()[0] += 0 * (*(volatile float*)(made + 1) > 0);
  return out;
}
"""


@pytest.fixture
def op(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(4, 8), 3.0
        yield wb.case("odd", t(5, 3))

    yield scale
    live.gone(scale.qualname)


def test_an_op_without_kernels_has_nothing_for_it(op):
    row = op.check(sanitize=True).rows[-1]
    assert (row.check, row.status) == ("sanitizer", "skip")
    assert row.detail.startswith("no kernel is installed")
    assert op.last_check.rows[-1] == row
    assert "sanitizer" not in {r.check for r in op.check().rows}


@pytest.mark.skipif(gpu.present(), reason="what is said where no GPU is")
def test_without_a_gpu_it_says_so(op):
    wb.cuda(op, SCALE)
    row = sanitize.rows(op)[0]
    assert (row.case, row.status, row.detail) == ("forward cuda v1", "skip", "not run: no GPU here")


@pytest.fixture
def tool(monkeypatch):
    """Pretends that the kernel runs, and that the tools saw this."""

    def saw(*findings: Finding, missing: str = "", problems: tuple[str, ...] = ()):
        from workbench.tiers.raw_cuda import RawCudaKernel

        ran = () if missing else ("memcheck", "racecheck")
        monkeypatch.setattr(
            sanitizer, "sanitize", lambda job, tools: sanitizer.Sanitized(findings, ran, missing, problems)
        )
        monkeypatch.setattr(RawCudaKernel, "trial_device", "cuda")
        monkeypatch.setattr(RawCudaKernel, "launch", lambda self: self)

    return saw


@pytest.mark.skipif(gpu.present(), reason="with a stand-in for the GPU")
def test_what_the_tools_saw(op, tool):
    wb.cuda(op, SCALE)
    out = Finding("memcheck", "Invalid __global__ write of size 4 bytes", "scale(float*)", "cell [3]", 7, case="odd")
    tool(out, out, out, out, Finding("racecheck", "a warning", "scale", warning=True))
    memory, races = sanitize.rows(op)
    assert (memory.check, memory.case, memory.status) == ("memcheck", "forward cuda v1", "fail")
    assert memory.detail.startswith("odd: Invalid __global__ write of size 4 bytes in scale at cell [3]:7; ")
    assert memory.detail.endswith("; and 1 more")
    assert (races.check, races.status) == ("racecheck", "pass")
    assert races.detail.endswith("on 2 cases")


@pytest.mark.skipif(gpu.present(), reason="with a stand-in for the GPU")
def test_a_tool_that_is_missing_or_did_not_end(op, tool):
    wb.cuda(op, SCALE)
    tool(missing=sanitizer.MISSING)
    [row] = sanitize.rows(op)
    assert row.status == "skip"
    assert "apt install cuda-sanitizer" in row.detail
    tool(problems=("racecheck: not done within 120 s",))
    assert [r.status for r in sanitize.rows(op)] == ["pass", "pass", "skip"]


@pytest.mark.gpu
@pytest.mark.skipif(not sanitizer.program(), reason="no compute-sanitizer here")
def test_on_a_gpu(op):
    wb.cuda(op, SCALE)
    assert [(r.check, r.status) for r in sanitize.rows(op)] == [("memcheck", "pass"), ("racecheck", "pass")]
    wb.cuda(op, RACE)
    assert torch.equal(op(torch.ones(3, device="cuda")), torch.full((3,), 2.0, device="cuda"))
    memory, races = sanitize.rows(op)
    assert memory.status == "pass"
    assert races.status == "fail"
    assert "scale" in races.detail
    assert ":7" in races.detail or ":8" in races.detail, races.detail


needs_runtime = pytest.mark.skipif(
    not sanitized.preloads(toolchain.compiler()), reason="the compiler has no address sanitizer"
)


@needs_runtime
def test_cpp_is_watched(op):
    """A read just past an input agrees, stays within what a trial guards, and is seen here."""
    wb.cpp(op, PAST)
    address, undefined = sanitize.rows(op)
    assert (address.check, address.case, address.status) == ("address", "forward cpu v1", "fail")
    assert address.detail == (
        "odd float32: heap-buffer-overflow: READ of size 4 in scale at cell:6: 0 bytes past the end of x (shape (5, 3), float32)"
    )
    assert (undefined.check, undefined.status) == ("undefined", "pass")
    assert undefined.detail.endswith("on 2 cases")


@needs_runtime
@pytest.mark.slow
def test_more_of_cpp(op):
    wb.cpp(op, ON_CPU)
    assert [(r.check, r.status) for r in sanitize.rows(op)] == [("address", "pass"), ("undefined", "pass")]
    wb.cpp(op, ON_CPU.replace("  float last", "  volatile int big = 2147483647; big = big + (int)n;\n  float last"))
    undefined = sanitize.rows(op)[1]
    assert undefined.status == "fail" and "signed integer overflow: 2147483647" in undefined.detail.replace(
        "32 + 2147483647", "2147483647"
    )
    assert "at cell:4" in undefined.detail
    wb.cpp(op, ON_TENSORS)
    address = sanitize.rows(op)[0]
    assert address.status == "fail"
    assert (
        "odd float32: heap-use-after-free: READ of size 4 in scale" in address.detail and "at cell:6" in address.detail
    )


def test_a_compiler_without_a_runtime(op, monkeypatch):
    wb.cpp(op, ON_CPU)
    monkeypatch.setattr(sanitized, "preloads", lambda compiler: ())
    [row] = sanitize.rows(op)
    assert row.status == "skip"
    assert "has no runtime for its address sanitizer" in row.detail and "apt install lib" in row.detail


def test_a_compiler_is_asked_for_its_runtime(monkeypatch, tmp_path):
    there = tmp_path / "libasan.so"
    there.write_text("")
    other = tmp_path / "g++"
    other.write_text(f"#!/bin/sh\ncase $1 in *asan*) echo {there};; *) echo ${{1#*=}};; esac\n")
    other.chmod(0o755)
    compiler = replace(toolchain.compiler(), command=(str(other),), family="gcc")
    assert sanitized.preloads(compiler) == (str(there),)
    there.unlink()
    assert sanitized.preloads(compiler) == ()
