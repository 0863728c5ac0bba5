"""Looks at what is around: the cache, the process in which kernels are tried, widgets."""

from __future__ import annotations

import importlib
import importlib.metadata
import shutil
import tempfile
import time

from .. import settings
from ..errors import ToolchainError
from .trying import LIMIT_S, PIP, Found, missing, works


def cache_() -> Found:
    from ..build import cache, listing

    folder = settings.cache_dir()
    try:
        settings.private(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except ToolchainError:
        raise
    except OSError as error:
        cure = "Set WORKBENCH_CACHE to a folder that can be written to"
        return "fail", f"{folder} cannot be written to ({error.strerror}): builds are lost when the process ends", cure
    held = listing.entries(folder)
    free = shutil.disk_usage(folder).free
    taken, most = listing.size(sum(e.size for e in held)), listing.size(cache.limit_bytes())
    said = f"{folder}: {len(held):,} builds, {taken} of {most}"
    if free < 1 << 30:
        return (
            "fail",
            f"{said}; only {listing.size(free)} are free on its disk",
            "Type `workbench cache clear`, or make room",
        )
    return works(f"{said}; {listing.size(free)} are free on its disk")


def worker_() -> Found:
    import torch

    from ..trial import Job, Step, worker

    start = time.perf_counter()
    answer = worker().run(Job((Step("aten::add.Tensor", (torch.ones(2), torch.ones(2))),)), LIMIT_S)
    (result,) = answer.results
    if result.status != "ok":
        return (
            "fail",
            f"the process in which new kernels are tried does not work: {result.detail}",
            "Look at its message above",
        )
    return works(f"the process in which new kernels are tried runs; started in {time.perf_counter() - start:.1f} s")


def widgets() -> Found:
    try:
        version = importlib.metadata.version("ipywidgets")
        importlib.import_module("ipywidgets")
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return missing("ipywidgets is not here: reports show as static html and text", f"Type `{PIP} ipywidgets`")
    try:
        front = importlib.metadata.version("jupyterlab_widgets")
    except importlib.metadata.PackageNotFoundError:
        return missing(
            f"ipywidgets {version} without jupyterlab_widgets: JupyterLab cannot draw them",
            f"Type `{PIP} jupyterlab_widgets`",
        )
    if int(version.split(".")[0]) < 8:
        return missing(f"ipywidgets {version} is too old", f"Type `{PIP} -U ipywidgets`")
    return works(f"ipywidgets {version}, jupyterlab_widgets {front}")
