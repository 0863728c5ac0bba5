"""What all host halves of CUDA cells have in common, compiled once and linked to each: see `wb_host_cuda_parts.h`."""

from __future__ import annotations

import time
from pathlib import Path

from .. import toolchain
from ..errors import BuildError
from . import cache, headers, includes, process, store
from . import flags as arguments
from .result import Made

KIND, TEXT, LIMIT_S = "host-cuda", '#include "wb_host_cuda_parts.h"\n', 120.0


def path() -> str:
    """The object file, made now if need be; it takes seconds once.

    Raises BuildError where the compiler fails, which only an incomplete one does; ToolchainError without a compiler.
    """
    compiler = toolchain.compiler()
    texts = sorted(includes.digests(TEXT, [headers.FOLDER]).values())
    key = store.key({"parts": texts, **arguments.identity(compiler, KIND, ())})

    def make(folder: Path) -> Made:
        began, output = time.perf_counter(), "parts.o"
        command = [*compiler.command, *arguments.compiling(compiler, KIND), "-iquote", headers.FOLDER]
        command += ["-c", "-x", "c++", "-", "-o", str(folder / output)]
        done = process.run(command, text=TEXT, cwd=str(folder), temporary=str(folder), limit_s=LIMIT_S)
        if done.code:
            raise store.Passing(BuildError("the compiler failed on the common part of host cells", log=done.log))
        return Made(output, KIND, time.perf_counter() - began, log=done.log, toolchain=str(compiler))

    return cache.build(key, make).path


__all__ = ["path"]
