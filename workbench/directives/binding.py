"""Function parameters to values, by name; and the schema of an op that only its kernel describes."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import SchemaError
from ..schema import Argument, Schema, split_name
from ..source import Function, Parameter, Source, TemplateParameter, directives_of
from .lines import targets
from .nodes import Declaration, Kind, Launch
from .vocabulary import a_kind

_INTEGER = re.compile(
    r"(?:std::)?u?int(?:8|16|32|64)_t|(?:std::)?(?:size_t|ptrdiff_t|ssize_t)|"
    r"(?:(?:un)?signed|short|long|int|char)(?: (?:(?:un)?signed|short|long|int|char))*"
)
FLOATS = frozenset({"float", "double", "_Float16", "half", "__half", "__nv_bfloat16", "bfloat16"})
_HOST = re.compile(r"\b(Tensor|vector|optional|tuple|ArrayRef|TensorList)\b")


@dataclass(frozen=True)
class Binding:
    """What one function takes. `types` maps a type parameter to the tensors whose pointers use it; `values` are the
    template value parameters, each of which is a named value. Its other parameters bind to the value of their name."""

    function: Function
    types: dict[str, tuple[str, ...]]
    values: tuple[str, ...]


def is_integer(type_: str) -> bool:
    """Whether a C++ type is an integer: `int64_t`, `unsigned long long`, `size_t`."""
    return bool(_INTEGER.fullmatch(type_))


def called(
    source: Source, schema: Schema, functions: Sequence[Function], launches: Sequence[Launch], *, entry: str, function: str
) -> tuple[Function, ...]:
    """The functions that a raw cell calls: those with a grid in CUDA, the one of the right name in C++."""
    line = functions[0].line if functions else source.first_line
    if source.language == "cuda":
        kernels = [f for f in functions if f.is_global]
        if not launches:
            if not kernels:
                raise SchemaError("this cell has no __global__ function to launch", line=line)
            raise SchemaError(f"{kernels[0].name} has no grid, nothing would be launched: add '//! grid = ...' and "
                              "'//! block = ...' above it", line=kernels[0].line)
        return tuple(next(k for k in kernels if k.name == launch.function) for launch in launches)
    wanted = function or ("backward" if entry == "backward" else schema.name)
    found = [f for f in functions if f.name == wanted]
    if not found:
        names = list(dict.fromkeys(f.name for f in functions))
        near = difflib.get_close_matches(wanted, names, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise SchemaError(f"no function is called {wanted!r} here; {hint}the cell defines {', '.join(names)}", line=line)
    if len(found) > 1:
        raise SchemaError(f"{wanted} is defined twice, here and on line {found[0].line}: which one is meant is not clear", line=found[1].line)
    return tuple(found)


def bind(functions: Sequence[Function], declaration: Declaration) -> tuple[Binding, ...]:
    """Bind every parameter of the called functions by name, or SchemaError on the parameter's line.

    >>> bind(declaration.functions, declaration)[0].types
    {'T': ('x', 'out'), 'W': ('w',)}
    """
    for a in declaration.schema.arguments:
        if a.is_tensor_list:
            raise SchemaError(f"{a.name} is a list of tensors, which a raw kernel cannot take: use the host tier, a "
                              "C++ function on std::vector<Tensor>", line=functions[0].line if functions else 0)
        if a.type.rstrip("?") == "Scalar":
            raise SchemaError(f"{a.name} is a Scalar, which a raw kernel cannot take: annotate it float or int",
                              line=functions[0].line if functions else 0)
    bound = tuple(_Binder(f, declaration).binding() for f in functions)
    taken = {declaration.aliases.get(p.name, p.name) for f in functions for p in f.parameters}
    for made in declaration.allocations:
        if made.role != "workspace" and not made.zeroed and made.name not in taken:
            raise SchemaError(f"no function takes {made.name}, so nothing would write it: add a parameter "
                              f"'T* {made.name}', or make it with zeros", line=made.line)
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

    def value(self, name: str, line: int, spelled: str) -> Kind:
        values = self.declaration.values
        if name in values:
            return values[name]
        if not name:
            raise self.fail(f"the parameter '{spelled}' has no name, and binding is by name", line)
        near = difflib.get_close_matches(name, values, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(values) or 'nothing'}"
        raise self.fail(f"the parameter {name!r} binds to no argument and no directive; {hint}", line)

    def pointer(self, p: Parameter) -> None:
        self.plain_type(p)
        kind = self.value(p.name, p.line, p.spelled)
        if kind is not Kind.TENSOR:
            raise self.fail(f"'{p.spelled}' is a pointer, {p.name} is {a_kind(kind)}: write '{_scalar_for(kind)} {p.name}'", p.line)
        declaration = self.declaration
        name = declaration.aliases.get(p.name, p.name)
        argument = next((a for a in declaration.arguments if a.name == name), None)
        if p.const or argument is None or argument.mutated:
            return
        if declaration.entry == "backward":
            cure = "which comes in to a backward and stays as it is"
            raise self.fail(f"writes through {p.name}, {cure}; write 'const {p.type}* {p.name}'", p.line)
        raise self.fail(f"writes through {p.name}, which is not declared in mutates; write 'const {p.type}* {p.name}' "
                        "or add it to mutates", p.line)

    def plain_type(self, p: Parameter) -> None:
        if p.type.endswith("*"):
            raise self.fail(f"'{p.spelled}': a raw kernel takes pointers to elements, not pointers to pointers", p.line)
        if _HOST.search(p.type):
            raise self.fail(f"'{p.spelled}': a raw kernel takes pointers and numbers; a function on Tensor is of the host tier", p.line)

    def scalar(self, p: Parameter) -> None:
        self.plain_type(p)
        kind = self.value(p.name, p.line, p.spelled)
        if kind is Kind.TENSOR:
            raise self.fail(f"'{p.spelled}' is no pointer, {p.name} is a tensor: write 'const {p.type}* {p.name}'", p.line)
        if kind not in (Kind.INT, Kind.FLOAT, Kind.BOOL):
            raise self.fail(f"{p.name} is {a_kind(kind)}, which a raw kernel cannot take", p.line)
        if self.declaration.aliases.get(p.name, p.name) in self.optional:
            raise self.fail(f"{p.name} may be None, which a number cannot say: add for instance "
                            f"'//! {p.name}_ = 1.0 if {p.name} is None else {p.name}' and take {p.name}_", p.line)
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
        kind = self.value(t.name, t.line, f"{t.kind} {t.name}")
        if kind not in (Kind.INT, Kind.BOOL):
            raise self.fail(f"the template parameter {t.name!r} takes an integer or bool, {t.name} is {a_kind(kind)}", t.line)
        if self.declaration.aliases.get(t.name, t.name) in self.optional:
            raise self.fail(f"the template parameter {t.name!r} may be None", t.line)


def _is_type(t: TemplateParameter) -> bool:
    return t.kind in ("typename", "class")


def _scalar_for(kind: Kind) -> str:
    return {Kind.FLOAT: "double", Kind.BOOL: "bool"}.get(kind, "int64_t")


def infer_schema(source: Source, functions: Sequence[Function], name: str, *, function: str = "") -> Schema:
    """The schema that a raw cell's signature says, for a name that no op bears yet.

    >>> source = Source("//! out = empty_like(x)\\nvoid scale(const float* x, float* out, double by) {}", "cpp")
    >>> str(infer_schema(source, functions(source.text, "cpp"), "lab::scale"))
    'lab::scale(Tensor x, float by) -> Tensor'

    A `const T*` that no directive declares is a Tensor, another pointer a mutated one, integers are SymInt, floats
    float, in the order of the parameters of the called functions. Tensors named `out`, or `out0`, `out1`, ..., are
    the results. SchemaError if there is neither a result nor a mutated argument.
    """
    try:
        return _infer(source, functions, name, function)
    except SchemaError as error:
        error.file = error.file or source.file
        raise


def _infer(source: Source, functions: Sequence[Function], name: str, function: str) -> Schema:
    namespace, short = split_name(name)
    lines = directives_of(source)
    declared = {n for _, text in lines for n in targets(text)}
    bare = Schema(namespace, short, (), (), ())
    if source.language == "cuda":
        chosen = _with_grid(functions, lines) or called(source, bare, functions, (), entry="forward", function="")
    else:
        chosen = called(source, bare, functions, (), entry="forward", function=function)
    arguments: dict[str, Argument] = {}
    for p in (p for f in chosen for p in f.parameters):
        if p.name in declared:
            continue
        inferred = _argument(p)
        known = arguments.get(p.name)
        if known is not None and known.type != inferred.type:
            raise SchemaError(f"the parameter {p.name!r} is a {known.type} in one function and a {inferred.type} in this one", line=p.line)
        if known is None or inferred.mutated:
            arguments[p.name] = inferred
    outputs = _results(declared, lines)
    if not outputs and not any(a.mutated for a in arguments.values()):
        raise SchemaError(f"{name} would return nothing: name its result 'out' (or 'out0', 'out1', ...), as in "
                          "'//! out = empty_like(x)'", line=lines[-1][0] if lines else chosen[0].line)
    return Schema(namespace, short, tuple(arguments.values()), outputs, ("Tensor",) * len(outputs))


def _with_grid(functions: Sequence[Function], lines: Sequence[tuple[int, str]]) -> list[Function]:
    kernels = [f for f in functions if f.is_global]
    grids = [line for line, text in lines if re.match(r"grid\s*=", text)]
    owners = [next((k for k in kernels if k.line >= line), None) for line in grids]
    return [k for k in kernels if k in owners]


def _argument(p: Parameter) -> Argument:
    if not p.name:
        raise SchemaError(f"the parameter '{p.spelled}' has no name, and binding is by name", line=p.line)
    if keyword.iskeyword(p.name):
        raise SchemaError(f"the parameter {p.name!r} is a Python keyword, no op could be called with it", line=p.line)
    if p.pointer:
        return Argument(p.name, "Tensor", mutated=not p.const)
    type_ = "bool" if p.type == "bool" else "SymInt" if is_integer(p.type) else "float" if p.type in FLOATS else ""
    if not type_:
        raise SchemaError(f"the parameter '{p.spelled}' is neither a pointer nor a number: an op without a reference "
                          "takes these only; declare the op's schema with wb.op", line=p.line)
    return Argument(p.name, type_)


def _results(declared: set[str], lines: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    numbered = sorted((n for n in declared if re.fullmatch(r"out\d+", n)), key=lambda n: int(n[3:]))
    if "out" in declared and not numbered:
        return ("out",)
    if numbered and (len(numbered) < 2 or "out" in declared or numbered != [f"out{i}" for i in range(len(numbered))]):
        line = next(line for line, text in lines if numbered[0] in targets(text))
        raise SchemaError(f"results are 'out', or 'out0', 'out1', ... without a gap; got {', '.join(sorted({*numbered} | declared & {'out'}))}", line=line)
    return tuple(numbered)
