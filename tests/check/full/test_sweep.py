"""What is derived from cases: size classes, layouts, values, numbers in the code, the plan. All pure."""

from __future__ import annotations

import pytest
import torch

from workbench import directives, schema
from workbench.case import case, make
from workbench.check.full import layouts, sweep, values
from workbench.check.full.bounds import bounds
from workbench.check.full.classes import refined, sizes_of
from workbench.check.full.variant import ONE_BASE, TWICE, Variant, spelled
from workbench.source import Source, functions

NORM = schema.parse("lab::norm(Tensor x, Tensor w, float eps=1e-6) -> Tensor")
MATMUL = schema.parse("lab::mm(Tensor a, Tensor b) -> Tensor")
ADAM = schema.parse("lab::adam_(Tensor(a!)[] params, Tensor[] grads, int step) -> ()")
X = torch.arange(20.0).view(4, 5)


def norm_cases(t):
    yield t(4, 128), t(128)
    yield case("odd", t(5, 123), t(123))


def norm():
    (family,) = sizes_of(make(norm_cases, NORM), NORM)
    return family


def test_sizes_that_are_equal_in_all_cases_go_together():
    assert norm().classes == ((("x", 0),), (("x", 1), ("w", 0)))
    assert norm().name(1) == "x.shape[1]"
    ranks = sizes_of(make(lambda t: [(t(4, 8), t(8)), (t(2, 4, 8), t(8))], NORM), NORM)
    assert [len(f.cases) for f in ranks] == [1, 1], "another number of dimensions is another structure"
    (lists,) = sizes_of(make(lambda t: [([t(3), t(4, 5)], [t(3), t(4, 5)], 1)], ADAM), ADAM)
    assert lists.classes[0] == (("params[0]", 0), ("grads[0]", 0))


def test_an_integer_that_is_always_as_large_as_a_size_changes_with_it():
    topk = schema.parse("lab::topk(Tensor x, int k) -> Tensor")
    (family,) = sizes_of(make(lambda t: [(t(4, 8), 8), (t(4, 9), 9)], topk), topk)
    assert family.scalars == (("k", 1),)
    made = Variant("sizes", "", family.cases[0], family, ((1, 17),)).case(topk)
    assert made.args[0].shape == (4, 17) and made.args[1] == 17


def test_a_square_matmul_is_taken_apart_by_what_its_reference_takes():
    (family,) = sizes_of(make(lambda t: [(t(6, 6), t(6, 6))], MATMUL), MATMUL)
    assert len(family.classes) == 1

    def accepts(changes):
        shapes = {"a": [6, 6], "b": [6, 6]}
        for (leaf, dim), more in changes.items():
            shapes[leaf][dim] += more
        return shapes["a"][1] == shapes["b"][0]

    assert refined(family, accepts).classes == ((("a", 0),), (("a", 1), ("b", 0)), (("b", 1),))
    assert refined(family, lambda changes: False).classes == family.classes


@pytest.mark.parametrize(
    ("layout", "strides", "offset"),
    [
        ("transposed", (1, 4), 0),
        ("sliced, with a storage offset", (8, 1), 11),
        ("every second element", (10, 2), 0),
        ("padded rows", (13, 1), 0),
        ("expanded", (0, 1), 0),
    ],
)
def test_layouts_keep_shape_and_values(layout, strides, offset):
    made = layouts.LAYOUTS[layout](X)
    assert (made.stride(), made.storage_offset(), made.shape) == (strides, offset, X.shape)
    assert torch.equal(made, X if layout != "expanded" else X[:1].expand(4, 5))
    assert layouts.LAYOUTS["channels last"](X) is None
    assert layouts.LAYOUTS["channels last"](torch.zeros(2, 3, 4, 5)).stride() == (60, 1, 15, 3)


def test_views_of_one_base_and_one_tensor_twice():
    made = layouts.one_base({"x": X, "y": X + 1, "k": 2.0})
    assert made["x"].untyped_storage().data_ptr() == made["y"].untyped_storage().data_ptr()
    assert torch.equal(made["x"], X) and torch.equal(made["y"], X + 1) and made["k"] == 2.0
    assert layouts.one_base({"x": X}) is None
    assert layouts.twice({"x": X, "y": X + 1}, ())["y"] is X
    assert layouts.twice({"x": X, "y": X + 1}, ("x",)) is None, "what is written to is no second one"


def test_new_values_are_of_the_kind_that_was_there():
    floats = values.like(torch.tensor([0.5, 2.0]), (1000,), 1)
    assert 0.5 <= floats.min() < 0.6 and 1.9 < floats.max() <= 2.0
    assert torch.equal(values.like(torch.full((3,), 7.0), (2, 2), 1), torch.full((2, 2), 7.0))
    offsets = values.like(torch.tensor([0, 3, 3, 9]), (50,), 1)
    assert offsets.dtype is torch.int64 and bool((offsets.diff() >= 0).all()) and offsets.max() <= 9
    assert torch.equal(values.like(torch.tensor([2, 0, 1]), (9,), 1).sort().values, torch.arange(9))
    assert values.like(torch.tensor([7, 0, 3]), (50,), 1, below=4).max() < 4, "indices stay below a size that shrank"
    assert values.like(torch.tensor([True]), (50,), 1).dtype is torch.bool
    assert values.like(torch.empty(0, 4), (2, 4), 1).shape == (2, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_values_that_people_forget(dtype):
    x = X.to(dtype)
    nan = values.filled(x, "NaN")
    assert nan.isnan().nonzero().tolist() == [[0, 0], [2, 0], [3, 4]] and not x.isnan().any()
    small = values.filled(x, "denormal")
    assert 0 < small.double().abs().max() < torch.finfo(dtype).smallest_normal
    assert values.filled(x, "large").double().abs().max() == 300 and not values.filled(x, "zeros").any()
    assert values.filled(torch.arange(3), "NaN") is None and values.filled(torch.empty(0), "NaN") is None


def test_numbers_worth_trying_come_from_directives_first():
    text = """\
//! n = x.numel()
//! out = empty_like(x)
// 99 in a comment
constexpr int TILE = 48;  // 77 too
void scale(const float* x, float* out, double k, int64_t n) {
  for (int64_t i = 0; i < n; i += 1 << 10) out[i] = x[i] * 0x20 + 1.5f + "64"[0];
}
"""
    source = Source(text, "cpp", first_line=2)
    op = schema.parse("lab::scale(Tensor x, float k) -> Tensor")
    declaration = directives.parse(source, op, entry="forward", functions=functions(text, "cpp", 2), function="")
    found = bounds(source, declaration)
    assert [(b.number, b.line) for b in found] == [(48, 5), (1024, 7), (32, 7), (128, 0)]
    assert found[0].where == "constexpr int TILE = 48;  // 77 too" and not found[0].is_block


def test_blocks_of_cuda_and_tuned_values_are_blocks():
    text = """\
//! n = x.numel()
//! tune BLOCK = 256, 512
//! out = empty_like(x)
//! grid = cdiv(n, BLOCK)
//! block = 64
__global__ void scale(const float* x, float* out, float k, int n) {}
"""
    source = Source(text, "cuda")
    op = schema.parse("lab::scale(Tensor x, float k) -> Tensor")
    declaration = directives.parse(source, op, entry="forward", functions=functions(text, "cuda", 1), function="")
    assert [b.number for b in bounds(source, declaration) if b.is_block] == [256, 512, 64]


def shapes(found, about, check="sizes"):
    made = [v.case(NORM) for v in found if (v.check, v.about) == (check, about)]
    return [tuple(tuple(x.shape) for x in c.args[:2]) for c in made if c is not None]


def test_the_plan_of_sizes():
    found = sweep.plan(NORM, [norm()], bounds(None, None))
    assert shapes(found, "empty") == [((0, 128), (128,)), ((4, 0), (0,)), ((0, 0), (0,))]
    assert shapes(found, "one") == [((1, 128), (128,)), ((4, 1), (1,)), ((1, 1), (1,))]
    assert ((3, 7), (7,)) in shapes(found, "odd")
    assert shapes(found, "long") == [((1021, 5), (5,)), ((4, 1021), (1021,))]
    assert ((), ()) in shapes(found, "0-dim") and ((4, 128), ()) in shapes(found, "0-dim")
    assert shapes(found, "one dimension more") == [((2, 4, 128), (128,))]
    assert shapes(found, "one dimension less") == [((128,), (128,))]
    around = shapes(found, "around numbers in the code")
    for n in (31, 32, 33, 65, 127, 128, 129, 257):
        assert ((4, n), (n,)) in around and ((n, 5), (5,)) in around
    assert ((129, 129), (129,)) in around


def test_the_plan_of_layouts_values_dtypes_and_scalars():
    cases = make(norm_cases, NORM, (torch.float32, torch.bfloat16))
    found = sweep.plan(NORM, sizes_of(cases, NORM))
    assert {v.about for v in found if v.check == "layouts"} == {*layouts.LAYOUTS, TWICE}
    assert {v.at for v in found if v.about == "padded rows"} == {"", "x", "w"}
    assert {v.about for v in found if v.check == "values"} == set(values.VALUES)
    assert {v.about for v in found if v.check == "dtypes"} == {"float64", "float16", "mixed"}
    assert [dict(v.scalars)["eps"] for v in found if v.check == "scalars"] == [0.0, 1, -1e-6, 0.37]
    lifted = [v.case(NORM) for v in found if v.about == "channels last"]
    assert lifted[0].args[0].shape == (2, 3, 4, 128) and lifted[0].args[0].stride()[1] == 1
    axpy = schema.parse("lab::axpy_(Tensor(a!) x, Tensor y) -> ()")
    (family,) = sizes_of(make(lambda t: [(t(4, 8), t(4, 8))], axpy), axpy)
    assert ONE_BASE in {v.about for v in sweep.plan(axpy, [family])}


def test_variants_are_spelled_as_a_person_would():
    v = Variant("layouts", "transposed", norm().cases[0], norm(), ((0, 3), (1, 4)), layout="transposed")
    assert spelled(v.arguments(NORM)) == "x float32[3, 4] strides (1, 3), w float32[4], eps=1e-06"


def test_an_input_for_threads_and_one_past_a_limit():
    base = norm().cases[0]
    assert sweep.elements(sweep.many(base, norm(), NORM), NORM) >= sweep.MANY
    (most, nbytes), (byte, _) = sweep.huge(base, norm(), NORM, limit=1 << 16)
    assert sweep.elements(most, NORM) > 1 << 16 and sweep.elements(byte, NORM) * 4 > 1 << 16
    assert nbytes == sweep.elements(most, NORM) * 48 and most.about == "past 2**16 elements"
