"""What an extension defines, found out in the child: a crash while it loads costs nothing there."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ..errors import BuildError

TOLD = "wb_probe::told"
KEYS = ("CPU", "CUDA", "Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd",
        "CompositeExplicitAutogradNonFunctional", "Autograd", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView",
        "FuncTorchBatched")  # fmt: skip


@dataclass(frozen=True)
class Blocks:
    """Extensions whose blocks register what the steps call, in this order."""

    paths: tuple[str, ...]

    def load(self, allocate: Callable[[int], int]) -> object:
        from ..build.reload import Reloadable

        made = [Reloadable(p) for p in self.paths]
        for m in made:
            m.register()
        return made


@dataclass(frozen=True)
class Probe:
    """Loads an extension behind `others` and tells, as the op `wb_probe::told() -> str`, what it is: JSON.

    `blocks` (kind, namespace, key, line, file), `ops` (name, overload, schema, keys), `functions` of its Python module
    `module`, and `error` with `line` where torch refused a block.
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
        told: dict = {"blocks": [vars(b) for b in blocks], "ops": [], "functions": {}}
        try:
            made.register()
            told["ops"] = [d for n, d in defined(spaces).items() if n not in before]
            if self.module:
                told["functions"] = public(load_module(self.module, self.path))
        except BuildError as error:
            told |= {"error": error.message, "line": error.line, "file": error.file}
        except ImportError as error:
            told |= {"error": f"its Python module does not load: {error}", "line": 0, "file": ""}
        library = torch.library.Library("wb_probe", "FRAGMENT")
        library.define("told() -> str")
        library.impl("told", lambda: json.dumps(told), "CompositeExplicitAutograd")
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
            found[full] = {"name": name, "overload": overload, "schema": str(schema), "keys": keys_of(full)}
    return found


def keys_of(full: str) -> list[str]:
    """The dispatch keys that somebody registered a kernel for."""
    return [k for k in KEYS if torch._C._dispatch_has_kernel_for_dispatch_key(full, k)]


def load_module(name: str, path: str) -> object:
    """The Python module in a shared object, anew for each path."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public(module: object) -> dict[str, str]:
    """What a module offers: name -> first line of its documentation."""
    return {n: (v.__doc__ or "").strip().partition("\n")[0] for n, v in vars(module).items() if not n.startswith("_")}
