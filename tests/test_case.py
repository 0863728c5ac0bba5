"""Cases: what the generator yields, the tensors of `t`, errors on the user's own line, cases learnt from calls."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from workbench import inputs, schema
from workbench.case import case, learn, make
from workbench.errors import SchemaError
from workbench.inputs import Tensors, fresh

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
NORM = schema.parse("lab::rmsnorm(Tensor x, Tensor w, float eps=1e-6) -> Tensor")
CACHE = schema.parse("lab::kv_write_(Tensor k, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor pos) -> ()")
LIST = schema.parse("lab::sum_all(Tensor[] xs, Tensor? scale=None, *, int k=1) -> Tensor")


def rows(t):
    yield t(4, 128), t(128)
    yield case("odd", t(5, 123), t(123), eps=1e-3)
    yield case("llama", t(8192, 4096), t(4096), bench=True)


def test_names_dtypes_and_options():
    made = make(rows, NORM, (F32, BF16))
    assert [c.label for c in made] == [
        "4x128 float32", "4x128 bfloat16", "odd float32", "odd bfloat16", "llama float32", "llama bfloat16",
    ]  # fmt: skip
    assert [c.bench for c in made] == [False] * 4 + [True] * 2
    assert made[3].bound(NORM)["eps"] == 1e-3
    assert made[0].args[2] == 1e-6, "defaults are filled in"
    assert made[0].names == ("x", "w", "eps")


def test_the_same_numbers_in_every_dtype_rounded():
    wide, single, half = make(lambda t: [(t(4, 128), t(128))], NORM, (F64, F32, F16))
    assert torch.equal(wide.args[0].float(), single.args[0])
    assert torch.equal(wide.args[0].half(), half.args[0])
    assert not torch.equal(single.args[0][0], single.args[1]), "each call draws other numbers"


def test_large_tensors_are_made_on_demand_and_held_by_nobody():
    made = make(rows, NORM, (F32,))
    large = made[-1]
    assert large.recipe.made is None
    x = large.args[0]
    assert x.shape == (8192, 4096)
    assert abs(x.std().item() - 1) < 1e-3, "drawn, not only sketched"
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert made[0].recipe.made is not None, "small ones are held"


def test_what_comes_from_a_large_tensor_is_not_held_either():
    def cases(t):
        big = t(2048, 1024)
        yield big * 2, t(3)
        yield big[:2], t(3)

    first, second = make(cases, NORM)
    assert abs(first.args[0].std().item() - 2) < 1e-2
    assert torch.equal(second.args[0] * 2, first.args[0][:2])


def test_a_generator_that_looks_at_large_values_gets_them():
    def cases(t):
        x = t(2048, 1024)
        if not 0.9 < x.std() < 1.1:
            raise ValueError("not drawn")
        yield x, t(3)

    assert make(cases, NORM)[0].args[0].shape == (2048, 1024)


def test_a_case_that_fixes_its_dtypes_exists_once():
    def cases(t):
        yield t(3, dtype=F64), t(3, dtype=torch.int32)
        yield t(3), t(3, dtype=torch.int32)

    made = make(cases, NORM, (F32, F16))
    assert [c.label for c in made] == ["3", "3 (2) float32", "3 (2) float16"]
    assert make(lambda t: [(t(3, dtype=F64), t(3, dtype=F64))], NORM)[0].dtype is None


def test_ranges():
    t = Tensors(F32, 0)
    x = t(1000)
    assert abs(x.mean()) < 0.1 and abs(x.std() - 1) < 0.1
    for low, high, expected in ((0, None, (0, 1)), (0.5, 2, (0.5, 2)), (None, 3, (0, 3)), (5, None, (5, 6))):
        x = t(1000, low=low, high=high)
        assert expected[0] <= x.min() and x.max() < expected[1]
        assert x.max() - x.min() > 0.9 * (expected[1] - expected[0])
    x = t(1000, dtype=torch.int32)
    assert x.dtype is torch.int32 and x.unique().tolist() == list(range(10))
    assert t(1000, dtype=torch.int64, low=-2, high=1).unique().tolist() == [-2, -1, 0]
    assert t(100, dtype=torch.bool).unique().tolist() == [False, True]
    assert t().shape == () and t((2, 3)).shape == (2, 3)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_rounding_never_reaches_high(dtype):
    assert Tensors(dtype, 0)(100_000, low=0).max() < 1


def test_views_of_one_base_stay_views():
    def cases(t):
        kv = t(8, 2, 4)
        yield t(3, 4), kv[:, 0], kv[:, 1], t(3, dtype=torch.int32, high=8)

    made = make(cases, CACHE)[0]
    held = made.bound(CACHE)
    copies = fresh(held)
    assert copies["k_cache"].stride() == (8, 1)
    assert copies["k_cache"].untyped_storage().data_ptr() == copies["v_cache"].untyped_storage().data_ptr()
    copies["k_cache"].zero_()
    assert not torch.equal(copies["k_cache"], held["k_cache"]), "the case's own tensors are untouched"
    assert torch.equal(copies["v_cache"], held["v_cache"])
    cast = made.cast({"k_cache": BF16}).bound(CACHE)
    assert cast["k_cache"].dtype is BF16 and cast["k"].dtype is F32 and cast["pos"].dtype is torch.int32
    assert torch.equal(cast["k_cache"], held["k_cache"].bfloat16())
    assert cast["v_cache"].untyped_storage().data_ptr() == cast["k_cache"].untyped_storage().data_ptr()


def test_cast_names_its_dtype_and_refuses_unknown_arguments():
    made = make(rows, NORM)[0]
    assert made.cast({"x": F16, "w": F16}).label == "4x128 float16"
    with pytest.raises(SchemaError, match="case '4x128' has no argument 'y'"):
        made.cast({"y": F16})


def test_lists_optionals_and_keyword_only():
    def cases(t):
        yield [t(3), t(4)]  # a list alone is one argument
        yield case("scaled", [t(3)], t(), k=2)

    first, second = make(cases, LIST)
    assert [x.shape for x in first.args[0]] == [(3,), (4,)]
    assert first.args[1] is None and first.arguments == {"k": 1}
    assert first.name == "2 tensors" and second.arguments == {"k": 2}


def test_torchs_generator_is_seeded_inside_and_restored():
    def cases(t):
        yield torch.randperm(32).view(4, 8).float(), t(8)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = make(cases, NORM)[0].args[0]
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(make(cases, NORM)[0].args[0], first)


def test_grad_false_is_remembered_by_name():
    made = make(lambda t: [(t(3), t(3, grad=False)[:2])], NORM)[0]
    assert made.constant == {"w"}


def nothing(t):
    return ()


def raises(t):
    yield t(3), t(3)
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (nothing, "its cases yield nothing"),
        (raises, r"its cases raised ValueError: boom \(line \d+: raise ValueError\(\"boom\"\)\)"),
        (
            lambda t: [(t(3), t(3), 1.0, 2)],
            r"case 1 does not fit, too many .*got \(float32\[3\], float32\[3\], 1.0, 2\)",
        ),
        (lambda t: [t(3)], "case 1 does not fit, missing a required argument: 'w'"),
        (lambda t: [case("a", t(3), t(3), epss=1)], "case 'a' names 'epss', which is no argument; did you mean 'eps'"),
        (lambda t: [case("a", t(3), t(3), benhc=True)], "did you mean 'bench'"),
        (lambda t: [(t(3), 2.0)], "case 1: w is a tensor, got 2.0"),
        (lambda t: [(t(3, dtype="f4"), t(3))], "dtype='f4'.*a dtype is wanted"),
        (lambda t: [(t(3, -1), t(3))], "sizes are integers of at least 0, got -1"),
        (lambda t: [(t(3, low=2, high=1), t(3))], "low must be below high"),
        (lambda t: [(t(3, dtype=torch.int32, grad=True), t(3))], "only floating tensors take gradients"),
    ],
)
def test_mistakes_are_named(cases, message):
    with pytest.raises(SchemaError, match=message) as caught:
        make(cases, NORM)
    assert "lab::rmsnorm" in str(caught.value)


@pytest.mark.parametrize("dtypes", [(), ("float32",), (torch.int32,)])
def test_wrong_dtypes(dtypes):
    with pytest.raises(SchemaError, match="dtypes"):
        make(rows, NORM, dtypes)


def test_a_case_needs_a_name_and_sane_tolerances():
    with pytest.raises(SchemaError, match=r"needs a name.*got float32\[3\]"):
        case(torch.ones(3))
    with pytest.raises(SchemaError, match="atol is a number of at least 0, got -1"):
        case("a", atol=-1)


def test_learning_keeps_shapes_strides_and_ranges_but_no_data():
    x, table = torch.rand(4, 128).t(), torch.tensor([3, 7, 5], dtype=torch.int32)
    learnt = learn((x, table), {"eps": 0.5}, NORM)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    bound = learnt.bound(NORM)
    assert learnt.label == "128x4 float32"
    assert bound["x"].shape == (128, 4) and bound["x"].stride() == (1, 128)
    assert bound["x"].min() >= 0, "what was never negative stays so"
    assert bound["w"].dtype is torch.int32 and bound["w"].min() >= 3 and bound["w"].max() <= 7
    assert bound["eps"] == 0.5


def test_learning_keeps_views_of_one_base_and_small_spans():
    pool = torch.randn(1000, 2, 4)
    learnt = learn((torch.randn(3, 4), pool[10:20, 0], pool[10:20, 1], torch.tensor([1, 2, 3])), {}, CACHE)
    bound = learnt.bound(CACHE)
    assert bound["k_cache"].stride() == (8, 1)
    assert bound["k_cache"].untyped_storage().data_ptr() == bound["v_cache"].untyped_storage().data_ptr()
    assert bound["k_cache"].untyped_storage().nbytes() == 80 * 4, "not the whole pool"


def test_expanded_tensors_can_be_learnt():
    bound = learn((torch.ones(1, 4).expand(3, 4), torch.ones(4)), {}, NORM).bound(NORM)
    assert bound["x"].stride() == (0, 1)


def test_describe():
    assert inputs.describe(torch.ones(2, 3)) == "float32[2, 3]"
    assert inputs.describe([torch.ones(1)] * 2) == "[2 tensors]"
