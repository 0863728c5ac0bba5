"""Python functions as text: what goes along, and what cannot."""

from __future__ import annotations

import math
from math import sqrt

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import workbench as wb
from workbench.errors import SaveError
from workbench.saving import carry

EPS, SHAPE, NOTHING = 1e-6, (2, 3), -math.inf
LOW = torch.float16
table = torch.ones(3)
model = torch.nn.Linear(2, 2)


def half(x: Tensor) -> Tensor:
    return x * EPS


def norm(x: Tensor, k: float | None = None) -> Tensor:
    """Doc."""
    return half(x).to(LOW) * sqrt(SHAPE[0]) + F.relu(x) * (k or NOTHING)


def uses_table(x: Tensor) -> Tensor:
    return x + table


def uses_model(x: Tensor) -> Tensor:
    return model(x)


def uses_the_workbench(x: Tensor) -> Tensor:
    return wb.ops["lab::f"](x)


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n != 0 and even(n - 1)


def run(carried: carry.Carried) -> dict:
    scope: dict = {}
    exec(compile(carried.render(), "<carried>", "exec"), scope)
    return scope


def test_imports_constants_and_helpers_go_along():
    made = carry.carry({"norm": norm}, "lab::norm")
    assert made.imports == {
        "F": "import torch.nn.functional as F", "Tensor": "from torch import Tensor", "math": "import math",
        "sqrt": "from math import sqrt", "torch": "import torch",
    }  # fmt: skip
    assert made.constants == {"EPS": "1e-06", "LOW": "torch.float16", "NOTHING": "-math.inf", "SHAPE": "(2, 3)"}
    assert list(made.helpers) == ["half"]
    x = torch.tensor([1.0, -2.0])
    assert torch.equal(run(made)["norm"](x, 2.0), norm(x, 2.0))


def test_a_circle_of_helpers_ends():
    assert run(carry.carry({"even": even}, "lab::even"))["even"](10) is True


def test_what_was_typed_is_noted():
    made = carry.carry({"reference": norm}, "lab::norm")
    assert made.functions["reference"].startswith("def reference(x: Tensor, k: float | None = None) -> Tensor:\n")
    origin = made.origins["reference"]
    assert origin.file == "test_carry.py" and origin.line == norm.__code__.co_firstlineno and len(origin.digest) == 64


def test_a_closure_becomes_a_constant():
    def make(k):
        def scale(x: Tensor) -> Tensor:
            return x * k

        return scale

    made = carry.carry({"scale": make(3.0)}, "lab::scale")
    assert made.constants == {"k": "3.0"} and run(made)["scale"](2.0) == 6.0


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            uses_table,
            "lab::f: uses_table uses table of the notebook, a Tensor of shape (3,): take table as an argument of the op, or make it inside the function",
        ),
        (
            uses_model,
            "lab::f: uses_model uses model of the notebook, a Linear: pass model as an argument, or make it inside the function",
        ),
        (uses_the_workbench, "uses wb of the notebook, the module workbench: a package does without it"),
        (lambda x: x, "lab::f: a lambda has no text of its own; write it with def"),
    ],
)
def test_what_cannot_go_along_is_named(function, said):
    with pytest.raises(SaveError) as caught:
        carry.carry({"f": function}, "lab::f")
    assert said in str(caught.value)


def test_a_function_whose_text_is_gone():
    scope: dict = {}
    exec("def f(x): return x", scope)
    with pytest.raises(SaveError, match="lab::f: the source of f cannot be found; define it in a cell or a file"):
        carry.carry({"f": scope["f"]}, "lab::f")


def test_one_name_for_two_things():
    def one(k):
        def f(x):
            return x * k

        return f

    with pytest.raises(SaveError, match="uses k, which is something else for another function of the op: rename one"):
        carry.carry({"f": one(1), "g": one(2)}, "lab::f")


def test_a_name_that_the_package_gives_to_another():
    def fake(x):
        return x

    def calls(x):
        return fake(x)

    with pytest.raises(
        SaveError, match="lab::f: calls uses fake, which is something else for another function of the op: rename one"
    ):
        carry.carry({"fake": calls}, "lab::f")
    with pytest.raises(SaveError, match="uses fake, which is something else"):
        carry.carry({"f": calls, "fake": norm}, "lab::f")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (1e-6, "1e-06"), (math.nan, "math.nan"), (True, "True"), ("a'b", '"a\'b"'), (None, "None"), ((1,), "(1,)"),
     ([1, (2.5,)], "[1, (2.5,)]"), ({"a": [1]}, "{'a': [1]}"), (torch.device("cuda", 1), "torch.device('cuda:1')"), ({1}, "set([1])"), (frozenset("cab"), "frozenset(['a', 'b', 'c'])"),
     (torch.ones(1), None), ([torch.ones(1)], None), (object(), None)],
)  # fmt: skip
def test_values_as_text(value, text):
    assert carry.literal(value) == text
