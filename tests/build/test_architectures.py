"""Which architecture CUDA code is compiled for: flags, texts, the GPU here."""

from __future__ import annotations

import pytest

from workbench import gpu
from workbench.build import architectures, driver

LIST = tuple(f"-gencode=arch=compute_{n},code=sm_{n}" for n in ("80", "90", "100"))


@pytest.mark.parametrize(
    ("arch", "flags", "text", "chosen"),
    [
        ("sm_90", (), "x", ("sm_90", "")),
        ("sm_90", (), "wgmma.mma_async", ("sm_90a", "wgmma")),
        ("sm_90", (), "cp.async.bulk.tensor.2d", ("sm_90a", "cp.async.bulk")),
        ("sm_90", (), 'asm("setmaxnreg.dec.sync.aligned.u32 40; // all"); // one', ("sm_90a", "setmaxnreg")),
        ("sm_90", (), "x = 1; // wgmma would be faster\n/* as is\ntcgen05 */", ("sm_90", "")),
        ("sm_100", (), "tcgen05.mma", ("sm_100a", "tcgen05")),
        ("sm_80", (), "wgmma", ("sm_80", "")),
        ("sm_90a", (), "wgmma", ("sm_90a", "")),
        ("sm_90", ("-arch=sm_90a",), "x", ("sm_90a", "flags")),
        ("sm_90", ("-arch", "sm_100f"), "x", ("sm_100f", "flags")),
        ("sm_90", ("-gencode", "arch=compute_80,code=sm_80"), "x", ("sm_80", "flags")),
        ("sm_90", ("-DARCH=sm_80", "-arch=native"), "x", ("sm_90", "")),
        ("sm_90", LIST, "x", ("sm_90", "")),
        ("sm_80", LIST, "x", ("sm_80", "")),
        ("sm_86", LIST, "x", ("sm_80", "flags")),
        ("sm_90", (*LIST, "-gencode=arch=compute_90a,code=[sm_90a,compute_90a]"), "x", ("sm_90a", "flags")),
        ("sm_120", LIST, "x", ("sm_100", "flags")),  # it runs none of them: the newest
        (
            "sm_103",
            ("-gencode=arch=compute_100a,code=sm_100a", "-gencode=arch=compute_100f,code=sm_100f"),
            "x",
            ("sm_100f", "flags"),
        ),
    ],
)
def test_the_architecture_follows_from_flags_and_text(arch, flags, text, chosen):
    assert architectures.architecture(arch, flags, [text]) == chosen


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (LIST, ("sm_80", "sm_90", "sm_100")),
        (("-arch=compute_90", "-code=sm_90,sm_100"), ("sm_90", "sm_100")),
        (("-gencode", "arch=compute_80,code=compute_80", "--gpu-architecture=sm_90a"), ("sm_80", "sm_90a")),
        (("-march=native", "-O3", "-DX=sm_80"), ()),
    ],
)
def test_what_flags_name(flags, wanted):
    assert architectures.listed(flags) == wanted
    assert (
        architectures.without(("-O2", *flags))[0] == "-O2" and architectures.listed(architectures.without(flags)) == ()
    )
    assert architectures.listed(architectures.naming(("-O2", *flags))) == wanted


@pytest.mark.parametrize(
    ("here", "named", "wanted"),
    [
        ((9, 0), "", "sm_90"),
        ((8, 0), "", "sm_80"),
        ((9, 0), "sm_80", "sm_90"),
        (None, "sm_80", "sm_80"),
        (None, "", "sm_100"),
    ],
)
def test_of_several_the_one_for_the_gpu_that_is_here(monkeypatch, here, named, wanted):
    """Else the one of WORKBENCH_ARCH, else the newest."""
    monkeypatch.setattr(gpu, "present", lambda: here is not None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda *_: here)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda *_: "a GPU")
    monkeypatch.setenv("WORKBENCH_ARCH", named)
    first = architectures.chosen(LIST, ())[0]
    assert first == wanted
    assert architectures.architecture(first, LIST, ())[0] == wanted, "a compiler that is given it chooses no other"


def test_headers_of_the_users_count(tmp_path):
    (tmp_path / "mma.cuh").write_text('#define MMA asm volatile("wgmma.fence.sync.aligned;")\n')
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "more.cuh").write_text("// more\n")
    found = architectures.texts('#include "mma.cuh"\n#include <more.cuh>\n', str(tmp_path), ("-I", "inc"))
    assert len(found) == 3 and architectures.architecture("sm_90", (), found) == ("sm_90a", "wgmma")


def test_what_a_gpu_runs():
    device = driver.Device(0, "a GPU", "sm_103", 1, 1, 1, True, 1, 1, 1)
    assert [a for a in ("sm_90", "sm_100", "sm_100a", "sm_100f", "sm_103a", "sm_120") if device.runs(a)] == [
        "sm_100",
        "sm_100f",
        "sm_103a",
    ]
