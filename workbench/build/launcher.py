"""A declaration as the C++ text of its launcher: tables, and the directives as two functions. Pure text.

What a launcher does with them is in `launcher.h` and `launcher_run.h`. Numbers, tuned values, texts, line numbers,
dtypes and kernels are not in the text: `native.descriptor` carries them, so one launcher serves every edit that
leaves the shape of the declaration as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..directives import Allocate, Declaration, Kind, Let, Require, Statement, Tune, Unpack
from ..directives.nodes import expressions_of
from ..errors import SchemaError
from ..schema import Argument, Schema
from .expression_cpp import Writer, local

MAX_ARGUMENTS = 60  # one bit each says which are None
LABELS = {"cpu": "cpp", "cuda": "cuda"}
TYPES = {"Tensor": "TENSOR", "int": "INT", "SymInt": "INT", "float": "FLOAT", "bool": "BOOL", "ScalarType": "DTYPE",
         "str": "STRING"}  # fmt: skip
CPP_TYPES = {Kind.INT: "int64_t", Kind.FLOAT: "double", Kind.BOOL: "bool", Kind.DTYPE: "wb::Dtype"}


def render(
    schema: Schema,
    declaration: Declaration,
    *,
    entry: str = "forward",
    device: str = "cpu",
    gradients: Sequence[str] | None = None,
) -> str:
    """The launcher of one slot of an op, to be compiled with this folder on the include path.

    >>> text = render(schema, parse(source, schema, functions=functions(source.text, "cpp")))

    A forward launcher registers `name`, which drops the saved tensors, and `name_forward`, which returns them after
    the outputs; a backward launcher registers `name_backward`, which returns the declared gradients in the order of
    the arguments. `gradients` names other results for it: one `grad_ARG` each, undefined where no directive makes it.
    Raises SchemaError for what raw cells cannot take: lists of tensors, Scalar, results that are no tensors.
    """
    if device != "cpu":
        raise SchemaError(f"launchers are written for 'cpu' so far, not for {device!r}")
    _refuse(schema, declaration, entry)
    outputs, results = _results(schema, declaration, entry, gradients)
    return "\n".join([
        f"// The launcher of {schema.qualname}, {entry}, {device}: checks, allocates and calls the kernels.",
        '#include "launcher.h"',
        "",
        *_tables(declaration, results),
        *_function("plan", "What outputs and `require` need.", declaration, _needed(declaration)),
        *_function("prepare", "What only the kernels need.", declaration, _rest(declaration)),
        *_op(schema, declaration, entry, device, len(outputs), len(results)),
    ])


def statement_text(statement: Statement) -> str:
    """A directive as messages show it: `rows = prod(x.shape[:-1])`."""
    if isinstance(statement, Require):
        return f"require {statement.value.text}"
    if isinstance(statement, Let):
        return f"{statement.name} = {statement.value.text}"
    if isinstance(statement, Unpack):
        return f"{', '.join(statement.names)}{',' * (len(statement.names) == 1)} = {statement.value.text}"
    if isinstance(statement, Tune):
        return f"tune {statement.name}"
    sizes = [statement.like] if statement.like else [
        f"*{e.text}" if e.kind is Kind.INTS and len(statement.sizes or ()) > 1 else e.text for e in statement.sizes or ()]
    made = ("zeros" if statement.zeroed else "empty") + ("_like" if statement.like else "")
    dtype = [f"dtype={statement.dtype.text}"] if statement.dtype else []
    return f"{statement.name} = {made}({', '.join([*sizes, *dtype])})"


def _refuse(schema: Schema, declaration: Declaration, entry: str) -> None:
    if len(declaration.arguments) > MAX_ARGUMENTS:
        raise SchemaError(f"{schema.qualname} has {len(declaration.arguments)} arguments, a raw cell takes {MAX_ARGUMENTS}")
    for a in declaration.arguments:
        if a.is_tensor_list:
            raise SchemaError(f"{schema.qualname}: {a.name} is a list of tensors, which needs the host tier: "
                              "write a function that takes std::vector<Tensor>")
        if a.type.startswith("Scalar") and not a.type.startswith("ScalarType"):
            raise SchemaError(f"{schema.qualname}: {a.name} is a Scalar, which a launcher cannot take: write float")
    other = next((t for t in schema.output_types if t != "Tensor"), None)
    if other:
        raise SchemaError(f"{schema.qualname} returns {other}, a raw cell can only make tensors")
    made = {"forward": (*schema.outputs, *schema.saves), "backward": ()}[entry] if schema.output_types else ()
    missing = [n for n in made if n not in {a.name for a in declaration.allocations}]
    if missing:
        raise SchemaError(f"{schema.qualname}: no directive makes {', '.join(missing)}: write '{missing[0]} = empty(...)'")


def _results(
    schema: Schema, declaration: Declaration, entry: str, gradients: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Names of the tensors to return: those of the public name, and those and the saved ones."""
    if entry == "backward":
        returned = tuple(declaration.gradients if gradients is None else gradients)
        return returned, returned
    outputs = schema.outputs if schema.output_types else ()
    return outputs, (*outputs, *schema.saves)


def _needed(declaration: Declaration) -> tuple[int, ...]:
    """Positions of the statements that outputs and requires need, those that others of them name included."""
    statements = declaration.statements
    made = {n: k for k, s in enumerate(statements) for n in _defines(s)}
    waiting = [k for k, s in enumerate(statements)
               if isinstance(s, Require) or (isinstance(s, Allocate) and s.role != "workspace")]
    needed: set[int] = set()
    while waiting:
        k = waiting.pop()
        if k not in needed:
            needed.add(k)
            waiting.extend(made[n] for n in _uses(statements[k]) if n in made)
    return tuple(sorted(needed))


def _rest(declaration: Declaration) -> tuple[int, ...]:
    needed = set(_needed(declaration))
    return tuple(k for k in range(len(declaration.statements)) if k not in needed)


def _defines(statement: Statement) -> tuple[str, ...]:
    if isinstance(statement, Unpack):
        return tuple(n for n in statement.names if n not in ("_", "*_"))
    return () if isinstance(statement, Require) else (statement.name,)


def _uses(statement: Statement) -> list[str]:
    """The names in a statement, in the order in which they stand."""
    found = [n.id for e in expressions_of(statement) for n in ast.walk(e.tree) if isinstance(n, ast.Name)]
    return [*found, statement.like] if isinstance(statement, Allocate) and statement.like else found


def _tables(declaration: Declaration, results: Sequence[str]) -> list[str]:
    tensors = {n: i for i, n in enumerate(declaration.tensors)}
    values = list(declaration.values)
    bound = [(k, tensors[declaration.aliases.get(n, n)]) for k, n in enumerate(values)
             if declaration.values[n] is Kind.TENSOR]
    arguments = [f'{{"{a.name}", {_type(a)}, {_flags(a, declaration)}}}' for a in declaration.arguments]
    allocations = [f'{{"{a.name}", {"wb::ZEROED" if a.zeroed else "0"}}}' for a in declaration.allocations]
    return [
        *_table("wb::Argument arguments", arguments),
        *_table("wb::Allocation allocations", allocations),
        *_table("char* const values", [f'"{n}"' for n in values]),
        *_table("wb::Bound bound", [f"{{{v}, {t}}}" for v, t in bound]),
        *_table("int16_t results", [str(tensors.get(n, -1)) for n in results]),
        "",
    ]


def _table(name: str, items: Sequence[str]) -> list[str]:
    rows, row = [], ""
    for item in items or ["{}"]:
        if row and len(row) + len(item) > 108:
            rows.append(row)
            row = ""
        row += f"{', ' if row else ''}{item}"
    return [f"static const {name}[] = {{", *(f"    {r}," for r in [*rows, row]), "};"]


def _type(argument: Argument) -> str:
    plain = argument.type.removesuffix("?")
    return f"wb::{TYPES.get(plain, 'LIST' if plain.endswith(']') else 'OTHER')}"


def _flags(argument: Argument, declaration: Declaration) -> str:
    flags = {"wb::OPTIONAL": argument.optional, "wb::MUTATED": argument.mutated and argument.is_tensor,
             "wb::STRIDED": argument.name in declaration.strides_read}  # fmt: skip
    return " | ".join(n for n, on in flags.items() if on) or "0"


def _function(name: str, what: str, declaration: Declaration, positions: Sequence[int]) -> list[str]:
    writer = Writer(declaration)
    statements = [declaration.statements[k] for k in positions]
    body = [line for k in positions for line in _statement(writer, k)]
    data = ["  const wb::Descriptor& d = *f.descriptor;"] if any("d." in line for line in body) else []
    unused = [] if body else ["  (void)f;"]
    return [f"// {what}", f"static void {name}(wb::Frame& f) {{", *data, *_locals(declaration, statements), *body, *unused,
            "}", ""]  # fmt: skip


def _locals(declaration: Declaration, statements: Sequence[Statement]) -> list[str]:
    """Read what these statements use and do not define."""
    defined = {n for s in statements for n in _defines(s) if not isinstance(s, Allocate)}
    first = declaration.first_tensor
    used = [n for s in statements for n in (*_uses(s), *([first] if _takes_first_dtype(s) and first else []))]
    used = [declaration.aliases.get(n, n) if declaration.values.get(n) is Kind.TENSOR else n for n in used]
    slots = {n: i for i, n in enumerate(declaration.values)}
    tensors = {n: i for i, n in enumerate(declaration.tensors)}
    lines = []
    for n in dict.fromkeys(n for n in used if n in slots and n not in defined):
        if n in tensors:
            lines.append(f"  const wb::Tensor& {local(n)} = f.tensors[{tensors[n]}];")
        else:
            lines.append(f"  const {_read(declaration.values[n], local(n), slots[n])};")
    return lines


def _read(kind: Kind, name: str, slot: int) -> str:
    value = {Kind.FLOAT: f"f.values[{slot}].f", Kind.BOOL: f"f.values[{slot}].i != 0",
             Kind.DTYPE: f"wb::Dtype(f.values[{slot}].i)"}.get(kind, f"f.values[{slot}].i")  # fmt: skip
    return f"{CPP_TYPES[kind]} {name} = {value}"


def _takes_first_dtype(statement: Statement) -> bool:
    return isinstance(statement, Allocate) and statement.dtype is None and statement.like is None


def _statement(writer: Writer, position: int) -> list[str]:
    declaration = writer.declaration
    statement = declaration.statements[position]
    if isinstance(statement, Let) and statement.value.kind is Kind.TENSOR:
        return []  # an alias: the table of pointers has it
    at = f"  f.at = {position};"
    if isinstance(statement, Require):
        shown = "".join(f', "{t}", {v}' for t, v in writer.shown(statement.value.tree)).removeprefix(", ")
        return [at, f"  if (!{writer.expression(statement.value.tree)}) f.unmet({shown});"]
    if isinstance(statement, Unpack):
        return [at, *_unpack(writer, statement, position)]
    if isinstance(statement, Allocate):
        return [at, _allocate(writer, statement)]
    if isinstance(statement, Tune):
        tuned = list(declaration.tunes).index(statement.name)
        field = "f" if declaration.values[statement.name] is Kind.FLOAT else "i"
        return [at, _assign(declaration, statement.name, f"d.tuned[{tuned}].{field}")]
    return [at, _assign(declaration, statement.name, writer.expression(statement.value.tree))]


def _assign(declaration: Declaration, name: str, value: str) -> str:
    """A local of the right type, kept in its slot for the kernels and for `prepare`."""
    kind, slot = declaration.values[name], list(declaration.values).index(name)
    field = "f" if kind is Kind.FLOAT else "i"
    return f"  const {CPP_TYPES[kind]} {local(name)} = {value}; f.values[{slot}].{field} = {local(name)};"


def _unpack(writer: Writer, statement: Unpack, position: int) -> list[str]:
    star = next((i for i, n in enumerate(statement.names) if n.startswith("*")), None)
    before = len(statement.names) if star is None else star
    after = 0 if star is None else len(statement.names) - star - 1
    sizes = f"s{position}"
    arguments = f"{before}, {after}, {'false' if star is None else 'true'}"
    lines = [f'  const wb::Span {sizes} = wb::unpack("{_owner(statement.value.tree)}", {writer.expression(statement.value.tree)}, {arguments});']
    for i, name in enumerate(statement.names):
        if name not in ("_", "*_"):
            place = str(i) if i < before else f"{sizes}.size - {len(statement.names) - i}"
            lines.append(_assign(writer.declaration, name, f"{sizes}.data[{place}]"))
    return lines


def _owner(tree: ast.AST) -> str:
    """`x.shape` of `x.shape[1:]`: what a message about the number of dimensions speaks of; it may hold no numbers."""
    return _owner(tree.value) + "[...]" if isinstance(tree, ast.Subscript) else ast.unparse(tree)


def _allocate(writer: Writer, statement: Allocate) -> str:
    declaration = writer.declaration
    of = statement.like or declaration.first_tensor
    assert of is not None
    dtype = writer.expression(statement.dtype.tree) if statement.dtype else f"{writer.tensor(ast.Name(of))}.dtype"
    sizes = [f"{writer.tensor(ast.Name(statement.like))}.shape()"] if statement.like else [
        writer.expression(e.tree) for e in statement.sizes or ()]
    return f"  f.allocate({declaration.tensors.index(statement.name)}, {', '.join([dtype, *sizes])});"


def _op(schema: Schema, declaration: Declaration, entry: str, device: str, outputs: int, results: int) -> list[str]:
    suffix = "_backward" if entry == "backward" else ""
    names = [f'"{schema.name}_backward"'] if suffix else [f'"{schema.name}"', f'"{schema.name}_forward"']
    tensor_arguments = sum(a.is_tensor for a in declaration.arguments)
    counts = {"arguments": len(declaration.arguments), "tensors": len(declaration.tensors),
              "values": len(declaration.values), "rooms": len(declaration.allocations)}  # fmt: skip
    bound = sum(k is Kind.TENSOR for k in declaration.values.values())
    return [
        "static const wb::Op op = {",
        f'    "{schema.qualname} ({LABELS[device]}{" backward" if suffix else ""})",',
        f'    "wb_layout::{schema.namespace}__{schema.name}{suffix}",',
        f"    arguments, {counts['arguments']}, {tensor_arguments},",
        f"    allocations, {counts['rooms']},",
        f"    bound, {bound},",
        f"    results, {outputs}, {results},",
        "    values, plan, prepare,",
        "};",
        "",
        "static void call(StableIValue* stack, uint64_t inputs, uint64_t outputs) {",
        f"  wb::Tensor tensors[{max(1, counts['tensors'])}];",
        f"  wb::Value values[{max(1, counts['values'])}];",
        f"  wb::Room rooms[{max(1, counts['rooms'])}];",
        f"  StableIValue raw[{max(1, counts['arguments'])}] = {{}};",
        "  wb::Frame f{op, tensors, values, rooms, raw};",
        "  wb::run(f, stack, inputs, outputs);",
        "}",
        f"static const char* const names[] = {{{', '.join(names)}}};",
        f'WB_LAUNCHER("{schema.namespace}", "{device.upper()}", names, call)',
        "",
    ]
