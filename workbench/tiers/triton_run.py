"""A Triton launcher in this process: what is asked before it runs, and the launcher as tracers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..build import triton_call, triton_kernels, triton_module
from ..build.triton_call import Plan
from ..source import Source

Run = Callable[[Mapping[str, Any]], list]
Traced = Callable[[int, Sequence[Any], Mapping[str, Any]], Any]


def tried_first(plan: Plan, run: Run, tried: set[tuple], on_miss: Callable[[dict], str | None]) -> Run:
    """The launcher takes any dtype and may be wrong for some: those that are not in `tried` are tried now."""
    name, arguments = plan.schema.qualname, plan.arguments

    def call(values: Mapping[str, Any]) -> list:
        dtypes = triton_call.dtypes(arguments, values)
        if tuple(dtypes.items()) not in tried:
            refusal = on_miss(dtypes)
            if refusal:
                raise RuntimeError(f"{name}: {refusal}")
        return run(values)

    return call


def on_one_device(plan: Plan, run: Run) -> Run:
    """Triton launches on the current device: make it that of the tensors, which must be one."""
    name = plan.schema.qualname

    def call(values: Mapping[str, Any]) -> list:
        home, first = None, ""
        for n, v in values.items():
            if isinstance(v, torch.Tensor) and v.device != home:
                if home is not None:
                    raise RuntimeError(f"{name}: {n} is on {v.device}, {first} on {home}: all tensors must be on one")
                home, first = v.device, n
        if home is None or home.index == torch.cuda.current_device():
            return run(values)
        with torch.cuda.device(home):
            return run(values)

    return call


def traceable(source: Source, plan: Plan) -> Traced | None:
    """The launcher over kernels that tracers see, as `f(how many results, args, keywords)`.

    None where torch cannot look into one of them: the op then stays opaque to compiled callers.
    """
    try:
        module = triton_kernels.rebound(triton_module.load(source), triton_kernels.traceable)
    except RuntimeError:  # an autotuner with hooks of its own
        return None
    function = getattr(module, plan.function)

    def run(count: int, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        values = triton_call.named(plan, args, keywords)
        return triton_call.as_returned(triton_call.call(plan, function, values)[:count])

    return run
