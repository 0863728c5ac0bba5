"""A GPU with a clock of its own, so that timing on it can be tested to the digit."""

from __future__ import annotations


class Event:
    def __init__(self, gpu):
        self.gpu, self.at = gpu, None

    def record(self):
        self.at = self.gpu.queue(self.gpu.event_s)

    def query(self):
        return self.at <= self.gpu.cpu

    def elapsed_time(self, end_event):
        return (end_event.at - self.at) * 1e3


class Gpu:
    """Work is queued by the CPU at `cpu` seconds and runs one after the other; a call costs the CPU `launch_s`."""

    def __init__(self, launch_s=10e-6, event_s=1e-6, flush_s=40e-6):
        self.cpu = self.busy_until = 0.0
        self.launch_s, self.event_s, self.flush_s = launch_s, event_s, flush_s
        self.flushed = self.spun = self.launched = 0

    def queue(self, seconds):
        self.busy_until = max(self.busy_until, self.cpu) + seconds
        return self.busy_until

    def kernel(self, seconds):
        def run():
            self.cpu += self.launch_s
            self.launched += 1
            self.queue(seconds)

        return run

    def event(self):
        return Event(self)

    def spin(self, seconds):
        self.spun += 1
        self.queue(seconds)

    def flush(self):
        self.flushed += 1
        self.queue(self.flush_s)

    def synchronize(self):
        self.cpu = max(self.cpu, self.busy_until)

    def now(self):
        return self.cpu


class Idling(Gpu):
    """One whose clocks fall when it has nothing to do for a millisecond, and rise after 20 ms of work: traced as CUPTI does."""

    def __init__(self, slower=1.5, **given):
        super().__init__(**given)
        self.slower, self.risen, self.trace, self.named = slower, 0.0, [], "kernel"

    def queue(self, seconds):
        start = max(self.busy_until, self.cpu)
        if start - self.busy_until > 1e-3:
            self.risen = start + 0.02
        self.busy_until = start + seconds * (self.slower if start < self.risen else 1)
        name, self.named = self.named, "kernel"
        if seconds != self.event_s:
            self.trace.append(
                {"name": name, "cat": "kernel", "ts": start * 1e6, "dur": (self.busy_until - start) * 1e6}
            )
        return self.busy_until

    def spin(self, seconds):
        self.named = "spin_kernel"
        super().spin(seconds)

    def traced(self, run):
        """The profiler's start and the reading of its trace keep the CPU, and so the device, waiting."""
        self.cpu += 0.3
        self.trace.clear()
        run()
        self.cpu += 0.1
        return list(self.trace)


class Clock:
    """A clock that a test moves; each reading costs nothing."""

    def __init__(self):
        self.at = 0.0

    def __call__(self):
        return self.at

    def takes(self, seconds):
        """A call of so many seconds; a list is gone through again and again."""
        turns = list(seconds) if isinstance(seconds, (list, tuple)) else [seconds]
        count = iter(range(1 << 30))

        def run():
            self.at += turns[next(count) % len(turns)]

        return run


class Scripted:
    """A clock that runs every call once and then says what it was told: seconds by the contestant's name."""

    hidden = True

    def __init__(self, **seconds):
        self.seconds, self.warmed = seconds, []

    def warm(self, call):
        self.warmed.append(call.name)
        call.run()

    def rounds(self, calls):
        return 4

    def least(self, calls):
        return 12

    def sample(self, calls, orders):
        jitter = (1.0, 1.002, 0.998, 1.001)
        return [[self.of(c.name) * jitter[(i + r) % 4] for i, c in enumerate(calls)] for r, _ in enumerate(orders)]

    def of(self, name):
        return self.seconds.get(name.replace(".", "_"), self.seconds.get("others", 1e-5))
