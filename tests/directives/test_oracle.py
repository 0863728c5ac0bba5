"""Random directive lines, signatures and schemas against what Python, C++ and torch say of them.

Nothing escapes but a SchemaError with its line, and what is accepted means what it means to the oracle. Each property runs
on a few hundred examples; `test_twenty_thousand` (slow, CI runs it) on 20,000 in all, others with `--hypothesis-seed=7`.
"""

# ruff: noqa: PT017, PLR0124  what a refusal says is looked at where it is met; NaN is not itself
from __future__ import annotations

import ast
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.build.native_tools import cell, load
from tests.directives.cells import declare
from workbench import schema as schemas
from workbench.directives import infer_schema
from workbench.directives.evaluate import _Values
from workbench.errors import SchemaError
from workbench.source import Source, functions
from workbench.tiers.signature import infer

Choose = Callable[[list], object]

# ---------------------------------------------------------------- lines


SIZES = [(6, 4), (1, 1), (5,), (0, 3), (2, 3, 7), ()]
BINARY = ["+", "-", "*", "/", "//", "%"]
ORDER = ["<", "<=", ">", ">=", "==", "!="]
ODD = ["y", "x", "lambda: 1", "[1]", "'s'", "None", "x.size()", "k ** 2", "k << 1", "abs(k)", "x.shape", "1e999", "__import__('os')", "{}",
       "min(k)", "cdiv(k)", "x[0]", "k if k else 1", "x.shape[::2]", "99999999999999999999", "f'{k}'", "(k := 1)", "b.numel()", "scale"]  # fmt: skip


def number(choose: Choose, depth: int) -> str:
    """An expression of integers and floats, now and then with something that has no place in it."""
    if depth <= 0 or choose([True, False, False, False]):
        return str(choose(["k", "p", "n", "rows", "0", "1", "2", "3", "7", "1024", "2.5", "0.0", "x.numel()", "x.dim()", "x.element_size()",
                           "x.shape[0]", "x.shape[-1]", "x.stride()[0]", "x.stride(-1)", "x.shape[k]", "prod(x.shape)", "prod(x.shape[:-1])",
                           "prod((2, *x.shape[1:], k))", "(1.0 if scale is None else scale)"]))  # fmt: skip
    if choose([False] * 19 + [True]):
        return str(choose(ODD))
    smaller = lambda: number(choose, depth - 1)
    form = choose(["binary"] * 4 + ["sign", "min", "cdiv", "sqrt", "power", "if", "group"])
    if form == "binary":
        return f"{smaller()} {choose(BINARY)} {smaller()}"
    if form == "sign":
        return f"{choose(['-', '+', '- -'])}{smaller()}"
    if form == "min":
        return f"{choose(['min', 'max'])}({', '.join(smaller() for _ in range(choose([2, 2, 3])))})"
    if form == "cdiv":
        return f"cdiv({smaller()}, {smaller()})"
    if form == "sqrt":
        return f"sqrt({smaller()})"
    if form == "power":
        return f"next_power_of_2({smaller()})"
    if form == "if":
        return f"({smaller()} if {condition(choose, depth - 1)} else {smaller()})"
    return f"({smaller()})"


def condition(choose: Choose, depth: int) -> str:
    form = choose(["compare"] * 4 + ["flag", "none", "shape", "dtype"] + (["and", "or", "not"] if depth > 0 else []))
    if form == "compare":
        sides = [number(choose, depth - 1) for _ in range(choose([2, 2, 2, 3]))]
        return "".join(f" {choose(ORDER)} {s}" if i else s for i, s in enumerate(sides))
    if form in ("and", "or"):
        return f"{condition(choose, depth - 1)} {form} {condition(choose, depth - 1)}"
    if form == "not":
        return f"not ({condition(choose, depth - 1)})"
    return str(choose({
        "flag": ["flag"],
        "none": ["b is None", "b is not None", "scale is None", "b is None or b.numel() > 0", "k is None"],
        "shape": ["x.shape == (k,)", "x.shape[1:] != (4,)", "x.shape == (*x.shape[:1], 4)", "x.stride() == x.shape"],
        "dtype": ["x.dtype == float32", "x.dtype != torch.bfloat16", "x.dtype < float32"],
    }[form]))  # fmt: skip


@dataclass
class Plain:
    """A tensor as plain integers, which is all that directives know of it."""

    sizes: tuple[int, ...]
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sizes

    def stride(self, at: int | None = None) -> object:
        made: list[int] = []
        for _ in self.sizes:
            made.append(made[-1] * max(self.sizes[len(self.sizes) - len(made)], 1) if made else 1)
        strides = tuple(reversed(made))
        return strides if at is None else strides[at]

    def numel(self) -> int:
        return math.prod(self.sizes)

    def dim(self) -> int:
        return len(self.sizes)

    def element_size(self) -> int:
        return 4


def oracle(expression: str, x: Plain, k: int, p: float) -> object:
    """What Python makes of the text, with functions written down anew: ratios, loops and plain numbers."""

    def power(n: int) -> int:
        found = 1
        while found < n:
            found *= 2
        return found

    def divided(a: int, b: int) -> int:
        return math.ceil(Fraction(a, b))

    class torch_:
        bfloat16 = "bfloat16"

    names = {"x": x, "b": None, "k": k, "p": p, "flag": True, "scale": None, "n": k + 1, "cdiv": divided, "min": min, "max": max,
             "prod": math.prod, "sqrt": math.sqrt, "next_power_of_2": power, "float32": "float32", "torch": torch_, "__builtins__": {}}  # fmt: skip
    if x.sizes:
        names["rows"] = x.sizes[0]
    return eval(expression, names)


def agreeing(expression: str, size: tuple[int, ...], k: int) -> bool:
    """Ours and Python's; True when both have a value."""
    text = f"//! n = k + 1\n//! rows = x.shape[0]\n//! v = {expression}\n//! out = empty(2 if v == v else 1)\n"
    try:
        declared = declare(text, bind=False)
    except SchemaError as error:
        assert error.line in (4, 5) and len(str(error)) < 700
        return False
    assert not any(
        isinstance(node, (ast.Lambda, ast.List, ast.Dict, ast.Pow, ast.NamedExpr))
        for node in ast.walk(ast.parse(expression))
    )
    arguments = {"x": torch.empty(size), "b": None, "k": k, "p": 0.5, "flag": True}
    try:
        wanted, failed = oracle(expression, Plain(size), k, 0.5), None
    except (ZeroDivisionError, IndexError, ValueError, OverflowError, NameError, AttributeError) as error:
        wanted, failed = None, error
    try:
        got = _Values(declared, arguments, {})["v"]
    except SchemaError as error:
        assert failed is not None or "out of range" in str(error), f"{expression}: {error}, Python gives {wanted!r}"
        assert error.line in (3, 4)
        return False
    assert failed is None, f"{expression} gives {got!r}, Python raises {failed!r}"
    assert got == wanted or (got != got and wanted != wanted), f"{expression} gives {got!r}, Python {wanted!r}"
    assert isinstance(got, bool) == isinstance(wanted, bool)
    return True


LINE = st.randoms(use_true_random=False), st.sampled_from(SIZES), st.sampled_from([-7, -1, 0, 1, 2, 3, 64])


def check_line(chance: random.Random, size: tuple[int, ...], k: int) -> None:
    agreeing((number if chance.random() < 0.8 else condition)(chance.choice, 4), size, k)


# ---------------------------------------------------------------- signatures

TYPES = {
    "const float*": "Tensor", "const double *": "Tensor", "const int64_t*": "Tensor", "const uint8_t *__restrict__": "Tensor",
    "int": "SymInt", "int64_t": "SymInt", "long long": "SymInt", "size_t": "SymInt", "const int": "SymInt", "uint32_t": "SymInt",
    "float": "float", "double": "float", "const double": "float", "bool": "bool", "float*": "Tensor(a!)",
}  # fmt: skip
HOST_TYPES = {"Tensor": "Tensor", "const Tensor&": "Tensor", "int64_t": "SymInt", "double": "float", "bool": "bool", "const std::vector<Tensor>&": "Tensor[]",
              "std::optional<Tensor>": "Tensor?", "std::optional<double>": "float?", "std::string": "str"}  # fmt: skip
NO_TYPES = [
    "Tensor",
    "std::string",
    "float**",
    "void*",
    "auto",
    "int (*)(int)",
    "float&",
    "struct s",
    "char",
    "",
    "const",
    "...",
    "T",
]
SIGNATURE = (
    st.lists(st.tuples(st.sampled_from([*TYPES, *TYPES, *HOST_TYPES, *NO_TYPES]), st.sampled_from(["x", "w", "k", "n", "eps", "lambda", "_y", "x", "int", "λ", ""])), max_size=5),
    st.sampled_from(["void f", "void f", "void f", "int f", "template <typename T> void f", "void g", "static void f", "void ns::f"]),
    st.sampled_from(["cpp", "cuda", "host"]),
)  # fmt: skip


def check_signature(parameters: list[tuple[str, str]], head: str, language: str) -> None:
    written = ", ".join(f"{t} {n}" for t, n in parameters)
    known = HOST_TYPES if language == "host" else TYPES
    if language == "host":
        text = f"Tensor f({written}) {{ return x; }}\n"
    else:
        mark = "//! grid = 1\n//! block = 1\n__global__ " if language == "cuda" else ""
        text = f"//! out = empty(4, dtype=float32)\n{mark}{head}({written}{', ' if written else ''}float* out) {{}}\n"
    try:
        if language == "host":
            made = functions(text, "cpp")
            found = infer(made[0], "lab::f") if made else None
        else:
            found = infer_schema(Source(text, language), functions(text, language), "lab::f")
    except SchemaError as error:
        assert error.line >= 1, error
        return
    if found is None:
        return
    spelled = torch._C.parse_schema(str(found))
    assert [a.name for a in spelled.arguments] == [a.name for a in found.arguments]
    assert str(found.signature)  # Python can call it
    types = [known.get(t, "") for t, _ in parameters]
    if all(types) and len({n for _, n in parameters}) == len(parameters):  # the grammar knows what it should be
        letters = iter("abcdefg")
        wanted = [
            f"{'Tensor(' + next(letters) + '!)' if '!' in t else t} {n}"
            for t, (_, n) in zip(types, parameters, strict=True)
        ]
        assert str(found) == f"lab::f({', '.join(wanted)}) -> Tensor"
    assert len({a.name for a in found.arguments}) == len(found.arguments)


# ---------------------------------------------------------------- schemas

PIECE = st.sampled_from(
    ["Tensor", "Tensor?", "Tensor[]", "Tensor?[]", "Tensor(a!)", "Tensor(a!)[]", "Tensor(a)", "int", "SymInt", "SymInt[]", "int[2]", "float", "float?",
     "bool", "str", "str?", "ScalarType?", "Device", "Scalar", "Generator?", "Dict(str, int)", "t", "(int, int)", "", "Tensor[][]", "int[2]?"],
)  # fmt: skip
DEFAULT = st.sampled_from(
    ["", "", "", "=1", "=1.5", "=None", "=True", "=[]", "=[1, 2]", "='a'", "=-1", "=x", "=1e400", '="q"', "=float32"]
)
ARGUMENT = st.one_of(
    st.builds(
        "{} {}{}".format, PIECE, st.sampled_from(["x", "w", "k", "self", "lambda", "x1", "__x", "out", "é"]), DEFAULT
    ),
    st.just("*"),
)
NAME = st.sampled_from(
    [
        "lab::f",
        "lab::f",
        "lab::f",
        "lab::f.out",
        "aten::add",
        "f",
        "lab::",
        "::f",
        "lab::f::g",
        "lab::lambda",
        "lab::__f",
        "lab:: f",
    ]
)
SCHEMA = (
    st.one_of(
        st.builds("{}({}) -> {}".format, NAME, st.lists(ARGUMENT, max_size=4).map(", ".join),
                  st.one_of(PIECE, st.lists(st.builds("{} {}".format, PIECE, st.sampled_from(["", "y", "z"])), max_size=3).map(lambda r: f"({', '.join(r)})"))),
        st.text(alphabet="lab::f(Tensor x, int=) ->[]?!*", max_size=60),
    ),
)  # fmt: skip


def check_schema(text: str) -> None:
    try:
        found = schemas.parse(text)
    except SchemaError as error:
        assert str(error)
        return
    theirs = torch._C.parse_schema(text)
    assert found.qualname == theirs.name
    assert [(a.name, a.kwarg_only, a.has_default_value()) for a in theirs.arguments] == [
        (a.name, a.keyword_only, not a.required) for a in found.arguments
    ]
    assert [bool(a.alias_info and a.alias_info.is_write) for a in theirs.arguments] == [
        a.mutated for a in found.arguments
    ]
    assert len(theirs.returns) == len(found.outputs)
    for a, b in zip(theirs.arguments, found.arguments, strict=True):
        if not b.required and isinstance(b.default, (int, float, bool, str, type(None))):
            assert a.default_value == b.default
    again = schemas.parse(str(found))
    assert str(again) == str(found) and again.arguments == found.arguments


# ---------------------------------------------------------------- all of them

PROPERTIES = {
    "lines": (check_line, LINE, 12_000),
    "signatures": (check_signature, SIGNATURE, 4_000),
    "schemas": (check_schema, SCHEMA, 4_000),
}


def run(name: str, examples: int) -> None:
    check, strategies, _ = PROPERTIES[name]
    quick = settings(max_examples=examples, deadline=None,
                     suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])  # fmt: skip
    quick(given(*strategies)(check))()


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_few_hundred(name):
    run(name, 250)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PROPERTIES)
def test_twenty_thousand(name):
    run(name, PROPERTIES[name][2])


def test_the_grammar_reaches_what_it_should():
    """Else everything above could be refused, and pass."""
    chance = random.Random(7)
    accepted = sum(
        agreeing(number(chance.choice, 3), chance.choice(SIZES[:3]), chance.choice([1, 2, 3])) for _ in range(300)
    )
    assert accepted > 100
    assert sum(count for _, _, count in PROPERTIES.values()) == 20_000


# ---------------------------------------------------------------- the launcher's C++


@pytest.mark.parametrize("seed", [1, *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 6))])
def test_what_is_accepted_is_the_same_in_cpp(seed):
    """120 random expressions as the lines of one cell, compiled into its launcher, for several arguments."""
    chance, kept, at = random.Random(seed), [], [((6, 4), 3), ((1, 1), 2), ((2, 3, 7), 1)]
    while len(kept) < 120:
        text = number(chance.choice, 3)
        try:
            values = [oracle(text, Plain(s), k, 0.5) for s, k in at]
            fits = all(abs(v) < 2**31 and v == v for v in values)
        except Exception:
            continue
        if fits and all(agreeing(text, s, k) for s, k in at):
            kept.append(text)
    rows = [f"//! v{i} = {text}" for i, text in enumerate(kept)]
    parameters = ", ".join(f"double v{i}" for i in range(len(kept)))
    name = f"oracle{seed}"
    text = "\n".join(["//! n = k + 1", "//! rows = x.shape[0]", *rows, f"//! out = empty({len(kept)}, dtype=float64)",
                      f"void {name}(const float* x, double* out, {parameters}) {{", *(f"  out[{i}] = v{i};" for i in range(len(kept))), "}", ""])  # fmt: skip
    arguments = "Tensor x, Tensor? b, SymInt k, float p, bool flag, float? scale=None"
    made = cell(f"oracle_tests::{name}({arguments}) -> Tensor", text)
    LIBRARY.define(f"{name}({arguments}) -> Tensor")
    LIBRARY.define(f"{name}_forward({arguments}) -> Tensor")
    load(made).launcher.register()
    made.install(made.instance({"x": torch.float32, "b": None}))
    for size, k in at:
        got = getattr(torch.ops.oracle_tests, name)(torch.empty(size), None, k, 0.5, True).tolist()
        wanted = [float(oracle(t, Plain(size), k, 0.5)) for t in kept]
        wrong = [
            (t, g, w)
            for t, g, w in zip(kept, got, wanted, strict=True)
            if not math.isclose(g, w, rel_tol=1e-12, abs_tol=1e-300)
        ]
        assert not wrong, wrong[:3]


LIBRARY = torch.library.Library("oracle_tests", "FRAGMENT")
