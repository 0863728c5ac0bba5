"""The GPU trial on its stand-in, the device "cpu": what a step touches, what a job leaves, who takes whose place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import torch

from tests.trial.stand_in import StandIn
from tests.trial.test_client import ROOT, alive, wait_for
from workbench.errors import ToolchainError
from workbench.trial import Job, Made, Meta, Parcel, Step
from workbench.trial.gpu_client import GpuWorker

OUT = "out (shape (5, 123), float32)"


@pytest.fixture(scope="module")
def stand():
    worker = GpuWorker("cpu")
    yield worker
    worker.close()


def job(*names, x, allocates=False, schema="Tensor x) -> Tensor", **options) -> Job:
    steps = tuple(Step(f"stand::{n}", (x,), case=f"case {i}", layout=(Meta.of(x),)) for i, n in enumerate(names))
    unique = tuple(dict.fromkeys(names))
    return Job(steps, (StandIn(unique, allocates, **options),), tuple(f"stand::{n}({schema}" for n in unique))


def right(worker, x):
    result = worker.run(job("twice", x=x), 20).results[0]
    assert (result.status, result.unwritten, result.aliases) == ("ok", (0,), ("",)), result
    assert torch.equal(result.outputs[0], 2 * x)


# ---------------------------------------------------------------- what a step touches


@pytest.mark.parametrize(
    ("name", "status", "detail"),
    [
        ("writes_one_more", "overrun", f"writes past the end of {OUT}: flat element 615 of 615, 4 bytes"),
        ("writes_far_behind", "overrun", f"writes past the end of {OUT}: flat element 5615 of 615, 4 bytes"),
        ("writes_before", "overrun", f"writes 4 bytes before the start of {OUT}"),
        (
            "writes_to_its_input",
            "mutation",
            "writes to the argument x[1, 1] (shape (5, 123), float32), which the schema does not let it change",
        ),
        ("raises", "error", "ValueError: a bad launch"),
    ],
)
def test_a_bad_touch_is_named_and_costs_nothing(stand, x, name, status, detail):
    right(stand, x)
    pid = stand.pid
    first, good = stand.run(job(name, "twice", x=x), 20).results
    assert (first.status, first.detail) == (status, detail)
    assert torch.equal(good.outputs[0], 2 * x)
    assert stand.pid == pid


def test_what_is_read_past_the_end_is_nan(stand, x):
    assert stand.run(job("reads_one_more", x=x), 20).results[0].outputs[0][-1, -1].isnan()


def test_elements_that_nothing_wrote_are_counted(stand, x):
    half = stand.run(job("writes_half", x=x), 20).results[0]
    assert (half.status, half.unwritten) == ("ok", (308,))
    assert half.outputs[0].view(-1)[307:].isnan().all()


def test_prints_come_back_with_their_step(stand, x):
    answer = stand.run(job("prints", "twice", "prints", x=x), 20)
    assert [r.printed for r in answer.results] == ["n is 615\n", "", "n is 615\n"]
    assert answer.printed == "n is 615\n" * 2
    assert stand.run(job("twice", x=x), 20).printed == ""


def test_views_of_one_base_stay_so_and_mutated_ones_come_back(stand):
    base = torch.arange(24.0).view(4, 6)
    parcel = Parcel.of({"a": base[:, 1], "b": base[1:3, 2:5].t()})
    step = Step("aten::add_.Tensor", (parcel["a"], 1.0))
    result = stand.run(Job((step,)), 20).results[0]
    assert torch.equal(result.mutated["self"], base[:, 1] + 1)
    transposed = stand.run(Job((Step("aten::mul.Tensor", (parcel["b"], 2.0)),)), 20).results[0].outputs[0]
    assert torch.equal(transposed, base[1:3, 2:5].t() * 2)


def test_a_write_beside_a_mutated_view_is_named(stand):
    base = torch.zeros(3, 4)
    parcel = Parcel.of({"x": base[:, 1], "y": base})
    steps = (Step("stand::adds", (parcel["x"], parcel["y"])),)
    result = stand.run(Job(steps, (BesideIt(),), ("stand::adds(Tensor(a!) x, Tensor y) -> ()",)), 20).results[0]
    assert (result.status, result.detail) == (
        "mutation",
        "writes to the argument y[0, 2] (shape (3, 4), float32), which the schema does not let it change",
    )


class BesideIt:
    @staticmethod
    def adds(x, y):
        x.add_(1)
        y[:, 2].add_(1)

    def load(self, allocate):
        library = torch.library.Library("stand", "FRAGMENT")
        library.impl("adds", self.adds, "CPU")
        return library


def test_what_a_step_made_goes_to_a_later_one_and_is_guarded_there(stand, x):
    schemas = ("stand::twice(Tensor x) -> Tensor", "stand::writes_to_its_input(Tensor x) -> Tensor")
    steps = (
        Step("stand::twice", (x,)),
        Step("stand::twice", (Made(0),)),
        Step("stand::writes_to_its_input", (Made(0),)),
        Step("stand::twice", (Made(7),)),
    )
    library = StandIn(("twice", "writes_to_its_input"))
    first, second, third, missing = stand.run(Job(steps, (library,), schemas), 20).results
    assert torch.equal(second.outputs[0], 4 * x)
    assert (third.status, third.detail.split(" (")[0]) == ("mutation", "writes to the argument x[1, 1]")
    assert missing.status == "skip"


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.complex128, torch.int8, torch.bool, torch.float8_e4m3fn]
)
def test_every_dtype_and_odd_strides_travel(stand, dtype):
    base = torch.arange(36).to(dtype).view(4, 9)
    x = base[:, ::2].t()
    result = stand.run(Job((Step("aten::as_strided", (x, [5, 4], [2, 9])),)), 20).results[0]
    assert result.ok and result.outputs[0].dtype is dtype
    assert result.outputs[0].stride() == (2, 9) and result.aliases == ("self",)
    assert result.outputs[0].contiguous().view(torch.uint8).tolist() == x.contiguous().view(torch.uint8).tolist()


def test_an_empty_tensor_and_no_tensor(stand):
    assert stand.run(job("twice", x=torch.zeros(0, 3)), 20).results[0].outputs[0].shape == (0, 3)
    assert stand.run(Job((Step("aten::clone", ()),)), 20).results[0].status in {"skip", "error"}


# ---------------------------------------------------------------- code that allocates by itself


@pytest.mark.parametrize(
    ("name", "status", "detail", "unwritten"),
    [
        ("makes_out", "ok", "", (0,)),
        ("makes_half", "ok", "", (308,)),
        ("makes_zeros", "ok", "", (0,)),
        ("makes_and_overruns", "overrun", f"writes past the end of {OUT}: flat element 615 of 615", (0,)),
        (
            "makes_workspace_and_overruns",
            "overrun",
            "writes past the end of an output or workspace of 28 bytes: 0 bytes behind it",
            (0,),
        ),
        ("gives_its_input", "ok", "", (0,)),
    ],
)
def test_its_tensors_are_guarded_and_poisoned(stand, x, name, status, detail, unwritten):
    answer = stand.run(job(name, x=x, allocates=True), 20)
    result = answer.results[0]
    assert answer.guarded
    assert (result.status, result.unwritten) == (status, unwritten), result
    assert result.detail.startswith(detail)
    assert result.aliases == (("x",) if name == "gives_its_input" else ("",))
    if name == "makes_zeros":
        assert torch.equal(result.outputs[0], torch.zeros_like(x))


def test_ops_with_one_kernel_for_all_devices_and_with_none_for_this_one(stand, x):
    asks, lacks = stand.run(
        job("asks_for_the_layout", "asks_for_what_is_not_there", x=x.t(), allocates=True), 20
    ).results
    assert asks.ok and asks.unwritten == (0,)
    assert torch.equal(asks.outputs[0], torch.full_like(x.t(), 3.0)) and asks.outputs[0].stride() == x.t().stride()
    assert lacks.status == "error" and "Could not run 'stand::elsewhere'" in lacks.detail, lacks.detail


def test_a_view_of_what_an_op_gave_is_right(stand, x):
    result = stand.run(job("gives_a_view", x=x, allocates=True), 20).results[0]
    assert result.ok
    torch.testing.assert_close(result.outputs[0], torch.mm(x, x.t())[0])


@pytest.fixture(scope="module")
def host_library():
    from tests.trial import test_allocator as host

    body = " ".join(f'm.impl("{n}", TORCH_BOX(&{n}));' for n in host.NAMES)
    return host.Module(host.cpp.compile(host.TEXT.replace("#BODY#", body), kind="host").path)


@pytest.mark.parametrize(
    ("name", "status", "detail"),
    [
        ("twice", "ok", ""),
        ("one_past", "overrun", f"writes past the end of {OUT}: flat element 615 of 615, 4 bytes"),
        ("one_before", "overrun", f"writes 4 bytes before the start of {OUT}"),
        (
            "temporary",
            "overrun",
            "writes past the end of an output or workspace of 400 bytes: 0 bytes behind it, 4 bytes",
        ),
        (
            "after_free",
            "overrun",
            "writes past the end of an output or workspace of 2460 bytes: 0 bytes behind it, 4 bytes",
        ),
        ("second", "overrun", "writes past the end of out1 (shape (5,), float32): flat element 5 of 5, 4 bytes"),
        (
            "listed",
            "overrun",
            f"writes past the end of {OUT.replace('out', 'out[1]')}: flat element 615 of 615, 4 bytes",
        ),
        ("holes", "ok", ""),
        ("kept", "ok", ""),
        ("poison", "ok", ""),
        ("threads", "ok", ""),
        ("huge", "error", "can't allocate memory"),
        ("nothing", "ok", ""),
    ],
)
def test_functions_in_cpp_are_guarded_too(stand, host_library, x, name, status, detail):
    from tests.trial.test_allocator import RETURNS

    layout = {"second": (Meta.of(x), Meta(torch.float32, (5,), (1,))), "listed": ()}.get(name, (Meta.of(x),))
    schemas = tuple(f"wildhost::{n}(Tensor x) -> {RETURNS.get(n, 'Tensor')}" for n in {name, "twice"})
    steps = (Step(f"wildhost::{name}", (x,), layout=layout), Step("wildhost::twice", (x,), layout=(Meta.of(x),)))
    right(stand, x)
    pid = stand.pid
    first, good = stand.run(Job(steps, (host_library,), schemas), 30).results
    assert first.status == status and detail in first.detail, first
    if name == "holes":
        assert first.unwritten == (7,)
    assert torch.equal(good.outputs[0], 2 * x)
    assert stand.pid == pid


# ---------------------------------------------------------------- what costs the process


CRASHES = {
    "aborts": "stopped by SIGABRT",
    "exits": "it ended the process: exit(3)",
    "dereferences_null": "through a null pointer",
    "loses_its_context": "an assert in a kernel failed: cell:3: void f(float *): block: [0,0,0], thread: [1,0,0] Assertion `n < 3` failed.",
    "loses_it_badly": "an illegal memory access: a kernel reads or writes where there is no memory",
}


@pytest.mark.parametrize("name", CRASHES)
def test_what_ends_the_process_is_named_and_the_spare_takes_over(stand, x, name):
    right(stand, x)
    pid, spare = stand.pid, stand.spare_pid
    started = time.monotonic()
    before, died, after = stand.run(job("twice", name, "twice", x=x), 20).results
    assert (died.status, died.case) == ("crash", "case 1"), died
    assert CRASHES[name] in died.detail
    assert torch.equal(before.outputs[0], 2 * x)
    assert (after.status, after.detail) == ("skip", "not reached")
    assert time.monotonic() - started < 1.0
    assert stand.pid == spare != pid
    right(stand, x)
    wait_for(lambda: not alive(pid))


def test_what_never_ends_is_stopped_at_the_limit(stand, x):
    right(stand, x)
    started, pid, spare = time.monotonic(), stand.pid, stand.spare_pid
    before, hung, after = stand.run(job("twice", "spins", "twice", x=x), 0.5).results
    assert time.monotonic() - started < 2
    assert (hung.status, hung.case) == ("hang", "case 1")
    assert torch.equal(before.outputs[0], 2 * x)
    assert stand.pid == spare
    right(stand, x)
    wait_for(lambda: not alive(pid))


def test_time_spent_on_compiling_does_not_count(stand, x, monkeypatch):
    right(stand, x)
    compiled, hung = stand.run(job("compiles_long", "spins", x=x), 0.5).results
    assert (compiled.status, hung.status) == ("ok", "hang") and torch.equal(compiled.outputs[0], 2 * x)
    monkeypatch.setattr("workbench.trial.watch.COMPILING_S", 0.3)
    [endless] = stand.run(job("compiles_for_ever", x=x), 0.2).results
    assert endless.status == "error" and "Triton still compiles after 0." in endless.detail
    right(stand, x)


def test_a_configuration_that_does_not_fit_is_left_out(stand, x):
    one = job("does_not_fit", "twice", x=x)
    first, second = stand.run(replace(one, steps=(replace(one.steps[0], turn=3), one.steps[1])), 20).results
    assert (first.status, first.detail, first.chosen) == ("skip", "kernel does not fit", ("kernel with B=3",))
    assert second.ok and second.chosen == ()


def test_an_interrupt_leaves_a_worker_that_works(stand, x):
    right(stand, x)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        stand.run(job("spins", x=x), 60)
    right(stand, x)


def test_processes_that_were_killed_are_replaced_without_a_word(stand, x):
    right(stand, x)
    os.kill(stand.pid, signal.SIGKILL)
    right(stand, x)
    for pid in (stand.spare_pid, stand.pid):
        os.kill(pid, signal.SIGKILL)
    right(stand, x)


@pytest.mark.parametrize("way", ["behind", "before", "input", "null", "abort", "loop"])
def test_a_real_launcher_is_tried_and_taken_back(stand, x, way):
    """With C++ in place of CUDA: its hook for memory, its registration, its faults."""
    from tests.trial.test_launchers import WAYS, assert_right, scaled

    body, status, detail = WAYS[way]
    assert_right(stand, x)
    pid = stand.pid
    result = scaled(stand, body, x, limit_s=0.5 if status == "hang" else 20).results[0]
    assert (result.status, result.case) == (status, "case 0"), result
    assert detail in result.detail
    assert (stand.pid == pid) is (status in {"overrun", "mutation"})
    assert_right(stand, x)
    assert_right(stand, x.t().contiguous())


# ---------------------------------------------------------------- what a job leaves


def test_jobs_do_not_see_each_other(stand, x, monkeypatch, tmp_path):
    right(stand, x)
    pid = stand.pid
    other = stand.run(job("twice", x=x, schema="Tensor x, int[] more=[]) -> Tensor"), 20).results[0]
    assert torch.equal(other.outputs[0], 2 * x)  # another schema under the same name
    bad = stand.run(Job((Step("stand::twice", (x,)),)), 20).results[0]
    assert bad.status == "error" and "twice" in bad.detail  # the op of the job before is gone
    twice_over = Job(
        (Step("stand::twice", (x,)),), (StandIn(("twice", "unknown")),), ("stand::twice(Tensor x) -> Tensor",)
    )
    assert stand.run(twice_over, 20).results[0].status == "error"  # its library does not load
    right(stand, x)
    assert stand.pid == pid
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SAID_LATER", "yes")
    for value in (1, 22):
        (tmp_path / "stand_beside.py").write_text(f"VALUE = {value}")
        printed = stand.run(job("where_am_i", x=x), 20).printed
        assert printed == f"yes {tmp_path} {value}\n"
    monkeypatch.delenv("SAID_LATER")
    assert stand.run(job("where_am_i", x=x), 20).printed.startswith("None ")
    assert stand.pid == pid


def test_a_job_that_leaves_ops_behind_costs_the_process(stand, x):
    right(stand, x)
    pid, spare = stand.pid, stand.spare_pid
    assert stand.run(job("twice", x=x, forgets=True), 20).ok
    right(stand, x)  # at once, also while that process is on its way out
    assert stand.pid == spare
    wait_for(lambda: not alive(pid))


def test_memory_is_given_back(stand, x):
    big = torch.ones(8 << 20)
    assert stand.run(job("twice", "writes_half", x=big), 20).ok
    assert stand.run(job("makes_out", x=big, allocates=True), 20).ok
    assert stand.run(job("writes_to_its_input", x=big), 20).results[0].status == "mutation"
    assert stand.run(job("counts_what_is_alive", x=x), 20).printed == "0 large tensors\n"


def test_a_large_result_of_the_same_bits_is_sent_once(stand):
    x = torch.arange(float(1 << 19))
    found = stand.run(job("twice", "twice", "writes_half", "twice", x=x), 20).results
    outputs = [r.outputs[0] for r in found]
    assert [r.status for r in found] == ["ok"] * 4 and all(
        torch.equal(o, 2 * x) for o in (outputs[0], outputs[1], outputs[3])
    )
    assert not torch.equal(outputs[2], 2 * x)
    first, again, half, last = (o.data_ptr() for o in outputs)
    assert first == again and half != first and last not in (first, half)
    small = stand.run(job("twice", "twice", x=x[:64]), 20).results
    assert small[0].outputs[0].data_ptr() != small[1].outputs[0].data_ptr()


def test_descriptors_of_the_notebook_stay_few(stand, x):
    right(stand, x)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        stand.run(job("twice", "aborts", x=x), 20)
    right(stand, x)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


# ---------------------------------------------------------------- its life


def test_a_worker_that_cannot_start_says_why():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    worker = GpuWorker("cuda")
    with pytest.raises(
        ToolchainError, match=r"the GPU trial worker does not start \(it died\):\non cuda:0: there is no CUDA device"
    ):
        worker.run(Job((Step("aten::clone", (torch.ones(3),)),)), 20)
    worker.close()


PROGRAM = """
import os, sys, time, torch
from workbench.trial import Job, Step
from workbench.trial.gpu_client import GpuWorker
from tests.trial.test_gpu_worker import job
x = torch.ones(3)
worker = GpuWorker("cpu")
assert worker.run(job("twice", x=x), 20).ok
print(worker.pid, worker.spare_pid, flush=True)
{}
"""


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), 9)", "os.fork() or time.sleep(30); os.kill(os.getpid(), 9)"])
def test_the_processes_end_with_the_notebook(end):
    done = subprocess.Popen([sys.executable, "-c", PROGRAM.format(end)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pids = [int(p) for p in done.stdout.readline().split()]
    done.wait()
    wait_for(lambda: not any(alive(p) for p in pids), 40)  # the spare may still be importing torch


def test_a_thread_may_start_it_and_end(x):
    worker = GpuWorker("cpu")
    thread = threading.Thread(target=worker.warm)
    thread.start()
    thread.join()
    pid = worker.pid
    right(worker, x)
    assert worker.pid == pid  # it did not die with the thread
    worker.close()
