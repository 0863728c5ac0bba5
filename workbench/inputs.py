"""The tensors of a case: made from a seed, copied with their views intact, or sketched after a real call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from .errors import SchemaError

FLOATS = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    }
)
LARGE = 1 << 20  # elements: from here on a tensor is only sketched while a generator's cases are counted


class Tensors:
    """`t`, which an op's cases get: each call makes one seeded tensor.

    >>> t(4, 128)                                   # normal(0, 1), in each of the op's dtypes
    >>> t(4, low=0)                                 # uniform in [0, 1)
    >>> t(3, dtype=torch.int32, low=0, high=128)    # integers in [0, 128); without a range in [0, 10)
    >>> t(2, 3, dtype=torch.bool), t()              # coin flips; 0-dim
    >>> t(128, grad=False)                          # takes no gradient in the checks

    The n-th call makes the same numbers in every dtype, rounded to it. `t.dtype` is what a float gets by default.
    """

    def __init__(self, dtype: torch.dtype, seed: int, sketch: bool = False) -> None:
        self.dtype = dtype
        self.defaulted = False  # whether a float was made in the default dtype
        self._seed, self._calls, self._sketch, self._new_sketch = seed, 0, sketch, False
        self._constant: list[Tensor] = []
        self._sketched: list[weakref.ref] = []

    def __call__(
        self,
        *shape: int,
        dtype: torch.dtype | None = None,
        low: float | None = None,
        high: float | None = None,
        grad: bool | None = None,
    ) -> Tensor:
        sizes = _sizes(shape)
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise SchemaError(f"t(dtype={dtype!r}): a dtype is wanted, such as torch.int32")
        if dtype is None:
            self.defaulted, dtype = True, self.dtype
        if grad and not (dtype in FLOATS or dtype.is_complex):
            raise SchemaError(f"t(grad=True, dtype={dtype}): only floating tensors take gradients")
        self._calls += 1
        low, high = _range(dtype, low, high)
        if self._sketch and torch.Size(sizes).numel() >= LARGE:
            made = torch.empty(sizes, dtype=dtype) if dtype in FLOATS else torch.full(sizes, low or 0, dtype=dtype)
            self._new_sketch = True
            self._sketched.append(weakref.ref(made))
        else:
            made = draw(sizes, dtype, low, high, self._seed + self._calls)
        if grad is False:
            self._constant.append(made)
        return made

    def take_sketched(self) -> bool:
        """Whether what was yielded just now may hold, or come from, a tensor that has a shape but no values yet."""
        new, self._new_sketch = self._new_sketch, False
        return new or any(made() is not None for made in self._sketched)

    def is_constant(self, x: Tensor) -> bool:
        """Whether a tensor, or the one it is a view of, was made with `grad=False`."""
        return any(x is c or x._base is c for c in self._constant)


def draw(sizes: tuple[int, ...], dtype: torch.dtype, low: float | None, high: float | None, seed: int) -> Tensor:
    """One seeded tensor: normal(0, 1) for floats without a range, else uniform in [low, high)."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, sizes, generator=generator).bool()
    if dtype.is_complex:
        return torch.randn(sizes, generator=generator, dtype=torch.complex128).to(dtype)
    if not dtype.is_floating_point:
        assert low is not None, "integers have a range"
        assert high is not None
        return torch.randint(int(low), int(high), sizes, generator=generator).to(dtype)
    wide = torch.float64 if torch.Size(sizes).numel() < LARGE else torch.float32
    if low is None or high is None:
        return torch.randn(sizes, generator=generator, dtype=wide).to(dtype)
    made = torch.rand(sizes, generator=generator, dtype=wide).mul_(high - low).add_(low).to(dtype)
    rounded_up = made.double() >= high  # only rounding gets there
    return torch.where(rounded_up, torch.tensor(low, dtype=dtype), made) if rounded_up.any() else made


def tensors_in(value: object) -> list[Tensor]:
    """All tensors in nested tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [x for item in items for x in tensors_in(item)]


def fresh(
    named: Mapping[str, object],
    *,
    dtypes: Mapping[str, torch.dtype] | torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> dict[str, object]:
    """Copies of all tensors, with the same strides; those that share memory share one copy of it.

    >>> copies = fresh({"x": x, "w": w}, dtypes=torch.float64)       # floats in float64, the rest as they are
    >>> copies = fresh({"x": x, "w": w}, dtypes={"x": torch.bfloat16})

    Where tensors that share memory would get different dtypes, the first one's is taken.
    """
    bases: dict[tuple, Tensor] = {}

    def copy(x: object, name: str) -> object:
        if isinstance(x, (list, tuple)):
            return type(x)(copy(item, name) for item in x)
        if isinstance(x, torch.ScriptObject) and x._has_method("__getstate__"):
            return deepcopy(x)  # it has state of its own
        if not isinstance(x, Tensor):
            return x
        if x.layout is not torch.strided or x.is_conj() or x.is_neg():
            return x.to(device=device or x.device, copy=True)
        storage = x.untyped_storage()
        key = (storage.data_ptr() or id(x), x.dtype)
        if key not in bases:
            wanted = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
            wanted = _target_dtype(x.dtype, wanted)
            flat = torch.empty(0, dtype=x.dtype, device=x.device).set_(storage)
            bases[key] = flat.to(device=device or x.device, dtype=wanted, copy=True)
        return bases[key].as_strided(x.shape, x.stride(), x.storage_offset())

    with torch.no_grad():
        return {name: copy(value, name) for name, value in named.items()}


def moved(named: Mapping, device: torch.device | str) -> dict:
    """The same values with all tensors on a device: copies as `fresh` makes them, or what is there already."""
    wanted = torch.device(device)
    if all(t.device.type == wanted.type for t in tensors_in(dict(named))):
        return dict(named)
    return fresh(named, device=wanted)


Form = tuple[tuple[str, object], ...]  # what inputs look like, without data


def form(named: Mapping[str, object]) -> Form:
    """Names with what their values look like: equal for inputs that are alike in all but the numbers in tensors.

    >>> form({"x": torch.ones(4, 128), "k": 2.0})
    (('x', ('float32', (4, 128), (128, 1))), ('k', '2.0'))
    """

    def one(x: object) -> object:
        if isinstance(x, (list, tuple)):
            return tuple(one(item) for item in x)
        return (str(x.dtype).removeprefix("torch."), tuple(x.shape), x.stride()) if isinstance(x, Tensor) else repr(x)

    return tuple((name, one(value)) for name, value in named.items())


def sketch_call(named: Mapping[str, object], seed: int) -> Callable[[], dict[str, object]]:
    """What makes inputs like these: per block of shared memory its size, dtype and range of values, and the views."""
    blocks: dict[tuple, list] = {}  # key -> [first element, end, dtype, low, high]

    def note(x: object) -> object:
        if isinstance(x, (list, tuple)):
            return type(x)(note(item) for item in x)
        if not isinstance(x, Tensor):
            return lambda _: x
        last = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
        span = [x.storage_offset(), last if x.numel() else x.storage_offset()]
        key = (x.untyped_storage().data_ptr() or id(x), x.dtype)
        low, high = _seen_range(x)
        block = blocks.setdefault(key, [*span, x.dtype, low, high])
        block[:2] = min(block[0], span[0]), max(block[1], span[1])
        block[3:] = (None, None) if None in (low, block[3]) else (min(block[3], low), max(block[4], high))
        shape, stride, offset = tuple(x.shape), x.stride(), x.storage_offset()
        return lambda bases: bases[key].as_strided(shape, stride, offset - blocks[key][0])

    def build(plan: Any, bases: dict) -> object:
        return type(plan)(build(p, bases) for p in plan) if isinstance(plan, (list, tuple)) else plan(bases)

    plans = {name: note(value) for name, value in named.items()}

    def rebuild() -> dict[str, object]:
        bases = {
            key: draw((end - first,), dtype, low, high, seed + number)
            for number, (key, (first, end, dtype, low, high)) in enumerate(blocks.items())
        }
        return {name: build(plan, bases) for name, plan in plans.items()}

    return rebuild


def describe(value: object) -> str:
    """A value in few words: `float32[4, 128]`, `[2 tensors]`, `0.5`."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, torch.ScriptObject):
        return f"a {value._type().qualified_name().rpartition('.')[2]}"
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, Tensor) for v in value):
        return f"[{len(value)} tensor{'s' * (len(value) > 1)}]"
    return repr(value) if len(repr(value)) < 60 else f"a {type(value).__name__}"


def _sizes(shape: tuple) -> tuple[int, ...]:
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
    for n in sizes:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise SchemaError(f"t({', '.join(map(repr, shape))}): sizes are integers of at least 0, got {n!r}")
    return sizes


def _range(dtype: torch.dtype, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """The range to draw from, half given ones completed: [0, 1) for floats, [0, 10) for integers."""
    if dtype == torch.bool or dtype.is_complex:
        if low is not None or high is not None:
            raise SchemaError(f"t(dtype={dtype}): low and high are for floats and integers")
        return None, None
    if dtype.is_floating_point and low is None and high is None:
        return None, None
    width = 1 if dtype.is_floating_point else 10
    if low is None:
        low = 0 if high is None or high > 0 else high - width
    if high is None:
        high = width if low < width else low + width
    if not low < high:
        raise SchemaError(f"t(low={low}, high={high}): low must be below high, which is not drawn itself")
    return low, high


def _target_dtype(dtype: torch.dtype, wanted: torch.dtype | None) -> torch.dtype:
    if wanted is None:
        return dtype
    if dtype.is_complex:
        return torch.complex128 if wanted == torch.float64 else dtype
    return wanted if dtype in FLOATS else dtype


def _seen_range(x: Tensor) -> tuple[float | None, float | None]:
    """The half-open range of the values of a real tensor; none for floats that go below zero, or are not finite."""
    if x.dtype == torch.bool or x.dtype.is_complex:
        return None, None
    if not x.numel():
        return (None, None) if x.dtype.is_floating_point else (0, 1)
    wide = x.detach().double() if x.dtype.is_floating_point else x.detach().long()
    low, high = (v.item() for v in torch.aminmax(wide))
    if not x.dtype.is_floating_point:
        return low, high + 1
    positive = low >= 0 and high < float("inf")
    return (low, high + max(high, 1.0) * 1e-6) if positive and high > 0 else (None, None)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's generator of the CPU, seeded for a while; other generators are never touched."""
    generator = torch.random.default_generator
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        yield
    finally:
        generator.set_state(state)
