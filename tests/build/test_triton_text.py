"""What is read of a Triton cell's text before it runs: launchers, and names that the cell lacks."""

from __future__ import annotations

import math

import pytest
import torch

from workbench.build import triton_text
from workbench.errors import BuildError, SchemaError
from workbench.source import Source

CELL = """\
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * K, i < n)

def scale(x, k=2.0, *, fast=True):
    out = torch.empty_like(x)
    kernel[(1,)](x, out, x.numel(), BLOCK=SIZE)
    return out
"""


def source(text: str) -> Source:
    return Source(text, "triton", file="cell [3]", first_line=2)


def test_a_launcher_says_what_it_takes_and_how_much_it_returns():
    found = triton_text.launcher(source(CELL), "scale")
    assert (found.line, found.parameters, found.required, found.results) == (7, ("x", "k", "fast"), ("x",), 1)


@pytest.mark.parametrize(("body", "results", "absent"), [
    ("return a, b", 2, (False, False)),
    ("return", 0, ()),
    ("pass", 0, ()),
    ("if a:\n        return a, None\n    return b, None", 2, (False, True)),
    ("if a:\n        return a\n    return a, b", -1, ()),
    ("def inner():\n        return 1, 2\n    return a", 1, ()),
])  # fmt: skip
def test_results_are_counted(body, results, absent):
    found = triton_text.launcher(source(f"def f(a, b):\n    {body}\n"), "f")
    assert (found.results, found.absent) == (results, absent)


@pytest.mark.parametrize(("text", "words", "line"), [
    (CELL, "no function is called 'norm'.*functions here that launch: scale", 2),
    ("@triton.jit\ndef norm(x): pass\n", "norm is a kernel .*give the kernel another name", 3),
    ("\ndef norm(*xs): pass\n", r"norm takes \*xs: spell its arguments out", 3),
])  # fmt: skip
def test_a_launcher_that_is_none(text, words, line):
    with pytest.raises(SchemaError, match=words) as raised:
        triton_text.launcher(source(text), "norm")
    assert (raised.value.line, raised.value.file) == (line, "cell [3]")


def test_no_python_is_a_build_error_on_its_line():
    with pytest.raises(BuildError) as raised:
        triton_text.parse(source("x = 1\ny = (\n"))
    found = raised.value.diagnostics[0]
    assert (found.line, found.file, found.excerpt) == (3, "cell [3]", "y = (")


@pytest.mark.parametrize(("names", "name", "line", "words"), [
    ({}, "K", 5, r"K is not defined in this cell.*\('K = tl.constexpr\(128\)'\)"),
    ({"K": 3}, "K", 5, r"write 'K = tl.constexpr\(3\)' in it \(that is the notebook's value\)"),
    ({"K": math}, "K", 5, "write 'import math as K' in it"),
    ({"K": torch.ones(2)}, "K", 5, "pass it as an argument: it is a Tensor"),
    ({"K": lambda: 0}, "K", 5, "copy its definition into the cell"),
])  # fmt: skip
def test_a_name_that_the_cell_lacks(names, name, line, words):
    with triton_text.offering(names), pytest.raises(SchemaError, match=words) as raised:
        triton_text.check_names(source(CELL))
    assert (raised.value.line, raised.value.file) == (line, "cell [3]")


def test_a_module_of_the_standard_library_and_a_text():
    text = "def norm(x):\n    return math.sqrt(x)\n"
    with pytest.raises(SchemaError, match="nothing of the notebook's; write 'import math' in it$"):
        triton_text.check_names(source(text))
    with triton_text.offering({"where": "cpu"}), pytest.raises(SchemaError, match="write 'where = \"cpu\"' in it"):
        triton_text.check_names(source("def norm(x):\n    return x.to(where)\n"))


def test_a_name_outside_a_kernel_is_offered_plain():
    with triton_text.offering({"SIZE": 64}), pytest.raises(SchemaError, match="write 'SIZE = 64' in it") as raised:
        triton_text.check_names(source("K = tl.constexpr(2)\n" + CELL))
    assert raised.value.line == 10


def test_what_the_cell_defines_itself_is_known():
    triton_text.check_names(source("K = tl.constexpr(2)\nimport os.path as SIZE\n" + CELL))
    triton_text.check_names(source("from somewhere import *\n" + CELL))
    triton_text.check_names(source("def f(a):\n    global B\n    B = 1\n    return [c for c in a if B]\n"))
    triton_text.check_names(source("class A:\n    x = 1\n    y = x\n"))


def test_has_backward():
    assert triton_text.has_backward(source(CELL + "def backward(grad_out): return grad_out\n"))
    assert not triton_text.has_backward(source(CELL))
    assert not triton_text.has_backward(source("@triton.jit\ndef backward(x): pass\n"))
