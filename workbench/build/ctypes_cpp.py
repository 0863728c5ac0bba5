"""The C types that kernels may name: what each holds, which dtype its pointers take. One table for all who ask."""

from __future__ import annotations

import torch

# Spelled type -> (name in messages and codes, dtype of a pointer to it). `std::` and `unsigned`'s place are dropped.
_SPELLED: dict[str, tuple[str, torch.dtype]] = {
    **dict.fromkeys(["float"], ("float", torch.float32)),
    **dict.fromkeys(["double"], ("double", torch.float64)),
    **dict.fromkeys(["bool"], ("bool", torch.bool)),
    **dict.fromkeys(["int8_t", "signed char", "char"], ("int8_t", torch.int8)),
    **dict.fromkeys(["uint8_t", "unsigned char"], ("uint8_t", torch.uint8)),
    **dict.fromkeys(["int16_t", "short", "short int"], ("int16_t", torch.int16)),
    **dict.fromkeys(["uint16_t", "unsigned short"], ("uint16_t", torch.uint16)),
    **dict.fromkeys(["int32_t", "int", "signed", "signed int"], ("int", torch.int32)),
    **dict.fromkeys(["uint32_t", "unsigned", "unsigned int"], ("unsigned int", torch.uint32)),
    **dict.fromkeys(
        ["int64_t", "long", "long int", "long long", "long long int", "ptrdiff_t", "ssize_t"], ("int64_t", torch.int64)
    ),
    **dict.fromkeys(
        ["uint64_t", "unsigned long", "unsigned long long", "unsigned long int", "size_t"], ("uint64_t", torch.uint64)
    ),
    **dict.fromkeys(["half", "_Float16", "__half"], ("half", torch.float16)),
    **dict.fromkeys(["bfloat16", "nv_bfloat16", "__nv_bfloat16"], ("bfloat16", torch.bfloat16)),
    **dict.fromkeys(["__nv_fp8_e4m3"], ("__nv_fp8_e4m3", torch.float8_e4m3fn)),
    **dict.fromkeys(["__nv_fp8_e5m2"], ("__nv_fp8_e5m2", torch.float8_e5m2)),
}

# Codes of launcher.h's type_name, in its order.
CODES = ("pointer", "float", "double", "bool", "int8_t", "uint8_t", "int16_t", "uint16_t", "int", "unsigned int",
         "int64_t", "uint64_t", "half", "bfloat16", "__nv_fp8_e4m3", "__nv_fp8_e5m2")  # fmt: skip

# What a template's type parameter becomes for a dtype, in C++.
CPP: dict[torch.dtype, str] = {
    torch.float32: "float", torch.float64: "double", torch.float16: "_Float16", torch.bfloat16: "bfloat16",
    torch.int8: "int8_t", torch.int16: "int16_t", torch.int32: "int32_t", torch.int64: "int64_t",
    torch.uint8: "uint8_t", torch.uint16: "uint16_t", torch.uint32: "uint32_t", torch.uint64: "uint64_t",
    torch.bool: "bool",
}  # fmt: skip

# The same in CUDA.
CUDA: dict[torch.dtype, str] = {
    **CPP, torch.float16: "__half", torch.bfloat16: "__nv_bfloat16", torch.float8_e4m3fn: "__nv_fp8_e4m3",
    torch.float8_e5m2: "__nv_fp8_e5m2",
}  # fmt: skip

# torch's own numbers of dtypes, as the stable ABI hands them over; tests compare them with libtorch.
DTYPE_CODES: dict[torch.dtype, int] = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
    torch.float32: 6, torch.float64: 7, torch.complex32: 8, torch.complex64: 9, torch.complex128: 10, torch.bool: 11,
    torch.bfloat16: 15, torch.float8_e5m2: 23, torch.float8_e4m3fn: 24, torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26, torch.uint16: 27, torch.uint32: 28, torch.uint64: 29,
}  # fmt: skip


def _plain(spelled: str) -> str:
    words = [w for w in spelled.replace("std::", "").replace("at::", "").split() if w not in ("const", "volatile")]
    if "unsigned" in words and words[0] != "unsigned":  # `long unsigned int`
        words.remove("unsigned")
        words.insert(0, "unsigned")
    return " ".join(words)


def name_of(spelled: str) -> str | None:
    """`"long long"` -> `"int64_t"`; None for a type that no value converts to."""
    found = _SPELLED.get(_plain(spelled))
    return found[0] if found else None


def dtype_of(spelled: str) -> torch.dtype | None:
    """The dtype that a pointer to this type takes; None if there is none."""
    found = _SPELLED.get(_plain(spelled))
    return found[1] if found else None


def short(dtype: torch.dtype | None) -> str:
    return "None" if dtype is None else str(dtype).removeprefix("torch.")
