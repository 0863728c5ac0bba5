"""An op's signature as Python spells it: annotations and defaults. Pure text."""

from __future__ import annotations

from ..errors import SaveError
from ..schema import Argument, Schema
from .carry import literal

_ANNOTATIONS = {"Tensor": "Tensor", "SymInt": "int", "int": "int", "float": "float", "bool": "bool", "str": "str",
                "Scalar": "float", "ScalarType": "torch.dtype", "Device": "torch.device"}  # fmt: skip


def annotation(type_: str) -> str:
    """A schema's type as Python writes it: `Tensor?` is `Tensor | None`, `SymInt[2]` is `list[int]`."""
    if type_.endswith("?"):
        return f"{annotation(type_[:-1])} | None"
    if type_.endswith("]"):
        return f"list[{annotation(type_.partition('[')[0] + ('?' if type_.partition('[')[0].endswith('?') else ''))}]".replace(
            " | None | None", " | None"
        )
    return _ANNOTATIONS.get(type_, "object")


def signature(schema: Schema) -> str:
    """`(x: Tensor, w: Tensor, eps: float = 1e-06) -> Tensor`."""
    parts, starred = [], False
    for a in schema.arguments:
        if a.keyword_only and not starred:
            parts.append("*")
            starred = True
        parts.append(f"{a.name}: {annotation(a.type)}" + ("" if a.required else f" = {default(a, schema)}"))
    types = [annotation(t) for t in schema.output_types]
    result = "None" if not types else types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"
    return f"({', '.join(parts)}) -> {result}"


def default(a: Argument, schema: Schema) -> str:
    """The default of an argument, as text. SaveError where it has none."""
    text = literal(a.default)
    if text is None or text.startswith("math."):
        raise SaveError(f"{schema.qualname}: the default of {a.name}, {a.default!r}, has no text")
    return text
