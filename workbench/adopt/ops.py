"""What a cell or a call that defines several ops hands back: its ops by name, whatever the next run makes of them."""

from __future__ import annotations

from ..errors import SchemaError
from ..op import Op
from .extensions import Extension


class Ops:
    """The ops of an extension, and the functions of its Python module that could be none.

    >>> mathops = wb.load_inline("mathops", source, functions=["add_one", "scale"])
    >>> mathops.scale(x, 3.0)

    Held on to, it forwards to the newest build.
    """

    def __init__(self, extension: Extension) -> None:
        self._extension = extension

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self._ops()
        if name in found:
            return found[name]
        value = getattr(self._extension.module, name, None)
        if value is None:
            raise AttributeError(
                f"{self._extension.now.name} defines no {name!r}; it defines {', '.join(dir(self)) or 'nothing'}"
            )
        return value

    def __dir__(self) -> list[str]:
        return sorted({*self._ops(), *self._extension.now.plain})

    def __iter__(self):
        return iter(self._ops().values())

    def __len__(self) -> int:
        return len(self._ops())

    def __repr__(self) -> str:
        made = self._extension.now
        return (
            f"<{made.name}: {', '.join(f'{o.schema}' for o in self)}"
            + ("; " + ", ".join(made.plain) if made.plain else "")
            + ">"
        )

    def _ops(self) -> dict[str, Op]:
        """By name; where two namespaces have the same one, by both: `lab_f`, `other_f`."""
        live = [self._extension.ops[d.name] for d in self._extension.now.ops]
        names = [o.name for o in live]
        return {o.name if names.count(o.name) == 1 else o.qualname.replace("::", "_"): o for o in live}


def handed(extension: Extension) -> Op | Ops:
    """The op, if the extension defines one and no more."""
    made = extension.made
    if made is None:
        raise SchemaError("the extension was never installed")
    return extension.ops[made.ops[0].name] if len(made.ops) == 1 and not made.plain else Ops(extension)
