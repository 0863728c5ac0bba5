"""Reads the stylesheets beside this file."""

from __future__ import annotations

import functools
import os
import re


@functools.cache
def sheet(name: str) -> str:
    """`sheet("report")` is report.css without comments and line breaks."""
    with open(os.path.join(os.path.dirname(__file__), f"{name}.css"), encoding="utf-8") as file:
        rules = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", " ", rules).strip()
