"""What a kernel's text says of values that are wrong, beyond what the values say themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..check.cure_table import ADDS
from ..directives import Allocate, Declaration, Kind
from ..reports.report import Mismatch, Outcome, Trial
from ..source import Source, code
from ..tiers import Kernel


def trial(kernel: Kernel, tried: Trial) -> Trial:
    """The trial, its wrong values explained where the text does."""
    return replace(tried, outcomes=tuple(outcome(kernel, o) for o in tried.outcomes))


def outcome(kernel: object, o: Outcome) -> Outcome:
    """An outcome whose output is made of what was there before, or in too few digits.

    >>> outcome(kernel, Outcome("odd", "float32", "mismatch", detail="out: 6 of 6 elements differ", mismatch=m)).detail
    'out: 6 of 6 elements differ; it adds to what was there, which is poison: `//! out = zeros(rows)`'
    """
    found = o.mismatch
    if found is None or not isinstance(kernel, Kernel) or kernel.tier != "raw":
        return o
    made = next((a for a in kernel.declaration.allocations if a.name == found.output), None)
    if made is not None and not made.zeroed and adds(kernel.source.text, _names(kernel.declaration, made.name)):
        # NaN with a number added is the same NaN, which counts as never written.
        o = replace(o, detail=re.sub(r"; \d+ were never written$", "", o.detail))
        return _because(o, replace(found, unwritten=0), f"it {ADDS}: `//! {_zeros(made)}`")
    line = narrow(kernel.source) if o.dtype == "float64" and not found.far else 0
    return _because(o, found, f"line {line} computes in float, which has 7 of their 16 digits") if line else o


def _because(o: Outcome, found: Mismatch, said: str) -> Outcome:
    return replace(o, detail=f"{o.detail}; {said}", mismatch=replace(found, because=said))


def narrow(source: Source) -> int:
    """The first line on which C++ or CUDA text takes or makes a number in float, by the cell's own count; 0 for none.

    >>> narrow(cell("template <typename T>\\nvoid f(const T* x, T* out, float eps) {}"))
    2
    """
    plain = code(source.text)
    found = re.search(r"\bfloat\b(?!\s*[*&>,])", plain)
    return plain.count("\n", 0, found.start()) + source.first_line if found else 0


def adds(text: str, names: tuple[str, ...]) -> bool:
    """Does C++ or CUDA text add to elements of one of these, and never set one of them?

    >>> adds("out[row[i] * n + j] += x[i];", ("out",)), adds("out[i] = 0; out[i] += x[i];", ("out",))
    (True, False)
    """
    plain = code(text)
    any_of = "|".join(map(re.escape, names))
    signs = [sign for name in names for sign in _signs(plain, name)]
    atomic = re.search(rf"\batomic(?:Add|Sub|Max|Min)\s*\(\s*&?\s*(?:{any_of})\b", plain)
    filled = re.search(rf"\b(?:mem(?:set|cpy|move)|(?:fill|copy)(?:_n)?)\s*\([^;]*\b(?:{any_of})\b", plain)
    return (bool(atomic) or any(s != "=" for s in signs)) and "=" not in signs and not filled


def _signs(plain: str, name: str) -> Iterator[str]:
    """The assignments behind `name[...]`: "=", "+=", "*="."""
    for found in re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*\[", plain):
        depth, at = 1, found.end()
        while depth and at < len(plain):
            depth += {"[": 1, "]": -1}.get(plain[at], 0)
            at += 1
        sign = re.match(r"\s*((?:[-+*/|&^]|<<|>>)?=)(?!=)", plain[at:])
        if sign:
            yield sign[1]


def _names(declaration: Declaration, name: str) -> tuple[str, ...]:
    return (name, *(n for n, of in declaration.aliases.items() if of == name))


def _zeros(made: Allocate) -> str:
    """The directive that makes it of zeros: `out = zeros(rows, cols)`."""
    dtype = f", dtype={made.dtype.text}" if made.dtype else ""
    if made.like:
        return f"{made.name} = zeros_like({made.like}{dtype})"
    sizes = made.sizes or ()
    spread = "*" if len(sizes) > 1 else ""
    texts = [(spread if e.kind is Kind.INTS else "") + e.text for e in sizes]
    return f"{made.name} = zeros({', '.join(texts) or '()'}{dtype})"


__all__ = ["adds", "narrow", "outcome", "trial"]
