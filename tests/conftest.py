"""What every test stands on: a cache of its own for the session, fresh names for ops, and the GPU marker."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator

import pytest

# Set before anything imports workbench, which reads the environment once. A directory that was named stays.
_OWN_CACHE = "" if os.environ.get("WORKBENCH_CACHE") else tempfile.mkdtemp(prefix="workbench-tests-")
if _OWN_CACHE:
    os.environ["WORKBENCH_CACHE"] = _OWN_CACHE


def pytest_unconfigure(config: pytest.Config) -> None:
    if _OWN_CACHE:
        shutil.rmtree(_OWN_CACHE, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanted = [item for item in items if item.get_closest_marker("gpu")]
    if not wanted:
        return
    import torch

    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device here: torch.cuda.is_available() is False")
        for item in wanted:
            item.add_marker(skip)


class _AtOnce:
    """What fails on a GPU is told when it fails: the machine may be gone before the others are through."""

    def __init__(self, config: pytest.Config) -> None:
        self.plugins = config.pluginmanager

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.plugins.getplugin("terminalreporter")
        if report.failed and "gpu" in report.keywords and terminal is not None:
            terminal.write_line(f"\n{report.nodeid} ({report.duration:.1f} s)\n{report.longreprtext}")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background jobs have it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(_AtOnce(config), "workbench-at-once")
    if config.getoption("--hypothesis-seed", None) is None:
        _same_examples()


def _same_examples() -> None:
    """Random examples are the same ones each time: what lands must not hang on luck. A seed of one's own tries others."""
    try:
        from hypothesis import settings
        from hypothesis.internal.conjecture import providers
    except ImportError:  # a machine with a GPU need not have it
        return
    none = getattr(
        providers, "_local_constants", None
    )  # else those of the modules that happen to be imported are drawn
    if none is not None:
        providers._get_local_constants = lambda: none  # type: ignore[attr-defined]
    settings.register_profile("same", derandomize=True, database=None)
    settings.load_profile("same")


@pytest.fixture(scope="module", autouse=True)
def own_ops() -> Iterator[None]:
    """The ops that a file of tests made are not found any more by the next one: a bare name is that file's own."""
    import workbench as wb
    from workbench import define

    before = set(wb.ops)
    yield
    for name in set(wb.ops) - before:
        op = wb.ops[name]
        if op.registration.foreign:
            define._ops.pop(name)  # its library stays
        else:
            op.restore(0)
            define.forget(op)


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test, and no earlier run, has used: `wb.op(f"{namespace}::scale")`."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch) -> str:
    """An empty cache directory for one test, in this process's environment and that of its children."""
    path = str(tmp_path / "cache")
    monkeypatch.setenv("WORKBENCH_CACHE", path)
    return path
