"""The schema of an op that is born from a C++ signature on tensors, of the host or the full tier."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..build.host_types import NUMBERS, split
from ..directives.signature import check_name
from ..errors import SchemaError
from ..schema import NO_DEFAULT, Argument, Schema, split_name
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
    **dict.fromkeys(NUMBERS["int"][1], "SymInt"),
}
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
    optional, lists = _OPTIONAL.fullmatch(wanted), _LISTS.fullmatch(wanted)
    if optional and not _LISTS.fullmatch(optional[1]) and optional[1] in TYPES:
        return TYPES[optional[1]] + "?"
    if optional and (inside := _LISTS.fullmatch(optional[1])) and inside[1] in TYPES:
        if inside[1] != "Tensor":
            return f"{TYPES[inside[1]]}[]?"
        raise SchemaError(
            f"'{parameter.spelled}': an optional list of tensors has no schema; take a list, "
            "and pass an empty one for None",
            line=parameter.line,
        )
    if lists and (inside := _OPTIONAL.fullmatch(lists[1])) and inside[1] == "Tensor":
        return "Tensor?[]"
    if lists and lists[1] in TYPES:
        return f"{TYPES[lists[1]]}[]"
    if wanted in TYPES:
        return TYPES[wanted]
    numbers = ("Scalar", "half", "Half", "BFloat16", "bfloat16", "_Float16", "complex<float>", "complex<double>")
    cure = (
        "write double"
        if wanted in numbers
        else (
            "use Tensor, double, int64_t, bool, std::string, ScalarType, Device, or std::vector and std::optional of "
            "these"
        )
    )
    raise SchemaError(
        f"the parameter '{parameter.spelled}' is a {wanted}, which no schema can say: {cure}", line=parameter.line
    )


def infer(function: Function, qualname: str, declared: Sequence[str] = ()) -> Schema:
    """The schema that a function's C++ types say; parameters that it may write to are mutated arguments.

    >>> str(infer(count_above, "lab::count_above"))
    'lab::count_above(Tensor x, float limit=0.5) -> Tensor'

    `declared` are the names that directives define: of a void function's parameters those are no arguments, and
    `out`, or `out0`, `out1`, ..., are its results. A default that a schema cannot hold leaves its argument required.
    """
    namespace, name = split_name(qualname)
    void = plain(function.returns) == "void"
    arguments: list[Argument] = []
    for p in function.parameters:
        if void and p.name in declared:
            continue
        check_name(p)
        if any(a.name == p.name for a in arguments):
            raise SchemaError(f"two parameters are called {p.name!r}", line=p.line)
        if p.pointer:
            raise SchemaError(
                f"the parameter '{p.spelled}' is a pointer, which no schema can say; take a Tensor", line=p.line
            )
        spelled = schema_type(p)
        mutated = void and spelled.startswith("Tensor") and "&" in p.spelled and not p.const
        arguments.append(Argument(p.name, spelled, default(p.default, spelled), mutated=mutated))
    arguments = _required_first(arguments)
    types = _results(function)
    outputs = ("out",) if len(types) == 1 else tuple(f"out{i}" for i in range(len(types)))
    if void:
        outputs = tuple(n for n in declared if re.fullmatch(r"out\d*", n))
        types = ("Tensor",) * len(outputs)
    if not types and not any(a.mutated for a in arguments):
        raise SchemaError(
            f"{function.name} returns nothing, and no parameter says that it is written to: return a Tensor, take "
            "`Tensor&`, make its result by a directive ('//! out = empty_like(x)'), or define the op with wb.op first",
            line=function.line,
        )
    return Schema(namespace, name, tuple(arguments), outputs, types)


def default(text: str, spelled: str) -> object:
    """A C++ default as the schema's value: `1e-6f` is 1e-06, `std::nullopt` None, what is no constant NO_DEFAULT."""
    word, single = text.strip(), spelled.removesuffix("?")
    if spelled.endswith("?") and word in ("std::nullopt", "c10::nullopt", "at::nullopt", "{}"):
        return None
    if single == "bool" and word in ("true", "false"):
        return word == "true"
    number = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([fFlLuU]*)", word.replace("'", ""))
    if number and single == "float":
        return float(number[1])
    if number and single in ("int", "SymInt") and number[1].lstrip("+-").isdigit():
        return int(number[1])
    if single == "str" and re.fullmatch(r'"[^"\\]*"', word):
        return word[1:-1]
    return NO_DEFAULT


def _required_first(arguments: list[Argument]) -> list[Argument]:
    """One that is required again (its default is no constant) makes those before it required, too."""
    last = max((i for i, a in enumerate(arguments) if a.default is NO_DEFAULT), default=-1)
    return [replace(a, default=NO_DEFAULT) if i < last else a for i, a in enumerate(arguments)]


def _results(function: Function) -> tuple[str, ...]:
    returns = plain(function.returns)
    if returns == "void":
        return ()
    inner = re.fullmatch(r"(?:tuple|pair)<(.*)>", returns)
    words = split(inner[1]) if inner else [returns]
    found = []
    for word in words:
        listed = _LISTS.fullmatch(word)
        if word == "Tensor" or (listed and listed[1] == "Tensor"):
            found.append("Tensor[]" if listed else "Tensor")
        elif TYPES.get(word) in ("SymInt", "float", "bool"):
            found.append(TYPES[word])
        else:
            raise SchemaError(
                f"{function.name} returns {function.returns}; an op returns Tensors, lists of them and numbers",
                line=function.line,
            )
    return tuple(found)
