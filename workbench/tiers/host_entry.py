"""Which function of a host cell fills a slot, and which directives of the cell are its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ..directives.vocabulary import function_name
from ..errors import SchemaError
from ..schema import Schema
from ..source import Function, Source, directives_of
from .choose import full_only, line_of

_MADE = re.compile(r"(\w+)\s*=\s*(?:empty|zeros)(?:_like)?\s*\(")
_FORWARDS = re.compile(rf"\s*//! (?:(?:require|tune)\b|{_MADE.pattern})")


def entry(found: Sequence[Function], schema: Schema, slot: str, wanted: str, source: Source) -> Function:
    """The one function of a cell that fills the slot: named like the op, `backward`, or as `--entry` says.

    Kernels are not meant: `scale` may launch one that is called `scale`, too.
    """
    kernels = [f for f in found if f.is_global]
    found = [f for f in found if not f.is_global and not f.is_device]
    name = wanted or ("backward" if slot == "backward" else function_name(schema.name))
    named = [f for f in found if f.name == name]
    if not named and slot == "forward" and not wanted:  # pasted code has names of its own
        named = [f for f in found if _on_tensors(f) and f.name != "backward"]
    if len(named) == 1:
        return named[0]
    if kernels and not found:
        raise _only_kernels(source, kernels[0], name)
    names = ", ".join(dict.fromkeys(f.name for f in found)) or "no function"
    if named:
        alike = len({f.name for f in named}) == 1
        cure = "keep one, or give the other another name" if alike else "say --entry NAME"
        raise SchemaError(
            f"which function is {schema.name}? The cell has {', '.join(f.name for f in named)}; {cure}",
            line=named[1].line, file=source.file,
        )  # fmt: skip
    raise SchemaError(
        f"no function is called {name!r}; the cell defines {names}", line=source.first_line, file=source.file
    )


def _only_kernels(source: Source, kernel: Function, name: str) -> SchemaError:
    """A raw cell with a word of the full tier in it, often an include from where it was pasted."""
    word = next(iter(full_only(source)), "")
    number = {"Half": "half", "BFloat16": "bfloat16"}.get(word.rpartition("::")[2], "")
    said = f"{word} is for functions on torch::Tensor, and this cell has none: "
    said += f"write {number}" if number else f"leave it out where '//! grid = ...' launches {kernel.name}"
    cure = f"{said}, or write 'torch::Tensor {name}(...)', which launches it by <<<>>>"
    line = source.first_line + line_of(source.text, word.strip("<>"))
    return SchemaError(cure, line=line, file=source.file)


def own(
    source: Source, found: Sequence[Function], schema: Schema, slot: str, function: Function
) -> tuple[tuple[str, ...], Source]:
    """The saved tensors that a forward leaves out, and the cell with the directives that are the slot's.

    A void function that fills what directives make returns nothing, so that pasted code can save nothing either. What
    no line makes of the saved tensors is then empty, as it is where the reference runs, and its vjp is the backward.
    """
    if slot == "backward":
        return (), _without_the_forwards(source, found, schema)
    made = {match[1] for _, text in directives_of(source) if (match := _MADE.match(text))}
    left_out = tuple(n for n in schema.saves if n not in made)
    if function.returns.strip() != "void" or not made or not left_out:
        return (), source
    lines = [f"//! {name} = empty(0, dtype=uint8)" for name in left_out]
    return left_out, replace(source, text="\n".join([source.text, *lines]))


def _without_the_forwards(source: Source, found: Sequence[Function], schema: Schema) -> Source:
    """A backward's cell without the directives of a forward in it: those that make tensors, `require` and `tune`."""
    makes_gradients = any(re.match(r"grad_\w+\s*=", text) for _, text in directives_of(source))
    others = [f for f in found if f.name == schema.name or (_on_tensors(f) and f.name != "backward")]
    if makes_gradients or not others:
        return source
    lines = ["" if _FORWARDS.match(line) else line for line in source.text.splitlines()]
    return replace(source, text="\n".join(lines))


def _on_tensors(f: Function) -> bool:
    return "Tensor" in f.returns + "".join(p.type for p in f.parameters)
