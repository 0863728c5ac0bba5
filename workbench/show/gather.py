"""Rows of a check that passed and say the same of several cases, as one row: "2 cases x 2 dtypes"."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from ..report import Row
from . import words

SHARE = re.compile(r"\berror (under 0\.01|\d[\d.e+-]*) of what is allowed")
DTYPE = re.compile(r"(?:^| )((?:b?float|u?int|complex)\d+\w*|bool)$")


def gathered(rows: Sequence[Row]) -> list[Row]:
    """Neighbours that differ in their case and in the size of their error alone become one row, with the largest.

    >>> gathered([Row("agreement", "odd float32", "pass", "error 0.2 of what is allowed"),
    ...           Row("agreement", "odd bfloat16", "pass", "error 0.3 of what is allowed")])[0].detail
    'largest error 0.3 of what is allowed (odd bf16)'
    """
    return [_one(list(group)) for _, group in itertools.groupby(rows, _alike)]


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
