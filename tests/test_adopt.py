"""Ops that a cell's own TORCH_LIBRARY blocks define: run, edited, broken, taken back, and what wb.ops has of them."""

from __future__ import annotations

import gc
import resource
import threading
import time

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.reloading import cells, compiled  # noqa: F401  fixtures
from workbench import define
from workbench.adopt import adoption, extensions
from workbench.cells import telling

X = torch.arange(4.0)


@pytest.fixture
def lines():
    told = []
    with telling(told.append):
        yield told


def reference(name: str = "adopted::scaled", k: float = 2.0):
    @wb.op(name)
    def scaled(x: Tensor, k: float = k) -> Tensor:
        """x times k"""
        return x * k

    @scaled.cases
    def _(t):
        yield t(4, 8), 3.0
        yield wb.case("odd", t(5, 3))

    return scaled


def values(op) -> list:
    return op(X).tolist()


# ---------------------------------------------------------------- run, edit, remove


def test_a_cell_defines_ops(cells, lines):
    found = cells("plain")
    assert sorted(op.qualname for op in found) == ["adopted::plus", "adopted::scaled"]
    assert wb.ops["adopted::plus"] is found.plus
    assert torch.equal(torch.ops.adopted.plus(X), X + 1) and torch.equal(found.scaled(X, 3.0), X * 3)
    assert found.plus.runs() is found.plus.versions[1] and found.plus.versions[1].how == "full C++"
    assert "adopted::plus(Tensor x) -> Tensor" in str(found.plus._repr_mimebundle_()["text/plain"])
    assert [line.op for line in lines] == ["plus, scaled"] and lines[0].installed


def test_an_edit_reaches_every_caller(cells):
    op = cells("plain").plus
    held, compiled_call = torch.ops.adopted.plus.default, torch.compile(lambda x: op(x) * 1, backend="aot_eager")
    # No fake, so nothing can trace it yet.
    op.fake(torch.empty_like)
    assert torch.equal(compiled_call(X), X + 1)
    cells("plus2")
    assert values(op) == values(held) == values(torch.ops.adopted.plus) == values(compiled_call) == (X + 2).tolist()
    assert [v.number for v in op.versions] == [0, 1, 2]


def test_what_vanished_is_gone_and_what_changed_is_new(cells, lines):
    found = cells("plain")
    plus, scaled = found.plus, found.scaled
    held = torch.ops.adopted.scaled.default, torch.ops.adopted.plus.default
    cells("schema")
    assert lines[-1].notes[:2] == ("gone: adopted::scaled", "another schema: adopted::plus")
    assert "adopted::scaled" not in wb.ops and not hasattr(torch.ops.adopted, "scaled")
    assert torch.equal(plus(X, 5), X + 5) and torch.equal(torch.ops.adopted.plus(X, 5), X + 5)
    with pytest.raises(wb.SchemaError, match="adopted::scaled is gone: cell no longer defines it"):
        scaled(X)
    with pytest.raises(RuntimeError, match="this op is gone or was defined again"):
        held[0](X)
    with pytest.raises(RuntimeError):  # the old arguments, to the new schema
        held[1](X)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'n'"):
        plus(X)
    again = cells("plain")
    assert again.scaled is scaled and again.plus is plus and values(scaled) == (X * 2).tolist()


def test_fewer_and_more_ops(cells, lines):
    cells("fewer")
    assert [n for n in wb.ops if n.startswith("adopted::")] == ["adopted::plus"]
    found = cells("more")
    assert lines[-1].notes[:2] == (
        "new: adopted::plus.out, adopted::scaled, adopted::bump",
        "adopted::plus.out is in torch.ops alone: it is an overload",
    )
    x = torch.zeros(2)
    version = x._version
    found.bump(x)
    assert x.tolist() == [1, 1] and x._version > version
    cells("fewer")
    assert not hasattr(torch.ops.adopted, "bump")


def test_restore_loads_that_build_again(cells):
    found = cells("plain")
    cells("plus2")
    found.plus.restore(1)
    assert values(found.plus) == (X + 1).tolist()
    assert found.plus.runs().number == found.scaled.runs().number == 1
    with pytest.raises(wb.SchemaError, match="defined by its cell"):
        found.plus.restore(0)
    found.plus.restore(2)
    assert values(found.plus) == (X + 2).tolist()
    cells("schema")
    with pytest.raises(wb.SchemaError, match="was made for another schema"):
        wb.ops["adopted::plus"].restore(1)


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("variant", "error", "said"),
    [
        ("throws", wb.TrialError, "no table"),
        ("crashes", wb.TrialError, "SIGSEGV"),
        ("exits", wb.TrialError, "loading adopted"),
        ("hangs", wb.TrialError, "did not end within 2 s"),
        ("twice", wb.BuildError, "multiple times"),
    ],
)
def test_what_fails_while_it_loads_costs_nothing(cells, monkeypatch, variant, error, said):
    monkeypatch.setattr(adoption, "LIMIT_S", 2 if variant == "hangs" else 20)
    found = cells("plain")
    with pytest.raises(error, match=said) as caught:
        cells(variant)
    assert variant != "hangs" or caught.value.kind == "hang"
    assert values(found.plus) == (X + 1).tolist() and len(found.plus.versions) == 2


def test_an_op_defined_twice_is_refused_on_its_line(cells):
    with pytest.raises(wb.BuildError) as caught:
        cells("twice")
    assert caught.value.line in (2, 3, 4) and "adopted" not in {n.partition("::")[0] for n in wb.ops}


def test_a_name_of_another_library_is_refused_on_its_line(cells):
    other = torch.library.Library("adopted", "FRAGMENT")
    other.define("scaled(Tensor x) -> Tensor")
    try:
        with pytest.raises(wb.SchemaError, match="adopted::scaled is defined by another library") as caught:
            cells("plain")
        assert caught.value.line == 4
        assert "adopted::plus" not in wb.ops and not hasattr(torch.ops.adopted, "plus")
    finally:
        other._destroy()


def test_an_op_with_another_schema_is_refused_on_its_line(cells):
    @wb.op("adopted::scaled")
    def scaled(x: Tensor) -> Tensor:
        return x * 2

    try:
        with pytest.raises(wb.SchemaError, match="write one for both") as caught:
            cells("plain")
        assert caught.value.line == 4
        assert values(scaled) == (X * 2).tolist()
    finally:
        define.forget(scaled)


def test_a_slot_cell_for_an_adopted_op_is_refused(cells):
    cells("plain")
    with pytest.raises(wb.SchemaError, match="defined by a TORCH_LIBRARY block"):
        wb.cpp("adopted::plus", "void plus(const float* x) {}")


# ---------------------------------------------------------------- references


def test_a_reference_given_later(cells, lines):
    op = cells("plain").scaled
    assert reference() is op
    assert op.reference is not None and op.doc == "x times k" and values(op) == (X * 2).tolist()
    assert op.runs().trial.ok and len(op.runs().trial.outcomes) == 2
    x = X.clone().requires_grad_()
    op(x, 3.0).sum().backward()
    assert x.grad.tolist() == [3.0] * 4
    report = op.check()
    assert report.ok and {r.check for r in report.rows if r.status == "pass"} >= {"agreement", "fake", "gradients"}
    cells("none")  # the op goes on with its reference
    assert wb.ops["adopted::scaled"] is op and values(op) == (X * 2).tolist()
    define.forget(op)


def test_a_reference_given_first(cells):
    op = reference()
    found = cells("plain")
    assert found.scaled is op and op.runs().number == 1 and op.case_list()
    assert [o.status for o in op.runs().trial.outcomes] == ["agree", "agree"]
    cells("none")
    define.forget(op)


def test_a_reference_with_another_schema_is_refused(cells):
    cells("plain")
    with pytest.raises(wb.SchemaError, match="is defined by a block with the schema"):

        @wb.op("adopted::scaled")
        def scaled(x: Tensor) -> Tensor:
            return x


def test_what_differs_from_the_reference_is_refused(cells, lines):
    cells("plain")
    op = reference()
    with pytest.raises(wb.TrialError, match="differs on 4x8 float32") as caught:
        cells("bad")
    assert caught.value.kind == "mismatch" and not lines[-1].installed and "scaled" in lines[-1].refused
    assert values(op) == (X * 2).tolist() and op.versions[-1].refused
    assert torch.equal(op.versions[-1](X, 2.0), X * 3)  # in the worker
    assert values(wb.ops["adopted::plus"]) == (X + 1).tolist()
    with pytest.raises(wb.TrialError, match="SIGSEGV") as caught:
        cells("faults")
    assert caught.value.kind == "crash"
    with pytest.raises(wb.TrialError):
        cells("faults", "// again\n", force=True)  # no option installs a crash
    cells("bad", force=True)
    assert values(op) == (X * 3).tolist()
    cells("none")
    define.forget(op)


def test_the_gradient_of_the_library_is_its_own(cells):
    op = cells("grad").scaled
    reference()
    x = X.clone().requires_grad_()
    y = op(x, 3.0)
    assert "CppFunction" in type(y.grad_fn).__name__ and torch.autograd.grad(y.sum(), x)[0].tolist() == [3.0] * 4
    assert "Autograd kernel of its cell" in str(op._repr_mimebundle_()["text/plain"])
    with pytest.raises(wb.TrialError, match="grad_x"):
        cells("badgrad")
    cells("plain")  # no gradient in C++ any more: the reference's
    y = op(x, 3.0)
    assert "CppFunction" not in type(y.grad_fn).__name__ and torch.autograd.grad(y.sum(), x)[0].tolist() == [3.0] * 4
    cells("none")
    define.forget(op)


def test_cases_that_come_later_judge_what_is_installed(cells, capsys):
    cells("bad")
    op = reference()
    assert "it stays, since its cell defines the op" in capsys.readouterr().out
    assert not op.runs().trial.ok and values(op) == (X * 3).tolist()
    cells("none")
    define.forget(op)


# ---------------------------------------------------------------- a long life


def test_a_thread_that_calls_sees_one_version_or_for_an_instant_none(cells):
    """Blocks define their op, so the former build goes before the new one comes; a call just then is torch's error."""
    op = cells("plain").plus
    wrong, gaps, stop = [], [], threading.Event()

    def call() -> None:
        while not stop.is_set():
            try:
                if torch.ops.adopted.plus(X)[0].item() not in (1.0, 2.0):
                    wrong.append("value")
            except NotImplementedError as error:  # between the two: no kernel
                gaps.append(repr(error))
            except Exception as error:
                wrong.append(repr(error))

    thread = threading.Thread(target=call)
    thread.start()
    try:
        for variant in ["plus2", "plain"] * 5:
            cells(variant)
    finally:
        stop.set()
        thread.join()
    assert wrong == [] and values(op) == (X + 1).tolist()
    assert len(gaps) <= 10 and all("Could not run 'adopted::plus'" in g for g in gaps)  # an instant for each exchange


@pytest.mark.slow
def test_a_hundred_edits(cells):
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def edit(i: int) -> float:
        started = time.perf_counter()
        cells(("plain", "plus2", "schema", "more")[i % 4], f"// edit {i}\n")
        return time.perf_counter() - started

    first = [edit(i) for i in range(12)]
    gc.collect()
    before = resident()
    last = [edit(i) for i in range(12, 112)]
    gc.collect()
    assert resident() - before < 200e6
    assert sorted(last[-12:])[6] < 2 * sorted(first)[6] + 0.05
    assert values(wb.cpp(None, "// variant: plain\nTORCH_LIBRARY(adopted, m) {}").plus) == (X + 1).tolist()


# ---------------------------------------------------------------- whose is it


def made(*, name="n", blocks=(), names=(), module="", file="cell [1]"):
    from workbench.blocks import Text
    from workbench.build.reload import Block
    from workbench.build.result import Build
    from workbench.source import Source

    return extensions.Made(
        name, (Source("", "cpp", file),), Build(name, "", "full", 0.0, False), Text((), {}),
        tuple(Block(kind, ns, key, 1) for kind, ns, key in blocks),
        tuple(extensions.Defined(n, f"{n}(Tensor x) -> Tensor", (), 7, "cell [9]", None) for n in names), module,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "again"),
    [
        ({"blocks": [("def", "a", "")], "names": ["a::f"]}, {"blocks": [("def", "a", "")], "names": ["a::g"]}, True),
        (
            {"blocks": [("fragment", "a", "")], "names": ["a::f"]},
            {"blocks": [("fragment", "a", "")], "names": ["a::g"]},
            False,
        ),
        (
            {"blocks": [("fragment", "a", "")], "names": ["a::f"]},
            {"blocks": [("def", "a", "")], "names": ["a::f"]},
            True,
        ),
        (
            {"blocks": [("fragment", "a", "")], "names": ["a::f", "a::g"]},
            {"blocks": [("fragment", "a", "")], "names": ["a::g"]},
            True,
        ),
        (
            {"blocks": [("def", "a", "")], "names": ["a::f", "a::g"]},
            {"blocks": [("fragment", "a", "")], "names": ["a::g"]},
            False,
        ),
        ({"blocks": [("impl", "a", "CPU")]}, {"blocks": [("impl", "a", "CPU"), ("impl", "a", "Meta")]}, True),
        ({"blocks": [("impl", "a", "CPU")]}, {"blocks": [("impl", "a", "Meta")]}, False),
        ({"module": "m"}, {"module": "m", "blocks": [("def", "m", "")]}, True),
        ({"file": "/x/a.cpp", "names": ["a::f"]}, {"file": "/x/a.cpp", "names": ["a::g"]}, True),
    ],
)
def test_how_a_rerun_is_recognised(monkeypatch, one, other, again):
    first = extensions.Extension()
    first.made = made(**one)
    monkeypatch.setattr(extensions, "_live", [first])
    assert (extensions.former("", made(**other)) is first) == again


def test_a_name_of_another_extension_is_refused_on_its_line(monkeypatch):
    first = extensions.Extension()
    first.made = made(names=["a::f"], file="cell [3]")
    monkeypatch.setattr(extensions, "_live", [first])
    with pytest.raises(wb.SchemaError, match=r"a::f is defined by cell \[3\] already") as caught:
        extensions.refuse_taken(made(names=["a::g", "a::f"]), extensions.Extension(), [])
    assert (caught.value.line, caught.value.file) == (7, "cell [9]")
