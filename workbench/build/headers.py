"""Precompiled headers: our own headers, parsed once for each set of flags, in the background, and never waited for.

A text that begins with `#include "wb_body_math.h"` compiles with and without one: the folder with
`wb_body_math.h.gch` comes first on the search path when it is finished, and is left out until then. gcc only; clang
compiles the plain header.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Sequence
from pathlib import Path

from .. import toolchain
from ..errors import WorkbenchError
from ..toolchain import Compiler
from . import cache, flags, includes, process, store
from .result import Made
from .store import Unwritable

FOLDER = os.path.dirname(os.path.abspath(__file__))
# wb_body.h alone costs 2 ms: nothing to gain
KINDS = {"wb_body_math.h": "body", "wb_body_std.h": "body", "launcher.h": "launcher", "wb_host.h": "host",
         "wb_host_cuda.h": "host-cuda"}  # fmt: skip
LIMIT_BYTES = 600_000_000  # in the cache: 84 MB for a launcher's, 16 MB for a body's
MOST = 12  # asked for by one process: nobody goes back and forth between more sets of flags
LIMIT_S = 120.0
# Those of the full tier, asked for only where a cell needs one: 450 to 800 MB each, 15 to 40 s to make.
FULL = ("wb_full_aten.h", "wb_full_torch.h", "wb_full_autograd.h", "wb_full_pybind.h", "wb_full_real.h")
FULL_LIMIT_BYTES, FULL_LIMIT_S = 2_400_000_000, 600.0
FIRST_INCLUDE = re.compile(
    r'(?:\s|//[^\n]*\n|/\*.*?\*/|#[ \t]*(?:line[ \t]+)?\d[^\n]*\n)*#[ \t]*include[ \t]*"([^"\n]+)"', re.DOTALL
)

_waiting: queue.SimpleQueue[tuple[Compiler, str, str, tuple[str, ...]]] = queue.SimpleQueue()
_asked: set[str] = set()
_refused: set[tuple[str, tuple[str, ...]]] = set()  # what a compiler run with those flags could not use
_mutex = threading.Lock()
_thread: threading.Thread | None = None


def prepare() -> None:
    """Start making the precompiled headers that cells with no flags of their own need. Returns at once.

    Without a compiler, or a cache to keep them in, nothing is made and nothing is raised.
    """
    try:
        compiler = toolchain.compiler()
    except WorkbenchError:
        return  # the first build says it better
    for name, kind in KINDS.items():
        if kind != "host-cuda":  # the first such cell asks for it
            request(compiler, kind, name, ())


def begins_with(text: str) -> str:
    """The header of ours, of those worth precompiling, that `text` includes before anything else; "" when none.

    >>> begins_with('#include "wb_body_math.h"\\n#line 2 "cell [3]"\\nvoid f();')
    'wb_body_math.h'
    """
    match = FIRST_INCLUDE.match(text)
    return match[1] if match and match[1] in KINDS else ""


def find(compiler: Compiler, kind: str, name: str, given: Sequence[str]) -> str:
    """The folder that holds the finished precompiled header for those flags, "" when there is none to use."""
    if not name or compiler.family != "gcc" or (name, tuple(given)) in _refused:
        return ""
    found = _store(kind).find(_key(compiler, kind, name, given))
    return os.path.dirname(found.path) if found else ""


def request(compiler: Compiler, kind: str, name: str, given: Sequence[str]) -> None:
    """Have it made in the background, at low priority, once; nothing is waited for and no failure is raised."""
    global _thread
    if not name or compiler.family != "gcc" or not os.path.isfile(os.path.join(FOLDER, name)):
        return
    with _mutex:
        key = _key(compiler, kind, name, given)
        if key in _asked or len(_asked) >= MOST:
            return
        _asked.add(key)
        _waiting.put((compiler, kind, name, flags.that_matter_to_a_precompiled_header(given)))
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_work, name="workbench-headers", daemon=True)
            _thread.start()


def refuse(name: str, given: Sequence[str]) -> None:
    """Never use that header again with exactly these flags: the compiler dropped it, or crashed on it."""
    _refused.add((name, tuple(given)))


def wait(limit_s: float = LIMIT_S) -> bool:
    """Wait until nothing is being made, for benchmarks and tests; whether that came to pass."""
    thread = _thread
    if thread is not None:
        thread.join(limit_s)
    return thread is None or not thread.is_alive()


def _work() -> None:
    process.in_background()
    while True:
        with _mutex:  # so that a request either sees this thread alive or finds the queue empty
            global _thread
            if _waiting.empty():
                _thread = None
                return
            wanted = _waiting.get()
        try:
            make(*wanted)
        except (WorkbenchError, OSError, Unwritable):
            continue  # a build without it is slower, and right
        except KeyboardInterrupt:
            return  # this process ends


def make(compiler: Compiler, kind: str, name: str, given: Sequence[str]) -> str:
    """Make it now, unless it is there; its folder.

    Raises WorkbenchError when the header does not compile, TimeoutError after two minutes, Unwritable without a cache.
    """
    header, limit_s = os.path.join(FOLDER, name), FULL_LIMIT_S if kind == "full" else LIMIT_S

    def build(folder: Path) -> Made:
        artefact = f"{name}.gch"
        command = [
            *compiler.command, *flags.compiling(compiler, kind, flags.that_matter_to_a_precompiled_header(given)),
            "-x", "c++-header", header, "-o", str(folder / artefact),
        ]  # fmt: skip
        done = process.run(command, cwd=FOLDER, temporary=str(folder), limit_s=limit_s, background=True)
        if done.code:
            raise WorkbenchError(f"{name} does not compile: {done.log[-2000:]}")
        return Made(artefact, "header", done.seconds, log=done.log, toolchain=compiler.version)

    return os.path.dirname(_store(kind).build(_key(compiler, kind, name, given), build).path)


def _store(kind: str = "") -> store.Store:
    if kind == "full":
        return cache.store("headers-full", limit_bytes=FULL_LIMIT_BYTES, verify=False)
    # Their digests are not verified: reading 84 MB takes longer than a build, and a compiler that stumbles over one
    # is run again without it.
    return cache.store("headers", limit_bytes=LIMIT_BYTES, verify=False)


def _key(compiler: Compiler, kind: str, name: str, given: Sequence[str]) -> str:
    relevant = flags.that_matter_to_a_precompiled_header(given)
    parts = flags.identity(compiler, kind, relevant)
    parts.pop("linking", None)
    texts = includes.digests(f'#include "{name}"', [FOLDER])
    return store.key({**parts, "header": name, "texts": {os.path.basename(p): d for p, d in texts.items()}})
