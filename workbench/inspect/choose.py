"""Which version is meant, and for which dtypes: what `op.inspect` is asked in short, said in full."""

from __future__ import annotations

import torch

from ..build.ctypes_cpp import short
from ..errors import SchemaError
from ..tiers import Kernel
from ..version import LANGUAGES, Version, asked

Dtypes = dict[str, "torch.dtype | None"]


def version(op, wanted: int | Version | None, slot: str) -> Version:
    """The version that is meant: that number, or what runs in the slot, on a GPU first.

    SchemaError where there is none of that number, or nothing but the reference.
    """
    if slot not in ("forward", "backward"):
        raise SchemaError(f"{op.name} has the slots forward and backward, not {slot!r}")
    if wanted is not None:
        return asked(op, wanted)
    filled = [v for (name, _), v in sorted(op.slots.items(), reverse=True) if name == slot]  # cuda before cpu
    built = [v for v in op.versions[1:] if v.slot == slot]
    if filled or built:
        return op.versions[(filled or built[-1:])[0].number]
    runs = "the reference" if slot == "forward" else "the reference's vjp"
    raise SchemaError(
        f"{op.name} {slot} runs {runs}, which no compiler made: write a %%cpp, %%cuda or %%triton cell for it first"
    )


def kernel(op, chosen: Version) -> Kernel:
    """Its kernel. SchemaError where no source of it was compiled: the reference, a Python function."""
    what = f"v{chosen.number} of {op.name}"
    if not chosen.number:
        raise SchemaError(
            f"{what} is the reference, in Python, so there is nothing compiled to look at: {_choices(op)}"
        )
    if not isinstance(chosen.kernel, Kernel):
        raise SchemaError(
            f"{what} is a {LANGUAGES[chosen.language]} function, so there is nothing compiled to look at: "
            f"{_choices(op)}"
        )
    return chosen.kernel


def _choices(op) -> str:
    built = [f"v{v.number}" for v in op.versions if isinstance(v.kernel, Kernel)]
    return f"choose one of {', '.join(built)}" if built else "write its kernels in a %%cpp, %%cuda or %%triton cell"


def dtypes(op, chosen: Version, of: Kernel, wanted: torch.dtype | str | None) -> tuple[Dtypes, tuple[str, ...]]:
    """The dtypes of the tensor arguments to look at, and the other choices, in words.

    Without `wanted` float32, or else the first by name; with it the form that has it, or the first one with all of
    its floating-point tensors in that dtype.
    """
    built = tuple(sorted(of.forms, key=lambda form: (spelled(form) != "float32", spelled(form))))
    if not built:
        return {}, ()
    if wanted is None:
        return built[0], _others(built, built[0])
    kind = dtype(wanted)
    assert kind is not None
    for form in built:
        if kind in [d for d in form.values() if d is not None][:1]:
            return form, _others(built, form)
    form = {n: kind if d is None or d.is_floating_point == kind.is_floating_point else d for n, d in built[0].items()}
    return form, _others(built, form)


def _others(built: tuple[Dtypes, ...], chosen: Dtypes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(spelled(form) for form in built if form != chosen))


def dtype(wanted: torch.dtype | str | None) -> torch.dtype | None:
    """A dtype from its name."""
    found = getattr(torch, wanted.removeprefix("torch."), None) if isinstance(wanted, str) else wanted
    if wanted is not None and not isinstance(found, torch.dtype):
        raise SchemaError(f"{wanted!r} is no dtype of torch; write it like torch.bfloat16 or 'bfloat16'")
    return found


def spelled(form: Dtypes) -> str:
    """`float32`; `bfloat16, rstd float32` where some tensors have another one than the first."""
    kinds = {n: short(d) for n, d in form.items() if d is not None}
    first = next(iter(kinds.values()), "")
    return ", ".join([first, *(f"{n} {kind}" for n, kind in kinds.items() if kind != first)])
