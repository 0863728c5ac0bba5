"""Custom C++ classes as torch.compile and torch.export see them: the fake class of each, given or derived, and checked.

A fake is made of what `__obj_flatten__` gives, and stands for the object while a graph is traced. torch keeps fakes by
the name of the class (`torch._library.register_fake_class`), so a re-run of the cell leaves them where they are.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._library import fake_class_registry as registry

from ..annotations import CLASSES
from ..build.reload import Class
from ..errors import SchemaError
from . import extensions

UNFLATTEN, FLATTEN = "__obj_unflatten__", "__obj_flatten__"
_given: dict[str, object] = {}  # the example of each class that was given a fake, None without one
_derived: set[str] = set()


def fake_class(name: str, *, example: object = None) -> Callable[[type], type]:
    """Say how a custom C++ class looks while a graph is traced.

    >>> @wb.fake_class("lab::Counter", example=lambda: torch.classes.lab.Counter(3))
    ... class Counter:
    ...     def __init__(self, step, calls):
    ...         self.step, self.calls = step, calls
    ...     @classmethod
    ...     def __obj_unflatten__(cls, flat):          # what __obj_flatten__ of the C++ class gave
    ...         return cls(**dict(flat))
    ...     def count(self):
    ...         return self.calls

    The decorated class comes back and serves as the annotation of an op's argument. `example`, an object or what makes
    one, is looked at now and, where it is a function, after each re-run of the cell: the fake of it must flatten to
    the same names, types and values (as attributes of these names; where a method has such a name, by an
    `__obj_flatten__` of its own), and pickling must keep them. Every object that is traced later is looked at in the
    same way. A class with `__obj_flatten__` and without a fake class of its own has a derived one, whose methods read
    the field that is called like them.

    Raises SchemaError where torch has no such class, for a class without the class method `__obj_unflatten__`, and for
    one that flattens otherwise; the former fake then stays.
    """
    namespace, _, short = str(name).partition("::")
    if not namespace.isidentifier() or not short.isidentifier():
        raise SchemaError(f'a custom class is named like "lab::Counter", got {name!r}')

    def decorate(fake: type) -> type:
        if not isinstance(fake, type) or not isinstance(vars(fake).get(UNFLATTEN), classmethod):
            raise SchemaError(
                f"the fake of {name} is a class with a class method: @classmethod def {UNFLATTEN}(cls, flat): "
                "return cls(**dict(flat)), where flat holds the (name, value) pairs of the C++ class"
            )
        _refuse_unknown(name)
        if example is not None:
            check(name, _made(example), fake)
        fake.__workbench_class__ = name  # type: ignore[attr-defined]  # what annotations are spelled by
        _given[name] = example
        _derived.discard(name)
        _watch(name, fake)
        _register(name, fake)
        return fake

    return decorate


def check(name: str, real: Any, fake: type) -> None:
    """SchemaError where a fake made of this object does not flatten as the object does, or pickling changes it."""
    try:
        flat = real.__obj_flatten__()
    except (AttributeError, RuntimeError) as error:
        raise SchemaError(str(error).strip().splitlines()[0]) from None
    _compare(name, flat, fake.__obj_unflatten__(flat))  # type: ignore[attr-defined]
    if real._has_method("__getstate__"):
        lost = _differences(flat, dict(copy.deepcopy(real).__obj_flatten__()))
        if lost:
            raise SchemaError(
                f"pickling an object of {name} changes it: {'; '.join(lost)}. The two functions of its def_pickle "
                "must keep all that __obj_flatten__ gives"
            )


def after_install(classes: Sequence[Class], before: Sequence[Class]) -> list[str]:
    """Fakes for the classes of a build that runs now. Returns what is to be said of them."""
    told = [f"the class {c.name} is gone" for c in before if c.name not in {k.name for k in classes}]
    for c in classes:
        if c.name in _given:
            example = _given[c.name]
            fake = registry.find_fake_class(_full(c.name))
            try:
                if example is not None and callable(example) and fake is not None:
                    check(c.name, _made(example), fake)
            except Exception as error:  # whatever the user's example and fake raise
                told.append(str(error))
        elif c.flattens:
            _derived.add(c.name)
            _register(c.name, derived(c))
        else:
            told.append(
                f"{c.name} has no {FLATTEN}, so torch.compile and torch.export refuse its objects: "
                f'.def("{FLATTEN}", ...) returns a tuple of (name, value) pairs'
            )
        old = next((b for b in before if b.name == c.name), None)
        if old is not None:
            more = "; copy.deepcopy makes new ones of them" if c.pickles and old.pickles else ""
            told.append(f"objects of {c.name} from before keep their code, and new ops refuse them{more}")
    return told


def derived(c: Class) -> type:
    """A fake whose fields are those of `__obj_flatten__`; its methods read the field called like them."""

    def init(self: Any, flat: tuple) -> None:
        self.flat = flat
        for field, value in flat:
            if field not in c.methods:
                setattr(self, field, value)  # torch.compile reads fields by name

    members: dict[str, object] = {
        "__init__": init,
        "__doc__": f"What {c.name} flattens to.",
        UNFLATTEN: classmethod(lambda cls, flat: cls(flat)),
        FLATTEN: lambda self: self.flat,
    }
    for method, count in c.methods.items():
        if not method.startswith("__"):
            members[method] = _reading(c.name, method, count)
    return type(f"Fake{c.name.partition('::')[2]}", (), members)


def _reading(name: str, method: str, count: int) -> Callable:
    def read(self: Any, *args: object, **kwargs: object) -> object:
        fields = dict(self.flat)
        found = next((f for f in (method, method.removeprefix("get_")) if f in fields), "")
        if count or not found:
            raise SchemaError(_without(name, method))
        return fields[found]

    read.takes = count  # type: ignore[attr-defined]  # a package has what can be derived alone
    return read


def _without(name: str, method: str) -> str:
    return (
        f"{name}.{method} cannot be derived from {FLATTEN}: write the fake class, @wb.fake_class({name!r}) above a "
        f"class with the class method {UNFLATTEN}(cls, flat) and a method {method}"
    )


# ---------------------------------------------------------------- the fake that torch gets


def _watch(name: str, fake: Any) -> None:
    """Compare what the fake class makes with what it was given. Methods that it lacks say so when they are called."""
    own = vars(fake)[UNFLATTEN].__func__
    own = getattr(own, "__wrapped__", own)

    @functools.wraps(own)
    def unflatten(cls: type, flat: tuple) -> object:
        made = own(cls, flat)
        _compare(name, flat, made)
        for method in _methods(name):
            if not hasattr(made, method) and not method.startswith("__"):
                setattr(fake, method, _lacking(name, method))
        return made

    setattr(fake, UNFLATTEN, classmethod(unflatten))  # torch asks for an object of the very class that it knows


def _lacking(name: str, method: str) -> Callable:
    def missing(*args: object, **kwargs: object) -> object:
        raise SchemaError(f"the fake class of {name} has no {method}: write it, as {method} of the C++ class does it")

    return missing


def _methods(name: str) -> list[str]:
    return [m for e in extensions.live() for c in e.now.classes if c.name == name for m in c.methods]


def _compare(name: str, flat: tuple, made: object) -> None:
    own = getattr(made, FLATTEN, None)
    have = dict(own()) if own is not None else {n: getattr(made, n) for n, _ in flat if hasattr(made, n)}
    found = _differences(flat, have)
    unseen = [n for n, _ in flat if n in have and not hasattr(made, n)]
    found += [f"{n!r} is no attribute of it, which torch.compile reads" for n in unseen]
    if found:
        raise SchemaError(
            f"the fake class of {name} flattens otherwise than the class: {'; '.join(found)}. Keep what {UNFLATTEN} is "
            f"given in attributes of these names; where a method has the name, write {FLATTEN}"
        )


def _differences(flat: tuple, have: dict) -> list[str]:
    found = [f"{n!r} is missing" for n, _ in flat if n not in have]
    known = ", ".join(n for n, _ in flat)
    found += [f"{n!r} is not in the class, which has {known}" for n in have if n not in dict(flat)]
    found += [f"{n!r} is {_shown(have[n])}, not {_shown(v)}" for n, v in flat if n in have and not _alike(have[n], v)]
    return found


def _alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other) and not isinstance(other, torch.Tensor):
        return False
    if isinstance(other, torch.Tensor):
        alike = isinstance(one, torch.Tensor) and (one.dtype, one.shape) == (other.dtype, other.shape)
        fake = isinstance(other, torch._subclasses.FakeTensor) or other.is_meta
        return alike and (fake or torch.equal(one, other))
    if isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(_alike(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _shown(value: object) -> str:
    from ..inputs import describe

    return f"{type(value).__name__} {describe(value)}" if not isinstance(value, torch.Tensor) else describe(value)


def _refuse_unknown(name: str) -> None:
    namespace, _, short = name.partition("::")
    try:
        torch._C._get_custom_class_python_wrapper(namespace, short)
    except RuntimeError:
        raise SchemaError(
            f"torch has no class {name} here: run the cell that defines it first (m.class_<T>({short!r}) in "
            f"TORCH_LIBRARY({namespace}, m)), or load its library"
        ) from None


def _register(name: str, fake: type) -> None:
    if registry.has_fake_class(_full(name)):
        registry.deregister_fake_class(name)
    registry.register_fake_class(name, fake)


def _made(example: Any) -> Any:
    return example() if callable(example) and not isinstance(example, torch.ScriptObject) else example


def _full(name: str) -> str:
    return CLASSES + name.replace("::", ".")
