"""What ncu writes, cut down: csv of the page `raw` and of the page `details`, and how it says no."""

METRICS = (
    ("gpu__time_duration.sum", "nsecond", "40,928"),
    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%", "88.12"),
    ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%", "87.4"),
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", "31.05"),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "73.2"),
    ("sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active", "%", "0"),
    ("launch__registers_per_thread", "register/thread", "40"),
    ("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", "inst", "12.2"),
    ("smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", "inst", "1.6"),
    ("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "inst", "6.2"),
    ("smsp__average_warps_issue_stalled_selected_per_issue_active.ratio", "inst", "1.0"),
    ("smsp__average_warps_issue_stalled_misc_per_issue_active.ratio", "inst", "n/a"),
)
IDENTITY = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)


def line(cells):
    return ",".join(f'"{c}"' for c in cells)


def launch(number, kernel):
    return (str(number), "77", "python3", "127.0.0.1", kernel, "1", "7", "(512, 1, 1)", "(8192, 1, 1)", "0", "9.0")


def raw(*kernels, slower=()):
    """The page `raw`: a row for each launch, below a row of units."""
    rows = [IDENTITY + tuple(n for n, _, _ in METRICS), ("",) * len(IDENTITY) + tuple(u for _, u, _ in METRICS)]
    for i, kernel in enumerate(kernels):
        values = [v for _, _, v in METRICS]
        values[0] = "90,000" if i in slower else values[0]
        rows.append(launch(i, kernel) + tuple(values))
    said = [
        "==PROF== Connected to process 77 (/usr/bin/python3)",
        '==PROF== Profiling "rmsnorm" - 0: 0%....100% - 9 passes',
        "a line of the program",
    ]
    return "\n".join([*said, "==PROF== Disconnected from process 77", *map(line, rows)]) + "\n"


def details(kernel):
    """The page `details`: a row for each metric, some names in several sections and units."""
    head = (*IDENTITY, "Section Name", "Metric Name", "Metric Unit", "Metric Value")
    found = (
        ("GPU Speed Of Light Throughput", "Memory Throughput", "%", "88.12"),
        ("GPU Speed Of Light Throughput", "Duration", "us", "40.93"),
        ("GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "31.05"),
        ("Memory Workload Analysis", "Memory Throughput", "Tbyte/s", "3.1"),
        ("Occupancy", "Achieved Occupancy", "%", "73.2"),
        ("Launch Statistics", "Registers Per Thread", "register/thread", "40"),
    )
    return "\n".join(map(line, [head, *(launch(0, kernel) + row for row in found)]))


CLOSED = """\
==PROF== Connected to process 77 (/usr/bin/python3)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0. For instructions on enabling permissions and to get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM
==PROF== Disconnected from process 77
==WARNING== No kernels were profiled.
"""
NOTHING = (
    "==PROF== Connected to process 77\n==PROF== Disconnected from process 77\n==WARNING== No kernels were profiled.\n"
)
BROKEN = "==ERROR== Failed to prepare kernel for profiling.\n"
