"""CUDA code in a package: for which GPUs it is compiled, and how much shared memory its launches have. No GPU is needed."""

from __future__ import annotations

import ast
import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench as wb
from tests.saving import ops
from workbench import gpu, settings
from workbench.build import driver
from workbench.inspect.cuda import embedded
from workbench.saving import flags, kernels_layout, wheel
from workbench.source import Source

pytest.importorskip("cuda.bindings")
GOLDEN = Path(__file__).with_name("golden")
NVCC = shutil.which("nvcc", path=f"{settings.programs()}:/usr/local/cuda/bin")
has_nvcc = pytest.mark.skipif(not NVCC, reason="nvcc is not installed here")
PLAIN = ops.SHIFTED.replace("60000", "4096")
FOR_90A = "-gencode=arch=compute_90a,code=sm_90a"
LIST = "-gencode arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a"


@pytest.fixture(autouse=True)
def for_sm_90(monkeypatch):
    monkeypatch.setattr(gpu, "present", lambda: False)
    monkeypatch.setenv("WORKBENCH_ARCH", "sm_90")


def flags_of(root: Path) -> dict[str, list[str]]:
    """What setup.py gives the compiler of each file beside the usual."""
    text = (root / "setup.py").read_text()
    return {path: ast.literal_eval(words) for path, words in re.findall(r'\("(csrc/[^"]+)", (\[.*\])\)', text)}


# ---------------------------------------------------------------- for which GPUs


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (PLAIN, []),
        (f"//! flags -restrict -O3 -arch sm_90\n{PLAIN}", ["-restrict", "-O3"]),
        (f"//! flags -gencode arch=compute_90,code=sm_90\n{PLAIN}", []),
        (f"//! flags --gpu-architecture=sm_90a\n{PLAIN}", [FOR_90A]),
        (f"//! flags -arch=sm_100f\n{PLAIN}", ["-gencode=arch=compute_100f,code=sm_100f"]),
        (ops.SETS_REGISTERS, [FOR_90A]),
        (f"//! flags {LIST}\n{PLAIN}", ["-gencode=arch=compute_80,code=sm_80", FOR_90A]),
    ],
)
def test_a_raw_kernel_keeps_the_architecture_that_it_was_built_for(namespace, tmp_path, text, flags):
    wb.save(ops.on_gpu(namespace, "scaled", text), tmp_path / "o")
    found = flags_of(tmp_path / "o")
    kernels = [words for path, words in found.items() if "_kernels" in path]
    assert kernels and all(words == ["--expt-relaxed-constexpr", *flags] for words in kernels)
    assert found["csrc/scaled_forward_cuda.cu"] == []
    alone = len(flags) == 1 and flags[0].rpartition("code=")[2]
    host = (tmp_path / "o" / "csrc" / "scaled_forward_cuda.cu").read_text()
    assert re.findall(r'#define HOST_CODE_ARCH "(.*)"', host) == ([alone] if alone else [])


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (ops.SAXPY, []),
        (f"//! flags -arch=sm_80\n{ops.SAXPY}", []),
        (f"//! flags -arch=sm_90a -rdc=true\n{ops.SAXPY}", ["-rdc=true", FOR_90A]),
        (
            ops.SAXPY.replace(
                "  int64_t i =", '  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");\n  int64_t i ='
            ),
            [FOR_90A],
        ),
    ],
)
def test_a_function_that_launches_keeps_it_too(namespace, tmp_path, text, flags):
    assert not flags or "sm_90a" in text or "setmaxnreg" in text, "the text was changed as it was meant"
    op = wb.op(f"{namespace}::saxpy")(ops.saxpy_reference)
    op.cases(ops.saxpy_cases)
    wb.cuda(op, text)
    wb.save(op, tmp_path / "o")
    assert flags_of(tmp_path / "o")["csrc/saxpy_forward_cuda.cu"] == flags


def test_the_layout_of_kernel_builder_names_capabilities(namespace, tmp_path):
    """An -arch would be one more beside the builder's own list."""
    made = [ops.on_gpu(namespace, "registers", ops.SETS_REGISTERS), ops.on_gpu(namespace, "family", f"//! flags -arch=sm_100f\n{PLAIN}"),
            ops.shifted(namespace)]  # fmt: skip
    wb.save(made, tmp_path / "k_ops", layout="kernels")
    assert kernels_layout.checked(tmp_path / "k_ops") == []
    tomllib = pytest.importorskip("tomllib")
    config = tomllib.loads((tmp_path / "k_ops" / "build.toml").read_text())["kernel"]
    found = {
        s.partition("/")[2]: k.get("cuda-capabilities")
        for k in config.values()
        for s in k["src"]
        if "_cuda_kernels" in s
    }
    assert {p.partition("_")[0]: c for p, c in found.items()} == {
        "registers": ["9.0a"],
        "family": ["10.0f"],
        "shifted": None,
    }
    assert not [f for k in config.values() for f in k.get("cuda-flags", []) if "sm_" in f]


def test_flags_of_code_on_at_tensor():
    """All architectures that its flags name stay, as torch has it too."""
    cell, texts = Source("", "cuda"), ["csrc/kernels/f.cu"]

    def given(arch: str, *words: str) -> tuple[str, ...]:
        return flags.for_cuda(words, cell, texts, arch, as_named=True).compiling

    assert given("sm_90a", "-O3") == ("-O3", FOR_90A)
    assert given("sm_90a", "-arch=sm_90a") == (FOR_90A,)
    assert given("sm_90", "-arch=sm_80") == ("-gencode=arch=compute_80,code=sm_80",)
    assert given("sm_90", "-O3") == ("-O3",)
    assert flags.for_one_alone("sm_90a", ()) and not flags.for_one_alone("sm_90a", tuple(LIST.split()))


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ("9.0a", ["90a,sm_90a", "90a,compute_90a"]),
        ("8.0;10.0f", ["80,sm_80", "100f,sm_100f", "100f,compute_100f"]),
        ("9.0+PTX", ["90,sm_90", "90,compute_90"]),
    ],
)
def test_architectures_that_a_package_is_built_for(namespace, tmp_path, monkeypatch, listed, wanted):
    wb.save(ops.shifted(namespace), tmp_path / "o")
    text = (tmp_path / "o" / "setup.py").read_text()
    scope: dict = {}
    exec(text[text.index("import json") : text.index("from concurrent")], scope)
    exec(text[text.index("def architectures(") : text.index("class Build(")], scope | {"NAMED": ("-arch",)}, scope)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    found = scope["architectures"](None)
    assert [re.sub(r"-gencode=arch=compute_(\w+),code=", r"\1,", f) for f in found] == wanted


@has_nvcc
@pytest.mark.slow
def test_nvcc_compiles_each_for_its_own(namespace, tmp_path, monkeypatch):
    monkeypatch.setenv("MIXED_OPS_CUDA", "1")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    saxpy = wb.op(f"{namespace}::saxpy")(ops.saxpy_reference)
    saxpy.cases(ops.saxpy_cases)
    wb.cuda(saxpy, f"//! flags -arch=sm_90a -rdc=true\n{ops.SAXPY}")
    wb.save(
        [ops.on_gpu(namespace, "registers", ops.SETS_REGISTERS), saxpy, ops.on_gpu(namespace, "staged", ops.STAGED)],
        tmp_path / "mixed_ops",
    )
    built = wheel.build(tmp_path / "mixed_ops", tmp_path / "dist")
    assert "not found in" not in built.log, "what is relocatable was linked for another GPU"
    [library] = [p for p in wheel._libraries(built.path, str(tmp_path / "out")) if p.name.endswith("_cuda.so")]
    assert {driver.arch_of(c) for c in embedded(str(library))} == {"sm_80", "sm_90a"}


# ---------------------------------------------------------------- shared memory


def test_the_text_that_launches(namespace, tmp_path):
    wb.save(ops.on_gpu(namespace, "staged", ops.STAGED), tmp_path / "o")
    made = (tmp_path / "o" / "csrc" / "staged_forward_cuda_kernels.cu").read_text()
    assert made == (GOLDEN / "staged_forward_cuda_kernels.cu").read_text(), "look at it, then write it anew"


class Launch(ctypes.Structure):
    """`wb_launch` of cuda_launch.h."""

    _fields_ = (("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("cluster", ctypes.c_uint32 * 3),
                ("shared", ctypes.c_uint32), ("gpu", ctypes.c_int32), ("stream", ctypes.c_void_p), ("own", ctypes.c_int32))  # fmt: skip


class Package:
    """A package's kernel before a runtime that has no GPU (fake_cudart.cpp)."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.values = (ctypes.c_int64 * 4)()

    def __getattr__(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.library, f"fake_{name}").value

    def set(self, **values: int) -> None:
        for name, value in values.items():
            ctypes.c_int.in_dll(self.library, f"fake_{name}").value = value

    def launch(self, shared: int, gpu: int = 0, cluster: int = 0) -> tuple[int, int]:
        """(the launch's code, what it says of the kernel's own arrays)"""
        self.set(gpu=gpu)
        given = Launch((1, 1, 1), (128, 1, 1), (cluster, 1, 1), shared, gpu)
        return self.library.staged_forward_cuda_0_staged(self.values, ctypes.byref(given)), given.own


@pytest.fixture
def staged(namespace, tmp_path) -> Iterator[Package]:
    wb.save(ops.on_gpu(namespace, "staged", ops.STAGED), tmp_path / "o")
    with tempfile.NamedTemporaryFile(suffix=".so", dir=tmp_path) as made:
        command = [str(NVCC), "-shared", "--cudart=none", "-std=c++20", "-Xcompiler=-fPIC", "-arch=sm_90", "-Icsrc", "-o", made.name,
                   "csrc/staged_forward_cuda_kernels.cu", str(Path(__file__).with_name("fake_cudart.cpp"))]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path / "o", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        yield Package(ctypes.CDLL(made.name))


@has_nvcc
@pytest.mark.slow
def test_a_kernels_own_arrays_count(staged):
    """20 KB of its own and 40 KB run in the notebook; asked once for each kernel and GPU."""
    staged.set(own=20 * 1024)
    assert staged.launch(28 * 1024) == (0, 20 * 1024) and (staged.asked, staged.called, staged.launched) == (1, 0, 1)
    assert staged.launch(28 * 1024) == (0, 0) and staged.asked == 1, "known by now"
    assert staged.launch(40 * 1024) == (0, 20 * 1024) and staged.most == 232448 - 20 * 1024
    assert staged.launch(100 * 1024) == (0, 0) and (staged.asked, staged.launched) == (2, 4), (
        "all that there is was asked for"
    )
    assert staged.launch(40 * 1024, gpu=1) == (0, 20 * 1024) and staged.asked == 3, "another GPU knows nothing of it"
    assert staged.launch(100 * 1024, cluster=1) == (0, 0) and staged.launched == 6


@has_nvcc
@pytest.mark.slow
def test_more_than_there_is(staged):
    """The launch is refused with what the kernel takes, and the next one does not hear of it."""
    staged.set(own=20 * 1024)
    assert staged.launch(220 * 1024) == (-1, 20 * 1024) and (staged.called, staged.launched) == (0, 0)
    assert staged.launch(0) == (0, 0) and staged.launched == 1
    staged.set(missing=1)
    assert staged.launch(1024) == (-98, 0)
    staged.set(missing=0)
    assert staged.launch(0) == (0, 0), "an error that was told is not left for the next launch"
