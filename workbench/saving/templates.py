"""The templates beside this module, rendered with jinja2, which is imported when a package is made."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("templates")


def render(template: str, /, **values: Any) -> str:
    """The text of `templates/TEMPLATE` with these values; a name that is missing is an error."""
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), undefined=jinja2.StrictUndefined, keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  texts, not pages
    )  # fmt: skip


def text(name: str) -> str:
    """A file of `templates/` as it is."""
    return (FOLDER / name).read_text(encoding="utf-8")
