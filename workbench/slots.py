"""What runs in each slot of an op: putting versions in, taking them out, and dtypes that arrive later.

A kernel whose launcher runs already is swapped by one atomic store; between two launchers the reference runs for an
instant, never nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from .case import Case
from .errors import SchemaError, TrialError, WorkbenchError
from .judge import examine, verdict
from .judge.evidence import evidences, learn_layout
from .reference import flat
from .register import pullback
from .schema import Schema
from .tiers import Kernel
from .version import Version


def put(op, version: Version) -> None:
    """Let a version run in its slot. A kernel whose launcher runs already is swapped in by one atomic store."""
    _place(op, version)
    _lend(op, version, put)


def _place(op, version: Version) -> None:
    key = (version.slot, version.device)
    former = op.runs(*key)
    kernel = version.kernel
    if former.number and not (isinstance(kernel, Kernel) and kernel.shares_launcher(former.kernel)):
        take_out(op, former.kernel)
    op.fill(key, version)
    if isinstance(kernel, Kernel):
        learn_layout(op, kernel, op.case_list())
        hand_over(op, version)
    else:
        kernel.install(op)
    settle(op)


def _lend(op, version: Version, place: Callable) -> None:
    """Where this machine cannot run a kernel its stand-in runs on tensors of the CPU, unless compiled code does."""
    kernel = version.kernel
    other = kernel.stand_in if isinstance(kernel, Kernel) else None
    installed = op.runs(version.slot, "cpu")
    if other is not None and (not installed.number or getattr(installed.kernel, "interpreted", False)):
        place(op, replace(version, device="cpu", tier="interpreted", kernel=other))


def hand_over(op, version: Version) -> None:
    kernel = version.kernel
    if kernel.left_out and not kernel.unrunnable:
        op.registration.name_partial(kernel.native_schema.name, kernel.device)
    kernel.registration = op.registration
    kernel.install(lambda dtypes: _arrived(op, version, dtypes))


def take_out(op, kernel: Any) -> None:
    kernel.remove()
    if kernel.left_out:
        op.registration.clear_kernel(f"{op.name}_backward", kernel.device)


def settle(op) -> None:
    """Make what compiled callers traced follow from the slots: saved fakes, backwards that need a forward's saves."""
    definition, schema = op.definition, op.schema
    forwards = {d: v.kernel for (s, d), v in op.slots.items() if s == "forward" and isinstance(v.kernel, Kernel)}
    savers = {d: k for d, k in forwards.items() if schema.saves and set(schema.saves) <= set(k.makes[0])}
    makers = {d: k for d, k in forwards.items() if k.makes[0]} if _has_no_fake(op) else {}
    definition.saved_fake = partial(_saved, schema, savers) if savers else None
    if makers:
        definition.derived_fake = lambda *a, **k: _outputs_of(schema, _fakes(schema, makers, a, k))
    for (slot, device), version in list(op.slots.items()):
        backward = version.kernel
        if slot != "backward" or not isinstance(backward, Kernel) or not backward.uses_saved:
            continue
        if device in forwards:
            hand_over(op, version)
        else:
            take_out(op, backward)  # nothing was saved: the reference's vjp runs until a forward kernel is back
    # What a compiled caller took from the kernels; an edit of the body alone changes none of it.
    traced: dict = {d: k.makes for d, k in sorted({**savers, **makers}.items())}
    filled = [(key, v.kernel) for key, v in sorted(op.slots.items()) if isinstance(v.kernel, Kernel)]
    traced |= {key: k.inlined for key, k in filled if k.inlined}
    if (traced or None) != definition.traced:
        definition.traced = traced or None
        op.changed()


def _has_no_fake(op) -> bool:
    return op.reference is None and op.definition.fake is None


def _saved(schema: Schema, savers: Mapping[str, Kernel], args: tuple, kwargs: dict) -> list[torch.Tensor]:
    """The fakes of the saved tensors; placeholders on a device where the reference runs, which saves nothing."""
    device = _device(args, kwargs)
    if device not in savers:
        return [pullback.absent(device) for _ in schema.saves]
    made = savers[device].fakes(schema.bind(args, kwargs))
    return [made[n] for n in schema.saves]


def _fakes(schema: Schema, makers: Mapping[str, Kernel], args: tuple, kwargs: dict) -> Mapping[str, torch.Tensor]:
    """What the kernel on the arguments' device makes, or any other: an op without a reference has one fake."""
    kernel = makers.get(_device(args, kwargs)) or next(iter(makers.values()))
    return kernel.fakes(schema.bind(args, kwargs))


def _device(args: tuple, kwargs: dict) -> str:
    return next((t.device.type for t in flat([*args, *kwargs.values()])), "cpu")


def _outputs_of(schema: Schema, made: Mapping[str, torch.Tensor]):
    found = [made[n] for n in schema.outputs]
    return found[0] if len(found) == 1 else tuple(found) or None


def _arrived(op, version: Version, dtypes: dict) -> str | None:
    """Dtypes that the kernel was not built for yet arrive at a call: build, try, and only then go on.

    A version that was installed untried, or by force, is held to no more than that.
    """
    kernel: Kernel = version.kernel
    untried, forced = not version.tried.outcomes, not version.tried.ok
    try:
        cases = [] if untried else [_in_dtypes(op, c, dtypes) for c in _one_dtype(op.case_list())]
        if kernel.shaped:
            for e in evidences(op, kernel, cases):
                examine.dtypes_for(op, kernel, e)
        (no_form,) = kernel.build([dtypes])
        if no_form is not None:
            raise no_form
        trial = examine.examine(op, kernel, cases)
        refusal = verdict.refusal(trial)
        if refusal and (verdict.faults(trial) or not forced):
            kernel.forget(dtypes)
            return f"the kernel was tried for {_shown(dtypes)} and {refusal}"
        kernel.refresh()
    except SchemaError as error:
        return f"{error.message}; built so far: {kernel.forms_text()}{_autocast(kernel.device)}"
    except WorkbenchError as error:
        return f"no form for {_shown(dtypes)}: {error}{_autocast(kernel.device)}"
    return None


def _autocast(device: str) -> str:
    if not torch.is_autocast_enabled(device):
        return ""
    lower = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return f"; under autocast other ops hand on {lower}: cast what comes in, or give the kernel a form for it"


def _one_dtype(cases: Sequence[Case]) -> list[Case]:
    """Each case once, whatever dtypes it is there for."""
    return list({c.name: c for c in reversed(cases)}.values())[::-1]


def _in_dtypes(op, case: Case, dtypes: dict) -> Case:
    """The case with its tensors in the dtypes that arrived: integers for floats, too."""
    schema = op.schema
    arrived = {n: d for n, d in dtypes.items() if d is not None and schema.argument(n)}
    cast = case.cast({n: d for n, d in arrived.items() if d.is_floating_point})

    def recipe() -> tuple[tuple, dict]:
        bound: dict[str, Any] = cast.bound(schema)
        for n, d in arrived.items():
            if isinstance(bound[n], torch.Tensor) and bound[n].dtype != d:
                bound[n] = (bound[n] * 8 if bound[n].is_floating_point() else bound[n]).to(d)
        args, keywords = op.definition.split(list(bound.values()))
        return tuple(args), keywords

    singles = [(cast.bound(schema)[n], d) for n, d in arrived.items()]
    same = all(not isinstance(t, torch.Tensor) or t.dtype == d for t, d in singles)
    return cast if same else replace(cast, recipe=recipe, dtype=None)


def _shown(dtypes: dict) -> str:
    return ", ".join(f"{n} {str(d).removeprefix('torch.')}" for n, d in dtypes.items() if d is not None)


def put_when_called(op, version: Version) -> None:
    """An op without cases: the first call shows what to try the kernel on."""
    if version.kernel.unrunnable:  # no call comes to it
        _place(op, version)
        _lend(op, version, put_when_called)
        return
    key = (version.slot, version.device)
    former = op.runs(*key)
    if former.number:
        take_out(op, former.kernel)
    op.fill(key, replace(version, kernel=Waiting(op, version)))
    op.slots[key].kernel.install(op)


class Waiting:
    """Stands in a slot until the first call; then the kernel is tried on a case like that call, and installed."""

    tier = "raw"
    left_out = ()

    def __init__(self, op, version: Version) -> None:
        self.op, self.version = op, version
        self.interpreted = version.kernel.interpreted

    def install(self, op) -> None:
        suffix = {"forward": ("", "_forward"), "backward": ("_backward",)}[self.version.slot]
        for s in suffix:
            op.registration.set_kernel(op.name + s, self.version.device, self._first_call(s))

    def remove(self) -> None:
        for s in ("", "_forward", "_backward"):
            self.op.registration.clear_kernel(self.op.name + s, self.version.device)

    def _first_call(self, suffix: str) -> Callable:
        def call(*args, **kwargs):
            op, version = self.op, self.version
            kernel: Kernel = version.kernel
            op.learn_case(args, kwargs)
            self.remove()
            op.vacate((version.slot, version.device))
            trial = examine.judge(op, kernel, op.case_list())
            refusal = verdict.refusal(trial)
            if refusal:
                op.update(replace(version, trial=trial, refused=refusal))
                raise TrialError(f"v{version.number} of {op.qualname} was tried at its first call and {refusal}",
                                 kind=verdict.kind(trial), report=trial)  # fmt: skip
            put(op, op.update(replace(version, trial=trial)))
            return getattr(getattr(torch.ops, op.schema.namespace), op.name + suffix)(*args, **kwargs)

        return call


def restore(op, number: int) -> object:
    """Put a version back into its slot; 0: the reference into all of them."""
    if not 0 <= number < len(op.versions):
        raise SchemaError(f"{op.name} has no version {number}; the last one is {len(op.versions) - 1}")
    version = op.versions[number]
    if version.refused:
        why = f"it {version.refused}. Run its cell again to try it again"
        raise SchemaError(f"v{number} of {op.name} is not installed: {why}")
    if number:
        _still_right(op, version)
        put(op, op.versions[number])
        return op
    if op.registration.foreign:
        why = "which leaves no reference to go back to; restore another version"
        raise SchemaError(f"{op.name} is defined by its cell, {why}")
    for key in list(op.slots):
        empty(op, key)
    return op


def _still_right(op, version: Version) -> None:
    """Reference and cases may be others than when the version was tried; one that was forced in may come back."""
    kernel = version.kernel
    _same_schema(op, version)
    if not isinstance(kernel, Kernel) or not version.tried.ok:
        return
    trial = examine.judge(op, kernel, op.case_list() if version.tried.outcomes else ())
    refused = verdict.refusal(trial)
    if refused:
        said = f"v{version.number} of {op.name} is not installed: it {refused}"
        error = TrialError(said, kind=verdict.kind(trial), report=trial)
        error.still = f"{op.name} {version.slot} still runs {op.still(version.slot, version.device)}"
        raise error
    op.update(replace(version, trial=trial))


def _same_schema(op, version: Version) -> None:
    schema = getattr(version.kernel, "schema", op.schema)
    if (str(schema), schema.saves) != (str(op.schema), op.schema.saves):
        raise SchemaError(f"v{version.number} of {op.name} was made for another schema, {schema}; run its cell again")


def empty(op, key: tuple[str, str]) -> None:
    """The reference runs in this slot again."""
    take_out(op, op.runs(*key).kernel)
    op.vacate(key)
    settle(op)
    op.changed()


def call_version(op, version: Version, args: tuple, kwargs: dict) -> object:
    """Run a version: through the op if it is installed, else in the worker."""
    installed = op.slots.get((version.slot, version.device))
    if not version.number:
        return op.definition.run(args, kwargs)
    _same_schema(op, version)
    if installed is not None and installed.number == version.number and version.slot == "forward":
        return op(*args, **kwargs)
    return examine.call_in_worker(op, version, args, kwargs)
