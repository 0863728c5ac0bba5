"""Ops and arguments may be called as they like: a package takes none of their names for itself."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import workbench as wb
from tests.saving import ops
from tests.saving.test_save import refused, texts
from workbench.errors import SaveError, SchemaError
from workbench.saving import cases, fakes, names, python, support
from workbench.schema import split_name

USED = {
    "load",
    "missing_cuda",
    "check",
    "runtime",
    "package",
    "device",
    "seconds",
    "row",
    "main",
    "f_functions",
    "f_triton",
    "f_op",
    "f",
    "_public",
    "_kernel",
    "_dual",
}


def own_names(root: Path) -> set[str]:
    """Every name that the modules of a package bind or look up, and what its files are called, without an underscore."""
    found = set()
    for path, text in texts(root).items():
        if path.endswith(".py") and "judge" not in path:
            tree = ast.parse(text)
            found |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
            found |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
            found |= {
                a.asname or a.name for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names
            }
        found |= {Path(part).stem.strip("_").removeprefix("test_") for part in Path(path).parts}
    return found


def allowed(name: str) -> bool:
    try:
        split_name(f"lab::{name}")
        torch._C.parse_schema(f"lab::{name}(Tensor {name}) -> Tensor")
    except (SchemaError, RuntimeError):
        return False
    return name.isascii() and not name.endswith(("_forward", "_backward", "_layout"))  # names that other ops need


def written(folder: Path, lines: list[str]):
    """A module of that text, imported."""
    file = folder / "typed.py"
    file.write_text("\n".join(["import torch", "from torch import Tensor", *lines]) + "\n")
    spec = importlib.util.spec_from_file_location("typed", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plain(namespace, tmp_path):
    op = ops.define(namespace, "plain", ops.scale_reference)
    wb.save(op, tmp_path / "plain_ops")
    return own_names(tmp_path / "plain_ops")


def run(root: Path, program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=root, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("underscored", [False, True])
def test_ops_of_every_name_that_the_package_has(plain, namespace, tmp_path, underscored):
    found = {n for n in plain | USED if allowed(n) and n not in names.MODULES and not n.startswith("_plain")}
    behind = {
        n for n in found if n.startswith("_") and n[1:] in found
    }  # not together: one is called as the other's module
    wanted = sorted(behind if underscored else found - behind)
    assert (
        {"_dual", "_torch", "_public"} if underscored else {"OP", "SCHEMA", "torch", "Tensor", "check", "load"}
    ) <= set(wanted)
    made = written(tmp_path, [f"def r{k}(x: Tensor) -> Tensor:\n    return x + {k}" for k in range(len(wanted))])
    every = []
    for k, name in enumerate(wanted):
        op = wb.op(f"{namespace}::{name}")(getattr(made, f"r{k}"))
        op.cases(lambda t: iter([t(2, 3)]))
        every.append(op)
    wb.save(every, tmp_path / "named_ops")
    program = (
        "import importlib, torch, named_ops\n"
        "for k, name in enumerate(named_ops.__all__):\n"
        "    f = getattr(named_ops, name)\n"
        "    assert f.__name__ == name and torch.equal(f(torch.zeros(2)), torch.full((2,), float(k))), name\n"
        "    assert f(torch.zeros(2, requires_grad=True)).requires_grad, name\n"
        "importlib.reload(named_ops)\n"
        f"for module in {[names.module(n) for n in wanted]!r}:\n"
        "    tests = importlib.import_module(f'test{module}')\n"
        "    assert len(tests.EVERY_CASE) and tests.run(tests.EVERY_CASE[0].bound(tests.SCHEMA)), module\n"
        "import sys; sys.argv = ['bench', 'cpu', '0']; sys.path.insert(0, 'benchmarks')\n"
        "import bench; print(len(named_ops.__all__), len(bench.OPS))\n"
    )
    count = len(wanted)
    assert run(tmp_path / "named_ops", program).split() == [str(count), str(count)] and count > (
        3 if underscored else 60
    )


@pytest.mark.slow
def test_arguments_of_every_name_that_the_package_has(plain, namespace, tmp_path):
    wanted = [
        n for n in sorted(plain | {*dir(builtins)}) if allowed(n) and n not in ("Tensor", "torch", "self", "list")
    ]
    lines = [
        f"def r{k}({n}: Tensor, others: list[Tensor], *, by: float = 2.0) -> Tensor:\n    return {n} * by + others[0]"
        for k, n in enumerate(wanted)
    ]
    made = written(tmp_path, lines)
    every = []
    for k in range(len(wanted)):
        op = wb.op(f"{namespace}::op{k}")(getattr(made, f"r{k}"))
        op.cases(lambda t: iter([wb.case("a", t(2, 3), [t(2, 3)])]))
        every.append(op)
    wb.save(every, tmp_path / "taking_ops")
    program = (
        "import torch, taking_ops\n"
        "for name in taking_ops.__all__:\n"
        "    out = getattr(taking_ops, name)(torch.ones(2), [torch.ones(2)], by=3.0)\n"
        "    assert torch.equal(out, torch.full((2,), 4.0)), name\n"
        "print(len(taking_ops.__all__))\n"
    )
    assert int(run(tmp_path / "taking_ops", program)) == len(wanted) > 60


def test_what_generated_functions_look_up_begins_as_no_name_may(namespace, tmp_path):
    wb.save(ops.normed(namespace), tmp_path / "normed_ops")
    tree = ast.parse(texts(tmp_path / "normed_ops")["src/normed_ops/_normed.py"])
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    for name, known in (("normed", {"x", "eps"}), ("_saved_cpu", {"x", "eps", "rows", "length", "torch"})):
        used = {n.id for part in functions[name].body for n in ast.walk(part) if isinstance(n, ast.Name)}
        assert {n for n in used - known if not n.startswith("__")} == set(), name
    assert fakes.SIZES == "__sizes"


def test_every_module_is_one_ops():
    every = [
        "f",
        "f_functions",
        "f_op",
        "f_op_op",
        "f_triton",
        "f_triton_backward",
        "check",
        "check_op",
        "_init__",
        "functions",
        "op",
        "_f",
    ]
    found = [f"{names.module(n)}{end}" for n in every for end in ("", *names.BESIDE)]
    assert len(set(found)) == len(found) and not names.MODULES & set(found)
    assert names.module("rmsnorm") == "_rmsnorm" and names.imported("check") == "from ._check_op import check"
    assert (
        names.imported("OP", "f") == "from ._OP import OP_ as f"
        and names.imported("f", "g") == "from ._f import f as g"
    )


def test_a_name_of_a_module_is_refused():
    for short in ("_check", "_f", "_f_functions", "_runtime"):
        with pytest.raises(
            SaveError, match=f"lab::{short}: a package has a module {short} of its own, .* for instance '{short[1:]}'"
        ):
            names.different([("f", "lab::f"), (short, f"lab::{short}")])


def test_the_names_of_the_tests_are_known(namespace, tmp_path):
    wb.save(ops.define(namespace, "plain", ops.scale_reference), tmp_path / "o")
    tree = ast.parse(texts(tmp_path / "o")["tests/test_plain.py"])
    bound = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    bound |= {
        t.id
        for n in tree.body
        if isinstance(n, ast.Assign)
        for e in n.targets
        for t in ast.walk(e)
        if isinstance(t, ast.Name)
    }
    bound |= {a.asname or a.name for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    theirs = {"cases", "torch", "annotations"}
    assert {n for n in bound - theirs if not n.startswith("test_")} <= cases.TAKEN


def test_cases_with_a_helper_called_as_one_of_the_tests(namespace, tmp_path):
    made = written(tmp_path, ["def run(t):\n    return t(2, 3)", "def cases(t):\n    yield run(t)"])
    op = wb.op(f"{namespace}::plain")(ops.scale_reference)
    op.cases(made.cases)
    wb.save(op, tmp_path / "o")
    assert torch.load(tmp_path / "o" / "tests" / "cases_plain.pt", weights_only=True)[0]["arguments"]["x"].shape == (
        2,
        3,
    )
    assert "its cases use run, which is a name of the tests" in texts(tmp_path / "o")["README.md"]


def test_a_module_beside_two_cells_that_differs():
    from workbench.saving.model import SavedOp, Script
    from workbench.schema import parse

    def op(name: str, path: str, text: str) -> SavedOp:
        script = Script("forward", "cuda", "triton", {path: text}, {}, "None")
        return SavedOp(parse(f"lab::{name}(Tensor x) -> Tensor"), "", "", {}, {}, scripts=(script,))

    python.modules("o", [op("a", "_tools.py", "one"), op("b", "_tools.py", "one")], defined=False)
    for others in (
        [op("a", "_tools.py", "one"), op("b", "_tools.py", "two")],
        [op("b", "_check.py", "one")],
        [op("a", "_b.py", "x"), op("b", "_c.py", "")],
    ):
        with pytest.raises(
            SaveError,
            match=r"lab::\w: \w+\.py beside its cell would be _\w+\.py in the package, which is another module there",
        ):
            python.modules("o", others, defined=False)


def test_packages_that_would_hide_what_their_tests_import(namespace, tmp_path):
    op = ops.define(namespace, "plain", ops.scale_reference)
    for name in ("judge", "pytest"):
        refused(f"'{name}' is the name of another package", op, tmp_path / name)
    wb.save(op, tmp_path / "run")
    assert "import run as package\n" in texts(tmp_path / "run")["tests/test_plain.py"]


def test_a_name_that_begins_as_our_own_in_cpp(namespace, tmp_path):
    op = ops.define("wb_ns", "wb_scale", ops.scale_reference)
    wb.cpp(op, ops.SCALE.replace("void scale", "void wb_scale").replace("times", "wb_times"))
    wb.save(op, tmp_path / "o")
    found = {
        Path(p).name: t for p, t in texts(tmp_path / "o").items() if p.startswith("csrc/wb") or "registration" in p
    }
    instances, host = found["wb_scale_forward_cpu_kernels.cpp"], found["wb_scale_forward_cpu.cpp"]
    assert (
        '#include "kernels/wb_scale.cpp"' in instances and "::wb_scale_forward_cpu_text::wb_scale<float>(" in instances
    )
    assert "const host_code_value* v" in instances and '"wb_ns::wb_scale_layout"' in host and "host_code::Frame" in host
    for text in (host, found["registration.cpp"]):
        assert "namespace wb_scale_forward_cpu {" in text
    assert support.own('"wb::f_layout" wb::g wb_got') == '"wb::f_layout" host_code::g host_code_got'


@pytest.mark.slow
def test_the_tests_of_ops_with_such_names_pass(namespace, tmp_path):
    """And of one that takes a dtype, which no exported program takes as an input."""
    made = written(
        tmp_path, ["def check(type: Tensor, all: torch.dtype = torch.float32) -> Tensor:\n    return type.to(all) * 2"]
    )
    op = wb.op(f"{namespace}::check")(made.check)
    op.cases(lambda t: iter([t(2, 3)]))
    wb.save(op, tmp_path / "o", license="mit")
    command = "import pytest; raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider']))"
    assert re.search(r"\n\d+ passed in ", run(tmp_path / "o", command))
