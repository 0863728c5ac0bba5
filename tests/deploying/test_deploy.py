"""Deployed models: what is refused, how each op runs, and, for real, the compiled model in Python, in C++ and in ONNX."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.live import SCALE
from workbench import cli
from workbench.deploying import graph, made, ran
from workbench.deploying import onnx as onnx_form
from workbench.errors import BuildError, SaveError
from workbench.reports.deploying import INLINED, NATIVE, TRACED, Deployed, Ran
from workbench.show import html

slow = pytest.mark.slow
KERNELS = Path(__file__).parents[2] / "kernels"


@pytest.fixture
def scale(namespace):
    """An op with a kernel for the CPU."""

    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        """Every element times k."""
        return x * k

    scale.cases(lambda t: iter([(t(4, 8), 3.0), (t(5, 3),)]))
    wb.cpp(scale, SCALE)
    return scale


@pytest.fixture
def twist(namespace):
    """An op that runs its reference."""

    @wb.op(f"{namespace}::twist")
    def twist(x: Tensor, *, k: float = 2.0) -> Tensor:
        return torch.sin(x) * k

    return twist


def exported(function, *inputs, batch=False, shapes=None, ops=None):
    return graph.exported(graph.module_of(function), inputs, wb.ops if ops is None else ops, batch=batch, shapes=shapes)


def targets(program) -> list[str]:
    return [n.target._schema.name for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]


# ---------------------------------------------------------------- how each op runs


def test_an_op_with_a_kernel_stays_and_one_without_is_compiled_into_the_model(scale, twist):
    found = exported(lambda x: scale(twist(x, k=3.0), 0.5), torch.randn(4, 8))
    assert found.ops == ((twist.qualname, TRACED), (scale.qualname, NATIVE))
    assert found.native == (scale,) and found.device == "cpu"
    assert scale.qualname in targets(found.program) and twist.qualname not in targets(found.program)
    x = torch.randn(4, 8)
    assert torch.equal(found.program.module()(x), torch.sin(x) * 3.0 * 0.5)


def test_ops_in_the_branches_of_a_graph_are_found(scale):
    def either(x):
        return torch.cond(x.sum() > 0, lambda x: scale(x, 3.0), lambda x: x + 1, (x,))

    assert exported(either, torch.randn(4, 8)).ops == ((scale.qualname, NATIVE),)


def test_a_batch_is_one_open_size_of_all_inputs(scale):
    found = exported(lambda x, y: scale(x) + y, torch.randn(4, 8), torch.randn(4, 1), batch=True)
    symbols = {str(n.meta["val"].shape[0]) for n in found.program.graph.nodes if n.op == "placeholder"}
    assert len(symbols) == 1 and not symbols.pop().isdigit()
    for rows in (1, 7):
        x, y = torch.randn(rows, 8), torch.randn(rows, 1)
        assert torch.equal(found.program.module()(x, y), x * 2 + y)


@pytest.mark.parametrize("inputs", [(torch.ones(1, 3),), (torch.tensor(2.0),), (torch.ones(4, 3), torch.ones(5, 3))])
def test_a_batch_that_is_none(inputs):
    with pytest.raises(SaveError, match=r"batch=True opens the first dimension.*got \(.*dynamic_shapes"):
        exported(lambda *x: x[0] + 1, *inputs, batch=True)


def test_a_triton_kernel_goes_into_the_model_on_a_gpu(scale):
    class Stand:
        qualname, slots, reference = (
            "lab::f",
            {("forward", "cuda"): wb.ops[scale.qualname].slots["forward", "cpu"]},
            None,
        )

    assert graph._how(Stand, "cuda") == NATIVE
    kernel = type("K", (), {"inlined": "digest"})
    Stand.slots = {("forward", "cuda"): type("V", (), {"language": "triton", "kernel": kernel})}
    assert graph._how(Stand, "cuda") == INLINED
    with pytest.raises(SaveError, match=r"lab::f has no kernel for cpu that can be .* write a %%cpp cell"):
        graph._how(Stand, "cpu")
    kernel.inlined = ""  # torch cannot look into it
    with pytest.raises(
        SaveError, match=r"lab::f has no kernel for cuda that can be .* no reference: write a %%cuda cell"
    ):
        graph._how(Stand, "cuda")
    Stand.reference = torch.sin
    assert graph._how(Stand, "cuda") == TRACED


@slow
def test_what_can_be_looked_into_is_an_op_of_the_exported_graph_and_code_of_the_compiled_one(twist, tmp_path):
    """A function in Python stands for a Triton launcher."""
    twist.registration.inlined.put(twist.qualname, "cpu", lambda args, keywords: torch.cos(args[0]))
    found = exported(lambda x: twist(x) + 1, torch.randn(4, 8), ops={})
    assert targets(found.program)[0] == twist.qualname
    made.model(found.program, tmp_path / "model.pt2")
    x = torch.randn(4, 8)
    torch.testing.assert_close(torch._inductor.aoti_load_package(str(tmp_path / "model.pt2"))(x), torch.cos(x) + 1)


# ---------------------------------------------------------------- what is refused


def test_a_model_that_cannot_be_exported_says_why(scale):
    with pytest.raises(SaveError, match="the model cannot be exported: .*data-dependent"):
        exported(lambda x: scale(x) if x.sum() > 0 else x, torch.randn(4, 8))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (2.0, "example_inputs are tensors, one or a tuple of them, got float"),
        ((torch.ones(2), 3), "got Tensor, int; give numbers with a function"),
        ((), "example_inputs are tensors"),
    ],
)
def test_inputs_that_are_no_tensors(scale, tmp_path, given, said):
    with pytest.raises(SaveError, match=said):
        wb.deploy(scale, given, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_cannot_be_called(tmp_path):
    with pytest.raises(SaveError, match="takes a module, an op or a function of tensors, got str"):
        wb.deploy("model", torch.ones(2), tmp_path / "model")


def test_batch_and_dynamic_shapes(scale, tmp_path):
    with pytest.raises(SaveError, match="batch=True or dynamic_shapes, not both"):
        wb.deploy(scale, torch.ones(2, 3), tmp_path / "model", batch=True, dynamic_shapes=({0: None},))


@pytest.mark.parametrize("name", ["torch", "class", "9lives"])
def test_a_name_that_will_not_do(scale, tmp_path, name):
    with pytest.raises(SaveError):
        wb.deploy(scale, torch.ones(2, 3), tmp_path / "model", name=name)


def test_a_folder_of_something_else(scale, tmp_path):
    root = tmp_path / "model"
    root.mkdir()
    (root / "thesis.txt").write_text("years")
    with pytest.raises(SaveError, match=r"holds something else than a deployment"):
        wb.deploy(scale, torch.ones(2, 3), root)
    assert (root / "thesis.txt").read_text() == "years"


@pytest.fixture
def quick(monkeypatch):
    """A deployment without its compilers: everything else is real."""
    monkeypatch.setattr(made, "model", lambda program, path: path.write_bytes(b"compiled"))
    monkeypatch.setattr(made, "cmake", lambda: "")
    monkeypatch.setattr(ran, "in_python", lambda folder, on, *_: Ran("Python", on, 1, 1))


def test_what_a_user_put_or_changed_there_stays(twist, quick, tmp_path):
    root, x = tmp_path / "model", torch.ones(2, 3)
    assert wb.deploy(twist, x, root).notes == ()
    (root / "cpp" / "main.cpp").write_text("// mine\n" + (root / "cpp" / "main.cpp").read_text())
    (root / "run.py").unlink()
    (root / "build").mkdir()
    (root / "build" / "run").write_text("built")
    (root / "data.csv").symlink_to("elsewhere")
    report = wb.deploy(twist, x, root)
    assert report.notes == ("cpp/main.cpp keeps what was changed by hand",)
    assert (root / "cpp" / "main.cpp").read_text().startswith("// mine\n") and (root / "run.py").exists()
    assert (root / "build" / "run").read_text() == "built" and os.readlink(root / "data.csv") == "elsewhere"
    assert wb.deploy(twist, x, root).notes == report.notes  # it is still an edited one
    assert not [p for p in tmp_path.iterdir() if p != root] and not (root / ".former").exists()


def test_a_change_that_would_be_lost_is_refused_with_the_difference(twist, scale, quick, tmp_path):
    root, x = tmp_path / "model", torch.ones(2, 3)
    wb.deploy(twist, x, root)
    (root / "README.md").write_text((root / "README.md").read_text().replace("# model", "# The model of the thesis"))
    wb.deploy(twist, x, root)
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    with pytest.raises(SaveError) as raised:
        wb.deploy(lambda x: twist(x).abs() + scale(x.to(torch.float32)), x, root, onnx=False)
    said = str(raised.value)
    assert "README.md in" in said and "changed by hand, and would be written otherwise" in said
    assert "-# The model of the thesis" in said and "+# model" in said and "nothing was written" in said
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before


def test_a_folder_that_cannot_take_its_place_leaves_the_former_one(twist, quick, tmp_path, monkeypatch):
    root, x = tmp_path / "model", torch.ones(2, 3)
    wb.deploy(twist, x, root)
    (root / "mine.txt").write_text("mine")
    replace = os.replace

    def fails(source, to):
        if Path(to) == root and not str(source).endswith("-former"):
            raise OSError("the disk is gone")
        replace(source, to)

    monkeypatch.setattr("workbench.deploying.folder.os.replace", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        wb.deploy(twist, x, root)
    assert (root / "mine.txt").read_text() == "mine" and (root / "model.pt2").exists()
    assert list(tmp_path.iterdir()) == [root]


def test_one_that_fails_goes_beside_one_that_works(twist, quick, tmp_path, monkeypatch):
    root, x = tmp_path / "model", torch.ones(2, 3)
    wb.deploy(twist, x, root)
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    monkeypatch.setattr(ran, "in_python", lambda folder, on, *_: Ran("Python", on, problem="it differs"))
    for _ in range(2):
        report = wb.deploy(lambda x: twist(x) + 1, x, root)
        assert (
            not report.ok
            and report.path == str(tmp_path / "model.failed")
            and (tmp_path / "model.failed" / "run.py").exists()
        )
        assert f"{root} stays as it was: what fails is in a folder beside it" in report.notes
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before
    assert wb.deploy(twist, x, tmp_path / "first").path == str(tmp_path / "first")  # there was none to lose


def test_dtypes_that_no_case_had_are_built_before_the_library_is(scale, quick, tmp_path):
    wb.deploy(scale, torch.ones(2, 3).half(), tmp_path / "model")
    assert "float16" in "".join(p.read_text() for p in (tmp_path / "model" / "ops" / "csrc").rglob("*_kernels.cpp"))


def test_what_speaks_against_an_op_is_said(scale, quick, tmp_path):
    wb.cpp(scale, SCALE.replace("* k", "* k + 1"), force=True)
    report = wb.deploy(scale, torch.ones(4, 8), tmp_path / "model")
    (note,) = report.notes
    assert note.startswith(f"{scale.qualname}: v2 (forward, cpu) was installed by force although it differs on")
    assert note in str(report).splitlines() and note in html.of(report)
    assert f"\n**Known when it was deployed:** {note}.\n" in (tmp_path / "model" / "README.md").read_text()


def test_nested_outputs_in_python(tmp_path):
    """What run.py makes of a model's results: a flat list of tensors, as the C++ program has it."""
    from workbench.saving import templates

    text = templates.render(
        "deploy/run.py.j2", name="m", libraries=[], ops=[], torch=torch.__version__, device="cpu", package="m_ops"
    )
    scope = {"__name__": "run", "__file__": str(tmp_path / "run.py")}
    exec(compile(text, "run.py", "exec"), scope)
    scope["load"] = lambda: lambda x: ({"lo": x - 1, "hi": x + 1}, [x, (2 * x,)], 3)
    torch.save([torch.ones(2)], tmp_path / "in.pt")
    scope["sys"] = type("S", (), {"argv": ["run.py", str(tmp_path / "in.pt"), str(tmp_path / "out.pt")]})
    scope["main"]()
    assert [t.tolist() for t in torch.load(tmp_path / "out.pt")] == [[0, 0], [2, 2], [1, 1], [2, 2]]


def test_a_file_of_the_users_own_in_the_way_of_a_new_one(twist, quick, tmp_path, monkeypatch):
    root, x = tmp_path / "model", torch.ones(2, 3)
    wb.deploy(twist, x, root)
    (root / "model.onnx").write_text("another model")
    monkeypatch.setattr("workbench.deploying.onnx.write", lambda program, ops, path: path.write_bytes(b"onnx"))
    monkeypatch.setattr("workbench.deploying.onnx.ran", lambda *_: Ran("ONNX", "example", 1, 1))
    with pytest.raises(
        SaveError, match=r"model\.onnx is of no earlier deployment and would be written over: move it away"
    ):
        wb.deploy(twist, x, root, onnx=True)
    assert (root / "model.onnx").read_text() == "another model"


@slow
def test_edited_sources_of_the_library_are_what_is_compiled(scale, quick, tmp_path):
    root, x = tmp_path / "model", torch.ones(2, 3)
    wb.deploy(scale, x, root)
    [text] = [p for p in (root / "ops").rglob("*") if p.is_file() and b"out[i] = T(x[i] * k)" in p.read_bytes()]
    text.write_text(text.read_text().replace("out[i] = T(x[i] * k)", "out[i] = T(100 + x[i] * k)"))
    report = wb.deploy(scale, x, root)
    assert report.notes == (f"{text.relative_to(root)} keeps what was changed by hand",)
    namespace, name = scale.qualname.split("::")
    program = (
        f"import torch; torch.ops.load_library({str(root / 'lib' / report.library)!r}); "
        f"print(torch.ops.{namespace}.{name}(torch.ones(2)).tolist())"
    )
    done = run([sys.executable, "-c", program])
    assert done.stdout.strip() == "[102.0, 102.0]", done.stderr


def test_a_step_that_fails_leaves_what_was_there(scale, tmp_path, monkeypatch):
    root = tmp_path / "model"
    root.mkdir()
    (root / "deployed.json").write_text(json.dumps({"files": {}}))

    def fails(*_):
        raise BuildError("the library of the ops could not be built: no compiler")

    monkeypatch.setattr(made, "ops_library", fails)
    with pytest.raises(BuildError, match=r"no compiler\n.*nothing was written"):
        wb.deploy(scale, torch.ones(2, 3), root)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    assert [p.name for p in root.iterdir()] == ["deployed.json"]


def test_a_model_that_fails_ends_what_is_compiled_beside_it(twist, tmp_path, monkeypatch):
    cmake, started = tmp_path / "cmake", tmp_path / "started"
    cmake.write_text(f"#!/bin/sh\necho $$ > {started}.part; mv {started}.part {started}; exec sleep 100\n")
    cmake.chmod(0o755)

    def fails(*_):
        while not started.exists():
            time.sleep(0.01)
        raise BuildError("the model could not be compiled: no memory")

    monkeypatch.setattr(made, "cmake", lambda: str(cmake))
    monkeypatch.setattr(made, "model", fails)
    with pytest.raises(BuildError, match="no memory"):
        wb.deploy(twist, torch.ones(2, 3), tmp_path / "model")
    assert not os.path.exists(f"/proc/{started.read_text().strip()}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cmake", "started"]


def test_an_op_that_cannot_be_saved_says_so(scale, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "workbench.deploying.save", lambda *a, **k: (_ for _ in ()).throw(SaveError("cell 3 captures `sheet`"))
    )
    with pytest.raises(SaveError, match="cell 3 captures `sheet`"):
        wb.deploy(scale, torch.ones(2, 3), tmp_path / "model")
    assert not (tmp_path / "model").exists()


# ---------------------------------------------------------------- compared


@pytest.mark.parametrize(
    ("got", "wanted", "equal", "worst", "problem"),
    [
        ([torch.ones(3)], [torch.ones(3)], 1, 0.0, ""),
        ([torch.ones(3) + 1e-6], [torch.ones(3)], 0, pytest.approx(1e-6, rel=0.1), ""),
        ([torch.ones(3) * 1.5], [torch.ones(3)], 0, 0.5, "output 0 differs from eager's by up to 0.5"),
        ([torch.ones(3)], [torch.ones(3), torch.ones(3)], 0, 0.0, "1 outputs, eager has 2"),
        ([torch.ones(2)], [torch.ones(3)], 0, 0.0, r"output 0 is (2,) float32, eager's (3,) float32"),
        ([torch.tensor([1])], [torch.tensor([2])], 0, 1.0, "output 0 differs from eager's by up to 1"),
    ],
)
def test_compared(got, wanted, equal, worst, problem):
    found = ran.compared(Ran("Python", "example"), got, wanted)
    assert (found.equal, found.worst, found.problem) == (equal, worst, problem)
    assert found.ok == (not problem)


@pytest.mark.parametrize(("code", "cure"), [(-11, True), (1, False)])
def test_a_model_that_kills_python_says_what_else_to_try(tmp_path, monkeypatch, code, cure):
    ended = ran.process.Finished(code, "Traceback\nValueError: no", 0.1)
    monkeypatch.setattr(ran, "_run", lambda *_: ended)
    found = ran.in_python(tmp_path, "example", tmp_path / "in.pt", [], tmp_path)
    assert found.problem.startswith("ValueError: no") and ("CXX=/usr/bin/g++" in found.problem) == cure


def test_the_report_says_how_each_op_runs_and_what_each_run_gave():
    runs = (Ran("Python", "example", 2, 1, 1e-7), Ran("C++", "example", 1, 1, 0.0, 41.0),
            Ran("ONNX", "example", problem="no such op"), Ran("C++", "another batch", skipped="CMake is not here"))  # fmt: skip
    report = Deployed(
        "/m/norm", "norm", "cpu", (("lab::norm", NATIVE), ("lab::f", TRACED)), runs, {"model": 20.0, "runs": 4.0}
    )
    assert not report.ok and report.to_dict()["runs"][1]["microseconds"] == 41.0
    assert (
        str(report)
        == """\
norm | cpu | model.pt2 in /m/norm | 24.0 s
  lab::norm  runs its library
  lab::f     runs its reference, compiled into the model
  Python  example          2 outputs, 1 equal to eager's to the last bit, the rest within 1e-07
  C++     example          1 output, equal to eager's to the last bit, 41 us a call
  ONNX    example          FAILED: no such op
  C++     another batch    not run: CMake is not here
run it: python /m/norm/run.py, or /m/norm/bin/run /m/norm (no Python)"""
    )
    seen = html.of(report)
    for part in (
        ">lab::norm</span></td>",
        "runs its library",
        "FAILED: no such op",
        "not run: CMake is not here",
        "41 µs",
    ):
        assert part in seen
    assert seen.count('class="dot p"') == 2 and seen.count('class="dot f"') == seen.count('class="dot s"') == 1
    assert "&lt;b&gt;" in html.of(Deployed("/m", "<b>", "cpu", (), (), {})) and "<b>" not in html.of(
        Deployed("/m", "<b>", "cpu", (), (), {})
    )


# ---------------------------------------------------------------- for real


@pytest.fixture(scope="module")
def norm(tmp_path_factory):
    """A model with rmsnorm in it: its report, its folder, the model itself."""
    from tests import live

    live.gone("lab::rmsnorm")
    [op] = wb.load(KERNELS / "rmsnorm" / "op.py")
    wb.load(KERNELS / "rmsnorm" / "rmsnorm.cpp")
    torch.manual_seed(3)
    w = torch.rand(64)
    folder = tmp_path_factory.mktemp("deployed") / "norm"
    report = wb.deploy(lambda x: op(x, w, 1e-5), torch.randn(8, 64), folder, batch=True, onnx=True)
    yield report, folder, lambda x: op(x, w, 1e-5)
    live.gone("lab::rmsnorm")


def run(command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=300, **more)


@slow
def test_it_runs_in_python_and_in_cpp_with_the_bits_of_eager(norm):
    report, folder, _ = norm
    assert report.ok, str(report)
    assert report.ops == (("lab::rmsnorm", NATIVE),)
    by = {(r.by, r.on): r for r in report.runs}
    assert set(by) == {(w, on) for w in ("Python", "C++") for on in ("example", "another batch")} | {
        ("ONNX", "example")
    }
    assert all(r.equal == r.outputs == 1 for r in report.runs), str(report)
    assert by["C++", "example"].microseconds > 0
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE((folder / "ops").stat().st_mode) == 0o777 & ~_umask()


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@slow
def test_the_program_starts_no_python(norm):
    _, folder, _ = norm
    said = run(["ldd", folder / "bin" / "run"]).stdout
    assert "libtorch_cpu" in said and "libpython" not in said and "libtorch_python" not in said
    moved = shutil.copytree(folder, folder.with_name("moved"))
    done = run([moved / "bin" / "run", moved], env={"PATH": "/nowhere"})
    assert done.returncode == 0 and "output 0 equal" in done.stdout, done.stderr


@slow
def test_other_inputs_of_another_batch(norm, tmp_path):
    _, folder, eager = norm
    x = torch.randn(100, 64)
    torch.save([x], tmp_path / "in.pt")
    done = run([sys.executable, folder / "run.py", tmp_path / "in.pt", tmp_path / "out.pt"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.equal(torch.load(tmp_path / "out.pt")[0], eager(x))
    torch.save([eager(x) + 1], tmp_path / "wrong.pt")
    done = run([folder / "bin" / "run", folder, tmp_path / "in.pt", tmp_path / "wrong.pt"])
    assert done.returncode == 1 and "output 0 differs 1" in done.stdout


@slow
def test_without_its_op_library_both_say_which_and_where(norm):
    _, folder, _ = norm
    bare = shutil.copytree(folder, folder.with_name("bare"))
    shutil.rmtree(bare / "lib")
    for command in ([sys.executable, bare / "run.py"], [bare / "bin" / "run", bare]):
        done = run(command)
        assert done.returncode != 0
        assert "libnorm_ops.so" in done.stderr and "README.md" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and "Exception raised from" not in done.stderr


@slow
def test_the_exported_graph_loads_where_the_package_is_imported(norm, tmp_path):
    _, folder, eager = norm
    x = torch.randn(3, 64)
    built = run([sys.executable, "setup.py", "-q", "build_ext", "--build-lib", tmp_path / "b", "--build-temp", tmp_path / "t"],
                cwd=shutil.copytree(folder / "ops", tmp_path / "ops"))  # fmt: skip
    assert built.returncode == 0, built.stderr
    shutil.copytree(tmp_path / "ops" / "src" / "norm_ops", tmp_path / "b" / "norm_ops", dirs_exist_ok=True)
    torch.save(x, tmp_path / "x.pt")
    program = (
        "import sys, torch, norm_ops\n"
        f"found = torch.export.load({str(folder / 'exported.pt2')!r}).module()(torch.load({str(tmp_path / 'x.pt')!r}))\n"
        f"torch.save(found, {str(tmp_path / 'y.pt')!r})"
    )
    done = run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(tmp_path / "b")}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.equal(torch.load(tmp_path / "y.pt"), eager(x))


@slow
def test_the_onnx_file_has_the_op_in_a_domain_of_its_own(norm):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(norm[1] / "model.onnx")
    assert {i.domain for i in model.opset_import} >= {"lab"}
    (node,) = [n for n in model.graph.node if n.domain == "lab"]
    assert node.op_type == "rmsnorm" and {a.name: round(a.f, 9) for a in node.attribute} == {"eps": 1e-05}


@pytest.mark.parametrize(("inputs", "said"), [
    (torch.randn(3, 4, requires_grad=True), ""), (torch.randn(3, 4, dtype=torch.bfloat16), "lacks a dtype of it"),
])  # fmt: skip
def test_onnx_of_inputs_that_numpy_does_not_take_as_they_are(scale, tmp_path, inputs, said):
    pytest.importorskip("onnxscript")
    found = exported(lambda x: scale(x, 3.0), inputs)
    onnx_form.write(found.program, found.native, tmp_path / "model.onnx")
    run = onnx_form.ran(tmp_path / "model.onnx", found.native, (inputs,), [inputs.detach() * 3])
    assert said in run.skipped and not run.problem and (run.equal == 1) == (not said)


@slow
def test_several_outputs_mutation_and_a_library_that_defines_its_op(tmp_path):
    """In a process of its own: a library's op stays for good."""
    program = f"""
import torch, workbench as wb
from pathlib import Path
ops = {{op.name: op for n in ("topk_with_idx", "add_inplace_", "muladd") for op in wb.load(Path({str(KERNELS)!r}, n))}}
def model(x):
    z = torch.zeros_like(x)
    ops["add_inplace_"](z, x, 0.5)
    values, places = ops["topk_with_idx"](ops["muladd"](z, x, 1.5), 3)
    return values, places
report = wb.deploy(model, torch.randn(8, 32), {str(tmp_path / "many")!r})
print(report)
assert report.ok and len(report.ops) == 3 and all(r.equal == r.outputs == 2 for r in report.runs)
"""
    done = run([sys.executable, "-c", program])
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("model", "said"),
    [("model.py", "say which function makes the model"), ("none.py:build", "none.py is not a file"),
     ("{there}:other", r"has no function other\(\)"), ("{there}:one", r"one\(\) of .* returns two things")],
)  # fmt: skip
def test_a_command_that_names_no_model(tmp_path, capsys, model, said):
    there = tmp_path / "model.py"
    there.write_text("def one():\n    return 1\n")
    assert cli.main(["deploy", model.format(there=there), "--to", str(tmp_path / "out")]) == 2
    assert re.search(said, capsys.readouterr().err)


def test_the_command(tmp_path, capsys, monkeypatch):
    """What it hands on; the work itself is tried above."""
    monkeypatch.chdir(tmp_path)
    there, asked = tmp_path / "model.py", []
    there.write_text("import torch\ndef build():\n    return torch.nn.Identity(), torch.ones(2, 3)\n")

    def deploy(module, inputs, path, **options):
        asked.append((type(module).__name__, tuple(inputs.shape), path, options))
        return Deployed(path, "out", "cpu", (), (Ran("Python", "example", 1, 1),), {"model": 1.0})

    monkeypatch.setattr("workbench.deploying.deploy", deploy)
    assert cli.main(["deploy", f"{there}:build", "--to", "out", "--batch", "--json"]) == 0
    assert asked == [("Identity", (2, 3), "out", {"name": "", "batch": True, "onnx": False})]
    assert json.loads(capsys.readouterr().out)["ok"] is True
