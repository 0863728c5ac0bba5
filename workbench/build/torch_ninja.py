"""The ninja file of `torch.utils.cpp_extension`, with our sources in it: torch chooses the flags, we the paths.

torch writes paths as they are; ninja and the shell read `$`, `:`, quotes and spaces in them their own way. So torch is
given stand-ins, and what takes their place here is quoted for both. torch's module is imported when first needed.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from .. import settings
from ..errors import ToolchainError
from . import architectures

PIP = f"{shlex.quote(sys.executable)} -m pip install"


@dataclass(frozen=True)
class Unit:
    """One source of a ninja file: its file name in the build folder, and what its compiler run gets besides."""

    file: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cuda:
    """What nvcc's sources need: the toolkit's folder, the one architecture, and torch's `extra_cuda_cflags`."""

    home: str
    arch: str
    cflags: tuple[str, ...] = ()

    @property
    def arch_list(self) -> str:
        """As torch writes it: "9.0" for sm_90, "9.0a" for sm_90a."""
        return architectures.capability(self.arch)


_one_at_a_time = threading.Lock()


@contextmanager
def _for_cuda(torchs: ModuleType, cuda: Cuda | None) -> Iterator[None]:
    """torch's module as if that toolkit were its own, and that architecture the only one; then as it was."""
    if cuda is None:
        yield
        return
    with _one_at_a_time, settings.variable("TORCH_CUDA_ARCH_LIST", cuda.arch_list):
        former, torchs.CUDA_HOME = torchs.CUDA_HOME, cuda.home  # type: ignore[attr-defined]
        try:
            yield
        except ValueError as error:  # an architecture that this torch does not know
            raise ToolchainError(f"torch.utils.cpp_extension: {error}. Set WORKBENCH_ARCH to another one") from error
        finally:
            torchs.CUDA_HOME = former  # type: ignore[attr-defined]


def has_cuda() -> bool:
    """Was the torch of this process built with CUDA?"""
    import torch

    return torch.version.cuda is not None


def render(
    units: Sequence[Unit],
    *,
    name: str,
    compiler: Sequence[str],
    cflags: Sequence[str] = (),
    ldflags: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    objects: Sequence[str] = (),
    first_ldflags: Sequence[str] = (),
    cuda: Cuda | None = None,
) -> str:
    """The text of build.ninja that makes `NAME.so` of the units, run in the folder that holds them.

    `cflags` and `ldflags` are words as torch takes them: read by the shell. `include_paths` and `objects` (linked in
    as they are) are plain paths, `first_ldflags` plain words; any characters do. `cuda` is for units that end in .cu.
    """
    torchs = _module()
    folders = [f"/wb-include-{i}-" for i in range(len(include_paths))]
    with tempfile.TemporaryDirectory(prefix="workbench-") as scratch, _for_cuda(torchs, cuda):
        path = os.path.join(scratch, "build.ninja")
        with_cuda = cuda is not None
        # A torch without CUDA has no libraries of it to link: what is made is not loaded.
        link = torchs._prepare_ldflags(["/wb-objects-", *ldflags], with_cuda and has_cuda(), False, False, False)
        torchs._write_ninja_file_to_build_library(
            path=path, name=name, sources=[f"/{u.file}" for u in units], extra_cflags=list(cflags),
            extra_cuda_cflags=list(cuda.cflags if cuda else ()), extra_sycl_cflags=[], extra_ldflags=link,
            extra_include_paths=folders, with_cuda=with_cuda, with_sycl=False, is_standalone=False,
        )  # fmt: skip
        with open(path, errors="surrogateescape") as file:  # in whatever encoding torch has written it
            text = file.read()
    text = re.sub(r"(?m)^cxx = .*$", lambda _: f"cxx = {value(*compiler)}", text)
    for stand_in, folder in zip(folders, include_paths, strict=True):
        text = text.replace(stand_in, value(os.path.abspath(folder)))
    text = text.replace("/wb-objects-", value(*first_ldflags, *objects))
    for folder in (*torchs.include_paths(), torchs.TORCH_LIB_PATH):
        text = text.replace(f"-L{folder} ", f"-L{value(folder)} ").replace(shlex.quote(folder), value(folder))
    for unit in units:
        text = _with_flags(text, unit.file, value(*unit.flags))
    return text


def _with_flags(text: str, file: str, flags: str) -> str:
    """The rule for one file with flags of its own, and under its own path."""
    rule = rf"(?m)^(build .*: (cuda_)?compile) /{re.escape(file)}$"
    return re.sub(rule, lambda m: f"{m[1]} {file}\n  {m[2] or ''}post_cflags = {flags}", text)


def value(*words: str) -> str:
    """Words for a variable of ninja that a shell reads: `value("a b", "$c")` is `'a b' '$$c'`."""
    return " ".join(shlex.quote(w) for w in words).replace("$", "$$")


@functools.cache
def cflags() -> tuple[str, ...]:
    """The flags with which torch compiles a C++ source of an extension, as words."""
    text = render([Unit("x.cpp")], name="wb", compiler=["c++"])
    found = re.search(r"(?m)^cflags = (.*)$", text)
    words = shlex.split((found[1] if found else "").replace("$$", "$"))
    return tuple(w for w in words if not w.startswith("-DTORCH_EXTENSION_NAME"))


@functools.cache
def program() -> str:
    """The program ninja: that of the package, whatever PATH says, else the one on PATH."""
    try:
        import ninja

        found = shutil.which("ninja", path=ninja.BIN_DIR)
    except (ImportError, AttributeError):
        found = None
    found = found or shutil.which("ninja", path=settings.programs())
    if found is None:
        raise ToolchainError(f"building an extension needs ninja. Type `{PIP} ninja`")
    return found


@functools.cache
def _module() -> ModuleType:
    try:
        import torch.utils.cpp_extension as torchs
    except ImportError as error:
        raise ToolchainError(
            f"torch.utils.cpp_extension cannot be imported: {error}. Type `{PIP} setuptools`"
        ) from error
    if not Path(torchs.include_paths()[0]).is_dir():
        raise ToolchainError(f"torch's C++ headers are not in {torchs.include_paths()[0]}; install torch again")
    return torchs
