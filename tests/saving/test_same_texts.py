"""Files of one name that differ lie apart, and the same sources give the same bytes again. Nothing is built here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb
from tests.saving import ops
from tests.saving.test_save import texts
from workbench.saving import project


def with_header(monkeypatch, namespace: str, folder: Path, name: str, by: int) -> wb.Op:
    """An op whose kernel includes common.h beside it, which says how much is added."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "common.h").write_text(f"inline int added() {{ return {by}; }}\n")
    op = ops.define(namespace, name, ops.shift_reference, lambda t: iter([wb.case("one", t(4, 8), float(by))]))
    text = (
        f'//! n = x.numel()\n//! out = empty_like(x)\n#include "common.h"\ntemplate <typename T> void {name}(const T* x, T* out, double k, int64_t n) {{\n'
        "  for (int64_t i = 0; i < n; ++i) out[i] = T(x[i] + added());\n}\n"
    )
    wb.cpp(op, text)
    return op


def test_headers_of_one_name_that_differ_lie_apart(namespace, tmp_path, monkeypatch):
    one, two = (with_header(monkeypatch, namespace, tmp_path / n, n, by) for n, by in (("one", 2), ("two", 3)))
    for layout in ("python", "kernels"):
        wb.save([one, two], tmp_path / layout, layout=layout)
        found = texts(tmp_path / layout)
        for name, by in (("one", 2), ("two", 3)):
            folder, main = f"kernels/{name}_forward_cpu", f"{name}.cpp{'.h' * (layout == 'kernels')}"
            assert found[f"csrc/{folder}/common.h"] == f"inline int added() {{ return {by}; }}\n"
            assert '#include "common.h"' in found[f"csrc/{folder}/{main}"]
            assert f'#include "{folder}/{main}"' in found[f"csrc/{name}_forward_cpu_kernels.cpp"]
        assert "csrc/kernels/common.h" not in found
    assert f"csrc/{folder}/common.h" in json.loads(found["package-manifest.json"])["sources"]


def test_headers_of_one_name_that_are_alike_are_one(namespace, tmp_path, monkeypatch):
    both = [with_header(monkeypatch, namespace, tmp_path / n, n, 2) for n in ("one", "two")]
    wb.save(both, tmp_path / "o")
    found = texts(tmp_path / "o")
    assert {"csrc/kernels/common.h", "csrc/kernels/one.cpp", "csrc/kernels/two.cpp"} <= set(found)


def test_a_cell_that_includes_a_file_called_as_its_op(namespace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    helper = "template <typename T> static T times(T v, double k) { return T(v * k); }\n"
    (tmp_path / "scale.cpp").write_text(helper)
    op = ops.define(namespace, "scale", ops.scale_reference)
    wb.cpp(op, ops.SCALE.replace(helper, '#include "scale.cpp"\n'))
    wb.save(op, tmp_path / "o")
    found = texts(tmp_path / "o")
    assert '#include "scale.cpp"' in found["csrc/kernels/scale.cell.cpp"] and found["csrc/kernels/scale.cpp"] == helper
    assert '#include "kernels/scale.cell.cpp"' in found["csrc/scale_forward_cpu_kernels.cpp"]


def test_the_order_in_which_builds_ended_is_not_in_it(namespace, tmp_path):
    scale = ops.scale(namespace)
    wb.save(scale, tmp_path / "o")
    kernel = scale.slots["forward", "cpu"].kernel
    assert len(kernel._forms) == 2
    kernel._forms = dict(reversed(kernel._forms.items()))
    wb.save(scale, tmp_path / "again", name="o")
    one, other = texts(tmp_path / "o" / "csrc"), texts(tmp_path / "again" / "csrc")
    assert one == other
    assert one["scale_forward_cpu_kernels.cpp"].index("// x float32") < one["scale_forward_cpu_kernels.cpp"].index(
        "// x float64"
    )


def test_another_day_is_no_change(namespace, tmp_path, monkeypatch):
    op = ops.define(namespace, "plain", ops.scale_reference)

    def on(day: str, **options) -> str:
        monkeypatch.setattr(project.Facts, "now", classmethod(lambda cls: cls(day, "a machine", "Python, torch")))
        wb.save(op, tmp_path / "o", **options)
        return (tmp_path / "o" / "README.md").read_text()

    first = on("2026-01-01")
    assert "on 2026-01-01" in first and on("2026-01-02") == first
    (tmp_path / "o" / "README.md").write_text("mine")
    assert on("2026-01-03") == "mine"
    (tmp_path / "o" / "README.md").write_text(first)
    assert "on 2026-01-04" in on("2026-01-04", title="Another title")


SAVED = """
import sys, workbench as wb
from tests.saving import ops
wb.save([ops.normed("saved_twice"), ops.scale("saved_twice")], sys.argv[1], name="o")
"""


@pytest.mark.slow
def test_the_same_bytes_in_another_process(tmp_path):
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(
            [sys.executable, "-c", SAVED, str(tmp_path / seed)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.returncode, done.stderr[-2000:]
    assert texts(tmp_path / "1") == texts(tmp_path / "2")
