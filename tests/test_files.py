"""A cell and its file: one text, two places."""

from __future__ import annotations

import os

import pytest
import torch

import workbench as wb
from tests import live
from tests.live import SCALE
from workbench import cells, files
from workbench.source import Source


@pytest.fixture
def scale():
    return live.scale()


def cell(text: str, folder) -> Source:
    return Source(text, "cpp", file="cell [3]", first_line=2, path=str(folder))


def test_the_file_lies_beside_the_notebook(scale, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    cells.run("scale", cell(SCALE, tmp_path), file="scale.cpp")
    assert (tmp_path / "scale.cpp").read_text() == SCALE and sorted(os.listdir(tmp_path)) == ["elsewhere", "scale.cpp"]


def test_it_loads_and_opens_as_the_cell(scale, tmp_path):
    text = "\n" + SCALE.rstrip("\n")
    cells.run("scale", cell(text, tmp_path), file="scale.cpp")
    opened = files.as_cell(tmp_path / "scale.cpp", "scale.cpp")
    assert opened == "%%cpp scale --file scale.cpp\n" + text
    [op] = wb.load(tmp_path / "scale.cpp")
    assert op is scale and op.runs().number == 2 and torch.equal(op(torch.ones(2), 3.0), torch.full((2,), 3.0))


def test_lines_of_the_file_are_those_below_the_magic(scale, tmp_path):
    text = SCALE.replace("x[i] * k", "x[i] * kk")
    for run in (
        lambda: cells.run("scale", cell(text, tmp_path), file="scale.cpp"),
        lambda: wb.load(tmp_path / "scale.cpp"),
    ):
        with pytest.raises(wb.BuildError) as raised:
            run()
        first = raised.value.diagnostics[0]
        assert first.line == {"cell [3]": 7}.get(first.file, 6)


def test_a_file_named_otherwise_opens_for_the_target_of_its_cell(scale, tmp_path):
    cells.run("scale.backward", cell(live.SCALE_BACKWARD, tmp_path), file="fast.cpp")
    assert files.target(tmp_path / "fast.cpp") == "scale.backward"


@pytest.mark.parametrize("name", ["scale.cu", "scale_triton.py", "scale.txt", "scale"])
def test_a_name_under_which_it_would_not_load_as_what_it_is(scale, tmp_path, name):
    with pytest.raises(
        wb.SchemaError, match=f"--file {name}: a C.. file ends in .cpp or .cc or .cxx; the cell was not"
    ):
        cells.run("scale", cell(SCALE, tmp_path), file=name)
    assert not os.listdir(tmp_path) and not scale.slots


@pytest.mark.parametrize("name", ["with space.cpp", "it's.cpp", '"q".cpp', "$HOME.cpp", "a:b.cpp", "größe.cpp"])
def test_any_name_will_do(scale, tmp_path, name):
    cells.run("scale", cell(SCALE, tmp_path), file=name)
    assert os.listdir(tmp_path) == [name]
    from workbench.magic import parse

    assert parse(files.as_cell(tmp_path / name, name).partition("\n")[0].removeprefix("%%cpp ")) == (
        "scale",
        {"file": name},
    )


def test_no_folder_is_made(scale, tmp_path):
    with pytest.raises(
        wb.SchemaError, match=r"cannot be written: there is no folder .*absent; make it first\. The cell was not built"
    ):
        cells.run("scale", cell(SCALE, tmp_path), file="absent/scale.cpp")
    with pytest.raises(wb.SchemaError, match="it is a folder"):
        cells.run("scale", cell(SCALE, tmp_path), file=".")
    assert not os.listdir(tmp_path) and len(scale.versions) == 1


def test_a_link_stays_a_link_and_its_mode_the_files(scale, tmp_path):
    (tmp_path / "real.cpp").write_text("old")
    os.chmod(tmp_path / "real.cpp", 0o640)
    os.symlink("real.cpp", tmp_path / "scale.cpp")
    cells.run("scale", cell(SCALE, tmp_path), file="scale.cpp")
    assert (tmp_path / "scale.cpp").is_symlink() and (tmp_path / "real.cpp").read_text() == SCALE
    assert os.stat(tmp_path / "real.cpp").st_mode & 0o777 == 0o640


def test_a_file_that_says_it_already_is_left_alone(scale, tmp_path):
    (tmp_path / "scale.cpp").write_text(SCALE)
    os.utime(tmp_path / "scale.cpp", ns=(10**9, 10**9))
    cells.run("scale", cell(SCALE, tmp_path), file="scale.cpp")
    assert os.stat(tmp_path / "scale.cpp").st_mtime_ns == 10**9


def test_how_messages_name_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert files.shown(tmp_path / "kernels" / "a.cpp") == "kernels/a.cpp"
    assert files.shown("/elsewhere/a.cpp") == "/elsewhere/a.cpp" and files.shown("../a.cpp") == "../a.cpp"
