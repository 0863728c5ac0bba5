"""Why a CUDA text of the host tier cannot be parted into two halves, in words for the line. Pure text."""

from __future__ import annotations

import re

from ..cuda_marks import blanked
from ..source import Function

# What the host half may call of the CUDA runtime: wb_host_cuda.h has these.
RUNTIME = frozenset({
    "cudaGetLastError", "cudaPeekAtLastError", "cudaGetErrorString", "cudaGetErrorName", "cudaMemsetAsync",
    "cudaFuncSetAttribute", "cudaGetDevice",
})  # fmt: skip
_CALLS = re.compile(r"\b(cu(?:da[A-Z]|blas|dnn|rand|fft|sparse|solver|[A-Z])\w*)\s*(?:<[^<>;(){}]*>\s*)?\(")
_DEVICE_SIDE = re.compile(r"\bcurand(?:_|State|Philox)\w*|\bcudaGraph\w*|\bcudaStream_t\b")
_REASONS = (
    (re.compile(r"\bthrust::\w+"), "{}"),
    (re.compile(r"\bcub::Device\w+"), "{}"),
    (re.compile(r"\]\s*__device__|\]\s*__host__\s*__device__"), "a __device__ lambda"),
    (re.compile(r"\bcudaMemcpy(?:To|From)Symbol\w*"), "{}"),
    (re.compile(r"\b(?:texture|surface)\s*<|\bcudaTextureObject_t\b|\btex[123]D\w*"), "textures"),
    (
        re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+\w+\((?:[^\n]*\\\n)*[^\n]*\b__global__\b"),
        "a kernel that a macro defines",
    ),
    (re.compile(r"\b__managed__\b"), "__managed__ memory"),
    (
        re.compile(r"\bcooperative_groups::this_grid\b|\bcg::this_grid\b|\bcudaLaunchCooperativeKernel\b"),
        "a cooperative launch",
    ),
)


def first(text: str) -> str:
    """What in the text only nvcc can compile, "" if nothing speaks against two halves.

    >>> first("void f() { thrust::sort(a, b); }")
    'thrust::sort'
    """
    plain = _defines_in(text)
    for pattern, because in _REASONS:
        found = pattern.search(plain)
        if found:
            return because.format(" ".join(found[0].split()))
    for call in _CALLS.finditer(plain):
        if call[1] not in RUNTIME and not _DEVICE_SIDE.match(call[1]):
            return call[1]
    return ""


def _defines_in(text: str) -> str:
    """The text without comments and strings; the joints of macro definitions stay."""
    joints = re.sub(r"\\\n", "\\\\\n", text)
    plain = list(blanked(joints))
    for m in re.finditer(r"\\\n", joints):
        plain[m.start()] = "\\"
    return "".join(plain)


def of_kernel(kernel: Function | None) -> str:
    """What in a kernel's head no stub can say."""
    if kernel is None:
        return "a kernel whose head could not be read"
    if any(not t.kind for t in kernel.templates):
        return f"a template parameter of {kernel.name} without a name"
    if any(not p.name for p in kernel.parameters):
        return f"a parameter of {kernel.name} without a name"
    return next(filter(None, (of_instance(p.type) for p in kernel.parameters)), "")


def of_instance(spelled: str) -> str:
    """What of a kernel with its template arguments, or of a parameter's type, cannot be said to the other half.

    >>> of_instance("k<std::tuple<int, float>>")
    'a std::tuple in a launch'

    NVRTC has its own standard library, which lays such types out otherwise.
    """
    if re.search(r"\{lambda|\{unnamed|'lambda", spelled):
        return f"{spelled.partition('<')[0]} with a type that has no name"
    found = re.search(r"\bstd::(?:tuple|optional|variant|function)\b(?=\s*<)", spelled)
    return f"a {found[0]} in a launch" if found else ""


__all__ = ["RUNTIME", "first", "of_instance", "of_kernel"]
