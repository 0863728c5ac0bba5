"""One JupyterLab for a file of tests, and one browser; both are gone at its end, whatever happened."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import FLAGS, Book, Lab, chromium

PICTURES = Path(__file__).parents[2] / "out" / "browser"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.get_closest_marker("browser")]
    why = "" if chromium() else "no Chromium here: apt-get install chromium, or name one with the variable CHROMIUM"
    why = why if importlib.util.find_spec("playwright") else "playwright is not installed"
    for item in here if why else ():
        item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    server = Lab(tmp_path_factory.mktemp("lab"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        shown = ["--hide-scrollbars"]  # playwright's own choice; whether one is in sight is a matter of tests here
        opened = tools.chromium.launch(executable_path=chromium(), args=list(FLAGS), ignore_default_args=shown)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def open_book(lab, browser) -> Iterator:
    """Open a notebook in a window of its own: `open_book(path)`."""
    windows = []

    def opened(path: Path) -> Book:
        windows.append(browser.new_page(viewport={"width": 1280, "height": 1400}))
        return Book(windows[-1], lab, path)

    yield opened
    for window in windows:
        window.close()


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots are kept: out/browser."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
