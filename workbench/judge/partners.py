"""What a trial needs beside a kernel: the one that it runs with, the dtypes and schemas, the process, the layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ..errors import SchemaError
from ..register import layouts, registration
from ..schema import Schema
from ..tiers import Kernel
from ..trial import Meta, Worker, worker
from .evidence import Evidence

if TYPE_CHECKING:
    from ..trial.gpu_client import GpuWorker


def partners(op, kernel: Kernel) -> tuple[Kernel | None, Kernel | None]:
    """The forward and the backward kernel that take part."""
    if kernel.defines_itself:
        return kernel, None
    if kernel.slot == "backward":
        if not kernel.uses_saved:
            return None, kernel
        forward = op.runs("forward", kernel.device).kernel
        if not isinstance(forward, Kernel):
            names = ", ".join(op.schema.saves)
            raise SchemaError(
                f"{op.name}.backward takes {names}, which the forward saves; but the forward still runs as the "
                "reference, which saves nothing. Install a forward cell first."
            )
        _refuse_unsaved(op, forward)
        return forward, kernel
    backward = op.runs("backward", kernel.device).kernel
    taken = isinstance(backward, Kernel) and backward.uses_saved and backward.trial_device == kernel.trial_device
    if taken:
        _refuse_unsaved(op, kernel)
    return kernel, backward if taken else None


def _refuse_unsaved(op, forward: Kernel) -> None:
    """A backward that takes what is saved has no forward in one that leaves it out."""
    if forward.unsaved:
        lines = " and ".join(f"'//! {n} = empty(sizes, dtype=...)'" for n in forward.unsaved)
        raise SchemaError(
            f"{op.name}.backward takes what its forward does not save: write {lines} into the forward's cell, and "
            "fill it there"
        )


def dtypes_for(op, kernel: Kernel, e: Evidence) -> dict[str, torch.dtype | None]:
    """The dtypes of a kernel's tensor arguments on a case; of saved tensors those that the forward declares."""
    found = kernel.dtypes_of(e.values)
    forward = op.runs("forward", kernel.device).kernel
    if kernel.uses_saved and isinstance(forward, Kernel):
        _refuse_unsaved(op, forward)
        kernel.forward = forward
        made = forward.complete({a.name: found[a.name] for a in op.schema.arguments if a.is_tensor})
        found |= {n: made[n] for n in op.schema.saves}
    return found


def schemas_of(schema: Schema, kernels: Sequence[Kernel | None]) -> tuple[str, ...]:
    if any(k is not None and k.defines_itself for k in kernels):
        return ()
    found = [str(schema), registration.forward_schema(schema)]
    for k in kernels:
        if k is not None and k.slot == "backward":
            found.append(registration.native_backward(schema, k.native_schema.name))
    return tuple(found)


def worker_of(kernel: Kernel) -> Worker | GpuWorker:
    """The process that tries it: that of the CPU, or the one with a GPU."""
    if kernel.trial_device != "cuda":
        return worker()
    from ..trial.gpu_client import gpu_worker

    return gpu_worker()


def layout_of(op, values: Mapping[str, object]) -> tuple[Meta, ...] | None:
    if op.reference is None:
        return None
    metadata = layouts.output_metadata(op.definition, list(values.values()))
    return tuple(Meta(dtype, size, stride) for size, stride, dtype in metadata)
