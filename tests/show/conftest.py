import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `samples`
CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")


@pytest.fixture
def opened(tmp_path):
    """Opens html in a browser of its own, with or without scripts; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = next((p for p in CHROMIUM if os.path.exists(p)), None)
    if program is None:
        pytest.skip("no Chromium here")
    file = tmp_path / "page.html"
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=program, args=["--no-sandbox"])

        def page(html: str, scripts: bool = True):
            file.write_text(f"<!doctype html><meta charset=utf-8>{html}", encoding="utf-8")
            made = browser.new_page(java_script_enabled=scripts)
            made.goto(file.as_uri())
            return made

        yield page
        browser.close()
