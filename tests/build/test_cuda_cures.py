"""What is said beside an error of NVRTC, and that a text which follows it compiles."""

from __future__ import annotations

import pytest

from workbench.build import cuda_cures, cuda_headers, nvrtc
from workbench.errors import BuildError, Diagnostic

ARCH = "sm_90"


def compile(head: str, body: str):
    text = f'#include "wb_cuda.h"\n#line 2 "cell [3]"\n{head}\n__global__ void k(float* x, const float* y, int n) {{\n{body}\n}}\n'
    return nvrtc.compile(text, arch=ARCH)


# (the body, what is told, the lines at the top that it asks for)
MISSING = {
    "cooperative_groups": ("cooperative_groups::this_thread_block().sync();", "", "#include <cooperative_groups.h>"),
    "cg": ("auto b = cg::this_thread_block();\nb.sync();", " and 'namespace cg = cooperative_groups;' below it",
           "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;"),
    "cub, a block": ("__shared__ cub::BlockReduce<float, 32>::TempStorage s;", "", "#include <cub/block/block_reduce.cuh>"),
    "cub, a warp": ("__shared__ cub::WarpMergeSort<float, 1, 32>::TempStorage s;", "", "#include <cub/warp/warp_merge_sort.cuh>"),
    "cub": ("cub::KeyValuePair<int, float> s;\nx[0] = s.value;", "", "#include <cub/cub.cuh>"),
    "wmma": ("wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;\nwmma::fill_fragment(f, 0.f);",
             " and 'using namespace nvcuda;' below it", "#include <mma.h>\nusing namespace nvcuda;"),
    "cuda::atomic_ref": ("cuda::atomic_ref<float>(x[0]) += 1.f;", "", "#include <cuda/atomic>"),
    "pipeline": ("__shared__ float s[4];\n__pipeline_memcpy_async(s, y, 4);", "", "#include <cuda_pipeline.h>"),
    "math_constants": ("x[0] = CUDART_INF_F;", "", "#include <math_constants.h>"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISSING)
def test_a_missing_include_is_named_and_is_the_right_one(what):
    body, more, head = MISSING[what]
    with pytest.raises(BuildError) as caught:
        compile("", body)
    first = head.partition("\n")[0]
    assert caught.value.message.partition("\n")[0].endswith(f"; add '{first}' at the top{more}")
    assert (caught.value.file, caught.value.line) == ("cell [3]", 4 + body.startswith("__shared__ float"))
    assert compile(head, body).path


GROUPS = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;"
REDUCE = "auto w = cg::tiled_partition<32>(cg::this_thread_block());\nx[0] = cg::reduce(w, y[0], cg::plus<float>());"
SCAN = "using S = cub::BlockScan<float, 32>;\n__shared__ S::TempStorage s;\nfloat v = y[threadIdx.x];\nS(s).InclusiveScan(v, v, OP);\nx[0] = v;"
INSTEAD = {
    "reduce": ((GROUPS, REDUCE), "add '#include <cooperative_groups/reduce.h>' at the top",
               (f"{GROUPS}\n#include <cooperative_groups/reduce.h>", REDUCE)),
    "cub::Max": (("#include <cub/cub.cuh>", SCAN.replace("OP", "cub::Max()")), "write cuda::maximum<>{}, with '#include <cuda/functional>'",
                 ("#include <cub/cub.cuh>\n#include <cuda/functional>", SCAN.replace("OP", "cuda::maximum<>{}"))),
    "cub::Sum": (("#include <cub/cub.cuh>", SCAN.replace("OP", "cub::Sum()")), "write cuda::std::plus<>{}, with '#include <cuda/std/functional>'",
                 ("#include <cub/cub.cuh>\n#include <cuda/std/functional>", SCAN.replace("OP", "cuda::std::plus<>{}"))),
    "min": (("", "n = min(n, n - 1L);"), '"min" matches the argument list; its arguments are of two types: cast one',
            ("", "n = min(n, int(n - 1L));")),
    "shuffle": (("", "x[0] = __shfl_xor_sync(x[0], 1);"), "the mask comes first: (~0u, value, lanes)",
                ("", "x[0] = __shfl_xor_sync(~0u, x[0], 1);")),
    "half": (("#include <cuda_fp16.h>", "__half h = x[0];\nx[0] = h - y[0];"), "convert to several numbers: write float(...) around them",
             ("#include <cuda_fp16.h>", "__half h = x[0];\nx[0] = float(h) - y[0];")),
    "bfloat16": (("#include <cuda_bf16.h>", "__nv_bfloat16 h = x[0];\nx[0] = h * y[0];"), "write float(...) around them",
                 ("#include <cuda_bf16.h>", "__nv_bfloat16 h = x[0];\nx[0] = float(h) * y[0];")),
    "atomicAdd of int64_t": (("", "atomicAdd((int64_t*)x, 1);"), "it takes a pointer to int, unsigned, unsigned long long",
                             ("", "atomicAdd((unsigned long long*)x, 1ull);")),
    "atomicAdd": (("", "atomicAdd(y, 1.f);"), "or double that is not const", ("", "atomicAdd(x, 1.f);")),
}  # fmt: skip


@pytest.mark.parametrize("what", INSTEAD)
def test_what_to_write_instead_compiles(what):
    wrong, words, right = INSTEAD[what]
    with pytest.raises(BuildError) as caught:
        compile(*wrong)
    assert words in caught.value.message
    assert compile(*right).path


@pytest.mark.parametrize(("body", "words"), [
    ("cudaDeviceSynchronize();", "threads of a block wait with __syncthreads()"),
    ("float* p;\ncudaMalloc(&p, 4);", "memory is made above, as in '//! buffer = empty(n, dtype=float32)'"),
    ("cudaMemset(x, 0, 4);", "'//! out = zeros(n)'"),
    ("cudaGetLastError();", "the CUDA runtime is the host's"),
    ("TORCH_CHECK(n > 0);", "'//! require n > 0'"),
    ("auto s = wb::current_stream();", "wb:: is for functions on Tensor"),
    ("k<<<1, 1>>>(x, y, n);", "kernels here launch none: the host does"),
    ("size_t of = 0;\ncub::DeviceReduce::Sum(nullptr, of, x, x, 1);", "it is called by the host, in a function on Tensor"),
])  # fmt: skip
def test_what_is_the_hosts(body, words):
    for head in ("", "#include <cub/cub.cuh>") if "cub" in body else ("",):
        with pytest.raises(BuildError) as caught:
            compile(head, body)
        assert words in caught.value.message


def test_dynamic_shared_memory_of_two_types_is_told_before_what_follows_from_it():
    head = "template <typename T> __global__ void two(T* x) {\nextern __shared__ T s[];\nx[0] = s[0] * s[1];\n}"
    more = "template __global__ void two<float>(float*);\ntemplate __global__ void two<double>(double*);"
    with pytest.raises(BuildError) as caught:
        compile(f"{head}\n{more}", "")
    assert caught.value.line == 3
    assert (
        "declare 'extern __shared__ char bytes[]', and let a 'T*' point to it with reinterpret_cast"
        in caught.value.message
    )
    plain = head.replace("T s[];", "char bytes[];\nT* s = reinterpret_cast<T*>(bytes);")
    assert compile(f"{plain}\n{more}", "").path


def test_the_whole_of_cub_is_what_kernels_call_of_it():
    kinds = ("BlockLoad<float, 32, 1>", "BlockRadixSort<float, 32, 1>", "BlockScan<float, 32>", "WarpReduce<float>")
    union = " ".join(f"typename cub::{kind}::TempStorage s{n};" for n, kind in enumerate(kinds))
    built = compile("#include <cub/cub.cuh>", f"__shared__ union {{ {union} }} s;\nfloat v[1];\n"
                    "cub::BlockLoad<float, 32, 1>(s.s0).Load(y, v);\nx[0] = cub::WarpReduce<float>(s.s3).Sum(v[0]);")  # fmt: skip
    assert "cub/cub.cuh: " in built.note or "cub" not in built.note
    assert cuda_headers.of_cuda(("cub/cub.cuh",)) == ("cub/cub.cuh",)


@pytest.mark.parametrize(
    "message", ['identifier "foo" is undefined', 'namespace "cub" has no member "BlockRedcue"', "expected a ;"]
)
def test_where_we_know_nothing_better(message):
    assert cuda_cures.cure(Diagnostic("cell", 1, 1, "error", message, "")) == ""
