"""Cells put into a live op: what is installed, what it then gives, and who follows."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests import live
from tests.live import NORM, NORM_BACKWARD, NORM_PARTIAL, SCALE, SCALE_BACKWARD, close, gradients
from workbench import cells

X = torch.linspace(-2, 3, 24).reshape(4, 6)


@pytest.fixture
def scale():
    return live.scale()


@pytest.fixture
def norm():
    return live.norm()


@pytest.fixture
def lines():
    told = []
    cells.listeners.append(told.append)
    yield told
    cells.listeners.remove(told.append)


# ---------------------------------------------------------------- forward


def test_a_cell_is_built_tried_installed_and_told(scale, lines):
    assert wb.cpp(scale, SCALE) is scale
    assert torch.equal(scale(X, 3.0), X * 3)
    version = scale.versions[1]
    assert scale.runs("forward", "cpu") is version and version.title == "Times k" and version.how == "raw C++"
    assert [(o.case, o.status) for o in version.trial.outcomes] == [("4x8", "agree"), ("odd", "agree")]
    [line] = lines
    assert line.installed and line.version == 1 and line.rough_us > 0 and line.rough_case == "4x8"
    assert str(line).startswith("scale cpp v1 | ") and "2 cases agree" in str(line)
    assert repr(scale) == "<live::scale(Tensor x, float k=2.0) -> Tensor | forward cpu v1>"


def test_targets_by_name_by_qualified_name_and_by_op(scale):
    for target in ("scale", "live::scale", scale):
        assert wb.cpp(target, SCALE) is scale
    assert len(scale.versions) == 4


def test_the_kernel_runs_and_not_the_reference(scale):
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1e-30"))
    assert scale(torch.zeros(2)).tolist() == [pytest.approx(1e-30, rel=1e-3, abs=0)] * 2  # the reference gives 0.0


def test_every_caller_follows_a_swap(scale):
    wb.cpp(scale, SCALE)
    held, copied, pickled = torch.ops.live.scale.default, copy.deepcopy(scale), pickle.loads(pickle.dumps(scale))
    compiled = torch.compile(lambda x: scale(x, 3.0) + 1, fullgraph=True, backend="aot_eager")
    zero = torch.zeros(2)
    callers = [lambda: scale(zero, 3.0), lambda: held(zero, 3.0), lambda: copied(zero, 3.0), lambda: pickled(zero, 3.0),
               lambda: torch.ops.live.scale(zero, 3.0), lambda: compiled(zero) - 1, lambda: torch.vmap(lambda x: scale(x, 3.0))(zero)]  # fmt: skip
    assert all(f().tolist() == [0.0, 0.0] for f in callers)
    for added in (2e-6, 1e-6):  # another body behind the same launcher
        wb.cpp(scale, SCALE.replace("x[i] * k", f"x[i] * k + {added}"))
        assert [f().tolist() == pytest.approx([added] * 2, rel=0.2) for f in callers] == [True] * len(callers)
    another = SCALE.replace("//! n = x.numel()", "//! n = x.numel()\n//! spare = empty(n)").replace(
        "x[i] * k", "x[i] * k + 3e-6"
    )
    wb.cpp(scale, another)  # another launcher
    assert [f().tolist() == pytest.approx([3e-6] * 2, rel=0.2) for f in callers] == [True] * len(callers)
    scale.restore(0)
    assert all(f().tolist() == [0.0, 0.0] for f in callers)


def test_numbers_and_tuned_values_are_data(scale):
    text = SCALE.replace("//! n =", "//! tune EXTRA = 0, 1\n//! n =").replace(
        "T(x[i] * k)", "T(x[i] * k) + EXTRA * T(1e-30)"
    )
    wb.cpp(scale, text)
    path = scale.runs().kernel.launcher_build.path
    assert scale(torch.zeros(1)).item() == 0.0
    wb.cpp(scale, text.replace("= 0, 1", "= 1, 0"))
    assert scale.runs().kernel.launcher_build.path == path
    assert scale(torch.zeros(1)).item() == pytest.approx(1e-30, rel=1e-3, abs=0)


@pytest.mark.parametrize("make", [
    lambda: X.t(), lambda: X[:, ::2], lambda: X[1:, 1:4], lambda: X.flip(0)[::2], lambda: X[0].expand(3, 6), lambda: X[:0],
    lambda: torch.tensor(2.5), lambda: X.reshape(1, 2, 2, 6).to(memory_format=torch.channels_last),
])  # fmt: skip
def test_strided_inputs_give_the_references_values_and_strides(scale, make):
    wb.cpp(scale, SCALE)
    x = make()
    got, wanted = scale(x, 3.0), x * 3
    assert torch.equal(got, wanted) and got.stride() == wanted.stride()
    compiled = torch.compile(lambda x: scale(x, 3.0), fullgraph=True, backend="aot_eager", dynamic=False)
    assert torch.equal(compiled(x), wanted)


def test_new_dtypes_are_built_and_tried_when_they_arrive(scale):
    wb.cpp(scale, SCALE)
    assert torch.equal(scale(X.double(), 3.0), X.double() * 3)
    assert torch.equal(scale(X.bfloat16(), 3.0), X.bfloat16() * 3)
    assert torch.equal(scale(X, 3.0), X * 3)
    assert len(scale.versions) == 2  # no new version: another form of it


def test_a_new_dtype_that_differs_is_refused_at_its_call(scale):
    wb.cpp(scale, SCALE.replace("T(x[i] * k)", "sizeof(T) == 8 ? T(0) : T(x[i] * k)"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"live::scale.*was tried for x float64 and differs on"):
            scale(X.double(), 3.0)
    assert torch.equal(scale(X, 3.0), X * 3)


def test_a_dtype_without_a_form_names_those_there_are(scale):
    wb.cpp(scale, SCALE.replace("template <typename T>\n", "").replace("T*", "float*").replace("T(", "float("))
    with pytest.raises(RuntimeError, match="float64") as raised:
        scale(X.double(), 3.0)
    assert "built so far: float32" in str(raised.value)
    assert torch.equal(scale(X, 3.0), X * 3)


# ---------------------------------------------------------------- refusals


def test_a_kernel_that_differs_is_refused_and_can_be_called(scale, lines):
    wb.cpp(scale, SCALE)
    with pytest.raises(wb.TrialError) as raised:
        wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1"))
    error = raised.value
    assert error.kind == "mismatch" and error.case == "4x8" and error.report.outcomes[0].mismatch.count == 32
    assert "v2 of scale is not installed: it differs on 4x8 float32: " in str(error) and "32 of 32 elements" in str(
        error
    )
    assert "\nscale forward still runs v1. Try it anyway: " in str(error) and "--force" in str(error)
    assert torch.equal(scale(X, 3.0), X * 3)
    assert close(scale.versions[2](X, 3.0), X * 3 + 1) and torch.equal(scale.versions[1](X, 3.0), X * 3)
    assert torch.equal(scale.versions[0](X, 3.0), X * 3)
    assert not lines[-1].installed and lines[-1].still == "v1"


def test_force_installs_what_merely_differs_and_nothing_worse(scale):
    wrong = SCALE.replace("x[i] * k", "x[i] * k + 1")
    wb.cpp(scale, wrong, force=True)
    assert close(scale(X, 3.0), X * 3 + 1) and "forced: " in str(scale.last_line)
    with pytest.raises(wb.TrialError, match="out of bounds") as raised:
        wb.cpp(scale, SCALE.replace("i < n", "i < n + 1"), force=True)
    assert raised.value.kind == "overrun" and "--force" not in str(raised.value)
    assert close(scale(X, 3.0), X * 3 + 1)


def test_cases_choose_what_is_tried(scale):
    wrong_on_odd = SCALE.replace("x[i] * k", "x[i] * k + (n == 15)")
    with pytest.raises(wb.TrialError, match="on odd"):
        wb.cpp(scale, wrong_on_odd)
    wb.cpp(scale, wrong_on_odd, cases="4x8")
    assert [o.case for o in scale.runs().trial.outcomes] == ["4x8"]
    with pytest.raises(wb.TrialError, match="on odd"):
        wb.cpp(scale, wrong_on_odd, cases="4x8, odd")
    with pytest.raises(
        wb.SchemaError, match="scale: there is no case 'even'; its cases are 4x8, odd\nscale forward still runs v2"
    ):
        wb.cpp(scale, wrong_on_odd, cases=["even"])


def test_cases_none_installs_untried(scale):
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1"), cases="none")
    assert close(scale(X, 3.0), X * 3 + 1) and scale.runs().trial.outcomes == ()


@pytest.mark.parametrize(("statement", "kind", "words"), [
    ("*(volatile int*)8 = 1;", "crash", "null pointer"),
    ("__builtin_trap();", "crash", "SIGILL"),
    ("static volatile int z = 0, y; y = 7 / z;", "crash", "division by zero"),
    ("exit(3);", "crash", r"exit\(3\)"),
    ("abort();", "crash", "SIGABRT"),
    ("out[-1] = 0;", "overrun", "before the start of out"),
    ("const_cast<float*>(x)[0] = 0;", "mutation", "argument x"),
])  # fmt: skip
def test_what_breaks_is_refused_and_nothing_is_lost(scale, statement, kind, words):
    wb.cpp(scale, SCALE)
    text = SCALE.replace("template <typename T>\n", "").replace("T*", "float*").replace("T(", "float(")
    with pytest.raises(wb.TrialError, match=words) as raised:
        wb.cpp(scale, "#include <cstdlib>\n" + text.replace(") {\n", ") {\n  " + statement + "\n", 1))
    assert raised.value.kind == kind and "still runs v1" in str(raised.value)
    assert torch.equal(scale(X, 3.0), X * 3)
    with pytest.raises(wb.TrialError, match=words):
        scale.versions[2](X, 3.0)
    wb.cpp(scale, SCALE)
    assert torch.equal(scale(X, 3.0), X * 3)


def test_a_hang_is_ended(scale, monkeypatch):
    monkeypatch.setattr("workbench.judge.examine.LIMIT_S", 0.5)
    wb.cpp(scale, SCALE)
    with pytest.raises(wb.TrialError, match=r"did not end within 0\.5 s") as raised:
        wb.cpp(scale, SCALE.replace(") {\n", ") {\n  for (volatile int i = 0;; ++i) {}\n", 1))
    assert raised.value.kind == "hang"
    with pytest.raises(wb.TrialError, match="still running"):
        scale.versions[2](X, 3.0)
    assert torch.equal(scale(X, 3.0), X * 3)


@pytest.mark.parametrize("shape", [(3,), (5, 3), (4, 6)])
def test_one_step_too_far_is_seen_at_any_size(scale, shape):
    """What stands past the end of x is not what stands past the end of out."""

    @scale.cases
    def _(t):
        yield (t(*shape),)

    with pytest.raises(wb.TrialError, match="past the end of") as raised:
        wb.cpp(scale, SCALE.replace("i < n", "i <= n"))
    assert raised.value.kind == "overrun"


# ---------------------------------------------------------------- ops born from a cell


def test_a_cell_for_a_new_name_makes_an_op():
    live.gone("live::born")
    text = SCALE.replace("scale", "born")
    born = wb.cpp("live::born", text)
    assert wb.ops["live::born"] is born and str(born.schema).startswith("live::born(Tensor x, float k) -> Tensor")
    assert "tried at its first call" in str(born.last_line)
    assert torch.equal(born(X, 3.0), X * 3)
    assert born.runs().number == 1 and len(born.versions[1].trial.outcomes) == 1
    assert torch.compile(lambda x: born(x, 3.0), fullgraph=True, backend="aot_eager")(X).equal(X * 3)
    with pytest.raises(wb.TrialError, match="differs"):  # the first installed version is the oracle
        wb.cpp("live::born", text.replace("x[i] * k", "x[i] * k + 1"))
    assert torch.equal(born(X, 3.0), X * 3)
    with pytest.raises(wb.SchemaError, match="has no gradient"):
        born(X.clone().requires_grad_(), 3.0).sum().backward()


def test_a_first_call_that_cannot_be_tried_leaves_the_kernel_waiting(monkeypatch):
    scale = live.scale(cases=False)
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1e-6"))
    with monkeypatch.context() as patched:
        error = wb.ToolchainError("no worker can be started")
        patched.setattr("workbench.waiting.examine.judge", lambda *_: (_ for _ in ()).throw(error))
        with pytest.raises(wb.ToolchainError, match=r"no worker can be started\nv1 waits for a call that can be tried"):
            scale(X)
    zero = torch.zeros(2)
    assert scale(zero, 1.0).tolist() == pytest.approx([1e-6] * 2) and scale.runs().number == 1


def test_the_first_call_is_a_trial():
    live.gone("live::born")
    born = wb.cpp(
        "live::born",
        SCALE.replace("scale", "born").replace("i < n; ++i) out[i] =", "i <= n; ++i) out[i] = i == n ? T(7) :"),
    )
    with pytest.raises(wb.TrialError, match="was tried at its first call and goes out of bounds"):
        born(X, 3.0)
    with pytest.raises(wb.SchemaError, match="no reference and no kernel"):
        born(X, 3.0)
    assert born.versions[1].refused
    wb.cpp(born, SCALE.replace("scale", "born"))
    assert torch.equal(born(X, 3.0), X * 3)


def test_a_new_name_whose_cell_fails_leaves_nothing():
    live.gone("live::born")
    for text, error in ((SCALE.replace("scale", "born").replace("out[i]", "outt[i]"), wb.BuildError),
                        (SCALE.replace("scale", "born").replace("x.numel()", "z.numel()"), wb.SchemaError),
                        (SCALE, wb.SchemaError)):  # fmt: skip
        with pytest.raises(error):
            wb.cpp("live::born", text)
        assert "live::born" not in wb.ops and not hasattr(torch.ops.live, "born")
    with pytest.raises(wb.SchemaError, match="define it with wb.op first"):
        wb.cpp("live::born.backward", SCALE_BACKWARD)


def test_a_reference_that_raises_is_told_and_not_the_kernel_blamed(namespace):
    def gather(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(0, index)

    op = wb.op(f"{namespace}::gather")(gather)
    op.cases(lambda t: [(t(4, 5), t(2))])
    text = "//! n = index.numel()\n//! out = empty(n, x.shape[1])\nvoid gather(const float* x, const float* index, float* out, int64_t n) {}"
    with pytest.raises(wb.SchemaError) as raised:
        wb.cpp(op, text)
    said = str(raised.value)
    assert said.startswith("the reference of gather raises on its case 4x5 float32: ")
    assert "at `return x.index_select(0, index)`. Mend the reference, or the case (@op.cases)." in said
    assert said.endswith("gather forward still runs the reference")
    with pytest.raises(wb.SchemaError, match="the reference of gather raises on its case"):
        op.kernel("cpu")(lambda x, index: x)


def test_an_op_that_is_called_like_a_keyword_of_cpp(namespace):
    double = wb.op(f"{namespace}::double")(_twice)
    double.cases(lambda t: [t(4, 5)])
    text = SCALE.replace("double k, ", "").replace("x[i] * k", "x[i] * 2")
    with pytest.raises(
        wb.SchemaError,
        match=r"line 5: double is a keyword of C\+\+: call the function double_; the cell defines double",
    ):
        wb.cpp(double, text.replace("scale", "double"))
    wb.cpp(double, text.replace("scale", "double_"))
    assert double.runs().number == 1 and torch.equal(double(X), X * 2)


def _twice(x: Tensor) -> Tensor:
    return x * 2


def test_an_op_without_cases_learns_from_its_calls():
    scale = live.scale(cases=False)
    scale(X)
    wb.cpp(scale, SCALE)
    assert [o.status for o in scale.runs().trial.outcomes] == ["agree"]
    with pytest.raises(wb.TrialError, match="differs"):
        wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1"))


def test_an_op_that_was_never_called_is_tried_at_its_first_call():
    scale = live.scale(cases=False)
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + 1"))
    with pytest.raises(wb.TrialError, match="tried at its first call and differs"):
        scale(X)
    assert torch.equal(scale(X), X * 2)  # the reference runs again
    wb.cpp(scale, SCALE)
    assert torch.equal(scale(X), X * 2) and scale.runs().number == 2


ADD = """\
//! n = x.numel()
//! require y.shape == x.shape
//! out = empty_like(x)
void add(const float* x, const float* y, float* out, int64_t n) { for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i]; }
"""


@pytest.mark.parametrize("first", ["call", "cell"])
def test_a_call_that_raises_is_no_case(first, namespace):
    """Shapes that the reference refuses would refuse every kernel, too."""

    @wb.op(f"{namespace}::add")
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    if first == "cell":
        wb.cpp(add, ADD)
    with pytest.raises((RuntimeError, wb.SchemaError), match="must match the size"):
        add(torch.ones(3), torch.ones(4))
    assert add.case_list() == () and torch.equal(add(X, X), X + X)
    if first == "call":
        wb.cpp(add, ADD)
    assert [c.label for c in add.case_list()] == [f"{'x'.join(map(str, X.shape))} float32"]
    assert add.runs().number == 1 and add.runs().trial.ok and torch.equal(add(X, X), X + X)


# ---------------------------------------------------------------- backward


def test_a_backward_without_saved_tensors(scale):
    wb.cpp("scale.backward", SCALE_BACKWARD)
    compiled = torch.compile(lambda x: scale(x, 3.0), fullgraph=True, backend="aot_eager")
    for call in (lambda x: scale(x, 3.0), compiled):
        assert close(gradients(call, X)[0], 18 * X)
    wb.cpp("scale.backward", SCALE_BACKWARD.replace("grad_out[i] * k", "grad_out[i] * k + 1e-6"))
    for call in (lambda x: scale(x, 3.0), compiled):  # compiled callers follow
        moving = torch.zeros(3, requires_grad=True)
        assert torch.autograd.grad(call(moving).sum() * 0, moving)[0].tolist() == pytest.approx([1e-6] * 3)
    with pytest.raises(wb.TrialError, match="scale backward still runs v2") as raised:
        wb.cpp("scale.backward", SCALE_BACKWARD.replace("grad_out[i] * k", "grad_out[i]"))
    assert "grad_x: " in str(raised.value)
    assert [str(k) for k in scale.slots] == ["('backward', 'cpu')"]
    assert scale.check().ok


def test_a_backward_with_saved_tensors_needs_the_forward(norm):
    x, w = torch.randn(5, 16), torch.randn(16)
    with pytest.raises(
        wb.SchemaError,
        match="norm.backward takes rstd, which the forward saves.*norm backward still runs the reference",
    ):
        try:
            wb.cpp("norm.backward", NORM_BACKWARD)
        except wb.SchemaError as error:
            raise wb.SchemaError(str(error).replace("\n", " ")) from None
    wb.cpp("norm", NORM)
    wb.cpp("norm.backward", NORM_BACKWARD)
    wanted = gradients(norm.reference, x, w)
    compiled = torch.compile(lambda x, w: norm(x, w), fullgraph=True, backend="aot_eager")
    for call in (norm, compiled, torch.ops.live.norm):
        assert all(close(g, e) for g, e in zip(gradients(call, x, w), wanted, strict=True))
    wb.cpp(
        "norm", NORM.replace("// Sequential sums", "// Again")
    )  # the forward again: backward stays, and was tried on it
    assert norm.runs("backward").number == 2 and norm.runs("forward").number == 3
    assert all(close(g, e) for g, e in zip(gradients(norm, x, w), wanted, strict=True))
    with pytest.raises(wb.TrialError, match="differs"):  # right outputs, wrong saved tensors
        wb.cpp("norm", NORM.replace("rstd[r] = i;", "rstd[r] = i + 1;"))
    assert all(close(g, e) for g, e in zip(gradients(compiled, x, w), wanted, strict=True))


def test_without_its_forward_a_backward_that_takes_saved_tensors_rests(norm):
    x, w = torch.randn(5, 16), torch.randn(16)
    wanted = gradients(norm.reference, x, w)
    wb.cpp("norm", NORM)
    wb.cpp("norm.backward", NORM_BACKWARD.replace("* w[c] * i - d", "* w[c] * i + 2e-6f - d"))
    compiled = torch.compile(lambda x, w: norm(x, w), fullgraph=True, backend="aot_eager")
    gradients(compiled, x, w)

    def marked(call):
        moving = torch.ones(1, 16, requires_grad=True)
        return torch.autograd.grad(call(moving, w).sum() * 0, moving)[0].min().item() == pytest.approx(2e-6)

    assert marked(norm) and marked(compiled)
    norm.restore(0)
    assert not marked(norm) and not marked(compiled)
    assert all(close(g, e) for g, e in zip(gradients(norm, x, w), wanted, strict=True))
    norm.restore(1)
    assert not marked(norm)
    norm.restore(2)
    assert marked(norm) and marked(compiled)


def test_gradients_that_a_backward_leaves_out_come_from_the_reference(norm):
    x, w = torch.randn(5, 16), torch.randn(16)
    wanted = gradients(norm.reference, x, w)
    wb.cpp("norm", NORM)
    wb.cpp("norm.backward", NORM_PARTIAL.replace("* rstd[r]", "* rstd[r] + 1e-6f"))
    assert "the gradient of x comes from the reference" in str(norm.last_line)
    compiled = torch.compile(lambda x, w: norm(x, w), fullgraph=True, backend="aot_eager")
    for call in (norm, compiled):
        assert all(close(g, e) for g, e in zip(gradients(call, x, w), wanted, strict=True))
        moving = w.clone().requires_grad_()
        got = torch.autograd.grad(call(torch.zeros(4, 16), moving).sum() * 0, moving)[0]
        assert got.tolist() == pytest.approx([4e-6] * 16, rel=1e-3)  # the cell ran
    wb.cpp("norm.backward", NORM_BACKWARD)  # whole, partial, whole, none
    assert all(close(g, e) for g, e in zip(gradients(norm, x, w), wanted, strict=True))
    norm.restore(2)
    assert all(close(g, e) for g, e in zip(gradients(compiled, x, w), wanted, strict=True))
    norm.restore(3)
    assert all(close(g, e) for g, e in zip(gradients(compiled, x, w), wanted, strict=True))
    norm.restore(2)
    norm.restore(0)
    assert all(close(g, e) for g, e in zip(gradients(norm, x, w), wanted, strict=True))


# ---------------------------------------------------------------- the reference changes


def test_the_ops_own_cell_again_keeps_kernels_that_agree_and_names_those_that_do_not(scale, capsys):
    wb.cpp(scale, SCALE)
    wb.cpp("scale.backward", SCALE_BACKWARD)

    @wb.op("live::scale")
    def again(x: Tensor, k: float = 2.0) -> Tensor:
        return k * x

    assert (
        again is scale and set(scale.slots) == {("forward", "cpu"), ("backward", "cpu")} and not capsys.readouterr().out
    )

    @wb.op("live::scale")
    def scale(x: Tensor, k: float = 2.0) -> Tensor:
        return x * (k + 1)

    assert not again.slots
    told = capsys.readouterr().out
    assert "scale: v1 (forward cpu) was taken out: it differs on 4x8 float32" in told
    assert "scale: v2 (backward cpu) was taken out: it differs on 4x8 float32" in told
    assert torch.equal(again(X, 3.0), X * 4) and close(gradients(lambda x: again(x, 3.0), X)[0], 32 * X)
    with pytest.raises(
        wb.SchemaError, match="v1 of scale is not installed: it differs"
    ):  # it may not come back by another door
        again.restore(1)
    assert torch.equal(again(X, 3.0), X * 4)


def test_another_schema_starts_afresh(scale, capsys):
    wb.cpp(scale, SCALE)

    @wb.op("live::scale")
    def again(x: Tensor, k: float = 2.0, shift: float = 0.0) -> Tensor:
        return x * k + shift

    assert (
        again is scale
        and not scale.slots
        and "v1 (forward cpu) was taken out: the schema changed" in capsys.readouterr().out
    )
    assert torch.equal(scale(X, 3.0, 1.0), X * 3 + 1)
    with pytest.raises(wb.SchemaError, match="another schema"):
        scale.restore(1)
    with pytest.raises(wb.SchemaError, match="another schema"):
        scale.versions[1](X)
    wb.cpp(scale, SCALE.replace("double k,", "double k, double shift,").replace("x[i] * k", "x[i] * k + shift"))
    assert close(scale(X, 3.0, 1.0), X * 3 + 1) and scale.runs().number == 2


def test_new_cases_judge_installed_kernels(scale, capsys):
    wb.cpp(scale, SCALE.replace("x[i] * k", "x[i] * k + (n == 100)"))

    @scale.cases
    def _(t):
        yield t(3, 4), 3.0
        yield wb.case("hundred", t(10, 10), 3.0)

    assert "v1 (forward cpu) was taken out: it differs on hundred float32" in capsys.readouterr().out
    assert not scale.slots and torch.equal(scale(torch.ones(10, 10), 3.0), torch.full((10, 10), 3.0))


# ---------------------------------------------------------------- versions


def test_former_versions_come_back(scale):
    zero = torch.zeros(1)
    for added in (1e-6, 2e-6):
        wb.cpp(scale, SCALE.replace("x[i] * k", f"x[i] * k + {added}"))
    assert scale(zero).item() == pytest.approx(2e-6)
    assert scale.restore(1) is scale and scale(zero).item() == pytest.approx(1e-6)
    scale.restore(scale.versions[2])
    assert scale(zero).item() == pytest.approx(2e-6)
    scale.restore(0)
    assert scale(zero).item() == 0 and not scale.slots
    with pytest.raises(wb.SchemaError, match="no version 3; the last one is 2"):
        scale.restore(3)
    with pytest.raises(wb.TrialError):
        wb.cpp(scale, SCALE.replace("x[i] * k", "x[i]"))
    with pytest.raises(wb.SchemaError, match="v3 of scale is not installed: it differs"):
        scale.restore(3)


def test_the_text_also_goes_to_a_file(scale, tmp_path):
    wb.cpp(scale, SCALE, file=str(tmp_path / "scale.cpp"))
    assert (tmp_path / "scale.cpp").read_text() == SCALE and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(wb.SchemaError, match="cannot be written"):
        wb.cpp(scale, SCALE, file=str(tmp_path / "absent" / "scale.cpp"))


def test_another_entry(scale):
    wb.cpp(scale, SCALE.replace("void scale(", "void other("), entry="other")
    assert torch.equal(scale(X, 3.0), X * 3)


def test_an_included_header_is_part_of_the_text(scale, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.h").write_text("#define MORE 1e-6\n")
    text = '#include "more.h"\n' + SCALE.replace("x[i] * k", "x[i] * k + MORE")
    wb.cpp(scale, text)
    assert scale(torch.zeros(1)).item() == pytest.approx(1e-6)
    (tmp_path / "more.h").write_text("#define MORE 2e-6\n")
    wb.cpp(scale, text)
    assert scale(torch.zeros(1)).item() == pytest.approx(2e-6)


def test_warnings_are_notes_on_the_cells_lines(scale):
    wb.cpp(scale, "#warning hello there\n" + SCALE)
    assert "line 1" in str(scale.last_line) and "hello there" in str(scale.last_line)


def test_the_line_says_which_header_changed(scale, lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner.h").write_text("#define MORE 0.f\n")
    (tmp_path / "more.h").write_text('#include "inner.h"\n')
    text = '#include "more.h"\n' + SCALE.replace("x[i] * k", "x[i] * k + MORE")
    wb.cpp(scale, text)
    (tmp_path / "inner.h").write_text("#define MORE 1e-30f\n")
    wb.cpp(scale, text)
    assert scale(torch.zeros(1)).item() == pytest.approx(1e-30, rel=1e-3, abs=0)
    wb.cpp(scale, text)
    (tmp_path / "inner.h").write_text("#define MORE 0.f\n")
    wb.cpp(scale, text)
    assert [line.notes for line in lines] == [(), ("rebuilt: inner.h changed",), (), ("inner.h changed",)]
    assert str(lines[1]).endswith("\n  note: rebuilt: inner.h changed")


def test_a_backward_is_tried_with_each_incoming_gradient_undefined(namespace):
    @wb.op(f"{namespace}::two", returns=("a", "b"))
    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3

    @two.cases
    def _(t):
        yield t(4, 8)

    head = "//! n = x.numel()\n//! grad_x = empty_like(x)\n"
    careless = head + (
        "void backward(const float* grad_a, const float* grad_b, float* grad_x, int64_t n)\n"
        "{ for (int64_t i = 0; i < n; ++i) grad_x[i] = 2 * grad_a[i] + 3 * grad_b[i]; }"
    )
    with pytest.raises(wb.TrialError, match="undefined(?: float32)?: line 4: stopped by SIGSEGV"):
        wb.cpp(f"{namespace}::two.backward", careless)
    careful = careless.replace("grad_a[i]", "(grad_a ? grad_a[i] : 0)").replace("grad_b[i]", "(grad_b ? grad_b[i] : 0)")
    wb.cpp(f"{namespace}::two.backward", careful)
    x = torch.randn(5, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(two(x)[1].sum(), x)
    assert grad.equal(torch.full((5, 3), 3.0))


def test_an_op_born_of_a_cell_follows_its_signature(namespace):
    loop = "{ for (int64_t i = 0; i < n; ++i) out[i] = K * x[i]; }"
    head = "//! n = x.numel()\n//! out = empty_like(x)\n"
    op = wb.cpp(
        f"{namespace}::grow", head + "void grow(const float* x, float* out, int64_t n) " + loop.replace("K", "2")
    )
    x = torch.randn(5, 3)
    assert op(x).equal(2 * x)
    broken = head + "void grow(const float* x, float* out, int64_t n, double k) " + loop.replace("K", "kk")
    with pytest.raises(wb.BuildError):
        wb.cpp(op, broken)
    assert op(x).equal(2 * x)
    again = wb.cpp(op, broken.replace("kk", "k"))
    assert again is op
    assert str(op.schema) == f"{namespace}::grow(Tensor x, float k) -> Tensor"
    assert op(x, 3.0).equal(3 * x)


def test_a_reference_that_expands_its_result_gives_one_that_can_be_written(namespace):
    @wb.op(f"{namespace}::spread")
    def spread(x: Tensor) -> Tensor:
        return x.sum(-1, keepdim=True).expand(x.shape)

    @spread.cases
    def _(t):
        yield t(4, 8)

    x = torch.ones(2, 3)
    assert spread(x).stride() == (3, 1)
    compiled = torch.compile(lambda x: spread(x), fullgraph=True, backend="aot_eager")(x)
    assert compiled.stride() == (3, 1)
    wb.cpp(spread, """\
//! rows, cols = x.shape
//! out = empty(x.shape)
void spread(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    float s = 0;
    for (int64_t c = 0; c < cols; ++c) s += x[r * cols + c];
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = s;
  }
}
""")  # fmt: skip
    got = spread(x)
    assert got.tolist() == [[3.0] * 3] * 2
    assert got.stride() == (3, 1)
    got += 1
    live.gone(spread.qualname)


def test_the_advice_for_what_goes_out_of_bounds_is_in_the_words_of_the_language(scale):
    with pytest.raises(wb.TrialError):
        wb.cpp(scale, SCALE.replace("i < n", "i <= n"))
    assert "Look at the loop's bound" in str(scale.last_line) and "last block" not in str(scale.last_line)


def test_a_tensor_that_nothing_ties_is_installed_with_a_note(norm):
    loose = NORM.replace("//! require w.shape == (cols,)\n", "")
    wb.cpp("norm", loose)
    assert norm.last_line.installed
    assert "nothing ties the sizes of w to the others: `//! require w.shape == (cols,)`" in norm.last_line.notes
    wb.cpp("norm", NORM)
    assert not any("ties" in note for note in norm.last_line.notes)
