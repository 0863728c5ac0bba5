"""The inputs that a full check tries besides the cases: what a person would forget. Pure functions of the cases.

Each list of variants belongs to one row of the report, by its `check` and `about`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...case import Case
from ...inputs import FLOATS
from ...schema import Schema
from .bounds import Bound
from .classes import Sizes, leaves_of
from .layouts import LAYOUTS
from .values import VALUES
from .variant import FOUR, ONE_BASE, RANKS, TWICE, Variant

ELEMENTS = 1 << 18  # of all tensors of one input
INTERPRETED = 1 << 13  # where an interpreter runs them
MANY = 1 << 16  # elements at which threads share the work
SMALL = 5  # other sizes, while one is swept
LONG = (1021, 509, 251)  # so many terms that sums show what they are kept in
PRIMES = (3, 7, 5, 11, 13, 17)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def plan(
    schema: Schema, families: Sequence[Sizes], bounds: Sequence[Bound] = (), most: int = ELEMENTS
) -> tuple[Variant, ...]:
    """All variants of an op's cases, in the order in which they are tried: cheap and telling ones first.

    >>> {v.check for v in plan(schema, sizes_of(cases, schema))}
    {'sizes', 'layouts', 'values', 'dtypes', 'scalars'}

    Sizes around `bounds` have at most `most` elements in all.
    """
    found: list[Variant] = []
    for family in families:
        bases = bases_of(family, schema)
        for base in bases:
            first = base is bases[0]
            found += sizes(base, family, schema)
            found += long(base, family, schema, most)
            found += layouts(base, family, schema)
            found += values(base, family, schema)
            found += around(base, family, schema, bounds if first else [b for b in bounds if b.is_block], most)
        found += dtypes(bases, family, schema)
        found += scalars(bases[0], family, schema)
    return tuple(found)


def bases_of(family: Sizes, schema: Schema) -> list[Case]:
    """The case to change, one for each dtype: the smallest in which no size is 0 or 1, else the least small."""
    best: dict[str, tuple[tuple, Case]] = {}
    for case in family.cases:
        shapes = [x.shape for x in leaves_of(case.bound(schema)).values()]
        least = min((n for s in shapes for n in s), default=2)
        rank = (least < 2, least < 1, sum(math.prod(s) for s in shapes))
        if case.dtype_name not in best or rank < best[case.dtype_name][0]:
            best[case.dtype_name] = (rank, case)
    return [case for _, case in best.values()]


def sizes(base: Case, family: Sizes, schema: Schema) -> Iterator[Variant]:
    """Empty in each dimension, one, two, odd, 0-dim, a dimension more and less."""
    count = len(family.classes)
    every = range(count)
    for about, size in (("empty", 0), ("one", 1), ("two", 2)):
        for c in every:
            yield Variant("sizes", about, base, family, ((c, size),))
        if count > 1:
            yield Variant("sizes", about, base, family, tuple((c, size) for c in every))
    odd = tuple((c, PRIMES[c % len(PRIMES)]) for c in every)
    if count:
        yield Variant("sizes", "odd", base, family, odd)
        for c in every:
            yield Variant("sizes", "odd", base, family, ((c, 19),))
        yield Variant("sizes", "odd", base, family, tuple((c, n + 14) for c, n in odd))
    for rank in RANKS:
        yield Variant("sizes", rank, base, family, rank=rank)
    leaves = leaves_of(base.bound(schema))
    if len(leaves) > 1:
        for name in leaves:
            yield Variant("sizes", "0-dim", base, family, rank="0-dim", at=name)


def around(
    base: Case, family: Sizes, schema: Schema, bounds: Sequence[Bound], most: int = ELEMENTS
) -> Iterator[Variant]:
    """Just under, at and just over each number, in one dimension after the other and in all of them."""
    small = _small(base, family, schema)
    for bound in bounds:
        about = "around blocks" if bound.is_block else "around numbers in the code"
        n = bound.number
        for steps in ([{c: s} for c in small for s in (n - 1, n, n + 1, 2 * n + 1)], [dict.fromkeys(small, n + 1)]):
            for step in steps:
                if len(small) < 2 and len(steps) < 2:
                    continue  # all of one dimension
                made = Variant("sizes", about, base, family, tuple({**small, **step}.items()))
                if 0 < elements(made, schema) <= most:
                    yield made


def long(base: Case, family: Sizes, schema: Schema, most: int = ELEMENTS) -> Iterator[Variant]:
    """One dimension after the other far longer than the rest: rounding adds up, in each dtype in its own way."""
    small = _small(base, family, schema)
    for c in small:
        tried = (Variant("sizes", "long", base, family, tuple({**small, c: n}.items())) for n in LONG)
        yield from [v for v in tried if elements(v, schema) <= most][:1]


def _small(base: Case, family: Sizes, schema: Schema) -> dict[int, int]:
    """The sizes that the other classes have while one of them is swept."""
    return {c: min(SMALL, max(Variant("", "", base, family).size(c, schema), 1)) for c in range(len(family.classes))}


def elements(v: Variant, schema: Schema) -> int:
    """How many elements the tensors of a variant have, without making it."""
    sizes_, total = dict(v.sizes), 0
    placed = {place: sizes_[c] for c in sizes_ for place in v.family.classes[c]}
    for leaf, x in leaves_of(v.base.bound(schema)).items():
        total += math.prod(placed.get((leaf, d), n) for d, n in enumerate(x.shape))
    return total


def layouts(base: Case, family: Sizes, schema: Schema) -> Iterator[Variant]:
    """All tensors in another layout, then each alone."""
    leaves = leaves_of(base.bound(schema))
    ranks = {x.dim() for x in leaves.values()}
    for layout in LAYOUTS:
        lifted = FOUR if layout == "channels last" and max(ranks, default=4) < 4 else ""
        yield Variant("layouts", layout, base, family, rank=lifted, layout=layout)
        if lifted:
            continue
        if 1 < len(leaves) <= 6:
            for name in leaves:
                yield Variant("layouts", layout, base, family, layout=layout, at=name)
    yield Variant("layouts", TWICE, base, family, layout=TWICE)
    if schema.mutated:
        yield Variant("layouts", ONE_BASE, base, family, layout=ONE_BASE)
        odd = tuple((c, PRIMES[c % len(PRIMES)]) for c in range(len(family.classes)))
        yield Variant("layouts", ONE_BASE, base, family, odd, layout=ONE_BASE)


def values(base: Case, family: Sizes, schema: Schema) -> Iterator[Variant]:
    """NaN, infinities, denormals, zeros and large numbers: in each floating tensor, and in all of them."""
    floating = [n for n, x in leaves_of(base.bound(schema)).items() if x.dtype in FLOATS]
    for kind in VALUES:
        if kind in {"denormal", "zeros", "large"} or len(floating) not in range(2, 7):
            yield Variant("values", kind, base, family, values=kind)
        if 1 < len(floating) <= 6:
            for name in floating:
                yield Variant("values", kind, base, family, values=kind, at=name)


def dtypes(bases: Sequence[Case], family: Sizes, schema: Schema) -> Iterator[Variant]:
    """Floating dtypes that no case has, one argument in another dtype than the rest, and other integers."""
    base = bases[0]
    leaves = leaves_of(base.bound(schema))
    floating = list(dict.fromkeys(n.partition("[")[0] for n, x in leaves.items() if x.dtype in FLOATS))
    whole = list(dict.fromkeys(n.partition("[")[0] for n, x in leaves.items() if x.dtype in {torch.int64, torch.int32}))
    declared = {c.dtype for c in bases}
    if None not in declared:
        for dtype in DTYPES:
            if floating and dtype not in declared:
                cast = tuple((n, dtype) for n in floating)
                yield Variant("dtypes", _short(dtype), base, family, dtypes=cast)
    if len(floating) > 1:
        here = next(leaves[n].dtype for n in leaves if n.partition("[")[0] == floating[0])
        others = [d for d in DTYPES if d is not here and (d in declared or None in declared)] or [torch.bfloat16]
        for dtype in others[:2]:
            for name in floating:
                yield Variant("dtypes", "mixed", base, family, dtypes=((name, dtype),))
    for name in whole:
        dtype = torch.int32 if leaves[name].dtype is torch.int64 else torch.int64
        yield Variant("dtypes", _short(dtype), base, family, dtypes=((name, dtype),))


def scalars(base: Case, family: Sizes, schema: Schema) -> Iterator[Variant]:
    """Numbers of Python in place of those that the cases give: 0, negative, an int for a float, the other truth."""
    named = base.bound(schema)
    for a in schema.arguments:
        value: Any = named[a.name]
        kind = a.type.rstrip("?")
        if isinstance(value, (list, tuple, torch.Tensor)):
            if a.type == "Tensor?" and not a.mutated:
                yield Variant("scalars", f"{a.name} is None", base, family, scalars=((a.name, None),))
            continue
        tried: list[object] = []
        if kind == "float":
            tried = [0.0, 1, -float(value or 1.0), 0.37]
        elif kind in {"int", "SymInt"}:
            tried = [0, 1, int(value or 0) + 1, -1]
        elif kind == "bool":
            tried = [not value]
        tried += [None] if a.optional and value is not None else []
        for other in tried:
            if type(other) is not type(value) or other != value:
                yield Variant("scalars", a.name, base, family, scalars=((a.name, other),))


def many(base: Case, family: Sizes, schema: Schema, least: int = MANY) -> Variant | None:
    """An input of at least so many elements, to be run several times; None where no size can grow."""
    made = Variant("determinism", "large", base, family)
    for _ in range(64):
        if elements(made, schema) >= least or not family.classes:
            break
        smallest = min(range(len(family.classes)), key=lambda c: made.size(c, schema))
        made = made.resized({smallest: 2 * made.size(smallest, schema) + 1})
    return made if family.classes and least <= elements(made, schema) <= 16 * least else None


def huge(base: Case, family: Sizes, schema: Schema, limit: int = 1 << 31) -> Iterator[tuple[Variant, int]]:
    """Inputs whose element or byte count passes `limit`, with the bytes that judging them takes."""
    leaves = list(leaves_of(base.bound(schema)).items())
    if not leaves or not leaves[0][1].dim() or not family.classes:
        return
    name, first = leaves[0]
    leading = next(c for c, places in enumerate(family.classes) if (name, 0) in places)
    rest = max(1, math.prod(first.shape[1:]))
    for about, count in (("elements", limit), ("bytes", limit // first.element_size())):
        made = Variant(
            "sizes", f"past 2**{limit.bit_length() - 1} {about}", base, family, ((leading, count // rest + 1),)
        )
        # Inputs here, in the file and in float64; results of the kernel twice, of the reference in both precisions.
        yield made, elements(made, schema) * (4 * first.element_size() + 4 * 8)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
