"""Decorators: what wrapped a function goes along with it, or is named; what only read it is left out."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.saving.test_carry import run
from workbench.errors import SaveError
from workbench.saving import carry

MOST = 1.0
TABLE = torch.ones(2)


def clamped(f):
    @functools.wraps(f)
    def wrapper(x):
        return f(x).clamp(max=MOST)

    return wrapper


def times(k):
    def decorator(f):
        @functools.wraps(f)
        def wrapper(x):
            return f(x) * k

        return wrapper

    return decorator


def bare(f):
    def wrapper(x):
        return f(x) + 10

    return wrapper


def with_table(f):
    @functools.wraps(f)
    def wrapper(x):
        return f(x) + TABLE

    return wrapper


def elsewhere(f):
    return clamped(f)


@clamped
def r(x: Tensor) -> Tensor:
    return x + 1


@times(3.0)
@clamped
def twice_wrapped(x: Tensor) -> Tensor:
    return x + 1


def calls_wrapped(x: Tensor) -> Tensor:
    return r(x) + frozen(x) + cached(2)


@torch.no_grad()
def frozen(x: Tensor) -> Tensor:
    return x * 2


@functools.lru_cache(maxsize=4)
def cached(n: int) -> int:
    return n * n


@bare
@clamped
def bare_above(x: Tensor) -> Tensor:
    return x + 1


@with_table
def takes_a_table(x: Tensor) -> Tensor:
    return x


@elsewhere
def made_elsewhere(x: Tensor) -> Tensor:
    return x


def plain(x: Tensor) -> Tensor:
    return x


rebound = torch.no_grad()(plain)
X = torch.tensor([0.5, -3.0])


def saved(function) -> tuple[str, object]:
    made = carry.carry({"made": function}, "lab::f")
    return made.render(), run(made)["made"]


@pytest.mark.parametrize("function", [r, twice_wrapped, calls_wrapped, frozen, bare_above])
def test_what_ran_is_what_is_saved(function):
    text, made = saved(function)
    assert torch.equal(made(X), function(X))
    assert not made(X.clone().requires_grad_()).requires_grad or function is not frozen


def test_decorators_stand_above_as_they_were_typed():
    text, _ = saved(twice_wrapped)
    assert "\n\n\n@times(3.0)\n@clamped\ndef made(x: Tensor) -> Tensor:\n    return x + 1\n" in text
    assert (
        text.index("def clamped(f):") < text.index("@clamped")
        and "import functools\n" in text
        and "MOST = 1.0\n" in text
    )


def test_each_helper_once_and_what_a_decorator_calls_before_it():
    text, _ = saved(calls_wrapped)
    assert text.count("def r(x") == 1 and "def f(x)" not in text and text.count("def made(") == 1
    assert text.index("def clamped") < text.index("@clamped\ndef r(x")
    assert "@torch.no_grad()\ndef frozen" in text and "@functools.lru_cache(maxsize=4)\ndef cached" in text


def test_a_decorator_without_wraps_is_a_function_of_its_own():
    text, made = saved(bare_above)
    assert (
        "@bare" not in text
        and "@clamped\ndef f(x: Tensor) -> Tensor:\n    return x + 1\n" in text
        and "def made(x):\n    return f(x) + 10" in text
    )
    assert torch.equal(made(X), bare_above(X))


def test_ours_are_left_out(namespace):
    @wb.op(f"{namespace}::g")
    @clamped
    def g(x: Tensor) -> Tensor:
        return x + 1

    @g.backward
    def backward(grad_out, x):
        return grad_out * (x < 0)

    text, made = saved(g.definition.reference)
    assert "@clamped\ndef made(" in text and "wb" not in text and torch.equal(made(X), g(X))
    assert saved(g.definition.backward)[0].startswith("def made(grad_out, x):")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            takes_a_table,
            "lab::f: takes_a_table is decorated with @with_table, which cannot come along (lab::f: takes_a_table: with_table uses TABLE",
        ),
        (
            made_elsewhere,
            "made_elsewhere is decorated with @elsewhere, which cannot come along (wrapper, which ran, is not written inside it): call it inside the function, or write there what it does",
        ),
        (
            rebound,
            "lab::f: plain was wrapped by decorate_context, which no decorator in its text does: call that inside the function",
        ),
    ],
)
def test_what_cannot_come_along_is_named(function, said):
    with pytest.raises(SaveError) as caught:
        carry.carry({"f": function}, "lab::f")
    assert said in str(caught.value)


def test_the_line_of_a_decorator():
    with pytest.raises(SaveError) as caught:
        carry.carry({"f": made_elsewhere}, "lab::f")
    first = made_elsewhere.__wrapped__.__code__.co_firstlineno
    assert (caught.value.file, caught.value.line) == ("test_decorators.py", first)


def test_a_decorator_of_another_function():
    def local(f):
        return functools.wraps(f)(lambda x: f(x))

    @local
    def f(x: Tensor) -> Tensor:
        return x

    with pytest.raises(
        SaveError, match=r"is decorated with @local, which cannot come along \(local is a name of another function\)"
    ):
        carry.carry({"f": f}, "lab::f")
