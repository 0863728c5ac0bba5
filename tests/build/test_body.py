"""The text of a body: prelude, the user's lines, template arguments, and thunks; compiled where a compiler must agree."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from tests.build.native_tools import cell, compiled
from workbench.build import body_parts
from workbench.build.body import Body, instantiate
from workbench.build.forms import complete
from workbench.errors import BuildError, SchemaError

GOLDEN = Path(__file__).parent / "golden"
f32, f64, bf16, f16 = torch.float32, torch.float64, torch.bfloat16, torch.float16

NORM = """\
//! cols = x.shape[-1]
//! tune BLOCK = 64, 128
//! tune UNROLL = 4
//! half_block = BLOCK // 2
//! out = empty_like(x)
//! stat = empty(cols, dtype=float64)
namespace mine {
template <typename T, typename W, int BLOCK, int half_block>
void norm(const T* __restrict__ x, const W* w, T* out, double* stat, float eps, int cols, int64_t BLOCK_) {}
}
"""


def norm(text: str = NORM, **names):
    text = text.replace(", int64_t BLOCK_", "")
    return cell("lab::norm(Tensor x, Tensor? w, float eps) -> Tensor", text, **names)


def body(made, tuned=None, **dtypes) -> Body:
    return instantiate(made.source, made.declaration, dtypes, tuned)


def simple(text: str, schema: str = "lab::f(Tensor x) -> Tensor", **names) -> Body:
    made = cell(schema, text, **names)
    return body(made, **{a.name: f32 for a in made.declaration.arguments if a.is_tensor})


def test_golden_text():
    made = norm(NORM.replace("void norm", "void norm"), file='a "quoted"\\name.cpp')
    got = body(made, x=bf16, w=f32)
    path = GOLDEN / "norm_body.cpp"
    assert got.text == path.read_text(encoding="utf-8"), f"new text for {path}:\n{got.text}"
    assert got.symbols == ("wb_call_norm",)
    assert got.parameters == (
        ((0, "bfloat16*"), (1, "float*"), (7, "bfloat16*"), (8, "double*"), (2, "float"), (3, "int")),
    )


def test_dtypes_of_what_directives_make_are_filled_in():
    assert complete(norm().declaration, {"x": bf16, "w": None}) == {"x": bf16, "w": None, "out": bf16, "stat": f64}
    chosen = cell(
        "lab::f(Tensor x, int n) -> Tensor",
        "//! out = empty_like(x, dtype=float32 if n > 1 else float64)\ntemplate <typename T> void f(const float* x, T* out) {}",
    )
    with pytest.raises(SchemaError, match="the dtype of out is only known at a call") as caught:
        complete(chosen.declaration, {"x": f32})
    assert caught.value.line == 2
    assert complete(chosen.declaration, {"x": f32, "out": f64})["out"] == f64


def test_a_none_tensor_takes_the_type_of_the_others():
    assert "norm<bfloat16, bfloat16, 64, 32>" in body(norm(), x=bf16, w=None).text


def test_tuned_values_are_template_arguments_or_constants():
    text = body(norm(), {"BLOCK": 128, "UNROLL": 8}, x=f32, w=f64).text
    assert "norm<float, double, 128, 64>" in text
    assert "constexpr int UNROLL = 8;" in text
    assert "BLOCK =" not in text.split("#line")[0]


@pytest.mark.parametrize(
    ("line", "template", "message"),
    [
        (
            "//! n = x.numel()",
            "int n",
            "n is only known at a call: a template parameter needs a number or a tuned name",
        ),
        ("//! n = k + 1", "int n", "n depends on k, known only at a call"),
        ("//! n = sm_count", "int n", "n depends on sm_count, known only at a call"),
    ],
    ids=["shape", "argument", "machine"],
)
def test_a_template_value_must_be_known_at_build_time(line, template, message):
    made = cell(
        "lab::f(Tensor x, int k) -> Tensor",
        f"{line}\n//! out = empty_like(x)\ntemplate <{template}>\nvoid f(const float* x, float* out) {{}}",
    )
    with pytest.raises(SchemaError, match=message) as caught:
        body(made, x=f32)
    assert (caught.value.file, caught.value.line) == ("cell [3]", 4)


def test_one_type_for_two_dtypes_is_refused():
    made = cell(
        "lab::f(Tensor x, Tensor y) -> Tensor",
        "//! out = empty_like(x)\ntemplate <typename T> void f(const T* x, const T* y, T* out) {}",
    )
    with pytest.raises(
        SchemaError, match="f: the type T would be float32 for x, float16 for y; give each a type of its own"
    ):
        body(made, x=f32, y=f16)


def test_a_dtype_that_no_c_type_holds_is_refused():
    made = cell(
        "lab::f(Tensor x) -> Tensor", "//! out = empty_like(x)\ntemplate <typename T> void f(const T* x, T* out) {}"
    )
    with pytest.raises(
        SchemaError, match="f has no form for complex64, which no C\\+\\+ type holds; kernels take float32, float64"
    ):
        body(made, x=torch.complex64)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("out[0] = x[0] * 2;", "wb_body.h"),
        ("out[0] = sqrtf(x[0]);", "wb_body_math.h"),
        ("out[0] = std::min(x[0], 1.f);", "wb_body_math.h"),
        ("out[0] = expression;", "wb_body.h"),
    ],
)
def test_mathematics_is_included_only_where_it_is_used(text, first):
    got = simple(f"//! out = empty_like(x)\nvoid f(const float* x, float* out) {{ {text} }}")
    assert got.text.splitlines()[0] == f'#include "{first}"'


def test_the_prelude_has_integers_limits_and_infinity():
    compiled(
        simple("""\
//! out = empty_like(x)
void f(const float* x, float* out) {
  uint8_t a = UINT8_MAX; int64_t b = INT64_MIN; size_t c = 3;
  out[0] = x[0] > FLT_MAX ? INFINITY : NAN; out[1] = a + b + c;
}""").text
    )
    compiled(
        simple(
            "#include <math.h>\n//! out = empty_like(x)\nvoid f(const float* x, float* out) { out[0] = x[0] > 1 ? INFINITY : NAN; }"
        ).text
    )


def test_half_and_bfloat16_are_there_when_needed():
    plain = simple("//! out = empty_like(x)\nvoid f(const float* x, float* out) {}").text
    assert "wb_half" not in plain
    assert "wb_bfloat16" not in plain
    compiled(
        simple(
            "//! out = empty_like(x)\nvoid f(const float* x, float* out) { half h = x[0]; bfloat16 b = x[0]; out[0] = h + b; }"
        ).text
    )
    own = simple(
        "struct bfloat16 { float f; };\nusing half = float;\n//! out = empty_like(x)\nvoid f(const float* x, float* out) { bfloat16 b{x[0]}; half h = 1; out[0] = b.f + h; }"
    ).text
    assert "wb_bfloat16" not in own
    compiled(own)


def test_bfloat16_rounds_as_torch_does():
    text = simple("""\
//! n = x.numel()
//! out = empty_like(x)
void f(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) { bfloat16 b = x[i]; b += 0; out[i] = b; }
}""").text
    library = ctypes.CDLL(compiled(text))
    x = torch.cat([torch.randn(1000) * torch.tensor(10.0) ** torch.randint(-38, 38, (1000,)), torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")]),
                   torch.tensor([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00000001, 0x7F800001], dtype=torch.int32).view(f32)])  # fmt: skip
    out = torch.empty_like(x)
    values = (ctypes.c_void_p * 3)(x.data_ptr(), x.numel(), out.data_ptr())
    assert library.wb_call_f(values) == 0
    torch.testing.assert_close(out, x.to(bf16).float(), rtol=0, atol=0, equal_nan=True)


def test_a_compiler_error_is_on_the_users_line_in_the_users_file():
    text = simple(
        "//! out = empty_like(x)\nvoid f(const float* x, float* out) {\n  out[0] = nothing;\n}",
        file='odd "name".cpp',
        first_line=2,
    ).text
    with pytest.raises(BuildError) as caught:
        compiled(text)
    first = caught.value.diagnostics[0]
    assert (first.file, first.line) == ('odd "name".cpp', 4)
    assert "nothing" in first.message


def test_what_the_users_text_does_to_the_preprocessor_stays_its_own():
    compiled(
        simple(
            "#include <vector>\n#define N 4\n//! out = empty_like(x)\nvoid f(const float* x, float* out) { std::vector<float> v(N, x[0]); out[0] = v[3]; }  // no newline at the end"
        ).text
    )


def test_a_string_of_cpp_says_the_same_in_cpp(tmp_path):
    said = 'a "name" with \\ and\na line'
    program = f"#include <cstdio>\nint main() {{ std::fputs({body_parts.literal(said)}, stdout); }}"
    subprocess.run(["g++", "-x", "c++", "-", "-o", tmp_path / "say"], input=program, text=True, check=True)
    assert subprocess.run([tmp_path / "say"], capture_output=True, text=True, check=True).stdout == said


def test_the_type_of_an_index_is_named_before_a_template():
    taken = "//! out = empty_like(x)\nvoid f(const float* x, const int* index, float* out) {}"
    made = cell("lab::f(Tensor x, Tensor index) -> Tensor", taken)
    with pytest.raises(SchemaError) as caught:
        body(made, x=f32, index=torch.int64)
    assert "takes int32 alone, index is int64; write 'const int64_t* index'; a template on" in caught.value.message
    with pytest.raises(SchemaError) as caught:
        body(made, x=f64, index=torch.int32)
    assert "takes float32 alone, x is float64; a template on the element type takes both" in caught.value.message


def test_a_type_that_raw_kernels_have_no_dtype_for_says_who_takes_it():
    taken = "//! out = empty_like(x)\nvoid f(const std::complex<float>* x, float* out) {}"
    with pytest.raises(
        SchemaError, match="std::complex<float> is the type of no dtype that a raw kernel takes; a C.* Tensor"
    ):
        body(cell("lab::f(Tensor x) -> Tensor", taken), x=torch.complex64)
