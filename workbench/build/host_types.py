"""The C++ types of host cells beside those of a schema: what torch hands over, what a signature may ask for instead.

Pure text; `host.py` puts it together.
"""

from __future__ import annotations

import re

from ..directives import Declaration
from ..errors import SchemaError
from ..schema import Argument
from ..source import Function, Parameter
from .body_parts import literal

# A schema's type -> the C++ type in which torch hands it over.
TYPES = {
    "Tensor": "Tensor",
    "Tensor?": "std::optional<Tensor>",
    "Tensor[]": "std::vector<Tensor>",
    "Tensor?[]": "std::vector<std::optional<Tensor>>",
    "int": "int64_t",
    "SymInt": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string",
    "ScalarType": "ScalarType",
    "Device": "Device",
}
# Numbers: the type that torch hands over, and those that a signature may take it as.
NUMBERS = {
    "int": ("int64_t", {"int", "long", "long int", "long long", "long long int", "short", "int8_t", "int16_t",
                        "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "size_t", "ptrdiff_t",
                        "unsigned", "unsigned int", "unsigned long", "unsigned long long", "unsigned short", "char",
                        "signed char", "unsigned char"}),
    "float": ("double", {"float", "double"}),
    "bool": ("bool", {"bool"}),
}  # fmt: skip
_NAMESPACES = re.compile(
    r"\btorch::(?:stable|headeronly)::(?=(?:Tensor|Device|ScalarType)\b)|\bstd::(?=(?:u?int\d+|size|ptrdiff)_t\b)"
)


def native_type(argument: Argument, line: int = 0) -> str:
    """The C++ type of an argument as torch hands it over; SchemaError for what the stable ABI has no type for."""
    spelled = argument.type
    if spelled in TYPES:
        return TYPES[spelled]
    optional, single = spelled.endswith("?"), re.sub(r"\[\d*\]$", "", spelled.removesuffix("?"))
    if single in TYPES:
        inner = TYPES[single] if single == spelled.removesuffix("?") else f"std::vector<{TYPES[single]}>"
        return f"std::optional<{inner}>" if optional else inner
    cure = "write float" if spelled.startswith("Scalar") else "write the function on torch::Tensor (the full tier)"
    raise SchemaError(f"{argument.name} is a {spelled}, which host cells cannot take: {cure}", line=line)


def converted(parameter: Parameter, argument: Argument, value: str, op: str) -> str:
    """The expression that turns `value`, of the argument's native type, into what the parameter takes.

    >>> converted(float_lr, Argument("lr", "float"), "lr", "lab::adam_")
    'wb::narrow<float>(lr, "lab::adam_: lr", "float lr")'
    """
    wanted, native = plain(parameter.type), native_type(argument, parameter.line)
    place = f'"{op}: {argument.name}", {literal(parameter.spelled)}'
    if native.startswith("std::optional<") and not wanted.startswith("std::optional<"):
        native, value = native[len("std::optional<") : -1], f"wb::given({value}, {place})"
    if wanted == native or (wanted == "std::string_view" and native == "std::string"):
        return value
    own, allowed = NUMBERS.get(re.sub(r"(\[\d*\])?\??$", "", argument.type).replace("SymInt", "int"), ("", set()))
    for outer, call in (("{}", "narrow"), ("std::optional<{}>", "narrow_optional"), ("std::vector<{}>", "narrow_list")):
        narrow = next((t for t in allowed if wanted == outer.format(t)), None)
        if narrow and native == outer.format(own):
            return f"wb::{call}<{narrow}>({value}, {place})"
    raise SchemaError(
        f"the parameter '{parameter.spelled}' cannot take {argument.name}, which is a {argument.type} in the schema: "
        f"write it as '{native_type(argument)} {parameter.name}'",
        line=parameter.line,
    )


def from_slot(p: Parameter, slot: str, declaration: Declaration, name: str) -> str:
    kind = declaration.values[name].value
    wanted = plain(p.type)
    place = f'"{declaration.schema.qualname}: {name}", {literal(p.spelled)}'
    optional = any(a.name == name and a.optional for a in declaration.arguments)
    if p.pointer:
        raise SchemaError(
            f"'{p.spelled}' is a pointer beside a Tensor; take the Tensor and ask it for its data", line=p.line
        )
    if kind == "tensor":
        if wanted == "Tensor":
            lent = f"wb::borrow_given({slot}.p, {place})" if optional else f"wb::borrow({slot}.p)"
            # A reference that is not const needs something to refer to that lives through the call.
            return f"(Tensor&)(const Tensor&){lent}" if "&" in p.spelled and not p.const else lent
        if wanted == "std::optional<Tensor>":
            return f"wb::borrow_optional({slot}.p)"
    elif kind == "float" and wanted in NUMBERS["float"][1]:
        return f"wb::narrow<{wanted}>({slot}.f, {place})"
    elif kind == "bool" and wanted == "bool":
        return f"{slot}.i != 0"
    elif kind == "dtype" and wanted == "ScalarType":
        return f"static_cast<ScalarType>({slot}.i)"
    elif kind == "int" and wanted in NUMBERS["int"][1]:
        return f"wb::narrow<{wanted}>({slot}.i, {place})"
    cure = "" if kind in ("tensor", "float", "bool", "int", "dtype") else "; a function that returns its results can"
    raise SchemaError(f"the parameter '{p.spelled}' cannot take {name}, which is {kind} here{cure}", line=p.line)


def results(function: Function) -> int:
    """How many results a signature returns: 0 for void, the arity of a tuple, else 1."""
    return len(result_types(function))


def result_types(function: Function) -> list[str]:
    """The results of a signature, each as `plain` spells it: none for void.

    >>> result_types(rmsnorm)      # std::tuple<Tensor, float> rmsnorm(...)
    ['Tensor', 'float']
    """
    returns = plain(function.returns)
    inner = re.fullmatch(r"std::(?:tuple|pair)<(.*)>", returns)
    return split(inner[1]) if inner else [] if returns == "void" else [returns]


def split(text: str) -> list[str]:
    """The arguments of a template, at the outermost commas."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "<") - (c == ">")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def plain(type_: str) -> str:
    """A C++ type without const, references and torch's namespaces: `const torch::stable::Tensor&` is `Tensor`."""
    text = re.sub(r"\bconst\b|&", " ", type_)
    text = _NAMESPACES.sub("", re.sub(r"\s*::\s*", "::", re.sub(r"\s+", " ", text).strip()))
    text = re.sub(r"\s*([<>,])\s*", r"\1", text)
    return re.sub(r"(?<![:\w])(vector|optional|string|string_view|tuple|pair)\b", r"std::\1", text)
