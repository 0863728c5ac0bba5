"""Running a reference in float64 although it casts inside, and stopping one that takes too long or too much.

Both work at each call that the reference makes to torch, so a single endless call is not stopped, only noticed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..inputs import FLOATS, tensors_in

WIDE = {**dict.fromkeys(FLOATS, torch.float64), torch.complex64: torch.complex128, torch.complex32: torch.complex128}
WATCHED_BYTES = 64 << 20
# What picks or moves numbers and rounds none; shaken, a maximum would be found nowhere in what it is the maximum of.
EXACT = frozenset({
    "amax", "amin", "max", "min", "aminmax", "sort", "topk", "kthvalue", "median", "mode", "cummax", "cummin",
    "gather", "scatter", "index", "index_select", "index_put", "take_along_dim", "masked_select", "masked_fill",
    "where", "select_backward", "slice_backward", "unfold_backward", "embedding", "nonzero", "clone", "_to_copy",
    "cat", "stack", "neg", "abs", "relu", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin",
    "sign", "sgn", "round", "floor", "ceil", "trunc", "tril", "triu", "flip", "roll", "repeat", "constant_pad_nd",
    "threshold", "threshold_backward",
})  # fmt: skip
# Several steps in one op, some of which may cancel; torch can take them apart.
FUSED = (
    "gelu", "gelu_backward", "silu", "silu_backward", "mish", "mish_backward", "elu", "elu_backward", "softplus",
    "softplus_backward", "log_sigmoid_forward", "log_sigmoid_backward", "hardswish_backward", "sigmoid_backward",
    "tanh_backward", "logit_backward", "_softmax", "_softmax_backward_data", "_log_softmax",
    "_log_softmax_backward_data", "native_layer_norm", "native_layer_norm_backward", "native_group_norm",
    "native_group_norm_backward", "native_batch_norm", "native_batch_norm_backward", "var", "var_mean", "std",
    "logsumexp", "addmm", "baddbmm", "addcmul", "addcdiv", "lerp", "mse_loss", "mse_loss_backward",
    "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss", "huber_loss_backward",
    "binary_cross_entropy", "binary_cross_entropy_backward", "_scaled_dot_product_flash_attention_for_cpu",
)  # fmt: skip
NO_MEMORY = "the reference needs more memory than there is"


class TooMuchError(Exception):
    """A reference that was stopped: its message says after what."""


class Limits(TorchDispatchMode):
    """Stops what runs in it after `limit_s` seconds, or when the memory that is left would not take one more step.

    >>> with Limits(10.0):
    ...     reference(x, w)             # TooMuchError: the reference took more than 10 s
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # being skipped would import the whole of dynamo, two seconds, at the first call

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s
        self.end = time.perf_counter() + limit_s

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.look(out)
        return out

    def look(self, out: object) -> None:
        """Judge after one call: by the clock, and by the memory that the same again would need."""
        if time.perf_counter() > self.end:
            raise TooMuchError(f"the reference took more than {self.limit_s:g} s")
        made = tensors_in(out)
        size = sum(x.numel() * x.element_size() for x in made)
        if size > WATCHED_BYTES and size > available_bytes(made[0].device):
            raise TooMuchError(NO_MEMORY)


class Float64(Limits):
    """Lower floating dtypes in casts and factories become float64; random draws keep their numbers.

    >>> with float64(torch.bfloat16):
    ...     reference(x.double(), w.double())      # a `.float()` inside stays in float64

    `low` is the dtype that random numbers are drawn in, as they would be in the plain run.
    """

    def __init__(self, low: torch.dtype, limit_s: float) -> None:
        super().__init__(limit_s)
        self.low, self.default = low, torch.get_default_dtype()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _draws(func, args, kwargs):
            out = self._drawn(func, args, kwargs)
        elif func is torch.ops.aten.view.dtype:
            raise NotImplementedError("it looks at the bits of numbers")
        else:
            out = func(*map(_wide, args), **{k: _wide(v) for k, v in kwargs.items()})
        self.look(out)
        return out

    def _drawn(self, func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> object:
        """The same random numbers as in the plain run, which drew them in a lower dtype."""

        def lowered(x: object) -> object:
            return x.to(self.low) if isinstance(x, Tensor) and x.dtype == torch.float64 else x

        target = args[0] if args and isinstance(args[0], Tensor) else None
        makes_floats = not func._schema.name.startswith(("aten::randint", "aten::randperm"))
        if target is None and makes_floats and any(a.name == "dtype" for a in func._schema.arguments):
            kwargs = {**kwargs, "dtype": kwargs.get("dtype") or self.default}
        out = func(*map(lowered, args), **kwargs)
        if func._schema.is_mutable and target is not None:
            return target.copy_(out)
        raised = [x.to(WIDE.get(x.dtype, x.dtype)) if isinstance(x, Tensor) else x for x in _listed(out)]
        return tuple(raised) if isinstance(out, tuple) else raised if isinstance(out, list) else raised[0]


class Shaken(Float64):
    """The same, with each result of arithmetic changed by chance in its last bits, of which `DELTA` is the size.

    How far what comes out is moved tells how large the terms are that it is a difference of: Monte Carlo arithmetic
    (Parker, Pierce and Eggert, Computing in Science & Engineering 2 (4), 2000). Ops that do several things at once are
    taken apart as far as torch can.
    """

    DELTA = 2.0**-20

    def __init__(self, low: torch.dtype, limit_s: float, seed: int) -> None:
        super().__init__(low, limit_s)
        self.seed = seed

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        aliased = any(r.alias_info is not None for r in func._schema.returns)  # a view, or written in place
        plain = aliased or func.overloadpacket.__name__ in EXACT or not tensors_in(list(args))
        parts = None if plain or _draws(func, args, kwargs or {}) else _decompositions().get(func)
        if parts is not None:
            with self:
                out = parts(*args, **(kwargs or {}))
            if out is not NotImplemented:
                return out
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if plain:
            return out
        shaken = [self._shaken(x) for x in _listed(out)]
        return tuple(shaken) if isinstance(out, tuple) else shaken if isinstance(out, list) else shaken[0]

    def _shaken(self, x: object) -> object:
        if not isinstance(x, Tensor) or x.dtype is not torch.float64:
            return x
        self.seed += 1
        chance = torch.rand(x.shape, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64)
        return x * (1 + self.DELTA * (2 * chance - 1)).to(x.device)


class _WideFunctions(TorchFunctionMode):
    """The same for what makes tensors without the dispatcher's seeing the dtype: `torch.tensor(0.1, dtype=...)`."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if kwargs.get("dtype") in WIDE and func in (torch.tensor, torch.as_tensor, torch.asarray):
            kwargs = {**kwargs, "dtype": WIDE[kwargs["dtype"]]}
        return func(*args, **kwargs)


class _Instead(TorchFunctionMode):
    def __init__(self, references: Mapping[str, Callable]) -> None:
        super().__init__()
        self.references = references

    def __torch_function__(self, func, types, args=(), kwargs=None):
        other = self.references.get(_qualname(func))
        if other is None:
            return func(*args, **(kwargs or {}))
        with self:  # it may call others in turn
            return other(*args, **(kwargs or {}))


def instead(references: Mapping[str, Callable] | None) -> AbstractContextManager:
    """References in place of other ops that are called, where autograd sees what they do.

    >>> with instead({"lab::scale": lambda x, k: x * k}):
    ...     reference(x)                # calls lab::scale, which may have no form for the dtype of x
    """
    return _Instead(references) if references else nullcontext()


@contextmanager
def float64(
    low: torch.dtype,
    limit_s: float = 10.0,
    references: Mapping[str, Callable] | None = None,
    *,
    shaken: int | None = None,
) -> Iterator[None]:
    """All floating arithmetic of a block in float64; the default dtype too, for a while.

    `references` are run in place of other ops, by name, which may have no form for float64. `shaken` seeds `Shaken`.
    """
    before = torch.get_default_dtype()
    mode = Float64(low, limit_s) if shaken is None else Shaken(low, limit_s, shaken)
    torch.set_default_dtype(torch.float64)
    try:
        with mode, _WideFunctions(), instead(references):
            yield
    finally:
        torch.set_default_dtype(before)


def available_bytes(device: torch.device) -> int:
    """Memory that could still be had, or a great deal where nobody says."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            found = next(line for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 1 << 62
    return int(found.split()[1]) << 10


@functools.cache
def _decompositions() -> Mapping:
    from torch._decomp import get_decompositions

    ops = [getattr(torch.ops.aten, name) for name in FUSED if hasattr(torch.ops.aten, name)]
    return get_decompositions(ops)


def _draws(func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> bool:
    """Does this call draw random numbers? Attention without dropout only could."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    for i, a in enumerate(func._schema.arguments):
        if a.name == "dropout_p":
            return (kwargs.get(a.name, a.default_value) if i >= len(args) else args[i]) != 0
    return True


def _qualname(func: object) -> str:
    """`lab::scale` for an op or one of its overloads; "" for any other function."""
    if isinstance(func, torch._ops.OpOverload):
        return func.name()
    return func._qualified_op_name if isinstance(func, torch._ops.OpOverloadPacket) else ""


def _wide(value: object) -> object:
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _listed(out: object) -> list:
    return list(out) if isinstance(out, (tuple, list)) else [out]
