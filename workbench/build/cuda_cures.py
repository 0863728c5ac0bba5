"""What to write in place of what NVRTC refuses: a missing include, what device code has instead. Pure text."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import Diagnostic
from . import cuda_headers

_NO_SPACE = re.compile(r'name followed by "::" must be a class or namespace name|name must be a namespace name')
_NO_MEMBER = re.compile(r'namespace "([\w:]+)" has no member "(\w+)"')
_NO_NAME = re.compile(r'identifier "(\w+)" is undefined')
_INCLUDE = "add '#include <{}>' at the top"
_GROUPS, _RUNTIME = "cooperative_groups.h", "the CUDA runtime is the host's: call it in a function on Tensor"
_ALIAS = " and 'namespace cg = cooperative_groups;' below it"
_ONE_TYPE = (
    "in all forms of a template an 'extern __shared__' array is the same one: declare 'extern __shared__ char "
    "bytes[]', and let a 'T*' point to it with reinterpret_cast"
)
# What is said wherever these words are in a message.
_SAID = (
    (re.compile(r'"(?:cout|cerr|endl|stderr|stdout|fprintf)"'), "device code prints with printf"),
    (
        re.compile(r'no member "(?:vector|string|map|unordered_map)"'),
        "device code has none: take an array or a pointer",
    ),
    (
        re.compile(r"^device-side kernel launch"),
        "kernels here launch none: the host does, in a raw cell by a '//! grid' and a '//! block' for each",
    ),
    (
        re.compile(r'^more than one instance of overloaded function "(?:min|max)"'),
        "its arguments are of two types: cast one",
    ),
    (
        re.compile(r'^no instance of overloaded function "atomic\w+"'),
        "it takes a pointer to int, unsigned, unsigned long long, float or double that is not const",
    ),
    (re.compile(r'^no instance of overloaded function "__shfl\w*_sync"'), "the mask comes first: (~0u, value, lanes)"),
    (
        re.compile(r'^more than one (?:operator "\S+" matches|conversion function from "(?:__half|__nv_bfloat16)")'),
        "half and bfloat16 convert to several numbers: write float(...) around them",
    ),
)
_NAMES = (
    (re.compile(r"__pipeline_\w+"), _INCLUDE.format("cuda_pipeline.h")),
    (re.compile(r"CUDART_\w+"), _INCLUDE.format("math_constants.h")),
    (re.compile(r"curand\w*"), _INCLUDE.format("curand_kernel.h")),
    (re.compile(r"wmma|nvcuda"), _INCLUDE.format("mma.h")),
    (re.compile(r"(?:STD_)?TORCH_CHECK\w*|AT_ASSERT\w*"), "what must hold is said above, as in '//! require n > 0'"),
    (re.compile(r"cuda(?:Device|Stream|Thread)Synchronize"),
     "threads of a block wait with __syncthreads(); kernels run one after the other anyway"),
    (re.compile(r"cuda(?:Malloc|Free)\w*"), "memory is made above, as in '//! buffer = empty(n, dtype=float32)'"),
    (re.compile(r"cudaMemset\w*"), "memory of zeros is made above, as in '//! out = zeros(n)'"),
    (re.compile(r"cu(?:da|blas|dnn|fft|solver|sparse)[A-Z]\w*"), _RUNTIME),
)  # fmt: skip
# What other versions of CUB had.
_CUB = {
    "Sum": "write cuda::std::plus<>{}, with '#include <cuda/std/functional>'",
    "Max": "write cuda::maximum<>{}, with '#include <cuda/functional>'",
    "Min": "write cuda::minimum<>{}, with '#include <cuda/functional>'",
    "LaneId": "write threadIdx.x % 32",
}
_MEMBERS = {"reduce": "reduce", "plus": "reduce", "less": "reduce", "greater": "reduce", "bit_and": "reduce",
            "bit_or": "reduce", "bit_xor": "reduce", "memcpy_async": "memcpy_async", "wait": "memcpy_async",
            "wait_prior": "memcpy_async", "inclusive_scan": "scan", "exclusive_scan": "scan"}  # fmt: skip
_STANDARD = {"barrier": "barrier", "pipeline": "pipeline", "make_pipeline": "pipeline", "atomic": "atomic",
             "atomic_ref": "atomic", "memcpy_async": "barrier", "maximum": "functional", "minimum": "functional",
             "ptx": "ptx", "fast_mod_div": "cmath"}  # fmt: skip


def cure(said: Diagnostic) -> str:
    """What to do about an error of NVRTC, "" where we know nothing better than the compiler.

    >>> cure(Diagnostic("cell", 9, 3, "error", 'identifier "cudaMalloc" is undefined', "  cudaMalloc(&p, 4);"))
    "memory is made above, as in '//! buffer = empty(n, dtype=float32)'"
    """
    told = next((told for pattern, told in _SAID if pattern.search(said.message)), "")
    if told:
        return told
    if one_type(said):
        return _ONE_TYPE
    unknown = _NO_NAME.match(said.message)
    if unknown:
        return _of_name(unknown[1])
    member = _NO_MEMBER.match(said.message)
    if member:
        return _MEMBER.get(member[1].partition("::")[0], lambda _: "")(member[2])
    if _NO_SPACE.match(said.message):
        at = max(said.column - 1, 0)
        if re.search(r"\bcub\s*::\s*$", said.excerpt[:at]):
            at = said.excerpt.rindex("cub", 0, at)
        found = re.match(r"(\w+)(?:\s*::\s*(\w+))?", said.excerpt[at:])
        return _of_space(found[1], found[2] or "", "namespace cg" in said.excerpt) if found else ""
    return ""


def one_type(said: Diagnostic) -> bool:
    """Is this `extern __shared__ T x[]` of a template that is there for two dtypes?"""
    other = said.message.startswith("declaration is incompatible with previous")
    return other and bool(re.search(r"\bextern\b.*\b__shared__\b|\b__shared__\b.*\bextern\b", said.excerpt))


def _of_name(name: str) -> str:
    return next((told for pattern, told in _NAMES if pattern.fullmatch(name)), "")


def _of_groups(name: str) -> str:
    return _INCLUDE.format(f"cooperative_groups/{_MEMBERS[name]}.h") if name in _MEMBERS else ""


def _of_cub(name: str) -> str:
    if name in _CUB:
        return f"the CUB of this CUDA has it no longer: {_CUB[name]}"
    if name.startswith("Device"):
        return "it is called by the host, in a function on Tensor"
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    header = f"cub/{words.partition('_')[0]}/{words}.cuh"
    return _INCLUDE.format(header) if header in cuda_headers.of_cub() else ""


def _of_standard(name: str) -> str:
    return _INCLUDE.format(f"cuda/{_STANDARD[name]}") if name in _STANDARD else ""


_MEMBER: dict[str, Callable[[str], str]] = {
    "cooperative_groups": _of_groups, "cub": _of_cub, "cuda": _of_standard,
}  # fmt: skip


def _of_space(name: str, inside: str, is_alias: bool) -> str:
    """A namespace that no header has brought."""
    if name in ("cg", "cooperative_groups"):
        more = _of_groups(inside) or _INCLUDE.format(_GROUPS)
        return more + (_ALIAS if name == "cg" and not is_alias else "")
    if name == "cub":
        return _of_cub(inside) or _INCLUDE.format("cub/cub.cuh")
    if name == "wb":
        return "wb:: is for functions on Tensor: a raw cell's stream, device and memory are seen to"
    if name == "cuda":
        return _of_standard(inside)
    return _of_name(name) + (" and 'using namespace nvcuda;' below it" if name == "wmma" else "")


__all__ = ["cure", "one_type"]
