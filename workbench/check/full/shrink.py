"""The smallest input on which a kernel is still wrong: sizes are halved and lowered as long as it stays so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...schema import Schema
from .finding import Tries
from .rows import Tried
from .sweep import elements
from .variant import Variant

ROUNDS = 12


def smallest(t: Tried, tries: Tries, schema: Schema) -> Tried:
    """The same kind of failure on fewer elements, found in at most `ROUNDS` rounds.

    >>> smallest(tried, tries, schema).inputs
    'x float32[1, 17], w float32[17], eps=1e-06'

    It keeps the map of errors of `t`, and says so in it: one element is no picture.
    """
    found = _shrunk(t, tries, schema)
    drawn = replace(t.finding.mismatch, on=t.inputs) if t.finding.mismatch else found.finding.mismatch
    return replace(found, finding=replace(found.finding, mismatch=drawn))


def _shrunk(t: Tried, tries: Tries, schema: Schema) -> Tried:
    for _ in range(ROUNDS):
        smaller = sorted(_smaller(t.variant, schema), key=lambda v: elements(v, schema))
        made = [(v, c) for v in smaller if (c := v.case(schema)) is not None]
        if not made:
            return t
        found = tries.submit([c for _, c in made]).result()
        failing = [Tried(v, f) for (v, _), f in zip(made, found, strict=True) if f.status == t.finding.status]
        if not failing:
            return t
        t = failing[0]
    return t


def _smaller(v: Variant, schema: Schema) -> Iterator[Variant]:
    """Fewer elements in one dimension, or in all; never none, unless that is what fails."""
    sizes = {c: v.size(c, schema) for c in range(len(v.family.classes))}
    for c, n in sizes.items():
        for fewer in dict.fromkeys((1, 2, n // 2, n - n // 4, n - 1)):
            if 0 < fewer < n:
                yield v.resized({c: fewer})
    halved = {c: max(n // 2, min(n, 1)) for c, n in sizes.items()}
    if sum(halved[c] < sizes[c] for c in sizes) > 1:
        yield v.resized(halved)
