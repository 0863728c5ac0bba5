"""A trial in this process, for `%%triton --interpret`: breakpoint() and print in a kernel reach the notebook."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..inputs import fresh
from ..reference import flat
from ..tiers import Kernel
from ..trial import Result
from .evidence import Evidence


def result(op, kernel: Kernel, forward: Kernel | None, e: Evidence) -> Result:
    """One case, as the worker would tell it. What the kernel raises is told; an interrupt goes through.

    >>> result(scale, kernel, None, evidence).ok
    True

    Nothing is guarded here: a kernel that writes where it may not does so.
    """
    names = [a.name for a in kernel.declaration.arguments]
    values = fresh({n: e.values.get(n) for n in names if n in e.values})
    try:
        with torch.no_grad():
            if forward is not None and forward is not kernel:
                values |= _saved(op, forward, values)
            found = kernel.run_here(values)
    except Exception as error:
        return Result(0, e.case.label, "error", str(error))
    mutated = {n: t for n in op.schema.mutated if isinstance(t := values[n], torch.Tensor)}
    aliases = tuple(_alias(t, values) for t in flat(found))
    return Result(0, e.case.label, "ok", outputs=tuple(found), mutated=mutated, aliases=aliases)


def _saved(op, forward: Kernel, values: Mapping[str, object]) -> dict[str, torch.Tensor]:
    given = fresh({a.name: values[a.name] for a in op.schema.arguments})
    results = forward.run_here(given)
    return dict(zip(op.schema.saves, results[len(op.schema.outputs) :], strict=True))


def _alias(t: torch.Tensor, values: Mapping[str, object]) -> str:
    """The argument whose memory a result shares; "" for none."""
    home = t.untyped_storage().data_ptr()
    if not t.numel():
        return ""
    owners = (n for n, v in values.items() for a in flat([v]) if a.untyped_storage().data_ptr() == home)
    return next(owners, "")
