"""Launches and architectures that no Triton takes, told before anything is compiled."""

from __future__ import annotations

import ast
import difflib
import functools
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import Diagnostic, SchemaError, ToolchainError
from ..gpu import Target
from .triton_kernels import innermost
from .triton_module import label
from .triton_tune import tuners

GRID = (2**31 - 1, 65_535, 65_535)  # of every NVIDIA GPU
OF_LAUNCHES = frozenset({"grid", "warmup", "stream", "device", "device_type"})


def launch(kernel: Any, grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """SchemaError, on the line that launches, for a grid that is none and arguments that the kernel does not take.

    A grid that is a function is asked with the first configuration; what it raises but for a name that is not there
    only a launch can tell.
    """
    function = innermost(kernel)
    name, names = function.__name__, list(function.arg_names)
    wrong = _brings(name, kernel, names, args, keywords) or _arguments(name, kernel, names, args, keywords)
    wrong = wrong or (_asked(name, kernel, names, grid, args, keywords) if callable(grid) else _grid(name, grid))
    if wrong:
        file, line = _here()
        raise SchemaError(wrong, line=line, file=file)
    _returns(function)


def nothing(kernel: Any, grid: Any) -> Diagnostic | None:
    """A warning for a grid that has no block; the launcher may mean it."""
    if not isinstance(grid, (tuple, list)) or not any(isinstance(n, int) and n == 0 for n in grid):
        return None
    file, line = _here()
    told = f"the grid of {innermost(kernel).__name__} is {tuple(grid)} here, so nothing of it runs"
    return Diagnostic(file, line, 0, "warning", f"{told}; write triton.cdiv(a, b) for a // b")


def without_grid(kernel: Any) -> SchemaError:
    """A kernel that is called like a function."""
    name = innermost(kernel).__name__
    file, line = _here()
    return SchemaError(f"{name} is launched without a grid: write {name}[(blocks,)](...)", line=line, file=file)


def unknown_key(kernel: Any) -> Diagnostic | None:
    """A warning for a key of autotune that is no parameter: Triton passes over it, and does not tune anew for it."""
    names = list(innermost(kernel).arg_names)
    for tuner in tuners(kernel):
        for key in tuner.keys:
            if key not in names:
                file, line = _here()
                near = difflib.get_close_matches(key.upper(), [n.upper() for n in names], 1)
                meant = next((n for n in names if near and n.upper() == near[0]), "")
                hint = f"did you mean {meant}?" if meant else f"it takes {', '.join(names)}"
                said = f"{innermost(kernel).__name__} has no parameter {key}, which autotune has as a key; {hint}"
                return Diagnostic(file, line, 0, "warning", said)
    return None


def _asked(
    name: str, kernel: Any, names: list[str], grid: Any, args: Sequence[Any], keywords: Mapping[str, Any]
) -> str:
    """What is wrong with a grid that is a function of the arguments."""
    config: Mapping[str, Any] = next((c.all_kwargs() for t in tuners(kernel) for c in t.configs), {})
    defaults = {p.name: p.default for p in getattr(innermost(kernel), "params", ()) if p.has_default}
    meta = {**defaults, **config, **dict(zip(names, args, strict=False)), **keywords}
    try:
        found = grid(meta)
    except KeyError as error:
        lost = str(error.args[0]) if error.args else ""
        if lost in meta or lost in _brought(kernel):
            return ""
        near = difflib.get_close_matches(lost, [*meta], 1, 0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(meta)}"
        return f"the grid of {name} asks for {lost!r}, which its launch does not have; {hint}"
    except Exception:
        return ""
    if isinstance(found, (tuple, list)):
        return _grid(name, found)
    return f"the grid of {name} is a function that returns {found}: it must return a tuple, ({found},)"


def _brings(name: str, kernel: Any, names: list[str], args: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """What configurations and heuristics give that the kernel does not take, or that is given at the launch too."""
    while type(kernel).__name__ in ("Autotuner", "Heuristics"):
        tuned = type(kernel).__name__ == "Autotuner"
        given = [n for c in kernel.configs for n in c.kwargs] if tuned else list(kernel.values)
        whose = "its configurations give" if tuned else "its heuristics give"
        for n in dict.fromkeys(given):
            if n not in names and n not in _options():
                near = difflib.get_close_matches(n, [m for m in names if m not in given], 1, 0.4)
                hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(names)}"
                return f"{name} has no parameter {n}, which {whose}; {hint}"
            if tuned and (n in keywords or n in names[: len(args)]):
                return f"{n} of {name} is given at the launch, and {whose} it too: leave it out of the launch"
        kernel = kernel.fn
    return ""


def _grid(name: str, grid: Any) -> str:
    if grid is None:
        return ""
    if not isinstance(grid, (tuple, list)):
        return f"the grid of {name} is {grid}: write a tuple, {name}[({grid},)](...)"
    if not 1 <= len(grid) <= 3:
        return f"the grid of {name} has {len(grid)} sizes: it takes one to three"
    other = next((n for n in grid if isinstance(n, float)), None)
    if other is not None:
        return f"the grid of {name} is {tuple(grid)}: {other} is no integer; write triton.cdiv(a, b), or a // b"
    if any(isinstance(n, int) and n > most for n, most in zip(grid, GRID, strict=False)):
        return f"the grid of {name} is {tuple(grid)}: a GPU takes at most {GRID[0]:,} by {GRID[1]:,} by {GRID[2]:,}"
    if any(isinstance(n, int) and n < 0 for n in grid):
        return f"the grid of {name} is {tuple(grid)}: a size is never negative"
    return ""


def _arguments(name: str, kernel: Any, names: list[str], args: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    if len(args) > len(names):
        return f"{name} takes {len(names)} arguments, {', '.join(names)}; it is given {len(args)}"
    twice = next((n for n in names[: len(args)] if n in keywords), "")
    if twice:
        return f"{name} is given {twice} twice, in its place and by name; it takes {', '.join(names)}"
    brought = _brought(kernel)
    lacking = [n for n in names[len(args) :] if n not in keywords and n not in brought]
    strange = [n for n in keywords if n not in names and n not in _options()]
    if strange:
        near = difflib.get_close_matches(strange[0], [*(lacking or names), *sorted(_options())], 1)
        hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(names)}"
        return f"{name} has no parameter {strange[0]}; {hint}"
    warps = keywords.get("num_warps")
    if isinstance(warps, int) and (warps < 1 or warps & (warps - 1)):
        return f"{name} is launched with num_warps={warps}: Triton takes a power of two, 1 to 32"
    return f"{name} is launched without {', '.join(lacking)}" if lacking else ""


def _brought(kernel: Any) -> set[str]:
    """The arguments that have a default, or that a configuration or a heuristic brings."""
    found = {p.name for p in getattr(innermost(kernel), "params", ()) if p.has_default}
    while type(kernel).__name__ in ("Autotuner", "Heuristics"):
        for config in getattr(kernel, "configs", ()):
            found |= set(config.all_kwargs())
        found |= set(getattr(kernel, "values", None) or ())
        kernel = kernel.fn
    return found


def _options() -> frozenset[str]:
    from triton.backends.nvidia.compiler import CUDAOptions

    return OF_LAUNCHES | frozenset(CUDAOptions.__dataclass_fields__)


def _returns(function: Any) -> None:
    """SchemaError for a kernel that returns a value: there is no one to take it."""
    tree = ast.parse(textwrap.dedent(function.src))
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            line = function.starting_line_number + node.lineno - 1
            said = f"{function.__name__} is launched, so nothing takes what it returns: store it, with tl.store"
            raise SchemaError(said, line=line, file=label(function.fn.__code__.co_filename))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def check_arch(target: Target) -> None:
    """ToolchainError for an architecture that Triton's ptxas does not know; Triton would print all of its PTX."""
    from triton.backends.nvidia import compiler

    try:
        tool = compiler.get_ptxas(target.number).path
        name = compiler.sm_arch_from_capability(target.number)
    except (AttributeError, RuntimeError):  # of another Triton: then its own words must do
        return
    said = _ptxas_of(tool, name)
    if "gpu-name" in said:
        raise ToolchainError(
            f"Triton does not compile for {target.arch} (its ptxas knows no {name}): set WORKBENCH_ARCH to one that "
            "it knows, e.g. sm_90"
        )


@functools.cache
def _ptxas_of(tool: str, name: str) -> str:
    try:
        done = subprocess.run([tool, f"--gpu-name={name}", "--version"], capture_output=True, text=True, timeout=60,
                              check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode == 0 else done.stderr


def _here() -> tuple[str, int]:
    """The cell's innermost line on the way here, as (file, line)."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if label(frame.f_code.co_filename):
            return label(frame.f_code.co_filename), frame.f_lineno
        frame = frame.f_back
    return "", 0


__all__ = ["check_arch", "launch", "nothing", "unknown_key", "without_grid"]
