import math
import random

import pytest

from workbench.measure import statistics
from workbench.measure.statistics import Interval


def series(count, rho, seed, sigma=0.02):
    """Noise that remembers itself, with one sample in ten that met another process."""
    drawn = random.Random(seed)
    value, found = 0.0, []
    for _ in range(count):
        value = rho * value + drawn.gauss(0, sigma) * math.sqrt(1 - rho * rho)
        found.append(value + (drawn.gauss(0, 0.5) if drawn.random() < 0.1 else 0.0))
    return found


def test_a_location_does_not_see_a_sample_that_met_another_process():
    assert statistics.location([1.0, 1.0, 1.0, 1.0, 50.0]) == 1.0
    assert statistics.location([3.0]) == 3.0


def test_an_interval_is_the_same_each_time_and_leaves_the_users_generator_alone():
    import torch

    state = torch.get_rng_state()
    values = series(40, 0, 1)
    assert statistics.interval(values) == statistics.interval(values)
    assert torch.equal(state, torch.get_rng_state())
    assert statistics.interval([0.1, 0.1, 0.1, 0.1]) == Interval(0.1, 0.1, 0.1)


def test_two_samples_tell_nothing():
    assert statistics.interval([1.0, 2.0]) == Interval(-math.inf, 1.5, math.inf)


@pytest.mark.parametrize(("rho", "most"), [(0.0, 6), (0.5, 9)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(rho, most):
    missed = sum(not (i.low <= 0 <= i.high) for i in (statistics.interval(series(40, rho, s)) for s in range(60)))
    assert missed <= most, "of 60; 3 are to be expected"


def test_noise_that_comes_in_spells_widens_the_interval():
    quick = [0.02 * (-1) ** i for i in range(40)]
    slow = [0.02 if i < 20 else -0.02 for i in range(40)]
    assert statistics.block_length(quick) == 1
    assert statistics.block_length(slow) == 10
    assert statistics.interval(slow).half > 3 * statistics.interval(quick).half


@pytest.mark.parametrize(
    ("free", "wanted"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (100, 1.984)]
)  # tables of Student's t at 95 %
def test_few_samples_are_reckoned_with_as_students_t_does(free, wanted):
    assert statistics._student(0.95, free) == pytest.approx(wanted, rel=1e-2)


@pytest.mark.parametrize(
    ("low", "mid", "high", "verdict"),
    [
        (0.08, 0.10, 0.12, "FASTER"),
        (-0.12, -0.10, -0.08, "SLOWER"),
        (-0.01, 0.00, 0.01, "SAME"),
        (0.01, 0.02, 0.03, "SAME"),  # surely slower, by less than counts
        (-0.02, 0.10, 0.22, "UNCLEAR"),
        (-0.05, 0.00, 0.05, "UNCLEAR"),
        (0.03, 0.035, 0.06, "UNCLEAR"),
        (-math.inf, 0.5, math.inf, "UNCLEAR"),
    ],
)
def test_verdicts_at_4_percent(low, mid, high, verdict):
    assert statistics.verdict(Interval(low, mid, high), 0.04) == verdict


def test_spread_and_drift_say_what_is_wrong_with_a_run():
    assert statistics.spread([1.0] * 10) == 0
    assert statistics.spread([1.0, 1.0, 2.0, 2.0]) == pytest.approx(2 / 3)
    assert statistics.drift([1.0] * 10 + [1.1] * 10 + [1.2] * 10) == pytest.approx(0.2)
    assert statistics.drift([1.0, 2.0]) == 0
