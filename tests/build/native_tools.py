"""What the tests of the native side share: from the text of a cell to an op that torch can call."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from workbench import schema as schemas
from workbench.build import body as bodies
from workbench.build import cpp, forms, native
from workbench.build import launcher as launchers
from workbench.directives import Declaration, parse
from workbench.schema import Schema
from workbench.source import Source, functions


def compiled(text: str, kind: str = "body") -> str:
    """The shared object of `text`; a launcher must compile without a warning."""
    build = cpp.compile(text, kind=kind, flags=("-Wall", "-Wextra") if kind == "launcher" else ())
    assert kind == "body" or not build.diagnostics, build.log
    return build.path


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
        known = forms.complete(self.declaration, dtypes)
        return native.Instance(tuple(known[n] for n in self.declaration.tensors), compiled(body.text), body)

    def same(self, dtype: torch.dtype) -> native.Instance:
        """The instance for arguments all of one dtype."""
        return self.instance({a.name: dtype for a in self.declaration.arguments if a.is_tensor})

    def install(self, *instances: native.Instance, layout: bool = False, tuned: dict | None = None) -> None:
        self.launcher.install(native.descriptor(self.declaration, instances, layout=layout, tuned=tuned))


def cell(
    schema: Schema | str, text: str, *, entry: str = "forward", first_line: int = 2, file: str = "cell [3]", **names
) -> Cell:
    if isinstance(schema, str):
        schema = schemas.parse(schema, **names)
    source = Source(text, "cpp", file, first_line)
    return Cell(schema, source, parse(source, schema, entry=entry, functions=functions(text, "cpp", first_line)), entry)


def load(made: Cell) -> Cell:
    """Compile and load the launcher of a cell; not registered yet."""
    text = launchers.render(made.schema, made.declaration, entry=made.entry)
    made.launcher = native.Launcher(compiled(text, "launcher"))
    return made
