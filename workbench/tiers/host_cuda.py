"""A host cell in CUDA: functions on `Tensor` that launch the kernels beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..build import cuda_launches, cuda_slips, cuda_split, host_cuda, host_kernels, native, store
from ..build.resources import Resources
from ..build.result import Build
from ..errors import Diagnostic, SchemaError
from ..schema import Schema
from ..source import Function, Source
from ..trial import Launch
from ..trial.protocol import Library
from .host import HostKernel
from .loaded import Loaded
from .on_gpu import OnGpu


@dataclass(frozen=True)
class Kernels:
    """The kernels of a host half: its own path, the cubin ("" where nvcc compiled the whole), {stub: symbol}."""

    host: str
    cubin: str = ""
    symbols: Mapping[str, str] = field(default_factory=dict)

    def hand_over(self) -> None:
        """Tie them together in this process."""
        host_kernels.hand_over(native._load(self.host), self.cubin, self.symbols)


@dataclass(frozen=True)
class CudaModule:
    """A library that registers itself, with its kernels, for the worker."""

    kernels: Kernels
    layout: bool = False

    def load(self, allocate: Callable[[int], int]) -> object:
        self.kernels.hand_over()
        return Loaded(self.kernels.host).ask_layout(self.layout).register()


@dataclass(frozen=True)
class CudaLaunch(Launch):
    """A launcher for a void function, whose own kernels it ties to it first."""

    kernels: Kernels | None = None

    def load(self, allocate: Callable[[int], int]) -> object:
        assert self.kernels is not None
        self.kernels.hand_over()
        return super().load(allocate)


class HostCudaKernel(OnGpu, HostKernel):
    """A function that takes `Tensor`s and launches kernels of the same cell.

    >>> kernel = HostCudaKernel(source, op.schema, "forward", found)
    >>> kernel.build([])
    >>> kernel.because
    'Tensor in the signature of scale'

    Its two halves are built apart, so that an edit builds one. Where they cannot be told apart nvcc builds the whole,
    and `because` says why.
    """

    def __init__(
        self, source: Source, schema: Schema, slot: str, found: Sequence[Function], *, function: str = "",
        floating: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(source, schema, slot, _of_the_host(found, source), function=function, floating=floating)
        self.built: host_cuda.Built | None = None
        self.text()  # SchemaError now, on the user's lines, before anything is compiled

    @cached_property
    def parts(self) -> cuda_split.Halves | cuda_split.Whole:
        """The text as two halves, or why it cannot be parted."""
        return cuda_split.split(self.source)

    # ------------------------------------------------------------ build

    def _build_text(self) -> None:
        if self.built is not None and self._build is not None and self._build.there:
            return
        folders = (self.source.path,) if self.source.path else ()
        cell = host_cuda.Cell(
            self.source, self.text, self.function.line, self.arch, tuple(self.declaration.flags), folders, self.key
        )
        self.built = host_cuda.build(self.parts, cell)
        self._build = self.built.host
        if self.built.because:
            self.because = f"{self.because}; nvcc: {self.built.because}"

    @property
    def _builds(self) -> list[Build]:
        device = self.built.device if self.built else None
        return [*super()._builds, *([device] if device else [])]

    @property
    def digest(self) -> str:
        symbols = sorted(self.built.kernels.items()) if self.built else []
        return store.key({"host": super().digest, "arch": self.arch, "kernels": symbols})

    @property
    def resources(self) -> tuple[Resources, ...]:
        return self.built.resources if self.built else ()

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The compilers' warnings, launches on the default stream, and why nvcc had to compile the whole."""
        said = [d for b in (self.built.builds if self.built else ()) for d in b.diagnostics]
        said += (*cuda_launches.lint(self.source, "host"), *cuda_slips.lint(self.source))
        if self.built and self.built.because:
            whole = f"nvcc compiled the whole cell, for {self.built.because}: without it an edit takes a second"
            said.append(Diagnostic(self.source.file, 0, 0, "warning", whole))
        return tuple(dict.fromkeys(said))

    # ------------------------------------------------------------ run

    @property
    def kernels(self) -> Kernels:
        """What the built halves are to each other."""
        assert self.built is not None, "build comes before launch and install"
        device = self.built.device
        return Kernels(self.built.host.path, device.path if device else "", dict(self.built.kernels))

    def launch(self) -> Library:
        if not self._launched:
            return CudaModule(self.kernels, self.layout)
        return CudaLaunch(
            self._launcher_built.path, self.declaration, (self._instance(),), self.layout, self._handles, self.kernels
        )

    def shares_launcher(self, other: object) -> bool:
        """After an edit of the device half alone the host half that is installed launches other kernels."""
        if not isinstance(other, HostCudaKernel) or self.built is None or other.built is None or self._launched:
            return False
        return self.built.host.path == other.built.host.path

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        """See `HostKernel.install`; a kernel that cannot run here is given to no one."""
        if self.unrunnable:
            return
        self.kernels.hand_over()
        super().install(on_miss)


def _of_the_host(found: Sequence[Function], source: Source) -> list[Function]:
    """The functions that a CPU can call."""
    mine = [f for f in found if not f.is_global and not f.is_device]
    if not mine:
        raise SchemaError("the cell has no function on Tensor", line=source.first_line, file=source.file)
    return mine


__all__ = ["CudaLaunch", "CudaModule", "HostCudaKernel", "Kernels"]
