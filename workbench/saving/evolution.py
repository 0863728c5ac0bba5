"""What a new version of a package changes for those who call the old one: compatible, breaking, or silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .. import schema as schemas
from ..errors import WorkbenchError
from ..inputs import fresh
from ..reference import flat
from ..reports.saving import Change
from ..schema import Argument, Schema
from .names import release

MOST = 8  # cases whose outputs are described


def metadata(op: Any) -> dict[str, list[str]]:
    """What the outputs look like, case by case: `{"odd float32": ["float32 (5, 123) strides (123, 1)"]}`."""
    found = {}
    for case in op.case_list()[:MOST]:
        args, kwargs = op.definition.split(list(fresh(case.bound(op.schema)).values()))
        try:
            with torch.no_grad():
                out = op.torch_op(*args, **kwargs)
        except (RuntimeError, WorkbenchError):
            continue
        given = flat(out if isinstance(out, (tuple, list)) else [out])
        found[case.label] = [
            f"{str(t.dtype).removeprefix('torch.')} {tuple(t.shape)} strides {t.stride()}" for t in given
        ]
    return found


def changes(before: Mapping[str, Any], ops: Mapping[str, Schema], now: Mapping[str, Mapping]) -> tuple[Change, ...]:
    """Op by op, what the manifest of the old package says and the new ops do not. Nothing where all is as it was.

    >>> changes(old, {"lab::f": parse("lab::f(Tensor x, float k=1.0) -> Tensor")}, {})[0].kind
    'compatible'
    """
    found = []
    for qualname, told in before.items():
        if qualname not in ops:
            found.append(Change(qualname, "breaking", "it is gone"))
            continue
        old, new = (
            schemas.parse(told["schema"], returns=told.get("outputs", ()), saves=told.get("saves", ())),
            ops[qualname],
        )
        kind, why = compare(old, new)
        if kind == "same":
            kind, why = _silent(told.get("metadata", {}), now.get(qualname, {}))
        if kind != "same":
            found.append(Change(qualname, kind, why))
    found += [Change(q, "compatible", "it is new") for q in ops if q not in before]
    return tuple(found)


def renamed(before: str, now: str) -> tuple[Change, ...]:
    """What it means for callers that the package over which another is saved had another name.

    >>> renamed("rmsnorm_ops", "norms")[0].why
    'the package is called norms now: import rmsnorm_ops is gone'
    """
    return (Change(before, "breaking", f"the package is called {now} now: import {before} is gone"),) * (before != now)


def compare(old: Schema, new: Schema) -> tuple[str, str]:
    """(same, compatible, breaking or silent; the reason) for two schemas of one op."""
    if [(t, n) for t, n in zip(old.output_types, old.outputs, strict=True)] != list(
        zip(new.output_types, new.outputs, strict=True)
    ):
        if old.output_types != new.output_types:
            return "breaking", f"it returned {old.results}, it returns {new.results}"
        return "silent", f"its outputs were called {', '.join(old.outputs)}, they are called {', '.join(new.outputs)}"
    found: list[tuple[str, str]] = []
    for place, a in enumerate(old.arguments):
        b = new.argument(a.name)
        if b is None:
            return "breaking", f"the argument {a.name} is gone"
        if not a.keyword_only and new.arguments[place].name != a.name:
            return "breaking", f"the argument {a.name} stands in another place"
        found += [why] if (why := _argument(a, b)) else []
    more = [a for a in new.arguments if old.argument(a.name) is None]
    found += [("breaking", f"the new argument {a.name} has no default") for a in more if a.required]
    if more:
        names = ", ".join(a.name for a in more)
        found.append(("compatible", f"the new argument{'s' * (len(more) > 1)} {names} may be left out"))
    return next((f for kind in ("breaking", "silent", "compatible") for f in found if f[0] == kind), ("same", ""))


def _argument(a: Argument, b: Argument) -> tuple[str, str] | None:
    if a.type != b.type:
        wider = b.type == f"{a.type}?"
        return ("compatible" if wider else "breaking"), f"{a.name} was {a.type}, it is {b.type}"
    if a.mutated != b.mutated:
        return "breaking", f"{a.name} is {'now' if b.mutated else 'no longer'} written to"
    if b.keyword_only and not a.keyword_only:
        return "breaking", f"{a.name} must be given by name now"
    if not a.required and b.required:
        return "breaking", f"{a.name} has no default any more"
    if not a.required and a.default != b.default:
        return "silent", f"the default of {a.name} was {a.default!r}, it is {b.default!r}"
    return None


def _silent(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str]:
    for label, was in old.items():
        if label in new and list(new[label]) != list(was):
            pairs = zip(was, new[label], strict=False)
            a, b = next(((a, b) for a, b in pairs if a != b), (f"{len(was)} outputs", f"{len(new[label])} outputs"))
            return "silent", f"on {label} it gave {a}, it gives {b}"
    return "same", ""


def advised(version: str, found: tuple[Change, ...]) -> str:
    """The version to call it after these changes: a new major one where callers break or get something else.

    >>> advised("1.4.0", (Change("lab::f", "breaking", "the argument k is gone"),))
    '2.0.0'
    """
    major, minor, micro = release(version)
    kinds = {c.kind for c in found}
    if kinds & {"breaking", "silent"}:
        return f"{major + 1}.0.0" if major else f"0.{minor + 1}.0"
    return f"{major}.{minor + 1}.0" if kinds else f"{major}.{minor}.{micro + 1}"
