"""A package in the layout of Hugging Face's kernel-builder: `build.toml`, `torch-ext/`, kernels by backend. Pure text.

The builder gives each build an op namespace of its own, `TORCH_EXTENSION_NAME` in C++ and the module `_ops` in Python,
so nothing here names one. Its documentation is at https://huggingface.co/docs/kernels/builder/writing-kernels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..build import architectures
from ..build.body_parts import literal
from ..errors import SaveError
from . import flags, licences, names, project, python, registration, support, templates, testing
from .model import Native, Package, SavedOp
from .names import release

BACKENDS = {"cpu": "CPU", "cuda": "CUDA"}
_STRING = "HOST_CODE_STRING"
_MACRO = f"#define {_STRING}_(x) #x\n#define {_STRING}(x) {_STRING}_(x)\n"


def files(package: Package, facts: project.Facts, *, licence: str) -> Package:
    """The package with every file of the kernels layout. SaveError for code that the stable ABI does not take."""
    ops, name = package.ops, package.name
    full = next(((op, n) for op in ops for n in op.native if n.full), None)
    if full:
        raise SaveError(
            f"{full[0].schema.qualname}: its {full[1].slot} is code on at::Tensor, which would have to be built for every torch "
            "there is; save it with layout='python', or write it on torch::stable::Tensor"
        )
    natives = [n for op in ops for n in op.native]
    made: dict[str, str] = {}
    if natives:
        made |= _native(ops)
    made |= {f"torch-ext/{name}/{path}": text for path, text in _python(name, ops, native=bool(natives)).items()}
    made["build.toml"] = build_toml(package, licence)
    made["flake.nix"] = templates.text("project/flake.nix")
    made["README.md"] = _readme(package, facts, native=bool(natives))
    made |= testing.of(package, native=False, oldest=project.oldest(natives))
    made.pop("tests/test_package.py", None)  # what it asks is the builder's business here
    made["benchmarks/benchmark.py"] = testing.benchmark(package, "benchmark.py")
    made["LICENSE"] = licences.text(licence, name)
    made = {path: text if text.endswith("\n") else text + "\n" for path, text in made.items()}
    python.check(made)
    return replace(package, files=dict(sorted(made.items())), data=project.data(ops))


# ---------------------------------------------------------------- C++


def _native(ops: Sequence[SavedOp]) -> dict[str, str]:
    natives = [n for op in ops for n in op.native]
    spaces = sorted({op.schema.namespace for op in ops})
    made: dict[str, str] = {}
    for n in natives:
        made |= {project.as_header(path): _anywhere(_including(text, n), spaces) for path, text in n.files.items()}
    made |= support.files({s for n in natives for s in n.support})
    made["torch-ext/torch_binding.h"] = binding_header(natives)
    made["torch-ext/torch_binding.cpp"] = binding(ops)
    return made


def _including(text: str, n: Native) -> str:
    for path in n.files:
        name = path.removeprefix("csrc/")
        text = text.replace(f'#include "{name}"', f'#include "{project.as_header(path).removeprefix("csrc/")}"')
    return text


def _anywhere(text: str, spaces: Sequence[str]) -> str:
    """Host code that asks for layouts in the namespace of its build."""
    pattern = re.compile(rf'"(?:{"|".join(map(re.escape, spaces))})::(\w+_layout)"')
    if not pattern.search(text):
        return text
    head, rest = text.split("\n", 1)
    return f"{head}\n{_MACRO}" + pattern.sub(rf'{_STRING}(TORCH_EXTENSION_NAME) "::\1"', rest)


def binding_header(natives: Sequence[Native]) -> str:
    """The entry points, one function a name that is registered."""
    functions = sorted({f for n in natives for _, f in n.names})
    lines = [
        f"namespace {f.partition('::')[0]} {{ void {f.partition('::')[2]}(StableIValue*, uint64_t, uint64_t); }}"
        for f in functions
    ]
    return "\n".join([
        "// What is called for each op: host code that reads its arguments from torch's stack.",
        "#pragma once",
        "#include <torch/csrc/stable/library.h>",
        "",
        *lines,
        "",
    ])  # fmt: skip


def binding(ops: Sequence[SavedOp]) -> str:
    """The registration, in the namespace that the builder chooses."""
    spelled = [f"  ops.def({literal(s)});" for op in ops for s in registration.schemas(op)]
    blocks: list[str] = []
    for device, key in BACKENDS.items():
        lines = [
            f'  ops.impl("{name}", &{f});' for op in ops for n in op.native if n.device == device for name, f in n.names
        ]
        if lines:
            blocks += [f"#if defined({key}_KERNEL)", f"STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, {key}, ops) {{",
                       *lines, "}", "#endif", ""]  # fmt: skip
    return "\n".join([
        "// What is registered with torch: schemas, and the kernels of the backend that is built.",
        "#include <torch/csrc/stable/library.h>",
        "",
        '#include "registration.h"',
        '#include "torch_binding.h"',
        "",
        "STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {",
        *spelled,
        "}",
        "",
        *blocks,
        "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)",
        "",
    ])  # fmt: skip


# ---------------------------------------------------------------- build.toml


def build_toml(package: Package, licence: str) -> str:
    """The builder's configuration: backends, the torch that the stable ABI asks for, and each kernel's own flags."""
    natives = [n for op in package.ops for n in op.native]
    backends = sorted({n.device for n in natives}) or ["cpu", "cuda"]
    lines = [
        "[general]", f'name = "{package.name.replace("_", "-")}"', f"version = {max(1, release(package.version)[0])}",
        f"license = {json.dumps(licence)}", f"backends = {json.dumps(backends)}", "",
    ]  # fmt: skip
    if natives:
        oldest = ".".join(map(str, project.OLDEST_TORCH))
        lines += ["[torch]", *_listed("src", ["torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"]),
                  f'stable-abi = "{oldest}"', ""]  # fmt: skip
    shared = sorted(support.files({s for n in natives for s in n.support}))
    for op in package.ops:
        for n in op.native:
            lines += _kernel(op, n, shared)
    return "\n".join(lines)


def _kernel(op: SavedOp, n: Native, shared: Sequence[str]) -> list[str]:
    """One section for each set of flags, since these hold for a whole section."""
    lines: list[str] = []
    texts = [project.as_header(p) for p in n.files if p.startswith("csrc/kernels/")]
    for number, unit in enumerate(n.units):
        given = [f for f in (*unit.flags, *n.links) if not flags.for_this_processor([f])]
        include = ["csrc", *flags.of_folders(given)]  # the builder calls its compilers somewhere else
        given = [f for f in given if not flags.of_folders([f])]
        lines += [
            f"[kernel.{op.name}_{n.slot}_{n.device}{f'_{number}' if number else ''}]", f'backend = "{n.device}"',
            'depends = ["torch"]', f"include = {json.dumps(include)}", *_listed("src", [unit.path, *texts, *shared]),
        ]  # fmt: skip
        if given and n.device == "cpu":
            lines += _listed("cxx-flags", given)
        if n.device == "cuda":  # the builder compiles for its own list of GPUs beside every -gencode, so this is cut
            named = [architectures.capability(a) for a in architectures.listed(given)]
            given = [*architectures.without(given)]
            lines += _listed("cuda-capabilities", named) if named else []
            lines += _listed("cuda-flags", given) if given else []
        lines.append("")
    return lines


def _listed(name: str, values: Sequence[str]) -> list[str]:
    return [f"{name} = [", *(f"  {json.dumps(v)}," for v in dict.fromkeys(values)), "]"]


# ---------------------------------------------------------------- Python


def _python(name: str, ops: Sequence[SavedOp], *, native: bool) -> Mapping[str, str]:
    made = dict(python.modules(name, ops, defined=native, namespace="NAMESPACE"))
    for path, text in list(made.items()):
        if path.startswith("_") and "SCHEMA = Schema(" in text:
            text = text.replace("    unbuilt=_missing_cuda(),\n", "")
            text = text.replace("from ._check import missing_cuda as _missing_cuda\n", "")
            made[path] = text.replace(
                "SCHEMA = Schema(", 'NAMESPACE = add_op_namespace_prefix("").partition("::")[0]\nSCHEMA = Schema('
            )
            made[path] = made[path].replace(
                "from ._runtime", "from ._ops import add_op_namespace_prefix\nfrom ._runtime", 1
            )
    listed = [{"name": op.name, "line": python.first_line(op)} for op in ops]
    imports = "\n".join(names.imported(op.name) for op in ops)
    lines = "\n".join(f"- `{row['name']}`: {row['line']}" for row in listed)
    made["__init__.py"] = (
        f'"""Kernels: {", ".join(op.name for op in ops)}.\n\n{lines}\n"""\n\n{imports}\n\n'
        f"__all__ = {json.dumps([op.name for op in ops])}\n"
    )
    return made


def _readme(package: Package, facts: project.Facts, *, native: bool) -> str:
    text = project.readme(package, facts, native=native, cuda=False)
    start, end = text.index("## Install"), text.index("## Figures")
    return text[:start] + templates.text("project/kernels_install.md") + text[end:]


def checked(root: Any) -> list[str]:
    """What is wrong with a folder in this layout, as far as it can be told without the builder; [] for nothing."""
    from pathlib import Path

    import tomllib  # type: ignore[import-not-found, unused-ignore]  # Python 3.11

    folder = Path(root)
    config = tomllib.loads((folder / "build.toml").read_text(encoding="utf-8"))
    wrong = []
    known = {"general": {"name", "version", "license", "backends", "cuda", "hub", "upstream", "python-depends"},
             "torch": {"src", "stable-abi", "include", "minver", "maxver", "pyext"},
             "kernel": {"backend", "depends", "src", "include", "cxx-flags", "cuda-flags", "cuda-capabilities"}}  # fmt: skip
    for section in ("general", "torch"):
        wrong += [f"[{section}] has no {key}" for key in set(config.get(section, {})) - known[section]]
    name = str(config["general"]["name"])
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        wrong.append(f"{name!r} is no name of a kernel")
    if not (folder / "torch-ext" / name.replace("-", "_") / "__init__.py").is_file():
        wrong.append(f"torch-ext/{name.replace('-', '_')}/__init__.py is missing")
    listed = [*config.get("torch", {}).get("src", [])]
    for section, kernel in config.get("kernel", {}).items():
        wrong += [f"[kernel.{section}] has no {key}" for key in set(kernel) - known["kernel"]]
        listed += kernel["src"]
        if kernel["backend"] not in config["general"]["backends"]:
            wrong.append(f"[kernel.{section}] is for {kernel['backend']}, which is no backend of the whole")
    return wrong + [f"{path} is not there" for path in dict.fromkeys(listed) if not (folder / path).is_file()]
