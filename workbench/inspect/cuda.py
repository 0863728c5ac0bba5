"""A raw CUDA kernel for the reader: PTX and SASS by source line, and what each of its kernels takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from ..build import cuda_body, nvrtc, nvrtc_library
from ..inspection import Stage
from ..tiers.raw_cuda import RawCudaKernel
from . import demangle, gpu, ptx
from .geometry import USUAL, Geometry, geometries


def stages(op, kernel: RawCudaKernel, dtypes: Mapping[str, torch.dtype | None]) -> dict:
    """What NVRTC makes of these dtypes: rows, stages and findings, as fields of an `Inspection`.

    SchemaError where there is no form for them, BuildError, ToolchainError without NVRTC or nvdisasm.
    """
    began = time.perf_counter()
    source = kernel.source
    body = cuda_body.instantiate(source, kernel.declaration, dtypes)
    given: dict[str, Any] = {
        "arch": kernel.arch,
        "names": body.names,
        "flags": kernel.declaration.flags,
        "file": source.file,
        "includes": [source.path] if source.path else [],
        "line_info": True,
    }
    with ThreadPoolExecutor(1) as pool:
        virtual = pool.submit(nvrtc.ptx, body.text, **given)  # beside nvdisasm, which takes most of the time
        built = nvrtc.compile(body.text, **given)
        machine = gpu.disassembled(built.path, source.file)
        text = virtual.result()
    geometry = geometries(op, kernel.declaration)
    usual = Geometry(USUAL, -1, f"a block of {USUAL} threads is assumed")
    compiled = [
        gpu.Compiled(
            demangle.short(symbol), taken, geometry.get(name.partition("<")[0], usual), machine.get(symbol, ())
        )
        for symbol, name, taken in zip(built.names, body.names, built.resources, strict=True)
    ]
    told = gpu.told(compiled, kernel.arch)
    return {
        **told,
        "stages": (Stage("ptx", ptx.parse(text, source.file)), *told["stages"]),
        "toolchain": "NVRTC {}.{}".format(*nvrtc_library.version()),
        "seconds": time.perf_counter() - began,
        "notes": (built.note,) if built.note else (),
    }
