"""A CUDA text as two halves: what goes where, whose lines these are, and what only nvcc can compile."""

from __future__ import annotations

import pytest

from workbench.build import symbols
from workbench.build.cuda_pieces import Text
from workbench.build.cuda_split import Halves, Whole, split
from workbench.errors import BuildError, Diagnostic
from workbench.source import Source

FUNCTION = "Tensor f(const Tensor& x) { return x; }\n"
KERNEL = "__global__ void k(int* x) { *x = 1; }\n"


def halves(text: str, **options) -> tuple[str, str]:
    found = split(Source(text, "cuda", "cell [3]", 2, **options))
    assert isinstance(found, Halves), found
    return tuple("\n".join(p.text for p in half) for half in (found.device, found.host))


@pytest.mark.parametrize(
    ("item", "device", "host"),
    [
        ("__device__ float g(float x) { return x; }", True, False),
        ("__host__ __device__ int g(int x) { return x; }", True, True),
        ("constexpr int g(int x) { return x; }", False, True),
        ("static int g(int x) { return x; }", False, True),
        ("__constant__ float c[4];", True, False),
        ("__device__ int n = 0;", True, False),
        ("__device__ float g(float x);", True, False),
        ("constexpr int N = 4;", False, True),
        ("static int calls = 0;", False, True),
        ('const std::string name = "k";', False, True),
        ("enum class Mode { A, B };", True, True),
        ("using real = float;", True, True),
        ("struct Held { Tensor t; };", False, True),
        ("namespace cg = cooperative_groups;", True, False),
        ("#include <vector>", False, True),
        ("#include <cstdint>", True, True),
        ("#include <cuda_fp16.h>", True, False),
        ("#include <cooperative_groups/reduce.h>", True, False),
        ("#include <cub/block/block_reduce.cuh>", True, False),
        ("#include <cuda_runtime.h>", False, False),
        ("#define TILE 4", True, True),
        ("__global__ void k(int* x);", True, True),
        ("// only words", False, False),
    ],
)  # fmt: skip
def test_what_goes_where(item, device, host):
    got = halves(f"{item}\n{FUNCTION}")
    assert (item in got[0], item in got[1]) == (device, host)


@pytest.mark.parametrize(
    "item",
    [
        "constexpr int used = 4;",
        "static const float used[] = {1, 2};",
        "constexpr int used(int x) { return x; }",
        "template <typename T> inline constexpr bool used = false;",
        "namespace a { const int used = 2; }",
    ],
)
def test_a_constant_without_a_mark_goes_where_it_is_named(item):
    for user in (
        "",
        "constexpr int more = sizeof(used);\n__device__ int g() { return more; }\n",
        "#define MORE used\n",
    ):
        device, host = halves(f"{item}\n{user}{FUNCTION}")
        assert (" used" in device, " used" in host) == (bool(user), True)


@pytest.mark.parametrize(
    "item",
    [
        'static const bool kDebug = std::getenv("DEBUG") != nullptr;',
        "static const auto kAdd = [](int a, int b) { return a + b; };",
        'static const char* kName = "scale";',
        "struct Timer { std::chrono::steady_clock::time_point t; };",
        'constexpr int pick(int n) { return n ? n : throw std::runtime_error("none"); }',
    ],
)
def test_what_only_the_host_uses_may_be_of_any_kind(item):
    assert halves(f"{item}\n{KERNEL}{FUNCTION}")[0] == KERNEL.rstrip()


def test_conditions_hold_in_the_host_half_as_they_do_for_nvcc():
    device, host = halves(f"#ifdef __CUDACC__\n{KERNEL}#endif\n{FUNCTION}")
    assert device.startswith("#ifdef __CUDACC__\n")
    assert host.startswith("#ifdef WB_CUDACC\n__global__ void k")


@pytest.mark.parametrize(("uses", "kept"), [("1", False), ("std::numeric_limits<int>::max()", True)])
def test_a_costly_header_goes_where_it_is_used(uses, kept):
    device, host = halves(f"#include <limits>\n__device__ int g() {{ return {uses}; }}\n{FUNCTION}")
    assert ("<limits>" in device, "<limits>" in host) == (kept, True)


def test_types_that_hold_types_of_the_host():
    device, host = halves("struct Held { Tensor t; };\nusing Mine = Held;\nstruct Own { int n; };\n" + FUNCTION)
    assert "Mine" not in device
    assert "using Mine = Held;" in host
    assert "struct Own { int n; };" in device


def test_a_kernel_is_a_stub_to_its_host_half():
    text = """\
template <typename T, int N = 4, typename... Rest>
static __global__ void __launch_bounds__(256) k(const T* __restrict__ x, T* out, Rest... rest) {
  out[0] = x[0];
}
"""
    device, host = halves(text + FUNCTION)
    assert text.replace("static", "      ").strip() in device
    assert host.startswith("""\
template <typename T, int N = 4, typename... Rest>
       __global__ void __launch_bounds__(256) k(const T* __restrict__ x, T* out, Rest... rest) \
{ wb::launch((const void*)&k<T, N, Rest...>, "k", {(void*)&x, (void*)&out, (void*)&rest...}); }""")


@pytest.mark.parametrize(
    ("item", "word", "device", "host"),
    [
        ("DEV float g(float x) { return x; }", "float g(", True, False),
        ("HD int g(int x) { return x; }", "int g(", True, True),
        ("DEV int table[2] = {1, 2};", "int table[2]", True, False),
        ("struct __align__(8) Pair { int a; int b; };", "struct __align__(8) Pair {", True, True),
        ("GLOBAL void k(int* x) { *x = 1; }", "void k(int* x) {", True, True),
        ("__global__ void __cluster_dims__(2, 1, 1) k(int* x) { *x = 1; }", "__cluster_dims__(2, 1, 1) k(", True, True),
    ],
)
def test_marks_behind_macros_and_attributes(item, word, device, host):
    macros = "#define DEV __device__ inline\n#define HD __host__ __device__\n#define GLOBAL __global__\n"
    got = halves(f"{macros}{item}\n{FUNCTION}")
    assert tuple(word in half for half in got) == (device, host)


def test_members_that_only_a_gpu_can_run_lose_their_bodies():
    device, host = halves(
        """\
struct Add {
  float z;
  __device__ Add(float a) : z(a) {}
  __device__ float operator()(float a) const {
    return a + __shfl_xor_sync(~0u, z, 1);
  }
  __host__ __device__ int size() const { return 1; }
};
"""
        + FUNCTION
    )
    assert "__shfl_xor_sync" in device
    assert host.startswith("""\
struct Add {
  float z;
  __device__ Add(float a) ;
  __device__ float operator()(float a) const ;


  __host__ __device__ int size() const { return 1; }
};""")


def test_namespaces_conditions_and_linkage_stand_in_both():
    found = split(
        Source(f'namespace a {{ namespace {{\n{KERNEL}}} }}\nextern "C" __global__ void c() {{}}\n{FUNCTION}', "cuda")
    )
    assert found.kernels == ("a::wb_unnamed::k", "c")
    device, host = halves(f"#if N > 1\n{KERNEL}#else\n{FUNCTION}#endif\n")
    assert device == "#if N > 1\n" + KERNEL + "#else\n#endif"
    assert host.endswith("#else\n" + FUNCTION + "#endif")


def test_headers_of_the_users_are_read_in(tmp_path):
    (tmp_path / "a.cuh").write_text('#pragma once\n#include "b.cuh"\n__device__ int one() { return two() / 2; }\n')
    (tmp_path / "b.cuh").write_text(
        "#pragma once\n__device__ int two() { return 2; }\ninline int three() { return 3; }\n"
    )
    found = split(
        Source('#include "a.cuh"\n#include "b.cuh"\n' + KERNEL + FUNCTION, "cuda", "cell [3]", 2, str(tmp_path))
    )
    places = [(p.file.rpartition("/")[2], p.line, p.text.split("(")[0]) for p in found.device]
    assert places == [
        ("b.cuh", 2, "__device__ int two"), ("a.cuh", 3, "__device__ int one"), ("cell [3]", 4, "__global__ void k"),
    ]  # fmt: skip
    assert found.host[0].text == "inline int three() { return 3; }"


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("void f(Tensor& x) { thrust::sort(a, b); }", "thrust::sort"),
        ("void f(Tensor& x) { cub::DeviceReduce::Sum(a, b); }", "cub::DeviceReduce"),
        ("void f(Tensor& x) { cudaMalloc(&p, 4); }", "cudaMalloc"),
        ("void f(Tensor& x) { cublasSgemm(h); }", "cublasSgemm"),
        ("#define KERNEL(T) \\\n  __global__ void k_##T(T* x) {}\n", "a kernel that a macro defines"),
        ("void f(Tensor& x) { g([=] __device__ (int i) { return i; }); }", "a __device__ lambda"),
        ("__managed__ int n;", "__managed__ memory"),
        (
            "template <typename T, typename = void> __global__ void k(T* x) {}",
            "a template parameter of k without a name",
        ),
        ("__global__ void k(int*) {}", "a parameter of k without a name"),
        ("__global__ void k(int* x) {}\n__global__ void k(float* x) {}", "k is overloaded"),
    ],
)
def test_what_only_nvcc_can_compile(text, because):
    assert split(Source(text + "\n" + FUNCTION, "cuda")) == Whole(because)


@pytest.mark.parametrize(
    "text", ["// thrust::sort\n", 'static const char* s = "cudaMalloc(";\n', "int n = int(cudaSuccess);\n"]
)
def test_what_speaks_not_against_two_halves(text):
    assert isinstance(split(Source(text + FUNCTION, "cuda")), Halves)


# ---------------------------------------------------------------- places


def test_an_edit_of_one_half_changes_nothing_of_the_other():
    text = "__device__ int g() { return 1; }\n" + KERNEL + "\n\n" + FUNCTION
    first, second = (
        split(Source(t, "cuda", cell, 2))
        for t, cell in ((text, "cell [3]"), ("// why\n\n" + text.replace("return 1", "return 2"), "cell [9]"))
    )
    assert Text(first.host).render() == Text(second.host).render()
    assert Text(first.device).render() != Text(second.device).render()


def test_messages_are_put_back_on_the_users_lines():
    found = Text(split(Source(KERNEL + "\n// words\n\n" + FUNCTION.replace("{", "{\n "), "cuda", "cell [3]", 2)).host)
    assert found.back("wb-piece-1", 2) == ("cell [3]", 7)
    assert found.written("cell [3]", 6) == ("wb-piece-1", 1)
    assert found.back("/usr/include/stdio.h", 7) == ("/usr/include/stdio.h", 7)
    error = found.error(BuildError("no", diagnostics=(Diagnostic("wb-piece-1", 2, 3, "error", "no"),), log="wb-piece-1:2:3: error: no",
                                   file="wb-piece-1", line=2))  # fmt: skip
    assert (error.file, error.line, error.diagnostics[0].line, error.log) == (
        "cell [3]",
        7,
        7,
        "cell [3]:7:3: error: no",
    )


def test_what_names_its_place_names_the_users():
    found = Text(split(Source("\n\n" + FUNCTION.replace("return", "assert(true); return"), "cuda", "cell [3]", 2)).host)
    assert found.render().startswith('#line 4 "cell [3]"\n')


# ---------------------------------------------------------------- symbols


def test_stubs_by_their_symbols():
    names = [
        "_Z5scaleIfLi256EEvPKT_PS0_i",
        "_ZN1a10wb_unnamed1kEPi",
        "_Z5otherIlEvPT_",
        "_Z5otherImEvPT_",
        "c",
        "_Z6scalerv",
        "wb_register",
    ]
    assert symbols.expressions(names, ["scale", "a::wb_unnamed::k", "other", "c"]) == {
        "_Z5scaleIfLi256EEvPKT_PS0_i": "scale<float, 256>",
        "_ZN1a10wb_unnamed1kEPi": "a::wb_unnamed::k",
        "_Z5otherIlEvPT_": "other<long long>",
        "_Z5otherImEvPT_": "other<unsigned long long>",
        "c": "c",
    }


def test_a_file_that_is_no_shared_object(tmp_path):
    (tmp_path / "x.so").write_bytes(b"\x7fELF\x01")
    with pytest.raises(BuildError, match="is no 64-bit shared object"):
        symbols.exported(str(tmp_path / "x.so"))
