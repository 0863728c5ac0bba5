"""Compiled launchers and bodies in this process: loading, registering, and the descriptor that ties them together.

The structures here are those of `launcher.h`. A descriptor is made once and never changed; `install` is one atomic
store, so a call that is under way finishes with the kernels it began with.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..directives import Declaration
from ..errors import BuildError
from .body import Body
from .ctypes_cpp import CODES, DTYPE_CODES, dtype_of
from .statements_cpp import statement_text

NONE, ANY = -1, -2  # no_dtype and any_dtype of launcher.h
_DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}


class _Value(ctypes.Union):
    _fields_ = (("i", ctypes.c_int64), ("f", ctypes.c_double), ("p", ctypes.c_void_p))


class _Parameter(ctypes.Structure):
    _fields_ = (("value", ctypes.c_int32), ("type", ctypes.c_int32))


class _Function(ctypes.Structure):
    _fields_ = (("entry", ctypes.c_void_p), ("name", ctypes.c_char_p), ("parameter_count", ctypes.c_int64),
                ("parameters", ctypes.POINTER(_Parameter)))  # fmt: skip


class _Instance(ctypes.Structure):
    _fields_ = (("dtypes", ctypes.POINTER(ctypes.c_int8)), ("functions", ctypes.POINTER(_Function)))


class _Text(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("line", ctypes.c_int64))


class _Descriptor(ctypes.Structure):
    _fields_ = (
        ("layout", ctypes.c_int64),
        ("handles", ctypes.c_int64),
        ("instance_count", ctypes.c_int64),
        ("instances", ctypes.POINTER(_Instance)),
        ("function_count", ctypes.c_int64),
        ("literals", ctypes.POINTER(_Value)),
        ("tuned", ctypes.POINTER(_Value)),
        ("statements", ctypes.POINTER(_Text)),
    )


@dataclass(frozen=True)
class Instance:
    """A compiled body: for which dtypes (of all tensors in the declaration's order, None where one is None)."""

    dtypes: tuple[torch.dtype | None, ...]
    library: str  # path of the body's shared object
    body: Body


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
) -> Descriptor:
    """Tie compiled bodies, numbers and texts to a launcher.

    >>> launcher.install(descriptor(declaration, [Instance(dtypes, build.path, body)], layout=False))

    `layout`: ask `wb_layout::...` for the strides of outputs at every call, not only when an argument is not
    contiguous. `handles`: the functions take tensors, not pointers: 1 as they come, 2 contiguous ones. `tuned` are
    values of tuned names other than the first. BuildError if a library cannot be loaded.
    """
    kept: list[object] = []
    table = (_Instance * max(1, len(instances)))()
    for row, instance in zip(table, instances, strict=False):
        functions, codes = _functions(declaration, instance, kept), _codes(declaration, instance)
        row.functions, row.dtypes = functions, codes
        kept += [functions, codes]
    values = [(tuned or {}).get(t.name, t.values[0]) for t in declaration.tunes.values()]
    literals, tunes = _numbers(declaration.literals), _numbers(values)
    texts = (_Text * max(1, len(declaration.statements)))()
    for row, statement in zip(texts, declaration.statements, strict=False):
        row.text, row.line = statement_text(statement).encode(), statement.line
    count = len(declaration.functions)
    whole = _Descriptor(int(layout), int(handles), len(instances), table, count, literals, tunes, texts)
    return Descriptor(ctypes.addressof(whole), (whole, table, literals, tunes, texts, *kept))


def _functions(declaration: Declaration, instance: Instance, kept: list[object]) -> ctypes.Array:
    library = _load(instance.library)
    functions = (_Function * len(declaration.functions))()
    rows = zip(functions, declaration.functions, instance.body.symbols, instance.body.parameters, strict=True)
    for row, function, symbol, parameters in rows:
        codes = (_Parameter(v, CODES.index("pointer" if t.endswith("*") else t)) for v, t in parameters)
        coded = (_Parameter * max(1, len(parameters)))(*codes)
        kept.append(coded)
        try:
            row.entry = ctypes.cast(library[symbol], ctypes.c_void_p)
        except AttributeError:
            raise BuildError(f"{instance.library} has no function {symbol}") from None
        row.name, row.parameter_count, row.parameters = function.name.encode(), len(parameters), coded
    return functions


def _codes(declaration: Declaration, instance: Instance) -> ctypes.Array:
    """The dtypes that this instance serves: any for a tensor that no kernel takes, and for one that is None the one
    that its pointer is of.
    """
    slots = {v: declaration.aliases.get(n, n) for v, n in enumerate(declaration.values)}
    pointers = {slots[v]: t[:-1] for parameters in instance.body.parameters for v, t in parameters if t.endswith("*")}
    codes = []
    for name, dtype in zip(declaration.tensors, instance.dtypes, strict=True):
        served = dtype or dtype_of(pointers.get(name, "void"))
        codes.append(DTYPE_CODES.get(served, NONE) if name in pointers and served else ANY)
    return (ctypes.c_int8 * max(1, len(codes)))(*codes)


def _numbers(numbers: Sequence[int | float]) -> ctypes.Array:
    return (_Value * max(1, len(numbers)))(*(_Value(f=n) if isinstance(n, float) else _Value(i=n) for n in numbers))


def _load(path: str) -> ctypes.CDLL:
    """A shared object, its names kept to itself. It stays in the process: compiled callers may hold its code."""
    try:
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
