"""Where the programs are that take compiled code apart: in Triton's wheel, a CUDA toolkit, or on PATH.

Found when first asked for, never at import.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

from .. import settings
from ..errors import ToolchainError

CUDA_TOOLS = ("ptxas", "cuobjdump", "nvdisasm")
USUAL = ("/usr/local/cuda/bin", "/opt/cuda/bin")
INSTALL = {
    "objdump": "It comes with binutils (Debian, Ubuntu: `apt install binutils`; Fedora: `dnf install binutils`; "
    "conda: `conda install -c conda-forge binutils`)",
    **dict.fromkeys(CUDA_TOOLS, f"It comes with Triton: `{shlex.quote(sys.executable)} -m pip install triton`, "
                    "or with a CUDA toolkit whose bin folder is on PATH"),
}  # fmt: skip


def find(name: str) -> str:
    """The path of a program.

    >>> tools.find("nvdisasm")
    '/home/me/venv/lib/python3.12/site-packages/triton/backends/nvidia/bin/nvdisasm'

    ToolchainError, with what to install, where it is nowhere.
    """
    found = _find(name, settings.programs())
    if found is None:
        raise ToolchainError(f"{name} is not installed, which takes compiled code apart. {INSTALL[name]}")
    return found


@functools.lru_cache(maxsize=16)
def _find(name: str, path: str) -> str | None:
    places = [*([_triton()] if name in CUDA_TOOLS else []), path, *(USUAL if name in CUDA_TOOLS else [])]
    return next((found for place in places if (found := shutil.which(name, path=str(place)))), None)


def _triton() -> str:
    """The folder of NVIDIA's programs in Triton's wheel, without importing it."""
    spec = importlib.util.find_spec("triton")
    root = Path(spec.origin).parent if spec and spec.origin else Path(os.devnull)
    return str(root / "backends" / "nvidia" / "bin")


def identity(program: str) -> str:
    """For keys: equal only if the same program would run."""
    found = os.stat(program)
    return f"{program} {found.st_mtime_ns} {found.st_size}"


def failed(name: str, log: str) -> ToolchainError:
    """What a program said that could not take our file apart."""
    said = " ".join(log.strip().splitlines()[:3]) or "it says nothing"
    return ToolchainError(f"{name} failed: {said}")
