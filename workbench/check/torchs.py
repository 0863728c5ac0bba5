"""What torch expects of an op: the four tests of `torch.library.opcheck`, and one compiled graph against eager."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..inputs import form
from ..register import traces
from ..reports.report import Row
from . import agree, offer
from .sample import Checkable, Sample, failed, guarded

# (torch's name, ours, what a pass proves, what it does not)
OPCHECKS = (
    (
        "test_schema", "schema",
        "it changes no argument that its schema does not name, and returns none of them",
        "values are not looked at",
    ),
    (
        "test_autograd_registration", "autograd registration",
        "its gradient is registered where torch looks for it",
        "whether it is right is for the gradients rows",
    ),
    (
        "test_faketensor", "fake",
        "the fake's shapes, dtypes and strides are those of the real call",
        "other shapes were not tried",
    ),
    (
        "test_aot_dispatch_dynamic", "compile",
        "with symbolic sizes, the values and gradients are those of eager mode",
        "dynamo and Inductor were not run",
    ),
)  # fmt: skip


OF_A_CLASS = "is not implemented for __torch__.torch.classes."  # torch on an object that has no __eq__, no __len__


def opcheck(sample: Sample, test: str, name: str, proved: str, unproved: str) -> Row:
    """One of `OPCHECKS`, on plain inputs and, where there is a gradient, on inputs that require it.

    Without the latter torch's tests say SUCCESS of any gradient.
    """
    op, label, grad = sample.op, sample.label, sample.takes_gradients
    if name == "autograd registration" and not grad:
        return Row(name, label, "skip", "not run: nothing here takes a gradient")
    if name == "compile" and op.random:
        return Row(name, label, "skip", "not run: the op draws random numbers, so no two calls are equal")
    tried = [False]
    if grad and name in ("compile", "autograd registration"):
        tried = [True]
    elif grad and not op.schema.mutated:  # a leaf that requires gradients cannot be changed in place
        tried = [False, True]

    def look() -> Row:
        for with_grad in tried:
            args, kwargs = sample.inputs(grad=with_grad)
            try:
                if name == "compile":
                    _aot(sample, args, kwargs, with_grad)
                else:
                    torch.library.opcheck(op.torch_op, args, kwargs, test_utils=test)
            except Exception as error:
                why = error.__cause__ or error  # opcheck wraps what it met
                if isinstance(why, NotImplementedError) and OF_A_CLASS in str(why):
                    return Row(name, label, "skip", f"not run: torch's test compares arguments, and {why}")
                row = failed(name, label, why, "inputs that require gradients" if with_grad else "plain inputs")
                return _with_offer(row, sample) if name == "fake" and "has no fake" in row.detail else row
        kinds = {False: "plain inputs", True: "inputs that require gradients"}
        on = " and ".join(kinds[with_grad] for with_grad in tried)
        said = proved if grad else proved.replace("values and gradients", "values")
        return Row(name, label, "pass", f"{said}, on {on}; {unproved}")

    return guarded(name, label, look)


def _with_offer(row: Row, sample: Sample) -> Row:
    """A row that misses a fake, with one that fits what the op gave."""
    found = offer.fake(sample.op, sample.device)
    if not found:
        return row
    count = len(sample.op.case_list())
    cases = "the one case there is" if count == 1 else f"{count} cases"
    return replace(row, cure=f"There is no fake. Inferred from {cases}, and right there: `{found}`")


def _aot(sample: Sample, args: tuple, kwargs: dict, with_grad: bool) -> None:
    """What test_aot_dispatch_dynamic does, on all that a call leaves behind.

    Its own form looks at no mutated argument, and cannot add up gradients where an output is an integer.
    """
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.compilers import nop
    from torch._functorch.partitioners import min_cut_rematerialization_partition as partition
    from torch.testing._internal.optests import aot_autograd

    schema, target = sample.op.schema, sample.op.torch_op
    flat, spec = pytree.tree_flatten((args, kwargs))
    given = [x for x in flat if isinstance(x, Tensor)]

    def function(tensors: list[Tensor]) -> list[Tensor]:
        rest = iter([x.clone() for x in tensors])
        args, kwargs = pytree.tree_unflatten([next(rest) if isinstance(x, Tensor) else x for x in flat], spec)
        returned = target(*args, **kwargs)
        named = dict(zip([a.name for a in schema.arguments], [*args, *kwargs.values()], strict=True))
        return [x for x in agree.leaves(schema, named, returned).values() if x.is_floating_point() or not with_grad]

    def trace() -> Callable:
        return aot_function(
            function, nop, nop, dynamic=True, partition_fn=partition, keep_inference_input_mutations=True
        )

    equal = functools.partial(torch.testing.assert_close, equal_nan=True)
    traced = kept(sample, f"aot, with_grad={with_grad}", trace)
    out = function(given)
    if with_grad and any(x.requires_grad for x in out):
        aot_autograd._test_aot_autograd_forwards_backwards_helper(
            function, traced, given, aot_autograd.assert_raises_regex, equal, False
        )
    else:
        equal(traced(given), out, msg=aot_autograd.outputs_msg)


# Of the last check of each op, by kind: what it was of, and the compiled function. A kernel behind the op is not
# traced, so that the graph of before serves for the next one, until something is another that tracers see.
_kept: weakref.WeakKeyDictionary[Checkable, dict[str, tuple[tuple, Callable]]] = weakref.WeakKeyDictionary()


def kept(sample: Sample, kind: str, make: Callable[[], Callable]) -> Callable:
    """The compiled function of the check before, where this one is of the same op, traced alike, on the same inputs."""
    told = traces.digest(sample.op.qualname)
    if not told:
        return make()
    key = (told, sample.op.torch_op, form(sample.case.bound(sample.op.schema)), sample.device, torch.is_grad_enabled())
    held = _kept.setdefault(sample.op, {})
    if kind not in held or held[kind][0] != key:
        held[kind] = (key, make())
    return held[kind][1]


def compiled(sample: Sample) -> Row:
    """The op in a graph of its own, through dynamo and AOTAutograd: the same kernel runs, so all must be the same."""
    name, label, op = "compiled = eager", sample.label, sample.op
    if op.random:
        return Row(name, label, "skip", "not run: the op draws random numbers, so no two calls are equal")
    eager, other = _both_ways(sample)
    for n, x in eager.items():
        y = other[n]
        seen = [f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)} strides {t.stride()}" for t in (x, y)]
        if seen[0] != seen[1]:
            return failed(name, label, f"{n} is {seen[1]} compiled, {seen[0]} in eager mode")
        x, y = (t if t.is_complex() else t.double() for t in (x, y))
        if not torch.allclose(x, y, rtol=1e-3, atol=1e-5, equal_nan=True):
            return failed(name, label, f"{n}: elements differ between compiled and eager mode")
    detail = "compiled as one graph, values and strides are those of eager mode; Inductor's own code was not run"
    return Row(name, label, "pass", detail)


def _both_ways(sample: Sample) -> list[dict[str, Tensor]]:
    schema, target = sample.op.schema, sample.op.torch_op

    def call(args: tuple, kwargs: dict) -> object:
        return target(*args, **kwargs)

    def compile_() -> Callable:
        # A code object of its own: dynamo counts recompilations per code object, and eight are the limit. Static, since
        # it also remembers by file and line which sizes changed, here from one op to the next.
        code = call.__code__.replace(co_name="checked")
        own = types.FunctionType(code, call.__globals__, "checked", None, call.__closure__)
        return torch.compile(own, backend="aot_eager", fullgraph=True, dynamic=False)

    left = []
    for function in (call, kept(sample, "dynamo", compile_)):
        args, kwargs = sample.inputs()
        with torch.no_grad():
            returned = function(args, kwargs)
        named = dict(zip([a.name for a in schema.arguments], [*args, *kwargs.values()], strict=True))
        left.append(agree.leaves(schema, named, returned))
    return left
