"""libdevice in Triton's interpreter, which has none of it: its functions give None there. Here numpy computes them."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

STUBS, REAL = "triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice"


def compute(symbol: str, *args: np.ndarray) -> np.ndarray:
    """What a function of libdevice makes of these. NotImplementedError where it is not known here.

    >>> compute("__nv_tanhf", np.float32([0.5]))
    array([0.46211717], dtype=float32)
    """
    function = _named(symbol.removeprefix("__nv_").removeprefix("fast_"))
    if function is None:
        raise NotImplementedError(f"{symbol} of libdevice runs on a GPU alone: Triton's interpreter does not have it")
    with np.errstate(all="ignore"):
        return np.asarray(function(*args))


def _named(name: str) -> Callable | None:
    """By its name in the library, where one letter or two more say the type: "tanhf", "isnand", "clzll", "fadd_rn"."""
    known = _functions()
    to_nearest = name.removesuffix("_rn")
    typed = (to_nearest[1:],) if to_nearest != name else ()
    for short in (to_nearest, to_nearest[:-1], name.removesuffix("ll"), *typed):
        if short in known:
            return known[short]
    to_integer = re.fullmatch(r"(?:float|double)2u?(?:int|ll)_(r[nzdu])", name)
    if to_integer:
        return {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}[to_integer[1]]
    return np.positive if re.fullmatch(r"u?(int|ll)2(float|double)_rn|double2float_rn", name) else None


def patches() -> list[tuple[Any, str, Callable]]:
    """(owner, name, what stands for it) while the interpreter runs."""
    from triton.runtime.interpreter import InterpreterBuilder

    return [*_callable(), (InterpreterBuilder, "create_extern_elementwise", _elementwise)]


@contextmanager
def bound() -> Iterator[None]:
    """Inside, a text that imports functions of libdevice by name gets those that the interpreter can call."""
    found = [(owner, name, vars(owner)[name], function) for owner, name, function in _callable()]
    for owner, name, _, function in found:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, former, _ in found:
            setattr(owner, name, former)


@cache
def _callable() -> tuple[tuple[Any, str, Callable], ...]:
    """Each function of libdevice by the name that kernels call it by, with the interpreter's semantics."""
    from triton.language.core import is_builtin
    from triton.runtime.interpreter import interpreter_semantic

    def standing_for(function: Callable) -> Callable:
        return lambda *args: function(*args, _semantic=interpreter_semantic)

    real = importlib.import_module(REAL)
    made = {n: standing_for(f) for n, f in vars(real).items() if not n.startswith("_") and is_builtin(f)}
    owners = (importlib.import_module(STUBS), real)
    return tuple((owner, n, f) for owner in owners for n, f in made.items() if n in vars(owner))


def _elementwise(self: Any, library: str, path: str, symbol: str, args: list, kind: Any, pure: bool) -> Any:
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    dtype = _get_np_dtype(kind.scalar)
    if "_as_" in symbol:
        return TensorHandle(np.ascontiguousarray(args[0].data).view(dtype), kind.scalar)
    return TensorHandle(compute(symbol, *(a.data for a in args)).astype(dtype), kind.scalar)


# ---------------------------------------------------------------- what they compute

SAME = (
    "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log", "log2", "log10",
    "log1p", "ceil", "floor", "trunc", "rint", "hypot", "fmod", "ldexp", "copysign", "nextafter", "signbit",
    "isnan", "isinf",
)  # fmt: skip
OTHER = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "pow": "power", "powi": "power", "fabs": "abs", "abs": "abs", "llabs": "abs", "add": "add",
    "sub": "subtract", "mul": "multiply", "div": "divide", "fdivide": "divide", "finite": "isfinite",
    "isfinite": "isfinite", "nearbyint": "rint", "llrint": "rint", "scalbn": "ldexp",
}  # fmt: skip
OF_TORCH = {  # numpy lacks these
    "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "erfcx": "erfcx", "lgamma": "gammaln", "normcdf": "ndtr",
    "normcdfinv": "ndtri", "cyl_bessel_i0": "i0", "cyl_bessel_i1": "i1", "j0": "bessel_j0", "j1": "bessel_j1",
    "y0": "bessel_y0", "y1": "bessel_y1",
}  # fmt: skip


@cache
def _functions() -> dict[str, Callable]:
    found: dict[str, Callable] = {n: getattr(np, n) for n in SAME}
    found |= {n: getattr(np, other) for n, other in OTHER.items()}
    found |= {n: _of_torch(other) for n, other in OF_TORCH.items()}
    return found | {
        "rsqrt": lambda x: 1 / np.sqrt(x),
        "rcp": lambda x: 1 / x,
        "rcbrt": lambda x: 1 / np.cbrt(x),
        "rhypot": lambda x, y: 1 / np.hypot(x, y),
        "exp10": lambda x: np.power(x.dtype.type(10), x),
        "sinpi": lambda x: np.sin(math.pi * x),
        "cospi": lambda x: np.cos(math.pi * x),
        "saturate": lambda x: np.clip(np.nan_to_num(x), 0, 1),
        "fdim": lambda x, y: np.maximum(x - y, 0),
        "fma": lambda x, y, z: np.multiply(x, y, dtype=np.float64) + z,
        "round": _away_from_zero,
        "llround": _away_from_zero,
        "remainder": lambda x, y: x - y * np.rint(x / y),
        "logb": lambda x: np.frexp(x)[1] - 1,
        "ilogb": lambda x: np.frexp(x)[1] - 1,
        "erfcinv": lambda x: _of_torch("erfinv")(1 - x),
        "tgamma": np.vectorize(_gamma, otypes=[float]),
        "popc": lambda x: _bits(x, int.bit_count),
        "clz": lambda x: 8 * x.itemsize - _bits(x, int.bit_length),
        "ffs": lambda x: _bits(x, lambda n: (n & -n).bit_length()),
    }


def _of_torch(name: str) -> Callable:
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    def call(x: np.ndarray) -> np.ndarray:
        with _disable_current_modes():
            return getattr(torch.special, name)(torch.from_numpy(np.array(x))).numpy()

    return call


def _away_from_zero(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1, x), 0)


def _gamma(x: float) -> float:
    try:
        return math.gamma(x)
    except (ValueError, OverflowError):
        return math.nan if x <= 0 else math.inf


def _bits(x: np.ndarray, count: Callable[[int], int]) -> np.ndarray:
    mask = (1 << 8 * x.itemsize) - 1
    return np.vectorize(lambda n: count(int(n) & mask), otypes=[np.int32])(x)
