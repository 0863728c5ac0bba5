"""The flags and headers of a cell in a package: where they lie there, and which compiler is given what."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import workbench as wb
from tests.saving import ops
from workbench import toolchain
from workbench.errors import SaveError
from workbench.saving import flags, kernels_layout
from workbench.source import Source

F = "csrc/kernels/f.cpp"
IN_FOLDER = (F, "csrc/kernels/include/a.h")
CELL = """//! n = x.numel()
//! out = empty_like(x)
#include {header}
template <typename T> void shift(const T* x, T* out, double k, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) out[i] = shifted(x[i], k);
}}
"""


def cell(folder: object = "", language: str = "cpp") -> Source:
    return Source("", language, "cell [3]", path=str(folder))


# ---------------------------------------------------------------- which compiler is given what


@pytest.mark.parametrize(
    ("given", "compiling", "linking"),
    [
        ("-O3 -fopenmp -lm", ("-O3", "-fopenmp"), ("-fopenmp", "-lm")),
        ("-D N=4 -Xlinker -z -Wl,-O1", ("-DN=4",), ("-Wl,-z", "-Wl,-O1")),
        ("-I nothing -isystem none", (), ()),
    ],
)
def test_flags_of_a_cpp_cell(given, compiling, linking):
    assert flags.for_cpp(given.split(), cell(), [F]) == flags.Flags(compiling, linking)


@pytest.mark.parametrize("given", ["-Iinclude", "-I include/", "-I./include"])
def test_folders_of_headers_are_where_these_are_in_the_package(given):
    assert flags.for_cpp(given.split(), cell(), IN_FOLDER).compiling == (
        "-iquotecsrc/kernels",
        "-Icsrc/kernels/include",
    )
    wanted = ("-Icsrc/kernels", "-Icsrc/kernels/include")
    assert flags.for_cuda(given.split(), cell(), IN_FOLDER, "sm_90").compiling == wanted


@pytest.mark.parametrize(
    ("given", "compiling", "linking"),
    [
        ("-fopenmp -O3 --use_fast_math", ("-Xcompiler=-fopenmp", "-O3", "--use_fast_math"), ("-Xcompiler=-fopenmp",)),
        ("-Xcompiler -fopenmp -march=native", ("-Xcompiler=-fopenmp", "-Xcompiler=-march=native"), ("-Xcompiler=-fopenmp",)),
        ("-Wall -Wl,-O1 -default-device", ("-Xcompiler=-Wall",), ("-Xlinker=-O1",)),
        ("-isystem include", ("-Icsrc/kernels", "-isystem=csrc/kernels/include"), ()),
    ],
)  # fmt: skip
def test_flags_of_a_cuda_cell(given, compiling, linking):
    texts = IN_FOLDER if "include" in given else [F]
    assert flags.for_cuda(given.split(), cell(language="cuda"), texts, "sm_90") == flags.Flags(compiling, linking)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("-I /opt/include", "is built with -I/opt/include, which names a place of this machine"),
        ("-Wl,-rpath,/opt/lib", "is built with -Wl,-rpath,/opt/lib, which names a place of this machine"),
        ("-Llib -lmine", "is linked with -Llib, which a package does not take along: put its sources into the cell"),
        ("helpers.o", "is linked with helpers.o, which a package does not take along"),
        ("-include mine.h", 'write #include "mine.h" into its text, so that it goes along'),
    ],
)
def test_what_lies_on_this_machine_alone(given, said, tmp_path):
    (tmp_path / "mine.h").write_text("")
    with pytest.raises(SaveError, match=re.escape(said)):
        flags.for_cpp(given.split(), cell(tmp_path), [F])
    with pytest.raises(SaveError, match=re.escape(said.replace("-include ", "-include="))):
        flags.for_cuda(given.split(), cell(tmp_path, "cuda"), [F], "sm_90")


def test_code_of_a_folder_of_its_own_looks_for_headers_there():
    assert flags.moved(("-iquotecsrc/kernels", "-Icsrc/kernels/include", "-O3"), "f_forward_cpu") == (
        "-iquotecsrc/kernels/f_forward_cpu",
        "-Icsrc/kernels/f_forward_cpu/include",
        "-O3",
    )


# ---------------------------------------------------------------- headers


def shifted(namespace: str, name: str, folder: Path, monkeypatch, header: str, more: str = "") -> wb.Op:
    """An op whose header is inner/a.h, which includes b.h of the folder of the notebook."""
    (folder / "inner").mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    (folder / "inner" / "a.h").write_text(f'#pragma once\n#include "b.h"\n// of {name}\n')
    (folder / "b.h").write_text("template <typename T> static T shifted(T v, double k) { return T(v + k); }\n")
    op = ops.define(namespace, name, ops.shift_reference)
    wb.cpp(op, more + CELL.format(header=header).replace("void shift(", f"void {name}("))
    return op


def compiled(root: Path) -> None:
    """Every file of kernels, with the flags that setup.py has for it."""
    found = re.findall(r'\("(csrc/\w+_kernels.cpp)", (\[.*\])\)', (root / "setup.py").read_text())
    assert found
    for path, words in found:
        command = [
            *toolchain.compiler().command,
            "-std=c++20",
            "-Icsrc",
            *ast.literal_eval(words),
            "-fsyntax-only",
            path,
        ]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr


@pytest.mark.parametrize(
    ("header", "more"), [('"inner/a.h"', ""), ("<a.h>", "//! flags -Iinner\n"), ('"a.h"', "//! flags -I inner\n")]
)
def test_a_header_in_a_folder_finds_those_beside_the_notebook(namespace, tmp_path, monkeypatch, header, more):
    wb.save(shifted(namespace, "shift", tmp_path, monkeypatch, header, more), tmp_path / "o")
    assert (tmp_path / "o/csrc/kernels/inner/a.h").is_file() and (tmp_path / "o/csrc/kernels/b.h").is_file()
    compiled(tmp_path / "o")


def test_headers_in_folders_that_lie_apart(namespace, tmp_path, monkeypatch):
    both = [shifted(namespace, n, tmp_path / n, monkeypatch, '"inner/a.h"') for n in ("shift", "other")]
    wb.save(both, tmp_path / "o")
    assert (tmp_path / "o/csrc/kernels/other_forward_cpu/inner/a.h").read_text().endswith("// of other\n")
    compiled(tmp_path / "o")


def test_kernel_builder_is_told_the_folders_of_headers(namespace, tmp_path, monkeypatch):
    op = shifted(namespace, "shift", tmp_path, monkeypatch, "<a.h>", "//! flags -Iinner -O3\n")
    wb.save(op, tmp_path / "o", layout="kernels")
    text = (tmp_path / "o" / "build.toml").read_text()
    assert 'include = ["csrc", "csrc/kernels", "csrc/kernels/inner"]' in text
    assert 'cxx-flags = [\n  "-O3",\n]' in text and kernels_layout.checked(tmp_path / "o") == []


def test_headers_of_a_folder_that_is_loaded_from_elsewhere(namespace, tmp_path, monkeypatch):
    """A relative -I begins at the file, wherever the process runs."""
    name, flag = f"shift_{namespace}", "//! flags -Iinner\n"
    shifted(namespace, name, tmp_path / "kernels", monkeypatch, "<a.h>", flag)
    text = flag + CELL.format(header="<a.h>").replace("void shift(", f"void {name}(")
    (tmp_path / "kernels" / f"{name}.cpp").write_text(text)
    monkeypatch.chdir(tmp_path)
    [op] = wb.load(f"kernels/{name}.cpp")
    wb.save(op, tmp_path / "o")
    compiled(tmp_path / "o")


def test_a_header_that_was_edited_since_is_not_what_ran(namespace, tmp_path, monkeypatch):
    op = shifted(namespace, "shift", tmp_path, monkeypatch, '"inner/a.h"')
    with (tmp_path / "b.h").open("a") as file:
        file.write("// edited\n")
    with pytest.raises(
        SaveError, match=r"b\.h is another text than when .* ran, which includes it: run the cell again"
    ):
        wb.save(op, tmp_path / "o")
