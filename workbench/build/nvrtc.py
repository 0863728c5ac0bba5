"""CUDA text to a cubin or to PTX: one run of NVRTC inside this process, kept in the store.

What the text says is not known here; `cuda_body.py` writes it. Running the library: `nvrtc_library.py`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import BuildError, Diagnostic, ToolchainError, WorkbenchError
from . import (
    architectures,
    cache,
    cuda_headers,
    diagnostics,
    includes,
    nvrtc_errors,
    nvrtc_library,
    nvrtc_options,
    ptxas,
    store,
)
from . import flags as arguments
from .body_parts import line_directive, quoted
from .cpp import LIMIT_S, MAY_PASS, NAMES_ITS_FILE
from .diagnostics import Lines
from .nvrtc_library import Answer
from .result import Build, Made

_PHASES = re.compile(r"^\s*File name, phase name, metric, unit\n(?:.*, (?:ms|s)\n)*", re.MULTILINE)
_FRONT_END = re.compile(r", CUDA C\+\+ Frontend, ([\d.]+), ms")
_HOST = "host functions are not allowed in JIT mode"
_SUFFIX = {"CUBIN": "cubin", "PTX": "ptx"}
OWN_S = 0.012  # what the front end takes for a kernel without headers
TOLD_FROM_S = 0.1


def compile(
    text: str,
    *,
    arch: str,
    names: Sequence[str] = (),
    flags: Sequence[str] = (),
    file: str = "cell",
    includes: Sequence[str] = (),
    line_info: bool = False,
    limit_s: float = LIMIT_S,
) -> Build:
    """Compile CUDA text to a cubin, unless the store has it.

    >>> compile(text, arch="sm_90", names=["rmsnorm<float, float, 256>"]).names
    ('_Z7rmsnormIffLi256EEvPKT_PKT0_PS0_fi',)

    `names` are C++ names of kernels, template arguments spelled out: `.names` are their symbols in that order,
    `.resources` what each takes; without any, those of all kernels that the text itself instantiates. `flags` are
    nvcc's or NVRTC's; `includes` are folders of the user's headers, the first also where relative -I flags begin;
    `file` names the lines before the first `#line`. Text that needs sm_90a gets it: `.note` says so, and what a heavy
    header costs. CUDA's own headers are found in the toolkit, in NVRTC and in wheels.

    Raises BuildError with messages on the user's lines, also after `limit_s` seconds, and ToolchainError where NVRTC is
    missing or does not know `arch`. An interrupt gets through at once.
    """
    unit = Unit(text, arch, tuple(names), tuple(flags), file, tuple(map(os.path.abspath, includes)), line_info)
    return cache.build(unit.key, lambda folder: unit.make(folder, limit_s), unit.lines.labels)


def ptx(
    text: str,
    *,
    arch: str,
    names: Sequence[str] = (),
    flags: Sequence[str] = (),
    file: str = "cell",
    includes: Sequence[str] = (),
    line_info: bool = True,
    limit_s: float = LIMIT_S,
) -> str:
    """The PTX of the same text, with `.loc` lines unless `line_info` is False. Arguments and errors of `compile`."""
    folders = tuple(map(os.path.abspath, includes))
    unit = Unit(text, arch, tuple(names), tuple(flags), file, folders, line_info, "PTX")
    build = cache.build(unit.key, lambda folder: unit.make(folder, limit_s), unit.lines.labels)
    return unit.with_labels(Path(build.path).read_text("utf-8").rstrip("\0"))


def prepare() -> None:
    """Load NVRTC, run it once and unpack its headers, in the background: 0.4 s that the first cell need not wait."""
    threading.Thread(target=_prepare, name="workbench-nvrtc-prepare", daemon=True).start()


def _prepare() -> None:
    try:
        nvrtc_library.run("", name="prepare", options=(), headers={}, limit_s=10.0)
        cuda_headers.folders()
    except (WorkbenchError, TimeoutError, KeyboardInterrupt):
        return  # the first build says it better


@dataclass(frozen=True)
class Unit:
    """One text with all that goes into its key and its options."""

    text: str
    arch: str
    names: tuple[str, ...]
    flags: tuple[str, ...]
    file: str
    folders: tuple[str, ...]
    line_info: bool = False
    image: str = "CUBIN"

    @cached_property
    def own(self) -> tuple[str, ...]:
        """All folders of the user's headers, those of -I flags included."""
        beside = self.folders[0] if self.folders else ""
        return (*self.folders, *arguments.folders(self.flags, beside, ("-I", "--include-path=")))

    @cached_property
    def headers(self) -> dict[str, str]:
        """The user's headers that the text includes, and the sha256 of each."""
        return includes.digests(self.text, self.own, self.own)

    @cached_property
    def of_cuda(self) -> tuple[str, ...]:
        """The headers of CUDA that the text and the user's headers include."""
        return cuda_headers.of_cuda(includes.elsewhere(self.text, self.own, self.own))

    @cached_property
    def lines(self) -> Lines:
        return Lines(self.text, self.file, self.own, cuda_headers.folders() if self.of_cuda else ())

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return (self.text, *(Path(h).read_text("utf-8", errors="replace") for h in self.headers))

    @cached_property
    def target(self) -> tuple[str, str]:
        """(the architecture, why it is not the one that was asked for)"""
        flag = architectures.strange(self.flags)
        if flag:
            said = f"{flag} names no GPU architecture: write it like -arch=sm_90"
            raise ToolchainError(said, **self._place_of(flag))
        arch, because = architectures.architecture(self.arch, self.flags, self.texts)
        number = re.fullmatch(r"sm_(\d+)[af]?", arch)
        known = nvrtc_library.architectures()
        if number and int(number[1]) in known:
            return arch, because
        version = "{}.{}".format(*nvrtc_library.version())
        able = ", ".join(f"sm_{n}" for n in known)
        by_flags = bool(architectures.listed(self.flags))
        newer = number and int(number[1]) > known[-1]
        cure = (
            f"A newer one may: type `{nvrtc_library.INSTALL} --upgrade`"
            if newer
            else f"{'Write' if by_flags else 'Set WORKBENCH_ARCH to'} one of these"
        )
        place = self._place_of(arch.removeprefix("sm_")) if by_flags else {}
        raise ToolchainError(f"NVRTC {version} does not compile for {arch}; it knows {able}. {cure}", **place)

    def _place_of(self, word: str) -> dict[str, Any]:
        """The line of the user's flags that says it."""
        file, line = self.lines.mentioning(rf"//!\s*flags\b.*{re.escape(word)}")
        return {"file": file, "line": line} if line else {}

    def options(self, *extra: str, line_info: bool = False, virtual: bool = False) -> tuple[str, ...]:
        folders = (*self.own, *self.lines.system)
        rest = [f for f in nvrtc_options.translated(self.flags) if not f.startswith(("-I", "--include-path="))]
        arch = self.target[0].replace("sm_", "compute_") if virtual or self.image == "PTX" else self.target[0]
        timed = bool(self._heavy)
        made = nvrtc_options.options(arch, rest, folders, line_info=line_info or self.line_info, timed=timed)
        return (*made, *extra)

    @property
    def _heavy(self) -> tuple[str, ...]:
        return tuple(n for n in self.of_cuda if not cuda_headers.LIGHT.fullmatch(n))

    @cached_property
    def key(self) -> str:
        # Another cell with the same code has another name in its #line, which is in the binary only if it is used.
        named = self.line_info or NAMES_ITS_FILE.search(self.text)
        return store.key({
            "kind": f"cuda {self.image}",
            "nvrtc": nvrtc_library.version(),
            "options": nvrtc_options.options(self.target[0], self.flags, (), line_info=self.line_info),
            "names": self.names,
            "text": self.text if named else self.lines.unlabelled,
            "headers": sorted((os.path.basename(path), digest) for path, digest in self.headers.items()),
            "own": tuple(cuda_headers.stand_ins().items()),
            "cuda": cuda_headers.identity() if self.of_cuda else (),
        })  # fmt: skip

    # ------------------------------------------------------------ run

    def make(self, folder: Path, limit_s: float) -> Made:
        """Run NVRTC; what `Store.build` wants from its `make`."""
        answer, before = self._compiled(limit_s)
        log = _PHASES.sub("", answer.log)
        if answer.result != "SUCCESS":
            raise self._failure(answer, log)
        artefact = f"kernel.{_SUFFIX[self.image]}"
        (folder / artefact).write_bytes(answer.image)
        of_user = (d for d in diagnostics.parse(log, self.lines) if self.lines.are_of(d.file))
        said = (*of_user, *ptxas.diagnostics(log, self.lines), *before)
        kernels = dict(zip(answer.names, map(nvrtc_errors.readable, self.names)))
        taken = ptxas.resources(log, kernels if self.names else None)
        return Made(
            artefact, "cuda", answer.seconds, said, taken, answer.names or tuple(r.kernel for r in taken),
            self._note(answer), log, self.lines.labels, "NVRTC {}.{}".format(*nvrtc_library.version()),
        )  # fmt: skip

    def _compiled(self, limit_s: float) -> tuple[Answer, tuple[Diagnostic, ...]]:
        """The answer, and warnings for what was compiled in spite of it."""
        limited = nvrtc_options.limits_cooperative_groups(self.texts)
        answer = self._run(self.options(*([nvrtc_options.LIMITED] if limited else [])), limit_s)
        if limited and answer.result == "ERROR_COMPILATION":
            answer = self._run(self.options(), limit_s)
        if answer.result != "ERROR_COMPILATION" or _HOST not in answer.log:
            return answer, ()
        second = self._run(self.options(nvrtc_options.HOST_AS_DEVICE), limit_s)
        if second.result != "SUCCESS":
            return answer, ()
        wanting = [d for d in diagnostics.parse(answer.log, self.lines) if d.message == diagnostics.FOR_THE_HOST]
        told = "this function has no __device__; it was compiled as if it had, but nvcc will want it"
        return second, tuple(replace(d, severity="warning", message=told) for d in wanting)

    def _run(self, options: Sequence[str], limit_s: float, image: str = "") -> Answer:
        headers = cuda_headers.stand_ins()
        labelled = f'"{quoted(self.file)}"' in self.text  # then the lines before the user's have a name of their own
        begun = f"{line_directive(1, 'prelude' if labelled else self.file)}\n{self.text}"
        try:
            return nvrtc_library.run(begun, name="cell", options=options, headers=headers, names=self.names,
                                     image=image or self.image, limit_s=limit_s)  # fmt: skip
        except TimeoutError as error:
            message = f"{error} and was stopped. Make the text smaller, or leave out a heavy header"
            raise store.Passing(BuildError(message, file=self.file)) from error

    def _failure(self, answer: Answer, log: str) -> Exception:
        if answer.result == "ERROR_BUILTIN_OPERATION_FAILURE":
            why = " ".join(log.split()) or answer.result
            return ToolchainError(f"NVRTC is not complete: {why}. Type `{nvrtc_library.INSTALL}`")
        said = nvrtc_errors.parse(log, self.lines)
        if not any(d.severity == "error" for d in said):
            said = (*ptxas.diagnostics(*self._with_ptx(log)), *said)
        error = diagnostics.error(said, log, otherwise=f"NVRTC failed: {answer.result}")
        if "there is no header" in error.message:
            error.log += "\n".join(["headers were looked for in:", *self.own, *self.lines.system])
        passing = MAY_PASS.search(log) or diagnostics.NO_HEADER.search(log) or answer.result in _PASSING
        return store.Passing(error) if passing else error

    def _with_ptx(self, log: str) -> tuple[str, Lines, str]:
        """ptxas names lines of its own input: what it says once more, with an input that names the user's."""
        if not re.search(r"^ptxas .*, line \d+;", log, re.MULTILINE):
            return log, self.lines, ""
        again = self._run(self.options(line_info=True), 60.0)
        made = self._run(self.options(line_info=True, virtual=True), 60.0, "PTX")
        text = self.with_labels(made.image.decode("utf-8", "replace"))
        return (again.log, self.lines, text) if text else (log, self.lines, "")

    def with_labels(self, ptx: str) -> str:
        """NVRTC puts the current folder before names in `.file`; those of cells are no paths."""
        return re.sub(r'^(\s*\.file\s+\d+ ")([^"]*)', self._label, ptx, flags=re.MULTILINE)

    def _label(self, said: re.Match) -> str:
        return said[1] + next((name for name in self.lines.labels if said[2].endswith(f"/{quoted(name)}")), said[2])

    def _note(self, answer: Answer) -> str:
        """What a user should know of this build besides its warnings."""
        arch, because = self.target
        said = [f"for {arch}: {because} in the text"] if because and because != "flags" else []
        front = _FRONT_END.search(answer.log)
        seconds = float(front[1]) / 1000 - OWN_S if front else 0.0
        if seconds >= TOLD_FROM_S and seconds > 0.3 * answer.seconds:
            said.append(f"{', '.join(self._heavy)}: {seconds:.2g} s of {answer.seconds:.2g} s")
        return "; ".join(said)


_PASSING = ("ERROR_OUT_OF_MEMORY", "ERROR_INTERNAL_ERROR", "ERROR_PROGRAM_CREATION_FAILURE", "ERROR_CANCELLED")
