"""What lies in the cache, and what its keys were made of."""

from pathlib import Path

import pytest

from workbench.build import cache, journal, listing, store
from workbench.build.result import Made


def build(parts, text="x" * 1000):
    def make(folder: Path) -> Made:
        (folder / "body.so").write_text(text)
        return Made("body.so", "body", 0.5, labels=("cell [1]",), toolchain="g++ 12")

    return cache.build(store.key(parts), make, ("cell [1]",))


def test_a_build_is_listed_with_what_its_key_was_made_of(fresh_cache):
    made = build({"kind": "body", "flags": ("-O2", "-g"), "text": "void f();\n" * 40})
    (entry,) = listing.entries(Path(fresh_cache))
    assert (entry.key, entry.store, entry.tier, entry.seconds, entry.labels) == (
        made.key,
        "",
        "body",
        0.5,
        ("cell [1]",),
    )
    assert entry.size > 1000 and entry.made > 0 and entry.used >= entry.made - 5
    assert {"kind": "body", "flags": "-O2 -g"}.items() <= entry.parts.items()
    assert entry.parts["text"].startswith("400 characters, ")


def test_builds_of_other_stores_are_listed_too(fresh_cache):
    def make(folder: Path) -> Made:
        (folder / "a.o").write_text("")
        return Made("a.o", "full", 1.0)

    cache.store("objects-full").build(store.key({"kind": "object"}), make)
    build({"kind": "body"})
    assert {(e.store, e.tier) for e in listing.entries(Path(fresh_cache))} == {("objects-full", "full"), ("", "body")}
    assert listing.families(Path(fresh_cache)) == ["", "objects-full"]


def test_what_is_no_build_is_left_out(fresh_cache):
    build({"kind": "body"})
    odd = Path(fresh_cache, "objects", "zz", "zz00")
    odd.mkdir(parents=True)
    (odd / "meta.json").write_text("{")
    assert len(listing.entries(Path(fresh_cache))) == 1
    assert listing.entries(Path(fresh_cache, "nowhere")) == []


def test_who_listens_hears_hits_and_misses(fresh_cache):
    with journal.listening() as heard:
        first = build({"kind": "body", "n": 1})
        build({"kind": "body", "n": 1})
        with journal.listening() as inner:
            build({"kind": "body", "n": 2})
    assert [(k == first.key, cached) for k, cached in heard] == [(True, False), (True, True), (False, False)]
    assert len(inner) == 1
    build({"kind": "body", "n": 3})
    assert len(heard) == 3


def test_the_build_most_like_another_is_found_by_its_parts():
    def entry(key, **parts):
        return listing.Entry(key, "", "body", 1, 1.0, 0.0, 0.0, parts=parts)

    others = [entry("far", flags="-O1", text="b", arch="x"), entry("near", flags="-O2", text="a"), entry("old")]
    found, names = listing.nearest({"flags": "-O3", "text": "a"}, others)
    assert (found.key, names) == ("near", ["flags"])
    assert listing.nearest({"flags": "-O3"}, [entry("other", text="a")]) is None
    assert listing.nearest({"flags": "-O3"}, []) is None


def test_a_limit_is_kept_for_later_processes(fresh_cache):
    assert cache.limit_bytes() == store.LIMIT_BYTES
    cache.set_limit(123_456)
    assert cache.limit_bytes() == 123_456
    assert cache.store().limit_bytes == 123_456
    cache._stores.clear()  # another process
    assert cache.store().limit_bytes == 123_456
    Path(fresh_cache, cache.LIMIT_FILE).write_text("much")
    assert cache.limit_bytes() == store.LIMIT_BYTES


def test_clearing_leaves_what_a_live_process_uses(fresh_cache):
    used = build({"kind": "body", "n": 1})
    unused = build({"kind": "body", "n": 2})
    cache.store()._lease = type(cache.store()._lease)(Path(fresh_cache, "users"))  # as if nobody used either
    for file in Path(fresh_cache, "users").iterdir():
        file.unlink()
    cache.store()._lease.add(used.key)
    freed, kept = cache.clear()
    assert freed > 1000 and kept == 1
    assert [e.key for e in listing.entries(Path(fresh_cache))] == [used.key] != [unused.key]


@pytest.mark.parametrize(
    ("text", "size"), [("2GB", 2e9), ("2.5 gb", 2.5e9), ("500M", 5e8), ("12KB", 12e3), ("7", 7), ("0", 0), ("9B", 9)]
)
def test_sizes_are_read(text, size):
    assert listing.parsed(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "1e30GB", "nan", "GB"])
def test_what_is_no_size(text):
    with pytest.raises(ValueError):
        listing.parsed(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (46_800, "46.8 KB"),
        (2.5e6, "2.5 MB"),
        (1.93e9, "1.93 GB"),
        (5e12, "5e+03 GB"),
    ],
)
def test_sizes_are_said(size, text):
    assert listing.size(size) == text


def test_values_in_few_words():
    assert journal.brief(("-O2", ("a", 1))) == "-O2 a 1"
    assert journal.brief({"b": 2, "a": 1}) == "a=1 b=2"
    assert journal.brief("x" * 200).startswith("200 characters, ")
    assert journal.brief("a\nb").startswith("3 characters, ")
    assert journal.of("nobody") == {}
