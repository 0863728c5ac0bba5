"""The cards on the page of a running notebook: each twice, as html that stays, and over it as a widget that follows.

A widget is gone with its kernel, and would leave an error in the place of its numbers. So the html is shown first,
hidden while the widget is there, and the widget's place is hidden once it is gone.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..reports.card import Card
from . import html, live, text

if TYPE_CHECKING:
    from .progress import Told
    from .widget import Living

FOLLOWED = 3  # cards of one op that follow it; an older one goes back to its html

# Puts a MIME bundle below the cell that runs. The notebook's magics give it.
publish: Callable[[dict], object] | None = None


def prepare() -> None:
    """Import what the first card needs, in a thread of its own: the widgets' library takes a while."""

    def fetch() -> None:
        try:
            from . import widget  # noqa: F401  for the next import of it
        except ImportError:
            pass

    threading.Thread(target=fetch, name="workbench-widgets", daemon=True).start()


class Subject:
    """What a card is of. `look(seen)` is (seen, card) where the op is not what was seen any more, else None."""

    def __init__(self, look: Callable[[object], tuple[object, Card] | None], restore: Callable[[int], object]) -> None:
        self.look, self.restore = look, restore
        self.seen: object = None
        self.cards: deque[Living] = deque()


_open: dict[str, Subject] = {}


def show(name: str, look: Callable[[object], tuple[object, Card] | None], restore: Callable[[int], object]) -> None:
    """Show the card of an op below the cell that runs. NotImplementedError, as IPython asks for, where none does."""
    if publish is None or not live():
        raise NotImplementedError
    found = look(None)
    assert found is not None
    subject = _open.setdefault(name, Subject(look, restore))
    subject.look, subject.restore = look, restore
    subject.seen, report = found
    own = f"wb-{secrets.token_hex(4)}"
    publish({"text/plain": text.card(report), "text/html": covered(report, own)})
    living = _living(report, restore, cover(own))
    if living is None:
        return
    subject.cards.append(living)
    while len(subject.cards) > FOLLOWED:
        subject.cards.popleft().close()
    publish({**living.box._repr_mimebundle_(), "text/plain": "", "text/html": ""})


def covered(report: Card, own: str) -> str:
    """The card's html, which hides what follows it as long as that is no card."""
    gone = f".jp-OutputArea-child:has(#{own}) + .jp-OutputArea-child:not(:has(.wb-card)) {{ display: none }}"
    return f'<div id="{own}"><style>{gone}</style>{html.of(report)}</div>'


def cover(own: str) -> str:
    """What hides that html: a part of the widget, and gone with it."""
    return f"<style>#{own}, .jp-OutputArea-child:has(#{own}) {{ display: none }}</style>"


def _living(report: Card, restore: Callable[[int], object], style: str) -> Living | None:
    try:
        from .widget import Living
    except ImportError:
        return None
    return Living(report, restore, style, later=True)


def refresh() -> None:
    """After each cell: cards whose op has changed are brought up to date, new ones get their ledger."""
    for subject in list(_open.values()):
        for living in subject.cards:
            living.complete()
        found = subject.look(subject.seen) if subject.cards else None
        if found is not None:
            subject.seen, report = found
            for living in subject.cards:
                living.update(report)


def follow(told: Told | None) -> None:
    """How far the work on an op is, in its cards; None at its end."""
    for name, subject in list(_open.items()):
        for living in subject.cards:
            if told is None:
                living.strip.end()
            elif told.op == name:
                living.strip.tell(told)


def forget() -> None:
    """No card follows any more."""
    for subject in _open.values():
        while subject.cards:
            subject.cards.popleft().close()
    _open.clear()
