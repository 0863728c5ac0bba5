"""`wb.load_inline`: torch's own function under torch's own name, with ops back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import cells
from .adopt import adoption
from .adopt.ops import Ops
from .errors import SchemaError
from .op import Op
from .source import Source

Text = str | Sequence[str]


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Op | Ops:
    """What `torch.utils.cpp_extension.load_inline` builds, as ops `name::function`.

    >>> source = "at::Tensor sin_add(at::Tensor x, at::Tensor y) { return x.sin() + y.sin(); }"
    >>> sin_add = wb.load_inline(name="inline_extension", cpp_sources=[source], functions=["sin_add"])
    >>> sin_add(x, y)                            # torch.ops.inline_extension.sin_add

    The arguments are torch's. One function gives its op, several a namespace of them, in which functions that no schema
    can say are plain ones. A mapping gives each function its documentation. TORCH_LIBRARY and PYBIND11_MODULE blocks in
    the sources say what they define, as in a cell. Called again under the same name it takes the former build's place;
    a failed build leaves that as it was. Raises SchemaError, BuildError or TrialError, on the lines of the sources.
    """
    _refuse(name, sycl_sources)
    idle = {
        "build_directory": build_directory,
        "use_pch": use_pch,
        "keep_intermediates": not keep_intermediates,
        "with_sycl": with_sycl,
        "extra_sycl_cflags": extra_sycl_cflags,
    }
    idle_names = [n for n, said in idle.items() if said]
    notes = tuple(f"{n} means nothing here: builds have folders and headers of their own" for n in idle_names)
    options = _options(extra_cflags, extra_cuda_cflags, extra_ldflags, extra_include_paths)
    names = None if functions is None else tuple(_texts("functions", functions))
    made = cells.run_blocks(adoption.Wanted(_sources(cpp_sources, cuda_sources), name, names, options, notes))
    if isinstance(functions, Mapping):
        for op in [made] if isinstance(made, Op) else made:
            op.doc = op.__doc__ = functions.get(op.name) or op.doc
    return made


def _refuse(name: str, sycl_sources: Text | None) -> None:
    if sycl_sources is not None:
        raise SchemaError("load_inline: sycl_sources are not built here; the C++ and CUDA sources are")
    if not isinstance(name, str) or not name.isidentifier():
        raise SchemaError(f"load_inline: the name becomes a namespace and a file, so it is an identifier; got {name!r}")


def _options(*given: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """torch's build options under torch's names."""
    names = ("extra_cflags", "extra_cuda_cflags", "extra_ldflags", "extra_include_paths")
    for name, words in zip(names, given, strict=True):
        if isinstance(words, str):
            raise SchemaError(f"load_inline: {name} is a list of strings, got the string {words!r}")
    return {name: tuple(words or ()) for name, words in zip(names, given, strict=True)}


def _sources(cpp: Text, cuda: Text | None) -> tuple[Source, ...]:
    """All C++ texts as one source, as torch has it, with lines counted in each of them."""
    texts = _texts("cpp_sources", cpp)
    if not texts and not cuda:
        raise SchemaError("load_inline: cpp_sources is empty")
    label = "cpp_sources" if len(texts) == 1 else "cpp_sources[0]"
    rows = [texts[0] if texts else ""]
    rows += [f'#line 1 "cpp_sources[{i}]"\n{t}' for i, t in enumerate(texts[1:], 1)]
    found = [Source("\n".join(rows), "cpp", file=label, path=os.getcwd())]
    given = [] if cuda is None else _texts("cuda_sources", cuda)
    return (*found, *(Source(t, "cuda", file=f"cuda_sources[{i}]", path=os.getcwd()) for i, t in enumerate(given)))


def _texts(what: str, given: Any) -> list[str]:
    """A string or several of them as a list."""
    found = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(t, str) for t in found):
        raise SchemaError(f"load_inline: {what} is a string or a list of strings, got {given!r}")
    return found
