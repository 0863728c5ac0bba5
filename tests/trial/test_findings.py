"""Reading compute-sanitizer's text. SEEN samples are in the words of published outputs of versions 2021 to 2025; those
marked GUESSED follow the manual and were not seen live.
"""

from __future__ import annotations

import os
import pickle

import pytest
import torch

from workbench.trial import Job, Meta, Step, findings, sanitizer, under_tool
from workbench.trial.findings import Finding, parse
from workbench.trial.guard import Block, Room
from workbench.trial.wire import Reply

MEMCHECK = """\
========= COMPUTE-SANITIZER
Before: Array 0, 1 .. N-1: 1.000000 1.000000 1.000000
========= Invalid __global__ read of size 4 bytes
=========     at scaleArray(float *, float)+0x70 in writeValidMem.cu:6
=========     by thread (254,0,0) in block (3,0,0)
=========     Address 0x74b834000ff8 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x74b834000000 of size 4,088 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x8ae3] in cs-writeValidMem
=========
========= Invalid __global__ read of size 4 bytes
=========     at scaleArray(float *, float)+0x70 in writeValidMem.cu:6
=========     by thread (255,0,0) in block (3,0,0)
=========     Access to 0x74b834000ffc is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x74b834000000 of size 4,088 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaDeviceSynchronize.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: main [0x8a94] in cs-writeValidMem
=========
========= ERROR SUMMARY: 3 errors
"""

OLDER = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 2 bytes
=========     at 0xd80 in /data/src/kernels/paged.cu:162:void add<(bool)1, __half>(T2 *, const T2 *, int)
=========     by thread (63,0,0) in block (506,0,0)
=========     Address 0x7fcd07a0312c is out of bounds
=========     and is 12589 bytes after the nearest allocation at 0x7fcd079ffc00 of size 1024 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: [0x2ea231]
=========                in /usr/lib/x86_64-linux-gnu/libcuda.so.1
========= Invalid __shared__ read of size 4 bytes
=========     at 0x1b8 in kernel(float *, float *)
=========     by thread (31,0,0) in block (0,0,0)
=========     Address 0x400 is out of bounds
"""

WRAPPED = """\
========= Invalid __global__ write of size 8 bytes
=========     at radiation_cloud_generator+0xca0
=========        in radiation.cu:379
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x155097f5db68 is out of bounds
=========     and is 873 bytes after the nearest allocation at 0x155097600000
=========        of size 9,820,160 bytes
=========     Device Frame: nvkernel_solver+0x10 in radiation.cu:3
"""

RACES = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at ka_race(int *)+0x90 in probe.cu:13
=========     and Read access at ka_race(int *)+0xa0 in probe.cu:14 [2048 hazards]
=========     and Read access at ka_race(int *)+0xc0 in probe.cu:14 [2 hazards]
=========
========= Warning: Race reported between Read access at compress(const unsigned int *, int)+0x260
=========     and Write access at compress(const unsigned int *, int)+0x200 [294291 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""

INITCHECK = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at vectorAdd(int *)+0x70 in /home/cuda/samples/Initcheck/memset_error.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
"""

SYNCCHECK = """\
========= Barrier error detected. Divergent thread(s) in warp.
=========     at ka_divergent(int *)+0xb0 in probe.cu:20
=========     by thread (0,0,0) in block (0,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x1754] in probe
=========
========= Barrier error detected. Divergent thread(s) in warp.
=========     at ka_divergent(int *)+0xb0 in probe.cu:20
=========     by thread (2,0,0) in block (0,0,0)
========= ERROR SUMMARY: 2 errors
"""

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"

GUESSED_IN_A_CELL = """\
========= Invalid __global__ write of size 4 bytes
=========     at void scale<float>(const T1 *, T1 *, int)+0x90 in cell scale:7
=========     by thread (103,0,0) in block (2,0,0)
=========     Access to 0x7f000000099c is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f0000000000 of size 2,460 bytes
"""


def test_memcheck_folds_threads_and_leaves_out_api_errors():
    (found,) = parse(MEMCHECK, "memcheck")
    assert found == Finding(
        "memcheck", "Invalid __global__ read of size 4 bytes", "scaleArray(float *, float)", "writeValidMem.cu", 6, (254, 0, 0), (3, 0, 0),
        "Address 0x74b834000ff8 is out of bounds and is 1 bytes after the nearest allocation at 0x74b834000000 of size 4,088 bytes",
        count=2, address=0x74B834000FF8, allocation=0x74B834000000,
    )  # fmt: skip
    assert str(found).startswith(
        "Invalid __global__ read of size 4 bytes in scaleArray at writeValidMem.cu:6 by thread (254, 0, 0) in block (3, 0, 0) and 1 more: Address"
    )


def test_the_older_way_of_saying_where_and_no_line():
    first, second = parse(OLDER, "memcheck")
    assert (first.file, first.line, first.kernel) == (
        "/data/src/kernels/paged.cu",
        162,
        "void add<(bool)1, __half>(T2 *, const T2 *, int)",
    )
    assert (first.thread, first.block, first.allocation) == ((63, 0, 0), (506, 0, 0), 0x7FCD079FFC00)
    assert (second.kind, second.kernel, second.file, second.line) == (
        "Invalid __shared__ read of size 4 bytes",
        "kernel(float *, float *)",
        "",
        0,
    )
    assert " at " not in str(second).partition(" by thread")[0]


def test_broken_lines_are_joined():
    (found,) = parse(WRAPPED, "memcheck")
    assert (found.kernel, found.file, found.line) == ("radiation_cloud_generator", "radiation.cu", 379)
    assert found.detail.endswith("at 0x155097600000 of size 9,820,160 bytes")


def test_races():
    error, warning = parse(RACES, "racecheck")
    assert (error.kind, error.kernel, error.line, error.count, error.warning) == (
        "race in shared memory",
        "ka_race(int *)",
        13,
        2050,
        False,
    )
    assert error.detail == "write on line 13 and read on line 14 with no barrier between them"
    assert (warning.kernel, warning.line, warning.warning, warning.count) == (
        "compress(const unsigned int *, int)",
        0,
        True,
        294291,
    )
    assert warning.detail == "read and write with no barrier between them"


def test_initcheck_and_synccheck():
    (found,) = parse(INITCHECK, "initcheck")
    assert (found.kind, found.line, found.address) == (
        "Uninitialized __global__ memory read of size 4 bytes",
        41,
        0x7F3C7EC000FC,
    )
    (found,) = parse(SYNCCHECK, "synccheck")
    assert (found.kind, found.kernel, found.line, found.count) == (
        "Barrier error detected. Divergent thread(s) in warp", "ka_divergent(int *)", 20, 2,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", CLEAN, "no sanitizer at all", "========= Target application returned an error", "========= Invalid"]
)
def test_nothing_is_found_in_nothing(text):
    assert parse(text, "memcheck") == ()


X = Block(0x7F0000001000, Room(0, 2460, 2460), (("x", Meta(torch.float32, (5, 123), (123, 1))),), False, True, True)
OUT = Block(0x7F0000000000, Room(0, 2460, 2460), (("out", Meta(torch.float32, (5, 123), (123, 1))),), True, False, True)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (OUT.end, "0 bytes past the end of out (shape (5, 123), float32)"),
        (OUT.end + 1, "1 byte past the end of out (shape (5, 123), float32)"),
        (OUT.start - 8, "8 bytes before the start of out (shape (5, 123), float32)"),
        (OUT.start + 8, "in out (shape (5, 123), float32)"),
    ],
)
def test_an_address_gets_the_name_of_its_tensor(address, said):
    found = Finding("memcheck", "Invalid", address=address, allocation=OUT.start)
    assert findings.named(found, [OUT, X]).detail == said
    assert findings.named(found, [X]) == found


def test_findings_are_told_by_case_from_the_size_of_the_log():
    first, second = GUESSED_IN_A_CELL, GUESSED_IN_A_CELL.replace(":7", ":9") + INITCHECK
    frames = [("began",), ("begin", 0, (X,)), ("block", OUT), ("log", 0, len(first.encode())), ("begin", 1, (X,))]
    job = Job((Step("a::b", case="odd"), Step("a::b", case="even"), Step("a::b", case="last")))
    reply = Reply(tuple(pickle.dumps(f) for f in frames), b"", False, 1, False, b"", b"", 0, 1.0)
    odd, even, rest = sanitizer.by_case(first + second, "memcheck", job, reply)
    assert (odd.case, odd.line, odd.file) == ("odd", 7, "cell scale")
    assert odd.detail == "0 bytes past the end of out (shape (5, 123), float32)"
    assert str(odd) == (
        "Invalid __global__ write of size 4 bytes in scale<float> at cell scale:7 by thread (103, 0, 0) in block (2, 0, 0): "
        "0 bytes past the end of out (shape (5, 123), float32)"
    )
    assert (even.case, even.line) == ("even", 9)
    assert (rest.case, rest.kind) == ("even", "Uninitialized __global__ memory read of size 4 bytes")


def test_a_missing_tool_is_a_sentence(monkeypatch):
    monkeypatch.setattr(sanitizer, "program", lambda: "")
    found = sanitizer.sanitize(Job(()))
    assert not found.ok and not found.ran
    assert found.missing.startswith("compute-sanitizer is not here. It comes with the CUDA toolkit")


def test_the_command():
    assert sanitizer.command("/bin/compute-sanitizer", "racecheck", "/tmp/log")[:5] == (
        "/bin/compute-sanitizer", "--tool", "racecheck", "--log-file", "/tmp/log",
    )  # fmt: skip


FAKE = """#!/bin/sh
# stands for compute-sanitizer: finds something in each job
while [ "$1" != "--target-processes" ]; do [ "$1" = "--log-file" ] && log="$2"; shift; done
shift 2
cat "$(dirname "$0")/said" > "$log"
exec "$@"
"""


def test_a_whole_run_behind_a_tool(monkeypatch, tmp_path):
    from tests.trial.test_gpu_worker import job

    fake = tmp_path / "compute-sanitizer"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    (tmp_path / "said").write_text(MEMCHECK)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(under_tool, "device_now", lambda: "cpu")
    x = torch.ones(5, 123)
    found = sanitizer.sanitize(job("twice", "writes_half", x=x), ["memcheck"])
    assert found.ran == ("memcheck",) and not found.ok and not found.problems
    assert [(f.line, f.case) for f in found.findings] == [(6, "case 0")]
    first, half = found.answers[0].results
    assert torch.equal(first.outputs[0], 2 * x)
    assert half.unwritten == (0,)  # nothing is poisoned there
    (tmp_path / "said").write_text(CLEAN)
    assert sanitizer.sanitize(job("twice", x=x), ["memcheck"]).ok
    fake.write_text("#!/bin/sh\necho no such device; exit 3")
    broken = sanitizer.sanitize(job("twice", x=x), ["memcheck"])
    assert not broken.ok
    assert broken.problems[0].startswith("memcheck: compute-sanitizer does not start the trial worker:\nno such device")
