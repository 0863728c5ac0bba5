"""What becomes a schema, how it is spelled, and what is refused with which words."""

# ruff: noqa: UP007, UP045  the older spellings are annotations that users write
from __future__ import annotations

import inspect
import math
import re
import sys
import textwrap
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, NewType, Optional, Union

import pytest
import torch
from torch import Tensor
from torch._library.infer_schema import SUPPORTED_PARAM_TYPES

import workbench as wb
from workbench import SchemaError, schema
from workbench.annotations import spell
from workbench.schema import from_function, parse, split_name


def taking(hint, *default):
    """A function `(x: Tensor, k: hint = default) -> Tensor`."""

    def f(x, k):
        raise AssertionError("a schema is read, the function is not run")

    if default:
        f.__defaults__ = default
    f.__annotations__ = {"x": Tensor, "k": hint, "return": Tensor}
    return f


def spelled(function, **options) -> str:
    """The schema's text; torch must be able to read it."""
    text = str(from_function(function, "lab::f", **options))
    torch._C.parse_schema(text)
    return text


# ---------------------------------------------------------------- annotations


@pytest.mark.parametrize("hint", SUPPORTED_PARAM_TYPES, ids=lambda h: SUPPORTED_PARAM_TYPES[h] + "-" + str(h)[:24])
def test_every_annotation_that_torch_takes(hint):
    assert spelled(taking(hint)) == f"lab::f(Tensor x, {SUPPORTED_PARAM_TYPES[hint]} k) -> Tensor"


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (tuple[int, int], "SymInt[2]"),
        (tuple[float, float, float], "float[3]"),
        (tuple[bool], "bool[1]"),
        (Optional[tuple[int, int]], "SymInt[2]?"),
        (list[str], "str[]"),
        (Sequence[str], "str[]"),
        (Tensor | None, "Tensor?"),
        (list[Tensor | None], "Tensor?[]"),
        (list[int] | None, "SymInt[]?"),
        (Union[None, float], "float?"),
        (torch.device | None, "Device?"),
        (tuple[int, ...], "SymInt[]"),
        (tuple[Tensor, ...], "Tensor[]"),
        (torch.Size, "SymInt[]"),
        (NewType("Rows", int), "SymInt"),
    ],
    ids=str,
)
def test_rewrites_that_lose_nothing(hint, expected):
    assert spelled(taking(hint)) == f"lab::f(Tensor x, {expected} k) -> Tensor"


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        (Any, "Any"),
        (dict, "dict"),
        (dict[str, int], "dict[str, int]"),
        (object, "object"),
        (complex, "complex"),
        (tuple[int, float], "tuple[int, float]"),
        (Literal["a", "b"], "Literal['a', 'b']"),
        (list[list[int]], "list[list[int]]"),
        (torch.Generator, "Generator"),
        (np := types.SimpleNamespace, "SimpleNamespace"),
        ([int], "[<class 'int'>]"),
    ],
    ids=str,
)
def test_an_annotation_without_a_spelling_names_the_argument(hint, shown):
    with pytest.raises(SchemaError) as caught:
        spell(hint, "lab::f: argument 'k'")
    assert str(caught.value).startswith(
        f"lab::f: argument 'k' is annotated {shown}, which torch has no schema spelling"
    )
    assert re.search(r"spelling for; (use Tensor, int, float|write \w+)", str(caught.value))


@pytest.mark.parametrize("hint", [Optional[list[Tensor]], list[Tensor] | None, Optional[Sequence[Tensor]]], ids=str)
def test_an_optional_list_of_tensors_says_what_to_write(hint):
    with pytest.raises(SchemaError, match=r"argument 'k': an optional list of tensors .* pass an empty one for None"):
        from_function(taking(hint), "lab::f")


def test_missing_annotations_are_named():
    def f(x: Tensor, k) -> Tensor: ...

    with pytest.raises(SchemaError, match=r"lab::f: argument 'k' has no annotation; write for instance 'k: Tensor'"):
        from_function(f, "lab::f")

    def g(x: Tensor): ...

    with pytest.raises(SchemaError, match=r"lab::g: the function has no return annotation; write '-> Tensor'"):
        from_function(g, "lab::g")


def test_variadic_arguments_are_refused():
    def f(*xs: Tensor) -> Tensor: ...

    def g(x: Tensor, **options: int) -> Tensor: ...

    for function, name in ((f, "xs"), (g, "options")):
        with pytest.raises(SchemaError, match=f"argument '{name}': .* have no schema"):
            from_function(function, "lab::f")


def test_an_unknown_name_in_an_annotation():
    def f(x: Tensr) -> Tensor: ...  # noqa: F821

    with pytest.raises(SchemaError, match=r"lab::f: an annotation names something unknown: .*Tensr"):
        from_function(f, "lab::f")


@pytest.mark.parametrize("postponed", [True, False])
def test_a_module_that_was_executed_from_text(postponed, namespace):
    text = ("from __future__ import annotations\n" if postponed else "") + textwrap.dedent("""
        import torch
        from typing import Optional
        from torch import Tensor
        def f(x: Tensor, w: Optional[Tensor] = None, *, dims: list[int] = (0, 1), mode: str = "a") -> tuple[Tensor, Tensor]:
            "Two of them."
            return x * 2, x.sum(dims)
    """)
    module = types.ModuleType("cell_module")
    exec(compile(text, "<cell>", "exec"), vars(module))
    op = wb.op(f"{namespace}::f")(module.f)
    expected = f'{namespace}::f(Tensor x, Tensor? w=None, *, SymInt[] dims=[0, 1], str mode="a") -> (Tensor, Tensor)'
    assert str(op.schema) == expected
    assert op.__doc__ == "Two of them."
    x = torch.ones(2, 3)
    assert op(x)[1].item() == 6.0
    assert torch.equal(getattr(torch.ops, namespace).f(x, dims=[1])[1], torch.full((2,), 3.0))


# ---------------------------------------------------------------- keyword-only, defaults


def test_keyword_only_arguments_follow_a_star():
    def f(x: Tensor, k: int = 2, *, w: Tensor, eps: float = 1e-6) -> Tensor: ...

    found = from_function(f, "lab::f")
    assert str(found) == "lab::f(Tensor x, SymInt k=2, *, Tensor w, float eps=1e-06) -> Tensor"
    assert [a.name for a in found.positional] == ["x", "k"]
    assert [a.name for a in found.keyword_only] == ["w", "eps"]
    assert str(found.signature) == "(x, k=2, *, w, eps=1e-06)"


@pytest.mark.parametrize(
    ("hint", "value", "text", "read"),
    [
        (int, -3, "SymInt k=-3", -3),
        (float, 1, "float k=1", 1.0),
        (float, 1e-30, "float k=1e-30", 1e-30),
        (bool, True, "bool k=True", True),
        (str, "a", 'str k="a"', "a"),
        (str, 'say "hi" \\ there', 'str k="say \\"hi\\" \\\\ there"', 'say "hi" \\ there'),
        (str, "it's", 'str k="it\'s"', "it's"),
        (str, "two\nlines", 'str k="two\\nlines"', "two\nlines"),
        (str, "a, b) -> x=(", 'str k="a, b) -> x=("', "a, b) -> x=("),
        (str, "", 'str k=""', ""),
        (list[int], (1, 2), "SymInt[] k=[1, 2]", [1, 2]),
        (list[int], [], "SymInt[] k=[]", []),
        (list[float], [1.0, -2.5], "float[] k=[1.0, -2.5]", [1.0, -2.5]),
        (list[bool], [True, False], "bool[] k=[True, False]", [True, False]),
        (tuple[int, int], (1, 2), "SymInt[2] k=[1, 2]", [1, 2]),
        (torch.dtype, torch.bfloat16, "ScalarType k=bfloat16", torch.bfloat16),
        (torch.dtype, torch.float8_e4m3fn, "ScalarType k=float8_e4m3fn", torch.float8_e4m3fn),
        (torch.dtype | None, torch.half, "ScalarType? k=float16", torch.float16),
        (torch.device, torch.device("cuda", 1), 'Device k="cuda:1"', torch.device("cuda:1")),
        (torch.device | None, torch.device("cpu"), 'Device? k="cpu"', torch.device("cpu")),
        (Union[int, float, bool], 2.5, "Scalar k=2.5", 2.5),
        (Optional[list[float]], None, "float[]? k=None", None),
        (Tensor | None, None, "Tensor? k=None", None),
    ],
    ids=str,
)
def test_defaults_in_schema_spelling_and_back(hint, value, text, read):
    found = from_function(taking(hint, value), "lab::f")
    assert str(found) == f"lab::f(Tensor x, {text}) -> Tensor"
    again = parse(str(found))
    assert again.arguments[1].default == read
    assert again.arguments[1].type == found.arguments[1].type


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_default_that_no_schema_spells(value):
    with pytest.raises(
        SchemaError, match=rf"argument 'k': the default {value} has no spelling .* put {value} in for None"
    ):
        from_function(taking(float, value), "lab::f")


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (float, None, r"argument 'k' is a float, its default None is not; annotate it '... \| None'"),
        (Tensor, None, r"argument 'k' is a Tensor, its default None is not"),
        (int, 2.5, r"argument 'k' is a SymInt, its default 2.5 is not"),
        (int, "a", r"argument 'k' is a SymInt, its default 'a' is not"),
        (int, True, r"argument 'k' is a SymInt, its default True is not"),
        (bool, 1, r"argument 'k' is a bool, its default 1 is not"),
        (str, 1, r"argument 'k' is a str, its default 1 is not"),
        (list[int], 3, r"argument 'k' is a SymInt\[\], its default 3 is not"),
        (list[int], [1.5], r"argument 'k' is a SymInt\[\], its default \[1.5\] is not"),
        (torch.dtype, "float32", r"argument 'k' is a ScalarType, its default 'float32' is not"),
        (list[str], ["a"], r"argument 'k': a list of strings can have no default"),
        (list[Tensor], (), r"argument 'k': a Tensor\[\] can have no default in a schema; give it none"),
        (Tensor | None, 1.0, r"argument 'k': a Tensor\? can have no default in a schema; annotate it 'Tensor \| None"),
    ],
    ids=str,
)
def test_a_default_of_another_type_is_named(hint, value, message):
    if value is None and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 reads `k: float = None` as `float | None`")
    with pytest.raises(SchemaError, match=f"lab::f: {message}"):
        from_function(taking(hint, value), "lab::f")


# ---------------------------------------------------------------- outputs


@pytest.mark.parametrize(
    ("hint", "text", "names"),
    [
        (Tensor, "Tensor", ("out",)),
        (None, "()", ()),
        (tuple[Tensor, Tensor], "(Tensor, Tensor)", ("out0", "out1")),
        (tuple[Tensor, int, list[Tensor]], "(Tensor, SymInt, Tensor[])", ("out0", "out1", "out2")),
        (list[Tensor], "Tensor[]", ("out",)),
        (tuple[Tensor], "Tensor", ("out",)),
        (float, "float", ("out",)),
    ],
    ids=str,
)
def test_outputs(hint, text, names):
    def f(x): ...

    f.__annotations__ = {"x": Tensor, "return": hint}
    found = from_function(f, "lab::f")
    assert str(found) == f"lab::f(Tensor x) -> {text}"
    assert found.outputs == names


def test_named_outputs_are_in_the_schema():
    def f(x: Tensor) -> tuple[Tensor, Tensor]: ...

    def g(x: Tensor) -> Tensor: ...

    assert spelled(f, returns=("q", "scale")) == "lab::f(Tensor x) -> (Tensor q, Tensor scale)"
    assert spelled(g, returns="y") == "lab::f(Tensor x) -> (Tensor y)"


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (Tensor | None, "an optional result would lose its gradient; return an empty tensor"),
        (tuple[Tensor, Tensor | None], "an optional result would lose its gradient"),
        (tuple[Tensor, ...], "a tuple of unknown length has no schema"),
        (dict[str, Tensor], "lab::f: the return value is annotated dict"),
    ],
    ids=str,
)
def test_outputs_that_no_op_can_have(hint, message):
    def f(x): ...

    f.__annotations__ = {"x": Tensor, "return": hint}
    with pytest.raises(SchemaError, match=message):
        from_function(f, "lab::f")


def test_returns_and_saves_must_fit():
    def f(x: Tensor) -> tuple[Tensor, Tensor]: ...

    with pytest.raises(SchemaError, match=r"lab::f: returns names 1 outputs \(q\), the function returns 2"):
        from_function(f, "lab::f", returns="q")
    with pytest.raises(SchemaError, match="the name 'x' is used twice among arguments, returns and saves"):
        from_function(f, "lab::f", returns=("x", "y"))
    for text in ("lab::f(int x, Tensor(a!) x) -> ()", "lab::f(Tensor x, *, int x=1) -> Tensor"):
        with pytest.raises(SchemaError, match="two arguments are called 'x'"):
            parse(text)
    with pytest.raises(SchemaError, match="the name 'a' is used twice"):
        from_function(f, "lab::f", returns=("a", "a"))
    with pytest.raises(SchemaError, match="the name 'x' is used twice"):
        from_function(f, "lab::f", saves="x")
    with pytest.raises(SchemaError, match="the name 'q' is used twice"):
        from_function(f, "lab::f", returns=("q", "s"), saves="q")
    with pytest.raises(SchemaError, match="'a-b' is no name for an output or saved tensor"):
        from_function(f, "lab::f", returns=("a-b", "c"))
    for what in ("returns", "saves", "mutates"):
        with pytest.raises(
            SchemaError, match=rf"lab::f: 'mean, rstd' is no name; several are a tuple: {what}=\(\"mean\", \"rstd\"\)"
        ):
            from_function(f, "lab::f", **{what: "mean, rstd"})
    found = from_function(f, "lab::f", returns=("q", "s"), saves="rstd")
    assert (found.outputs, found.saves) == (("q", "s"), ("rstd",))
    assert "rstd" not in str(found)


# ---------------------------------------------------------------- mutates


def test_mutates_takes_a_name_or_names():
    def f(x: Tensor, out: Tensor, ys: list[Tensor]) -> None: ...

    assert spelled(f, mutates="out") == "lab::f(Tensor x, Tensor(a!) out, Tensor[] ys) -> ()"
    assert spelled(f, mutates=["x", "ys"]) == "lab::f(Tensor(a!) x, Tensor out, Tensor(b!)[] ys) -> ()"
    assert from_function(f, "lab::f", mutates=("out", "x")).mutated == ("x", "out")


def test_a_typo_in_mutates_is_named_with_the_nearest():
    def f(k_cache: Tensor, out: Tensor, n: int) -> None: ...

    with pytest.raises(
        SchemaError, match=r"lab::f: mutates names 'kcache', which is no argument; did you mean 'k_cache'\?"
    ):
        from_function(f, "lab::f", mutates=["kcache"])
    with pytest.raises(
        SchemaError, match=r"mutates names 'zzz', which is no argument; the arguments are k_cache, out, n"
    ):
        from_function(f, "lab::f", mutates="zzz")
    with pytest.raises(SchemaError, match=r"lab::f: mutates names 'n', which is a SymInt, not a tensor"):
        from_function(f, "lab::f", mutates="n")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", r"needs a name of the form 'namespace::name', got ''"),
        ("  ", r"needs a name of the form 'namespace::name'"),
        (None, r"needs a name of the form 'namespace::name', got None"),
        ("rmsnorm", r"'rmsnorm' has no namespace: write for instance 'lab::rmsnorm'"),
        ("aten::add", r"the namespace 'aten' belongs to PyTorch"),
        ("prim::add", r"the namespace 'prim' belongs to PyTorch"),
        ("prims::add", r"the namespace 'prims' belongs to PyTorch"),
        ("torch::add", r"the namespace 'torch' belongs to PyTorch"),
        ("lab::add.out", r"a dot in the name would read as an overload"),
        ("my.lab::add", r"a dot in the namespace"),
        ("lab::", r"the name '' must be a plain identifier"),
        ("::add", r"the namespace '' must be a plain identifier"),
        ("lab::a::b", r"the name 'a::b' must be a plain identifier"),
        ("lab::a-b", r"the name 'a-b' must be a plain identifier"),
        ("lab::2x", r"the name '2x' must be a plain identifier"),
        ("lab::größe", r"the name 'größe' must be a plain identifier"),
        ("lab::a b", r"the name 'a b' must be a plain identifier"),
        ("lab::lambda", r"the name 'lambda' is a Python keyword"),
        ("class::f", r"the namespace 'class' is a Python keyword"),
        ("lab::__init__", r"names that begin with two underscores are Python's own"),
        ("lab::name", r"torch.ops keeps something of its own under that name"),
        ("load_library::f", r"torch.ops keeps something of its own under that name"),
    ],
)  # fmt: skip
def test_names_that_are_refused_and_why(name, reason):
    with pytest.raises(SchemaError, match=reason):
        split_name(name)
    if name is not None and name.strip():
        with pytest.raises(SchemaError, match=reason):
            wb.op(name)  # already here, not when the function arrives
    assert name not in wb.ops


def test_a_good_name():
    assert split_name("lab::rms_norm2_") == ("lab", "rms_norm2_")


def test_argument_names_that_python_keeps():
    def f(x: Tensor, __k: int) -> Tensor: ...

    with pytest.raises(SchemaError, match="argument '__k': names that begin with two underscores"):
        from_function(f, "lab::f")
    with pytest.raises(SchemaError, match="lab::f: argument 'lambda' is a Python keyword"):
        parse("lab::f(Tensor x, float lambda) -> Tensor")


# ---------------------------------------------------------------- schema strings


@pytest.mark.parametrize(
    "text",
    [
        "lab::f(Tensor x, float b=1.0) -> Tensor",
        "lab::f(Tensor x, SymInt a, SymInt[2] b, SymInt? c, SymInt[]? d, int e) -> Tensor",
        "lab::f(Tensor(a!) x, Tensor(b!)[] y, Tensor? z=None) -> ()",
        'lab::f(Tensor x, *, str s="a, b) -> Tensor", ScalarType? d=None, Device? v=None, bool[] m) -> (Tensor y, Tensor z)',
        "lab::f(Tensor?[] xs, Scalar s=1) -> Tensor[]",
        "lab::f(Tensor x) -> (Tensor, SymInt[])",
        "lab::f(int a, MemoryFormat? m=None) -> ()",
    ],
)
def test_a_schema_string_comes_back_as_it_was(text):
    found = parse(text)
    assert str(found) == text
    assert torch._C.parse_schema(str(found)) == torch._C.parse_schema(text)


def test_what_a_schema_string_says():
    found = parse("lab::f(Tensor x, Tensor(a!)? k=None, *, ScalarType d=bfloat16) -> (Tensor y, int n)", saves="lse")
    x, k, d = found.arguments
    assert (x.is_tensor, x.required, x.mutated) == (True, True, False)
    assert (k.is_tensor, k.optional, k.mutated, k.default) == (True, True, True, None)
    assert (d.keyword_only, d.default) == (True, torch.bfloat16)
    assert (found.outputs, found.output_types, found.saves) == (("y", "n"), ("Tensor", "int"), ("lse",))
    assert found.qualname == "lab::f"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lab::f(Tensor x", r"is not a schema: "),
        ("lab::f(Tensr x) -> Tensor", r"is not a schema: "),
        ("lab::f(Tensor x) -> Tensor?", r"an optional result would lose its gradient"),
        ("lab::f(Tensor(a!) x) -> Tensor(a!)", r"an op returns nothing that it was given; a mutating one ends in '-> \(\)'"),
        ("lab::f(Tensor(a) x) -> Tensor(a)", r"an op returns nothing that it was given"),
        ("aten::f(Tensor x) -> Tensor", r"the namespace 'aten' belongs to PyTorch"),
        ("lab::f.out(Tensor x) -> Tensor", r"a dot in the name"),
        ("f(Tensor x) -> Tensor", r"'f' has no namespace"),
        ("lab::f() -> ((int, int))", r"not Tuple\[int, int\]; write each of its members as an argument or result of its own"),
        ("lab::f() -> ((Tensor))", r"not Tuple\[Tensor\]"),
        ("lab::f() -> (())", r"not Tuple\[\(\)\]"),
        ("lab::f() -> (Tensor, (Tensor, int)?)", r"not Tuple\[Tensor, int\]"),
        ("lab::f((int, int)[] k) -> Tensor", r"not Tuple\[int, int\]"),
        ("lab::f(Dict(str, int) d) -> Tensor", r"not Dict\[str, int\]"),
    ],
)  # fmt: skip
def test_a_schema_string_that_is_none(text, message):
    with pytest.raises(SchemaError, match=message):
        parse(text)


def test_returns_name_the_outputs_of_a_schema_string():
    assert str(parse("lab::f(Tensor x) -> (Tensor, Tensor)", returns=("a", "b"))) == (
        "lab::f(Tensor x) -> (Tensor a, Tensor b)"
    )
    with pytest.raises(SchemaError, match=r"returns names 3 outputs \(a, b, c\), the function returns 2"):
        parse("lab::f(Tensor x) -> (Tensor, Tensor)", returns=("a", "b", "c"))


# ---------------------------------------------------------------- binding


def test_bind_fills_in_defaults_and_speaks_as_python():
    found = parse("lab::f(Tensor x, float b=1.0, *, int k=3) -> Tensor")
    assert found.bind((1,), {"k": 4}) == {"x": 1, "b": 1.0, "k": 4}
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        found.bind((), {})
    with pytest.raises(TypeError, match="unexpected keyword argument 'q'"):
        found.bind((1,), {"q": 2})
    with pytest.raises(TypeError, match="too many positional arguments"):
        found.bind((1, 2.0, 3), {})


def test_a_schema_is_a_value():
    one, two = (parse("lab::f(Tensor x, int k=1) -> Tensor") for _ in range(2))
    assert one == two
    assert one.argument("k") == two.argument("k")
    assert one.argument("nothing") is None
    assert typing.get_type_hints(schema.from_function)  # the module itself has resolvable hints
    assert inspect.signature(from_function).parameters["mutates"].default == ()
