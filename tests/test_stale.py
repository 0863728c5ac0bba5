"""Nothing stale: after a cell is run again, every caller, in this process and the next, runs what it says now."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import Tensor, func

import workbench as wb
from workbench.traces import Traces

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


def test_another_schema_takes_slots_and_cases_along(namespace, capsys):
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
    assert not op.has_cases
    assert op(torch.ones(1)).item() == 8
    assert op.notes == ("v1 (forward cpu) was taken out: the schema changed",)
    assert "v1 (forward cpu) was taken out: the schema changed" in capsys.readouterr().out


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
        [sys.executable, "-c", textwrap.dedent(text)], env=variables, capture_output=True, text=True, timeout=120, check=False
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


@pytest.mark.parametrize("part", ["reference", "fake", "backward"])
def test_every_part_is_in_the_tag(namespace, part):
    op = define(f"{namespace}::f", 2.0)
    before = torch.compiler.config.cache_key_tag
    if part == "reference":
        define(f"{namespace}::f", 2.5)
    elif part == "fake":
        op.fake(lambda x: torch.empty_like(x))
    else:
        op.backward(lambda grad_out: grad_out)
    assert torch.compiler.config.cache_key_tag != before


def test_frames_that_are_gone_are_not_kept():
    traces = Traces()
    traces.note()  # outside of a trace: nothing to remember, no error
    assert not list(traces._codes)
