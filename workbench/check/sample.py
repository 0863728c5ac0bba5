"""What the rows of a check share: the op as they see it, the case that the dearer ones run on, rows from failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from ..case import Case
from ..inputs import FLOATS, fresh, tensors_in
from ..reports.report import Row
from ..schema import Schema
from .cures import cure


class Checkable(Protocol):
    """What a check asks of an op; it is called like a function."""

    @property
    def schema(self) -> Schema: ...
    @property
    def qualname(self) -> str: ...
    @property
    def torch_op(self) -> torch._ops.OpOverload: ...
    @property
    def reference(self) -> Callable | None: ...
    @property
    def compare_function(self) -> Callable | None: ...
    @property
    def differentiable(self) -> bool: ...
    @property
    def random(self) -> bool: ...
    def case_list(self) -> tuple[Case, ...]: ...
    def __call__(self, *args: object, **kwargs: object) -> object: ...


@dataclass(frozen=True)
class Sample:
    """An op with the case that the dearer checks run on, the smallest; `level` is "quick" or "full"."""

    op: Checkable
    case: Case
    device: str
    level: str

    @property
    def label(self) -> str:
        return self.case.label

    def inputs(self, *, grad: bool = False) -> tuple[tuple, dict]:
        """Fresh arguments; with `grad`, floats that are not constant require gradients."""
        schema = self.op.schema
        named = fresh(self.case.bound(schema), device=self.device)
        for name, value in named.items():
            for x in tensors_in(value):
                if grad and x.is_floating_point() and name not in self.case.constant:
                    x.requires_grad_()
        return tuple(named[a.name] for a in schema.positional), {a.name: named[a.name] for a in schema.keyword_only}

    @property
    def takes_gradients(self) -> bool:
        return self.op.differentiable and any(x.requires_grad for x in tensors_in(self.inputs(grad=True)))


def call(op: Checkable, named: dict[str, object]) -> object:
    """Call an op as a user would, with arguments by name in the schema's order."""
    args = [named[a.name] for a in op.schema.positional]
    return op(*args, **{a.name: named[a.name] for a in op.schema.keyword_only})


def guarded(name: str, label: str, look: Callable[[], Row]) -> Row:
    """A row even where looking raises: the exception is the finding."""
    try:
        return look()
    except Exception as error:
        return failed(name, label, error)


def failed(name: str, label: str, failure: object, on: str = "") -> Row:
    """A failed row, with the cure that belongs to its words."""
    said = f"{type(failure).__name__}: {first_line(failure)}" if isinstance(failure, Exception) else str(failure)
    return Row(name, label, "fail", f"{said} (on {on})" if on else said, cure(name, str(failure)))


def first_line(failure: object) -> str:
    """What an exception says first; most of torch's go on for a page.

    >>> first_line(error)               # of dynamo, which tells the cause further down
    "RuntimeError when making fake tensor call: AttributeError: 'SymInt' object has no attribute 'bit_length'"
    """
    lines = str(failure).strip().splitlines()
    if not lines:
        return ""
    cause = re.search(r"""^  Explanation: .*: got (\w+)\((["'])(.*)\2,?\)$""", str(failure), re.MULTILINE)
    first = lines[0].rstrip(",: ")
    return f"{first}: {cause[1]}: {cause[3]}" if cause else first


def size(case: Case) -> tuple[bool, int, int]:
    """To find the smallest case that shows anything: with an empty tensor last, among equals the widest dtype first."""
    tensors = tensors_in(case.recipe())
    count = sum(x.numel() for x in tensors)
    return (
        any(not x.numel() for x in tensors),
        count,
        -max((x.element_size() for x in tensors if x.dtype in FLOATS), default=0),
    )
