"""Which cases a verb is about: names, numbers, inputs, or nothing said; and the same words for what means none."""

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import which
from workbench.errors import SchemaError


@pytest.fixture
def add(namespace):
    @wb.op(f"{namespace}::add")
    def add(x: Tensor, y: Tensor, k: float = 1.0) -> Tensor:
        return x + k * y

    @add.cases(dtypes=(torch.float32, torch.bfloat16))
    def _(t):
        yield t(4, 8), t(8)
        yield wb.case("odd", t(5, 3), t(3), 2.0)

    return add


def labels(op, wanted=None):
    return [c.label for c in which.cases(op, wanted, verb="bench")]


def test_by_name_label_number_and_case(add):
    assert labels(add, "odd") == ["odd float32", "odd bfloat16"]
    assert labels(add, "odd bfloat16") == labels(add, -1) == ["odd bfloat16"]
    assert labels(add, ["4x8 bfloat16", 0]) == ["4x8 bfloat16", "4x8 float32"]
    assert labels(add, wb.case("mine", torch.ones(2, 3), torch.ones(3))) == ["mine"]


@pytest.mark.slow
def test_by_inputs_which_stay_as_they_are(add):
    x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    [made] = which.cases(add, (x, x[0].detach()), verb="bench")
    assert (made.label, made.args[0].data_ptr()) == ("2x3 float64", x.data_ptr())
    assert made.bound(add.schema)["k"] == 1.0
    report = add.bench(cases=(x, x[0].detach(), 3.0), against="reference", budget=0.05)
    assert report.ok and {(r.case, r.dtype) for r in report.rows} == {("2x3", "float64")}


def test_nothing_said_is_for_the_bench_else_the_largest(add):
    assert labels(add) == ["4x8 float32", "4x8 bfloat16"]

    @add.cases
    def _(t):
        yield t(4, 8), t(8)
        yield wb.case("small", t(1, 1), t(1), bench=True)
        yield wb.case("huge", t(64, 4096), t(4096))

    assert labels(add) == ["small float32"]

    @add.cases
    def _(t):
        yield t(4, 8), t(8)
        yield wb.case("huge", t(64, 4096), t(4096))

    assert labels(add) == ["huge float32"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("even", r"there is no case 'even'; its cases are 4x8, odd"),
        ("ood", r"there is no case 'ood'; did you mean 'odd'\? its cases are 4x8, odd"),
        (4, r"there is no case number 4; its cases are 0 4x8 float32, 1 4x8 bfloat16, 2 odd float32, 3 odd bfloat16"),
        ([], r"no case is named; without any those with bench=True are taken, else the largest"),
        (2.5, r"a case is a name such as \"large\", a number, wb\.case\(\.\.\.\) or the inputs of a call, \(x, w\); got 2\.5"),
        ({"odd": 1}, r"a case is a name"),
        (True, r"a case is a name"),
    ],
)  # fmt: skip
def test_all_verbs_say_the_same_of_what_means_none(add, wanted, said):
    wb.cpp(add, "//! tune A = 1, 2\n//! n = x.numel()\n//! m = y.numel()\n//! out = empty_like(x)\n"
           "template <typename T> void add(const T* x, const T* y, T* out, float k, int64_t n, int64_t m) "
           "{ for (int64_t i = 0; i < n; ++i) out[i] = T(float(x[i]) + k * float(y[i % m])); }")  # fmt: skip
    for verb, ask in (("bench", add.bench), ("profile", add.profile), ("tune", add.tune)):
        given = {"cases" if verb == "bench" else "case": wanted}
        if verb == "profile" and wanted == []:
            continue
        with pytest.raises(SchemaError, match=rf"^add\.{verb}: {said}"):
            ask(**given)


def test_inputs_that_do_not_fit_and_one_case_at_a_time(add):
    with pytest.raises(
        SchemaError, match=r"does not fit, .* it takes \(Tensor x, Tensor y, float k=1\.0\), got \(float32\[2\]\)"
    ):
        which.cases(add, (torch.ones(2),), verb="bench")
    with pytest.raises(SchemaError, match=r"add\.profile: one case at a time, got 2"):
        add.profile(["odd", "4x8"])
