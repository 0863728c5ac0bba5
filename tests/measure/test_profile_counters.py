import counted
import pytest

from workbench.measure import profile_counters as counting
from workbench.reports.profiling import ProfileRow

FULL = "void rmsnorm<float, 512>(const float *, const float *, float *, float, int)"
ROWS = (
    ProfileRow("rmsnorm<float, 512>", "kernel", "forward", 1, 41.2, 41.2, 1.0, 0.0, 40),
    ProfileRow("ops::back", "kernel", "backward", 1, 9.0, 9.0, 1.0, 0.0, 32),
)


def test_a_row_of_the_page_raw_is_the_counters_of_a_kernel():
    (found,) = counting.counters(counted.raw(FULL), ROWS)
    assert (found.kernel, found.phase, found.registers) == ("rmsnorm<float, 512>", "forward", 40)
    assert (found.duration_us, found.occupancy) == (pytest.approx(40.928), pytest.approx(0.732))
    assert (found.memory_share, found.compute_share, found.dram_share, found.tensor_share) == pytest.approx(
        (0.8812, 0.3105, 0.874, 0.0)
    )


def test_stalls_are_shares_of_the_cycles_that_warps_wait():
    (found,) = counting.counters(counted.raw(FULL), ROWS)
    assert [n for n, _ in found.stalls] == ["long_scoreboard", "barrier", "wait"]  # selected is no stall, n/a no number
    assert [s for _, s in found.stalls] == pytest.approx([0.61, 0.31, 0.08])


def test_of_several_launches_the_longest_counts_and_others_are_left_out():
    text = counted.raw(FULL, "back", FULL, "void at::native::fill(int)", slower=(2,))
    found = counting.counters(text, ROWS)
    assert [(c.kernel, c.phase) for c in found] == [("rmsnorm<float, 512>", "forward"), ("ops::back", "backward")]
    assert found[0].duration_us == pytest.approx(90.0)


def test_the_page_details_is_read_too():
    (found,) = counting.counters(counted.details(FULL), ROWS)
    assert (found.duration_us, found.memory_share, found.compute_share, found.occupancy) == pytest.approx(
        (40.93, 0.8812, 0.3105, 0.732)
    )
    assert found.stalls == ()


@pytest.mark.parametrize(
    "text", ["", counted.CLOSED, counted.NOTHING, '"ID","Kernel"\n', '"ID","Kernel Name"\n"', "no csv, at all"]
)
def test_what_is_no_csv_has_no_counters(text):
    assert counting.counters(text, ROWS) == ()


def test_why_nothing_was_counted():
    assert counting.refusal(counted.raw(FULL)) == ""
    assert (
        counting.refusal(counted.CLOSED) == counting.REFUSED
        and "NVreg_RestrictProfilingToAdminUsers=0" in counting.REFUSED
    )
    assert counting.refusal(counted.NOTHING) == "the GPU's counters: ncu saw none of these kernels"
    assert counting.refusal(counted.BROKEN) == "the GPU's counters: ncu says Failed to prepare kernel for profiling"


def test_ncu_is_asked_for_these_kernels_alone():
    command = counting.command("/opt/ncu", "/tmp/log", ["rmsnorm", "back", "rmsnorm"])
    assert command[:3] == ("/opt/ncu", "--csv", "--page")
    assert command[command.index("--kernel-name") + 1] == "regex:^(back|rmsnorm)$"
    assert command[command.index("--log-file") + 1] == "/tmp/log"
    assert [command[i + 1] for i, part in enumerate(command) if part == "--section"] == list(counting.SECTIONS)


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("rmsnorm<float, 512>", "rmsnorm"),
        ("ops::back", "back"),
        ("void a::b<c::d>(int)", "b"),
        ("forward_kernel", "forward_kernel"),
    ],
)
def test_a_name_without_namespaces_and_template_arguments(name, bare):
    assert counting.bare(name) == bare


def test_ncu_is_found_in_a_named_toolkit(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "ncu"
    program.write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(counting.settings, "programs", lambda: "")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    program.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert counting.program() == str(program)
