"""A cell of the full tier that fills a slot: a function on torch::Tensor, built as torch builds extensions."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..build import architectures, extension, full, host, undefined
from ..build.flags import absolute, links
from ..build.host_cures import STABLE
from ..errors import BuildError, Diagnostic, SchemaError
from ..schema import Schema
from ..source import Function, Source, code
from ..trial.protocol import Library
from .base import Dtypes
from .choose import Tier, full_only, line_of
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


_NAMES_TENSOR = re.compile(
    r"\busing\s+(?:namespace\s+(?:torch|at|c10)\b|(?:torch|at)::Tensor\b|Tensor\s*=)|\btypedef\b[^;]*\bTensor\s*;"
    r"|#\s*(?:include\s*\"|define\s+Tensor\b)"
)
_STREAM = "wb::current_stream"


def _check_words(source: Source, function: Function) -> None:
    """SchemaError where a text has words of both tiers: a function on the stable `Tensor` that calls `torch::`, or one
    on `torch::Tensor` with the host tier's stream. A compiler says it after seconds, of another line.
    """
    plain, word = code(source.text), full_only(source)[0]
    spelled = (function.returns, *(p.spelled for p in function.parameters))
    bare = any(re.search(r"(?<!::)\bTensor\b", s) for s in spelled)
    if bare and not function.namespace and not _NAMES_TENSOR.search(plain):
        whole = re.search(rf"{re.escape(word)}(?:::\w+)*", plain)
        word = whole[0] if whole else word
        instead = STABLE.get(word.rpartition("::")[2], "")
        cure = (
            f"write {instead} there, or torch::Tensor here" if instead else "leave it out, or write torch::Tensor here"
        )
        line = source.first_line + line_of(source.text, word.strip("<>"))
        said = f"{function.name} is on Tensor, and {word} (line {line}) is for torch::Tensor: {cure}"
        raise SchemaError(said, line=function.line, file=source.file)
    if source.language == "cuda" and re.search(rf"\b{_STREAM}\b", plain):
        said = f"{_STREAM}() is for functions on Tensor; on torch::Tensor write at::cuda::getCurrentCUDAStream()"
        raise SchemaError(said, line=source.first_line + line_of(source.text, _STREAM), file=source.file)


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
        _check_words(source, self.function)
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
