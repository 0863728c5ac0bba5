"""What stands behind a cell of the full tier that fills a slot: the wrapper of its function on at::Tensor. Pure text.

The wrapper reads the types of the signature in C++ itself (`wb_full_call.h`); here it is only seen to that each
parameter binds to an argument that it can take, so that what does not fit is said on its line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..directives import Declaration
from ..errors import SchemaError
from ..schema import Argument, Schema
from ..source import Function, Parameter, Source, comments
from . import host
from .body_parts import line_directive

MACROS = "wb_full_call.h"
_INTEGERS = {"int", "long", "long long", "short", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t",
             "uint32_t", "uint64_t", "size_t", "unsigned", "unsigned int", "unsigned long", "char",
             "signed char"}  # fmt: skip
# A schema's type -> the C++ types, without namespaces, that can take it; the first is the one to recommend.
TAKEN_AS = {
    "Tensor": ("at::Tensor", {"Tensor"}),
    "int": ("int64_t", {*_INTEGERS, "SymInt"}),
    "float": ("double", {"double", "float"}),
    "bool": ("bool", {"bool"}),
    "str": ("std::string", {"string", "string_view"}),
    "ScalarType": ("at::ScalarType", {"ScalarType", "Dtype"}),
    "Device": ("at::Device", {"Device"}),
    "Layout": ("at::Layout", {"Layout"}),
    "MemoryFormat": ("at::MemoryFormat", {"MemoryFormat"}),
    "Scalar": ("at::Scalar", {"Scalar", "double", "float"}),
}
_LIST = re.compile(r"(?:vector|ArrayRef|List|array)<(.*?)(?:,\d+)?>")
_NAMED_LISTS = {
    "TensorList": "Tensor",
    "ITensorListRef": "Tensor",
    "IntArrayRef": "int64_t",
    "SymIntArrayRef": "SymInt",
}
_NAMED_OPTIONALS = {"OptionalIntArrayRef": "IntArrayRef", "OptionalSymIntArrayRef": "SymIntArrayRef"}
_BLOCK = re.compile(r"\b(TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?|PYBIND11_MODULE)\s*\(\s*([\w:]*)")


def plain(type_: str) -> str:
    """A C++ type without const, references and namespaces: `const std::vector<at::Tensor>&` is `vector<Tensor>`."""
    text = re.sub(r"\bconst\b|&|\btypename\b", " ", type_)
    text = re.sub(r"\b\w+\s*::\s*", "", text)
    text = re.sub(r"\boptional<ArrayRef<", "OptionalArrayRef<<", text).replace("<<", "<")
    return re.sub(r"\s*([<>,])\s*", r"\1", re.sub(r"\s+", " ", text)).strip()


def render(
    source: Source, schema: Schema, declaration: Declaration, function: Function, *, gradients: Sequence[str] = (),
    key: str = "CPU",
) -> str:  # fmt: skip
    """The text behind a cell whose function returns its results, or mutates its arguments.

    `gradients` are the arguments whose gradients a backward returns, in order; `key` is torch's dispatch key: for CUDA
    the tensors' device is made the current one. SchemaError, on its line, for a parameter or a number of results that
    does not fit the schema.
    """
    _refuse_template(function)
    pairs = host.bound(function, declaration)
    for p, a in pairs:
        check(p, a, source)
    positions = {a.name: i for i, a in enumerate(declaration.arguments)}
    backward = declaration.entry == "backward"
    own = {a.name for a in schema.arguments} if backward else None
    call = _call(function, [(i, positions[a.name], a.name) for i, (_, a) in enumerate(pairs)], own)
    body = _backward(schema, function, gradients) if backward else _forward(schema, function)
    suffix = "_backward" if backward else ""
    names = [f"{schema.name}_backward"] if backward else [schema.name, f"{schema.name}_forward"]
    wanted = len(schema.tensors) if backward else len(schema.outputs) + len(schema.saves)
    shown = dict.fromkeys(names, wanted) | ({} if backward else {schema.name: len(schema.outputs)})
    outputs = wanted if backward else len(schema.outputs)
    label = f"{schema.qualname} ({'cpp' if key == 'CPU' else 'cuda'}{' backward' if backward else ''})"
    arriving = ", ".join(str(positions[a.name]) for a in declaration.arguments if a.is_tensor or a.is_tensor_list)
    guard = [] if key == "CPU" else [f'  const c10::OptionalDeviceGuard device(wb::one_device(v, count, "{label}"));']
    return "\n".join([
        line_directive(function.line, source.file),
        "namespace wb_cell {",
        f"using F = decltype(&{_name(function)});",
        "static void run(torch::jit::Stack* stack, size_t shown) {",
        f"  constexpr size_t count = {len(declaration.arguments)};",
        "  const c10::IValue* v = stack->data() + (stack->size() - count);",
        f"  wb::arrive(v, {{{arriving}}});" if arriving else "  (void)v;",  # it may run the reference and its gradients
        "  at::AutoDispatchBelowADInplaceOrView below;",
        *guard,
        "  wb::Values out;",
        *call,
        *body,
        "  wb::apart(out, v, count);",
        f'  wb::strides(out, {outputs}, "wb_layout::{schema.namespace}__{schema.name}{suffix}", v, count);',
        f'  wb::give(stack, count, out, {wanted}, shown, "{label}");',
        "}",
        *(f"static void entry{i}(const c10::OperatorHandle&, torch::jit::Stack* stack) {{ run(stack, {shown[n]}); }}"
          for i, n in enumerate(names)),
        "}  // namespace wb_cell",
        _registered(schema.namespace, key, names),
    ])  # fmt: skip


def _registered(namespace: str, key: str, names: Sequence[str]) -> str:
    made = 'm.impl("{}", torch::CppFunction::makeFromBoxedFunction<&wb_cell::entry{}>());'
    return f'WB_FULL_MODULE("{namespace}", {key}, {" ".join(made.format(n, i) for i, n in enumerate(names))})'


def _call(function: Function, bound: Sequence[tuple[int, int, str]], own: set[str] | None) -> list[str]:
    """Take each argument from the stack, then call. `bound`: (parameter's place, argument's place, its name).

    `own` are a backward's forward arguments: what comes in beside them as a gradient may have strides of 0, after a
    sum, and is made contiguous.
    """
    incoming = [i for i, _, name in bound if own is not None and name.startswith("grad_") and name not in own]
    lines = [f'  wb::GivenTo<F, {i}> a{i}(v[{at}], "{name}");' for i, at, name in bound]
    passed = ", ".join(f"static_cast<wb::ParameterOf<F, {i}>&&>(a{i}.value)" for i, _, _ in bound)
    made = "" if host.results(function) == 0 else "auto all = "
    lines += [f"  wb::make_contiguous(a{i}.value);" for i in incoming]
    return [*lines, f"  {made}{_name(function)}({passed});"]


def _forward(schema: Schema, function: Function) -> list[str]:
    names = (*schema.outputs, *schema.saves)
    types = (*schema.output_types, *["Tensor"] * len(schema.saves))
    got = host.results(function)
    spread = _is_vector(function) and types != ("Tensor[]",)
    if got != len(names) and not spread:
        raise SchemaError(
            f"{function.name} returns {function.returns}, {got} results; {schema.qualname} needs {len(names)}: "
            f"{', '.join(names) or 'nothing'}",
            line=function.line,
        )
    if not names:
        return []
    return ["  wb::put_each(out, std::move(all));" if spread else "  wb::put_all(out, std::move(all));"]


def _backward(schema: Schema, function: Function, gradients: Sequence[str]) -> list[str]:
    """One gradient for each floating-point tensor argument, as placeholders for the others."""
    got, spread = host.results(function), _is_vector(function)
    if got != len(gradients) and not spread:
        raise SchemaError(
            f"{function.name} returns {function.returns}, {got} gradients; the floating-point tensor arguments are "
            f"{', '.join(gradients) or 'none'}: return one for each, an undefined at::Tensor where there is none",
            line=function.line,
        )
    places = {name: i for i, name in enumerate(gradients)}
    lines = [
        "  wb::Values made;",
        f"  wb::put_{'each' if spread else 'all'}(made, std::move(all));",
        f'  TORCH_CHECK(made.size() == {len(gradients)}, "{function.name} returned ", made.size(),',
        f'              " gradients; the floating-point tensor arguments are {", ".join(gradients)}");',
    ]
    for a in schema.tensors:
        if a.name not in places:
            lines.append(f"  wb::put(out, {'std::vector<at::Tensor>()' if a.is_tensor_list else 'wb::absent()'});")
        elif a.is_tensor_list:
            lines.append(f"  out.push_back(made[{places[a.name]}]);")
        else:
            i = places[a.name]
            lines.append(
                f"  out.push_back(made[{i}].isTensor() && made[{i}].toTensor().defined() ? made[{i}] : wb::absent());"
            )
    return lines


def thunk(source: Source, declaration: Declaration, function: Function) -> str:
    """The text behind a cell whose outputs its directives make: the launcher calls it with tensors and numbers."""
    _refuse_template(function)
    slots = {n: i for i, n in enumerate(declaration.values)}
    passed, lines = [], []
    for i, p in enumerate(function.parameters):
        name = declaration.aliases.get(p.name, p.name)
        if name not in slots:
            raise SchemaError(
                f"{function.name}: the parameter {p.name!r} binds to no argument and no directive", line=p.line
            )
        kind, slot = declaration.values[name].value, f"v[{slots[name]}]"
        wanted = plain(p.type)
        value = {"tensor": f"wb::borrow({slot}.p)", "float": f"c10::IValue({slot}.f)",
                 "bool": f"c10::IValue({slot}.i != 0)",
                 "int": f"c10::IValue({slot}.i)", "dtype": f"c10::IValue({slot}.i)"}.get(kind)  # fmt: skip
        inner = re.fullmatch(r"optional<(.*)>", wanted)
        fits = {
            "tensor": {"Tensor"},
            "float": {"double", "float"},
            "bool": {"bool"},
            "int": _INTEGERS,
            "dtype": {"ScalarType"},
        }
        if value is None or p.pointer or (inner[1] if inner else wanted) not in fits.get(kind, ()):
            raise SchemaError(f"the parameter '{p.spelled}' cannot take {name}, which is {kind} here", line=p.line)
        lines.append(f'  wb::GivenTo<F, {i}> a{i}({value}, "{name}");')
        passed.append(f"static_cast<wb::ParameterOf<F, {i}>&&>(a{i}.value)")
    return "\n".join([
        line_directive(function.line, source.file),
        "union wb_value { int64_t i; double f; void* p; };",
        "namespace wb {",
        "inline c10::IValue borrow(void* p) { return p ? c10::IValue(*static_cast<at::Tensor*>(p)) : c10::IValue(); }",
        "}  // namespace wb",
        "WB_EXPORT int wb_call(const wb_value* v) {",
        "  at::AutoDispatchBelowADInplaceOrView below;",
        f"  using F = decltype(&{_name(function)});",
        *lines,
        f"  {_name(function)}({', '.join(passed)});",
        "  return 0;",
        "}",
    ])  # fmt: skip


def check(parameter: Parameter, argument: Argument, source: Source) -> None:
    """SchemaError, on its line, if the parameter's type cannot take the argument."""
    base = re.sub(r"(\[\d*\])?\??$", "", argument.type).replace("SymInt", "int")
    is_list = bool(re.search(r"\[\d*\]\??$", argument.type))
    inner_optional = argument.type.startswith("Tensor?[")
    base = base.removesuffix("?")
    recommended, allowed = TAKEN_AS.get(base, ("", set()))
    wanted = plain(parameter.type)
    if _is_alias(wanted, source):
        return
    wanted = _NAMED_OPTIONALS.get(wanted, wanted)
    optional = re.fullmatch(r"(?:optional|OptionalArrayRef)<(.*)>", wanted)
    if optional:
        wanted = f"ArrayRef<{optional[1]}>" if wanted.startswith("OptionalArrayRef") else optional[1]
    may_be_none = optional or (parameter.type != wanted and wanted in _NAMED_OPTIONALS.values()) or base == "Tensor"
    listed = _NAMED_LISTS.get(wanted) or ((m := _LIST.fullmatch(wanted)) and m[1])
    element = listed if is_list else wanted
    if inner_optional and element:
        element = re.sub(r"^optional<(.*)>$", r"\1", element)
    fits = bool(listed) == is_list and element in allowed and (may_be_none or not argument.optional)
    if fits:
        return
    spelled = (
        f"std::vector<{'std::optional<at::Tensor>' if inner_optional else recommended}>" if is_list else recommended
    )
    if argument.optional:
        spelled = f"std::optional<{spelled}>"
    cure = f"write it as '{spelled} {parameter.name}'" if recommended else "no C++ type is known for that"
    raise SchemaError(
        f"the parameter '{parameter.spelled}' cannot take {argument.name}, which is a {argument.type} in the schema: "
        f"{cure}",
        line=parameter.line,
    )


def left_out(source: Source) -> tuple[tuple[int, str], ...]:
    """The blocks in a cell that names its op: (line, `TORCH_LIBRARY_IMPL(their_library)`). They register nothing."""
    hidden = {line for line, _, alone in comments(source) if alone}
    found = []
    for number, row in enumerate(source.text.split("\n"), source.first_line):
        if number not in hidden and (m := _BLOCK.search(row.partition("//")[0])):
            found.append((number, f"{m[1]}({m[2]})"))
    return tuple(found)


def _refuse_template(function: Function) -> None:
    if function.templates:
        raise SchemaError(
            f"{function.name} is a template, which nothing calls by itself: write a function that picks the type, for "
            "instance with AT_DISPATCH_FLOATING_TYPES, and name that one with --entry",
            line=function.line,
        )


def _is_alias(word: str, source: Source) -> bool:
    """A type that the cell names itself is left to the compiler."""
    return bool(re.search(rf"\b(?:using\s+{re.escape(word)}\s*=|typedef\b[^;\n]*\b{re.escape(word)}\s*;)", source.text))


def _is_vector(function: Function) -> bool:
    return bool(re.fullmatch(r"vector<Tensor>", plain(function.returns)))


def _name(function: Function) -> str:
    return "::" + "::".join(filter(None, (function.namespace, function.name)))
