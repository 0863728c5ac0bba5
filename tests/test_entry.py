"""The generated lines that run at every call, word for word, and when they take the short path."""

from __future__ import annotations

import traceback

import pytest
import torch
from torch import Tensor, func

import workbench as wb
from workbench.entry import QUIET, autograd_text, entry_text
from workbench.schema import parse


def test_entry_text():
    assert entry_text(parse("lab::f(Tensor x, Tensor? w=None, float k=2.0) -> Tensor")) == (
        "def f(__self, x, w=__default_w, k=__default_k):\n"
        "    if __compiling():\n"
        "        return __traced(x, w, k)\n"
        f"    if __type(x) in __plain and (w is None or __type(w) in __plain) and {QUIET} "
        "and not (__grad_enabled() and (x.requires_grad or (w is not None and w.requires_grad))):\n"
        "        return __kernel(x, w, k)\n"
        "    return __public(x, w, k)\n"
    )


def test_entry_text_of_lists_keywords_and_saved_tensors():
    text = entry_text(parse("lab::f(Tensor[] xs, *, Tensor?[] w, int k=1) -> Tensor", saves="rstd"))
    assert "def f(__self, xs, *, w, k=__default_k):" in text
    assert "__all(__type(t) in __plain for t in xs)" in text
    assert "__all((t is None or __type(t) in __plain) for t in w)" in text
    assert "__any(t is not None and t.requires_grad for t in xs)" in text
    assert "return __kernel(xs, w=w, k=k)[0]" in text
    two = entry_text(parse("lab::f(Tensor x) -> (Tensor, Tensor)", saves=("a", "b")))
    assert "return __kernel(x)[:2]" in two


def test_a_mutating_op_always_takes_the_public_name():
    assert entry_text(parse("lab::f_(Tensor(a!) x, float k=1.0) -> ()")) == (
        "def f_(__self, x, k=__default_k):\n    return __traced(x, k)\n"
    )


def test_autograd_text():
    assert autograd_text(parse("lab::f(Tensor x, int k=2) -> Tensor")) == (
        "def f_autograd(__keyset, x, k=__default_k):\n"
        "    if x is None:\n"
        "        raise __absent('lab::f', x=x)\n"
        "    if __dual._current_level >= 0 or __modes() and __forward_mode() or __grad_enabled() and (x.requires_grad):\n"
        "        return __differentiable(__keyset, [x, k])\n"
        "    return __redispatch(__keyset & __after_autograd, x, k)\n"
    )


@pytest.mark.parametrize("grad", [False, True])
def test_a_tensor_that_must_be_there(namespace, grad):
    """torch takes None for any tensor."""

    @wb.op(f"{namespace}::add")
    def add(x: Tensor, y: Tensor, z: Tensor | None = None) -> Tensor:
        return x + y if z is None else x + y + z

    x = torch.ones(2)
    with torch.set_grad_enabled(grad):
        assert add(x, x).tolist() == [2, 2]
        with pytest.raises(TypeError, match=rf"^{namespace}::add: y must be a Tensor, got None; .*`Tensor \| None`$"):
            add(x, None)
        with pytest.raises(TypeError, match="add: x and y must be a Tensor, got None"):
            getattr(torch.ops, namespace).add(None, None, x)


def test_an_op_without_tensors_wants_no_gradient():
    text = entry_text(parse("lab::f(int n) -> Tensor"))
    assert f"if True and {QUIET} and not (__grad_enabled() and (False)):" in text


@pytest.fixture
def op(namespace):
    @wb.op(f"{namespace}::double")
    def double(x: Tensor) -> Tensor:
        return x * 2

    return double


@pytest.fixture
def paths(op, monkeypatch):
    """Which of the two paths each call of the handle takes."""
    taken = []
    entry = type(op).__call__
    kernel, public = entry.__globals__["__kernel"], entry.__globals__["__public"]
    monkeypatch.setitem(entry.__globals__, "__kernel", lambda *a, **k: (taken.append("kernel"), kernel(*a, **k))[1])
    monkeypatch.setitem(entry.__globals__, "__public", lambda *a, **k: (taken.append("public"), public(*a, **k))[1])
    return taken


def test_plain_calls_take_the_short_path(op, paths):
    op(torch.ones(2))
    op(torch.nn.Parameter(torch.ones(2), requires_grad=False))
    with torch.no_grad():
        op(torch.ones(2, requires_grad=True))
    with torch.inference_mode():
        op(torch.ones(2))
    with torch.autocast("cpu"):
        op(torch.ones(2))
    assert paths == ["kernel"] * 5


def test_whoever_listens_is_heard(op, paths):
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            return f(*args, **(kwargs or {}))

    class FunctionMode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, f, types, args=(), kwargs=None):
            return f(*args, **(kwargs or {}))

    class Sub(torch.Tensor): ...

    x = torch.ones(2)
    op(x.clone().requires_grad_())
    op(x.as_subclass(Sub))
    with Mode():
        op(x)
    with FunctionMode():
        op(x)
    with torch.autograd.forward_ad.dual_level():
        op(x)
    func.grad(lambda t: op(t).sum())(x)
    torch.vmap(op)(x)
    assert set(paths) == {"public"}
    assert len(paths) == 7


def test_a_mutation_is_seen_by_version_counters_on_every_path(namespace):
    @wb.op(f"{namespace}::fill_", mutates="x")
    def fill_(x: Tensor, value: float = 1.0) -> None:
        x.fill_(value)

    x = torch.zeros(2)
    assert fill_(x) is None
    assert (x.tolist(), x._version > 0) == ([1, 1], True)
    fill_(x=x, value=3.0)
    assert x.tolist() == [3, 3]


def test_a_traceback_shows_the_line_of_each_generated_function(namespace):
    @wb.op(f"{namespace}::add_", mutates="x")
    def add_(x: Tensor, y: Tensor) -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose") as caught:
        add_(torch.ones(2), torch.ones(2))
    ours = [e for e in traceback.extract_tb(caught.value.__traceback__) if e.filename.startswith(f"<{namespace}::add_")]
    assert [e.line for e in ours] == ["return __traced(x, y)", "return __redispatch(__keyset & __after_autograd, x, y)"]
