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
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder as Builder
    from triton.runtime.interpreter import TensorHandle

    def is_ours(handle: Any) -> bool:
        return bool(handle.dtype.scalar == tl.bfloat16)

    def wide(handle: Any) -> Any:
        return TensorHandle(widened(handle.data), tl.float32) if is_ours(handle) else handle

    def back(made: Any, narrow: bool) -> Any:
        if made.data.dtype == bool:
            return TensorHandle(made.data, tl.int1)
        return TensorHandle(narrowed(made.data), tl.bfloat16) if narrow else made

    def around(name: str, count: int) -> Callable:
        usual = getattr(Builder, name)

        def call(self: Any, *args: Any) -> Any:
            operands = args[:count]
            if not any(is_ours(a) for a in operands):
                return usual(self, *args)
            return back(usual(self, *map(wide, operands), *args[count:]), is_ours(operands[-1]))

        return call

    cast = Builder.cast_impl
    fp_to_fp = Builder.create_fp_to_fp

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if dst_type.scalar == tl.bfloat16:
            return TensorHandle(narrowed(wide(src).data), tl.bfloat16)
        return cast(self, wide(src), dst_type) if is_ours(src) else cast(self, src, dst_type)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        nearest = str(rounding_mode).rpartition(".")[2] in ("None", "RTNE")
        if dst_type.scalar == tl.bfloat16 and src.data.dtype.kind == "f" and nearest:
            return TensorHandle(narrowed(src.data), tl.bfloat16)
        return fp_to_fp(self, src, dst_type, rounding_mode)

    def get_bf16(self: Any, value: Any) -> Any:
        return TensorHandle(narrowed(np.array([value], np.float32)), tl.bfloat16)

    def create_erf(self: Any, arg: Any, usual: Callable = Builder.create_erf) -> Any:
        return back(usual(self, wide(arg)), is_ours(arg))

    counts = {"binary_op": 2, "ternary_op": 3, "unary_op": 1, "create_fma": 3, "create_dot": 3, "create_rsqrt": 1}
    found: list[tuple[Any, str, Callable]] = [
        (Builder, n, around(n, c)) for n, c in counts.items() if hasattr(Builder, n)
    ]
    found += [(Builder, "cast_impl", cast_impl), (Builder, "create_fp_to_fp", create_fp_to_fp)]
    return [*found, (Builder, "get_bf16", get_bf16), (Builder, "create_erf", create_erf)]
