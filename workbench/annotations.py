"""Python annotations in torch's schema spelling: torch's own table first, then the rewrites that lose nothing."""

from __future__ import annotations

import typing

from .errors import SchemaError


def spell(hint: object, where: str) -> str:
    """One annotation in schema spelling; `where` begins the message of the SchemaError if there is none.

    >>> spell(list[Tensor], "x"), spell(tuple[int, int], "k"), spell(float | None, "s")
    ('Tensor[]', 'SymInt[2]', 'float?')
    """
    from torch._library.infer_schema import SUPPORTED_PARAM_TYPES

    try:
        if hint in SUPPORTED_PARAM_TYPES:
            return SUPPORTED_PARAM_TYPES[hint]
    except TypeError:  # an unhashable annotation
        pass
    inner = [h for h in typing.get_args(hint) if h is not type(None)]
    if type(None) in typing.get_args(hint) and len(inner) == 1:
        base = spell(inner[0], where)
        if base.startswith("Tensor") and base.endswith("[]"):
            raise SchemaError(
                f"{where}: an optional list of tensors has no schema in this torch; take a list[Tensor] and pass an "
                "empty one for None"
            )
        return f"{base}?"
    origin = typing.get_origin(hint)
    if origin is tuple and inner and all(h is inner[0] for h in inner) and inner[0] in (int, float, bool):
        return f"{spell(inner[0], where)}[{len(inner)}]"
    if origin in (list, typing.get_origin(typing.Sequence[int])) and len(inner) == 1:
        base = spell(inner[0], where)
        if not base.endswith("]"):
            return f"{base}[]"
    shown = getattr(hint, "__name__", None) if isinstance(hint, type) else str(hint).replace("typing.", "")
    raise SchemaError(
        f"{where} is annotated {shown}, which torch has no schema spelling for; use Tensor, int, float, bool, str, "
        "torch.dtype, torch.device, lists of these, or `| None`"
    )


def output_types(hint: object, op: str) -> tuple[str, ...]:
    if hint is None or hint is type(None):
        return ()
    where = f"{op}: the return value"
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        if Ellipsis in inner:
            raise SchemaError(f"{where}: a tuple of unknown length has no schema; write each Tensor, or list[Tensor]")
        return tuple(t for h in inner for t in output_types(h, op))
    return (spell(hint, where),)


def refuse_optional(type_: str, op: str) -> None:
    if type_.endswith("?"):
        raise SchemaError(
            f"{op}: the return value: an optional result would lose its gradient; return an empty tensor instead, or "
            "a flag beside it"
        )
