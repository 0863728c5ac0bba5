"""Answers are kept while nothing that they came from can have changed."""

from __future__ import annotations

import types

import torch

from workbench import schema
from workbench.case import make
from workbench.check.remember import answer, gradient_answer, ingredients

ONE = schema.parse("lab::one(Tensor x) -> Tensor")


def defined(text: str, **names: object) -> types.FunctionType:
    """A function as a notebook defines it: its globals are a namespace that goes on changing."""
    scope = {"torch": torch, **names}
    exec(text, scope)
    return scope["reference"]


def case():
    return make(lambda t: [t(5, 7)], ONE)[0]


def test_the_same_reference_is_not_run_again():
    runs = []

    def count(x):
        return x

    reference = defined("def reference(x):\n    return torch.relu(x) * 2")
    c = case()
    assert answer(reference, ONE, c) is answer(reference, ONE, c)
    assert gradient_answer(reference, ONE, c) is gradient_answer(reference, ONE, c)
    assert answer(reference, ONE, c) is not answer(reference, ONE, case()), "another case has another answer"
    assert answer(reference, ONE, c, lambda x, out: out) is not answer(reference, ONE, c)
    assert not runs and count


def test_a_changed_helper_or_number_is_noticed():
    reference = defined("def helper(x):\n    return x * k\ndef reference(x):\n    return helper(x)", k=2.0)
    c = case()
    x = c.args[0]
    assert torch.equal(answer(reference, ONE, c).outputs[0].value, x * 2)
    reference.__globals__["k"] = 3.0
    assert torch.equal(answer(reference, ONE, c).outputs[0].value, x * 3)
    exec("def helper(x):\n    return x + k", reference.__globals__)
    assert torch.equal(answer(reference, ONE, c).outputs[0].value, x + 3)


def test_a_tensor_that_is_changed_in_place_is_noticed():
    table = torch.ones(7)
    reference = defined("def reference(x):\n    return x * table", table=table)
    c = case()
    first = answer(reference, ONE, c)
    table.mul_(5)
    assert torch.equal(answer(reference, ONE, c).outputs[0].value, first.outputs[0].value * 5)


def test_what_may_change_unseen_is_never_kept():
    numbers = [2.0]
    reference = defined("def reference(x):\n    return x * numbers[0]", numbers=numbers)
    assert ingredients(reference) is None
    c = case()
    first = answer(reference, ONE, c)
    numbers[0] = 4.0
    assert torch.equal(answer(reference, ONE, c).outputs[0].value, first.outputs[0].value * 2)
    assert ingredients(torch.nn.Linear(2, 2).forward) is None


def test_recursion_ends():
    reference = defined("def reference(x, n=3):\n    return x if n == 0 else reference(x, n - 1)")
    assert ingredients(reference) is not None
