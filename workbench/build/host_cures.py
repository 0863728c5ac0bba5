"""What a function on torch's stable `Tensor` writes for what `at::Tensor` has as a member. Pure text."""

from __future__ import annotations

import re

_MEMBER = re.compile(  # gcc, clang, nvcc
    r"[‘'](?:const )?class torch::stable::Tensor[’'] has no member named [‘'](?P<gcc>\w+)[’']"
    r"|no member named '(?P<clang>\w+)' in 'torch::stable::Tensor'"
    r"|class \"torch::stable::Tensor\" has no member \"(?P<nvcc>\w+)\""
)
_POINTER = re.compile(
    r"^expected primary-expression before|^type name is not allowed|'data_ptr' does not name a template"
)
FUNCTIONS = ("amax", "clone", "contiguous", "copy_", "fill_", "flatten", "matmul", "narrow", "new_empty", "new_zeros",
             "pad", "reshape", "select", "squeeze", "subtract", "sum", "to", "transpose", "unsqueeze", "view",
             "zero_")  # fmt: skip
_INSTEAD = {
    "options": "its dtype is {x}.scalar_type(), and new_empty({x}, sizes) makes one like it",
    "dtype": "write {x}.scalar_type()",
    "type": "write {x}.scalar_type()",
    "ndimension": "write {x}.dim()",
    "item": "read it through {x}.const_data_ptr<float>()",
    "get_device": "write {x}.get_device_index()",
}
_DTYPES = {"Float": "Float", "Float32": "Float", "Double": "Double", "Float64": "Double", "Half": "Half",
           "Float16": "Half", "BFloat16": "BFloat16", "Int": "Int", "Int32": "Int", "Long": "Long", "Int64": "Long",
           "Bool": "Bool", "UInt8": "Byte", "Byte": "Byte", "Int8": "Char", "Char": "Char"}  # fmt: skip
# What of torch::, at:: and c10:: a function on the stable Tensor has under another name.
STABLE = {
    **{f"k{name}": f"ScalarType::{meant}" for name, meant in _DTYPES.items()},
    "empty_like": "empty_like(x)",
    "zeros_like": "new_zeros(x, x.sizes())",
    "empty": "new_empty(x, sizes)",
    "zeros": "new_zeros(x, sizes)",
    "getCurrentCUDAStream": "wb::current_stream()",
    "TORCH_CHECK": "STD_TORCH_CHECK",
}
POINTERS = "write const_data_ptr<T>() to read and mutable_data_ptr<T>() to write"
TIER = "the stable Tensor has it not; torch::Tensor has (the full tier, whose edits take seconds)"


def told(message: str, excerpt: str) -> str:
    """The message with its cure in place of what the compiler guesses."""
    known = cure(message, excerpt)
    return f"{message.partition('; did you mean')[0]}; {known}" if known else message


def cure(message: str, excerpt: str) -> str:
    """What to write, "" where the message is about something else.

    >>> cure("‘const class torch::stable::Tensor’ has no member named ‘clone’", "auto y = x.clone();")
    'write clone(x)'
    """
    if _POINTER.search(message) and re.search(r"[.>]\s*data_ptr\s*<", excerpt):
        return POINTERS
    found = _MEMBER.search(message)
    if not found:
        return ""
    name = next(filter(None, found.groups()))
    if name == "data_ptr":
        return POINTERS
    owner = re.search(rf"(\w+)\s*(?:\.|->)\s*{name}\b", excerpt)
    x = owner[1] if owner else "x"
    if name in FUNCTIONS:
        called = re.search(rf"\b{name}\s*\(\s*\)", excerpt)
        return f"write {name}({x}{'' if called else ', ...'})"
    return _INSTEAD[name].format(x=x) if name in _INSTEAD else TIER


__all__ = ["STABLE", "cure", "told"]
