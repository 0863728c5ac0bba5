"""Which functions a raw cell calls, and what their parameters are: each binds by name to a value of the declaration."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import SchemaError
from ..schema import Schema
from ..source import Function, Parameter, Source, TemplateParameter
from . import slips
from .nodes import Declaration, Kind, Launch
from .vocabulary import a_kind, function_name

_INTEGER = re.compile(
    r"(?:std::)?u?int(?:8|16|32|64)_t|(?:std::)?(?:size_t|ptrdiff_t|ssize_t)|"
    r"(?:(?:un)?signed|short|long|int|char)(?: (?:(?:un)?signed|short|long|int|char))*"
)
FLOATS = frozenset({"float", "double", "_Float16", "half", "__half", "__nv_bfloat16", "nv_bfloat16", "bfloat16"})
_HOST = re.compile(r"\b(Tensor|vector|optional|tuple|ArrayRef|TensorList)\b")


@dataclass(frozen=True)
class Binding:
    """What one function takes. Its parameters bind to the values of their names.

    `types` maps a type parameter to the tensors whose pointers use it; `values` are the template value parameters,
    each of which is the name of a value too.
    """

    function: Function
    types: dict[str, tuple[str, ...]]
    values: tuple[str, ...]


def is_integer(type_: str) -> bool:
    """Whether a C++ type is an integer: `int64_t`, `unsigned long long`, `size_t`."""
    return bool(_INTEGER.fullmatch(type_))


def called(
    source: Source,
    schema: Schema,
    functions: Sequence[Function],
    launches: Sequence[Launch],
    *,
    entry: str,
    function: str,
) -> tuple[Function, ...]:
    """The functions that a raw cell calls: those with a grid in CUDA, the one of the right name in C++."""
    line = functions[0].line if functions else source.first_line
    if source.language == "cuda":
        kernels = [f for f in functions if f.is_global]
        if not launches:
            if not kernels:
                raise SchemaError("this cell has no __global__ function to launch", line=line)
            raise slips.no_grid(source, functions, kernels[0], "backward" if entry == "backward" else schema.name)
        if function and function not in {k.name for k in kernels}:
            raise SchemaError(_no_function(function, "__global__ function", kernels), line=line)
        return tuple(next(k for k in kernels if k.name == launch.function) for launch in launches)
    wanted = function or ("backward" if entry == "backward" else function_name(schema.name))
    found = [f for f in functions if f.name == wanted]
    if not found:
        if wanted == f"{schema.name}_":
            there = ", ".join(dict.fromkeys(f.name for f in functions))
            said = f"{schema.name} is a keyword of C++: call the function {wanted}; the cell defines {there}"
            raise SchemaError(said, line=line)
        raise SchemaError(_no_function(wanted, "function", functions), line=line)
    if len(found) > 1:
        raise SchemaError(
            f"{wanted} is defined twice, here and on line {found[0].line}: which one is meant is not clear",
            line=found[1].line,
        )
    return tuple(found)


def _no_function(wanted: str, what: str, functions: Sequence[Function]) -> str:
    names = list(dict.fromkeys(f.name for f in functions))
    near = difflib.get_close_matches(wanted, names, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"no {what} is called {wanted!r} here; {hint}the cell defines {', '.join(names)}"


def bind(functions: Sequence[Function], declaration: Declaration) -> tuple[Binding, ...]:
    """Bind every parameter of the called functions by name, or SchemaError on the parameter's line.

    >>> bind(declaration.functions, declaration)[0].types
    {'T': ('x', 'out'), 'W': ('w',)}
    """
    if not functions:
        return ()
    for a in declaration.schema.arguments:
        if a.is_tensor_list:
            raise SchemaError(
                f"{a.name} is a list of tensors, which a raw kernel cannot take: use the host tier, a "
                "C++ function on std::vector<Tensor>",
                line=functions[0].line,
            )
        if a.type.rstrip("?") == "Scalar":
            raise SchemaError(
                f"{a.name} is a Scalar, which a raw kernel cannot take: annotate it float or int",
                line=functions[0].line,
            )
    bound = tuple(_Binder(f, declaration).binding() for f in functions)
    taken = {declaration.aliases.get(p.name, p.name) for f in functions for p in f.parameters}
    for made in declaration.allocations:
        if made.role != "workspace" and not made.zeroed and made.name not in taken:
            raise SchemaError(
                f"no function takes {made.name}, so nothing would write it: add a parameter "
                f"'T* {made.name}', or make it with zeros",
                line=made.line,
            )
    return bound


class _Binder:
    """Binds one function. `fail` puts the function's name before what is wrong."""

    def __init__(self, function: Function, declaration: Declaration) -> None:
        self.function = function
        self.declaration = declaration
        self.type_names = {t.name for t in function.templates if _is_type(t)}
        self.optional = {a.name for a in declaration.arguments if a.optional}

    def fail(self, message: str, line: int) -> SchemaError:
        return SchemaError(f"{self.function.name}: {message}", line=line)

    def binding(self) -> Binding:
        types: dict[str, tuple[str, ...]] = {}
        for p in self.function.parameters:
            (self.pointer if p.pointer else self.scalar)(p)
            if p.pointer and p.type in self.type_names:
                types[p.type] = (*types.get(p.type, ()), self.declaration.aliases.get(p.name, p.name))
        for t in self.function.templates:
            self.template(t, types)
        return Binding(self.function, types, tuple(t.name for t in self.function.templates if not _is_type(t)))

    def value(self, name: str, line: int, spelled: str, pointer: Parameter | None = None) -> Kind:
        values = self.declaration.values
        if name in values:
            return values[name]
        if not name:
            raise self.fail(f"the parameter '{spelled}' has no name, and binding is by name", line)
        near = self.near(name)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(values) or 'nothing'}"
        if pointer is not None and self.declaration.entry == "backward" and self.of_gradient(name):
            hint = self.gradients(name, pointer.const)
        raise self.fail(f"the parameter {name!r} binds to no argument and no directive; {hint}", line)

    def of_gradient(self, name: str) -> bool:
        """Is this what a gradient is called elsewhere: `dy`, `dout`, `grad_output`?"""
        schema = self.declaration.schema
        of = "|".join(["o", "out", "output", "y", *schema.outputs, *(a.name for a in schema.arguments)])
        return bool(re.fullmatch(rf"grad\w*|[dg]_?(?:{of})|g", name, re.IGNORECASE))

    def gradients(self, name: str, read: bool) -> str:
        """Which gradient was meant: one that is read comes in, for an output; one that is written goes out."""
        d = self.declaration
        incoming = [a.name for a in d.arguments if a.name.startswith("grad_") and not d.schema.argument(a.name)]
        outgoing = [f"grad_{a.name}" for a in d.schema.arguments if a.is_tensor and f"grad_{a.name}" not in incoming]
        there = f"gradients that come in: {', '.join(incoming) or 'none'}; that go out: {', '.join(outgoing) or 'none'}"
        if not read and name in outgoing:
            return f"write '//! {name} = empty_like({name.removeprefix('grad_')})' above; {there}"
        fits = incoming if read else outgoing
        of = [n.removeprefix("grad_") for n in fits]
        bare = re.sub(r"^(?:grad|[dg])_?", "", name)
        near = difflib.get_close_matches(bare, of, 1) or (of if len(of) == 1 else [])
        return f"did you mean 'grad_{near[0]}'? {there}" if near else there

    def near(self, name: str) -> list[str]:
        return difflib.get_close_matches(name, self.declaration.values, 1)

    def pointer(self, p: Parameter) -> None:
        self.plain_type(p)
        kind = self.value(p.name, p.line, p.spelled, p)
        if kind is not Kind.TENSOR:
            raise self.fail(
                f"'{p.spelled}' is a pointer, {p.name} is {a_kind(kind)}: write '{_scalar_for(kind)} {p.name}'", p.line
            )
        declaration = self.declaration
        name = declaration.aliases.get(p.name, p.name)
        argument = next((a for a in declaration.arguments if a.name == name), None)
        if p.const or argument is None or argument.mutated:
            return
        if declaration.entry == "backward":
            cure = "which comes in to a backward and stays as it is"
            raise self.fail(f"writes through {p.name}, {cure}; write 'const {p.type}* {p.name}'", p.line)
        raise self.fail(
            f"writes through {p.name}, which is not declared in mutates; write 'const {p.type}* {p.name}' "
            "or add it to mutates",
            p.line,
        )

    def plain_type(self, p: Parameter) -> None:
        if p.type.endswith("*"):
            raise self.fail(f"'{p.spelled}': a raw kernel takes pointers to elements, not pointers to pointers", p.line)
        if self.function.is_global and "&" in p.spelled:
            plain = " ".join(p.spelled.replace("&", " ").split())
            raise self.fail(f"'{p.spelled}': a kernel cannot refer to the caller's memory: write '{plain}'", p.line)
        if _HOST.search(p.type):
            raise self.fail(
                f"'{p.spelled}': a raw kernel takes pointers and numbers; a function on Tensor is of the host tier",
                p.line,
            )

    def scalar(self, p: Parameter) -> None:
        self.plain_type(p)
        kind = self.value(p.name, p.line, p.spelled)
        if kind is Kind.TENSOR:
            raise self.fail(
                f"'{p.spelled}' is no pointer, {p.name} is a tensor: write 'const {p.type}* {p.name}'", p.line
            )
        if kind not in (Kind.INT, Kind.FLOAT, Kind.BOOL):
            raise self.fail(f"{p.name} is {a_kind(kind)}, which a raw kernel cannot take", p.line)
        if self.declaration.aliases.get(p.name, p.name) in self.optional:
            raise self.fail(
                f"{p.name} may be None, which a number cannot say: add for instance "
                f"'//! {p.name}_ = 1.0 if {p.name} is None else {p.name}' and take {p.name}_",
                p.line,
            )
        if not (p.type == "bool" or is_integer(p.type) or p.type in FLOATS or p.type in self.type_names):
            raise self.fail(f"'{p.spelled}': a raw kernel takes pointers, integers, bool, float and double", p.line)
        if kind is Kind.FLOAT and (p.type == "bool" or is_integer(p.type)):
            raise self.fail(f"'{p.spelled}' would cut off {p.name}, which is a float: write 'double {p.name}'", p.line)

    def template(self, t: TemplateParameter, types: dict[str, tuple[str, ...]]) -> None:
        if t.kind.endswith("...") or "<" in t.kind:
            raise self.fail(f"the template parameter {t.name!r} is neither a type nor a number", t.line)
        if _is_type(t):
            if t.name not in types and not t.default:
                raise self.fail(f"the type {t.name!r} is taken from no tensor: no parameter is a '{t.name}*'", t.line)
            return
        if t.name and t.name not in self.declaration.values and not self.near(t.name):
            said = f"nothing says what the template parameter {t.name!r} is: write '//! {t.name} = ...'"
            raise self.fail(f"{said}, or 'tune {t.name} = ...'", t.line)
        kind = self.value(t.name, t.line, f"{t.kind} {t.name}")
        if kind not in (Kind.INT, Kind.BOOL):
            raise self.fail(
                f"the template parameter {t.name!r} takes an integer or bool, {t.name} is {a_kind(kind)}", t.line
            )
        if self.declaration.aliases.get(t.name, t.name) in self.optional:
            raise self.fail(f"the template parameter {t.name!r} may be None", t.line)


def _is_type(t: TemplateParameter) -> bool:
    return t.kind in ("typename", "class")


def _scalar_for(kind: Kind) -> str:
    return {Kind.FLOAT: "double", Kind.BOOL: "bool"}.get(kind, "int64_t")
