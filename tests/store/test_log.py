# SPDX-License-Identifier: Apache-2.0
"""The write-ahead log stays small, and who is in the way is told from who only passes by."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from otel_taskhistory.store.log import Log

PART = 64 * 1024
GROWTH = 40


class Place:
    """A database in use: a writer with its log, and a clock that the test moves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = 1000.0
        self.connection = self.connect()
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("CREATE TABLE filler (text TEXT)")
        self.log = Log(self.connection, str(path), monotonic=lambda: self.now)
        self.log.limit(PART)
        self.tries = 0
        fold = self.log.fold

        def counting(wait: float = 0.0) -> bool:
            self.tries += 1
            return fold(wait)

        self.log.fold = counting  # type: ignore[method-assign]

    def connect(self) -> sqlite3.Connection:
        """Another program that has it open."""
        return sqlite3.Connection(str(self.path), isolation_level=None, timeout=0)

    def reader(self) -> sqlite3.Connection:
        """Somebody who reads, in a transaction that is open."""
        connection = self.connect()
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM filler").fetchone()
        return connection

    def write(self, pages: int = GROWTH) -> None:
        """Commits of a page each, as an agent makes them."""
        for _ in range(pages):
            self.connection.execute("INSERT INTO filler VALUES (hex(randomblob(1500)))")
            self.log.keep_small()

    def pass_by(self, seconds: float) -> None:
        """Time passes, and more is written."""
        self.now += seconds
        self.write(1)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A database in use."""
    place = Place(tmp_path / "a.db")
    yield place
    place.connection.close()


def test_alone_nothing_needs_to_be_done(place: Place) -> None:
    """SQLite folds it in by itself and begins it anew; it stays at about its part."""
    place.write(20 * GROWTH)
    assert place.tries == 0
    assert 0 < place.log.size <= 2 * PART


def test_it_is_emptied_when_a_reader_has_let_it_grow(place: Place) -> None:
    """With the first commit after the reader has gone."""
    with closing(place.reader()):
        place.write(2 * GROWTH)
        assert place.log.size > 2 * PART
        assert place.log.blocked
    place.pass_by(1.0)
    assert place.log.size <= PART
    assert not place.log.blocked


def test_a_reader_that_stays_is_waited_for_once_a_second(place: Place) -> None:
    """And not with each commit: it would be in vain."""
    with closing(place.reader()):
        place.write(2 * GROWTH)
        place.pass_by(1.0)
        place.pass_by(1.0)
        before = place.tries
        for _ in range(100):
            place.pass_by(0.01)
        assert place.tries - before <= 2


def test_a_reader_that_stays_is_told_from_one_that_passes(place: Place) -> None:
    """Ten seconds at the same place: a transaction that does not end."""
    with closing(place.reader()):
        place.write(2 * GROWTH)
        for _ in range(9):
            place.pass_by(1.0)
        assert not place.log.is_stuck
        for _ in range(4):
            place.pass_by(1.0)
        assert place.log.is_stuck
    place.pass_by(1.0)
    assert not place.log.is_stuck


def test_readers_that_come_and_go_are_no_reader_that_stays(place: Place) -> None:
    """There is always one, so the log grows; but each of them ends. After a minute it is told."""
    reader = place.reader()
    place.write(2 * GROWTH)
    for second in range(1, 70):
        following = place.reader()
        reader.close()
        reader = following
        place.pass_by(1.0)
        assert place.log.is_stuck == (second >= 60)
    reader.close()


def test_another_process_may_empty_it(place: Place) -> None:
    """Then nobody is in the way any more, whatever was seen before."""
    with closing(place.reader()):
        place.write(2 * GROWTH)
        assert place.log.blocked
    with closing(place.connect()) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    place.now += 0.01
    place.write(1)
    assert place.tries < 5
    assert not place.log.blocked
    assert not place.log.is_stuck


def test_a_writer_in_the_way_is_not_waited_for_in_vain(place: Place) -> None:
    """Its lock is taken for a moment only; that is no reader that stays."""
    with closing(place.reader()):
        place.write(2 * GROWTH)
    with closing(place.connect()) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(20):
            place.now += 1.0
            place.log.keep_small()
        assert place.log.blocked
        assert not place.log.is_stuck
        other.execute("ROLLBACK")
    place.pass_by(1.0)
    assert not place.log.blocked


def test_it_is_emptied_at_once_when_all_files_are_too_large(place: Place) -> None:
    """However small it is; and while a reader stays, that is not tried with each commit."""
    place.write(3)
    assert place.log.size > 0
    place.log.keep_small()
    assert place.log.size > 0
    place.log.keep_small(at_once=True)
    assert place.log.size == 0
    place.write(3)
    with closing(place.reader()):
        place.write(1)
        for _ in range(50):
            place.log.keep_small(at_once=True)
        assert place.tries < 10
    assert not place.log.blocked


def test_what_was_deleted_is_in_it_until_it_is_emptied(place: Place) -> None:
    """So that somebody sees to that in a quiet moment."""
    assert not place.log.wants_fold
    place.log.deleted()
    assert place.log.wants_fold
    with closing(place.reader()):
        place.write(1)
        assert not place.log.fold()
        assert place.log.wants_fold
    assert place.log.fold()
    assert not place.log.wants_fold


def test_a_log_that_is_gone_is_empty(place: Place) -> None:
    """Somebody removed the files: that is told elsewhere."""
    os.unlink(f"{place.path}-wal")
    assert place.log.size == 0
    place.log.keep_small()
