"""The architecture that CUDA code is compiled for: what its flags name, what its text needs, which GPU is here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .. import gpu
from ..source import C_TOKENS
from . import flags as arguments
from . import includes, nvcc_flags

_NUMBER = re.compile(r"(?P<kind>sm|compute)_(?P<number>\d+[af]?)")
_CODES = frozenset({"-code", "--gpu-code", "-gpu-code"})
_FLAGS = frozenset({"-arch", "--arch", "--gpu-architecture", "-gpu-architecture", "-gencode", "--generate-code",
                    "-generate-code", *_CODES})  # fmt: skip
_ANY = frozenset({"native", "all", "all-major"})  # nvcc's, for the GPU at hand
# Instructions that exist for one generation alone, and headers that use them.
_OWN_INSTRUCTIONS = re.compile(
    r"\b(?:wgmma|setmaxnreg|tcgen05|cp\.async\.bulk|tensormap)\b|\bcuda::ptx\b|\bcute::|\bcutlass/"
)
_WITH_OWN = {90, 100, 101, 103, 110, 120, 121}


def architecture(arch: str, flags: Sequence[str], texts: Sequence[str], here: str | None = None) -> tuple[str, str]:
    """(the architecture to compile for, why it is not `arch`): what the flags name, or what the texts need.

    >>> architecture("sm_90", (), ['asm("setmaxnreg.inc.sync.aligned.u32 240;");'])
    ('sm_90a', 'setmaxnreg')
    >>> architecture("sm_90", ("-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_100,code=sm_100"), ())
    ('sm_90', '')

    One cubin is made: of several architectures in the flags the newest that the GPU `here` runs (None: `arch`), and the
    newest of all where it runs none of them, or "" says that nothing is known of it.
    """
    named = listed(flags)
    if named:
        wanted = arch if here is None else here
        chosen = max([n for n in named if wanted and runs(wanted, n)] or named, key=_age)
        return chosen, "" if chosen == arch else "flags"
    if arch[-1:].isdigit() and int(arch.removeprefix("sm_") or 0) in _WITH_OWN:
        found = next(filter(None, (_OWN_INSTRUCTIONS.search(_uncommented(t)) for t in texts)), None)
        if found:
            return f"{arch}a", found[0].rstrip(":/")
    return arch, ""


def chosen(flags: Sequence[str], texts: Sequence[str]) -> tuple[str, str]:
    """`architecture` on this machine. ToolchainError where WORKBENCH_ARCH is none."""
    return architecture(gpu.target().arch, flags, texts, gpu.wanted() if len(listed(flags)) > 1 else None)


def texts(text: str, path: str = "", flags: Sequence[str] = ()) -> tuple[str, ...]:
    """A cell's text and those of the user's headers that it includes; `path` is the folder that these lie in."""
    folders = [*([path] if path else []), *arguments.folders(flags, path, ("-I", "--include-path="))]
    found = includes.digests(text, folders, folders)
    return (text, *(Path(h).read_text("utf-8", errors="replace") for h in found))


def runs(here: str, arch: str) -> bool:
    """Does a GPU of the architecture `here` run code for `arch`? That for sm_80 runs on sm_86, for sm_90a there alone.

    >>> runs("sm_86", "sm_80"), runs("sm_90", "sm_90a"), runs("sm_103", "sm_100a"), runs("sm_103", "sm_100f")
    (True, True, False, True)

    What is no architecture is not held against it: True.
    """
    of, mine = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch), re.fullmatch(r"sm_(\d+)(\d)[af]?", here)
    if of is None or mine is None or of[1] != mine[1]:
        return of is None
    return of[2] == mine[2] if of[3] == "a" else int(of[2]) <= int(mine[2])


def listed(flags: Sequence[str]) -> tuple[str, ...]:
    """The architectures that flags of nvcc name, each once.

    >>> listed(("-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=[sm_90a,compute_90a]"))
    ('sm_80', 'sm_90a')
    """
    archs: list[str] = []
    codes: list[str] = []
    for name, _, value in (word.partition("=") for word in nvcc_flags.units(flags)):
        if name in _FLAGS:
            found = [(m["kind"], f"sm_{m['number']}") for m in _NUMBER.finditer(value)]
            real = [arch for kind, arch in found if kind == "sm"]
            (codes if name in _CODES else archs).extend(real or [arch for _, arch in found])
    return tuple(dict.fromkeys(codes or archs))


def without(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags without those that name architectures.

    >>> without(("-O3", "-gencode", "arch=compute_80,code=sm_80", "-lineinfo"))
    ('-O3', '-lineinfo')
    """
    return tuple(word for word in nvcc_flags.units(flags) if word.partition("=")[0] not in _FLAGS)


def naming(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags that name architectures, and no others."""
    return tuple(word for word in nvcc_flags.units(flags) if word.partition("=")[0] in _FLAGS)


def capability(arch: str) -> str:
    """As torch writes it: "9.0" for sm_90, "9.0a" for sm_90a, "12.0f" for sm_120f."""
    return re.sub(r"^sm_(\d+)(\d)", r"\1.\2", arch)


def gencode(arch: str) -> str:
    """The flag for one architecture and no other: `-gencode=arch=compute_90a,code=sm_90a`."""
    return f"-gencode=arch=compute_{arch.removeprefix('sm_')},code={arch}"


def exact(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags with a -gencode for each architecture that they name: nvcc 13 takes `-arch=sm_90a` for compute_90 too.

    >>> exact(("-arch=sm_90a", "-O3"))
    ('-O3', '-gencode=arch=compute_90a,code=sm_90a')
    """
    named = listed(flags)
    return (*without(flags), *map(gencode, named)) if named else tuple(flags)


def of_one_generation(arch: str) -> bool:
    """Is it one whose code runs on no later GPU: sm_90a, or sm_100f for a family?"""
    return arch.endswith(("a", "f"))


def strange(flags: Sequence[str]) -> str:
    """The flag that names an architecture which is none, "" where all do.

    >>> strange(("-O3", "-arch=hopper"))
    '-arch=hopper'
    """
    rest = iter(flags)
    for flag in rest:
        name, _, value = flag.partition("=")
        if name not in _FLAGS:
            continue
        value = value or next(rest, "")
        if not _NUMBER.search(value) and value not in _ANY:
            return f"{name}={value}" if "=" in flag else f"{name} {value}"
    return ""


def _age(arch: str) -> tuple[int, int]:
    """For the order of architectures: sm_90, sm_90f, sm_90a, sm_100. A suffix adds to what the number has."""
    return int(re.sub(r"\D", "", arch)), " fa".find(arch[-1])


def _uncommented(text: str) -> str:
    """Without comments: what they speak of is not needed. Strings stay, for inline assembly."""
    return C_TOKENS.sub(lambda token: token[0] if token["comment"] is None else " ", text)


__all__ = [
    "architecture",
    "capability",
    "chosen",
    "exact",
    "gencode",
    "listed",
    "naming",
    "of_one_generation",
    "runs",
    "strange",
    "texts",
    "without",
]
