"""Saved packages for real: built, installed into new environments, imported, their own tests run, taken out again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests import live
from tests.saving import ops
from workbench.saving import kernels_layout, wheel

KERNELS = Path(__file__).parents[2] / "kernels"
NAMES = sorted(p.name for p in KERNELS.iterdir() if (p / "op.py").is_file())
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def run(command: list[str], **options) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=1200, **options
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def installed(built: wheel.Wheel, folder: Path) -> str:
    """A new environment with the wheel in it; its Python."""
    python = wheel.environment(folder)
    run([python, "-m", "pip", "install", "--no-deps", "--no-index", built.path])
    return python


def own_tests(python: str, project: Path, **environment: str) -> str:
    said = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=project, env={**os.environ, **environment})
    assert re.search(r"\d+ passed", said) and "failed" not in said and "no tests ran" not in said, said[-3000:]
    return said


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """normed, saved, built and installed once."""
    folder = tmp_path_factory.mktemp("normed")
    op = ops.normed("saved_by_a_test")
    wb.save([op, ops.scale("saved_by_a_test")], folder / "normed_ops", version="1.0")
    built = wheel.build(folder / "normed_ops", folder / "dist")
    return folder, built, installed(built, folder / "env")


def test_its_own_tests_pass_in_a_fresh_environment(place):
    folder, built, python = place
    assert built.seconds < 60 and built.tag == "py3-none-linux_x86_64"
    own_tests(python, folder / "normed_ops")


def test_the_wheel_is_what_it_says(place):
    found = wheel.check(place[1].path)
    assert found.ok, str(found)
    assert [r.check for r in found.rows] == ["contents", "RECORD", "tag", "symbols", "torch ABI", "import", "uninstall"]
    assert {r.status for r in found.rows if r.check != "torch ABI"} == {"pass"}


def test_nothing_is_left_in_the_sources(place):
    assert not list((place[0] / "normed_ops").rglob("*.so")) and not (place[0] / "normed_ops" / "build").exists()


def test_the_same_bits_as_the_op_had(place):
    folder, _, python = place
    x = torch.randn(7, 33, generator=torch.Generator().manual_seed(1))
    torch.save(x, folder / "x.pt")
    program = (
        "import torch, normed_ops; x = torch.load('x.pt').requires_grad_(); y = normed_ops.normed(x); y.pow(3).sum().backward();"
        "torch.save([y.detach(), x.grad, normed_ops.scale(x.detach().t(), 3.0)], 'y.pt'); print(sorted(m for m in __import__('sys').modules if 'workbench' in m))"
    )
    assert run([python, "-c", program], cwd=folder).strip() == "[]"
    op, mine = wb.ops["saved_by_a_test::normed"], x.clone().requires_grad_()
    y = op(mine)
    y.pow(3).sum().backward()
    for got, wanted in zip(
        torch.load(folder / "y.pt"), [y.detach(), mine.grad, wb.ops["saved_by_a_test::scale"](x.t(), 3.0)], strict=True
    ):
        assert torch.equal(got, wanted) and got.stride() == wanted.stride()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("normed_ops.normed(torch.ones(3, 0))", r"require cols > 0 is not met: cols is 0"),
        (
            "normed_ops.normed(torch.ones(3, 2).half())",
            r"no kernel was built for these dtypes: x float16. There are kernels for x float32; x float64: convert the arguments, or save the package again with a case of these dtypes$",
        ),
        ("normed_ops.normed(torch.tensor(1.0))", r"x.shape has 0 dimensions, needs at least 1"),
        ("torch.func.jvp(normed_ops.normed, (torch.ones(2, 2),), (torch.ones(2, 2),))", None),
        ("torch.func.grad(lambda x: normed_ops.normed(x).sum())(torch.ones(2, 2))", None),
        ("torch.compile(normed_ops.normed, backend='aot_eager', fullgraph=True)(torch.ones(2, 2))", None),
    ],
)
def test_what_a_call_says(place, call, said):
    program = f"import torch, normed_ops\ntry:\n    {call}\n    print('no error')\nexcept Exception as error:\n    print(error)"
    got = run([place[2], "-c", program])
    assert re.search(said or "^no error$", got, re.MULTILINE), got


def test_two_of_one_name_in_a_process(place):
    program = "import torch\nl = torch.library.Library('saved_by_a_test', 'DEF')\nl.define('normed(Tensor x) -> Tensor')\nimport normed_ops"
    done = subprocess.run([place[2], "-c", program], capture_output=True, text=True, check=False)
    assert (
        "ImportError: normed_ops registers saved_by_a_test::normed with torch, which something else in this process has registered already"
        in done.stderr
    )


def test_a_missing_compiler_is_said(place):
    folder, _, python = place
    bare = folder / "bin"
    bare.mkdir(exist_ok=True)
    copy = folder / "copy"
    shutil.copytree(folder / "normed_ops", copy, dirs_exist_ok=True)
    environment = {**os.environ, "PATH": str(bare), "CXX": ""}
    done = subprocess.run([python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder / "none"), str(copy)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False)  # fmt: skip
    assert (
        done.returncode
        and "normed_ops cannot be built: there is no C++ compiler. Install one (Debian, Ubuntu: apt install g++"
        in done.stdout
    )


def test_a_wheel_of_another_torch_is_refused_before_any_loader_error(place):
    program = "import torch\ntorch.__version__ = '2.10.0'\nimport normed_ops"
    done = subprocess.run([place[2], "-c", program], capture_output=True, text=True, check=False)
    assert (
        done.stderr.strip().splitlines()[-1]
        == "ImportError: normed_ops needs torch 2.11 or later, this is 2.10.0: pip install 'torch>=2.11'"
    )


def test_every_op_of_kernels_saves_builds_and_passes(tmp_path):
    """All that stand on the stable ABI as one package: C++, CUDA and Triton, several ops and devices."""
    loaded = [op for name in NAMES for op in wb.load(KERNELS / name) if not op.registration.foreign]
    try:
        assert len(loaded) >= 10
        wb.save(loaded, tmp_path / "every_ops")
        built = wheel.build(tmp_path / "every_ops", tmp_path / "dist")
        found = wheel.check(built.path)
        assert found.ok, str(found)
        said = own_tests(installed(built, tmp_path / "env"), tmp_path / "every_ops", TRITON_INTERPRET="1")
        assert int(re.search(r"(\d+) passed", said)[1]) > 150
    finally:
        for op in loaded:
            live.gone(op.qualname)


def test_an_editable_install(tmp_path, namespace):
    """From a tree of sources: what was built is beside them, and what it was built with; code for GPUs is left out."""
    root = tmp_path / "both_ops"
    wb.save([ops.scale(namespace), ops.saxpy(namespace)], root)
    python = wheel.environment(tmp_path / "env")
    environment = {**os.environ, "NVCC": "/nowhere", "BOTH_OPS_CUDA": "1"}
    run([python, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "-e", str(root)], env=environment)
    package = root / "src" / "both_ops"
    assert json.loads((package / "_built.json").read_text())["no_cuda"] == "nvcc was not found"
    assert [p.name for p in package.glob("*.so")] == ["libboth_ops.so"]
    own_tests(python, root)
    before = {p: p.stat().st_mtime_ns for p in package.iterdir()}
    assert wb.save([wb.ops[f"{namespace}::scale"], wb.ops[f"{namespace}::saxpy"]], root).kept == ()
    assert {p: p.stat().st_mtime_ns for p in package.iterdir() if p in before} == before


def test_a_library_that_defines_its_op_is_saved_as_it_is_and_pinned(tmp_path):
    """Code on at::Tensor, with a gradient of its own in C++."""
    [op] = wb.load(KERNELS / "muladd")
    wb.save(op, tmp_path / "muladd_ops")
    version = torch.__version__.split("+")[0]
    assert f'dependencies = ["torch=={version}"]' in (tmp_path / "muladd_ops" / "pyproject.toml").read_text()
    built = wheel.build(tmp_path / "muladd_ops", tmp_path / "dist")
    found = wheel.check(built.path, fresh=False)
    assert found.ok, str(found)
    python = installed(built, tmp_path / "env")
    own_tests(python, tmp_path / "muladd_ops")
    program = "import torch\ntorch.__version__ = '2.99.0'\nimport muladd_ops"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    assert f"muladd_ops was built for torch {torch.__version__} and fits no other, this is 2.99.0" in done.stderr


# What kernel-builder makes beside a project: the macros of its registration, and the module that names the namespace.
REGISTRATION = """#pragma once
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) STABLE_TORCH_LIBRARY(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) STABLE_TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)
#define REGISTER_EXTENSION(NAME)
"""
NAMED = """import pathlib, torch
torch.ops.load_library(str(pathlib.Path(__file__).with_name("kernels.so")))
ops = torch.ops._normed_kernels_1a2b
def add_op_namespace_prefix(name): return f"_normed_kernels_1a2b::{name}"
"""


def test_the_layout_of_kernel_builder(tmp_path, namespace):
    """Built as the builder does, as far as it can be done without it: its own sources, flags, macros and namespace."""
    root = tmp_path / "normed_kernels"
    wb.save([ops.normed(namespace), ops.scale(namespace)], root, layout="kernels")
    assert kernels_layout.checked(root) == []
    tomllib = pytest.importorskip("tomllib")
    config = tomllib.loads((root / "build.toml").read_text())
    assert config["general"]["backends"] == ["cpu"] and config["torch"]["stable-abi"] == "2.11"
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "registration.h").write_text(REGISTRATION)
    include = Path(torch.__file__).parent / "include"
    sources = {s: k.get("cxx-flags", []) for k in config["kernel"].values() for s in k["src"] if s.endswith(".cpp")}
    sources |= {s: [] for s in config["torch"]["src"] if s.endswith(".cpp")}
    objects = []
    for number, (source, flags) in enumerate(sources.items()):
        objects.append(str(tmp_path / "made" / f"{number}.o"))
        run(["g++", "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-DCPU_KERNEL", "-DTORCH_EXTENSION_NAME=_normed_kernels_1a2b",
             "-DTORCH_TARGET_VERSION=0x020b000000000000", f"-I{tmp_path / 'made'}", f"-I{root / 'csrc'}", f"-I{include}", *flags,
             "-c", str(root / source), "-o", objects[-1]])  # fmt: skip
    package = root / "torch-ext" / "normed_kernels"
    run(
        [
            "g++",
            "-shared",
            *objects,
            f"-L{include.parent / 'lib'}",
            "-ltorch_cpu",
            "-lc10",
            "-o",
            str(package / "kernels.so"),
        ]
    )
    (package / "_ops.py").write_text(NAMED)
    run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'torch-ext'}:{root / 'tests'}"})  # fmt: skip


def test_code_on_at_tensor_is_not_for_the_kernels_layout(tmp_path, namespace):
    op = ops.define(namespace, "scale", ops.scale_reference)
    wb.cpp(op, "#include <torch/extension.h>\nat::Tensor scale(const at::Tensor& x, double k) { return x * k; }\n")
    with pytest.raises(
        wb.SaveError, match="is code on at::Tensor, which would have to be built for every torch there is"
    ):
        wb.save(op, tmp_path / "k", layout="kernels")
    wb.save(op, tmp_path / "pinned_ops")
    text = (tmp_path / "pinned_ops" / "csrc" / "scale_forward_cpu.cpp").read_text()
    assert "#include <torch/extension.h>" in text and "c10::DispatchKey::CPU" in text and "wb_" not in text


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed here")
def test_cuda_code_is_compiled_without_a_gpu(tmp_path, namespace, monkeypatch):
    """Kernels with `<<<>>>` and functions that launch them; imported where torch has no CUDA, the reference runs."""
    monkeypatch.setenv("GPU_OPS_CUDA", "1")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    wb.save([ops.saxpy(namespace), ops.shifted(namespace)], tmp_path / "gpu_ops")
    built = wheel.build(tmp_path / "gpu_ops", tmp_path / "dist")
    assert "-gencode=arch=compute_90,code=sm_90" in built.log and "warning #" not in built.log
    found = wheel.check(built.path)
    assert found.ok, str(found)
    python = installed(built, tmp_path / "env")
    own_tests(python, tmp_path / "gpu_ops")
    assert list((tmp_path / "env").rglob("libgpu_ops_cuda.so"))


def test_an_isolated_build_fetches_what_it_needs(tmp_path, namespace):
    """`pip wheel .` by itself: setuptools and torch come from the package index that pip is set up with."""
    wb.save(ops.scale(namespace), tmp_path / "scale_ops")
    try:
        built = wheel.build(tmp_path / "scale_ops", tmp_path / "dist", isolated=True)
    except wb.BuildError as error:
        if re.search("No matching distribution|ConnectionError|Could not find a version", error.log):
            pytest.skip("pip finds no torch or setuptools to build with here")
        raise
    assert wheel.check(built.path).ok
    assert json.loads(json.dumps(built.tag)) == "py3-none-linux_x86_64"
