"""What users get wrong: each time a clear error on its line, nothing lost, and the former version still right."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests import live
from tests.live import SCALE
from workbench import cells
from workbench.build import cache
from workbench.source import Source

X = torch.linspace(-2, 3, 24).reshape(4, 6)
PLAIN = SCALE.replace("template <typename T>\n", "").replace("T*", "float*").replace("T(", "float(")


@pytest.fixture
def scale():
    op = live.scale()
    cell(SCALE)
    return op


def cell(text: str, target: str = "scale", number: int = 7, **options):
    """Run a text as a notebook does: its magic's line is line 1."""
    return cells.run(target, Source(text, "cpp", file=f"cell [{number}]", first_line=2, path=os.getcwd()), **options)


def still_right(op) -> bool:
    return op.runs().number == 1 and torch.equal(op(X, 3.0), X * 3) and torch.equal(torch.ops.live.scale(X, 3.0), X * 3)


# ---------------------------------------------------------------- the text

TEXTS = {
    "a missing semicolon": ((";\n}", "\n}"), wb.BuildError, 7, "expected ‘;’ before ‘}’ token"),
    "a missing brace": (("}\n", ""), wb.BuildError, 6, "expected"),
    "an undeclared name": (("x[i] * k", "x[i] * kk"), wb.BuildError, 7, "‘kk’ was not declared in this scope; did you mean ‘k’?"),
    "an input written to": (("out[i] =", "x[i] ="), wb.BuildError, 7, "read-only"),
    "a missing header": (("//! n", '#include "nope.h"\n//! n'), wb.BuildError, 2, "there is no header nope.h"),
    "an unknown flag": (("//! n", "//! flags -fno-such\n//! n"), wb.BuildError, 2, "-fno-such"),
    "another function": (("void scale", "void skale"), wb.SchemaError, 6, "no function is called 'scale' here; did you mean 'skale'?"),
    "no function": ((SCALE[SCALE.index("template") :], ""), wb.SchemaError, 2, "the cell defines no function; write 'void scale(...)'"),
    "nothing at all": ((SCALE, ""), wb.SchemaError, 2, "the cell defines no function"),
    "an unbound parameter": (("int64_t n)", "int64_t m)"), wb.SchemaError, 6, "the parameter 'm' binds to no argument and no directive; known here: x, k, n, out"),
    "a type that no value has": (("double k", "std::string k"), wb.SchemaError, 6, "'std::string k': a raw kernel takes pointers"),
    "an input that is not const": (("const T* x", "T* x"), wb.SchemaError, 6, "writes through x, which is not declared in mutates"),
    "a directive that does not parse": (("x.numel()", "x.numel("), wb.SchemaError, 2, "'n = x.numel(' does not parse: '(' was never closed"),
    "a directive in other words": (("n = x", "n := x"), wb.SchemaError, 2, "does not parse"),
    "an unknown name": (("x.numel()", "z.numel()"), wb.SchemaError, 2, "nothing is called 'z'; known here: x, k"),
    "an unknown function": (("x.numel()", "product(x.shape)"), wb.SchemaError, 2, "'product' is no function of the directive language; did you mean 'prod'?"),
    "an output that nothing makes": (("//! out = empty_like(x)\n", ""), wb.SchemaError, 2, "nothing makes the output 'out'"),
    "a name defined twice": (("//! out", "//! n = 1\n//! out"), wb.SchemaError, 3, "n is defined twice: line 2 has it already"),
}  # fmt: skip


@pytest.mark.parametrize("what", TEXTS)
def test_a_text_that_is_no_kernel(scale, what):
    (old, new), kind, line, words = TEXTS[what]
    assert old in SCALE
    with pytest.raises(kind, match=re.escape(words)) as raised:
        cell(SCALE.replace(old, new, 1))
    error = raised.value
    assert type(error) is kind and error.line == line and error.file == "cell [7]"
    assert str(error).startswith(f"cell [7], line {line}: ") and str(error).endswith("scale forward still runs v1")
    assert len(scale.versions) == 2 and still_right(scale)
    cell(SCALE.replace("x[i] * k", "k * x[i]"))  # and the next cell just works
    assert torch.equal(scale(X, 3.0), X * 3)


def test_half_a_character_is_named_on_its_line(scale):
    with pytest.raises(wb.SchemaError, match=r"cell \[7\], line 4: the character U\+D800 is half of one"):
        cell(SCALE.replace("// Times k", "// Times \ud800"))
    assert still_right(scale)


def test_a_byte_order_mark_before_a_text_is_passed_over(scale):
    cell("\ufeff" + SCALE.replace("x[i] * k", "k * x[i]"))
    assert scale.runs().number == 2 and torch.equal(scale(X, 3.0), X * 3)


def test_an_error_of_the_compiler_has_diagnostics_an_excerpt_and_a_line_of_its_own(scale):
    told = []
    cells.listeners.append(told.append)
    try:
        with pytest.raises(wb.BuildError) as raised:
            cell(SCALE.replace("x[i] * k", "x[i] * kk"))
    finally:
        cells.listeners.remove(told.append)
    [first, *_] = raised.value.diagnostics
    column = first.excerpt.index("kk") + 1
    assert (first.file, first.line, first.column, first.severity) == ("cell [7]", 7, column, "error")
    assert first.excerpt == "  for (int64_t i = 0; i < n; ++i) out[i] = T(x[i] * kk);" and "‘kk’" in raised.value.log
    [line] = told
    assert not line.installed and line.still == "v1" and line.diagnostics[0] == first
    assert "kk" in line._repr_mimebundle_()["text/html"] and "scale cpp v2 not installed" in str(line)


def test_the_same_failing_build_twice_runs_no_compiler_and_names_the_new_cell(scale, tmp_path, monkeypatch):
    compiler, count = live.counting_compiler(tmp_path)
    monkeypatch.setenv("WORKBENCH_CXX", compiler)
    text = SCALE.replace("x[i] * k", "x[i] * kkk")
    cell(SCALE)  # another compiler is another launcher
    before = live.compilations(count)
    for number in (8, 9):
        with pytest.raises(wb.BuildError, match=rf"cell \[{number}\], line 7: ‘kkk’") as raised:
            cell(text, number=number)
        assert raised.value.diagnostics[0].file == f"cell [{number}]"
    assert live.compilations(count) == before + 1
    assert torch.equal(scale(X, 3.0), X * 3)


@pytest.mark.parametrize(("target", "words"), [
    ("scale.sideways", "'scale.sideways' is no target: write an op's name, or name.backward"),
    ("absent.backward", "there is no op lab::absent whose backward this could be; define it with wb.op first"),
    ("aten::relu", "the namespace 'aten' belongs to PyTorch"),
    ("a b", "must be a plain identifier"),
    ("", "is no target"),
])  # fmt: skip
def test_a_target_that_is_none(scale, target, words):
    with pytest.raises(wb.SchemaError, match=re.escape(words)):
        cell(SCALE, target)
    assert still_right(scale) and "lab::absent" not in wb.ops


def test_a_name_in_two_namespaces(scale):
    wb.op("live_too::scale(Tensor x) -> Tensor")
    try:
        with pytest.raises(wb.SchemaError, match="'scale' could be live::scale or live_too::scale; write one of these"):
            cell(SCALE)
    finally:
        live.gone("live_too::scale")
    assert still_right(scale)


# ---------------------------------------------------------------- the call

CHECKED = PLAIN.replace(
    "//! n", "//! rows, cols = x.shape\n//! require x.numel() < 100\n//! wide = x.numel() * 50000000\n//! n"
)
CHECKED = CHECKED.replace("int64_t n)", "int64_t n, int wide)")
CALLS = {
    "a wrong rank": (lambda s: s(torch.ones(3)), "x.*(3,)|rank|dim"),
    "a wrong shape": (lambda s: s(torch.ones(10, 10)), r"require x\.numel\(\) < 100 is not met: x\.numel\(\) is 100 \(line 3\)"),
    "a wrong dtype": (lambda s: s(torch.ones(2, 2).double()), "its parameter 'const float[*] x' takes float32 alone, x is float64.*built so far: float32"),
    "a dtype without a C++ type": (lambda s: s(torch.ones(2, 2, dtype=torch.complex64)), "complex64"),
    "a number beyond 32 bits": (lambda s: s(torch.ones(7, 7)), r"wide.*2450000000|2450000000.*wide"),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_a_call_that_the_kernel_cannot_take(what):
    scale = live.scale()
    cell(CHECKED)
    call, words = CALLS[what]
    with pytest.raises(RuntimeError, match=words) as raised:
        call(scale)
    assert str(raised.value).startswith("live::scale (cpp): ")
    with pytest.raises(RuntimeError, match=words):  # the same through torch.ops
        call(torch.ops.live.scale)
    assert torch.equal(scale(X[:, :4], 3.0), X[:, :4] * 3)


def test_tensors_on_two_devices():
    norm = live.norm()
    wb.cpp(norm, live.NORM)
    with pytest.raises((RuntimeError, NotImplementedError), match="meta|device"):
        norm(torch.ones(2, 4), torch.ones(4, device="meta"))
    assert live.close(norm(torch.ones(2, 4), torch.ones(4)), torch.ones(2, 4))


def test_integers_are_tried_when_they_arrive(scale):
    with pytest.raises(RuntimeError, match="was tried for x int64 and differs.*int64"):
        scale(torch.ones(2, 2, dtype=torch.int64))  # the reference gives float32
    assert still_right(scale)


def test_a_mutated_argument_is_never_copied():
    live.gone("live::fill_")

    @wb.op("live::fill_", mutates="x")
    def fill_(x: torch.Tensor) -> None:
        x.fill_(7)

    @fill_.cases
    def _(t):
        yield (t(3, 4),)

    wb.cpp(fill_, "//! n = x.numel()\nvoid fill_(float* x, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] = 7; }")
    x = torch.zeros(4, 6)
    with pytest.raises(RuntimeError, match="contiguous"):
        fill_(x.t())
    assert not x.any()
    fill_(x)
    assert (x == 7).all()


# ---------------------------------------------------------------- the machine


@pytest.mark.parametrize(("compiler", "words"), [
    ("/nonexistent/g++", "WORKBENCH_CXX names /nonexistent/g++, which is no program that can be run"),
    ("/bin/false", "does not compile C++"),
])  # fmt: skip
def test_a_missing_compiler(scale, monkeypatch, compiler, words):
    monkeypatch.setenv("WORKBENCH_CXX", compiler)
    with pytest.raises(wb.ToolchainError, match=re.escape(words)) as raised:
        cell(SCALE.replace("x[i] * k", "k * x[i] * 1"))
    assert "apt install g++" in str(raised.value) and str(raised.value).endswith("scale forward still runs v1")
    assert still_right(scale)


def test_a_cache_that_is_no_folder_is_replaced_for_this_process(scale, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "cache"))
    cell(SCALE.replace("x[i] * k", "k * x[i] + 0"))
    assert torch.equal(scale(X, 3.0), X * 3)
    said = " ".join(str(scale.last_line).split())
    assert (
        "note: " in said
        and "the cache cannot be written to (Not a directory" in said
        and "Set WORKBENCH_CACHE to a folder" in said
    )


def test_no_room_anywhere(scale, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(
        cache.tempfile, "mkdtemp", lambda **_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(
        wb.ToolchainError, match="there is no room to build in.*No space left on device.*Set WORKBENCH_CACHE"
    ) as raised:
        cell(SCALE.replace("x[i] * k", "k * x[i] - 0"))
    assert "scale forward still runs v1" in str(raised.value) and still_right(scale)


@pytest.mark.parametrize("damage", [lambda path: os.truncate(path, 100), lambda path: os.unlink(path), "foreign"])
def test_a_damaged_entry_of_the_store_is_built_again(scale, tmp_path, monkeypatch, damage):
    text = SCALE.replace("x[i] * k", f"k * x[i] + {len(str(damage))} * 0")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    cell(text)
    [(instance, build)] = scale.runs().kernel._forms.values()
    copy = tmp_path / "copy"  # what is loaded stays loaded: its file is replaced, not written to
    copy.write_bytes(b"\x7fELF, but of somebody else" * 100 if damage == "foreign" else Path(build.path).read_bytes())
    os.replace(copy, build.path)
    if damage != "foreign":
        damage(build.path)
    cache._stores.clear()  # as after a restart
    cell(text)
    assert torch.equal(scale(X, 3.0), X * 3)
    assert scale.runs().number == 3 and not scale.last_line.cached
