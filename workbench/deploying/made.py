"""The compiled parts of a deployment: the ops' library, the model, the C++ program. Each by the tool that owns it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import torch

from ..build import process
from ..errors import BuildError
from ..saving import wheel

LIMIT_S = 1800.0


def ops_library(project: Path, into: Path, temporary: Path) -> list[str]:
    """Compile a saved package's libraries with its own build; the names of the files in `into`."""
    built = temporary / "ops"
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--build-lib",
        str(built),
        "--build-temp",
        str(temporary / "o"),
    ]
    _run(command, project, temporary, "the library of the ops could not be built")
    into.mkdir(parents=True, exist_ok=True)
    for path in (found := sorted(built.rglob("*.so"))):
        shutil.copy2(path, into / path.name)
    return [p.name for p in found]


def model(program: torch.export.ExportedProgram, path: Path) -> None:
    """Compile a graph ahead of time into `path`. BuildError with what Inductor says."""
    try:
        with torch.no_grad():
            torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    except Exception as error:  # of Inductor's own many kinds
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise BuildError(f"the model could not be compiled: {said[0]}", log=str(error)) from error


def cmake() -> str:
    """CMake: on PATH, or the one that pip installed beside this Python; "" where there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "cmake")
    return shutil.which("cmake") or (beside if os.access(beside, os.X_OK) else "")


def program(sources: Path, to: Path, temporary: Path) -> None:
    """Configure and build the C++ program against this Python's LibTorch."""
    build = temporary / "cpp"
    configure = [cmake(), "-S", str(sources), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"]
    configure.append(f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}")
    _run(configure, sources, temporary, "CMake could not configure the C++ program")
    _run([cmake(), "--build", str(build)], sources, temporary, "the C++ program could not be built")
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(build / "run", to)


def _run(command: list[str], cwd: Path, temporary: Path, failed: str) -> str:
    try:
        done = process.run(command, cwd=str(cwd), temporary=str(temporary), limit_s=LIMIT_S)
    except TimeoutError as error:
        raise BuildError(f"{failed}: {error}") from error
    if done.code:
        raise BuildError(f"{failed}: {wheel.reason(done.log)}", log=done.log)
    return done.log
