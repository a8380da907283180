# SPDX-License-Identifier: Apache-2.0
"""The search index over months: it stays sound, and keeping it so stays cheap."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.store.search import anew, find, upkeep
from otel_taskhistory.store.search.index import Indexer, not_found
from otel_taskhistory.store.search.words import VERSION
from tests.store.deliveries import write
from tests.store.keeping import keeper, kept, limits, record, store, task_spans, trace_id


def index_levels(directory: Path) -> int:
    """Levels of the index, as another program sees them."""
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        return upkeep.levels(connection)


def keep_many_words(directory: Path) -> None:
    """A pinned task whose words fill many pages of the index: what comes later is small to it."""
    record(directory, range(90, 91), text=" ".join(f"w{number}" for number in range(9_000)))
    with TaskHistory(directory) as history:
        history.pin(trace_id(90))


def replace_oldest(directory: Path, number: int) -> None:
    """One task comes, the oldest goes with all its words."""
    record(directory, range(number, number + 1))
    with keeper(directory, limits(max_tasks=3)) as retainer:
        retainer.run()


def test_levels_are_read_as_fts5_counts_them(tmp_path: Path) -> None:
    """Merging a whole index puts it higher; that is what the limit is about."""
    keep_many_words(tmp_path)
    for number in range(1, 5):
        replace_oldest(tmp_path, number)
    before = index_levels(tmp_path)
    for number in range(5, 7):
        replace_oldest(tmp_path, number)
    assert index_levels(tmp_path) >= before + 2


def test_the_index_is_made_anew_before_it_has_too_many_levels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often tasks go, FTS5 can read its index, and what is kept is found."""
    monkeypatch.setattr(upkeep, "LEVELS", 6)
    keep_many_words(tmp_path)
    seen = []
    for number in range(1, 24):
        replace_oldest(tmp_path, number)
        seen.append(index_levels(tmp_path))
    assert max(seen) <= 8
    assert any(after < before for before, after in pairwise(seen))
    assert kept(tmp_path) == [90, 21, 22, 23]
    with TaskHistory(tmp_path) as history:
        found = {hit.task_id for hit in history.search("task", limit=50)}
    assert len(found) == 4


def test_two_thousand_levels_are_not_reached(tmp_path: Path) -> None:
    """The number at which FTS5 would call the index malformed, over months of removals."""
    record(tmp_path, range(1, 4), text=" ".join(f"w{number}" for number in range(9_000)))
    with keeper(tmp_path) as retainer:
        connection = retainer.upkeep._connection
        highest = 0
        for number in range(1_100):
            with retainer._database.transaction():
                connection.execute(
                    "INSERT INTO _words (rowid, text) VALUES (?, 'one two')", (10**6 + number,)
                )
            retainer.upkeep._indexer.has_dropped = True
            while retainer.upkeep.merge():
                pass
            highest = max(highest, upkeep.levels(connection))
            if not number % 100:
                while retainer.upkeep.index():
                    pass
        assert 100 < highest <= upkeep.LEVELS + 4
        connection.execute("SELECT count(*) FROM _words WHERE _words MATCH 'one'").fetchone()


def test_all_is_done_although_others_write_all_the_time(tmp_path: Path) -> None:
    """Who asks for all gets what there was: it ends, however much comes in the meantime."""
    record(tmp_path, range(1, 30))
    with store(tmp_path) as writer, keeper(tmp_path) as retainer:
        number = 100

        def meanwhile(seconds: float) -> None:
            nonlocal number
            write(writer, task_spans(number, steps=1))
            number += 1
            assert number < 100 + 2 * waiting + 100

        with retainer._database.transaction():
            retainer.upkeep._indexer.rebuild()
        waiting = retainer.upkeep._indexer.rows_to_come()
        retainer.upkeep.finish(meanwhile)
    assert number > 101


def test_a_merge_is_not_begun_again_at_once(tmp_path: Path) -> None:
    """To write the whole index again takes a hundredth of the time at most."""
    record(tmp_path, range(1, 4))
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.5
        return now

    with keeper(tmp_path) as retainer:
        made: Any = retainer.upkeep
        kept_up = upkeep.Upkeep(
            retainer._database, retainer.space, Indexer(made._connection), clock
        )
        indexer = kept_up._indexer
        indexer.has_dropped = True
        while kept_up.rest():
            pass
        spent = now
        indexer.has_dropped = True
        assert not kept_up.rest()
        assert indexer.has_dropped
        now += upkeep.SHARE * spent
        while kept_up.rest():
            pass
        assert not indexer.has_dropped


# --- other rules of words -----------------------------------------------------------------------


def say_other_rules(directory: Path, version: str = "0") -> None:
    """The index of a history as a version with other rules of words would have left it."""
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        connection.execute("INSERT INTO _words (_words) VALUES ('delete-all')")
        connection.execute("UPDATE _meta SET value = ? WHERE key = 'words'", (version,))
        connection.commit()


def version_of(directory: Path) -> str:
    """By which rules the index says that it was made."""
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        return str(connection.execute("SELECT value FROM _meta WHERE key = 'words'").fetchone()[0])


@pytest.mark.parametrize("version", ["0", "99", "0:3.7", f"{VERSION}:0.0", "?"])
def test_an_index_by_other_rules_is_made_anew(tmp_path: Path, version: str) -> None:
    """By the next writer, also where another one was interrupted at it; meanwhile searches say
    that they do not see all.
    """
    record(tmp_path, range(1, 8))
    say_other_rules(tmp_path, version)
    with TaskHistory(tmp_path) as history:
        found = history.search("task")
        assert (found.indexing, found.complete) == (True, False)
        with keeper(tmp_path) as retainer:
            while retainer.rest() or retainer.upkeep.index():
                pass
        found = history.search("task", limit=50)
        assert (found.indexing, found.complete) == (False, True)
        assert len({hit.task_id for hit in found}) == 7
    assert version_of(tmp_path) == str(VERSION)
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection:
        assert not_found(connection) == 0


def test_making_it_anew_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction removes more documents, or lets more rows wait, than a few; any writer goes on
    where another one stopped, and what others write in between is found too.
    """
    monkeypatch.setattr(anew, "ROWS", 5)
    record(tmp_path, range(1, 12))
    say_other_rules(tmp_path)
    counts = "SELECT (SELECT count(*) FROM _documents), (SELECT count(*) FROM _unindexed)"
    with closing(sqlite3.connect(tmp_path / "history.db", isolation_level=None)) as connection:
        seen, more = [connection.execute(counts).fetchone()], True
        while more and len(seen) < 20:
            connection.execute("BEGIN IMMEDIATE")
            more = Indexer(connection).step(500)
            seen.append(connection.execute(counts).fetchone())
            connection.execute("COMMIT")
        assert more
        for (documents, waiting), (later, wait) in pairwise(seen):
            assert documents - later <= 5
            assert wait - waiting <= 5
        record(tmp_path, range(50, 51))
        while more:
            connection.execute("BEGIN IMMEDIATE")
            more = Indexer(connection).step(500)
            connection.execute("COMMIT")
        assert not_found(connection) == 0
    with TaskHistory(tmp_path) as history:
        found = {hit.task_id for hit in history.search("task", limit=100)}
    assert len(found) == 12


def test_what_is_removed_while_it_is_made_anew_is_not_found(tmp_path: Path) -> None:
    """A task that goes in the meantime leaves nothing in the index, and harms none of it."""
    record(tmp_path, range(1, 8))
    say_other_rules(tmp_path)
    with keeper(tmp_path, limits(max_tasks=3)) as retainer:
        retainer.run()
        while retainer.rest() or retainer.upkeep.index():
            pass
    with TaskHistory(tmp_path) as history:
        assert len({hit.task_id for hit in history.search("task", limit=50)}) == 3
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection:
        connection.execute("INSERT INTO _words (_words) VALUES ('integrity-check')")
        assert not_found(connection) == 0


def test_too_much_that_waits_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows wait to be indexed than a search looks at by itself: then it does not see all."""
    record(tmp_path, range(1, 5))
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection:
        connection.execute("INSERT OR IGNORE INTO _unindexed SELECT 1, id FROM tasks")
        connection.commit()
    with TaskHistory(tmp_path) as history:
        assert history.search("task").complete
        monkeypatch.setattr(find, "_MOST_WAITING", 3)
        found = history.search("task")
    assert (found.indexing, found.complete) == (True, False)
