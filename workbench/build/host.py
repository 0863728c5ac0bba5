"""A host cell as the C++ text that its compiler sees: the user's functions on `Tensor`, and a wrapper for each. Pure text.

The wrapper takes the schema's types, converts them to those of the user's signature with range checks, and is
registered with torch by the library's own `wb_register`. A void function whose outputs are made by directives gets a
thunk instead, which the launcher of the declaration calls with tensors in place of pointers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from ..directives import Declaration
from ..errors import SchemaError
from ..schema import Argument, Schema
from ..source import Function, Parameter, Source

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
    "Device": "torch::stable::Device",
}
_NUMBERS = {
    "int": ("int64_t", {"int", "long", "long long", "short", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t",
                        "uint16_t", "uint32_t", "uint64_t", "size_t", "unsigned", "unsigned int", "char", "signed char"}),
    "float": ("double", {"float", "double"}),
    "bool": ("bool", {"bool"}),
}  # fmt: skip
_TENSOR = re.compile(r"\btorch::stable::Tensor\b|\bTensor\b")


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


def converted(parameter: Parameter, argument: Argument, value: str) -> str:
    """The expression that turns `value`, of the argument's native type, into what the parameter takes.

    >>> converted(float_lr, Argument("lr", "float"), "lr")
    'wb::narrow<float>(lr, "lr")'
    """
    wanted = _plain(parameter.type)
    native = native_type(argument, parameter.line)
    if wanted == _plain(native):
        return value
    base = re.sub(r"(\[\d*\])?\??$", "", argument.type).replace("SymInt", "int")
    if base in _NUMBERS:
        own, allowed = _NUMBERS[base]
        for outer, call in (("", "narrow"), ("std::optional", "narrow_optional"), ("std::vector", "narrow_list")):
            inner = wanted if not outer else wanted[len(outer) + 1 : -1] if wanted.startswith(f"{outer}<") else ""
            shaped = native == own if not outer else native == f"{outer}<{own}>"
            if shaped and inner in allowed:
                return f'wb::{call}<{inner}>({value}, "{argument.name}")'
    if wanted == "std::string_view" and native == "std::string":
        return value
    raise SchemaError(
        f"the parameter '{parameter.spelled}' cannot take {argument.name}, which is a {argument.type} in the schema: "
        f"write it as '{native} {parameter.name}'",
        line=parameter.line,
    )


def bound(function: Function, declaration: Declaration) -> list[tuple[Parameter, Argument]]:
    """Each parameter with the argument that it takes, by name or by an alias of a directive."""
    known = {a.name: a for a in declaration.arguments}
    pairs = []
    for p in function.parameters:
        name = declaration.aliases.get(p.name, p.name)
        if name not in known:
            near = difflib.get_close_matches(p.name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the arguments are {', '.join(known)}"
            raise SchemaError(f"{function.name}: the parameter {p.name!r} binds to no argument; {hint}", line=p.line)
        if p.pointer:
            raise SchemaError(
                f"{function.name}: '{p.spelled}' is a pointer beside a Tensor; take the Tensor and ask it for "
                f"const_data_ptr<{p.type}>()",
                line=p.line,
            )
        pairs.append((p, known[name]))
    return pairs


def render(source: Source, schema: Schema, declaration: Declaration, function: Function, *, gradients: Sequence[str] = ()) -> str:
    """The whole text of a host cell that returns its results, or mutates its arguments.

    `gradients` are the arguments whose gradients a backward returns, in order. SchemaError, on its line, for a
    parameter or a result that does not fit the schema.
    """
    arguments = declaration.arguments
    parameters = ", ".join(f"{native_type(a)} {a.name}" for a in arguments)
    passed = ", ".join(converted(p, a, a.name) for p, a in bound(function, declaration))
    call = f"::{'::'.join(filter(None, (function.namespace, function.name)))}({passed})"
    if declaration.entry == "backward":
        body, names = _backward(schema, function, call, gradients), [(f"{schema.name}_backward", "entry")]
        entries = [f"static auto entry({parameters}) {{\n{body}\n}}"]
    else:
        entries, names = _forward(schema, function, call, parameters)
    registered = " ".join(f'm.impl("{name}", TORCH_BOX(&wb_cell::{entry}));' for name, entry in names)
    return "\n".join([
        '#include "wb_host.h"',
        _line(source.first_line, source.file),
        source.text if source.text.endswith("\n") else source.text + "\n",
        _line(function.line, source.file),
        "namespace wb_cell {",
        *entries,
        "}  // namespace wb_cell",
        f'WB_MODULE("{schema.namespace}", "CPU", {registered})',
        "",
    ])


def _forward(schema: Schema, function: Function, call: str, parameters: str) -> tuple[list[str], list[tuple[str, str]]]:
    wanted = len(schema.outputs) + len(schema.saves)
    got = results(function)
    if got != wanted:
        what = ", ".join((*schema.outputs, *schema.saves)) or "nothing"
        raise SchemaError(
            f"{function.name} returns {function.returns}, {got} results; {schema.qualname} needs {wanted}: {what}",
            line=function.line,
        )
    if not wanted:
        return [f"static void entry({parameters}) {{ {call}; }}"], [(schema.name, "entry"), (f"{schema.name}_forward", "entry")]
    entries = [f"static auto entry({parameters}) {{ return {call}; }}"]
    names = [(f"{schema.name}_forward", "entry")]
    if not schema.saves:
        return entries, [(schema.name, "entry"), *names]
    kept = ", ".join(f"std::get<{i}>(std::move(all))" for i in range(len(schema.outputs)))
    given = kept if len(schema.outputs) == 1 else f"std::make_tuple({kept})"
    inner = f"auto all = {call}; return {given};" if schema.outputs else f"{call};"
    kind = "auto" if schema.outputs else "void"
    return [*entries, f"static {kind} seen({parameters}) {{ {inner} }}"], [*names, (schema.name, "seen")]


def _backward(schema: Schema, function: Function, call: str, gradients: Sequence[str]) -> str:
    got = results(function)
    if got != len(gradients):
        raise SchemaError(
            f"{function.name} returns {function.returns}, {got} gradients; the floating-point tensor arguments are "
            f"{', '.join(gradients) or 'none'}: return one for each, std::nullopt where there is none",
            line=function.line,
        )
    places = {name: i for i, name in enumerate(gradients)}
    made = []
    for a in schema.tensors:
        if a.name not in places:
            made.append("std::vector<Tensor>()" if a.is_tensor_list else "wb::absent()")
        elif got == 1:
            made.append("wb::gradient(all)")
        else:
            made.append(f"wb::gradient(std::get<{places[a.name]}>(all))")
    given = made[0] if len(made) == 1 else f"std::make_tuple({', '.join(made)})"
    return f"  auto all = {call};\n  return {given};"


def thunk(source: Source, declaration: Declaration, function: Function) -> str:
    """The text of a host cell whose outputs its directives make: the launcher calls the thunk with all values."""
    slots = {n: i for i, n in enumerate(declaration.values)}
    passed = []
    for p in function.parameters:
        name = declaration.aliases.get(p.name, p.name)
        if name not in slots:
            raise SchemaError(f"{function.name}: the parameter {p.name!r} binds to no argument and no directive", line=p.line)
        passed.append(_from_slot(p, f"v[{slots[name]}]", declaration, name))
    return "\n".join([
        '#include "wb_host.h"',
        _line(source.first_line, source.file),
        source.text if source.text.endswith("\n") else source.text + "\n",
        _line(function.line, source.file),
        "WB_EXPORT int wb_call(const wb_value* v) {",
        f"  ::{'::'.join(filter(None, (function.namespace, function.name)))}({', '.join(passed)});",
        "  return 0;",
        "}",
        "",
    ])


def _from_slot(p: Parameter, slot: str, declaration: Declaration, name: str) -> str:
    kind = declaration.values[name].value
    wanted = _plain(p.type)
    if kind == "tensor":
        if wanted == "Tensor":
            # A reference that is not const needs something to refer to that lives through the call.
            return f"(Tensor&)(const Tensor&)wb::borrow({slot}.p)" if "&" in p.spelled and not p.const else f"wb::borrow({slot}.p)"
        if wanted == "std::optional<Tensor>":
            return f"wb::borrow_optional({slot}.p)"
    elif kind == "float" and wanted in ("float", "double"):
        return f'wb::narrow<{wanted}>({slot}.f, "{name}")'
    elif kind == "bool" and wanted == "bool":
        return f"{slot}.i != 0"
    elif kind == "int" and wanted in _NUMBERS["int"][1]:
        return f'wb::narrow<{wanted}>({slot}.i, "{name}")'
    raise SchemaError(f"the parameter '{p.spelled}' cannot take {name}, which is {kind} here", line=p.line)


def results(function: Function) -> int:
    """How many results a signature returns: 0 for void, the arity of a tuple, else 1."""
    returns = function.returns.strip()
    if returns == "void":
        return 0
    inner = re.fullmatch(r"(?:std::)?(?:tuple|pair)<(.*)>", returns, re.DOTALL)
    if not inner:
        return 1
    depth, count = 0, 1
    for c in inner[1]:
        depth += (c == "<") - (c == ">")
        count += c == "," and depth == 0
    return count


def _plain(type_: str) -> str:
    """A C++ type without const, references and torch's long name for Tensor."""
    text = re.sub(r"\bconst\b|&", " ", type_)
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s*([<>,])\s*", r"\1", text)
    text = text.replace("torch::stable::Tensor", "Tensor")
    return re.sub(r"(?<![:\w])(vector|optional|string|tuple)\b", r"std::\1", text)


def _line(number: int, file: str) -> str:
    name = "".join(c if c.isprintable() else "?" for c in file).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line {number} "{name}"'
