"""A shared object whose library blocks can be taken back: see `reload.h`. ctypes alone; it is never unloaded."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from ..errors import BuildError
from . import undefined

MACROS, MACROS_PYTHON = "reload.h", "reload_python.h"
EXPORTS = '#include "reload_exports.h"'


@dataclass(frozen=True)
class Block:
    """`TORCH_LIBRARY_IMPL(lab, CPU, m)` on line 9 is Block("impl", "lab", "CPU", 9, "cell [3]").

    `kind` is def, fragment, impl or pybind; `key` is "" for all but impl.
    """

    kind: str
    namespace: str
    key: str
    line: int
    file: str = ""


@dataclass(frozen=True)
class Class:
    """A custom class, `name` "lab::State", with its methods: how many arguments each takes beside the object."""

    name: str
    methods: dict[str, int]

    @property
    def flattens(self) -> bool:
        return "__obj_flatten__" in self.methods

    @property
    def pickles(self) -> bool:
        return "__getstate__" in self.methods


class Reloadable:
    """Such an object in this process. Its blocks run at `register`.

    >>> new = Reloadable(build.path)
    >>> new.replace(old)          # in one go: no thread of Python finds a name missing in between

    Raises BuildError for one that this torch cannot load. A static initialiser that throws ends the process, so an
    object is loaded in the trial worker first.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._library = ctypes.PyDLL(path)  # its functions run under Python's lock
        except OSError as error:
            raise BuildError(f"the library does not load into this torch: {undefined.load_error(str(error))}") from None
        for name in ("wb_register", "wb_unregister", "wb_replace", "wb_blocks", "wb_classes"):
            getattr(self._library, name).restype = ctypes.c_char_p
        self._library.wb_replace.argtypes = (ctypes.c_void_p, ctypes.c_void_p)

    def blocks(self) -> tuple[Block, ...]:
        """Its blocks as the compiler saw them, macros in their names replaced."""
        rows = [row.split("\t") for row in self._library.wb_blocks().decode(errors="replace").splitlines()]
        return tuple(Block(kind, namespace, key, int(line), file) for kind, namespace, key, file, line in rows)

    def classes(self) -> tuple[Class, ...]:
        """The custom classes that its blocks registered, once they ran."""
        found: dict[str, dict[str, int]] = {}
        for row in self._library.wb_classes().decode(errors="replace").splitlines():
            namespace, name, method, count = row.split("\t")
            methods = found.setdefault(f"{namespace}::{name}", {})
            if method:
                methods[method] = int(count)
        return tuple(Class(name, methods) for name, methods in found.items())

    def register(self) -> None:
        """Run its blocks. BuildError, on the line of the block, if torch refuses one; then none of them stands."""
        _said(self._library.wb_register())

    def unregister(self) -> None:
        self._library.wb_unregister()

    def replace(self, former: Reloadable | None) -> None:
        """Run its blocks in place of those of `former`, which stand again if torch refuses ours (BuildError)."""
        if former is None:
            return self.register()
        addresses = [
            ctypes.cast(getattr(former._library, n), ctypes.c_void_p) for n in ("wb_unregister", "wb_register")
        ]
        return _said(self._library.wb_replace(*addresses))


def _said(message: bytes | None) -> None:
    if message:
        file, line, what = message.decode(errors="replace").split("\t", 2)
        raise BuildError(f"torch refuses this block: {what.strip()}", line=int(line), file=file)
