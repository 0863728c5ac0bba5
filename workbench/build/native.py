"""Compiled launchers and bodies in this process: loading, registering, and the descriptor that ties them together.

A descriptor is made once and never changed; `install` is one atomic store, so a call that is under way finishes with
the kernels it began with. Bodies are shared objects, or cubins, which `driver.py` loads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch

from ..directives import Declaration, Kind
from ..errors import BuildError
from . import driver, structures
from .arithmetic import Arithmetic
from .body import Body
from .ctypes_cpp import CODES, DTYPE_CODES, dtype_of, name_of
from .statements_cpp import texts

NONE, ANY = -1, -2  # no_dtype and any_dtype of launcher.h
_DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}


class Coded(Protocol):
    """What is asked of a body here: (index among the named values, C type) of every parameter of each function."""

    @property
    def parameters(self) -> tuple[tuple[tuple[int, str], ...], ...]: ...


@dataclass(frozen=True)
class Instance:
    """A compiled body: for which dtypes (of all tensors in the declaration's order, None where one is None).

    `library` is the path of a shared object, or of a cubin; `symbols` are what the compiler called the kernels of a
    cubin, in the order in which they are launched. `exact`: it is for arguments of just these dtypes, though its
    functions would take others.
    """

    dtypes: tuple[torch.dtype | None, ...]
    library: str
    body: Coded
    symbols: tuple[str, ...] = ()
    exact: bool = False


@dataclass(frozen=True)
class Choice:
    """Tuned values for calls with tensor arguments of just these dtypes and sizes: None for one that is None."""

    dtypes: tuple[torch.dtype | None, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    tuned: Mapping[str, int | float]
    instance: Instance


@dataclass(frozen=True, eq=False)
class Descriptor:
    """What a launcher calls and with which numbers; `address` is what it is given. Holds every buffer it points to."""

    address: int
    kept: tuple


def descriptor(
    declaration: Declaration,
    instances: Sequence[Instance],
    *,
    layout: bool = False,
    handles: int = 0,
    tuned: Mapping[str, int | float] | None = None,
    choices: Sequence[Choice] = (),
) -> Descriptor:
    """Tie compiled bodies, numbers and texts to a launcher.

    >>> launcher.install(descriptor(declaration, [Instance(dtypes, build.path, body)], layout=False))

    `layout`: ask `wb_layout::...` for the strides of outputs at every call, not only when an argument is not
    contiguous. `handles`: the functions take tensors, not pointers: 1 as they come, 2 contiguous ones. `tuned` are
    values of tuned names other than the first, `choices` what is called instead for some sizes. BuildError if a library
    cannot be loaded, ToolchainError where a cubin finds no driver.
    """
    kept: list[object] = []
    tables = (structures.Choice * max(1, len(choices)))()
    for place, choice in zip(tables, choices, strict=False):
        other = descriptor(declaration, [choice.instance], layout=layout, handles=handles, tuned=choice.tuned)
        sizes = _sizes(choice)
        place.sizes, place.descriptor = sizes, ctypes.cast(other.address, ctypes.POINTER(structures.Descriptor))
        kept += [other, sizes]
    table = (structures.Instance * max(1, len(instances)))()
    for row, instance in zip(table, instances, strict=False):
        functions, codes = _functions(declaration, instance, kept), _codes(declaration, instance)
        row.functions, row.dtypes = functions, codes
        kept += [functions, codes]
    values = [(tuned or {}).get(t.name, t.values[0]) for t in declaration.tunes.values()]
    literals, tunes = _numbers(declaration.literals), _numbers(values)
    said = texts(declaration)
    statements = (structures.Text * max(1, len(said)))(*(structures.Text(t.encode(), line) for t, line in said))
    count = len(declaration.functions)
    whole = structures.Descriptor(
        int(layout), int(handles), len(instances), table, count, literals, tunes, statements,
        len(choices), ctypes.cast(tables, structures.Pointer),
    )  # fmt: skip
    return Descriptor(ctypes.addressof(whole), (whole, table, literals, tunes, statements, tables, *kept))


def _sizes(choice: Choice) -> ctypes.Array:
    """What a launcher compares: of each tensor its dtype, how many sizes, the sizes; -1 for one that is None."""
    found: list[int] = []
    for dtype, shape in zip(choice.dtypes, choice.shapes, strict=True):
        found += [-1] if dtype is None or shape is None else [DTYPE_CODES[dtype], len(shape), *shape]
    return (ctypes.c_int64 * max(1, len(found)))(*found)


def _functions(declaration: Declaration, instance: Instance, kept: list[object]) -> ctypes.Array:
    functions = (structures.Function * len(declaration.functions))()
    entries = _kernels(instance, kept) if instance.symbols else _entries(instance)
    kinds = list(declaration.values.values())
    rows = zip(functions, declaration.functions, entries, instance.body.parameters, strict=True)
    for row, function, (entry, allowed), parameters in rows:
        codes = (structures.Parameter(v, _code(t), kinds[v] is Kind.FLOAT) for v, t in parameters)
        coded = (structures.Parameter * max(1, len(parameters)))(*codes)
        kept.append(coded)
        row.entry, row.name, row.allowed = entry, function.name.encode(), allowed
        row.parameter_count, row.parameters = len(parameters), coded
    return functions


def _entries(instance: Instance) -> list[tuple[ctypes.c_void_p, None]]:
    """The functions of a shared object."""
    library, found = _load(instance.library), []
    for symbol in cast("Body", instance.body).symbols:
        try:
            found.append((ctypes.cast(library[symbol], ctypes.c_void_p), None))
        except AttributeError:
            raise BuildError(f"{instance.library} has no function {symbol}") from None
    return found


def _kernels(instance: Instance, kept: list[object]) -> list[tuple[int, ctypes.Array]]:
    """The kernels of a cubin, each with a place where launchers note the shared memory that it may take, by device."""
    library, devices = driver.load(instance.library), driver.table().gpu_count
    found = [(library.kernel(symbol), (ctypes.c_int32 * devices)()) for symbol in instance.symbols]
    kept += [allowed for _, allowed in found]
    return found


def _code(spelled: str) -> int:
    """The number of a parameter's C type."""
    return CODES.index("pointer" if spelled.endswith("*") else name_of(spelled) or spelled)


def _codes(declaration: Declaration, instance: Instance) -> ctypes.Array:
    """The dtypes that this instance serves: any for a tensor that no kernel takes, and for one that is None the one
    that its pointer is of.
    """
    if instance.exact:
        arguments = {a.name for a in declaration.arguments}
        known = dict(zip(declaration.tensors, instance.dtypes, strict=True))
        codes = [DTYPE_CODES.get(d, NONE) if n in arguments else ANY for n, d in known.items()]
        return (ctypes.c_int8 * max(1, len(codes)))(*codes)
    slots = {v: declaration.aliases.get(n, n) for v, n in enumerate(declaration.values)}
    pointers = {slots[v]: t[:-1] for parameters in instance.body.parameters for v, t in parameters if t.endswith("*")}
    codes = []
    for name, dtype in zip(declaration.tensors, instance.dtypes, strict=True):
        served = dtype or dtype_of(pointers.get(name, "void"))
        codes.append(DTYPE_CODES.get(served, NONE) if name in pointers and served else ANY)
    return (ctypes.c_int8 * max(1, len(codes)))(*codes)


def _numbers(numbers: Sequence[int | float]) -> ctypes.Array:
    values = (structures.Value(f=n) if isinstance(n, float) else structures.Value(i=n) for n in numbers)
    return (structures.Value * max(1, len(numbers)))(*values)


def _load(path: str) -> ctypes.CDLL:
    """A shared object, its names kept to itself. It stays in the process: compiled callers may hold its code."""
    try:
        with Arithmetic():
            return ctypes.CDLL(path)
    except OSError as error:
        raise BuildError(f"{path} cannot be loaded: {error}") from None


_MISS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int8), ctypes.c_int32)
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)


def hook_miss(library: ctypes.CDLL, callback: Callable[[tuple[torch.dtype | None, ...]], str | None] | None) -> object:
    """Give a library of ours its `on_miss`; what comes back must be kept alive as long as the library."""

    def missed(codes: object, count: int) -> int:
        try:
            dtypes = tuple(_DTYPES.get(codes[i]) for i in range(count))  # type: ignore[index]
            message = callback(dtypes)  # type: ignore[misc]
        except BaseException as error:  # it cannot cross C; its text becomes the caller's
            message = str(error) or type(error).__name__
        if message is None:
            return 0
        library.wb_set_message(message.encode())
        return 1

    kept = _MISS(missed) if callback else _MISS()
    library.wb_hook_miss(kept)
    return kept


class Launcher:
    """A loaded launcher. Its kernels are torch's from `register` to `unregister`; until `install` every call raises.
    One for a GPU is handed the driver: ToolchainError where there is none.

    >>> launcher = Launcher(build.path)
    >>> launcher.install(descriptor(declaration, instances))
    >>> launcher.register()
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = _load(path)
        self._library.wb_register.restype = self._library.wb_unregister.restype = ctypes.c_char_p
        self._library.wb_set.argtypes = (ctypes.c_void_p,)
        self._library.wb_set_message.argtypes = (ctypes.c_char_p,)
        self._library.wb_copied.restype = ctypes.c_uint64
        if hasattr(self._library, "wb_hook_driver"):
            self._library.wb_hook_driver(ctypes.byref(driver.table()))
        self._installed: list[Descriptor] = []  # all of them: a call may still be reading one
        self._callbacks: list[object] = []

    def register(self) -> None:
        """Hand the kernels to torch; once more is no harm. BuildError with torch's reason if it refuses."""
        self._said(self._library.wb_register())

    def unregister(self) -> None:
        """Take them back: torch goes on with what it had before."""
        self._said(self._library.wb_unregister())

    def _said(self, message: bytes | None) -> None:
        if message:
            raise BuildError(f"{self.path}: {message.decode(errors='replace')}")

    def install(self, new: Descriptor) -> None:
        """Use these kernels and numbers from the next call on."""
        self._installed.append(new)
        self._library.wb_set(new.address)

    def copied(self) -> tuple[int, ...]:
        """Positions of the arguments that were made contiguous since this was last asked."""
        mask = self._library.wb_copied()
        return tuple(i for i in range(64) if mask >> i & 1)

    @property
    def installed(self) -> Descriptor | None:
        return self._installed[-1] if self._installed else None

    def on_miss(self, callback: Callable[[tuple[torch.dtype | None, ...]], str | None] | None) -> None:
        """What to do when dtypes arrive that no instance is for.

        `callback` gets the dtypes of all tensors in the declaration's order and returns None once a descriptor that
        has them is installed, or the message to raise. It runs inside the call, with torch's state of that call.
        """
        self._callbacks.append(hook_miss(self._library, callback))

    def allocate_with(self, callback: Callable[[int], int] | None) -> None:
        """Let `callback(bytes)` give the address of every output and workspace; None: torch allocates again.

        The memory stays the callback's: it must outlive the tensors.
        """
        kept = _ALLOCATE(callback) if callback else _ALLOCATE()
        self._callbacks.append(kept)
        self._library.wb_hook_allocate(kept)
