"""Real launchers in the worker: the same bodies that the notebook installs, dying and wrong in each way."""

from __future__ import annotations

import pytest
import torch

from tests.build.native_tools import cell, compiled
from workbench import schema as schemas
from workbench.build import launcher as launchers
from workbench.trial import Job, Launch, Made, Meta, Parcel, Step

SCHEMA = "trial::scale(Tensor x, float k=2.0) -> Tensor"
FORWARD = "trial::scale_forward(Tensor x, float k=2.0) -> Tensor"
GOOD = "for (int64_t i = 0; i < n; ++i) out[i] = (float)(k * x[i]);"
TEXT = """//! n = x.numel()
//! require x.dim() == 2
//! out = empty(x.shape)
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>
#include <unistd.h>
static volatile int64_t zero = 0;
static int64_t dig(int64_t n) { volatile char hole[256]; hole[0] = (char)n; return n < 0 ? n : dig(n + 1) + hole[0]; }
void scale(const float* x, float* out, double k, int64_t n) { BODY }
"""


def launch(body: str, *, layout: bool = False) -> Launch:
    made = cell(SCHEMA, TEXT.replace("BODY", body))
    text = launchers.render(made.schema, made.declaration, entry="forward")
    return Launch(compiled(text, "launcher"), made.declaration, (made.same(torch.float32),), layout)


def scaled(worker, body: str, *tensors: torch.Tensor, limit_s: float = 20.0, layout: bool = False):
    steps = tuple(
        Step(
            "trial::scale_forward",
            (t, 3.0),
            case=f"case {i}",
            outputs=("out",),
            layout=(Meta.of(t),),
            allocates=("out",),
        )
        for i, t in enumerate(tensors)
    )
    return worker.run(Job(steps, (launch(body, layout=layout),), (SCHEMA, FORWARD)), limit_s)


def assert_right(worker, x):
    result = scaled(worker, GOOD, x).results[0]
    assert (result.status, result.unwritten) == ("ok", (0,))
    assert torch.equal(result.outputs[0], 3 * x)


OUT = "out (shape (5, 123), float32)"
X = "x (shape (5, 123), float32)"
WAYS = {
    "null": ("*(volatile float*)nullptr = 1;", "crash", "through a null pointer"),
    "abort": ("abort();", "crash", "stopped by SIGABRT"),
    "exit": ("exit(3);", "crash", "it ended the process: exit(3)"),
    "thread throws": ('std::thread([] { throw std::runtime_error("boom"); }).join();', "crash", "what():  boom"),
    "division": ("out[0] = (float)(n / zero);", "crash", "an integer division by zero"),
    "stack": ("out[0] = (float)dig(0);", "crash", "the stack overflowed"),
    "null in thread": ("std::thread([] { *(volatile float*)nullptr = 1; }).join();", "crash", "through a null pointer"),
    "files": ("for (int i = 0; i < 4096; ++i) close(i);", "crash", "it closed the file descriptors"),
    "loop": ("while (!zero) {}", "hang", "still running after"),
    "behind": (f"{GOOD} out[n] = 1;", "overrun", f"writes past the end of {OUT}: flat element 615 of 615"),
    "far behind": ("out[n + 99] = 1;", "overrun", f"writes past the end of {OUT}: flat element 714 of 615"),
    "before": (f"{GOOD} out[-1] = 1;", "overrun", f"writes 4 bytes before the start of {OUT}"),
    "reads behind": ("out[0] = x[n + 99];", "overrun", f"reads past the end of {X}: flat element 714 of 615"),
    "input": ("((float*)x)[124] = 1;", "mutation", "writes to the argument x[1, 1] (shape (5, 123), float32)"),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_dying_three_times_and_right_values_after_it(shared_worker, x, way):
    body, status, detail = WAYS[way]
    for _ in range(3):
        worker = shared_worker.pid
        result = scaled(shared_worker, body, x, limit_s=0.5 if status == "hang" else 20).results[0]
        assert (result.status, result.case) == (status, "case 0"), result
        assert detail in result.detail
        assert_right(shared_worker, x)
        assert shared_worker.pid == worker


def test_an_exception_of_the_kernel_and_of_the_launcher(shared_worker, x):
    thrown = scaled(shared_worker, 'throw std::runtime_error("boom");', x).results[0]
    assert thrown.status in {"error", "crash"} and "boom" in thrown.detail
    flat = scaled(shared_worker, GOOD, x.view(-1), x).results
    assert flat[0].status == "error" and "require x.dim() == 2 is not met" in flat[0].detail
    assert torch.equal(flat[1].outputs[0], 3 * x)
    doubles = scaled(shared_worker, GOOD, x.double()).results[0]
    assert doubles.status == "error" and "float64" in doubles.detail


def test_prints_and_unwritten(shared_worker, x):
    result = scaled(shared_worker, r'printf("n is %ld\n", (long)n); out[0] = 7;', x).results[0]
    assert (result.status, result.printed, result.unwritten) == ("ok", "n is 615\n", (614,))


def test_a_transposed_input_gets_the_strides_that_the_reference_has(shared_worker, x):
    result = scaled(shared_worker, GOOD, x.t()).results[0]
    assert (result.status, result.outputs[0].stride()) == ("ok", (1, 123))
    assert torch.equal(result.outputs[0], 3 * x.t())
    asked = scaled(shared_worker, GOOD, x, layout=True).results[0]
    assert torch.equal(asked.outputs[0], 3 * x) and asked.unwritten == (0,)
    behind = scaled(shared_worker, f"{GOOD} out[n] = 1;", x, layout=True).results[0]
    assert (behind.status, behind.detail) == (
        "overrun",
        f"writes past the end of {OUT}: flat element 615 of 615, 4 bytes",
    )


def test_backward_takes_what_forward_saved(shared_worker, x):
    schema = schemas.parse("trial::square(Tensor x) -> Tensor", saves=("twice",))
    forward = cell(schema, "//! n = x.numel()\n//! out = empty(x.shape)\n//! twice = empty(x.shape)\n"
                   "void square(const float* x, float* out, float* twice, int64_t n) "
                   "{ for (int64_t i = 0; i < n; ++i) { out[i] = x[i] * x[i]; twice[i] = 2 * x[i]; } }")  # fmt: skip
    backward = cell(schema, "//! n = x.numel()\n//! grad_x = empty(x.shape)\n"
                    "void backward(const float* x, const float* grad_out, const float* twice, float* grad_x, int64_t n) "
                    "{ for (int64_t i = 0; i < n; ++i) grad_x[i] = grad_out[i] * twice[i]; if (n == 615) ((float*)twice)[5] = 1; }",
                    entry="backward")  # fmt: skip
    libraries = tuple(
        Launch(
            compiled(launchers.render(schema, c.declaration, entry=c.entry), "launcher"),
            c.declaration,
            (c.same(torch.float32),),
        )
        for c in (forward, backward)
    )
    texts = ("trial::square(Tensor x) -> Tensor", "trial::square_forward(Tensor x) -> (Tensor, Tensor)",
             "trial::square_backward(Tensor? grad_out, Tensor x, Tensor out, Tensor twice) -> Tensor")  # fmt: skip

    def both(x):
        parcel = Parcel.of({"x": x, "g": torch.ones_like(x)})
        steps = (
            Step("trial::square_forward", (parcel["x"],), outputs=("out", "twice")),
            Step("trial::square_backward", (parcel["g"], parcel["x"], Made(0, 0), Made(0, 1)), outputs=("grad_x",)),
        )
        first, second = shared_worker.run(Job(steps, libraries, texts), 20).results
        assert torch.equal(first.outputs[0], x * x) and torch.equal(first.outputs[1], 2 * x)
        return second

    assert torch.equal(both(x[:4]).outputs[0], 2 * x[:4])
    second = both(x)  # where the kernel above has its mistake
    # A backward that writes into what the forward saved is caught, by the name that it has there.
    assert (second.status, second.detail.split(" (")[0]) == ("mutation", "writes to the argument twice[0, 5]")
