"""The schema of an op that is born from a C++ signature on tensors, of the host or the full tier."""

from __future__ import annotations

import re

from ..errors import SchemaError
from ..schema import Argument, Schema, split_name
from ..source import Function, Parameter

# C++ types without const, references and namespaces -> the schema's spelling.
TYPES = {
    "Tensor": "Tensor",
    "TensorList": "Tensor[]",
    "ITensorListRef": "Tensor[]",
    "IntArrayRef": "SymInt[]",
    "double": "float",
    "float": "float",
    "bool": "bool",
    "string": "str",
    "string_view": "str",
    "ScalarType": "ScalarType",
    "Device": "Device",
    **dict.fromkeys(("int", "long", "long long", "int64_t", "int32_t", "int16_t", "int8_t", "uint8_t", "uint32_t",
                     "uint64_t", "size_t", "unsigned", "unsigned int", "short"), "SymInt"),
}  # fmt: skip
_LISTS = re.compile(r"(?:vector|ArrayRef|List)<(.*)>")
_OPTIONAL = re.compile(r"optional<(.*)>")


def plain(type_: str) -> str:
    """A C++ type without const, references and namespaces: `const std::vector<at::Tensor>&` is `vector<Tensor>`."""
    text = re.sub(r"\bconst\b|&", " ", type_)
    text = re.sub(r"\b\w+\s*::\s*", "", text)
    return re.sub(r"\s*([<>,])\s*", r"\1", re.sub(r"\s+", " ", text)).strip()


def schema_type(parameter: Parameter) -> str:
    """The schema's spelling of a parameter's type; SchemaError, on its line, where there is none."""
    wanted = plain(parameter.type)
    if found := _OPTIONAL.fullmatch(wanted):
        return _spell(found[1], parameter) + "?"
    return _spell(wanted, parameter)


def _spell(wanted: str, parameter: Parameter) -> str:
    if wanted in TYPES:
        return TYPES[wanted]
    if (found := _LISTS.fullmatch(wanted)) and (found[1] in TYPES or _OPTIONAL.fullmatch(found[1])):
        inner = _OPTIONAL.fullmatch(found[1])
        return f"{TYPES[inner[1]]}?[]" if inner else f"{TYPES[found[1]]}[]"
    cure = "write double" if wanted in ("Scalar", "half", "Half", "BFloat16") else "use Tensor, double, int64_t, bool, std::string, or lists and optionals of these"
    raise SchemaError(f"the parameter '{parameter.spelled}' is a {wanted}, which no schema can say: {cure}", line=parameter.line)


def infer(function: Function, qualname: str) -> Schema:
    """The schema that a function's C++ types say; parameters that it may write to are mutated arguments.

    >>> str(infer(count_above, "lab::count_above"))
    'lab::count_above(Tensor x, float limit) -> Tensor'
    """
    namespace, name = split_name(qualname)
    arguments = []
    for p in function.parameters:
        if p.pointer:
            raise SchemaError(f"the parameter '{p.spelled}' is a pointer, which no schema can say; take a Tensor", line=p.line)
        spelled = schema_type(p)
        writable = spelled.startswith("Tensor") and "&" in p.spelled and not p.const and function.returns.strip() == "void"
        arguments.append(Argument(p.name, spelled, mutated=writable))
    types = _results(function)
    outputs = ("out",) if len(types) == 1 else tuple(f"out{i}" for i in range(len(types)))
    return Schema(namespace, name, tuple(arguments), outputs, types)


def _results(function: Function) -> tuple[str, ...]:
    returns = plain(function.returns)
    if returns == "void":
        return ()
    inner = re.fullmatch(r"(?:tuple|pair)<(.*)>", returns)
    words = _split(inner[1]) if inner else [returns]
    found = []
    for word in words:
        listed = _LISTS.fullmatch(word)
        if word == "Tensor" or (listed and listed[1] == "Tensor"):
            found.append("Tensor[]" if listed else "Tensor")
        elif TYPES.get(word) in ("SymInt", "float", "bool"):
            found.append(TYPES[word])
        else:
            raise SchemaError(f"{function.name} returns {function.returns}; an op returns Tensors, lists of them and numbers", line=function.line)
    return tuple(found)


def _split(text: str) -> list[str]:
    """The arguments of a template, at the outermost commas."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "<") - (c == ">")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return parts
