"""`wb.save`: what lies there afterwards, saving again, and every way in which it refuses. Nothing is built here."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.saving import ops
from workbench.errors import SaveError
from workbench.saving import write

GOLDEN = Path(__file__).with_name("golden")
OURS = re.compile(r"workbench|notebook|\bwb[:_.]|\bWB_|%%cpp", re.IGNORECASE)


@pytest.fixture
def normed(namespace):
    return ops.normed(namespace)


@pytest.fixture
def scale(namespace):
    return ops.scale(namespace)


def texts(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file() and p.suffix != ".pt"}


def golden(name: str, text: str, namespace: str) -> None:
    wanted = (GOLDEN / name).read_text(encoding="utf-8")
    assert text.replace(namespace, "lab") == wanted, f"{name} changed; look at it, then write it anew"


def test_a_project_that_knows_nothing_of_us(normed, namespace, tmp_path):
    report = wb.save([normed], tmp_path / "normed_ops", version="1.2")
    found = texts(tmp_path / "normed_ops")
    assert report.ok and report.files == len(found) and report.version == "1.2"
    assert str(report).splitlines()[0].startswith(f"normed_ops 1.2 | {namespace}::normed | {report.files} files in ")
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", ".github/workflows/test.yml", "benchmarks/bench.py",
            "src/normed_ops/__init__.py", "src/normed_ops/py.typed", "csrc/kernels/normed.cpp", "csrc/kernels/normed.backward.cpp",
            "csrc/registration.cpp", "tests/test_normed.py"} <= set(found)  # fmt: skip
    for path, text in found.items():
        assert not OURS.search(text.replace("a notebook that defines it", "")), f"{path}: {OURS.search(text)}"
        if path.endswith(".py"):
            ast.parse(text)
    assert (
        found["csrc/kernels/normed.cpp"] == ops.NORMED
        and found["csrc/kernels/normed.backward.cpp"] == ops.NORMED_BACKWARD
    )


def test_the_readme_names_the_dtypes_that_kernels_were_built_for(normed, scale, tmp_path):
    wb.save([normed, scale, ops.define(normed.schema.namespace, "plain", ops.shift_reference)], tmp_path / "o")
    text = (tmp_path / "o" / "README.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| (.*) \| (.*) \|$", text.partition("## Dtypes")[2].partition("## ")[0], re.MULTILINE
    )
    assert rows == [
        ("normed", "C++ for the forward on the CPU", "`x float32`; `x float64`"),
        (
            "normed",
            "C++ for the backward on the CPU",
            "`grad_out float32, out float32, length float64`; `grad_out float64, out float64, length float64`",
        ),
        ("scale", "C++ for the forward on the CPU", "`x float32`; `x float64`"),
    ]
    assert "(`@normed.cases(dtypes=(...))`) and save it again" in text


def plus_reference(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return x if bias is None else x + bias


def test_an_argument_that_is_none_makes_no_kernel_of_its_own(namespace, tmp_path):
    op = ops.define(namespace, "plus", plus_reference, lambda t: iter([(t(4, 5), t(4, 5)), wb.case("none", t(4, 5))]))
    wb.cpp(
        op,
        "//! n = x.numel()\n//! out = empty_like(x)\n"
        "template <typename T> void plus(const T* x, const T* bias, T* out, int64_t n) {\n"
        "  for (int64_t i = 0; i < n; ++i) out[i] = bias ? x[i] + bias[i] : x[i];\n}\n",
    )
    assert len(op.slots["forward", "cpu"].kernel.forms) == 4
    wb.save(op, tmp_path / "o")
    kernels = (tmp_path / "o/csrc/plus_forward_cpu_kernels.cpp").read_text()
    wanted = ["// x float32, bias float32", "// x float64, bias float64"]
    assert [line for line in kernels.splitlines() if line.startswith("// x ")] == wanted
    assert ".instance_count = 2," in (tmp_path / "o/csrc/plus_forward_cpu.cpp").read_text()


def test_a_package_of_python_says_nothing_of_dtypes(namespace, tmp_path):
    wb.save(ops.define(namespace, "plain", ops.shift_reference), tmp_path / "o")
    assert "## Dtypes" not in (tmp_path / "o" / "README.md").read_text()


def test_files_of_other_folders_are_named_without_them(namespace, tmp_path):
    op = ops.define(namespace, f"scale_{namespace}", ops.scale_reference)
    (tmp_path / f"{op.name}.cpp").write_text(ops.SCALE.replace("void scale(", f"void {op.name}("))
    wb.load(tmp_path / f"{op.name}.cpp")
    wb.save(op, tmp_path / "o")
    assert (
        f"| `csrc/kernels/{op.name}.cpp` | {op.name}.cpp, from line 1 |" in (tmp_path / "o" / "README.md").read_text()
    )
    assert str(tmp_path) not in "".join(texts(tmp_path / "o").values())


def test_the_texts_of_its_kernels(normed, namespace, tmp_path):
    wb.save(normed, tmp_path / "normed_ops")
    found = texts(tmp_path / "normed_ops")
    for name in ("normed_forward_cpu.cpp", "normed_forward_cpu_kernels.cpp", "registration.cpp"):
        golden(name, found[f"csrc/{name}"], namespace)
    golden("normed.py.txt", found["src/normed_ops/_normed.py"], namespace)
    golden("normed_functions.py.txt", found["src/normed_ops/_normed_functions.py"], namespace)


def test_where_its_texts_come_from(normed, namespace, tmp_path):
    wb.save(normed, tmp_path / "normed_ops")
    told = json.loads((tmp_path / "normed_ops" / "package-manifest.json").read_text())
    source = told["sources"]["csrc/kernels/normed.cpp"]
    assert (source["typed in"], source["line"]) == (normed.slots["forward", "cpu"].source.file, 1)
    assert told["sources"]["src/normed_ops/_normed_functions.py: normed_reference"]["typed in"] == "ops.py"
    assert told["ops"][f"{namespace}::normed"]["versions"] == {"forward cpu": 1, "backward cpu": 2}
    assert told["ops"][f"{namespace}::normed"]["metadata"]["odd float32"] == ["float32 (5, 3) strides (3, 1)"]
    readme = (tmp_path / "normed_ops" / "README.md").read_text()
    assert f"torch {torch.__version__}" in readme and source["sha256"][:16] in readme
    assert "Rows of length one." in readme and "C++ for the forward on the CPU" in readme


def test_two_texts_with_a_helper_of_one_name_stay_apart(namespace, tmp_path):
    wb.save([ops.scale(namespace), ops.shift(namespace)], tmp_path / "two_ops")
    found = texts(tmp_path / "two_ops")
    one, other = found["csrc/scale_forward_cpu_kernels.cpp"], found["csrc/shift_forward_cpu_kernels.cpp"]
    assert 'namespace scale_forward_cpu_text {\nconstexpr int WIDTH = 4;\n#include "kernels/scale.cpp"\n}' in one
    assert one.index("#include <cmath>") < one.index("namespace scale_forward_cpu_text")
    assert "::scale_forward_cpu_text::scale<float>(" in one and "::shift_forward_cpu_text::shift<float>(" in other


# ---------------------------------------------------------------- saving again


def test_saving_again_changes_nothing(scale, tmp_path):
    wb.save(scale, tmp_path / "o")
    before = texts(tmp_path / "o")
    report = wb.save(scale, tmp_path / "o")
    assert texts(tmp_path / "o") == before and report.kept == () and report.changes == ()


def test_a_change_by_hand_stays_where_nothing_else_is_made(scale, tmp_path):
    wb.save(scale, tmp_path / "o")
    readme, own = tmp_path / "o" / "README.md", tmp_path / "o" / "notes.txt"
    readme.write_text("mine")
    own.write_text("mine, too")
    (tmp_path / "o" / ".github" / "workflows" / "test.yml").unlink()
    report = wb.save(scale, tmp_path / "o")
    assert readme.read_text() == "mine" and own.read_text() == "mine, too"
    assert report.kept == (".github/workflows/test.yml", "README.md")
    assert "README.md keeps what was changed by hand" in str(report)


def test_a_change_by_hand_that_would_be_lost_stops_it(scale, namespace, tmp_path):
    wb.save(scale, tmp_path / "o")
    kernel = tmp_path / "o" / "csrc" / "kernels" / "scale.cpp"
    kernel.write_text(ops.SCALE.replace("v * k", "k * v"))
    wb.cpp(f"{namespace}::scale", ops.SCALE.replace("Four at a time", "One at a time"))
    before = texts(tmp_path / "o")
    with pytest.raises(SaveError) as caught:
        wb.save(scale, tmp_path / "o")
    said = str(caught.value)
    assert "csrc/kernels/scale.cpp in" in said and "was changed by hand, and would be written otherwise" in said
    assert (
        "--- csrc/kernels/scale.cpp (as it is)" in said
        and "-template <typename T> static T times(T v, double k) { return T(k * v); }" in said
    )
    assert said.endswith("nothing was written") and texts(tmp_path / "o") == before


def test_a_file_of_ones_own_in_the_way_stops_it(namespace, tmp_path):
    wb.save(ops.scale(namespace), tmp_path / "o")
    (tmp_path / "o" / "csrc" / "kernels" / "shift.cpp").write_text("mine")
    with pytest.raises(SaveError, match=r"csrc/kernels/shift\.cpp in .* was changed by hand"):
        wb.save([wb.ops[f"{namespace}::scale"], ops.shift(namespace)], tmp_path / "o")
    assert (tmp_path / "o" / "csrc" / "kernels" / "shift.cpp").read_text() == "mine"


def test_what_is_no_longer_made_goes(namespace, tmp_path):
    both = [ops.scale(namespace), ops.shift(namespace)]
    wb.save(both, tmp_path / "o")
    report = wb.save(both[:1], tmp_path / "o", version="0.2")
    assert not (tmp_path / "o" / "csrc" / "kernels" / "shift.cpp").exists()
    assert [(c.op, c.kind) for c in report.changes] == [(f"{namespace}::shift", "breaking")]
    assert report.advised == "" and "for these changes call it" not in str(report)  # 0.2.0 is what it was called
    assert "setup.py" in texts(tmp_path / "o")


def test_a_new_version_says_what_it_changes(namespace, tmp_path):
    wb.save(ops.scale(namespace), tmp_path / "o", version="1.0")

    def scale(x: Tensor, k: float = 2.0, shift: float = 0.0) -> Tensor:
        return x * k + shift

    op = ops.define(namespace, "scale", scale)
    report = wb.save(op, tmp_path / "o", version="1.0.1")
    assert [(c.kind, c.why) for c in report.changes] == [("compatible", "the new argument shift may be left out")]
    assert report.advised == "1.1.0" and "for these changes call it 1.1.0" in str(report)


def test_a_folder_of_something_else_is_left_alone(scale, tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "thesis.txt").write_text("mine")
    with pytest.raises(
        SaveError,
        match=r"holds something else than a saved package \(there is no package-manifest.json\): name a new folder",
    ):
        wb.save(scale, tmp_path / "o")
    assert texts(tmp_path / "o") == {"thesis.txt": "mine"}


@pytest.mark.parametrize("again", [False, True])
def test_a_save_that_fails_leaves_no_half(scale, namespace, tmp_path, monkeypatch, again):
    root = tmp_path / "o"
    if again:
        wb.save(scale, root)
        wb.cpp(f"{namespace}::scale", ops.SCALE.replace("Four at a time", "One at a time"))
    before = texts(root)
    real = write.os.replace

    def full(source, target):
        if Path(target).name in ("o", "package-manifest.json"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(write.os, "replace", full)
    with pytest.raises((SaveError, OSError), match="No space left"):
        wb.save(scale, root)
    monkeypatch.undo()
    assert texts(root) == before
    assert [p for p in tmp_path.iterdir() if p.name != "o"] == []


# ---------------------------------------------------------------- what cannot be saved


def refused(said: str, *args, **options) -> SaveError:
    with pytest.raises(SaveError) as caught:
        wb.save(*args, **options)
    assert said in str(caught.value)
    assert str(caught.value).endswith("nothing was written")
    return caught.value


def test_bad_arguments(scale, tmp_path):
    refused("there is no op to save", [], tmp_path / "o")
    refused("wb.save takes ops, made with wb.op or by a cell; got int 3", [3], tmp_path / "o")
    refused("is given twice: save it once", [scale, scale], tmp_path / "o")
    refused("'json' would hide Python's own module", scale, tmp_path / "json")
    refused("'1.x' is no version", scale, tmp_path / "o", version="1.x")
    refused("license='my own' is no SPDX expression", scale, tmp_path / "o", license="my own")
    refused("layout is one of 'python', 'kernels', got 'wheel'", scale, tmp_path / "o", layout="wheel")
    assert list(tmp_path.iterdir()) == []


def test_two_ops_of_one_name(namespace, tmp_path):
    both = ops.scale(namespace), ops.scale(f"{namespace}b")
    refused(f"{namespace}::scale and {namespace}b::scale would both be the function 'scale'", both, tmp_path / "o")


def test_a_reference_that_captures_an_object(namespace, tmp_path):
    table = torch.ones(8)

    def f(x: Tensor) -> Tensor:
        return x + table

    op = ops.define(namespace, "f", f, lambda t: iter([t(4, 8)]))
    refused(
        f"{namespace}::f: f uses table of the notebook, a Tensor of shape (8,): take table as an argument of the op",
        op,
        tmp_path / "o",
    )


def test_a_python_kernel_that_captures_an_object(scale, namespace, tmp_path):
    table = {"k": object()}

    @scale.kernel("cpu")
    def _(x, k=2.0):
        return x * k if table else x

    refused(
        f"{namespace}::scale: _ uses table of the notebook, a dict: pass table as an argument", scale, tmp_path / "o"
    )


def test_a_source_with_an_absolute_include(namespace, tmp_path):
    header = tmp_path / "mine.h"
    header.write_text("#pragma once\n")
    op = ops.define(namespace, "scale", ops.scale_reference)
    wb.cpp(op, ops.SCALE.replace("#include <cmath>", f'#include "{header}"'))
    error = refused(
        f'#include "{header}" names a file of this machine: put it beside the notebook and include it by its name',
        op,
        tmp_path / "o",
    )
    assert error.line == 5 and "line 5" in str(error)


def test_flags_with_a_folder_of_this_machine(namespace, tmp_path):
    op = ops.define(namespace, "scale", ops.scale_reference)
    wb.cpp(op, f"//! flags -I{tmp_path}\n{ops.SCALE}")
    refused(f"is built with -I{tmp_path}, which names a place of this machine", op, tmp_path / "o")


def test_a_header_beside_the_file_comes_along(namespace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "times.h").write_text("template <typename T> T times(T v, double k) { return T(v * k); }\n")
    file = tmp_path / "scale.cpp"
    file.write_text(re.sub(r"template.*times.*\n", "", ops.SCALE).replace("#include <cmath>", '#include "lib/times.h"'))
    op = ops.define(namespace, "scale", ops.scale_reference)
    wb.cpp(op, file.read_text())
    wb.save(op, tmp_path / "o")
    assert "return T(v * k)" in (tmp_path / "o" / "csrc" / "kernels" / "lib" / "times.h").read_text()


def test_another_op_in_a_reference_must_come_along(scale, namespace, tmp_path):
    def twice(x: Tensor) -> Tensor:
        return scale(scale(x))

    op = ops.define(namespace, "twice", twice, lambda t: iter([t(4, 8)]))
    refused(f"{namespace}::twice calls {namespace}::scale, which is not saved with it: save both", op, tmp_path / "o")
    wb.save([scale, op], tmp_path / "o")
    assert "from ._scale import scale\n" in (tmp_path / "o" / "src" / "o" / "_twice_functions.py").read_text()


def test_an_op_without_cases(namespace, tmp_path):
    op = wb.op(f"{namespace}::scale")(ops.scale_reference)
    refused(
        f"{namespace}::scale has no cases, so that nothing would test it: say some with @scale.cases, or call it",
        op,
        tmp_path / "o",
    )
    op(torch.randn(3, 5))
    wb.save(op, tmp_path / "o")
    [row] = torch.load(tmp_path / "o" / "tests" / "cases_scale.pt", weights_only=True)
    assert row["name"] == "3x5" and row["arguments"]["x"].shape == (3, 5) and row["arguments"]["k"] == 2.0


def test_cases_that_capture_an_object_are_stored(namespace, tmp_path):
    held = torch.arange(6.0).view(2, 3)
    op = ops.define(namespace, "scale", ops.scale_reference, lambda t: iter([held]))
    wb.save(op, tmp_path / "o")
    [row] = torch.load(tmp_path / "o" / "tests" / "cases_scale.pt", weights_only=True)
    assert torch.equal(row["arguments"]["x"], held)
    assert "Its cases are stored as tensors" in (tmp_path / "o" / "README.md").read_text()


def test_python_from_a_cell_that_calls_python(namespace, tmp_path):
    from workbench.saving import full
    from workbench.source import Source

    source = Source(
        "#include <torch/extension.h>\nat::Tensor f(at::Tensor x) { py::gil_scoped_release no; return x; }\n",
        "cpp",
        "cell [3]",
    )
    with pytest.raises(SaveError, match=r"cell \[3\], line 2: lab::f: py:: calls Python from C\+\+"):
        full._without_python(source, "lab::f")
    inside = Source('at::Tensor f(at::Tensor x) { return x; }\nPYBIND11_MODULE(a, m) { m.def("f", &f); }', "cpp")
    full._without_python(inside, "lab::f")


def test_code_on_at_tensor_asks_nobody_about_dtypes():
    from workbench.saving import full
    from workbench.schema import parse
    from workbench.source import Source
    from workbench.tiers import kernel

    source = Source("at::Tensor f(const at::Tensor& x) { return x * 2; }\n", "cpp", "cell [3]")
    made = kernel(source, parse("lab::f(Tensor x) -> Tensor"), "forward")
    assert "wb::arrive(v, {0});" in made.text()
    text = full.native(made).files["csrc/f_forward_cpu.cpp"]
    assert "arrive" not in text and "::AutoDispatchBelowADInplaceOrView below;" in text
