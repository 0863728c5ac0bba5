"""What a kernel touches besides its outputs, and what it does not touch of them."""

from __future__ import annotations

import pytest
import torch

from tests.trial.rogue import Rogue
from workbench.trial import Job, Meta, Parcel, Step

OUT = "out (shape (5, 123), float32)"
X = "x (shape (5, 123), float32)"


@pytest.mark.parametrize(
    ("name", "status", "detail"),
    [
        ("writes_one_more", "overrun", f"writes past the end of {OUT}: flat element 615 of 615, 4 bytes"),
        ("writes_far_behind", "overrun", f"writes past the end of {OUT}: flat element 5615 of 615"),
        ("writes_before", "overrun", f"writes 4 bytes before the start of {OUT}"),
        ("writes_far_before", "overrun", f"writes 8000 bytes before the start of {OUT}"),
        ("reads_far_behind", "overrun", f"reads past the end of {X}: flat element 5615 of 615"),
        (
            "writes_to_its_input",
            "mutation",
            "writes to the argument x[0, 7] (shape (5, 123), float32), which the schema does not let it change",
        ),
    ],
)
def test_a_touch_out_of_bounds_is_named(run, x, name, status, detail):
    for _ in range(3):
        result = run(name, x=x).results[0]
        assert (result.status, result.detail) == (status, detail)
        assert torch.equal(run("twice", x=x).results[0].outputs[0], 2 * x)


def test_one_element_read_past_the_end_is_a_fault_or_nan(run, x):
    assert run("reads_one_more", x=x).results[0].outputs[0][-1, -1].isnan()
    full = torch.ones(1024)
    result = run("reads_one_more", x=full).results[0]
    assert (result.status, result.detail) == (
        "overrun",
        "reads past the end of x (shape (1024,), float32): flat element 1024 of 1024",
    )


def test_a_touched_canary_stops_no_other_case(run, x):
    bad, good = run("writes_one_more", "twice", x=x).results
    assert (bad.status, good.status) == ("overrun", "ok")
    assert torch.equal(bad.outputs[0], torch.ones(5, 123))


def test_elements_that_nothing_wrote_are_counted(run, x):
    half, whole, nan = run("writes_half", "twice", "writes_nan", x=x).results
    assert half.unwritten == (308,) and half.outputs[0].view(-1)[307:].isnan().all()
    assert whole.unwritten == (0,)
    assert nan.unwritten == (0,)  # a NaN of its own is no poison


def test_an_empty_tensor_has_no_room_at_all(run):
    result = run("writes_one_more", x=torch.zeros(0, 3)).results[0]
    assert result.status == "overrun"
    assert run("twice", x=torch.zeros(0, 3)).results[0].outputs[0].shape == (0, 3)


def in_place(worker, path, schema, **tensors):
    parcel = Parcel.of(tensors)
    step = Step("rogue::adds_one", tuple(parcel[n] for n in tensors))
    return worker.run(Job((step,), (Rogue(path, ("adds_one",), inplace=True),), (schema,)), 20).results[0]


def test_a_mutated_argument_comes_back(shared_worker, rogue_path, x):
    result = in_place(shared_worker, rogue_path, "rogue::adds_one(Tensor(a!) x) -> ()", x=x)
    assert result.ok and result.outputs == ()
    assert torch.equal(result.mutated["x"], x + 1)


def test_an_undeclared_mutation_is_named(shared_worker, rogue_path, x):
    result = in_place(shared_worker, rogue_path, "rogue::adds_one(Tensor x) -> ()", x=x)
    assert (result.status, result.detail) == (
        "mutation",
        "writes to the argument x[0, 0] (shape (5, 123), float32), which the schema does not let it change",
    )


def test_a_write_beside_a_mutated_view_is_named(shared_worker, rogue_path):
    base = torch.zeros(3, 4)
    schema = "rogue::adds_one(Tensor(a!) x, Tensor base) -> ()"
    # The kernel takes the column for contiguous: it writes to base[0, 1:4].
    result = in_place(shared_worker, rogue_path, schema, x=base[:, 1], base=base)
    assert result.status == "mutation"
    assert result.detail.startswith("writes to the argument base[0, 2]")
    gaps = in_place(shared_worker, rogue_path, "rogue::adds_one(Tensor(a!) x) -> ()", x=base[:, 1])
    assert gaps.detail.startswith("writes into the gaps of x (shape (3,), float32): byte ")


def test_the_reference_s_strides_are_asked_for(shared_worker, x):
    """The layout op beside each op gives guarded memory with the metadata of the step."""
    layout = (Meta(torch.float32, (123, 5), (1, 123)),)
    step = Step("wb_layout::some__op", (x,), layout=layout, outputs=("y",))
    result = shared_worker.run(
        Job((step, Step("wb_layout::some__op", (x,))), (), ("some::op(Tensor x) -> Tensor",)), 20
    ).results
    assert Meta.of(result[0].outputs[0]) == layout[0]
    assert result[0].unwritten == (615,)
    assert result[1].status == "error" and "strides of the reference, which are not known" in result[1].detail
