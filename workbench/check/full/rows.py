"""From what a kernel did on the inputs of one sweep to a row of the report. Pure functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...case import Case
from ...directives import Declaration
from ...reports.report import Row
from ...schema import Schema
from ...source import Source
from ..cures import cure, cure_of_values
from .bounds import Bound
from .classes import leaves_of
from .finding import Finding
from .variant import Variant, spelled

KINDS = {
    "mismatch": "differs",
    "crash": "crashes",
    "hang": "does not end",
    "overrun": "goes out of bounds",
    "mutation": "writes to an input",
    "process": "changes the process it runs in",
    "aliasing": "hands back memory that is not its own",
    "unwritten": "leaves elements unwritten",
    "raises": "raises what the reference does not",
}
NOTES = {
    "both refuse": "{n} that both refuse ({why})",
    "accepts": "{n} more: {why}",
    "refused": "{n} that the kernel refuses, and says so: {why}",
    "no form": "{n} without a form of the kernel: {why}",
    "skip": "{n} not judged: {why}",
    "not run": "{n} not run: {why}",
    "dies": "{n} on which the reference itself ends the process: {why}",
}
MEMORY = ("mutation", "overrun", "aliasing", "unwritten", "crash", "process")


@dataclass(frozen=True)
class Tried:
    """One variant with how it went."""

    variant: Variant
    finding: Finding

    @property
    def inputs(self) -> str:
        """What it was run on: `x float32[4, 5], k=2.0`."""
        return spelled(arguments_of(self.finding.case))


def arguments_of(case: Case) -> dict[str, object]:
    """A case's arguments by name."""
    return {**dict(zip(case.names, case.args, strict=False)), **case.arguments}


def settled(t: Tried, schema: Schema, declared: frozenset, tries_new_dtypes: bool) -> Tried:
    """A finding as it counts: what nobody promised, and what a call would not be answered with, is no failure."""
    v, f = t.variant, t.finding
    if f.status == "raises" and (v.rank or _cannot_be_copied(f, schema) or _new_dtypes(t, declared)):
        return Tried(v, replace(f, status="refused"))
    if f.wrong and _new_dtypes(t, declared) and tries_new_dtypes:
        detail = f"it {KINDS[f.status]} there ({f.detail}); a first call with these dtypes is tried and then refused"
        return Tried(v, replace(f, status="no form", detail=detail))
    return t


def _cannot_be_copied(f: Finding, schema: Schema) -> bool:
    return bool(schema.mutated) and "is written in place and not contiguous" in f.detail


def dtypes_in(named: Mapping[str, object]) -> tuple[tuple[str, torch.dtype], ...]:
    """The combination of dtypes that arguments have, by the names of tensors."""
    return tuple(dict.fromkeys((n.partition("[")[0], x.dtype) for n, x in leaves_of(named).items()))


def _new_dtypes(t: Tried, declared: frozenset) -> bool:
    """Does no case have this combination of dtypes?"""
    return bool(t.variant.dtypes) and dtypes_in(arguments_of(t.finding.case)) not in declared


def row(check: str, about: str, tried: Sequence[Tried], where: str = "", device: str = "") -> Row | None:
    """The row of one sweep; None where none of its changes could be made.

    `tried` are settled; a failing one is told of by the first, which is the smallest found. `where` is the place.
    """
    if not tried:
        return None
    case = about + elsewhere(device)
    wrong = [t for t in tried if t.finding.wrong]
    if wrong:
        return _failed(check, case, wrong, len(tried), where)
    agreed = [t.finding for t in tried if t.finding.status == "agree"]
    notes = _notes([t for t in tried if t.finding.status != "agree"])
    if not agreed:
        both = all(t.finding.status == "both refuse" for t in tried)
        said = "; ".join(notes) or "nothing to compare with"
        hint = cure("accepts", said) if any(t.finding.status == "accepts" for t in tried) else ""
        return Row(check, case, "pass" if both else "skip", f"not judged: {said}" if not both else said, hint)
    worst = max(agreed, key=lambda f: f.share)
    inputs = f"{len(agreed)} input{'s' * (len(agreed) > 1)}"
    alike = (
        "as the reference's vjp" if check == "gradients" else "values, shapes, dtypes and strides as the reference's"
    )
    told = f"{inputs}: {alike}"
    told += f", error {worst.share:.2g} of what is allowed" if worst.share > 0 else ", exactly"
    extra = [f.detail for f in agreed if f.detail]
    hint = cure("accepts", "; ".join(notes)) if any(t.finding.status == "accepts" for t in tried) else ""
    return Row(check, case, "pass", "; ".join([told, *notes, *dict.fromkeys(extra)]), hint)


def _failed(check: str, case: str, wrong: Sequence[Tried], count: int, where: str) -> Row:
    first = wrong[0]
    f = first.finding
    of = "" if count == 1 else f"{len(wrong)} of {count} inputs fail, "
    change = f" with {first.variant.values}" if first.variant.values else ""
    detail = f"{KINDS[f.status]}: {of}smallest found{change}: {first.inputs}: {f.detail}"
    drawn = [replace(m, on=m.on or t.inputs) for t in wrong if (m := t.finding.mismatch) is not None]
    about = check if check in {"gradients", "layouts"} and f.status == "mismatch" else f.status
    largest = max(drawn, key=lambda m: m.total, default=None)  # where blocks can be seen
    if largest is not None and largest.on == first.inputs:
        largest = replace(largest, on="")  # the sentence names it
    return Row(
        check,
        case,
        "fail",
        f"{detail}{f'; {where}' if where else ''}",
        cure_of_values(about, f.detail, f.mismatch),
        largest,
    )


def _notes(others: Sequence[Tried]) -> list[str]:
    """What was not judged, and why: each reason once, by the first that gave it, with how many inputs it is."""
    alike: dict[tuple[str, str], list[str]] = {}
    for t in others:
        said = t.finding.detail.split("\n", maxsplit=1)[0]
        said = said if len(said) <= 160 else said[:157] + "..."
        alike.setdefault((t.finding.status, re.sub(r"\d+", "", said)), []).append(said)
    return [NOTES[status].format(n=len(said), why=said[0]) for (status, _), said in list(alike.items())[:4]]


def memory(tried: Sequence[Tried], device: str = "") -> Row | None:
    """What all these calls prove of memory; None where the sweeps' own rows tell otherwise, or nothing ran."""
    ran = [t for t in tried if t.finding.status in {"agree", "mismatch"}]
    if not ran or any(t.finding.status in MEMORY for t in tried):
        return None
    detail = (
        f"in {len(ran)} calls no byte of an argument changed that the schema does not let it change, nothing was "
        "written outside of outputs, every element of them was written, and none shares memory with an argument"
    )
    return Row("memory", f"all inputs{elsewhere(device)}", "pass", detail)


def place(t: Tried, source: Source | None, declaration: Declaration | None, found: Sequence[Bound] = ()) -> str:
    """Where to look, as far as it can be told: the number near the size that fails, the line that makes the output.

    `found` are the numbers of the code that sizes were tried around.
    """
    parts = []
    near = next((b for b in found if b.line and _is_near(t, b.number)), None)
    if near is not None and source is not None:
        parts.append(f"{near.number} stands on line {near.line}: `{_line(source, near.line)}`")
    output = t.finding.mismatch.output.partition("[")[0] if t.finding.mismatch else ""
    if declaration is not None and source is not None:
        made = next((a for a in declaration.allocations if a.name == output), None)
        if made is not None:
            parts.append(f"{output} is made on line {made.line}")
        if declaration.functions and not parts:
            f = declaration.functions[0]
            parts.append(f"in {f.name}, line {f.line}")
    return "; ".join(parts)


def _is_near(t: Tried, number: int) -> bool:
    """Is a size of the smallest failing input, or its count of elements, at or just beyond a number of the code?"""
    leaves = leaves_of(arguments_of(t.finding.case)).values()
    sizes = {n for x in leaves for n in x.shape}
    counts = {x.numel() for x in leaves}
    return bool(sizes & {number, number + 1}) or any(0 <= n - number <= max(1, number // 50) for n in counts)


def _line(source: Source, number: int) -> str:
    lines = source.text.splitlines()
    at = number - source.first_line
    text = lines[at].strip() if 0 <= at < len(lines) else ""
    return text if len(text) <= 80 else text[:77] + "..."


def borders(declaration: Declaration | None) -> tuple[int, ...]:
    """The sizes of blocks and tiles that a declaration names, for the picture."""
    if declaration is None:
        return ()
    found = [v for t in declaration.tunes.values() for v in t.values[:1] if isinstance(v, int)]
    for launch in declaration.launches:
        for e in launch.block:
            found += [n.value for n in ast.walk(e.tree) if isinstance(n, ast.Constant) and type(n.value) is int]
    return tuple(dict.fromkeys(n for n in found if n > 1))


def elsewhere(device: str) -> str:
    """How a row names a device that is not the CPU."""
    return "" if device in {"", "cpu"} else f" ({device})"
