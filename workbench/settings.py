"""What the environment says, read here and nowhere else, at the time of asking: nothing is read or made at import.

WORKBENCH_CACHE  where builds are kept (default: the user's cache folder)
WORKBENCH_ARCH   the GPU architecture to compile for, e.g. sm_90 (default: that of the GPU in this machine)
WORKBENCH_CXX    the C++ compiler, e.g. clang++-17 (default: CXX, then g++ or clang++)
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ToolchainError

# These change what a compiler finds, without being on its command line.
SEARCH_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH")


def cache_dir() -> Path:
    """The folder in which builds are kept; it need not exist yet.

    >>> settings.cache_dir()
    PosixPath('/home/me/.cache/workbench')

    Raises ToolchainError for a WORKBENCH_CACHE below the home of a user that there is not.
    """
    named = os.environ.get("WORKBENCH_CACHE", "").strip()
    if named:
        try:
            return Path(named).expanduser().absolute()
        except RuntimeError as error:  # ~name, and there is no such user
            raise ToolchainError(f"WORKBENCH_CACHE is {named!r}: {error} Write the whole path") from None
    import platformdirs

    return Path(platformdirs.user_cache_dir("workbench"))


def arch() -> str | None:
    """WORKBENCH_ARCH as `sm_90`; "90", "9.0" and "compute_90" mean the same. None when it is not set.

    Raises ToolchainError for anything else.
    """
    named = os.environ.get("WORKBENCH_ARCH", "").strip().lower()
    if not named:
        return None
    match = re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)", named)
    if not match:
        raise ToolchainError(f"WORKBENCH_ARCH is {named!r}: no GPU architecture. Write it like sm_90")
    return "sm_{}{}{}".format(*match.groups())


def cxx() -> tuple[str, tuple[str, ...]] | None:
    """The variable that names a C++ compiler and its words: `("CXX", ("ccache", "g++"))`; None when neither is set.

    Raises ToolchainError for words that a shell could not read.
    """
    for variable in ("WORKBENCH_CXX", "CXX"):
        said = os.environ.get(variable, "")
        try:
            words = shlex.split(said)
        except ValueError as error:
            raise ToolchainError(
                f"{variable} is {said!r}: {error}. Write it as in a shell, like 'ccache g++'"
            ) from None
        if words:
            return variable, tuple(words)
    return None


def max_jobs() -> int:
    """MAX_JOBS, torch's own variable for how many compilers an extension may start at once; 0 when it is not set."""
    named = os.environ.get("MAX_JOBS", "").strip()
    return int(named) if named.isdigit() else 0


def cuda_homes() -> tuple[str, ...]:
    """CUDA toolkits that are named by the variables that torch and CMake know: CUDA_HOME, CUDA_PATH."""
    return tuple(dict.fromkeys(os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)))


def programs() -> str:
    """Where programs are looked for: PATH, this interpreter's own folder, and the usual ones.

    A notebook server started from a desktop often has a PATH without the environment's own programs.
    """
    usual = [os.path.join(sys.prefix, "bin"), os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"]
    return os.pathsep.join([*os.environ.get("PATH", "").split(os.pathsep), *usual])


def compiler_environment(temporary: str | None = None) -> dict[str, str]:
    """The environment a compiler runs in: messages in English and UTF-8, its temporary files under `temporary`."""
    made = {name: value for name, value in os.environ.items() if name not in {"LC_MESSAGES", "LANGUAGE", "LANG"}}
    made["LC_ALL"] = "C.UTF-8"
    made["PATH"] = programs()
    made.pop("GCC_COLORS", None)
    if temporary:
        made.update(TMPDIR=temporary, TMP=temporary, TEMP=temporary)
    return made


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """A variable of this process for as long as the block runs, for torch's own code that reads it; then as it was."""
    former = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if former is None:
            del os.environ[name]
        else:
            os.environ[name] = former


def search_paths() -> tuple[tuple[str, str], ...]:
    """The variables that change what a compiler finds, as they are set now: they belong in a key."""
    return tuple((name, os.environ[name]) for name in SEARCH_VARIABLES if os.environ.get(name))


def private(folder: Path) -> Path:
    """`folder`, made if need be, for its owner alone.

    Raises ToolchainError when others can write to it (what lies in it is loaded and run), OSError when it cannot
    be made.
    """
    if not owned(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owned(folder)
    return folder


def owned(folder: Path) -> bool:
    """Whether `folder` is there. Raises ToolchainError when others can write to it, OSError when it is no folder."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(folder))
    owners = {found.st_uid, folder.lstat().st_uid}  # a link may be another's than what it leads to
    strangers = owners - {os.geteuid(), 0} if hasattr(os, "geteuid") else ()
    if strangers:
        raise ToolchainError(
            f"the cache {folder} belongs to another user (uid {min(strangers)}), who could put code into it. "
            "Set WORKBENCH_CACHE to a folder of your own"
        )
    if found.st_mode & 0o022:
        raise ToolchainError(
            f"the cache {folder} can be written to by others, who could put code into it. "
            f"Type `chmod go-w {shlex.quote(str(folder))}`, or set WORKBENCH_CACHE to another folder"
        )
    return True
