"""`workbench cache`: what lies in the cache, what a key is made of and why there was no hit, a limit, an end to it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import settings
from ..build import cache as stores
from ..build import journal, listing
from ..build.listing import Entry
from ..errors import WorkbenchError
from ..show import text, words
from .outcome import Outcome
from .verbs import loaded

LISTED = 20


def add(made: argparse.ArgumentParser) -> None:
    """What one may do with the cache."""
    made.add_argument("action", nargs="?", choices=("list", "explain", "limit", "clear"), default="list")
    made.add_argument(
        "what", nargs="?", help="explain: a file, a folder, or the beginning of a key; limit: a size like 2GB"
    )
    made.add_argument("--all", action="store_true", help="list all builds in place of the newest")


def run(given: argparse.Namespace) -> Outcome:
    """Do what `workbench cache ACTION` says. WorkbenchError where it cannot be done."""
    if given.action in ("explain", "limit") and not given.what:
        wanted = "a path or the beginning of a key" if given.action == "explain" else "a size, such as 2GB"
        raise WorkbenchError(f"workbench cache {given.action} needs {wanted}")
    if given.action in ("list", "clear") and given.what:
        raise WorkbenchError(f"workbench cache {given.action} takes nothing more, got {given.what!r}")
    actions = {"list": _list, "explain": _explain, "limit": _limit, "clear": _clear}
    return actions[given.action](given)


def _outcome(said: str, **data: Any) -> Outcome:
    return Outcome(True, said, data)


def _list(given: argparse.Namespace) -> Outcome:
    root = settings.cache_dir()
    held = listing.entries(root)
    shown = held if given.all else held[:LISTED]
    rows = [
        (e.key[:12], e.tier, listing.size(e.size), words.duration(e.seconds), ago(e.used), ", ".join(e.labels))
        for e in shown
    ]
    total = sum(e.size for e in held)
    head = f"{root}: {words.count(len(held), 'build')}, {listing.size(total)} of {listing.size(stores.limit_bytes())}"
    table = text.table(("key", "what", "size", "built in", "last used", "for"), rows, right=(2, 3))
    more = [f"  and {len(held) - len(shown):,} more: --all lists them"] if len(held) > len(shown) else []
    return _outcome(
        "\n".join([head, *table, *more]), folder=str(root), bytes=total, limit_bytes=stores.limit_bytes(),
        builds=[_told(e) for e in shown],
    )  # fmt: skip


def _told(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "parts": dict(entry.parts or {})}


def ago(when: float, now: float | None = None) -> str:
    """`ago(0.0, now=90.0) == "90 s ago"`."""
    return f"{words.duration(max((now or time.time()) - when, 0.0))} ago" if when else ""


def _explain(given: argparse.Namespace) -> Outcome:
    path = Path(given.what).expanduser()
    if path.exists():
        return explained(given.what, tell=not given.json)
    found = [e for e in listing.entries(settings.cache_dir()) if e.key.startswith(given.what.lower())]
    if len(found) != 1:
        many = f"{len(found)} keys begin so" if found else "no key in the cache begins so, and there is no such file"
        raise WorkbenchError(f"workbench cache explain {given.what}: {many}")
    (one,) = found
    rows = sorted((one.parts or {}).items()) or [("not told", "it was built by an earlier version")]
    took = f"built in {words.duration(one.seconds)} with {one.toolchain}"
    head = f"{one.key[:12]} {one.tier}, {listing.size(one.size)}, {took}"
    return _outcome("\n".join([head, *text.table(("in its key", "value"), rows)]), build=_told(one))


def explained(path: str, *, tell: bool = True) -> Outcome:
    """Load a file or a folder, and say of each build whether the cache had it, and else which build is like it."""
    before = listing.entries(settings.cache_dir())
    with journal.listening() as heard:
        loaded([path], tell=tell)
    after = {e.key: e for e in listing.entries(settings.cache_dir())}
    asked: dict[str, bool] = {}
    for key, cached in heard:
        asked.setdefault(key, cached)
    rows = [reason(key, cached, after.get(key), before) for key, cached in asked.items()]
    shown = [(r["key"][:12], r["what"], "hit" if r["hit"] else "miss", r["why"]) for r in rows]
    hits = sum(r["hit"] for r in rows)
    head = f"{path}: {words.count(len(rows), 'build')}, {hits} from the cache"
    return _outcome("\n".join([head, *text.table(("key", "what", "cache", "why"), shown)]), builds=rows)


def reason(key: str, hit: bool, entry: Entry | None, before: Sequence[Entry]) -> dict[str, Any]:
    """One build that was asked for: whether the cache had it, and why not."""
    parts = journal.of(key)
    what = entry.tier if entry else parts.get("kind", "")
    found: dict[str, Any] = {"key": key, "what": what, "hit": hit, "parts": parts}
    if hit:
        return {**found, "why": f"made {ago(entry.made)}" if entry else ""}
    near = listing.nearest(parts, [e for e in before if e.tier == what])
    if near is None:
        return {**found, "why": "no build like it was in the cache"}
    other, names = near
    said = "; ".join(difference(n, parts.get(n, ""), (other.parts or {}).get(n, "")) for n in names[:3])
    return {**found, "why": f"{said} (than {other.key[:12]})" if names else "it was thrown away", "like": other.key}


def difference(name: str, mine: str, theirs: str) -> str:
    """`flags: -O3, not -O2`, the words in which two differ; of long texts only that they do."""
    if " characters, " in mine + theirs:
        return f"another {name}"
    own = [w for w in mine.split() if w not in theirs.split()]
    other = [w for w in theirs.split() if w not in mine.split()]
    said = f"{' '.join(own)}, not {' '.join(other)}" if own and other else " ".join(own or ["without", *other])
    return f"{name}: {said}" if (own or other) and len(said) <= 80 else f"another {name}"


def _limit(given: argparse.Namespace) -> Outcome:
    try:
        wanted = listing.parsed(given.what)
    except ValueError as error:
        raise WorkbenchError(f"workbench cache limit: {error}") from None
    try:
        stores.set_limit(wanted)
    except OSError as error:
        raise WorkbenchError(f"the limit was not kept: {settings.cache_dir()}: {error.strerror}") from None
    freed = stores.store().evict()
    said = f"at most {listing.size(wanted)} of builds are kept; {listing.size(freed)} were freed now"
    return _outcome(said, limit_bytes=wanted, freed_bytes=freed)


def _clear(given: argparse.Namespace) -> Outcome:
    freed, kept = stores.clear()
    said = f"{listing.size(freed)} were freed"
    if kept:
        said += f"; {words.count(kept, 'build')} of live processes stay"
    return _outcome(said, freed_bytes=freed, kept=kept)
