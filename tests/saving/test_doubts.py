"""What speaks against an op is said when it is saved, and in the README of its package."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.saving import ops
from workbench.reports.report import Check, Row


def weighted(x: Tensor, w: Tensor) -> Tensor:
    return x * w


def weighted_cases(t):
    yield t(4, 8), t(4, 8)


@pytest.fixture
def op(namespace):
    made = wb.op(f"{namespace}::weighted")(weighted)
    made.cases(weighted_cases, dtypes=(torch.float32,))
    return made


def saved(op, root) -> tuple[tuple[str, ...], str]:
    report = wb.save(op, root)
    for said in report.notes:
        assert said in str(report).splitlines()
    return report.notes, (root / "README.md").read_text()


def test_a_sound_op_has_no_notes(op, namespace, tmp_path):
    op.backward(both_gradients)
    op.check()
    notes, readme = saved(op, tmp_path / "o")
    assert notes == () and "Known when it was saved" not in readme


def both_gradients(grad_out, x, w):
    return grad_out * w, grad_out * x


def one_gradient(grad_out, w):
    return grad_out * w


def wrong_gradients(grad_out, x, w):
    return grad_out * w, grad_out


def test_a_kernel_that_was_forced_in_is_named(namespace, tmp_path):
    op = ops.define(namespace, "scale", ops.scale_reference)
    wb.cpp(op, ops.SCALE)
    wb.cpp(op, ops.SCALE.replace("v * k", "v * k + 1"), force=True)
    (note,), readme = saved(op, tmp_path / "o")
    assert note.startswith(
        f"{namespace}::scale: v2 (forward, cpu) was installed by force although it differs on 4x8 fp32: "
    )
    assert f"**Known when it was saved:** {note}." in readme


@pytest.mark.parametrize(
    ("backward", "said"),
    [
        (
            one_gradient,
            "its backward raises on 4x8,4x8 float32: backward returned 1 gradients, the floating-point tensor arguments are 2",
        ),
        (wrong_gradients, "its backward differs on "),
    ],
)
def test_a_backward_in_python_is_tried(op, namespace, tmp_path, backward, said):
    op.backward(backward)
    (note,), readme = saved(op, tmp_path / "o")
    assert said.partition(" on ")[0] in note and said.rpartition(": ")[2] in note and note in readme


def test_a_check_that_failed_is_told(op, namespace, tmp_path):
    op.last_check = Check(
        op.qualname,
        (
            Row("agreement", "4x8", "pass"),
            Row("gradients", "4x8", "fail", "grad_x is\nwrong"),
            Row("vmap", "", "fail", "no"),
        ),
    )
    notes, _ = saved(op, tmp_path / "o")
    assert notes == (f"{namespace}::weighted: its last check failed: gradients on 4x8: grad_x is (1 more rows fail)",)


def test_a_check_of_what_no_longer_runs_is_not(op, namespace, tmp_path):
    op.backward(wrong_gradients)
    assert not op.check().ok
    notes, _ = saved(op, tmp_path / "o")
    assert any("its last check failed" in n for n in notes)
    op.backward(both_gradients)
    notes, _ = saved(op, tmp_path / "p")
    assert notes == ()
