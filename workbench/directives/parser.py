"""The directive lines of one cell -> a `Declaration`.

Each line is read by itself, top to bottom: what it may name is what stands above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import SchemaError
from ..schema import Argument, Schema
from ..source import Function, Source, directives_of
from . import geometry
from .allocate import complete
from .binding import bind, called
from .lines import targets
from .nodes import Declaration
from .reader import Reader

MAX_DIRECTIVES = 500


def parse(
    source: Source, schema: Schema, *, entry: str = "forward", functions: Sequence[Function] = (), function: str = ""
) -> Declaration:
    """What the directives of a raw cell declare for one slot of an op.

    >>> source = Source("//! out = empty_like(x)\\nvoid scale(const float* x, float* out) {}", "cpp")
    >>> parse(source, schema, functions=functions(source.text, "cpp")).outputs
    ('out',)

    `entry` is "forward" or "backward". `functions` are those of the text; the C++ one that is called bears the op's
    short name, or "backward", or `function`. Without `functions` (host cells) nothing is
    bound to parameters, and outputs may be missing.
    Raises SchemaError, with the user's line, for everything that a cell can get wrong.
    """
    if entry not in ("forward", "backward"):
        raise SchemaError(f"a raw cell fills 'forward' or 'backward', got {entry!r}")
    lines = directives_of(source)
    if len(lines) > MAX_DIRECTIVES:
        raise SchemaError(f"{len(lines)} directives in one cell; at most {MAX_DIRECTIVES}", line=lines[-1][0])
    arguments = inputs(schema, entry)
    reader = Reader(source, schema, entry, arguments, tuple(functions))
    try:
        defined = [targets(text) for _, text in lines]
        for position, (line, text) in enumerate(lines):
            reader.later = frozenset(name for names in defined[position:] for name in names)
            reader.read(line, text)
        launches = reader.launches()
        called_ = called(source, schema, functions, launches, entry=entry, function=function) if functions else ()
        declaration = Declaration(
            schema, entry, arguments, tuple(reader.statements), launches, tuple(reader.flags), called_
        )
        if functions:
            complete(declaration, lines[-1][0] if lines else source.first_line)
            bind(called_, declaration)
            geometry.check(declaration)
    except SchemaError as error:
        error.file = error.file or source.file
        raise
    return declaration


def inputs(schema: Schema, entry: str) -> tuple[Argument, ...]:
    """The arguments of the native op that a cell fills: see `Declaration`."""
    if entry == "forward":
        return schema.arguments
    results = tuple(n for n, t in zip(schema.outputs, schema.output_types, strict=True) if t == "Tensor")
    plain = tuple(replace(a, mutated=False) for a in schema.arguments)
    taken = {a.name for a in plain}
    for name in (*schema.mutated, *results):
        if f"grad_{name}" in taken:
            raise SchemaError(
                f"{schema.qualname}: the argument grad_{name} has the name that the gradient of {name} comes in by; "
                "a raw backward needs another name for it"
            )
    gradients = tuple(
        Argument(f"grad_{n}", "Tensor?") for n in (*(a.name for a in plain if _is_mutated(schema, a)), *results)
    )
    kept = tuple(Argument(n, "Tensor") for n in (*results, *schema.saves) if n not in taken)
    return (*gradients, *plain, *kept)


def _is_mutated(schema: Schema, argument: Argument) -> bool:
    return argument.is_tensor and argument.name in schema.mutated
