"""CUDA kernels for the reader: PTX and SASS by source line, and what each of them takes.

Raw cells, and the device half of host cells, are compiled once more with line numbers, which changes no instruction.
What nvcc compiled as a whole is taken out of its shared object as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..build import cuda_body, host_cuda, nvrtc, nvrtc_library, process, symbols
from ..build.body_parts import line_directive
from ..build.cuda_split import Halves
from ..build.resources import Resources
from ..errors import SchemaError
from ..reports.inspection import Entry, Stage
from ..tiers import Kernel
from ..tiers.host_cuda import HostCudaKernel
from ..tiers.raw_cuda import RawCudaKernel
from . import demangle, gpu, ptx, tools
from .geometry import USUAL, Geometry, geometries

ASSUMED = Geometry(USUAL, 0, f"occupancy for blocks of {USUAL} threads, which is assumed: the host code chooses them")
NO_LINES = "nvcc compiled the whole cell without line numbers: `//! flags -lineinfo` adds them"


def stages(op, kernel: Kernel, dtypes: Mapping[str, torch.dtype | None]) -> dict:
    """What the compiler makes of these dtypes: rows, stages and findings, as fields of an `Inspection`.

    SchemaError where there is no form for them, BuildError, ToolchainError without NVRTC or nvdisasm.
    """
    began = time.perf_counter()
    if isinstance(kernel, RawCudaKernel):
        made = _raw(op, kernel, dtypes)
    elif isinstance(kernel, HostCudaKernel) and kernel.built and kernel.built.device:
        made = _device_half(kernel)
    else:
        made = _whole(kernel)
    return {**made, "seconds": time.perf_counter() - began}


def _raw(op, kernel: RawCudaKernel, dtypes: Mapping[str, torch.dtype | None]) -> dict:
    body = cuda_body.instantiate(kernel.source, kernel.declaration, dtypes)
    launched = geometries(op, kernel.declaration)
    return _compiled(kernel, body.text, body.names, kernel.declaration.flags_for({}), launched)


def _device_half(kernel: HostCudaKernel) -> dict:
    parts, built = kernel.parts, kernel.built
    assert built is not None
    assert isinstance(parts, Halves)
    text = "\n".join(f"{line_directive(p.line, p.file)}\n{p.text}" for p in parts.device)
    names = tuple(symbols.expressions(symbols.exported(built.host.path), parts.kernels).values())
    flags = host_cuda.parted(kernel.declaration.flags)[1]
    return _compiled(kernel, host_cuda.for_nvrtc(f"{text}\n", names), names, flags, [ASSUMED] * len(names))


def _compiled(kernel: Any, text: str, names: Sequence[str], flags: Sequence[str], launched: Sequence[Geometry]) -> dict:
    """One run of NVRTC for the cubin, one for the PTX, the second beside nvdisasm, which takes most of the time."""
    source = kernel.source
    includes = [source.path] if source.path else []
    given: dict[str, Any] = {"arch": kernel.arch, "names": tuple(names), "flags": flags, "file": source.file,
                             "includes": includes, "line_info": True}  # fmt: skip
    built = nvrtc.compile(text, **given)
    with ThreadPoolExecutor(1) as pool:
        virtual = pool.submit(nvrtc.ptx, text, **given)
        machine = gpu.disassembled(built.path, source.file)
        told = _told(kernel.arch, built.names, built.resources, launched, machine)
        shown = ptx.parse(virtual.result(), source.file)
    return {
        **told,
        "stages": (Stage("ptx", shown), *told["stages"]),
        "toolchain": "NVRTC {}.{}".format(*nvrtc_library.version()),
        "notes": (built.note,) if built.note else (),
    }


def _told(
    arch: str, names: Sequence[str], taken: Sequence[Resources], launched: Sequence[Geometry],
    machine: Mapping[str, tuple[Entry, ...]],
) -> dict:  # fmt: skip
    rows = zip(names, taken, launched, strict=True)
    return gpu.told([gpu.Compiled(demangle.short(s), r, g, machine.get(s, ())) for s, r, g in rows], arch)


def _whole(kernel: Any) -> dict:
    """The kernels in a shared object that nvcc made, of the host tier or of the full one."""
    built = kernel._built
    machine: dict[str, tuple[Entry, ...]] = {}
    for cubin in embedded(built.path):
        machine |= gpu.disassembled(cubin, kernel.source.file)
    if not machine:
        raise SchemaError(f"{kernel.source.file} has no kernel of its own to look at: it calls those of libraries")
    taken = {**{r.kernel: r for r in built.resources}, **dict(zip(built.names, built.resources, strict=False))}
    known = {s: r for s in machine if (r := taken.get(s) or taken.get(demangle.short(s)))}
    told = _told(kernel.arch, list(known), list(known.values()), [ASSUMED] * len(known), machine)
    lines = any(e.line for entries in machine.values() for e in entries)
    return {**told, "toolchain": "nvcc", "notes": () if lines else (NO_LINES,)}


def embedded(path: str) -> list[bytes]:
    """The cubins in a shared object, none where there is no device code. ToolchainError without cuobjdump."""
    program = tools.find("cuobjdump")
    with TemporaryDirectory(prefix="workbench-") as folder:
        done = process.run([program, "-xelf", "all", path], cwd=folder, temporary=folder, limit_s=gpu.LIMIT_S)
        if "does not contain device code" in done.log:
            return []
        if done.code:
            raise tools.failed("cuobjdump", done.log)
        return [p.read_bytes() for p in sorted(Path(folder).glob("*.cubin"))]
