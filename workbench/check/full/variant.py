"""A variant: one way in which a case is changed, as data, and the case that comes of it. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...case import SEED, Case
from ...inputs import FLOATS, describe
from ...schema import Schema
from .classes import Sizes, leaves_of
from .layouts import LAYOUTS, one_base, replaced, twice
from .values import filled, like

ONE_BASE, TWICE = "views of one base", "one tensor twice"
FOUR = "four dimensions"
RANKS = ("0-dim", "one dimension more", "one dimension less")


@dataclass(frozen=True)
class Variant:
    """How a case is changed: its sizes, number of dimensions, dtypes, values, layout, scalars. Each alone or together.

    >>> Variant("sizes", "around block = 256", base, family, sizes=((1, 257),)).case(schema).label
    '4x257 float32'

    `check` and `about` name the row that it belongs to. `sizes` gives size classes of `family` other sizes, `layout`
    is a key of LAYOUTS or one of the names above, `values` one of VALUES; `at` is the leaf they are for, "" for all.
    """

    check: str
    about: str
    base: Case
    family: Sizes
    sizes: tuple[tuple[int, int], ...] = ()
    rank: str = ""
    dtypes: tuple[tuple[str, torch.dtype], ...] = ()
    values: str = ""
    layout: str = ""
    at: str = ""
    scalars: tuple[tuple[str, object], ...] = ()

    def case(self, schema: Schema) -> Case | None:
        """The changed case, None where the change cannot be made: no rows to pad, say."""
        made = self.arguments(schema)
        if made is None:
            return None
        held = [made]  # made once: a case is looked at several times

        def recipe() -> tuple[tuple, dict]:
            named = held[0]
            return tuple(named[a.name] for a in schema.positional), {a.name: named[a.name] for a in schema.keyword_only}

        leaves = list(leaves_of(made).values())
        kinds = {x.dtype for x in leaves if x.dtype in FLOATS}
        name = "x".join(map(str, leaves[0].shape)) or "0-dim" if leaves else self.base.name
        return replace(self.base, name=name, recipe=recipe, dtype=kinds.pop() if len(kinds) == 1 else None, bench=False)

    def arguments(self, schema: Schema) -> dict[str, object] | None:
        """All arguments by name, changed; None where the change cannot be made."""
        named: dict[str, object] | None = self.base.bound(schema)
        for change in (_resized, _ranked, _cast, _filled, _laid_out):
            named = change(self, named, schema) if named is not None else None
        return None if named is None else {**named, **dict(self.scalars)}

    def resized(self, sizes: Mapping[int, int]) -> Variant:
        """The same change at other sizes."""
        return replace(self, sizes=tuple(sorted({**dict(self.sizes), **sizes}.items())))

    def size(self, number: int, schema: Schema) -> int:
        """How large a class is here."""
        leaf, dim = self.family.classes[number][0]
        return dict(self.sizes).get(number, leaves_of(self.base.bound(schema))[leaf].shape[dim])

    @property
    def change(self) -> tuple:
        """What is changed, whatever row it belongs to."""
        return (
            self.base.label,
            self.sizes,
            self.rank,
            self.layout,
            self.at,
            self.values,
            self.dtypes,
            str(self.scalars),
        )


def spelled(named: Mapping[str, object]) -> str:
    """Arguments as a failure names them: `x float32[4, 5] strides (1, 4), k=2.0`."""
    parts = []
    for name, value in named.items():
        if isinstance(value, (list, tuple)) and value and all(isinstance(v, Tensor) for v in value):
            parts.append(f"{name} [{', '.join(map(_spelled, value[:3]))}{', ...' if len(value) > 3 else ''}]")
        elif isinstance(value, Tensor):
            parts.append(f"{name} {_spelled(value)}")
        else:
            parts.append(f"{name}={describe(value)}")
    return ", ".join(parts)


def _spelled(x: Tensor) -> str:
    plain = describe(x)
    plain += "" if x.is_contiguous() else f" strides {tuple(x.stride())}"
    return plain + (f" offset {x.storage_offset()}" if x.storage_offset() else "")


def _resized(v: Variant, named: dict[str, object], schema: Schema) -> dict[str, object]:
    sizes = dict(v.sizes)
    if not sizes:
        return named
    leaves = leaves_of(named)
    shapes = {n: list(x.shape) for n, x in leaves.items()}
    changed = set()
    before: dict[int, int] = {}
    for number, size in sizes.items():
        for leaf, dim in v.family.classes[number]:
            before[number] = leaves[leaf].shape[dim]
            if shapes[leaf][dim] != size:
                shapes[leaf][dim] = size
                changed.add(leaf)
    # Integers may be indices into a dimension that has become smaller.
    shrunk = [size for number, size in sizes.items() if size < before[number]]
    made = {
        n: like(leaves[n], tuple(shapes[n]), SEED + i, min(shrunk) if shrunk else None)
        for i, n in enumerate(leaves)
        if n in changed
    }
    scalars = {n: sizes[number] for n, number in v.family.scalars if number in sizes}
    return {**replaced(named, made), **scalars}


def _ranked(v: Variant, named: dict[str, object], schema: Schema) -> dict[str, object] | None:
    """0-dim, or leading dimensions more or less: of `at`, or of all tensors that share the first one's leading size."""
    if not v.rank:
        return named
    leaves = leaves_of(named)
    together = next((places for places in v.family.classes if (next(iter(leaves)), 0) in places), ())
    made: dict[str, object] = {}
    for i, (name, x) in enumerate(leaves.items()):
        if v.at and name != v.at:
            continue
        if v.rank == "0-dim":
            made[name] = like(x, (), SEED + i)
        elif (name, 0) in together and v.rank == "one dimension more":
            made[name] = like(x, (2, *x.shape), SEED + i)
        elif (name, 0) in together and v.rank == FOUR and x.dim() < 4:
            made[name] = like(x, ((2, 3, 4)[: 4 - x.dim()] + tuple(x.shape)), SEED + i)
        elif (name, 0) in together and v.rank == "one dimension less" and x.dim() > 1:
            made[name] = like(x, tuple(x.shape[1:]), SEED + i)
    return replaced(named, made) if made else None


def _cast(v: Variant, named: dict[str, object], schema: Schema) -> dict[str, object]:
    """Other dtypes; floats are drawn anew, since float32 values fit into float64 without any rounding."""
    kinds, cast = dict(v.dtypes), {}
    for i, (name, x) in enumerate(leaves_of(named).items()):
        dtype = kinds.get(name.partition("[")[0])
        if dtype is not None:
            cast[name] = like(x.to(dtype), tuple(x.shape), SEED + i) if dtype in FLOATS else x.to(dtype)
    return replaced(named, cast)


def _filled(v: Variant, named: dict[str, object], schema: Schema) -> dict[str, object] | None:
    if not v.values:
        return named
    leaves = {n: x for n, x in leaves_of(named).items() if not v.at or n == v.at}
    made = {n: y for n, x in leaves.items() if (y := filled(x, v.values)) is not None}
    return replaced(named, made) if made else None


def _laid_out(v: Variant, named: dict[str, object], schema: Schema) -> dict[str, object] | None:
    if not v.layout:
        return named
    if v.layout == ONE_BASE:
        return one_base(named)
    if v.layout == TWICE:
        return twice(named, schema.mutated)
    leaves = {n: x for n, x in leaves_of(named).items() if not v.at or n == v.at}
    made = {n: y for n, x in leaves.items() if (y := LAYOUTS[v.layout](x)) is not None}
    return replaced(named, made) if made else None
