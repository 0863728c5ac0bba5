"""Tensors that no directive ties to the others, and the `require` that would."""

from __future__ import annotations

import pytest
import torch

from workbench import schema as schemas
from workbench.directives import Declaration, parse, tied
from workbench.source import Source, functions

ADD = schemas.parse("lab::add(Tensor x, Tensor b, Tensor? c=None, SymInt k=1) -> Tensor")
NAMED = "//! rows, cols = x.shape\n//! out = empty_like(x)\n"
F = "void add(const float* x, const float* b, float* out, int64_t rows, int64_t cols) {}"
FLAT = "//! n = x.numel()\n//! out = empty_like(x)\n"
G = "void add(const float* x, const float* b, float* out, int64_t n) {}"


def declared(text: str) -> Declaration:
    source = Source(text, "cpp")
    return parse(source, ADD, functions=functions(text, "cpp", source.first_line))


def called(x: tuple, b: tuple, c: tuple | None = None) -> dict[str, object]:
    made = {"x": torch.zeros(x), "b": torch.zeros(b), "c": None if c is None else torch.zeros(c), "k": 1}
    return {n: v for n, v in made.items() if v is not None or n == "c"}


SAID = "nothing ties the sizes of b to the others: "
LESS = "a `//! require` that says what they are keeps the kernel from reading past its end"


@pytest.mark.parametrize(
    ("text", "cases", "says"),
    [
        (NAMED + F, [called((4, 8), (8,)), called((3, 5), (5,))], "`//! require b.shape == (cols,)`"),
        (NAMED + F, [called((8, 8), (8,))], "`//! require b.shape == (cols,)`"),  # of two that fit the last one
        (NAMED + F, [called((4, 8), (4, 8))], "`//! require b.shape == (rows, cols)`"),
        (NAMED + F, [called((4, 8), (8,)), called((3, 5), (3,))], LESS),
        (NAMED + F, [], LESS),
        (FLAT + G, [called((4, 8), (4, 8)), called((3,), (3,))], "`//! require b.shape == x.shape`"),
        (FLAT + G, [called((4, 8), (32, 1))], "`//! require b.numel() == n`"),
        (FLAT + G, [called((4, 8), (8,))], LESS),
    ],
)  # fmt: skip
def test_a_tensor_that_no_directive_mentions(text, cases, says):
    assert tied.notes(declared(text), cases) == (SAID + says,)


@pytest.mark.parametrize(
    "line",
    ["//! require b.shape == (cols,)", "//! m = b.numel()", "//! w, = b.shape", "//! tmp = empty_like(b)"],
)
def test_one_mention_is_enough(line):
    assert tied.notes(declared(f"{NAMED}{line}\n{F}"), [called((4, 8), (8,))]) == ()


def test_another_name_says_nothing_of_sizes():
    text = f"{NAMED}//! bias = b\n{F.replace('* b', '* bias')}"
    assert tied.notes(declared(text), [called((4, 8), (8,))]) == (SAID + "`//! require b.shape == (cols,)`",)


def test_one_that_may_be_none():
    text = NAMED + F.replace("float* b,", "float* b, const float* c,") + "\n//! require b.shape == (cols,)"
    wanted = "nothing ties the sizes of c to the others: `//! require c is None or c.shape == (cols,)`"
    assert tied.notes(declared(text), [called((4, 8), (8,)), called((4, 8), (8,), (8,))]) == (wanted,)
    declared(f"{NAMED}{wanted.split('`')[1]}\n{F}")  # and the language takes it


def test_a_scalar_tensor_and_a_name_for_it_that_the_language_takes():
    [said] = tied.notes(declared(NAMED + F), [called((4, 8), ())])
    assert said == SAID + "`//! require b.shape == ()`"
    declared(f"{NAMED}{said.split('`')[1]}\n{F}")


def test_what_no_function_takes_and_a_lone_tensor_need_nothing():
    assert tied.untied(declared(NAMED + F.replace("const float* b, ", ""))) == ()
    lone = schemas.parse("lab::one(Tensor x, SymInt n) -> Tensor")
    text = "//! out = empty(n)\nvoid one(const float* x, float* out, int64_t n) {}"
    made = parse(Source(text, "cpp"), lone, functions=functions(text, "cpp", 1))
    assert tied.notes(made, [{"x": torch.zeros(3), "n": 3}]) == ()


def test_a_backward_gets_what_went_through_the_forward():
    text = "//! n = x.numel()\n//! grad_x = empty_like(x)\nvoid backward(const float* grad_out, const float* x, const float* b, float* grad_x, int64_t n) {}"
    made = parse(Source(text, "cpp"), ADD, entry="backward", functions=functions(text, "cpp", 1))
    assert tied.untied(made) == ()


def test_arguments_of_which_nothing_is_made():
    assert tied.unused(declared(NAMED + F)) == ("c", "k")
    assert tied.unused(declared(NAMED + "//! require c is None and k > 0\n" + F)) == ()
    assert tied.unused(declared(NAMED + "//! factor = k\n" + F.replace("int64_t rows", "int64_t factor"))) == ("c",)
