"""What a look finds, and how programs are tried: compiled, loaded, called."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from .. import settings, toolchain
from ..errors import ToolchainError

LIMIT_S = 120.0
PIP = f"{shlex.quote(sys.executable)} -m pip install"
Found = tuple[str, str, str]  # status, detail, cure


def works(detail: str) -> Found:
    return "pass", detail, ""


def missing(detail: str, cure: str = "") -> Found:
    return "skip", detail, cure


def compiled(compiler: toolchain.Compiler, text: str, flags: Sequence[str], given: int, wanted: int) -> float:
    """Seconds that it takes to compile a function, load and call it. ToolchainError where that does not work."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="workbench-doctor-") as folder:
        made = os.path.join(folder, "probe.so")
        done = ran([*compiler.command, "-O2", "-fPIC", "-shared", *flags, "-x", "c++", "-", "-o", made], text)
        if done.returncode:
            raise ToolchainError(f"{compiler.version} does not compile: {told(done.stdout)}. {toolchain.INSTALL}")
        got = ctypes.CDLL(made).probe(given)
    if got != wanted:
        raise ToolchainError(f"what {compiler.version} compiled gives {got} in place of {wanted}. {toolchain.INSTALL}")
    return time.perf_counter() - start


def ran(command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(command), input=text, env=settings.compiler_environment(), stdout=subprocess.PIPE, timeout=LIMIT_S,
        stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", check=False,
    )  # fmt: skip


def told(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it says nothing"])[0 if errors else -1]


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
