"""Kernel files: what they are called, reading one as a source, writing a cell to one. One text, two places."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from .errors import SchemaError
from .source import Source

LANGUAGES = {".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".cu": "cuda"}
SOURCES = {**LANGUAGES, ".c": "cpp"}  # of an extension
TRITON = ("_triton.py", "_triton.backward.py")  # how a Triton file's name ends: NAME_triton.py
KINDS = (*LANGUAGES, *TRITON)

_built: dict[str, tuple[str, str]] = {}  # by real path: the target and the digest of the text last built of it


def read(file: str | Path) -> str:
    """The text of a file, with newlines as `\\n` and without a byte order mark.

    Raises SchemaError, with the line of the first wrong byte, for what is no UTF-8.
    """
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise SchemaError(f"{file} cannot be read: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SchemaError(
            f"the byte 0x{data[error.start]:02x} is no UTF-8: save the file as UTF-8", line=line, file=str(file)
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def language(file: Path, languages: Mapping[str, str] = LANGUAGES) -> str:
    """What a file's name says that it is written in; "" for one that is no kernel, such as op.py.

    >>> language(Path("rmsnorm_triton.backward.py"))
    'triton'
    """
    if file.name.endswith(TRITON) and languages is LANGUAGES:
        return "triton"
    return languages.get(file.suffix, "")


def source(file: Path, languages: Mapping[str, str] = LANGUAGES) -> Source:
    """A kernel file as a source; its quoted includes, and what a Triton file imports, are looked up beside it."""
    spoken = language(file, languages)
    if not spoken:
        kernel = languages is LANGUAGES
        ends = (
            f"a kernel file ends in {', '.join(KINDS)} or .py" if kernel else f"a source ends in {', '.join(languages)}"
        )
        raise SchemaError(f"{file}: {ends}, got {file.suffix or 'no suffix'!r}")
    return Source(read(file), spoken, shown(file), 1, str(file.parent.resolve()))


def readable(source: Source) -> Source:
    """Without a byte order mark, as files are read. SchemaError, on its line, for what no file can hold."""
    try:
        source.text.encode("utf-8")
    except UnicodeEncodeError as error:
        line = source.first_line + source.text.count("\n", 0, error.start)
        code = f"U+{ord(source.text[error.start]):04X}"
        raise SchemaError(
            f"the character {code} is half of one, which no file can hold: take it out", line=line
        ) from None
    return replace(source, text=source.text.removeprefix("\ufeff"))


def shown(file: str | Path) -> str:
    """How messages name a file: from the working folder where it lies below it."""
    below = os.path.relpath(file) if os.path.isabs(file) else str(file)
    return str(file) if below.startswith(os.pardir) else below


def target(file: Path) -> str:
    """The slot that a file's name says, or the cell that wrote it: `rmsnorm.backward.cpp` -> `rmsnorm.backward`."""
    told = _built.get(os.path.realpath(file))
    if told:
        return told[0]
    name = file.name.removesuffix(file.suffix)
    return name.replace("_triton", "", 1) if language(file) == "triton" and name != "_triton" else name


def place(file: str, folder: str) -> str:
    """Where `--file F` lies: beside the notebook, unless it says otherwise."""
    return os.path.join(folder or os.getcwd(), os.path.expanduser(file))


def write_cell(file: str, text: Source, target: str) -> None:
    """`--file F`: write a cell where `wb.load` reads it as what it is. SchemaError for a name that says otherwise."""
    if not isinstance(file, (str, os.PathLike)):
        raise SchemaError(f"file is the path that the source is written to, got {file!r}")
    where = place(os.fspath(file), text.path)
    if not os.path.isdir(where) and language(Path(where)) != text.language:
        ends = [s for s, spoken in LANGUAGES.items() if spoken == text.language] or TRITON
        name = {"cpp": "C++", "cuda": "CUDA", "triton": "Triton"}[text.language]
        raise SchemaError(f"--file {file}: a {name} file ends in {' or '.join(ends)}; the cell was not built")
    write(where, text.text, target)


def write(path: str, text: str, target: str) -> None:
    """Write a cell to its file, whole or not at all: line 1 of the file is the line after the magic's.

    No folder is made; a link stays a link; a file that says the same is left alone. Raises SchemaError.
    """
    content = text if text.endswith("\n") or not text else text + "\n"
    final = os.path.realpath(path)
    folder = os.path.dirname(final)
    if not os.path.isdir(folder):
        why = f"there is no folder {folder}; make it first"
        raise SchemaError(f"{path} cannot be written: {why}. The cell was not built")
    try:
        if os.path.isdir(final):
            raise IsADirectoryError(21, "it is a folder")
        _built[final] = target, digest(content)
        if not os.path.exists(final) or Path(final).read_bytes() != content.encode("utf-8"):
            _replace(final, content)
    except (OSError, UnicodeEncodeError) as error:
        _built.pop(final, None)
        said = getattr(error, "strerror", None) or error
        raise SchemaError(f"{path} cannot be written: {said}; the cell was not built") from error


def _replace(final: str, content: str) -> None:
    beside = f"{final}.{os.getpid()}.part"
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
        if os.path.exists(final):
            shutil.copymode(final, beside)
        os.replace(beside, final)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def built(file: Path, text: str) -> None:
    """Remember that this text of the file was built, well or not."""
    _built[os.path.realpath(file)] = target(file), digest(text)


def is_built(file: Path) -> bool:
    """Does the file say what was last built of it: by loading it, or by the cell that wrote it?"""
    told = _built.get(os.path.realpath(file))
    try:
        return told is not None and told[1] == digest(read(file))
    except SchemaError:
        return False


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def as_cell(file: Path, given: str = "", *, alone: bool = False) -> str:
    """A file as a cell that writes to it: its magic line, which names it as `given`, then its text.

    `alone`: the text says by itself what it defines, so that there is no target.

    >>> as_cell(Path("scale.cpp"))
    '%%cpp scale --file scale.cpp\\nvoid scale(...) {...}'
    """
    import shlex

    told = "" if alone else target(file)
    words = [*([told] if told else []), "--file", given or str(file)]
    text = source(file)
    magic = f"%%{text.language} {shlex.join(words)}"
    return f"{magic}\n{text.text.removesuffix(chr(10))}"
