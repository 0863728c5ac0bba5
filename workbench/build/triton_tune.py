"""Which configuration an autotuned kernel runs where nothing is timed: in a trial, and in Triton's interpreter.

A trial takes every configuration once on a small case; on the other cases each launch takes one that follows from its
arguments, so that it is known beforehand and compiled before the trial begins.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

# What Triton's autotuner takes for a configuration that this device cannot run: it goes on to the others.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")
UNFIT = ("OutOfResources", "CompileTimeAssertionFailure", "PTXASError")

# Of the step of a trial that runs now: the place of its configuration, those of kernels by name, None for any.
turn: int | Mapping[str, Mapping[str, Any]] | None = None
told: Callable[[str], object] = str  # hears of each configuration that a trial runs
compiling: Callable[[bool], object] = bool  # hears when Triton begins to compile for a launch, and when that runs


class Unfit(Exception):
    """The configuration whose turn it is does not fit the device: no fault of the kernel."""


def tuners(kernel: Any) -> Iterator[Any]:
    """The autotuners around a jitted function, outermost first."""
    while type(kernel).__name__ in ("Autotuner", "Heuristics"):
        if type(kernel).__name__ == "Autotuner":
            yield kernel
        kernel = kernel.fn


def configurations(tuner: Any, given: Mapping[str, Any], placed: int, *, interpreted: bool = False) -> list[Any]:
    """Those that the autotuner would time for these arguments, by name. Warps and stages are nothing interpreted.

    The first `placed` parameters were given by place: what prunes gets these in a mapping, and the rest as keywords.
    """
    former = tuner.nargs if hasattr(tuner, "nargs") else None
    tuner.nargs = {n: given[n] for n in tuner.arg_names[:placed]}
    try:
        rest = {n: v for n, v in given.items() if n not in tuner.nargs}
        found = list(tuner.prune_configs(rest)) if len(tuner.configs) > 1 else list(tuner.configs)
    finally:
        tuner.nargs = former
    return list({repr(sorted(c.kwargs.items())): c for c in reversed(found)}.values())[::-1] if interpreted else found


def of(tuner: Any, given: Mapping[str, Any]) -> Any:
    """The configuration with these values: the autotuner's own, which may have a hook, or else a new one."""
    from triton import Config

    for config in tuner.configs:
        if config.all_kwargs() == dict(given):
            return config
    options = {n: v for n, v in given.items() if n in OPTIONS}
    return Config({n: v for n, v in given.items() if n not in OPTIONS}, **options)


def name(kernel: Any) -> str:
    """The name of the function inside autotuners and heuristics."""
    while not hasattr(kernel, "__name__"):
        kernel = kernel.fn
    return str(kernel.__name__)


def cache_key(tuner: Any, given: Mapping[str, Any]) -> tuple:
    """Under what the autotuner remembers the winner for these arguments, by name."""
    known = {n: v for n, v in given.items() if n in tuner.arg_names}
    found = [known[n] for n in tuner.keys if n in known]
    return (*found, *(str(v.dtype) for v in known.values() if hasattr(v, "dtype")))


def place(count: int, given: Mapping[str, Any], turn: int | None) -> int:
    """Which of `count` configurations a launch takes: that whose turn it is, or one that follows from the arguments.

    >>> place(3, {"n": 100}, 4)
    1
    """
    if turn is not None:
        return turn % count
    return zlib.crc32(repr([(n, _shape(v)) for n, v in given.items()]).encode()) % count


def _shape(value: Any) -> Any:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return str(value.dtype), tuple(map(int, value.shape))
    return value if value is None or isinstance(value, (bool, int, float, str)) else ""


def label(kernel: Any, config: Any) -> str:
    """How a configuration is told: `kernel with BLOCK=64, num_warps=4, num_stages=3`."""
    parts = [f"{n}={v}" for n, v in config.kwargs.items()]
    parts += [f"{n}={getattr(config, n)}" for n in ("num_warps", "num_stages") if getattr(config, n, None)]
    parts += [f"num_ctas={config.num_ctas}"] if (getattr(config, "num_ctas", 1) or 1) > 1 else []
    return f"{name(kernel)} with {', '.join(parts)}"


def hear_compiler() -> None:
    """Let `compiling` hear of all that Triton compiles, its launchers in C included, until it is loaded."""
    from triton import knobs
    from triton.runtime.jit import JITFunction

    knobs.runtime.kernel_load_end_hook.add(_loaded)
    usual = JITFunction._do_compile  # Triton's own hook there writes all constants as JSON, which not all can be
    if not hasattr(usual, "usual"):
        JITFunction._do_compile = _heard(usual)


def _heard(usual: Callable) -> Callable:
    def do_compile(*args: Any, **keywords: Any) -> Any:
        compiling(True)
        return usual(*args, **keywords)

    do_compile.usual = usual  # type: ignore[attr-defined]
    return do_compile


def _loaded(*_: Any) -> None:
    compiling(False)


def in_turn(kernels: Iterable[Any], *, interpreted: bool = False) -> None:
    """Let autotuned kernels run one configuration at each launch, by `turn`, and time none."""
    _exchange(kernels, partial(_run_in_turn, interpreted))


def first(kernels: Iterable[Any]) -> None:
    """Let autotuned kernels run their first configuration, and time none."""
    _exchange(kernels, _run_first)


def _exchange(kernels: Iterable[Any], run: Callable) -> None:
    for kernel in kernels:
        for tuner in tuners(kernel):
            tuner.run = partial(run, tuner)


def _run_first(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    return _run(tuner, configurations(tuner, given, len(args))[0], args, kwargs)


def _run_in_turn(interpreted: bool, tuner: Any, *args: Any, **kwargs: Any) -> Any:
    given = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs}
    known = {n: v for n, v in given.items() if n in tuner.arg_names}  # no grid, and what else launches bring
    if isinstance(turn, Mapping):
        asked = turn.get(name(tuner))
        found = [of(tuner, asked)] if asked else configurations(tuner, given, len(args), interpreted=interpreted)
    else:
        found = configurations(tuner, given, len(args), interpreted=interpreted)
    at = 0 if isinstance(turn, Mapping) else place(len(found), known, turn)
    for i in range(len(found)):
        config = found[(at + i) % len(found)]
        if len(found) > 1:
            told(label(tuner, config))
        try:
            return _run(tuner, config, args, kwargs)
        except Exception as error:
            if type(error).__name__ not in UNFIT or (len(found) == 1 and not isinstance(turn, Mapping)):
                raise
            compiling(False)
            if turn is not None:
                raise Unfit(f"{label(tuner, config)} does not fit: {_sentence(error)}") from error
            last = error
    raise last


def _run(tuner: Any, config: Any, args: tuple, kwargs: Mapping[str, Any]) -> Any:
    named = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs, **config.all_kwargs()}
    if len(tuner.configs) > 1:
        tuner.pre_hook(named, reset_only=True)
    if config.pre_hook is not None:
        config.pre_hook(named)
    return tuner.fn.run(*args, **kwargs, **config.all_kwargs())


def _sentence(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
