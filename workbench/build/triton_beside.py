"""The modules beside a notebook that a Triton cell imports: which files they are, and what they say now."""

from __future__ import annotations

import hashlib
import os

from ..errors import SchemaError
from ..source import Source
from .triton_text import imported

INSTALLED = frozenset({"torch", "triton", "numpy", "workbench"})  # never taken from beside the notebook


def beside(source: Source, package: str = "") -> dict[str, str]:
    """The files beside the notebook that a cell imports, with the digests of their texts as they are now.

    >>> beside(Source("import helper", "triton", path="/home/me/notebooks"))
    {'/home/me/notebooks/helper.py': '9f86d0...'}

    `package` is the one that the text lies in: relative imports begin there.
    """
    found: dict[str, str] = {}
    waiting = [(source.text, package)]
    while waiting and source.path:
        text, package = waiting.pop()
        try:
            names = [absolute(name, package, level) for name, level in imported(text)]
        except SyntaxError:
            continue  # told when it is loaded
        for file in (f for name in names for f in files_of(source.path, name) if f not in found):
            content = read(file)
            found[file] = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
            waiting.append((content, package_of(source.path, file)))
    return found


def absolute(name: str, package: str, level: int) -> str:
    """The absolute name of a relative import."""
    if not level:
        return name
    parts = package.split(".")[: len(package.split(".")) - level + 1] if package else []
    return ".".join([*parts, *([name] if name else [])])


def file_of(folder: str, name: str) -> str:
    if not folder or not name or name.partition(".")[0] in INSTALLED:
        return ""
    path = os.path.join(folder, *name.split("."))
    found = (f for f in (f"{path}.py", os.path.join(path, "__init__.py")) if os.path.isfile(f))
    return next(found, "")


def files_of(folder: str, name: str) -> list[str]:
    """The files that importing a dotted name runs; none where its first part is not beside the notebook."""
    parts = name.split(".")
    every = [file_of(folder, ".".join(parts[: i + 1])) for i in range(len(parts))]
    return [f for f in every if f] if every and every[0] else []


def package_of(folder: str, file: str) -> str:
    inside = os.path.relpath(os.path.dirname(file), folder)
    return "" if inside == os.curdir else inside.replace(os.sep, ".")


def read(file: str) -> str:
    try:
        with open(file, encoding="utf-8-sig") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{file} cannot be read: {error}") from None
