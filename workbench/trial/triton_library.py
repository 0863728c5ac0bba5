"""A Triton cell behind op names: compiled on a GPU, by Triton's interpreter on tensors of the CPU.

The same in the worker's child and, by `tiers.triton`, in the notebook. Errors of a launch name the cell's own line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ..build import triton_call, triton_driver, triton_module, triton_tune
from ..build.triton_call import Plan
from ..build.triton_kernels import own_kernels
from ..errors import WorkbenchError
from ..source import Source
from .call import Skip


def warm() -> None:
    """What a worker pays for once, so that its children need not: see `Worker.preload`."""
    from ..build import triton_interpret

    triton_interpret.warm()


@dataclass(frozen=True)
class TritonLibrary:
    """One launcher for the worker: `names` maps an op ("lab::f_forward") to how many results it gives.

    `layout`: the reference gives contiguous inputs other strides than contiguous ones, so every call asks for them.
    """

    source: Source
    plan: Plan
    names: Mapping[str, int]
    device: str
    layout: bool = False

    def load(self, allocate: Callable[[int], int]) -> object:
        triton_driver.traces = False
        warnings.filterwarnings("ignore", module=r"triton\.")  # told where it is compiled; no print of the cell's
        function = runnable(self.source, self.plan, interpreted=self.device == "cpu", in_turn=True)
        if self.device != "cpu":
            triton_tune.hear_compiler()
        run = laying_out(self.plan, function, always=self.layout)
        library = torch.library.Library(self.plan.schema.namespace, "IMPL")
        for name, count in self.names.items():
            library.impl(name.partition("::")[2], kernel(self.plan, run, count), self.device.upper())
        return library


def runnable(
    source: Source, plan: Plan, *, interpreted: bool, in_turn: bool = False
) -> Callable[[Mapping[str, Any]], list]:
    """The launcher as a function of all arguments by name; autotuned kernels are timed only where they are compiled.

    `in_turn` runs the configuration whose turn it is in a trial, and times none.
    """
    module = triton_module.load(source, interpreted=interpreted)
    if in_turn:
        triton_tune.in_turn(own_kernels(module).values(), interpreted=interpreted)
    elif interpreted:
        triton_tune.first(own_kernels(module).values())
    else:
        from ..build import triton_ahead

        triton_ahead.side_by_side(own_kernels(module).values())
    function = getattr(module, plan.function)

    def run(values: Mapping[str, Any]) -> list:
        try:
            with _inside(interpreted):
                return triton_call.call(plan, function, values)
        except triton_tune.Unfit as error:
            raise Skip(str(error)) from None
        except WorkbenchError as error:
            raise RuntimeError(str(error)) from None
        except Exception as error:
            raise RuntimeError(triton_module.told(error, source.file)) from error

    return run


def _inside(interpreted: bool) -> AbstractContextManager:
    if not interpreted:
        return nullcontext()
    from ..build.triton_interpret import interpreting

    return interpreting()


def laying_out(plan: Plan, run: Callable[[Mapping[str, Any]], list], *, always: bool) -> Callable[[Mapping], list]:
    """The same, with outputs laid out as the reference would wherever an argument is not contiguous."""
    schema = plan.schema
    if plan.slot == "backward" or not schema.outputs or set(schema.output_types) != {"Tensor"}:
        return run  # what makes strides makes single tensors alone
    name = f"{schema.namespace}__{schema.name}"

    def call(values: Mapping[str, Any]) -> list:
        found = run(values)
        if not always and triton_call.contiguous(values):
            return found
        try:
            ordered = [values[a.name] for a in schema.positional]
            keywords = {a.name: values[a.name] for a in schema.keyword_only}
            wanted = getattr(torch.ops.wb_layout, name)(*ordered, **keywords)
        except RuntimeError:  # an op without a reference, tried for the first time: any strides will do
            return found
        return triton_call.laid_out(found, wanted if isinstance(wanted, (tuple, list)) else [wanted])

    return call


def kernel(plan: Plan, run: Callable[[Mapping[str, Any]], list], count: int) -> Callable:
    """What the dispatcher calls: the first `count` results."""

    def call(*args: Any, **keywords: Any) -> Any:
        return triton_call.as_returned(run(triton_call.named(plan, args, keywords))[:count])

    return call
