"""A Triton cell as a package has it: a Python module with its text, called through the same plan. Pure text."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from typing import Any

from ..build import triton_beside
from ..build.triton_call import Plan
from ..errors import SaveError
from ..schema import NO_DEFAULT, Argument
from ..source import Source
from .carry import literal
from .model import Script
from .modules import installed
from .names import module
from .origin import PYTHON, Origin

GIVEN = {"torch": "import torch", "triton": "import triton", "tl": "import triton.language as tl"}


def script(kernel: Any, number: int = 0) -> Script:
    """The module of a Triton kernel, and the expression that makes the op's kernel of it."""
    name = module_name(kernel)
    files = {f"{name}.py": text(kernel.source, kernel.schema.qualname)}
    origins = {f"{PYTHON}{name}.py": Origin.of(kernel.source.text, kernel.source.file, kernel.source.first_line)}
    for path, content in _beside(kernel.source).items():
        files[path] = content
        origins[f"{PYTHON}{path}"] = Origin.of(content, path, 1)
    layout = ", layout=True" if kernel.layout else ""
    tuned = {key: dict(config) for key, config in sorted(getattr(kernel, "frozen", {}).items())}
    best = f", tuned={literal(tuned)}" if tuned else ""
    call = f"_triton({plan_text(kernel)}{layout}{best})"
    return Script(kernel.slot, "cuda", "triton", files, origins, call, number=number)


def module_name(kernel: Any) -> str:
    """`_rmsnorm_triton`: the forward's cell may hold the backward, too."""
    forward = getattr(kernel, "forward", None)
    same = kernel.slot == "forward" or (forward is not None and getattr(forward, "source", None) is not None
                                        and forward.source.text == kernel.source.text)  # fmt: skip
    return f"{module(kernel.schema.name)}_triton" + ("" if same else "_backward")


def text(source: Source, qualname: str) -> str:
    """The cell behind the imports that it is given. Its own text is unchanged, but for imports from beside it."""
    given = [line for name, line in GIVEN.items() if re.search(rf"\b{name}\b", source.text)]
    own = _relative(source)
    docs = f'"""{qualname} in Triton: kernels and the function that launches them, as they were run."""\n'
    first = ast.parse(own).body[:1]
    future = "from __future__" in own
    if future and first:
        raise SaveError(f"{source.file}: leave out 'from __future__': the module of a package begins with its imports")
    return "\n".join([docs, *given, "", "", own.strip("\n"), ""])


def _relative(source: Source) -> str:
    """Imports of modules beside the notebook, as those of modules beside this one."""
    own = source.text
    for line, node in _imports(source.text):
        for name in _modules(node):
            if not triton_beside.files_of(source.path, name):
                root = name.partition(".")[0]
                if root not in ("torch", "triton") and not installed(root) and not _known(root):
                    raise SaveError(
                        f"the cell imports {name}, which is neither installed nor beside it",
                        line=source.first_line + line - 1, file=source.file,
                    )  # fmt: skip
                continue
            if isinstance(node, ast.Import) or "." in name:
                raise SaveError(
                    f"write 'from {name} import ...': a package takes the modules beside a cell along by that form alone",
                    line=source.first_line + line - 1, file=source.file,
                )  # fmt: skip
            own = re.sub(rf"^(\s*from\s+){re.escape(name)}(\s+import\b)", rf"\1._{name}\2", own, flags=re.MULTILINE)
    return own


def _known(root: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(root) is not None


def _imports(given: str) -> list[tuple[int, ast.Import | ast.ImportFrom]]:
    return [(n.lineno, n) for n in ast.walk(ast.parse(given)) if isinstance(n, ast.Import | ast.ImportFrom)]


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    return (
        [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""] if not node.level else []
    )


def _beside(source: Source) -> Mapping[str, str]:
    found = {}
    for path in triton_beside.beside(source):
        name = os.path.relpath(path, source.path)
        if os.sep in name:
            raise SaveError(
                f"{source.file} imports {name}: a package takes single modules beside a cell along, no folders"
            )
        content = triton_beside.read(path)
        inner = Source(content, "triton", name, 1, source.path)
        found[f"_{name}"] = _relative(inner)
    return found


def plan_text(kernel: Any) -> str:
    """The arguments that make the same plan in a package: how the launcher is called."""
    plan: Plan = kernel.plan
    arguments = ", ".join(map(_argument, plan.arguments))
    parts = [
        "SCHEMA", f'"{plan.slot}"', f"({arguments}{',' * (len(plan.arguments) == 1)})", f'"{plan.function}"',
        _names(plan.takes), f"left_out={_names(plan.left_out)}", f"contiguous={plan.contiguous}",
        *([f"unread={_names(plan.unread)}"] if plan.unread else []),
    ]  # fmt: skip
    return f'_Plan({", ".join(parts)}), f"{{__package__}}.{module_name(kernel)}"'


def _names(names: tuple[str, ...]) -> str:
    return "(" + ", ".join(f'"{n}"' for n in names) + "," * (len(names) == 1) + ")"


def _argument(a: Argument) -> str:
    more = "" if a.default is NO_DEFAULT else f", {literal(a.default)}"
    more += ", keyword_only=True" * a.keyword_only + ", mutated=True" * a.mutated
    return f'Argument("{a.name}", "{a.type}"{more})'
