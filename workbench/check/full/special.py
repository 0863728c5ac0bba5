"""Inputs with a row of their own: repeated runs, counts past 2**31, incoming gradients that are one number."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from ...case import Case
from ...reports.report import Row
from ...schema import Schema
from ..cures import cure, cure_of_values
from ..float64 import available_bytes
from . import races, rows, sweep
from .classes import Sizes
from .finding import Finding, Tries
from .rows import Tried
from .variant import Variant

REPEATS = 24
OVERLAP_S = 0.04  # of one run: some time slices, so that threads are at work together on a busy machine, too
MOST = 1 << 23  # elements for that
PART, HUGE_S = 64, 8.0  # a count past 2**31 is left out where by its 64th part it would take longer
SPREAD = "expanded incoming gradients"


def repeated(tries: Tries, schema: Schema, families: Sequence[Sizes], usual: Case) -> Row:
    """The same input several times in one process, at a size at which threads share the work, and a small one.

    Where that takes no time at all, a larger one too: threads that do not overlap do not race. Other bits are a note
    where all results are within what is allowed, and a failure where deterministic algorithms are asked for.
    """
    if tries.sequential:
        said = "not run: the interpreter runs one program after the other, so no race can show"
        return Row("determinism", usual.label + rows.elsewhere(tries.device), "skip", said)
    found = tries.submit([*_large(schema, families, sweep.MANY), usual], repeats=REPEATS).result()
    took = max((f.seconds for f in found), default=0.0)
    if 0 < took < OVERLAP_S and not any(f.wrong for f in found) and tries.device == "cpu":
        grown = min(MOST, int(sweep.MANY * OVERLAP_S / took))
        found = [*tries.submit(_large(schema, families, grown), repeats=REPEATS // 3).result(), *found]
    return determinism(found, rows.elsewhere(tries.device))


def _large(schema: Schema, families: Sequence[Sizes], least: int) -> list[Case]:
    for family in families[:1]:
        large = sweep.many(sweep.bases_of(family, schema)[0], family, schema, least)
        case = large.case(schema) if large is not None else None
        return [case] if case is not None else []
    return []


def determinism(found: Sequence[Finding], where: str = "") -> Row:
    """The row of repeated runs."""
    wrong = next((f for f in found if f.wrong), None)
    if wrong is not None:
        if wrong.status == "mismatch" and not races.is_race(wrong):  # as wrong each time: no race makes that
            said = f"all of {REPEATS} runs on the same input alike: {wrong.detail}"
            hint = cure_of_values("mismatch", wrong.detail, wrong.mismatch)
            return Row("determinism", wrong.case.label + where, "fail", said, hint, wrong.mismatch)
        said = f"one of {REPEATS} runs on the same input: {wrong.detail}"
        about = "determinism" if wrong.status == "mismatch" else wrong.status
        return Row("determinism", wrong.case.label + where, "fail", said, cure(about, said), wrong.mismatch)
    judged = [f for f in found if f.status == "agree"]
    if not judged:
        why = next((f.detail for f in found if f.detail), "nothing to compare with")
        return Row("determinism", found[0].case.label + where, "skip", f"not judged: {why}")
    labels = " and ".join(f.case.label for f in judged) + where
    differing = [f for f in judged if f.differing]
    if not differing:
        return Row("determinism", labels, "pass", f"all of {REPEATS} runs give the same bits")
    said = f"{differing[0].differing} further runs on {differing[0].case.label} give other bits than the first, all "
    said += "within what is allowed: atomics, or sums in another order"
    strict = torch.are_deterministic_algorithms_enabled()
    said += "; but deterministic algorithms are asked for" if strict else ""
    return Row("determinism", labels, "fail" if strict else "pass", said, cure("determinism", said) if strict else "")


def huge(
    tries: Tries, schema: Schema, families: Sequence[Sizes], limit: int = 1 << 31, limit_s: float = HUGE_S
) -> Iterator[Row]:
    """Element and byte counts past `limit`, where there is memory for them, and time: a part of each goes first."""
    for family in families[:1]:
        if tries.sequential:
            about = f"past 2**{limit.bit_length() - 1} elements or bytes{rows.elsewhere(tries.device)}"
            yield Row("sizes", about, "skip", "not run: in an interpreter it takes too long")
            continue
        base = sweep.bases_of(family, schema)[0]
        parts = sweep.huge(base, family, schema, limit // PART)
        for (variant, nbytes), (part, _) in zip(sweep.huge(base, family, schema, limit), parts, strict=True):
            made = _huge(tries, schema, variant, part, nbytes, limit_s)
            yield from [made] if made is not None else []


def _huge(tries: Tries, schema: Schema, variant: Variant, part: Variant, nbytes: int, limit_s: float) -> Row | None:
    free = available_bytes(torch.device("cpu"))
    if 2 * nbytes > free:
        said = f"not run: it takes about {2 * nbytes / 2**30:.0f} GB, {free / 2**30:.0f} GB are free"
        return Row("sizes", variant.about + rows.elsewhere(tries.device), "skip", said)
    made, took_s = _timed(tries, part, schema)
    if made is not None and made.status == "fail":
        return made
    if PART * took_s > limit_s:
        said = f"not run: it takes about {PART * took_s:.0f} s here"
        return Row("sizes", variant.about + rows.elsewhere(tries.device), "skip", said)
    return _timed(tries, variant, schema)[0]


def _timed(tries: Tries, variant: Variant, schema: Schema) -> tuple[Row | None, float]:
    """What came of it, and the seconds that it took."""
    start, case = time.perf_counter(), variant.case(schema)
    found = tries.submit([case]).result() if case is not None else []
    made = rows.row("sizes", variant.about, [Tried(variant, f) for f in found], device=tries.device)
    return made, time.perf_counter() - start


def spread(tries: Tries, families: Sequence[Sizes]) -> Iterator[Row]:
    """A backward kernel from incoming gradients that are one number, seen everywhere."""
    for family in families[:1]:
        bases = family.cases[:3]
        found = tries.submit(bases, spread=True).result()
        tried = [Tried(Variant("gradients", SPREAD, b, family), f) for b, f in zip(bases, found, strict=True)]
        made = rows.row("gradients", SPREAD, tried, device=tries.device)
        yield from [made] if made is not None else []
