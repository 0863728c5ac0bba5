"""The ledger of an op's versions: what each took and gained against the one before it, and what changed in its source.

As html: one table, or, for the widget, rows that line up although each stands by itself. As text: the newest rows.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from html import escape

from ..reports.card import HistoryRow
from . import diff, words
from .markup import MICRO, TIMES, dot, folded, rich

OPEN, MOST = 12, 300  # versions in sight; versions at all
DIFFS_B = 60_000  # html of source differences in one card: the newest ones have theirs
TEXT_ROWS = 8
TOLD = 240  # characters of a title or a refusal
WIDEST = 20  # characters of a column; what is longer wraps
ROOM = 64  # widths of a digit that the columns may take of a card's width, so that the last one stays readable
DOTS = {"installed": "pass", "refused": "fail", "former": "skip"}
HEADS = (
    ("version", ""), ("slot", ""), ("how", ""), ("time", "n"), ("against", ""), ("built in", "n"), ("registers", ""),
    ("agrees", ""), ("what changed", "w"),
)  # fmt: skip
COLOURS = {"FASTER": "good", "SLOWER": "bad"}


def table(rows: Sequence[HistoryRow]) -> str:
    """Versions, newest first; all but the newest twelve folded away, all but the newest 300 counted."""
    newest = sorted(rows, key=lambda h: -h.version)
    told = cells(newest[:MOST])
    used = used_columns(newest)
    tight = is_tight(newest, used)
    return _table(told[:OPEN], used, tight) + older(told[OPEN:], len(newest), used, tight)


def older(told: Sequence[Sequence[str]], count: int, used: Sequence[int], tight: bool) -> str:
    """The rows after the twelfth, folded. `count` is that of all versions."""
    if not told:
        return ""
    note = f'<p class="cap">and {count - MOST:,} before them</p>' if count > MOST else ""
    return folded(words.count(count - OPEN, "older version"), _table(told, used, tight) + note)


def used_columns(rows: Sequence[HistoryRow]) -> list[int]:
    """The columns that some row has something in."""
    plain = [_plain(row) for row in rows]
    return [i for i in range(len(HEADS)) if i in (0, len(HEADS) - 1) or any(row[i] for row in plain)]


def widths(rows: Sequence[HistoryRow], used: Sequence[int]) -> list[float]:
    """Of the columns before the last, in widths of a digit, so that every row fits; none is wider than `WIDEST`."""
    plain = [_plain(row) for row in rows]
    longest = [max(len(HEADS[i][0]), *(len(row[i]) for row in plain)) for i in used[:-1]]
    # letters are narrower than digits
    return [0.9 * min(n, WIDEST) + (3.4 if i == 0 else 2) for i, n in enumerate(longest)]


def is_tight(rows: Sequence[HistoryRow], used: Sequence[int]) -> bool:
    """Whether so much is told that what changed gets a line of its own below the columns."""
    return sum(widths(rows, used)) > ROOM


def separate(rows: Sequence[HistoryRow], used: Sequence[int]) -> list[str]:
    """The head and each row as a table by itself, for the widget, which puts a button beside each.

    They line up because each has the same widths of columns.
    """
    wide = widths(rows, used)
    columns, tight = " ".join([*(f"{w:.1f}ch" for w in wide), "minmax(0, 1fr)"]), sum(wide) > ROOM
    return [_wrapped(_head(used), columns, tight), *(_wrapped(_row(row, used), columns, tight) for row in cells(rows))]


def cells(rows: Sequence[HistoryRow]) -> list[list[str]]:
    """The html of each row's cells; the newest have the difference to the source before, while there is room."""
    made, room = [], DIFFS_B
    for row in rows:
        shown = _difference(row) if room > 0 else ""
        room -= len(shown)
        made.append(_cells(row, shown))
    return made


def _table(told: Sequence[Sequence[str]], used: Sequence[int], tight: bool) -> str:
    body = _head(used) + "".join(_row(cells, used) for cells in told)
    return _wrapped(body, f"repeat({len(used) - 1}, fit-content({WIDEST}ch)) minmax(0, 1fr)", tight)


def _wrapped(body: str, columns: str, tight: bool) -> str:
    return f'<table class="ledger{" tight" if tight else ""}" style="--cols:{columns}">{body}</table>'


def _head(used: Sequence[int]) -> str:
    return f"<tr>{''.join(_cell('th', HEADS[i][1], HEADS[i][0]) for i in used)}</tr>"


def _row(cells: Sequence[str], used: Sequence[int]) -> str:
    return f"<tr>{''.join(_cell('td', HEADS[i][1], cells[i]) for i in used)}</tr>"


def _cell(tag: str, kind: str, shown: str) -> str:
    return f'<{tag} class="{kind}">{shown}</{tag}>' if kind else f"<{tag}>{shown}</{tag}>"


def _plain(row: HistoryRow) -> tuple[str, ...]:
    """What the columns say, without marks; the last one is not measured."""
    time = words.duration(row.time_us * 1e-6, 3, MICRO) if row.time_us > 0 else ""
    built = words.duration(row.seconds, 2, MICRO) if row.seconds > 0 else ""
    return f"v{row.version}", row.slot, row.how, time, against(row, TIMES), built, taken(row.resources), row.agrees, ""


def taken(resources: str) -> str:
    """What a column has room for of what a kernel takes: registers, and spills where there are some.

    >>> taken("interpreted | compiled for sm_90: 24 regs, no spills, 16 bytes shared")
    '24 regs'
    """
    found = re.search(r"\d+ regs", resources)
    spilled = re.search(r"spills \d+ bytes", resources)
    return ", ".join(part[0] for part in (found, spilled) if part) or resources.replace(" | ", ", ")


def against(row: HistoryRow, times: str = "x") -> str:
    """A bench's word on it: "FASTER 1.14 x v6", "UNCLEAR v6"; "" where no bench compared the two."""
    ratio = f"{row.ratio:.2f} {times} " if row.ratio > 0 and row.verdict != "UNCLEAR" else ""
    return f"{row.verdict} {ratio}v{row.against}" if row.verdict else ""


def _cells(row: HistoryRow, difference: str) -> list[str]:
    version, slot, how, time, verdict, built, registers, agrees, _ = _plain(row)
    number = f'<span class="acc">{version}</span>' if row.status == "installed" else version
    timed = f'<span class="faint" title="rough">{time}</span>' if row.rough else time
    word = f'<span class="{COLOURS.get(row.verdict, "soft")}">{escape(verdict)}</span>' if verdict else ""
    judged = f'<span class="bad">{escape(agrees)}</span>' if row.status == "refused" else escape(agrees)
    marked = dot(DOTS.get(row.status, "skip"), row.status) + number
    return [
        marked, escape(slot), _soft(how, how), timed, word,
        built, _soft(registers, row.resources.replace(" | ", ", ")), judged, difference or _told(row),
    ]  # fmt: skip


def _soft(said: str, full: str) -> str:
    """One that wraps where its column cannot hold it, with the whole text in its title where that says more."""
    title = f' title="{escape(full)}"' if said != full else ""
    return f'<span class="soft{" long" if len(said) > WIDEST else ""}"{title}>{escape(said)}</span>'


def _told(row: HistoryRow) -> str:
    told = "; ".join(part for part in (row.title, row.detail) if part)
    return rich(told if len(told) <= TOLD else told[: TOLD - 1] + "…")


def _difference(row: HistoryRow) -> str:
    """Title and refusal, and behind them what changed in the source; "" where there is nothing before it."""
    if not (row.before and row.text):
        return ""
    came, went = diff.counts(row.before, row.text)
    if not came and not went:
        return f'{_told(row)} <span class="faint">same source</span>'
    signs = [f'<span class="good">+{came}</span>' if came else "", f'<span class="bad">−{went}</span>' if went else ""]
    title = f'{_told(row)} <span class="sum">{" ".join(s for s in signs if s)}</span>'
    return f"<details><summary>{title}</summary>{diff.pre(row.before, row.text)}</details>"


def text(rows: Sequence[HistoryRow]) -> list[tuple[str, ...]]:
    """The newest eight as rows of text, under (version, slot, status, time, against, built in, takes, ...)."""
    newest = sorted(rows, key=lambda h: -h.version)[:TEXT_ROWS]
    return [
        (
            f"v{h.version}", h.slot, h.status, words.duration(h.time_us * 1e-6, 3) if h.time_us > 0 else "",
            against(h), words.duration(h.seconds) if h.seconds > 0 else "",
            taken(h.resources), h.agrees,
            textwrap.shorten(h.title or h.detail, 24, placeholder=" ..."),
        )
        for h in newest
    ]  # fmt: skip
