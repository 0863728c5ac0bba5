"""The Python of a package: a module for each op, one for its functions, and `runtime`, which all stand on. Pure text."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence

from .. import entry
from ..errors import SaveError
from ..schema import Argument, Schema
from . import classes, imports, names, runtime
from .fakes import SIZES
from .model import SavedOp
from .signatures import default, signature


def modules(name: str, ops: Sequence[SavedOp], *, defined: bool, namespace: str = "") -> dict[str, str]:
    """The files below `src/NAME/`, by path there; `defined`: the compiled library gives the ops their names.

    `namespace` is the expression for the ops' namespace, where that is not known before the build.
    """
    found = {f"_runtime/{n}.py": text for n, text in runtime.modules(ops).items()}
    held = classes.render(n for op in ops for n in op.classes)
    found |= {classes.MODULE: held} if held else {}
    for op in ops:
        found[f"{names.module(op.name)}_functions.py"] = op.python
        found[f"{names.module(op.name)}.py"] = op_module(op, defined=defined, namespace=namespace)
    found = {path: imports.ordered(text, (name,)) for path, text in found.items()}
    for op in ops:  # the user's own text, left as it is
        for path, text in (item for script in op.scripts for item in script.files.items()):
            if found.setdefault(path, text) != text or path.removesuffix(".py") in names.MODULES:
                raise SaveError(f"{op.schema.qualname}: {path[1:]} beside its cell would be {path} in the package, which is another "
                                "module there: rename it")  # fmt: skip
    return found


def op_module(op: SavedOp, *, defined: bool, namespace: str = "") -> str:
    """The module of one op: its schema, what fills its slots, and the function that users call."""
    schema = op.schema
    functions = ", ".join(f'"{role}": _functions.{name}' for role, name in op.functions.items())
    native = ", ".join(f'("{n.slot}", "{n.device}")' for n in op.native)
    partial = ", ".join(f'"{n.device}": "{n.partial}"' for n in op.native if n.partial)
    saved = ", ".join(f'"{d}": _saved_{d}' for d in op.fakes if d != "outputs")
    if any(s.language == "triton" for s in op.scripts) and "cuda" in op.fakes and "cpu" not in op.fakes:
        saved += ', **({"cpu": _saved_cuda} if _interpreted() else {})'
    cuda = any(n.device == "cuda" for n in op.native)
    given = [
        f"    functions={{{functions}}},",
        *([f"    saved={{{saved}}},"] if saved else []),
        *(["    made=_made,"] if "outputs" in op.fakes else []),
        *(["    kernels=_KERNELS,"] if op.scripts else []),
        *([f"    native=[{native}],"] if native else []),
        *([f"    partial={{{partial}}},"] if partial else []),
        *(["    is_random=True,"] if op.random else []),
        *(["    defined=True,"] if defined else []),
        *(["    unbuilt=_missing_cuda(),"] if cuda else []),
    ]
    if op.adopted:
        given = given[:1] + (["    is_random=True,"] if op.random else [])
    fakes = [f"{text}\n\n" for text in op.fakes.values()]
    body = "\n".join([
        *_schema(schema, namespace), "", "", *fakes, *_kernels(op), f"OP = {'Adopted' if op.adopted else 'Op'}(", "    SCHEMA,", *given, ")",
        "__public = OP.public_op" if _always_public(op) else "__public, __kernel = OP.public_op, OP.forward_op._op", "", "",
        *_function(op), "",
    ])  # fmt: skip
    used = {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name)}
    needed = [line for line in _imports(op, cuda=cuda) if line.split()[-1] in used]
    head = [f'"""{schema.qualname}: {first_line(op)}"""', "", "from __future__ import annotations", "", *needed, ""]
    return "\n".join([*head, body])


def _always_public(op: SavedOp) -> bool:
    """Does every call take the public name: where version counters are bumped, or a library has kernels of its own?"""
    return bool(op.schema.mutated) or op.adopted


def _imports(op: SavedOp, *, cuda: bool) -> list[str]:
    """One name a line, those that may be needed; `imports.ordered` puts them together."""
    lines = [f"from builtins import {n} as __{n}" for n in ("all", "any", "type")]
    lines += [
        "import torch",
        "from torch import Tensor",
        f"from . import {names.module(op.name)}_functions as _functions",
    ]
    lines += ["from ._check import missing_cuda as _missing_cuda"] if cuda else []
    lines += [f"from ._runtime import sizes as {SIZES}"] if op.fakes else []
    if any(s.language == "triton" for s in op.scripts):
        lines += ["from ._runtime.call import Plan as _Plan", "from ._runtime.triton_kernel import interpreted as _interpreted",
                  "from ._runtime.triton_kernel import kernel as _triton"]  # fmt: skip
        if op.schema.saves:
            lines += ["from ._runtime.triton_kernel import fakes as _triton_fakes"]
    # No argument and no op begins with two underscores, so that what a function looks up is ours.
    entries = ("compiling", "dual", "function_modes", "grad_enabled", "modes", "plain", "transform")
    lines += [f"from ._runtime.entry import {n} as __{n}" for n in entries] if not _always_public(op) else []
    if any(s.language == "python" for s in op.scripts):
        lines += ["from ._runtime.register import python_kernel as _python_kernel"]
    lines += [
        f"from ._runtime.register import {'Adopted' if op.adopted else 'Op'}",
        "from ._runtime.schema import Argument",
        "from ._runtime.schema import Schema",
    ]
    return lines


def _schema(schema: Schema, namespace: str = "") -> list[str]:
    def argument(a: Argument) -> str:
        more = "" if a.required else f", {default(a, schema)}"
        more += ", keyword_only=True" * a.keyword_only + ", mutated=True" * a.mutated
        return f'        Argument("{a.name}", "{a.type}"{more}),'

    return [
        "SCHEMA = Schema(", f"    {namespace or repr(schema.namespace)},".replace("'", '"'), f'    "{schema.name}",', "    (",
        *map(argument, schema.arguments), "    ),", f"    {_names(schema.outputs)},", f"    {_names(schema.output_types)},",
        f"    saves={_names(schema.saves)},", f"    outputs_named={schema.outputs_named},", ")",
    ]  # fmt: skip


def _names(given: Sequence[str]) -> str:
    return "(" + ", ".join(f'"{n}"' for n in given) + ("," if len(given) == 1 else "") + ")"


def _kernels(op: SavedOp) -> list[str]:
    if not op.scripts:
        return []
    lines = ["_KERNELS = {}"]
    for s in op.scripts:
        lines += [*s.needs, f'_KERNELS["{s.slot}", "{s.device}"] = {s.call}']
        if s.language == "triton" and not any(o.slot == s.slot and o.device == "cpu" for o in op.kernels):
            lines += ["if _interpreted():", f'    _KERNELS["{s.slot}", "cpu"] = _KERNELS["{s.slot}", "{s.device}"]']
    return [*lines, ""]


def _function(op: SavedOp) -> list[str]:
    """The public function: straight to the kernel when no gradient is wanted and nobody listens."""
    schema = op.schema
    given = entry.arguments(schema)
    doc = textwrap.indent(_doc(op), "    ").strip()
    head = [
        f"def {names.function(schema.name)}{signature(schema)}:",
        f'    """{doc}"""' if "\n" not in doc else f'    """{doc}\n    """',
    ]
    if _always_public(op):
        return [*head, f"    return __public({given})", *_called(schema.name)]
    short = f"__kernel({given})"
    if schema.saves:
        kept = len(schema.outputs)
        short += "[0]" if kept == 1 else f"[:{kept}]"
    plain, wants = entry.all_plain(schema), entry.wants_gradient(schema)
    return [
        *head,
        "    if __compiling():",
        f"        return __public({given})",
        "    if (",
        f"        {plain}",
        f"        and {entry.QUIET}",
        f"        and not (__grad_enabled() and ({wants}))",
        "    ):",
        f"        return {short}",
        f"    return __public({given})",
        *_called(schema.name),
    ]


def _called(name: str) -> list[str]:
    """An op whose name is taken in its module is called by it all the same."""
    found = names.function(name)
    return ["", "", f'{found}.__name__ = {found}.__qualname__ = "{name}"'] if found != name else []


def first_line(op: SavedOp) -> str:
    line = (op.doc or f"an op of {op.schema.namespace}").strip().splitlines()[0]
    return line.replace('"""', "'''").replace("\\", "\\\\")


def _doc(op: SavedOp) -> str:
    said = (op.doc.strip() or f"{op.schema.qualname}.").replace('"""', "'''").replace("\\", "\\\\")
    return f"{said}\n\nSchema: `{op.schema}`."


def check(files: Mapping[str, str]) -> None:
    """Every Python file is Python: an assertion on our own texts, and on what was carried."""
    for path, text in files.items():
        if path.endswith(".py"):
            ast.parse(text, path)
