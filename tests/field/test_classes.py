"""What people met with custom C++ classes (field report F50)."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from tests.test_classes import X, text


@pytest.mark.slow
def test_f50_an_object_under_compile_and_autocast_runs_or_says_what_to_write():
    """Torch stops at a FakeScriptObject deep inside; without `__obj_flatten__` the cell and the call say what is missing."""
    wb.cpp(None, text("f50"))
    counted = wb.ops["f50::counted"]
    counted.fake(lambda x, state: torch.empty_like(x))
    state = torch.classes.f50.Counter(1)

    def call(x):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.ops.f50.counted(x, state)

    wanted = call(X)
    assert torch.equal(torch.compile(call, backend="aot_eager", fullgraph=True)(X), wanted)
    torch._dynamo.reset()
    wb.cpp(None, text("f50", flattens=""))
    state = torch.classes.f50.Counter(1)
    with pytest.raises(Exception, match=r"f50::Counter has no __obj_flatten__, so torch\.compile and torch\.export"):
        torch.compile(call, backend="aot_eager", fullgraph=True)(X)
