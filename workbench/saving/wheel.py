"""The wheel of a saved package: built with pip, then looked at: contents, tag, symbols, torch's ABI, a fresh import.

Nothing of it is needed to save; tests, CI and the notebook use it.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import BuildError, SaveError
from ..reports.report import Check, Row

LIMIT_S = 900.0
ALLOWED = re.compile(
    r"lib(?:torch\w*|c10\w*|stdc\+\+|gcc_s|gomp|m|c|dl|pthread|rt|mvec)\.so[.\d]*|ld-linux[\w.-]*\.so[.\d]*"
)


@dataclass(frozen=True)
class Wheel:
    """A built wheel and how long that took."""

    path: str
    seconds: float
    log: str

    @property
    def tag(self) -> str:
        """`py3-none-linux_x86_64`."""
        return "-".join(Path(self.path).stem.split("-")[-3:])


def build(project: str | os.PathLike, into: str | os.PathLike, *, isolated: bool = False, python: str = "") -> Wheel:
    """Build the wheel of a saved package with pip, beside the torch of this Python.

    >>> build("rmsnorm_ops", "dist").tag
    'py3-none-linux_x86_64'

    `isolated` lets pip fetch what the build needs. The sources are copied first, so that nothing is left in them.
    Raises BuildError with pip's whole output where it fails.
    """
    if not (Path(project) / "pyproject.toml").is_file():
        raise SaveError(
            f"{project} holds no pyproject.toml: save a package there first, wb.save(ops, {str(project)!r})"
        )
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        copy = Path(folder) / "project"
        shutil.copytree(
            project, copy, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info", ".git", "__pycache__")
        )
        command = [
            python or sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--wheel-dir",
            str(Path(folder) / "out"),
        ]
        command += [] if isolated else ["--no-build-isolation"]
        done = _run([*command, "-v", str(copy)])
        if done.returncode:
            raise BuildError(f"{project} could not be built: {reason(done.stdout)}", log=done.stdout)
        made = next((Path(folder) / "out").glob("*.whl"))
        Path(into).mkdir(parents=True, exist_ok=True)
        final = Path(into) / made.name
        shutil.move(str(made), final)
    return Wheel(str(final), time.perf_counter() - started, done.stdout)


def reason(log: str) -> str:
    """What went wrong: in the words of a package's own build, else the first line that speaks of an error."""
    own = re.search(r"cannot be built: (.*)", log)
    first = re.search(r".*\b[Ee]rror\b.*", log)
    return own[1].strip() if own else first[0].strip() if first else "see the log"


def check(wheel: str | os.PathLike, *, fresh: bool = True) -> Check:
    """Look at a wheel; one row for each thing that was looked at.

    >>> check("dist/rmsnorm_ops-0.1.0-py3-none-linux_x86_64.whl").ok
    True

    `fresh`: install it into a new environment over this one, import it there, and take it out again.
    """
    started, path = time.perf_counter(), Path(wheel)
    name = path.name.split("-")[0]
    looks: list[Callable[[Path, str], Row]] = [_contents, _record, _tag, _symbols, _audit]
    rows = [look(path, name) for look in looks]
    rows += _fresh(path, name) if fresh else []
    return Check(name, tuple(rows), "wheel", time.perf_counter() - started)


def _contents(path: Path, name: str) -> Row:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    foreign = [n for n in names if not n.startswith((f"{name}/", f"{name}-"))]
    if foreign:
        return Row("contents", "", "fail", f"{foreign[0]} lies outside the package")
    missing = [n for n in ("__init__.py", "py.typed", "_check.py") if f"{name}/{n}" not in names]
    if missing:
        return Row("contents", "", "fail", f"{missing[0]} is missing")
    return Row("contents", "", "pass", f"{len(names)} files, all inside {name}")


def _record(path: Path, name: str) -> Row:
    """Every file listed with its sha256, no directory, nothing unlisted."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        record = next(n for n in names if n.endswith(".dist-info/RECORD"))
        rows = {row[0]: row[1] for row in csv.reader(io.StringIO(archive.read(record).decode()))}
        for each in sorted(names - {record}):
            digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(each)).digest()).rstrip(b"=").decode()
            if rows.get(each) != f"sha256={digest}":
                return Row("RECORD", "", "fail", f"{each} is not listed with its digest")
    extra = sorted(set(rows) - names)
    return Row(
        "RECORD", "", "fail" if extra else "pass", f"{extra[0]} is not there" if extra else f"{len(rows)} entries"
    )


def _libraries(path: Path, folder: str) -> list[Path]:
    with zipfile.ZipFile(path) as archive:
        return [Path(archive.extract(n, folder)) for n in archive.namelist() if n.endswith(".so")]


def _tag(path: Path, name: str) -> Row:
    """A tag says what the wheel needs: no Python's ABI where its libraries have none of its symbols."""
    tag = "-".join(path.stem.split("-")[-3:])
    with tempfile.TemporaryDirectory() as folder:
        native = bool(_libraries(path, folder))
    wanted = "py3-none-any" if not native else "py3-none-"
    fits = tag == wanted if not native else tag.startswith(wanted) and not tag.endswith("-any")
    return Row("tag", "", "pass" if fits else "fail", tag if fits else f"{tag}, expected {wanted}...")


def _symbols(path: Path, name: str) -> Row:
    """No symbol of Python's, no library besides torch's and the system's."""
    with tempfile.TemporaryDirectory() as folder:
        libraries = _libraries(path, folder)
        if not libraries:
            return Row("symbols", "", "pass", "there is no compiled code")
        if not shutil.which("readelf"):
            return Row("symbols", "", "skip", "not looked at: readelf is not installed (binutils)")
        for library in libraries:
            text = _run(["readelf", "-Wd", "--dyn-syms", str(library)]).stdout
            python = re.search(r"UND\s+(_?Py[A-Z]\w+)", text)
            if python:
                return Row("symbols", library.name, "fail", f"it calls {python[1]} of Python")
            needed = [n for n in re.findall(r"\(NEEDED\).*\[(.*)\]", text) if not ALLOWED.fullmatch(n)]
            if needed:
                return Row("symbols", library.name, "fail", f"it needs {needed[0]}")
    return Row("symbols", "", "pass", "nothing of Python, no library besides torch's and the system's")


def _audit(path: Path, name: str) -> Row:
    """torch-abi-audit's verdict, where it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        libraries = _libraries(path, folder)
        if not libraries:
            return Row("torch ABI", "", "pass", "there is no compiled code")
        with zipfile.ZipFile(path) as archive:
            exact = "EXACT = True" in archive.read(f"{name}/_check.py").decode()
        if exact:
            return Row("torch ABI", "", "pass", "code on at::Tensor: it is pinned to one torch")
        try:
            import torch_abi_audit  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            return Row("torch ABI", "", "skip", "not looked at: pip install torch-abi-audit")
        del torch_abi_audit
        for library in libraries:
            done = _run([sys.executable, "-m", "torch_abi_audit.cli", str(library), "--json"])
            found = re.findall(r'"unstable_symbols": \[([^\]]*)\]', done.stdout)
            if not found or any(each.strip() for each in found):
                return Row(
                    "torch ABI",
                    library.name,
                    "fail",
                    f"it reaches behind the stable ABI: {(found or [done.stdout])[0].strip()[:200]}",
                )
    return Row("torch ABI", "", "pass", "stable: torch-abi-audit found nothing behind the stable ABI")


def _fresh(path: Path, name: str) -> list[Row]:
    """Install, import, uninstall in a new environment that sees this one's packages."""
    with tempfile.TemporaryDirectory(prefix="fresh-") as folder:
        python = environment(folder)
        before = _listed(Path(folder))
        done = _run([python, "-m", "pip", "install", "--no-deps", "--no-index", str(path)])
        if done.returncode:
            return [Row("install", "", "fail", done.stdout[-300:])]
        program = f"import {name}, json; print(json.dumps([{name}.__version__, {name}.__all__]))"
        done = _run([python, "-c", program], cwd=folder)
        if done.returncode:
            return [Row("import", "", "fail", done.stdout.strip().splitlines()[-1])]
        version, ops = json.loads(done.stdout.strip().splitlines()[-1])
        rows = [Row("import", "", "pass", f"{name} {version} in a fresh environment: {', '.join(ops)}")]
        _run([python, "-m", "pip", "uninstall", "-y", name])
        left = sorted(_listed(Path(folder)) - before)
        said = f"{left[0]} was left" if left else "nothing was left"
        return [*rows, Row("uninstall", "", "fail" if left else "pass", said)]


def environment(folder: str | os.PathLike) -> str:
    """A new virtual environment that sees the packages of this one; its Python."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = str(Path(folder) / "bin" / "python")
    purelib = _run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).stdout.strip()
    here = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    Path(purelib, "beside.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
    return python


def _listed(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts}


def _run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT_S,
        check=False, cwd=more.get("cwd"),
    )  # fmt: skip
