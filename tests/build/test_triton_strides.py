"""Whose strides a launcher reads, by its text."""

from __future__ import annotations

import ast

import pytest

from workbench.build import triton_strides


@pytest.mark.parametrize(
    ("body", "unread"),
    [
        ("k[(1,)](dy, x, x.stride(0))", ("dy",)),
        ("g = dy.reshape(-1, 8)\n    k[(1,)](g, x.stride(0))", ("dy",)),
        ("dx = torch.empty_like(dy)\n    k[(1,)](dy, dx, dx.stride(0))", ("dy",)),
        ("k[lambda meta: (triton.cdiv(dy.numel(), meta['B']),)](dy, x.stride(0), B=len(dy))", ("dy",)),
        ("k[(1,)](dy, *dy.stride())", ()),
        ("g = dy.reshape(-1, 8)\n    k[(1,)](g, g.stride(0))", ()),
        ("dy = dy.contiguous()\n    k[(1,)](dy, x.stride(0))", ()),
        ("for t in (dy, x):\n        assert t.is_contiguous()", ()),
        ("x, dy = (t.contiguous() for t in (x, dy))", ()),
        ("launch(dy, x.stride(0))", ()),
        ("k[(1,)](TensorDescriptor.from_tensor(dy, [8]))", ()),
    ],
)
def test_gradients_whose_layout_is_not_asked(body, unread):
    function = ast.parse(f"def backward(dy, x):\n    {body}\n").body[0]
    assert triton_strides.unread(function, ["dy"]) == unread
