"""Cells and sources that say by themselves what they define: built, loaded in the worker, installed, their ops adopted.

`run` is to these what `install.cell` is to a slot. What was there before stays until the new build has loaded, passed
the cases of its ops and been taken by torch.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from .. import blocks, edit_times, schema
from .. import source as sources_
from ..build import extension, includes, reload
from ..define import ops
from ..errors import BuildError, SchemaError, TrialError, WorkbenchError
from ..judge import examine, pulled, verdict
from ..op import Op
from ..register.adopted import GRADIENTS
from ..reports.report import Line, Trial
from ..source import Source
from ..tiers.block import BlockCudaKernel, BlockKernel
from ..trial import Job, Step, worker
from ..trial.probe import TOLD, Probe
from ..version import Version
from . import extensions, neighbours, plan, switch
from .extensions import Defined, Extension, Made
from .plan import Wanted

LIMIT_S = 20.0  # for loading, in the worker
BESIDE = "is built beside one that was refused"
_probes: dict[Probe, dict] = {}


def run(wanted: Wanted, *, force: bool = False, cases: Sequence[str] | None = None) -> tuple[Extension, Line]:
    """Build, try and install an extension; what it defines is in `wb.ops` afterwards.

    >>> run(Wanted((Source("TORCH_LIBRARY(lab, m) { m.def(...); }", "cpp"),)))

    The line may say that it was refused; then everything is as it was. Raises SchemaError, BuildError and TrialError,
    on the user's lines, for what never came to be a build that loads.
    """
    started = time.perf_counter()
    planned, after = plan.planned(wanted)  # what is wrong with the text comes before what is missing here
    plan.refuse_without_cuda(wanted)
    headers = extension.headers_of(wanted.sources, **wanted.build_options)
    mine = extensions.former(wanted.name, planned)
    extensions.refuse_taken(planned, mine, ())
    made = replace(_probed(replace(planned, build=plan.built(wanted, planned, after)), mine), headers=headers)
    mine = extensions.former(wanted.name, made)
    again = mine.made is not None
    changed = verdict.rebuilt(includes.changed(mine.made.headers, headers), made.build.cached) if mine.made else ()
    extensions.refuse_taken(made, mine, switch.foreign(made, mine))
    neighbours.judge(made, mine, force=force)
    known = _known(made, mine)
    kernels = {d.name: _kernel(made, mine, d) for d in made.ops}
    trials = {d.name: _judge(known.get(d.name), kernels[d.name], d, cases) for d in made.ops}
    refused = {n: verdict.refusal(t) for n, t in trials.items() if verdict.refusal(t)}
    if refused and force and not any(verdict.faults(t) for t in trials.values()):
        for n, why in refused.items():
            trials[n] = replace(trials[n], notes=(*trials[n].notes, f"installed by --force although {n} {why}"))
        refused = {}
    title = sources_.title(wanted.sources[0])
    seconds = time.perf_counter() - started

    def version(op: Op, name: str) -> Version:
        return op.record(
            Version(op.next_number(), "forward", made.device, made.language, "full", wanted.sources[0], title,
                    trials[name], seconds, refused.get(name, "") or (BESIDE if refused else ""), kernels[name])
        )  # fmt: skip

    if refused:
        versions = [(op, version(op, n)) for n, op in known.items() if n in kernels]
        return mine, _line(made, mine, versions, time.perf_counter() - started, changed)
    told = (*changed, *switch.install(mine, made))
    versions = []
    for d in made.ops:
        op = mine.ops[d.name]
        versions.append((op, version(op, d.name)))
        op.fill(("forward", made.device), versions[-1][1])
    seconds = time.perf_counter() - started
    if again and not made.build.cached:
        edit_times.remember("full", seconds)
    return mine, _line(made, mine, versions, seconds, (*wanted.notes, *told))


# ---------------------------------------------------------------- load in the worker


def _probed(planned: Made, mine: Extension) -> Made:
    """What the build defines, as the worker found after loading it. TrialError when that ended badly."""
    others = extensions.beside(planned.spaces, mine)
    text, plain = planned.text, planned.plain
    first = planned.sources[0]
    told = _told(Probe(planned.build.path, others, planned.module), planned.name, first.file)
    # The object came from an earlier cell with the same text, maybe: then its name of the file is that cell's.
    files = {source.file for source in planned.sources}
    compiled = tuple(reload.Block(**b) for b in told["blocks"])
    compiled = tuple(b if b.file in files else replace(b, file=first.file) for b in compiled)
    for b in compiled:
        blocks.refuse_reserved(b.namespace, b.line, b.file)
    if "error" in told:
        line, file = _better_line(told, text)
        raise BuildError(told["error"], line=line, file=file if file in files else first.file)
    names = tuple(sorted((_defined(d, text, compiled, first) for d in told["ops"]), key=lambda d: (d.line, d.name)))
    ops_made = {d.qualname.partition("::")[2] for d in names}
    plain = {
        f: plain.get(f) or (f"it is a {kind}" if kind != "function" else "its def names no function of the text")
        for f, kind in told["functions"].items()
        if f not in ops_made
    }
    classes = tuple(reload.Class(**c) for c in told["classes"])
    return replace(planned, blocks=compiled, names=names, plain=plain, classes=classes)


def _told(probe: Probe, name: str, file: str) -> dict:
    """What the worker says of a build. It is asked once for each: going back to an earlier text is instant."""
    if probe not in _probes:
        answer = worker().run(Job((Step(TOLD, (torch.zeros(1),), case="loading"),), (probe,)), LIMIT_S)
        result = answer.results[0]
        if not result.ok:
            what = f"did not end within {LIMIT_S:g} s" if result.status == "hang" else result.detail
            what = what.removeprefix("while its library was loaded: ").removeprefix("BuildError: ")
            if result.status == "error":
                raise BuildError(what, file=file)
            kind = result.status if result.status in ("crash", "hang") else "crash"
            raise TrialError(f"loading {name}: {what}", kind=kind, case="loading")
        _probes[probe] = json.loads(result.outputs[0])
    return _probes[probe]


def _defined(told: dict, text: blocks.Text, compiled: Sequence[reload.Block], first: Source) -> Defined:
    name = told["name"] + (f".{told['overload']}" if told["overload"] else "")
    block = next((b for b in compiled if b.namespace == told["name"].partition("::")[0]), None)
    line = text.lines.get(told["name"]) or (block.line if block else 0)
    file = block.file if block else first.file
    found, reason = None, ""
    try:
        if told["overload"]:
            raise SchemaError("it is an overload")
        # torch numbers what a C++ type has no name for, results with the numbers of arguments.
        results = re.sub(r"(?<=\w) _\d+\b", "", told["schema"].rpartition("->")[2])
        found = schema.parse(told["schema"].rpartition("->")[0] + "->" + results)
    except WorkbenchError as error:
        reason = error.message.removeprefix(f"{name}: ")
    return Defined(name, told["schema"], tuple(told["keys"]), line, file, found, reason)


def _better_line(told: dict, text: blocks.Text) -> tuple[int, str]:
    """The line of the op that torch's message names, else that of its block."""
    named = [line for n, line in text.lines.items() if n in told["error"]]
    return (named[0] if len(named) == 1 else told["line"]), told["file"]


# ---------------------------------------------------------------- judge


def _known(made: Made, mine: Extension) -> dict[str, Op]:
    """The ops of these names that there are, their cases and references fit for the new build."""
    found = {}
    for d in made.ops:
        op = ops.get(d.name)
        if op is None:
            continue
        if op is not mine.ops.get(d.name) and not switch.same(op.schema, d.op_schema):
            raise SchemaError(
                f"{d.name} is an op with the schema {op.schema}, and the block defines {d.spelled}: write one for "
                "both, or choose another name", line=d.line, file=d.file,
            )  # fmt: skip
        if switch.same(op.schema, d.op_schema):
            found[d.name] = op
    return found


def _kernel(made: Made, mine: Extension, d: Defined) -> BlockKernel:
    own = pulled.gradient(d.op_schema) if GRADIENTS & set(d.keys) else None
    kernel = BlockCudaKernel if made.device == "cuda" else BlockKernel
    others = partial(extensions.beside, made.spaces, mine)
    back = partial(switch.restore, mine, made)
    return kernel(made.sources, made.options, d.op_schema, made.build, others, own, back)


def _judge(op: Op | None, kernel: BlockKernel, d: Defined, names: Sequence[str] | None) -> Trial:
    mine = ("CPU", "CUDA") if kernel.device == "cuda" else ("CPU",)
    if op is None or (not set(mine) & set(d.keys) and not any(k.startswith(("Composite", "Autograd")) for k in d.keys)):
        return Trial(())
    chosen = [c for c in op.case_list() if names is None or c.name in names]
    return examine.examine(op, kernel, chosen)


# ---------------------------------------------------------------- say


def _line(
    made: Made, mine: Extension, versions: Sequence[tuple[Op, Version]], seconds: float, told: tuple[str, ...]
) -> Line:
    """One line for the whole extension: the ops' names, their outcomes together."""
    lines = [verdict.line(op, v, _before(op, v), seconds) for op, v in versions]
    refused = next((line for line in lines if line.refused and not line.refused.startswith("is built")), None)
    first = refused or (lines[0] if lines else _bare(made, seconds))
    several = len(lines) > 1
    name = ", ".join(line.op for line in lines) or made.name
    outcomes = [(line.op, o) for line in lines for o in line.rows]
    trial = Trial(
        tuple(replace(o, case=f"{n} {o.case}") if several else o for n, o in outcomes),
        sum(line.trial.seconds for line in lines if line.trial),
        "".join(line.trial.printed for line in lines if line.trial),
    )
    notes = [*told, *_plain_notes(made), *dict.fromkeys(n for line in lines for n in line.notes)]
    why = f"{first.op}: {first.refused}" if several and refused else first.refused
    return replace(
        first, op=name, trial=trial, notes=tuple(notes), seconds=seconds, refused=why, installed=refused is None
    )


def _before(op: Op, version: Version) -> Version:
    """What the op ran before; of an op that is new, number 0."""
    return next(v for v in reversed(op.versions[: version.number]) if not v.refused)


def _bare(made: Made, seconds: float) -> Line:
    """The line of an extension that defines no op of its own: kernels for others, plain functions."""
    return Line(made.name, "forward", "cpp", 1, True, seconds, tier="full", cached=made.build.cached, trial=Trial(()))


def _plain_notes(made: Made) -> list[str]:
    notes = [f"{d.name} is in torch.ops alone: {d.reason}" for d in made.names if d.schema is None]
    return [*notes, *(f"{made.module}.{n} is no op: {why}" for n, why in made.plain.items())]


__all__ = ["Wanted", "run"]
