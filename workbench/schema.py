"""What an op is called and what it takes: names, arguments, outputs, and their spelling for torch.

The schema comes from a function's annotations or from a schema string. Nothing here registers anything.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
import re
import typing
from dataclasses import dataclass
from functools import cached_property

import torch

from .annotations import check_parsed, check_type, output_types, refuse_optional, refuse_several, spell, without_classes
from .defaults import check_default, parsed_default, spell_default
from .errors import SchemaError

RESERVED_NAMESPACES = frozenset({"aten", "prim", "prims", "torch", "c10d", "quantized", "higher_order", "_C"})
NO_DEFAULT = inspect.Parameter.empty
_NOT_OPS = frozenset(dir(torch._ops._OpNamespace("w")))  # attributes that torch.ops.NAMESPACE has already


@dataclass(frozen=True)
class Argument:
    """One argument of an op; `type` is torch's schema spelling without alias marks: `Tensor?`, `int`, `float[]`."""

    name: str
    type: str
    default: object = NO_DEFAULT
    keyword_only: bool = False
    mutated: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.type in ("Tensor", "Tensor?")

    @property
    def is_tensor_list(self) -> bool:
        return self.type in ("Tensor[]", "Tensor?[]")

    @property
    def optional(self) -> bool:
        return self.type.endswith("?")

    @property
    def required(self) -> bool:
        return self.default is NO_DEFAULT


@dataclass(frozen=True)
class Schema:
    """The signature of an op.

    >>> str(parse("lab::rmsnorm(Tensor x, Tensor w, float eps=1e-6) -> Tensor"))
    'lab::rmsnorm(Tensor x, Tensor w, float eps=1e-06) -> Tensor'

    `outputs` are the names a directive, a backward cell or a comparison uses for the results (`out`, or `out0`,
    `out1`, ... unless `returns` named them); `output_types` are `Tensor`, `Tensor[]`, `int`, ... in the same order.
    `saves` names the tensors that a forward kernel keeps for backward and that callers never see.
    """

    namespace: str
    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[str, ...]
    output_types: tuple[str, ...]
    saves: tuple[str, ...] = ()
    outputs_named: bool = False

    @property
    def qualname(self) -> str:
        return f"{self.namespace}::{self.name}"

    @cached_property
    def mutated(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.arguments if a.mutated)

    @cached_property
    def tensors(self) -> tuple[Argument, ...]:
        """The arguments that hold tensors: `Tensor`, `Tensor?` and lists of them."""
        return tuple(a for a in self.arguments if a.is_tensor or a.is_tensor_list)

    @cached_property
    def positional(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if not a.keyword_only)

    @cached_property
    def keyword_only(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.keyword_only)

    def argument(self, name: str) -> Argument | None:
        return next((a for a in self.arguments if a.name == name), None)

    @cached_property
    def signature(self) -> inspect.Signature:
        kinds = {False: inspect.Parameter.POSITIONAL_OR_KEYWORD, True: inspect.Parameter.KEYWORD_ONLY}
        return inspect.Signature(
            [inspect.Parameter(a.name, kinds[a.keyword_only], default=a.default) for a in self.arguments]
        )

    def bind(self, args: tuple, kwargs: dict) -> dict[str, object]:
        """All arguments by name, defaults filled in; TypeError as Python words it when they do not fit."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    @cached_property
    def parameters(self) -> str:
        """The arguments in schema spelling, between the parentheses."""
        mutable = iter("abcdefghijklmnopqrstuvwxyz")
        parts, starred = [], False
        for a in self.arguments:
            if a.keyword_only and not starred:
                parts.append("*")
                starred = True
            spelled = a.type
            if a.mutated:
                spelled = re.sub(r"^Tensor", f"Tensor({next(mutable)}!)", a.type)
            parts.append(f"{spelled} {a.name}" + ("" if a.required else f"={spell_default(a.default)}"))
        return ", ".join(parts)

    @cached_property
    def results(self) -> str:
        names = self.outputs if self.outputs_named else ("",) * len(self.outputs)
        return spell_results(self.output_types, names)

    def __str__(self) -> str:
        return f"{self.qualname}({self.parameters}) -> {self.results}"


def spell_results(types: tuple[str, ...], names: tuple[str, ...]) -> str:
    spelled = [f"{t} {n}".strip() for t, n in zip(types, names, strict=True)]
    return spelled[0] if len(spelled) == 1 and " " not in spelled[0] else f"({', '.join(spelled)})"


def split_name(name: str) -> tuple[str, str]:
    """`"lab::rmsnorm"` -> `("lab", "rmsnorm")`, or a SchemaError that says what is wrong with the name."""
    if not isinstance(name, str) or not name.strip():
        raise SchemaError(f"an op needs a name of the form 'namespace::name', got {name!r}")
    namespace, separator, short = name.partition("::")
    if not separator:
        raise SchemaError(f"{name!r} has no namespace: write for instance 'lab::{name}'")
    for part, what in ((namespace, "namespace"), (short, "name")):
        if "." in part:
            raise SchemaError(f"{name!r}: a dot in the {what} would read as an overload; use '_' instead")
        if not part.isidentifier() or not part.isascii():
            raise SchemaError(f"{name!r}: the {what} {part!r} must be a plain identifier (letters, digits, '_')")
        if keyword.iskeyword(part):
            raise SchemaError(f"{name!r}: the {what} {part!r} is a Python keyword, torch.ops could not spell it")
    if namespace in RESERVED_NAMESPACES:
        raise SchemaError(
            f"{name!r}: the namespace {namespace!r} belongs to PyTorch; choose one of your own, e.g. 'lab'"
        )
    if short.startswith("__"):
        raise SchemaError(f"{name!r}: names that begin with two underscores are Python's own")
    if short in _NOT_OPS or namespace in dir(torch._ops._Ops):
        raise SchemaError(f"{name!r}: torch.ops keeps something of its own under that name; choose another one")
    return namespace, short


def from_function(
    function: typing.Callable,
    name: str,
    *,
    mutates: str | typing.Iterable[str] = (),
    returns: str | typing.Iterable[str] = (),
    saves: str | typing.Iterable[str] = (),
) -> Schema:
    """The schema that a reference's annotations say.

    >>> def f(x: Tensor, w: Tensor | None = None, *, k: int = 2) -> tuple[Tensor, Tensor]: ...
    >>> str(from_function(f, "lab::f"))
    'lab::f(Tensor x, Tensor? w=None, *, SymInt k=2) -> (Tensor, Tensor)'

    Raises SchemaError, naming the argument, for an annotation that torch has no schema spelling for.
    """
    namespace, short = split_name(name)
    try:
        hints = typing.get_type_hints(
            function,
            globalns={**vars(typing), "Tensor": torch.Tensor, "torch": torch, **getattr(function, "__globals__", {})},
            include_extras=True,
        )
    except NameError as error:
        raise SchemaError(f"{name}: an annotation names something unknown: {error}") from None
    signature = inspect.signature(function)
    mutated = named("mutates", mutates, tuple(signature.parameters), name)
    arguments = tuple(
        _argument(p, hints.get(p.name, NO_DEFAULT), p.name in mutated, name) for p in signature.parameters.values()
    )
    for a in arguments:
        if a.mutated and not (a.is_tensor or a.is_tensor_list):
            raise SchemaError(f"{name}: mutates names {a.name!r}, which is a {a.type}, not a tensor")
    if "return" not in hints:
        raise SchemaError(
            f"{name}: the function has no return annotation; write '-> Tensor', '-> tuple[Tensor, Tensor]' or '-> None'"
        )
    types = output_types(hints["return"], name)
    return _complete(namespace, short, arguments, types, _names(returns), _names(saves))


def _type_of(argument: str, printed: str) -> str:
    """Its type in a printed schema: torch's parsed types know no SymInt, its text does."""
    return re.findall(rf"[(, ](\S+) {argument}[=,)]", printed)[0]


def parse(text: str, *, returns: str | typing.Iterable[str] = (), saves: str | typing.Iterable[str] = ()) -> Schema:
    """The schema that a schema string says: `"lab::f(Tensor x, float b=1.0) -> Tensor"`."""
    split_name(text.partition("(")[0].strip())
    try:
        text, classes = without_classes(text)
        parsed = torch._C.parse_schema(text)
    except (RuntimeError, LookupError, ValueError) as error:  # a number that no float holds is an IndexError
        raise SchemaError(f"{text!r} is not a schema: {str(error).strip().splitlines()[0]}") from None
    namespace, short = split_name(parsed.name)
    check_parsed(parsed, parsed.name)
    printed = re.sub(r"(?<=[(, ]Tensor)\([^)]*\)", "", str(parsed))
    printed = re.sub(r"(?<=[(, ])Any\b", lambda m: classes.pop(0) if classes else m[0], printed)
    arguments = tuple(
        Argument(
            a.name,
            _type_of(a.name, printed),
            parsed_default(a) if a.has_default_value() else NO_DEFAULT,
            a.kwarg_only,
            bool(a.alias_info and a.alias_info.is_write),
        )
        for a in parsed.arguments
    )
    results = [r.partition(" ") for r in printed.rpartition(" -> ")[2].strip("()").split(", ") if r]
    types, names = tuple(r[0] for r in results), tuple(r[2] for r in results)
    named_there = names if all(names) else ()
    return _complete(namespace, short, arguments, types, _names(returns) or named_there, _names(saves))


def named(what: str, names: str | typing.Iterable[str], known: tuple[str, ...], op: str) -> tuple[str, ...]:
    """Check that each of `names` is one of `known`; a string counts as one name, not as letters."""
    checked = _names(names)
    refuse_several(op, **{what: checked})
    for n in checked:
        if n not in known:
            near = difflib.get_close_matches(n, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the arguments are {', '.join(known)}"
            raise SchemaError(f"{op}: {what} names {n!r}, which is no argument{hint}")
    return checked


def _names(names: str | typing.Iterable[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    found = (names,) if isinstance(names, str) or not isinstance(names, typing.Iterable) else tuple(names)
    if not all(isinstance(n, str) for n in found):
        raise SchemaError(f"mutates, returns and saves take a name or names, as strings; got {names!r}")
    return found


def _complete(namespace, short, arguments, types, returns, saves) -> Schema:
    op = f"{namespace}::{short}"
    refuse_several(op, returns=returns, saves=saves)
    if returns and len(returns) != len(types):
        raise SchemaError(
            f"{op}: returns names {len(returns)} outputs ({', '.join(returns)}), the function returns {len(types)}"
        )
    outputs = returns or (("out",) if len(types) == 1 else tuple(f"out{i}" for i in range(len(types))))
    taken: set[str] = set()
    for a in arguments:
        if a.name in taken:
            raise SchemaError(f"{op}: two arguments are called {a.name!r}")
        taken.add(a.name)
        if a.name.startswith("__"):
            raise SchemaError(f"{op}: argument {a.name!r}: names that begin with two underscores are Python's own")
        if keyword.iskeyword(a.name) or not a.name.isascii():
            raise SchemaError(f"{op}: argument {a.name!r} is a Python keyword, or not ASCII, which torch asks for")
        if not a.required:
            check_default(a.default, a.type, f"{op}: argument {a.name!r}")
    for t in (*types, *(a.type for a in arguments)):
        check_type(t, op)
    for t in types:
        refuse_optional(t, op)
    for n in (*outputs, *saves):
        if not n.isidentifier() or not n.isascii() or keyword.iskeyword(n):
            raise SchemaError(f"{op}: {n!r} is no name for an output or saved tensor: an ASCII identifier is wanted")
        if n in taken and (returns or n in saves):
            raise SchemaError(f"{op}: the name {n!r} is used twice among arguments, returns and saves")
        taken.add(n)
    return Schema(namespace, short, arguments, tuple(outputs), tuple(types), tuple(saves), bool(returns))


def _argument(parameter: inspect.Parameter, hint: object, mutated: bool, op: str) -> Argument:
    where = f"{op}: argument {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise SchemaError(f"{where}: *args and **kwargs have no schema; name each argument, or take a list[Tensor]")
    if hint is NO_DEFAULT:
        raise SchemaError(f"{where} has no annotation; write for instance '{parameter.name}: Tensor'")
    only = parameter.kind is parameter.KEYWORD_ONLY
    return Argument(parameter.name, spell(hint, where), parameter.default, only, mutated)
