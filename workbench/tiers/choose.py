"""Which of the three ways a cell is written in, from its text alone, and what a faster one would need.

raw: kernel functions on pointers. host: functions on `Tensor`, torch's stable ABI. full: all that load_inline takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..cuda_marks import C_TOKENS
from ..errors import SchemaError
from ..source import Function, Source, code

# What only the full tier can build, and how the card names it.
_FULL = (
    (re.compile(r"\btorch::(?!stable\b|headeronly\b)\w+"), "{} in the text"),
    (re.compile(r"\b(?:at|c10)::\w+"), "{} in the text"),
    (re.compile(r"\busing\s+namespace\s+(?:torch|at|c10)\s*;"), "{} in the text"),
    (re.compile(r"\bTORCH_LIBRARY\w*\s*\("), "a TORCH_LIBRARY block"),
    (re.compile(r"\bPYBIND11_MODULE\s*\("), "a PYBIND11_MODULE block"),
    (re.compile(r"\bAT_DISPATCH_\w+"), "{} in the text"),
    (re.compile(r"#\s*include\s*[<\"](?:torch/(?!csrc/stable|headeronly)|ATen/|c10/|pybind11/)[^>\"]*[>\"]"), "{}"),
)
_HOST_TYPE = re.compile(r"\bTensor\b")
_ON_HOST = re.compile(r"(?<!cute::)\b(?:Tensor|TensorList)\b(?!\s*<)")


@dataclass(frozen=True)
class Tier:
    """`name` is raw, host or full; `because` says what in the text decided, "" for raw.

    >>> tier(Source("at::Tensor f(at::Tensor x) { return x; }", "cpp"), functions(...))
    Tier(name='full', because='at::Tensor in the text')
    """

    name: str
    because: str = ""


def tier(source: Source, functions: tuple[Function, ...]) -> Tier:
    """The tier of a C++ or CUDA cell. Comments and strings decide nothing; includes do.

    SchemaError, on its line, for a kernel that takes a tensor: that is a mistake in every tier.
    """
    _check_kernels(source, functions)
    plain = code(source.text)
    for pattern, because in _FULL:
        found = pattern.search(plain)
        if found:
            return Tier("full", because.format(" ".join(found[0].split()).rstrip("; ")))
    for f in functions:
        if any(_HOST_TYPE.search(t) for t in (f.returns, *(p.spelled for p in f.parameters))):
            return Tier("host", f"Tensor in the signature of {f.name}")
    return Tier("raw")


def _check_kernels(source: Source, functions: tuple[Function, ...]) -> None:
    for f in functions:
        own = {t.name for t in f.templates}
        for p in f.parameters if f.is_global or f.is_device else ():
            if _ON_HOST.search(p.spelled) and p.type not in own:
                said = f"{f.name}: '{p.spelled}': device code takes pointers, tensors are the host's"
                raise SchemaError(f"{said}: write 'const float* {p.name}'", line=p.line, file=source.file)


def full_only(source: Source) -> tuple[str, ...]:
    """All that only the full tier can build, as the text spells it, each once: `at::Tensor`, `<torch/extension.h>`."""
    plain = code(source.text)
    found = []
    for pattern, _ in _FULL:
        for match in pattern.finditer(plain):
            header = re.search(r"[<\"](.*)[>\"]", match[0])
            found.append((match.start(), f"<{header[1]}>" if header else " ".join(match[0].split()).rstrip("(; ")))
    return tuple(dict.fromkeys(word for _, word in sorted(found)))


def line_of(text: str, word: str) -> int:
    """How many lines stand above the first that holds the word outside of comments and strings, includes counted."""
    kept = C_TOKENS.sub(lambda m: re.sub(r"[^\n]", " ", m[0]) if m["comment"] else m[0], text)
    at = kept.find(word)
    return kept.count("\n", 0, at) if at >= 0 else 0
