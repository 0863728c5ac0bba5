"""What an op has to show for itself, as a `Card`: gathered from the op, shown by `show`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from . import restoring
from .judge import cost, verdict
from .reports.card import Card, HistoryRow, SlotRow
from .reports.measurement import Bench, BenchRow, label
from .reports.report import Check, Trial
from .show import words
from .tiers import Kernel
from .version import Version

Key = tuple[str, str, int]  # slot, device, number


@dataclass(frozen=True)
class Timed:
    """What a bench said of one version: `ratio` is the time of version `against` over this one's."""

    time_us: float
    case: str
    share: float = 0.0  # of `ceiling`
    ceiling: str = ""
    verdict: str = ""
    ratio: float = 0.0
    against: int = 0


def card(op) -> Card:
    """The card of an op: one row per slot and device, the history, the last check, the code that runs.

    >>> print(card(rmsnorm))
    """
    notice(op)
    return Card(
        name=op.qualname,
        signature=str(op.schema).partition("(")[1] + str(op.schema).partition("(")[2],
        slots=tuple(_slots(op)),
        history=_ledger(op),
        check=_check(op),
        code=tuple(_code(op)),
        doc=op.doc,
        notes=op.notes,
        opened=op.opened,
        bench=op.last_bench,
        profile=op.last_profile,
        tuning=op.last_tuning,
    )


def notice(op) -> None:
    """Take note of what changed since the last look, so that the card opens there.

    Of several changes at once the one that failed is looked at first, then the one that took longest to make.
    """
    now = {
        "Tune": op.last_tuning,
        "Profile": op.last_profile,
        "Bench": op.last_bench,
        "Check": op.last_check,
        "Code": (len(op.versions), tuple(sorted((key, v.number) for key, v in op.slots.items())), op.notes),
    }
    changed = [tab for tab, what in now.items() if not (what is op.seen.get(tab) or _same(what, op.seen.get(tab)))]
    if not changed:
        return
    former, newest = op.seen.get("Code", (0,)), op.versions[-1]
    op.seen = now
    if "Bench" in changed and op.last_bench is not None:
        for key, new in timed(op.last_bench, op.name).items():
            op.timed[key] = _known_better(op.timed.get(key), new, swept=bool(op.last_bench.sweep))
    told = [tab for tab in changed if now[tab] is not None]
    if "Check" in told and not op.last_check.ok:
        op.opened = "Check"
    elif "Code" in told and newest.refused and former[0] < len(op.versions):
        op.opened = "History"
    elif told:
        restored = told[0] == "Code" and former[0] == len(op.versions)
        op.opened = "History" if restored else told[0]


def _check(op) -> Check | None:
    """The last check. It may have been of other versions than those that run."""
    if op.last_check is None or op.checked in (None, op.installed()):
        return op.last_check
    then, now = (dict(each[:-1]) for each in (op.checked, op.installed()))
    other = [key for key in sorted(then.keys() | now.keys(), reverse=True) if then.get(key) != now.get(key)]
    ran = [f"{' '.join(key)} ran {f'v{then[key]}' if key in then else 'the reference'}" for key in other]
    was = " and ".join(ran) or "its backward was another function"
    return replace(op.last_check, was=f"made while {was}; `{op.name}.check()` looks at what runs now")


def timed(bench: Bench, name: str) -> dict[Key, Timed]:
    """What a bench says of versions, by (slot, device, number): their times on its longest case, and its word on the
    one that ran against the newest former one among them. 0 is the reference, where it is what ran.

    >>> timed(rmsnorm.bench(against=[1]), "rmsnorm")["forward", "cpu", 2]
    Timed(time_us=9800.0, case='llama fp32', share=0.63, ceiling='copy bandwidth', verdict='FASTER', ratio=2.0, ...)
    """
    found: dict[Key, Timed] = {}
    for slot in ("forward", "backward"):
        groups = [g for g in bench.groups() if g[0].slot == slot and any(r.own and r.timed for r in g)]
        if not groups:
            continue
        rows = max(groups, key=lambda g: max(r.time_us for r in g if r.own))
        versions = {n: r for r in rows if r.timed and (n := _number(r, name)) is not None}
        for n, r in versions.items():
            found[slot, bench.device, n] = Timed(r.time_us, _short(label(r)), r.share, r.ceiling)
        mine = next((n for n, r in versions.items() if r.own), 0)
        former = max((n for n in versions if 0 < n < mine), default=0)
        if former:
            r, key = versions[former], (slot, bench.device, mine)
            found[key] = replace(found[key], verdict=r.verdict, ratio=r.ratio, against=former)
    return found


def _known_better(old: Timed | None, new: Timed, *, swept: bool) -> Timed:
    """A case says more than a point of a sweep; a verdict stays where the next bench compared with nothing former."""
    if old is None or swept:
        return old or new
    return new if new.verdict else replace(new, verdict=old.verdict, ratio=old.ratio, against=old.against)


def _number(row: BenchRow, name: str) -> int | None:
    """The version that a contestant is; the op itself under its own name is the reference."""
    if row.own and row.contestant == name:
        return 0
    return int(row.contestant[1:]) if re.fullmatch(r"v\d+", row.contestant) else None


def _same(one: object, other: object) -> bool:
    """Of numbers; reports are told apart by which they are."""
    return isinstance(one, tuple) and one == other


def _slots(op) -> list[SlotRow]:
    rows = []
    devices = sorted({d for s, d in op.slots if s == "forward"}) or [""]
    for device in devices:
        otherwise = "reference" if op.reference is not None else "nothing yet"
        rows.append(_row(op, f"forward {device}".strip(), op.runs("forward", device), otherwise))
    if op.schema.tensors:
        devices = sorted({d for s, d in op.slots if s == "backward"})
        for device in devices:
            rows.append(_row(op, f"backward {device}", op.runs("backward", device), "reference's vjp"))
        if not devices:
            rows.append(SlotRow("backward", _gradient_source(op), **_times(op, "backward", op.versions[0])))
    return rows


def _gradient_source(op) -> str:
    if op.definition.backward is not None:
        return "@op.backward, in Python"
    if op.registration.native_gradient:
        return f"{op.registration.native_gradient} kernel of its cell"
    if op.differentiable:
        return "reference's vjp"
    if op.random:
        return "none: the reference is random"
    if op.reference is None:
        return "none: there is no reference"
    return "none: values are judged by @compare" if op.compare_function else "none"


def _row(op, slot: str, version: Version, otherwise: str) -> SlotRow:
    if not version.number:
        return SlotRow(slot, otherwise, **_times(op, slot.partition(" ")[0], version))
    unrun = verdict.unrun(version.kernel)
    return SlotRow(
        slot,
        f"v{version.number}",
        version.how,
        agrees=unrun or agreement(version.trial),
        unrun=bool(unrun),
        ok=version.trial is None or version.trial.ok,
        resources=_resources(op, version),
        cost=cost.of(version.kernel),
        **_times(op, version.slot, version),
    )


def _times(op, slot: str, version: Version) -> dict[str, Any]:
    """The times of a row: a bench's, else the rough one of its cell."""
    devices = [version.device] if version.number else ["cuda", "cpu"]
    found = next((t for d in devices if (t := op.timed.get((slot, d, version.number)))), None)
    if found is not None:
        return {"time_us": found.time_us, "share": found.share, "ceiling": found.ceiling, "case": found.case}
    return {"time_us": version.rough_us, "case": version.rough_case, "rough": version.rough_us > 0}


def _short(case: str) -> str:
    """`llama bf16`, of `llama bfloat16`."""
    name, _, last = case.rpartition(" ")
    return f"{name} {words.dtype(last)}".strip()


def _resources(op, version: Version) -> str:
    kernel = version.kernel
    if not isinstance(kernel, Kernel):
        return ""
    left = verdict.left_to_reference(op, kernel)
    left_out = f"grad of {', '.join(left)}: reference's vjp" if left else ""
    return ", ".join(part for part in (verdict.takes(kernel), left_out) if part)


def agreement(trial: Trial | None) -> str:
    """`18 of 18`, `2 of 2, 2 skipped` where the kernel has no form for some; nothing where nothing was compared."""
    judged = [o for o in trial.outcomes if o.status != "skip"] if trial is not None else []
    if trial is None or not judged:
        return ""
    left = len(trial.outcomes) - len(judged)
    return f"{sum(o.status == 'agree' for o in judged)} of {len(judged)}{f', {left} skipped' if left else ''}"


def _ledger(op) -> tuple[HistoryRow, ...]:
    """Every version, each with the source of the one before it in its slot and language."""
    rows, texts = [], {}  # type: ignore[var-annotated]
    for version in op.versions[1:]:
        place = (version.slot, version.language)
        rows.append(_entry(op, version, texts.get(place, "")))
        if version.source is not None:
            texts[place] = version.source.text
    return tuple(rows)


def _entry(op, version: Version, before: str) -> HistoryRow:
    installed = op.slots.get((version.slot, version.device))
    now = installed is not None and installed.number == version.number
    measured = op.timed.get((version.slot, version.device, version.number))
    told = measured or Timed(version.rough_us, version.rough_case)
    otherwise = "former" if restoring.fits(op, version) else "other schema"
    return HistoryRow(
        version.number,
        f"{version.slot} {version.device}".strip(),
        version.how,
        "installed" if now else "refused" if version.refused else otherwise,
        version.seconds,
        agreement(version.trial) or ("not run" if verdict.unrun(version.kernel) else ""),
        version.title,
        version.refused,
        resources=verdict.takes(version.kernel),
        time_us=told.time_us,
        case=told.case,
        rough=told.time_us > 0 and measured is None,
        verdict=told.verdict,
        ratio=told.ratio,
        against=told.against,
        text=version.source.text if version.source is not None else "",
        before=before,
    )


def _code(op) -> list[tuple[str, str, str]]:
    import inspect

    texts: dict[tuple[str, str], list[str]] = {}  # one cell may fill several slots
    for (slot, device), v in sorted(op.slots.items(), key=lambda kv: (kv[0][0] != "forward", kv[0])):
        if v.source is not None:
            texts.setdefault((v.source.language, v.source.text), []).append(f"{slot} {device} v{v.number}")
    found = [(", ".join(slots), language, text) for (language, text), slots in texts.items()]
    if op.reference is not None:
        try:
            found.append(("reference", "python", inspect.getsource(op.reference)))
        except (OSError, TypeError):
            pass  # defined by exec or at a prompt: there is no text to show
    return found
