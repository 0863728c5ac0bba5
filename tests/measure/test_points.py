import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench.errors import WorkbenchError
from workbench.measure.points import points


@pytest.fixture
def norm(namespace):
    @wb.op(f"{namespace}::norm")
    def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @norm.cases(dtypes=(torch.float32, torch.bfloat16))
    def _(t):
        yield t(4, 128), t(128)
        yield wb.case("odd", t(5, 123), t(123))
        yield wb.case("wide", t(8, 512), t(512), bench=True)

    return norm


def shapes(point):
    return [tuple(x.shape) for x in point.make().args if isinstance(x, Tensor)]


def test_without_cases_those_for_the_bench(norm):
    assert [p.label for p in points(norm)] == ["wide float32", "wide bfloat16"]


def test_without_any_for_the_bench_the_largest(norm):
    @norm.cases
    def _(t):
        yield t(4, 128), t(128)
        yield wb.case("odd", t(5, 123), t(123))

    assert [p.label for p in points(norm)] == ["odd float32"]


def test_cases_by_name_by_label_and_made_on_the_spot(norm):
    assert [p.label for p in points(norm, "odd")] == ["odd float32", "odd bfloat16"]
    assert [p.label for p in points(norm, ["odd bfloat16", "4x128 float32"])] == ["odd bfloat16", "4x128 float32"]
    assert [p.label for p in points(norm, wb.case("mine", torch.ones(2, 3), torch.ones(3)))] == ["mine"]


def test_a_size_takes_with_it_what_belongs_to_it(norm):
    found = points(norm, "wide float32", {"x.shape[-1]": [16, 32]})
    assert [(p.name, shapes(p)) for p in found] == [
        ("x.shape[-1]=16", [(8, 16), (16,)]),
        ("x.shape[-1]=32", [(8, 32), (32,)]),
    ]
    assert found[1].values == (("x.shape[-1]", 32),)


def test_sizes_dtypes_and_scalars_together(norm):
    found = points(norm, "wide", {"x.size(0)": [2, 3], "dtype": [torch.float32, torch.float64], "eps": [1e-5]})
    assert [p.label for p in found] == [
        "x.size(0)=2 float32", "x.size(0)=2 float64", "x.size(0)=3 float32", "x.size(0)=3 float64",
    ]  # fmt: skip
    made = found[3].make()
    assert (made.args[0].shape, made.args[0].dtype, made.args[2]) == ((3, 512), torch.float64, 1e-5)


def test_a_function_whose_defaults_are_the_values(norm):
    found = points(norm, sweep=lambda t, cols=(8, 16), dtype=(torch.float32, torch.bfloat16): (t(2, cols), t(cols)))
    assert [p.label for p in found] == ["cols=8 float32", "cols=8 bfloat16", "cols=16 float32", "cols=16 bfloat16"]
    assert shapes(found[3]) == [(2, 16), (16,)]
    assert found[3].make().args[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("cases", "sweep", "said"),
    [
        (None, {}, "sweeps over nothing"),
        ("wide", {"x.shape[-1]": []}, r"'x.shape\[-1\]' no values"),
        ("wide", {"x.shape[-1]": 256}, "a list of values is wanted"),
        ("wide", {"x.shape[-1]": [-1]}, "integers of at least 0"),
        ("wide", {"cols": [256]}, r"'cols', which is nothing of case .* it has x.shape\[0\], x.shape\[1\], w.shape\[0\], eps, dtype"),
        ("wide", {"x.shape[2]": [256]}, r"'x.shape\[2\]', which is nothing"),
        ("wide", {"dtype": ["float32"]}, "dtypes such as torch.bfloat16"),
        (["wide", "odd"], {"x.shape[0]": [2]}, "a sweep changes one case; say which with cases=: wide, odd"),
        (None, lambda t: (t(2, 3), t(3)), "sweeps over nothing"),
        (None, lambda t, cols: (t(2, cols), t(cols)), "gives 'cols' no values"),
        (None, lambda t, cols=(): (t(2, cols), t(cols)), "'cols' no values"),
        ("wide", lambda t, cols=(1,): (t(2, cols), t(cols)), "leave out cases="),
        (None, 3, "write sweep="),
        ("llama", None, "norm.bench: there is no case 'llama'; its cases are 4x128, odd, wide"),
        ("wida", None, "did you mean 'wide'"),
        ([], None, "norm.bench: no case is named"),
        (7, None, r"norm.bench: there is no case number 7; its cases are 0 4x128 float32, .*wide"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said(norm, cases, sweep, said):
    with pytest.raises(WorkbenchError, match=said):
        points(norm, cases, sweep)


def test_an_op_without_cases_says_how_to_give_it_one(namespace):
    @wb.op(f"{namespace}::bare")
    def bare(x: Tensor) -> Tensor:
        return x * 2

    with pytest.raises(
        WorkbenchError, match=r"bare.bench: there are no cases, and bare was not called yet\. .*@bare.cases"
    ):
        points(bare)
    bare(torch.ones(4, 4))
    assert [p.label for p in points(bare)] == ["4x4 float32"]
