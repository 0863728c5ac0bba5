"""What judges an op in the tests of a package: cases, the float64 run of the reference, the rule of agreement."""

from __future__ import annotations

from . import borrowed

FOLDER = "tests/judge"


def files(name: str) -> dict[str, str]:
    """The modules of `tests/judge`, for the package `name`: as they judge here, they judge there."""
    runtime = f"{name}._runtime"
    places = (
        ("..case", ".case"), ("..errors", ".errors"), ("..inputs", ".inputs"), ("..reports.report", ".outcome"),
        ("..reference", f"{runtime}.reference"), ("..schema", f"{runtime}.schema"),
    )  # fmt: skip
    flat = ((".errors", ".errors"), (".inputs", ".inputs"), (".schema", f"{runtime}.schema"))
    made = {
        "__init__": '"""Holds an op against its reference: cases, gradients, and the rule of agreement."""\n',
        "errors": '"""What goes wrong in a case."""\n\n\nclass WorkError(Exception):\n    """A case that cannot be made or run; `message` says why."""\n\n'
                  '    def __init__(self, message: str) -> None:\n        super().__init__(message)\n        self.message = message\n\n\n'
                  "class SchemaError(WorkError):\n    \"\"\"What does not fit the op's schema.\"\"\"\n",
        "inputs": borrowed.module("inputs", places=flat),
        "case": borrowed.module("case", places=flat, head="Cases: named, seeded recipes of inputs."),
        "outcome": borrowed.module("reports.report", keep=("FAR", "Mismatch", "Outcome"), head="How a case went, as plain data."),
        "rule": borrowed.module("check.rule"),
        "float64": borrowed.module("check.float64", places=places),
        "expect": borrowed.module("check.expect", places=places),
        "picture": borrowed.module("check.picture", places=places),
        "agree": borrowed.module("check.agree", places=places),
        "gradients": borrowed.module("check.gradients", places=places),
    }  # fmt: skip
    return {f"{FOLDER}/{n}.py": text.replace("WorkbenchError", "WorkError") for n, text in made.items()}
