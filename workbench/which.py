"""Which cases of an op are meant: by name, by number, by inputs; where nothing is said, those to be measured."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from .case import Case, make
from .errors import SchemaError
from .inputs import FLOATS, Form, describe, form, tensors_in

ONE = 'a name such as "large", a number, wb.case(...) or the inputs of a call, (x, w)'


def cases(op, wanted: object = None, *, verb: str) -> list[Case]:
    """The cases that are meant, at least one.

    >>> [c.label for c in cases(rmsnorm, verb="bench")]           # those with bench=True, else the largest
    ['llama float32', 'llama bfloat16']
    >>> cases(rmsnorm, "odd", verb="bench")                       # by name, in all its dtypes
    >>> cases(rmsnorm, ["odd bfloat16", -1, (x, w)], verb="bench")   # by label, by number, made of these inputs

    SchemaError, which begins with the verb that asks, for one that there is none of and for what means none.
    """
    known = op.case_list(bench=True)
    asks = f"{op.name}.{verb}"
    if wanted is None:
        if not known:
            raise SchemaError(
                f"{asks}: there are no cases, and {op.name} was not called yet. Give it one: @{op.name}.cases, then "
                'for instance `yield wb.case("large", t(8192, 4096), bench=True)`'
            )
        names = {c.name for c in known if c.bench} or {max(known, key=lambda c: numel(form_of(op, c))).name}
        return [c for c in known if c.name in names]
    found = [c for one in _several(wanted) for c in _meant(op, one, known, asks)]
    if not found:
        raise SchemaError(f"{asks}: no case is named; without any those with bench=True are taken, else the largest")
    return found


def case(op, wanted: object = None, *, verb: str) -> Case:
    """The one that is meant: of several dtypes the first. SchemaError as `cases`, and for a list."""
    if len(several := _several(wanted)) != 1:
        raise SchemaError(f"{op.name}.{verb}: one case at a time, got {len(several)}")
    return cases(op, wanted, verb=verb)[0]


def named(known: Sequence[Case], name: str, asks: str) -> list[Case]:
    """Those of that name or label. SchemaError with the names that there are."""
    fitting = [c for c in known if name in (c.name, c.label)]
    if not fitting:
        names = list(dict.fromkeys(c.name for c in known))
        near = difflib.get_close_matches(name, [*names, *(c.label for c in known)], 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise SchemaError(f"{asks}: there is no case {name!r}; {hint}its cases are {', '.join(names) or 'none'}")
    return fitting


def form_of(op, case: Case) -> Form:
    """What the inputs of a case look like; its tensors are made only where nothing else tells."""
    return getattr(case.recipe, "form", None) or form(case.bound(op.schema))


def numel(found: object) -> int:
    """Elements in all tensors of a form."""
    if isinstance(found, tuple) and len(found) == 3 and isinstance(found[0], str) and isinstance(found[1], tuple):
        return math.prod(found[1])
    return sum(map(numel, found)) if isinstance(found, tuple) else 0


def _several(wanted: object) -> Sequence[object]:
    """A list, or a tuple that is not the inputs of a call."""
    if isinstance(wanted, Sequence) and not isinstance(wanted, str) and not _are_inputs(wanted):
        return list(wanted)
    return [wanted]


def _are_inputs(one: object) -> bool:
    return isinstance(one, Tensor) or (isinstance(one, tuple) and bool(tensors_in(one)))


def _meant(op, one: Any, known: Sequence[Case], asks: str) -> Sequence[Case]:
    if isinstance(one, Case):
        return [one if one.names or not op.schema.positional else _of_op(op, one)]
    if isinstance(one, str):
        return named(known, one, asks)
    if isinstance(one, int) and not isinstance(one, bool):
        if not -len(known) <= one < len(known):
            there = ", ".join(f"{i} {c.label}" for i, c in enumerate(known)) or "none"
            raise SchemaError(f"{asks}: there is no case number {one}; its cases are {there}")
        return [known[one]]
    if _are_inputs(one):
        made = _of_op(op, one)
        kinds = {x.dtype for x in tensors_in(one)} & set(FLOATS)
        return [replace(made, dtype=kinds.pop() if len(kinds) == 1 else None)]
    raise SchemaError(f"{asks}: a case is {ONE}; got {describe(one)}")


def _of_op(op, one: object) -> Case:
    """What a generator might have yielded, bound to the op's arguments."""
    return make(lambda t: [one], op.schema)[0]
