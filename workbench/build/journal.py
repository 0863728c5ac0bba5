"""What went into the keys of this process, and what the store had: for those who ask why something was built again.

Long texts are kept as their size and digest: enough to see that they differ.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping

MOST = 4096  # keys that are remembered
SHORT, SHORT_LIST = 160, 1200  # characters of a value that are kept as they are

_parts: OrderedDict[str, dict[str, str]] = OrderedDict()
_listening: list[list[tuple[str, bool]]] = []


def note(key: str, parts: Mapping[str, object]) -> None:
    """That key was made of these parts."""
    _parts[key] = {name: brief(value) for name, value in parts.items()}
    _parts.move_to_end(key)
    while len(_parts) > MOST:
        _parts.popitem(last=False)


def of(key: str) -> dict[str, str]:
    """What a key of this process was made of, {} for an unknown one."""
    return dict(_parts.get(key, {}))


def asked(key: str, *, cached: bool) -> None:
    """The store was asked for that key, and had it or not."""
    for heard in _listening:
        heard.append((key, cached))


@contextlib.contextmanager
def listening() -> Iterator[list[tuple[str, bool]]]:
    """The keys that the store is asked for inside, in order, each with whether it had the build.

    >>> with listening() as heard:
    ...     wb.load("kernels/rmsnorm")
    >>> heard[0]
    ('b18eb955...', True)
    """
    heard: list[tuple[str, bool]] = []
    _listening.append(heard)
    try:
        yield heard
    finally:
        _listening[:] = [other for other in _listening if other is not heard]


def brief(value: object) -> str:
    """A value in few words: itself, or its size and digest.

    >>> brief("-O2"), brief(("-O2", "-g")), brief("void f();" * 100)
    ('-O2', '-O2 -g', '900 characters, 8f0c1d2e3a4b')
    """
    if isinstance(value, (tuple, list)):
        said = " ".join(brief(part) for part in value)
    elif isinstance(value, Mapping):
        said = " ".join(f"{name}={brief(part)}" for name, part in sorted(value.items()))
    else:
        said = str(value)
    most = SHORT_LIST if isinstance(value, (tuple, list, Mapping)) else SHORT
    if len(said) <= most and "\n" not in said:
        return said
    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{len(said):,} characters, {digest[:12]}"
