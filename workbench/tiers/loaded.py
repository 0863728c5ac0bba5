"""A library that puts kernels behind op names by itself: in the worker, and in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..build import native
from ..build.arithmetic import Arithmetic
from ..errors import BuildError


@dataclass(frozen=True)
class Module:
    """A library that registers itself: `wb_register` and `wb_unregister`, as launchers have them."""

    path: str
    layout: bool = False

    @property
    def code(self) -> tuple[str, ...]:
        return (self.path,)

    def load(self, allocate: Callable[[int], int]) -> object:
        return Loaded(self.path).ask_layout(self.layout).register()


class Loaded:
    """Such a library in this process. It is never unloaded: compiled callers may hold its code."""

    def __init__(self, path: str) -> None:
        try:
            with Arithmetic():
                self._library = ctypes.CDLL(path)
        except OSError as error:
            raise BuildError(f"the library does not load into this torch: {error}") from None
        for name in ("wb_register", "wb_unregister"):
            getattr(self._library, name).restype = ctypes.c_char_p

    def ask_layout(self, always: bool) -> Loaded:
        """Ask for the strides of the reference at every call, or only where an argument is not contiguous."""
        self._library.wb_ask_layout(int(always))
        return self

    def on_miss(self, callback: Callable[[tuple[torch.dtype | None, ...]], str | None]) -> None:
        """Ask `callback` before the first call with dtypes that it was not asked about: None, or why not to call."""
        if hasattr(self._library, "wb_hook_miss"):
            self._library.wb_set_message.argtypes = (ctypes.c_char_p,)
            self._callback = native.hook_miss(self._library, callback)

    def register(self) -> Loaded:
        self._said(self._library.wb_register())
        return self

    def unregister(self) -> None:
        self._said(self._library.wb_unregister())

    @staticmethod
    def _said(message: bytes | None) -> None:
        if message:
            raise BuildError(f"torch refused the kernels: {message.decode(errors='replace')}")
