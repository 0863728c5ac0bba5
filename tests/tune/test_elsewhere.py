"""Shipments to an executor: what comes back, what is lost, what is called back at the end of the budget."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

from workbench.tune.elsewhere import SHIPMENTS, Shipment, spread
from workbench.tune.space import Candidate

MANY = [Candidate({"BLOCK": n}) for n in range(50)]


def ship(some):
    return Shipment(lambda what: [{"time_us": float(n)} for n in what], [c.config["BLOCK"] for c in some])


def test_all_come_back_in_a_few_groups():
    notes: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        found = list(spread(pool, ship, MANY, left_s=lambda: 10.0, notes=notes))
    rows = {c.config["BLOCK"]: row for some, answer in found for c, row in zip(some, answer, strict=True)}
    assert rows == {n: {"time_us": float(n)} for n in range(50)} and notes == []
    assert len(found) <= SHIPMENTS


class Odd(Executor):
    """Futures that are already over, in the way that it is told."""

    def __init__(self, *errors):
        self.errors, self.futures = list(errors), []

    def submit(self, fn, /, *args, **kwargs):
        error = self.errors.pop(0) if self.errors else None
        if isinstance(error, str):
            raise BrokenExecutor(error)
        future = Future()
        self.futures.append(future)
        if error is None:
            future.set_result(fn(*args, **kwargs))
        elif error is not Ellipsis:
            future.set_exception(error)
        return future


def lost(found):
    return sorted(c.config["BLOCK"] for some, answer in found if answer is None for c in some)


def test_what_is_lost_is_told_once_for_each_kind():
    notes: list[str] = []
    long = [RuntimeError(f"task-{n} " + "x" * 200) for n in range(2)]
    found = list(spread(Odd(*long, OSError("gone")), ship, MANY[:6], left_s=lambda: 10.0, notes=notes))
    assert lost(found) == [0, 1, 2] and len(found) == 6
    assert set(notes) == {
        "a worker of the executor was lost (RuntimeError): what it had is done here",
        "a worker of the executor was lost (OSError: gone): what it had is done here",
    }


def test_an_executor_that_takes_no_work():
    notes: list[str] = []
    found = list(spread(Odd("closed", "closed"), ship, MANY[:3], left_s=lambda: 10.0, notes=notes))
    assert lost(found) == [0, 1]
    assert set(notes) == {"the executor takes no work (BrokenExecutor: closed): what it would have done is done here"}


def test_the_end_of_the_budget_calls_back_what_has_not_begun():
    notes: list[str] = []
    pool = Odd(..., ...)
    found = list(spread(pool, ship, MANY[:2], left_s=lambda: 0.0, notes=notes))
    assert lost(found) == [0, 1] and all(f.cancelled() for f in pool.futures)
    assert set(notes) == {"the budget ended before all workers had answered"}


def test_futures_of_another_kind_are_waited_for():
    class Theirs:
        def __init__(self):
            self.asked = 0

        def done(self):
            self.asked += 1
            return self.asked > 2

        def result(self):
            return [{"time_us": 1.0}]

        def cancel(self):
            pass

    class Pool(Executor):
        def submit(self, fn, /, *args, **kwargs):
            return Theirs()

    assert list(spread(Pool(), ship, MANY[:1], left_s=lambda: 10.0, notes=[])) == [(MANY[:1], [{"time_us": 1.0}])]
