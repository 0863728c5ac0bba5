"""What there is no sense in timing here: refused at once, with a sentence that says why and what to do instead."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import WorkbenchError
from ..version import Version


def refuse(op, slots: Sequence[str], device: str, verb: str) -> None:
    """WorkbenchError where Triton's interpreter runs one of the slots, or what prints.

    >>> refuse(swiglu, ["forward", "backward"], "cpu", "profile")
    WorkbenchError: lab::swiglu runs in Triton's interpreter here, whose time says nothing of a GPU's. ...
    """
    for slot in slots:
        refuse_printing(op, op.runs(slot, device))
        if not getattr(op.runs(slot, device).kernel, "interpreted", False):
            continue
        what, arguments, rest = op.qualname, "", ""
        if slot != "forward":
            what, arguments = f"the {slot} of {op.qualname}", f"slot={slot!r}"
            rest = f"; `{op.name}.{verb}({slot}=False)` leaves it out"
        raise WorkbenchError(
            f"{what} runs in Triton's interpreter here, whose time says nothing of a GPU's. "
            f"`{op.name}.inspect({arguments})` shows what the compiler made of it{rest}"
        )


def refuse_printing(op, version: Version) -> None:
    """WorkbenchError where a version printed while it was tried: timed, it fills the page.

    >>> refuse_printing(rmsnorm, rmsnorm.versions[4])
    WorkbenchError: v4 of rmsnorm prints, and its time is that of printing. Take that out, and run its cell again
    """
    if version.prints:
        raise WorkbenchError(
            f"v{version.number} of {op.name} prints, and its time is that of printing. "
            "Take that out, and run its cell again"
        )


def refuse_waiting(op, device: str, verb: str) -> None:
    """WorkbenchError where all kernels wait for a device that is not here, and the reference would stand for them.

    >>> refuse_waiting(square, "cpu", "bench")
    WorkbenchError: lab::square has no kernel for this machine to bench: v1 (forward, raw CUDA) waits for a GPU. ...
    """
    if any(where == device for _, where in op.slots):
        return
    found = [v for v in op.slots.values() if getattr(v.kernel, "unrunnable", "")]
    if found:
        names = " and ".join(f"v{v.number} ({v.slot}, {v.how})" for v in found)
        raise WorkbenchError(
            f"{op.qualname} has no kernel for this machine to {verb}: {names} wait{'s' * (len(found) == 1)} for a GPU. "
            f"`{op.name}.{verb}(device={device!r})` takes the reference"
        )
