"""A module as one exported graph, and how each of our ops in it will run where there is no Python."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import SaveError
from ..reports.deploying import INLINED, NATIVE, TRACED

MOST = 1 << 16  # of a batch whose size is open


class Whole(torch.nn.Module):
    """An op or a function as a module: `torch.export` takes nothing else."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


@dataclass(frozen=True)
class Graph:
    """`program` is what torch.export made; `native` are the ops whose library it needs, `ops` all with how they run."""

    program: torch.export.ExportedProgram
    native: tuple[Any, ...]
    ops: tuple[tuple[str, str], ...]
    device: str


def module_of(given: Any) -> torch.nn.Module:
    """What was given, as a module. SaveError for what cannot be called."""
    if isinstance(given, torch.nn.Module):
        return given
    if not callable(given):
        raise SaveError(f"wb.deploy takes a module, an op or a function of tensors, got {type(given).__name__}")
    return Whole(given)


def inputs_of(given: Any) -> tuple[torch.Tensor, ...]:
    """The example inputs. SaveError for what is no tensor: a number becomes a constant of the exported graph."""
    found = (given,) if isinstance(given, torch.Tensor) else tuple(given) if isinstance(given, (tuple, list)) else ()
    if not found or not all(isinstance(x, torch.Tensor) for x in found):
        said = ", ".join(type(x).__name__ for x in found) or type(given).__name__
        raise SaveError(
            f"example_inputs are tensors, one or a tuple of them, got {said}; give numbers with a function: "
            "wb.deploy(lambda x: op(x, 2.0), x, path)"
        )
    return found


def exported(
    module: torch.nn.Module, inputs: Sequence[torch.Tensor], ops: Mapping[str, Any], *, batch: bool, shapes: Any
) -> Graph:
    """Export `module`, and find how each op in it runs; the references of those without a kernel are traced into it.

    >>> exported(model, (x,), wb.ops, batch=True, shapes=None).ops
    (('lab::rmsnorm', 'its library'),)
    """
    if batch:
        shapes = _batch(inputs)
    if isinstance(module, Whole) and isinstance(shapes, (tuple, list)):
        shapes = (tuple(shapes),)  # they are those of its *args
    try:
        with torch.no_grad(), redirect_stderr(io.StringIO()):  # where it fails torch prints the graph so far
            program = torch.export.export(module, tuple(inputs), dynamic_shapes=shapes)
    except Exception as error:  # of torch.export's and of the module's own many kinds
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise SaveError(f"the model cannot be exported: {said[0]}") from error
    device = _device(program, inputs)
    found = {name: ops[name] for name in dict.fromkeys(_names(program)) if name in ops}
    how = {name: _how(op, device) for name, op in found.items()}
    instead = {op.torch_op: op.reference for name, op in found.items() if how[name] == TRACED}
    if instead:
        with torch.no_grad():
            program = program.run_decompositions(instead)
    native = tuple(op for name, op in found.items() if how[name] == NATIVE)
    return Graph(program, native, tuple(how.items()), device)


def _batch(inputs: Sequence[torch.Tensor]) -> tuple[dict, ...]:
    sizes = {x.shape[0] if x.dim() else None for x in inputs}
    if len(sizes) != 1 or None in sizes or sizes <= {0, 1}:
        said = ", ".join(str(tuple(x.shape)) for x in inputs)
        raise SaveError(
            f"batch=True opens the first dimension, which must be of one size, 2 or more, in all inputs; got {said}. "
            "Say dynamic_shapes=... as torch.export takes it"
        )
    one = torch.export.Dim("batch", min=1, max=MOST)
    return tuple({0: one} for _ in inputs)


def _device(program: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor]) -> str:
    kinds = {t.device.type for t in (*inputs, *program.state_dict.values(), *program.constants.values())
             if isinstance(t, torch.Tensor)}  # fmt: skip
    if len(kinds) > 1:
        raise SaveError(f"the module and its inputs are on {' and '.join(sorted(kinds))}: move them to one device")
    return kinds.pop()


def _names(program: torch.export.ExportedProgram) -> Iterator[str]:
    """The qualified names of all ops that the graph calls, those of its branches and loops too."""
    for graph in (m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)):
        for node in graph.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                yield node.target._schema.name


def _how(op: Any, device: str) -> str:
    version = op.slots.get(("forward", device))
    language = version.language if version is not None else "python"
    if language in ("cpp", "cuda") and not getattr(version.kernel, "unrunnable", ""):
        return NATIVE
    if language == "triton" and device == "cuda" and version.kernel.inlined:
        return INLINED
    if op.reference is None:
        raise SaveError(
            f"{op.qualname} has no kernel for {device} that can be compiled into the model, and no reference: "
            f"write a %%{'cuda' if device == 'cuda' else 'cpp'} cell"
        )
    return TRACED
