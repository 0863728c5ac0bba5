"""The NVIDIA driver, through ctypes: its devices, cubins as libraries of kernels, and what launchers call of it.

Nothing is loaded before it is asked for. Kernels are handles of the driver's that belong to no context, so that one
serves every GPU; a library that was loaded stays, since a call or a captured graph may hold its kernels.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import toolchain
from ..errors import BuildError, ToolchainError
from . import architectures, structures

OLDEST = (12, 0)  # the first with kernels that belong to no context
_MULTIPROCESSORS, _SHARED, _SHARED_LIMIT, _CLUSTERS, _MAJOR, _MINOR = 16, 8, 97, 120, 75, 76
_SHARED_OF_MULTIPROCESSOR, _THREADS_OF_MULTIPROCESSOR, _REGISTERS_OF_MULTIPROCESSOR = 81, 39, 82
NO_IMAGE, BAD_IMAGE, BAD_SOURCE, NEWER_PTX, NEWER_TOOLKIT, NOT_FOUND, OUT_OF_MEMORY = 209, 200, 300, 222, 35, 500, 2


@dataclass(frozen=True)
class Device:
    """One GPU, as torch counts them; shared memory in bytes a block, without asking and at most.

    >>> driver.devices()[0].arch
    'sm_90'
    """

    index: int
    name: str
    arch: str
    sm_count: int
    shared: int
    shared_limit: int
    clusters: bool
    sm_shared: int
    sm_threads: int
    sm_registers: int

    def runs(self, arch: str) -> bool:
        """Can it run what was compiled for `arch`? Code of `sm_90a` runs there alone, that of sm_80 on sm_86 too."""
        return architectures.runs(self.arch, arch)


class Cubin:
    """A cubin that the driver has; `kernel` gives a handle of one of its functions."""

    def __init__(self, path: str, handle: int) -> None:
        self.path, self.handle = path, handle
        self._kernels: dict[str, int] = {}

    def kernel(self, symbol: str) -> int:
        """The CUkernel of a lowered symbol. BuildError if the cubin has none of that name."""
        if symbol not in self._kernels:
            found = ctypes.c_void_p()
            code = _cuda().cuLibraryGetKernel(ctypes.byref(found), ctypes.c_void_p(self.handle), symbol.encode())
            if code == NOT_FOUND:
                raise BuildError(f"{self.path} has no kernel {symbol}")
            if code:
                raise _unloadable(self.path, code)
            _put_on_the_gpu(self.path, found)
            self._kernels[symbol] = found.value or 0
        return self._kernels[symbol]


def _put_on_the_gpu(path: str, kernel: ctypes.c_void_p) -> None:
    """Load it to the current GPU, if one is in use: the first launch may be under a graph's capture, where none may."""
    cuda, context, function = _cuda(), ctypes.c_void_p(), ctypes.c_void_p()
    if cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value:
        code = cuda.cuKernelGetFunction(ctypes.byref(function), kernel)
        if code:
            raise _unloadable(path, code)


def available() -> bool:
    """Is there a driver with a GPU?"""
    try:
        return bool(devices())
    except ToolchainError:
        return False


def version() -> tuple[int, int]:
    """The CUDA that the driver knows: `(13, 0)`."""
    found = ctypes.c_int()
    _cuda().cuDriverGetVersion(ctypes.byref(found))
    return _pair(found.value)


@functools.cache
def devices() -> tuple[Device, ...]:
    """The GPUs of this machine, in the order of torch's `cuda:0`, `cuda:1`, ...

    Raises ToolchainError where there is no driver, or one that does not work.
    """
    cuda, count = _cuda(), ctypes.c_int()
    _ok(cuda.cuDeviceGetCount(ctypes.byref(count)), "counting the GPUs")
    return tuple(_device(i) for i in range(count.value))


def _device(index: int) -> Device:
    cuda, ordinal, name = _cuda(), ctypes.c_int(), ctypes.create_string_buffer(256)
    _ok(cuda.cuDeviceGet(ctypes.byref(ordinal), index), f"finding GPU {index}")
    cuda.cuDeviceGetName(name, len(name), ordinal)

    def attribute(which: int) -> int:
        found = ctypes.c_int()
        return 0 if cuda.cuDeviceGetAttribute(ctypes.byref(found), which, ordinal) else found.value

    return Device(
        ordinal.value,
        name.value.decode(errors="replace"),
        f"sm_{attribute(_MAJOR)}{attribute(_MINOR)}",
        attribute(_MULTIPROCESSORS),
        attribute(_SHARED),
        attribute(_SHARED_LIMIT) or attribute(_SHARED),
        bool(attribute(_CLUSTERS)),
        attribute(_SHARED_OF_MULTIPROCESSOR),
        attribute(_THREADS_OF_MULTIPROCESSOR),
        attribute(_REGISTERS_OF_MULTIPROCESSOR),
    )


_libraries: dict[str, Cubin] = {}


def load(path: str) -> Cubin:
    """The cubin at `path`, loaded once.

    >>> driver.load(build.path).kernel(build.names[0])

    Raises ToolchainError where there is no driver or it is too old, BuildError for a file that is no cubin or was
    compiled for other GPUs than those here; both say what to do.
    """
    if path not in _libraries:
        cuda = _cuda()
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise BuildError(f"{path} cannot be read: {error.strerror}") from None
        _for_a_gpu_here(path, data)
        handle = ctypes.c_void_p()
        code = cuda.cuLibraryLoadData(ctypes.byref(handle), data, None, None, 0, None, None, 0)
        if code:
            raise _unloadable(path, code)
        _libraries[path] = Cubin(path, handle.value or 0)
    return _libraries[path]


def arch_of(cubin: bytes) -> str:
    """What a cubin was compiled for, `sm_90a`; "" where it does not say."""
    found = re.search(rb"(?<!\w)sm_\d{2,3}[af]?(?!\w)", cubin)
    if found:
        return found[0].decode()
    if len(cubin) < 64 or not cubin.startswith(b"\x7fELF"):
        return ""
    flags = int.from_bytes(cubin[48:52], "little")  # of the ELF header; its place moved with the 8th ABI
    return f"sm_{flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF}"


def _for_a_gpu_here(path: str, data: bytes) -> None:
    arch, here = arch_of(data), devices()
    if data.startswith(b"\x7fELF") and arch and here and not any(d.runs(arch) for d in here):
        told = ", ".join(dict.fromkeys(f"{d.arch} ({d.name})" for d in here))
        raise BuildError(
            f"the kernel was compiled for {arch}, the GPU here is {told}: unset WORKBENCH_ARCH, or set it to "
            f"{here[0].arch}, and run the cell again"
        )


def _unloadable(path: str, code: int) -> ToolchainError | BuildError:
    if code in (NEWER_PTX, NEWER_TOOLKIT):
        known = ".".join(map(str, version()))
        package = f"nvidia-cuda-nvrtc-cu{version()[0]}" if version() < (13, 0) else "nvidia-cuda-nvrtc"
        return ToolchainError(
            f"the NVIDIA driver knows CUDA {known}, and the kernel was compiled by a newer toolkit ({_words(code)}). "
            f"Update the driver, or install the toolkit of that version: "
            f"`pip install '{package}<={known}.999'`"
        )
    if code == NO_IMAGE:
        here = ", ".join(dict.fromkeys(d.arch for d in devices())) or "none"
        return BuildError(f"the kernel was not compiled for a GPU that is here ({here}): {_words(code)}")
    if code == OUT_OF_MEMORY:
        return BuildError("the GPU has no memory left for the kernel: free tensors, then run the cell again")
    return BuildError(f"{os.path.basename(path)} is no cubin that the driver can load: {_words(code)}")


def active_blocks(kernel: int, threads: int, shared: int = 0) -> int:
    """How many blocks of that size one multiprocessor of the current GPU holds at once; needs a context of torch's."""
    found = ctypes.c_int()
    code = _cuda().cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(found), ctypes.c_void_p(kernel), ctypes.c_int(threads), ctypes.c_size_t(shared)
    )
    _ok(code, "asking for the occupancy")
    return found.value


# ------------------------------------------------------------ for launchers


@functools.cache
def table() -> structures.Driver:
    """What every launcher for a GPU is handed: the functions it calls, and the devices. Lives as long as the process.

    Raises ToolchainError where there is no driver, it is too old, or this torch was built without CUDA.
    """
    cuda, here = _cuda(), devices()
    if not here:
        raise ToolchainError("the NVIDIA driver finds no GPU here")
    made = structures.Driver()
    for field, name in structures.Driver.FUNCTIONS:
        library = _torch_cuda() if name.startswith("aoti_") else cuda
        setattr(made, field, ctypes.cast(getattr(library, name), ctypes.c_void_p))
    gpus = (structures.Gpu * len(here))()
    for row, device in zip(gpus, here, strict=True):
        row.ordinal, row.arch, row.sm_count = device.index, int(device.arch.removeprefix("sm_")), device.sm_count
        row.shared, row.shared_limit, row.clusters = device.shared, device.shared_limit, device.clusters
    made.gpu_count, made.gpus = len(here), gpus
    return made


def _torch_cuda() -> ctypes.CDLL:
    path = os.path.join(toolchain.torch().lib, "libtorch_cuda.so")
    try:
        library = ctypes.CDLL(path)
        library.aoti_torch_get_current_cuda_stream  # noqa: B018
    except (OSError, AttributeError) as error:
        raise ToolchainError(
            f"this torch ({toolchain.torch().version}) was built without CUDA: install one with it "
            f"(https://pytorch.org/get-started/locally); {error}"
        ) from None
    return library


# ------------------------------------------------------------ libcuda


@functools.cache
def _cuda() -> Any:
    """libcuda, initialised."""
    library = _open()
    try:
        library.cuLibraryLoadData, library.cuLaunchKernelEx  # noqa: B018
    except AttributeError:
        raise ToolchainError(
            f"the NVIDIA driver is too old: it knows CUDA {_driver_version(library)}, "
            f"{'.'.join(map(str, OLDEST))} is needed. Update the driver"
        ) from None
    code = library.cuInit(0)
    if code:
        raise ToolchainError(f"the NVIDIA driver does not start: {_words(code, library)}")
    return library


def _open() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ToolchainError(
            f"there is no NVIDIA driver here ({error}). CUDA cells are compiled without one, for the architecture in "
            "WORKBENCH_ARCH; to run them install the driver, or run where there is one"
        ) from None


def _driver_version(library: Any) -> str:
    found = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(found))
    return ".".join(map(str, _pair(found.value)))


def _pair(number: int) -> tuple[int, int]:
    return number // 1000, number % 1000 // 10


def _ok(code: int, what: str) -> None:
    if code:
        raise ToolchainError(f"{what} failed: {_words(code)}")


def _words(code: int, library: Any = None) -> str:
    """`no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)`"""
    library, name, text = library or _cuda(), ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    library.cuGetErrorString(code, ctypes.byref(text))
    said = [(v.value or b"").decode(errors="replace") for v in (text, name)]
    return f"{said[0] or 'an error without a text'} ({said[1] or code})"
