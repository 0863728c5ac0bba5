"""What a tier costs: why a cell is in it, what an edit takes there, and what a faster tier would need."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .. import edit_times, tiers
from ..schema import Schema
from ..show import words

FASTER = {"full": "host", "host": "raw"}
TYPES = ("torch::Tensor", "at::Tensor")
RAW_TYPES = frozenset({"Tensor", "Tensor?", "SymInt", "int", "float", "bool", "SymInt?", "int?", "float?", "bool?"})
_BLOCK = re.compile(r"(TORCH_LIBRARY|PYBIND11_MODULE)\w*")


def of(kernel: tiers.Kernel) -> str:
    """The sentence on a kernel, with the seconds measured on this machine; "" for one that is raw or in Python."""
    if not isinstance(kernel, tiers.Kernel) or kernel.tier not in FASTER:
        return ""
    return sentence(kernel.tier, tiers.full_only(kernel.source), kernel.schema, edit_times.typical())


def sentence(tier: str, reasons: Sequence[str], schema: Schema, seconds: Mapping[str, float]) -> str:
    """One sentence for the card and the cell's line; "" for the fastest tier.

    >>> sentence("full", ["torch::Tensor"], schema, {"full": 2.6, "host": 0.7})
    '`torch::Tensor` in the signature: 2.6 s an edit; `Tensor` would be about 0.7 s'

    `reasons` is what in the text only this tier can build, `seconds` the typical edit of the tiers measured here.
    """
    if tier not in FASTER:
        return ""
    why, instead = _full(reasons) if tier == "full" else _host(schema)
    mine, other = seconds.get(tier, 0.0), seconds.get(FASTER[tier], 0.0)
    said = why + (f": {words.duration(mine)} an edit" if mine else "")
    if not instead or (mine and other >= mine):
        return said if mine else ""
    each = "" if mine else " an edit"
    return f"{said}; {instead} would be " + (f"about {words.duration(other)}{each}" if other else "faster")


def _full(reasons: Sequence[str]) -> tuple[str, str]:
    named = [r for r in reasons if not r.startswith("<")]
    blocks = list(dict.fromkeys(m[1] for r in named if (m := _BLOCK.fullmatch(r))))
    others = [r for r in named if r not in TYPES and not _BLOCK.fullmatch(r)]
    if others:
        named = [*others, *blocks, *(r for r in named if r in TYPES)]
        return f"{_listed(named)} in the text", "`Tensor` with the stable ABI alone"
    if blocks:
        return f"a {_listed(blocks)} block", "a function on `Tensor` without it"
    if named:
        return f"{_listed(named)} in the signature", "`Tensor`"
    return f"{_listed(reasons)} in the text" if reasons else "this text", "`Tensor` without it"


def _host(schema: Schema) -> tuple[str, str]:
    others = [a.type for a in schema.arguments if a.type not in RAW_TYPES]
    others += [t for t in schema.output_types if t != "Tensor"]
    if others:
        return f"`{others[0]}` needs the host tier", ""
    return "`Tensor` in the signature", "pointers with directives"


def _listed(names: Sequence[str], most: int = 2) -> str:
    shown = [f"`{n}`" for n in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most} more"
    return " and ".join(shown)
