"""A model that runs without Python: `wb.deploy`. Exported, compiled ahead of time, run and compared before it is said.

`graph` exports and asks how each op will run, `made` compiles, `ran` runs what was compiled; texts are templates of
`save`, and the ops' library is the one of the package that `wb.save` writes.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..build import process
from ..errors import SaveError, WorkbenchError
from ..reports.deploying import Deployed, Ran
from ..reports.report import Progress
from ..saving import names, save, templates
from ..turn import in_turn
from . import folder, graph, made, ran
from . import onnx as onnx_form

TEXTS = {"run.py": "run.py.j2", "cpp/main.cpp": "main.cpp.j2", "cpp/CMakeLists.txt": "CMakeLists.txt.j2",
         "README.md": "README.md.j2"}  # fmt: skip
STEPS = 5
NO_CMAKE = "CMake is not here: pip install cmake, then see README.md"


@in_turn
def deploy(
    module: Any,
    example_inputs: Any,
    path: str | os.PathLike,
    *,
    name: str = "",
    batch: bool = False,
    dynamic_shapes: Any = None,
    onnx: bool = False,
    ops: Mapping[str, Any] | None = None,
) -> Deployed:
    """Export a module with its ops, compile it ahead of time, and run it back in Python and in C++.

    >>> print(wb.deploy(model, torch.randn(8, 64), "norm"))
    norm | cpu | model.pt2 in /home/me/norm | 38.0 s
      lab::rmsnorm  runs its library
      Python  example          1 output, equal to eager's to the last bit
      C++     example          1 output, equal to eager's to the last bit, 41 us a call
    run it: python /home/me/norm/run.py, or /home/me/norm/bin/run /home/me/norm (no Python)

    `module` is an nn.Module, an op or a function of tensors, `example_inputs` a tensor or a tuple of them, `path` a
    folder; `name` is the model's, the folder's where it is not given. `batch` leaves the size of the first dimension of
    all inputs open; `dynamic_shapes` is torch.export's own. `onnx` writes `model.onnx` too, with each op as a node of a
    domain of its own. `ops` are those to look for in the module by name, all of this process where it is not given.

    An op with a C++ or CUDA kernel for the device comes as a compiled library; a Triton kernel for a GPU, and else the
    reference, is compiled into the model. Beside it lie the sources of the library as a package, a C++ program with
    CMakeLists.txt, a Python script that needs torch alone, and the example with eager's outputs. What you put or
    changed there stays when you deploy to it again; a failed one leaves all as it was.

    Raises SaveError for what cannot be exported or saved, and for a change by hand that would be lost; BuildError where
    a compiler fails. A run that differs from eager is a row of the report, which is then not `ok`.
    """
    from ..define import ops as known
    from ..show import progress

    root = names.target(path)
    called = names.package_name(name or root.name)
    if batch and dynamic_shapes is not None:
        raise SaveError("give batch=True or dynamic_shapes, not both: batch is a short form of it")
    model, inputs = graph.module_of(module), graph.inputs_of(example_inputs)
    before = folder.former(root)
    with progress.shown() as tell, _quiet(), folder.staged(root) as (aside, temporary):
        work = _Work(called, before, aside, temporary, tell)
        try:
            report = work.all(model, inputs, known if ops is None else ops, batch, dynamic_shapes, onnx)
        except WorkbenchError as error:
            error.still = error.still or "nothing was written"
            raise
    return report


class _Work:
    """The steps of one deployment, in a folder aside."""

    def __init__(
        self, name: str, before: folder.Former, aside: Path, temporary: Path, tell: Callable[[Progress], None]
    ) -> None:
        self.name, self.before, self.folder, self.temporary, self.tell = name, before, aside, temporary, tell
        self.seconds: dict[str, float] = {}
        self.digests: dict[str, str] = {}  # of the texts
        self.kept: list[str] = []  # those that stay as a user has changed them
        self.doubts: tuple[str, ...] = ()  # what speaks against the ops of the library
        self.began = time.perf_counter()

    @contextmanager
    def step(self, name: str, said: str) -> Iterator[None]:
        start = time.perf_counter()
        self.tell(Progress(self.name, said, len(self.seconds), STEPS, start - self.began))
        yield
        self.seconds[name] = time.perf_counter() - start

    def all(
        self, model: torch.nn.Module, inputs: tuple[Tensor, ...], ops: Mapping[str, Any], batch: bool, shapes: Any,
        onnx: bool,
    ) -> Deployed:  # fmt: skip
        with self.step("export", "exporting"):
            _outputs(model, inputs)  # dtypes that no case had arrive here, are built and tried
            found = graph.exported(model, inputs, ops, batch=batch, shapes=shapes)
            torch.export.save(
                found.program, self.folder / "exported.pt2", extra_files={"ops.json": json.dumps(dict(found.ops))}
            )
            if onnx:
                onnx_form.write(found.program, found.native, self.folder / "model.onnx")
        libraries = []
        with self.step("ops", "compiling the library of its ops"):
            if found.native:
                package = f"{self.name}_ops"
                saved = save(found.native, self.folder / "ops", name=package, title=f"The ops of {self.name}.")
                self.doubts = saved.notes
                self.settle(f"ops/{path}" for path in folder.paths(self.folder / "ops"))
                libraries = made.ops_library(self.folder / "ops", self.folder / "lib", self.temporary)
        self.texts(found, [f"lib/{n}" for n in libraries], onnx)
        built = bool(made.cmake())
        with process.pool(1, wait=True) as other:  # where one fails, the folder of both is gone
            if built:
                program = other.submit(made.program, self.folder / "cpp", self.folder / "bin" / "run", self.temporary)
            with self.step("model", "compiling the model and the C++ program"):
                made.model(found.program, self.folder / "model.pt2")
            with self.step("program", "building the C++ program"):
                if built:
                    program.result()
        with self.step("runs", "running it"):
            runs = list(self.runs(model, inputs, batch, built))
            if onnx:
                runs.append(onnx_form.ran(self.folder / "model.onnx", found.native, inputs, _outputs(model, inputs)))
        self.manifest(found)
        folder.carry(self.before, self.folder)
        notes = [*self.doubts, *(f"{path} keeps what was changed by hand" for path in self.kept)]
        if model.training and _changes(model):
            notes.append("the module is in training mode, and deployed as such")
        where, took, library = self.before.root, self.seconds, ", ".join(libraries)
        if not all(r.ok for r in runs) and where.exists() and any(where.iterdir()):
            notes.append(f"{where} stays as it was: what fails is in a folder beside it")
            where = where.with_name(f"{where.name}.failed")
        folder.place(self.folder, where)
        return Deployed(str(where), self.name, found.device, found.ops, tuple(runs), took, library, tuple(notes))

    def settle(self, paths: Iterable[str]) -> None:
        """These texts are written: what a user changed of the former ones is kept, or refused with the difference."""
        digests, kept = folder.settled(self.before, self.folder, paths)
        self.digests |= digests
        self.kept += kept

    def texts(self, found: graph.Graph, libraries: list[str], onnx: bool) -> None:
        native = [op.qualname for op in found.native]
        values = {
            "name": self.name, "package": f"{self.name}_ops", "libraries": libraries, "ops": native, "native": native,
            "device": found.device, "torch": torch.__version__, "how": found.ops, "onnx": onnx,
            "machine": f"{platform.system()} {platform.machine()}", "domains": onnx_form.domains(found.native),
            "doubts": self.doubts,
        }  # fmt: skip
        for path, template in TEXTS.items():
            place = self.folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(templates.render(f"deploy/{template}", **values), encoding="utf-8")
        self.settle(TEXTS)

    def manifest(self, found: graph.Graph) -> None:
        """What is here, and which of it are texts: the next deployment to this folder asks."""
        other = sorted({*folder.paths(self.folder)} - {*self.digests})
        content = {
            "name": self.name, "torch": torch.__version__, "ops": dict(found.ops), "files": self.digests, "made": other,
        }  # fmt: skip
        (self.folder / folder.MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def runs(self, model: torch.nn.Module, inputs: tuple[Tensor, ...], batch: bool, built: bool) -> Iterator[Ran]:
        """In Python and in C++, on the example; with an open batch on another one, too."""
        sets = {"example": inputs}
        if batch:
            sets["another batch"] = tuple(torch.cat([x, x[:1]]) for x in inputs)
        for on, given in sets.items():
            wanted = _outputs(model, given)
            place = self.folder / "example" if on == "example" else self.temporary / "another"
            place.mkdir(parents=True, exist_ok=True)
            torch.save([x.detach().cpu() for x in given], place / "inputs.pt")
            torch.save([x.cpu() for x in wanted], place / "outputs.pt")
            yield ran.in_python(self.folder, on, place / "inputs.pt", wanted, self.temporary)
            if built:
                paths = place / "inputs.pt", place / "outputs.pt"
                yield ran.in_cpp(self.folder, on, *paths, wanted, self.temporary)
            elif on == "example":
                yield Ran("C++", on, skipped=NO_CMAKE)


def _outputs(model: torch.nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """What eager gives, as a flat list of tensors."""
    with torch.no_grad():
        found = torch.utils._pytree.tree_leaves(model(*(x.clone() for x in inputs)))
    return [x for x in found if isinstance(x, Tensor)]


def _changes(model: torch.nn.Module) -> bool:
    """Has it a part that does something else in training?"""
    kinds = (torch.nn.modules.dropout._DropoutNd, torch.nn.modules.batchnorm._NormBase)
    return any(isinstance(m, kinds) for m in model.modules())


@contextmanager
def _quiet() -> Iterator[None]:
    """What torch's exporters warn of is themselves, and packages that are not here."""
    loggers = ("torch.onnx", "torch.fx", "torch.fx.experimental.symbolic_shapes")
    logs = {name: logging.getLogger(name) for name in loggers}
    former = {name: log.level for name, log in logs.items()}
    for log in logs.values():
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, log in logs.items():
            log.setLevel(former[name])


__all__ = ["Deployed", "deploy"]
