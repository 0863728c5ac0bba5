"""What a save says: lines to be copied, files that are there, names that are gone."""

from __future__ import annotations

import shlex

import workbench as wb
from tests.saving import ops
from workbench.reports.deploying import Deployed, Ran
from workbench.reports.saving import Saved
from workbench.show import deploy_text, save_text


def test_lines_to_be_copied_are_quoted():
    path = "/tmp/out \u00e9 dir/it's-ops"
    report = Saved(path, "ops", "1.0", "python", ("lab::f",), 3, 0.1)
    [line] = save_text.how(report)
    assert shlex.split(line.partition(": ")[2]) == ["pip", "install", "--no-build-isolation", path]
    [line] = save_text.how(Saved(path, "ops", "1.0", "kernels", ("lab::f",), 3, 0.1))
    assert shlex.split(line.partition(": ")[2]) == ["kernel-builder", "build-and-copy", path]
    [line] = deploy_text.how(Deployed(path, "f", "cpu", (), (), {}))
    first, _, second = line.partition(": ")[2].partition(", or ")
    assert shlex.split(first) == ["python", f"{path}/run.py"]
    assert shlex.split(second)[:2] == [f"{path}/bin/run", path]


def test_a_program_that_was_not_built_is_not_what_to_run():
    runs = Ran("Python", "example", 1, 1), Ran("C++", "example", skipped="CMake is not here")
    assert deploy_text.how(Deployed("/m", "f", "cpu", (), runs, {})) == ["run it: python /m/run.py"]


def test_the_readme_names_files_that_are_there(namespace, tmp_path):
    for layout in ("python", "kernels"):
        root = tmp_path / f"{layout}_ops"
        wb.save([ops.normed(namespace)], root, layout=layout)
        rows = (root / "README.md").read_text().partition("## Where it comes from")[2].splitlines()
        named = [row.split("`")[1].partition(":")[0] for row in rows if row.startswith("| `")]
        assert len(named) == 3 and [p for p in named if not (root / p).is_file()] == []


def test_a_package_that_is_renamed_says_whose_import_is_gone(namespace, tmp_path):
    op = ops.scale(namespace)
    wb.save([op], tmp_path / "ed2")
    report = wb.save([op], tmp_path / "ed2", name="other", version="1.0")
    assert "ed2: breaking, the package is called other now: import ed2 is gone" in str(report).splitlines()
    assert not (tmp_path / "ed2" / "src" / "ed2" / "__init__.py").exists()
