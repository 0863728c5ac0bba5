"""The driver through ctypes, with a fake one: devices, cubins, kernels, and every way in which there is none to use."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from tests.build.cuda_tools import Fake, cuda_cell, fake_driver, forget_driver
from tests.build.native_tools import compiled
from workbench.build import driver
from workbench.errors import BuildError, ToolchainError

COPY = "//! out = empty_like(x)\n//! grid = 1\n//! block = 1\n__global__ void copy(const float* x, float* out) { *out = *x; }"


@pytest.fixture
def fake() -> Fake:
    with fake_driver() as found:
        yield found


@pytest.fixture
def cubin(fake, tmp_path) -> str:
    """A fake cubin with the kernel `kernel_copy`, at a path that nothing has loaded yet."""
    made = cuda_cell("driver_tests::copy(Tensor x) -> Tensor", COPY).same(torch.float32)
    path = tmp_path / "kernel.cubin"
    path.write_bytes(Path(made.library).read_bytes())
    return str(path)


def only(monkeypatch, text: str) -> None:
    """The driver of this process is a library with these functions alone."""
    forget_driver()
    monkeypatch.setattr(driver, "_open", lambda: ctypes.CDLL(compiled(text)))


def test_devices_are_told_with_their_limits(fake):
    fake.set(devices=2, major=8, minor=6, clusters=0)
    forget_driver()
    first, second = driver.devices()
    assert (first.index, second.index, first.name, first.arch) == (0, 1, "Fake H200", "sm_86")
    assert (first.sm_count, first.shared, first.shared_limit, first.clusters) == (132, 49152, 232448, False)
    assert driver.available()
    assert driver.version() == (13, 0)


def test_the_table_has_every_function_and_device(fake):
    fake.set(devices=3)
    forget_driver()
    table = driver.table()
    assert table.gpu_count == 3
    for field, name in type(table).FUNCTIONS:
        assert getattr(table, field) == ctypes.cast(getattr(fake.library, name), ctypes.c_void_p).value
    gpu = table.gpus[2]
    assert (gpu.ordinal, gpu.arch, gpu.sm_count, gpu.shared, gpu.shared_limit, gpu.clusters) == (
        2,
        90,
        132,
        49152,
        232448,
        1,
    )
    assert not gpu.context  # it costs memory: the first call opens it
    assert driver.table() is table


def test_a_cubin_is_loaded_once_and_gives_its_kernels(fake, cubin):
    library = driver.load(cubin)
    assert driver.load(cubin) is library
    assert library.kernel("kernel_copy") == library.kernel("kernel_copy") > 0
    assert driver.active_blocks(library.kernel("kernel_copy"), 256) == 8
    with pytest.raises(BuildError, match="kernel.cubin has no kernel kernel_other"):
        library.kernel("kernel_other")


def test_a_kernel_is_put_on_a_gpu_that_is_in_use(fake, cubin):
    put = ctypes.c_int32.in_dll(fake.library, "fake_put")
    driver.load(cubin).kernel("kernel_copy")
    assert put.value == 0
    driver._libraries.clear()
    fake.current = 0x1000
    fake.set(put_code=209)
    with pytest.raises(BuildError, match=r"the kernel was not compiled for a GPU that is here \(sm_90\)"):
        driver.load(cubin).kernel("kernel_copy")
    fake.set(put_code=0)
    for _ in range(2):
        driver.load(cubin).kernel("kernel_copy")
    assert put.value == 2


def test_the_architecture_of_a_cubin_is_in_its_header_too(tmp_path):
    from workbench.build import nvrtc

    for arch in ("sm_80", "sm_90", "sm_120"):
        build = nvrtc.compile('extern "C" __global__ void f(float* x) { *x = 1; }', arch=arch)
        data = Path(build.path).read_bytes()
        assert driver.arch_of(data) == driver.arch_of(data.replace(b"sm_", b"xx_")) == arch
    old = b"\x7fELF\x02\x01\x01\x33\x07".ljust(48, b"\0") + (0x5A055A).to_bytes(4, "little")
    assert driver.arch_of(old.ljust(64, b"\0")) == "sm_90"
    assert driver.arch_of(b"text") == ""


def test_a_file_that_is_no_cubin_is_a_build_error(fake, tmp_path):
    path = tmp_path / "broken.cubin"
    path.write_bytes(b"not a cubin")
    with pytest.raises(BuildError, match="broken.cubin is no cubin that the driver can load: another error"):
        driver.load(str(path))
    with pytest.raises(BuildError, match="cannot be read: No such file"):
        driver.load(str(tmp_path / "gone.cubin"))


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (222, ToolchainError, r"the NVIDIA driver knows CUDA 12\.4, and the kernel was compiled by a newer toolkit \(the provided PTX was compiled with an unsupported toolchain\. \(CUDA_ERROR_UNSUPPORTED_PTX_VERSION\)\)\. Update the driver, or install .*nvidia-cuda-nvrtc-cu12<=12\.4\.999"),
        (35, ToolchainError, "Update the driver"),
        (209, BuildError, r"was not compiled for a GPU that is here \(sm_90\)"),
        (2, BuildError, "no memory left"),
    ],
)  # fmt: skip
def test_what_the_driver_does_not_load_says_what_to_do(fake, cubin, code, error, message):
    fake.set(load_code=code, version=12040)
    with pytest.raises(error, match=message):
        driver.load(cubin)
    fake.set(load_code=0)
    assert driver.load(cubin).kernel("kernel_copy")


@pytest.mark.parametrize(
    ("compiled_for", "here", "runs"),
    [("sm_90", (9, 0), True), ("sm_90a", (9, 0), True), ("sm_80", (8, 6), True), ("sm_86", (8, 0), False), ("sm_80", (9, 0), False),
     ("sm_100a", (10, 3), False), ("sm_100f", (10, 3), True), ("sm_103", (10, 3), True), ("sm_120", (12, 1), True), ("sm_90a", (10, 0), False)],
)  # fmt: skip
def test_a_cubin_for_another_gpu_names_both(fake, tmp_path, compiled_for, here, runs):
    fake.set(major=here[0], minor=here[1])
    forget_driver()
    path = tmp_path / "kernel.cubin"
    path.write_bytes(b"\x7fELF\0_Z3_sm_70\0" + compiled_for.encode() + b" \0")
    assert driver.arch_of(path.read_bytes()) == compiled_for
    assert driver.devices()[0].runs(compiled_for) is runs
    with pytest.raises(BuildError) as caught:  # it is no real cubin either
        driver.load(str(path))
    told = f"was compiled for {compiled_for}, the GPU here is sm_{here[0]}{here[1]} (Fake H200): unset WORKBENCH_ARCH, or set it to sm_{here[0]}{here[1]}"
    assert (told in str(caught.value)) is not runs


def test_no_driver_is_said_with_what_still_works(fake, monkeypatch):
    forget_driver()

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    monkeypatch.undo()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setattr(driver, "_open", driver_open)
    assert not driver.available()
    with pytest.raises(
        ToolchainError,
        match=r"there is no NVIDIA driver here \(libcuda.so.1: cannot open.*\)\. CUDA cells are compiled without one, for the architecture in WORKBENCH_ARCH; to run them install the driver",
    ):
        driver.table()


driver_open = driver._open  # the fake replaces it


def test_a_driver_that_does_not_start_is_told_in_its_words(fake):
    fake.set(init_code=100)
    forget_driver()
    with pytest.raises(ToolchainError, match=r"the NVIDIA driver does not start: another error \(CUDA_ERROR_OTHER\)"):
        driver.devices()
    assert not driver.available()


def test_a_driver_without_a_gpu(fake):
    fake.set(devices=0)
    forget_driver()
    assert not driver.available()
    with pytest.raises(ToolchainError, match="the NVIDIA driver finds no GPU here"):
        driver.table()


def test_a_driver_older_than_cuda_12_is_named(fake, monkeypatch):
    only(
        monkeypatch,
        '#define API extern "C" __attribute__((visibility("default")))\nAPI int cuInit(unsigned) { return 0; }\nAPI int cuDriverGetVersion(int* v) { *v = 11080; return 0; }',
    )
    with pytest.raises(ToolchainError, match=r"too old: it knows CUDA 11\.8, 12\.0 is needed\. Update the driver"):
        driver.load("anything.cubin")


def test_a_torch_without_cuda_is_named(fake, monkeypatch):
    if torch.version.cuda:
        pytest.skip("this torch was built with CUDA")
    forget_driver()
    monkeypatch.setattr(driver, "_torch_cuda", torch_cuda)
    with pytest.raises(ToolchainError, match=r"this torch \(.*\) was built without CUDA: install one with it"):
        driver.table()


torch_cuda = driver._torch_cuda
