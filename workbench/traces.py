"""Who compiled against an op, and how to make them do so again.

torch's on-disk cache keys neither the fake nor the backward of an op, so a digest of every op goes into its key; and
frames that Dynamo traced through an op's fake are reset when anything that they took from it changes.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import weakref
from collections.abc import Callable

import torch

from .reference import Definition

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


def _digest(definition: Definition) -> str:
    parts = [str(definition.schema)]
    for function in (definition.reference, definition.fake, definition.backward):
        parts.append(_function_digest(function))
    parts.append(repr(definition.traced))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _function_digest(function: Callable | None) -> str:
    """A function's text, and the plain values that it closes over."""
    if function is None:
        return "-"
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        text = repr((code.co_code, code.co_consts, code.co_names)) if code is not None else repr(function)
    cells = getattr(function, "__closure__", None) or ()
    closed = []
    for cell in cells:
        try:
            closed.append(repr(cell.cell_contents)[:200])
        except ValueError:  # an empty cell
            closed.append("-")
    return text + repr(closed) + repr(getattr(function, "__defaults__", None))


def _tagged(current: str, digest: str) -> str:
    """The user's own cache tag, followed by ours."""
    own = current.partition("|workbench:")[0]
    return f"{own}|workbench:{digest}"
