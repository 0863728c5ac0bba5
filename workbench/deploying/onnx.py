"""The exported graph for ONNX: each of our ops is a node of a domain of its own, which a runtime is told how to run.

torch.onnx translates the rest. What an op's node means is then tried with ONNX's own way to extend its reference
evaluator, `onnx.reference.op_run.OpRun`: the op itself stands in, and the results are held against eager.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import SaveError
from ..reports.deploying import Ran
from .ran import compared

NOT_IN_NUMPY = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
NEEDED = "ONNX needs onnx and onnxscript, which are not here: pip install onnx onnxscript"


def write(program: torch.export.ExportedProgram, ops: Sequence[Any], path: Path) -> None:
    """Translate a graph, check it with ONNX's checker, and write it. SaveError for what ONNX has no form for."""
    onnx = _onnx()
    table = {op.torch_op: _translation(op) for op in ops}
    try:
        made = torch.onnx.export(program, dynamo=True, custom_translation_table=table, verbose=False)
        onnx.checker.check_model(made.model_proto)
    except Exception as error:  # of torch.onnx's and of the checker's own many kinds
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise SaveError(f"the model has no form in ONNX: {said[0]}") from error
    onnx.save(made.model_proto, str(path))


def ran(path: Path, ops: Sequence[Any], inputs: Sequence[Tensor], wanted: Sequence[Tensor]) -> Ran:
    """The file run by ONNX's reference evaluator, our ops' nodes by the ops themselves."""
    from onnx.reference import ReferenceEvaluator

    if any(x.dtype in NOT_IN_NUMPY for x in (*inputs, *wanted)):
        return Ran("ONNX", "example", skipped="checked; numpy, in which ONNX's evaluator counts, lacks a dtype of it")
    try:
        evaluator = ReferenceEvaluator(str(path), new_ops=[_evaluation(op, inputs[0].device) for op in ops])
        named = {name: x.detach().cpu().numpy() for name, x in zip(evaluator.input_names, inputs, strict=True)}
        found = [torch.from_numpy(x) for x in evaluator.run(None, named)]
    except Exception as error:  # of numpy's and of the evaluator's
        return Ran("ONNX", "example", problem=f"{type(error).__name__}: {_first(error)}")
    return compared(Ran("ONNX", "example"), found, [x.cpu() for x in wanted])


def _first(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def domains(ops: Sequence[Any]) -> list[str]:
    """Those of the ops' nodes: their namespaces."""
    return sorted({op.schema.namespace for op in ops})


def _translation(op: Any) -> Any:
    """A function of onnxscript that stands for the op: tensors are inputs of its node, numbers attributes."""
    import onnxscript

    schema = op.schema
    unfit = [a.name for a in schema.arguments if a.type not in ("Tensor", "float", "int", "SymInt", "bool", "str")]
    if unfit or schema.mutated:
        why = f"{', '.join(unfit)} is neither a tensor nor a number" if unfit else "it changes its arguments"
        raise SaveError(f"{op.qualname} has no form in ONNX: {why}")
    made = onnxscript.values.Op(onnxscript.values.Opset(schema.namespace, 1), schema.name, _declared(schema))

    def node(*args: Any, **keywords: Any) -> Any:
        bound = dict(zip((a.name for a in schema.arguments), args, strict=False)) | keywords
        tensors = [bound[a.name] for a in schema.arguments if a.type == "Tensor"]
        numbers = {
            a.name: _attribute(bound[a.name]) for a in schema.arguments if a.type != "Tensor" and a.name in bound
        }
        return made(*tensors, **numbers)

    parameters = [
        inspect.Parameter(
            a.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=a.default, annotation=_ANNOTATIONS.get(a.type, Any)
        )
        for a in schema.arguments
    ]
    node.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    node.__name__ = schema.name
    return node


def _declared(schema: Any) -> Any:
    """The op as ONNX declares one: tensors of any kind are its inputs, numbers its attributes."""
    from onnx.defs import OpSchema

    kinds = {"float": OpSchema.AttrType.FLOAT, "str": OpSchema.AttrType.STRING}
    tensors = sorted(OpSchema.all_tensor_types()) if hasattr(OpSchema, "all_tensor_types") else ["tensor(float)"]
    each = {a.name: f"T_{a.name}" for a in schema.tensors} | {o: f"T_{o}" for o in schema.outputs}
    return OpSchema(
        schema.name, schema.namespace, 1,
        inputs=[OpSchema.FormalParameter(a.name, each[a.name]) for a in schema.tensors],
        outputs=[OpSchema.FormalParameter(o, each[o]) for o in schema.outputs],
        type_constraints=[(t, tensors, "") for t in each.values()],
        attributes=[
            OpSchema.Attribute(a.name, kinds.get(a.type, OpSchema.AttrType.INT), "", required=False)
            for a in schema.arguments if a.type != "Tensor"
        ],
    )  # fmt: skip


_ANNOTATIONS: Mapping[str, Any] = {"float": float, "int": int, "SymInt": int, "bool": bool, "str": str}


def _attribute(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _evaluation(op: Any, device: torch.device) -> type:
    """The op as a class that the reference evaluator takes; it runs where the model does."""
    from onnx.reference.op_run import OpRun

    schema = op.schema

    def _run(self: Any, *arrays: Any, **attributes: Any) -> tuple:
        tensors = iter(torch.from_numpy(x.copy()).to(device) for x in arrays)
        kinds = {"bool": bool, "str": str}
        bound = {
            a.name: next(tensors) if a.type == "Tensor" else kinds.get(a.type, lambda v: v)(attributes[a.name])
            for a in schema.arguments
            if a.type == "Tensor" or attributes.get(a.name) is not None
        }
        with torch.no_grad():
            found = op.torch_op(**bound)
        return tuple(x.cpu().numpy() for x in (found if isinstance(found, (tuple, list)) else (found,)))

    return type(schema.name, (OpRun,), {"op_domain": schema.namespace, "_run": _run})


def _onnx() -> Any:
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        raise SaveError(NEEDED) from None
    return onnx
