"""C++ text to a shared object: one run of the compiler's driver, from standard input to the finished file.

What the text says is not known here; `body.py` and `launcher.py` write it. Where the result is kept: `store.py`.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .. import toolchain
from ..errors import BuildError, ToolchainError
from ..toolchain import Compiler
from . import cache, diagnostics, headers, includes, process, store, stub
from . import flags as arguments
from .diagnostics import Lines
from .result import Build, Made

LIMIT_S = 600.0
NAMES_ITS_FILE = re.compile(r"\bassert\b|__FILE__|\bsource_location\b|[A-Z_]CHECK\b|_CHECK_")
NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|File too large|File size limit exceeded")
NO_MEMORY = re.compile(
    r"Killed signal|out of memory|virtual memory exhausted|Cannot allocate memory|std::bad_alloc", re.IGNORECASE
)
CRASHED = re.compile(r"internal compiler error|signal terminated program|Segmentation fault")
MAY_PASS = re.compile(r"No such file or directory|cannot find -l|file not found|unable to find library")
UNDEFINED = re.compile(r"undefined (?:reference|symbol)")
NO_PROGRAM = re.compile(r"cannot execute|error trying to exec|cannot exec|installation problem")
DROPPED = re.compile(r"^.*\[-Winvalid-pch\]\n(?:[ \t]*\d* \|.*\n)*", re.MULTILINE)


def compile(
    text: str,
    *,
    kind: str,
    flags: Sequence[str] = (),
    file: str = "cell",
    includes: Sequence[str] = (),
    limit_s: float = LIMIT_S,
    background: bool = False,
    once: bool = False,
) -> Build:
    """Compile `text` to a shared object, unless the store has it.

    >>> compile('extern "C" int two() { return 2; }', kind="body").path
    '/home/me/.cache/workbench/objects/5e/5e0c.../body.so'

    `kind` is "body" (plain C++), "host" (with torch's stable headers, linked with libtorch_cpu) or "launcher". `flags`
    come after the default ones; `includes` are folders for `#include "..."`, the first also the compiler's working
    folder; `file` names the lines before the first `#line`; `background` lets all other processes go first; `once`
    says that no edit follows, which a precompiled header would serve. Warnings are in `.diagnostics`, the whole output
    in `.log`.

    Raises BuildError with the compiler's messages on the user's lines, also after `limit_s` seconds, and
    ToolchainError when there is no compiler that works. An interrupt ends the compiler.
    """
    folders = tuple(os.path.abspath(f) for f in includes)
    unit = Unit(text, kind, tuple(flags), file, folders, toolchain.compiler(), background)
    header = headers.begins_with(text)
    stable = kind in arguments.STABLE and arguments.BEYOND not in flags
    library = stub.folder(unit.compiler, kind) if stable else ""
    build = cache.build(unit.key, lambda folder: unit.make(folder, header, library, limit_s), unit.lines.labels)
    if header and not build.cached and not once and not headers.find(unit.compiler, kind, header, unit.flags):
        headers.request(unit.compiler, kind, header, unit.flags)  # for the next edit
    return build


@dataclass(frozen=True)
class Unit:
    """One text with all that goes into its key and its command line."""

    text: str
    kind: str
    flags: tuple[str, ...]
    file: str
    folders: tuple[str, ...]
    compiler: Compiler
    background: bool = False

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.text, self.file, self.folders)

    @cached_property
    def key(self) -> str:
        named = arguments.folders(self.flags, self.cwd) if self.cwd else ()
        texts = includes.digests(self.text, [*self.folders, headers.FOLDER], named)
        return store.key({
            **arguments.identity(self.compiler, self.kind, self.flags),
            # Another cell with the same code has another name in its #line; that is in the binary only if it is used.
            "text": self.text if NAMES_ITS_FILE.search(self.text) else self.lines.unlabelled,
            "headers": sorted((os.path.basename(path), digest) for path, digest in texts.items()),
        })  # fmt: skip

    @property
    def cwd(self) -> str:
        """Where the compiler runs: relative -I flags begin there. "" when the user gave no folder that exists."""
        return next((f for f in self.folders if os.path.isdir(f)), "")

    def command(self, output: str, precompiled: str = "", library: str = "") -> list[str]:
        """The command line that reads the text from standard input and writes the shared object `output`.

        `precompiled` and `library` are the folders of a precompiled header and of the stub of libtorch, "" for none.
        """
        search = [precompiled, headers.FOLDER, *self.folders] if precompiled else [headers.FOLDER, *self.folders]
        return [
            *self.compiler.command,
            *arguments.compiling(self.compiler, self.kind, self.flags),
            *(["-Winvalid-pch", "-Wno-error=invalid-pch"] if precompiled else []),
            *(word for folder in search for word in ("-iquote", folder)),
            "-shared", "-o", output, "-x", "c++", "-", "-x", "none",
            *arguments.linking(self.compiler, self.kind, self.flags, library),
        ]  # fmt: skip

    def make(self, folder: Path, header: str, library: str, limit_s: float) -> Made:
        """Run the compiler; what `Store.build` wants from its `make`."""
        artefact, began = f"{self.kind}.so", time.perf_counter()
        output = str(folder / artefact)
        precompiled = headers.find(self.compiler, self.kind, header, self.flags)
        done = self._run(self.command(output, precompiled, library), str(folder), limit_s)
        if precompiled and (DROPPED.search(done.log) or (done.code and CRASHED.search(done.log))):
            headers.refuse(header, self.flags)
            precompiled = ""
            if done.code:
                done = self._run(self.command(output, "", library), str(folder), limit_s)
        if library and done.code and UNDEFINED.search(done.log):
            done = self._run(self.command(output, precompiled), str(folder), limit_s)
        log = DROPPED.sub("", done.log)
        said = diagnostics.parse(log, self.lines)
        if done.code:
            raise self._failure(done, log, said)
        seconds = time.perf_counter() - began
        return Made(artefact, self.kind, seconds, said, log=log, labels=self.lines.labels, toolchain=str(self.compiler))

    def _run(self, command: list[str], folder: str, limit_s: float) -> process.Finished:
        try:
            return process.run(command, text=self.text, cwd=self.cwd or folder, temporary=folder, limit_s=limit_s,
                               background=self.background)  # fmt: skip
        except TimeoutError as error:
            message = f"{error} and was stopped. Make the text smaller, or lower -O in its flags"
            raise store.Passing(BuildError(message, file=self.file)) from error

    def _failure(self, done: process.Finished, log: str, said: tuple) -> Exception:
        if NO_SPACE.search(log) or done.signal == "SIGXFSZ":  # no room on the disk, or within a limit
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if NO_PROGRAM.search(log):
            last = log.strip().splitlines()[-1]
            return ToolchainError(f"{self.compiler.command[0]} is not complete: {last}. {toolchain.INSTALL}")
        if done.signal or NO_MEMORY.search(log):
            by = done.signal or "SIGKILL"
            cause = ", most likely because memory ran out" if by == "SIGKILL" else ""
            message = (
                f"the compiler was ended by {by}{cause}. Free some memory, or lower -O in the flags, and run it again"
            )
            return store.Passing(BuildError(message, diagnostics=said, log=log, file=self.file))
        error = diagnostics.error(said, log, otherwise=f"the compiler failed with exit status {done.code}")
        return store.Passing(error) if MAY_PASS.search(log) or CRASHED.search(log) else error
