"""Every field report that belongs to what is built so far has a test named after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# The one left out belongs to DTensor (F48).
REPORTS = [*range(1, 48), *range(49, 60)]


@pytest.mark.parametrize("number", REPORTS)
def test_a_report_has_a_test(number):
    folder = Path(__file__).parent
    found = [
        m
        for p in folder.glob("test_*.py")
        for m in re.findall(rf"^def (test_f{number:02}_\w+)\(", p.read_text("utf-8"), re.MULTILINE)
    ]
    assert found
