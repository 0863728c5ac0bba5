"""Ways to kill, hang or spoil a process, as cells: none of them is installed, and all else goes on.

After each the notebook lives, the op's former version answers, and the error names the fault, the case and, where that
can be told, the line. `survival.py` has the cells.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.survival import ROGUES, Rogue
from workbench import toolchain
from workbench.judge import examine
from workbench.trial import worker

GOOD = Rogue("", "", "")
TIMES = 20
LINES = bool(shutil.which("addr2line")) and os.uname().machine == "x86_64"
SLOW = {"all memory"}  # some seconds each
IN_OTHER_TIERS = ("null pointer", "abort", "exit", "noexcept", "stack overflow", "write far past an output", "loop",
                  "thread that spins", "chdir", "flush to zero", "initialiser that crashes", "destructor that crashes")  # fmt: skip


@contextlib.contextmanager
def doubling(tier: str):
    """`survive_TIER::twice`, with a good version of that tier in its slot."""
    live.gone(f"survive_{tier}::twice")

    @wb.op(f"survive_{tier}::twice")
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.cases
    def _(t):
        yield t(4, 8)
        yield wb.case("odd", t(5, 3))

    wb.cpp(twice, getattr(GOOD, tier)()[0])
    yield twice
    live.gone(twice.qualname)


@pytest.fixture(scope="module")
def installed():
    with doubling("raw") as op:
        yield op


@pytest.fixture
def raw(installed):
    """With its first version in its slot, also where the test before this one was installed against all rules."""
    return whole(installed)


def whole(op: wb.Op) -> wb.Op:
    if op.runs("forward", "cpu").number != 1:
        op.restore(1)
    return op


@pytest.fixture
def endless_stack():
    """`ulimit -s unlimited`, as clusters have it, for the workers that are started from here on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if hard != resource.RLIM_INFINITY:
        pytest.skip("the limit of the stack may not be raised here")
    worker().close()
    resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
    worker().close()


def survives(op: wb.Op, rogue: Rogue, tier: str, monkeypatch, *, limit_s: float = 0.0) -> None:
    """One attempt: refused with the right words, and the former version answers."""
    text, line = getattr(rogue, tier)()
    monkeypatch.setattr(examine, "LIMIT_S", limit_s or rogue.limit_s or 20.0)
    with pytest.raises(wb.TrialError) as caught:
        wb.cpp(op, text)
    error = caught.value
    assert error.kind == rogue.kind, error
    assert rogue.says.replace("within 0.5 s", "within") in str(error).replace(
        f"within {examine.LIMIT_S:g} s", "within"
    ), error
    assert error.case in {"4x8", "odd"} and f"on {error.case} float32" in str(error)
    if rogue.line and LINES and tier != "full" and not limit_s:  # with so little time it may not get that far
        assert f"line {line}: " in str(error), error
    assert "twice forward still runs v1" in str(error)
    assert op.runs("forward", "cpu").number == 1
    x = torch.arange(7.0) - 3
    assert torch.equal(op(x), 2 * x)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in ROGUES])
def test_one_way_to_die(raw, name, monkeypatch):
    directory, arithmetic = os.getcwd(), torch.tensor([1e-40]).add(0).item()
    survives(raw, ROGUES[name], "raw", monkeypatch)
    assert os.getcwd() == directory and arithmetic > 0 and torch.tensor([1e-40]).add(0).item() == arithmetic


def test_a_failure_stays_one_failure(installed, raw):
    """What was installed by mistake is not what the next test begins with."""
    wb.cpp(raw, GOOD.raw()[0].replace("2 * x[i]", "x[i] + x[i]"))
    assert raw.runs("forward", "cpu").number != 1
    assert whole(installed).runs("forward", "cpu").number == 1


@pytest.mark.parametrize("name", ["stack overflow", "large array"])
def test_the_stack_has_an_end_though_that_of_the_notebook_has_none(raw, endless_stack, name, monkeypatch):
    survives(raw, ROGUES[name], "raw", monkeypatch)
    with open(f"/proc/{worker().pid}/limits") as file:
        limit = next(line.split()[3] for line in file if line.startswith("Max stack size"))
    assert limit == str(8 << 20)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_way_twenty_times_in_one_process(raw, monkeypatch):
    """No death, no hang, and the former version answers each time: 73 ways are 1,460 attempts."""
    process = os.getpid()
    worker().warm()
    for name, rogue in ROGUES.items():
        for _ in range(TIMES):
            if name == "all memory":  # less of it, so that it is soon taken
                resource.prlimit(worker().pid, resource.RLIMIT_DATA, (1 << 30, 1 << 30))
            short = "did not end" in rogue.says
            survives(raw, rogue, "raw", monkeypatch, limit_s=0.25 if short else 0.0)
    assert os.getpid() == process and len(ROGUES) == 73
    assert len(raw.versions) >= TIMES * len(ROGUES)


@pytest.mark.parametrize("name", ["null pointer", "chdir"])
def test_on_tensors(name, monkeypatch):
    with doubling("host") as op:
        survives(op, ROGUES[name], "host", monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("tier", ["host", "full"])
def test_in_the_other_tiers(tier, monkeypatch):
    with doubling(tier) as op:
        for name in IN_OTHER_TIERS if tier == "host" else ("exit",):
            for _ in range(2):  # the text is compiled once
                survives(op, ROGUES[name], tier, monkeypatch, limit_s=3.0 if ROGUES[name].kind == "hang" else 0.0)


def test_a_library_that_cannot_be_loaded(raw, tmp_path, monkeypatch):
    """It was there when the cell was linked."""
    compiler = toolchain.compiler().command[0]
    gone = tmp_path / "libwbgone.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", gone], input=b"int gone() { return 1; }", check=True
    )
    text = (
        GOOD.raw()[0]
        .replace("//! out =", f"//! flags -L{tmp_path} -lwbgone\n//! out =")
        .replace("void twice", "int gone();\nvoid twice")
    )
    text = text.replace("out[i] = 2", "out[i] = 2 * gone()")
    monkeypatch.setattr(Path, "exists", Path.exists)
    with pytest.raises(wb.WorkbenchError, match=r"libwbgone\.so") as caught:
        wb.cpp(raw, text)  # no rpath leads there
    assert "twice forward still runs v1" in str(caught.value)
    assert torch.equal(raw(torch.ones(3)), torch.full((3,), 2.0))


def test_fast_math_leaves_denormals_to_the_notebook(raw):
    """g++ before 13 links such a library with code that turns them off for the whole process when it is loaded."""
    text = GOOD.raw()[0].replace("//! out =", "//! flags -ffast-math\n//! out =")
    wb.cpp(raw, text)
    assert raw.runs("forward", "cpu").number != 1
    assert torch.tensor([1e-40]).mul(1.0).item() > 0


def test_what_a_pool_of_threads_leaves_is_no_fault(raw):
    """OpenMP keeps its threads for the next call."""
    text = (
        GOOD.raw()[0]
        .replace("//! out =", "//! flags -fopenmp\n//! out =")
        .replace("  for (", "  #pragma omp parallel for num_threads(3)\n  for (")
    )
    wb.cpp(raw, text)
    x = torch.arange(5.0)
    assert torch.equal(raw(x), 2 * x) and raw.runs("forward", "cpu").number != 1


def test_static_objects_that_end_well_are_no_fault(raw):
    before = "#include <vector>\nstatic std::vector<float> kept; struct End { ~End() { kept.clear(); } } static last;"
    wb.cpp(raw, Rogue("kept.push_back(x[0]);", "", "", before=before).raw()[0])
    assert raw.runs("forward", "cpu").number != 1
