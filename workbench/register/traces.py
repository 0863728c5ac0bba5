"""Who compiled against an op, and how to make them do so again.

torch's on-disk cache keys neither the fake nor the backward of an op, so a digest of every op goes into its key; and
frames that Dynamo traced through an op's fake are reset when anything that they took from it changes.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..errors import SchemaError
from ..reference import Definition

DEEP = 4  # helper functions of helper functions that are followed
MOST = 1 << 16  # numbers of a tensor that a reference holds on to
_digests: dict[str, str] = {}


class Traces:
    """The compiled frames that saw one op."""

    def __init__(self) -> None:
        self._codes: weakref.WeakSet = weakref.WeakSet()

    def note(self) -> None:
        """Called by the op's fake: while Dynamo traces, remember the frame."""
        try:
            from torch._dynamo.symbolic_convert import InstructionTranslator

            self._codes.add(InstructionTranslator.current_tx().output.root_tx.f_code)
        except (ImportError, AttributeError):
            return  # traced by make_fx or export: nothing is kept that could go stale

    def forget(self, definition: Definition, build: str = "") -> None:
        """The definition is another now: tell the on-disk cache, and let the frames be traced again.

        `build` is the key of a library that compiled code may have looked into.
        """
        _digests[definition.schema.qualname] = _digest(definition) + build
        combined = hashlib.sha256(repr(sorted(_digests.items())).encode()).hexdigest()
        torch.compiler.config.cache_key_tag = _tagged(torch.compiler.config.cache_key_tag, combined)
        if not self._codes:
            return
        from torch._C._dynamo.eval_frame import reset_code

        for code in list(self._codes):
            reset_code(code)
        self._codes.clear()


def forget_all() -> None:
    """Let every compiled frame be traced again: for kernels that tracers look into, where none can say who did."""
    convert = sys.modules.get("torch._dynamo.convert_frame")
    if convert is None:  # nothing was compiled yet
        return
    from torch._C._dynamo.eval_frame import reset_code

    for held in list(convert.input_codes.seen):
        code = held()
        if code is not None:
            reset_code(code)


def digest(qualname: str) -> str:
    """What tracers see of an op, as one word; "" for one that nobody has told of."""
    return _digests.get(qualname, "")


def made_by(op: Any, device: str) -> tuple:
    """What a result came from, as far as its gradient must go with it: schema, reference, what saved for backward."""
    definition: Definition = op.definition
    saver = op.slots.get(("forward", device)) if definition.schema.saves else None
    return definition.schema, definition.reference, saver


def refuse_another(op: Any, made: tuple, device: str) -> None:
    """SchemaError where the op is another function now than when it made a result, so that gradients would be of that.

    Another backward alone is no other function: it is taken at once, as by every caller.
    """
    (schema, reference, saver), (schema_now, reference_now, saver_now) = made, made_by(op, device)
    if str(schema) != str(schema_now) or schema.saves != schema_now.saves:
        what = "its schema changed"
    elif reference is not reference_now and _function_digest(reference) != _function_digest(reference_now):
        what = "its cell was run with another text"
    elif saver is not saver_now:
        what = f"another forward was installed, which saves {', '.join(schema.saves)} in its own way"
    else:
        return
    raise SchemaError(
        f"{schema.qualname}: this result was made before {what}, and a gradient would be that of another function. "
        "Call it again"
    )


def judge_digest(definition: Definition) -> str:
    """Of what kernels of an op are held against, reference and `compare`; the same in each process if that can be."""
    parts = [_function_digest(function) for function in (definition.reference, definition.compare)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _digest(definition: Definition) -> str:
    parts = [str(definition.schema)]
    for function in (definition.reference, definition.fake, definition.backward):
        parts.append(_function_digest(function))
    parts.append(repr(definition.traced))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _function_digest(function: Callable | None, depth: int = DEEP) -> str:
    """A function's text, and what it closes over and takes from its globals: numbers, helpers, helpers of helpers."""
    if function is None:
        return "-"
    code = getattr(function, "__code__", None)
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        text = repr((code.co_code, code.co_consts, code.co_names)) if code is not None else repr(function)
    found = [text, repr(getattr(function, "__defaults__", None)), repr(getattr(function, "__kwdefaults__", None))]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            found.append(_value_digest(cell.cell_contents, depth))
        except ValueError:  # an empty cell
            found.append("-")
    known = getattr(function, "__globals__", {})
    found += [f"{n}={_value_digest(known[n], depth)}" for n in sorted(names(code)) if n in known] if code else []
    return "\0".join(found)


def _value_digest(value: object, depth: int) -> str:
    """What prints alike in every process where it can; what does not is another key in each, and never stale."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, torch.Tensor) and value.device.type == "cpu" and type(value) is torch.Tensor:
        said = hashlib.sha256(repr(value.detach().flatten()[:MOST].tolist()).encode()).hexdigest()
        return f"{tuple(value.shape)} {value.dtype} {said}"
    module = getattr(value, "__module__", None) or ""
    if callable(value) and module.partition(".")[0] in {"torch", "math", "builtins", "typing"}:
        return f"{module}.{getattr(value, '__qualname__', '')}"
    if hasattr(value, "qualname") and hasattr(value, "registration"):  # another op, which has a digest of its own
        return str(value.qualname)
    if isinstance(value, types.FunctionType):
        return _function_digest(value, depth - 1) if depth else value.__qualname__
    if isinstance(value, (tuple, list)) and depth:
        return repr([_value_digest(v, depth - 1) for v in value])
    return repr(value)


def names(code: types.CodeType) -> set[str]:
    """The names that a function's code, and that of functions inside it, may look up."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return {*code.co_names, *(n for c in inner for n in names(c))}


def _tagged(current: str, digest: str) -> str:
    """The user's own cache tag, followed by ours."""
    own = current.partition("|workbench:")[0]
    return f"{own}|workbench:{digest}"
