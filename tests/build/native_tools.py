"""What the tests of the native side share: from the text of a cell to an op that torch can call."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

import workbench.build
from workbench import schema as schemas
from workbench.build import body as bodies
from workbench.build import launcher as launchers
from workbench.build import native
from workbench.directives import Declaration, parse
from workbench.schema import Schema
from workbench.source import Source, functions

HEADERS = Path(workbench.build.__path__[0])
LIBTORCH = Path(torch.__file__).parent / "lib"
FOLDER = Path(tempfile.mkdtemp(prefix="native-tests-"))


@cache
def compiled(text: str, *, launcher: bool = False) -> str:
    """The shared object of `text`, made by g++ alone; an error shows the compiler's words."""
    stem = FOLDER / hashlib.sha256(text.encode()).hexdigest()[:16]
    stem.with_suffix(".cpp").write_text(text)
    link = [f"-L{LIBTORCH}", "-ltorch_cpu"] if launcher else []
    command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique",
               f"-I{HEADERS}", str(stem.with_suffix(".cpp")), "-o", str(stem.with_suffix(".so")), *link]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(stem.with_suffix(".so"))


@dataclass
class Cell:
    """One raw cell, parsed; `instance` compiles it for dtypes, `launcher` is loaded and registered."""

    schema: Schema
    source: Source
    declaration: Declaration
    entry: str
    launcher: native.Launcher | None = None

    def instance(self, dtypes: dict[str, torch.dtype | None], tuned: dict | None = None) -> native.Instance:
        body = bodies.instantiate(self.source, self.declaration, dtypes, tuned)
        known = bodies.complete(self.declaration, dtypes)
        return native.Instance(tuple(known[n] for n in self.declaration.tensors), compiled(body.text), body)

    def same(self, dtype: torch.dtype) -> native.Instance:
        """The instance for arguments all of one dtype."""
        return self.instance({a.name: dtype for a in self.declaration.arguments if a.is_tensor})

    def install(self, *instances: native.Instance, layout: bool = False, tuned: dict | None = None) -> None:
        self.launcher.install(native.descriptor(self.declaration, instances, layout=layout, tuned=tuned))


def cell(schema: Schema | str, text: str, *, entry: str = "forward", first_line: int = 2, file: str = "cell [3]", **names) -> Cell:
    if isinstance(schema, str):
        schema = schemas.parse(schema, **names)
    source = Source(text, "cpp", file, first_line)
    return Cell(schema, source, parse(source, schema, entry=entry, functions=functions(text, "cpp", first_line)), entry)


def load(made: Cell) -> Cell:
    """Compile and load the launcher of a cell; not registered yet."""
    made.launcher = native.Launcher(compiled(launchers.render(made.schema, made.declaration, entry=made.entry), launcher=True))
    return made
