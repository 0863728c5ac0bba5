"""Rows of a check that say the same of several inputs, as one row: "2 cases x 2 dtypes", "empty, one, two, odd"."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from ..reports.report import Check, Row
from . import words

SHARE = re.compile(r"\berror (under 0\.01|\d[\d.e+-]*) of what is allowed")
DTYPE = re.compile(r"(?:^| )((?:b?float|u?int|complex)\d+\w*|bool)$")
COUNT = re.compile(r"^(\d+) inputs?: ")
FAILING, SMALLEST = re.compile(r"(\d+) of (\d+) inputs fail, "), "smallest found"
DEVICE = re.compile(r" \(\w+\)$")
ANY = re.compile(r"(?:b?float|u?int|complex)?\d+|(?:elements|bytes)$")  # what differs between reasons that are one
ORDER = ("fail", "pass", "skip")
NAMED = 110  # characters up to which inputs are named, not counted


def arranged(report: Check) -> list[Row]:
    """The rows as they are shown. Of a full check, which has many: what failed, what passed, what was not run.

    >>> arranged(check)[0].status
    'fail'
    """
    if report.level != "full":
        return gathered(report.rows)
    names = list(dict.fromkeys(r.check for r in report.rows))
    rows = sorted(report.rows, key=lambda r: (ORDER.index(r.status), names.index(r.check)))
    return _same_reason(_summed(_failing_alike(gathered(rows))))


def gathered(rows: Sequence[Row]) -> list[Row]:
    """Neighbours that differ in their case and in the size of their error alone become one row, with the largest.

    >>> gathered([Row("agreement", "odd float32", "pass", "error 0.2 of what is allowed"),
    ...           Row("agreement", "odd bfloat16", "pass", "error 0.3 of what is allowed")])[0].detail
    'largest error 0.3 of what is allowed (odd bf16)'
    """
    found = []
    for alike, group in itertools.groupby(rows, _alike):
        some = list(group)
        found += some if isinstance(alike, tuple) and COUNT.match(some[0].detail) else [_one(some)]
    return found


def _alike(row: Row) -> object:
    """What rows must share to be told together; nothing is like a row that did not pass."""
    return (row.check, SHARE.sub("", row.detail), row.cure) if row.status == "pass" else id(row)


def _one(rows: list[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    worst = max(rows, key=_share)
    case, dtype = _split(worst.case)
    where = f"{case} {words.dtype(dtype)}".strip()
    detail = SHARE.sub(lambda said: f"largest {said[0]} ({where})", worst.detail)
    return replace(worst, case=_cases(rows), detail=detail)


def _share(row: Row) -> float:
    found = SHARE.search(row.detail)
    return float(found[1].removeprefix("under ")) if found else 0.0


def _split(case: str) -> tuple[str, str]:
    """The name of a case and its dtype: ("one row", "float32")."""
    found = DTYPE.search(case)
    return (case[: found.start()], found[1]) if found else (case, "")


def _cases(rows: Sequence[Row]) -> str:
    cases, dtypes = zip(*(_split(row.case) for row in rows), strict=True)
    names, kinds = dict.fromkeys(cases), dict.fromkeys(dtypes)
    if not any(kinds) and len(", ".join(names)) <= 40:
        return ", ".join(names)
    if len(names) * len(kinds) != len(rows) or not all(kinds):
        return words.count(len(rows), "run")
    if len(names) == 1:
        return f"{cases[0]}, {words.count(len(kinds), 'dtype')}"
    if len(kinds) == 1:
        return f"{words.count(len(names), 'case')}, {words.dtype(dtypes[0])}"
    return f"{words.count(len(names), 'case')} x {words.count(len(kinds), 'dtype')}"


# ---------------------------------------------------------------- sweeps


def _summed(rows: Sequence[Row]) -> list[Row]:
    """The sweeps of one check that passed and say the same, as one row with all of their inputs."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        counted = row.status == "pass" and COUNT.match(row.detail)
        said = re.sub(rf"{SHARE.pattern}|\bexactly\b", "", COUNT.sub("", row.detail))
        key = (row.check, said, row.cure, _device(row)) if counted else id(row)
        groups.setdefault(key, []).append(row)
    return [_sum(some) for some in groups.values()]


def _failing_alike(rows: Sequence[Row]) -> list[Row]:
    """Sweeps of one check in which the same smallest input fails, as one row with the largest picture."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        swept = row.status == "fail" and SMALLEST in row.detail
        key = (row.check, FAILING.sub("", row.detail), row.cure, _device(row)) if swept else id(row)
        groups.setdefault(key, []).append(row)
    return [some[0] if len(some) == 1 else _fail(some) for some in groups.values()]


def _fail(rows: list[Row]) -> Row:
    counts = [[int(n) for n in found.groups()] if (found := FAILING.search(r.detail)) else [1, 1] for r in rows]
    kind, _, rest = FAILING.sub("", rows[0].detail).partition(": ")
    detail = f"{kind}: {sum(n for n, _ in counts)} of {sum(n for _, n in counts)} inputs fail, {rest}"
    drawn = max((r.mismatch for r in rows if r.mismatch), key=lambda m: m.total, default=None)
    return replace(rows[0], case=_named(rows), detail=detail, mismatch=drawn)


def _sum(rows: list[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    worst = max(rows, key=_share)
    inputs = sum(int(found[1]) for row in rows if (found := COUNT.match(row.detail)))
    detail = COUNT.sub(f"{inputs} inputs: ", worst.detail)
    if _share(worst):
        detail = SHARE.sub(lambda said: f"largest {said[0]} ({DEVICE.sub('', worst.case)})", detail)
    return replace(worst, case=_named(rows), detail=detail)


def _named(rows: Sequence[Row]) -> str:
    """The inputs by name ("NaN, infinity, zeros"), or how many there are where that is too long."""
    names = list(dict.fromkeys(DEVICE.sub("", row.case) for row in rows))
    said = ("; " if any(", " in name for name in names) else ", ").join(names)
    return (said if len(said) <= NAMED else f"{len(names)} kinds") + _device(rows[0])


def _device(row: Row) -> str:
    found = DEVICE.search(row.case)
    return found[0] if found else ""


def _same_reason(rows: Sequence[Row]) -> list[Row]:
    """What was not run for one reason is told once: of several dtypes, of several checks on one input."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        by_kind = (row.check, ANY.sub("", row.detail), row.cure, _device(row))
        whole = (row.case, row.detail, row.cure)
        key: object = id(row)
        if row.status == "skip":
            key = whole if whole in groups else by_kind if by_kind in groups else whole
            groups.setdefault(key, []).append(row)
            groups.setdefault(by_kind, groups[key])
        else:
            groups[key] = [row]
    once = {id(some): some for some in groups.values()}
    return [_told_once(some) for some in once.values()]


def _told_once(rows: list[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    checks = ", ".join(dict.fromkeys(row.check for row in rows))
    return replace(rows[0], check=checks, case=_named(rows) if len({r.case for r in rows}) > 1 else rows[0].case)
