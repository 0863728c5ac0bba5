"""A Triton kernel for the reader: TTIR, TTGIR, LLVM IR, PTX and SASS by source line, and what each kernel takes.

Triton has compiled them already; nothing is compiled here.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ..errors import SchemaError
from ..reports.inspection import Stage, headed
from ..tiers.triton import TritonKernel
from . import gpu, llvm_ir, mlir, ptx
from .geometry import Geometry

PARSERS = {"ttir": mlir.parse, "ttgir": mlir.parse, "llir": llvm_ir.parse, "ptx": ptx.parse}
CELL = re.compile(r"<[^/]*, [0-9a-f]{8}>$")  # how `build.triton_module` names the file of a cell
WARPS = 4  # Triton's own default
POINTERS = {
    torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5", torch.int8: "i8", torch.int16: "i16",
    torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "i1",
}  # fmt: skip
SPELLED = {word: str(dtype).removeprefix("torch.") for dtype, word in POINTERS.items()}


def stages(kernel: TritonKernel, wanted: torch.dtype | None) -> dict:
    """What Triton made for one choice of dtypes: rows, stages and findings, as fields of an `Inspection`.

    SchemaError where nothing was compiled, or not for that dtype; ToolchainError without nvdisasm.
    """
    began = time.perf_counter()
    chosen, others, notes = choose(kernel.compiled(), wanted, kernel.note)
    files = [_file(c, kernel.source.file) for c in chosen]
    with ThreadPoolExecutor(2) as pool:
        machine = list(pool.map(_machine, chosen, files))
    compiled = [gpu.Compiled(c.name, c.resources, _geometry(c), m) for c, m in zip(chosen, machine, strict=True)]
    told = gpu.told(compiled, kernel.compiled_for, gpu.TRITON)
    pairs = list(zip(chosen, files, strict=True))
    made = tuple(
        Stage(name, headed([(c.name, parse(c.asm[name], f)) for c, f in pairs if name in c.asm], "//"))
        for name, parse in PARSERS.items()
    )
    return {
        **told, "stages": (*made, *told["stages"]), "toolchain": _version(), "dtype": _dtypes(chosen[0]),
        "others": others, "notes": notes, "seconds": time.perf_counter() - began,
    }  # fmt: skip


def choose(
    compiled: Sequence[Any], wanted: torch.dtype | None, note: str = ""
) -> tuple[list[Any], tuple[str, ...], tuple[str, ...]]:
    """One specialisation of each kernel that has pointers to `wanted` (float32, or what there is), the other dtypes,
    and notes on specialisations that are not shown.
    """
    if not compiled:
        why = f": {note}" if note else ""
        raise SchemaError(f"no kernel of the cell has been compiled{why}; give the op a case, or call it once on a GPU")
    types = [_dtypes(c).split(", ") for c in compiled]
    leading = list(dict.fromkeys(found[0] for found in types))
    of_kernel: dict[str, set[str]] = defaultdict(set)
    for c, found in zip(compiled, types, strict=True):
        of_kernel[c.name].add(found[0])
    varies = {t for kinds in of_kernel.values() if len(kinds) > 1 for t in kinds if t}
    choices = [t for t in leading if t in varies] or leading[:1]  # of a kernel on workspace alone there is none
    name = _named(choices, dict.fromkeys(t for found in types for t in found), wanted)
    chosen: dict[str, Any] = {}
    fit: dict[str, int] = {}
    count: Counter[str] = Counter()
    for c, found in zip(compiled, types, strict=True):
        rank = 2 if found[0] == name else 1 if name in found else 0
        count[c.name] += rank == 2
        # A kernel whose pointers are of another type all the same belongs to each choice.
        if rank > fit.get(c.name, -1):
            chosen[c.name], fit[c.name] = c, rank
    notes = [f"{c.name} is shown as compiled for {c.signature}" for c in chosen.values()]
    notes += [f"{k} was compiled in {n} forms, for other sizes too" for k, n in count.items() if n > 1]
    return list(chosen.values()), tuple(t for t in choices if t != name), tuple(notes)


def _named(choices: Sequence[str], known: Collection[str], wanted: torch.dtype | None) -> str:
    if wanted is None:
        return "float32" if "float32" in choices else choices[0]
    spelled = str(wanted).removeprefix("torch.")
    if spelled in known:
        return spelled
    there = ", ".join(filter(None, known))
    raise SchemaError(f"no kernel of the cell has been compiled for {spelled}; there are {there}, those of its cases")


def _dtypes(c: Any) -> str:
    """The element types of a specialisation's pointers and descriptors, each once: "bfloat16", "bfloat16, float32"."""
    words = [part.partition(": *")[2].partition("[")[0].strip() for part in c.signature.split(", ") if ": *" in part]
    return ", ".join(dict.fromkeys(SPELLED.get(w, w) for w in words))


def _file(c: Any, label: str) -> str:
    """The name by which Triton knows the cell. A kernel from its cache bears the name of the run that compiled it: of
    the same text, on the same lines.
    """
    from ..build.triton_module import label as label_of

    named = ptx.files(c.asm.get("ptx", ""))
    own = (path for path in named if label_of(path) == label)
    return next(own, next((path for path in named if CELL.search(path)), label))


def _machine(c: Any, file: str) -> tuple:
    lines = ptx.places(c.asm["ptx"], file)
    return gpu.disassembled(bytes(c.asm["cubin"]), file, lines).get(_symbol(c), ())


def _symbol(c: Any) -> str:
    return ptx.entry(c.asm["ptx"]) or c.name


def _geometry(c: Any) -> Geometry:
    """Shared memory is what Triton asks for at the launch; the block is in the PTX."""
    threads = ptx.threads(c.asm["ptx"])
    assumed = "" if threads else f"{c.name}: a block of {WARPS} warps is assumed"
    return Geometry(threads or 32 * WARPS, 0, assumed)


def _version() -> str:
    import triton

    return f"Triton {triton.__version__}"
