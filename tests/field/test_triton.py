"""What people met with Triton (field reports F34 to F39, F44), on a machine without a GPU: the interpreter tries."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import gpu

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(gpu.present(), reason="what is done where no GPU is")
ROOT = str(Path(__file__).parents[2])
X = torch.linspace(-2, 3, 24).reshape(4, 6)

CELL = """\
BLOCK = tl.constexpr(64)

@triton.jit
def twice(v):
    return v * 2

@triton.jit
def kernel(x, out, n):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    output = tl.load(x + i, i < n)
    tl.store(out + i, twice(output).to(tl.float32), i < n)

def scale(x):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel())
    return out
"""


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture
def scale(namespace):
    @wb.op(f"{namespace}::scale")
    def scale(x: Tensor) -> Tensor:
        return x * 2

    @scale.cases
    def _(t):
        yield (t(4, 8),)
        yield wb.case("odd", t(5, 13))

    return scale


# ---------------------------------------------------------------- F34, F35: names of the notebook


@pytest.mark.parametrize(("old", "new", "line", "words"), [
    ("BLOCK = tl.constexpr(64)", "BLOCK = 64", 9, "BLOCK = tl.constexpr"),
    ("BLOCK = tl.constexpr(64)", "BLOCK: int = 64", 9, "tl.constexpr"),
    ("BLOCK = tl.constexpr(64)\n", "\n", 9, "BLOCK"),
    ("v * 2", "v * FACTOR", 5, "FACTOR"),
])  # fmt: skip
def test_f34_a_global_that_is_no_constexpr_is_named_with_the_line_to_write(scale, old, new, line, words):
    with pytest.raises(wb.WorkbenchError) as raised:
        wb.triton(scale, CELL.replace(old, new))
    assert words in str(raised.value) and "constexpr" in str(raised.value)
    assert raised.value.line == line and "still runs" in str(raised.value)
    assert scale(X).equal(X * 2)


def test_f35_a_local_with_the_name_of_a_notebooks_global_is_the_kernels_own(scale):
    """The cell has a namespace of its own: what the notebook calls `output`, `twice` or `n` is not seen."""
    here = globals()
    here.update(output=torch.ones(1), to="a string", twice=None, n=3.5, BLOCK=16)
    try:
        wb.triton(scale, CELL)
    finally:
        for name in ("output", "to", "twice", "n", "BLOCK"):
            del here[name]
    assert scale.runs("forward", "cpu").trial.ok and scale(X).equal(X * 2)


# ---------------------------------------------------------------- F36: stale constants and helpers


@pytest.mark.parametrize(("old", "new"), [
    ("v * 2", "v * two"),  # a constant
    ("v * 2", "v + v * one(1.0)"),  # a helper of a helper
])  # fmt: skip
def test_f36_another_constant_or_helper_is_another_kernel_in_eager_and_compiled_code(old, new, namespace):
    head = "two = tl.constexpr({value})\n@triton.jit\ndef one(v):\n    return v * ({value} - 1)\n"
    op = wb.op(f"{namespace}::scale")(reference)
    op.cases(lambda t: iter([(t(4, 8),)]))
    compiled = torch.compile(lambda x: op(x), fullgraph=True, backend="aot_eager")
    for value in (2, 3, 2):
        wb.triton(op, head.format(value=value) + CELL.replace(old, new), force=True)
        for call in (op, compiled, op.torch_op):
            assert call(X).allclose(X * value)


def reference(x: Tensor) -> Tensor:
    return x * 2


def test_f36_a_changed_module_beside_the_notebook_is_read_again(scale, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "import {name}\n" + CELL.replace("twice(output)", "{name}.helper(output)")
    name = f"helpers_{scale.schema.namespace}"
    for value in (2, 3, 2):
        Path(f"{name}.py").write_text(
            f"import triton\n@triton.jit\ndef helper(v):\n    return v * {value}  # {value}\n"
        )
        wb.triton(scale, text.format(name=name), force=True)
        assert scale(X).allclose(X * value)


# ---------------------------------------------------------------- F37: source text


DECORATED = """\
def configurations(*sizes):
    return [triton.Config(kwargs={"B": (lambda s: s)(s)}, num_warps=w) for s in sizes for w in (1, 2)]

@triton.autotune(configs=[c for c in (configurations((16), (32)))], key=[("n"), ])
@triton.heuristics({"EVEN": lambda args: (args["n"] % (args["B"])) == (0)})
@triton.jit
def kernel(x, out, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, i < n) * 2, i < n)

def scale(x):
    out = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, out, x.numel())
    return out
"""


def test_f37_decorators_with_brackets_and_lambdas_do_not_cut_the_text(scale):
    wb.triton(scale, DECORATED)
    assert scale(X).equal(X * 2) and scale.runs("forward", "cpu").trial.ok


# ---------------------------------------------------------------- F38: no GPU


WITHOUT = """
    import torch, workbench as wb
    from torch import Tensor

    @wb.op("lab::scale")
    def scale(x: Tensor) -> Tensor:
        return x * 2

    scale.cases(lambda t: iter([(t(4, 8),)]))
    wb.triton(scale, TEXT)
    print(scale(torch.ones(2)).tolist(), scale.runs("forward", "cuda").number, scale.last_line)
"""


def test_f38_a_cell_with_configurations_needs_no_gpu_to_be_defined_and_says_what_was_not_run(fresh_cache):
    variables = {**os.environ, "WORKBENCH_CACHE": fresh_cache, "PYTHONPATH": ROOT, "CUDA_VISIBLE_DEVICES": ""}
    script = f"TEXT = {DECORATED!r}\n" + textwrap.dedent(WITHOUT)
    done = subprocess.run(
        [sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (
        done.stdout.startswith("[2.0, 2.0] 1 ") and "interpreted" in done.stdout and "compiled for sm_90" in done.stdout
    )
    assert "active drivers" not in done.stderr


# ---------------------------------------------------------------- F39: a form for each size


@pytest.mark.parametrize(("mark", "floods"), [(": tl.constexpr", True), ("", False)])
def test_f39_a_size_as_a_constant_is_counted_and_named(mark, floods, namespace):
    op = wb.op(f"{namespace}::scale")(reference)
    op.cases(lambda t: iter([(t(n),) for n in range(20, 27)]))
    text = CELL.replace("def kernel(x, out, n):", f"def kernel(x, out, n{mark}):")
    wb.triton(op, text)
    told = "kernel was compiled 7 times, for 7 values of n: take n without tl.constexpr, or round it"
    assert (told in " ".join(str(op.last_line).split())) is floods


# ---------------------------------------------------------------- F44: hooks of the autotuner and graphs


def test_f44_an_autotuned_kernel_with_a_hook_is_the_same_in_eager_and_compiled_code(namespace):
    """It adds into its output, which the hook sets to zero: a hook that is dropped doubles the result."""
    text = """\
@triton.autotune(configs=[triton.Config({"B": 16}, pre_hook=lambda args: args["out"].zero_()),
                          triton.Config({"B": 32}, pre_hook=lambda args: args["out"].zero_())], key=["n"])
@triton.jit
def kernel(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out + i, tl.load(x + i, i < n) * 2, i < n)

def scale(x):
    out = torch.ones_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, out, x.numel())
    return out
"""
    op = wb.op(f"{namespace}::scale")(reference)
    op.cases(lambda t: iter([(t(4, 8),), (t(5, 13),)]))
    wb.triton(op, text)
    compiled = torch.compile(lambda x: op(x) + 1, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        assert op(X).allclose(X * 2)
        assert compiled(X).allclose(X * 2 + 1)
