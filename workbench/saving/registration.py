"""The C++ that gives the ops their names: `STABLE_TORCH_LIBRARY` blocks, one file for each shared object. Pure text."""

from __future__ import annotations

from collections.abc import Sequence

from ..build.body_parts import literal
from ..register.pullback import backward_schema
from ..register.registration import forward_schema, native_backward
from .model import SavedOp

KEYS = {"cpu": "CPU", "cuda": "CUDA"}


def schemas(op: SavedOp) -> list[str]:
    """The schema strings, without namespace, of all the names that an op is."""
    spelled = [str(op.schema), forward_schema(op.schema)]
    if op.schema.tensors:
        spelled.append(backward_schema(op.schema))
    spelled += [native_backward(op.schema, n.partial) for n in op.native if n.partial]
    return list(dict.fromkeys(s.partition("::")[2] for s in spelled))


def render(package: str, ops: Sequence[SavedOp], device: str) -> str:
    """The registration of what was compiled for a device; the CPU's file defines the ops, too.

    >>> print(render("rmsnorm_ops", [saved], "cpu"))
    """
    mine = [(op, n) for op in ops for n in op.native if n.device == device]
    stable = [f for _, n in mine for _, f in n.names if not n.full]
    functions = sorted(set(stable))
    declared = [f"namespace {f.partition('::')[0]} {{ void {f.partition('::')[2]}(StableIValue*, uint64_t, uint64_t); }}"
                for f in functions]  # fmt: skip
    what = f"on {'a GPU' if device == 'cuda' else 'the CPU'}"
    blocks = _defined(ops) if device == "cpu" else []
    for namespace in sorted({op.schema.namespace for op, n in mine if not n.full}):
        lines = [f'  m.impl("{name}", &{function});' for op, n in mine if op.schema.namespace == namespace and not n.full
                 for name, function in n.names]  # fmt: skip
        blocks += [f"STABLE_TORCH_LIBRARY_IMPL({namespace}, {KEYS[device]}, m) {{", *lines, "}", ""]
    return "\n".join([
        f"// What {package} registers with torch {what}, through the stable ABI.",
        "#include <torch/csrc/stable/library.h>", "", *declared, *([""] if declared else []), *blocks,
    ])  # fmt: skip


def _defined(ops: Sequence[SavedOp]) -> list[str]:
    lines: list[str] = []
    for namespace in sorted({op.schema.namespace for op in ops if not op.adopted}):
        lines += [f"STABLE_TORCH_LIBRARY_FRAGMENT({namespace}, m) {{"]
        for op in ops:
            if op.schema.namespace == namespace and not op.adopted:
                lines += [f"  m.def({literal(s)});" for s in schemas(op)]
        lines += ["}", ""]
    return lines


def uses_native(ops: Sequence[SavedOp]) -> bool:
    return any(op.native for op in ops)
