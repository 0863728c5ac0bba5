"""Each look where all is well, and where something is missing or broken: a fix for each finding."""

import subprocess
import sys

import pytest
import torch

import workbench as wb
from workbench import gpu, settings, source, toolchain
from workbench.diagnose import LOOKS, around, device, host, row, trying
from workbench.errors import ToolchainError, WorkbenchError
from workbench.gpu import Target


def test_the_public_verb_is_a_check_with_a_row_for_each_look():
    report = wb.doctor(["ninja", "python"])
    assert [r.check for r in report.rows] == ["python", "ninja"]  # in the order of the table
    assert report.level == "doctor" and str(report).startswith("this machine doctor check | 2 pass")
    assert report.to_dict()["rows"][0]["status"] == "pass"
    assert "this machine" in report._repr_mimebundle_()["text/html"]


def test_one_name_needs_no_list():
    assert [r.check for r in wb.doctor("ninja").rows] == ["ninja"]


def test_a_name_that_is_not_looked_at():
    with pytest.raises(
        WorkbenchError, match="'compilers' is not looked at; the names are python, torch, reader, compiler, openmp"
    ):
        wb.doctor(["compilers"])


@pytest.mark.parametrize(
    "name", ["python", "torch", "reader", "compiler", "openmp", "headers", "ninja", "cache", "widgets", "triton"]
)
def test_what_this_machine_has_passes(name):
    found = row(name)
    assert (found.status, found.cure) == ("pass", ""), found


@pytest.mark.slow
def test_the_worker_runs():
    assert row("worker").detail.startswith("the process in which new kernels are tried runs; started in")


def test_nvrtc_compiles_for_the_target():
    pytest.importorskip("cuda.bindings.nvrtc")
    assert f"a kernel is compiled for {gpu.target().arch}" in row("nvrtc").detail


def test_no_grammar_is_a_failure_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tree_sitter_cuda", None)
    monkeypatch.setattr(source, "_parser", source._parser.__wrapped__)
    found = row("reader")
    assert found.status == "fail" and "tree-sitter-cuda, which is not installed: pip install" in found.detail
    assert not wb.doctor(["reader"]).ok


def test_no_compiler_is_a_failure_with_what_to_install(monkeypatch):
    monkeypatch.setenv("WORKBENCH_CXX", "/nowhere/g++")
    found = row("compiler")
    assert found.status == "fail" and "/nowhere/g++" in found.detail
    assert "apt install g++" in found.cure
    assert not wb.doctor(["compiler"]).ok


def test_a_compiler_that_compiles_nothing(monkeypatch):
    monkeypatch.setattr(trying, "ran", lambda *a, **k: subprocess.CompletedProcess([], 1, "x.cpp:1: error: no\nmore"))
    with pytest.raises(ToolchainError, match="does not compile: x.cpp:1: error: no"):
        trying.compiled(toolchain.compiler(), host.ADDS, (), 5, 7)


def test_a_compiler_whose_programs_are_wrong():
    with pytest.raises(ToolchainError, match="gives 7 in place of 8"):
        trying.compiled(toolchain.compiler(), host.ADDS, (), 5, 8)


def test_without_openmp_it_is_missing_and_no_failure(monkeypatch):
    def compiled(*args):
        raise ToolchainError("g++ does not compile: omp.h: No such file")

    monkeypatch.setattr(host, "compiled", compiled)
    found = row("openmp")
    assert found.status == "skip" and "omp.h: No such file" in found.detail and "libomp-dev" in found.cure


def test_an_old_torch(monkeypatch):
    real = toolchain.torch()
    monkeypatch.setattr(toolchain, "torch", lambda: type(real)("2.9.1+cpu", real.revision, real.include, real.lib))
    found = row("torch")
    assert found.status == "fail" and "torch 2.9.1+cpu is too old: 2.11 or later" in found.detail
    assert found.cure == f"Type `{sys.executable} -m pip install 'torch>=2.11'`."


def test_torch_headers_that_do_not_compile(monkeypatch):
    monkeypatch.setattr(
        host, "ran", lambda *a, **k: subprocess.CompletedProcess([], 1, "library.h:3: fatal error: c10 missing")
    )
    found = row("headers")
    assert found.status == "fail" and "c10 missing" in found.detail and "--force-reinstall torch" in found.cure


def test_without_ninja_only_the_full_tier_is_lost(monkeypatch):
    monkeypatch.setattr(host.shutil, "which", lambda *a, **k: None)
    found = row("ninja")
    assert found.status == "skip" and "full tier" in found.detail and found.cure.endswith("pip install ninja`.")


def test_an_architecture_that_nvrtc_does_not_know(monkeypatch):
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setattr(gpu, "target", lambda: Target("sm_35", "WORKBENCH_ARCH"))
    found = row("nvrtc")
    assert found.status == "fail" and "does not know sm_35 (WORKBENCH_ARCH); it knows" in found.detail
    assert "set WORKBENCH_ARCH" in found.cure


def test_without_nvrtc_cuda_cells_are_lost(monkeypatch):
    from workbench.build import nvrtc_library

    def version():
        raise ToolchainError("cuda-bindings cannot be imported. Type `pip install x`")

    monkeypatch.setattr(nvrtc_library, "version", version)
    found = row("nvrtc")
    assert (found.status, found.detail) == ("skip", "cuda-bindings cannot be imported: CUDA cells cannot be compiled")
    assert found.cure == "Type `pip install x`."


def smi(monkeypatch, code, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(device.shutil, "which", lambda *a, **k: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(device, "ran", lambda *a, **k: subprocess.CompletedProcess([], code, said))


def test_a_gpu_that_a_torch_for_the_cpu_cannot_use(monkeypatch):
    smi(monkeypatch, 0, "NVIDIA H200, 580.65")
    monkeypatch.setattr(torch.version, "cuda", None)
    found = row("driver")
    assert (
        found.status == "fail"
        and "there is a GPU (NVIDIA H200, 580.65), but this torch is built for the CPU alone" in found.detail
    )
    assert "pytorch.org/get-started" in found.cure


def test_a_driver_that_is_too_old_for_torch(monkeypatch):
    smi(monkeypatch, 0, "NVIDIA H200, 470.1")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    found = row("driver")
    assert "torch cannot use the GPU (NVIDIA H200, 470.1); it is built for CUDA 13.0" in found.detail
    assert found.cure.startswith("Update the driver")


def test_a_driver_that_does_not_work(monkeypatch):
    smi(monkeypatch, 9, "NVIDIA-SMI has failed")
    assert row("driver").detail == "nvidia-smi does not work: NVIDIA-SMI has failed"


def test_without_a_driver_nothing_fails(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(device.shutil, "which", lambda *a, **k: None)
    assert row("driver").status == row("counters").status == "skip"


@pytest.mark.parametrize(
    ("known", "wanted"),
    [
        (["sm_80", "sm_90"], True),
        (["sm_86", "sm_89"], False),
        (["sm_80", "compute_80"], True),
        (["sm_100"], False),
        (["sm_90a"], True),
        ([], False),
    ],
)
def test_which_gpus_the_kernels_of_a_torch_run_on(known, wanted):
    assert device.covers(known, 9, 0) is wanted


def test_a_cache_that_cannot_be_written_to(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    found = row("cache")
    assert found.status == "fail" and "cannot be written to" in found.detail and "Set WORKBENCH_CACHE" in found.cure


def test_a_cache_that_others_can_write_to(tmp_path, monkeypatch):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("WORKBENCH_CACHE", str(folder))
    found = row("cache")
    assert found.status == "fail" and "can be written to by others" in found.detail and "chmod go-w" in found.cure


def test_a_disk_that_is_full(fresh_cache, monkeypatch):
    monkeypatch.setattr(around.shutil, "disk_usage", lambda _: type("", (), {"free": 5_000_000}))
    found = row("cache")
    assert found.status == "fail" and "only 5 MB are free" in found.detail and "workbench cache clear" in found.cure


def test_without_widgets_reports_are_static(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    found = row("widgets")
    assert found.status == "skip" and "static html" in found.detail and found.cure.endswith("pip install ipywidgets`.")


def test_without_triton_its_cells_are_lost(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    found = row("triton")
    assert found.status == "skip" and found.cure.endswith("pip install triton`.")


def test_a_look_that_breaks_is_a_finding(monkeypatch):
    def broken():
        raise RuntimeError("no such luck")

    monkeypatch.setitem(LOOKS, "python", broken)
    report = wb.doctor(["python"])
    assert not report.ok and report.rows[0].detail == "RuntimeError: no such luck"


def test_looking_changes_no_environment(monkeypatch):
    before = settings.compiler_environment()
    row("compiler")
    assert settings.compiler_environment() == before
