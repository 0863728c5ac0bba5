"""One call of a kernel in the worker, outside a trial: a version that is not installed, a case that is only timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..errors import SchemaError, ToolchainError, TrialError
from ..inputs import moved
from ..reference import flat
from ..tiers import Kernel
from ..trial import Answer, Job, Result, Step
from ..trial.protocol import FAULTS
from ..version import Version
from . import examine
from .outcomes import placed
from .partners import layout_of, schemas_of, worker_of


def run(
    op, kernel: Kernel, args: Sequence, keywords: Mapping, values: Mapping[str, object], *, case: str,
    limit_s: float | None = None, discards: bool = False,
) -> tuple[Answer, Result]:  # fmt: skip
    """The call on arguments as they travel; `values` are all of them by name. With `discards` nothing comes back."""
    step = Step(
        kernel.step_op, tuple(args), dict(keywords), case=case, outputs=(*op.schema.outputs, *op.schema.saves),
        layout=layout_of(op, values), allocates=tuple(a.name for a in kernel.declaration.allocations),
        discards=discards,
    )  # fmt: skip
    job = Job((step,), (kernel.launch(),), schemas_of(op.schema, (kernel,)))
    answer = worker_of(kernel).run(job, limit_s or examine.LIMIT_S)
    return answer, placed((kernel,), answer.results[0])


def call_in_worker(op, version: Version, args: tuple, kwargs: dict, *, limit_s: float | None = None) -> object:
    """Call a version that is not installed, in the worker: outputs come back, mutated arguments are written here.

    Raises TrialError when it crashes, hangs or writes where it may not.
    """
    kernel: Kernel = version.kernel
    if version.slot != "forward":
        raise SchemaError(f"v{version.number} is a backward; call forward versions, or restore it")
    schema = op.schema
    given = schema.bind(args, kwargs)
    kernel.build([kernel.dtypes_of(given)])
    if not kernel.trial_device:
        raise ToolchainError(f"v{version.number} of {op.qualname} cannot be run: {kernel.unrunnable}")
    values = moved(given, "cpu")
    ordered, keywords = op.definition.split(list(values.values()))
    ordered = [v.detach() if isinstance(v, torch.Tensor) else v for v in ordered]
    answer, result = run(op, kernel, ordered, keywords, values, case="your call", limit_s=limit_s)
    if answer.printed:
        print(answer.printed, end="")
    if not result.ok:
        kind = "mutation" if result.status == "process" else result.status if result.status in FAULTS else "crash"
        if result.status == "error":
            raise SchemaError(result.detail)
        raise TrialError(f"v{version.number} of {op.qualname}: {result.detail}", kind=kind, case="your call")
    for name, changed in result.mutated.items():
        given[name].copy_(changed)
    home = next((t.device for t in flat(list(given.values()))), "cpu")
    found = list(moved(dict(enumerate(result.outputs[: len(schema.outputs)])), home).values())
    return None if not found else found[0] if len(found) == 1 else tuple(found)
