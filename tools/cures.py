"""Writes docs/cures.md from the table that reports take their cures from.

python tools/cures.py              # tests/tools/test_cures.py fails when the page and the table disagree
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from workbench.check import cures  # noqa: E402  found once the root is on the path

PAGE = ROOT / "docs" / "cures.md"


def main() -> None:
    PAGE.write_text(cures.page(), encoding="utf-8")
    print(f"cures: {PAGE.relative_to(ROOT)} holds {len(cures.TABLE)}")


if __name__ == "__main__":
    main()
