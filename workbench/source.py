"""The text of one cell or file: its language, directives, title and functions, with the user's own line numbers.

Signatures are read with tree-sitter. Nothing here compiles anything.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameter:
    """One parameter of a C++ or CUDA function: `const T* __restrict__ x` is ("x", "T", pointer, const)."""

    name: str
    type: str  # the element type without const, pointer or reference marks: "float", "T", "int64_t", "Tensor"
    pointer: bool
    const: bool
    line: int
    spelled: str = ""  # the whole declarator as written


@dataclass(frozen=True)
class TemplateParameter:
    """`typename T` is ("T", "typename"), `int BLOCK` is ("BLOCK", "int")."""

    name: str
    kind: str
    line: int


@dataclass(frozen=True)
class Function:
    name: str
    parameters: tuple[Parameter, ...]
    returns: str
    line: int
    templates: tuple[TemplateParameter, ...] = ()
    is_global: bool = False  # __global__
    is_device: bool = False  # __device__ only: a helper
    namespace: str = ""


@dataclass(frozen=True)
class Source:
    """What was typed, where. `file` names it in diagnostics (`cell [3]`, `rmsnorm.cpp`); `text` excludes the magic line.

    `first_line` is the number of the first line of `text` as the user counts: 2 in a cell whose line 1 is the magic,
    1 in a file.
    """

    text: str
    language: str  # "cpp", "cuda", "triton"
    file: str = "cell"
    first_line: int = 1
    path: str = ""  # the folder in which quoted includes are looked up
