"""One build of an extension in place of another: torch's names, the ops in `wb.ops`, what compiled code knows of them.

Either all of it happens or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..build.reload import Reloadable
from ..define import ops, put_op, take_op
from ..errors import BuildError, SchemaError
from ..op import Op
from ..reference import Definition
from ..register.adopted import Adopted, same
from ..register.names import forget_name
from ..register.registration import Registration
from ..trial.probe import defined, load_module
from . import classes, extensions
from .extensions import Defined, Extension, Made


def foreign(made: Made, mine: Extension) -> list[str]:
    """Names of the build that torch has already, from somebody who is neither an extension nor an op of `wb.ops`."""
    own = {d.name for d in mine.made.names} if mine.made else set()
    there = defined([f"{s}::" for s in made.spaces]) if made.spaces else {}
    return [d.name for d in made.names if d.name in there and d.name not in own and d.name not in ops]


def install(mine: Extension, made: Made) -> tuple[str, ...]:
    """Let this build run. Returns what is to be said of it: names that are new, gone, or have another schema.

    BuildError, on the block's line, if torch refuses it after all; then everything is as it was.
    """
    new = extensions.loaded(made.build.path)  # before anything is changed
    before = {d.name: d for d in mine.made.names} if mine.made else {}
    after = {d.name: d for d in made.names}
    released = [n for n in after if n in ops and ops[n] is not mine.ops.get(n)]  # ops with names of their own so far
    moved = [n for n, d in before.items() if n not in after or after[n].spelled != d.spelled or after[n].keys != d.keys]
    for n in released:
        _empty(ops[n])
    for n in moved:
        if n in mine.ops:
            _adopted(mine.ops[n]).withdraw()
    try:
        if new is not mine.loaded:
            new.replace(mine.loaded)
        module = load_module(made.module, made.build.path) if made.module else None
    except (BuildError, ImportError) as error:
        _back(mine, new, released, moved)
        if isinstance(error, ImportError):
            raise BuildError(f"the Python module {made.module} does not load: {error}") from error
        raise
    former = mine.made.classes if mine.made else ()
    known = _told(before, after, bool(mine.made))
    same_build = new is mine.loaded
    mine.made, mine.loaded, mine.module = made, new, module
    extensions.keep(mine)
    for n, d in before.items():
        if n not in after or after[n].spelled != d.spelled:
            forget_name(n.partition("::")[0], d.qualname.partition("::")[2])
        if n not in after or after[n].schema is None:
            _leave(mine, n)
    for d in made.ops:
        _adopt(mine, d)
    _neighbours(mine)
    return (*known, *([] if same_build else classes.after_install(made.classes, former)))


def restore(mine: Extension, made: Made) -> None:
    """An earlier build again, for all ops that it defines."""
    if mine.made is made:
        return
    extensions.refuse_taken(made, mine, foreign(made, mine))
    install(mine, made)
    for d in made.ops:
        op = mine.ops[d.name]
        kept = [v for v in op.versions[1:] if getattr(v.kernel, "built", None) == made.build and not v.refused]
        if kept:
            op.fill(("forward", made.device), kept[-1])


def _back(mine: Extension, new: Reloadable, released: Sequence[str], moved: Sequence[str]) -> None:
    """As it was: `Reloadable.replace` has put the former blocks back already, unless a Python module failed later."""
    if mine.loaded is not None and mine.loaded is not new:
        mine.loaded.replace(new)
    elif mine.loaded is None:
        new.unregister()
    for n in released:
        ops[n].registered_by(Registration, ops[n].definition)
    for n in moved:
        if n in mine.ops:
            _adopted(mine.ops[n]).complete()


def _adopted(op: Op) -> Adopted:
    """What torch knows of an op whose name an extension defines."""
    found = op.registration
    assert isinstance(found, Adopted)
    return found


def _adopt(mine: Extension, d: Defined) -> None:
    """The op of one name: made, given the new schema, or completed anew."""
    op = ops.get(d.name) or mine.ops.get(d.name)
    if op is None:
        op = Op(Definition(d.op_schema), Adopted)
    elif ops.get(d.name) is not op or not isinstance(op.registration, Adopted) or str(op.schema) != str(d.schema):
        definition = Definition(d.op_schema)
        if same(op.schema, d.op_schema):
            definition = replace(op.definition, schema=d.op_schema)
        op.registered_by(Adopted, definition)
    else:
        _adopted(op).complete()
    _adopted(op).build = mine.now.build.key
    op.changed()
    mine.ops[d.name] = op
    put_op(op)


def _leave(mine: Extension, name: str) -> None:
    """An op whose name the extension no longer defines: one with a reference goes on with that."""
    op = mine.ops.get(name)
    if op is None:
        return
    op.registration.destroy()
    op.changed()
    if op.reference is not None:
        op.registered_by(Registration, op.definition)
        del mine.ops[name]
        return
    take_op(op)
    _close(op, f"{op.qualname} is gone: {mine.where} no longer defines it")


def _close(op: Op, message: str) -> None:
    """Kept handles say what became of the op."""

    def gone(*args: object, **kwargs: object) -> object:
        raise SchemaError(message)

    own: Any = type(op)  # as in `Live`
    own.__call__ = gone


def _empty(op: Op) -> None:
    """Take an op's own names back, so that a library can define them; its kernels go."""
    for key in list(op.slots):
        op.slots[key].kernel.remove()
        op.vacate(key)
    op.registration.destroy()


def _neighbours(mine: Extension) -> None:
    """Ops of other extensions for which this one has kernels, or had: they see who serves which key now."""
    for e in extensions.live():
        if e is mine or not e.now.spaces & mine.now.spaces:
            continue
        for d in e.now.ops:
            op = e.ops[d.name]
            _adopted(op).complete()
            op.changed()


def _told(before: dict[str, Defined], after: dict[str, Defined], again: bool) -> tuple[str, ...]:
    if not again:
        return ()
    new = [n for n in after if n not in before]
    gone = [n for n in before if n not in after]
    other = [n for n in after if n in before and before[n].spelled != after[n].spelled]
    said = []
    for what, names in (("new", new), ("gone", gone), ("another schema", other)):
        if names:
            said.append(f"{what}: {', '.join(names)}")
    return tuple(said)


__all__ = ["foreign", "install", "restore", "same"]
