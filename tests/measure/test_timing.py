"""Clocks and rounds, on a GPU and a clock that stand in for real ones."""

import random

import pytest

from tests.measure.fakes import Clock, Gpu, Idling
from workbench.measure import cupti
from workbench.measure.clock import LEAST, LEAST_SHORT, MUTATING, TOGETHER, Call, CpuClock, GpuClock
from workbench.measure.timing import LEAST_LONG, LEAST_OVER, Timed, compare


def gpu_calls(gpu, *seconds):
    return [Call(f"k{i}", gpu.kernel(s)) for i, s in enumerate(seconds)]


def no_samples(calls, relevant):
    return Timed(tuple(c.name for c in calls), relevant)


@pytest.mark.parametrize(("seconds", "least"), [(5e-6, LEAST_SHORT), (2e-3, LEAST)])
def test_a_kernels_time_is_the_devices_without_launch_events_or_flush(seconds, least):
    gpu = Gpu(launch_s=30e-6)  # six times the small kernel
    clock = GpuClock(gpu, cold=True, overhead_s=1e-6)
    (call,) = gpu_calls(gpu, seconds)
    clock.warm(call)
    timed = compare(clock, [call], no_samples([call], 0.02), 5.0, now=gpu.now)
    assert timed.seconds(0).mid == pytest.approx(seconds, rel=1e-6)
    assert clock.hidden
    assert len(timed.rounds) == least
    assert gpu.flushed >= least


def test_what_events_take_is_asked_about_each_short_call():
    """As on a real GPU: more around one kernel than around another."""
    gpu, asked = Gpu(event_s=3e-6), []

    def compared(clock, call):
        asked.append(call.name)
        between = clock.between_events([call])[0]
        return {"k0": between - 5e-6, "k1": between - 4e-6}.get(call.name)

    clock = GpuClock(gpu, overhead_s=2e-6, compared=compared)
    calls = gpu_calls(gpu, 5e-6, 5e-6, 6e-6, 2e-3)
    calls.append(Call("reset", gpu.kernel(5e-6), before=lambda: None))
    for call in calls:
        clock.warm(call)
    assert asked == ["k0", "k1", "k2"], "not about a long one, nor one that cannot be repeated as it is"
    (found,) = clock.sample(calls[:4], [[0, 1, 2, 3]])
    assert found == pytest.approx([5e-6, 4e-6, 7e-6, 2.001e-3])  # of k2 nothing was told


def test_what_events_take_around_a_call_is_not_that_of_an_earlier_size():
    """The same contestant on three sizes: asked about, not answered, too long to be asked about."""
    gpu, told = Gpu(event_s=3e-6), [4e-6, None]
    clock = GpuClock(gpu, overhead_s=2e-6, compared=lambda clock, call: told.pop(0))
    sampled = []
    for seconds in (5e-6, 6e-6, 2e-3):
        clock.warm(Call("v1", gpu.kernel(seconds)))
        sampled.append(clock.sample([Call("v1", gpu.kernel(seconds))], [[0]])[0][0])
    assert sampled == pytest.approx([4e-6, 7e-6, 2.001e-3]) and not clock.overheads and not told


def test_what_events_take_is_told_although_the_device_idles_between_two_looks(monkeypatch):
    gpu = Idling(event_s=3e-6)
    monkeypatch.setattr(cupti, "_traced", gpu.traced)
    clock = GpuClock(gpu, cold=True, compared=cupti.overhead_of)
    call = Call("k", gpu.kernel(5e-6))
    gpu.cpu += 1.0
    clock.warm(call)
    assert clock.overheads["k"] == pytest.approx(3e-6, rel=1e-6)
    for _ in range(20):
        took = clock.sample([call], [[0]] * 40)
    assert took[-1] == pytest.approx([5e-6])


def test_launches_that_fall_behind_while_clocks_rise_are_no_fault_of_the_samples(monkeypatch):
    """CUPTI's first records, or another program, keep the CPU from launching ahead for a while."""

    class Held(Idling):
        batches = 0

        def spin(self, seconds):
            self.batches += 1
            self.launch_s = 1.0 if self.batches <= 3 else 10e-6  # all three attempts of a batch fall behind
            super().spin(min(seconds, 0.5))

    gpu = Held(slower=1.0, event_s=3e-6)

    def traced(run):
        gpu.batches = 0
        return gpu.traced(run)

    def compared(clock, call):
        gpu.batches = 0
        return cupti.overhead_of(clock, call)

    monkeypatch.setattr(cupti, "_traced", traced)
    gpu.batches = 3
    clock = GpuClock(gpu, cold=True, compared=compared)
    clock.warm(Call("k", gpu.kernel(5e-6)))
    assert clock.hidden and clock.overheads["k"] == pytest.approx(3e-6, rel=1e-6)


def test_what_events_take_differs_from_queue_to_queue_and_falls_out():
    gpu, drawn = Gpu(event_s=3e-6), random.Random(1)

    class Moody(GpuClock):
        def between_events(self, calls, enqueue=None):
            self.device.event_s = drawn.choice([2.5e-6, 3e-6, 3.5e-6])
            return super().between_events(calls, enqueue)

    clock, found = Moody(gpu, overhead_s=3e-6), []
    (call,) = gpu_calls(gpu, 4e-6)
    clock.warm(call)
    for _ in range(10):
        timed = compare(clock, [call], no_samples([call], 0.5), 5.0, now=gpu.now)
        assert len(timed.rounds) == LEAST_SHORT and clock.rounds([call]) == TOGETHER
        found.append(sum(timed.of(0)) / LEAST_SHORT)
    assert found == pytest.approx([4e-6] * 10, rel=0.1)  # one queue alone would be off by an eighth


def test_a_warm_cache_is_not_emptied():
    gpu = Gpu()
    clock = GpuClock(gpu, cold=False, overhead_s=1e-6)
    calls = gpu_calls(gpu, 5e-6, 6e-6)
    for call in calls:
        clock.warm(call)
    timed = compare(clock, calls, no_samples(calls, 0.02), 5.0, now=gpu.now)
    assert gpu.flushed == 0
    assert timed.verdict(1) == "FASTER"
    assert timed.log_ratio(1).exp().mid == pytest.approx(1.2)


def test_a_batch_is_queued_again_behind_a_longer_wait_when_the_device_was_quicker():
    gpu = Gpu()
    clock = GpuClock(gpu, overhead_s=1e-6)
    (call,) = gpu_calls(gpu, 5e-6)
    clock.warm(call)
    clock.takes["k0"] = (5e-6, 1e-9)  # launches are far slower than was thought
    gpu.launch_s, spun = 1e-3, gpu.spun
    assert clock.sample([call], [[0]] * 3) == [[pytest.approx(5e-6)]] * 3
    assert gpu.spun == spun + 2
    assert clock.hidden


def test_a_call_that_waits_for_the_device_itself_is_told():
    gpu = Gpu()
    clock = GpuClock(gpu)

    def run():
        gpu.kernel(5e-6)()
        gpu.synchronize()

    clock.warm(Call("waits", run))
    assert not clock.hidden


def test_what_has_to_be_swapped_in_has_a_queue_of_its_own():
    gpu, seen = Gpu(), []
    clock = GpuClock(gpu, overhead_s=1e-6)
    ours = Call("v2", gpu.kernel(5e-6))
    theirs = Call("v1", gpu.kernel(8e-6), None, lambda: seen.append("in"), lambda: seen.append("out"))
    for call in (ours, theirs):
        clock.warm(call)
    timed = compare(clock, [ours, theirs], no_samples([ours, theirs], 0.02), 5.0, now=gpu.now)
    assert timed.log_ratio(1).exp().mid == pytest.approx(1.6)
    assert seen == ["in", "out"] * (len(seen) // 2)


def test_a_sample_on_a_cpu_is_the_quickest_of_several_blocks():
    now = Clock()
    clock = CpuClock(now)
    call = Call("v1", now.takes([1e-4] * 30 + [3e-3]))  # now and then another process has the core
    clock.warm(call)
    blocks, count = clock.inner["v1"]
    assert (blocks, count) == (8, 3)
    assert clock.sample([call], [[0]] * 4) == [[pytest.approx(1e-4)]] * 4


def test_calls_that_mutate_what_they_are_given_start_each_block_from_the_same_values():
    now, value, least = Clock(), [1.0], []

    def halve():
        value[0] /= 2
        least.append(value[0])
        now.at += 1e-6

    clock = CpuClock(now)
    call = Call("halve_", halve, before=lambda: value.__setitem__(0, 1.0))
    clock.warm(call)
    least.clear()
    assert clock.sample([call], [[0]] * 3) == [[pytest.approx(1e-6)]] * 3
    assert len(least) == 3 * 8 * MUTATING and min(least) == 0.5**MUTATING


def test_long_calls_are_samples_by_themselves():
    now = Clock()
    clock = CpuClock(now)
    clock.warm(Call("slow", now.takes(0.5)))
    clock.warm(Call("middling", now.takes(0.02)))
    assert clock.inner == {"slow": (1, 1), "middling": (2, 1)}
    assert now.at == pytest.approx(0.5 + 2 * 0.02), "one that is long is called once"


def test_an_op_against_itself_is_the_same_and_a_drift_falls_out_of_the_ratio():
    now, drawn = Clock(), random.Random(5)

    def run():
        now.at += 1e-3 * (1 + now.at / 10) * drawn.uniform(0.99, 1.05)  # 10 % slower each second

    clock = CpuClock(now)
    calls = [Call("v1", run), Call("again", run)]
    for call in calls:
        clock.warm(call)
    timed = compare(clock, calls, no_samples(calls, 0.04), 5.0, now=now)
    assert timed.verdict(1) == "SAME"
    assert abs(timed.log_ratio(1).mid) < 0.02


def test_ten_percent_are_found_through_noise_of_as_much():
    now, drawn = Clock(), random.Random(7)

    def taking(seconds):
        def run():
            now.at += seconds * drawn.uniform(1.0, 1.1)

        return run

    clock = CpuClock(now)
    calls = [Call("v2", taking(1e-3)), Call("v1", taking(1.1e-3))]
    for call in calls:
        clock.warm(call)
    assert compare(clock, calls, no_samples(calls, 0.04), 5.0, now=now).verdict(1) == "FASTER"
    assert compare(clock, calls[::-1], no_samples(calls, 0.04), 5.0, now=now).verdict(1) == "SLOWER"


@pytest.mark.parametrize(("seconds", "rounds"), [(0.3, LEAST_LONG), (0.003, LEAST_OVER)])
def test_a_budget_ends_it_and_nothing_is_claimed(seconds, rounds):
    now, drawn = Clock(), random.Random(3)

    def run():
        now.at += seconds * drawn.choice([1, 2, 4])

    clock = CpuClock(now)
    calls = [Call("v1", run), Call("v0", run)]
    for call in calls:
        clock.warm(call)
    timed = compare(clock, calls, no_samples(calls, 0.04), 1e-3, now=now)
    assert len(timed.rounds) == rounds
    assert timed.verdict(1) == "UNCLEAR"


def test_times_that_are_all_over_the_place_say_nothing():
    timed = Timed(("v1", "other"), 0.04, [[1e-3, 1e-3 * (10 + 40 * (i % 2))] for i in range(40)])
    assert timed.log_ratio(1).exp().low > 5
    assert timed.verdict(1) == "UNCLEAR"
    assert not timed.settled


def test_a_swapped_version_is_back_after_an_error():
    left = []

    def fails():
        raise KeyboardInterrupt

    call = Call("v1", fails, None, lambda: None, lambda: left.append(True))
    with pytest.raises(KeyboardInterrupt):
        CpuClock(Clock()).warm(call)
    assert left == [True]
