"""What a package may be called and where it may lie: each refusal names what would do."""

from __future__ import annotations

import os

import pytest

from workbench.errors import SaveError
from workbench.saving import names


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("rmsnorm_ops", "rmsnorm_ops"), ("rmsnorm-ops", "rmsnorm_ops"), ("My_Ops", "my_ops"), ("f2", "f2")],
)
def test_names_that_will_do(given, wanted):
    assert names.package_name(given) == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "a package needs a name, such as 'rmsnorm_ops', got ''"),
        ("2fast", "'2fast' is no package name: letters, digits and '_', a letter first; for instance name='fast'"),
        ("my ops", "for instance name='my_ops'"),
        ("größe", "is no package name"),
        ("ops_", "is no package name"),
        ("lambda", "'lambda' is a word of Python's own, which no import can name; for instance name='lambda_ops'"),
        (
            "statistics",
            "'statistics' would hide Python's own module 'statistics' wherever it is installed; for instance name='statistics_ops'",
        ),
        ("JSON", "would hide Python's own module 'json'"),
        ("torch", "'torch' is the name of another package; for instance name='torch_ops'"),
    ],
)
def test_names_that_will_not(given, said):
    with pytest.raises(SaveError) as caught:
        names.package_name(given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "wanted"), [("1.0", "1.0"), ("1.0.0rc1", "1.0.0rc1"), ("v2.1", "2.1"), ("1.0-1", "1.0.post1")]
)
def test_versions_in_their_normal_form(given, wanted):
    assert names.version(given) == wanted


def test_a_version_that_is_none():
    with pytest.raises(SaveError, match=r"'1\.x' is no version \(PEP 440\); for instance version='1'"):
        names.version("1.x")


def test_folders_that_will_not_do(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("mine")
    monkeypatch.chdir(tmp_path)
    for path, said in (
        (file, "is a file; a package is a folder"),
        (tmp_path, "is no folder for a package of its own"),
        ("/", "is no folder"),
        ("", "needs a folder"),
    ):
        with pytest.raises(SaveError, match=said):
            names.target(path)
    assert names.target("a/b") == tmp_path / "a" / "b"
    assert file.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/proc/1/root/sys"), reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(SaveError, match=r"ops cannot be made: .* cannot be written to; choose another folder"):
        names.target(tmp_path / "ops")


def test_nothing_is_written_outside(tmp_path):
    assert names.inside(tmp_path, "src/a.py") == tmp_path / "src" / "a.py"
    for path in ("../a.py", "src/../../a.py", "/etc/passwd"):
        with pytest.raises(SaveError, match="lies outside"):
            names.inside(tmp_path, path)


def test_two_ops_of_one_name():
    names.different([("f", "lab::f"), ("g", "lab::g")])
    with pytest.raises(
        SaveError, match="lab::f and other::f would both be the function 'f': save them in packages of their own"
    ):
        names.different([("f", "lab::f"), ("f", "other::f")])
    with pytest.raises(SaveError, match="lab::f is given twice: save it once"):
        names.different([("f", "lab::f"), ("f", "lab::f")])
