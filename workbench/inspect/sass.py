"""Machine code of a GPU kernel, as nvdisasm writes it: instructions on the user's lines. Pure text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..reports.inspection import Entry
from .assembly import is_file

FUNCTION = re.compile(r"^\.text\.(\S+):$")
LABEL = re.compile(r"^(\.L\w+):$")
PLACE = re.compile(r'^\s*//## File "(.*?)", line (\d+)')
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:(@!?U?P\w+)\s+)?(.*?)\s*;")
OF_PTX = ".nv_debug_ptx_txt"
TARGET = re.compile(r"`\((\.L\w+)\)")


def parse(listing: str, file: str, ptx: Sequence[tuple[int, ...]] = ()) -> dict[str, tuple[Entry, ...]]:
    """The instructions of each kernel by its symbol, from `nvdisasm -c -gi`.

    >>> parse(listing, "cell [3]")["_Z5scalePf"][0]
    Entry(text='         LDC R1, c[0x0][0x28]', line=4, callers=())

    Above an instruction stand the places that it came from, the innermost first, where they differ from those of the
    one before. `ptx` are the source lines of each line of the PTX: with `-gp` the listing names these lines, which know
    more where the PTX told of inlining in comments alone.
    """
    found: dict[str, list[Entry]] = {}
    now: list[Entry] = []
    chain: list[tuple[str, int]] = []
    opened = False
    for row in listing.splitlines():
        if place := PLACE.match(row):
            chain = [*(chain if opened else []), (place[1], int(place[2]))]
            opened = True
            continue
        opened = False
        if made := INSTRUCTION.match(row):
            now.append(_entry(made[1] or "", made[2], _lines(chain, file, ptx)))
        elif label := LABEL.match(row):
            now.append(Entry(f"{label[1]}:"))
        elif begun := FUNCTION.match(row):
            now, chain = found.setdefault(begun[1], []), []
    return {symbol: _trimmed(entries) for symbol, entries in found.items()}


def _lines(chain: Sequence[tuple[str, int]], file: str, ptx: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    told = next((ptx[n - 1] for f, n in chain if f == OF_PTX and n <= len(ptx)), ())
    return told or tuple(dict.fromkeys(n for f, n in chain if is_file(f, file)))


def _entry(predicate: str, text: str, lines: tuple[int, ...]) -> Entry:
    shown = TARGET.sub(r"\1", text)
    return Entry(f"{predicate:>6}  {shown}", lines[0] if lines else 0, lines[1:])


def _trimmed(entries: list[Entry]) -> tuple[Entry, ...]:
    """Without what fills the end: NOPs, the jump to itself before them and labels that nothing follows."""
    end = len(entries)
    while end and (entries[end - 1].text.strip() == "NOP" or entries[end - 1].text.endswith(":")):
        end -= 1
    if end > 1 and entries[end - 2].text == f"{entries[end - 1].text.split()[-1]}:":
        end -= 2
    named = {word for e in entries[:end] for word in re.findall(r"\.L\w+(?!:)\b", e.text) if not e.text.endswith(":")}
    return tuple(e for e in entries[:end] if not e.text.endswith(":") or e.text[:-1] in named)


def operation(text: str) -> str:
    """The opcode with its modifiers, without a predicate: `LDG.E.128.CONSTANT`."""
    words = text.split()
    return next((w for w in words if not w.startswith("@")), "")
