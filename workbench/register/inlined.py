"""Ops that compiled graphs look into: the launcher in place of the opaque op, while AOTAutograd traces.

Only for tensors of a device whose kernel can be looked into; elsewhere, and in `torch.export`, the op stays opaque.
What Inductor compiles ahead of time from an exported program it looks into, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.library import Library

from ..reference import flat

Traced = Callable[[Sequence, Mapping[str, Any]], Any]


class Inlined:
    """What stands in for the names of one op, by device."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._functions: dict[tuple[str, str], Traced] = {}
        self._library: Library | None = None
        self._known: set[str] = set()

    def put(self, name: str, device: str, function: Traced) -> None:
        """Let tracers of `ns::name` on this device's tensors see `function(args, keywords)` run instead."""
        self._functions[name, device] = function
        if name not in self._known:
            self._known.add(name)
            self._register(name)

    def drop(self, name: str, device: str) -> None:
        """The op is opaque again there."""
        self._functions.pop((name, device), None)

    def clear(self) -> None:
        """The op's names are gone."""
        if self._library is not None:
            self._library._destroy()
        self._functions.clear()
        self._known.clear()
        self._library = None

    def _register(self, name: str) -> None:
        from torch._subclasses.functional_tensor import FunctionalTensorMode

        if self._library is None:
            self._library = Library(self._namespace, "FRAGMENT")

        def traced(mode: Any, op: Any, types: Any, args: tuple, kwargs: Mapping[str, Any] | None) -> Any:
            device = next((t.device.type for t in flat([*args, *(kwargs or {}).values()])), "")
            function = self._functions.get((name, device))
            if function is None or exporting():
                return mode.__torch_dispatch__(op, types, args, kwargs)
            with mode:
                return function(args, kwargs or {})

        torch.library.register_torch_dispatch(name, FunctionalTensorMode, traced, lib=self._library)


def exporting() -> bool:
    """An exported program holds the op itself: text of a kernel cannot be written into it.

    Torch's own ops of Triton ask the same. `torch.compiler.is_exporting` also holds while Inductor compiles an exported
    program ahead of time, which is when the kernel has to go into it.
    """
    try:
        from torch.export._trace import custom_triton_ops_decomposition_disabled
    except ImportError:
        return bool(torch.compiler.is_exporting())
    return bool(custom_triton_ops_decomposition_disabled())
