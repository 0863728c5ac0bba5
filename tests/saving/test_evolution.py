"""What a new version of an op means for its callers."""

from __future__ import annotations

import pytest

from workbench.reports.saving import Change
from workbench.saving import evolution
from workbench.schema import parse

OLD = "lab::f(Tensor x, float k=1.0) -> Tensor"


@pytest.mark.parametrize(
    ("new", "kind", "why"),
    [
        (OLD, "same", ""),
        ("lab::f(Tensor x, float k=1.0, int n=2) -> Tensor", "compatible", "the new argument n may be left out"),
        ("lab::f(Tensor? x, float k=1.0) -> Tensor", "compatible", "x was Tensor, it is Tensor?"),
        ("lab::f(Tensor x, float k=1.0, *, int n) -> Tensor", "breaking", "the new argument n has no default"),
        ("lab::f(Tensor x) -> Tensor", "breaking", "the argument k is gone"),
        ("lab::f(Tensor x, float alpha=1.0) -> Tensor", "breaking", "the argument k is gone"),
        ("lab::f(Tensor x, float k) -> Tensor", "breaking", "k has no default any more"),
        ("lab::f(Tensor x, int k=1) -> Tensor", "breaking", "k was float, it is int"),
        ("lab::f(Tensor x, *, float k=1.0) -> Tensor", "breaking", "k must be given by name now"),
        ("lab::f(float k=1.0, Tensor? x=None) -> Tensor", "breaking", "the argument x stands in another place"),
        ("lab::f(Tensor x, int n=0, float k=1.0) -> Tensor", "breaking", "the argument k stands in another place"),
        (
            "lab::f(Tensor x, float k=1.0) -> (Tensor, Tensor)",
            "breaking",
            "it returned Tensor, it returns (Tensor, Tensor)",
        ),
        ("lab::f(Tensor(a!) x, float k=1.0) -> Tensor", "breaking", "x is now written to"),
        ("lab::f(Tensor x, float k=2.0) -> Tensor", "silent", "the default of k was 1.0, it is 2.0"),
        ("lab::f(Tensor x, float k=1.0) -> (Tensor y)", "silent", "its outputs were called out, they are called y"),
    ],
)
def test_schemas(new, kind, why):
    found = evolution.compare(parse(OLD), parse(new))
    assert found == (kind, why)


def test_other_output_metadata_is_silent():
    old = {"lab::f": {"schema": OLD, "outputs": ["out"], "metadata": {"odd": ["float32 (5, 123) strides (123, 1)"]}}}
    now = {"lab::f": {"odd": ["float32 (5, 123) strides (1, 5)"]}}
    [change] = evolution.changes(old, {"lab::f": parse(OLD)}, now)
    assert change == Change(
        "lab::f", "silent", "on odd it gave float32 (5, 123) strides (123, 1), it gives float32 (5, 123) strides (1, 5)"
    )
    assert evolution.changes(old, {"lab::f": parse(OLD)}, {"lab::f": old["lab::f"]["metadata"]}) == ()


def test_ops_that_come_and_go():
    old = {"lab::f": {"schema": OLD, "outputs": ["out"]}}
    found = evolution.changes(old, {"lab::g": parse("lab::g(Tensor x) -> Tensor")}, {})
    assert [(c.op, c.kind, c.why) for c in found] == [
        ("lab::f", "breaking", "it is gone"),
        ("lab::g", "compatible", "it is new"),
    ]


@pytest.mark.parametrize(
    ("version", "kinds", "wanted"),
    [("1.4.2", ("breaking",), "2.0.0"), ("1.4.2", ("silent", "compatible"), "2.0.0"), ("1.4.2", ("compatible",), "1.5.0"),
     ("1.4.2", (), "1.4.3"), ("0.3.1", ("breaking",), "0.4.0"), ("0.3", ("compatible",), "0.4.0")],
)  # fmt: skip
def test_what_to_call_it(version, kinds, wanted):
    assert evolution.advised(version, tuple(Change("lab::f", k, "") for k in kinds)) == wanted


def test_another_name_takes_the_import_away():
    assert evolution.renamed("ops", "ops") == ()
    assert evolution.renamed("ed2", "other") == (
        Change("ed2", "breaking", "the package is called other now: import ed2 is gone"),
    )
