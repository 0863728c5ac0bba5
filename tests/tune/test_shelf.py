"""The store of tuning results: what was written is read, what is corrupt is told and costs nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.tune.shelf import MOST_ROWS, Shelf

ROW = {"status": "timed", "time_us": 41.0}


@pytest.fixture
def shelf(fresh_cache):
    return Shelf("ab" + "0" * 62)


def test_what_was_kept_is_read(shelf):
    assert shelf.read() == ({}, "")
    assert shelf.add({"BLOCK=128": ROW}, "lab::f forward, big") == ""
    assert shelf.add({"BLOCK=256": {"status": "crash", "reason": "it ends"}}) == ""
    rows, said = shelf.read()
    assert said == "" and rows == {"BLOCK=128": ROW, "BLOCK=256": {"status": "crash", "reason": "it ends"}}
    assert not [p for p in shelf.path.parent.iterdir() if p.name.startswith(".new")]


def test_nothing_new_writes_nothing(shelf):
    assert shelf.add({}) == "" and not shelf.path.exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: p.write_text(p.read_text()[:-30]),
        lambda p: p.write_text(p.read_text().replace("41.0", "1.0")),
        lambda p: p.write_text("[]"),
        lambda p: p.write_text('{"sha256": "x", "rows": 3}'),
        lambda p: p.write_bytes(b"\xff\xfe\x00"),
        lambda p: p.write_text(""),
        lambda p: p.write_text("[" * 100_000),
    ],
    ids=["cut short", "edited", "a list", "no rows", "no text", "empty", "deep"],
)
def test_a_corrupt_file_is_told_and_replaced(shelf, spoil):
    shelf.add({"BLOCK=128": ROW})
    spoil(shelf.path)
    rows, said = shelf.read()
    assert rows == {} and "tuned anew" in said
    assert shelf.add({"BLOCK=64": ROW}) == ""
    assert shelf.read() == ({"BLOCK=64": ROW}, "")


def test_a_right_digest_of_something_else_is_no_row(shelf):
    import hashlib

    rows = {"BLOCK=128": ["timed"]}
    digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
    shelf.path.parent.mkdir(parents=True)
    shelf.path.write_text(json.dumps({"sha256": digest, "rows": rows}))
    assert shelf.read()[0] == {} and "corrupt" in shelf.read()[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_told(shelf):
    shelf.add({"BLOCK=128": ROW})
    os.chmod(shelf.path.parent, 0o500)
    assert "cannot be kept" in shelf.add({"BLOCK=64": ROW})
    os.chmod(shelf.path.parent, 0o700)


def test_a_file_in_the_place_of_the_folder_is_told(fresh_cache):
    Path(fresh_cache).mkdir(mode=0o700)
    (Path(fresh_cache) / "tuning").write_text("in the way")
    shelf = Shelf("ab" + "0" * 62)
    assert "cannot be kept" in shelf.add({"BLOCK=64": ROW})
    assert shelf.read()[0] == {}


def test_the_oldest_rows_go_first(shelf):
    shelf.add({f"BLOCK={n}": ROW for n in range(MOST_ROWS)})
    shelf.add({"BLOCK=new": ROW})
    rows, _ = shelf.read()
    assert len(rows) == MOST_ROWS and "BLOCK=0" not in rows and "BLOCK=new" in rows


def test_two_processes_at_once_lose_nothing(shelf):
    program = "import sys; from workbench.tune.shelf import Shelf; s = Shelf('ab' + '0' * 62)\nfor n in range(20): s.add({f'{sys.argv[1]}={n}': {'status': 'timed'}})"
    running = [subprocess.Popen([sys.executable, "-c", program, name], cwd=Path(__file__).parents[2]) for name in "AB"]
    assert [p.wait(120) for p in running] == [0, 0]
    assert len(shelf.read()[0]) == 40
