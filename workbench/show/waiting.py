"""What a cell is doing while nothing can be seen of it yet: told each second, from the first on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape

from . import html, words

EVERY_S = 1.0


@dataclass(frozen=True)
class Doing:
    """One sentence, as text and html; nothing is left of an empty one."""

    said: str = ""

    def __str__(self) -> str:
        return self.said

    def _repr_mimebundle_(self, include=None, exclude=None, **_) -> dict[str, str]:
        shown = html.page(f'<p class="cap">{escape(self.said)}</p>', "report") if self.said else ""
        return {"text/plain": self.said, "text/html": shown}


def sentence(what: str, program: str, seconds: float) -> str:
    """What is built, which program runs just now ("" for none), and for how long already.

    >>> sentence("rmsnorm", "g++", 3.2)
    'rmsnorm: g++ runs, 3.2 s; an interrupt ends it'
    """
    doing = f"{program} runs" if program else "built and tried"
    return f"{what}: {doing}, {words.duration(seconds)}; an interrupt ends it"


@contextmanager
def told(what: str, program: Callable[[], str], show: Callable[[Doing], None]) -> Iterator[None]:
    """Inside, `show` gets a sentence each second, in a thread of its own; what is quick shows nothing."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(EVERY_S):
            show(Doing(sentence(what, program(), time.monotonic() - began)))

    thread = threading.Thread(target=tell, name="workbench-waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
