"""The declaration as a fake: metadata, checks, symbolic sizes, and the key of its structure."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tests.directives.cells import CELLS, cell, declare, lines
from workbench.directives import fake, shape_key
from workbench.directives.symbolic import cdiv, next_power_of_2
from workbench.errors import SchemaError


def value(expression: str, **arguments):
    """What an INT, FLOAT or BOOL expression over `f`'s arguments comes to: read off the size of a made tensor."""
    d = lines(f"v = {expression}", "out = empty(2 if v == v else 1)")
    from workbench.directives.evaluate import _Values

    defaults = {"x": torch.empty(6, 4), "b": None, "k": 7, "p": 0.5, "flag": True}
    return _Values(d, {**defaults, **arguments}, {})["v"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x.numel() // 5", 4), ("-7 // 2", -4), ("-7 % 3", 2), ("k / 2", 3.5), ("cdiv(k, 2)", 4), ("cdiv(-7, 2)", -3),
        ("min(k, 3, 9)", 3), ("max(k, 7.5)", 7.5), ("prod(x.shape)", 24), ("prod(())", 1), ("prod(x.shape[:0])", 1),
        ("sqrt(k + 9)", 4.0), ("next_power_of_2(k)", 8), ("next_power_of_2(8)", 8), ("next_power_of_2(0)", 1),
        ("x.shape[-1]", 4), ("x.shape[k - 7]", 6), ("x.stride()[0]", 4), ("x.stride(-1)", 1), ("x.dim()", 2),
        ("x.element_size()", 4), ("1 if flag else 0", 1), ("0 <= k < 7", False), ("x.shape == (6, 4)", True),
        ("x.shape == (6,)", False), ("x.shape != (6, 4)", False), ("x.shape == (*x.shape[:1], 4)", True),
        ("x.dtype == float32", True), ("x.dtype != torch.int8", True), ("b is None", True), ("b is not None", False),
        ("b is not None and b.numel() > 0", False), ("b is None or b.numel() > 0", True), ("not flag", False),
        ("2.0 if scale is None else scale", 2.0), ("flag and k > 0 and p < 1", True), ("k < 0 or p < 0", False),
    ],
)  # fmt: skip
def test_values(expression, expected):
    got = value(expression)
    assert got == expected
    assert type(got) is type(expected)


def test_the_examples_allocate_what_they_say():
    x = torch.empty(3, 5, 8, dtype=torch.bfloat16)
    made = fake(cell("rmsnorm"), {"x": x, "w": torch.empty(8)})
    assert {n: (tuple(t.shape), t.dtype) for n, t in made.items()} == {
        "y": ((3, 5, 8), torch.bfloat16), "rstd": ((15,), torch.float32),
    }  # fmt: skip
    made = fake(cell("topk"), {"x": x, "k": 2})
    assert {n: (tuple(t.shape), t.dtype) for n, t in made.items()} == {
        "values": ((3, 5, 2), torch.bfloat16), "indices": ((3, 5, 2), torch.int64),
    }  # fmt: skip
    made = fake(cell("quantise"), {"x": x})
    assert {n: (tuple(t.shape), t.dtype) for n, t in made.items()} == {
        "q": ((3, 5, 8), torch.int8), "scale": ((), torch.float32),
    }  # fmt: skip
    assert fake(cell("kv_write_"), {n: torch.empty(2, 3, 4, 1) if n.endswith("cache") else torch.empty(2, 3, 4)
                                   for n in ("k", "v", "k_cache", "v_cache", "block_table", "pos")}) == {}  # fmt: skip


def test_a_backward_makes_its_gradients_and_no_workspace():
    made = fake(
        cell("rmsnorm.backward"),
        {
            "grad_y": None,
            "x": torch.empty(2, 8),
            "w": torch.empty(8),
            "eps": 1e-6,
            "y": torch.empty(2, 8),
            "rstd": torch.empty(2),
        },
    )  # `part` needs sm_count, which no fake knows: it is never computed
    assert {n: tuple(t.shape) for n, t in made.items()} == {"grad_x": (2, 8), "grad_w": (8,)}


def test_made_tensors_are_contiguous_whatever_comes_in():
    x = torch.empty(4, 6).t()
    assert fake(lines("out = empty_like(x)"), {"x": x, "k": 1, "p": 1.0, "flag": True, "b": None})["out"].stride() == (
        4,
        1,
    )


def test_zeros_are_zeros():
    assert fake(lines("out = zeros(3)"), {"x": torch.empty(1), "k": 1, "p": 1.0, "flag": True, "b": None})[
        "out"
    ].tolist() == [0, 0, 0]


def test_unmet_requirements_raise():
    with pytest.raises(RuntimeError, match=r"lab::rmsnorm: require w.shape == \(cols,\) is not met \(line 4\)"):
        fake(cell("rmsnorm"), {"x": torch.empty(2, 8), "w": torch.empty(7)})
    with pytest.raises(RuntimeError, match=r"M, K = a.shape needs 2 dimensions, got 3 \(line 2\)"):
        fake(cell("matmul"), {"a": torch.empty(2, 2, 2), "b": torch.empty(2, 2)})
    with pytest.raises(RuntimeError, match=r"needs at least 1 dimensions, got 0"):
        fake(cell("rmsnorm"), {"x": torch.empty(()), "w": torch.empty(7)})


def test_tuned_values_can_be_given():
    a, b = torch.empty(4, 6), torch.empty(6, 2)
    assert fake(cell("matmul"), {"a": a, "b": b}, {"TILE": 32})["out"].shape == (4, 2)
    with pytest.raises(RuntimeError, match="TILE \\* TILE <= 1024 is not met"):
        fake(cell("matmul"), {"a": a, "b": b}, {"TILE": 64})


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ("sm_count", "a size depends on sm_count, which differs from one machine to the next"), ("k // (k - k)", "k - k is 0"),
        ("cdiv(k, 0 * k)", "division by zero in cdiv(k, 0 * k)"), ("x.shape[5]", "x.shape[5] is out of range, there are 1 dimensions"),
        ("b.numel()", "b is None"), ("1 if sqrt(0 - k) > 1 else 2", "the square root of a negative number"),
    ],
)  # fmt: skip
def test_sizes_that_cannot_be_told(size, says):
    with pytest.raises(SchemaError) as caught:
        fake(lines("n = 1", f"out = empty({size})"), {"x": torch.empty(1), "k": 1, "p": 1.0, "flag": True, "b": None})
    assert says in str(caught.value)
    assert caught.value.line == 3


def test_a_requirement_of_the_machine_is_left_to_the_launcher():
    d = lines("many = 4 * sm_count", "require k < many", "out = empty(k)")
    assert fake(d, {"x": torch.empty(1), "k": 3, "p": 1.0, "flag": True})["out"].shape == (3,)


def test_the_multiprocessors_of_a_gpu_are_known_without_one(monkeypatch):
    from workbench import gpu

    d = lines("many = 4 * sm_count", "require k < many", "out = empty(many)")
    monkeypatch.setattr(gpu, "sm_count", {0: 100, 1: 7}.get)
    with FakeTensorMode():
        for index, size in ((0, 400), (1, 28)):
            made = fake(d, {"x": torch.empty(1, device=f"cuda:{index}"), "k": 3, "p": 1.0, "flag": True})["out"]
            assert (made.shape, made.device) == ((size,), torch.device("cuda", index))
        with pytest.raises(RuntimeError, match=r"require k < many is not met \(line 3\)"):
            fake(d, {"x": torch.empty(1, device="cuda:1"), "k": 28, "p": 1.0, "flag": True})


def test_without_a_gpu_the_multiprocessors_are_those_of_the_architecture(monkeypatch):
    from workbench import gpu

    monkeypatch.setattr(gpu, "present", lambda: False)
    for arch, count in (("sm_90", 132), ("sm_90a", 132), ("sm_80", 108), ("sm_100", 148), ("sm_61", 132)):
        monkeypatch.setattr(gpu, "target", lambda arch=arch: gpu.Target(arch, ""))
        assert gpu.sm_count() == count


def test_a_missing_argument_is_named():
    with pytest.raises(SchemaError, match="lab::f: the fake was not given 'k'"):
        fake(lines("out = empty(1)"), {"x": torch.empty(1)})


def symbolic(*shapes: tuple[int, ...]):
    """Fake tensors with every size symbolic, and the environment that would note a guard."""
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    return env, mode, [
        mode.from_tensor(torch.empty(s), symbolic_context=StatelessSymbolicContext([DimDynamic.DYNAMIC] * len(s))) for s in shapes
    ]  # fmt: skip


@pytest.mark.parametrize(
    "size",
    ["x.shape[0] // 2 + 1", "cdiv(x.shape[0], 4)", "min(x.shape[0], 3)", "max(x.shape[0], x.shape[1], 2)", "prod(x.shape)",
     "next_power_of_2(x.shape[0])", "x.numel() % 3 + 1", "4 if x.shape[0] > 2 else x.shape[1]", "x.stride(0)"],
)  # fmt: skip
def test_no_size_is_specialised_or_guarded(size):
    env, mode, (x,) = symbolic((6, 5))
    with mode:
        out = fake(lines(f"out = empty({size}, x.shape[1])"), {"x": x, "k": 1, "p": 1.0, "flag": True, "b": None})[
            "out"
        ]
    assert isinstance(out.shape[0], torch.SymInt) or size == "x.stride(0)"
    assert not env.guards
    plain = fake(
        lines(f"out = empty({size}, x.shape[1])"), {"x": torch.empty(6, 5), "k": 1, "p": 1.0, "flag": True, "b": None}
    )["out"]
    assert out.shape[0].node.hint == plain.shape[0]


def test_symbolic_conditions_are_checked_not_branched_on():
    env, mode, (x, b) = symbolic((6, 5), (5,))
    d = lines(
        "require x.shape[0] > 1 and (x.shape[1] < 9 or x.shape[0] == 3)",
        "require b.shape == x.shape[1:]",
        "out = empty_like(x)",
    )
    with mode:
        fake(d, {"x": x, "b": b, "k": 1, "p": 1.0, "flag": True})
    assert not any(s.is_number for s in env.replacements.values())


@pytest.mark.parametrize("name", ["rmsnorm", "matmul", "topk"])
def test_exported_with_dynamic_sizes(name, namespace):
    """An op whose fake is the declaration exports with every size dynamic: none was specialised."""
    inputs = {
        "rmsnorm": (torch.randn(6, 8), torch.randn(8)), "matmul": (torch.randn(6, 8), torch.randn(8, 4)), "topk": (torch.randn(6, 8),),
    }[name]  # fmt: skip
    d = cell(name)
    library = torch.library.Library(namespace, "DEF")
    tail = ", 2" if name == "topk" else ""
    parameters = ", ".join(f"Tensor {a.name}" for a in d.arguments if a.is_tensor) + (", SymInt k" if tail else "")
    results = "Tensor" if name == "matmul" else "(Tensor, Tensor)"
    library.define(f"op({parameters}) -> {results}")
    names = [a.name for a in d.arguments if a.is_tensor] + (["k"] if tail else [])

    def faked(*args):
        made = tuple(fake(d, dict(zip(names, args, strict=True))).values())
        return made if len(made) > 1 else made[0]

    torch.library.register_fake(f"{namespace}::op", faked, lib=library)
    op = getattr(torch.ops, namespace).op

    class Model(torch.nn.Module):
        def forward(self, *tensors):
            return op(*tensors, *((2,) if tail else ()))

    dynamic = [dict.fromkeys(range(t.dim()), torch.export.Dim.DYNAMIC) for t in inputs]
    program = torch.export.export(Model(), inputs, dynamic_shapes=(tuple(dynamic),), strict=False)
    node = next(n for n in program.graph.nodes if n.op == "call_function" and "op" in str(n.target))
    made = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else [node.meta["val"]]
    assert all(isinstance(s, torch.SymInt) for s in made[0].shape[:1])
    library._destroy()


def key(*directives: str) -> str:
    return shape_key(lines(*directives))


def test_numbers_lines_and_comments_are_no_part_of_the_key():
    one = declare("//! n = x.numel()\n//! tune B = 1, 2\n//! require n > 3\n//! out = empty(n * 2)", bind=False)
    two = declare(
        "\n// moved\n//! n = x.numel()\n//! tune B = 7\n//! require n > 4  // more of it\n//! out = empty(n * 5)",
        bind=False,
    )
    assert shape_key(one) == shape_key(two)
    assert one.literals != two.literals


def test_launch_values_are_no_part_of_the_key():
    changed = declare(
        CELLS["matmul"].replace("block = 256", "block = 512").replace("16, 32", "8, 16"), "matmul", language="cuda"
    )
    assert shape_key(changed) == shape_key(cell("matmul"))
    moved = declare(CELLS["matmul"].replace("cdiv(M * N, 256)", "M * N"), "matmul", language="cuda")
    assert shape_key(moved) != shape_key(cell("matmul"))


def test_bodies_and_flags_are_no_part_of_the_key():
    changed = declare("//! flags -O2\n" + CELLS["topk"].replace("{}", "{ int a = 1; }"), "topk", language="cuda")
    assert shape_key(changed) == shape_key(cell("topk"))


@pytest.mark.parametrize(
    "changed",
    [
        ("m = x.numel()", "out = empty(1)"), ("n = x.dim()", "out = empty(1)"), ("n = x.numel()", "out = zeros(1)"),
        ("n = x.numel()", "out = empty(1, dtype=int8)"), ("n = x.numel()", "out = empty(1, 1)"), ("n = x.numel()", "out = empty_like(x)"),
        ("n = x.numel()", "require n > 1", "out = empty(1)"), ("n = x.numel()", "tune B = 1", "out = empty(1)"),
        ("n = x.numel()", "part = empty(1)", "out = empty(1)"), ("out = empty(1)", "n = x.numel()"), ("n = x.numel()", "out = empty(-1)"),
    ],
)  # fmt: skip
def test_another_structure_is_another_key(changed):
    assert key(*changed) != key("n = x.numel()", "out = empty(1)")


def test_the_kind_of_a_number_is_part_of_the_key():
    assert key("n = 1", "out = empty(1)") != key("n = 1.0", "out = empty(1)")
    assert key("tune n = 1", "out = empty(1)") != key("tune n = 1.0", "out = empty(1)")


def test_helpers():
    assert [cdiv(a, 4) for a in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [next_power_of_2(n) for n in (-1, 0, 1, 2, 3, 5, 1024, 1025)] == [1, 1, 1, 2, 4, 8, 1024, 2048]
