"""The NVRTC library itself: found, asked, and run so that an interrupt gets through. What it is asked: `nvrtc.py`.

It is called through cuda-bindings, which finds the library in the nvidia wheels or the CUDA toolkit.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import resource
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ToolchainError
from . import process

INSTALL = "pip install 'kernel-workbench[cuda]'"
NOWHERE = "/dev/null/"  # the folder of the text: quoted includes are looked up beside it, and nothing is there
_running: set[_Job] = set()


@dataclass(frozen=True)
class Answer:
    """What one run gave. `result` is NVRTC's own word: "SUCCESS", "ERROR_COMPILATION", "ERROR_INVALID_OPTION", ...

    `image` is the cubin or the PTX, `names` the symbols of the names asked for; both are empty after a failure.
    """

    result: str
    log: str
    image: bytes = b""
    names: tuple[str, ...] = ()
    seconds: float = 0.0


@functools.cache
def _nvrtc() -> Any:
    """The bindings, with the library loaded. A failure is not remembered: what is missing may be installed."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ToolchainError(
            "CUDA kernels are compiled by NVRTC through the package cuda-bindings, which cannot be imported "
            f"({error}). Type `{INSTALL}`"
        ) from None
    try:
        result, *_ = nvrtc.nvrtcVersion()
    except Exception as error:  # cuda-bindings has had several types for it
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ToolchainError(
            f"cuda-bindings finds no NVRTC library, libnvrtc.so ({said}). Type `{INSTALL}`, or install the CUDA toolkit"
        ) from None
    if int(result):
        raise ToolchainError(f"NVRTC does not start: {result.name}. Type `{INSTALL}`")
    return nvrtc


@functools.cache
def version() -> tuple[int, int]:
    """Major and minor: (13, 5). ToolchainError, with what to install, when there is no NVRTC."""
    return tuple(_nvrtc().nvrtcVersion()[1:])


@functools.cache
def architectures() -> tuple[int, ...]:
    """The numbers of the architectures that it compiles for: (75, 80, ..., 90, ...)."""
    return tuple(_nvrtc().nvrtcGetSupportedArchs()[1])


def unpack_headers(folder: str) -> bool:
    """Write the CUDA headers that NVRTC 13.5 and later carry to `folder`; False where it has none.

    Once unpacked they are left as they are. Safe beside other threads and processes.
    """
    nvrtc = _nvrtc()
    if not hasattr(nvrtc, "nvrtcInstallBundledHeaders"):
        return False
    try:
        return not int(nvrtc.nvrtcInstallBundledHeaders(folder.encode(), 0)[0])
    except Exception:  # bindings that are newer than the library raise where it lacks the function
        return False


def run(
    text: str,
    *,
    name: str,
    options: Sequence[str],
    headers: Mapping[str, str],
    names: Sequence[str] = (),
    image: str = "CUBIN",
    limit_s: float,
) -> Answer:
    """Compile `text` with `headers` (name in `#include` -> text); `image` is CUBIN or PTX.

    >>> run("__global__ void k() {}", name="cell", options=["-arch=sm_90"], headers={}, names=["k"], limit_s=9).names
    ('_Z1kv',)

    It runs in a thread of its own, so KeyboardInterrupt, and TimeoutError after `limit_s` seconds, are raised at once;
    NVRTC is told to stop, which it does at the next of its phases.
    """
    nvrtc = _nvrtc()
    job = _Job(nvrtc, text, NOWHERE + name.rpartition("/")[2], options, headers, names, image)
    until = time.perf_counter() + limit_s
    process.look_up()
    _running.add(job)
    threading.Thread(target=job.work, name="workbench-nvrtc", daemon=True).start()
    try:
        while not job.done.wait(0.05):
            process.look_up()
            if time.perf_counter() > until:
                raise TimeoutError(f"NVRTC took more than {limit_s:g} s")
    finally:
        job.stop()
    if isinstance(job.outcome, Answer):
        return job.outcome
    raise job.outcome


class _StackLimit:
    """NVRTC lifts the process's limit of the stack as far as it may and leaves it so when a text is refused: from then
    on an endless recursion in any process that is started takes all memory. Whoever is last out puts it back.
    """

    def __init__(self) -> None:
        self._mutex, self._inside = threading.Lock(), 0
        self._found = (0, 0)

    def __enter__(self) -> None:
        with self._mutex:
            if not self._inside:
                self._found = resource.getrlimit(resource.RLIMIT_STACK)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self._inside -= 1
            if not self._inside and resource.getrlimit(resource.RLIMIT_STACK) != self._found:
                resource.setrlimit(resource.RLIMIT_STACK, self._found)


_stack_limit = _StackLimit()


class _Job:
    """One program. `work` runs in the thread; `stop` may be called from any other."""

    def __init__(
        self,
        nvrtc: Any,
        text: str,
        name: str,
        options: Sequence[str],
        headers: Mapping[str, str],
        names: Sequence[str],
        image: str,
    ) -> None:
        self.nvrtc, self.text, self.name, self.options = nvrtc, text, name, options
        self.headers, self.names, self.image = headers, names, image
        self.done = threading.Event()
        self.outcome: Answer | BaseException = ToolchainError("NVRTC was not run")
        self._stop = ctypes.create_string_buffer(b"0")

    def stop(self) -> None:
        self._stop[0] = b"1"

    def work(self) -> None:
        try:
            with _stack_limit:
                self.outcome = self._compile()
        except BaseException as error:  # raised where it is waited for
            self.outcome = error
        finally:
            _running.discard(self)
            self.done.set()

    def _compile(self) -> Answer:
        nvrtc, began = self.nvrtc, time.perf_counter()
        names = [name.encode() for name in self.headers]
        texts = [text.encode() for text in self.headers.values()]
        result, program = nvrtc.nvrtcCreateProgram(
            self.text.encode("utf-8", "replace"), self.name.encode("utf-8", "replace"), len(names), texts, names
        )
        if int(result):
            return Answer(_word(result), "")
        try:
            self._let_stop(program)
            for name in self.names:
                nvrtc.nvrtcAddNameExpression(program, name.encode())
            options = [option.encode() for option in self.options]
            (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
            log = _read(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
            said = log.replace(b"\0", b"").decode("utf-8", "replace")
            seconds = time.perf_counter() - began
            if int(result):
                return Answer(_word(result), said, seconds=seconds)
            image = _read(program, getattr(nvrtc, f"nvrtcGet{self.image}Size"), getattr(nvrtc, f"nvrtcGet{self.image}"))
            symbols = tuple(nvrtc.nvrtcGetLoweredName(program, name.encode())[1].decode() for name in self.names)
            return Answer("SUCCESS", said, image, symbols, seconds)
        finally:
            nvrtc.nvrtcDestroyProgram(program)

    def _let_stop(self, program: Any) -> None:
        """NVRTC asks a callback, between phases, whether to go on, and stops at 1.

        Python may be on its way out then, so the callback is C's own: atoi, called on our text, "0" or "1".
        """
        if hasattr(self.nvrtc, "nvrtcSetFlowCallback"):
            atoi = ctypes.cast(ctypes.CDLL(None).atoi, ctypes.c_void_p).value
            self.nvrtc.nvrtcSetFlowCallback(program, atoi, ctypes.addressof(self._stop))


def _word(result: Any) -> str:
    return result.name.removeprefix("NVRTC_")


def _read(program: Any, size: Any, read: Any) -> bytes:
    """What `read` writes into bytes that are this call's own: Python shares those of a single byte among all."""
    count = size(program)[1]
    room = bytes(max(count, 2))
    read(program, room)
    return room[:count]


@atexit.register
def _stop_all() -> None:
    """A process that ends under a running compiler may crash on its way out."""
    for job in list(_running):
        job.stop()
    until = time.perf_counter() + 3.0
    while _running and time.perf_counter() < until:
        time.sleep(0.01)
