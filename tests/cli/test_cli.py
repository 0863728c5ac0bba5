"""Commands as a shell would give them: what they print, where, and their exit codes."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb
from tests.live import SCALE
from workbench import cli
from workbench.cli import cache as caching
from workbench.cli import verbs
from workbench.reports.report import Check, Row
from workbench.reports.tuning import Tuning, TuningRow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, namespace):
    """A folder with an op and its kernel."""
    (tmp_path / "op.py").write_text(f"""
import torch
from torch import Tensor
import workbench as wb

@wb.op("{namespace}::scale")
def scale(x: Tensor, k: float = 2.0) -> Tensor:
    return x * k

@scale.cases
def _(t):
    yield t(4, 8), 3.0
    yield wb.case("odd", t(5, 3))
""")
    (tmp_path / "scale.cpp").write_text(SCALE)
    return tmp_path


def run(capsys, *words):
    code = cli.main(list(map(str, words)))
    out, err = capsys.readouterr()
    return code, out, err


def test_load_says_each_line_on_the_way_and_what_runs_then(capsys, folder, namespace):
    code, out, err = run(capsys, "load", folder)
    assert code == 0
    assert out == f"{namespace}::scale  forward cpu v1\n"
    assert err.startswith("scale cpp v1 | ") and "agree" in err


def test_load_as_json_is_one_object_and_nothing_else(capsys, folder, namespace):
    code, out, err = run(capsys, "load", folder, "--json")
    said = json.loads(out)
    assert (code, said["command"], said["ok"]) == (0, "load", True)
    assert said["ops"] == [
        {
            "name": f"{namespace}::scale",
            "schema": f"{namespace}::scale(Tensor x, float k=2.0) -> Tensor",
            "slots": ["forward cpu v1"],
        }
    ]
    assert said["lines"][0]["installed"] is True and said["lines"][0]["trial"]["outcomes"][0]["status"] == "agree"
    assert "scale cpp" not in err


def test_what_the_users_code_prints_is_not_among_the_json(folder):
    """From Python, from C++ and from a program that it runs."""
    text = (folder / "op.py").read_text()
    loud = "import os, subprocess\nprint('from Python')\nos.write(1, b'from C\\n')\nsubprocess.run(['echo', 'from echo'])\n"
    (folder / "op.py").write_text(loud + text)
    command = [sys.executable, "-m", "workbench", "save", str(folder), "--to", str(folder / "ops"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["reports"][0]["name"] == "ops", done.stderr
    assert [line for line in done.stderr.splitlines() if line.startswith("from ")] == [
        "from Python",
        "from C",
        "from echo",
    ]


def test_prints_and_json_where_the_output_is_no_file(folder):
    (folder / "op.py").write_text("print('from Python')\n" + (folder / "op.py").read_text())
    out, err = io.StringIO(), io.StringIO()
    assert cli.main(["load", str(folder), "--json"], out, err) == 0
    assert json.loads(out.getvalue())["ok"] is True and err.getvalue() == "from Python\n"


def test_a_kernel_that_does_not_agree_is_1(capsys, folder):
    (folder / "scale.cpp").write_text(SCALE.replace("x[i] * k", "x[i] * k + 1"))
    code, out, err = run(capsys, "load", folder)
    assert (code, out) == (1, "") and "TrialError" in err and "still runs the reference" in err
    code, out, _ = run(capsys, "load", folder, "--json")
    said = json.loads(out)
    assert (code, said["ok"], said["error"]["kind"]) == (1, False, "TrialError")


def test_a_kernel_that_does_not_compile_is_1_with_its_diagnostics(capsys, folder):
    (folder / "scale.cpp").write_text(SCALE.replace("x[i] * k", "x[i] * q"))
    code, out, _ = run(capsys, "load", folder, "--json")
    (first, *_) = json.loads(out)["error"]["diagnostics"]
    assert code == 1 and first["line"] == 6 and "q" in first["message"]


def test_a_path_that_is_not_there_is_2(capsys):
    code, out, err = run(capsys, "load", "/nowhere")
    assert (code, out) == (2, "") and "SchemaError: there is no file or folder '/nowhere'" in err


@pytest.mark.parametrize("words", [[], ["frobnicate"], ["check"], ["check", "x", "--level", "deep"], ["cache", "burn"]])
def test_a_command_line_that_makes_no_sense_is_2(capsys, words):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2 and "usage: workbench" in capsys.readouterr().err


def test_check_is_1_where_a_row_fails(capsys, folder, monkeypatch):
    assert run(capsys, "check", folder)[0] == 0
    monkeypatch.setattr(
        wb.Op,
        "check",
        lambda self, level, sanitize: Check(self.qualname, (Row("agreement", "odd", "fail", f"{level} {sanitize}"),)),
    )
    code, out, _ = run(capsys, "check", folder, "--level", "full", "--sanitize")
    assert code == 1 and "FAIL" in out and "full True" in out


def test_bench_hands_on_what_is_asked_for(capsys, folder, monkeypatch):
    asked = []

    def bench(self, **options):
        asked.append(options)
        return Check(self.qualname, ())

    monkeypatch.setattr(wb.Op, "bench", bench, raising=False)
    assert run(capsys, "bench", folder, "--case", "odd", "--case", "4x8", "--budget", "2")[0] == 0
    assert run(capsys, "bench", folder)[0] == 0
    assert asked == [{"cases": ["odd", "4x8"], "budget": 2.0}, {}]


@pytest.fixture
def three(tmp_path, namespace):
    """A file with three ops, the first and the last of which have the case "odd"; measured, the first one raises."""
    text = "import torch\nfrom torch import Tensor\nimport workbench as wb\n"
    for name, case in (("first", "odd"), ("second", "even"), ("third", "odd")):
        text += f"""
@wb.op("{namespace}::{name}")
def {name}(x: Tensor) -> Tensor:
    return x + 1

@{name}.cases
def _(t):
    yield wb.case("{case}", t(4, 8))
"""
    file = tmp_path / "op.py"
    file.write_text(text)
    return file


def bench_of_one_that_raises(self, **options):
    from workbench.measure import points

    points.points(self, options.get("cases"))
    if self.name == "first":
        raise ZeroDivisionError("by the reference")
    return Check(self.qualname, (Row("agreement", "odd", "pass"),))


def test_an_op_that_raises_does_not_stop_the_others(capsys, three, monkeypatch, namespace):
    monkeypatch.setattr(wb.Op, "bench", bench_of_one_that_raises)
    code, out, err = run(capsys, "bench", three, "--case", "odd")
    assert code == 1 and f"{namespace}::third" in out
    assert f"{namespace}::first | " in err and "raised ZeroDivisionError: by the reference" in err
    assert f"{namespace}::second | SchemaError: second.bench: there is no case 'odd'" in err
    code, out, err = run(capsys, "bench", three, "--case", "odd", "--json")
    said = json.loads(out)
    assert (code, said["ok"], [r["op"] for r in said["reports"]]) == (1, False, [f"{namespace}::third"])
    assert {n: e["kind"] for n, e in said["errors"].items()} == {
        f"{namespace}::first": "ZeroDivisionError",
        f"{namespace}::second": "SchemaError",
    }


def test_what_is_asked_of_all_ops_in_vain_is_2(capsys, three, namespace):
    code, out, err = run(capsys, "profile", three, "--case", "huge")
    assert (code, out) == (2, "")
    assert [line.partition(" | ")[0] for line in err.splitlines()] == [
        f"{namespace}::{name}" for name in ("first", "second", "third")
    ]


def test_an_interrupt_prints_what_was_found_and_goes_on_with_no_other_op(capsys, three, monkeypatch, namespace):
    asked = []

    def check(self, level, sanitize):
        asked.append(self.name)
        return Check(self.qualname, (Row("agreement", "odd", "pass"), Row("stopped", "", "skip", "by an interrupt")))

    monkeypatch.setattr(wb.Op, "check", check)
    code, out, err = run(capsys, "check", three)
    assert (code, asked, err) == (130, ["first"], "interrupted\n") and f"{namespace}::first" in out


def test_a_budget_that_ends_is_no_interrupt(capsys, three, monkeypatch, namespace):
    def tune(self, case, slot, budget):
        found = (TuningRow({"TILE": 16}, "timed", 5.0, case="odd"), TuningRow({"TILE": 64}, "not reached", case="odd"))
        return Tuning(self.qualname, slot, "cpu", 1, "cpp", ("odd",), found, ended=f"the budget of {budget:g} s ended")

    monkeypatch.setattr(wb.Op, "tune", tune)
    code, out, err = run(capsys, "tune", three, "--budget", 5)
    assert (code, err) == (0, "") and out.count("the budget of 5 s ended; 1 configuration not reached") == 3


@pytest.mark.slow
def test_profile_writes_its_trace_and_its_page(capsys, folder, monkeypatch):
    from workbench.measure import profile_machine, profile_run

    monkeypatch.setattr(profile_run, "BUDGET_S", 0.02)
    monkeypatch.setattr(profile_machine, "copy_gb_per_s", lambda device: 10.0)
    code, out, _ = run(
        capsys, "profile", folder, "--case", "odd", "--trace", folder / "t.json", "--html", folder / "p.html"
    )
    assert code == 0 and "on odd float32 | cpu" in out
    assert "traceEvents" in json.loads((folder / "t.json").read_text())
    assert (folder / "p.html").read_text().startswith("<!DOCTYPE html>")
    code, _, err = run(capsys, "profile", folder, "--html", folder / "no" / "p.html")
    assert code == 2 and "the page was not written to" in err
    code, _, err = run(capsys, "profile", folder, "--case", "even")
    assert code == 2 and "scale.profile: there is no case 'even'; its cases are 4x8, odd" in err


def test_inspect_prints_the_report_or_one_stage_of_it(capsys, folder, namespace):
    code, out, _ = run(capsys, "inspect", folder)
    assert code == 0 and out.startswith(f"{namespace}::scale v1 forward cpu | raw C++, float32 |")
    code, out, _ = run(capsys, "inspect", folder, "--stage", "assembly", "--html", folder / "p.html")
    line = next(n for n, text in enumerate(SCALE.splitlines(), 1) if "x[i] * k" in text)
    assert code == 0 and any(row.startswith(f"{line} |") and "mul" in row for row in out.splitlines())
    assert re.search(r"\bv?mul[ps][sd]\b", (folder / "p.html").read_text())
    code, out, _ = run(capsys, "inspect", folder, "--json")
    (report,) = json.loads(out)["reports"]
    assert (code, report["dtype"], report["slot"]) == (0, "float32", "forward")
    code, out, err = run(capsys, "inspect", folder, "--stage", "sass")
    assert (code, out) == (2, "") and "raw C++ has no stage 'sass'; it has " in err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--slot", "backward"], "which no compiler made"), (["--dtype", "float99"], "float99"),
     (["--html", "no/such/folder/p.html"], "the page was not written")],
)  # fmt: skip
def test_what_cannot_be_inspected(capsys, folder, words, said):
    code, out, err = run(capsys, "inspect", folder, *words)
    assert (code, out) == (2, "") and said in err, err


def test_tune_says_what_is_fastest(capsys, folder, namespace):
    kernel = folder / "scale.cpp"
    kernel.write_text("//! tune TILE = 16, 64\n" + SCALE)
    code, out, err = run(capsys, "tune", folder, "--case", "odd", "--budget", 5)
    assert code == 0 and out.startswith(f"{namespace}::scale"), err
    assert {row.split()[-1] for row in out.splitlines() if " x " in row} == {"16", "64"}, out
    code, out, err = run(capsys, "tune", folder, "--case", "even")
    assert code == 2 and "there is no case 'even'; its cases are 4x8, odd" in err
    code, out, err = run(capsys, "tune", folder, "--budget", 0)
    assert code == 2 and "budget" in err
    kernel.write_text(SCALE)
    code, out, err = run(capsys, "tune", folder)
    assert code == 2 and "nothing to tune" in err


def test_the_version(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"workbench {wb.__version__}\n"


def test_doctor_is_1_where_something_does_not_work(capsys, monkeypatch):
    code, out, _ = run(capsys, "doctor", "--only", "python", "ninja")
    assert code == 0 and "pass  python" in out
    monkeypatch.setenv("WORKBENCH_CXX", "/nowhere/g++")
    code, out, _ = run(capsys, "doctor", "--only", "compiler", "--json")
    said = json.loads(out)
    assert code == 1 and said["ok"] is False and "apt install" in said["reports"][0]["rows"][0]["cure"]
    assert run(capsys, "doctor", "--only", "weather")[0] == 2


def test_an_interrupt_is_130(capsys, monkeypatch):
    def interrupted(paths, tell=True):
        raise KeyboardInterrupt

    monkeypatch.setattr(verbs, "loaded", interrupted)
    assert run(capsys, "load", "x") == (130, "", "interrupted\n")


def test_the_cache_is_listed_explained_limited_and_cleared(capsys, folder, fresh_cache):
    code, out, _ = run(capsys, "cache", "explain", folder)
    assert code == 0 and "no build like it was in the cache" in out
    code, out, _ = run(capsys, "cache", "explain", folder)
    head = out.splitlines()[0]
    assert "miss" not in out and head.split(": ")[1].split(" builds, ")[0] == head.split(" builds, ")[1].split()[0]

    (folder / "scale.cpp").write_text(SCALE.replace("//! n", "//! flags -O1\n//! n"))
    _, out, _ = run(capsys, "cache", "explain", folder, "--json")
    (body,) = [b for b in json.loads(out)["builds"] if b["what"] == "body"]
    assert body["hit"] is False and "compiling: -O1; another text (than " in body["why"] and body["like"]

    code, out, _ = run(capsys, "cache", "explain", body["key"][:16])
    assert code == 0 and out.startswith(f"{body['key'][:12]} body, ") and "compiling" in out
    code, out, _ = run(capsys, "cache")
    assert out.startswith(f"{fresh_cache}: ") and " of 5 GB" in out and body["key"][:12] in out

    code, out, _ = run(capsys, "cache", "limit", "2GB", "--json")
    assert (code, json.loads(out)["limit_bytes"]) == (0, 2_000_000_000)
    assert " of 2 GB" in run(capsys, "cache")[1]
    code, out, _ = run(capsys, "cache", "clear", "--json")
    assert code == 0 and json.loads(out)["kept"] > 0  # what this process has loaded stays


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explain"], "cache explain needs a path or the beginning of a key"),
        (["explain", "zz"], "no key in the cache begins so, and there is no such file"),
        (["limit"], "cache limit needs a size, such as 2GB"),
        (["limit", "much"], "'much' is no size: write it like 2GB"),
        (["clear", "all"], "cache clear takes nothing more, got 'all'"),
    ],
)
def test_what_cannot_be_done_with_the_cache(capsys, words, said, fresh_cache):
    code, out, err = run(capsys, "cache", *words)
    assert (code, out) == (2, "") and said in err


def test_why_there_was_no_hit():
    assert caching.difference("flags", "-O3", "-O2") == "flags: -O3, not -O2"
    assert caching.difference("flags", "-O3 -g -Wall", "-O2 -g -Wall") == "flags: -O3, not -O2"
    assert caching.difference("flags", "-g -O2", "-O2 -g") == "another flags"
    assert caching.difference("arch", "", "sm_90") == "arch: without sm_90"
    assert caching.difference("flags", "-O2 -O1", "-O2") == "flags: -O1"
    assert caching.difference("text", "400 characters, ab", "401 characters, cd") == "another text"


def test_how_long_ago():
    assert caching.ago(10.0, now=100.0) == "90 s ago"
    assert caching.ago(0.0) == ""


@pytest.mark.slow
def test_as_a_program_of_its_own(folder):
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "load", str(folder), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True


# ---------------------------------------------------------------- the user's own code raises, and bad requests


VERBS = [["load"], ["check"], ["bench"], ["inspect"], ["tune"], ["save", "--to", "ops"]]


@pytest.mark.parametrize("words", VERBS, ids=lambda w: w[0])
def test_what_the_users_code_raises_is_told_with_its_place(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "op.py"
    file.write_text('def inner():\n    raise RuntimeError("boom")\n\ninner()\n')
    code, out, err = run(capsys, *words, tmp_path)
    assert (code, out) == (1, "")
    head, *rest = err.splitlines()
    assert head == f"{file}, line 2, raised RuntimeError: boom"
    assert [line.strip() for line in rest if "File" in line] == [
        f'File "{file}", line 4, in <module>',
        f'File "{file}", line 2, in inner',
    ]
    assert "runpy" not in err and "cli/run.py" not in err

    code, out, err = run(capsys, *words, tmp_path, "--json")
    said = json.loads(out)
    assert (code, said["command"], said["ok"]) == (1, words[0], False)
    error = said["error"]
    assert (error["kind"], error["message"], error["file"], error["line"]) == ("RuntimeError", "boom", str(file), 2)
    assert [(f["line"], f["function"]) for f in error["traceback"]] == [(4, "<module>"), (2, "inner")]


def test_a_file_that_is_not_python_or_ends_the_program(capsys, tmp_path):
    file = tmp_path / "op.py"
    file.write_text("import torch\ndef f(:\n    pass\n")
    code, out, err = run(capsys, "load", tmp_path)
    assert (
        (code, out) == (1, "") and err.startswith(f"{file}, line 2, is not Python: SyntaxError: ") and "def f(:" in err
    )
    error = json.loads(run(capsys, "load", tmp_path, "--json")[1])["error"]
    assert (error["kind"], error["file"], error["line"]) == ("SyntaxError", str(file), 2)
    file.write_text("import sys\nsys.exit(0)\n")
    code, _, err = run(capsys, "load", tmp_path)
    assert code == 1 and err.startswith(f"{file}, line 2, raised SystemExit: 0")


def test_a_model_that_raises_is_told_by_deploy(capsys, tmp_path):
    file = tmp_path / "model.py"
    file.write_text("def build():\n    return {}['weights']\n")
    code, out, _ = run(capsys, "deploy", f"{file}:build", "--to", tmp_path / "out", "--json")
    error = json.loads(out)["error"]
    assert (code, error["kind"], error["file"], error["line"]) == (1, "KeyError", str(file), 2)
    assert [f["function"] for f in error["traceback"]] == ["build"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--version", "1.x"], "'1.x' is no version"),
        (["--name", "json"], "would hide Python's own module 'json'"),
        (["--to", "taken"], "holds something else than a saved package"),
    ],
)
def test_a_save_that_is_asked_for_wrongly_is_2_and_builds_nothing(capsys, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    monkeypatch.setattr(verbs, "loaded", lambda *a, **k: pytest.fail("it was loaded"))
    code, out, err = run(capsys, "save", "x", *(["--to", "ops"] if "--to" not in words else []), *words)
    assert (code, out) == (2, "") and said in err and err.startswith("SaveError: ")


def test_a_deployment_that_is_asked_for_wrongly_is_2(capsys, tmp_path):
    (tmp_path / "model.py").write_text("def build():\n    raise RuntimeError\n")
    code, _, err = run(capsys, "deploy", f"{tmp_path / 'model.py'}:build", "--to", tmp_path / "out", "--name", "json")
    assert code == 2 and "'json' would hide" in err
