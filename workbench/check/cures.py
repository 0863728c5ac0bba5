"""What to do about a failed check: the first entry of the table whose words occur in the failure says it."""

from __future__ import annotations

import itertools
import re

from .. import gpu
from ..reports.report import Mismatch
from .cure_table import COUNTERS, FAR_OFF, GUARD, GUARDS, SLOW, TABLE, Cure

GRAPHS = {"compile", "compiled = eager", "compiled, dynamic shapes", "compiled, gradients", "export", "inductor",
          "autocast"}  # fmt: skip
SAME = {"mismatch": "agreement", "metadata": "fake", "gradients, other inputs": "gradients"}


def cure(check: str, failure: str) -> str:
    """What to do about a failure, or an empty string when nobody knows.

    >>> cure("schema", "Argument x is not defined as mutable but was mutated")
    'The op changes an argument that its schema does not name: add it to mutates=.'

    `check` is the row that failed, or the kind of the failure.
    """
    about = {"", SAME.get(check, check), *(["graphs"] if check in GRAPHS else [])}
    fits = (c.cure for c in TABLE if c.about in about and re.search(c.words, failure, re.IGNORECASE))
    return next(fits, "")


def cure_of_values(check: str, failure: str, mismatch: Mismatch | None) -> str:
    """What to do where values differ: other advice where no rounding can be what is wrong.

    >>> cure_of_values("layouts", "out: 12 of 60 elements differ", mismatch)
    'Read each dimension by its own stride, or ask for no x.stride(): inputs are then contiguous.'
    """
    said = failure + (FAR_OFF if mismatch is not None and mismatch.far else "")
    return cure(check, said) or cure("agreement", said)


def in_language(said: str, language: str) -> str:
    """The same advice in the words of the language in which the kernel is written.

    >>> in_language(cure("overrun", "writes past the end of out"), "triton")
    'Give each load and store a mask, `mask=i < n`, with n the size of that tensor; a block pointer takes ...'
    """
    said = said.replace(COUNTERS, f"{COUNTERS} {SLOW}") if language == "triton" and not gpu.present() else said
    return said.replace(GUARD, GUARDS.get(language, GUARD))


def page() -> str:
    """The table as Markdown: docs/cures.md, which `python tools/cures.py` writes."""
    about_it = "What a failed check means, and what to do. Reports say the same below the row that fails."
    rows = ["# Symptoms and cures", "", about_it, ""]
    for about, entries in itertools.groupby(TABLE, key=lambda c: c.about):
        rows += [f"## {_title(about)}", "", "| symptom | cure |", "|---|---|", *map(_row, entries), ""]
    return "\n".join(rows)


def _title(about: str) -> str:
    plain = about[:1].upper() + about[1:]
    named = {"": "Anywhere", "build": "Building", "agreement": "Values", "graphs": "Compiled, in any row"}
    return named.get(about, plain)


def _row(c: Cure) -> str:
    def cell(text: str) -> str:
        return re.sub(r"(?<![`\\])\|", r"\\|", text)

    return f"| {cell(c.symptom)} | {cell(c.cure)} |"
