"""nvcc: the whole of a CUDA cell to one shared object, for what cannot be parted. Found, run, its messages read."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import settings, toolchain
from ..errors import BuildError, ToolchainError
from . import architectures, cache, cpp, diagnostics, flags, headers, includes, nvcc_flags, process, store
from .architectures import gencode
from .diagnostics import Lines
from .resources import Resources
from .result import Build, Made
from .undefined import readable

LIMIT_S = 900.0
INSTALL = (
    "Install the CUDA toolkit (https://developer.nvidia.com/cuda-downloads; "
    "conda: `conda install -c nvidia cuda-nvcc`), or name one that is there in CUDA_HOME"
)
PTXAS = re.compile(r"^(?:ptxas info\s*:.*|    \d+ bytes stack frame.*)\n?", re.MULTILINE)
_ENTRY = re.compile(
    r"Compiling entry function '(?P<symbol>[^']+)'.*?(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Nvcc:
    """`home` is its toolkit's folder, `release` what it says of itself; `identity` is for keys."""

    path: str
    release: str
    identity: str

    @property
    def home(self) -> str:
        return os.path.dirname(os.path.dirname(self.path))


def find(why: str = "") -> Nvcc:
    """nvcc: of CUDA_HOME or CUDA_PATH, on PATH, in /usr/local/cuda.

    >>> nvcc.find().release
    '13.0'

    Raises ToolchainError, with `why` it is asked for and what to install, where there is none.
    """
    folders = [*(os.path.join(h, "bin") for h in settings.cuda_homes()), settings.programs(), "/usr/local/cuda/bin"]
    path = next((p for f in folders if (p := shutil.which("nvcc", path=f))), None)
    if path is None:
        asked = f"{why} needs nvcc" if why else "this needs nvcc"
        raise ToolchainError(f"{asked}, and there is none: neither CUDA_HOME nor PATH leads to it. {INSTALL}")
    real = os.path.realpath(path)
    status = os.stat(real)
    return _ask(real, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4)
def _ask(path: str, mtime_ns: int, size: int) -> Nvcc:
    try:
        done = subprocess.run(
            [path, "--version"],
            env=settings.compiler_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"nvcc ({path}) does not run: {error}. {INSTALL}") from error
    release = re.search(r"release (\d+\.\d+)", done.stdout)
    if done.returncode or not release:
        raise ToolchainError(
            f"nvcc ({path}) does not say its version: {(done.stderr or done.stdout).strip()}. {INSTALL}"
        )
    return Nvcc(path, release[1], f"nvcc {release[1]} | {path} {mtime_ns} {size}")


def host_compiler(compiler: toolchain.Compiler) -> str:
    """The program that nvcc is to call for host code: launchers of compilers are not for it.

    >>> host_compiler(Compiler(("ccache", "g++"), ...))
    'g++'
    """
    return next((w for w in reversed(compiler.command) if not w.startswith("-")), compiler.command[0])


def compile(
    text: str,
    *,
    arch: str,
    flags: Sequence[str] = (),
    file: str = "cell",
    includes: Sequence[str] = (),
    why: str = "",
    limit_s: float = LIMIT_S,
) -> Build:
    """Compile a whole text, host and device code, to a shared object for one architecture, unless the store has it.

    >>> nvcc.compile(text, arch="sm_90", why="thrust::sort").path
    '/home/me/.cache/workbench/objects/9a/9a01.../cell.so'

    The other arguments are those of `cpp.compile`. `.names` are the kernels' symbols, `.resources` what each takes.
    Raises BuildError with nvcc's messages on the user's lines, ToolchainError without nvcc or a C++ compiler.
    """
    folders = tuple(os.path.abspath(f) for f in includes)
    unit = Unit(text, arch, tuple(flags), file, folders, find(why), toolchain.compiler())
    return cache.build(unit.key, lambda folder: unit.make(folder, limit_s), unit.lines.labels)


@dataclass(frozen=True)
class Unit:
    """One text with all that goes into its key and its command line."""

    text: str
    arch: str
    flags: tuple[str, ...]
    file: str
    folders: tuple[str, ...]
    nvcc: Nvcc
    compiler: toolchain.Compiler

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.text, self.file, self.folders)

    @cached_property
    def target(self) -> str:
        """The architecture: that of the flags where they name one."""
        flag = architectures.strange(self.flags)
        if flag:
            raise ToolchainError(f"{flag} names no GPU architecture: write it like -arch=sm_90", **self._place_of(flag))
        texts = architectures.texts(self.text, self.folders[0] if self.folders else "", self.flags)
        return architectures.architecture(self.arch, self.flags, texts)[0]

    def _place_of(self, word: str) -> dict[str, Any]:
        """The line of the user's flags that says it."""
        file, line = self.lines.mentioning(rf"//!\s*flags\b.*{re.escape(word)}")
        return {"file": file, "line": line} if line else {}

    @cached_property
    def key(self) -> str:
        named = flags.folders(self.flags, self.cwd)
        texts = includes.digests(self.text, [*self.folders, headers.FOLDER, *named], [*self.folders, *named])
        torch = toolchain.torch()
        return store.key({
            "kind": "nvcc", "nvcc": self.nvcc.identity, "compiler": self.compiler.identity, "arch": self.target,
            "flags": self.flags, "torch": (torch.version, torch.revision, torch.lib), "search": settings.search_paths(),
            "text": self.text if cpp.NAMES_ITS_FILE.search(self.text) else self.lines.unlabelled,
            "headers": sorted((os.path.basename(path), digest) for path, digest in texts.items()),
        })  # fmt: skip

    @property
    def cwd(self) -> str:
        """Where nvcc runs: relative -I flags begin there. "" when the user gave no folder that exists."""
        return next((f for f in self.folders if os.path.isdir(f)), "")

    def command(self, source: str, output: str) -> list[str]:
        """The command line that makes the shared object `output` of the file `source`."""
        torch = toolchain.torch()
        hosts = "-fPIC,-fvisibility=hidden,-fdiagnostics-color=never"
        links = ["-z,defs", flags.ITS_OWN, f"-rpath,{torch.lib}"]
        hosts += ",-fno-gnu-unique" if self.compiler.family == "gcc" else ""
        given = nvcc_flags.spoken(architectures.without(self.flags))  # one architecture, and it is given already
        return [
            self.nvcc.path, "-ccbin", host_compiler(self.compiler), gencode(self.target), "-std=c++20", "-O2",
            f"-Xcompiler={hosts}", "-Xptxas=-v", "--expt-relaxed-constexpr", "--extended-lambda", flags.STABLE_ABI,
            *(f"-I{folder}" for folder in (headers.FOLDER, *self.folders)),
            *(word for folder in torch.include for word in ("-isystem", folder)),
            *(word for word in given if not flags.links(word)),
            "-shared", "-x", "cu", source, "-o", output, f"-L{torch.lib}", "-ltorch_cpu", "-lc10",
            *(f"-Xlinker={w}" for w in links), *(word for word in given if flags.links(word)),
        ]  # fmt: skip

    def make(self, folder: Path, limit_s: float) -> Made:
        """Run nvcc; what `Store.build` wants from its `make`."""
        began, output = time.perf_counter(), str(folder / "cell.so")
        source = folder / "cell.cu"
        source.write_text(self.text, encoding="utf-8", errors="replace")
        try:
            done = process.run(
                self.command(str(source), output), cwd=self.cwd or str(folder), temporary=str(folder), limit_s=limit_s
            )
        except TimeoutError as error:
            raise store.Passing(BuildError(f"{error} and was stopped", file=self.file)) from error
        finally:
            source.unlink(missing_ok=True)
        log = PTXAS.sub("", done.log)
        said = diagnostics.parse(log, self.lines)
        if done.code:
            raise self._failure(done, log, said)
        kernels = resources(done.log)
        seconds = time.perf_counter() - began
        return Made(
            "cell.so", "nvcc", seconds, said, tuple(r for _, r in kernels), tuple(s for s, _ in kernels), log=log,
            labels=self.lines.labels, toolchain=f"nvcc {self.nvcc.release}",
        )  # fmt: skip

    def _failure(self, done: process.Finished, log: str, said: tuple) -> Exception:
        if done.signal or cpp.NO_MEMORY.search(log):
            by = done.signal or "SIGKILL"
            message = f"nvcc was ended by {by}, most likely because memory ran out. Free some memory and run it again"
            return store.Passing(BuildError(message, diagnostics=said, log=log, file=self.file))
        if "unsupported GNU version" in log or "unsupported clang version" in log:
            return ToolchainError(
                f"nvcc {self.nvcc.release} does not work with {self.compiler.version}: install an older C++ compiler "
                "and name it in WORKBENCH_CXX, or a newer CUDA toolkit"
            )
        unknown = re.search(r"Unsupported gpu architecture '([^']+)'", log)
        if unknown:
            named = architectures.listed(self.flags)
            cure = "write another one in its flags" if named else "set WORKBENCH_ARCH to another"
            refused = f"nvcc {self.nvcc.release} does not compile for {self.target}: {cure}"
            return ToolchainError(refused, **(self._place_of(self.target.removeprefix("sm_")) if named else {}))
        error = diagnostics.error(said, log, otherwise=f"nvcc failed with exit status {done.code}")
        return store.Passing(error) if cpp.MAY_PASS.search(log) else error


def resources(log: str) -> tuple[tuple[str, Resources], ...]:
    """What ptxas -v says of each kernel: (its symbol, what it takes)."""
    found = []
    for m in _ENTRY.finditer(log):
        rest = {kind: int(n) for n, kind in re.findall(r"(\d+) bytes (smem|cmem)", m["rest"])}
        constant = sum(int(n) for n in re.findall(r"(\d+) bytes cmem", m["rest"]))
        name = _without_parameters(re.sub(r"^void ", "", readable(m["symbol"])))
        registers, stores, loads, stack = (int(m[n]) for n in ("registers", "stores", "loads", "stack"))
        taken = Resources(name, registers, stores, loads, stack, rest.get("smem", 0), constant)
        found.append((m["symbol"], taken))
    return tuple(found)


def _without_parameters(name: str) -> str:
    """`k<float>(float const*)` is `k<float>`."""
    depth = 0
    for at, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and not depth and at:
            return name[:at]
    return name


__all__ = ["Nvcc", "compile", "find", "gencode", "host_compiler", "resources"]
