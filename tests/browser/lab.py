"""JupyterLab in a folder of its own, and a notebook of it in Chromium, driven as a person would."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
)
PATIENCE_MS = 120_000  # for what a kernel computes on a busy machine; nothing waits this long when all is well
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight stay in the page
}
THEMES = "@jupyterlab/apputils-extension/themes"


def chromium() -> str:
    """The browser's path; "" when there is none."""
    named = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next((p for n in named if (p := shutil.which(n))), "")


class Lab:
    """A JupyterLab server on a free local port; its files, settings and runtime lie in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notebooks = folder, folder / "notebooks"
        self.notebooks.mkdir()
        self.settings = folder / "settings"
        for name, values in SETTINGS.items():
            self.set(name, values)

    def set(self, name: str, values: dict) -> None:
        """A setting, as its file says it; a page that is loaded afterwards follows it."""
        path = self.settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))

    def start(self) -> None:
        """Start the server; on another port where somebody was quicker."""
        for _ in range(5):
            self.port = free_port()
            self.log = open(self.folder / "server.log", "w", encoding="utf-8")  # noqa: SIM115  closed in stop
            self.process = subprocess.Popen(self._command(), env=self._environment(), cwd=self.notebooks, stdout=self.log,
                                            stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
            if self._answers():
                return
            self.stop()
        raise RuntimeError(f"JupyterLab did not start:\n{(self.folder / 'server.log').read_text()[-3000:]}")

    def _command(self) -> list[str]:
        options = {
            "ServerApp.port": self.port, "ServerApp.port_retries": 0, "ServerApp.ip": "127.0.0.1",
            "ServerApp.open_browser": False, "ServerApp.root_dir": self.notebooks, "ServerApp.allow_root": True,
            "IdentityProvider.token": "", "ServerApp.disable_check_xsrf": True,
            "LabApp.user_settings_dir": self.settings, "LabApp.workspaces_dir": self.folder / "workspaces",
            "LanguageServerManager.autodetect": False, "ServerApp.terminals_enabled": False,
        }  # fmt: skip
        return [sys.executable, "-m", "jupyter", "lab", *(f"--{name}={value}" for name, value in options.items())]

    def _environment(self) -> dict[str, str]:
        own = {f"JUPYTER_{n}_DIR": str(self.folder / n.lower()) for n in ("CONFIG", "DATA", "RUNTIME")}
        own |= {"IPYTHONDIR": str(self.folder / "ipython"), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        return {**os.environ, **own, "WORKBENCH_CACHE": str(self.folder / "cache"), "JUPYTER_PLATFORM_DIRS": "0"}

    def _answers(self) -> bool:
        until = time.monotonic() + PATIENCE_MS / 1000
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with self.asked("api/status"):
                    return True
            except (urllib.error.URLError, OSError):
                self.process_wait(0.1)
        return False

    def process_wait(self, seconds: float) -> None:
        """Until the server ends, at most so long."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def asked(self, path: str, method: str = "GET"):
        """The answer of the server's REST interface."""
        request = urllib.request.Request(f"{self.url}/{path}", method=method)
        return urllib.request.urlopen(request, timeout=30)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kernels(self) -> list[str]:
        with self.asked("api/kernels") as answer:
            return [k["id"] for k in json.load(answer)]

    def end_kernels(self) -> None:
        for kernel in self.kernels():
            self.asked(f"api/kernels/{kernel}", "DELETE").close()

    def stop(self) -> None:
        """End the kernels, then the server; what does not go is killed."""
        try:
            if self.process.poll() is None:
                self.end_kernels()
                self.process.terminate()
                self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.log.close()

    def write(self, name: str, cells: Sequence[str]) -> Path:
        """A notebook of these code cells."""
        path = self.notebooks / f"{name}.ipynb"
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(new_notebook(cells=[new_code_cell(c) for c in cells], metadata=kernel), path)
        return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Book:
    """An open notebook: run its cells, look at what they show."""

    def __init__(self, page, lab: Lab, path: Path) -> None:
        self.page, self.lab, self.path = page, lab, path
        self.numbers: dict[int, str] = {}
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{lab.url}/lab/tree/{path.name}?reset")
        page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()

    def ready(self) -> None:
        """Wait for a kernel, until it is idle."""
        self.page.locator(
            ".jp-StatusBar-TextItem, .jp-StatusBar-Item", has_text=re.compile(r"\| Idle")
        ).first.wait_for()

    def cell(self, index: int):
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(index)

    def output(self, index: int):
        return self.cell(index).locator(".jp-OutputArea-output")

    def start(self, index: int) -> None:
        """Begin a cell without waiting for its end; once more where nobody listened, as a page just opened may not."""
        from playwright.sync_api import expect

        self.numbers[index] = before = self._prompt(index).inner_text().strip()
        for attempt in range(10):
            self.cell(index).scroll_into_view_if_needed()
            self._prompt(index).click()
            self.page.keyboard.press("Control+Enter")
            try:
                expect(self._prompt(index)).not_to_have_text(before, timeout=5_000 * (attempt + 1))
                return
            except AssertionError:
                self.page.keyboard.press("Escape")
        raise AssertionError(f"cell {index} does not begin")

    def _prompt(self, index: int):
        return self.cell(index).locator(".jp-InputPrompt").first

    def finished(self, index: int) -> None:
        """Wait until the cell has another number than before: its run is over."""
        from playwright.sync_api import expect

        before = re.escape(self.numbers[index])
        expect(self._prompt(index)).to_have_text(re.compile(rf"^(?!{before})\s*\[\d+\]:"), timeout=PATIENCE_MS)

    def run(self, *indices: int) -> None:
        for index in indices:
            self.start(index)
            self.finished(index)

    def save(self) -> None:
        """Save, and wait until the server has said that the file is written."""
        from playwright.sync_api import expect

        with self.page.expect_response(lambda r: r.request.method == "PUT" and "/api/contents/" in r.url) as answer:
            self.page.keyboard.press("Control+s")
        assert answer.value.ok, answer.value.status_text
        expect(self.page.locator(".lm-TabBar-tab.lm-mod-current.jp-mod-dirty")).to_have_count(0)
