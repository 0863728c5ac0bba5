"""CUDA packages for real: built by nvcc, installed, and tested by their own tests on the GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests.saving import ops
from tests.saving.test_install import installed, own_tests
from workbench.saving import wheel

KERNELS = Path(__file__).parents[2] / "kernels"
pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(1500)]
needs_nvcc = pytest.mark.skipif(
    not shutil.which("nvcc") and not os.path.exists("/usr/local/cuda/bin/nvcc"), reason="nvcc is not installed here"
)


def op(name: str, namespace: str, files: tuple[str, ...]) -> wb.Op:
    """An op of kernels/ in a namespace of its own, with these of its cells."""
    scope: dict = {}
    text = (KERNELS / name / "op.py").read_text().replace('"lab::', f'"{namespace}::')
    path = KERNELS / name / "op.py"
    exec(compile(text, str(path), "exec"), scope)
    made = scope[name]
    for file in files:
        slot = ".backward" if ".backward." in file else ""
        kind = wb.triton if file.endswith(".py") else wb.cuda
        kind(f"{namespace}::{name}{slot}", (KERNELS / name / file).read_text())
    return made


@needs_nvcc
@pytest.mark.parametrize(
    ("name", "files"),
    [("rmsnorm", ("rmsnorm.cu", "rmsnorm.backward.cu")), ("softmax", ("softmax.cu", "softmax.backward.cu")),
     ("int8_quantise", ("int8_quantise.cu",))],
)  # fmt: skip
def test_a_cuda_package_is_built_and_passes_its_tests(name, files, namespace, tmp_path):
    wb.save(op(name, namespace, files), tmp_path / f"{name}_ops")
    built = wheel.build(tmp_path / f"{name}_ops", tmp_path / "dist")
    said = wheel.check(built.path)
    assert said.ok, str(said)
    python = installed(built, tmp_path / "env")
    said = own_tests(python, tmp_path / f"{name}_ops")
    assert int(re.search(r"(\d+) passed", said)[1]) > 10
    program = (
        f"import torch, {name}_ops; x = torch.randn(64, 512, device='cuda'); w = torch.randn(512, device='cuda')\n"
        f"f = {name}_ops.{name}\n"
        "a = (x, w) if 'rmsnorm' in f.__name__ else (x,)\n"
        "with torch.profiler.profile() as p: f(*a); torch.cuda.synchronize()\n"
        "print(any('_text::' in e.key for e in p.key_averages()))"
    )
    assert subprocess.run([python, "-c", program], capture_output=True, text=True, check=False).stdout.strip() == "True"


@needs_nvcc
def test_functions_that_launch_and_much_shared_memory(namespace, tmp_path):
    wb.save([ops.saxpy(namespace), ops.shifted(namespace)], tmp_path / "gpu_ops")
    built = wheel.build(tmp_path / "gpu_ops", tmp_path / "dist")
    own_tests(installed(built, tmp_path / "env"), tmp_path / "gpu_ops")


def test_a_triton_package_passes_its_tests(namespace, tmp_path):
    wb.save(op("gelu_linear", namespace, ("gelu_linear_triton.py",)), tmp_path / "gelu_ops")
    built = wheel.build(tmp_path / "gelu_ops", tmp_path / "dist")
    own_tests(installed(built, tmp_path / "env"), tmp_path / "gelu_ops")
    assert torch.cuda.is_available()
