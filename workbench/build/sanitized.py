"""What a C++ compiler needs to build code that watches itself: its sanitizers for addresses and undefined behaviour."""

from __future__ import annotations

import os
import platform
import tempfile

from ..toolchain import Compiler
from . import places, process

LIMIT_S = 20.0
WATCHING = (
    "-fsanitize=address,undefined",
    "-fno-sanitize=object-size",
    "-fsanitize-recover=address,undefined",
    "-fno-omit-frame-pointer",
    "-O1",
)
MISSING = (
    "{compiler} has no runtime for its address sanitizer ({name}), which comes with it: `apt install {package}`, "
    "`dnf install libasan libubsan`, conda: `conda install -c conda-forge gxx`"
)


def flags(compiler: Compiler) -> tuple[str, ...]:
    """What is added to the flags of a text.

    >>> flags(toolchain.compiler())[0]
    '-fsanitize=address,undefined'
    """
    return (*WATCHING, *places.WITH_LINES, *(["-shared-libsan"] if compiler.family == "clang" else []))


def preloads(compiler: Compiler) -> tuple[str, ...]:
    """The libraries that must be in a process before all others, the runtime first; none where it is missing.

    The C++ library is one of them: the runtime looks for what throws exceptions when it starts.
    """
    found = [_found(compiler, name) for name in (runtime(compiler), "libstdc++.so.6")]
    return tuple(f for f in found if f) if found[0] else ()


def runtime(compiler: Compiler) -> str:
    if compiler.family == "clang":
        return f"libclang_rt.asan-{platform.machine()}.so"
    return "libasan.so"


def missing(compiler: Compiler) -> str:
    """What to say, and to install, where there is none."""
    package = f"libclang-rt-{compiler.major}-dev" if compiler.family == "clang" else f"libgcc-{compiler.major}-dev"
    return MISSING.format(compiler=compiler.command[0], name=runtime(compiler), package=package)


def _found(compiler: Compiler, name: str) -> str:
    folder = tempfile.gettempdir()
    asked = [*compiler.command, f"-print-file-name={name}"]
    try:
        path = process.run(asked, cwd=folder, temporary=folder, limit_s=LIMIT_S).log.strip()
    except TimeoutError:
        return ""
    return os.path.realpath(path) if os.path.isabs(path) and os.path.exists(path) else ""
