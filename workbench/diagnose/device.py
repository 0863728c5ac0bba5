"""Looks at what the GPU's side needs: driver, NVRTC, nvcc, Triton."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from .. import gpu, settings
from ..errors import ToolchainError
from .trying import PIP, Found, missing, ran, told, works

KERNEL = 'extern "C" __global__ void probe(float* x) { x[threadIdx.x] = 1.0f; }'


def nvcc_() -> Found:
    from ..build import nvcc

    try:
        found = nvcc.find()
    except ToolchainError as error:
        return missing("not here; NVRTC compiles CUDA cells, only some need nvcc", error.message.partition(". ")[2])
    return works(f"{found.release}, {found.path}")


def nvrtc_() -> Found:
    from ..build import nvrtc, nvrtc_library

    try:
        version, known = nvrtc_library.version(), nvrtc_library.architectures()
    except ToolchainError as error:
        said, _, cure = error.message.partition(". ")
        return missing(f"{said}: CUDA cells cannot be compiled", cure or f"Type `{PIP} 'kernel-workbench[cuda]'`")
    target = gpu.target()
    release = ".".join(map(str, version))
    if target.number not in known:
        said = f"NVRTC {release} does not know {target.arch} ({target.because}); it knows {known[0]} to {known[-1]}"
        return "fail", said, f"Type `{PIP} -U 'kernel-workbench[cuda]'`, or set WORKBENCH_ARCH"
    nvrtc.compile(KERNEL, arch=target.arch, file="probe")
    return works(f"{release}; a kernel is compiled for {target.arch} ({target.because})")


def driver() -> Found:
    import torch

    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        arch, known = f"sm_{major}{minor}", torch.cuda.get_arch_list()
        said = f"{torch.cuda.get_device_name()}, {arch}, {torch.cuda.device_count()} of them"
        if not covers(known, major, minor):
            have = ", ".join(known)
            return (
                "fail",
                f"{said}: this torch has no kernels for it, only for {have}",
                "Install a torch built for this GPU",
            )
        x = torch.ones(4, device="cuda")
        return (
            works(f"{said}; torch's kernels run on it")
            if x.sum().item() == 4
            else ("fail", f"{said}: 1+1+1+1 is not 4", "")
        )
    path = shutil.which("nvidia-smi", path=settings.programs())
    if path is None:
        return missing("no NVIDIA driver here: CUDA and Triton cells are compiled, not run")
    done = ran([path, "--query-gpu=name,driver_version", "--format=csv,noheader"])
    if done.returncode:
        return "fail", f"nvidia-smi does not work: {told(done.stdout)}", "Load or reinstall the NVIDIA driver"
    if torch.version.cuda is None:
        cure = "Install a torch with CUDA (https://pytorch.org/get-started/locally)"
        return "fail", f"there is a GPU ({told(done.stdout)}), but this torch is built for the CPU alone", cure
    cure = "Update the driver, or install a torch built for an older CUDA"
    return "fail", f"torch cannot use the GPU ({told(done.stdout)}); it is built for CUDA {torch.version.cuda}", cure


def covers(known: Sequence[str], major: int, minor: int) -> bool:
    """Has this torch kernels for such a GPU: of its major version up to its minor one, or PTX that is older?"""
    for name in known:
        kind, _, number = name.partition("_")
        digits = "".join(c for c in number if c.isdigit())
        theirs = int(digits[:-1]), int(digits[-1])
        if (kind == "sm" and theirs[0] == major and theirs[1] <= minor) or (
            kind == "compute" and theirs <= (major, minor)
        ):
            return True
    return False


def triton_() -> Found:
    try:
        found = importlib.import_module("triton")
    except ImportError as error:
        return missing(f"cannot be imported ({error}): Triton cells cannot be built", f"Type `{PIP} triton`")
    ptxas = Path(found.__file__ or "").parent / "backends" / "nvidia" / "bin" / "ptxas"
    runs = "kernels run on the GPU" if gpu.present() else "its interpreter runs kernels on the CPU"
    if not ptxas.exists():
        return missing(
            f"{found.__version__}, without ptxas: nothing is compiled for a GPU",
            f"Type `{PIP} --force-reinstall triton`",
        )
    return works(f"{found.__version__}, with ptxas; {runs}")


def counters() -> Found:
    """A GPU's own counters, which `op.profile` asks through ncu."""
    from ..measure import profile_counters

    path = profile_counters.program()
    if not gpu.present():
        return missing("no GPU here to count on")
    if not path:
        return missing(
            "ncu is not here: profiles have no counters", "It comes with the CUDA toolkit (`nsight-compute`)"
        )
    try:
        closed = "RmProfilingAdminOnly: 1" in Path("/proc/driver/nvidia/params").read_text("ascii")
    except OSError:
        closed = False
    if closed and os.geteuid() != 0:
        said, _, cure = profile_counters.REFUSED.partition(". ")
        return missing(said, cure)
    return works(f"{path} may count")
