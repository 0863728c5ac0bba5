"""What is compared and how the verdict reads: metadata, integers, non-finite values, compare, tolerances, limits."""

from __future__ import annotations

import pytest
import torch

from workbench import schema
from workbench.case import case, make
from workbench.check import agree
from workbench.check.agree import expected, expected_of_version, is_random, judge, leaves
from workbench.errors import SchemaError, WorkbenchError

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
ONE = schema.parse("lab::one(Tensor x) -> Tensor")
CACHE = schema.parse("lab::write_(Tensor k, Tensor(a!) cache, Tensor pos) -> ()")
LISTS = schema.parse("lab::step_(Tensor(a!)[] ps, Tensor[] gs, float lr) -> ()")
QUANT = schema.parse("lab::quantise(Tensor x) -> (Tensor q, Tensor scale)")
TOPK = schema.parse("lab::topk(Tensor x, int k) -> (Tensor values, Tensor indices)")


def one(*shape, **options):
    return make(lambda t: [case("a", t(*shape), **options)], ONE)[0]


def double(x):
    return x * 2


def test_the_reference_agrees_with_itself():
    wanted = expected(double, ONE, one(5, 123))
    outcome = judge({"out": double(**wanted.inputs())}, wanted)
    assert (outcome.case, outcome.dtype, outcome.status, outcome.share) == ("a", "float32", "agree", 0.0)


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (lambda y: y.double(), "out is float64, the reference gives float32"),
        (lambda y: y[:4], "out has shape (4, 123), the reference gives (5, 123)"),
        (lambda y: y.t().contiguous().t(), "out has strides (1, 5), the reference gives (123, 1)"),
    ],
)
def test_metadata_first(change, detail):
    wanted = expected(double, ONE, one(5, 123))
    outcome = judge({"out": change(double(**wanted.inputs()))}, wanted)
    assert (outcome.status, outcome.detail) == ("mismatch", detail)


def test_strides_of_a_transposed_input_are_the_references():
    c = make(lambda t: [t(6, 4).t()], ONE)[0]
    wanted = expected(double, ONE, c)
    assert wanted.outputs[0].strides == (1, 4)
    assert judge({"out": double(**wanted.inputs())}, wanted).status == "agree"
    assert "strides (6, 1)" in judge({"out": double(**wanted.inputs()).contiguous()}, wanted).detail


def test_strides_of_sizes_one_and_zero_mean_nothing():
    wanted = expected(double, ONE, one(1, 5))
    assert judge({"out": double(**wanted.inputs()).as_strided((1, 5), (77, 1))}, wanted).status == "agree"
    wanted = expected(double, ONE, one(0, 5))
    assert judge({"out": torch.empty(5, 0).t()}, wanted).status == "agree"


def test_missing_results():
    wanted = expected(double, ONE, one(3))
    assert judge({}, wanted).detail == "0 results (), the reference gives out"


def test_the_sentence_has_the_digits_that_tell_numbers_apart():
    c = make(lambda t: [torch.tensor([0.15], dtype=torch.float64)], ONE)[0]
    wanted = expected(double, ONE, c)
    said = judge({"out": double(**wanted.inputs()) * (1 + 1e-10)}, wanted).detail
    assert said == "out: 1 of 1 elements differ, most at [0]: 0.30000000003 where 0.3 was wanted"


def test_the_sentence_and_the_worst_element():
    wanted = expected(double, ONE, one(5, 123))
    y = double(**wanted.inputs())
    y[2, 17] += 1000
    y[3, 1] = -50
    outcome = judge({"out": y}, wanted, unwritten={"out": 2})
    right = wanted.outputs[0].value
    assert outcome.detail == (
        f"out: 2 of 615 elements differ, most at [2, 17]: {y[2, 17]:.6g} where {right[2, 17]:.6g} was wanted; "
        "2 were never written"
    )
    m = outcome.mismatch
    assert (m.output, m.shape, m.count, m.total, m.unwritten) == ("out", (5, 123), 2, 615, 2)
    assert [w[0] for w in m.worst] == [(2, 17), (3, 1)]
    assert sum(v > 0 for row in m.wrong for v in row) == 2
    assert outcome.share > 1e5


def test_zero_dimensional_outputs():
    wanted = expected(lambda x: x.sum(), ONE, one(7))
    outcome = judge({"out": torch.tensor(99.0)}, wanted)
    assert outcome.detail.startswith("out: 1 of 1 elements differ, most: 99 where ")


def test_integers_and_booleans_are_equal_every_one():
    reference = lambda x: (x * 10).round().to(torch.int8)
    wanted = expected(reference, ONE, one(50))
    y = reference(**wanted.inputs())
    assert judge({"out": y}, wanted).status == "agree"
    y[3] += 1
    assert judge({"out": y}, wanted).mismatch.count == 1
    wanted = expected(lambda x: x > 0, ONE, one(50))
    assert judge({"out": ~wanted.outputs[0].value}, wanted).mismatch.count == 50


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf"), 0.0])
def test_places_of_infinities_and_nans(wrong):
    def reference(x):
        y = x.clone()
        y[0], y[1] = float("inf"), float("nan")
        return y

    wanted = expected(reference, ONE, one(40))
    y = reference(**wanted.inputs())
    assert judge({"out": y}, wanted).status == "agree"
    y[0] = wrong
    outcome = judge({"out": y}, wanted)
    assert outcome.mismatch.count == 1 and outcome.mismatch.worst[0][0] == (0,)
    y[0], y[5] = float("inf"), float("nan")
    assert judge({"out": y}, wanted).mismatch.worst[0][0] == (5,)


def test_a_kernel_may_be_finite_where_only_the_reference_overflows():
    reference = lambda x: (x * 300).pow(2) / 300 / 300
    c = make(lambda t: [t(40, low=1)], ONE, (F16,))[0]
    wanted = expected(reference, ONE, c)
    assert wanted.outputs[0].value.isinf().any()
    x = wanted.inputs()["x"]
    assert judge({"out": reference(x)}, wanted).status == "agree"
    assert judge({"out": x.float().pow(2).half()}, wanted).status == "agree"
    assert judge({"out": torch.full_like(x, float("nan"))}, wanted).status == "mismatch"


def test_complex_outputs():
    wanted = expected(lambda x: torch.complex(x, x), ONE, one(33))
    y = torch.complex(*[wanted.inputs()["x"]] * 2)
    assert judge({"out": y}, wanted).status == "agree"
    assert judge({"out": y.conj().resolve_conj()}, wanted).mismatch.count == 33


def test_tolerances_of_the_case_replace_the_rule():
    strict, loose = one(40), one(40, atol=0.1)
    wanted = expected(double, ONE, strict)
    y = double(**wanted.inputs()) + 0.05
    assert judge({"out": y}, wanted).status == "mismatch"
    outcome = judge({"out": y}, expected(double, ONE, loose))
    assert outcome.status == "agree" and outcome.share == pytest.approx(0.5, rel=1e-3)
    relative = expected(double, ONE, one(40, rtol=1e-2))
    assert judge({"out": double(**wanted.inputs()) * 1.005}, relative).status == "agree"
    assert judge({"out": double(**wanted.inputs()) * 1.02}, relative).status == "mismatch"


def test_mutated_arguments_are_the_results_and_inputs_are_fresh():
    def write(k, cache, pos):
        cache[pos] = k

    def cases(t):
        base = t(16, 2, 4)
        yield t(3, 4), base[:, 0], torch.tensor([1, 5, 9])

    c = make(cases, CACHE)[0]
    wanted = expected(write, CACHE, c)
    assert [o.name for o in wanted.outputs] == ["cache"]
    inputs = wanted.inputs()
    assert judge(leaves(CACHE, inputs, None), wanted).mismatch.count == 12, "nothing was written yet"
    write(**inputs)
    assert judge(leaves(CACHE, inputs, None), wanted).status == "agree"
    assert judge(leaves(CACHE, wanted.inputs(), None), wanted).status == "mismatch", "the case was not touched"


def test_lists_are_opened():
    def step(ps, gs, lr):
        for p, g in zip(ps, gs, strict=True):
            p.sub_(g * lr)

    c = make(lambda t: [([t(3), t(0), t(2, 2)], [t(3), t(0), t(2, 2)], 0.1)], LISTS)[0]
    wanted = expected(step, LISTS, c)
    assert [o.name for o in wanted.outputs] == ["ps[0]", "ps[1]", "ps[2]"]
    inputs = wanted.inputs()
    step(**{**inputs, "lr": 0.1})
    assert judge(leaves(LISTS, inputs, None), wanted).status == "agree"
    inputs["ps"][2][1, 1] += 1
    assert judge(leaves(LISTS, inputs, None), wanted).detail.startswith("ps[2]: 1 of 4 elements differ, most at [1, 1]")


def quantise(x):
    scale = x.abs().amax().float().clamp(min=1e-8) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def quantise_compare(x, q, scale):
    return ((q * scale - x).abs() / scale).clamp(min=0.5), scale


def test_compare_allows_either_rounding_of_a_half_and_nothing_else():
    def cases(t):
        halves = t(33, 100, low=-99, high=99).floor() + 0.5
        yield torch.where(torch.arange(100) == 7, 127.0, halves).to(t.dtype)  # so the scale is 1

    for c in make(cases, QUANT, (F32, BF16)):
        wanted = expected(quantise, QUANT, c, quantise_compare)
        q, scale = quantise(**wanted.inputs())
        x = wanted.inputs()["x"].float()
        assert not torch.equal(x.ceil(), q.float())
        assert judge({"q": x.ceil().to(torch.int8), "scale": scale}, wanted).status == "agree"
        outcome = judge({"q": (x - 1).floor().to(torch.int8), "scale": scale}, wanted)
        assert outcome.status == "mismatch" and outcome.mismatch.output == "compared[0]"
        assert judge({"q": q, "scale": scale * 1.05}, wanted).status == "mismatch"
        assert judge({"q": q.float(), "scale": scale}, wanted).detail == "q is float32, the reference gives int8"


def test_compare_of_topk_takes_ties_in_any_order_and_survives_wild_indices():
    gathered = lambda x, k, values, indices: (values, x.gather(-1, indices))
    c = make(lambda t: [(t(4, 128, low=0, high=4).round(), 5)], TOPK)[0]
    wanted = expected(torch.topk, TOPK, c, gathered)
    values, indices = torch.topk(wanted.inputs()["x"], 5)
    other = (wanted.inputs()["x"] == 4).int().flip(-1).topk(5).indices
    assert not torch.equal(127 - other, indices)
    assert judge({"values": values, "indices": 127 - other}, wanted).status == "agree"
    wrong = judge({"values": values, "indices": indices * 0}, wanted)
    assert wrong.status == "mismatch" and wrong.mismatch.output == "compared[1]"
    wild = judge({"values": values, "indices": indices + 999}, wanted)
    assert wild.status == "mismatch" and wild.detail.startswith("compare could not use the results: RuntimeError")


def test_a_compare_that_returns_nothing_is_an_error_of_its_own():
    with pytest.raises(WorkbenchError, match="lab::one: compare must return tensors, got NoneType"):
        expected(double, ONE, one(3), lambda x, out: None)


def test_random_references_are_found():
    drop = torch.nn.functional.dropout
    seeded = lambda x: x * torch.rand(x.shape, generator=torch.Generator().manual_seed(3))
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert is_random(drop, ONE, one(64))
    assert not is_random(seeded, ONE, one(64))
    assert not is_random(lambda x: x / 0 * 0, ONE, one(64)), "NaN is NaN"
    assert torch.equal(torch.get_rng_state(), before)


def test_a_slow_reference_is_skipped_with_a_reason():
    def slow(x):
        while True:
            x = x + 1

    wanted = expected(slow, ONE, one(3), limit_s=0.05)
    assert wanted.skipped == "the reference took more than 0.05 s"
    outcome = judge({"out": torch.ones(3)}, wanted)
    assert (outcome.status, outcome.detail) == ("skip", wanted.skipped)


def test_a_hungry_reference_is_skipped_with_a_reason(monkeypatch):
    monkeypatch.setattr("workbench.check.float64.WATCHED_BYTES", 100)
    monkeypatch.setattr("workbench.check.float64.available_bytes", lambda device: 4000)
    assert expected(lambda x: x.repeat(1000), ONE, one(3)).skipped == "the reference needs more memory than there is"
    assert not expected(lambda x: x.repeat(100), ONE, one(3)).skipped


def test_a_reference_that_raises_raises():
    with pytest.raises(ZeroDivisionError):
        expected(lambda x: 1 / 0, ONE, one(3))
    with pytest.raises(SchemaError, match="should be a Tensor"):
        expected(lambda x: 3, ONE, one(3))


def test_no_reference():
    assert expected(None, ONE, one(3)).skipped == "the op has no reference"


def test_a_reference_that_looks_at_bits_is_taken_as_exact():
    bits = lambda x: (x.view(torch.int32) & -65536).view(torch.float32)
    wanted = expected(bits, ONE, one(40))
    assert wanted.note.startswith("the reference does not run in float64 (NotImplementedError: it looks at the bits")
    y = bits(**wanted.inputs())
    outcome = judge({"out": y}, wanted)
    assert outcome.status == "agree" and "taken as exact" in outcome.detail
    assert judge({"out": y * 1.001}, wanted).status == "mismatch"


def test_judging_by_a_version_that_is_trusted():
    c = one(5, 100)
    x = c.args[0]
    wanted = expected_of_version(ONE, c, {"out": x * 2})
    assert judge({"out": x * 2 * (1 + 1e-5)}, wanted).status == "agree"
    assert judge({"out": x * 2 * (1 + 1e-4)}, wanted).status == "mismatch"


def test_autocast_is_off():
    with torch.autocast("cpu", dtype=BF16):
        wanted = expected(lambda x: x @ x, ONE, one(8, 8))
    assert wanted.outputs[0].value.dtype is F32


@pytest.mark.parametrize(
    ("shape", "piece"), [((40, 50), 100), ((40, 50), 49), ((7, 3, 16), 100), ((1, 400), 100), ((400, 2), 100)]
)
@pytest.mark.parametrize("wrong", [None, (-1, -1), (3, 0)])
def test_a_large_output_is_judged_in_pieces_as_it_is_as_a_whole(monkeypatch, shape, piece, wrong):
    wanted = expected(torch.sin, ONE, one(*shape))
    got = torch.sin(wanted.inputs()["x"]) * (1 + 2e-7)
    if wrong:
        got.view(shape[0], -1)[min(wrong[0], shape[0] - 1), wrong[1]] += 0.5
    whole = judge({"out": got}, wanted)
    monkeypatch.setattr(agree, "PIECE", {"cpu": piece})
    assert judge({"out": got}, wanted) == whole
    assert whole.status == ("mismatch" if wrong else "agree")
