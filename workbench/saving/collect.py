"""What an op holds, as the parts of a package. Reads the op; writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..check.agree import is_random
from ..errors import SaveError
from ..reports.measurement import headline
from ..tiers import FullKernel, HostKernel, Kernel, RawCudaKernel, RawKernel
from ..tiers.block import BlockKernel
from ..tiers.triton import TritonKernel
from . import carry, cases, classes, doubts, fakes, names, raw
from .model import Native, SavedOp, Script
from .origin import PYTHON, Origin

ROLES = ("reference", "fake", "backward", "vmap", "compare")


def saved(op: Any, together: Sequence[str]) -> SavedOp:
    """An op as a package has it; `together` are the qualified names of all ops that are saved with it.

    SaveError, naming the cell, for a part that cannot be saved.
    """
    schema, definition = op.schema, op.definition
    parts = _slots(op)
    native = tuple(_native(op, v) for v in parts if isinstance(v.kernel, RawKernel | HostKernel | BlockKernel))
    scripts = [_script(op, v) for v in parts if isinstance(v.kernel, TritonKernel)]
    wanted = _functions(definition)
    plain = [v for v in parts if getattr(v.kernel, "function", None) is not None and not isinstance(v.kernel, Kernel)]
    kernels = {f"kernel_{v.device}": v.kernel.function for v in plain}
    carried = carry.carry(dict((*wanted.values(), *kernels.items())), schema.qualname)
    others = _others(carried, schema, together)
    scripts += [
        Script(
            "forward",
            v.device,
            "python",
            {},
            {},
            f"_python_kernel(SCHEMA, _functions.kernel_{v.device})",
            number=v.number,
        )
        for v in plain
    ]
    kept = cases.keep(op.case_list(bench=True), schema)
    text = _module_text(schema.qualname, carried, others)
    return SavedOp(
        schema, op.doc, text, {role: name for role, (name, _) in wanted.items()}, _origins(carried, schema.name),
        native, tuple(scripts), _fakes(op, parts, definition), _is_random(op), kept, _figures(op, parts),
        also=tuple(others.values()), classes=classes.of(schema), doubts=doubts.of(op),
    )  # fmt: skip


def _is_random(op: Any) -> bool:
    """Does its reference draw from torch's generator? It was seen to, or it does so on a case: it may never have been called."""
    case = next((c for c in op.case_list() if not c.bench), None)
    if op.definition.is_random or op.reference is None or case is None:
        return op.definition.is_random
    try:
        return is_random(op.reference, op.schema, case)
    except Exception:  # it is the user's own, and may need a GPU
        return False


def _slots(op: Any) -> list[Any]:
    """The versions that run, each once: a Triton kernel's stand-in on the CPU is the same cell."""
    found = []
    for (slot, device), v in sorted(op.slots.items()):
        kernel = v.kernel
        if type(kernel).__name__ == "Waiting":
            raise SaveError(
                f"{op.qualname}: v{v.number} ({slot}, {device}) waits for a first call to be tried on; call the op, or say "
                f"cases with @{op.name}.cases"
            )
        if isinstance(kernel, TritonKernel) and device == "cpu" and (slot, "cuda") in op.slots:
            continue
        if (
            isinstance(kernel, Kernel)
            and slot == "backward"
            and kernel.uses_saved
            and ("forward", device) not in op.slots
        ):
            continue  # it does not run: nothing was saved for it
        if not isinstance(kernel, Kernel) and getattr(kernel, "function", None) is None:
            raise SaveError(
                f"{op.qualname}: v{v.number} ({slot}, {device}) is a {type(kernel).__name__}, which has no text to save"
            )
        found.append(v)
    return found


def _native(op: Any, v: Any) -> Native:
    kernel = v.kernel
    if isinstance(kernel, RawCudaKernel):
        from . import raw_cuda

        return raw_cuda.native(kernel, kernel.forms, v.number)
    if isinstance(kernel, RawKernel):
        return raw.native(kernel, kernel.forms, v.number)
    if isinstance(kernel, FullKernel):
        from . import full

        return full.native(kernel, v.number)
    if isinstance(kernel, BlockKernel):
        from . import full

        return full.block(kernel, v.device, v.number)
    from . import host

    return host.native(kernel, v.number)


def _script(op: Any, v: Any) -> Script:
    from . import triton

    return triton.script(v.kernel, v.number)


def _functions(definition: Any) -> dict[str, tuple[str, Callable]]:
    """role -> (name in the module, function); the reference keeps its own name."""
    found: dict[str, tuple[str, Callable]] = {}
    for role in ROLES:
        function = getattr(definition, role)
        if function is not None:
            own = getattr(function, "__name__", role)
            found[role] = (own if role == "reference" and own.isidentifier() and own not in ROLES else role, function)
    return found


def _others(carried: carry.Carried, schema: Any, together: Sequence[str]) -> dict[str, str]:
    """Other ops that the functions call: name used -> short name of an op that is saved along."""
    found = {}
    for name, other in carried.ops.items():
        qualname = getattr(other, "qualname", "")
        if qualname not in together:
            raise SaveError(
                f"{schema.qualname} calls {qualname}, which is not saved with it: save both, wb.save([..., {name}], ...)"
            )
        found[name] = qualname.partition("::")[2]
    return found


def _module_text(qualname: str, carried: carry.Carried, others: Mapping[str, str]) -> str:
    imports = [names.imported(short, name) for name, short in others.items()]
    docs = f'"""{qualname} in plain PyTorch: its reference, and what else of it is Python, as it was typed."""'
    return "\n\n".join(
        [docs, "from __future__ import annotations", *(["\n".join(imports)] if imports else []), carried.render()]
    )


def _origins(carried: carry.Carried, name: str) -> dict[str, Origin]:
    return {f"{PYTHON}{names.module(name)}_functions.py: {n}": o for n, o in carried.origins.items()}


def _fakes(op: Any, parts: Sequence[Any], definition: Any) -> dict[str, str]:
    """The fakes of what forwards save, by device; "outputs" for an op without a reference."""
    found: dict[str, str] = {}
    schema = op.schema
    for v in parts:
        kernel = v.kernel
        if v.slot != "forward" or not isinstance(kernel, Kernel):
            continue
        if schema.saves and set(schema.saves) <= set(kernel.makes[0]):
            if isinstance(kernel, TritonKernel):
                found[v.device] = f"_saved_{v.device} = _triton_fakes({_plan(kernel)})"
            else:
                found[v.device] = fakes.render(f"_saved_{v.device}", schema, kernel.declaration, schema.saves)
        if op.reference is None and definition.fake is None and "outputs" not in found and kernel.makes[0]:
            if isinstance(kernel, TritonKernel):
                raise SaveError(f"{op.qualname} has neither a reference nor a fake: give it one with @{op.name}.fake")
            body = fakes.render("_made", schema, kernel.declaration, schema.outputs, checks=True)
            listed = ", ".join(schema.outputs)
            found["outputs"] = body.replace(f"return [{listed}]", f"return {listed}")
    return found


def _plan(kernel: TritonKernel) -> str:
    from . import triton

    return triton.plan_text(kernel)


def _figures(op: Any, parts: Sequence[Any]) -> tuple[tuple[str, str], ...]:
    """What the last bench measured of the versions that run; the rough times of an install are others in each process."""
    rows = []
    for v in parts:
        found = headline(getattr(op, "last_bench", None), v.slot, v.device)
        where = f"{op.name} {v.slot} {v.device}"
        if found is not None:
            time_us, share, ceiling, case = found
            rows.append((f"{where}, {case}", _time(time_us) + (f", {share:.0%} of the {ceiling}" if share else "")))
    return tuple(rows)


def _time(us: float) -> str:
    """`41.2 us`, `3.79 ms`."""
    value, unit = (us, "us") if us < 1e3 else (us / 1e3, "ms") if us < 1e6 else (us / 1e6, "s")
    return f"{value:.3g} {unit}"
