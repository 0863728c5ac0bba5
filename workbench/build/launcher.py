"""A declaration as the C++ text of its launcher: tables, and the directives as two functions. Pure text.

What a launcher does with them is in `launcher.h`, `launcher_run.h` and `launcher_cuda.h`. Numbers, tuned values,
texts, line numbers, dtypes and kernels are not in the text: `native.descriptor` carries them, so one launcher serves
every edit that leaves the shape of the declaration as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..directives import Declaration, Kind
from ..errors import SchemaError
from ..schema import Argument, Schema
from . import statements_cpp

MAX_ARGUMENTS = 60  # one bit each says which are None
LABELS = {"cpu": "cpp", "cuda": "cuda"}
TYPES = {"Tensor": "TENSOR", "int": "INT", "SymInt": "INT", "float": "FLOAT", "bool": "BOOL", "ScalarType": "DTYPE",
         "str": "STRING"}  # fmt: skip


def render(
    schema: Schema,
    declaration: Declaration,
    *,
    entry: str = "forward",
    device: str = "cpu",
    gradients: Sequence[str] | None = None,
    key: str = "",
) -> str:
    """The launcher of one slot of an op, to be compiled with this folder on the include path.

    >>> text = render(schema, parse(source, schema, functions=functions(source.text, "cpp")))

    A forward launcher registers `name`, which drops the saved tensors, and `name_forward`, which returns them after
    the outputs; a backward launcher registers `name_backward`, which returns the declared gradients in the order of
    the arguments. `gradients` names other results for it: one `grad_ARG` each, undefined where no directive makes it.
    `device` is "cpu" or "cuda", `key` another dispatch key of torch's to register for than the device's own. Raises
    SchemaError for what raw cells cannot take: lists of tensors, Scalar, results that are no tensors.
    """
    if device not in LABELS:
        raise SchemaError(f"launchers are written for {' and '.join(LABELS)}, not for {device!r}")
    return "\n".join(
        [
            f"// The launcher of {schema.qualname}, {entry}, {device}: checks, allocates and calls the kernels.",
            '#include "launcher.h"',  # alone: what is precompiled must come first
            *(['#include "launcher_cuda.h"'] if device == "cuda" else []),
            "",
            *what_it_does(schema, declaration, entry, device, gradients),
            *call(declaration, device),
            *_exports(schema, entry, device, key or device.upper()),
        ]
    )


def what_it_does(
    schema: Schema, declaration: Declaration, entry: str, device: str, gradients: Sequence[str] | None = None, *,
    layout: str = "", numbers: bool = False,
) -> list[str]:  # fmt: skip
    """The lines of the tables and of the directives' functions, `op` being the last: all that `call` needs.

    `layout` is the op that knows the strides of outputs, where it is not that of a live op; `numbers`: see
    `expression_cpp.Writer`.
    """
    _refuse(schema, declaration, entry)
    outputs, results = _results(schema, declaration, entry, gradients)
    return [
        *_tables(declaration, results),
        *statements_cpp.functions(declaration, device, numbers=numbers),
        *_op(schema, declaration, entry, device, len(outputs), len(results), layout),
    ]


def _refuse(schema: Schema, declaration: Declaration, entry: str) -> None:
    count = len(declaration.arguments)
    if count > MAX_ARGUMENTS:
        raise SchemaError(f"{schema.qualname} has {count} arguments, a raw cell takes {MAX_ARGUMENTS} at most")
    for a in declaration.arguments:
        if a.is_tensor_list:
            raise SchemaError(
                f"{schema.qualname}: {a.name} is a list of tensors, which needs the host tier: "
                "write a function that takes std::vector<Tensor>"
            )
        if a.type.startswith("Scalar") and not a.type.startswith("ScalarType"):
            raise SchemaError(f"{schema.qualname}: {a.name} is a Scalar, which a launcher cannot take: write float")
    other = next((t for t in schema.output_types if t != "Tensor"), None)
    if other:
        raise SchemaError(f"{schema.qualname} returns {other}, a raw cell can only make tensors")
    made = {a.name for a in declaration.allocations}
    wanted = (*schema.outputs, *schema.saves) if entry == "forward" and schema.output_types else ()
    missing = next((n for n in wanted if n not in made), None)
    if missing:
        raise SchemaError(f"{schema.qualname}: no directive makes {missing}: write '{missing} = empty(...)'")


def _results(
    schema: Schema, declaration: Declaration, entry: str, gradients: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """Names of the tensors to return: those of the public name, and those and the saved ones."""
    if entry == "backward":
        returned = tuple(declaration.gradients if gradients is None else gradients)
        return returned, returned
    outputs = schema.outputs if schema.output_types else ()
    return outputs, (*outputs, *schema.saves)


def _tables(declaration: Declaration, results: Sequence[str]) -> list[str]:
    tensors = {n: i for i, n in enumerate(declaration.tensors)}
    values = list(declaration.values)
    bound = [
        (k, tensors[declaration.aliases.get(n, n)])
        for k, n in enumerate(values)
        if declaration.values[n] is Kind.TENSOR
    ]
    arguments = [f'{{"{a.name}", {_type(a)}, {_flags(a, declaration)}}}' for a in declaration.arguments]
    allocations = [f'{{"{a.name}", {"wb::ZEROED" if a.zeroed else "0"}}}' for a in declaration.allocations]
    return [
        *_table("wb::Argument arguments", arguments),
        *_table("wb::Allocation allocations", allocations),
        *_table("char* const values", [f'"{n}"' for n in values]),
        *_table("wb::Bound bound", [f"{{{v}, {t}}}" for v, t in bound]),
        *_table("int16_t results", [str(tensors.get(n, -1)) for n in results]),
        "",
    ]


def _table(name: str, items: Sequence[str]) -> list[str]:
    rows, row = [], ""
    for item in items or ["{}"]:
        if row and len(row) + len(item) > 108:
            rows.append(row)
            row = ""
        row += f"{', ' if row else ''}{item}"
    return [f"static const {name}[] = {{", *(f"    {r}," for r in [*rows, row]), "};"]


def _type(argument: Argument) -> str:
    plain = argument.type.removesuffix("?")
    return f"wb::{TYPES.get(plain, 'LIST' if plain.endswith(']') else 'OTHER')}"


def _flags(argument: Argument, declaration: Declaration) -> str:
    flags = {"wb::OPTIONAL": argument.optional, "wb::MUTATED": argument.mutated and argument.is_tensor,
             "wb::STRIDED": argument.name in declaration.strides_read}  # fmt: skip
    return " | ".join(n for n, on in flags.items() if on) or "0"


def _op(
    schema: Schema, declaration: Declaration, entry: str, device: str, outputs: int, results: int, layout: str
) -> list[str]:
    suffix = "_backward" if entry == "backward" else ""
    tensor_arguments = sum(a.is_tensor for a in declaration.arguments)
    bound = sum(k is Kind.TENSOR for k in declaration.values.values())
    return [
        "static const wb::Op op = {",
        f'    "{schema.qualname} ({LABELS[device]}{" backward" if suffix else ""})",',
        f'    "{layout or f"wb_layout::{schema.namespace}__{schema.name}{suffix}"}",',
        f"    arguments, {len(declaration.arguments)}, {tensor_arguments},",
        f"    allocations, {len(declaration.allocations)},",
        f"    bound, {bound},",
        f"    results, {outputs}, {results},",
        "    values, plan, prepare,",
        "};",
        "",
    ]


def call(declaration: Declaration, device: str, *, static: bool = True, descriptor: str = "") -> list[str]:
    """The function that torch calls, with room on its stack for all that a call holds.

    `descriptor` names the one that it always uses, in a saved package, where others call the function by its name.
    """
    saved = [
        f"  wb::Geometry kernels[{max(1, len(declaration.launches))}] = {{}};",
        "  wb::CudaFrame f{{op, tensors, values, rooms, raw}, geometry, kernels};",
    ]
    cuda = (
        saved
        if descriptor
        else [
            f"  wb::Geometry kernels[{max(1, len(declaration.launches))}];",
            # a parameter binds by its name, so that a kernel has no more of them than there are values
            f"  wb::Value packed[{max(1, len(declaration.launches) * len(declaration.values))}];",
            f"  void* pointers[{max(1, len(declaration.launches) * len(declaration.values))}];",
            "  wb::CudaFrame f{{op, tensors, values, rooms, raw}, geometry, kernels, packed, pointers};",
        ]
    )
    return [
        f"{'static ' * static}void call(StableIValue* stack, uint64_t inputs, uint64_t outputs) {{",
        f"  wb::Tensor tensors[{max(1, len(declaration.tensors))}];",
        f"  wb::Value values[{max(1, len(declaration.values))}];",
        f"  wb::Room rooms[{max(1, len(declaration.allocations))}];",
        f"  StableIValue raw[{max(1, len(declaration.arguments))}] = {{}};",
        *(cuda if device == "cuda" else ["  wb::Frame f{op, tensors, values, rooms, raw};"]),
        *([f"  f.descriptor = &{descriptor};"] if descriptor else []),
        "  wb::run(f, stack, inputs, outputs);",
        "}",
    ]


def suffixes(entry: str) -> tuple[str, ...]:
    """What is behind the op's name in the names that a launcher registers for."""
    return ("_backward",) if entry == "backward" else ("", "_forward")


def _exports(schema: Schema, entry: str, device: str, key: str) -> list[str]:
    names = ", ".join(f'"{schema.name}{suffix}"' for suffix in suffixes(entry))
    return [
        f"static const char* const names[] = {{{names}}};",
        f'WB_LAUNCHER("{schema.namespace}", "{key}", names, call)',
        *(["WB_DRIVER"] if device == "cuda" else []),
        "",
    ]
