"""What an extension defines, found out in the child: a crash while it loads costs nothing there."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..errors import BuildError

TOLD = "wb_probe::told"
KEYS = ("CPU", "CUDA", "Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd",
        "CompositeExplicitAutogradNonFunctional", "Autograd", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView",
        "FuncTorchBatched", "AutocastCPU", "AutocastCUDA")  # fmt: skip


@dataclass(frozen=True)
class Gradient:
    """The op `wb_probe::SCHEMA` gives the gradients of `op`: for those of its outputs, its arguments, its outputs."""

    op: str
    schema: str
    outputs: int


def gradient_name(qualname: str) -> str:
    return qualname.replace("::", "__") + "_gradient"


@dataclass(frozen=True)
class Blocks:
    """Extensions whose blocks register what the steps call, in this order."""

    paths: tuple[str, ...]
    gradients: tuple[Gradient, ...] = ()

    def load(self, allocate: Callable[[int], int]) -> object:
        from ..build.reload import Reloadable

        made = [Reloadable(p) for p in self.paths]
        for m in made:
            m.register()
        library = torch.library.Library("wb_probe", "FRAGMENT")
        for g in self.gradients:
            library.define(g.schema)
            # Implicit: below autograd, where other kernels are, the op under trial would have none.
            library.impl(g.schema.partition("(")[0], _gradients(g), "CompositeImplicitAutograd")
        return made, library


def _gradients(g: Gradient) -> Callable:
    namespace, _, name = g.op.partition("::")
    op = getattr(getattr(torch.ops, namespace), name).default
    declared = op._schema.arguments

    def call(*values: object) -> object:
        incoming, given = values[: g.outputs], values[g.outputs : g.outputs + len(declared)]
        moving = [_moving(v) for v in given]
        named = list(zip(declared, moving, strict=True))
        with torch.enable_grad():
            out = op(*(v for a, v in named if not a.kwarg_only), **{a.name: v for a, v in named if a.kwarg_only})
            outputs = out if isinstance(out, tuple) else (out,)
            pairs = [(o, i) for o, i in zip(outputs, incoming, strict=True) if i is not None and o.requires_grad]
            leaves = [v for v in moving if isinstance(v, torch.Tensor) and v.requires_grad]
            results, cotangents = [o for o, _ in pairs], [i for _, i in pairs]
            found = torch.autograd.grad(results, leaves, cotangents, allow_unused=True) if pairs else ()
        known = {id(v): t for v, t in zip(leaves, found, strict=False)}
        made = [known.get(id(v)) for a, v in named if "Tensor" in str(a.type)]
        made = [torch.empty(0, dtype=torch.uint8) if t is None else t for t in made]
        return made[0] if len(made) == 1 else tuple(made)

    return call


def _moving(value: object) -> object:
    if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
        return value.detach().requires_grad_()
    return value


@dataclass(frozen=True)
class Probe:
    """Loads an extension behind `others` and tells, as the op `wb_probe::told(Tensor _) -> str`, what it is: JSON.

    `blocks` (kind, namespace, key, line, file), `classes` (name, methods), `ops` (name, overload, schema, keys),
    `functions` of its Python module `module`, and `error` with `line` where torch refused a block.
    """

    path: str
    others: tuple[str, ...] = ()
    module: str = ""

    def load(self, allocate: Callable[[int], int]) -> object:
        from ..build.reload import Reloadable

        others = Blocks(self.others).load(allocate)
        made = Reloadable(self.path)
        blocks = made.blocks()
        spaces = tuple({f"{b.namespace}::" for b in blocks if b.namespace != "_"})
        before = {n: d["schema"] for n, d in defined(spaces).items()}
        told: dict = {"blocks": [vars(b) for b in blocks], "ops": [], "functions": {}, "classes": []}
        try:
            made.register()
            told["classes"] = [vars(c) for c in made.classes()]
            told["ops"] = [d for n, d in defined(spaces).items() if n not in before]
            if self.module:
                told["functions"] = public(load_module(self.module, self.path))
        except BuildError as error:
            told |= {"error": error.message, "line": error.line, "file": error.file}
        except ImportError as error:
            told |= {"error": f"its Python module does not load: {error}", "line": 0, "file": ""}
        library = torch.library.Library("wb_probe", "FRAGMENT")
        library.define("told(Tensor _) -> str")  # the worker takes no step without a tensor
        library.impl("told", lambda _: json.dumps(told), "CompositeExplicitAutograd")
        return others, made, library


def defined(spaces: Sequence[str]) -> dict[str, dict]:
    """The ops that torch has in these namespaces ("lab::"), by name with overload: schema and who serves it."""
    found: dict[str, dict] = {}
    for full in torch._C._dispatch_get_all_op_names():
        if full.startswith(tuple(spaces)):
            name, _, overload = full.partition(".")
            try:
                schema = torch._C._get_schema(name, overload)
            except RuntimeError:  # kernels without a definition
                continue
            found[full] = {"name": name, "overload": overload, "schema": spelled(schema), "keys": keys_of(full)}
    return found


def spelled(schema: torch._C.FunctionSchema) -> str:
    """A schema as torch's parser takes it; torch itself prints `int[] stride=[1, 1]` as `int[] stride=1`."""
    text = str(schema)
    for a in schema.arguments:
        if a.has_default_value() and isinstance(a.default_value, list):
            text = _with_default(text, a.name, str(a.default_value))
    return text


def _with_default(schema: str, argument: str, default: str) -> str:
    return re.sub(rf"(\] {argument}=)[^\[,)]+", lambda m: m[1] + default, schema)


def keys_of(full: str) -> list[str]:
    """The dispatch keys that somebody registered a kernel for."""
    return [k for k in KEYS if torch._C._dispatch_has_kernel_for_dispatch_key(full, k)]


def load_module(name: str, path: str) -> object:
    """The Python module in a shared object, anew for each path.

    pybind11 keeps modules by their full names and would hand out the first build for ever; the part before the dot is
    ours, and the symbol that Python looks for is named after the part behind it.
    """
    build = hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"build_{build}.{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public(module: object) -> dict[str, str]:
    """What a module offers: name -> "class", "function" or "value"."""

    def kind(value: object) -> str:
        return "class" if isinstance(value, type) else "function" if callable(value) else "value"

    return {n: kind(v) for n, v in vars(module).items() if not n.startswith("_")}
