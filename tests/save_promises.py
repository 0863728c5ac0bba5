"""What the texts of 07_save and 08_deploy promise."""

from __future__ import annotations

import re

from tests.notebook_steps import Steps


def save(steps: Steps) -> None:
    """Each step of the notebook, on any machine."""
    head = r"rmsnorm_ops 0\.1 \| lab::rmsnorm \| \d+ files in \S+/rmsnorm_ops \| [\d.]+ s\n"
    assert re.fullmatch(head + r"install it: pip install --no-build-isolation \S+/rmsnorm_ops", steps.text("Saved"))
    listed = steps.printed("What is in it").splitlines()
    assert {
        "csrc/kernels/rmsnorm.cpp",
        "csrc/registration.cpp",
        "src/rmsnorm_ops/_rmsnorm.py",
        "tests/test_rmsnorm.py",
    } <= set(listed)
    assert 'm.impl("rmsnorm_forward", &rmsnorm_forward_cpu::call);' in steps.printed("The registration")
    assert steps.printed("Built") == "py3-none-linux_x86_64 in less than a minute: True\n"
    looked = steps.text("Looked at")
    assert (
        re.match(r"rmsnorm_ops wheel check \| [67] pass(?:, 1 not run)? \| ", looked) and "nothing was left" in looked
    )
    assert re.search(r"\d+ passed", steps.printed("Its own tests, in a new environment"))
    used = steps.printed("Used").splitlines()
    assert used[0] == "torch.Size([4, 128]) True False"
    assert used[1] == "lab::rmsnorm (cpp): require w.shape == (cols,) is not met: w.shape is (3,), cols is 128"
    assert ".github/workflows/test.yml keeps what was changed by hand" in steps.text("Changed by hand")
    said = steps.error("A conflict")["evalue"]
    assert "csrc/kernels/rmsnorm.cpp in " in said and "was changed by hand, and would be written otherwise" in said
    assert "sum = std::fma(x[c], x[c], sum)" in said and said.endswith("nothing was written")
    said = steps.text("A new version")
    assert "lab::rmsnorm: compatible, the new argument offset may be left out\nfor these changes call it 1.1.0" in said
    said = steps.error("What cannot be saved")["evalue"]
    assert said.startswith(
        "lab::shifted: shifted uses table of the notebook, a Tensor of shape (8,): take table as an argument"
    )
    assert "build it with kernel-builder" in steps.text("For the Hub")


def deploy(steps: Steps) -> None:
    """Each step of 08_deploy, on any machine with CMake."""
    said = steps.text("Deployed")
    assert re.match(r"block \| cpu \| model\.pt2 in \S+/block \| [\d.]+ s\n", said)
    assert "lab::rmsnorm       runs its library" in said
    assert "lab::squared_relu  runs its reference, compiled into the model" in said
    for by, on in (
        ("Python", "example"),
        ("C++", "example"),
        ("Python", "another batch"),
        ("C++", "another batch"),
        ("ONNX", "example"),
    ):
        assert re.search(rf"^  {re.escape(by)} +{on} +1 output, ", said, re.MULTILINE), said
    listed = set(steps.printed("What is in it").splitlines())
    assert {
        "model.pt2",
        "exported.pt2",
        "model.onnx",
        "lib/libblock_ops.so",
        "cpp/main.cpp",
        "bin/run",
        "run.py",
    } <= listed
    assert re.fullmatch(r"output 0 (equal|differs \S+)\nFalse\n", steps.printed("Without Python"))
    assert (
        steps.printed("In a Python that has torch alone").split("\n")[0]
        == "torch.Size([3, 256]) torch.Size([50, 256]) False"
    )
    missing = steps.printed("Without its library")
    assert missing.startswith("2 .../block/lib/libblock_ops.so cannot be loaded, and the ops of this model are in it")
    assert "Build it anew from .../block/ops" in missing and "Exception raised" not in missing
    said = steps.error("What cannot be exported")["evalue"]
    assert said.startswith("the model cannot be exported: ") and said.endswith("nothing was written")
