"""Comments, directives, titles and signatures, with the user's line numbers."""

from __future__ import annotations

import builtins
import time

import pytest

from workbench import source as source_module
from workbench.errors import SchemaError, ToolchainError
from workbench.source import Function, Parameter, Source, TemplateParameter, code, directives_of, functions, title


def test_directives_carry_the_users_line_numbers():
    text = "// Title\n//! n = x.numel()\n\n  //! *_, cols = x.shape\n//! _, N = b.shape\n"
    assert directives_of(Source(text, "cpp", first_line=2)) == (
        (3, "n = x.numel()"),
        (5, "*_, cols = x.shape"),
        (6, "_, N = b.shape"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "//!n = 1",
        "//!  n = 1",
        "//! 3 = n",
        "//! (a, b) = x.shape",
        "//!",
        "// ! n = 1",
        "int a; //! n = 1",
        "/*\n//! n = 1\n*/",
        'const char* s = R"(\n//! n = 1\n)";',
    ],
)
def test_what_is_no_directive(text):
    assert directives_of(Source(text, "cpp")) == ()


def test_a_comment_mark_inside_a_string_hides_nothing():
    text = "const char* a = \"/*\";\n//! n = 1\nchar q = '\"'; int b = 1'000'000;\n//! m = 2"
    assert directives_of(Source(text, "cuda")) == ((2, "n = 1"), (4, "m = 2"))


def test_carriage_returns_are_no_part_of_a_directive():
    assert directives_of(Source("//! n = 1\r\n//! m = 2\r\n", "cpp")) == ((1, "n = 1"), (2, "m = 2"))


def test_triton_has_no_directives():
    assert directives_of(Source("//! n = 1\n# //! n = 1", "triton")) == ()


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("//! n = 1\n// Vectorised: 16 bytes a load\n// more", "cpp", "Vectorised: 16 bytes a load"),
        ("#include <cmath>\n/* One warp\n * a row */\nvoid f() {}", "cuda", "One warp"),
        ("/******\n * Two passes *\n ******/", "cpp", "Two passes"),
        ("//\n// ----\n// After the rule", "cpp", "After the rule"),
        ("//!a note that is no title\n", "cpp", ""),
        ("import triton\n# Fused softmax\n", "triton", "Fused softmax"),
        ('s = "# no"\n# yes\n', "triton", "yes"),
        ("void f() {}", "cpp", ""),
        ("", "cpp", ""),
    ],
)
def test_title_is_the_first_plain_comment(text, language, expected):
    assert title(Source(text, language)) == expected


def test_one_signature_in_full():
    text = (
        "//! out = empty_like(x)\n"
        "template <typename T, int BLOCK = 4>\n"
        "__global__ void __launch_bounds__(256)\n"
        "rms(const T* __restrict__ x,  // the rows\n"
        "    T const* w, float out[], unsigned long long n = 3, const double eps, int64_t *const r) {\n"
        "  if (n) { for (;;) {} }\n"
        "}\n"
    )
    assert functions(text, "cuda", 2) == (
        Function(
            "rms",
            (
                Parameter("x", "T", True, True, 5, "const T* __restrict__ x"),
                Parameter("w", "T", True, True, 6, "T const* w"),
                Parameter("out", "float", True, False, 6, "float out[]"),
                Parameter("n", "unsigned long long", False, False, 6, "unsigned long long n", "3"),
                Parameter("eps", "double", False, True, 6, "const double eps"),
                Parameter("r", "int64_t", True, False, 6, "int64_t *const r"),
            ),
            "void",
            5,
            (TemplateParameter("T", "typename", 3), TemplateParameter("BLOCK", "int", 3, "4")),
            is_global=True,
        ),
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("namespace a { namespace b { void f() {} } }", ["a::b f"]),
        ("namespace { void f() {} }", [" f"]),
        ('extern "C" void f() {}\nextern "C" { static inline int g() { return 1; } }', [" f", " g"]),
        ("#if 1\nvoid f() {}\n#else\nvoid g() {}\n#endif", [" f", " g"]),
        ("#pragma once\n#include <x>\nvoid f(void) {}", [" f"]),
        ("void declared(int a);\nvoid s::method() {}\nstruct S { void inner() {} };", []),
        ("template <> void f<float>(const float* x) {}", []),
        ("[[nodiscard]] auto f(int a) -> int { return a; }", [" f"]),
        ("void broken( {\nvoid f() {}", []),
        ("", []),
        ("\x00\xff not C at all ((((", []),
    ],
)
def test_which_functions_are_seen(text, names):
    seen = [f"{f.namespace} {f.name}" for f in functions(text, "cpp")]
    assert all(n in seen for n in names)
    assert names == [] or len(seen) == len(names)
    if names == []:
        assert not {"declared", "method", "inner"} & {f.name for f in functions(text, "cpp")}


def test_helpers_and_kernels_are_told_apart():
    text = (
        "__device__ float w(float v) { return v; }\n__host__ __device__ int b() { return 1; }\n__global__ void k() {}\n"
    )
    assert [(f.name, f.is_global, f.is_device) for f in functions(text, "cuda")] == [
        ("w", False, True),
        ("b", False, False),
        ("k", True, False),
    ]


def test_types_of_the_host_tier_are_spelled_out():
    text = "std::tuple<Tensor, Tensor> f(const std::vector<Tensor>& v, torch::Tensor x, float** p, T (*g)(int), int) {}"
    f = functions(text, "cpp")[0]
    assert f.returns == "std::tuple<Tensor, Tensor>"
    assert [(p.name, p.type, p.pointer) for p in f.parameters] == [
        ("v", "std::vector<Tensor>", False),
        ("x", "torch::Tensor", False),
        ("p", "float*", True),
        ("g", "T**", True),
        ("", "int", False),
    ]


def test_results_that_are_pointers_or_trailing():
    assert functions("float* f(int a) { return 0; }", "cpp")[0].returns == "float*"
    assert functions("auto f(int a) -> long { return a; }", "cpp")[0].returns == "long"


def test_deeply_nested_text_is_read_without_recursion():
    depth = 3000
    text = "namespace a {" * depth + "void f() {}" + "}" * depth
    assert functions(text, "cpp")[0].name == "f"


def test_reading_a_cell_takes_about_a_millisecond():
    text = "//! n = x.numel()\n" + "".join(
        f"template <typename T> __global__ void k{i}(const T* x, T* out, long long n) {{ out[0] = x[0]; }}\n"
        for i in range(8)
    )
    functions(text, "cuda")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        functions(text, "cuda")
        times.append(time.perf_counter() - start)
    assert min(times) < 0.005


def test_another_language_is_refused():
    with pytest.raises(SchemaError, match="'triton'"):
        functions("x", "triton")


@pytest.mark.parametrize(
    ("missing", "package"), [("tree_sitter", "tree-sitter,"), ("tree_sitter_cuda", "tree-sitter-cuda,")]
)
def test_without_tree_sitter_the_package_is_named(monkeypatch, missing, package):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == missing:
            raise ImportError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    source_module._parser.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ToolchainError, match=f"needs {package} which is not installed: pip install tree-sitter"):
        functions("void f() {}", "cuda")
    monkeypatch.undo()
    source_module._parser.cache_clear()
    assert functions("void f() {}", "cuda")[0].name == "f"


def test_code_is_what_is_left_without_comments_and_strings():
    text = '#include "a.h"  // at::x\nchar q = \'"\'; f(R"(at::y "z")", "//"); int n = 1\'000;\n#define S "s"\n'
    assert code(text) == '#include "a.h"   \nchar q =  ; f( ,  ); int n = 1\'000;\n#define S  \n'


@pytest.mark.parametrize(
    ("before", "type_"),
    [
        ("typedef float real;", "float"),
        ("using real = unsigned long long;", "unsigned long long"),
        ("namespace a { using wide = std::int64_t; }\nusing real = wide;", "std::int64_t"),
        ("#ifdef HALF\nusing real = half;\n#else\nusing real = float;\n#endif", "real"),
        ("struct Traits { using real = int; };", "real"),
        ("template <typename T> using real = float;", "real"),
        ("typedef struct { int n; } real;", "real"),
        ("using real = float;\ntemplate <typename real>", "real"),
    ],
)
@pytest.mark.parametrize("language", ["cpp", "cuda"])
def test_names_for_the_types_of_numbers(before, type_, language):
    (found,) = functions(f"{before}\nvoid f(const real* x, real n) {{ using real = int; }}\n", language)
    assert [p.type for p in found.parameters] == [type_, type_]
    assert [p.spelled for p in found.parameters] == ["const real* x", "real n"]
