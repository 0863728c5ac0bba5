"""Every field report that belongs to what is built so far has a test named after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# Building, registering, calls, checking, gradients, Triton, launching, the notebook. Those left out belong to tuning
# (F40 to F43), benchmarks (F47), DTensor (F48), export (F49), classes (F50), profiling (F51 to F53) and packages (F55 on).
REPORTS = [*range(1, 40), 44, 45, 46, 54]


@pytest.mark.parametrize("number", REPORTS)
def test_a_report_has_a_test(number):
    folder = Path(__file__).parent
    found = [
        m
        for p in folder.glob("test_*.py")
        for m in re.findall(rf"^def (test_f{number:02}_\w+)\(", p.read_text("utf-8"), re.MULTILINE)
    ]
    assert found
