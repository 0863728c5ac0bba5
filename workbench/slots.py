"""What runs in each slot of an op: putting versions in, and taking them out.

A kernel whose launcher runs already is swapped by one atomic store; between two launchers the reference runs for an
instant, never nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from .arrivals import arrived
from .judge.evidence import learn_layout
from .reference import flat
from .register import pullback
from .schema import Schema
from .tiers import Kernel
from .version import Version


def put(op, version: Version) -> None:
    """Let a version run in its slot. A kernel whose launcher runs already is swapped in by one atomic store."""
    place(op, version)
    lend(op, version, put)


def place(op, version: Version) -> None:
    """A version into its slot, and into no other; where that fails, what ran there runs again."""
    key = (version.slot, version.device)
    former = op.slots.get(key)
    kernel = version.kernel
    if isinstance(kernel, Kernel):
        learn_layout(op, kernel, op.case_list())
    try:
        if former and not (isinstance(kernel, Kernel) and kernel.shares_launcher(former.kernel)):
            take_out(op, former.kernel)
        _fill(op, version)
    except BaseException:  # no memory for its code, a context that is lost, a library that does not load
        with suppress(Exception):
            kernel.remove()
        op.vacate(key)
        if former:
            _fill(op, former)
        raise


def _fill(op, version: Version) -> None:
    op.fill((version.slot, version.device), version)
    if isinstance(version.kernel, Kernel):
        hand_over(op, version)
    else:
        version.kernel.install(op)
    settle(op)


def lend(op, version: Version, place: Callable) -> None:
    """Where this machine cannot run a kernel its stand-in runs on tensors of the CPU, unless compiled code does."""
    kernel = version.kernel
    other = kernel.stand_in if isinstance(kernel, Kernel) else None
    installed = op.runs(version.slot, "cpu")
    if other is not None and (not installed.number or getattr(installed.kernel, "interpreted", False)):
        place(op, replace(version, device="cpu", tier="interpreted", kernel=other))


def hand_over(op, version: Version) -> None:
    kernel = version.kernel
    if kernel.left_out and not kernel.unrunnable:
        op.registration.name_partial(kernel.native_schema.name, kernel.device)
    kernel.registration = op.registration
    kernel.install(lambda dtypes: arrived(op, version, dtypes))


def take_out(op, kernel: Any) -> None:
    kernel.remove()
    if kernel.left_out:
        op.registration.clear_kernel(f"{op.name}_backward", kernel.device)


def settle(op) -> None:
    """Make what compiled callers traced follow from the slots: saved fakes, backwards that need a forward's saves."""
    definition, schema = op.definition, op.schema
    forwards = {d: v.kernel for (s, d), v in op.slots.items() if s == "forward" and isinstance(v.kernel, Kernel)}
    savers = {d: k for d, k in forwards.items() if schema.saves and set(schema.saves) <= set(k.makes[0])}
    makers = {d: k for d, k in forwards.items() if k.makes[0]} if _has_no_fake(op) else {}
    definition.saved_fake = partial(_saved, schema, savers) if savers else None
    if makers:
        definition.derived_fake = lambda *a, **k: _outputs_of(schema, _fakes(schema, makers, a, k))
    for (slot, device), version in list(op.slots.items()):
        backward = version.kernel
        if slot != "backward" or not isinstance(backward, Kernel) or not backward.uses_saved:
            continue
        if device in forwards:
            hand_over(op, version)
        else:
            take_out(op, backward)  # nothing was saved: the reference's vjp runs until a forward kernel is back
    # What a compiled caller took from the kernels; an edit of the body alone changes none of it.
    traced: dict = {d: k.makes for d, k in sorted({**savers, **makers}.items())}
    filled = [(key, v.kernel) for key, v in sorted(op.slots.items()) if isinstance(v.kernel, Kernel)]
    traced |= {key: k.inlined for key, k in filled if k.inlined}
    if (traced or None) != definition.traced:
        definition.traced = traced or None
        op.changed()


def _has_no_fake(op) -> bool:
    return op.reference is None and op.definition.fake is None


def _saved(schema: Schema, savers: Mapping[str, Kernel], args: tuple, kwargs: dict) -> list[torch.Tensor]:
    """The fakes of the saved tensors; placeholders on a device where the reference runs, which saves nothing."""
    device = _device(args, kwargs)
    if device not in savers:
        return [pullback.absent(device) for _ in schema.saves]
    made = savers[device].fakes(schema.bind(args, kwargs))
    return [made[n] for n in schema.saves]


def _fakes(schema: Schema, makers: Mapping[str, Kernel], args: tuple, kwargs: dict) -> Mapping[str, torch.Tensor]:
    """What the kernel on the arguments' device makes, or any other: an op without a reference has one fake."""
    kernel = makers.get(_device(args, kwargs)) or next(iter(makers.values()))
    return kernel.fakes(schema.bind(args, kwargs))


def _device(args: tuple, kwargs: dict) -> str:
    return next((t.device.type for t in flat([*args, *kwargs.values()])), "cpu")


def _outputs_of(schema: Schema, made: Mapping[str, torch.Tensor]):
    found = [made[n] for n in schema.outputs]
    return found[0] if len(found) == 1 else tuple(found) or None


def empty(op, key: tuple[str, str]) -> None:
    """The reference runs in this slot again."""
    take_out(op, op.runs(*key).kernel)
    op.vacate(key)
    settle(op)
    op.changed()
