"""What a deployment is, as plain data: what was written, how each op gets into it, and what its runs gave."""

from __future__ import annotations

from dataclasses import dataclass

from .report import Report

NATIVE, TRACED, INLINED = "its library", "its reference, compiled into the model", "its Triton kernel, in the model"


@dataclass(frozen=True)
class Ran:
    """One run of the deployed model, held against eager on the same inputs.

    `by` is who ran it ("Python", "C++", "ONNX"), `on` which inputs. `equal` of `outputs` tensors are equal to the last
    bit, `worst` is the largest difference of the others. `problem` says why it did not run, or how it differs too much;
    `skipped` why it was not tried.
    """

    by: str
    on: str
    outputs: int = 0
    equal: int = 0
    worst: float = 0.0
    microseconds: float = 0.0
    problem: str = ""
    skipped: str = ""

    @property
    def ok(self) -> bool:
        """Did it run, and near enough to eager?"""
        return not self.problem


@dataclass(frozen=True)
class Deployed(Report):
    """The outcome of `wb.deploy`: `path` is the folder, `ops` are (name, how it runs), `runs` what was run of it.

    >>> made = wb.deploy(model, torch.randn(8, 64), "norm")
    >>> made.ops, [(run.by, run.ok) for run in made.runs]
    ((('lab::rmsnorm', 'its library'),), [('Python', True), ('C++', True)])

    `seconds` are by step: export, ops, model, program, runs.
    """

    path: str
    name: str
    device: str
    ops: tuple[tuple[str, str], ...]
    runs: tuple[Ran, ...]
    seconds: dict[str, float]
    library: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Did every run do well that was tried?"""
        return all(r.ok for r in self.runs)

    @property
    def rows(self) -> tuple[Ran, ...]:
        """The runs."""
        return self.runs

    def __str__(self) -> str:
        from ..show import deploy_text

        return deploy_text.deployed(self)


__all__ = ["Deployed", "Ran"]
