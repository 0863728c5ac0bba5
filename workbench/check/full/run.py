"""A full check from beginning to end: sweeps over a kernel in the worker, and beside them the rows of this process."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...case import Case
from ...inputs import fresh
from ...reports.report import Check, Progress, Row
from ..cure_table import RACE
from ..cures import in_language
from ..expect import Expected, expected
from ..sample import Checkable, Sample, call, guarded, size
from . import apart, here, races, rows, special, sweep
from .bounds import bounds
from .classes import Place, Sizes, leaves_of, refined, sizes_of
from .finding import Tries
from .here import HERE
from .rows import Tried
from .shrink import smallest
from .tried import Sweep
from .variant import Variant

CHUNK = 24  # inputs of one job
SWEEPS_S = 25.0  # after that what is left of the sizes around numbers is left out, and said to be
CHECKS = ("sizes", "layouts", "values", "dtypes", "scalars", "determinism", "gradients", *HERE)


class Full:
    """One full check. `rows` are those so far, also after an interrupt."""

    def __init__(
        self, op: Checkable, device: str, tries: Sequence[Tries], only: Sequence[str], tell: Callable[[Progress], None]
    ) -> None:
        self.op, self.device, self.tries, self.only, self.tell = op, device, tries, only, tell
        self.cases = op.case_list()
        self.sample = Sample(op, min(self.cases, key=size), device, "full")
        self.rows: list[Row] = []
        self.started, self.done, self.of = time.perf_counter(), 0, 0
        self.declared = frozenset(rows.dtypes_in(c.bound(op.schema)) for c in self.cases)
        self.sweeps: list[Sweep] = []
        self.families = tuple(self._refined(f) for f in sizes_of(self.cases, op.schema))

    def _refined(self, family: Sizes) -> Sizes:
        """The classes of sizes, those that are equal by chance taken apart as far as the reference goes along."""
        base = sweep.bases_of(family, self.op.schema)[0]
        leaves = leaves_of(base.bound(self.op.schema))
        least = min((n for x in leaves.values() for n in x.shape), default=0)
        if self.op.reference is None or least < 2 or sum(x.numel() for x in leaves.values()) > sweep.MANY:
            return family

        def accepts(changes: Mapping[Place, int]) -> bool:
            one = replace(family, classes=tuple((place,) for place in changes))
            grown = {i: leaves[leaf].shape[dim] + more for i, ((leaf, dim), more) in enumerate(changes.items())}
            case = self._case(Variant("", "", base, one, tuple(grown.items())))
            return case is not None and not apart.dying(self._expected, [case]) and self._accepted(case)

        return refined(family, accepts)

    def wants(self, check: str) -> bool:
        return not self.only or check in self.only

    def step(self, at: str, more: int = 1) -> None:
        self.done += more
        self.tell(
            Progress(self.op.qualname, at, self.done, max(self.of, self.done), time.perf_counter() - self.started)
        )

    # ------------------------------------------------------------ sweeps

    def begin(self) -> None:
        """Hand every input to the kernels; answers of the reference are computed here meanwhile."""
        for tries in self.tries:
            sweep_ = Sweep(tries)
            self.sweeps.append(sweep_)
            if tries.unrunnable:
                continue
            variants = self._planned(tries)
            chunks = [variants[i : i + CHUNK] for i in range(0, len(variants), CHUNK)]
            self.of += 2 * len(chunks)
            for chunk in chunks:
                if time.perf_counter() - self.started > SWEEPS_S:
                    sweep_.left_out += len(chunk)
                    continue
                made = [(v, c) for v in chunk if (c := self._case(v)) is not None]
                if made:
                    sweep_.waiting.append(([v for v, _ in made], tries.submit([c for _, c in made])))
                self.step(f"{tries.slot} {tries.device}: {chunk[0].check}")
                self.step(f"{tries.slot} {tries.device}: {chunk[0].check}", sweep_.collect(wait=False))

    def _planned(self, tries: Tries) -> list[Variant]:
        kernel = getattr(tries, "kernel", None)
        source, declaration = getattr(kernel, "source", None), getattr(kernel, "declaration", None)
        most = sweep.INTERPRETED if tries.sequential else sweep.ELEMENTS
        found = sweep.plan(self.op.schema, self.families, bounds(source, declaration), most)
        if tries.slot == "backward":
            found = tuple(v for v in found if v.check in {"sizes", "layouts"} and not v.rank)
            found = tuple(v for v in found if v.case(self.op.schema) is not None)
            return list(found) if self.wants("gradients") else []
        return [v for v in found if self.wants(v.check)]

    def _case(self, v: Variant) -> Case | None:
        try:
            return v.case(self.op.schema)
        except (RuntimeError, ValueError, IndexError):  # a change that makes no sense for these values
            return None

    def finish(self) -> None:
        """Take in the answers and make the rows of the sweeps; a failing input is made smaller first."""
        for s in self.sweeps:
            while s.waiting:
                self.step(f"{s.tries.slot} {s.tries.device}: waiting", 0)
                s.waiting[0][1].result()
                self.step(f"{s.tries.slot} {s.tries.device}", s.collect(wait=False))
            s.tries.release()
            s.tried = [self._settled(t, s.tries) for t in s.tried]
            language = getattr(getattr(getattr(s.tries, "kernel", None), "source", None), "language", "")
            self.rows += [replace(r, cure=in_language(r.cure, language)) for r in self._rows_of(s)]

    def _settled(self, t: Tried, tries: Tries) -> Tried:
        """What a finding counts for; a call tells whether dtypes that no case has are refused, as they should be."""
        found = rows.settled(t, self.op.schema, self.declared, tries.tries_new_dtypes)
        if found.finding.status != "no form" or t.finding.status != "mismatch" or tries.slot == "backward":
            return found
        named = fresh(t.finding.case.bound(self.op.schema), device=self.device)
        try:
            with torch.no_grad():
                call(self.op, named)
        except Exception:
            return found
        return t

    def _rows_of(self, s: Sweep) -> Iterator[Row]:
        tries, slot = s.tries, s.tries.slot
        if tries.unrunnable:
            yield Row("sweeps", f"{slot} {tries.device}", "skip", f"not run: {tries.unrunnable}")
            return

        for (check, about), tried in s.grouped().items():
            raced = races.of(tried, tries, self.op.schema)
            if raced is not None:  # no size is what makes it fail, so none is looked for
                made = rows.row(check, about, [raced, *(t for t in tried if t is not raced)], "", tries.device)
                yield from [races.told(made)] if made is not None else []
                continue
            made = rows.row(check, about, self._smallest_first(tried, tries), "", tries.device)
            if made is not None:
                yield self._placed(made, tried, tries)
        if s.left_out:
            said = f"not run: {s.left_out} inputs more, after {SWEEPS_S:g} s"
            yield Row("sizes", "around numbers in the code", "skip", said)
        proved = rows.memory(s.tried, tries.device) if slot == "forward" else None
        if proved is not None:
            yield proved
        if slot == "forward" and self.wants("determinism"):
            yield special.repeated(tries, self.op.schema, self.families, self.sample.case)
        if slot == "forward" and self.wants("sizes"):
            yield from special.huge(tries, self.op.schema, self.families)
        if slot == "backward" and self.wants("gradients"):
            yield from special.spread(tries, self.families)

    def so_far(self) -> Iterator[Row]:
        """What the answers that have come in say, of sweeps that no row tells of; nothing is waited for."""
        told = {(r.check, r.case) for r in self.rows}
        for s in self.sweeps:
            s.collect(wait=False)
            s.tried = [rows.settled(t, self.op.schema, self.declared, s.tries.tries_new_dtypes) for t in s.tried]
            for (check, about), tried in s.grouped().items():
                made = rows.row(check, about, tried, "", s.tries.device)
                if made is not None and (made.check, made.case) not in told:
                    yield made

    def _smallest_first(self, tried: list[Tried], tries: Tries) -> list[Tried]:
        at = next((i for i, t in enumerate(tried) if t.finding.wrong), None)
        if at is None:
            return tried
        wrong = sorted((t for t in tried if t.finding.wrong), key=lambda t: sweep.elements(t.variant, self.op.schema))
        self.of += 1
        first = smallest(wrong[0], tries, self.op.schema)
        self.step(f"{tries.slot} {tries.device}: the smallest input that fails")
        tried[:] = [first, *wrong[1:], *(t for t in tried if not t.finding.wrong)]
        return tried

    def _placed(self, row: Row, tried: list[Tried], tries: Tries) -> Row:
        if row.status != "fail":
            return row
        kernel = getattr(tries, "kernel", None)
        source, declaration = getattr(kernel, "source", None), getattr(kernel, "declaration", None)
        where = rows.place(tried[0], source, declaration, bounds(source, declaration))
        drawn = replace(row.mismatch, borders=rows.borders(declaration)) if row.mismatch else None
        return replace(row, detail=f"{row.detail}; {where}" if where else row.detail, mismatch=drawn)

    # ------------------------------------------------------------ this process

    def safe(self, check: str) -> list[Case]:
        """Inputs of these sweeps on which every kernel was right: what may be run in this process."""
        if not self.sweeps:
            variants = [v for v in sweep.plan(self.op.schema, self.families) if v.check == check and not v.dtypes]
            made = [c for v in variants if (c := self._case(v)) is not None]
            dying = apart.dying(self._expected, made)
            return [c for c in made if c not in dying and self._accepted(c)]
        wrong = {t.variant.change for s in self.sweeps for t in s.tried if t.finding.wrong}
        return [
            t.finding.case for s in self.sweeps for t in s.tried
            if s.tries.slot == "forward" and t.finding.status == "agree" and t.variant.check == check
            and t.variant.change not in wrong
            and (not t.variant.dtypes or rows.dtypes_in(rows.arguments_of(t.finding.case)) in self.declared)
        ]  # fmt: skip

    def fails(self, check: str) -> bool:
        """Has a kernel been wrong on an input of these sweeps?"""
        return any(t.finding.wrong for s in self.sweeps for t in s.tried if t.variant.check == check)

    def _expected(self, case: Case) -> Expected:
        return expected(self.op.reference, self.op.schema, case)

    def _accepted(self, case: Case) -> bool:
        """Does the reference take it?"""
        try:
            return not self._expected(case).skipped
        except Exception:
            return False


def check(
    op: Checkable,
    tries: Callable[[], Sequence[Tries]],
    quick: Callable[[], Check],
    *,
    device: str,
    only: Sequence[str] = (),
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Check:
    """All rows of `level="full"`: the quick ones, the sweeps over each kernel, gradients, graphs and transforms.

    >>> check(op, lambda: tryout.tries_of(op), lambda: quick.check(op, "full"), device="cpu").ok
    True

    `only` names the checks to run (see CHECKS), none means all. An interrupt ends it and keeps the rows so far.
    """
    started = time.perf_counter()
    if not op.case_list():
        return quick()
    made: Sequence[Tries] = tries()
    full = Full(op, device, made, only, tell)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of references and of torch, about inputs that nobody would write
            _run(full, quick)
    except KeyboardInterrupt:
        full.rows += full.so_far()
        stopped = f"stopped by an interrupt after {time.perf_counter() - started:.0f} s: what is not above was not run"
        full.rows.append(Row("stopped", "", "skip", stopped))
    finally:
        for t in made:
            t.close()
    return Check(op.qualname, tuple(full.rows), "full", time.perf_counter() - started)


def _run(full: Full, quick: Callable[[], Check]) -> None:
    full.of = 1 + sum(full.wants(c) for c in HERE)
    full.begin()
    if not full.only:
        full.rows += quick().rows
        full.step("the quick rows")
    full.finish()
    if not full.tries:
        why = "not run: no kernel is installed, the reference itself runs"
        full.rows.append(Row("sweeps", "all inputs", "skip", why))
    for name, look in here.looks(full.sample, full.safe, full.cases, strided=not full.fails("layouts")):
        if not full.wants(name):
            continue
        full.step(name)
        full.rows += _looked(name, full.sample.label, look)
    _with_threads(full)


def _with_threads(full: Full) -> None:
    """Where kernels have threads, rows say of values that differ that it may be, or is, a race."""
    if any(races.parallel(t) for t in full.tries):
        found = any(r.cure.startswith(RACE) for r in full.rows if r.status == "fail")
        full.rows = races.reworded(full.rows, found=found)


def _looked(name: str, label: str, look: Callable[[], Any]) -> list[Row]:
    """The rows of one look; raising is a finding too."""
    held: list[Row] = []

    def one() -> Row:
        found = look()
        held.extend(found if isinstance(found, list) else [found])
        return held[0]

    row = guarded(name, label, one)
    return held or [row]
