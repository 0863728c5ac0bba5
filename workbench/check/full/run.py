"""A full check from beginning to end: sweeps over a kernel in the worker, and beside them the rows of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ...case import Case
from ...report import Check, Row
from ..float64 import available_bytes
from ..sample import Checkable, Sample, guarded, size
from . import derivatives, graphs, metadata, rows, sweep, transforms
from .bounds import bounds
from .classes import Place, Sizes, leaves_of, refined, sizes_of
from .finding import Finding, Pending, Tries
from .rows import Tried
from .shrink import smallest
from .variant import Variant

CHUNK = 24  # inputs of one job
SWEEPS_S = 25.0  # after that what is left of the sizes around numbers is left out, and said to be
REPEATS = 6
OTHERS = 40  # inputs at most that the rows of this process look at besides the cases
HERE = ("metadata", "requires_grad", "gradients, other inputs", "second derivatives", "directional derivatives",
        "compiled, dynamic shapes", "compiled, gradients", "export", "inductor", "autocast", "vmap", "CUDA graph",
        "streams")  # fmt: skip
CHECKS = ("sizes", "layouts", "values", "dtypes", "scalars", "determinism", "gradients", *HERE)


@dataclass(frozen=True)
class Progress:
    """How far a check has come: what it is at, and steps done of those known by now."""

    op: str
    at: str
    done: int
    of: int
    seconds: float


@dataclass
class Sweep:
    """The variants of one kernel with how they went, as they come in."""

    tries: Tries
    waiting: list[tuple[list[Variant], Pending]] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    left_out: int = 0

    def collect(self, *, wait: bool) -> int:
        """Take in what is done; how many jobs were."""
        count = 0
        while self.waiting and (wait or self.waiting[0][1].done()):
            variants, pending = self.waiting.pop(0)
            self.tried += [Tried(v, f) for v, f in zip(variants, pending.result(), strict=True)]
            count += 1
        return count


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
            return case is not None and self._accepted(case)

        return refined(family, accepts)

    def wants(self, check: str) -> bool:
        return not self.only or check in self.only

    def step(self, at: str, more: int = 1) -> None:
        self.done += more
        self.tell(Progress(self.op.qualname, at, self.done, max(self.of, self.done), time.perf_counter() - self.started))

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
        found = sweep.plan(self.op.schema, self.families, bounds(source, declaration))
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
            s.tried = [rows.settled(t, self.op.schema, self.declared, s.tries.tries_new_dtypes) for t in s.tried]
            self.rows += self._rows_of(s)

    def _rows_of(self, s: Sweep) -> Iterator[Row]:
        tries, slot = s.tries, s.tries.slot
        if tries.unrunnable:
            yield Row("sweeps", f"{slot} {tries.device}", "skip", f"not run: {tries.unrunnable}")
            return

        def key(t: Tried) -> tuple[str, str]:
            v = t.variant
            return (v.check, v.about) if slot == "forward" else ("gradients", v.check)

        order = list(dict.fromkeys(map(key, s.tried)))
        grouped = {k: list(g) for k, g in groupby(sorted(s.tried, key=lambda t: order.index(key(t))), key)}
        for (check, about), tried in grouped.items():
            made = rows.row(check, about, self._smallest_first(tried, tries), "", tries.device)
            if made is not None:
                yield self._placed(made, tried, tries)
        if s.left_out:
            said = f"not run: {s.left_out} inputs more, after {SWEEPS_S:g} s"
            yield Row("sizes", "around numbers in the code", "skip", said)
        proved = rows.memory(s.tried, tries.device) if slot == "forward" else None
        if proved is not None:
            yield proved
        yield from self._repeated(tries)
        yield from self._spread(tries)

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
        where = rows.place(tried[0], source, declaration)
        drawn = replace(row.mismatch, borders=rows.borders(declaration)) if row.mismatch else None
        return replace(row, detail=f"{row.detail}; {where}" if where else row.detail, mismatch=drawn)

    def _repeated(self, tries: Tries) -> Iterator[Row]:
        """The same input several times, at a size at which threads share the work, and a small one."""
        if tries.slot != "forward" or not self.wants("determinism"):
            return
        family = self.families[0] if self.families else None
        base = sweep.bases_of(family, self.op.schema)[0] if family else self.sample.case
        large = sweep.many(base, family, self.op.schema) if family else None
        case = self._case(large) if large is not None else None
        asked = [c for c in (case, self.sample.case) if c is not None]
        found = tries.submit(asked, repeats=REPEATS).result()
        yield determinism(found, asked, rows.elsewhere(tries.device))
        yield from self._huge(tries, base, family)

    def _huge(self, tries: Tries, base: Case, family: Any) -> Iterator[Row]:
        """Element and byte counts past 2**31, where there is memory for them."""
        if not self.wants("sizes") or family is None:
            return
        import torch

        for variant, nbytes in sweep.huge(base, family, self.op.schema):
            free = available_bytes(torch.device(self.device))
            if 2 * nbytes > free:
                said = f"not run: it takes about {2 * nbytes / 2**30:.0f} GB, {free / 2**30:.0f} GB are free"
                yield Row("sizes", variant.about, "skip", said)
                continue
            case = variant.case(self.op.schema)
            found = tries.submit([case]).result() if case is not None else []
            made = rows.row("sizes", variant.about, [Tried(variant, f) for f in found], "", tries.device)
            if made is not None:
                yield made

    def _spread(self, tries: Tries) -> Iterator[Row]:
        """A backward kernel from incoming gradients that are one number, seen everywhere."""
        if tries.slot != "backward" or not self.wants("gradients"):
            return
        if not self.families:
            return
        bases = sweep.bases_of(self.families[0], self.op.schema)
        found = tries.submit(bases, spread=True).result()
        about = "expanded incoming gradients"
        tried = [Tried(Variant("gradients", about, b, self.families[0]), f) for b, f in zip(bases, found, strict=True)]
        made = rows.row("gradients", about, tried, "", tries.device)
        if made is not None:
            yield made

    # ------------------------------------------------------------ this process

    def safe(self, check: str = "", *, plain: bool = False) -> list[Case]:
        """Inputs on which every kernel was right: what may be run in this process. `plain` leaves layouts out."""
        wrong = {self._key(t.variant) for s in self.sweeps for t in s.tried if t.finding.wrong}
        if not self.sweeps:
            variants = [v for v in sweep.plan(self.op.schema, self.families) if not v.dtypes]
            return [c for v in variants if v.check == check and (c := self._case(v)) is not None and self._accepted(c)]
        agreed = [
            t for s in self.sweeps for t in s.tried
            if s.tries.slot == "forward" and t.finding.status == "agree" and t.variant.check == check
            and self._key(t.variant) not in wrong
            and (not t.variant.dtypes or rows.dtypes_in(rows.arguments_of(t.finding.case)) in self.declared)
        ]  # fmt: skip
        if plain:
            agreed = [t for t in agreed if not t.variant.rank]
        return [t.finding.case for t in agreed]

    def _key(self, v: Variant) -> tuple:
        return (v.base.label, v.sizes, v.rank, v.layout, v.at, v.values, v.dtypes, str(v.scalars))

    def _accepted(self, case: Case) -> bool:
        """Does the reference take it?"""
        from ..expect import expected

        try:
            return not expected(self.op.reference, self.op.schema, case).skipped
        except Exception:
            return False

    def here(self) -> list[tuple[str, Callable[[], Row | list[Row]]]]:
        """The rows that run in this process, by name."""
        s = self.sample
        usual = Sample(self.op, self._usual(), self.device, "full")
        first = self.sample.case.dtype_name
        sized = _several([c for c in self.safe("sizes", plain=True) if c.dtype_name == first], graphs.MOST_SIZES)
        layouts = self.safe("layouts")[:OTHERS]
        others = [*layouts, *self.safe("sizes")][:: max(1, (len(layouts) + 60) // OTHERS)][:OTHERS]
        return [
            ("metadata", lambda: metadata.fakes(s, [*layouts, *self.safe("sizes")[:OTHERS], *self.safe("dtypes")])),
            ("requires_grad", lambda: derivatives.requires_grad(usual)),
            ("gradients, other inputs", lambda: derivatives.laid_out(usual, others)),
            ("second derivatives", lambda: derivatives.second(usual)),
            ("directional derivatives", lambda: derivatives.directional(usual)),
            ("compiled, dynamic shapes", lambda: graphs.recompilations(s, sized)),
            ("compiled, gradients", lambda: graphs.gradients_compiled(usual, [usual.case, *sized[:2]])),
            ("export", lambda: graphs.exported(usual, [c for c in sized if graphs._least(c) > 1][:2])),
            ("inductor", lambda: graphs.inductor(usual)),
            ("autocast", lambda: transforms.autocast(usual)),
            ("vmap", lambda: transforms.vmapped(usual)),
            ("CUDA graph", lambda: transforms.cuda_graph(usual)),
            ("streams", lambda: transforms.streams(usual)),
        ]

    def _usual(self) -> Case:
        """The smallest case in which no size is 0 or 1: the one that torch's transforms are tried on."""
        ordinary = [c for c in self.cases if graphs._least(c) > 1]
        return min(ordinary or self.cases, key=size)


def determinism(found: Sequence[Finding], asked: Sequence[Case], where: str) -> Row:
    """Whether repeated runs give the same bits; a difference within tolerance is a note."""
    import torch

    labels = " and ".join(c.label for c in asked)
    wrong = next((f for f in found if f.wrong), None)
    if wrong is not None:
        said = f"one of {REPEATS} runs on the same input: {wrong.detail}"
        from ..cures import cure

        return Row("determinism", wrong.case.label + where, "fail", said, cure("determinism", said), wrong.mismatch)
    differing = [f for f in found if f.differing]
    if not any(f.status == "agree" for f in found):
        return Row("determinism", labels + where, "skip", "not judged: " + next((f.detail for f in found), ""))
    if not differing:
        return Row("determinism", labels + where, "pass", f"{REPEATS} runs each give the same bits")
    said = f"{differing[0].differing} of {REPEATS - 1} further runs give other bits, all within what is allowed: atomics, or sums in another order"
    strict = torch.are_deterministic_algorithms_enabled()
    said += "; deterministic algorithms are asked for" if strict else ""
    return Row("determinism", differing[0].case.label + where, "fail" if strict else "pass", said)


def _several(cases: Sequence[Case], most: int) -> list[Case]:
    """A few inputs of different sizes, those with 0 or 1 last."""
    seen: dict[tuple, Case] = {}
    for c in cases:
        shapes = tuple(tuple(x.shape) for x in c.args if hasattr(x, "shape"))
        seen.setdefault(shapes, c)
    ordinary = [c for c in seen.values() if graphs._least(c) > 1]
    rest = [c for c in seen.values() if graphs._least(c) <= 1]
    return [*ordinary[: most - 2], *rest[:2]]


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
    stopped = ""
    try:
        _run(full, quick)
    except KeyboardInterrupt:
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
    for name, look in full.here():
        if not full.wants(name):
            continue
        full.step(name)
        found = _looked(name, full.sample.label, look)
        full.rows += found


def _looked(name: str, label: str, look: Callable[[], Any]) -> list[Row]:
    """The rows of one look; raising is a finding too."""
    held: list[Row] = []

    def one() -> Row:
        found = look()
        held.extend(found if isinstance(found, list) else [found])
        return held[0]

    row = guarded(name, label, one)
    return held or [row]
