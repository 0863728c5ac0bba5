"""Python annotations in torch's schema spelling: torch's own table first, then the rewrites that lose nothing."""

from __future__ import annotations

import enum
import re
import typing
from collections.abc import Iterable

from .errors import SchemaError

_TYPE = re.compile(
    r"(?:Tensor|Sym(?:Int|Float|Bool)|int|float|bool|str|complex|Scalar(?:Type)?|Device|Layout|MemoryFormat|Generator|"
    r"__torch__\.[\w.]+)(?:\[\d*\]|\?)*"
)
USE = "use Tensor, int, float, bool, str, torch.dtype, torch.device, lists of these, or `| None`"


CLASSES = "__torch__.torch.classes."
_CLASS = re.compile(r"\b__torch__\.torch\.classes\.\w+\.\w+")


def without_classes(text: str) -> tuple[str, list[str]]:
    """A schema string with `Any` for each custom class, which torch may not know yet; and the classes, in order.

    >>> without_classes("lab::f(Tensor x, __torch__.torch.classes.lab.State s) -> Tensor")
    ('lab::f(Tensor x, Any s) -> Tensor', ['__torch__.torch.classes.lab.State'])
    """
    found = _CLASS.findall(text)
    if _CLASS.search(text.rpartition("->")[2]):
        raise SchemaError(
            f"{text.partition('(')[0].strip()}: it returns an object of a class, which only torch.ops does here; an op "
            "gives tensors and numbers, and may change the object that it takes"
        )
    return _CLASS.sub("Any", text), found


def class_name(spelled: str) -> str:
    """`"lab::State"` for `"__torch__.torch.classes.lab.State"`, with `?` or `[]` or without; "" for other types."""
    inner = spelled.removeprefix(CLASSES)
    return re.sub(r"[?\[\]\d]+$", "", inner).replace(".", "::") if inner != spelled else ""


def _of_class(hint: object) -> str:
    """The spelling of a class: of its fake class, or of `Annotated[torch.ScriptObject, "lab::State"]`."""
    import torch

    name = vars(hint).get("__workbench_class__", "") if isinstance(hint, type) else ""
    if typing.get_origin(hint) is typing.Annotated and typing.get_args(hint)[0] is torch.ScriptObject:
        name = next((a for a in typing.get_args(hint)[1:] if isinstance(a, str)), "")
    return CLASSES + name.replace("::", ".") if name else ""


def spell(hint: object, where: str) -> str:
    """One annotation in schema spelling; `where` begins the message of the SchemaError if there is none.

    >>> spell(list[Tensor], "x"), spell(tuple[int, int], "k"), spell(float | None, "s"), spell(tuple[int, ...], "n")
    ('Tensor[]', 'SymInt[2]', 'float?', 'SymInt[]')
    """
    found = _spelling(hint, where)
    if found is None:
        instead = _instead(hint)
        raise SchemaError(
            f"{where} is annotated {_shown(hint)}, which torch has no schema spelling for; "
            + (f"write {instead}" if instead else USE)
        )
    return found


def _spelling(hint: object, where: str) -> str | None:
    from torch._library.infer_schema import SUPPORTED_PARAM_TYPES

    named = _of_class(hint)
    if named:
        return named
    hint = _plain(hint)
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
    return None


def _plain(hint: object) -> object:
    """The annotation without what a schema cannot say and a reference does not need."""
    import torch

    while hasattr(hint, "__supertype__"):  # a NewType
        hint = hint.__supertype__
    if typing.get_origin(hint) is typing.Annotated:
        return _plain(typing.get_args(hint)[0])
    if hint is torch.Size:
        return list[int]
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[1:] == (Ellipsis,):
        return list[typing.get_args(hint)[0]]  # type: ignore[misc]  # an annotation made at run time
    return hint


def _instead(hint: object) -> str:
    """What to write where a type has no spelling; "" when nothing in particular comes to mind."""
    import torch

    inner = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        kinds = {type(v) for v in inner}
        return f"{kinds.pop().__name__}, and check its value" if kinds in ({str}, {int}, {bool}) else ""
    if origin in (dict, set, frozenset):
        return "list[Tensor], or one argument for each entry" if torch.Tensor in inner else "a list of the values"
    if origin is tuple and all(h is torch.Tensor for h in inner):
        return "list[Tensor], or one argument for each"
    if origin is tuple:
        return "one argument for each entry"
    if set(inner) == {int, float}:
        return "float: an int is taken too"
    if torch.Tensor in inner and set(inner) & {int, float, bool}:
        return "Tensor, and make a tensor of a number"
    if hint is torch.ScriptObject:
        return 'Annotated[torch.ScriptObject, "ns::Class"], or the class under @wb.fake_class("ns::Class")'
    if hint in (torch.Generator, torch.Generator | None):
        return "seed: int, and make the generator of it"
    if hint in (list, tuple):
        return "what it holds: list[Tensor], list[int]"
    if not isinstance(hint, type):
        return ""
    if issubclass(hint, enum.Enum):
        return "int or str, and pass its value"
    known = {"ndarray": "Tensor", "Parameter": "Tensor", "SymInt": "int", "complex": "two floats, or a Tensor"}
    if hint.__name__ in known:
        return known[hint.__name__]
    said = getattr(hint, "__annotations__", {})
    fields = [n for n, h in said.items() if h in (torch.Tensor, "Tensor", "torch.Tensor")]
    return f"one argument for each of its fields ({', '.join(fields)}, ...)" if fields else ""


def _shown(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def check_parsed(schema: typing.Any, op: str) -> None:
    """SchemaError for what torch's parser takes and no op can have: a result that is an argument, a tuple, a Dict."""
    if any(r.alias_info for r in schema.returns):
        raise SchemaError(f"{op}: an op returns nothing that it was given; a mutating one ends in '-> ()'")
    for a in (*schema.arguments, *schema.returns):
        _refuse_compound(a.type, op)


def _refuse_compound(parsed: typing.Any, op: str) -> None:
    if parsed.kind() in ("TupleType", "DictType"):
        raise SchemaError(
            f"{op}: an op takes and gives tensors, numbers, texts and lists of these, not {parsed}; "
            "write each of its members as an argument or result of its own"
        )
    if parsed.kind() in ("ListType", "OptionalType"):
        _refuse_compound(parsed.getElementType(), op)


def check_type(spelled: str, op: str) -> None:
    """SchemaError for what else torch's parser takes, a type variable for instance."""
    if not _TYPE.fullmatch(spelled):
        raise SchemaError(f"{op}: an op takes and gives tensors, numbers, texts and lists of these, not {spelled!r}")


def output_types(hint: object, op: str) -> tuple[str, ...]:
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if hint is None or hint is type(None):
        return ()
    where = f"{op}: the return value"
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        if Ellipsis in inner:
            raise SchemaError(f"{where}: a tuple of unknown length has no schema; write each Tensor, or list[Tensor]")
        return tuple(t for h in inner for t in output_types(h, op))
    if type(None) in typing.get_args(hint):
        refuse_optional("?", op)
    return (spell(hint, where),)


def refuse_optional(type_: str, op: str) -> None:
    if type_.endswith("?"):
        raise SchemaError(
            f"{op}: the return value: an optional result would lose its gradient; return an empty tensor instead, or "
            "a flag beside it"
        )


def refuse_several(op: str, **given: Iterable[str]) -> None:
    """SchemaError for several names in one string, with how they are written: `saves=("mean", "rstd")`."""
    for what, texts in given.items():
        for text in texts:
            names = text.replace(",", " ").split()
            if len(names) > 1 and all(n.isidentifier() for n in names):
                written = ", ".join(f'"{n}"' for n in names)
                raise SchemaError(f"{op}: {text!r} is no name; several are a tuple: {what}=({written})")
