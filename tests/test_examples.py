"""Nine ops as a user types them: defined from their cells, run on every case, checked by torch, differentiated."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

import workbench as wb
from tests.example_cells import CELLS

OPS = ("rmsnorm", "matmul", "flash", "kv_write_", "adam_", "quantise", "dequantise", "topk", "dropout")

# What an op without cases of its own is called with here.
ARGUMENTS = {
    "quantise": lambda: (torch.randn(5, 123),),
    "dequantise": lambda: (torch.randint(-128, 128, (5, 123)).to(torch.int8), torch.tensor(0.1)),
    "dropout": lambda: (torch.randn(40, 50), 0.25, 7),
}


@functools.cache
def op(name: str) -> wb.Op:
    cell = CELLS["quantise" if name == "dequantise" else name]
    scope = {"wb": wb, "torch": torch, "Tensor": Tensor}
    exec(compile(cell, f"<{name}>", "exec"), scope)
    return scope[name]


def cases(name: str) -> list[tuple[str, list]]:
    """(label, arguments in order) of every case but the bench ones."""
    if name in ARGUMENTS:
        torch.manual_seed(0)
        return [("own", op(name).definition.order(ARGUMENTS[name](), {}))]
    return [(c.label, list(c.bound(op(name).schema).values())) for c in op(name).case_list()]


def opened(values: object) -> list[Tensor]:
    values = values if isinstance(values, (list, tuple)) else [values]
    return [t for v in values for t in (v if isinstance(v, (list, tuple)) else [v]) if isinstance(t, Tensor)]


def wanting(name: str, values: list) -> list:
    """The arguments with floating tensors that want a gradient, but for those that the op mutates: these are leaves."""
    want = lambda t: t.detach().clone().requires_grad_() if isinstance(t, Tensor) and t.is_floating_point() else t
    return [
        v if a.mutated else [want(t) for t in v] if isinstance(v, (list, tuple)) else want(v)
        for a, v in zip(op(name).schema.arguments, values, strict=True)
    ]


def written(name: str, values: list) -> list[Tensor]:
    """What an op with these arguments gives: its outputs, or what it wrote to."""
    found = op(name)
    out = found(*values)
    return opened(out) + opened([v for a, v in zip(found.schema.arguments, values, strict=True) if a.mutated])


@pytest.mark.parametrize("name", OPS)
def test_defined(name):
    found = op(name)
    assert found.qualname == f"lab::{name}"
    assert wb.ops[f"lab::{name}"] is found
    torch._C.parse_schema(str(found.schema))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("rmsnorm", [f"{shape} {d}" for shape in ("4x128", "odd") for d in ("float32", "float16", "bfloat16")]),
        ("matmul", ["65x130 float32"]),
        ("flash", ["1x2x100x32 float32", "causal float32"]),
        ("kv_write_", ["3x4x64 float32", "scaled float32"]),
        ("topk", ["4x128 float32", "all float32"]),
    ],
)
def test_cases_by_name(name, labels):
    assert [c.label for c in op(name).case_list()] == labels
    assert any(c.bench for c in op(name).case_list(bench=True)) == (name != "kv_write_")


@pytest.mark.parametrize("name", OPS)
def test_every_case_gives_what_the_reference_gives(name):
    found = op(name)
    assert cases(name)
    for (label, values), (_, again) in zip(cases(name), cases(name), strict=True):
        got = written(name, values)
        out = found.reference(*again)
        wanted = opened(out) + opened([v for a, v in zip(found.schema.arguments, again, strict=True) if a.mutated])
        torch.testing.assert_close(got, wanted, atol=0, rtol=0, msg=lambda m, at=label: f"{at}: {m}")


@pytest.mark.parametrize("name", OPS)
def test_opcheck(name):
    _, values = cases(name)[0]
    every = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    for arguments, grad in ((values, False), (wanting(name, values), True)):
        # torch's last test cannot add up outputs of which the first is an integer and the next takes a gradient
        tests = every[:-1] if grad and name == "quantise" else every
        found = torch.library.opcheck(op(name).torch_op, tuple(arguments), test_utils=tests)
        assert found == dict.fromkeys(tests, "SUCCESS")


@pytest.mark.parametrize("name", OPS)
def test_gradients_are_finite_and_the_references(name):
    for label, values in cases(name):
        torch.manual_seed(1)
        first, second = wanting(name, values), wanting(name, values)
        mutated = [a.mutated for a in op(name).schema.arguments]
        clone = lambda v: [t.clone() for t in v] if isinstance(v, (list, tuple)) else v.clone()
        outputs = []
        for function, arguments in ((op(name), first), (op(name).reference, second)):
            given = [clone(v) if m else v for m, v in zip(mutated, arguments, strict=True)]
            out = opened(function(*given)) + opened([v for m, v in zip(mutated, given, strict=True) if m])
            outputs.append([t for t in out if t.requires_grad])
        assert outputs[0], label
        assert len(outputs[0]) == len(outputs[1])
        weights = [torch.randn_like(t) for t in outputs[0]]
        leaves = [[t for t in opened(v) if t.requires_grad] for v in (first, second)]
        # A gradient that the reference does not reach is none there and zeros here.
        gradients = [
            torch.autograd.grad(o, w, weights, allow_unused=True, materialize_grads=True)
            for o, w in zip(outputs, leaves, strict=True)
        ]
        assert all(g.isfinite().all() for g in gradients[0]), label
        torch.testing.assert_close(gradients[0], gradients[1], msg=lambda m, at=label: f"{at}: {m}")


@pytest.mark.parametrize("name", OPS)
def test_compiled(name):
    torch._dynamo.reset()  # the lambda below is one code object for all
    (_, values), (_, again) = cases(name)[-1], cases(name)[-1]
    wanted = written(name, values)
    found = op(name)
    out = torch.compile(lambda *a: found(*a), fullgraph=True, backend="aot_eager")(*again)
    got = opened(out) + opened([v for a, v in zip(found.schema.arguments, again, strict=True) if a.mutated])
    torch.testing.assert_close(got, wanted)


def test_the_outputs_of_flash_that_take_a_gradient():
    _, values = cases("flash")[1]
    assert [t.requires_grad for t in op("flash")(*wanting("flash", values))] == [True, False]


def test_caches_that_are_views_of_one_base_are_written():
    _, values = cases("kv_write_")[0]
    k, v, k_cache, v_cache, table, pos = values[:6]
    assert k_cache._base is v_cache._base
    op("kv_write_")(*values)
    for b in range(3):
        block, offset = table[b, pos[b] // 16], pos[b] % 16
        assert torch.equal(k_cache[block, offset], k[b])
        assert torch.equal(v_cache[block, offset], v[b])


def test_dropout_is_its_seeds():
    x = torch.ones(40, 50)
    dropout = op("dropout")
    assert torch.equal(dropout(x, 0.25, 7), dropout(x, 0.25, 7))
    assert not torch.equal(dropout(x, 0.25, 7), dropout(x, 0.25, 8))
    assert not dropout.random
    out = dropout(x.clone().requires_grad_(), 0.25, 7)
    assert out.requires_grad


def test_what_is_compared():
    (x,) = ARGUMENTS["quantise"]()
    q, scale = op("quantise")(x)
    error, same = op("quantise").compare_function(x, q, scale)
    assert same is scale
    assert error.min() == 0.5
    x = torch.randn(4, 7)
    values, gathered = op("topk").compare_function(x, 3, *op("topk")(x, 3))
    assert torch.equal(values, gathered)
