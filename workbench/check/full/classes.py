"""Which sizes of a case go together: `x.shape[-1]` and `w.shape[0]` of a norm change only as one. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from ...case import Case
from ...schema import Schema

Place = tuple[str, int]  # a leaf (`x`, `params[0]`) and one of its dimensions


@dataclass(frozen=True)
class Sizes:
    """The size classes of cases that are built alike.

    >>> sizes_of(norm_cases, schema)[0].classes
    ((('x', 0),), (('x', 1), ('w', 0)))

    `cases` share their structure: the same tensors, with the same ranks. `scalars` names the integer arguments that
    are always as large as a class.
    """

    cases: tuple[Case, ...]
    classes: tuple[tuple[Place, ...], ...]
    scalars: tuple[tuple[str, int], ...] = ()  # (argument, its class)

    def name(self, number: int) -> str:
        """`x.shape[1]`: the first place of a class."""
        leaf, dim = self.classes[number][0]
        return f"{leaf}.shape[{dim}]"


def leaves_of(named: Mapping[str, object]) -> dict[str, Tensor]:
    """The tensors among arguments by name, those of lists as `params[0]`.

    >>> list(leaves_of({"x": x, "params": [p, q], "eps": 1e-6}))
    ['x', 'params[0]', 'params[1]']
    """
    found: dict[str, Tensor] = {}
    for name, value in named.items():
        if isinstance(value, Tensor):
            found[name] = value
        elif isinstance(value, (list, tuple)):
            found.update({f"{name}[{i}]": v for i, v in enumerate(value) if isinstance(v, Tensor)})
    return found


def sizes_of(cases: Sequence[Case], schema: Schema) -> tuple[Sizes, ...]:
    """The size classes of an op's cases, one entry for each way in which they are built.

    Two dimensions belong together when they are equal in all cases of that structure.
    """
    groups: dict[tuple, list[tuple[Case, dict[str, object]]]] = {}
    for case in cases:
        bound = case.bound(schema)
        structure = tuple((n, x.dim()) for n, x in leaves_of(bound).items())
        if structure:
            groups.setdefault(structure, []).append((case, bound))
    return tuple(_sizes(structure, members) for structure, members in groups.items())


PLACES = 8  # of a class that is taken apart: more would be too many ways


def refined(family: Sizes, accepts: Callable[[Mapping[Place, int]], bool]) -> Sizes:
    """The same family with those classes taken apart that are equal by chance: all sizes of a square matmul.

    `accepts` says whether the reference takes the smallest case with these sizes changed. The smallest groups of
    places that may change alone are the classes.
    """
    found: list[tuple[Place, ...]] = []
    numbers: dict[int, int] = {}
    for number, places in enumerate(family.classes):
        numbers[number] = len(found)
        found += _parted(places, accepts) if _by_chance(family, places) else [places]
    if len(found) == len(family.classes):
        return family
    return replace(family, classes=tuple(found), scalars=tuple((n, numbers[c]) for n, c in family.scalars))


def _by_chance(family: Sizes, places: tuple[Place, ...]) -> bool:
    """May it hold what does not belong together: two sizes of one tensor, or whatever a single case shows?"""
    leaves = [leaf for leaf, _ in places]
    return 1 < len(places) <= PLACES and (len(set(leaves)) < len(leaves) or len(family.cases) == 1)


def _parted(places: tuple[Place, ...], accepts: Callable[[Mapping[Place, int]], bool]) -> list[tuple[Place, ...]]:
    left, parts = list(places), []
    while len(left) > 1:
        first, rest = left[0], left[1:]
        part = next(
            (
                (first, *more)
                for count in range(len(rest))
                for more in itertools.combinations(rest, count)
                if accepts(dict.fromkeys((first, *more), 1))
            ),
            tuple(left),
        )
        parts.append(part)
        left = [p for p in left if p not in part]
    return [*parts, *((p,) for p in left)]


def _sizes(structure: tuple, members: list[tuple[Case, dict[str, object]]]) -> Sizes:
    shapes = [{n: tuple(x.shape) for n, x in leaves_of(bound).items()} for _, bound in members]
    classes: dict[tuple[int, ...], list[Place]] = {}
    for leaf, rank in structure:
        for dim in range(rank):
            classes.setdefault(tuple(s[leaf][dim] for s in shapes), []).append((leaf, dim))
    numbers = {sizes: i for i, sizes in enumerate(classes)}
    scalars = []
    for name, value in members[0][1].items():
        if isinstance(value, int) and not isinstance(value, bool):
            seen: Any = tuple(bound[name] for _, bound in members)
            if len(set(seen)) > 1 and seen in numbers:
                scalars.append((name, numbers[seen]))
    return Sizes(tuple(c for c, _ in members), tuple(map(tuple, classes.values())), tuple(scalars))
