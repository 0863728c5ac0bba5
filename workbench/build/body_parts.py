"""What the texts of C++ and of CUDA bodies have in common. Pure text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ..directives import Declaration
from ..errors import SchemaError
from ..source import Parameter, Source
from . import ctypes_cpp
from .forms import Form


def line_directive(number: int, file: str) -> str:
    """A `#line` directive; control characters in a file's name would end it."""
    return f'#line {number} "{quoted(file)}"'


def quoted(file: str) -> str:
    name = "".join(c if c.isprintable() else "?" for c in file)
    return name.replace("\\", "\\\\").replace('"', '\\"')


def literal(text: str) -> str:
    """A string of C++, in its quotes; what would end it is escaped.

    >>> print(literal("float alpha"))
    "float alpha"
    """
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def of_user(source: Source) -> str:
    """The user's text under its `#line`, with a newline at its end."""
    text = source.text if source.text.endswith("\n") else source.text + "\n"
    return f"{line_directive(source.first_line, source.file)}\n{text}"


def constants(form: Form, bound: Collection[str]) -> list[str]:
    """The tuned names that are no template argument, as `constexpr`: a macro would break `template <int TILE>`."""
    lines = []
    for tune in form.declaration.tunes.values():
        if tune.name not in bound:
            value = form.tuned.get(tune.name, tune.values[0])
            kind = "double" if isinstance(value, float) else "int" if abs(value) < 2**31 else "long long"
            lines.append(f"constexpr {kind} {tune.name} = {value!r};")
    return lines


def coded(p: Parameter, arguments: Mapping[str, str], declaration: Declaration) -> tuple[int, str]:
    """What a launcher must know of a parameter: (index among the named values, C type or `float*`)."""
    value = list(declaration.values).index(p.name)
    return value, f"{arguments.get(p.type, p.type)}*" if p.pointer else scalar(p, arguments)[1]


def scalar(p: Parameter, arguments: Mapping[str, str]) -> tuple[str, str]:
    """(C++ type to convert to, its name among the codes)"""
    spelled = arguments.get(p.type, p.type)
    name = ctypes_cpp.name_of(spelled)
    if name is None:
        raise SchemaError(f"'{p.spelled}': no value converts to {spelled}", line=p.line)
    return spelled, name


def defines(text: str, name: str) -> bool:
    """Does the text make a type of that name itself?"""
    return bool(re.search(rf"\b(?:struct|class|union|using)\s+{name}\b|\btypedef\b[^;]*\b{name}\s*;", text))
