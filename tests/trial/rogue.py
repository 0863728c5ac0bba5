"""Ops whose kernels are plain C functions in a shared object: what a launcher does, without the launcher."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from workbench.trial.guard import _bytes_at


@dataclass(frozen=True)
class Rogue:
    """Puts the functions `names` of the library at `path` behind the ops `rogue::NAME`."""

    path: str
    names: tuple[str, ...]
    inplace: bool = False

    @property
    def code(self):
        return (self.path,)

    def load(self, allocate):
        functions = ctypes.CDLL(self.path)
        library = torch.library.Library("rogue", "FRAGMENT")
        for name in self.names:
            library.impl(name, self.kernel(getattr(functions, name), allocate), "CPU")
        return functions, library

    def kernel(self, function, allocate):
        def call(x, base=None):
            if self.inplace:
                function(ctypes.c_void_p(x.data_ptr()), None, ctypes.c_int64(x.numel()))
                return None
            start = allocate(x.numel() * 4)
            function(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(start), ctypes.c_int64(x.numel()))
            return _bytes_at(start, x.numel() * 4).view(torch.float32).view(x.shape)

        return call
