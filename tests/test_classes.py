"""Custom C++ classes of a cell: made, run again, traced, exported, compiled ahead of time, and what is refused."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import torch
from torch import Tensor

import workbench as wb
from workbench import blocks, schema
from workbench.adopt import classes, extensions
from workbench.annotations import class_name, without_classes
from workbench.build.reload import Class
from workbench.cells import telling
from workbench.saving import classes as saved_classes
from workbench.source import Source

KERNELS = Path(__file__).parents[1] / "kernels"
X = torch.arange(4.0)
TEXT = r"""
#include <torch/custom_class.h>
#include <torch/library.h>
#include <ATen/ops/mul.h>
struct Counter : torch::CustomClassHolder {
  FIELDS
  int64_t step, calls = 0;
  explicit Counter(int64_t step) : step(step) {}
  std::tuple<std::tuple<std::string, int64_t>, std::tuple<std::string, int64_t>> flatten() {
    return {{"step", step}, {"calls", calls}};
  }
};
using State = c10::intrusive_ptr<Counter>;
static at::Tensor counted(const at::Tensor& x, const State& state) {
  state->calls += state->step;
  return at::mul(x, BY);
}
TORCH_LIBRARY(SPACE, m) {
  m.class_<Counter>("Counter")
      .def(torch::init<int64_t>())
      .def("count", [](const State& s) { return s->calls * BY; })
      .def("calls", [](const State& s) { return s->calls; })
      .def("add", [](const State& s, int64_t n) { s->calls += n; })
      FLATTENS
      .def_pickle([](const State& s) { return std::make_tuple(s->step, s->calls); },
                  [](std::tuple<int64_t, int64_t> kept) {
                    auto s = c10::make_intrusive<Counter>(std::get<0>(kept));
                    s->calls = std::get<1>(kept);
                    return s;
                  });
  m.def("counted(Tensor x, __torch__.torch.classes.SPACE.Counter state) -> Tensor");
  MORE
}
TORCH_LIBRARY_IMPL(SPACE, CPU, m) { m.impl("counted", &counted); }
"""
FLATTENS = '.def("__obj_flatten__", &Counter::flatten)'


def text(space: str = "counting", by: int = 1, *, fields: str = "", flattens: str = FLATTENS, more: str = "") -> str:
    parts = {"SPACE": space, "BY": str(by), "FIELDS": fields, "FLATTENS": flattens, "MORE": more}
    made = TEXT
    for name, part in parts.items():
        made = made.replace(name, part)
    return made


FIRST = text()
SECOND = text(by=2, fields="int64_t room[64] = {7};")  # another layout: the counter of an old object is elsewhere


def counter(step: int = 3):
    return torch.classes.counting.Counter(step)


@pytest.fixture
def lines():
    told = []
    with telling(told.append):
        yield told


@pytest.fixture
def op(lines):
    """The first text, as it was after its first run."""
    made = wb.cpp(None, FIRST)
    yield made
    classes._given.pop("counting::Counter", None)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = counter()

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.counting.counted(x, self.state) + 1


def with_reference() -> wb.Op:
    @wb.op("counting::counted")
    def counted(x: Tensor, state: typing.Annotated[torch.ScriptObject, "counting::Counter"]) -> Tensor:
        return x.clone()

    return counted


# ---------------------------------------------------------------- run and run again


@pytest.mark.slow
def test_a_cell_gives_the_class_and_the_op(op, lines):
    state = counter(2)
    assert torch.equal(op(X, state), X) and torch.equal(torch.ops.counting.counted(X, state), X)
    assert state.calls() == 4 and state.__obj_flatten__() == (("step", 2), ("calls", 4))
    assert state._type().qualified_name() == "__torch__.torch.classes.counting.Counter"
    assert lines[-1].installed and str(op.schema).endswith(
        "(Tensor x, __torch__.torch.classes.counting.Counter state) -> Tensor"
    )


@pytest.mark.slow
def test_a_re_run_brings_the_new_class_and_keeps_the_old_objects(op, lines):
    old = counter()
    op(X, old)
    assert wb.cpp(None, SECOND) is op
    new = counter()
    assert torch.equal(op(X, new), X * 2) and new.count() == 6
    assert old.count() == 3  # by the old code, in the old layout
    assert lines[-1].notes[0] == (
        "objects of counting::Counter from before keep their code, and new ops refuse them; copy.deepcopy makes new ones of them"
    )
    with pytest.raises(
        RuntimeError, match="Tried to convert an IValue of type __torch__.torch.classes.counting.Counter"
    ):
        op(X, old)
    moved = copy.deepcopy(old)
    assert torch.equal(op(X, moved), X * 2) and moved.calls() == 6 and moved.count() == 12
    file = io.BytesIO()
    torch.save(new, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert loaded.count() == 6 and torch.equal(op(X, loaded), X * 2)
    wb.cpp(None, FIRST)  # and back: the first build's objects are welcome again
    assert torch.equal(op(X, old), X) and old.count() == 6 and torch.equal(op(X, counter()), X)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (text(by=5, fields="int64_t missing = nowhere;"), "nowhere"),
        (text(by=5, more='m.def("counted(Tensor x) -> Tensor");'), "counted"),
        (
            text(by=5, flattens=FLATTENS + '.def("calls", [](const State& s) { return s->step; })'),
            "already defined|calls",
        ),
    ],
    ids=["compiler", "op twice", "method twice"],
)
def test_a_failed_re_run_leaves_all_as_it_was(op, broken, error):
    old = counter()
    with pytest.raises(wb.BuildError, match=error):
        wb.cpp(None, broken)
    assert torch.equal(op(X, old), X) and torch.equal(op(X, counter()), X) and old.count() == 3


@pytest.mark.slow
def test_its_cases_are_tried_in_the_worker_on_a_copy_of_the_object(lines):
    wb.cpp(None, text("tried"))
    made = []

    @wb.op("tried::counted")
    def counted(x: Tensor, state: typing.Annotated[torch.ScriptObject, "tried::Counter"]) -> Tensor:
        return x.clone()

    @counted.cases
    def _(t):
        made.append(torch.classes.tried.Counter(3))
        yield t(3, 2), made[-1]

    wb.cpp(None, text("tried", fields="int64_t room[64] = {7};"))
    assert lines[-1].rows[0].status == "agree" and made[0].calls() == 0
    with pytest.raises(wb.TrialError, match="out"):
        wb.cpp(None, text("tried", by=2))
    state = torch.classes.tried.Counter(2)
    assert torch.equal(counted(X, state), X) and counted.runs().number == 2
    assert torch.equal(counted.versions[3](X, state), X * 2) and state.calls() == 2  # in the worker
    check = counted.check()
    assert check.ok, str(check)
    assert {r.check: r.status for r in check.rows}["fake"] == "pass"
    crashing = text("tried").replace(
        "state->calls += state->step;", "*reinterpret_cast<volatile int*>(state->step) = 1;"
    )
    with pytest.raises(wb.TrialError, match="SIGSEGV"):
        wb.cpp(None, crashing)
    other = (
        text("tried")
        .replace("std::make_tuple(s->step, s->calls)", "s->step")
        .replace("std::tuple<int64_t, int64_t> kept", "int64_t kept")
    )
    other = other.replace("std::get<0>(kept)", "kept").replace("s->calls = std::get<1>(kept);", "")
    wb.cpp(None, other)  # the case's object was pickled by the former class
    assert any(n.startswith("not tried: the class under trial does not read state") for n in lines[-1].notes)


@pytest.mark.slow
def test_an_object_that_cannot_be_pickled_is_not_tried(lines):
    first = text("unpickled")
    first = first[: first.index(".def_pickle")] + ";\n" + first[first.index("  m.def(") :]
    wb.cpp(None, first)

    @wb.op("unpickled::counted")
    def counted(x: Tensor, state: typing.Annotated[torch.ScriptObject, "unpickled::Counter"]) -> Tensor:
        return x.clone()

    @counted.cases
    def _(t):
        yield t(3, 2), torch.classes.unpickled.Counter(3)

    wb.cpp(None, first.replace("at::mul(x, 1)", "at::mul(x, 1.0)"))
    assert (
        "not tried: state is an object of unpickled::Counter, which without def_pickle cannot be sent to the worker; "
        "counted.check() runs the cases here"
    ) in lines[-1].notes
    assert "objects of unpickled::Counter from before keep their code, and new ops refuse them" in lines[-1].notes
    assert str(counted.versions[-1]).endswith("not tried")
    with pytest.raises(
        TypeError, match="an object of unpickled::Counter cannot be sent to the worker: its class has no def_pickle"
    ):
        counted.versions[1](X, torch.classes.unpickled.Counter(1))


# ---------------------------------------------------------------- traced


@pytest.mark.slow
def test_it_is_exported_and_compiled_without_a_fake_class(op):
    with_reference()
    model, compiled = Model(), torch.compile(Model(), backend="aot_eager", fullgraph=True)
    program = torch.export.export(model, (X,), strict=False)
    assert "counting.counted.default" in [str(n.target) for n in program.graph.nodes]
    assert model.state.calls() == 0  # tracing ran nothing
    assert torch.equal(program.module()(X), X + 1) and torch.equal(compiled(X), X + 1)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert torch.equal(torch.export.load(file).module()(X), X + 1)
    wb.cpp(None, SECOND)
    assert torch.equal(compiled._orig_mod.__class__()(X), X * 2 + 1)
    file.seek(0)
    assert torch.equal(torch.export.load(file).module()(X), X * 2 + 1)  # made of the newest class


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_is_compiled_ahead_of_time(op, tmp_path):
    with_reference()
    program = torch.export.export(Model(), (X,), strict=False)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    assert torch.equal(torch._inductor.aoti_load_package(path)(X), X + 1)


@pytest.mark.slow
def test_a_class_that_does_not_flatten_is_refused_with_its_cure(lines):
    wb.cpp(None, text("unflat", flattens=""))
    said = "unflat::Counter has no __obj_flatten__, so torch.compile and torch.export"
    assert any(said in note and '.def("__obj_flatten__", ...)' in note for note in lines[-1].notes)

    class Held(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state = torch.classes.unflat.Counter(1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.unflat.counted(x, self.state)

    assert torch.equal(Held()(X), X)
    for trace in (
        lambda: torch.export.export(Held(), (X,), strict=False),
        lambda: torch.compile(Held(), fullgraph=True)(X),
    ):
        with pytest.raises(Exception, match=said):
            trace()
    with pytest.raises(wb.SchemaError, match=said):
        declare("unflat::Counter", example=lambda: torch.classes.unflat.Counter(1))


# ---------------------------------------------------------------- fake classes


def declare(name: str, *, leave_out: str = "", change: object = None, example: object = None) -> type:
    @wb.fake_class(name, example=example)
    class Fake:
        def __init__(self, **fields) -> None:
            vars(self).update({f"{n}_" if n == "calls" else n: v for n, v in fields.items()})

        @classmethod
        def __obj_unflatten__(cls, flat):
            return cls(**{n: v if change is None else change for n, v in flat if n != leave_out})

        def __obj_flatten__(self):
            return tuple((n.rstrip("_"), v) for n, v in vars(self).items())

        def calls(self):
            return self.calls_

    return Fake


@pytest.mark.slow
def test_a_fake_class_is_checked_and_survives_a_re_run(op, lines):
    fake = declare("counting::Counter", example=counter, leave_out="pace")
    assert torch._library.fake_class_registry.find_fake_class("__torch__.torch.classes.counting.Counter") is fake
    assert schema.from_function(typed(fake), "lab::f").arguments[0].type == "__torch__.torch.classes.counting.Counter"
    with_reference()
    wb.cpp(None, SECOND)
    assert torch._library.fake_class_registry.find_fake_class("__torch__.torch.classes.counting.Counter") is fake
    assert torch.equal(torch.export.export(Model(), (X,), strict=False).module()(X), X * 2 + 1)
    wb.cpp(None, SECOND.replace("step}, {", "step + 1}, {"))
    assert not [n for n in lines[-1].notes if "flattens otherwise" in n]
    wb.cpp(None, SECOND.replace('{{"step"', '{{"pace"'))
    assert any(
        "the fake class of counting::Counter flattens otherwise than the class: 'pace' is missing" in n
        for n in lines[-1].notes
    )


def typed(fake: type):
    def f(state, x: Tensor) -> Tensor:
        return x

    f.__annotations__["state"] = fake
    return f


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"leave_out": "step"},
            "the fake class of counting::Counter flattens otherwise than the class: 'step' is missing",
        ),
        ({"change": 7}, "'step' is int 7, not int 3; 'calls' is int 7, not int 0"),
        ({"change": 3.0}, "'step' is float 3.0, not int 3"),
    ],
    ids=["missing", "value", "type"],
)
def test_a_fake_that_flattens_otherwise_is_refused(op, options, said):
    with pytest.raises(wb.SchemaError, match=said):
        declare("counting::Counter", example=counter, **options)
    declare("counting::Counter", **options)  # without an example it is found when it is first traced
    with pytest.raises(Exception, match=said):
        torch.export.export(Model(), (X,), strict=False)


@pytest.mark.slow
def test_pickling_must_keep_what_it_flattens_to(op):
    lossy = text("lossy").replace("s->calls = std::get<1>(kept);", "")
    wb.cpp(None, lossy)

    def example():
        made = torch.classes.lossy.Counter(2)
        made.add(5)
        return made

    with pytest.raises(
        wb.SchemaError, match="pickling an object of lossy::Counter changes it: 'calls' is int 0, not int 5"
    ):
        declare("lossy::Counter", example=example)


def test_what_is_no_fake_class():
    with pytest.raises(wb.SchemaError, match='named like "lab::Counter"'):
        wb.fake_class("Counter")
    with pytest.raises(wb.SchemaError, match="a class with a class method: @classmethod def __obj_unflatten__"):
        wb.fake_class("nowhere::Counter")(type("Counter", (), {}))
    with pytest.raises(
        wb.SchemaError, match="torch has no class nowhere::Counter here: run the cell that defines it first"
    ):
        declare("nowhere::Counter")


def test_a_derived_fake_reads_fields_and_says_what_it_cannot():
    fake = classes.derived(
        Class("lab::Counter", {"calls": 0, "get_step": 0, "count": 0, "add": 1, "__obj_flatten__": 0})
    )
    made = fake.__obj_unflatten__((("step", 3), ("calls", 1)))
    assert made.calls() == 1 and made.get_step() == 3 and made.__obj_flatten__() == (("step", 3), ("calls", 1))
    for call in (made.count, lambda: made.add(1)):
        with pytest.raises(
            wb.SchemaError,
            match=r"cannot be derived from __obj_flatten__: write the fake class, @wb.fake_class\('lab::Counter'\)",
        ):
            call()


# ---------------------------------------------------------------- names


@pytest.mark.slow
def test_two_cells_with_one_class_name(op):
    other = text(more="").replace('"counted(', '"again(').replace('"counted"', '"again"')
    fragment = other.replace("TORCH_LIBRARY(counting", "TORCH_LIBRARY_FRAGMENT(counting").replace(
        "mul(x, 1)", "mul(x, 9)"
    )
    with pytest.raises(
        wb.SchemaError, match="the class counting::Counter is defined by cell already: choose another name"
    ) as caught:
        wb.cpp(None, fragment)
    assert caught.value.line == 1 + fragment.splitlines().index('  m.class_<Counter>("Counter")')
    assert torch.equal(op(X, counter()), X)


@pytest.mark.slow
def test_a_class_of_another_library():
    taken = (
        text("rnn")
        .replace('"Counter"', '"CellParamsBase"')
        .replace("classes.rnn.Counter", "classes.rnn.CellParamsBase")
    )
    with pytest.raises(
        wb.BuildError,
        match="the class rnn::CellParamsBase is registered by another library in this process: choose another",
    ):
        wb.cpp(None, taken)


def test_a_class_registered_outside_a_block():
    cell = 'TORCH_LIBRARY(lab, m) {}\nstatic auto made = torch::class_<A>("lab", "A");'
    with pytest.raises(wb.SchemaError, match=r'write m.class_<T>\("Name"\) in TORCH_LIBRARY') as caught:
        wb.cpp(None, cell)
    assert caught.value.line == 2


def test_classes_in_schemas():
    spelled = (
        "lab::f(Tensor x, __torch__.torch.classes.nowhere.A a, __torch__.torch.classes.nowhere.B? b=None) -> Tensor"
    )
    assert str(schema.parse(spelled)) == spelled
    assert class_name("__torch__.torch.classes.nowhere.B?") == "nowhere::B" and class_name("Tensor") == ""
    assert without_classes(spelled)[0] == "lab::f(Tensor x, Any a, Any? b=None) -> Tensor"
    with pytest.raises(wb.SchemaError, match="returns an object of a class"):
        schema.parse("lab::f(Tensor x) -> __torch__.torch.classes.nowhere.A")

    def bare(x: Tensor, state: torch.ScriptObject) -> Tensor: ...

    with pytest.raises(
        wb.SchemaError, match=r'write Annotated\[torch.ScriptObject, "ns::Class"\], or the class under @wb.fake_class'
    ):
        schema.from_function(bare, "lab::f")


def test_classes_are_read_from_the_text():
    read = blocks.read([Source(FIRST, "cpp", first_line=1)])
    assert read.classes == {"counting::Counter": 1 + FIRST.splitlines().index('  m.class_<Counter>("Counter")')}


# ---------------------------------------------------------------- kernels/identity_conv, and packages


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_identity_conv_in_a_process_of_its_own():
    """The names of its library stay for good, and other tests load that folder, too."""
    alone = Path(__file__).with_name("classes_alone.py")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", str(alone)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=alone.parents[1])
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def test_fake_classes_as_a_package_has_them():
    fake = classes.derived(Class("lab::Counter", {"calls": 0, "add": 1, "__obj_flatten__": 0}))
    made = saved_classes.render(["lab::Counter", "lab::Counter"], lambda name: fake)
    assert (
        made.count("@register_fake_class") == 1 and '        return _field(self.flat, "lab::Counter", "calls")' in made
    )
    assert "def add" not in made and saved_classes.render([]) == ""
    with pytest.raises(wb.SaveError, match="two classes are called Counter"):
        saved_classes.render(["lab::Counter", "other::Counter"], lambda name: fake)
    with pytest.raises(wb.SaveError, match="lab::Counter has no fake class"):
        saved_classes.render(["lab::Counter"], lambda name: None)


def test_the_classes_of_other_extensions_are_known():
    assert not [c for e in extensions.live() for c in e.now.classes if c.name == "nowhere::Counter"]
