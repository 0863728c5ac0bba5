"""A configuration measured in another process or on another machine: what goes there, and what is done there.

There an op of a name of its own gets the cell, with the inputs and answers that came along as its evidence, and is
tuned as here, with nothing looked up or kept.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from .case import Case
from .check.expect import Expected, Output
from .inputs import tensors_in
from .judge.evidence import Evidence
from .schema import Schema
from .source import Source
from .trial import Parcel
from .tune.elsewhere import Shipment
from .tune.space import Candidate

_one_at_a_time = threading.Lock()  # of an executor of threads: two on one machine would time each other


@dataclass(frozen=True)
class What:
    """All that another process needs: the cell, the inputs and what they should give, and which configurations."""

    source: Source
    schema: Schema
    slot: str
    device: str
    layout: bool
    values: Mapping[str, object]
    wanted: Expected
    case: Case
    configs: tuple[tuple[str, Mapping[str, Any]], ...]  # (kernel, configuration)
    forward: Source | None = None  # of a backward that takes what its forward saves
    function: str = ""


def _held(values: tuple) -> tuple:
    return values


def shipment(tried: Any, some: Sequence[Candidate]) -> Shipment:
    """What measures these candidates of a version on a case, wherever it is called."""
    kernel, e, schema = tried.kernel, tried.evidence, tried.op.schema
    given = {a.name: e.values[a.name] for a in schema.arguments}
    made = tuple(given[a.name] for a in schema.positional), {a.name: given[a.name] for a in schema.keyword_only}
    case = replace(e.case, recipe=partial(_held, made))
    answers = tuple(replace(o, true=_lighter(o), own=None) for o in e.wanted.outputs)
    wanted = replace(e.wanted, case=case, outputs=answers)
    forward = tried.op.runs("forward", tried.version.device).source if kernel.uses_saved else None
    configs = tuple((c.kernel, dict(c.config)) for c in some)
    function = kernel.plan.function if kernel.tier == "triton" else ""
    return Shipment(measure, What(kernel.source, schema, kernel.slot, tried.version.device, kernel.layout,
                                  dict(e.values), wanted, case, configs, forward, function))  # fmt: skip


def _lighter(o: Output) -> torch.Tensor:
    """The float64 answer in half the bytes, where the dtype that is judged has a small part of float32's digits."""
    short = o.value.dtype in (torch.float16, torch.bfloat16)
    return o.true.float() if short and o.true.dtype == torch.float64 else o.true


def measure(what: What) -> list[dict[str, Any]]:
    """Build, try and time these configurations here: the fields of a row for each, in their order."""
    import socket

    from .judge.configured import Tried
    from .reports.tuning import Tuning
    from .tune.run import run
    from .tune.task import Task

    with _one_at_a_time, torch.no_grad():
        op, version = _op(what)
        version.kernel.layout = what.layout
        e = Evidence(what.case, what.wanted, Parcel.of(_named(what.values)), what.values)
        tried = Tried(op, version, what.case, e)
        space = tried.space([c for _, c in what.configs] if what.source.language == "triton" else ())
        asked = [Candidate(config, kernel) for kernel, config in what.configs]
        space.candidates = [next((c for c in space.candidates if c == a), a) for a in asked]  # type: ignore[misc]
        task = Task(what.case.label, space, Nowhere(), partial(tried.check, space), tried.call, tried.clock,
                    version.kernel.unrunnable)  # fmt: skip
        report = Tuning(op.qualname, version.slot, version.device, version.number, version.language, (task.label,), ())
        found = run(report, [task])
    rows = {Candidate(r.config, r.kernel): r for r in found.rows}
    kept = ("status", "time_us", "reason", "registers", "shared", "spills")
    return [{**{k: getattr(rows[a], k) for k in kept}, "place": socket.gethostname()} for a in asked]


class Nowhere:
    """A shelf that keeps nothing."""

    def read(self) -> tuple[dict[str, dict[str, Any]], str]:
        return {}, ""

    def add(self, rows: Mapping[str, Mapping[str, Any]], about: str = "") -> str:
        return ""


def _op(what: What) -> tuple[Any, Any]:
    """An op with that cell in its slot, under a name that nobody else has; the same for the same cell."""
    from . import define, install
    from .reference import Definition

    told = (what.source.text, str(what.schema), what.slot, what.forward.text if what.forward else "")
    space = f"wb_tune_{hashlib.sha256(repr(told).encode()).hexdigest()[:12]}"
    schema = replace(what.schema, namespace=space)
    op = define.ops.get(schema.qualname)
    if op is None:
        op = define.define(Definition(schema))
    for text, slot in ((what.forward, "forward"), (what.source, what.slot)):
        if text is not None and op.runs(slot, what.device).number == 0:
            install.cell(op, text, slot, cases=[], function=what.function if slot == what.slot else "")
    return op, op.runs(what.slot, what.device)


def _named(values: Mapping[str, object]) -> dict[str, torch.Tensor]:
    found = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        else:
            found |= {f"{name}[{i}]": t for i, t in enumerate(tensors_in(value))}
    return found


__all__ = ["What", "measure", "shipment"]
