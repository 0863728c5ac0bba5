"""Successive halving: the fastest is found, the far ones are hardly timed, a budget and an interrupt keep the best."""

from __future__ import annotations

import random

import pytest

from workbench.tune.search import ROUNDS, Found, search, survivors


class Race:
    """Candidates with true times, timed with noise, on a clock of its own."""

    def __init__(self, times: dict, noise: float = 0.0, seed: int = 0) -> None:
        self.times, self.noise, self.draw = times, noise, random.Random(seed)
        self.spent: dict = dict.fromkeys(times, 0.0)
        self.now = 0.0

    def time_one(self, candidate, budget_s):
        self.now += budget_s
        self.spent[candidate] += budget_s
        if self.times[candidate] is None:
            return None
        return self.times[candidate] * (1 + self.noise * self.draw.uniform(-1, 1))


def test_the_fastest_is_found():
    race = Race({n: 1.0 + abs(n - 37) / 10 for n in range(64)})
    found = search(race.times, race.time_one, left_s=lambda: 100.0 - race.now)
    assert found.finalists[0] == 37 and found.complete
    assert len(found.seconds) == 64


def test_those_far_off_are_timed_once():
    race = Race({"fast": 1.0, "near": 1.01, **{f"slow {n}": 5.0 + n for n in range(20)}})
    search(race.times, race.time_one, left_s=lambda: 100.0)
    assert {race.spent[f"slow {n}"] for n in range(20)} == {ROUNDS[0][0]}
    assert race.spent["near"] > 20 * ROUNDS[0][0]


@pytest.mark.parametrize("seed", range(10))
def test_noise_of_five_percent_costs_no_more_than_two(seed):
    times = {n: 1.0 + 0.03 * n for n in range(32)}
    race = Race(times, noise=0.05, seed=seed)
    found = search(times, race.time_one, left_s=lambda: 1e9)
    assert times[found.finalists[0]] <= 1.03


def test_a_budget_at_its_end_keeps_what_is_there():
    race = Race({n: 1.0 + n for n in range(10)})
    found = search(race.times, race.time_one, left_s=lambda: 0.035 - race.now)
    assert list(found.seconds) == [0, 1, 2, 3] and not found.complete and not found.finalists


def test_the_first_is_timed_whatever_the_budget():
    race = Race({"a": 1.0, "b": 0.5})
    assert search(race.times, race.time_one, left_s=lambda: -1.0).seconds == {"a": 1.0}


def test_an_interrupt_loses_nothing():
    race, found = Race({"a": 1.0, "b": 0.5, "c": 2.0}), Found()

    def interrupted(candidate, budget_s):
        if candidate == "c":
            raise KeyboardInterrupt
        return race.time_one(candidate, budget_s)

    with pytest.raises(KeyboardInterrupt):
        search(race.times, interrupted, left_s=lambda: 1.0, found=found)
    assert found.seconds == {"a": 1.0, "b": 0.5}


def test_one_that_fails_is_out_and_the_rest_goes_on():
    race = Race({"a": 1.0, "bad": None, "b": 0.5})
    found = search(race.times, race.time_one, left_s=lambda: 1.0)
    assert found.finalists[0] == "b" and "bad" not in found.seconds


def test_those_that_dropped_out_are_told_beside_the_winner():
    race = Race({"a": 1.0, "b": 1.05, "c": 2.0, "d": 3.0})
    usual = race.time_one

    def slower_with_time(candidate, budget_s):  # somebody else begins to use the machine
        return usual(candidate, budget_s) * (1 if race.now < 0.05 else 4)

    found = search(race.times, slower_with_time, left_s=lambda: 100.0)
    assert found.finalists[0] == "a" and found.seconds == {"a": 4.0, "b": 4.2, "c": 8.0, "d": 12.0}


def test_nothing_to_time():
    assert search([], lambda c, s: 1.0, left_s=lambda: 1.0).seconds == {}
    found = search(["a"], lambda c, s: None, left_s=lambda: 1.0)
    assert found.finalists == [] and not found.complete


def test_survivors_are_the_faster_half_within_the_slack():
    times = {"a": 1.0, "b": 1.1, "c": 1.2, "d": 3.0}
    assert survivors(list("dcba"), times, 1.4) == ["a", "b"]
    assert survivors(list("abcd"), times, 1.05) == ["a"]
    assert survivors([], {}, 1.4) == []
