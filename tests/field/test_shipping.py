"""What people met while exporting and packaging (field reports F49, F55 to F59)."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests import live
from tests.live import SCALE
from tests.saving import ops
from workbench.saving import wheel


@pytest.fixture
def python_only(tmp_path, namespace):
    """A package without compiled code: (its folder, the name of its op)."""
    op = wb.op(f"{namespace}::shift")(ops.shift_reference)
    op.cases(ops.scale_cases)
    wb.save(op, tmp_path / "shift_ops")
    live.gone(op.qualname)
    return tmp_path / "shift_ops", op.qualname


@pytest.fixture
def native(tmp_path, namespace):
    """A package with a C++ kernel, not built."""
    op = wb.op(f"{namespace}::scale")(ops.scale_reference)
    op.cases(ops.scale_cases)
    wb.cpp(op, SCALE)
    wb.save(op, tmp_path / "scale_ops")
    return tmp_path / "scale_ops"


def python(program: str, path: str | os.PathLike = "", **more):
    environment = {**os.environ, "PYTHONPATH": os.fspath(path)}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment, **more
    )


@pytest.mark.slow
def test_f49_an_exported_model_runs_where_the_package_is_imported(python_only, tmp_path):
    """And where it is not, torch names the op; the package registers it on import."""
    folder, name = python_only
    sources, op = folder / "src", name.replace("::", ".")
    made = python(f"""
import torch, shift_ops
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.{op}(x, 3.0)
torch.export.save(torch.export.export(Model(), (torch.ones(2, 3),)), "model.pt2")
""", sources, cwd=tmp_path)  # fmt: skip
    assert made.returncode == 0, made.stderr
    load = "import torch{}; print(torch.export.load('model.pt2').module()(torch.ones(2, 3)).sum().item())"
    done = python(load.format(", shift_ops"), sources, cwd=tmp_path)
    assert done.stdout == "24.0\n", done.stderr
    without = python(load.format(""), cwd=tmp_path)
    assert without.returncode != 0 and name.partition("::")[0] in without.stderr


def test_f55_a_build_that_sees_no_torch_says_how_to_build(native, tmp_path):
    blocked = "import sys, runpy; sys.modules['torch'] = None; sys.argv = ['setup.py', '-q', 'build_ext', '--build-lib', {!r}]; "
    done = python(
        (blocked + "runpy.run_path('setup.py', run_name='__main__')").format(str(tmp_path / "out")), cwd=native
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert (
        "torch is not installed where it is built" in done.stderr
        and "pip install --no-build-isolation ." in done.stderr
    )


@pytest.mark.slow
def test_f56_every_file_is_recorded_and_an_uninstall_leaves_nothing(python_only, tmp_path):
    built = wheel.build(python_only[0], tmp_path / "dist")
    report = wheel.check(built.path)
    assert report.ok, str(report)
    assert {r.check for r in report.rows} >= {"RECORD", "contents"} and "nothing was left" in str(report)


def test_f57_the_generated_code_has_no_pybind_and_claims_no_abi_that_it_has_not(native):
    texts = {p: p.read_text("utf-8") for p in native.rglob("*") if p.suffix in (".cpp", ".h", ".py", ".toml")}
    native_texts = "\n".join(t for p, t in texts.items() if p.suffix in (".cpp", ".h"))
    assert not re.search(r"pybind11|torch/extension\.h|PyObject|Python\.h", native_texts)
    assert "STABLE_TORCH_LIBRARY" in native_texts
    assert not any("py_limited_api" in t for t in texts.values())


def test_f58_the_package_alone_is_imported(python_only):
    folder, name = python_only
    done = python("import sys, shift_ops; print('torch' in sys.modules, shift_ops.shift.__name__, 'workbench' in sys.modules)", folder / "src")  # fmt: skip
    assert done.stdout == "True shift False\n", done.stderr


def test_f59_another_cuda_is_a_sentence_and_no_error_of_the_loader(native, tmp_path, monkeypatch):
    place = native / "src" / "scale_ops"
    (place / "libscale_ops.so").write_bytes(b"")
    (place / "_built.json").write_text(json.dumps({"torch": torch.__version__, "cuda": "12.8"}))
    text = (place / "_check.py").read_text("utf-8")
    assert "CUDA = False" in text
    (place / "_check.py").write_text(text.replace("CUDA = False", "CUDA = True"))
    found = importlib.util.spec_from_file_location("scale_ops_check", place / "_check.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(
        ImportError,
        match=r"scale_ops was built for CUDA 12\.8, this torch \(.*\) is for CUDA 13\.0: install a torch for CUDA 12",
    ):
        module._built_for()
    monkeypatch.setattr(torch.version, "cuda", "12.1")
    module._built_for()
    assert Path(place / "_built.json").exists()
