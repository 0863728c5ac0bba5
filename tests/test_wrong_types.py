"""Every public function handed something of another kind: what it wanted and what it got, never a failure inside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.live import SCALE

PLAIN = SCALE.replace("template <typename T>\n", "").replace("T*", "float*").replace("T(", "float(")


@pytest.fixture(scope="module")
def scale():
    op = live.scale()
    wb.cpp(op, PLAIN)
    return op


def under(target: object, **options):
    return lambda op: wb.op("live::under", **options)(target)


def one(x: Tensor) -> Tensor:
    return x + 1


CALLS = {
    "wb.op over a number": (under(3), "live::under: wb.op stands above a function in plain PyTorch, got 3"),
    "wb.op over a class": (under(int), "wb.op stands above a function in plain PyTorch, got <class 'int'>"),
    "an output named as a keyword": (under(one, returns="class"), "'class' is no name for an output or saved tensor"),
    "an output not in ASCII": (under(one, returns="größe"), "'größe' is no name for an output or saved tensor"),
    "mutates beside a schema": (
        lambda op: wb.op("live::under(Tensor x) -> ()", mutates="x"),
        "a schema says itself what is written to: write 'Tensor(a!) x'",
    ),
    "a target that is a number": (lambda op: wb.cpp(3, PLAIN), "an op or a name such as 'rmsnorm.backward', got 3"),
    "a target that is a function": (lambda op: wb.cuda(one, PLAIN), "an op or a name such as 'rmsnorm.backward', got <f"),
    "no source": (lambda op: wb.cpp(op, None), "the source is the text of a cell, a string; got NoneType"),
    "a source in bytes": (lambda op: wb.triton(op, b""), "the source is the text of a cell, a string; got bytes"),
    "a source that is a path": (lambda op: wb.cpp(op, Path("a.cpp")), "; a file is loaded by wb.load('a.cpp')"),
    "cases that are a number": (lambda op: wb.cpp(op, PLAIN, cases=3), "cases are names, as in cases=['odd', 'llama']"),
    "cases that are one": (lambda op: wb.cpp(op, PLAIN, cases=wb.case("odd")), 'or "none"; got Case(name='),
    "cases of numbers": (lambda op: wb.cpp(op, PLAIN, cases=[3]), 'or "none"; got [3]'),
    "a file that is a number": (lambda op: wb.cpp(op, PLAIN, file=3), "the path that the source is written to, got 3"),
    "an entry that is a number": (lambda op: wb.cpp(op, PLAIN, entry=3), "the name of a function of the source, got 3"),
    "restore a name": (lambda op: op.restore("v1"), "a version of scale is a number, or one of scale.versions; got 'v1'"),
    "restore a yes": (lambda op: op.restore(True), "a version of scale is a number, or one of scale.versions; got True"),
    "inspect a name": (lambda op: op.inspect("v1"), "a version of scale is a number, or one of scale.versions; got 'v1'"),
    "inspect against a float": (lambda op: op.inspect(1, against=1.0), "or one of scale.versions; got 1.0"),
    "inspect a slot that is none": (lambda op: op.inspect(1, slot="fwd"), "the slots forward and backward, not 'fwd'"),
    "a stage that is a number": (lambda op: op.inspect(1).stage(3), "has no stage 3; it has remarks, assembly"),
    "profile on a number": (lambda op: op.profile(device=3), "profile(device=3): it is 'cpu' or 'cuda'"),
    "profile on what torch does not know": (lambda op: op.profile(device="gpu"), "profile(device='gpu'): it is 'cpu' or"),
    "load a number": (lambda op: wb.load(3), "wb.load takes the path of a file or a folder, got 3"),
    "load nothing": (lambda op: wb.load(""), "wb.load takes the path of a file or a folder, got ''"),
    "sources that are a number": (lambda op: wb.load(".", sources=3), "sources is a list of files, got 3"),
    "load_inline without a source": (lambda op: wb.load_inline("a", None), "cpp_sources is a string or a list of strings"),
    "load_inline of bytes": (lambda op: wb.load_inline("a", "", b"x"), "cuda_sources is a string or a list of strings"),
    "load_inline of a number": (lambda op: wb.load_inline("a", "", functions=3), "functions is a string or a list of"),
    "cases over a number": (lambda op: op.cases(3), "live::scale: @scale.cases stands above a function, got 3"),
    "dtypes that are a number": (lambda op: op.cases(one, dtypes=3), "takes dtypes such as torch.float32, got 3"),
    "backward over a number": (lambda op: op.backward(3), "@scale.backward stands above a function, got 3"),
    "fake over nothing": (lambda op: op.fake(None), "@scale.fake stands above a function, got None"),
    "vmap over a number": (lambda op: op.vmap(3), "@scale.vmap stands above a function, got 3"),
    "compare over a number": (lambda op: op.compare(3), "@scale.compare stands above a function, got 3"),
    "compare without the outputs": (lambda op: op.compare(lambda x: x), "too many positional arguments; write def _(x, k, out)"),
    "kernel without its device": (lambda op: op.kernel(one), "kernel(device) is for one device, 'cpu' or 'cuda'; got <f"),
    "kernel on one GPU of several": (lambda op: op.kernel("cuda:1"), "one device, 'cpu' or 'cuda'; got 'cuda:1'"),
    "kernel over a number": (lambda op: op.kernel("cpu")(3), "@scale.kernel stands above a function, got 3"),
    "save nowhere": (lambda op: wb.save([op], None), "the path of a folder to write to is wanted, got None"),
    "deploy nowhere": (lambda op: wb.deploy(op, torch.ones(2), 3), "the path of a folder to write to is wanted, got 3"),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_a_call_with_something_else(scale, what):
    call, words = CALLS[what]
    cases, definition = scale.case_list(), scale.definition
    with pytest.raises(wb.WorkbenchError, match=re.escape(words)):
        call(scale)
    assert "live::under" not in wb.ops
    assert scale.case_list() == cases and scale.runs().number == 1
    assert definition.fake is definition.vmap is definition.compare is definition.backward is None
    assert torch.equal(scale(torch.ones(3), 3.0), torch.full((3,), 3.0))


def test_a_version_of_another_op_is_no_version(scale, namespace):
    @wb.op(f"{namespace}::other")
    def other(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    wb.cpp(other, PLAIN.replace("scale", "other"))
    for verb in (other.restore, other.inspect):
        with pytest.raises(wb.SchemaError, match="is no version of other; write its number, or one of other.versions"):
            verb(scale.versions[1])
    assert other.restore(other.versions[1]) is other and other.restore(other.slots["forward", "cpu"]) is other


def test_a_kernel_that_new_cases_have_no_form_for_is_taken_out_in_a_sentence(namespace, capsys):
    @wb.op(f"{namespace}::scale")
    def op(x: Tensor, k: float = 2.0) -> Tensor:
        return x * k

    op.cases(lambda t: [(t(3), 2.0)])
    wb.cpp(op, PLAIN)
    op.cases(lambda t: [(t(3, dtype=torch.int32), 2.0)])

    assert "v1 (forward cpu) was taken out: it cannot be tried: scale has no form for int32" in capsys.readouterr().out
    assert not op.slots
    with pytest.raises(wb.SchemaError, match="v1 of scale is not installed: it cannot be tried: scale has no form"):
        op.restore(1)


def test_a_refusal_counts_what_differs_once(scale):
    with pytest.raises(wb.TrialError) as raised:
        wb.cpp(scale, PLAIN.replace("x[i] * k", "x[i] * k + 1"))
    said = str(raised.value).splitlines()[0]
    assert said.count("elements differ") == 1
    assert re.search(r"elements differ; out most at \[\d, \d\]: [-\d.e]+ where [-\d.e]+ was wanted", said)
