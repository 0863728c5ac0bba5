"""The build of an extension as the kernel of one op that its blocks define."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from .. import directives
from ..build import store
from ..build.result import Build
from ..errors import Diagnostic, SchemaError
from ..schema import Schema
from ..source import Source
from ..trial.probe import Blocks, Gradient
from .base import Dtypes, Kernel
from .on_gpu import OnGpu


class BlockKernel(Kernel):
    """One build of some sources, with torch's options, defines several ops; each of them has one of these.

    `others` gives the paths of the extensions that share a namespace with it now, `gradient` is how to try the gradient
    that the library brings, if it does. `switch` lets this process run the build.
    """

    tier = "full"
    runs_on = "cpu"
    because = "a TORCH_LIBRARY block"
    defines_itself = True
    left_out = ()
    uses_saved = False

    def __init__(
        self,
        sources: Sequence[Source],
        options: Mapping[str, Sequence[str]],
        schema: Schema,
        build: Build,
        others: Callable[[], Sequence[str]],
        gradient: Gradient | None,
        switch: Callable[[], None],
    ) -> None:
        first = sources[0]
        super().__init__(first, schema, "forward", directives.parse(replace(first, text=""), schema), self.runs_on)
        self.sources, self.options = sources, options
        self.built, self.others, self.gradient, self._switch = build, others, gradient, switch

    @property
    def step_op(self) -> str:
        return self.schema.qualname

    def complete(self, dtypes: Dtypes) -> dict[str, torch.dtype | None]:
        return dict(dtypes)

    def build(self, combinations: Sequence[Dtypes]) -> list[SchemaError | None]:
        return [None] * len(combinations)

    @property
    def digest(self) -> str:
        return store.key(
            {
                "op": str(self.schema),
                "build": self.built.key,
                "others": tuple(self.others()),
                "gradient": bool(self.gradient),
            }
        )

    @property
    def cached(self) -> bool:
        return self.built.cached

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self.built.diagnostics

    def launch(self) -> Blocks:
        return Blocks((*self.others(), self.built.path), (self.gradient,) if self.gradient else ())

    def install(self, on_miss: Callable[[dict], str | None]) -> None:
        self._switch()

    def forget(self, dtypes: Dtypes) -> None:
        """It has one form, for all dtypes."""

    def refresh(self) -> None:
        """So there are no later ones."""

    def remove(self) -> None:
        """Its names go when another build takes their place."""


class BlockCudaKernel(OnGpu, BlockKernel):
    """The same of an extension with CUDA sources: its trial runs on the GPU, and where there is none it has none."""
