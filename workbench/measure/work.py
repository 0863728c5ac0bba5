"""What a call has to do: bytes that must move, floating-point operations, memory that torch allocates meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..case import Case
from ..errors import WorkbenchError
from ..inputs import tensors_in
from ..reference import Definition
from ..reports.measurement import Work

MB = 1e6


def of_forward(definition: Definition, case: Case, named: Mapping[str, object], results: Sequence[Tensor]) -> Work:
    """Of one call with these arguments and results.

    >>> of_forward(rmsnorm.definition, case, inputs, [y]).bytes      # x and w read once, y written once
    268451840.0

    What the case says comes first. Otherwise each input is read once, each output and each mutated argument written
    once, and operations are those that `FlopCounterMode` counts in the reference (matrix products, convolutions,
    attention) on tensors without data; 0 where there are none.
    """
    moved = sum(map(nbytes, tensors_in(dict(named)))) + sum(map(nbytes, results))
    counted = 0.0 if case.flops is not None else _counted(definition, named, backward=False)
    return _work(case, moved, counted)


def of_backward(definition: Definition, named: Mapping[str, object], gradients: Mapping, given: Mapping) -> Work:
    """Of one backward: arguments and incoming gradients read, gradients written."""
    moved = sum(map(nbytes, [*tensors_in(dict(named)), *given.values(), *gradients.values()]))
    return Work(float(moved), _counted(definition, named, backward=True), "its tensors")


def _work(case: Case, moved: float, counted: float) -> Work:
    said = [n for n, v in (("bytes", case.bytes), ("flops", case.flops)) if v is not None]
    source = "the case" if len(said) == 2 else f"the case ({said[0]}) and its tensors" if said else "its tensors"
    return Work(
        float(case.bytes) if case.bytes is not None else float(moved),
        float(case.flops) if case.flops is not None else counted,
        source,
    )


def nbytes(x: Tensor) -> int:
    """Bytes that hold a tensor: one that is expanded has no more than its storage."""
    try:
        return min(x.numel() * x.element_size(), x.untyped_storage().nbytes()) if x.numel() else 0
    except (NotImplementedError, RuntimeError):  # a tensor without storage
        return x.numel() * x.element_size()


def _counted(definition: Definition, named: Mapping[str, object], *, backward: bool) -> float:
    if definition.reference is None:
        return 0.0
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            values = [_fake(mode, v, backward) for v in named.values()]
            if not backward:
                args, kwargs = definition.split(values)
                with torch.no_grad(), counter:
                    definition.reference(*args, **kwargs)
            else:
                with torch.enable_grad():
                    results = [r for r in definition.inline(values) if isinstance(r, Tensor) and r.requires_grad]
                    leaves = [x for x in tensors_in(values) if x.requires_grad]
                    with counter:
                        torch.autograd.grad(results, leaves, [torch.ones_like(r) for r in results], allow_unused=True)
    except Exception:  # a reference that looks at values, say: then nothing is known, and nothing is said
        return 0.0
    return float(counter.get_total_flops())


def _fake(mode: Any, value: Any, wants_gradient: bool) -> object:
    if isinstance(value, Tensor):
        made = mode.from_tensor(value.detach())
        return made.requires_grad_() if wants_gradient and made.is_floating_point() else made
    return [_fake(mode, v, wants_gradient) for v in value] if isinstance(value, (list, tuple)) else value


def peak_mb(run: Callable[[], object], device: str) -> float:
    """The most that torch holds during one call beyond what it held before, in MB (10^6 bytes); 0 where not known."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / MB
    from .profile_run import session

    try:
        with session() as trace:
            run()
        events = json.loads(trace())["traceEvents"]
    except (WorkbenchError, RuntimeError, ValueError):  # somebody profiles already
        return 0.0
    moved = [(e["ts"], e["args"]["Bytes"]) for e in events if e.get("name") == "[memory]"]
    held = most = 0
    for _, count in sorted(moved, key=lambda m: m[0]):
        held += count
        most = max(most, held)
    return most / MB
