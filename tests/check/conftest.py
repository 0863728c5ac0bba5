"""An op as the checks see it, made with `torch.library.custom_op`, so that each thing can be got wrong alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
import torch

from workbench import schema
from workbench.case import make


class StandIn:
    """Called like the op; every part can be another one than the reference's."""

    def __init__(self, kernel: Callable, reference: Callable | None, cases: Callable, **options: object) -> None:
        name = f"standin::f{uuid.uuid4().hex[:10]}"
        mutates = options.get("mutates", ())
        self.reference = reference
        self.schema = schema.from_function(
            reference or kernel, name, mutates=mutates, returns=options.get("returns", ())
        )
        self.qualname = self.schema.qualname
        self.random = options.get("random", False)
        self.compare_function = options.get("compare")
        self.custom = torch.library.custom_op(name, kernel, mutates_args=mutates)
        self.custom.register_fake(options.get("fake") or reference or kernel)
        self.differentiable = "backward" in options
        if self.differentiable:
            self.custom.register_autograd(options["backward"], setup_context=options.get("setup_context", save_all))
        self.torch_op = self.custom._opoverload
        self._cases = make(cases, self.schema, options.get("dtypes", (torch.float32,)))

    def case_list(self) -> tuple:
        return tuple(c for c in self._cases if not c.bench)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.torch_op(*args, **kwargs)


def save_all(ctx, inputs, output) -> None:
    ctx.save_for_backward(*[x for x in inputs if isinstance(x, torch.Tensor)])


@pytest.fixture
def standin() -> type[StandIn]:
    return StandIn
