"""What was probably meant: misspelt words, directives that are comments, a function without `__global__`."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping, Sequence

from ..cuda_marks import blanked
from ..errors import SchemaError
from ..source import Function, Source, code, comments
from .vocabulary import DTYPES, FUNCTIONS, MAKERS, shown

KEYWORDS = ("require", "tune", "flags")
DTYPE_NAMES = {
    "float": "float32", "double": "float64", "half": "float16", "short": "int16", "int": "int32", "long": "int64",
}  # fmt: skip
_NUMBER = r"\(?\s*(-?\d+)[uUlL]*\s*\)?"
_CONSTANT = re.compile(
    r"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+(?P<meant>[^\n]+)"
    r"|\b(?P<how>constexpr|const)\s[\w\s:]{0,60}?\b(?P<name>\w+)\s*(?:=|\{)\s*(?P<value>[^;{}]*)\}?\s*;"
)
_TYPED = re.compile(
    r"(?:(?:const|constexpr|static|unsigned|int|long|float|double|bool|auto|size_t|u?int\d+_t|dim3)\s+)+"
    r"(\w+)\s*=(?!=)"
)
_TWO_WORDS = re.compile(r"([A-Za-z_]\w*)\s+(?!=[^=]|if\b|else\b|and\b|or\b|in\b|is\b|not\b)[\w(-]")


def keyword(line: int, text: str) -> None:
    """SchemaError for a line with a misspelt keyword or a type before it: `requires n > 0`, `flag -O3`, `int n = 4`."""
    typed = _TYPED.match(text)
    if typed:
        raise SchemaError(f"{typed[0].strip()!r}: names here have no type: write '{typed[1]} ='", line=line)
    first = _TWO_WORDS.match(text)
    near = difflib.get_close_matches(first[1], KEYWORDS, 1, 0.75) if first else []
    if first and near:
        raise SchemaError(f"{first[1]!r} is no directive; did you mean {near[0]!r}?", line=line)


def of_torch(node: ast.AST) -> str:
    """What to write in place of something of torch: `torch.empty_like(x)` is `empty_like(x)` here."""
    named = node.func if isinstance(node, ast.Call) else node
    name = named.attr if isinstance(named, ast.Attribute) else ""
    if name in (*MAKERS, *FUNCTIONS):
        plain = ast.unparse(node).removeprefix("torch.") + ("" if isinstance(node, ast.Call) else "(...)")
        return f"{shown(node)}: write {plain}, without torch"
    if name in DTYPE_NAMES:
        return f"{shown(node)}: write {DTYPE_NAMES[name]}"
    if isinstance(node, ast.Call):
        made = ", ".join(f"{f}()" for f in (*MAKERS, *FUNCTIONS))
        return f"{shown(node)} is not in the directive language; it has {made}"
    return f"{shown(node)} is no dtype of the directive language; it has {', '.join(DTYPES)}"


def constants(text: str) -> dict[str, str]:
    """The constants of a C++ text with their numbers, `...` for what is not written as one.

    >>> constants("#define TILE 32\\nconstexpr int N = 4 * TILE;")
    {'TILE': '32', 'N': '...'}
    """
    found = {}
    for m in _CONSTANT.finditer(code(text)):
        number = re.fullmatch(_NUMBER, (m["meant"] or m["value"] or "").strip())
        if number or m["how"] != "const":  # `const int row = blockIdx.x` is no constant
            found[m["macro"] or m["name"]] = number[1] if number else "..."
    return found


def no_kernel(functions: Sequence[Function], word: str, line: int) -> SchemaError:
    """No `__global__` function stands below this grid or block: is there one that lacks the word?"""
    below = next((f for f in functions if f.line >= line), None)
    if below is None:
        return SchemaError(f"no __global__ function follows this {word}: it belongs above its function", line=line)
    if below.is_device:
        said = f"{below.name} is a __device__ function, which is called and not launched"
        return SchemaError(f"{said}: write __global__, or put the {word} above the kernel", line=below.line)
    said = f"{below.name} has a {word}, and is no kernel: write '__global__ {below.returns} {below.name}(...)'"
    return SchemaError(said, line=below.line)


def no_grid(source: Source, functions: Sequence[Function], kernel: Function, op: str) -> SchemaError:
    """A cell that launches nothing: does it hold a function of pointers that would, by `<<<>>>`?"""
    said = f"{kernel.name} has no grid, nothing would be launched"
    plain = blanked(source.text)
    at = source.first_line + plain.count("\n", 0, plain.find("<<<")) if "<<<" in plain else 0
    host = next((f for f in reversed(functions) if f.line <= at and not f.is_global and not f.is_device), None)
    if host is None:
        return SchemaError(f"{said}: add '//! grid = ...' and '//! block = ...' above it", line=kernel.line)
    cure = f"let it take and return Tensor, as in 'Tensor {op}(const Tensor& x)', or put '//! grid = ...' and"
    return SchemaError(
        f"{host.name} launches {kernel.name} and takes no Tensor: {cure} '//! block = ...' above {kernel.name} in its "
        "place",
        line=host.line,
    )


def missing(source: Source, names: Mapping[str, int], kernel: str, word: str, line: int) -> SchemaError:
    """A kernel that has one of grid and block alone: a comment, or a misspelt name, may be the other.

    `names` are those that directives define, with their lines; `line` is that of what the kernel has.
    """
    said = f"{kernel} has no {word}"
    for at, text, _ in comments(source):
        if re.match(rf"//!?\s*{word}\s*=[^=]", text) and not text.startswith(f"//! {word}"):
            return SchemaError(f"{said}: this line is a comment; write '//! {word} = ...'", line=at)
    near = difflib.get_close_matches(word, names, 1, 0.7)
    if near:
        return SchemaError(f"{said}; did you mean {word!r} where it says {near[0]!r}?", line=names[near[0]])
    return SchemaError(f"{said}: add '//! {word} = ...' above it", line=line)


__all__ = ["constants", "keyword", "missing", "no_grid", "no_kernel", "of_torch"]
