"""The text of a CUDA body: prelude, constants, the user's lines, names of kernels; compiled where NVRTC must agree."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.build.nvrtc_tools import body, compiled, parsed, symbols
from tests.directives.cells import SCHEMAS
from tests.example_cells import CUDA as CELLS
from workbench.build import cuda_body, nvrtc
from workbench.errors import BuildError, SchemaError
from workbench.source import Source, functions

GOLDEN = Path(__file__).parent / "golden"
f32, f64, f16, bf16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
i8, i32 = torch.int8, torch.int32
FLOATING = (f32, f64, f16, bf16)
ARGUMENTS = {
    "rmsnorm": lambda t: {"x": t, "w": f32},
    "rmsnorm.backward": lambda t: {"x": t, "w": t, "grad_y": t, "y": t, "rstd": f32},
    "matmul": lambda t: {"a": t, "b": t},
    "kv_write_": lambda t: {
        "k": t,
        "v": t,
        "k_cache": t,
        "v_cache": t,
        "block_table": i32,
        "pos": i32,
        "k_scale": None,
        "v_scale": t,
    },
    "quantise": lambda t: {"x": t},
    "dequantise": lambda t: {"q": i8, "scale": f32},
    "topk": lambda t: {"x": t},
}


def simple(
    kernel: str, schema: str = "lab::f(Tensor x) -> Tensor", tuned: dict | None = None, directives: str = "", **dtypes
):
    text = f"//! out = empty_like(x)\n{directives}//! grid = 1\n//! block = 32\n{kernel}\n"
    return body(schema, text, dtypes or {"x": f32}, tuned)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_whole_cells_compile_for_every_dtype(name):
    op, _, slot = name.partition(".")
    made = [body(SCHEMAS[op], CELLS[name], ARGUMENTS[name](t), entry=slot or "forward") for t in FLOATING]
    made = list(dict.fromkeys(cuda_body.together(made)))
    assert len({b.text for b in made}) == 1
    build = nvrtc.compile(made[0].text, arch="sm_90", names=[n for b in made for n in b.names])
    assert set(build.names) <= symbols(build.path)
    assert (
        len(build.resources)
        == len(build.names)
        == len(made) * len(parsed(SCHEMAS[op], CELLS[name], slot or "forward")[1].functions)
    )
    assert all(r.registers > 0 and r.spills == 0 for r in build.resources)
    assert build.diagnostics == ()


def test_golden_text():
    source, declaration = parsed(SCHEMAS["rmsnorm"], CELLS["rmsnorm"], file='a "quoted"\\name.cu')
    got = cuda_body.instantiate(source, declaration, {"x": bf16, "w": f32})
    path = GOLDEN / "rmsnorm_body.cu"
    assert got.text == path.read_text(encoding="utf-8"), f"new text for {path}:\n{got.text}"
    assert got.names == ("rmsnorm<__nv_bfloat16, float, 256>",)
    assert got.parameters == (
        ((0, "__nv_bfloat16*"), (1, "float*"), (6, "__nv_bfloat16*"), (7, "float*"), (2, "float"), (3, "int")),
    )


def test_tuned_values_are_template_arguments_or_constants_never_macros():
    kernel = "template <int TILE> __global__ void f(const float* x, float* out) { out[TILE] = x[DEPTH] + SLOPE; }"
    made = simple(
        kernel,
        tuned={"TILE": 32, "DEPTH": 8},
        directives="//! tune TILE = 16, 32\n//! tune DEPTH = 4, 8\n//! tune SLOPE = 0.5, 2\n//! tune BIG = 5000000000\n",
    )
    assert made.names == ("f<32>",)
    assert made.text.split("#line")[0].splitlines() == [
        '#include "wb_cuda.h"', "constexpr int DEPTH = 8;", "constexpr double SLOPE = 0.5;", "constexpr long long BIG = 5000000000;",
    ]  # fmt: skip
    assert compiled(made).diagnostics == ()


@pytest.mark.parametrize(
    ("type_", "code"),
    [
        ("float", "float"), ("double", "double"), ("bool", "bool"), ("int", "int"), ("unsigned", "unsigned int"), ("long long", "int64_t"),
        ("unsigned long long", "uint64_t"), ("int64_t", "int64_t"), ("size_t", "uint64_t"), ("signed char", "int8_t"), ("unsigned char", "uint8_t"),
        ("short", "int16_t"), ("uint16_t", "uint16_t"), ("__half", "half"), ("half", "half"), ("__nv_bfloat16", "bfloat16"), ("nv_bfloat16", "bfloat16"),
    ],
)  # fmt: skip
def test_scalars_have_codes(type_, code):
    argument = "float" if code in ("float", "double", "half", "bfloat16") else "int"
    made = simple(
        f"__global__ void f(const float* x, float* out, {type_} k) {{ out[0] = x[0] * float(k); }}",
        f"lab::f(Tensor x, {argument} k) -> Tensor",
    )
    assert made.parameters == (((0, "float*"), (2, "float*"), (1, code)),)
    assert compiled(made).resources[0].registers > 0


@pytest.mark.parametrize(
    ("type_", "dtype"),
    [
        ("__half", f16), ("half", f16), ("__nv_bfloat16", bf16), ("nv_bfloat16", bf16), ("bfloat16", bf16), ("__nv_fp8_e4m3", torch.float8_e4m3fn),
        ("__nv_fp8_e5m2", torch.float8_e5m2), ("signed char", i8), ("int8_t", i8), ("unsigned char", torch.uint8), ("long long", torch.int64),
        ("int64_t", torch.int64), ("bool", torch.bool), ("double", f64), ("short", torch.int16), ("unsigned", torch.uint32),
    ],
)  # fmt: skip
def test_pointers_take_their_dtype_and_no_other(type_, dtype):
    kernel = f"__global__ void f(const {type_}* x, {type_}* out) {{ out[0] = x[1]; }}"
    assert compiled(simple(kernel, x=dtype)).resources[0].registers > 0
    other = torch.int32
    got = str(dtype).removeprefix("torch.")
    with pytest.raises(
        SchemaError, match=rf"f has no form for int32: its parameter 'const {type_}\* x' takes {got} alone, x is int32"
    ) as caught:
        simple(kernel, x=other)
    assert (caught.value.file, caught.value.line) == ("cell [3]", 5)


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16, torch.float8_e4m3fn, torch.float8_e5m2, i8, torch.int16, i32, torch.int64,
                                   torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool])  # fmt: skip
def test_a_template_takes_every_dtype(dtype):
    assert (
        compiled(simple("template <typename T> __global__ void f(const T* x, T* out) { out[0] = x[1]; }", x=dtype))
        .resources[0]
        .registers
        > 0
    )


@pytest.mark.parametrize(
    ("dtype", "type_"),
    [("float8_e4m3fn", "__nv_fp8_e4m3"), ("torch.float8_e5m2", "__nv_fp8_e5m2"), ("uint16", "uint16_t"), ("uint64", "uint64_t")],
)  # fmt: skip
def test_directives_make_tensors_of_every_dtype_that_kernels_take(dtype, type_):
    made = simple(
        f"template <typename T> __global__ void k(const float* x, T* q, {type_}* r, float* out) {{ q[0] = T(x[0]); r[0] = q[0]; }}",
        directives=f"//! q = empty_like(x, dtype={dtype})\n//! r = empty(1, dtype={dtype})\n",
    )
    assert made.names[0].startswith(f"k<{type_}>")
    assert compiled(made).resources[0].registers > 0


def test_a_dtype_that_no_type_holds_is_refused():
    with pytest.raises(
        SchemaError,
        match="f has no form for complex64, which no C\\+\\+ type holds; kernels take float32, .*float8_e5m2",
    ):
        simple("template <typename T> __global__ void f(const T* x, T* out) { out[0] = x[1]; }", x=torch.complex64)


def test_headers_come_only_where_they_are_needed():
    template = "template <typename T> __global__ void f(const T* x, T* out) { /* half */ out[0] = x[0]; }"
    assert simple(template).text.split("#line")[0] == '#include "wb_cuda.h"\n'
    assert simple(template, x=f16).text.split("#line")[0] == '#include "wb_cuda.h"\n#include <cuda_fp16.h>\n'
    assert "cuda_fp8.h" in simple(template, x=torch.float8_e5m2).text
    by_text = simple(
        "__global__ void f(const float* x, float* out) { bfloat16 b = x[0]; half2 h = {}; out[0] = std::max(float(b), float(h.x)); }"
    )
    assert by_text.text.split("#line")[0].splitlines() == [
        '#include "wb_cuda.h"', '#include "wb_cuda_std.h"', "#include <cuda_fp16.h>", "#include <cuda_bf16.h>", "using bfloat16 = __nv_bfloat16;",
    ]  # fmt: skip
    assert compiled(by_text).diagnostics == ()
    own = simple(
        "struct half { float f; };\nstruct bfloat16 { float f; };\n__global__ void f(const float* x, float* out) { half h{x[0]}; out[0] = h.f; }"
    )
    assert "cuda_fp16" not in own.text
    assert "using bfloat16" not in own.text


def test_forms_for_several_dtypes_share_one_text():
    template = "template <typename T> __global__ void f(const T* x, T* out) { out[0] = x[0]; }"
    made = [simple(template, x=t) for t in (f32, bf16, f16)]
    shared = cuda_body.together(made)
    assert {b.text.split("#line")[0] for b in shared} == {
        '#include "wb_cuda.h"\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n'
    }
    assert [b.names for b in shared] == [("f<float>",), ("f<__nv_bfloat16>",), ("f<__half>",)]
    assert shared[0].text.split("#line")[1] == made[0].text.split("#line")[1]
    build = nvrtc.compile(shared[0].text, arch="sm_90", names=[n for b in shared for n in b.names])
    assert [r.kernel for r in build.resources] == ["f<float>", "f<__nv_bfloat16>", "f<__half>"]
    other = simple(template, x=f32, directives="//! tune DEPTH = 4, 8\n")
    assert cuda_body.together([made[0], other]) == (made[0], other)


def test_kernels_in_namespaces_and_extern_c():
    text = """\
//! out = empty_like(x)
namespace mine { namespace deep {
//! grid = 1
//! block = 32
template <typename T> __global__ void __launch_bounds__(64) first(const T* __restrict__ x, T* out) { out[0] = x[0]; }
} }
extern "C" {
//! grid = 1
//! block = 32
__global__ void second(const float* x, float* __restrict__ out, const unsigned long long n) { out[n] = x[0]; }
}
"""
    made = body("lab::f(Tensor x, int n) -> Tensor", text, {"x": f32})
    assert made.names == ("mine::deep::first<float>", "(void(*)(const float*, float*, unsigned long long))second")
    build = compiled(made)
    assert build.names == ("_ZN4mine4deep5firstIfEEvPKT_PS2_", "second")
    assert [r.kernel for r in build.resources] == ["mine::deep::first<float>", "second"]


@pytest.mark.parametrize("name", ["exp", "min", "printf", "sqrt", "memcpy"])
def test_a_kernel_may_bear_the_name_of_a_function_of_cuda(name):
    build = compiled(simple(f"__global__ void {name}(const float* x, volatile float out[]) {{ out[0] = x[0]; }}"))
    assert build.names[0].startswith(f"_Z{len(name)}{name}P")


def test_a_none_tensor_takes_the_type_of_the_others():
    kernel = "template <typename T, typename S> __global__ void f(const T* x, const S* s, T* out) { out[0] = s ? x[0] * T(s[0]) : x[0]; }"
    assert simple(kernel, "lab::f(Tensor x, Tensor? s) -> Tensor", x=f16, s=None).names == ("f<__half, __half>",)


def test_one_type_for_two_dtypes_is_refused():
    kernel = "template <typename T> __global__ void f(const T* x, const T* y, T* out) {}"
    with pytest.raises(
        SchemaError, match="f: the type T would be float32 for x, float16 for y; give each a type of its own"
    ):
        simple(kernel, "lab::f(Tensor x, Tensor y) -> Tensor", x=f32, y=f16)


def test_an_error_is_on_the_users_line():
    with pytest.raises(
        BuildError,
        match=r'cell \[3\], line 6: identifier "nothing" is undefined\n    out\[0\] = nothing;\n             \^',
    ) as caught:
        compiled(simple("__global__ void f(const float* x, float* out) {\n  out[0] = nothing;\n}"))
    assert [(d.file, d.line, d.column, d.excerpt) for d in caught.value.diagnostics] == [
        ("cell [3]", 6, 12, "  out[0] = nothing;")
    ]


PASTED = """\
#include <cstdint>
#include <cstdio>
#include <cmath>
#include <float.h>
#include <stdint.h>
#include <limits>
#include <assert.h>
#include <algorithm>
#include <vector>
#include <cuda.h>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#include <type_traits>
#define M_PI 3.14159265358979323846
typedef long long int64_t;
template <typename T> struct acc { using type = typename std::conditional<std::is_same<T, double>::value, double, float>::type; };
__device__ __forceinline__ float square(float v) { return v * v; }
static __host__ __device__ inline int up(int a, int b) { return (a + b - 1) / b; }
//! out = empty_like(x)
//! grid = 1
//! block = 32
template <typename scalar_t>
__global__ void pasted(const scalar_t* __restrict__ x, scalar_t* __restrict__ out, const int n) {
  typename acc<scalar_t>::type best = -std::numeric_limits<float>::infinity();
  uint8_t small = UINT8_MAX; size_t big = SIZE_MAX; std::size_t other = sizeof(uint32_t); std::int64_t far = INT64_MIN; uint plain = UINT_MAX;
  for (int i = threadIdx.x; i < n; i += blockDim.x) best = std::max(best, static_cast<decltype(best)>(x[i]));
  assert(n >= 0);
  if (isinf(best)) printf("%d %f\\n", up(n, 32), FLT_MAX + INFINITY + NAN + (float)M_PI + INT_MAX + DBL_EPSILON + CHAR_BIT);
  float a = std::sqrt(square(2.f)), b = 3; std::swap(a, b);
  out[0] = scalar_t(best + a + small + big + far + plain + other + std::fabs(a) + std::pow(a, 2.f) + fmaxf(a, 1.f) + offsetof(float4, y));
}
"""


@pytest.mark.parametrize("dtype", [f32, f64])
def test_pasted_cuda_compiles(dtype):
    build = compiled(body("lab::f(Tensor x, int n) -> Tensor", PASTED, {"x": dtype}))
    assert build.diagnostics == ()
    assert build.resources[0].registers > 10


def test_a_function_without_device_compiles_with_a_warning():
    made = simple(
        "constexpr int up(int a) {\n  return a + 1; }\n__global__ void f(const float* x, float* out) { out[0] = x[up(3)]; }"
    )
    build = compiled(made)
    (said,) = build.diagnostics
    assert (said.severity, said.line, said.message) == (
        "warning",
        5,
        "this function has no __device__; it was compiled as if it had, but nvcc will want it",
    )
    with pytest.raises(
        BuildError,
        match="line 5: this is a function for the host, and a raw cell holds device code alone: write __device__ before it",
    ):
        compiled(simple("void host() { cudaMalloc(0, 1, 2, 3); }\n__global__ void f(const float* x, float* out) {}"))


def test_name_expressions_keep_what_was_written():
    found = functions(
        "namespace a { __global__ void k(const volatile float* x, float y[], unsigned long long n, const int* __restrict__ i) {} }",
        "cuda",
    )
    assert (
        cuda_body.name_expression(found[0], {})
        == "(void(*)(const volatile float*, float*, unsigned long long, const int*))a::k"
    )
    assert cuda_body.prelude(Source("__global__ void k() {}", "cuda")) == ['#include "wb_cuda.h"']
