"""A package as all of its files. Pure: texts in, texts out."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from .. import toolchain
from . import cases, flags, imports, licences, names, python, registration, signatures, support, templates, testing
from .carry import check_imports
from .model import Native, Package, SavedOp, Script, Unit
from .origin import PYTHON, Origin

_Slot = TypeVar("_Slot", Native, Native | Script)
MANIFEST = "package-manifest.json"
OLDEST_TORCH, OLDEST_PYTHON = (2, 11), (3, 10)
ARCHES = ["8.0", "9.0"]


@dataclass(frozen=True)
class Facts:
    """What is true when a package is made: the day, the machine, the versions of what was used."""

    date: str
    machine: str
    tools: str

    @classmethod
    def now(cls) -> Facts:
        import datetime as dt

        made = dt.datetime.now(dt.timezone.utc).date().isoformat()
        return cls(made, _machine(), f"Python {platform.python_version()}, torch {torch.__version__}")


def _machine() -> str:
    if torch.cuda.is_available():
        return f"one {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    return f"{torch.get_num_threads()} threads of {toolchain.processor_name()}"


def files(package: Package, facts: Facts, *, licence: str = "Apache-2.0", figures: Sequence[str] = ()) -> Package:
    """The package with every file of the python layout."""
    ops, name = package.ops, package.name
    native = registration.uses_native(ops)
    made: dict[str, str] = {}
    if native:
        made |= _csrc(name, ops)
    made |= {f"src/{name}/{path}": text for path, text in python.modules(name, ops, defined=native).items()}
    made |= _about(package, native=native)
    made |= testing.of(package, native=native, oldest=oldest([n for op in ops for n in op.native]))
    made |= _project(package, facts, licence, native=native)
    made = {path: text if text.endswith("\n") else text + "\n" for path, text in made.items()}
    python.check(made)
    return replace(package, files=dict(sorted(made.items())), data=data(ops))


def data(ops: Sequence[SavedOp]) -> dict[str, Callable[[str], None]]:
    """The files that are no text: inputs of cases that no text makes."""
    return {f"tests/cases_{op.name}.pt": _writer(op) for op in ops if op.cases.stored}


def _writer(op: SavedOp) -> Callable[[str], None]:
    return lambda path: cases.write(op.cases.stored, op.schema, path)


def _csrc(name: str, ops: Sequence[SavedOp]) -> dict[str, str]:
    every = [n for op in ops for n in op.native]
    made: dict[str, str] = {}
    for n in every:
        made |= n.files
    made |= support.files({s for n in every for s in n.support})
    made["csrc/registration.cpp"] = registration.render(name, ops, "cpu")
    if any(n.device == "cuda" for n in every):
        made["csrc/registration_cuda.cpp"] = registration.render(name, ops, "cuda")
    return made


def library(ops: Sequence[SavedOp], device: str) -> dict[str, Any]:
    """What is compiled for a device, and what it is linked with."""
    mine = [n for op in ops for n in op.native if n.device == device]
    own = "csrc/registration.cpp" if device == "cpu" else "csrc/registration_cuda.cpp"
    units = [Unit(own), *(u for n in mine for u in n.units)]
    return {"units": list(dict.fromkeys(units)), "links": tuple(dict.fromkeys(f for n in mine for f in n.links))}


def _about(package: Package, *, native: bool) -> dict[str, str]:
    name, ops = package.name, package.ops
    natives = [n for op in ops for n in op.native]
    exact = any(n.full for n in natives)
    title = package.title or f"Ops for PyTorch: {', '.join(op.name for op in ops)}."
    listed = [
        {
            "name": op.name,
            "import": names.imported(op.name),
            "namespace": op.schema.namespace,
            "line": python.first_line(op),
        }
        for op in ops
    ]
    return {
        f"src/{name}/__init__.py": templates.render(
            "python/init.py.j2", title=title, ops=listed, version=package.version,
            classes=any(op.classes for op in ops),
        ),
        f"src/{name}/_check.py": templates.render(
            "python/check.py.j2", name=name, native=native, cuda=any(n.device == "cuda" for n in natives), exact=exact,
            python=OLDEST_PYTHON, oldest=oldest(natives), names=[op.schema.qualname for op in ops],
        ),
        f"src/{name}/py.typed": "",
    }  # fmt: skip


def oldest(natives: Sequence[Native]) -> tuple[int, int]:
    if any(n.full for n in natives):
        here = torch.__version__.split("+")[0].split(".")
        return int(here[0]), int(here[1])
    return OLDEST_TORCH


def requirement(natives: Sequence[Native]) -> str:
    """The torch that a package needs: one alone for code on at::Tensor."""
    if any(n.full for n in natives):
        return f"torch=={torch.__version__.split('+')[0]}"
    return f"torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}"


def _project(package: Package, facts: Facts, licence: str, *, native: bool) -> dict[str, str]:
    ops, name = package.ops, package.name
    natives = [n for op in ops for n in op.native]
    triton = any(s.language == "triton" for op in ops for s in op.scripts)
    others = check_imports([line for op in ops for line in op.python.splitlines() if line.startswith(("import ", "from "))
                            and not line.startswith(("from .", "from __future__"))])  # fmt: skip
    dependencies = [requirement(natives), *(["triton>=3.6"] if triton else []), *(o for o in others if o != "triton")]
    cuda = any(n.device == "cuda" for n in natives)
    cpp = library(ops, "cpu")
    asked = any(flags.for_this_processor(u.flags) for n in natives for u in n.units)
    shared = {
        "name": name, "distribution": name.replace("_", "-"), "version": package.version, "native": native,
        "python": OLDEST_PYTHON, "oldest": oldest(natives), "torch_build": requirement(natives), "license": licence,
        "description": json.dumps(package.title or f"Ops for PyTorch: {', '.join(op.name for op in ops)}"),
        "dependencies": dependencies, "triton": triton, "more": " triton" * triton,
        "march": "native" if asked else "",
    }  # fmt: skip
    made = {
        "pyproject.toml": templates.render("project/pyproject.toml.j2", **shared, width=imports.WIDTH, typed=_typed(name, ops)),
        "README.md": readme(package, facts, native=native, cuda=cuda),
        "LICENSE": licences.text(licence, name),
        ".github/workflows/test.yml": templates.render("project/ci.yml.j2", **shared),
        "benchmarks/bench.py": testing.benchmark(package, "bench.py"),
        ".gitignore": "build/\ndist/\n*.egg-info/\n__pycache__/\n*.so\n_built.json\n",
    }  # fmt: skip
    if native:
        made["setup.py"] = templates.render(
            "project/setup.py.j2", **shared, exact=any(n.full for n in natives),
            cpp=cpp, cuda=library(ops, "cuda") if cuda else None, arches=ARCHES,
        )  # fmt: skip
        made["MANIFEST.in"] = templates.render("project/MANIFEST.in.j2")
    return made


def _typed(name: str, ops: Sequence[SavedOp]) -> list[str]:
    """The modules of kernels that hold the user's own text."""
    return sorted({f"src/{name}/{path}" for op in ops for s in op.scripts for path in s.files if path.endswith(".py")})


def readme(package: Package, facts: Facts, *, native: bool, cuda: bool) -> str:
    """The README: what the ops are, how to install and test, what was measured, where each text comes from."""
    rows = []
    for op in package.ops:
        given = ", ".join(a.name for a in op.schema.arguments if a.required)
        rows.append({
            "name": op.name, "namespace": op.schema.namespace, "schema": str(op.schema),
            "signature": signatures.signature(op.schema), "call": f"({given})", "doc": op.doc.strip() or "", "runs": runs(op),
            "doubts": op.doubts,
        })  # fmt: skip
    figures = [row for op in package.ops for row in op.figures]
    needs = "It needs a C++ compiler." if native else "It is Python alone: nothing is compiled when it is installed."
    if cuda:
        needs += " Where torch has CUDA, nvcc of the same CUDA release; without it the CUDA kernels are left out, and say so when they are called."
    natives = [n for op in package.ops for n in op.native]
    if any(flags.for_this_processor(u.flags) for n in natives for u in n.units):
        needs += (f" It is built for the processor that it is built on, and says so on another; {package.name.upper()}_MARCH=x86-64-v3 "
                  "in the environment builds a wheel for every x86 processor of the last ten years.")  # fmt: skip
    if natives and not any(n.full for n in natives):
        needs += (" The library stands on torch's stable ABI and has no Python in it: one wheel (`py3-none-PLATFORM`) serves "
                  f"every Python from {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} and every torch from {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} on.")  # fmt: skip
    elif natives:
        needs += f" Its code on `at::Tensor` fits torch {torch.__version__.split('+')[0]} and no other."
    return templates.render(
        "project/README.md.j2", distribution=package.name.replace("_", "-"), name=package.name,
        title=package.title or f"Ops for PyTorch: {', '.join(op.name for op in package.ops)}.", ops=rows, needs=needs,
        built=built_for(package.ops), figures=figures, machine=facts.machine, date=facts.date, origins=sorted(origins(package).items()), tools=facts.tools,
        notes=[op.cases.note for op in package.ops if op.cases.note],
    )  # fmt: skip


def origins(package: Package) -> dict[str, Origin]:
    """Where each text comes from, by its path in the package."""
    found = {p: o for op in package.ops for part in (op, *op.kernels) for p, o in part.origins.items()}
    kernels = package.layout == "kernels"
    modules = f"{'torch-ext' if kernels else 'src'}/{package.name}/"
    placed = {p.replace(PYTHON, modules, 1) if p.startswith(PYTHON) else p: o for p, o in found.items()}
    return {as_header(p) if kernels else p: o for p, o in placed.items()}


def as_header(path: str) -> str:
    """kernel-builder compiles every source that it is told of: a text that others include is a header."""
    return f"{path}.h" if path.startswith("csrc/kernels/") and path.endswith((".cpp", ".cu")) else path


def _in_order(kernels: Iterable[_Slot]) -> list[_Slot]:
    """Forwards first."""
    return sorted(kernels, key=lambda k: k.slot != "forward")


def _told(kernel: Native | Script) -> str:
    words = {"cpp": "C++", "cuda": "CUDA", "triton": "Triton", "python": "Python"}
    return f"{words[kernel.language]} for the {kernel.slot} on {'GPUs' if kernel.device == 'cuda' else 'the CPU'}"


def runs(op: SavedOp) -> str:
    """One sentence on what runs where."""
    kernels = [_told(k) for k in _in_order(op.kernels)]
    rest = "Everywhere else its reference in PyTorch runs." if "reference" in op.functions else ""
    return f"{'; '.join(kernels)}. {rest}".strip() if kernels else "It runs as PyTorch code."


def built_for(ops: Sequence[SavedOp]) -> list[tuple[str, str, str]]:
    """The dtypes of each kernel that was built for some: ("normed", "C++ for the forward on the CPU", "`x float32`; ...")."""
    return [
        (op.name, _told(n), "; ".join(f"`{form}`" for form in n.forms))
        for op in ops
        for n in _in_order(op.native)
        if n.forms
    ]


def manifest(package: Package, digests: Mapping[str, str], facts: Facts, metadata: Mapping[str, Any]) -> str:
    """What is in the package, by digest, and what its ops promise: a later save compares with it."""
    ops = {op.schema.qualname: {"schema": str(op.schema), "outputs": list(op.schema.outputs), "saves": list(op.schema.saves),
                                "versions": {f"{k.slot} {k.device}": k.number for k in op.kernels},
                                "metadata": metadata.get(op.schema.qualname, {})} for op in package.ops}  # fmt: skip
    sources = {p: {"typed in": o.file, "line": o.line, "sha256": o.digest} for p, o in sorted(origins(package).items())}
    said = {
        "name": package.name, "version": package.version, "layout": package.layout, "date": facts.date, "tools": facts.tools,
        "machine": facts.machine, "ops": ops, "sources": sources, "files": dict(sorted(digests.items())),
    }  # fmt: skip
    return json.dumps(said, indent=2) + "\n"
