import os
import random
import subprocess

import pytest

from workbench.gpu import LIMITS
from workbench.inspect.occupancy import occupancy, registers_for


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks", "share"),
    [
        (90, 256, 32, 0, 8, 1.0),  # 2048 threads, 65,536 registers: both used to the last
        (90, 256, 33, 0, 6, 0.75),  # 33 x 32 registers a warp are given as 1,280: 12 warps in each quarter
        (90, 256, 64, 0, 4, 0.5),
        (90, 128, 255, 0, 2, 0.125),
        (90, 1024, 65, 0, 0, 0.0),  # 72 x 32 x 32 registers are more than there are
        (90, 32, 16, 0, 32, 0.5),  # 32 blocks of one warp
        (90, 128, 32, 100 * 1024, 2, 0.125),  # 101 KB each of 228 KB
        (90, 128, 32, 227 * 1024, 1, 0.0625),  # the most that a block can have
        (90, 128, 32, 228 * 1024, 0, 0.0),
        (80, 256, 32, 0, 8, 1.0),
        (86, 1024, 32, 0, 1, 32 / 48),  # 1,536 threads hold one block of 1,024
        (75, 1024, 64, 0, 1, 1.0),
        (89, 64, 128, 40000, 2, 4 / 48),  # 41,088 bytes each of 102,400
    ],
)
def test_known_cases(arch, threads, registers, shared, blocks, share):
    found = occupancy(arch, threads=threads, registers=registers, shared=shared)
    assert (found.blocks, found.share) == (blocks, pytest.approx(share))


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "said"),
    [
        (256, 32, 0, "nothing: all 64 warps are in use"),
        (256, 64, 0, "registers: 64 a thread"),
        (128, 32, 100 * 1024, "shared memory: 100 KB a block"),
        (32, 16, 0, "blocks: at most 32, and one has 1 warp"),
        (320, 16, 0, "warps: 64 are no multiple of the 10 of a block"),
        (1024, 200, 0, "registers: 200 a thread; it cannot be launched"),
        (64, 32, 300 * 1024, "shared memory: 300 KB a block; it cannot be launched"),
        (2048, 32, 0, "a block has at most 1024 threads"),
        (128, 128, 55 * 1024, "registers: 128 a thread and shared memory: 55 KB a block"),
    ],
)
def test_the_limiter_is_named(threads, registers, shared, said):
    assert occupancy(90, threads=threads, registers=registers, shared=shared).limiter == said


def test_an_unknown_architecture_gets_no_guess():
    assert occupancy(42, threads=256, registers=32) is None


def test_registers_for_a_share():
    assert registers_for(90, 256, 1.0) == 32
    assert registers_for(90, 256, 0.5) == 64
    assert registers_for(90, 1024, 1.0) == 32
    assert registers_for(86, 1024, 1.0) == 0  # 1,024 do not divide 1,536


ORACLE = r"""
#include <cstdio>
#include <cstring>
#include "cuda_occupancy.h"
int main() {
  int arch, threads, registers, shared, warps, kb;
  while (scanf("%d %d %d %d %d %d", &arch, &threads, &registers, &shared, &warps, &kb) == 6) {
    cudaOccDeviceProp p; memset(&p, 0, sizeof p);
    p.computeMajor = arch / 10; p.computeMinor = arch % 10; p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = warps * 32; p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32;
    p.sharedMemPerBlock = 48 * 1024; p.sharedMemPerMultiprocessor = kb * 1024; p.numSms = 1;
    p.sharedMemPerBlockOptin = (arch >= 80 ? kb - 1 : kb) * 1024; p.reservedSharedMemPerBlock = arch >= 80 ? 1024 : 0;
    cudaOccFuncAttributes a; memset(&a, 0, sizeof a);
    a.maxThreadsPerBlock = 1024; a.numRegs = registers; a.partitionedGCConfig = PARTITIONED_GC_OFF;
    a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = p.sharedMemPerBlockOptin;
    a.numBlockBarriers = 1;
    cudaOccDeviceState s; memset(&s, 0, sizeof s); s.carveoutConfig = 100;
    cudaOccResult r; memset(&r, 0, sizeof r);
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared)) return 1;
    printf("%d\n", r.activeBlocksPerMultiprocessor);
  }
}
"""


def test_as_nvidias_own_header_has_it(tmp_path):
    triton = pytest.importorskip("triton")
    folder = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "include")
    if not os.path.isfile(os.path.join(folder, "cuda_occupancy.h")):
        pytest.skip("Triton's wheel has no cuda_occupancy.h")
    program = str(tmp_path / "oracle")
    subprocess.run(["g++", "-w", "-I", folder, "-x", "c++", "-", "-o", program], input=ORACLE, text=True, check=True)
    pick = random.Random(0)
    asked = [
        (arch, pick.choice([1, 32, 33, 96, 128, 250, 256, 384, 512, 640, 1000, 1024]), pick.randint(1, 255),
         pick.choice([0, 0, 100, 4096, 9000, 33000, 50000, 65536, 101000, 200000, 232448]), has.warps, has.shared_kb)
        for arch, has in LIMITS.items() for _ in range(300)
    ]  # fmt: skip
    given = "\n".join(" ".join(map(str, row)) for row in asked)
    answers = subprocess.run([program], input=given, text=True, capture_output=True, check=True).stdout.split()
    assert len(answers) == len(asked) == 300 * len(LIMITS)
    for (arch, threads, registers, shared, *_), blocks in zip(asked, answers, strict=True):
        mine = occupancy(arch, threads=threads, registers=registers, shared=shared)
        assert mine.blocks == int(blocks), (arch, threads, registers, shared)
