"""What people met while registering ops (field reports F15 to F20), and what a call costs (F21)."""

# ruff: noqa: UP045  the older spellings are annotations that users write
from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import timeit
import weakref
from pathlib import Path
from typing import Optional

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.live import SCALE
from tests.reloading import cells, compiled  # noqa: F401  fixtures
from workbench import SchemaError
from workbench.schema import from_function

ROOT = str(Path(__file__).parents[2])
X = torch.linspace(-2, 3, 24).reshape(4, 6)

# ---------------------------------------------------------------- F15: what a build hands back breaks graphs


def test_f15_what_a_cell_hands_back_is_an_op_that_compiles_whole(recwarn):
    scale = wb.cpp(live.scale(), SCALE)
    assert isinstance(scale, wb.Op)
    for call in (lambda x: scale(x, 3.0) + 1, lambda x: torch.ops.live.scale(x, 3.0) + 1):
        assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(X), X * 3 + 1)
    assert not [w for w in recwarn if "PyCapsule" in str(w.message) or "Dynamo" in str(w.message)]


@pytest.mark.slow
def test_f15_so_is_what_a_block_of_torch_library_defines(cells):
    ops = cells("grad")
    assert {type(op).__mro__[1] for op in ops} == {wb.Op}
    whole_and_broken(lambda x: ops.scaled(x, 3.0) + ops.plus(x), X * 3.0 + (X + 1), [ops.scaled, ops.plus])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["load_inline", "pybind"])
def test_f15_so_is_every_function_of_an_extension(how):
    name = f"field_{how}"
    body = "at::Tensor twice(const at::Tensor& x) { return x * 2; }\n"
    if how == "load_inline":
        twice = wb.load_inline(name, body, functions=["twice"])
    else:
        twice = wb.cpp(None, f'{body}PYBIND11_MODULE({name}, m) {{ m.def("twice", &twice); }}\n')
    assert isinstance(twice, wb.Op)
    whole_and_broken(lambda x: twice(x) + 1, X * 2 + 1, [twice])


def whole_and_broken(call, wanted: Tensor, ops: list) -> None:
    """Without a fake the op breaks the graph, as torch's own do, and says so; with one it does not."""
    assert torch.equal(torch.compile(call, backend="aot_eager")(X), wanted)
    torch._dynamo.reset()  # the frame is known, in two parts
    with pytest.raises(Exception, match="has no fake: .*@op.fake"):
        torch.compile(call, fullgraph=True, backend="aot_eager")(X)
    for op in ops:
        op.fake(lambda x, *_: torch.empty_like(x))
    assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(X), wanted)


# ---------------------------------------------------------------- F16: an op that disappears


@pytest.mark.parametrize("how", ["reference", "schema", "kernel", "cell"])
def test_f16_an_op_made_inside_a_function_stays_when_nothing_holds_it(how, namespace):
    def setup() -> weakref.ref:
        if how == "schema":
            op = wb.op(f"{namespace}::f(Tensor x) -> Tensor")
            op.kernel("cpu")(lambda x: x * 2)
        elif how == "cell":
            op = wb.cpp(f"{namespace}::f", SCALE.replace("scale", "f").replace(", double k", "").replace("* k", "* 2"))
        else:

            @wb.op(f"{namespace}::f")
            def op(x: Tensor) -> Tensor:
                return x * 2

            if how == "kernel":
                op.kernel("cpu")(lambda x: x + x)
        return weakref.ref(op)

    made = setup()
    gc.collect()
    assert getattr(torch.ops, namespace).f(X).equal(X * 2)
    assert made() is wb.ops[f"{namespace}::f"]
    assert made()(X).equal(X * 2)


# ---------------------------------------------------------------- F17: what was held before a redefinition

CHANGES = {
    "more arguments": ("x: Tensor, y: Tensor", "x * y", "Tensor"),
    "another result": ("x: Tensor", "(x, x * 2)", "tuple[Tensor, Tensor]"),
    "a mutation": ("x: Tensor", "x.add_(1) and None", "None"),
    "no tensors": ("n: int", "torch.ones(n)", "Tensor"),
}
HOLD = """
    import gc, torch, workbench as wb
    from torch import Tensor
    from torch.fx.experimental.proxy_tensor import make_fx

    @wb.op("held::f")
    def f(x: Tensor) -> Tensor:
        return x * 2

    x = torch.ones(2)
    handle, overload, backward = f, torch.ops.held.f.default, torch.ops.held.f_backward.default
    graph = make_fx(lambda x: torch.ops.held.f(x) + 1)(x)
    exported = torch.export.export(torch.nn.Sequential(wb_module := type("M", (torch.nn.Module,), {{"forward": lambda s, x: f(x)}})()), (x,))
    compiled = torch.compile(lambda x: f(x), backend="aot_eager")
    held = dict(handle=handle, overload=overload, graph=graph, exported=exported.module(), compiled=compiled,
                saved=torch.autograd.Function)
    held.pop("saved")
    for call in held.values():
        call(x)
    y = f(x.requires_grad_())

    @wb.op("held::f", mutates={mutates!r})
    def f({parameters}) -> {result}:
        return {value}

    gc.collect()
    for name, call in held.items():
        try:
            print(name, "ran", type(call(x.detach())).__name__, flush=True)
        except Exception as error:
            print(name, "raised", type(error).__name__, str(error).splitlines()[0], flush=True)
    try:
        y.sum().backward()  # of a graph that was recorded before
        print("backward ran", flush=True)
    except Exception as error:
        print("backward raised", type(error).__name__, str(error).splitlines()[0], flush=True)
    print("alive")
"""


@pytest.mark.parametrize(
    "change", [c if n == 0 else pytest.param(c, marks=pytest.mark.slow) for n, c in enumerate(CHANGES)]
)
def test_f17_what_was_held_before_another_schema_runs_the_new_one_or_says_what_is_missing(change, fresh_cache):
    parameters, value, result = CHANGES[change]
    script = HOLD.format(
        parameters=parameters, value=value, result=result, mutates="x" if change == "a mutation" else ()
    )
    variables = {**os.environ, "WORKBENCH_CACHE": fresh_cache, "PYTHONPATH": ROOT, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=variables, capture_output=True, text=True,
                          timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    *said, last = done.stdout.splitlines()
    assert last == "alive" and len(said) == 6
    for line in said:
        assert "Segmentation" not in line and " raised Internal" not in line
        if change == "more arguments" and not line.startswith("backward"):
            assert " raised " in line and ("argument" in line or "value for" in line), line


# ---------------------------------------------------------------- F18: annotations without a spelling


class Settings:
    scale: Tensor
    zero: Tensor


@pytest.mark.parametrize(("hint", "spelled"), [
    (tuple[int, int], "SymInt[2]"), (tuple[int, ...], "SymInt[]"), (tuple[Tensor, ...], "Tensor[]"), (torch.Size, "SymInt[]"),
    (Optional[tuple[int, int]], "SymInt[2]?"), (int | None, "SymInt?"), (Optional[float], "float?"),
])  # fmt: skip
def test_f18_what_loses_nothing_is_rewritten(hint, spelled, namespace):
    def f(x: Tensor, k) -> Tensor:
        return x * (len(k) if hasattr(k, "__len__") else k)

    f.__annotations__["k"] = hint
    op = wb.op(f"{namespace}::f")(f)
    assert f"{spelled} k" in str(op.schema)
    value = [X, X] if "Tensor" in spelled else 2 if "[" not in spelled else (3, 4)
    assert op(X, value).equal(X * 2)


@pytest.mark.parametrize(("hint", "words"), [
    (Optional[list[Tensor]], "take a list[Tensor] and pass an empty one for None"),
    (dict[str, Tensor], "write list[Tensor], or one argument for each entry"),
    (tuple[Tensor, Tensor], "write list[Tensor], or one argument for each"),
    (tuple[int, float], "write one argument for each entry"),
    (int | float, "write float"),
    (Tensor | float, "write Tensor, and make a tensor of a number"),
    (torch.Generator, "write seed: int"),
    (torch.nn.Parameter, "write Tensor"),
    (list, "write what it holds"),
    (Settings, "write one argument for each of its fields (scale, zero, ...)"),
    (object, "use Tensor, int, float, bool, str"),
])  # fmt: skip
def test_f18_what_cannot_be_is_named_with_what_to_write(hint, words):
    def f(x: Tensor, k) -> Tensor: ...

    f.__annotations__["k"] = hint
    with pytest.raises(SchemaError) as raised:
        from_function(f, "lab::f")
    said = str(raised.value)
    assert said.startswith("lab::f: argument 'k'") and words in said and len(said) < 300


# ---------------------------------------------------------------- F19: None and optional results


def test_f19_none_is_an_empty_result_in_eager_compiled_and_functionalised_code(namespace):
    @wb.op(f"{namespace}::fill_", mutates=["out"])
    def fill_(x: Tensor, out: Tensor) -> None:
        out.copy_(x * 2)

    assert str(fill_.schema) == f"{namespace}::fill_(Tensor x, Tensor(a!) out) -> ()"
    for call in (fill_, torch.compile(lambda x, out: fill_(x, out), fullgraph=True, backend="aot_eager")):
        out = torch.zeros_like(X)
        assert call(X, out) is None
        assert out.equal(X * 2)
    x = X.clone().requires_grad_()
    out = torch.zeros_like(X) * x
    fill_(x, out)
    assert torch.autograd.grad(out.sum(), x)[0].equal(torch.full_like(X, 2.0))  # gradients reach what was written


@pytest.mark.parametrize(
    "hint", [Optional[Tensor], Tensor | None, tuple[Tensor, Optional[Tensor]], Optional[list[Tensor]]], ids=str
)
def test_f19_optional_results_are_refused_with_what_to_return_instead(hint):
    def f(x: Tensor): ...

    f.__annotations__["return"] = hint
    with pytest.raises(
        SchemaError, match="an optional result would lose its gradient; return an empty tensor instead, or a flag"
    ):
        from_function(f, "lab::f")


def test_f19_the_empty_tensor_and_the_flag_keep_the_gradient(namespace):
    @wb.op(f"{namespace}::maybe", returns=("y", "mask"))
    def maybe(x: Tensor, masked: bool) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3 if masked else x.new_empty(0)

    x = X.clone().requires_grad_()
    for call in (maybe, torch.compile(lambda *a: maybe(*a), fullgraph=True, backend="aot_eager")):
        assert torch.autograd.grad(sum(t.sum() for t in call(x, True)), x)[0].equal(torch.full_like(X, 5.0))
        assert torch.autograd.grad(sum(t.sum() for t in call(x, False)), x)[0].equal(torch.full_like(X, 2.0))


# ---------------------------------------------------------------- F20: a string taken for letters


@pytest.mark.parametrize("mutates", ["out", ["out"], ("out",), {"out"}, iter(["out"])], ids=str)
def test_f20_a_name_is_a_name(mutates):
    def f(x: Tensor, out: Tensor, o: Tensor, u: Tensor, t: Tensor) -> None: ...

    assert from_function(f, "lab::f", mutates=mutates).mutated == ("out",)


@pytest.mark.parametrize(("mutates", "words"), [
    ("unknown", "mutates names 'unknown', which is no argument; the arguments are x, out"),
    (["otu"], "mutates names 'otu', which is no argument; did you mean 'out'?"),
    ("x, out", "'x, out' is no name; several are a tuple: mutates=(\"x\", \"out\")"),
    (True, "take a name or names, as strings; got True"),
    ([1], "take a name or names, as strings; got [1]"),
])  # fmt: skip
def test_f20_what_is_none_is_named_whole(mutates, words):
    def f(x: Tensor, out: Tensor) -> None: ...

    with pytest.raises(SchemaError) as raised:
        from_function(f, "lab::f", mutates=mutates)
    assert words in str(raised.value)


def test_f20_so_it_is_wherever_names_are_taken(namespace):
    def f(x: Tensor) -> Tensor:
        return x * 1

    op = wb.op(f"{namespace}::f", returns="yes", saves="rstd")(f)
    assert (op.schema.outputs, op.schema.saves) == (("yes",), ("rstd",))
    op.cases(lambda t: iter([wb.case("one", t(3)), wb.case("e", t(5)), wb.case("o", t(7))]), dtypes=torch.float64)
    assert [c.label for c in op.case_list()] == ["one float64", "e float64", "o float64"]
    with pytest.raises(SchemaError, match=r"takes dtypes such as torch.float32, got 'float32'"):
        op.cases(lambda t: iter([(t(3),)]), dtypes="float32")
    with pytest.raises(SchemaError, match="for one device, 'cpu' or 'cuda'; got 'cpu,cuda'"):
        op.kernel("cpu,cuda")(f)
    scale = live.scale()
    wb.cpp(scale, SCALE, cases="odd")
    assert [o.case for o in scale.runs().trial.outcomes] == ["odd"]
    with pytest.raises(SchemaError, match="cases names no case; 'none' means"):
        wb.cpp(scale, SCALE, cases="")  # never untried without a word


# ---------------------------------------------------------------- F21: what a call costs


def test_f21_a_call_of_a_small_op_costs_about_what_torchs_own_do():
    """Loose, since machines are shared; the figures are in benchmarks/call_overhead."""
    scale = wb.cpp(live.scale(), SCALE)
    x = torch.ones(16)
    scale(x, 3.0)

    def best(f) -> float:
        return min(timeit.repeat(f, number=2000, repeat=7))

    assert best(lambda: scale(x, 3.0)) < 4 * best(lambda: torch.mul(x, 3.0))
