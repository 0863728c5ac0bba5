"""What is read from the log of ptxas, in the words of NVRTC 13.0, 13.5 and of nvcc."""

from __future__ import annotations

import pytest

from workbench.build import ptxas
from workbench.build.diagnostics import Lines
from workbench.build.resources import Resources

NVRTC = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4foldIfEvPKfPT_ii' for 'sm_90'
ptxas info    : Function properties for _Z4foldIfEvPKfPT_ii
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
ptxas info    : Compile time = 2.593 ms
ptxas info    : Compiling entry function '_Z3bigPfi' for 'sm_90'
ptxas info    : Function properties for _Z3bigPfi
ptxas         .     296 bytes stack frame, 564 bytes spill stores, 588 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 296 bytes cumulative stack size, 1200 bytes smem
ptxas info    : Compile time = 4.1 ms
"""
NVCC = """\
ptxas info    : 0 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function '_Z3bigPfi' for 'sm_80'
ptxas info    : Function properties for _Z3bigPfi
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, 1024+16 bytes smem, 380 bytes cmem[0], 20 bytes cmem[2]
"""
CALLS = """\
ptxas info    : Compiling entry function '_Z1kPi' for 'sm_90'
ptxas info    : Function properties for _Z1kPi
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers
ptxas info    : Function properties for _Z1fi
ptxas         .     40 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
"""


def test_resources_of_every_kernel():
    assert ptxas.resources(NVRTC) == (
        Resources("_Z4foldIfEvPKfPT_ii", 32),
        Resources("_Z3bigPfi", 32, spill_stores=564, spill_loads=588, stack=296, shared=1200),
    )
    assert ptxas.resources(NVCC) == (
        Resources("_Z3bigPfi", 40, spill_stores=4, spill_loads=12, stack=8, shared=1040, constant=400),
    )
    assert ptxas.resources("") == ()


def test_those_that_are_asked_for_in_their_order_under_their_names():
    assert [
        r.kernel
        for r in ptxas.resources(NVRTC, {"_Z3bigPfi": "big", "_Z4foldIfEvPKfPT_ii": "fold<float>", "_Z2no": "no"})
    ] == ["big", "fold<float>"]


def test_functions_that_are_not_inlined_spill_for_their_kernels():
    assert ptxas.resources(CALLS) == (Resources("_Z1kPi", 28, spill_stores=40, spill_loads=44),)


TEXT = (
    '#line 2 "cell [3]"\n__device__ float missing(float);\n__global__ void k(float* x) {\n  x[0] = missing(x[1]);\n}\n'
)


@pytest.mark.parametrize(
    ("log", "line", "severity", "message"),
    [
        (
            "ptxas error   : Entry function '_Z1kPf' uses too much shared data (0x13880 bytes, 0xc000 max)",
            3,
            "error",
            "k declares 80000 bytes of __shared__ memory, 49152 are the most",
        ),
        (
            "ptxas fatal   : Unresolved extern function '_Z7missingf'",
            2,
            "error",
            "missing is declared, but nothing defines it in device code",
        ),
        (
            "ptxas warning : Stack size for entry function '_Z1kPf' cannot be statically determined",
            3,
            "warning",
            "Stack size for entry function 'k' cannot be statically determined",
        ),
        (
            "ptxas application ptx input, line 26; error   : Unknown modifier '.bar'\nptxas fatal   : Ptx assembly aborted due to errors",
            0,
            "error",
            "inline assembly: Unknown modifier '.bar'",
        ),
        (
            "ptxas warning : For profile sm_90 adjusting per thread register count of 16 to lower bound of 24",
            0,
            "warning",
            "For profile sm_90 adjusting",
        ),
    ],
    ids=["shared", "undefined", "stack", "asm", "registers"],
)
def test_messages_are_on_the_lines_of_the_kernels(log, line, severity, message):
    (said,) = ptxas.diagnostics(log, Lines(TEXT, "cell"))
    assert (said.severity, said.line) == (severity, line)
    assert said.message.startswith(message)
    assert said.file == ("cell [3]" if line else "cell")


PTX = """\
.visible .entry _Z1kPf(
)
{
	.loc	1 3 0
	ld.param.u64 	%rd1, [_Z1kPf_param_0];
	.loc	1 5 3
	foo.bar %f1;
	.loc	2 7 1, function_name $L__info_string0, inlined_at 1 6 2
	baz;
}
	.file	1 "cell [3]"
	.file	2 "/me/warp.cuh"
"""


def test_lines_of_ptx_lead_to_the_users():
    assert ptxas.located(PTX, 7) == ("cell [3]", 5)
    assert ptxas.located(PTX, 9) == ("/me/warp.cuh", 7)
    assert ptxas.located(PTX, 2) == ("", 0)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z1kPf", "k"),
        ("_ZN4mine4deep5firstIfEEvPKT_PS2_", "mine::deep::first"),
        ("second", "second"),
        ("_ZN12_GLOBAL__N_11kEPf", "k"),
        ("_ZL6hiddenf", "hidden"),
    ],
)
def test_plain_names(symbol, name):
    assert ptxas.plain_name(symbol) == name
