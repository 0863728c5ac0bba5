"""An empty library with libtorch_cpu's name, for linking: the real one's 200,000 names take a linker 0.05 to 0.2 s.

What is linked with it asks for `libtorch_cpu.so` by name when it is loaded, and gets the one of the torch that runs. A
name that torch lacks is therefore an error at loading; only generated text is linked in this way.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import WorkbenchError
from ..toolchain import Compiler
from . import cache, process, store
from .result import Made

LIBRARY = "libtorch_cpu.so"
LIMIT_S = 60.0


def folder(compiler: Compiler) -> str:
    """The folder that holds the stub, made now if need be; "" where none can be made: then the real one is linked."""

    def make(place: Path) -> Made:
        command = [
            *compiler.command, "-shared", "-nostdlib", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-x", "c", "-",
            "-o", str(place / LIBRARY),
        ]  # fmt: skip
        done = process.run(command, cwd=str(place), temporary=str(place), limit_s=LIMIT_S)
        if done.code:
            raise WorkbenchError(done.log)
        return Made(LIBRARY, "stub", done.seconds, log=done.log, toolchain=compiler.version)

    try:
        return os.path.dirname(cache.build(store.key({"stub": LIBRARY, "compiler": compiler.identity}), make).path)
    except (WorkbenchError, TimeoutError):
        return ""
