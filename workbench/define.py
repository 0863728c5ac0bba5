"""`wb.op`, and the ops of this process by name."""

from __future__ import annotations

import difflib
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from . import schema
from .errors import SchemaError
from .op import Op
from .reference import Definition
from .turn import in_turn

_warmed = False
_ops: dict[str, Op] = {}
ops: Mapping[str, Op] = MappingProxyType(_ops)


def op(
    name: str,
    *,
    mutates: str | Iterable[str] = (),
    returns: str | Iterable[str] = (),
    saves: str | Iterable[str] = (),
) -> Callable[[Callable], Op] | Op:
    """Make an op from a function in plain PyTorch: its reference.

    >>> @wb.op("lab::rmsnorm", returns="y", saves="rstd")
    ... def rmsnorm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    ...     return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    The schema comes from the annotations. `mutates` names the arguments that the function writes to (it then returns
    None), `returns` names the outputs, `saves` names tensors that a forward cell makes for backward. The op is at
    once complete: `torch.ops.lab.rmsnorm`, a fake, gradients (the reference's vjp), `torch.compile`, vmap.

    With a whole schema string it gives an op without a reference, to be filled by cells:

    >>> f = wb.op("lab::f(Tensor x, float b=1.0) -> Tensor")

    Run again, it replaces the op of that name in place. Raises SchemaError for a name or annotation that no op can
    have; what was there before stays.
    """
    if not isinstance(name, str):
        raise SchemaError(_unnamed(name))
    if "(" in name:
        if mutates:
            raise SchemaError(f"wb.op({name!r}): a schema says itself what is written to: write 'Tensor(a!) x'")
        return in_turn(define)(Definition(schema.parse(name, returns=returns, saves=saves)))

    @in_turn
    def decorate(function: Callable) -> Op:
        if isinstance(function, Op):
            raise SchemaError(f"{name}: the function under wb.op is an op already ({function.qualname})")
        if not inspect.isroutine(function):
            raise SchemaError(f"{name}: wb.op stands above a function in plain PyTorch, got {function!r}")
        found = schema.from_function(function, name, mutates=mutates, returns=returns, saves=saves)
        return define(Definition(found, function), inspect.getdoc(function) or "")

    schema.split_name(name)
    return decorate


def _unnamed(given: object) -> str:
    """What `@wb.op` without a name, or with something else in its place, should have been."""
    function = getattr(given, "__name__", "") if callable(given) else ""
    if not function.isidentifier():
        return f'wb.op takes the op\'s name first, a string; got {given!r}. Write @wb.op("lab::name")'
    return f'wb.op needs the op\'s name: write @wb.op("lab::{function}") above def {function}(...)'


def _warm() -> None:
    """The first op is when the worker and the precompiled headers are worth their start; nothing is waited for."""
    from .trial import worker

    worker().warm()
    global _warmed
    if not _warmed:
        _warmed = True
        from . import gpu
        from .build import headers

        threading.Thread(target=headers.prepare, name="workbench-prepare", daemon=True).start()
        if gpu.present():
            from .build import nvrtc
            from .trial.gpu_client import gpu_worker

            gpu_worker().warm()
            nvrtc.prepare()


def define(definition: Definition, doc: str = "") -> Op:
    """The op of that name, new or made again in place."""
    _warm()
    known = _ops.get(definition.schema.qualname)
    if known is not None:
        known.redefine(known.registration.fitting(definition), doc)
        return known
    made = Op(definition)
    made.doc = doc
    made.__doc__ = doc or None
    _ops[definition.schema.qualname] = made
    return made


def by_name(qualname: str) -> Op:
    """The live op of that name; what a pickled handle becomes."""
    try:
        return _ops[qualname]
    except KeyError:
        raise SchemaError(
            f"no op {qualname!r} in this process; run the cell that defines it, or import its package"
        ) from None


def find(target: str | Op) -> tuple[Op | None, str, str]:
    """A cell's target as (op or None, qualified name, slot): an Op, `name`, `ns::name`, either with `.backward`.

    A bare name is looked up among all namespaces; one that no op bears is new, in the namespace `lab`.
    """
    if isinstance(target, Op):
        return target, target.qualname, "forward"
    if not isinstance(target, str):
        raise SchemaError(f"the target of a cell is an op or a name such as 'rmsnorm.backward', got {target!r}")
    name, _, slot = target.strip().partition(".")
    slot = slot or "forward"
    if slot not in ("forward", "backward") or not name:
        raise SchemaError(f"{target!r} is no target: write an op's name, or name.backward")
    if "::" in name:
        schema.split_name(name)
        return _ops.get(name), name, slot
    found = [o for o in _ops.values() if o.name == name]
    if len(found) > 1:
        raise SchemaError(f"{name!r} could be {' or '.join(sorted(o.qualname for o in found))}; write one of these")
    qualname = found[0].qualname if found else f"lab::{name}"
    schema.split_name(qualname)
    return (found[0] if found else None), qualname, slot


def meant(qualname: str) -> str:
    """`did you mean lab::rmsnorm?`, of the ops that are called nearly so, whatever their namespace; "" for none."""
    short = {o.name.lower(): q for q, o in _ops.items() if q != qualname}
    near = difflib.get_close_matches(qualname.rpartition("::")[2].lower(), short, 2, 0.7)
    return f"did you mean {' or '.join(short[n] for n in near)}?" if near else ""


def forget(op_: Op) -> None:
    """Take back an op whose first cell failed: its name is free again."""
    from .judge import evidence

    op_.registration.destroy()
    evidence.forget(op_)  # torch keeps hold of the op itself
    _ops.pop(op_.qualname, None)


def put_op(op_: Op) -> None:
    """An op whose name somebody else defined is one of `wb.ops` now."""
    _ops[op_.qualname] = op_


def take_op(op_: Op) -> None:
    """The name of an op is gone."""
    if _ops.get(op_.qualname) is op_:
        del _ops[op_.qualname]
