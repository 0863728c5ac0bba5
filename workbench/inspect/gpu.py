"""What GPU kernels take and do, in numbers and sentences: the same for CUDA and Triton, from SASS and resources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..build import cache, process, store
from ..build.resources import Resources
from ..build.result import Made
from ..reports.inspection import Entry, Finding, KernelRow, Stage, headed
from . import sass, tools
from .geometry import Geometry
from .occupancy import occupancy, registers_for

LAYOUT = "sass-3"
LIMIT_S = 60.0
# Most of nvdisasm's time is the making of its tables, 55 MB in small pieces: a tenth of it is saved by glibc asking for
# them at once, in large pages.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864"}
WIDTHS = (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1))
MEMORY = {"LDG": "global loads", "STG": "global stores", "LDS": "shared loads", "STS": "shared stores"}
# (what it is called, the opcodes): told where there are any.
KINDS = (
    ("tensor core operations", ("HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "BMMA", "HGMMA", "IGMMA", "QGMMA", "BGMMA",
                                "UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA", "UTCMMA")),
    ("FMA", ("FFMA", "FFMA2", "HFMA2", "DFMA")),
    ("special functions", ("MUFU",)),
    ("double-precision operations", ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX")),
    ("asynchronous copies", ("LDGSTS", "UBLKCP", "UTMALDG", "UTMASTG", "UTMAREDG")),
    ("matrix loads from shared memory", ("LDSM", "LDTM")),
    ("shuffles", ("SHFL", "REDUX")),
    ("atomics", ("ATOM", "ATOMG", "ATOMS", "RED", "REDG")),
    ("barriers", ("BAR", "UCGABAR_WAIT", "SYNCS", "WARPSYNC")),
    ("local loads", ("LDL",)),
    ("local stores", ("STL",)),
)  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """One kernel as it was compiled: what it takes, how it is launched, and its SASS."""

    name: str
    resources: Resources
    geometry: Geometry
    machine: tuple[Entry, ...]


@dataclass(frozen=True)
class Cures:
    """What to do in a language of kernels: for wide loads, and for fewer registers."""

    wide: str
    fewer: str


CUDA = Cures(
    wide="where a thread reads neighbours, a load can bring 16 (`float4`)",
    fewer="`__launch_bounds__`, `-maxrregcount`",
)
TRITON = Cures(
    wide="where neighbours are read Triton loads 16, once it knows strides and the sizes in masks to be multiples of "
    "16 (a case with such sizes, `tl.multiple_of`)",
    fewer="`maxnreg` at the launch, more `num_warps`, smaller blocks",
)


def told(kernels: Sequence[Compiled], arch: str, cures: Cures = CUDA) -> dict:
    """Rows, findings and the stage "sass" of some kernels, as fields of an `Inspection`."""
    number, alone = int(re.sub(r"\D", "", arch)), len(kernels) == 1
    rows = tuple(row(k, number) for k in kernels)
    pairs = zip(rows, kernels, strict=True)
    found = [f for made, k in pairs for f in findings(made, number, k.machine, alone=alone, cures=cures)]
    machine = headed([(k.name, k.machine) for k in kernels], "//")
    stage = Stage("sass", machine, counts(e for k in kernels for e in k.machine))
    return {"target": arch, "rows": rows, "findings": tuple(sorted(found, key=lambda f: not f.bad)), "stages": (stage,)}


def disassembled(cubin: bytes | str, file: str, ptx: Sequence[tuple[int, ...]] = ()) -> dict[str, tuple[Entry, ...]]:
    """The SASS of each kernel of a cubin (its bytes or its path), by symbol; kept in the store.

    `file` is the user's, `ptx` the source lines of each line of the PTX, where these tell more.

    ToolchainError where nvdisasm is missing or does not know this cubin.
    """
    image = Path(cubin).read_bytes() if isinstance(cubin, str) else cubin
    program = tools.find("nvdisasm")
    # Where the lines of the PTX are named too, those of the source are not told anew at each instruction.
    lines = ("-gi", "-gp") if ptx else ("-gi",)
    key = store.key({"layout": LAYOUT, "image": image, "program": tools.identity(program), "lines": lines})
    listed = cache.build(key, lambda folder: _listed([program, "-c", *lines, "-ndf"], image, folder))
    return sass.parse(Path(listed.path).read_text("utf-8", errors="replace"), file, ptx)


def _listed(command: Sequence[str], image: bytes, folder: Path) -> Made:
    """What nvdisasm writes. Without its data flow analysis (-ndf) it takes two thirds of the time."""
    (folder / "kernel.cubin").write_bytes(image)
    done = process.run(
        [*command, str(folder / "kernel.cubin")], cwd=str(folder), temporary=str(folder), limit_s=LIMIT_S,
        variables=LARGE_PAGES,
    )  # fmt: skip
    if done.code:
        raise tools.failed("nvdisasm", done.log)
    (folder / "listing.txt").write_text(done.log, encoding="utf-8")
    return Made("listing.txt", "inspect", done.seconds)


def width(operation: str) -> int:
    """The bytes a thread that a load or store moves: 16 for LDG.E.128, 4 for LDG.E."""
    return next((bytes_ for word, bytes_ in WIDTHS if f".{word}" in operation), 4)


def counts(entries: Iterable[Entry]) -> tuple[tuple[str, int], ...]:
    """Instructions by what they do, in the order in which one would ask.

    >>> counts(entries)
    (('global loads of 16 bytes', 4), ('FMA', 16), ('barriers', 1))
    """
    operations = Counter(sass.operation(e.text) for e in entries if not e.text.endswith(":"))
    moved: Counter[tuple[str, int]] = Counter()
    for operation, n in operations.items():
        name = MEMORY.get(operation.split(".")[0])
        if name:
            moved[name, width(operation)] += n
    order = list(MEMORY.values())
    made = [
        (f"{name} of {size} byte{'s' if size > 1 else ''}", n)
        for (name, size), n in sorted(moved.items(), key=lambda m: (order.index(m[0][0]), -m[0][1]))
    ]
    by_opcode: Counter[str] = Counter()
    for operation, n in operations.items():
        if not operation.startswith("HFMA2.MMA"):  # that one only puts a constant into a register
            by_opcode[operation.split(".")[0]] += n
    made += [(name, n) for name, opcodes in KINDS if (n := sum(by_opcode[o] for o in opcodes))]
    return tuple(made)


def row(kernel: Compiled, arch: int) -> KernelRow:
    """One kernel's numbers, with its estimated occupancy."""
    taken, geometry = kernel.resources, kernel.geometry
    shared = taken.shared + max(geometry.shared, 0)
    found = occupancy(arch, threads=geometry.threads, registers=taken.registers, shared=shared)
    share, limiter, blocks = (found.share, found.limiter, found.blocks) if found else (0.0, "not known here", 0)
    return KernelRow(
        kernel.name, taken.registers, taken.spills, taken.stack, taken.shared, geometry.shared, geometry.threads,
        share, limiter, blocks, geometry.assumed, sum(1 for e in kernel.machine if not e.text.endswith(":")),
    )  # fmt: skip


def findings(
    made: KernelRow, arch: int, entries: Sequence[Entry], *, alone: bool, cures: Cures = CUDA
) -> list[Finding]:
    """What is worth knowing of one kernel: spills, narrow loads, what fewer registers would change.

    `alone`: it is the only one, so its name need not be said.
    """
    told = [*_local(made, entries), *_narrow(entries, cures.wide)]
    if 0 < made.occupancy < 0.5 and made.limiter.startswith("registers"):
        fewer = registers_for(arch, made.threads, 0.5)
        told.append(Finding(0, f"with {fewer} registers a thread ({cures.fewer}) half of the warps would fit"))
    name = made.kernel.partition("<")[0]
    return told if alone else [replace(f, text=f"{name}: {f.text}") for f in told]


def _local(made: KernelRow, entries: Sequence[Entry]) -> list[Finding]:
    """Registers that went to memory, or arrays that never were in any."""
    moves = Counter(e.line for e in entries if sass.operation(e.text).split(".")[0] in ("LDL", "STL") and e.line)
    line = max(moves, key=lambda n: (moves[n], -n), default=0)
    if made.spills:
        said = f"spills {made.spills} bytes a thread: there were not enough registers, so they go to memory and back"
        return [Finding(line, said, bad=True)]
    if made.stack and moves:
        said = f"keeps {made.stack} bytes a thread in local memory, which is slow: an array that is indexed at run time"
        return [Finding(line, said, bad=True)]
    return []


def _narrow(entries: Sequence[Entry], wide: str) -> list[Finding]:
    """Several global loads of one line, all of at most 4 bytes: neighbours that one wide load could bring."""
    loads = [(e.line, width(sass.operation(e.text))) for e in entries if re.match(r"\s*(?:@\S+\s+)?LDG\b", e.text)]
    if len(loads) < 4 or max(size for _, size in loads) > 4:
        return []
    line, count = Counter(n for n, _ in loads).most_common(1)[0]
    size = max(size for n, size in loads if n == line)
    many = f"all {count} global loads bring" if count == len(loads) else f"{count} global loads bring"
    each = f"{size} byte{'s' if size > 1 else ''} a thread each"
    return [Finding(line, f"{many} {each}; {wide}")]
