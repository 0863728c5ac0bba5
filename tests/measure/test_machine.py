"""What is known of the machine: ceilings that are kept, the GPU's clock, CUPTI's durations, room in memory."""

import json

import pytest
import torch

from workbench import settings
from workbench.case import make
from workbench.measure import ceilings, cupti, memory, nvml, profile_machine
from workbench.measure.nvml import Reading
from workbench.schema import parse


@pytest.fixture
def small(monkeypatch, fresh_cache):
    monkeypatch.setattr(ceilings, "COPIED_BYTES", {"cpu": 1 << 16})
    monkeypatch.setattr(ceilings, "SIDE", {"cpu": 32})
    monkeypatch.setattr(ceilings, "ROUNDS", 3)


def test_ceilings_are_measured_once_and_kept(small, monkeypatch):
    first = ceilings.copy_bandwidth("cpu")
    rate = ceilings.matrix_rate("cpu", "float32")
    assert first.value > 0.01
    assert (first.unit, rate.unit, rate.dtype) == ("GB/s", "GFLOP/s", "float32")
    monkeypatch.setattr(ceilings, "_best", lambda call, device: pytest.fail("measured again"))
    assert ceilings.copy_bandwidth("cpu") == first
    assert ceilings.matrix_rate("cpu", "float32") == rate
    kept = json.loads((settings.cache_dir() / ceilings.FILE).read_text())
    assert len(kept) == 2
    assert all("threads torch" in key for key in kept), "another number of threads has other ceilings"


def test_what_a_busy_machine_gave_is_measured_again_and_the_best_is_kept(small, monkeypatch):
    load, seconds = ["a load of 6.6 on 2"], [4e-3]
    monkeypatch.setattr(ceilings, "other_load", lambda: load[0])
    monkeypatch.setattr(ceilings, "_best", lambda call, device: seconds[0])
    monkeypatch.setattr(ceilings, "_measured", set())
    first = ceilings.copy_bandwidth("cpu")
    seconds[0] = 2e-3
    assert first.busy and ceilings.copy_bandwidth("cpu") == first, "once by each process"
    monkeypatch.setattr(ceilings, "_measured", set())
    load[0] = ""
    second = ceilings.copy_bandwidth("cpu")
    assert second.value == pytest.approx(2 * first.value) and not second.busy
    monkeypatch.setattr(ceilings, "_measured", set())
    assert ceilings.copy_bandwidth("cpu") == second, "that of a quiet machine stays"


@pytest.mark.parametrize("spoilt", ["", "{", "[1]", '{"x": 3}'])
def test_a_spoilt_file_is_measured_over(small, spoilt):
    (settings.cache_dir() / ceilings.FILE).parent.mkdir(parents=True, mode=0o700)
    (settings.cache_dir() / ceilings.FILE).write_text(spoilt)
    assert ceilings.copy_bandwidth("cpu").value > 0.01
    assert any("copy bandwidth" in key for key in json.loads((settings.cache_dir() / ceilings.FILE).read_text()))


def test_a_folder_that_cannot_be_written_to_costs_a_measurement(small, monkeypatch):
    from workbench.errors import ToolchainError

    def refuses(folder):
        raise ToolchainError("it belongs to another user")

    monkeypatch.setattr(settings, "private", refuses)
    assert ceilings.copy_bandwidth("cpu").value > 0.01
    assert not (settings.cache_dir() / ceilings.FILE).exists()


def test_a_dtype_without_matrix_products_has_no_ceiling(small):
    assert ceilings.matrix_rate("cpu", "no_such_dtype") is None


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_no_memory_to_measure_in_is_no_ceiling(monkeypatch, error, fresh_cache):
    def full(*args):
        raise error

    monkeypatch.setattr(ceilings, "_copy", full)
    monkeypatch.setattr(ceilings, "_multiply", full)
    assert ceilings.copy_bandwidth("cpu") is None and ceilings.matrix_rate("cpu", "float32") is None
    assert profile_machine.copy_gb_per_s("cpu") == 0.0


class Library:
    """NVML, as far as it is asked."""

    def __init__(self, mhz=1980, reasons=0, fails=False):
        self.mhz, self.reasons, self.fails = mhz, reasons, fails

    def nvmlInit_v2(self):
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        assert uuid == b"GPU-1"
        return 0

    def nvmlDeviceGetClockInfo(self, handle, kind, mhz):
        mhz._obj.value = self.mhz
        return 1 if self.fails else 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, reasons):
        reasons._obj.value = self.reasons
        return 0


def test_the_clock_is_read_and_no_answer_is_none():
    assert nvml.Meter(Library(1410, 4), "GPU-1").read() == Reading(1410, 4)
    assert nvml.Meter(Library(fails=True), "GPU-1").read() is None
    assert nvml.Meter(object(), "GPU-1").read() is None


def test_the_clock_is_not_asked_for_after_each_millisecond():
    library, at = Library(1410, 4), [1.0]
    meter = nvml.Meter(library, "GPU-1", now=lambda: at[0])
    assert meter.read().mhz == 1410
    library.mhz, at[0] = 1980, 1.01
    assert meter.read().mhz == 1410
    at[0] = 1.03
    assert meter.read().mhz == 1980


@pytest.mark.parametrize(
    ("readings", "clock", "note"),
    [
        ([], "", ""),
        ([None, None], "", ""),
        ([Reading(1980), None, Reading(1965)], "clock steady at 1,980 MHz", ""),
        ([Reading(1980), Reading(1410, 0x4)], "clock 1,410 to 1,980 MHz",
         "throttled: the clock fell to 1,410 MHz (power limit); times are those of a slowed device, ratios still hold"),
        ([Reading(1200, 0x60)], "clock steady at 1,200 MHz",
         "throttled: the clock held at 1,200 MHz (thermal limit, hardware thermal limit); times are those of a slowed device, ratios still hold"),
        ([Reading(1980), Reading(1200, 0x1)], "clock 1,200 to 1,980 MHz",
         "the clock moved: times may be too long, ratios still hold"),
    ],
)  # fmt: skip
def test_what_is_said_of_the_clock(readings, clock, note):
    assert nvml.told(readings) == (clock, note)


def test_cuptis_durations_are_those_of_the_device_in_order():
    trace = [
        {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": 1.0, "dur": 9.0},
        {"name": "add", "cat": "kernel", "ts": 7.0, "dur": 4.864},
        {"name": "Memset (Device)", "cat": "gpu_memset", "ts": 3.0, "dur": 30.1},
        {"name": "no time", "ph": "M"},
    ]
    assert [(e["name"], e["dur"]) for e in cupti.on_device(trace)] == [("Memset (Device)", 30.1), ("add", 4.864)]


def traced(*parts):
    """What a device did, a microsecond after the other: (name, microseconds)."""
    at, found = 0.0, []
    for name, us in parts:
        found.append({"name": name, "cat": "kernel", "ts": at, "dur": us})
        at += us + 1
    return found


@pytest.mark.parametrize(("cold", "spans"), [(True, [3.0 + 1 + 5.0, 4.0 + 1 + 5.0]), (False, [30 + 10.0, 30 + 11.0])])
def test_what_a_call_takes_is_from_its_first_kernel_to_the_end_of_its_last(cold, spans):
    emptied = ("fill", 30.0)
    dry = [("spin_kernel", 9.0), emptied, ("a", 99.0)]  # a batch whose queue ran dry is queued again
    seen = traced(*dry, ("spin_kernel", 99.0), emptied, ("a", 3.0), ("b", 5.0), emptied, ("a", 4.0), ("b", 5.0))
    assert cupti.spans_us(seen, 2, cold) == pytest.approx(spans)


def test_what_does_not_divide_into_the_calls_is_not_guessed():
    spin = ("spin_kernel", 9.0)
    assert cupti.spans_us(traced(spin, ("a", 1.0), ("b", 1.0), ("a", 1.0)), 2, cold=False) == []
    assert cupti.spans_us(traced(spin, ("fill", 1.0), ("fill", 1.0)), 2, cold=True) == []  # nothing of the calls' own
    assert cupti.spans_us(traced(("a", 1.0), ("a", 1.0)), 2, cold=False) == []
    assert cupti.spans_us([], 2, cold=False) == []


def test_what_a_case_needs_is_known_before_it_is_made():
    schema = parse("lab::f(Tensor x, Tensor[] y, float k=1.0) -> Tensor")
    (case,) = make(lambda t: iter([(t(10, 10), [t(5, dtype=torch.float64), t(3, dtype=torch.bool)])]), schema)
    assert memory.needs(case) == 400 + 40 + 3


def test_no_room_is_said_with_both_numbers(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 8_100_000_000)
    memory.check(4_000_000_000, "cpu")
    with pytest.raises(memory.NoRoomError, match="it needs at least 2,252 TB, 8.1 GB are free"):
        memory.check(1 << 50, "cpu")


def test_the_systems_own_figure_is_plausible():
    assert 1 << 20 < memory.free_bytes("cpu") < 1 << 62
