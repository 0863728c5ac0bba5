"""Both halves of CUDA cells on Tensor, and nvcc's whole ones: compiled here for sm_90, with no GPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from torch import Tensor

import workbench as wb
from tests.tiers.test_host_cuda import SCALE
from workbench import gpu, settings, tiers
from workbench.build import cuda_reasons, driver, headers, nvcc, nvrtc
from workbench.build.cuda_split import Whole, split
from workbench.errors import BuildError, ToolchainError
from workbench.inspect.cuda import embedded
from workbench.source import Source
from workbench.toolchain import compiler

pytest.importorskip("cuda.bindings")
has_nvcc = pytest.mark.skipif(
    not shutil.which("nvcc", path=f"{settings.programs()}:/usr/local/cuda/bin"), reason="there is no nvcc here"
)


@pytest.fixture(autouse=True, scope="module")
def header():
    headers.make(compiler(), "host-cuda", "wb_host_cuda.h", ())


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    return scale


def built(op, text: str, slot: str = "forward", **options):
    kernel = tiers.kernel(Source(text, "cuda", "cell [3]", 2), op.schema, slot, **options)
    kernel.build([])
    return kernel


def test_both_halves_compile_without_a_gpu(scale):
    kernel = built(scale, SCALE)
    assert kernel.built.because == ""
    assert [r.kernel for r in kernel.resources] == ["times<double, 8>", "times<float, 8>"]
    assert all(r.registers > 0 for r in kernel.resources)
    assert kernel.compiled_for == gpu.target().arch
    assert kernel.unrunnable == ("" if gpu.present() else "no GPU here")


def test_an_error_of_the_device_half_is_on_its_line(scale):
    with pytest.raises(BuildError) as caught:
        built(scale, SCALE.replace("if (i < n) out[i]", "if (i < n) oud[i]"))
    assert (caught.value.file, caught.value.line) == ("cell [3]", 4)
    assert "oud" in caught.value.message


def test_marks_behind_macros_and_attributes(scale):
    text = """\
#ifdef __CUDACC__
#define HD __host__ __device__ __forceinline__
#else
#define HD inline
#endif
#define DEV __device__ __forceinline__
struct __align__(8) Pair { float a, b; };
template <typename T> DEV T doubled(T v) { return v + v; }
HD int blocks(int n) { return (n + 7) / 8; }
""" + SCALE.replace("__global__ void", "__global__ void __maxnreg__(32)").replace(
        "float(x[i]) * k", "doubled(Pair{float(x[i]), k}.b) * blocks(n)"
    ).replace("(n + 7) / 8", "blocks(n)")
    kernel = built(scale, text)
    assert (kernel.built.because, kernel.diagnostics) == ("", ())
    assert [r.kernel for r in kernel.resources] == ["times<double, 8>", "times<float, 8>"]
    with pytest.raises(BuildError) as caught:
        built(scale, text.replace("return v + v", "return v + w"))
    assert (caught.value.line, caught.value.diagnostics[0].excerpt[:25]) == (9, "template <typename T> DEV")


def test_a_function_of_the_host_in_a_kernel(scale):
    text = "static int twice(int n) { return 2 * n; }\n" + SCALE.replace("if (i < n)", "if (i < twice(n))")
    with pytest.raises(BuildError, match="twice is host code: mark it `__host__ __device__`"):
        built(scale, text)


def test_a_header_of_the_users_is_read_into_both_halves(scale, tmp_path):
    (tmp_path / "more.cuh").write_text(
        "#pragma once\n__device__ float more(float x) { return x + 1; }\nconstexpr int MORE = 8;\n"
        "__global__ void idle() {}\ninline int of_host(int n) { return n + MORE; }\n"
    )
    text = '#include "more.cuh"\n' + SCALE.replace("float(x[i]) * k", "more(float(x[i])) * k").replace(
        "(n + 7) / 8", "of_host(n) / MORE"
    )
    kernel = tiers.kernel(Source(text, "cuda", "cell [3]", 2, str(tmp_path)), scale.schema, "forward")
    kernel.build([])
    assert len(kernel.built.device.names) == 3
    assert str(tmp_path / "more.cuh") in kernel.headers


def test_a_device_half_has_what_raw_cells_have(scale):
    text = """\
#include <algorithm>
#include <array>
__global__ void more(const half* x, bfloat16* out, std::array<float, 2> by, int n) {
  if (threadIdx.x < std::min(n, 8)) out[threadIdx.x] = bfloat16(std::max(float(x[threadIdx.x]), by[1]));
}
""" + SCALE.replace("  else\n", "  else if (x.scalar_type() == ScalarType::Half)\n    times<half, 8><<<grid, 8, 0, wb::current_stream()>>>("
                    "(const half*)x.data_ptr(), (half*)out.data_ptr(), k, n);\n  else\n")  # fmt: skip
    kernel = built(scale, text)
    assert kernel.built.because == ""
    assert [r.kernel for r in kernel.resources] == ["more", "times<__half, 8>", "times<double, 8>", "times<float, 8>"]


def test_what_the_halves_would_lay_out_otherwise_is_nvccs():
    head = "#include <tuple>\n__global__ void k(std::tuple<int, float> t) {}\n"
    assert split(Source(head + SCALE, "cuda")) == Whole("a std::tuple in a launch")
    assert cuda_reasons.of_instance("k<float, std::optional<int>>") == "a std::optional in a launch"
    assert cuda_reasons.of_instance("k<std::pair<int, float>>") == ""


VIEW = """\
struct View {
  float* at;
  View(const Tensor& t) : at(const_cast<float*>(t.const_data_ptr<float>())) {}
  __device__ float& operator[](int i) const { return at[i]; }
};
__global__ void more(View x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 1; }
"""


@has_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "because"),
    [
        (VIEW, "View, which host and device code share"),
        ("#include <cub/cub.cuh>\n__device__ cub::WarpReduce<float>::TempStorage* kept;\n", ""),  # kernels' part of it
        ("#include <cub/cub.cuh>\n__device__ cub::CachingDeviceAllocator* kept;\n", "cub::CachingDeviceAllocator"),
    ],
)
def test_nvcc_has_what_the_device_half_lacks(scale, before, because):
    assert built(scale, before + SCALE).built.because == because


def test_nvrtc_is_not_asked_twice(scale, monkeypatch):
    built(scale, SCALE)
    monkeypatch.setattr(nvrtc.Unit, "make", lambda *_: pytest.fail("the cubin is in the store"))
    assert built(scale, SCALE).cached


# ---------------------------------------------------------------- nvcc

SORT = """\
#include <thrust/device_ptr.h>
#include <thrust/sort.h>
#include <thrust/execution_policy.h>
__global__ void times(const float* x, float* out, float k, int n) { int i = threadIdx.x; if (i < n) out[i] = x[i] * k; }
Tensor scale(const Tensor& x, float k) {
  Tensor out = torch::stable::empty_like(x);
  times<<<1, x.numel(), 0, wb::current_stream()>>>(x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), k, x.numel());
  thrust::device_ptr<float> first(out.mutable_data_ptr<float>());
  thrust::sort(thrust::cuda::par.on(wb::current_stream()), first, first + x.numel());
  return out;
}
"""
FREE = SCALE.replace("const dim3 grid", "size_t free, total;\n  cudaMemGetInfo(&free, &total);\n  const dim3 grid")


@has_nvcc
def test_nvcc_compiles_what_cannot_be_parted(scale):
    kernel = built(scale, FREE)
    assert kernel.built.because == "cudaMemGetInfo"
    assert kernel.built.device is None
    assert kernel.built.host.tier == "nvcc"
    assert {r.kernel for r in kernel.resources} == {"times<float, 8>", "times<double, 8>"}
    assert all(r.registers > 0 for r in kernel.resources)
    assert kernel.because.endswith("; nvcc: cudaMemGetInfo")
    assert [d.message for d in kernel.diagnostics] == [
        "nvcc compiled the whole cell, for cudaMemGetInfo: without it an edit takes a second"
    ]
    assert built(scale, "// another comment\n" + FREE).built.host.cached is False
    assert built(scale, FREE).cached


@has_nvcc
def test_nvccs_errors_are_on_the_users_lines(scale):
    with pytest.raises(BuildError) as caught:
        built(scale, FREE.replace("if (i < n) out[i]", "if (i < n) oud[i]"))
    assert (caught.value.file, caught.value.line) == ("cell [3]", 4)
    assert 'identifier "oud" is undefined' in caught.value.message


@has_nvcc
@pytest.mark.slow
def test_thrust_is_nvccs(scale):
    kernel = built(scale, SORT)
    assert kernel.built.because == "thrust::device_ptr"
    assert "times" in {r.kernel for r in kernel.resources}


@has_nvcc
@pytest.mark.slow
def test_a_name_that_host_and_device_code_share_where_a_half_cannot_have_it(scale):
    text = """\
#include <cooperative_groups.h>
struct Shape { using block = cooperative_groups::thread_block; static constexpr int size = 8; };
""" + SCALE.replace("(n + 7) / 8", "(n + 7) / Shape::size").replace("if (i < n)", "if (i < n && Shape::size)")
    kernel = built(scale, text)
    assert kernel.built.because == "Shape, which host and device code share"


def test_without_nvcc_the_error_says_what_asked_for_it(scale, monkeypatch):
    monkeypatch.setattr(nvcc.shutil, "which", lambda *_, **__: None)
    with pytest.raises(
        ToolchainError, match="cudaMemGetInfo needs nvcc, and there is none: neither CUDA_HOME nor PATH"
    ):
        built(scale, FREE)


@has_nvcc
def test_an_arch_that_nvcc_does_not_know(scale, monkeypatch):
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_35")
    with pytest.raises(ToolchainError, match="does not compile for sm_35: set WORKBENCH_ARCH"):
        built(scale, FREE)


# ---------------------------------------------------------------- architectures in flags and texts

NEEDS_SM_90A = SCALE.replace("if (i < n)", 'asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");\n  if (i < n)')
LIST = " ".join(f"-gencode arch=compute_{n},code=sm_{n}" for n in (80, 90, 100))


@pytest.fixture
def for_sm_90(monkeypatch):
    monkeypatch.setattr(gpu, "present", lambda: False)
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")


@pytest.mark.parametrize(
    ("flags", "arch"),
    [
        ("", "sm_90"),
        ("-arch=sm_80", "sm_80"),
        ("-arch sm_90a", "sm_90a"),
        (LIST, "sm_90"),
        ("-arch=sm_100f", "sm_100f"),
    ],
)
def test_the_device_half_is_for_the_architecture_of_its_flags(scale, for_sm_90, flags, arch):
    kernel = built(scale, f"//! flags -O3 {flags}\n{SCALE}")
    assert kernel.built.because == "" and kernel.arch == kernel.compiled_for == arch
    assert driver.arch_of(Path(kernel.built.device.path).read_bytes()) == arch


def test_a_text_that_needs_sm_90a_is_for_it(scale, for_sm_90):
    kernel = built(scale, NEEDS_SM_90A)
    assert (kernel.arch, kernel.build_notes) == ("sm_90a", ("for sm_90a: setmaxnreg in the text",))
    assert driver.arch_of(Path(kernel.built.device.path).read_bytes()) == "sm_90a"


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("-arch=hopper", "-arch=hopper names no GPU architecture"),
        ("-arch=sm_42", "does not compile for sm_42; .* Write one of these"),
    ],
)
def test_an_architecture_in_flags_that_is_none(scale, for_sm_90, flag, said):
    with pytest.raises(ToolchainError, match=said):
        built(scale, f"//! flags {flag}\n{SCALE}")


@has_nvcc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "flags", "arch"),
    [(NEEDS_SM_90A, "-ftz=true", "sm_90a"), (SCALE, "-arch=sm_80 -rdc=true -fopenmp", "sm_80")],
)
def test_nvcc_compiles_the_whole_for_it(scale, for_sm_90, text, flags, arch):
    text = text.replace("const dim3 grid", "size_t all, total;\n  cudaMemGetInfo(&all, &total);\n  const dim3 grid")
    kernel = built(scale, f"//! flags {flags}\n{text}")
    assert kernel.built.because == "cudaMemGetInfo" and kernel.arch == arch
    assert {driver.arch_of(c) for c in embedded(kernel.built.host.path)} == {arch}


@has_nvcc
@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("-arch=hopper", "-arch=hopper names no GPU architecture"),
        ("-arch=sm_42", "does not compile for sm_42: write another one in its flags"),
    ],
)
def test_nvcc_is_given_an_architecture_that_is_none(scale, for_sm_90, flag, said):
    with pytest.raises(ToolchainError, match=said):
        built(scale, f"//! flags {flag}\n{FREE}")
