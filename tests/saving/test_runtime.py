"""The Python that a package runs its Triton launchers with, imported as it lies there. Nothing is built here."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types

import pytest
import torch

from workbench.saving import borrowed, runtime, templates

X = torch.linspace(-2, 3, 24).reshape(4, 6)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """`schema`, `call` and `triton_kernel` of a package, and a module for its launchers."""
    folder = tmp_path / "lists_runtime"
    folder.mkdir()
    places = (("..errors", ".errors"), ("..schema", ".schema"))
    texts = {
        "__init__": "",
        "errors": templates.render("python/errors.py.j2"),
        "schema": runtime.schema(),
        "call": borrowed.module("build.triton_call", places=places),
        "triton_kernel": templates.render("python/triton_kernel.py.j2"),
    }
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {n: importlib.import_module(f"lists_runtime.{n}") for n in ("schema", "call", "triton_kernel")}
    launchers = types.ModuleType("lists_runtime.launchers")
    monkeypatch.setitem(sys.modules, launchers.__name__, launchers)
    yield types.SimpleNamespace(**found, launchers=launchers)
    for name in [n for n in sys.modules if n.partition(".")[0] == "lists_runtime"]:
        del sys.modules[name]


def plan(package, namespace: str, **more):
    made = package.schema.Argument
    arguments = (made("xs", "Tensor[]"), made("w", "Tensor?", None))
    types_ = more.pop("output_types", ("Tensor",))
    outputs = tuple(f"out{i}" for i in range(len(types_)))
    schema = package.schema.Schema(namespace, "f", arguments, outputs=outputs, output_types=types_, saves=())
    return package.call.Plan(schema, "forward", arguments, "f", ("xs",), contiguous=True)


def test_lists_are_made_contiguous_and_the_reference_gives_the_strides(package, namespace):
    package.launchers.f = lambda xs: torch.as_strided(xs[0], xs[0].shape, (6, 1)).clone()
    with torch.library._scoped_library(namespace, "FRAGMENT") as library:
        library.define("f_layout(Tensor[] xs, Tensor? w=None) -> Tensor")
        library.impl("f_layout", lambda xs, w=None: torch.empty_like(xs[0]), "CompositeExplicitAutograd")
        call = package.triton_kernel.kernel(plan(package, namespace), package.launchers.__name__)
        found = call([X.t().contiguous().t()])
        assert torch.equal(found, X) and found.stride() == (1, 4)
        assert call([X]).stride() == (6, 1)


def test_a_launch_is_on_the_one_device_of_all_lists(package, namespace, monkeypatch):
    called = plan(package, namespace)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda home: contextlib.nullcontext(home))
    on_device = package.triton_kernel._on_device
    with pytest.raises(RuntimeError, match=r"::f: xs\[1\] is on meta, xs\[0\] on cpu: all tensors must be on one"):
        on_device(called, {"xs": [X, X.to("meta")], "w": None})
    second = types.SimpleNamespace(device=torch.device("cuda", 1))
    monkeypatch.setattr(package.call, "tensors", lambda v: [second] if isinstance(v, list) else ())
    with on_device(called, {"xs": [second], "w": None}) as home:
        assert home == torch.device("cuda", 1)


def test_no_strides_are_asked_for_where_a_result_is_a_list(package, namespace):
    package.launchers.f = lambda xs: (xs[0], [xs[0]])
    called = plan(package, namespace, output_types=("Tensor", "Tensor[]"))
    out, several = package.triton_kernel.kernel(called, package.launchers.__name__)([X.t()])
    assert torch.equal(out, X.t()) and torch.equal(several[0], X.t())
