"""The same values in other memory: the layouts that callers hand in. Each is a pure function on one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from .classes import leaves_of

PAD = 8  # elements that a padded row is longer by


def transposed(x: Tensor) -> Tensor | None:
    """The last two dimensions change places in memory; None where there are not two."""
    return x.mT.contiguous().mT if x.dim() > 1 else None


def sliced(x: Tensor) -> Tensor:
    """A part of a larger tensor: a storage offset that no vector load likes, and gaps after each row.

    >>> sliced(torch.zeros(4, 5)).stride(), sliced(torch.zeros(4, 5)).storage_offset()
    ((8, 1), 11)
    """
    base = x.new_zeros([n + (3 if d == x.dim() - 1 else 1) for d, n in enumerate(x.shape)] or [4])
    view = base[3] if not x.dim() else base[tuple(slice(3 if d == x.dim() - 1 else 1, None) for d in range(x.dim()))]
    return view.copy_(x)


def stepped(x: Tensor) -> Tensor | None:
    """Every second element of a larger one; None for a 0-dim tensor."""
    return x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))[..., ::2].copy_(x) if x.dim() else None


def padded(x: Tensor) -> Tensor | None:
    """Rows longer than they look, as torch.compile pads them; None where there are no rows."""
    if x.dim() < 2:
        return None
    return x.new_zeros((*x.shape[:-1], x.shape[-1] + PAD))[..., : x.shape[-1]].copy_(x)


def expanded(x: Tensor) -> Tensor | None:
    """The first of its rows for all of them, in memory once: stride 0. None where there is nothing to repeat."""
    if not x.dim() or not x.numel():
        return None
    return x[:1].clone().expand(x.shape)


def channels_last(x: Tensor) -> Tensor | None:
    """The layout of images; None where there are not 4 dimensions (or 5)."""
    kinds = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=kinds[x.dim()]) if x.dim() in kinds else None


LAYOUTS: Mapping[str, Callable[[Tensor], Tensor | None]] = {
    "transposed": transposed,
    "sliced, with a storage offset": sliced,
    "every second element": stepped,
    "padded rows": padded,
    "expanded": expanded,
    "channels last": channels_last,
}


def one_base(named: Mapping[str, object]) -> dict[str, object] | None:
    """All tensors of a dtype as views of one base, side by side: what a mutating op must not mix up.

    None where no two tensors have a dtype in common.
    """
    groups: dict[torch.dtype, list[str]] = {}
    leaves = leaves_of(named)
    for name, x in leaves.items():
        groups.setdefault(x.dtype, []).append(name)
    if not any(len(names) > 1 for names in groups.values()):
        return None
    placed: dict[str, Tensor] = {}
    for dtype, names in groups.items():
        base = torch.zeros(sum(leaves[n].numel() for n in names), dtype=dtype, device=leaves[names[0]].device)
        start = 0
        for name in names:
            x = leaves[name]
            placed[name] = base[start : start + x.numel()].view(x.shape).copy_(x)
            start += x.numel()
    return replaced(named, placed)


def twice(named: Mapping[str, object], mutated: tuple[str, ...]) -> dict[str, object] | None:
    """One tensor as two arguments, none of which is written to; None where no two are alike."""
    seen: dict[tuple, Tensor] = {}
    swapped: dict[str, Tensor] = {}
    for name, x in leaves_of(named).items():
        if name.partition("[")[0] in mutated:
            continue
        key = (x.dtype, tuple(x.shape))
        if key in seen:
            swapped[name] = seen[key]
        seen.setdefault(key, x)
    return replaced(named, swapped) if swapped else None


def replaced(named: Mapping[str, object], leaves: Mapping[str, object]) -> dict[str, object]:
    """Arguments with some of their tensors exchanged, those of lists under `params[0]`."""

    def one(name: str, value: object) -> object:
        if isinstance(value, (list, tuple)):
            return [leaves.get(f"{name}[{i}]", v) for i, v in enumerate(value)]
        return leaves.get(name, value)

    return {name: one(name, value) for name, value in named.items()}
