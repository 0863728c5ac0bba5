"""Kernels of a GPU once more in a process of their own, under a tool that counts what the GPU does: `op.profile`."""

from __future__ import annotations

from collections.abc import Callable


def counting(op) -> Callable | None:
    """What asks the counters; None where there is no GPU."""
    return None
