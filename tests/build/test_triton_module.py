"""Cells as modules: a clean namespace, true lines, helpers beside the notebook, compiled and interpreted forms."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys

import pytest
import torch

from workbench.build import triton_hints, triton_kernels, triton_module, triton_tune
from workbench.build.triton_interpret import interpreting
from workbench.errors import BuildError, SchemaError
from workbench.source import Source

CELL = """\
@triton.jit
def helper(x):
    return x + 1

@triton.autotune(configs=[triton.Config({"B": b}, num_warps=w) for b in (16, 32) for w in (1, (lambda: 2)())], key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % a["B"] == 0})
@triton.jit
def kernel(x, out, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, i < n)
    tl.store(out + i, helper(v), i < n)

def plus(x):
    out = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, out, x.numel())
    return out
"""


def source(text: str, path: str = "", first_line: int = 2) -> Source:
    return Source(text, "triton", file="cell [3]", first_line=first_line, path=path)


def interpreted(text: str, path: str = ""):
    module = triton_module.load(source(text, path), interpreted=True)
    triton_tune.first(triton_kernels.own_kernels(module).values())
    return module


def test_only_what_the_cell_brings_is_there():
    module = triton_module.load(source("A = 1\ndef f(): return A\n"))
    assert {n for n in vars(module) if not n.startswith("__")} == {"torch", "triton", "tl", "A", "f"}
    assert module.f() == 1


def test_lines_are_the_users():
    module = triton_module.load(source(CELL))
    assert module.plus.__code__.co_firstlineno == 14
    assert inspect.getsource(module.plus).startswith("def plus(x):")
    kernel = triton_kernels.innermost(module.kernel)
    assert kernel.src.startswith("def kernel(x, out") and kernel.starting_line_number == 9


def test_sources_do_not_come_from_inspect(monkeypatch):
    """Before Python 3.10.10 getsourcelines cut decorators short; what Triton reads are spans of the syntax tree."""
    monkeypatch.setattr(inspect, "getblock", lambda lines: lines[:1])
    text = CELL.replace("x + 1", "x + 7")
    kernel = triton_kernels.innermost(triton_module.load(source(text)).kernel)
    assert kernel.src.startswith("def kernel(x, out") and "tl.store" in kernel.src


def test_the_same_text_is_one_module_and_another_text_another():
    first = triton_module.load(source(CELL))
    assert triton_module.load(source(CELL)) is first
    assert triton_module.load(source(CELL + "\n# more")) is not first
    assert triton_module.load(source(CELL), interpreted=True) is not first


def test_sources_travel_and_functions_pickle_by_name():
    module = triton_module.load(source(CELL))
    assert triton_module.load(pickle.loads(pickle.dumps(source(CELL)))) is module
    assert pickle.loads(pickle.dumps(module.plus)) is module.plus and copy.deepcopy(module.plus) is module.plus


def test_what_raises_while_it_is_loaded_names_its_line():
    with pytest.raises(BuildError, match="ZeroDivisionError: division by zero") as raised:
        triton_module.load(source("A = 1\nB = A / 0\n"))
    assert (raised.value.line, raised.value.file, raised.value.diagnostics[0].excerpt) == (3, "cell [3]", "B = A / 0")


@pytest.mark.parametrize(("text", "said"), [
    ("assert x.shape[0] == 3", "line 3: AssertionError: assert x.shape[0] == 3"),
    ("assert x.device.type == 'cuda'", "== 'cuda': no GPU is here, so Triton's interpreter runs it on tensors of the"),
    ("assert False, 'too long'", "line 3: AssertionError: too long"),
    ("raise KeyError", "line 3: KeyError"),
    ("kernel.warmup(x, grid=(1,)).asm", "Triton's interpreter compiles nothing, so a launch gives None there; op.inspect()"),
    ("kernel[(1,)](x).n_regs", "Triton's interpreter compiles nothing, so a launch gives None there; op.inspect()"),
    ("None.shape", "AttributeError: 'NoneType' object has no attribute 'shape'"),
])  # fmt: skip
def test_what_a_launcher_raises_says_what_it_was(monkeypatch, text, said):
    monkeypatch.setattr("workbench.gpu.present", lambda: False)
    module = interpreted(f"def f(x):\n    {text}\n@triton.jit\ndef kernel(x): pass\n")
    with interpreting(), pytest.raises((AssertionError, KeyError, AttributeError)) as raised:
        module.f(torch.ones(2))
    told = triton_module.told(raised.value, "cell [3]")
    assert said in told and not told.endswith(": ")


def test_the_interpreter_and_the_compiler_do_not_disturb_each_other():
    import triton.language as tl
    from triton import knobs

    kinds = {
        type(triton_kernels.innermost(triton_module.load(source(CELL), interpreted=i).kernel)).__name__ for i in (0, 1)
    }
    assert kinds == {"JITFunction", "InterpretedFunction"}
    before = dict(vars(tl)), dict(vars(tl.core)), dict(vars(tl.tensor))
    x = torch.arange(40.0)
    with interpreting():
        assert torch.equal(interpreted(CELL).plus(x), x + 1)
    assert (dict(vars(tl)), dict(vars(tl.core)), dict(vars(tl.tensor))) == before
    assert knobs.runtime.interpret is False


@pytest.mark.parametrize("expression", ["tl.softmax(v)", "tl.sum(v) + v", "v.max(0) + v", "tl.cumsum(v, 0)", "tl.sigmoid(v)",
                                        "tl.zeros_like(v) + tl.cdiv(n, 2)", "tl.where(v > 0, v, 0.0)", "tl.flip(v, 0)"])  # fmt: skip
def test_functions_of_tl_that_are_triton_themselves_are_interpreted_too(expression):
    wanted = {"tl.softmax(v)": lambda v: v.softmax(0), "tl.sum(v) + v": lambda v: v.sum() + v, "v.max(0) + v": lambda v: v.max() + v,
              "tl.cumsum(v, 0)": lambda v: v.cumsum(0), "tl.sigmoid(v)": lambda v: v.sigmoid(),
              "tl.zeros_like(v) + tl.cdiv(n, 2)": lambda v: torch.full_like(v, 8.0), "tl.where(v > 0, v, 0.0)": lambda v: v.relu(),
              "tl.flip(v, 0)": lambda v: v.flip(0)}  # fmt: skip
    text = f"""\
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(out + i, {expression})
def f(x):
    out = torch.empty_like(x)
    kernel[(1,)](x, out, x.numel(), B=16)
    return out
"""
    x = torch.linspace(-2, 3, 16)
    with interpreting():
        got = interpreted(text).f(x)
    assert torch.allclose(got, wanted[expression](x), atol=1e-6)


def test_only_one_configuration_runs_at_each_launch(monkeypatch):
    text = "seen = []\n" + CELL.replace(
        "lambda meta: (", 'lambda meta: (seen.append((meta["B"], meta.get("EVEN"))) or '
    )
    module, told = triton_module.load(source(text), interpreted=True), []
    triton_tune.in_turn([module.kernel], interpreted=True)
    monkeypatch.setattr(triton_tune, "told", told.append)
    with interpreting():
        for turn in (0, 1, 3, None, None):
            monkeypatch.setattr(triton_tune, "turn", turn)
            module.plus(torch.ones(16))
    sizes = [b for b, _ in module.seen]  # that there are two numbers of warps is nothing to the interpreter
    assert sizes[:3] == [16, 32, 32] and sizes[3] == sizes[4]
    assert told[0].startswith("kernel with B=16, num_warps=")


# ---------------------------------------------------------------- helpers beside the notebook

HELPER = "import triton\nimport triton.language as tl\nfrom shapes import WIDTH\n@triton.jit\ndef twice(x):\n    return x * 2\n"
WITH_HELPER = """\
import helper
from helper import twice
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, twice(tl.load(x + i, i < n)), i < n)
def f(x):
    import helper as again
    out = torch.empty_like(x)
    kernel[(1,)](x, out, x.numel(), B=again.WIDTH)
    return out
"""


def test_a_changed_helper_is_loaded_anew_and_former_modules_keep_theirs(tmp_path):
    (tmp_path / "shapes.py").write_text("WIDTH = 16\n")
    (tmp_path / "helper.py").write_text(HELPER)
    cell, x = source(WITH_HELPER, str(tmp_path)), torch.arange(10.0)
    digest = triton_module.digest(cell)
    first = interpreted(WITH_HELPER, str(tmp_path))
    (tmp_path / "helper.py").write_text(HELPER.replace("* 2", "* 3"))
    second = interpreted(WITH_HELPER, str(tmp_path))
    with interpreting():
        assert torch.equal(first.f(x), x * 2) and torch.equal(second.f(x), x * 3)
    assert triton_module.digest(cell) != digest
    (tmp_path / "shapes.py").write_text("WIDTH = 32\n")  # two imports away
    assert interpreted(WITH_HELPER, str(tmp_path)).helper.WIDTH == 32
    assert "helper" not in __import__("sys").modules


def test_helpers_in_packages_and_relative_imports(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from . import inner\n")
    (tmp_path / "pack" / "inner.py").write_text("from .deep import VALUE\n")
    (tmp_path / "pack" / "deep.py").write_text("VALUE = 5\n")
    text = "import pack.inner\nfrom pack import deep\ndef f(): return pack.inner.VALUE + deep.VALUE\n"
    assert triton_module.load(source(text, str(tmp_path))).f() == 10
    (tmp_path / "pack" / "deep.py").write_text("VALUE = 6\n")
    assert triton_module.load(source(text, str(tmp_path))).f() == 12


def test_an_error_in_a_helper_names_the_helper(tmp_path):
    (tmp_path / "helper.py").write_text("A = 1\nB = missing\n")
    with pytest.raises(BuildError, match="NameError: name 'missing' is not defined") as raised:
        triton_module.load(source("import helper\n", str(tmp_path)))
    assert (raised.value.file, raised.value.line) == ("helper.py", 2)
    with pytest.raises(BuildError, match="No module named 'nowhere_at_all'"):
        triton_module.load(source("import nowhere_at_all\n", str(tmp_path)))


# ---------------------------------------------------------------- kernels exchanged


def test_functions_over_other_kernels_leave_the_module_alone(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\ndef run(kernel, x):\n    return kernel[(1,)](x)\n")
    text = "import helper\n@triton.jit\ndef k(x): pass\nMANY = {'k': [k]}\n"
    text += "def f(x):\n    return helper.run(MANY['k'][0], x), k[(2,)](x)\n"
    module = triton_module.load(source(text, str(tmp_path)))

    class Told:
        def __getitem__(self, grid):
            return lambda *args: ("launched", grid, args)

    assert triton_kernels.rebound(module, lambda k: Told()).f(1) == (("launched", (1,), (1,)), ("launched", (2,), (1,)))
    assert type(module.k).__name__ == "JITFunction"


def test_a_plain_number_in_a_kernel_is_refused_on_its_line():
    text = "N = 4\n@triton.jit\ndef k(x):\n    tl.store(x, N)\n"
    module = triton_module.load(source(text))
    with pytest.raises(SchemaError, match=re.escape("write 'N = tl.constexpr(4)'")) as raised:
        triton_kernels.check_constants(module, triton_module.label)
    assert (raised.value.line, raised.value.file) == (5, "cell [3]")
    good = triton_module.load(source(text.replace("= 4", "= tl.constexpr(4)")))
    triton_kernels.check_constants(good, triton_module.label)


def test_compiling_needs_no_numpy():
    program = (
        "import sys; sys.modules['numpy'] = None; import warnings; warnings.simplefilter('ignore')\n"
        "from workbench.build import triton_launches, triton_module; from workbench.source import Source\n"
        "print(triton_module.load(Source('@triton.jit\\ndef k(x): pass\\n', 'triton')).k.arg_names)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "['x']\n", done.stderr


def test_a_name_that_a_module_beside_lacks_is_told_without_our_names(tmp_path):
    (tmp_path / "helpers.py").write_text("def gelu(x): return x\n")
    text = "from helpers import gelu_tanh\n"
    with pytest.raises(BuildError) as raised:
        triton_module.load(Source(text, "triton", file="cell [3]", first_line=2, path=str(tmp_path)))
    wanted = "ImportError: cannot import name 'gelu_tanh' from 'helpers'; did you mean 'gelu'?"
    assert (raised.value.line, raised.value.diagnostics[0].message) == (2, wanted)


@pytest.mark.parametrize(("name", "said"), [
    ("ctx", "there is none here: name what it takes, of grad_y, grad_s, x"),
    ("grad_out", "the gradients are grad_y, grad_s"),
    ("xx", "did you mean 'x'?"),
    ("weight", "the arguments are grad_y, grad_s, x"),
])  # fmt: skip
def test_a_parameter_that_is_no_argument(name, said):
    assert triton_hints.unbound(name, ["grad_y", "grad_s", "x"]) == said
