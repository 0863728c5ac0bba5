"""A Python function as the forward of one device: `@op.kernel("cpu")`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from . import gpu, slots
from .errors import SchemaError, TrialError
from .judge import examine, verdict
from .register import pullback
from .turn import in_turn
from .version import Version


class PythonKernel:
    """A Python function as the forward of one device."""

    tier = ""
    left_out = ()
    declaration = None

    def __init__(self, function: Callable, device: str) -> None:
        self.function, self.device = function, device
        self.op: Any = None

    @property
    def unrunnable(self) -> str:
        """Why it cannot be run on this machine; "" where it can."""
        return "no GPU here" if self.device == "cuda" and not gpu.present() else ""

    def install(self, op) -> None:
        self.op, schema = op, op.schema
        count, wanted = len(schema.outputs), len(schema.outputs) + len(schema.saves)

        def forward(*args, **kwargs):
            args, kwargs = op.definition.complete(args, kwargs)
            out = self.function(*args, **kwargs)
            several = isinstance(out, (tuple, list)) and wanted > 1
            given = [] if out is None else list(out) if several else [out]
            if len(given) == count and schema.saves:
                given += [pullback.absent() for _ in schema.saves]
            if len(given) != wanted:
                raise SchemaError(f"{op.qualname}: the kernel returned {len(given)} results, {wanted} are wanted")
            return None if not given else given[0] if len(given) == 1 else tuple(given)

        def public(*args, **kwargs):
            found = forward(*args, **kwargs)
            if not schema.saves:
                return found
            return found[0] if count == 1 else tuple(found[:count]) or None

        op.registration.set_kernel(op.name, self.device, public)
        op.registration.set_kernel(f"{op.name}_forward", self.device, forward)

    def remove(self) -> None:
        for name in (self.op.name, f"{self.op.name}_forward"):
            self.op.registration.clear_kernel(name, self.device)


def device_of(op, device: Any) -> str:
    """`"cuda"`: the kind of device that a kernel is for. SchemaError for what is none, and for one by number."""
    try:
        found = torch.device(device)
    except (TypeError, RuntimeError):
        found = None
    if found is None or isinstance(device, int) or found.index is not None:
        raise SchemaError(f"{op.qualname}: kernel(device) is for one device, 'cpu' or 'cuda'; got {device!r}")
    return str(found.type)


@in_turn
def install(op, function: Callable, device: str) -> Callable:
    """`@op.kernel("cpu")`: judged on the op's cases in this process (it is Python), then installed."""
    title = (function.__doc__ or "").strip().split("\n")[0]
    kernel = PythonKernel(function, device)
    version = Version(op.next_number(), "forward", device, "python", "", None, title, kernel=kernel)
    trial = examine.judge(op, kernel, op.case_list())
    refusal = verdict.refusal(trial)
    version = op.record(replace(version, trial=trial, refused=refusal))
    if refusal:
        said = f"v{version.number} of {op.name} is not installed: it {refusal}"
        error = TrialError(said, kind=verdict.kind(trial), report=trial)
        error.still = f"{op.name} forward still runs {op.still('forward', device)}"
        raise error
    slots.put(op, version)
    return function
