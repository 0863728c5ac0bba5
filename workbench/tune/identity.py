"""What results of tuning are kept by: the source without the values that are tuned, the device, the case, the judge.

Adding a value to a `tune` line, or a `triton.Config` to a list, leaves all of these as they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from .. import toolchain
from ..build import store
from ..inputs import Form

_TUNE = re.compile(r"^(\s*//! tune \w+)\s*=.*$", re.MULTILINE)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def key(kernel: Any, form: Form, judge: str = "") -> str:
    """64 hexadecimal digits for a kernel, as it would run here, on inputs that look like `form`.

    `judge` says what its results are held against: those of another reference say nothing.
    """
    language = kernel.source.language
    made: dict[str, object] = {
        "text": (without_configs if language == "triton" else without_values)(kernel.source.text),
        "headers": dict(kernel.headers),
        "schema": str(kernel.schema),
        "slot": kernel.slot,
        "layout": kernel.layout,
        "machine": machine(kernel.device),
        "torch": torch.__version__,
        "form": repr(form),
        "judge": judge,
    }
    if language == "triton":
        made |= {"triton": _triton(), "function": kernel.plan.function}
    elif language == "cuda":
        made |= {"arch": kernel.compiled_for}
    else:
        made |= {"compiler": toolchain.compiler().identity}
    return store.key(made)


def machine(device: str) -> str:
    """What a time holds for: the GPU, or the processor with the threads that torch uses.

    >>> machine("cpu")
    'Intel(R) Xeon(R) Platinum 8488C, 2 threads'
    """
    if device == "cuda":
        return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU here"
    return f"{toolchain.processor_name()}, {torch.get_num_threads()} threads"


@cache
@cache
def _triton() -> str:
    import triton

    return str(triton.__version__)


def without_values(text: str) -> str:
    """A raw cell with `tune` lines that list no values.

    >>> without_values("//! tune BLOCK = 128, 256")
    '//! tune BLOCK'
    """
    return _TUNE.sub(r"\1", text)


def without_configs(text: str) -> str:
    """A Triton cell without the configurations of its autotuners, and without what only makes those.

    `configs=` of `triton.autotune` goes, wherever the list is written: in place, in a variable, in a function.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    asked: set[str] = set()
    for call in _autotuners(tree):
        asked |= {n for part in _configs(call) for n in _names(part)}
        call.keywords = [k for k in call.keywords if k.arg != "configs"]
        call.args = call.args[1:] if call.args and not isinstance(call.args[0], ast.Starred) else call.args
    gone: set[int] = set()
    while True:  # what only the configurations needed, and then what only that needed
        rest = [s for s in tree.body if id(s) not in gone]
        ours = [s for s in rest if (made := _makes(s)) and made <= asked]
        used = {n for s in rest if s not in ours for n in _names(s)}
        more = [s for s in ours if not _makes(s) & used]
        if not more:
            break
        for s in more:
            gone.add(id(s))
            asked |= _names(s)
    return "\n".join(ast.unparse(s) for s in tree.body if id(s) not in gone)


def _autotuners(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        for decorator in node.decorator_list if isinstance(node, Function) else ():
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).rpartition(".")[2] == "autotune":
                yield decorator


def _configs(call: ast.Call) -> list[ast.expr]:
    return [k.value for k in call.keywords if k.arg == "configs"] + call.args[:1]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _makes(statement: ast.stmt) -> set[str]:
    """The names that a statement of the cell gives: of kernels none, which a launcher may find by any name."""
    if isinstance(statement, Function):
        return set() if statement.decorator_list else {statement.name}
    if isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
        return {t.id for t in statement.targets if isinstance(t, ast.Name)}
    if isinstance(statement, ast.AugAssign | ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return {statement.target.id}
    return set()


__all__ = ["key", "machine", "without_configs", "without_values"]
