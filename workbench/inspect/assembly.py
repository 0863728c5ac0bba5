"""objdump's listing of an object with line numbers, as functions of instructions on the user's lines. Pure text.

Addresses become labels, constants and calls get their names from the relocations, and padding goes: what remains is
what one would want to read. Which functions are the user's is decided by where their own first line stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..reports.inspection import Entry
from . import demangle

FUNCTION = re.compile(r"^([0-9a-f]+) <(.+)>:$")
INLINED = re.compile(r"^inlined by (.+):(\d+) \(")
PLACE = re.compile(r"^(.+):(\d+)(?: \(discriminator \d+\))?$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(.+?)\s*$")
RELOCATION = re.compile(r"^\s+[0-9a-f]+: R_\w+\t(\S+)$")
TARGET = re.compile(r"^(\S+)\s+([0-9a-f]+) <(\S+?)(\+0x[0-9a-f]+)?>$")
ADDRESS = re.compile(r"\s+# [0-9a-f]+ <.*>$")
PADDING = re.compile(r"^(?:data16 |cs |xchg +ax,ax|nop\b)")
ALWAYS, JUMP = re.compile(r"^(?:jmp|b)\s"), re.compile(r"^(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s")


@dataclass(frozen=True)
class Instruction:
    """One machine instruction: its address, its text, and the places it came from, the innermost first."""

    address: int
    text: str
    places: tuple[tuple[str, int], ...]
    target: int = -1  # where it jumps to within the function

    def user_lines(self, file: str) -> tuple[int, ...]:
        return tuple(dict.fromkeys(n for f, n in self.places if n and is_file(f, file)))


@dataclass
class Function:
    symbol: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def name(self) -> str:
        return demangle.short(self.symbol)

    @property
    def is_cold(self) -> bool:
        """Is it what the compiler moved out of a function, since errors alone lead there?"""
        return self.symbol.endswith((".cold", ".cold.0"))

    def is_of(self, file: str) -> bool:
        """Does the function itself, not something inlined into it, stand in that file?"""
        own = [i.places[-1] for i in self.instructions if i.places]
        return bool(own) and is_file(own[0][0], file)


def is_file(path: str, name: str) -> bool:
    """`name` as a compiler gives it back, below the folder that it ran in."""
    return path == name or path.endswith(f"/{name}")


def functions(listing: str) -> list[Function]:
    """The functions of `objdump -d -r -l --inlines --no-show-raw-insn`."""
    found: list[Function] = []
    place: tuple[str, int] | None = None
    inlined: list[tuple[str, int]] = []
    for row in listing.splitlines():
        if row.startswith("inlined by") and (at := INLINED.match(row)):
            inlined.append((at[1], int(at[2])))
        elif (at := INSTRUCTION.match(row)) and found:
            found[-1].instructions.append(_instruction(at, found[-1].symbol, [*([place] if place else []), *inlined]))
            inlined = []
        elif (at := RELOCATION.match(row)) and found and found[-1].instructions:
            found[-1].instructions[-1] = _relocated(found[-1].instructions[-1], at[1])
        elif at := FUNCTION.match(row):
            found.append(Function(at[2]))
            place, inlined = None, []
        elif at := PLACE.match(row):
            place = at[1], int(at[2])
    return [f for f in found if f.instructions]


def _instruction(at: re.Match, symbol: str, places: Sequence[tuple[str, int]]) -> Instruction:
    text = ADDRESS.sub("", " ".join(at[2].split()) if "\t" in at[2] else re.sub(r"\s{2,}", " ", at[2]))
    jump = TARGET.match(text)
    target = -1
    if jump and jump[3] == symbol and JUMP.match(text):
        target = int(jump[2], 16)
    elif jump:
        text = f"{jump[1]} {demangle.demangle(jump[3])}"
    return Instruction(int(at[1], 16), text, tuple(places), target)


def _relocated(made: Instruction, name: str) -> Instruction:
    """The instruction with the name that the linker would put in: a function's, or that of a constant."""
    name = re.sub(r"[-+]0x[0-9a-f]+$", "", name)
    if re.match(r"^(?:call|jmp|bl?)\b", made.text):
        text = f"{made.text.split(maxsplit=1)[0]} {demangle.demangle(name)}"
        return Instruction(made.address, text, made.places)
    text = re.sub(r"\[rip\+0x[0-9a-f]+\]", f"[rip+{name}]", made.text)
    return Instruction(made.address, text, made.places, made.target)


def entries(function: Function, file: str) -> tuple[Entry, ...]:
    """The function as a stage shows it: labels where something jumps to, instructions with their source lines."""
    kept = _without_padding(function.instructions)
    targets = sorted({i.target for i in kept if i.target >= 0})
    labels = {t: f".L{n}" for n, t in enumerate(targets, 1)}
    made: list[Entry] = []
    for i in kept:
        lines = i.user_lines(file)
        line, callers = (lines[0], lines[1:]) if lines else (0, ())
        if i.address in labels:
            made.append(Entry(f"{labels[i.address]}:"))
        text = f"{i.text.split()[0]} {labels[i.target]}" if i.target in labels else i.text
        mnemonic, _, operands = text.partition(" ")
        made.append(Entry(f"    {mnemonic:<8} {operands.strip()}".rstrip(), line, callers))
    return tuple(made)


def _without_padding(given: Sequence[Instruction]) -> list[Instruction]:
    targets = {i.target for i in given}
    return [i for i in given if not PADDING.match(i.text) or i.address in targets]


@dataclass(frozen=True)
class Loop:
    """An innermost loop: the source line of its jump back, how many instructions, and what they compute on.

    `vector_bytes` is the width of the widest vector in it, 0 for scalars alone; `computes` says whether there is any
    arithmetic but that of addresses, `in_order` whether the elements of vectors are added one after the other.
    """

    line: int
    instructions: int
    vector_bytes: int
    computes: bool
    in_order: bool = False


def loops(function: Function, file: str) -> list[Loop]:
    """The innermost loops: what lies between a conditional jump back and its target, with no such pair inside."""
    made = _without_padding(function.instructions)
    spans = sorted({(i.target, i.address) for i in made if 0 <= i.target <= i.address and not ALWAYS.match(i.text)})
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    found = []
    for first, last in inner:
        body = [i for i in made if first <= i.address <= last]
        line = next(iter(body[-1].user_lines(file)), 0)
        width = max((vector_bytes(i.text) for i in body), default=0)
        # A sum in order takes each element out of its vector, and a scalar addition for it.
        adds = sum(1 for i in body if re.match(r"v?adds[sd]\b", i.text))
        apart = sum(1 for i in body if re.match(r"v?(?:shuf|unpck|extract|align|psrldq|perm|movhl)", i.text))
        in_order = width > 0 and adds >= width // 8 and apart >= width // 16
        found.append(Loop(line, len(body), width, any(_computes(i.text) for i in body), in_order))
    return found


# Arithmetic, comparisons and conversions on whole vectors, and moves of them between memory and registers; what
# compilers use vector registers for besides (zeroing, copies of a scalar) is not here.
_PACKED = re.compile(
    r"^v?(?:(?:add|sub|mul|div|sqrt|max|min|rcp|rsqrt|cmp\w*|blendv?|rndscale|round|fn?m(?:add|sub)\d*)p[sdh]"
    r"|cvt\w+2(?:p[sdh]|[u]?dq|qq|ne2ps2bf16)|p(?:add|sub|mul|madd|max|min|avg|abs|cmp|sll|srl|sra|sad|mov[sz]x)\w+"
    r"|mov(?:[aun]\w*p[sd]|dq[au]\d*|ntps)(?=\s.*\[))\b"
)
_SCALAR = re.compile(r"^v?(?:add|sub|mul|div|sqrt|max|min|fn?m(?:add|sub)\d*|cvt\w+2)s[sdh]\b")
_WIDTHS = (("zmm", 64), ("ymm", 32), ("xmm", 16))
_ARM_VECTOR = re.compile(r"\bv\d+\.\d+[bhsd]\b|\bz\d+\.[bhsd]\b|\bldp? q\d+")


def vector_bytes(text: str) -> int:
    """The width of the vectors that an instruction computes on, loads or stores; 0 for a scalar one.

    >>> vector_bytes("vfmadd231ps ymm1,ymm2,ymm3"), vector_bytes("addss xmm0,xmm1"), vector_bytes("add rax,1")
    (32, 0, 0)
    """
    if _PACKED.match(text):
        return next((width for name, width in _WIDTHS if name in text), 0)
    return 16 if _ARM_VECTOR.search(text) else 0  # scalable vectors have at least that


def _computes(text: str) -> bool:
    return bool(_SCALAR.match(text) or vector_bytes(text) or re.match(r"^f(?:add|sub|mul|div|madd|msub|sqrt)\b", text))


def user_functions(found: Sequence[Function], file: str, generated: re.Pattern) -> Iterator[Function]:
    """Those of the user, without `generated` ones that only call them; these are kept where there is nothing else,
    since then the function was inlined into them.
    """
    own = [f for f in found if f.is_of(file)]
    written = [f for f in own if not generated.search(f.symbol)]
    yield from written or own
