"""From an address of a library to a line of the cell, by a second build with line information."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from workbench.build import cpp, places

pytestmark = pytest.mark.skipif(not shutil.which("addr2line"), reason="no addr2line here")
TEXT = (
    '#line 3 "cell [7]"\nextern "C" __attribute__((visibility("default"))) void f(volatile int* p) {\n\n  *p = 1;\n}\n'
)


@pytest.fixture
def build(fresh_cache):
    return cpp.compile(TEXT, kind="body", file="cell [7]")


def again(text: str = TEXT):
    return cpp.compile(text, kind="body", file="cell [7]", flags=places.WITH_LINES, once=True)


def address(path: str) -> int:
    """Of the store in f, the first instruction."""
    said = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[0], 16) for line in said.splitlines() if line.endswith(" f"))


def test_the_line_of_an_instruction(build):
    at = address(build.path)
    assert places.find([(build.path, at, False)], build, again, "cell [7]", []) == "line 5"
    assert places.find([(build.path, at, True)], build, again, "cell [7]", []) == "called on line 5"


def test_a_line_of_a_header_names_it(build):
    at, folder = address(build.path), os.getcwd()
    shown = cpp.compile(
        TEXT.replace("cell [7]", f"{folder}/warp.h"), kind="body", file="x", flags=places.WITH_LINES, once=True
    )
    assert places.find([(build.path, at, False)], build, lambda: shown, "cell [7]", [folder]) == "warp.h, line 5"


def test_no_line_is_told_where_the_code_is_another(build):
    at = [(build.path, address(build.path), False)]
    assert places.find(at, build, lambda: again(TEXT.replace("= 1", "= 2")), "cell [7]", []) == ""


def test_no_line_for_other_libraries_or_without_the_tool(build, monkeypatch):
    at = address(build.path)
    assert places.find([("/lib/libc.so.6", at, False)], build, again, "cell [7]", []) == ""
    assert places.find([(build.path, at, False)], build, again, "another cell", []) == ""
    assert places.find([(build.path, at, False)], replace(build, path="/gone.so"), again, "cell [7]", []) == ""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(shutil, "which", lambda *a, **k: None)
    assert places.find([(build.path, at, False)], build, again, "cell [7]", []) == ""
