"""C++ of every tier once more, for the reader: the same text and flags, with line numbers and the optimiser's remarks.

Line numbers (-g1; DWARF 4, since objdump 2.40 mistakes the files of 5 for text from standard input) change no
instruction. The listing is kept in the store like every build.
"""

from __future__ import annotations

import platform
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from ..build import cache, cpp, diagnostics, flags, headers, process, store
from ..build.result import Build, Made
from ..reports.inspection import Entry, Finding, FunctionRow, Inspection, Stage, numbered
from ..toolchain import Compiler
from . import assembly, remarks, tools

LAYOUT = "inspect-2"
LIMIT_S = 600.0
# Thunks and wrappers of ours, and what macros of torch and pybind11 make.
GENERATED = re.compile(r"(?:^|\d)(?:wb_|TORCH_LIBRARY_|pybind11_init|PyInit_|_GLOBAL__sub_I)")
SHOWN_REMARKS = 400
IN_ORDER = "; but its sum is added in order, one number after the other: `-ffast-math` lets it add whole vectors"


def stages(unit: cpp.Unit, source_file: str) -> dict:
    """What the compiler makes of one text: rows, stages and findings, as fields of an `Inspection`.

    BuildError where it does not compile (any more), ToolchainError without a compiler or objdump.
    """
    listed = listing(unit)
    file = str(unit.lines.labels.index(source_file)) if source_file in unit.lines.labels else source_file
    found = list(assembly.user_functions(assembly.functions(_text(listed)), file, GENERATED))
    said = remarks.parse(listed.log, file)
    loops = [(f, loop) for f in found for loop in assembly.loops(f, file)]
    entries = [e for f in found for e in (Entry(f"{_plain_name(f)}:"), *assembly.entries(f, file), Entry(""))][:-1]
    return {
        "toolchain": _toolchain(unit),
        "target": platform.machine(),
        "rows": tuple(_row(f, [loop for g, loop in loops if g is f]) for f in found if not f.is_cold),
        "stages": (_remarks(said), Stage("assembly", tuple(entries), _counts(found))),
        "findings": tuple(_findings(said, [loop for _, loop in loops], unit)),
        "seconds": listed.seconds,
    }


def _text(listed: Build) -> str:
    with open(listed.path, encoding="utf-8", errors="replace") as file:
        return file.read()


def listing(unit: cpp.Unit) -> Build:
    """The text compiled with line numbers and taken apart again; `.path` is objdump's listing, `.log` the remarks.

    The user's files are numbers in it, since another cell with the same text shares it.
    """
    program = tools.find("objdump")
    key = store.key({"layout": LAYOUT, "build": unit.key, "system": platform.machine()})
    return cache.build(key, lambda folder: _make(unit, program, folder))


def _make(unit: cpp.Unit, program: str, folder: Path) -> Made:
    began, made = time.perf_counter(), str(folder / "object.o")
    done = _run(unit, command(unit, made), str(folder), unit.lines.unlabelled)
    if done.code:
        log = _labelled(done.log, unit.lines.labels)
        said = diagnostics.parse(log, unit.lines)
        raise diagnostics.error(said, log, otherwise=f"the compiler failed with exit status {done.code}")
    syntax = ["-M", "intel"] if platform.machine() in ("x86_64", "AMD64", "i686") else []
    shown = _run(unit, [program, "-d", "-r", "-l", "--inlines", "--no-show-raw-insn", *syntax, made], str(folder), "")
    if shown.code:
        raise tools.failed("objdump", shown.log)
    (folder / "listing.txt").write_text(shown.log, encoding="utf-8")
    return Made("listing.txt", "inspect", time.perf_counter() - began, log=done.log, toolchain=str(unit.compiler))


def _run(unit: cpp.Unit, words: Sequence[str], folder: str, text: str) -> process.Finished:
    return process.run(words, text=text, cwd=unit.cwd or folder, temporary=folder, limit_s=LIMIT_S)


def command(unit: cpp.Unit, output: str) -> list[str]:
    """The compiler run of `unit` again: to an object, with line numbers and remarks on standard error."""
    return [
        *unit.compiler.command,
        *flags.compiling(unit.compiler, unit.kind, unit.flags),
        "-gdwarf-4", "-g1", *remarks_flags(unit.compiler),
        *(word for folder in (headers.FOLDER, *unit.folders) for word in ("-iquote", folder)),
        "-c", "-o", output, "-x", "c++", "-",
    ]  # fmt: skip


def remarks_flags(compiler: Compiler) -> tuple[str, ...]:
    """The flags that make a compiler say which loops it vectorized, and why it did not."""
    if compiler.family == "clang":
        return tuple(f"-Rpass{kind}=(loop|slp)-vectorize" for kind in ("", "-missed", "-analysis"))
    return ("-fopt-info-vec-optimized-missed",)


def _labelled(log: str, labels: Sequence[str]) -> str:
    rows = (row.partition(":") for row in log.splitlines())
    known = {str(i): name for i, name in enumerate(labels)}
    return "\n".join(known.get(head, head) + colon + rest for head, colon, rest in rows)


def _toolchain(unit: cpp.Unit) -> str:
    """The compiler, and the flags that decide what becomes of a loop."""
    all_flags = flags.compiling(unit.compiler, unit.kind, unit.flags)
    level = [f for f in all_flags if f.startswith("-O")][-1:]
    rest = [f for f in unit.flags if f.startswith(("-m", "-f")) and not f.startswith(("-fdiag", "-ftab"))]
    return f"{unit.compiler.family} {unit.compiler.major} {' '.join(map(shlex.quote, [*level, *dict.fromkeys(rest)]))}"


def _plain_name(f: assembly.Function) -> str:
    """The user's name; a template is inlined into the thunk that calls it, and then bears that one's symbol."""
    name = f.symbol.removeprefix("wb_call_") if f.symbol.startswith("wb_call_") else f.name
    return f"{name.partition('.')[0]}, the part that is rarely run" if f.is_cold else name


def _row(f: assembly.Function, loops: Sequence[assembly.Loop]) -> FunctionRow:
    width = max((loop.vector_bytes for loop in loops), default=0)
    vectorized = sum(1 for loop in loops if loop.vector_bytes)
    return FunctionRow(_plain_name(f), len(f.instructions), width, len(loops), vectorized)


def _counts(found: Sequence[assembly.Function]) -> tuple[tuple[str, int], ...]:
    texts = [i.text for f in found for i in f.instructions]
    counted = {
        "instructions on vectors of 64 bytes": sum(assembly.vector_bytes(t) == 64 for t in texts),
        "instructions on vectors of 32 bytes": sum(assembly.vector_bytes(t) == 32 for t in texts),
        "instructions on vectors of 16 bytes": sum(assembly.vector_bytes(t) == 16 for t in texts),
        "calls": sum(t.startswith(("call ", "bl ")) for t in texts),
        "divisions and roots": sum(any(w in t.split()[0] for w in ("div", "sqrt")) for t in texts),
    }
    return tuple((name, n) for name, n in counted.items() if n)


def _remarks(said: Sequence[remarks.Remark]) -> Stage:
    return Stage("remarks", tuple(Entry(f"{r.line}:{r.column} {r.kind}: {r.text}", r.line)
                                  for r in said[:SHOWN_REMARKS]))  # fmt: skip


def _findings(said: Sequence[remarks.Remark], loops: Sequence[assembly.Loop], unit: cpp.Unit) -> list[Finding]:
    """One for each source line with a loop: what the remarks say of it, and what its instructions show."""
    made = []
    for line, (kind, why) in remarks.loops(said).items():
        mine = [loop for loop in loops if loop.line == line and loop.computes]
        if kind == "vectorized":
            in_order = any(loop.in_order for loop in mine)
            made.append(Finding(line, f"loop vectorized: {why}" + (IN_ORDER if in_order else "")))
        elif mine and not any(loop.vector_bytes for loop in mine):  # else around others, or written with vectors
            made.append(Finding(line, f"loop not vectorized{f': {why}' if why else _cure(unit)}"))
    told = {f.line for f in made}
    # Where vectorizing was not even tried there are no remarks; then there is no loop on vectors, either.
    plain = {loop.line for loop in loops if loop.computes and not loop.vector_bytes and loop.line} - told
    if not any(loop.vector_bytes for loop in loops):
        made += [Finding(line, f"loop not vectorized{_cure(unit)}") for line in sorted(plain)]
    return made


def _cure(unit: cpp.Unit) -> str:
    levels = [f for f in flags.compiling(unit.compiler, unit.kind, unit.flags) if f.startswith("-O")]
    if levels and levels[-1] in ("-O0", "-O1", "-O2", "-Os"):
        return f" at {levels[-1]}; `//! flags -O3` lets the compiler try harder"
    return ""


__all__ = ["Inspection", "command", "listing", "numbered", "stages"]
