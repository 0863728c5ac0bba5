"""Command lines of the C++ compiler, as pure functions: which flags a kind of text gets, in which order."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence

from .. import settings, toolchain
from ..toolchain import Compiler

# The user's own flags come later, and win.
ALWAYS = ("-O2", "-std=c++20", "-fPIC", "-fvisibility=hidden", "-pipe", "-ftabstop=1", "-fdiagnostics-color=never")
GCC_ONLY = ("-fno-gnu-unique",)  # a unique symbol would keep the first version of a re-run cell alive for all
# Where a compiler puts a C++ library of its own into all it links, as some are set up to, its names stay inside. Else
# the unique ones among them (std::locale::id) are bound to the copy that torch brought: a std::ostringstream crashes.
ITS_OWN = "--exclude-libs=libstdc++.a"
STABLE_ABI = "-DTORCH_TARGET_VERSION=0x020b000000000000"  # 2.11, the oldest torch that is supported
BEYOND = "-UTORCH_TARGET_VERSION"  # of a text that includes headers of torch that are not of the stable ABI
STABLE = ("launcher", "host", "host-cuda")  # the kinds that stand on torch's stable ABI
LIBRARY = ("-l", "-L", "-Wl,", "-Xlinker")
WITH_VALUE = {"-I", "-iquote", "-isystem", "-idirafter", "-D", "-U", "-L", "-l", "-Xlinker", "-include", "-x"}


def compiling(compiler: Compiler, kind: str, flags: Sequence[str] = ()) -> tuple[str, ...]:
    """The flags that turn a text of that kind into an object, the user's `flags` last.

    Kinds are "body", "launcher", "host", "host-cuda" (the host half of a CUDA cell) and "full".

    >>> compiling(gcc, "body", ("-O3", "-lm"))[-2:]
    ('-fno-gnu-unique', '-O3')
    """
    made = [*ALWAYS, *(GCC_ONLY if compiler.family == "gcc" else ())]
    if kind == "full":
        from . import torch_ninja

        made = [*torch_ninja.cflags(), *full(compiler)]
    if kind in STABLE:
        # Beside -O2: a third less to wait for, and 0.05 us more a call. The work is done elsewhere.
        made += ["-O1"] if kind in ("launcher", "host-cuda") else []
        made.append(STABLE_ABI)
        for folder in toolchain.torch().include:
            made += ["-isystem", folder]
    if kind == "host-cuda":
        from . import cuda_headers

        folder = cuda_headers.for_hosts()
        made += ["-isystem", folder] if folder else []
    return (*made, *(word for words in units(flags) if not links(words[0]) for word in words))


def full(compiler: Compiler) -> tuple[str, ...]:
    """What the full tier adds to torch's own flags, before the user's; `prelude.optimisation` lowers its -O."""
    of_torch = ("-std=", "-fPIC")
    made = tuple(f for f in ALWAYS if not f.startswith(of_torch))
    return (*made, *(GCC_ONLY if compiler.family == "gcc" else ()))


def linking(compiler: Compiler, kind: str, flags: Sequence[str] = (), stub: str = "") -> tuple[str, ...]:
    """What follows the text on the command line: libraries, the user's last.

    An undefined name is an error here, where the compiler's message names it, and not when the object is loaded. `stub`
    may name the folder of a small libtorch_cpu, which links in a fifth of the time; a launcher's is empty. See stub.py.
    """
    made = [*([f"-fuse-ld={compiler.linker}"] if compiler.linker else []), f"-Wl,{ITS_OWN}"]
    if kind in STABLE:
        lib = toolchain.torch().lib
        made += ["-Wl,--no-as-needed", f"-L{stub}"] if stub else []
        made += [] if stub and kind == "launcher" else ["-Wl,-z,defs", f"-L{lib}"]
        made += [f"-Wl,-rpath,{lib}", "-ltorch_cpu", *([] if stub else ["-lc10"])]
    else:
        made.append("-Wl,-z,defs")
    return (*made, *(word for words in units(flags) if links(words[0]) for word in words))


def folders(
    flags: Sequence[str], beside: str, options: Sequence[str] = ("-I", "-iquote", "-isystem")
) -> tuple[str, ...]:
    """The folders that `flags` name for headers, relative ones seen from `beside`, where the compiler runs.

    >>> folders(("-Iinclude", "-I", "b"), "/home/me")
    ('/home/me/include', '/home/me/b')
    """
    found = []
    for words in units(flags):
        option = next((o for o in options if words[0].startswith(o)), None)
        if option:
            found.append(words[1] if len(words) > 1 else words[0].removeprefix(option))
    return tuple(os.path.join(beside, f) for f in found if f)


def absolute(flags: Sequence[str], beside: str) -> tuple[str, ...]:
    """The flags with the folders of headers seen from `beside`, for a compiler that runs somewhere else.

    >>> absolute(("-O3", "-Iinclude", "-isystem", "b"), "/home/me")
    ('-O3', '-I/home/me/include', '-isystem/home/me/b')
    """
    made: list[str] = []
    for words in units(flags):
        named = folders(words, beside)
        option = next((o for o in ("-iquote", "-isystem", "-I") if words[0].startswith(o)), "")
        made += [f"{option}{named[0]}"] if named else words
    return tuple(made)


def that_matter_to_a_precompiled_header(flags: Sequence[str]) -> tuple[str, ...]:
    """All but search paths, libraries and -D: with g++ 12 a different -O or -std drops it or crashes the compiler."""
    kept: list[str] = []
    for words in units(flags):
        if not links(words[0]) and not words[0].startswith(("-I", "-i", "-D", "-U", "-W")):
            kept += words
    return tuple(kept)


def identity(compiler: Compiler, kind: str, flags: Sequence[str]) -> dict[str, object]:
    """For keys: everything besides texts that changes what such a compiler run makes."""
    parts: dict[str, object] = {
        "kind": kind,
        "compiler": compiler.identity,
        "system": toolchain.system(),
        # torch's own flags go with its version: a hit in the store need not import cpp_extension
        "compiling": (*full(compiler), *flags) if kind == "full" else compiling(compiler, kind, flags),
        "linking": linking(compiler, kind, flags),
        "search": settings.search_paths(),
    }
    if any(flag.endswith("=native") for flag in flags):
        parts["processor"] = toolchain.processor()
    if kind in (*STABLE, "full"):
        torch = toolchain.torch()
        parts["torch"] = (torch.version, torch.revision, torch.lib)
    if kind == "full":
        parts["python"] = (sysconfig.get_config_var("SOABI") or "", sysconfig.get_path("include"))
    return parts


def units(flags: Sequence[str]) -> list[tuple[str, ...]]:
    """Flags with their values: `["-I", "a", "-O3"]` gives `[("-I", "a"), ("-O3",)]`."""
    units, rest = [], list(flags)
    while rest:
        count = 2 if rest[0] in WITH_VALUE and len(rest) > 1 else 1
        units.append(tuple(rest[:count]))
        del rest[:count]
    return units


def links(word: str) -> bool:
    """Is the flag the linker's? `-lineinfo` is nvcc's, and no library."""
    return (word.startswith(LIBRARY) and word != "-lineinfo") or word.endswith((".a", ".so", ".o"))
