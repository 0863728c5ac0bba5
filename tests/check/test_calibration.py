"""The rule of agreement passes correct kernels and refuses wrong ones: what its floors were chosen by."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from workbench import schema
from workbench.case import make
from workbench.check import rule
from workbench.check.agree import expected, judge
from workbench.check.full.doubt import doubtful, second_opinion
from workbench.check.gradients import expected_gradients

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NORM = schema.parse("lab::rmsnorm(Tensor x, Tensor w, float eps=1e-6) -> Tensor")
ONE = schema.parse("lab::one(Tensor x) -> Tensor")
TWO = schema.parse("lab::two(Tensor a, Tensor b) -> Tensor")
THREE = schema.parse("lab::three(Tensor q, Tensor k, Tensor v) -> Tensor")


def running(x):
    """Sums along the last dimension, one element after the other, in float32."""
    total = torch.zeros(x.shape[:-1])
    for column in x.float().unbind(-1):
        total = total + column
    return total[..., None]


def rmsnorm(x, w, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def rmsnorm_float(x, w, eps=1e-6):
    xf = x.float()
    return (xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * w


def norm_sequential(x, w, eps=1e-6):
    return (x.float() * torch.rsqrt(running(x.float() ** 2) / x.size(-1) + eps) * w.float()).to(x.dtype)


def norm_rounding_between(x, w, eps=1e-6):
    r = torch.rsqrt(running(x.float() ** 2) / x.size(-1) + eps)
    return ((x.float() * r).to(x.dtype).float() * w.float()).to(x.dtype)


def norm_reciprocal(x, w, eps=1e-6):
    r = 1 / torch.sqrt(running(x.float() ** 2) * (torch.ones(()) / x.size(-1)) + eps)
    return (x.float() * w.float() * r).to(x.dtype)


def softmax(x):
    return x.softmax(-1)


def softmax_sequential(x):
    e = torch.exp(x.float() - x.float().amax(-1, keepdim=True))
    return (e * (1 / running(e))).to(x.dtype)


def softmax_exp2(x):
    scaled = x.float() * 1.4426950408889634
    e = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
    return (e / running(e)).to(x.dtype)


def layernorm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def layernorm_one_pass(x):
    mean = running(x) / x.size(-1)
    variance = running(x.float() ** 2) / x.size(-1) - mean * mean
    return ((x.float() - mean) * torch.rsqrt(variance + 1e-5)).to(x.dtype)


def gelu(x):
    return torch.nn.functional.gelu(x)


def gelu_erf(x):
    return (x.float() * 0.5 * (1 + torch.erf(x.float() * 0.7071067811865476))).to(x.dtype)


def matmul(a, b):
    return a @ b


def matmul_sequential(a, b):
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1].float() * b[k : k + 1].float()
    return total.to(a.dtype)


def matmul_split(a, b):
    parts = [matmul_sequential(x.float(), y.float()) for x, y in zip(a.chunk(8, 1), b.chunk(8, 0), strict=True)]
    return sum(parts).to(a.dtype)


def attention(q, k, v):
    return ((q @ k.mT).float() * q.size(-1) ** -0.5).softmax(-1).to(v.dtype) @ v


def attention_online(q, k, v):
    s = q.float() @ k.float().mT * q.size(-1) ** -0.5
    p = torch.exp(s - s.amax(-1, keepdim=True))
    return (p.to(v.dtype).float() @ v.float() / p.sum(-1, keepdim=True)).to(v.dtype)


def norm_cases(t):
    for columns in (1, 4, 33, 123, 1024, 8192):
        yield t(5, columns), t(columns)


def row_cases(t):
    for columns in (1, 4, 33, 123, 1024, 8192):
        yield t(5, columns)
    yield t(5, 123, low=-40, high=40)


def matmul_cases(t):
    for m, k, n in ((65, 130, 33), (5, 4096, 1), (1, 4096, 1), (7, 2048, 3), (64, 7, 5)):
        yield t(m, k), t(k, n)
    yield t(8, 2048, low=0), t(2048, 8, low=0)


def attention_cases(t):
    yield tuple(t(1, 2, 100, 32) for _ in range(3))


CORRECT = [
    (NORM, rmsnorm, norm_sequential, norm_cases),
    (NORM, rmsnorm_float, norm_sequential, norm_cases),
    (NORM, rmsnorm, norm_rounding_between, norm_cases),
    (NORM, rmsnorm_float, norm_reciprocal, norm_cases),
    (ONE, softmax, softmax_sequential, row_cases),
    (ONE, softmax, softmax_exp2, row_cases),
    (ONE, layernorm, layernorm_one_pass, row_cases),
    (ONE, gelu, gelu_erf, row_cases),
    (TWO, matmul, matmul_sequential, matmul_cases),
    (TWO, matmul, matmul_split, matmul_cases),
    (THREE, attention, attention_online, attention_cases),
]


@pytest.mark.parametrize(("op", "reference", "kernel", "cases"), CORRECT, ids=[c[2].__name__ for c in CORRECT])
def test_correct_kernels_agree_in_every_dtype(op, reference, kernel, cases):
    for case in make(cases, op, DTYPES):
        wanted = expected(reference, op, case)
        outcome = judge({"out": kernel(**wanted.inputs())}, wanted)
        assert outcome.status == "agree", f"{case.label}: {outcome.detail}"
        assert outcome.share < (0.95 if case.dtype is torch.float32 else 0.5), case.label


def off_by_one(y):
    y[0] = y[0].roll(1)


def zero_row(y):
    y[2] = 0


def zero_last_column(y):
    y[:, -1] = 0


def last_column_twice(y):
    y[:, -1] = y[:, -2]


def one_element(y):
    y[1, 7] = y[1, 8]


def two_percent(y):
    y.mul_(1.02)


MUTANTS = [off_by_one, zero_row, zero_last_column, last_column_twice, one_element, two_percent]


@pytest.mark.parametrize("mutate", MUTANTS, ids=[m.__name__ for m in MUTANTS])
def test_mutants_differ_in_every_dtype(mutate):
    def cases(t):
        yield t(4, 128), t(128)
        yield t(5, 123), t(123)
        yield t(16, 1024), t(1024)

    for case in make(cases, NORM, DTYPES):
        wanted = expected(rmsnorm_float, NORM, case)
        inputs = wanted.inputs()
        y = norm_sequential(**{**inputs, "x": inputs["x"].float(), "w": inputs["w"].float()})
        mutate(y)
        outcome = judge({"out": y.to(inputs["x"].dtype)}, wanted)
        assert outcome.status == "mismatch", f"{case.label}: at {outcome.share} of what is allowed"


def test_one_percent_differs_but_in_bfloat16_where_it_is_about_one_rounding():
    for case in make(norm_cases, NORM, (torch.float32, torch.float16)):
        wanted = expected(rmsnorm_float, NORM, case)
        y = norm_sequential(**wanted.inputs())
        assert judge({"out": (y.float() * 1.01).to(y.dtype)}, wanted).status == "mismatch", case.label


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_another_eps_differs_where_it_matters(eps):
    for case in make(lambda t: [(t(4, 128, low=-1e-3, high=1e-3), t(128))], NORM, DTYPES):
        wanted = expected(rmsnorm_float, NORM, case)
        inputs = {**wanted.inputs(), "eps": eps}
        assert judge({"out": norm_sequential(**inputs)}, wanted).status == "mismatch"


def test_accumulating_in_half_differs():
    for case in make(lambda t: [(t(16, 1024), t(1024))], NORM, (torch.float16, torch.bfloat16)):
        wanted = expected(rmsnorm_float, NORM, case)
        x, w, eps = wanted.inputs().values()
        total = torch.zeros(16, dtype=x.dtype)
        for column in x.unbind(-1):
            total = total + column * column
        y = (x.float() * torch.rsqrt(total.float()[:, None] / 1024 + eps) * w.float()).to(x.dtype)
        assert judge({"out": y}, wanted).status == "mismatch"


def test_a_zero_row_of_small_numbers_differs_beside_large_rows():
    """The reason for judging row by row: overall it would drown in what the large rows are allowed."""
    true = torch.randn(4, 64, dtype=torch.float64) * torch.tensor([[1.0], [1e-4], [1.0], [1.0]])
    reference = true.bfloat16().double()
    got = reference.clone()
    got[1] = 0
    assert rule.agrees(reference, reference, true, torch.bfloat16).share < 1
    verdict = rule.agrees(got, reference, true, torch.bfloat16)
    assert verdict.share > 10 and verdict.wrong[1].any() and not verdict.wrong[[0, 2, 3]].any()


def causal_attention(q, k, v):
    s = (q @ k.mT).float() * q.size(-1) ** -0.5
    s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -float("inf"))
    return s.softmax(-1).to(v.dtype) @ v


def flash_backward(grad, q, k, v):
    """As FlashAttention computes it: the sums of the softmax's backward from the rounded output."""
    dtype, (grad, q, k, v), out = q.dtype, (x.float() for x in (grad, q, k, v)), causal_attention(q, k, v).float()
    s = (q @ k.mT * q.size(-1) ** -0.5).masked_fill(
        torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).triu(1), -float("inf")
    )
    p = torch.exp2(s * 1.4426950408889634 - (s.logsumexp(-1) * 1.4426950408889634)[..., None])
    ds = p * (grad @ v.mT - (grad * out).sum(-1, keepdim=True))
    rounded = ds.to(dtype).float()
    grads = rounded @ k * q.size(-1) ** -0.5, rounded.mT @ q * q.size(-1) ** -0.5, p.to(dtype).float().mT @ grad
    return dict(zip(("grad_q", "grad_k", "grad_v"), (x.to(dtype) for x in grads), strict=True))


def test_the_backward_of_causal_attention_agrees_although_rows_of_it_vanish():
    for case in make(attention_cases, THREE, DTYPES):
        wanted = expected_gradients(causal_attention, THREE, case)
        got = flash_backward(wanted.cotangents["out"], **wanted.inputs())
        outcome = judge(got, wanted)
        assert outcome.status == "agree", f"{case.label}: {outcome.detail}"
        assert outcome.share < 0.95, case.label
        first_query = wanted.outputs[0].true[0, 0, 0]
        assert torch.equal(first_query, torch.zeros(32, dtype=torch.float64))
        for wrong in (0.0, 1e-2):
            mutant = {n: x.clone() for n, x in got.items()}
            mutant["grad_q"][0, 1, 60] *= wrong
            mutant["grad_q"][0, 0, 0] += wrong
            assert judge(mutant, wanted).status == "mismatch", case.label


def test_a_row_of_an_output_may_not_vanish_as_one_of_a_gradient_may():
    true = torch.randn(4, 64, dtype=torch.float64) * torch.tensor([[1.0], [0.0], [1.0], [1.0]])
    got = true + 2e-7
    assert rule.agrees(got, true, true, torch.float32).wrong[1].all()
    assert rule.agrees(got, true, true, torch.float32, cancels=True).share == pytest.approx(
        2e-7 / (rule.SHARE_OF_THE_WHOLE * rule.floor(torch.float32) * true.abs().max().item()), rel=1e-4
    )


def decayed(x):
    """Row r counts a thousandth of the row before it."""
    return (x * 1e-3 ** torch.arange(x.size(0), dtype=x.dtype)[:, None]).sum(0)


@pytest.mark.parametrize("row", range(1, 5))
def test_a_row_of_a_gradient_that_is_small_beside_the_others_may_not_be_wrong(row):
    """Nothing cancels in it: that it is below the rounding of the largest row excuses nothing."""
    case = make(lambda t: [t(6, 64)], ONE)[0]
    wanted = expected_gradients(decayed, ONE, case)
    right = {"grad_x": wanted.outputs[0].value}
    assert judge(right, wanted).status == "agree"
    for wrong in (0.0, 1.001):
        mutant = {"grad_x": right["grad_x"].clone()}
        mutant["grad_x"][row] *= wrong
        outcome = judge(mutant, wanted)
        assert outcome.status == "mismatch" and outcome.mismatch.worst[0][0][0] == row


def softmax_backward(grad, y):
    """In float32, from the rounded probabilities."""
    grad, p = grad.float(), y.float()
    return (p * (grad - (grad * p).sum(-1, keepdim=True))).to(y.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_that_vanishes_everywhere_is_judged_by_its_terms(dtype):
    """That of softmax(x).sum(): zero, but for the rounding of what it is a difference of."""
    case = make(lambda t: [t(5, 123)], ONE, [dtype])[0]
    wanted = expected_gradients(softmax, ONE, case, spread=True)
    grad, y = wanted.cotangents["out"], softmax(case.args[0])
    assert judge({"grad_x": softmax_backward(grad, y)}, wanted).status == "agree"
    for share in (1.0, 0.1):
        wrong = softmax_backward(grad, y) + share * grad * y
        assert judge({"grad_x": wrong}, wanted).status == "mismatch", share


@pytest.mark.parametrize("length", [2, 3])
def test_attention_over_few_keys_is_a_small_difference_everywhere(length):
    for case in make(lambda t: [tuple(t(1, 2, length, 32) for _ in range(3))], THREE, DTYPES):
        wanted = expected_gradients(causal_attention, THREE, case)
        got = flash_backward(wanted.cotangents["out"], **wanted.inputs())
        outcome = judge(got, wanted)
        if doubtful(outcome.share):  # as in a full check
            again = partial(expected_gradients, causal_attention, THREE)
            outcome = judge(got, second_opinion(wanted, again))
        assert outcome.status == "agree", case.label
        got["grad_q"][0, 0] *= 1.1
        assert judge(got, wanted).status == "mismatch", case.label


def gelu_backward(x, grad):
    v = x.float()
    slope = 0.5 * (1 + torch.erf(v * 0.7071067811865476)) + v * 0.3989422804014327 * torch.exp(-0.5 * v * v)
    return (grad.float() * slope).to(x.dtype)


def test_what_cancels_inside_of_one_op_of_torch_is_seen():
    """1 + erf(x) far to the left, in aten::gelu_backward: a row of numbers like -6 is next to nothing there."""
    for case in make(lambda t: [t(4, 64, low=-6, high=-5), t(5, 64, low=-6, high=6)], ONE, DTYPES):
        wanted = expected_gradients(gelu, ONE, case)
        got = gelu_backward(case.args[0], wanted.cotangents["out"])
        assert judge({"grad_x": got}, wanted).status == "agree", case.label
        assert judge({"grad_x": got * 1.1}, wanted).status == "mismatch" or case.args[0].max() < 0


def test_terms_tell_what_a_row_is_a_difference_of():
    case = make(attention_cases, THREE)[0]
    wanted = expected_gradients(causal_attention, THREE, case)
    terms, true = wanted.terms()["grad_q"], wanted.outputs[0].true
    assert not true[0, 0, 0].any() and terms[0, 0, 0].max() > 0.1 * true.abs().max()
    plain = expected_gradients(decayed, ONE, make(lambda t: [t(6, 64)], ONE)[0])
    largest = plain.terms()["grad_x"].amax(-1) / plain.outputs[0].true.abs().amax(-1)
    assert largest.min() > 0.2 and largest.max() < 4


def test_attention_of_torch_has_a_float64_run():
    """It could draw random numbers, for dropout; without that nothing is drawn, and nothing lowered."""

    def attention(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    for case in make(attention_cases, THREE, DTYPES):
        q, k, v = (x.double() for x in case.args)
        true = torch.softmax(q @ k.mT * q.size(-1) ** -0.5, -1) @ v
        assert torch.allclose(expected(attention, THREE, case).outputs[0].true, true, rtol=0, atol=1e-12)


def test_floors():
    assert rule.floor(torch.float32) == 32 * 2**-23
    assert rule.floor(torch.float64) == 32 * 2**-52
    assert rule.floor(torch.bfloat16) == 2**-7
    assert rule.floor(torch.float16) == 2**-10


def test_error_and_slack_loosen_the_rule():
    true = torch.linspace(1, 2, 64, dtype=torch.float64)
    reference = true + 1e-3
    got = true + 2.5e-3
    assert rule.agrees(got, reference, true, torch.float32).share == pytest.approx(1.25, rel=0.01)
    assert rule.agrees(got, reference, true, torch.float32, error=5.0).share == pytest.approx(0.5, rel=0.01)
    exact = rule.agrees(true * (1 + 1e-5), true, true, torch.float32)
    assert exact.share > 1 > rule.agrees(true * (1 + 1e-5), true, true, torch.float32, slack=8.0).share


def test_short_rows_are_judged_together():
    true = torch.randn(64, 1, dtype=torch.float64)
    reference, got = true.clone(), true.clone()
    reference[::2] += 1e-4  # by luck exact in every other row
    got[1::2] += 1e-4
    assert rule.agrees(got, reference, true, torch.float32).share == pytest.approx(0.5, rel=0.1)


def test_empty_outputs_agree():
    nothing = torch.empty(0, 5, dtype=torch.float64)
    verdict = rule.agrees(nothing, nothing, nothing, torch.float32)
    assert verdict.share == 0 and verdict.wrong.shape == (0, 5)
