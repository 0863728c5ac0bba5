"""What the compilers made of a version: assembly and remarks of C++; PTX, SASS and resources of GPU code.

One module for each language, one for each kind of text; nothing here runs a kernel or needs a GPU.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..errors import SchemaError
from ..reports.inspection import Comparison, Entry, Finding, FunctionRow, Inspection, KernelRow, Stage
from ..tiers import Kernel
from ..tiers.triton import TritonKernel
from ..version import LANGUAGES, Version
from . import choose, cpp, cuda, triton, units


def inspect(
    op,
    version: int | Version | None = None,
    dtype: torch.dtype | str | None = None,
    slot: str = "forward",
    *,
    against: int | Version | None = None,
) -> Inspection | Comparison:
    """What the compiler made of a version; see `Op.inspect`."""
    found = _one(op, choose.version(op, version, slot), dtype)
    if against is None:
        return found
    return Comparison(found, _one(op, choose.version(op, against, slot), dtype))


def _one(op, version: Version, dtype: torch.dtype | str | None) -> Inspection:
    kernel = choose.kernel(op, version)
    dtypes, others = choose.dtypes(op, version, kernel, dtype)
    found = Inspection(
        op=op.qualname, version=version.number, slot=version.slot, device=version.device, how=version.how,
        dtype=choose.spelled(dtypes), target="", toolchain="", source=kernel.source, rows=(), stages=(), others=others,
        notes=(f"v{version.number} is not installed: it {version.refused}",) if version.refused else (),
    )  # fmt: skip
    made = triton.stages(kernel, choose.dtype(dtype)) if isinstance(kernel, TritonKernel) else _made(op, kernel, dtypes)
    return replace(found, **{**made, "notes": (*found.notes, *made.get("notes", ()))})


def _made(op, kernel: Kernel, dtypes: choose.Dtypes) -> dict:
    """The fields that depend on the language, from the module for it."""
    language = kernel.source.language
    if language == "cuda":
        return cuda.stages(op, kernel, dtypes)
    if language == "cpp":
        return cpp.stages(units.unit(kernel, dtypes), kernel.source.file)
    raise SchemaError(f"{LANGUAGES.get(language, language)} kernels of the {kernel.tier} tier cannot be inspected")


__all__ = ["Comparison", "Entry", "Finding", "FunctionRow", "Inspection", "KernelRow", "Stage", "inspect"]
