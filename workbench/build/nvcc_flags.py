"""Flags of nvcc's command line: which words belong together, and which are its own, not the C++ compiler's. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from . import flags as arguments

# nvcc's own options by name, as `nvcc --help` has them, without those that say what is made or where it goes.
_OWN_NAMES = """
    allow-unsupported-compiler arch astoolspatch brief-diag ccbin code compress-mode cudadevrt cudart default-stream
    device-entity-has-hidden-visibility device-stack-protector diag-error diag-suppress diag-warn dlto dopt e err-no ewp
    expt-extended-lambda expt-relaxed-constexpr extended-lambda extra-device-vectorization fdevice-syntax-only
    fdevice-time-trace fmad forward-unknown-opts forward-unknown-to-host-compiler forward-unknown-to-host-linker
    frandom-seed ftemplate-backtrace-limit ftemplate-depth ftz gen-opt-lto gencode include isystem jtd keep
    keep-device-functions keep-dir ldir lineinfo lto maxrregcount no-align-double no-compress nodlink noeh
    nohdinitlist nohdmoveforward noprof Ofc opt-info optf prec-div prec-sqrt rdc reloc-ptx res-usage restrict sanitize
    split-compile split-compile-extended src-in-ptx static-global-template-stub target-dir time use_fast_math w
    Wdefault-stream-launch Wext-lambda-captures-this Wmissing-launch-bounds Wno-deprecated-declarations
    Wno-deprecated-gpu-targets Wreorder Xarchive Xcompiler Xfatbin Xlinker Xnvlink Xptxas
    D G I L O U g l m m64 pg std t v x
"""
_OWN = frozenset(_OWN_NAMES.split())
# The long names of some, which nvcc takes with one dash too.
_LONG = frozenset({"gpu-architecture", "gpu-code", "generate-code", "generate-line-info", "ptxas-options",
                   "compiler-options", "linker-options", "compiler-bindir", "device-debug", "relocatable-device-code",
                   "threads", "optimize", "define-macro", "undefine-macro", "include-path", "system-include",
                   "pre-include", "library", "library-path", "machine"})  # fmt: skip
_JOINED = ("-I", "-D", "-U", "-L", "-l", "-O", "-t", "-m")  # their value needs no `=`
_BOTH = frozenset({"D", "I", "U", "L", "l", "O", "g", "std", "w", "m64", "pg", "include", "isystem",
                   "Wno-deprecated-declarations", "Wreorder"})  # fmt: skip
# Those whose value may be the next word, by their names without dashes.
_VALUED_NAMES = """
    arch gpu-architecture code gpu-code gencode generate-code Xcompiler compiler-options Xlinker linker-options Xptxas
    ptxas-options Xnvlink nvlink-options Xarchive Xfatbin ccbin compiler-bindir rdc relocatable-device-code maxrregcount
    std default-stream cudart cudadevrt diag-suppress diag-error diag-warn split-compile threads t x include pre-include
    isystem system-include I include-path D define-macro U undefine-macro L library-path l library O optimize m machine
    dopt ftz fmad prec-div prec-sqrt opt-info keep-dir target-dir ldir optf time frandom-seed ftemplate-depth
    ftemplate-backtrace-limit iquote idirafter
"""
_VALUED = frozenset(_VALUED_NAMES.split())
# Of nvcc's -Werror; the C++ compiler's has others, and needs none.
_ERRORS = frozenset({"all-warnings", "cross-execution-space-call", "default-stream-launch", "missing-launch-bounds",
                     "ext-lambda-captures-this"})  # fmt: skip


def units(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags, each one word: a value that stands alone is joined to its option.

    >>> units(("-gencode", "arch=compute_90,code=sm_90", "-I", "inc", "-O3"))
    ('-gencode=arch=compute_90,code=sm_90', '-Iinc', '-O3')
    """
    made, rest = [], list(flags)
    while rest:
        word = rest.pop(0)
        if rest and _takes(word, rest[0]):
            word += f"{'' if word in _JOINED else '='}{rest.pop(0)}"
        made.append(word)
    return tuple(made)


def _takes(word: str, following: str) -> bool:
    name = word.lstrip("-")
    if not word.startswith("-") or "=" in word:
        return False
    if name == "Werror":
        return following in _ERRORS
    if name in {"O", "m"}:  # -O alone is a flag
        return following.isdigit()
    return name in _VALUED


def own(word: str) -> bool:
    """Is the word nvcc's, which the C++ compiler does not know or reads otherwise?

    >>> own("-arch=sm_90a"), own("-rdc=true"), own("-march=native"), own("-ftz=true"), own("-fopenmp")
    (True, True, False, True, False)
    """
    name, _, value = word.lstrip("-").partition("=")
    if not word.startswith("-"):
        return False
    if word.startswith("--") or name in _OWN or name in _LONG:
        return True
    if name == "Werror":
        return value in _ERRORS
    return word.startswith(("-I", "-D", "-U", "-L", "-l")) or (name[:1] in {"O", "t"} and name[1:].isdigit())


def both(word: str) -> bool:
    """Does the word mean the same to nvcc and to the C++ compiler?"""
    name = word.partition("=")[0][1:]
    return name in _BOTH or (name not in _OWN and word.startswith(("-I", "-D", "-U", "-L", "-l", "-O")))


def spoken(flags: Sequence[str]) -> tuple[str, ...]:
    """A cell's flags as nvcc takes them: the C++ compiler's go through -Xcompiler, the linker's through -Xlinker.

    >>> spoken(("-arch=sm_90a", "-fopenmp", "-Xcompiler", "-Wall", "-Wl,-z,now"))
    ('-arch=sm_90a', '-Xcompiler=-fopenmp', '-Xcompiler=-Wall', '-Xlinker=-z,now')
    """
    made: list[str] = []
    for word in units(flags):
        if word.startswith("-Wl,"):
            made.append(f"-Xlinker={word.removeprefix('-Wl,')}")
        elif not word.startswith("-") or own(word) or arguments.links(word):
            made.append(word)
        else:
            option = next((o for o in ("-iquote", "-idirafter") if word.startswith(f"{o}=")), "")
            words = (option, word.removeprefix(f"{option}=")) if option else (word,)
            made += [f"-Xcompiler={w}" for w in words]
    return tuple(made)


def for_the_host(word: str) -> tuple[str, ...]:
    """What the C++ compiler is given of one word of nvcc's: `-Xcompiler=-Wall,-fopenmp` holds two of its own.

    >>> for_the_host("-Xcompiler=-Wall,-fopenmp"), for_the_host("-arch=sm_90a"), for_the_host("-O3")
    (('-Wall', '-fopenmp'), (), ('-O3',))
    """
    name, _, value = word.partition("=")
    if name in {"-Xcompiler", "--compiler-options", "-compiler-options"}:
        return tuple(value.split(","))
    if own(word) and not both(word):
        return ()
    if name in {"-include", "-isystem", "-iquote", "-idirafter"} and value:
        return name, value
    return (word,)


__all__ = ["both", "for_the_host", "own", "spoken", "units"]
