"""The op in graphs: compiled once for many sizes, exported, compiled by Inductor, against eager mode."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...case import Case
from ...inputs import fresh, tensors_in
from ...reports.report import Row
from .. import agree
from ..sample import Checkable, Sample, failed, first_line
from .inductor import scalar_code


def recompilations(
    sample: Sample, ordinary: Sequence[Case], others: Sequence[Case] = (), *, backend: str = "aot_eager"
) -> Row:
    """One graph for all sizes from 2 up, and its values those of eager mode; `others` have sizes of 0 and 1.

    >>> recompilations(sample, cases).detail
    '1 graph for 5 sizes from 2 up; values, shapes, strides and dtypes are those of eager mode'
    """
    name, op = "compiled, dynamic shapes", sample.op
    about = f"{len(ordinary) + len(others)} sizes"
    if op.random:
        return Row(name, about, "skip", "not run: the op draws random numbers, so no two calls are equal")
    if len(ordinary) < 2:
        return Row(name, about, "skip", "not run: no two inputs here have sizes from 2 up in all dimensions")
    counted = _Counter(backend)
    function = own_call(op)
    compiled = torch.compile(function, backend=counted, fullgraph=True, dynamic=True)
    graphs = 0
    try:
        for i, case in enumerate([*ordinary, *others]):
            if difference := _differs(sample, compiled, case):
                return failed(name, case.label, f"{difference}, with dynamic shapes")
            if i + 1 == len(ordinary):
                graphs = counted.graphs
    except Exception as error:
        return failed(name, about, error)
    finally:
        torch._C._dynamo.eval_frame.reset_code(function.__code__)
    if len(ordinary) > 2 and graphs >= len(ordinary):
        said = f"{graphs} graphs for {graphs} sizes: it is compiled again at each, so its fake fixes a size"
        return failed(name, about, said)
    plural = "s" if graphs > 1 else ""
    detail = f"{graphs} graph{plural} for {len(ordinary)} sizes from 2 up"
    detail += f", {counted.graphs - graphs} more for {len(others)} with 0 or 1" if others else ""
    return Row(name, about, "pass", f"{detail}; values, shapes, strides and dtypes are those of eager mode")


def gradients_compiled(sample: Sample, cases: Sequence[Case]) -> Row:
    """The backward in a graph with dynamic shapes gives the gradients of eager mode."""
    name, op = "compiled, gradients", sample.op
    about = f"{len(cases)} sizes"
    why = (
        "the op draws random numbers"
        if op.random
        else ""
        if sample.takes_gradients
        else "nothing here takes a gradient"
    )
    why = why or ("it mutates its arguments, which the compile row has tried" if op.schema.mutated else "")
    if why:
        return Row(name, about, "skip", f"not run: {why}")
    function = own_call(op)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    try:
        for case in cases:
            eager, other = (_gradients(sample, f, case) for f in (function, compiled))
            for i, (x, y) in enumerate(zip(eager, other, strict=True)):
                if (x is None) != (y is None) or (x is not None and y is not None and not same(x, y)):
                    return failed(name, case.label, f"gradient {i} differs between compiled and eager mode")
    except Exception as error:
        return failed(name, about, error)
    finally:
        torch._C._dynamo.eval_frame.reset_code(function.__code__)
    return Row(name, about, "pass", "with dynamic shapes, the gradients are those of eager mode")


def exported(sample: Sample, others: Sequence[Case]) -> Row:
    """`torch.export` with dynamic shapes, then run on another size."""
    name, op = "export", sample.op
    if op.random:
        return Row(name, sample.label, "skip", "not run: the op draws random numbers, so no two calls are equal")

    class Holder(torch.nn.Module):
        def forward(self, *args: object) -> object:
            return op.torch_op(*args[: len(op.schema.positional)], **dict(zip(only, args[len(op.schema.positional) :])))

    only = [a.name for a in op.schema.keyword_only]
    given = _flat_inputs(sample, sample.case)
    dims = [_dynamic(v) for v in given]
    try:
        program = torch.export.export(Holder(), tuple(given), dynamic_shapes={"args": tuple(dims)})
    except Exception as error:
        return failed(name, sample.label, error)
    module, ran = program.module(), 0
    alike = [c for c in others if _numbers(sample, c) == _numbers(sample, sample.case)]  # a program holds its numbers
    for case in [sample.case, *alike]:
        eager, other = _flat_inputs(sample, case), _flat_inputs(sample, case)
        try:
            left = [_left(op, f, a) for f, a in ((Holder(), eager), (module, other))]
        except (AssertionError, ValueError, RuntimeError) as error:
            if case is sample.case:
                return failed(name, case.label, error)
            return failed(name, case.label, f"exported for {sample.label}, it refuses other sizes: {first_line(error)}")
        for n, x in left[0].items():
            if not same(x, left[1][n]):
                return failed(name, case.label, f"{n}: elements differ between the exported program and eager mode")
        ran += 1
    detail = f"one exported program with dynamic sizes gives what eager mode gives, on {ran} input{'s' * (ran > 1)}"
    return Row(name, sample.label, "pass", detail)


def inductor(sample: Sample) -> Row:
    """The op between pointwise code of Inductor, whose layouts it gets and whose code gets its outputs."""
    name, op = "inductor", sample.op
    if op.random:
        return Row(name, sample.label, "skip", "not run: the op draws random numbers, so no two calls are equal")
    call = own_call(op)

    def around(*args: object) -> tuple[list, list]:
        changed = [a * 1.5 if isinstance(a, Tensor) and a.is_floating_point() and n not in op.schema.mutated else a
                   for n, a in zip(names, args)]  # fmt: skip
        out: Any = call(*changed)
        results = out if isinstance(out, (tuple, list)) else [out]
        return [r * 0.5 if isinstance(r, Tensor) and r.is_floating_point() else r for r in results], changed

    names = [a.name for a in op.schema.arguments]
    around = _renamed(around)
    compiled = torch.compile(around, fullgraph=True, dynamic=False)
    try:
        left = []
        for f in (around, compiled):
            args = _flat_inputs(sample, sample.case)
            with torch.no_grad(), scalar_code():
                out, _ = f(*args)
            left.append(
                tensors_in(
                    [*[o for o in out if o is not None], *[a for n, a in zip(names, args) if n in op.schema.mutated]]
                )
            )
    except Exception as error:
        return failed(name, sample.label, error)
    finally:
        torch._C._dynamo.eval_frame.reset_code(around.__code__)
    for i, (x, y) in enumerate(zip(*left, strict=True)):
        if not same(x, y, loose=True):
            return failed(name, sample.label, f"result {i}: elements differ between Inductor's code and eager mode")
    detail = "between Inductor's own pointwise code, values, shapes and dtypes are those of eager mode"
    return Row(name, sample.label, "pass", f"{detail}; Inductor calls it as it is, and fuses nothing into it")


class _Counter:
    """A backend that counts the graphs that run; one that dynamo makes and throws away again is none."""

    def __init__(self, backend: str) -> None:
        self.ran: set[int] = set()
        self.made = 0
        self.backend = torch._dynamo.backends.registry.lookup_backend(backend)

    @property
    def graphs(self) -> int:
        return len(self.ran)

    def __call__(self, module: torch.fx.GraphModule, inputs: list) -> Callable:
        self.made += 1
        number, compiled = self.made, self.backend(module, inputs)

        def run(*args: object) -> object:
            self.ran.add(number)
            return compiled(*args)

        return run


def own_call(op: Checkable) -> Any:
    """A call of the op with a code object of its own: dynamo counts recompilations per code object."""
    target, positional = op.torch_op, len(op.schema.positional)
    only = tuple(a.name for a in op.schema.keyword_only)
    if only:

        def call(*args: object) -> object:
            return target(*args[:positional], **dict(zip(only, args[positional:])))

    else:

        def call(*args: object) -> object:
            return target(*args)

    return _renamed(call)


def _renamed(f: Any) -> Any:
    """The same function with another code object."""
    code = f.__code__.replace(co_name=f"{f.__name__}_{id(f):x}")
    return types.FunctionType(code, f.__globals__, code.co_name, None, f.__closure__)


def _flat_inputs(sample: Sample, case: Case) -> list:
    return list(fresh(case.bound(sample.op.schema), device=sample.device).values())


def _numbers(sample: Sample, case: Case) -> list:
    """What goes to the op beside tensors."""
    return [v for v in case.bound(sample.op.schema).values() if not tensors_in(v)]


def _left(op: Checkable, f: Callable, args: list) -> dict[str, Tensor]:
    """What a call left behind: outputs, then mutated arguments."""
    with torch.no_grad():
        returned = f(*args)
    return agree.leaves(op.schema, dict(zip([a.name for a in op.schema.arguments], args, strict=True)), returned)


def _differs(sample: Sample, compiled: Callable, case: Case) -> str:
    eager = _left(sample.op, own_call(sample.op), _flat_inputs(sample, case))
    other = _left(sample.op, compiled, _flat_inputs(sample, case))
    for n, x in eager.items():
        y = other[n]
        seen = [f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)} strides {_strides(t)}" for t in (x, y)]
        if seen[0] != seen[1]:
            return f"{n} is {seen[1]} compiled, {seen[0]} in eager mode"
        if not same(x, y):
            return f"{n}: elements differ between compiled and eager mode"
    return ""


def _strides(x: Tensor) -> tuple[int, ...]:
    """Strides of sizes 0 and 1 mean nothing."""
    return tuple(s if n > 1 else 0 for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else ()


def _gradients(sample: Sample, f: Callable, case: Case) -> list[Tensor | None]:
    named = fresh(case.bound(sample.op.schema), device=sample.device)
    moving = []
    for n, v in named.items():
        for x in tensors_in(v):
            if x.is_floating_point() and n not in case.constant:
                moving.append(x.requires_grad_())
    results = agree.leaves(sample.op.schema, named, f(*named.values()))
    flowing = [r for r in results.values() if r.requires_grad]
    if not flowing:
        return []
    ones = [torch.ones_like(r) for r in flowing]
    return list(torch.autograd.grad(flowing, moving, ones, allow_unused=True))


def same(x: Tensor, y: Tensor, *, loose: bool = False) -> bool:
    """Equal, as results of one kernel on the same numbers are; `loose` where other code has rounded them before."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if not (x.is_floating_point() or x.is_complex()):
        return torch.equal(x, y)
    x, y = (t if t.is_complex() else t.double() for t in (x, y))
    low = x.numel() and loose
    rtol, atol = (2e-2, 2e-2 * x.abs().nan_to_num(0, 0, 0).max().item()) if low else (1e-3, 1e-5)
    return torch.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True)


def _dynamic(value: object) -> object:
    """What torch.export is told of one argument: any size that it does not fix itself."""
    if isinstance(value, (list, tuple)):
        return [_dynamic(v) for v in value]
    if not isinstance(value, Tensor):
        return None
    return {d: torch.export.Dim.AUTO for d in range(value.dim()) if value.shape[d] > 1} or None
