"""A small library with libtorch_cpu's name, for linking: the real one's 200,000 names take a linker 0.05 to 0.2 s.

What is linked with it asks for `libtorch_cpu.so` by name when it is loaded, and gets the one of the torch that runs.
The one for generated text is empty: a name that torch lacks is an error at loading. The one for what users write has
the C functions of the stable ABI; where another name is wanted, the real library is linked.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from .. import settings, toolchain
from ..errors import WorkbenchError
from ..toolchain import Compiler
from . import cache, process, store
from .result import Made

LIBRARY = "libtorch_cpu.so"
LIMIT_S = 60.0
_STABLE = re.compile(r" [TW] ((?:aoti_)?torch_\w+)$", re.MULTILINE)  # in what `nm` lists


def folder(compiler: Compiler, kind: str) -> str:
    """The folder of the stub for texts of that kind, made now if need be; "" where none can be made: then the real
    library is linked.

    >>> folder(gcc, "host")
    '/home/me/.cache/workbench/objects/8c/8c1f...'
    """
    empty = kind == "launcher"
    torch = toolchain.torch()
    names = [] if empty else [torch.version, torch.revision, torch.lib]
    key = store.key({"stub": LIBRARY, "compiler": compiler.identity, "names": names})

    def make(place: Path) -> Made:
        command = [
            *compiler.command, "-shared", "-nostdlib", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-x", "c", "-",
            "-o", str(place / LIBRARY),
        ]  # fmt: skip
        text = "" if empty else "".join(f"void {name}(void) {{}}\n" for name in _names(str(place)))
        done = process.run(command, text=text, cwd=str(place), temporary=str(place), limit_s=LIMIT_S)
        if done.code:
            raise WorkbenchError(done.log)
        return Made(LIBRARY, "stub", done.seconds, log=done.log, toolchain=compiler.version)

    try:
        return os.path.dirname(cache.build(key, make).path)
    except (WorkbenchError, TimeoutError):
        return ""


def _names(temporary: str) -> list[str]:
    """The functions of torch's stable ABI that the installed one has. WorkbenchError without `nm`."""
    nm = shutil.which("nm", path=settings.programs())
    if not nm:
        raise WorkbenchError("nm is not here")
    command = [nm, "-D", "--defined-only", os.path.join(toolchain.torch().lib, LIBRARY)]
    done = process.run(command, cwd=temporary, temporary=temporary, limit_s=LIMIT_S)
    found = _STABLE.findall(done.log)
    if done.code or not found:
        raise WorkbenchError(done.log)
    return found


__all__ = ["LIBRARY", "folder"]
