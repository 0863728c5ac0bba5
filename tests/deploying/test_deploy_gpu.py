"""Deployed models on a GPU: a CUDA library beside the model, a Triton kernel in it, both in Python and in C++."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests.saving.test_install_gpu import needs_nvcc, op
from workbench.reports.deploying import INLINED, NATIVE, Deployed

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(600)]
BOTH = {(by, on) for by in ("Python", "C++") for on in ("example", "another batch")}


def right(report: Deployed, how: str) -> None:
    """Eager's values in Python and in C++, for two batches."""
    assert report.ok, str(report)
    assert report.device == "cuda" and [h for _, h in report.ops] == [how]
    assert {(r.by, r.on) for r in report.runs} == BOTH, str(report)
    assert all(r.microseconds > 0 for r in report.runs if r.by == "C++")


def parts(model: Path) -> tuple[str, bytes]:
    """The wrappers of a compiled model, and its GPU binaries: their files have hashes for names, their symbols tell."""
    with zipfile.ZipFile(model) as found:
        names = found.namelist()
        wrappers = "\n".join(found.read(n).decode() for n in names if n.endswith((".wrapper.cpp", ".wrapper.json")))
        return wrappers, b"".join(found.read(n) for n in names if n.endswith(".cubin"))


@needs_nvcc
def test_a_cuda_kernel_is_a_library_beside_the_model(namespace, tmp_path):
    norm = op("rmsnorm", namespace, ("rmsnorm.cu",))
    w = torch.rand(512, device="cuda")
    report = wb.deploy(lambda x: norm(x, w, 1e-5), torch.randn(64, 512, device="cuda"), tmp_path / "norm", batch=True)
    right(report, NATIVE)
    assert all(r.equal == r.outputs == 1 for r in report.runs), str(report)  # the same kernel gives the same bits
    assert norm.qualname in parts(tmp_path / "norm" / "model.pt2")[0]
    said = subprocess.run(["ldd", tmp_path / "norm" / "bin" / "run"], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cuda" in said and "libpython" not in said
    moved = shutil.copytree(tmp_path / "norm", tmp_path / "moved")
    done = subprocess.run(
        [moved / "bin" / "run", moved], capture_output=True, text=True, env={"PATH": "/nowhere"}, check=False
    )
    assert done.returncode == 0 and "output 0 equal" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "file", "shapes", "kernel"),
    [("softmax", "softmax_triton.py", [(64, 700)], "forward_kernel"),
     ("gelu_linear", "gelu_linear_triton.py", [(64, 256), (512, 256), (512,)], "forward_kernel")],
)  # fmt: skip
def test_a_triton_kernel_is_in_the_model(name, file, shapes, kernel, namespace, tmp_path):
    function = op(name, namespace, (file,))
    x, *weights = (torch.randn(*s, device="cuda") / 8 for s in shapes)
    report = wb.deploy(lambda x: function(x, *weights), x, tmp_path / name, batch=True)
    right(report, INLINED)
    assert all(r.worst < 1e-6 for r in report.runs), str(report)  # compiled anew, with its constants folded in
    wrappers, binaries = parts(tmp_path / name / "model.pt2")
    assert kernel in wrappers and b".text." + kernel.encode() in binaries, len(binaries)
    assert not (tmp_path / name / "lib").exists() and not (tmp_path / name / "ops").exists()
