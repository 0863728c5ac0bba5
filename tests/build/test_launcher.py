"""The launcher's text: golden, free of numbers, and refused where a raw cell cannot serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench import schema as schemas
from workbench.build.launcher import render
from workbench.build.statements_cpp import statement_text, texts
from workbench.directives import Declaration, parse, shape_key
from workbench.errors import SchemaError
from workbench.schema import Argument, Schema
from workbench.source import Source, functions

GOLDEN = Path(__file__).parent / "golden"

RMSNORM = schemas.parse("lab::rmsnorm(Tensor x, Tensor w, float eps=1e-6) -> Tensor", returns="y", saves="rstd")
FORWARD = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! require w.shape == (cols,)
//! tune BLOCK = 256, 128
//! y = empty(x.shape)
//! rstd = empty(rows, dtype=float32)
//! tmp = zeros(rows // 2, BLOCK)
void rmsnorm(const float* x, const float* w, float* y, float* rstd, float* tmp, float eps, int rows, int cols) {}
"""
BACKWARD = """\
//! *_, cols = x.shape
//! grad_w = empty_like(w)
//! grad_x = empty(x.shape)
//! epsilon = eps
void backward(const float* grad_y, const float* x, float* grad_x, float* grad_w, float epsilon, int cols) {}
"""
KV = schemas.parse("lab::kv_(Tensor k, Tensor(a!) cache, Tensor? scale=None, int? at=None, str how='a') -> ()")
KV_CELL = """\
//! B, _, D = k.shape
//! first = 0 if at is None else at
//! require cache.stride(-1) == 1 and (scale is None or scale.shape == (*k.shape[:-1], 1)) and 0 <= first < max(B, 1)
//! s = cache.stride()[0]
//! half_of = (D + 1) / 2
//! wide = k.dtype == float32 or not D % 8 != 0
void kv_(const float* k, float* cache, const float* scale, int B, int D, int64_t first, int64_t s, float half_of, bool wide) {}
"""

CUDA = """\
//! *_, cols = x.shape
//! rows = prod(x.shape[:-1])
//! tune BLOCK = 256, 128
//! parts = min(rows, 2 * sm_count)
//! y = empty(x.shape)
//! rstd = empty(rows, dtype=float32)
//! part = zeros(parts, cols, dtype=float32)
//! grid = rows
//! block = BLOCK
//! shared = cols * 4
template <typename T> __global__ void first(const T* x, T* y, float* rstd, float* part, float eps, int cols) {}
__device__ float helper(float v) { return v; }
//! grid = cdiv(cols, 64), parts
//! block = 64, 2
//! cluster = 1, 2
__global__ void second(const float* part, int parts, int cols) {}
"""


def declared(schema: Schema, text: str, entry: str = "forward", language: str = "cpp") -> Declaration:
    return parse(Source(text, language, "cell", 2), schema, entry=entry, functions=functions(text, language, 2))


@pytest.mark.parametrize(
    ("name", "schema", "text", "entry"),
    [("rmsnorm", RMSNORM, FORWARD, "forward"), ("rmsnorm_backward", RMSNORM, BACKWARD, "backward"),
     ("kv_", KV, KV_CELL, "forward")],
)  # fmt: skip
def test_golden_text(name, schema, text, entry):
    got = render(schema, declared(schema, text, entry), entry=entry)
    path = GOLDEN / f"{name}.cpp"
    assert got == path.read_text(encoding="utf-8"), f"new text for {path}:\n{got}"


@pytest.mark.parametrize(
    "other",
    [
        FORWARD.replace("256, 128", "64, 32, 16"),
        FORWARD.replace("rows // 2", "rows // 77"),
        FORWARD.replace("[:-1]", "[:-2]"),
        "// a comment\n\n" + FORWARD,
        FORWARD.replace("float eps, int rows", "double eps, int64_t rows"),
    ],
    ids=["tuned", "number", "index", "lines", "kernel"],
)
def test_numbers_lines_and_kernels_are_no_part_of_the_text(other):
    assert render(RMSNORM, declared(RMSNORM, other)) == render(RMSNORM, declared(RMSNORM, FORWARD))


@pytest.mark.parametrize(
    "other",
    [
        FORWARD.replace("rows // 2", "rows * 2"),
        FORWARD.replace("tmp = zeros", "tmp = empty"),
        FORWARD.replace("dtype=float32", "dtype=float64"),
        FORWARD.replace("w.shape == (cols,)", "w.numel() == cols"),
    ],
    ids=["operator", "zeros", "dtype", "require"],
)
def test_what_the_launcher_does_is_part_of_the_text(other):
    assert render(RMSNORM, declared(RMSNORM, other)) != render(RMSNORM, declared(RMSNORM, FORWARD))


def test_the_text_changes_exactly_when_the_shape_key_does():
    one, other = declared(RMSNORM, FORWARD), declared(RMSNORM, FORWARD.replace("rows // 2", "rows // 4"))
    third = declared(RMSNORM, FORWARD.replace("rows // 2", "rows % 2"))
    assert shape_key(one) == shape_key(other)
    assert shape_key(one) != shape_key(third)
    assert render(RMSNORM, one) == render(RMSNORM, other) != render(RMSNORM, third)


def test_gradients_that_the_cell_leaves_out_have_a_place_among_the_results():
    text = BACKWARD.replace("//! grad_w = empty_like(w)\n", "").replace(" float* grad_w,", "")
    declaration = declared(RMSNORM, text, "backward")
    assert "static const int16_t results[] = {\n    5," in render(RMSNORM, declaration, entry="backward")
    both = render(RMSNORM, declaration, entry="backward", gradients=("grad_x", "grad_w"))
    assert "static const int16_t results[] = {\n    5, -1," in both
    assert "results, 2, 2," in both


def test_statement_texts_are_what_the_user_wrote():
    wrote = [line.removeprefix("//! ") for line in FORWARD.splitlines() if line.startswith("//! ")]
    said = [statement_text(s) for s in declared(RMSNORM, FORWARD).statements]
    assert [w for w in wrote if not w.startswith("tune")] == [s for s in said if not s.startswith("tune")]
    splat = declared(
        schemas.parse("lab::f(Tensor x) -> Tensor"),
        "//! out = zeros(*x.shape[1:], 3, dtype=int8)\nvoid f(const float* x, int8_t* out) {}",
    )
    assert statement_text(splat.statements[0]) == "out = zeros(*x.shape[1:], 3, dtype=int8)"


def bare(schema: Schema) -> Declaration:
    return Declaration(schema, "forward", schema.arguments, ())


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (schemas.parse("lab::f(Tensor[] x) -> Tensor"), "x is a list of tensors, which needs the host tier"),
        (
            schemas.parse("lab::f(Tensor x, Scalar s) -> Tensor"),
            "s is a Scalar, which a launcher cannot take: write float",
        ),
        (schemas.parse("lab::f(Tensor x) -> int"), "returns int, a raw cell can only make tensors"),
        (schemas.parse("lab::f(Tensor x) -> Tensor"), r"no directive makes out: write 'out = empty\(...\)'"),
        (
            Schema("lab", "f", tuple(Argument(f"a{i}", "int") for i in range(61)), ("out",), ("Tensor",)),
            "has 61 arguments, a raw cell takes 60 at most",
        ),
    ],
)
def test_what_a_raw_cell_cannot_serve_is_refused(schema, message):
    with pytest.raises(SchemaError, match=message):
        render(schema, bare(schema))


def test_golden_text_for_cuda():
    got = render(RMSNORM, declared(RMSNORM, CUDA, language="cuda"), device="cuda")
    path = GOLDEN / "rmsnorm_cuda.cpp"
    assert got == path.read_text(encoding="utf-8"), f"new text for {path}:\n{got}"


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [("block = 64, 2", "block = 128, 4", True), ("cols * 4", "cols * 2", True), ("= 256, 128", "= 64", True),
     ("cluster = 1, 2", "cluster = 2, 1", True), ("float eps", "double eps", True), ("block = 64, 2", "block = 64", False),
     ("//! cluster = 1, 2\n", "", False), ("grid = rows", "grid = parts", False), ("shared = cols *", "shared = rows *", False)],
)  # fmt: skip
def test_numbers_of_the_geometry_are_no_part_of_the_text(before, after, same):
    assert CUDA.count(before) == 1
    one, other = (declared(RMSNORM, t, language="cuda") for t in (CUDA, CUDA.replace(before, after)))
    texts = [render(RMSNORM, d, device="cuda") for d in (one, other)]
    assert (texts[0] == texts[1]) is same is (shape_key(one) == shape_key(other))


def test_texts_of_launches_follow_those_of_the_statements():
    said = texts(declared(RMSNORM, CUDA, language="cuda"))
    assert said[7:] == [("grid = rows", 9), ("block = BLOCK", 10), ("shared = cols * 4", 11),
                        ("grid = cdiv(cols, 64), parts", 14), ("block = 64, 2", 15), ("cluster = 1, 2", 16)]  # fmt: skip


def test_another_device_is_refused():
    with pytest.raises(SchemaError, match="launchers are written for cpu and cuda, not for 'xpu'"):
        render(RMSNORM, declared(RMSNORM, FORWARD), device="xpu")


@pytest.mark.parametrize("word", ["cooperative", "tensor_map"])
def test_words_of_later_versions_are_reserved(word):
    with pytest.raises(SchemaError, match=f"'{word}' is reserved for a later version: it has no meaning yet") as caught:
        declared(RMSNORM, CUDA.replace("//! cluster = 1, 2", f"//! {word} = 1"), language="cuda")
    assert caught.value.line == 16
