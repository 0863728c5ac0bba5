"""What we wrote down about torch's stable ABI is what this torch says."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from workbench.build import cpp
from workbench.build.ctypes_cpp import CODES, CPP, DTYPE_CODES, dtype_of, name_of

LIBTORCH = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def test_our_declarations_agree_with_torchs_headers():
    text = '#include "abi.h"\n#include <torch/csrc/stable/c/shim.h>\n#include "directives.h"\n'
    cpp.compile(text, kind="launcher")
    cpp.compile("\n".join(reversed(text.strip().splitlines())), kind="launcher")


def test_the_codes_of_dtypes_are_torchs():
    library = ctypes.CDLL(str(LIBTORCH))
    for dtype, code in DTYPE_CODES.items():
        name = str(dtype).removeprefix("torch.")
        assert getattr(library, f"aoti_torch_dtype_{name}")() == code, name


def test_the_header_knows_names_and_sizes_of_dtypes():
    body = "".join(
        f"static_assert(wb::{str(d).removeprefix('torch.') + '_' * (d == torch.bool)} == {code});\n"
        f"static_assert(wb::element_size({code}) == {d.itemsize});\n"
        for d, code in DTYPE_CODES.items()
    )
    cpp.compile('#include "directives.h"\n' + body, kind="body")


def test_every_c_type_has_a_code_and_a_dtype():
    assert {name_of(spelled) for spelled in CPP.values()} <= set(CODES)
    assert {dtype_of(spelled): spelled for spelled in CPP.values()} == CPP
    same = {"long long": "int64_t", "std::int32_t": "int", "unsigned char": "uint8_t", "long unsigned int": "uint64_t",
            "const float": "float", "_Float16": "half"}  # fmt: skip
    assert {spelled: name_of(spelled) for spelled in same} == same
    assert name_of("Tensor") is None
    assert dtype_of("void") is None
