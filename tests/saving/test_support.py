"""The headers of a package: those of the live launchers without what only these need."""

from __future__ import annotations

import re

import pytest

from workbench.saving import support

EVERY = ("launcher.h", "launcher_cuda.h", "wb_body_std.h", "wb_half.h", "wb_bfloat16.h", "wb_host.h", "wb_host_gpu.h",
         "wb_full_call.h", "cuda_body.h")  # fmt: skip


def test_live_parts_are_cut():
    text = """a
#define WB_LIVE
#ifdef WB_LIVE
live
#ifdef INNER
live too
#endif
#else
other
#endif
#ifdef KEPT
wb::f(wb_x, WB_Y);
#else
kept
#endif
"""
    assert (
        support.standalone(text)
        == """a
other
#ifdef KEPT
host_code::f(host_code_x, HOST_CODE_Y);
#else
kept
#endif
"""
    )


def test_every_include_is_there_and_nothing_is_left_of_us():
    found = support.files(EVERY)
    for path, text in found.items():
        assert "WB_" not in text and not re.search(r"\bwb\b(?!::current_stream|\s*\{\nusing)", text), path
        for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            assert f"csrc/support/{name}" in found, f"{path} includes {name}"
        opened = len(re.findall(r"^\s*#\s*if", text, re.MULTILINE))
        assert opened == len(re.findall(r"^\s*#\s*endif", text, re.MULTILINE)), path
    assert "hook" not in found["csrc/support/launcher.h"] and "hook" not in found["csrc/support/launcher_run.h"]
    assert "csrc/support/driver.h" not in found


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            '#include "wb_body_math.h"\nwb::Value v; wb_fits<int>(1);',
            '#include "support/body_math.h"\nhost_code::Value v; host_code_fits<int>(1);',
        ),
        (
            '#include "launcher.h"\nstatic void plan(wb::Frame& f) {',
            '#include "support/launcher.h"\nstatic void plan(host_code::Frame& f) {',
        ),
        ('#include "kernels/wb.cpp"\nint web;', '#include "kernels/wb.cpp"\nint web;'),
    ],
)
def test_names_in_generated_text(given, wanted):
    assert support.own(given) == wanted
