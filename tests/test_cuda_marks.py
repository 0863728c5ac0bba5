"""Macros that stand for CUDA's marks, and attributes that the grammar misreads."""

from __future__ import annotations

import pytest

from workbench.cuda_marks import expanded, parsable
from workbench.source import functions

HD = "#ifdef __CUDACC__\n#define HD __host__ __device__\n#else\n#define HD inline\n#endif\n"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("#define DEV __device__ inline  // words\nDEV int g();", "__device__ inline int g();"),
        (HD + "HD int g();", "__host__ __device__ int g();"),
        ("#define DEV __device__\n#define FAST DEV \\\n  __forceinline__\nFAST int g();", "__device__ __forceinline__ int g();"),
        ('#define DEV __device__\nconst char* DEVICE = "DEV"; // DEV', 'const char* DEVICE = "DEV"; // DEV'),
        ("#define real unsigned int\nreal n;", "unsigned int n;"),
        ("#ifdef D\n#define real double\n#else\n#define real float\n#endif\nreal n;", "real n;"),
        ("#define T float\n#undef T\ntemplate <typename T> T n;", "template <typename T> T n;"),
        ("#define N 4\nint n = N;", "int n = N;"),
        ("#define MAKE(T) __device__ T g_##T();\nMAKE(int)", "MAKE(int)"),
        ("// #define DEV __device__\nDEV int g();", "DEV int g();"),
    ],
)  # fmt: skip
def test_macros_that_stand_for_marks_are_spelled_out(text, last):
    made = expanded(text)
    assert made.rpartition("\n")[2] == last
    assert made.count("\n") == text.count("\n") and made.startswith(text.rpartition("\n")[0])


def test_macros_of_headers_count_too():
    header = "#pragma once\n#define KERNEL __global__ void  // a kernel\n#define REAL float\n"
    text = "#define OUT REAL\nKERNEL k(REAL* x) {}"
    assert expanded(text, header) == "#define OUT REAL\n__global__ void k(float* x) {}"
    assert expanded("KERNEL k(REAL* x) {}", header).endswith("k(float* x) {}")
    assert expanded(text) == text


def test_attributes_are_blanked_in_place():
    text = "struct __align__(16) P {};\n__global__ void __cluster_dims__(2, (1), f(1, g(2)))\nk() {}"
    made = parsable(text)
    assert made.split() == ["struct", "P", "{};", "__global__", "void", "k()", "{}"]
    assert len(made) == len(text) and made.index("k()") == text.index("k()")


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void __cluster_dims__(2, 1, 1)",
        "__cluster_dims__(2) __global__ void",
        "__global__ __maxnreg__(32) void",
        "__global__ void __launch_bounds__(256) __block_size__((256), (2))",
        "struct __align__(16) P { float x; };\n__global__ void",
        "#define BOUNDS __launch_bounds__(256)\n__global__ void BOUNDS",
        "#define KERNEL __global__ void __launch_bounds__(64)\nKERNEL",
    ],
)
def test_a_kernel_is_found_behind_them(head):
    (found,) = functions(f"{head} k(const float* x, int n) {{ }}\n", "cuda")
    assert (found.name, found.is_global, [p.name for p in found.parameters]) == ("k", True, ["x", "n"])


@pytest.mark.parametrize("language", ["cpp", "cuda"])
@pytest.mark.parametrize("restrict", ["__restrict__", "__restrict"])
def test_a_pointer_that_a_macro_restricts(language, restrict):
    (found,) = functions(
        f"#define RESTRICT {restrict}\nvoid f(const float* RESTRICT x, float* RESTRICT out) {{}}", language
    )
    assert [(p.name, p.type, p.const) for p in found.parameters] == [("x", "float", True), ("out", "float", False)]
