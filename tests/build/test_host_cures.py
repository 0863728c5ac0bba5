"""What is said of a member that torch's stable Tensor has not, and that a text which follows it compiles."""

from __future__ import annotations

import pytest

from workbench.build import cpp, host_cures
from workbench.errors import BuildError

POINTERS = "write const_data_ptr<T>() to read and mutable_data_ptr<T>() to write"
WANTED = {
    "auto y = x.contiguous();": ("write contiguous(x)", "auto y = contiguous(x);"),
    "auto y = x.view({-1});": ("write view(x, ...)", "auto y = view(x, {-1});"),
    "auto y = x.to(ScalarType::Double);": ("write to(x, ...)", "auto y = to(x, ScalarType::Double);"),
    "auto y = x.dtype();": ("write x.scalar_type()", "auto y = x.scalar_type();"),
    "auto o = x.options();": ("its dtype is x.scalar_type(), and new_empty(x, sizes) makes one like it", "auto y = new_empty(x, {4});"),
    "auto p = x.data_ptr<float>();": (POINTERS, "auto p = x.const_data_ptr<float>();"),
    "float v = x.item();": ("read it through x.const_data_ptr<float>()", "float v = *x.const_data_ptr<float>();"),
    "auto a = x.accessor();": (host_cures.TIER, ""),
}  # fmt: skip


def compile(body: str):
    text = f'#include "wb_host.h"\n#line 2 "cell [3]"\nvoid f(const Tensor& x) {{\n{body}\n}}\n'
    return cpp.compile(text, kind="host", file="cell [3]")


@pytest.mark.parametrize("body", WANTED)
def test_a_member_that_the_stable_tensor_has_not(body):
    words, right = WANTED[body]
    with pytest.raises(BuildError) as caught:
        compile(body)
    assert (caught.value.file, caught.value.line) == ("cell [3]", 3)
    assert caught.value.message.partition("\n")[0].endswith(f"; {words}")
    assert compile(right).path


@pytest.mark.parametrize(("message", "excerpt"), [
    ("no member named 'clone' in 'torch::stable::Tensor'", "x.clone()"),
    ('class "torch::stable::Tensor" has no member "clone"', "x.clone()"),
    ("‘class torch::stable::Tensor’ has no member named ‘clone’; did you mean ‘close’?", "x->clone()"),
])  # fmt: skip
def test_in_the_words_of_each_compiler(message, excerpt):
    assert host_cures.told(message, excerpt) == f"{message.partition('; did')[0]}; write clone(x)"


def test_other_messages_stay():
    for message in (
        "expected primary-expression before ‘float’",
        "‘struct A’ has no member named ‘clone’; did you mean ‘b’?",
    ):
        assert host_cures.told(message, "f<float>();") == message
