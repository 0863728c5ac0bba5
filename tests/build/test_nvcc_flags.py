"""Flags of nvcc: which words belong together, and to which compiler they go."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from workbench import settings
from workbench.build import flags, host_cuda, nvcc_flags

NVCC = shutil.which("nvcc", path=f"{settings.programs()}:/usr/local/cuda/bin")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("-arch=sm_90a",), ("-arch=sm_90a",)),
        (("-rdc=true", "-dlto", "-restrict"), ("-rdc=true", "-dlto", "-restrict")),
        (("-ftz=true", "-fmad=false", "-prec-div=false"), ("-ftz=true", "-fmad=false", "-prec-div=false")),
        (("-extended-lambda", "-diag-suppress=20012"), ("-extended-lambda", "-diag-suppress=20012")),
        (
            ("-fopenmp", "-march=native", "-Wall"),
            ("-Xcompiler=-fopenmp", "-Xcompiler=-march=native", "-Xcompiler=-Wall"),
        ),
        (("-Xcompiler", "-fPIC"), ("-Xcompiler=-fPIC",)),
        (("-include", "a.h", "-isystem", "inc"), ("-include=a.h", "-isystem=inc")),
        (("-iquote", "inc"), ("-Xcompiler=-iquote", "-Xcompiler=inc")),
        (("-Werror", "all-warnings", "-Werror"), ("-Werror=all-warnings", "-Xcompiler=-Werror")),
        (("-O3", "-Ofast", "-I", "inc", "-DN=4", "-t", "2"), ("-O3", "-Xcompiler=-Ofast", "-Iinc", "-DN=4", "-t2")),
        (("-Wl,-z,now", "-lm", "-Xlinker", "-s"), ("-Xlinker=-z,now", "-lm", "-Xlinker=-s")),
    ],
)
def test_nvccs_own_words_stay_nvccs(given, wanted):
    assert nvcc_flags.spoken(given) == wanted


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed here")
def test_every_option_that_nvcc_tells_of_is_its_own():
    """Without those that say what is made, and where it goes: no cell has them."""
    said = subprocess.run([str(NVCC), "--help"], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^--\S+.*\((-[\w-]+)\)\s*$", said, re.MULTILINE)
    made = re.compile(
        r"-(?:cuda|cubin|fatbin|ptx|optix-ir|ltoir|[EMcorhV]|M[MDFPT]+|dc|dw|dlink|link|lib|run|run-args|objtemp|odir|"
        r"arbin|use-local-env|force-cl-env-setup|shared|dryrun|save-temps|clean|idp|ddp|dp|Werror|code-ls|arch-ls|hls|"
        r"aug-hls|no-err-no|qpp-config|jobserver|gen-opt-lto)"
    )
    assert len(names) > 80
    assert [n for n in names if not nvcc_flags.own(n) and not made.fullmatch(n)] == []


def test_a_cells_halves_share_its_flags():
    given = (
        "-gencode",
        "arch=compute_90a,code=sm_90a",
        "-Xcompiler",
        "-fopenmp",
        "-Xptxas",
        "-v",
        "-DN=4",
        "-restrict",
        "-lm",
    )
    host, device = host_cuda.parted(given)
    assert host == ("-fopenmp", "-DN=4", "-lm")
    assert device == ("-gencode=arch=compute_90a,code=sm_90a", "-Xptxas=-v", "-DN=4")
    assert host_cuda.parted(("-lineinfo", "-include", "a.h", "-rdc=true")) == (("-include", "a.h"), ("-lineinfo",))


def test_line_info_is_no_library():
    assert flags.links("-lm") and not flags.links("-lineinfo")
