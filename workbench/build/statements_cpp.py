"""The directives of a declaration as C++ functions: what outputs and checks need, what only kernels need, launches.

Pure text. `launcher.py` puts tables around them; expressions are written by `expression_cpp.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..directives import (
    Allocate,
    Declaration,
    Expression,
    Kind,
    Launch,
    Let,
    Require,
    Statement,
    Tune,
    Unpack,
    bound_names,
    expressions_of,
)
from .expression_cpp import Writer, local

CPP_TYPES = {Kind.INT: "int64_t", Kind.FLOAT: "double", Kind.BOOL: "bool", Kind.DTYPE: "wb::Dtype"}


def functions(declaration: Declaration, device: str = "cpu", *, numbers: bool = False) -> list[str]:
    """The lines of `plan` and `prepare`, which fill the table of values and plan the allocations.

    Statements keep their order in each. What no output and no `require` asks for comes after the question whether
    there is anything to do, so that a size of 0 divides nothing. A launcher for "cuda" has a third one, `geometry`:
    grid, block, shared memory and cluster of each kernel. `numbers`: see `expression_cpp.Writer`.
    """
    needed = _needed(declaration)
    rest = tuple(k for k in range(len(declaration.statements)) if k not in needed)
    writer = Writer(declaration, device, numbers=numbers)
    return [
        *_function("plan", "What outputs and checks need.", writer, needed),
        *_function("prepare", "What only the kernels need.", writer, rest),
        *(_geometry(writer) if device == "cuda" else ()),
    ]


def texts(declaration: Declaration) -> list[tuple[str, int]]:
    """(text, line) of every directive, as messages show them: statements, then the parts of each launch."""
    made = [(statement_text(s), s.line) for s in declaration.statements]
    for _, word, sizes in _parts(declaration):
        made.append((f"{word} = {', '.join(e.text for e in sizes)}", sizes[0].line))
    return made


def _parts(declaration: Declaration) -> list[tuple[int, str, tuple[Expression, ...]]]:
    """(kernel, word, sizes) of grid, block, shared and cluster of each launch, where they are given."""
    made = []
    for k, launch in enumerate(declaration.launches):
        shared = (launch.shared,) if launch.shared else ()
        words = {"grid": launch.grid, "block": launch.block, "shared": shared, "cluster": launch.cluster}
        made += [(k, word, sizes) for word, sizes in words.items() if sizes]
    return made


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
    made = ("zeros" if statement.zeroed else "empty") + ("_like" if statement.like else "")
    sizes = statement.sizes or ()
    parts = [statement.like] if statement.like else [_size(e, len(sizes)) for e in sizes]
    if statement.dtype:
        parts.append(f"dtype={statement.dtype.text}")
    return f"{statement.name} = {made}({', '.join(parts)})"


def _size(size: Expression, count: int) -> str:
    return f"*{size.text}" if size.kind is Kind.INTS and count > 1 else size.text


def _needed(declaration: Declaration) -> tuple[int, ...]:
    """Positions of the statements that outputs and requires need, those that others of them name included."""
    statements = declaration.statements
    made = {n: k for k, s in enumerate(statements) for n in bound_names(s)}
    always = (Require, Unpack)  # an Unpack checks the rank
    waiting = [
        k
        for k, s in enumerate(statements)
        if isinstance(s, always) or (isinstance(s, Allocate) and s.role != "workspace")
    ]
    needed: set[int] = set()
    while waiting:
        k = waiting.pop()
        if k not in needed:
            needed.add(k)
            waiting.extend(made[n] for n in _uses(statements[k]) if n in made)
    return tuple(sorted(needed))


def _uses(statement: Statement | Launch) -> list[str]:
    """The names in a statement, in the order in which they stand."""
    found = [n.id for e in expressions_of(statement) for n in ast.walk(e.tree) if isinstance(n, ast.Name)]
    return [*found, statement.like] if isinstance(statement, Allocate) and statement.like else found


def _function(name: str, what: str, writer: Writer, positions: Sequence[int]) -> list[str]:
    statements = [writer.declaration.statements[k] for k in positions]
    body = [line for k in positions for line in _statement(writer, k)]
    data = ["  const wb::Descriptor& d = *f.descriptor;"] if any("d." in line for line in body) else []
    unused = [] if body else ["  (void)f;"]
    start = [f"// {what}", f"static void {name}(wb::Frame& f) {{"]
    return [*start, *data, *_locals(writer.declaration, statements), *body, *unused, "}", ""]


def _geometry(writer: Writer) -> list[str]:
    """`geometry`: how each kernel is launched. Its messages speak of the texts that follow those of the statements."""
    declaration, body = writer.declaration, []
    for at, (k, word, sizes) in enumerate(_parts(declaration), len(declaration.statements)):
        arguments = ", ".join([str(k), *(writer.expression(e.tree) for e in sizes)])
        body += [f"  f.at = {at};", f"  f.{word}({arguments});"]
    data = ["  const wb::Descriptor& d = *f.descriptor;"] if any("d." in line for line in body) else []
    start = ["// How each kernel is launched.", "static void geometry(wb::CudaFrame& f) {"]
    return [*start, *data, *_locals(declaration, declaration.launches), *body, "}", ""]


def _locals(declaration: Declaration, statements: Sequence[Statement | Launch]) -> list[str]:
    """Read what these statements use and do not define."""
    defined = {n for s in statements if not isinstance(s, (Allocate, Launch)) for n in bound_names(s)}
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


def _takes_first_dtype(statement: Statement | Launch) -> bool:
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
    tree, sizes = statement.value.tree, f"s{position}"
    arguments = f'"{_owner(tree)}", {writer.expression(tree)}, {before}, {after}, {"false" if star is None else "true"}'
    lines = [f"  const wb::Span {sizes} = wb::unpack({arguments});"]
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
    if statement.dtype:
        dtype = writer.expression(statement.dtype.tree)
    else:
        dtype = f"{writer.tensor(ast.Name(statement.like or declaration.first_tensor or ''))}.dtype"
    if statement.like:
        sizes = [f"{writer.tensor(ast.Name(statement.like))}.shape()"]
    else:
        sizes = [writer.expression(e.tree) for e in statement.sizes or ()]
    return f"  f.allocate({declaration.tensors.index(statement.name)}, {', '.join([dtype, *sizes])});"
