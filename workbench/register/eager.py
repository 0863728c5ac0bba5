"""Python below torch's dispatcher runs as it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Function = TypeVar("Function", bound=Callable)


def eager(function: Function) -> Function:
    """`function`, which Dynamo leaves alone, with all that it calls.

    After a graph break Dynamo looks at each Python frame that runs, also at those of a kernel that torch's dispatcher
    has called: it would compile a reference by pieces, and fail in Triton's interpreter. As `torch._dynamo.disable`,
    without a wrapper in the way of each call, and without importing `torch._dynamo`.
    """
    dynamo = torch._C._dynamo.eval_frame
    skip = dynamo._FrameAction.SKIP
    dynamo.set_code_exec_strategy(function.__code__, dynamo._FrameExecStrategy(skip, skip))
    return function
