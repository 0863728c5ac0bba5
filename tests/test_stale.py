"""Nothing stale: after a cell is run again, every caller, in this process and the next, runs what it says now."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import Tensor, func
from torch.fx.experimental.proxy_tensor import make_fx

import workbench as wb
from workbench.register.traces import Traces

BACKENDS = ["aot_eager", "inductor"]


def define(name: str, k: float):
    """The same cell, with another number in it."""

    @wb.op(name)
    def f(x: Tensor) -> Tensor:
        return x * k

    return f


def gradient(f, x: Tensor) -> float:
    x = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(x).sum(), [x])
    return g[0].item()


@pytest.fixture
def callers(namespace):
    """Everything that may hold on to an op called f, and how each calls it."""
    op = define(f"{namespace}::f", 2.0)
    packet, overload = getattr(torch.ops, namespace).f, getattr(torch.ops, namespace).f.default
    found = {
        "handle": op,
        "packet": packet,
        "overload": overload,
        "torch.ops": lambda x: getattr(torch.ops, namespace).f(x),
        "compiled handle": torch.compile(lambda x: op(x) * 1, fullgraph=True, backend="aot_eager"),
        "compiled overload": torch.compile(lambda x: overload(x) * 1, fullgraph=True, backend="aot_eager"),
        "inductor": torch.compile(lambda x: op(x) * 1, fullgraph=True),
    }
    for f in found.values():
        assert f(torch.ones(3)).tolist() == [2, 2, 2]
        assert gradient(f, torch.ones(3)) == 2
    return found


def everyone(callers, value: float, slope: float | None = None) -> None:
    x = torch.ones(3)
    for name, f in callers.items():
        assert f(x)[0].item() == value, name
        with torch.no_grad():
            assert f(x)[0].item() == value, name
        assert gradient(f, x) == (value if slope is None else slope), name


# ---------------------------------------------------------------- in this process


def test_another_reference(callers, namespace):
    again = define(f"{namespace}::f", 3.0)
    assert again is callers["handle"]
    everyone(callers, 3.0)
    assert func.grad(lambda x: again(x).sum())(torch.ones(2)).tolist() == [3, 3]
    assert torch.vmap(again)(torch.ones(2)).tolist() == [3, 3]


def test_more_redefinitions_than_the_recompile_limit(callers, namespace):
    for k in range(3, 15):
        define(f"{namespace}::f", float(k))
        for name in ("handle", "overload", "compiled handle", "compiled overload"):
            assert callers[name](torch.ones(3))[0].item() == k, name
            assert gradient(callers[name], torch.ones(3)) == k, name
    everyone(callers, 14.0)


def test_another_backward(callers, namespace):
    op = callers["handle"]

    @op.backward
    def _(grad_out):
        return grad_out * 7

    everyone(callers, 2.0, 7.0)

    @op.backward
    def _(grad_out):
        return grad_out * 8

    everyone(callers, 2.0, 8.0)
    define(f"{namespace}::f", 5.0)  # the op's cell again: the decorated backward went with the old one
    everyone(callers, 5.0, 5.0)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_result_of_before_takes_another_backward(namespace, compiled):
    """What is found wrong in a formula is put right for all that still asks for it."""
    op = define(f"{namespace}::f", 2.0)
    call = torch.compile(lambda x: op(x) * 1, backend="aot_eager") if compiled else op
    x = torch.ones(3, requires_grad=True)
    op.backward(lambda grad_out: grad_out * 7)
    y = call(x)
    op.backward(lambda grad_out: grad_out * 8)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [8, 8, 8]


def test_a_result_of_before_takes_no_gradient_of_another_function(namespace):
    op = define(f"{namespace}::f", 2.0)
    x = torch.ones(3, requires_grad=True)
    y, z = op(x), op(x)
    define(f"{namespace}::f", 2.0)
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [2, 2, 2], "the same cell again is no other function"
    define(f"{namespace}::f", 3.0)
    with pytest.raises(
        wb.SchemaError, match=r"::f: this result was made before its cell was run with another text.*Call it again"
    ):
        torch.autograd.grad(z.sum(), x)
    assert gradient(op, x.detach()) == 3

    @wb.op(f"{namespace}::f")
    def f(x: Tensor, n: int = 3) -> Tensor:
        return x * n

    z = f(x)

    @wb.op(f"{namespace}::f")
    def f(x: Tensor, n: float = 3) -> Tensor:
        return x * n

    with pytest.raises(wb.SchemaError, match="before its schema changed"):
        torch.autograd.grad(z.sum(), x)


SAVING = """\
//! n = x.numel()
//! out = empty_like(x)
//! kept = empty_like(x)
void f(const float* x, float* out, float* kept, int64_t n) {
  for (int64_t i = 0; i < n; ++i) { out[i] = x[i] * x[i]; kept[i] = 2 * x[i]; }
}
"""
TAKING = """\
//! n = kept.numel()
//! grad_x = empty_like(kept)
void backward(const float* grad_out, const float* kept, float* grad_x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) grad_x[i] = grad_out[i] * kept[i];
}
"""


def test_what_one_forward_saved_is_not_handed_to_the_backward_of_another(namespace):
    @wb.op(f"{namespace}::f", saves="kept")
    def f(x: Tensor) -> Tensor:
        return x * x

    f.cases(lambda t: [t(4)])
    wb.cpp(f, SAVING)
    wb.cpp(f"{namespace}::f.backward", TAKING)
    x = torch.ones(3, requires_grad=True)
    y = f(x)
    assert torch.autograd.grad(y.sum(), x, retain_graph=True)[0].tolist() == [2, 2, 2]
    wb.cpp(f, SAVING.replace("2 * x[i]", "x[i]"), force=True)
    wb.cpp(f"{namespace}::f.backward", TAKING.replace("kept[i];", "kept[i] * 2;"), force=True)
    with pytest.raises(wb.SchemaError, match="before another forward was installed, which saves kept in its own way"):
        torch.autograd.grad(y.sum(), x)  # would be 4
    assert gradient(f, x.detach()) == 2


def test_another_kernel(callers):
    op = callers["handle"]

    @op.kernel("cpu")
    def _(x):
        return x * 2 + 0

    everyone(callers, 2.0)
    op.restore(0)
    everyone(callers, 2.0)


def test_another_fake(namespace):
    @wb.op(f"{namespace}::grown")
    def grown(x: Tensor, n: int) -> Tensor:
        return x.new_ones(n * 2)

    compiled = torch.compile(lambda x: grown(x, 3) + 0, fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(1)).shape == (6,)

    @wb.op(f"{namespace}::grown")
    def grown(x: Tensor, n: int) -> Tensor:
        return x.new_ones(n * 3, dtype=torch.float64)

    out = compiled(torch.ones(1))
    assert (out.shape, out.dtype) == ((9,), torch.float64)
    shapes = []

    @grown.fake
    def _(x, n):
        shapes.append(n)
        return x.new_empty(n * 3, dtype=torch.float64)

    compiled(torch.ones(1))
    assert shapes


@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_with_other_strides(namespace, backend):
    @wb.op(f"{namespace}::turned")
    def turned(x: Tensor) -> Tensor:
        return x * 1

    x = torch.arange(6.0).view(2, 3)
    compiled = torch.compile(lambda t: turned(t).as_strided((6,), (1,)) + 0, fullgraph=True, backend=backend)
    assert compiled(x).tolist() == [0, 1, 2, 3, 4, 5]

    @wb.op(f"{namespace}::turned")
    def turned(x: Tensor) -> Tensor:
        return x.t().contiguous().t()

    assert compiled(x).tolist() == [0, 3, 1, 4, 2, 5]


def test_which_outputs_take_a_gradient(namespace):
    def cell(detach):
        @wb.op(f"{namespace}::f")
        def f(x: Tensor) -> tuple[Tensor, Tensor]:
            return x * 1, (x * 2).detach() if detach else x * 2

        return f

    op = cell(detach=True)
    compiled = torch.compile(lambda x: op(x), fullgraph=True, backend="aot_eager")
    x = torch.ones(2, requires_grad=True)
    for detach in (True, False, True):
        cell(detach)
        for f in (op, compiled):
            assert [o.requires_grad for o in f(x)] == [True, not detach]


def test_a_random_reference_that_is_no_longer_random(namespace):
    def cell(random):
        @wb.op(f"{namespace}::f")
        def f(x: Tensor) -> Tensor:
            return x * torch.rand_like(x) if random else x * 3

        return f

    op = cell(random=True)
    op(torch.ones(2))
    assert op.random
    cell(random=False)
    assert not op.random
    assert gradient(op, torch.ones(2)) == 3


def test_a_changed_default(namespace):
    def cell(k):
        @wb.op(f"{namespace}::f")
        def f(x: Tensor, k: float = k) -> Tensor:
            return x * k

        return f

    op = cell(2.0)
    compiled = torch.compile(lambda x: op(x), fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(1)).item() == 2
    cell(5.0)
    assert compiled(torch.ones(1)).item() == 5
    assert getattr(torch.ops, namespace).f(torch.ones(1)).item() == 5


def test_another_batching_rule(namespace):
    op = define(f"{namespace}::f", 2.0)
    compiled = torch.compile(lambda x: torch.vmap(op)(x), fullgraph=True, backend="aot_eager")
    x = torch.ones(3, 2)
    assert compiled(x).tolist() == torch.vmap(op)(x).tolist() == [[2, 2]] * 3
    for k in (5.0, 6.0):
        op.vmap(lambda info, in_dims, x, k=k: (x * k, in_dims[0]))
        assert torch.vmap(op)(x).tolist() == [[k, k]] * 3
        assert compiled(x).tolist() == [[k, k]] * 3
    define(f"{namespace}::f", 3.0)  # the op's cell again: the rule went with the old one
    assert torch.vmap(op)(x).tolist() == compiled(x).tolist() == [[3, 3]] * 3


@pytest.mark.parametrize("transform", [
    lambda f, x: func.grad(lambda y: f(y).sum())(x), lambda f, x: func.jvp(f, (x,), (x,))[1], lambda f, x: func.vjp(f, x)[1](x)[0],
    lambda f, x: func.jacrev(f)(x).diagonal(), lambda f, x: torch.vmap(f)(x), lambda f, x: torch.vmap(func.grad(f))(x),
], ids=["grad", "jvp", "vjp", "jacrev", "vmap", "vmap of grad"])  # fmt: skip
def test_transforms_in_compiled_code(namespace, transform):
    """There parts of the op are traced into the graph that are called by name elsewhere."""
    op, x = define(f"{namespace}::f", 2.0), torch.ones(3)
    compiled = torch.compile(lambda x: transform(op, x), fullgraph=True, backend="aot_eager")
    for k in (2.0, 3.0, 4.0):
        define(f"{namespace}::f", k)
        assert transform(op, x).tolist() == compiled(x).tolist() == [k] * 3


@pytest.mark.parametrize("part", ["reference", "backward", "kernel"])
def test_graphs_that_were_kept_run_what_is_there_now(namespace, part):
    """Of make_fx, of export, a compiled module, a copy and a pickle."""

    def cell(k):
        op = define(f"{namespace}::f", k if part == "reference" else 2.0)
        if part == "backward":
            op.backward(lambda grad_out: grad_out * k)
        elif part == "kernel":
            op.kernel("cpu")(lambda x: x * 2.0 + (k - 2.0) * 1e-30)
        return op

    class Module(torch.nn.Module):
        def forward(self, x):
            return op(x)

    op = cell(2.0)
    x = torch.zeros(3) if part == "kernel" else torch.ones(3)
    kept = {
        "make_fx": make_fx(lambda x: getattr(torch.ops, namespace).f(x))(x),
        "export": torch.export.export(Module(), (x,)).module(),
        "compiled module": torch.compile(Module(), backend="aot_eager"),
        "copy": copy.deepcopy(op),
        "pickle": pickle.loads(pickle.dumps(op)),
    }
    for k in (2.0, 3.0, 4.0):
        assert cell(k) is op
        for name, call in kept.items():
            if part == "reference":
                assert call(x).tolist() == [k] * 3, name
            elif part == "kernel":
                assert call(x)[0].item() == pytest.approx((k - 2.0) * 1e-30, rel=1e-6, abs=0), name
            else:
                assert gradient(call, x) == k, name


def test_helpers_and_numbers_of_other_cells(namespace):
    """A reference looks its names up when it runs; what it found is part of what compiled code follows."""
    scope = {"wb": wb, "Tensor": Tensor, "COUNT": 2, "torch": torch}
    text = textwrap.dedent(f"""
        def helper(x):
            return x.repeat(COUNT)

        @wb.op("{namespace}::f")
        def f(x: Tensor) -> Tensor:
            return helper(x)
        """)
    exec(text, scope)
    op, x = scope["f"], torch.ones(2)
    compiled = torch.compile(lambda x: op(x) + 0, fullgraph=True, backend="aot_eager")
    tags = set()
    for count in (2, 3, 4, 2):
        scope["COUNT"] = count
        exec(text, scope)  # the op's cell again
        tags.add(torch.compiler.config.cache_key_tag)
        assert op(x).shape == compiled(x).shape == (2 * count,)
    assert len(tags) == 3


# ---------------------------------------------------------------- another schema


def test_another_schema(namespace):
    name = f"{namespace}::f"
    op = define(name, 2.0)
    compiled = torch.compile(lambda x: op(x), fullgraph=True, backend="aot_eager")
    by_name = torch.compile(lambda x: getattr(torch.ops, namespace).f(x), fullgraph=True, backend="aot_eager")
    held, packet = op.torch_op, getattr(torch.ops, namespace).f
    x = torch.ones(2)
    for f in (compiled, by_name):
        assert gradient(f, x) == 2

    @wb.op(name)
    def f(x: Tensor, k: float = 5.0, *, w: Tensor | None = None) -> Tensor:
        """Another one."""
        return x * k if w is None else x * k * w

    assert f is op
    assert op.__doc__ == "Another one."
    assert str(op.__signature__) == "(x, k=5.0, *, w=None)"
    for g in (op, compiled, by_name, getattr(torch.ops, namespace).f, op.torch_op, held, packet):
        assert g(x).tolist() == [5, 5]
        assert gradient(g, x) == 5
    assert op(x, w=x * 2).tolist() == [10, 10]

    @wb.op(name)
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 6, x * 7

    assert [o.tolist() for o in compiled(x)] == [[6, 6], [7, 7]]
    assert [o.tolist() for o in by_name(x)] == [[6, 6], [7, 7]]

    @wb.op(name, mutates="x")
    def f(x: Tensor) -> None:
        x.add_(1)

    for g in (op, compiled, by_name, held, packet):
        y = torch.zeros(2)
        assert g(y) is None
        assert y.tolist() == [1, 1]

    @wb.op(name)
    def f(n: int) -> Tensor:
        return torch.ones(n)

    assert op(3).tolist() == held(3).tolist() == [1, 1, 1]
    gc.collect()  # what the former definitions leave behind takes nothing away
    assert op.torch_op is held
    assert packet.default is held
    assert getattr(torch.ops, namespace).f is packet
    define(name, 2.0)
    for g in (op, compiled, by_name):
        assert gradient(g, x) == 2


def test_another_schema_takes_slots_along_and_leaves_the_cases_that_fit(namespace, capsys):
    op = define(f"{namespace}::f", 2.0)

    @op.cases
    def _(t):
        yield (t(3),)

    @op.kernel("cpu")
    def _(x):
        return x * 2

    @wb.op(f"{namespace}::f")
    def f(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k * 4

    assert dict(op.slots) == {}
    assert [c.bound(op.schema)["k"] for c in op.case_list()] == [2.0]
    assert op(torch.ones(1)).item() == 8
    assert op.notes == ("v1 (forward cpu) was taken out: the schema changed",)
    assert "v1 (forward cpu) was taken out: the schema changed" in capsys.readouterr().out


def test_cases_that_another_schema_does_not_take_are_gone_and_said_to_be(namespace):
    op = define(f"{namespace}::f", 2.0)

    @op.cases
    def rows(t):
        yield (t(3),)

    @wb.op(f"{namespace}::f")
    def f(x: Tensor, k: float) -> Tensor:
        return x * k

    assert not op.has_cases
    (said,) = op.notes
    assert said.startswith("its cases were taken out: case 1 does not fit, missing a required argument: 'k'")

    @op.cases
    def _(t):
        yield t(3), 1.0

    assert op.has_cases and op.notes == ()


def test_a_cell_that_is_refused_leaves_the_former_op(namespace):
    op = define(f"{namespace}::f", 2.0)
    with pytest.raises(wb.SchemaError):

        @wb.op(f"{namespace}::f")
        def f(x: dict) -> Tensor: ...

    assert op(torch.ones(1)).item() == 2
    assert gradient(getattr(torch.ops, namespace).f, torch.ones(1)) == 2


HELD = """
    import gc, torch, workbench as wb
    from torch import Tensor

    @wb.op("held::f")
    def f(x: Tensor) -> Tensor:
        return x * 2

    packet, overload = torch.ops.held.f, torch.ops.held.f.default
    backward = torch.ops.held.f_backward.default
    x = torch.ones(2)
    assert overload(x).tolist() == [2, 2]
    def tell(call, *args):
        try:
            print(type(call(*args)).__name__, flush=True)
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[0], flush=True)

    @wb.op("held::f")
    def f(x: Tensor, k: int, w: Tensor) -> tuple[Tensor, Tensor]:
        return x * k, x * w

    gc.collect()
    for call in (packet, overload):
        tell(call, x)
        tell(call, x.clone().requires_grad_())
        tell(call, x, 3, x)
        tell(call, x.to("meta"), 3, x.to("meta"))
        tell(torch.vmap(call), x)
        tell(torch.compile(lambda t: call(t, 3, t), backend="aot_eager"), x)
    tell(backward, x, x, x)
    wb.define.forget(f) if hasattr(wb.define, "forget") else None
    gc.collect()
    tell(overload, x)
    tell(packet, x)
    print("alive")
"""


def child(text: str, cache: str, **environment: str) -> str:
    variables = {**os.environ, "WORKBENCH_CACHE": cache, "PYTHONWARNINGS": "ignore", **environment}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr[-2000:]}"
    return done.stdout


def test_a_held_overload_after_another_schema_never_crashes(fresh_cache):
    lines = child(HELD, fresh_cache).splitlines()
    assert lines[-1] == "alive"
    for line in lines[:-1]:
        assert line == "tuple" or line.startswith(("RuntimeError", "TypeError", "NotImplementedError")), line
    assert any("expected at least 3 argument" in x or "missing value for argument 'k'" in x for x in lines), lines


# ---------------------------------------------------------------- in the next process

NEXT = """
    import sys, torch, workbench as wb
    from torch import Tensor
    import torch._inductor.config as inductor, torch._functorch.config as functorch
    inductor.fx_graph_cache = functorch.enable_autograd_cache = True

    {cell}

    def f(x):
        return op(x) * 1

    compiled = torch.compile(f, fullgraph=True)
    x = torch.arange(6.0).view(2, 3).requires_grad_()
    out = compiled(x)
    (g,) = torch.autograd.grad(out.sum(), [x])
    with torch.no_grad():
        plain = compiled(x)
    assert torch.equal(plain, out), (plain, out)
    from torch._dynamo.utils import counters
    hits = counters["aot_autograd"]["autograd_cache_hit"]
    print(out.flatten()[1].item(), tuple(out.shape), g.flatten()[1].item(), hits > 0)
"""


def cell(result: str, *, backward: str = "", fake: str = "") -> str:
    lines = [
        "    @wb.op('next::f')",
        "    def op(x: Tensor) -> Tensor:",
        f"        return {result}",
        *([f"    op.backward(lambda grad_out, x: {backward})"] if backward else []),
        *([f"    op.fake(lambda x: {fake})"] if fake else []),
    ]
    return "\n".join(lines).lstrip()


@pytest.mark.slow
@pytest.mark.timeout(600)  # five processes that compile
def test_the_next_process_runs_the_new_cell(tmp_path, fresh_cache):
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}

    def run(text: str) -> str:
        return child(NEXT.format(cell=text), fresh_cache, **cache).strip()

    assert run(cell("x * 2")) == "2.0 (2, 3) 2.0 False"
    assert run(cell("x * 2")) == "2.0 (2, 3) 2.0 True"  # the same text comes from the cache
    assert run(cell("x * 3")) == "3.0 (2, 3) 3.0 False"
    assert run(cell("x * 3", backward="grad_out * 7")) == "3.0 (2, 3) 7.0 False"
    assert run(cell("torch.cat([x, x]) * 4")) == "4.0 (4, 3) 8.0 False"


@pytest.mark.slow
@pytest.mark.timeout(900)  # six processes that compile
def test_the_next_process_runs_the_new_helper_fake_schema_and_kernel(tmp_path, fresh_cache):
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
    helped = "COUNT = {}\n    helper = lambda x: x.repeat(COUNT, 1)\n    " + cell("helper(x) * 2")
    body = "//! n = x.numel()\\n//! out = empty_like(x)\\nvoid f(const float* x, float* out, int64_t n) { for (int64_t i = 0; i < n; ++i) out[i] = x[i] * 2; }"
    native = cell("x * 2") + f"\n    op.cases(lambda t: iter([(t(2, 3),)]))\n    wb.cpp(op, '{body}')"

    def run(text: str) -> str:
        return child(NEXT.replace("{cell}", text), fresh_cache, **cache).strip()

    assert run(helped.format(1)) == "2.0 (2, 3) 2.0 False"
    assert run(helped.format(1)) == "2.0 (2, 3) 2.0 True"
    assert (
        run(helped.format(2)) == "2.0 (4, 3) 4.0 False"
    )  # another number in another cell: other shapes, other gradients
    assert run(cell("x * 2", fake="x.new_empty(x.shape)")).startswith("2.0 (2, 3) 2.0 ")
    assert run(cell("x * k").replace("x: Tensor)", "x: Tensor, k: float = 5.0)")) == "5.0 (2, 3) 5.0 False"
    assert run(native).startswith("2.0 (2, 3) 2.0 ")


# ---------------------------------------------------------------- the cache tag and the frames


def test_the_users_own_cache_tag_stays(namespace):
    with torch.compiler.config.patch(cache_key_tag="mine"):
        define(f"{namespace}::f", 2.0)
        first = torch.compiler.config.cache_key_tag
        assert first.startswith("mine|workbench:")
        define(f"{namespace}::f", 3.0)
        second = torch.compiler.config.cache_key_tag
        assert second.startswith("mine|workbench:")
        assert second.count("workbench") == 1
        assert first != second
        define(f"{namespace}::f", 2.0)
        assert torch.compiler.config.cache_key_tag == first


def closing_over(values):
    def g(x: Tensor) -> Tensor:
        return x * len(values)

    return g


@pytest.mark.parametrize("part", ["reference", "fake", "backward", "schema", "default", "closure"])
def test_every_part_is_in_the_tag(namespace, part):
    op = define(f"{namespace}::f", 2.0)
    before = torch.compiler.config.cache_key_tag
    if part == "reference":
        define(f"{namespace}::f", 2.5)
    elif part == "fake":
        op.fake(lambda x: torch.empty_like(x))
    elif part == "schema":
        wb.op(f"{namespace}::f(Tensor x, int n) -> Tensor")
    elif part == "default":
        wb.op(f"{namespace}::f(Tensor x, int n=3) -> Tensor")
    elif part == "closure":
        long = tuple(range(200))  # values that differ late
        for values in (long, (*long[:-1], 7)):
            known = torch.compiler.config.cache_key_tag
            wb.op(f"{namespace}::g")(closing_over(values))
            assert torch.compiler.config.cache_key_tag != known
    else:
        op.backward(lambda grad_out: grad_out)
    assert torch.compiler.config.cache_key_tag != before


def test_frames_that_are_gone_are_not_kept():
    traces = Traces()
    traces.note()  # outside of a trace: nothing to remember, no error
    assert not list(traces._codes)
