"""What each case should give: inputs, the reference's answers, the file they travel to the worker in.

Computed here, in the notebook, where the reference lives, and kept while the reference and the cases stay, so that an
edit pays for the kernel alone.
"""

from __future__ import annotations

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..case import Case
from ..check import agree, raises
from ..check.expect import Expected, call, expected, leaves
from ..check.gradients import expected_gradients
from ..errors import SchemaError, WorkbenchError
from ..inputs import fresh, moved
from ..measure.rough import Kept
from ..register import pullback
from ..tiers import Kernel
from ..trial import Parcel
from ..trial.protocol import Pickled

MOST = 256  # each holds a memory file open, of which a process may often have no more than 1,024
_kept: OrderedDict[tuple[int, tuple], weakref.ref] = OrderedDict()  # of all ops, the one used last at the end


@dataclass(frozen=True)
class Evidence:
    """What one case should give, and the inputs on their way to the worker."""

    case: Case
    wanted: Expected
    parcel: Parcel
    values: Mapping[str, object]  # the native op's arguments, by name
    digest: str = ""  # of the inputs and of what they should give


def evidences(op, kernel: Kernel, cases: Sequence[Case]) -> list[Evidence]:
    """What each case should give `kernel`, and after these what no caller may forget.

    A backward with several incoming gradients gets the first case once more without each of them: callers seldom
    use all outputs, and the gradient of one that they do not use is null.
    """
    found = [answered(op, c, kernel.slot, kernel) for c in cases]
    if kernel.slot == "backward" and found and len(found[0].wanted.cotangents) > 1:
        found += [evidence(op, cases[0], "backward", kernel, without=n) for n in found[0].wanted.cotangents]
    return found


def answered(op, case: Case, slot: str, kernel: object = None) -> Evidence:
    """What a case of the op's own should give. SchemaError where the reference raises on it."""
    try:
        return evidence(op, case, slot, kernel)
    except WorkbenchError:
        raise
    except Exception as error:  # of the user's own code: any
        said = f"the reference of {op.name} raises on its case {case.label}: {raises.told(op.reference, error)}"
        raise SchemaError(f"{said}. {raises.CURE}") from error


def evidence(op, case: Case, slot: str, kernel: object = None, *, without: str = "", spread: bool = False) -> Evidence:
    """What a case should give `kernel`; computed once for a case and a reference."""
    # Without a reference the installed version is the oracle, so another one is another question.
    key = (case, slot, without, spread, None if op.reference is not None else _judge_of(op, kernel))
    if key not in op.evidence:
        if slot == "forward":
            found = _forward_evidence(op, case, kernel)
        else:
            found = _backward_evidence(op, case, without, spread)
        op.evidence[key] = replace(found, digest=_digest(found))
    found = op.evidence[key]
    _keep(op, key)
    return found


def _keep(op, key: tuple) -> None:
    """Let the evidence go that was not used for longest; it is made again when it is wanted."""
    mine = id(op), key
    _kept[mine] = weakref.ref(op)
    _kept.move_to_end(mine)
    while len(_kept) > MOST:
        (_, former), kept_by = _kept.popitem(last=False)
        if (other := kept_by()) is not None:
            other.evidence.pop(former, None)


def forget(op, cases: Sequence[Case] | None = None) -> None:
    """Let the evidence on these cases go, without `cases` all of it. Nothing holds on to the tensors of a case then."""
    which = None if cases is None else set(map(id, cases))
    for key in [k for k in op.evidence if which is None or id(k[0]) in which]:
        del op.evidence[key]
        _kept.pop((id(op), key), None)


def learn_layout(op, kernel: Kernel, cases: Sequence[Case]) -> None:
    """Does the reference give contiguous inputs other strides than contiguous ones? Then every call must ask."""
    if kernel.slot == "backward" or op.reference is None:
        return
    for case in cases:
        found = evidence(op, case, "forward")
        if not all(t.is_contiguous() for t in tensors_of(found.values).values()):
            continue  # of such inputs a launcher asks in any case
        if any(o.strides is not None and not o.value.is_contiguous() for o in found.wanted.outputs):
            kernel.layout = True


def _forward_evidence(op, case: Case, kernel: object) -> Evidence:
    wanted = oracle(op, case, kernel)
    values = wanted.inputs()
    return Evidence(case, wanted, Parcel.of(tensors_of(values)), values)


def oracle(op, case: Case, kernel: object = None) -> Expected:
    """The reference's answer; without a reference, that of the kernel which was installed before `kernel`."""
    if op.reference is not None:
        return expected(op.reference, op.schema, case, op.compare_function)
    if getattr(kernel, "defines_itself", False):
        why = "its cell alone says what it does: there is no reference"
        return replace(expected(None, op.schema, case), skipped=why)
    judge = _judge_of(op, kernel)
    if judge is None:
        return replace(expected(None, op.schema, case), skipped="the first version of an op without a reference")
    inputs = moved(fresh(case.bound(op.schema)), judge[0])
    with torch.no_grad():
        args, kwargs = op.definition.split(list(inputs.values()))
        results = leaves(op.schema, inputs, op.torch_op(*args, **kwargs))
    return agree.expected_of_version(op.schema, case, moved(results, "cpu"))


def _judge_of(op, kernel: object) -> tuple[str, int] | None:
    """(device, number) of the installed version that stands for a reference; of the CPU's if there is one."""
    for (slot, device), version in sorted(op.slots.items()):
        runs = not getattr(version.kernel, "unrunnable", "")
        if slot == "forward" and version.kernel is not kernel and runs and device in ("cpu", "cuda"):
            return device, version.number
    return None


def _backward_evidence(op, case: Case, without: str, spread: bool) -> Evidence:
    wanted = expected_gradients(op.reference, op.schema, case, without=without, spread=spread)
    if without:
        case = replace(case, name=f"{case.name}, grad_{without} undefined")
        wanted = replace(wanted, case=case)
    values = wanted.inputs()
    outputs = {}
    with torch.no_grad():
        if op.reference is not None:
            copies = fresh(values)
            outputs = leaves(op.schema, copies, call(op.definition, copies))
    incoming = {f"grad_{n}": wanted.cotangents.get(n) for n, _ in pullback.tensor_results(op.schema)}
    outputs = {n: t for n, t in outputs.items() if n not in op.schema.mutated}
    everything = {**incoming, **values, **outputs}
    return Evidence(case, wanted, Parcel.of(tensors_of(everything)), everything)


def _digest(found: Evidence) -> str:
    """The bytes of the inputs and of both answers; what `compare` makes of them stands for it."""
    digest = hashlib.sha256(repr((found.case.name, found.case.error, found.case.atol, found.case.rtol)).encode())
    wanted = found.wanted
    for name, value in found.values.items():
        if not tensors_of({name: value}):
            sent = Pickled.of(value) if Pickled.can(value) else value
            digest.update(repr((name, sent)).encode())
    tensors = list(tensors_of(found.values).items())
    for o in (*wanted.outputs, *(wanted.compared or ())):
        tensors += [(o.name, o.value), (f"{o.name} true", o.true)]
    for name, t in tensors:
        digest.update(repr((name, t.dtype, t.shape, t.stride())).encode())
        digest.update(t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    return digest.hexdigest()


def tensors_of(values: Mapping[str, object]) -> dict[str, torch.Tensor]:
    found = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, (list, tuple)):
            found.update({f"{name}[{i}]": t for i, t in enumerate(value) if isinstance(t, torch.Tensor)})
    return found


def given(e: Evidence | Kept, name: str) -> object:
    """An argument of a step: a tensor of the parcel, a list of these, or the value itself."""
    value = e.values.get(name)
    if isinstance(value, torch.Tensor):
        return e.parcel[name]
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        return [e.parcel[f"{name}[{i}]"] if isinstance(v, torch.Tensor) else v for i, v in enumerate(value)]
    return value
