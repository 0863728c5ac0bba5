"""One build of an extension in its folder: sources written, ninja run, its output read. See `extension.py`."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BuildError, Diagnostic
from . import cache, cpp, diagnostics, flags, jobs, nvcc, prelude, process, store, torch_ninja, undefined
from .result import Build, Made
from .store import Unwritable

if TYPE_CHECKING:
    from .extension import Extension, Unit

OBJECTS_LIMIT_BYTES = 1_000_000_000
EMPTY = "wb_link.cpp"  # torch's ninja file wants a source, also where every object is there already


def make(whole: Extension, folder: Path, limit_s: float) -> Made:
    """Compile what has no object yet, link all; what `Store.build` wants from its `make`."""
    began = time.perf_counter()
    kept = {u.key: b for u in whole.units if whole.units[1:] and (b := _objects().find(u.key)) is not None}
    waiting = [u for u in whole.units if u.key not in kept]
    chosen = {u.file: u.header for u in waiting}
    done, used = _run(whole, folder, waiting, kept, chosen, limit_s)
    if done.code and any(used.values()) and (cpp.DROPPED.search(done.log) or cpp.CRASHED.search(done.log)):
        for u in waiting:
            if used[u.file]:
                u.refuse(chosen[u.file])
        done, used = _run(whole, folder, waiting, kept, chosen, limit_s)
    slim = [u for u in waiting if chosen[u.file] not in ("", prelude.REAL)]
    if done.code and slim and prelude.asks_for_more(done.log):
        chosen |= {u.file: prelude.REAL for u in slim}
        done, used = _run(whole, folder, waiting, kept, chosen, limit_s)
    _keep_objects(whole, folder, waiting, done)
    log = _plain(done.log)
    kernels = [*nvcc.resources(done.log), *(pair for b in kept.values() for pair in zip(b.names, b.resources))]
    said = tuple(undefined.explained(d) for d in diagnostics.parse(log, whole.lines))
    if done.code:
        raise _failure(whole, done, log, said)
    log, said = _python_names(whole, _speaks_python(whole, chosen), log, said)
    said = (*(d for b in kept.values() for d in b.diagnostics), *said)
    return Made(
        f"{whole.name}.so", "full", time.perf_counter() - began, said, tuple(r for _, r in kernels),
        tuple(symbol for symbol, _ in kernels), log=log, labels=whole.lines.labels,
        note=f"compiled {len(waiting)} of {len(whole.units)}", toolchain=str(whole.compiler),
    )  # fmt: skip


def _run(
    whole: Extension,
    folder: Path,
    waiting: Sequence[Unit],
    kept: Mapping[str, Build],
    chosen: Mapping[str, str],
    limit_s: float,
) -> tuple[process.Finished, dict[str, str]]:
    """Ninja, once; and which precompiled header each source was given."""
    used = {u.file: u.precompiled(chosen[u.file]) for u in waiting}
    for u in waiting:
        (folder / u.file).write_text(u.text(chosen[u.file]), encoding="utf-8", errors="surrogateescape")
    units = [torch_ninja.Unit(u.file, u.ninja_flags(chosen[u.file], used[u.file])) for u in waiting]
    if not units:
        (folder / EMPTY).write_text("", encoding="utf-8")
        units = [torch_ninja.Unit(EMPTY)]
    text = torch_ninja.render(
        units, name=whole.name, compiler=whole.compiler.command,
        cflags=(*flags.full(whole.compiler), *whole.options.extra_cflags), ldflags=whole.options.extra_ldflags,
        include_paths=whole.options.extra_include_paths, objects=[b.path for b in kept.values()],
        first_ldflags=_linking(whole, chosen), cuda=whole.for_ninja,
    )  # fmt: skip
    (folder / "build.ninja").write_text(text, encoding="utf-8", errors="surrogateescape")
    command = [torch_ninja.program(), "--quiet", "-j", str(jobs.most(len(units)))]
    try:
        return process.run(command, cwd=str(folder), temporary=str(folder), limit_s=limit_s), used
    except TimeoutError as error:
        message = f"{error} and was stopped. Make the text smaller, or lower -O in its flags"
        raise store.Passing(BuildError(message, file=whole.units[0].source.file)) from error


def _speaks_python(whole: Extension, chosen: Mapping[str, str]) -> bool:
    """torch's own header brings pybind11 along, also where it stands in for a slim one."""
    return whole.speaks_python or prelude.REAL in chosen.values()


def _linking(whole: Extension, chosen: Mapping[str, str]) -> tuple[str, ...]:
    """An undefined name is an error of the linker, but Python's own names are in the process, not in a library."""
    made = [*([f"-fuse-ld={whole.compiler.linker}"] if whole.compiler.linker else []), f"-Wl,{flags.ITS_OWN}"]
    if whole.cuda and not torch_ninja.has_cuda():
        return tuple(made)  # it is not loaded, and what CUDA's own libraries define is not here
    return (*made, "-Wl,-z,defs", *(["-Wl,--warn-unresolved-symbols"] if _speaks_python(whole, chosen) else []))


def _plain(log: str) -> str:
    """The compilers' output without ninja's own lines."""
    rows = nvcc.PTXAS.sub("", cpp.DROPPED.sub("", log)).splitlines(keepends=True)
    kept, command_follows = [], False
    for row in rows:
        if row.startswith(("FAILED: ", "ninja: build stopped")):
            command_follows = row.startswith("FAILED: ")
            continue
        if command_follows:
            command_follows = False
            continue
        kept.append(row)
    return "".join(kept)


def _python_names(
    whole: Extension, python: bool, log: str, said: tuple[Diagnostic, ...]
) -> tuple[str, tuple[Diagnostic, ...]]:
    """After a link that only warned of undefined names: an error for those that are not Python's."""
    if not python:
        return log, said
    missing = undefined.besides_python(log)
    if missing:
        rows = "\n".join(f"error: undefined reference to '{n}'" for n in missing)
        errors = tuple(undefined.explained(d) for d in diagnostics.parse(rows, whole.lines))
        raise diagnostics.error(errors, log, otherwise="the linker did not find all names")
    kept = "".join(r for r in log.splitlines(keepends=True) if "undefined" not in r and "unresolved" not in r)
    return kept, tuple(d for d in said if "undefined reference to" not in d.message)


def _keep_objects(whole: Extension, folder: Path, waiting: Sequence[Unit], done: process.Finished) -> None:
    """Keep the objects of several sources, those beside one that failed too."""
    if len(whole.units) < 2:
        return
    log = _plain(done.log)
    for u in waiting:
        if not (folder / u.object).is_file():
            continue
        lines = replace(whole, units=(u,)).lines
        said = tuple(d for d in diagnostics.parse(log, lines) if d.severity != "error" and lines.are_of(d.file))

        kernels = [(s, r) for s, r in nvcc.resources(done.log) if u.is_cuda and _names(u, r.kernel)]

        def move(into: Path, u: Unit = u, said: tuple = said, kernels: list = kernels) -> Made:
            shutil.copyfile(folder / u.object, into / u.object)
            taken, names = tuple(r for _, r in kernels), tuple(s for s, _ in kernels)
            return Made(u.object, "object", done.seconds, said, taken, names)

        with contextlib.suppress(Unwritable, OSError):
            _objects().build(u.key, move)


def _names(unit: Unit, kernel: str) -> bool:
    """Is that kernel, `a::k<float>`, of this source?"""
    name = kernel.partition("<")[0].rpartition("::")[2]
    return bool(re.search(rf"\b{re.escape(name)}\b", unit.source.text))


def _objects() -> store.Store:
    return cache.store("objects-full", limit_bytes=OBJECTS_LIMIT_BYTES)


def _failure(whole: Extension, done: process.Finished, log: str, said: tuple[Diagnostic, ...]) -> Exception:
    if cpp.NO_SPACE.search(log):
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    file = whole.units[0].source.file
    if done.signal or cpp.NO_MEMORY.search(log):
        by = done.signal or "SIGKILL"
        cause = ", most likely because memory ran out" if by == "SIGKILL" else ""
        message = (f"the compiler was ended by {by}{cause}. Free some memory, lower MAX_JOBS or -O in the flags, and "
                   "run it again")  # fmt: skip
        return store.Passing(BuildError(message, diagnostics=said, log=log, file=file))
    error = diagnostics.error(said, log, otherwise=f"the build of {whole.name} failed with exit status {done.code}")
    passing = cpp.MAY_PASS.search(log) or cpp.CRASHED.search(log)
    return store.Passing(error) if passing else error
