"""Kernels once more under ncu, with a stand-in for ncu and the worker on the CPU: what is sent, read and said."""

import stat
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import NORM, NORM_BACKWARD, SCALE
from workbench.judge import replay
from workbench.measure import profile_counters
from workbench.reports.profiling import ProfileRow

sys.path.insert(0, str(Path(__file__).parent / "measure"))
import counted

ROWS = (
    ProfileRow("norm", "kernel", "forward", 1, 41.2, 41.2, 1.0),
    ProfileRow("backward", "kernel", "backward", 1, 9.0, 9.0, 1.0),
)


@pytest.fixture(autouse=True)
def untold():
    replay._closed.clear()
    yield
    replay._closed.clear()


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """`ncu(text)` puts a program in ncu's place that runs what it is given and then writes `text` into the log."""
    program = tmp_path / "ncu"

    def write(text):
        (tmp_path / "text").write_text(text)
        program.write_text(
            "#!/bin/sh\n"
            f'echo "$@" > {tmp_path}/asked\n'
            'while [ "$1" != --log-file ]; do shift; done; log="$2"\n'
            f'while [ "$1" != "{sys.executable}" ]; do shift; done\n'
            f'"$@"; cp {tmp_path}/text "$log"\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return tmp_path

    monkeypatch.setattr(profile_counters, "program", lambda: str(program) if program.exists() else "")
    return write


@pytest.fixture
def norm(namespace):
    @wb.op(f"{namespace}::norm", returns="y", saves="rstd")
    def norm(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    @norm.cases
    def _(t):
        yield t(4, 16), t(16)

    wb.cpp(norm, NORM)
    return norm


def case(op):
    return op.case_list()[0]


def test_the_job_is_a_forward_and_a_backward_on_what_it_gives(norm, namespace):
    wb.cpp(f"{namespace}::norm.backward", NORM_BACKWARD)
    work = replay.job(norm, case(norm), "cpu")
    forward, backward = work.steps
    assert (forward.op, backward.op) == (f"{namespace}::norm_forward", f"{namespace}::norm_backward")
    rstd = norm.forward_op(*case(norm).args)[1]
    assert any(isinstance(a, torch.Tensor) and a.shape == (4,) and torch.equal(a, rstd) for a in backward.args)
    assert [m.shape for m in backward.layout] == [(4, 16), (16,)]


def test_the_job_runs_as_it_is_sent(norm, namespace):
    from workbench.judge import partners

    wb.cpp(f"{namespace}::norm.backward", NORM_BACKWARD)
    answer = partners.worker_of(norm.runs("forward", "cpu").kernel).run(replay.job(norm, case(norm), "cpu"), 30)
    assert [r.status for r in answer.results] == ["ok", "ok"]


@pytest.mark.slow
def test_what_ncu_counts_comes_back(ncu, norm):
    folder = ncu(counted.raw("norm(float const*)", "norm(float const*)"))
    found, notes = replay.count(norm, case(norm), ROWS, "cpu")
    assert ([c.kernel for c in found], notes) == (["norm"], ())
    assert found[0].occupancy == pytest.approx(0.732)
    assert "regex:^(backward|norm)$" in (folder / "asked").read_text()


@pytest.mark.slow
def test_without_permission_it_says_so_once_and_goes_on(ncu, norm):
    ncu(counted.CLOSED)
    assert replay.count(norm, case(norm), ROWS, "cpu") == ((), (profile_counters.REFUSED,))
    ncu(counted.raw("norm"))  # it is not asked again
    assert replay.count(norm, case(norm), ROWS, "cpu") == ((), (profile_counters.REFUSED,))


@pytest.mark.slow
def test_a_log_without_anything_is_told(ncu, norm):
    ncu("")
    found, (note,) = replay.count(norm, case(norm), ROWS, "cpu")
    assert found == () and note.startswith("the GPU's counters were not read: ncu wrote nothing")


def test_an_ncu_that_does_not_start_is_told(ncu, norm, monkeypatch):
    monkeypatch.setattr(profile_counters, "program", lambda: "/bin/false")
    found, (note,) = replay.count(norm, case(norm), ROWS, "cpu")
    assert found == () and "false does not start the trial worker" in note


def test_where_ncu_is_not_here_a_note_says_what_to_install(norm, monkeypatch):
    monkeypatch.setattr(profile_counters, "program", lambda: "")
    assert replay.count(norm, case(norm), ROWS, "cpu") == ((), (profile_counters.MISSING,))


def test_a_reference_is_not_sent_anywhere(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    @scale.cases
    def _(t):
        yield t(4)

    assert replay.count(scale, case(scale), ROWS, "cpu") == ((), ())
    wb.cpp(scale, SCALE)
    assert replay.count(scale, case(scale), ROWS) == ((), ())  # no kernel for a GPU
    if not torch.cuda.is_available():
        assert replay.counting(scale) is None
