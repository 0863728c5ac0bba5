"""Ops from files: what a folder holds, in which order it runs, and errors on the file's own lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import workbench as wb
from tests import live
from tests.live import SCALE, SCALE_BACKWARD
from workbench import cells, files
from workbench.loading import files_of

X = torch.linspace(-2, 3, 24).reshape(4, 6)
OP = """\
import torch
from torch import Tensor
import workbench as wb

@wb.op("live::scale")
def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k

@scale.cases
def _(t):
    yield t(4, 8), 3.0
"""
SHIFT = SCALE.replace("scale(", "shift(").replace("* k", "+ k")


@pytest.fixture(autouse=True)
def fresh():
    live.gone("live::scale")
    live.gone("live::shift")


@pytest.fixture
def lines():
    told = []
    with cells.telling(told.append):
        yield told


def folder(tmp_path: Path, **texts: str) -> Path:
    made = tmp_path / "kernels" / "scale"
    made.mkdir(parents=True)
    for name, text in texts.items():
        (made / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return made


def test_a_folder_is_an_op_with_its_slots(tmp_path, lines):
    where = folder(tmp_path, op__py=OP, scale__cpp=SCALE, scale__backward__cpp=SCALE_BACKWARD)
    [op] = wb.load(where)
    assert op.qualname == "live::scale" and set(op.slots) == {("forward", "cpu"), ("backward", "cpu")}
    assert torch.equal(op(X, 3.0), X * 3)
    assert [(line.slot, line.installed) for line in lines] == [("forward", True), ("backward", True)]
    assert sorted(p.name for p in where.iterdir()) == [
        "op.py",
        "scale.backward.cpp",
        "scale.cpp",
    ]  # nothing beside them


def test_a_file_fills_the_slot_that_its_name_says(tmp_path):
    where = folder(tmp_path, op__py=OP, scale__cpp=SCALE)
    wb.load(where / "op.py")
    [op] = wb.load(str(where / "scale.cpp"))
    assert op.runs().number == 1 and op.runs().source.file == str(where / "scale.cpp")


def test_two_ops_in_one_folder(tmp_path):
    second = OP.partition("@wb.op")[2].replace("scale", "shift").replace("x * k", "x + k")
    where = folder(tmp_path, op__py=OP + "\n@wb.op" + second, scale__cpp=SCALE, shift__cpp=SHIFT)
    found = wb.load(where)
    assert [op.qualname for op in found] == ["live::scale", "live::shift"]
    assert torch.equal(found[0](X, 3.0), X * 3) and torch.equal(found[1](X, 3.0), X + 3)


def test_a_bare_name_means_the_op_of_its_folder(tmp_path, namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
        return x * k

    where = folder(tmp_path, op__py=OP, scale__cpp=SCALE)
    [op] = wb.load(where)
    assert op.qualname == "live::scale" and op.slots and not scale.slots
    live.gone(f"{namespace}::scale")


def test_order_of_files(tmp_path):
    where = folder(tmp_path, a__backward__cpp="", b__cpp="", a__cpp="", op__py="", notes__txt="", warp__h="")
    assert [f.name for f in files_of(where)] == ["op.py", "a.cpp", "b.cpp", "a.backward.cpp"]


@pytest.mark.parametrize(
    "name", ["with space", "it's", 'a "quote"', "$HOME and $x", "a:12:3", "größe λ", "back\\slash", "100%"]
)
def test_any_folder_name_will_do(tmp_path, name):
    where = tmp_path / name
    where.mkdir()
    (where / "op.py").write_text(OP)
    (where / "more.h").write_text("#define MORE 1e-30f\n")
    (where / "scale.cpp").write_text('#include "more.h"\n' + SCALE.replace("x[i] * k", "x[i] * k + MORE"))
    [op] = wb.load(where)
    assert op(torch.zeros(1)).item() == pytest.approx(1e-30, rel=1e-3, abs=0)
    (where / "scale.cpp").write_text('#include "more.h"\n' + SCALE.replace("x[i] * k", "x[i] * kk + MORE"))
    with pytest.raises(wb.BuildError) as raised:
        wb.load(where / "scale.cpp")
    first = raised.value.diagnostics[0]
    assert (first.file, first.line) == (str(where / "scale.cpp"), 7) and "x[i] * kk" in first.excerpt
    (where / "more.h").write_text("#define MORE 1e-30f\n\nint broken(\n")
    with pytest.raises(wb.BuildError) as raised:
        wb.load(where / "scale.cpp")
    assert raised.value.diagnostics[0].file in (str(where / "more.h"), str(where / "scale.cpp"))


def test_errors_are_on_the_files_lines_and_what_was_loaded_stays(tmp_path):
    where = folder(
        tmp_path, op__py=OP, scale__cpp=SCALE, scale__backward__cpp="\n//! grad_x = empty_like(y)\nvoid backward() {}\n"
    )
    with pytest.raises(wb.SchemaError) as raised:
        wb.load(where)
    assert (raised.value.file, raised.value.line) == (str(where / "scale.backward.cpp"), 2)
    assert str(raised.value).startswith(f"{where / 'scale.backward.cpp'}, line 2: ")
    assert torch.equal(wb.ops["live::scale"](X, 3.0), X * 3) and wb.ops["live::scale"].slots


def test_an_error_in_op_py_is_pythons_own(tmp_path):
    where = folder(tmp_path, op__py=OP + "1 / 0\n")
    with pytest.raises(ZeroDivisionError) as raised:
        wb.load(where)
    last = raised.traceback[-1]
    assert str(last.path) == str(where / "op.py") and last.lineno + 1 == 12
    assert "live::scale" in wb.ops


def test_an_edited_op_py_is_read_again_at_once(tmp_path):
    """Bytecode of the same second and length would be taken for the same file."""
    where = folder(tmp_path, op__py=OP)
    [op] = wb.load(where)
    (where / "op.py").write_text(OP.replace("return x * k", "return x / k"))
    assert wb.load(where) == [op] and torch.equal(op(X, 2.0), X / 2)


@pytest.mark.parametrize(("data", "words"), [
    (b"//! n = x.numel()\n// caf\xe9\n", "line 2: the byte 0xe9 is no UTF-8: save the file as UTF-8"),
    ("void f() {}".encode("utf-16"), "line 1: the byte 0xff is no UTF-8"),
])  # fmt: skip
def test_a_file_in_another_encoding(tmp_path, data, words):
    (tmp_path / "scale.cpp").write_bytes(data)
    with pytest.raises(wb.SchemaError) as raised:
        wb.load(tmp_path / "scale.cpp")
    assert f"scale.cpp, {words}" in str(raised.value)


def test_newlines_and_marks_of_other_systems(tmp_path):
    (tmp_path / "scale.cpp").write_bytes(b"\xef\xbb\xbf" + SCALE.replace("\n", "\r\n").encode())
    assert files.read(tmp_path / "scale.cpp") == SCALE


def test_paths_that_hold_no_op(tmp_path):
    for path, words in (
        (tmp_path / "absent", "there is no file or folder"),
        (tmp_path, "holds no op.py and no kernel"),
    ):
        with pytest.raises(wb.SchemaError, match=words):
            wb.load(path)
    inner = folder(tmp_path, op__py="import torch\n")
    with pytest.raises(wb.SchemaError) as raised:
        wb.load(tmp_path / "kernels")
    assert f"load one of the folders in it: {inner}" in str(raised.value)
    with pytest.raises(wb.SchemaError, match=r"defines no op: put a reference under @wb.op"):
        wb.load(inner)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(
        wb.SchemaError,
        match=r"a kernel file ends in \.cpp, \.cc, \.cxx, \.cu, _triton\.py, _triton\.backward\.py or \.py, got '\.txt'",
    ):
        wb.load(tmp_path / "notes.txt")


def test_the_function_stays_a_function():
    """A module of the same name would take its place in the package as soon as anything imports it."""
    import workbench.loading  # noqa: F401

    assert wb.load.__module__ == "workbench.loading"
