"""An op is complete from its first cell: what it is, how it is called, traced, exported, copied and shown."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import workbench as wb
from workbench import SchemaError


@pytest.fixture
def rms(namespace):
    @wb.op(f"{namespace}::rms")
    def rms(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
        """Root mean square normalisation.

        Over the last dimension.
        """
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    return rms


def expected(x: Tensor, w: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


# ---------------------------------------------------------------- what it is


def test_what_there_is_to_read(rms, namespace):
    assert (rms.name, rms.qualname) == ("rms", f"{namespace}::rms")
    assert str(rms.schema) == f"{namespace}::rms(Tensor x, Tensor w, float eps=1e-06) -> Tensor"
    assert rms.torch_op is getattr(torch.ops, namespace).rms.default
    assert wb.ops[f"{namespace}::rms"] is rms
    assert isinstance(rms, wb.Op)
    assert rms.reference(torch.ones(2), torch.ones(2)).shape == (2,)
    assert dict(rms.slots) == {}
    assert [v.number for v in rms.versions] == [0]
    assert rms.differentiable
    assert not rms.random
    with pytest.raises(TypeError):
        rms.slots["forward", "cpu"] = 1
    with pytest.raises(TypeError):
        wb.ops["lab::x"] = rms


def test_the_docstring_and_signature_are_kept(rms):
    assert rms.__doc__ == "Root mean square normalisation.\n\nOver the last dimension."
    assert str(inspect.signature(rms)) == "(x, w, eps=1e-06)"


def test_repr(rms, namespace):
    assert repr(rms) == f"<{namespace}::rms(Tensor x, Tensor w, float eps=1e-06) -> Tensor | reference>"

    @rms.kernel("cpu")
    def _(x, w, eps=1e-6):
        return expected(x, w, eps)

    assert repr(rms).endswith("| forward cpu v1>")


def test_copies_and_pickles_are_the_same_op(rms, namespace):
    assert copy.copy(rms) is rms
    assert copy.deepcopy(rms) is rms
    assert copy.deepcopy({"activation": rms})["activation"] is rms
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(rms, protocol)) is rms
    unknown = pickle.dumps(rms).replace(b"rms", b"rmz")
    with pytest.raises(SchemaError, match=f"no op '{namespace}::rmz' in this process; run the cell that defines it"):
        pickle.loads(unknown)


# ---------------------------------------------------------------- how it is called


def test_values(rms):
    x, w = torch.randn(5, 123), torch.randn(123)
    for out in (rms(x, w), rms(x, w=w), rms(w=w, x=x), rms.torch_op(x, w), rms(x, w, 1e-6), rms(x, w, eps=1e-6)):
        torch.testing.assert_close(out, expected(x, w), atol=0, rtol=0)
    torch.testing.assert_close(rms(x, w, 0.5), expected(x, w, 0.5))
    assert rms(x.bfloat16(), w.bfloat16()).dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing 2 required positional arguments: 'x' and 'w'"),
        ((1, 2, 3, 4), {}, "takes from 3 to 4 positional arguments but 5 were given"),
        ((1, 2), {"k": 3}, "unexpected keyword argument 'k'"),
        ((1, 2), {"w": 3}, "multiple values for argument 'w'"),
    ],
)
def test_calls_that_do_not_fit(rms, args, kwargs, message):
    args = tuple(torch.ones(2) for _ in args)
    with pytest.raises(TypeError, match=rf"rms\(\).*{message}"):
        rms(*args, **kwargs)


@pytest.mark.parametrize("bad", ["a string", 3, [1, 2]])
def test_an_argument_of_another_type(rms, bad):
    with pytest.raises((RuntimeError, TypeError), match=r"rms.*argument 'w'"):
        rms(torch.ones(3), bad)


def test_shapes_that_do_not_fit_speak_as_the_reference(rms):
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match the size of tensor b \(4\)"):
        rms(torch.ones(2, 3), torch.ones(4))


def test_arguments_may_bear_the_names_of_builtins(namespace):
    @wb.op(f"{namespace}::named")
    def named(
        self: Tensor, type: Tensor, all: list[Tensor], keyset: int = 2, any: float = 1.0, *, out: int = 0
    ) -> Tensor:
        return self * type * all[0] * keyset * any + out

    a = torch.full((2,), 3.0, requires_grad=True)
    for call in (named, named.torch_op):
        assert call(a.detach(), a.detach(), [a.detach()]).tolist() == [54, 54]
        out = call(a, a, [a], 1, 0.5, out=4)
        assert out.tolist() == [17.5, 17.5]
        assert torch.autograd.grad(out.sum(), a)[0].tolist() == [13.5, 13.5]


def test_all_kinds_of_arguments_reach_the_reference(namespace):
    seen = []

    @wb.op(f"{namespace}::kinds")
    def kinds(
        x: Tensor,
        i: int = 3,
        f: float = 0.5,
        b: bool = True,
        s: str = 'say "hi"',
        dims: list[int] = (0, 1),
        pair: tuple[int, int] = (2, 3),
        scales: list[float] = (0.5,),
        flags: list[bool] = (True, False),
        dtype: torch.dtype = torch.float64,
        other: torch.dtype | None = torch.half,
        device: torch.device = torch.device("cpu"),  # noqa: B008  as users write it
        *,
        names: list[str] | None = None,
        maybe: int | None = None,
    ) -> Tensor:
        seen.append((i, f, b, s, list(dims), list(pair), list(scales), list(flags), dtype, other, device, names, maybe))
        return x.to(dtype)

    default = (
        3,
        0.5,
        True,
        'say "hi"',
        [0, 1],
        [2, 3],
        [0.5],
        [True, False],
        torch.float64,
        torch.half,
        torch.device("cpu"),
        None,
        None,
    )
    given = (4, 1.5, False, "", [2], [5, 6], [], [], torch.int32, None, torch.device("cpu"), ["p", "q"], 7)
    x = torch.ones(2)
    for call in (kinds, kinds.torch_op):
        seen.clear()
        assert call(x).dtype is torch.float64
        assert call(x, *given[:-2], names=given[-2], maybe=given[-1]).dtype is torch.int32
        assert seen == [default, given]


def test_other_results_than_tensors(namespace):
    @wb.op(f"{namespace}::mixed", returns=("y", "n", "parts"))
    def mixed(x: Tensor, k: int) -> tuple[Tensor, int, list[Tensor]]:
        return x * k, k + 1, [x + 1, x + 2]

    x = torch.ones(2, requires_grad=True)
    for call in (mixed, mixed.torch_op):
        y, n, parts = call(x, 3)
        assert (y.tolist(), n, [p.tolist() for p in parts]) == ([3, 3], 4, [[2, 2], [3, 3]])
        assert torch.autograd.grad(y.sum() + parts[1].sum(), x)[0].tolist() == [4, 4]
        with torch.no_grad():
            assert call(x, 3)[1] == 4


# ---------------------------------------------------------------- what the reference returns


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_sparse_tensors_are_the_reference_s(namespace, layout):
    """Kernels are for strided ones; values and gradients are those of plain torch."""

    @wb.op(f"{namespace}::product")
    def product(a: Tensor, b: Tensor) -> Tensor:
        return a @ b

    @wb.op(f"{namespace}::same")
    def same(a: Tensor) -> Tensor:
        return a

    a, b = getattr(torch.tensor([[1.0, 0], [2, 3]]), layout)(), torch.tensor([[1.0], [4]], requires_grad=True)
    assert product(a, b).tolist() == [[1], [14]]
    if layout == "to_sparse":  # torch.func has no gradients with the other one
        assert torch.equal(torch.autograd.grad(product(a, b).sum(), b)[0], torch.autograd.grad((a @ b).sum(), b)[0])
    assert not product.case_list(), "no inputs like these can be drawn"
    out = same(a)
    assert out is not a and out.layout == a.layout and out.to_dense().tolist() == [[1, 0], [2, 3]]
    product.cases(lambda t: [(t(2, 2), t(2, 1))])
    wb.cpp(
        product,
        """\
//! m, k = a.shape
//! n = b.shape[1]
//! out = empty(m, n)
void product(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
      out[i * n + j] = sum;
    }
}
""",
    )
    assert product(a, b).tolist() == product(a.to_dense(), b).tolist() == [[1], [14]]


def test_outputs_never_alias(namespace):
    @wb.op(f"{namespace}::views")
    def views(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y = x * 2
        return x, x.view(-1), y, y.t()

    x = torch.arange(6.0).view(2, 3)
    for call in (views, views.torch_op, torch.compile(views, fullgraph=True, backend="aot_eager")):
        outputs = call(x)
        assert len({t.untyped_storage().data_ptr() for t in (x, *outputs)}) == 5
        torch.testing.assert_close(outputs, (x, x.view(-1), x * 2, (x * 2).t()))
    torch.library.opcheck(views.torch_op, (x.clone().requires_grad_(),))


def test_lists_never_alias(namespace):
    @wb.op(f"{namespace}::same")
    def same(xs: list[Tensor]) -> list[Tensor]:
        return [xs[0], xs[0], xs[1][:1]]

    a, b = torch.ones(2), torch.zeros(2)
    out = same([a, b])
    assert len({t.untyped_storage().data_ptr() for t in (a, b, *out)}) == 5
    assert [t.tolist() for t in out] == [[1, 1], [1, 1], [0]]


@pytest.mark.parametrize(
    ("result", "annotation", "message"),
    [
        (lambda x: None, Tensor, r"output 'out' should be a Tensor, the reference returned None"),
        (lambda x: 3, Tensor, r"output 'out' should be a Tensor, the reference returned int 3"),
        (lambda x: (x, x), Tensor, r"output 'out' should be a Tensor, the reference returned a tuple of 2"),
        (lambda x: x * 1, tuple[Tensor, Tensor], r"is annotated with 2 outputs, its reference returned a Tensor of shape \(3,\), float32"),
        (lambda x: (x * 1,) * 3, tuple[Tensor, Tensor], r"is annotated with 2 outputs, its reference returned a tuple of 3"),
        (lambda x: x * 1, None, r"is annotated '-> None' but its reference returned a Tensor of shape \(3,\)"),
    ],
)  # fmt: skip
def test_a_reference_that_returns_something_else(namespace, result, annotation, message):
    def f(x):
        return result(x)

    f.__annotations__ = {"x": Tensor, "return": annotation}
    op = wb.op(f"{namespace}::f")(f)
    with pytest.raises(SchemaError, match=f"{namespace}::f.*{message}"):
        op(torch.ones(3))


def test_none_is_an_empty_result(namespace):
    calls = []

    @wb.op(f"{namespace}::note")
    def note(x: Tensor) -> None:
        calls.append(x.shape)

    assert note(torch.ones(3)) is None
    assert note.torch_op(torch.ones(2)) is None
    assert calls == [(3,), (2,)]


def test_the_class_makes_no_ops():
    for given in ((), ("lab::f",), (lambda x: x,)):
        with pytest.raises(SchemaError, match=r'ops are made by @wb.op\("lab::name"\) over a function, or by a cell'):
            wb.Op(*given)


def test_an_op_without_reference_says_so(namespace):
    op = wb.op(f"{namespace}::f(Tensor x, float b=1.0) -> Tensor")
    assert op.reference is None and repr(op) == f"<{namespace}::f(Tensor x, float b=1.0) -> Tensor | nothing yet>"
    with pytest.raises(
        SchemaError, match=r"has no reference and no kernel .*; install one with a cell, or give it a reference: a func"
    ):
        op(torch.ones(2))
    with pytest.raises(SchemaError, match=r"has no fake: .*give one with @op.fake"):
        op(torch.ones(2, device="meta"))

    @op.fake
    def _(x, b=1.0):
        return torch.empty_like(x)

    @op.kernel("cpu")
    def _(x, b=1.0):
        return x + b

    assert op(torch.ones(2)).tolist() == [2, 2]
    assert torch.compile(op, fullgraph=True, backend="aot_eager")(torch.ones(2), 2.0).tolist() == [3, 3]


# ---------------------------------------------------------------- decorators


def test_kernel_on_a_device(rms):
    @rms.kernel("cpu")
    def fast(x, w, eps=1e-6):
        """Torch's own."""
        return torch.nn.functional.rms_norm(x, w.shape, w, eps)

    x, w = torch.randn(3, 8), torch.randn(8)
    torch.testing.assert_close(rms(x, w), expected(x, w))
    assert rms.versions[1].title == "Torch's own."
    assert rms.slots["forward", "cpu"].number == 1
    rms.restore(0)
    assert dict(rms.slots) == {}
    rms.restore(1)
    assert rms.slots["forward", "cpu"].number == 1
    with pytest.raises(SchemaError, match=r"rms has no version 7; the last one is 1"):
        rms.restore(7)


def test_functions_without_defaults_are_given_all_arguments(namespace):
    """torch leaves out the last arguments where they are as by default."""

    @wb.op(f"{namespace}::line")
    def line(x: Tensor, k: float = 2.0, *, b: float = 1.0) -> Tensor:
        return x * k + b

    line.cases(lambda t: [t(3)])
    seen = []

    @line.kernel("cpu")
    def _(x, k, *, b):
        seen.append((k, b))
        return x * k + b

    @line.fake
    def _(x, k, *, b):
        assert (k, b) == (2.0, 1.0)
        return torch.empty_like(x)

    @line.backward
    def _(grad_out, k, *, b):
        return grad_out * k * b

    x = torch.ones(2, requires_grad=True)
    assert line(x).tolist() == torch.compile(lambda t: line(t), backend="aot_eager")(x).tolist() == [3, 3]
    assert getattr(torch.ops, namespace).line(x, 3.0).tolist() == [4, 4]
    assert seen[-1] == (3.0, 1.0)
    assert torch.autograd.grad(line(x, b=5.0).sum(), x)[0].tolist() == [10, 10]
    assert line.check().ok


@pytest.mark.parametrize("what", ["kernel", "fake"])
def test_a_function_of_other_arguments(rms, what):
    decorate = rms.kernel("cpu") if what == "kernel" else rms.fake
    with pytest.raises(SchemaError, match=rf"{what} names does not fit, too many .*; write def _\(x, w, eps\)"):
        decorate(lambda x, w: x)
    assert rms(torch.ones(1, 2), torch.ones(2)).shape == (1, 2)


def test_a_kernel_on_an_unknown_device(rms):
    with pytest.raises(SchemaError, match="one device, 'cpu' or 'cuda'; got 'toaster'"):
        rms.kernel("toaster")(lambda x, w, eps=1e-6: x)
    assert dict(rms.slots) == {}


def test_a_kernel_that_differs_is_not_installed(rms):
    @rms.cases
    def _(t):
        yield t(4, 8), t(8)

    with pytest.raises(
        wb.TrialError, match=r"v1 of rms is not installed: it (?s:.*)rms forward still runs the reference"
    ) as caught:

        @rms.kernel("cpu")
        def _(x, w, eps=1e-6):
            return expected(x, w, eps) * 1.5

    assert caught.value.kind == "mismatch"
    assert dict(rms.slots) == {}
    assert rms.versions[1].refused
    with pytest.raises(SchemaError, match=r"v1 of rms is not installed: it "):
        rms.restore(1)


def test_a_kernel_with_another_number_of_results(namespace):
    @wb.op(f"{namespace}::two")
    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 1, x * 2

    @two.kernel("cpu")
    def _(x):
        return x * 1

    with pytest.raises(SchemaError, match=r"the kernel returned 1 results, 2 are wanted"):
        two(torch.ones(2))


def test_fake_where_the_reference_cannot_tell(namespace):
    @wb.op(f"{namespace}::positive")
    def positive(x: Tensor) -> Tensor:
        return x[x > 0]

    @positive.fake
    def _(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size())

    x = torch.tensor([1.0, -1.0, 2.0])
    compiled = torch.compile(lambda t: positive(t) * 2, fullgraph=True, backend="aot_eager")
    for value in (x, torch.tensor([-1.0]), torch.tensor([3.0])):
        assert compiled(value).tolist() == [2 * v for v in value.tolist() if v > 0]


def test_cases(rms):
    @rms.cases(dtypes=(torch.float32, torch.bfloat16))
    def _(t):
        yield t(4, 8), t(8)
        yield wb.case("bench", t(64, 8), t(8), bench=True)

    assert [(c.name, c.dtype) for c in rms.case_list()] == [("4x8", torch.float32), ("4x8", torch.bfloat16)]
    assert len(rms.case_list(bench=True)) == 4


def test_shapes_are_learnt_from_calls_of_the_reference(rms):
    assert rms.case_list() == ()
    rms(torch.ones(2, 3), torch.ones(3))
    rms(torch.zeros(2, 3), torch.ones(3))
    rms(torch.ones(4, 5), torch.ones(5))
    assert len(rms.case_list()) == 2
    for n in range(1, 30):
        rms(torch.ones(n, 3), torch.ones(3))
    assert len(rms.case_list()) == 8


def test_tracing_teaches_no_cases(rms):
    torch.compile(rms, fullgraph=True, backend="aot_eager")(torch.ones(2, 3), torch.ones(3))
    assert len(rms.case_list()) == 1


def test_op_without_a_name_says_what_to_write():
    with pytest.raises(SchemaError, match=r'wb.op needs the op\'s name: write @wb.op\("lab::scale"\) above def scale'):

        @wb.op
        def scale(x: Tensor) -> Tensor:
            return x * 2

    with pytest.raises(SchemaError, match=r'takes the op\'s name first, a string; got 3. Write @wb.op\("lab::name"\)'):
        wb.op(3)
    with pytest.raises(SchemaError, match="takes the op's name first"):
        wb.op(lambda x: x)


def test_an_op_under_op_is_refused(rms):
    with pytest.raises(SchemaError, match="the function under wb.op is an op already"):
        wb.op("lab::again")(rms)


def test_mutates_typo_leaves_nothing_behind(namespace):
    with pytest.raises(SchemaError, match=r"did you mean 'out'\?"):

        @wb.op(f"{namespace}::f", mutates="oot")
        def f(x: Tensor, out: Tensor) -> None: ...

    assert f"{namespace}::f" not in wb.ops
    assert not hasattr(getattr(torch.ops, namespace), "f")


# ---------------------------------------------------------------- life


def test_an_op_defined_inside_a_function_stays(namespace):
    def setup():
        @wb.op(f"{namespace}::stays")
        def stays(x: Tensor) -> Tensor:
            return x + 1

    setup()
    gc.collect()
    assert getattr(torch.ops, namespace).stays(torch.ones(2)).tolist() == [2, 2]
    x = torch.ones(2, requires_grad=True)
    getattr(torch.ops, namespace).stays(x).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_two_ops_with_the_same_bare_name(namespace):
    @wb.op(f"{namespace}a::same")
    def one(x: Tensor) -> Tensor:
        return x + 1

    @wb.op(f"{namespace}b::same")
    def two(x: Tensor) -> Tensor:
        return x + 2

    x = torch.zeros(1)
    assert (one(x).item(), two(x).item()) == (1, 2)
    compiled = torch.compile(lambda t: one(t) + two(t) * 10, fullgraph=True, backend="aot_eager")
    assert compiled(x).item() == 21
    with pytest.raises(
        SchemaError, match=rf"'same' could be .*{namespace}a::same or {namespace}b::same.*; write one of these"
    ):
        wb.cpp("same", "void same() {}")


# ---------------------------------------------------------------- autocast


def test_autocast_is_off_inside(namespace):
    seen = []

    @wb.op(f"{namespace}::mm")
    def mm(a: Tensor, b: Tensor) -> Tensor:
        out = a @ b
        seen.append(out.dtype)
        return out

    a, b = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    plain = mm(a, b)
    compiled = torch.compile(lambda p, q: mm(p, q), fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        assert (a @ b).dtype is torch.bfloat16
        for call in (mm, mm.torch_op, compiled):
            out = call(a, b)
            assert out.dtype is torch.float32
            torch.testing.assert_close(out, plain)
            (g,) = torch.autograd.grad(out.sum(), [a])
            torch.testing.assert_close(g, b.sum(1).expand(4, 4))
    assert set(seen) == {torch.float32}


# ---------------------------------------------------------------- traced


def test_torch_opcheck(rms):
    for x in (torch.randn(5, 7), torch.randn(5, 7, requires_grad=True), torch.randn(7, 5).t()):
        found = torch.library.opcheck(rms.torch_op, (x, torch.randn(x.shape[-1], requires_grad=True)))
        assert set(found.values()) == {"SUCCESS"}
        assert len(found) == 4


def test_meta_and_fake_tensors(rms):
    out = rms(torch.ones(3, 4, device="meta"), torch.ones(4, device="meta"))
    assert (out.shape, out.device.type) == ((3, 4), "meta")
    with torch._subclasses.FakeTensorMode():
        assert rms(torch.ones(3, 4), torch.ones(4)).shape == (3, 4)


def test_the_fake_specialises_no_size(rms):
    class Model(torch.nn.Module):
        def forward(self, x, w):
            return rms(x, w) * 2

    exported = torch.export.export(
        Model(),
        (torch.randn(4, 8), torch.randn(8)),
        dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
    )
    assert any(n.target is rms.torch_op for n in exported.graph.nodes)
    for rows, cols in ((3, 5), (7, 123), (2, 2)):
        x, w = torch.randn(rows, cols), torch.randn(cols)
        torch.testing.assert_close(exported.module()(x, w), expected(x, w) * 2)


def test_a_size_as_an_argument_stays_symbolic(namespace):
    @wb.op(f"{namespace}::rows")
    def rows(x: Tensor, n: int) -> Tensor:
        return x.new_ones(n, x.size(1)) * 2

    graphs = []

    def backend(gm, _):
        graphs.append(gm)
        return gm.forward

    compiled = torch.compile(lambda t: rows(t, t.size(0) + 1), fullgraph=True, dynamic=True, backend=backend)
    for n in (3, 4, 5, 9, 17):
        assert compiled(torch.ones(n, 2)).shape == (n + 1, 2)
    assert len(graphs) == 1


def test_five_sizes_are_few_graphs(rms):
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x, w: rms(x, w), dynamic=True, fullgraph=True, backend=counter)
    for rows, cols in ((2, 3), (4, 5), (6, 7), (8, 9), (33, 123)):
        x, w = torch.randn(rows, cols, requires_grad=True), torch.randn(cols)
        torch.testing.assert_close(compiled(x, w), expected(x, w))
        torch.testing.assert_close(
            torch.autograd.grad(compiled(x, w).sum(), x), torch.autograd.grad(expected(x, w).sum(), x)
        )
    assert counter.frame_count <= 2


def test_compiled_inside_a_module(rms):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(8))
            self.norm = rms

        def forward(self, x):
            return self.norm(x, self.weight) + rms.torch_op(x, self.weight)

    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True)
    x = torch.randn(3, 8)
    torch.testing.assert_close(compiled(x), layer(x))
    (eager,) = torch.autograd.grad(layer(x).sum(), [layer.weight])
    (g,) = torch.autograd.grad(compiled(x).sum(), [layer.weight])
    torch.testing.assert_close(g, eager)
    assert copy.deepcopy(layer).norm is rms
    assert pickle.loads(pickle.dumps(rms.torch_op.name())) == rms.torch_op.name()


def test_export_then_save_and_run(rms, tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x, w):
            return rms(x, w)

    x, w = torch.randn(3, 8), torch.randn(8)
    path = str(tmp_path / "model.pt2")
    torch.export.save(torch.export.export(Model(), (x, w)), path)
    torch.testing.assert_close(torch.export.load(path).module()(x, w), expected(x, w))


def test_make_fx_keeps_the_op_whole(rms):
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(lambda x, w: rms(x, w), tracing_mode="symbolic")(torch.randn(3, 8), torch.randn(8))
    assert [n.target for n in traced.graph.nodes if n.op == "call_function"] == [rms.torch_op]


def test_a_reference_that_closes_over_a_tensor(namespace):
    table = torch.arange(3.0)

    @wb.op(f"{namespace}::looked_up")
    def looked_up(x: Tensor) -> Tensor:
        return x * table

    x = torch.ones(3)
    assert looked_up(x).tolist() == [0, 1, 2]
    compiled = torch.compile(looked_up, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"uses a tensor that is not among its arguments.*; take that tensor as an arg"):
        compiled(x)

    @looked_up.fake
    def _(x):
        return torch.empty_like(x)

    assert compiled(x).tolist() == [0, 1, 2]


def test_dispatch_modes_see_one_name(rms):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x, w = torch.ones(2, 3), torch.ones(3)
    with Watch():
        rms(x, w)
    assert seen[0] is rms.torch_op


def test_tensor_subclasses_see_the_op(rms):
    seen = []

    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    out = rms(torch.ones(2, 3).as_subclass(Sub), torch.ones(3))
    assert isinstance(out, Sub)
    assert rms.torch_op in seen
