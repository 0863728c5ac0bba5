"""What kernels and launches of a CUDA text are in its host half. Pure text."""

from __future__ import annotations

import re

from ..source import Function
from . import cuda_launches

# nvcc's compiler of host code has these, and the C++ compiler, whose own headers look at them, has not.
_OF_NVCC = re.compile(r"\b__(?:CUDACC|NVCC)__\b")


def stub(kernel: Function) -> str:
    """The body of a kernel in its host half: its arguments' addresses, and itself as the name of what is launched.

    >>> stub(scale)                      # template <typename T, int N> __global__ void scale(const T* x, T* out)
    '{ wb::launch((const void*)&scale<T, N>, "scale", {(void*)&x, (void*)&out}); }'
    """
    packed = [f"{t.name}..." if "..." in t.kind else t.name for t in kernel.templates]
    itself = f"{kernel.name}<{', '.join(packed)}>" if packed else kernel.name
    given = [f"(void*)&{p.name}{'...' if '...' in p.spelled else ''}" for p in kernel.parameters]
    return f'{{ wb::launch((const void*)&{itself}, "{kernel.name}", {{{", ".join(given)}}}); }}'


def rewritten(text: str) -> str:
    """A text of the host half with its launches as calls of stubs.

    >>> rewritten("k<float><<<n, 256>>>(x);")
    '(wb::configure(n, 256), k<float>(x));'

    `#ifdef __CUDACC__` holds there as it does for nvcc.
    """
    made, at = [], 0
    for launch in cuda_launches.find(text):
        if launch.start < at:
            continue
        end = cuda_launches.end_of_call(text, launch.given)
        inside = text[launch.opens + 3 : launch.closes - 3]
        called = f"(wb::configure({inside}), {text[launch.start : launch.opens].strip()}"
        made += [text[at : launch.start], called, text[launch.closes : end], ")"]
        at = end
    return _OF_NVCC.sub("WB_CUDACC", "".join([*made, text[at:]]))


__all__ = ["rewritten", "stub"]
