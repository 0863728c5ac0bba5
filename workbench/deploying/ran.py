"""The deployed model run as its users will, in a new Python and in C++ without Python, and held against eager."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ..build import process
from ..reports.deploying import Ran

LIMIT_S = 300.0
# As torch.testing.assert_close has it: Inductor fuses what stands around an op, which rounds otherwise.
RELATIVE = {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float32: 1.3e-6, torch.float64: 1e-7}
ABSOLUTE = {torch.float64: 1e-7}
# Python has loaded torch's C++ library by then, which a program of the same compiler has not.
OTHER_LIBRARY = (
    "; any model of torch's dies so in Python where the compiler links a C++ library of its own into it: "
    "name another one, as CXX=/usr/bin/g++, before Python starts"
)


def compared(run: Ran, got: Sequence[Tensor], wanted: Sequence[Tensor]) -> Ran:
    """`run` with what its outputs are beside eager's.

    >>> compared(Ran("Python", "example"), [x], [x]).equal
    1
    """
    if len(got) != len(wanted):
        return replace(run, problem=f"{len(got)} outputs, eager has {len(wanted)}")
    equal, worst, problem = 0, 0.0, ""
    for number, (x, y) in enumerate(zip(got, wanted, strict=True)):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            problem = problem or f"output {number} is {_form(x)}, eager's {_form(y)}"
            continue
        if torch.equal(x, y):
            equal += 1
            continue
        worst = max(worst, float((x.double() - y.double()).abs().max()))
        close = {
            "rtol": RELATIVE.get(y.dtype, 0.0),
            "atol": ABSOLUTE.get(y.dtype, 1e-5) if y.is_floating_point() else 0.0,
        }
        if not torch.allclose(x.double(), y.double(), equal_nan=True, **close):
            problem = problem or f"output {number} differs from eager's by up to {worst:.3g}"
    return replace(run, outputs=len(wanted), equal=equal, worst=worst, problem=problem)


def in_python(folder: Path, on: str, inputs: Path, wanted: Sequence[Tensor], temporary: Path) -> Ran:
    """`run.py`, in a process that has torch alone."""
    out, run = temporary / "outputs.pt", Ran("Python", on)
    out.unlink(missing_ok=True)
    done = _run([sys.executable, str(folder / "run.py"), str(inputs), str(out)], temporary)
    if isinstance(done, str):
        return replace(run, problem=done)
    if done.code or not out.exists():
        return replace(run, problem=_last(done) + (OTHER_LIBRARY if done.signal else ""))
    return compared(run, torch.load(out, weights_only=True), [x.cpu() for x in wanted])


def in_cpp(folder: Path, on: str, inputs: Path, outputs: Path, wanted: Sequence[Tensor], temporary: Path) -> Ran:
    """The C++ program, which compares by itself and says of each output what it found."""
    run = Ran("C++", on, outputs=len(wanted))
    done = _run([str(folder / "bin" / "run"), str(folder), str(inputs), str(outputs)], temporary)
    if isinstance(done, str) or done.code not in (0, 1):
        return replace(run, problem=done if isinstance(done, str) else _last(done))
    far = [float(x) for x in re.findall(r"^output \d+ differs (\S+)$", done.log, re.MULTILINE)]
    took = re.search(r"^microseconds (\S+)$", done.log, re.MULTILINE)
    run = replace(
        run, equal=len(re.findall(r"^output \d+ equal$", done.log, re.MULTILINE)), worst=max(far, default=0.0),
        microseconds=float(took[1]) if took else 0.0,
    )  # fmt: skip
    return replace(run, problem=f"differs from eager's by up to {run.worst:.3g}") if done.code else run


def _run(command: list[str], temporary: Path) -> process.Finished | str:
    try:
        return process.run(command, cwd=str(temporary), temporary=str(temporary), limit_s=LIMIT_S)
    except TimeoutError as error:
        return str(error)


def _last(done: process.Finished) -> str:
    """What it said last, and the signal that ended it."""
    lines = [line for line in done.log.splitlines() if line.strip()]
    return (lines[-1] if lines else f"it said nothing and left with {done.code}") + (
        f" ({done.signal})" if done.signal else ""
    )


def _form(x: Tensor) -> str:
    return f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"
