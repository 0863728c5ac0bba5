"""Versions of before: back into their slots, or run beside what is installed."""

from __future__ import annotations

from dataclasses import replace

from . import slots
from .errors import SchemaError, TrialError
from .judge import examine, one_call, verdict
from .tiers import Kernel
from .version import Version, asked


def restore(op, wanted: int | Version) -> object:
    """Put a version back into its slot; 0: the reference into all of them."""
    number = asked(op, wanted).number
    version = op.versions[number]
    if version.refused:
        why = f"it {version.refused}. Run its cell again to try it again"
        raise SchemaError(f"v{number} of {op.name} is not installed: {why}")
    if number:
        _still_right(op, version)
        slots.put(op, op.versions[number])
        return op
    if op.registration.foreign:
        why = "which leaves no reference to go back to; restore another version"
        raise SchemaError(f"{op.name} is defined by its cell, {why}")
    for key in list(op.slots):
        slots.empty(op, key)
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


def fits(op, version: Version) -> bool:
    """Was this version made for the schema that the op has now?"""
    schema = getattr(version.kernel, "schema", op.schema)
    return (str(schema), schema.saves) == (str(op.schema), op.schema.saves)


def _same_schema(op, version: Version) -> None:
    if not fits(op, version):
        schema = version.kernel.schema
        raise SchemaError(f"v{version.number} of {op.name} was made for another schema, {schema}; run its cell again")


def call_version(op, version: Version, args: tuple, kwargs: dict) -> object:
    """Run a version: through the op if it is installed, else in the worker."""
    installed = op.slots.get((version.slot, version.device))
    if not version.number:
        return op.definition.run(args, kwargs)
    _same_schema(op, version)
    if installed is not None and installed.number == version.number and version.slot == "forward":
        return op(*args, **kwargs)
    return one_call.call_in_worker(op, version, args, kwargs)
