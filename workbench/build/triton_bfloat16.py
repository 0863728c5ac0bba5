"""bfloat16 in Triton's interpreter, which keeps it as 16-bit integers and computes with these as if they were numbers.

Here operands are widened to float32 and results rounded back, to nearest even, as a GPU does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def widened(data: np.ndarray) -> np.ndarray:
    """float32 of the bits of bfloat16.

    >>> widened(np.array([0x3FC0], np.uint16))
    array([1.5], dtype=float32)
    """
    return (data.astype(np.uint32) << 16).view(np.float32)


def narrowed(data: np.ndarray) -> np.ndarray:
    """The bits of bfloat16 nearest to these numbers; ties to even, NaN stays NaN."""
    wide = np.ascontiguousarray(data, np.float32)
    bits = wide.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(wide), 0x7FC0, rounded).astype(np.uint16).reshape(np.shape(data))


def patches() -> list[tuple[Any, str, Callable]]:
    """(class, method, its replacement) of what the interpreter gets wrong."""
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    counts = {"binary_op": 2, "ternary_op": 3, "unary_op": 1, "create_fma": 3, "create_dot": 3, "create_rsqrt": 1,
              "create_erf": 1}  # fmt: skip
    found = [(n, _around(getattr(Builder, n), c)) for n, c in counts.items() if hasattr(Builder, n)]
    found += [("cast_impl", _cast(Builder.cast_impl)), ("create_fp_to_fp", _rounded(Builder.create_fp_to_fp))]
    return [(Builder, name, function) for name, function in (*found, ("get_bf16", _constant))]


def _handle(data: np.ndarray, dtype: str) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(data, getattr(tl, dtype))


def _is_ours(dtype: Any) -> bool:
    return bool(getattr(dtype.scalar, "name", "") == "bf16")


def _wide(handle: Any) -> Any:
    return _handle(widened(handle.data), "float32") if _is_ours(handle.dtype) else handle


def _around(usual: Callable, count: int) -> Callable:
    """The method on float32 for its first `count` operands; what it gives is of the last one's dtype."""

    def call(self: Any, *args: Any) -> Any:
        operands = args[:count]
        if not any(_is_ours(a.dtype) for a in operands):
            return usual(self, *args)
        made = usual(self, *map(_wide, operands), *args[count:])
        if made.data.dtype == bool:
            return _handle(made.data, "int1")
        return _handle(narrowed(made.data), "bfloat16") if _is_ours(operands[-1].dtype) else made

    return call


def _cast(usual: Callable) -> Callable:
    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if _is_ours(dst_type):
            return _handle(narrowed(_wide(src).data), "bfloat16")
        return usual(self, _wide(src), dst_type)

    return cast_impl


def _rounded(usual: Callable) -> Callable:
    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        nearest = str(rounding_mode).rpartition(".")[2] in ("None", "RTNE")
        if _is_ours(dst_type) and src.data.dtype.kind == "f" and nearest:
            return _handle(narrowed(src.data), "bfloat16")
        return usual(self, src, dst_type, rounding_mode)

    return create_fp_to_fp


def _constant(self: Any, value: Any) -> Any:
    return _handle(narrowed(np.array([value], np.float32)), "bfloat16")
