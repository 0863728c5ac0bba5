"""The flags of a cell as the compilers of a package take them: what the notebook's own build made of them, elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..build import architectures, nvcc_flags
from ..build import flags as build_flags
from ..errors import SaveError
from ..source import Source

KERNELS = "csrc/kernels"
NATIVE = "-march=native"
_FOLDERS = ("-I", "-iquote", "-isystem", "-idirafter", "--include-path=", "-include-path=")
_NVRTC_ONLY = ("-default-device", "--device-int128", "--no-source-include")


@dataclass(frozen=True)
class Flags:
    """`compiling` are those of each of a cell's files, `linking` those of the library."""

    compiling: tuple[str, ...] = ()
    linking: tuple[str, ...] = ()


def for_cpp(given: Sequence[str], source: Source, texts: Iterable[str]) -> Flags:
    """The flags of C++ code whose own `texts`, below `csrc/`, are the cell's and those of the headers beside it.

    >>> for_cpp(("-O3", "-I", "include", "-lm"), source, ("csrc/kernels/f.cpp", "csrc/kernels/include/a.h"))
    Flags(compiling=('-iquotecsrc/kernels', '-O3', '-Icsrc/kernels/include'), linking=('-lm',))

    SaveError for what lies on this machine alone.
    """
    words = (f"-Wl,{unit[1]}" if unit[0] == "-Xlinker" else "".join(unit) for unit in build_flags.units(given))
    return _parted(_placed(words, source, list(texts), "-iquote"), "-fopenmp")


def for_cuda(given: Sequence[str], source: Source, texts: Iterable[str], arch: str, *, as_named: bool = False) -> Flags:
    """The flags of CUDA code that was built for `arch`, as nvcc takes them: the C++ compiler's go through -Xcompiler.

    >>> for_cuda(("-O3", "-fopenmp", "-arch=sm_90a"), source, ("csrc/kernels/f.cu",), "sm_90a")
    Flags(compiling=('-O3', '-Xcompiler=-fopenmp', '-gencode=arch=compute_90a,code=sm_90a'), linking=('-Xcompiler=-fopenmp',))

    `as_named`: all architectures that the flags name are kept, not only those of one generation alone.
    """
    kept = architectures.exact(given) if as_named and architectures.listed(given) else for_architectures(arch, given)
    words = (w for w in nvcc_flags.units(kept) if not w.startswith(_NVRTC_ONLY))
    return _parted(nvcc_flags.spoken(_placed(words, source, list(texts), "-I")), "-Xcompiler=-fopenmp")


def _parted(words: Sequence[str], openmp: str) -> Flags:
    linking = tuple(w for w in words if build_flags.links(w) or w.startswith(openmp))
    return Flags(tuple(w for w in words if not build_flags.links(w)), linking)


def _placed(words: Iterable[str], source: Source, texts: list[str], beside: str) -> list[str]:
    """The words with the folders of headers where these are in a package; those that nothing came from are left out.

    A header in a folder finds, as in the notebook, those that lie beside the cell: `beside` is the option for that.
    """
    headers = [os.path.dirname(t) for t in texts if t.startswith(f"{KERNELS}/")]
    made = [f"{beside}{KERNELS}"] if len(headers) > 1 else []
    for word in words:
        option = next((o for o in _FOLDERS if word.startswith(o)), "")
        value = word.removeprefix(option).removeprefix("=") if option else ""
        _here_alone(word, value, source)
        folder = os.path.normpath(f"{KERNELS}/{value}")
        if not option:
            made.append(word)
        elif any(f"{h}/".startswith(f"{folder}/") for h in headers):
            made.append(f"{option}{'=' * (option == '-isystem' and beside == '-I')}{folder}")
    return made


def _here_alone(word: str, folder: str, source: Source) -> None:
    """SaveError for a flag that names something of this machine, which does not come along."""
    path = folder or re.sub(r"^(?:-L|-include|--pre-include=|-Wl,-rpath,|-Xlinker=-rpath,)=?\s*", "", word)
    if path.startswith("/"):
        raise SaveError(
            f"{source.file or 'a cell'} is built with {word}, which names a place of this machine: put what it needs beside the notebook"
        )
    if not folder and (word.startswith("-L") or (not word.startswith("-") and build_flags.links(word))):
        raise SaveError(
            f"{source.file or 'a cell'} is linked with {word}, which a package does not take along: put its sources into the cell, or "
            "into a header beside the notebook"
        )
    if word != path and os.path.isfile(os.path.join(source.path, path)):
        raise SaveError(
            f'{source.file or "a cell"} is built with {word}: write #include "{path}" into its text, so that it goes along'
        )


def for_architectures(arch: str, given: Sequence[str]) -> tuple[str, ...]:
    """The flags of CUDA code that was built for `arch`, with the architectures that a package keeps.

    >>> for_architectures("sm_90", ("-O3", "-arch=sm_90")), for_architectures("sm_90a", ("-O3",))
    (('-O3',), ('-O3', '-gencode=arch=compute_90a,code=sm_90a'))

    Which GPUs a package is for is said when it is built. Code of one generation alone, which nvcc refuses for every
    other, keeps its architecture, or all that its flags name.
    """
    if not architectures.of_one_generation(arch):
        return architectures.without(given)
    return architectures.exact(given) if architectures.listed(given) else (*given, architectures.gencode(arch))


def for_one_alone(arch: str, given: Sequence[str]) -> bool:
    """Does the package's code run on GPUs of `arch` and on no others?"""
    return architectures.of_one_generation(arch) and len(architectures.listed(given)) < 2


def moved(words: Iterable[str], folder: str) -> tuple[str, ...]:
    """The flags of code whose texts are in a folder of their own below `csrc/kernels`."""
    return tuple(re.sub(rf"{KERNELS}(?=/|$)", f"{KERNELS}/{folder}", w) for w in words)


def of_folders(words: Iterable[str]) -> tuple[str, ...]:
    """The folders of a package in which its flags look for headers.

    >>> of_folders(("-O3", "-iquotecsrc/kernels"))
    ('csrc/kernels',)
    """
    return tuple(w.removeprefix(o).removeprefix("=") for w in words for o in _FOLDERS if w.startswith(f"{o}{KERNELS}"))


def for_this_processor(words: Iterable[str]) -> bool:
    """Do the flags ask for code for the processor that it is built on?"""
    return any(NATIVE in w for w in words)
