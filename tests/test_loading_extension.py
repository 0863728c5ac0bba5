"""An extension's own sources: two files and a header, built, edited, broken, watched and loaded again."""

from __future__ import annotations

import pytest
import torch

import workbench as wb
from workbench import cells, loading, watch

SCALED = """\
#pragma once
#include <ATen/ATen.h>
inline at::Tensor scaled(const at::Tensor& x, double k) { return x * k + BIAS; }
"""
A = """\
#include <torch/library.h>
#include "scaled.h"
at::Tensor twice(const at::Tensor& x) { return scaled(x, 2.0); }
TORCH_LIBRARY(loadext, m) {
  m.def("twice(Tensor x) -> Tensor", &twice);
  m.def("thrice(Tensor x) -> Tensor");
}
"""
B = """\
#include <torch/library.h>
#include "scaled.h"
at::Tensor thrice(const at::Tensor& x) { return scaled(x, 3.0); }
TORCH_LIBRARY_IMPL(loadext, CPU, m) { m.impl("thrice", &thrice); }
"""
ONE = torch.ones(1)


@pytest.fixture
def lines():
    told = []
    with cells.telling(told.append):
        yield told


@pytest.mark.slow
def test_two_sources_and_a_header(tmp_path, lines, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my ext: $1"
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "scaled.h").write_text(SCALED)
    (folder / "a.cpp").write_text(A)
    (folder / "b.cpp").write_text(B)
    options = {"sources": ["a.cpp", "b.cpp"], "extra_cflags": ["-DBIAS=0"], "extra_include_paths": ["include"]}

    found = wb.load("my ext: $1", **options)
    assert sorted(op.qualname for op in found) == ["loadext::thrice", "loadext::twice"]
    twice, thrice = wb.ops["loadext::twice"], wb.ops["loadext::thrice"]
    assert (twice(ONE).item(), thrice(ONE).item(), torch.ops.loadext.thrice(ONE).item()) == (2.0, 3.0, 3.0)

    shown, now = [], [0.0]
    watched = watch.Watch(folder, shown.append, clock=lambda: now[0])
    watched.load()  # as it was loaded
    assert shown[-1].ok and shown[-1].lines[0].cached
    (folder / "include" / "scaled.h").write_text(SCALED.replace("+ BIAS", "+ BIAS + 1"))
    assert not watched.poll()
    now[0] = 1.0
    assert watched.poll() and shown[-1].ok
    assert (twice(ONE).item(), thrice(ONE).item()) == (3.0, 4.0)
    assert "rebuilt: scaled.h changed" in shown[-1].lines[0].notes

    (folder / "b.cpp").write_text(B.replace("scaled(x, 3.0)", "scaled(y, 3.0)"))
    with pytest.raises(wb.BuildError) as raised:
        wb.load(folder, **options)
    first = raised.value.diagnostics[0]
    assert (first.file, first.line) == ("my ext: $1/b.cpp", 3) and "'y' was not declared" in first.message.replace(
        "‘", "'"
    ).replace("’", "'")
    assert thrice(ONE).item() == 4.0


def test_paths_begin_in_the_folder_and_then_where_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "a.cpp").write_text("")
    assert loading._inside(tmp_path / "ext", "a.cpp") == tmp_path / "ext" / "a.cpp"
    assert str(loading._inside(tmp_path / "ext", "ext/a.cpp")) == "ext/a.cpp"
    assert loading._inside(tmp_path / "ext", "absent.cpp") == tmp_path / "ext" / "absent.cpp"


@pytest.mark.parametrize(("path", "given", "words"), [
    ("ext", {"sources": "a.cpp"}, r"sources is a list of files, got the string 'a\.cpp'"),
    ("ext", {"sources": ["absent.cpp"]}, r"absent\.cpp cannot be read: No such file or directory"),
    ("ext", {"sources": ["notes.txt"]}, r"a source ends in \.cpp, \.cc, \.cxx, \.cu, \.c, got '\.txt'"),
    ("ext", {"sources": []}, "has no sources"),
    ("ext/a.cpp", {"sources": ["a.cpp"]}, "is no folder: with sources="),
    ("ext", {"extra_cflags": ["-O3"]}, r"extra_cflags: only with sources=\[\.\.\.\]"),
    ("absent", {"sources": ["a.cpp"]}, "there is no file or folder"),
])  # fmt: skip
def test_what_is_no_extension(tmp_path, path, given, words):
    (tmp_path / "ext").mkdir()
    (tmp_path / "ext" / "a.cpp").write_text("int f() { return 1; }\n")
    (tmp_path / "ext" / "notes.txt").write_text("")
    (tmp_path / "ext" / "k.cu").write_text("TORCH_LIBRARY(cuext, m) {}\n")
    with pytest.raises(wb.SchemaError, match=words):
        wb.load(tmp_path / path, **given)
