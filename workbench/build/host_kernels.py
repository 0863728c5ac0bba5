"""A host half in this process with the kernels of its device half: which stub launches which. See `wb_host_cuda.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from ..errors import BuildError
from . import driver, structures


class Row(ctypes.Structure):
    _fields_ = (("stub", ctypes.c_void_p), ("handle", ctypes.c_void_p))


class Table(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int64), ("rows", ctypes.POINTER(Row)))


_kept: list[object] = []  # a call may still be reading a table that another took the place of


def hand_over(
    library: ctypes.CDLL, cubin: str, symbols: Mapping[str, str], *, table: structures.Driver | None = None
) -> None:
    """Give a loaded host half the driver, and the kernels of `cubin` for its stubs: {stub's symbol: kernel's symbol}.

    One atomic store: a call that is under way finishes with the kernels it began with. Raises ToolchainError where
    there is no driver, BuildError where the cubin lacks a kernel.
    """
    library.wb_hook_driver(ctypes.byref(table or driver.table()))
    if cubin:
        loaded = driver.load(cubin)
        install(library, [(stub, loaded.kernel(symbol)) for stub, symbol in symbols.items()])


def install(library: ctypes.CDLL, kernels: Sequence[tuple[str, int]]) -> None:
    """Let each of these stubs launch that CUkernel."""
    rows = (Row * max(1, len(kernels)))()
    for row, (stub, handle) in zip(rows, kernels, strict=False):
        try:
            row.stub, row.handle = ctypes.cast(library[stub], ctypes.c_void_p), handle
        except AttributeError:
            raise BuildError(f"the host half has no stub {stub}") from None
    made = Table(len(kernels), rows)
    _kept.append((made, rows))
    library.wb_set_kernels.argtypes = (ctypes.c_void_p,)
    library.wb_set_kernels(ctypes.addressof(made))


__all__ = ["hand_over", "install"]
