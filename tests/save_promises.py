"""What the text of 07_save promises."""

from __future__ import annotations

import re

from tests.notebook_steps import Steps


def save(steps: Steps) -> None:
    """Each step of the notebook, on any machine."""
    head = r"rmsnorm_ops 0\.1 \| lab::rmsnorm \| \d+ files in \S+/rmsnorm_ops \| [\d.]+ s\n"
    assert re.fullmatch(head + r"install it: pip install --no-build-isolation \S+/rmsnorm_ops", steps.text("Saved"))
    listed = steps.printed("What is in it").splitlines()
    assert {"csrc/kernels/rmsnorm.cpp", "csrc/registration.cpp", "src/rmsnorm_ops/_rmsnorm.py", "tests/test_rmsnorm.py"} <= set(listed)
    assert 'm.impl("rmsnorm_forward", &rmsnorm_forward_cpu::call);' in steps.printed("The registration")
    assert steps.printed("Built") == "py3-none-linux_x86_64 in less than a minute: True\n"
    looked = steps.text("Looked at")
    assert re.match(r"rmsnorm_ops wheel check \| [67] pass(?:, 1 not run)? \| ", looked) and "nothing was left" in looked
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
    assert said.startswith("lab::shifted: shifted uses table of the notebook, a Tensor of shape (8,): take table as an argument")
    assert "build it with kernel-builder" in steps.text("For the Hub")
