"""A cell of the full tier that fills a slot: a function on torch::Tensor, built as torch builds extensions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..build import architectures, extension, full, host, undefined
from ..build.flags import absolute, links
from ..errors import BuildError, Diagnostic, SchemaError
from ..schema import Schema
from ..source import Function, Source
from ..trial.protocol import Library
from .base import Dtypes
from .choose import Tier
from .host import HostKernel
from .loaded import Loaded


@dataclass(frozen=True)
class FullModule:
    """A library of the full tier that registers itself."""

    path: str
    layout: bool = False

    @property
    def code(self) -> tuple[str, ...]:
        return (self.path,)

    def load(self, allocate: Callable[[int], int]) -> object:
        return loaded(self.path, self.layout).register()


def loaded(path: str, layout: bool) -> Loaded:
    """Such a library in this process; `layout`: it asks for the reference's strides at every call."""
    try:
        made = Loaded(path)
    except BuildError as error:
        raise BuildError(f"the library does not load into this torch: {undefined.load_error(str(error))}") from None
    made._library.wb_ask_layout.argtypes = (ctypes.c_int,)
    made._library.wb_ask_layout(int(layout))
    return made


class FullKernel(HostKernel):
    """A function that takes at::Tensor: everything that load_inline takes, at the price of torch's headers.

    >>> FullKernel(source, op.schema, "forward", found, because=tier(source, found)).build([])
    """

    tier = "full"

    def __init__(
        self,
        source: Source,
        schema: Schema,
        slot: str,
        found: Sequence[Function],
        *,
        because: Tier,
        function: str = "",
        floating: Sequence[str] | None = None,
    ) -> None:
        super().__init__(source, schema, slot, found, function=function, floating=floating)
        self.because = because.because
        self._after = self.text()  # SchemaError now, before anything is compiled

    def text(self, room: host.Room = host.CPU) -> str:
        """What stands behind the cell's own text."""
        if self._launched:
            return full.thunk(self.source, self.declaration, self.function)
        return full.render(
            self.source, self.schema, self.declaration, self.function, gradients=self._floating, key=self.key
        )

    def build(self, combinations: Sequence[Dtypes]) -> list[SchemaError | None]:
        if self._build is None or not self._build.there:
            words = absolute(self.declaration.flags, self.source.path)
            own = [w for w in words if not links(w)]
            self._build = extension.build(
                [self.source],
                name=f"wb_{self.schema.namespace}_{self.schema.name}",
                extra_cflags=own if self.source.language == "cpp" else (),
                extra_cuda_cflags=architectures.exact(own) if self.source.language == "cuda" else (),
                extra_ldflags=[w for w in words if links(w) or w.startswith("-fopenmp")],
                macros=full.MACROS,
                after=self._after,
            )
        if self._launched:
            self._build_launcher()
        self._tried |= {tuple(c.items()) for c in combinations}
        return [None] * len(combinations)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        notes = (
            Diagnostic(
                self.source.file, line, 0, "note", f"{block} is left out: this cell fills {self.schema.qualname}"
            )
            for line, block in full.left_out(self.source)
        )
        return (*super().diagnostics, *notes)

    def launch(self) -> Library:
        return super().launch() if self._launched else FullModule(self._built.path, self.layout)

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        if self._launched:
            super().install(on_miss)
            return
        made = loaded(self._built.path, self.layout)
        made.on_miss(lambda codes: self._arrived(codes, on_miss))
        self._loaded = made.register()
