"""Draws an html file to a PNG with Chromium, for the pictures in the README.

    python tools/picture.py card.html card.png --dark --width 980

Needs playwright and a Chromium: /usr/bin/chromium, or the one that the variable CHROMIUM names.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip


def chromium() -> str:
    """The browser's path; "" when there is none."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""


def draw(html: str | Path, png: str | Path, *, dark: bool = False, width: int = 980, scale: float = 2.0) -> None:
    """The whole page of the file `html`, as wide as `width` CSS pixels, written to `png`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium() or None, args=list(FLAGS))
        size, scheme = {"width": width, "height": 200}, "dark" if dark else "light"
        page = browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=scale)
        page.goto(Path(html).resolve().as_uri())
        page.screenshot(path=str(png), full_page=True)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("html")
    parser.add_argument("png")
    parser.add_argument("--dark", action="store_true", help="as a browser in dark mode shows it")
    parser.add_argument("--width", type=int, default=980, help="of the page, in CSS pixels")
    parser.add_argument("--scale", type=float, default=2.0, help="picture pixels for one CSS pixel")
    given = parser.parse_args()
    draw(given.html, given.png, dark=given.dark, width=given.width, scale=given.scale)


if __name__ == "__main__":
    main()
