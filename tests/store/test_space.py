# SPDX-License-Identifier: Apache-2.0
"""Giving space back: the files shrink, readers are not waited for, nothing deleted is left."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from otel_taskhistory.settings import Settings
from otel_taskhistory.store.database import PAGE_SIZE
from otel_taskhistory.store.space import VACUUM_BYTES, divide, is_full, usage
from otel_taskhistory.store.writer import Writer
from tests.store.deliveries import png, write
from tests.store.keeping import (
    ask,
    check_whole,
    keeper,
    kept,
    limits,
    record,
    shot,
    size_on_disk,
    store,
    task_spans,
    work,
)

MIB = 2**20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def large(directory: Path, tasks: int = 12) -> None:
    """A history of about half a megabyte a task."""
    with store(directory) as writer:
        for number in range(tasks):
            words = " ".join(str(number * 1_000_003 + n * 7919) for n in range(55_000))
            write(writer, task_spans(number, text=words))


@contextmanager
def reading(directory: Path) -> Iterator[sqlite3.Connection]:
    """Somebody who reads in a transaction that does not end."""
    database = f"file:{directory / 'history.db'}?mode=ro"
    with closing(sqlite3.Connection(database, uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM tasks").fetchone()
        yield connection


def small_files(directory: Path) -> int:
    """The bytes of the stamp, and of the file by which writers know each other."""
    return sum(
        path.stat().st_size
        for path in directory.rglob("*")
        if path.suffix in (".json", ".lock") and path.is_file()
    )


def log_of(directory: Path) -> int:
    """The size of the write-ahead log."""
    return (directory / "history.db-wal").stat().st_size


def test_usage_is_what_du_says(directory: Path) -> None:
    """The files add up to what is said of them, a few look-ups instead of a walk."""
    with store(directory) as writer:
        for number in range(3):
            event = shot(writer, png(number, 2000))
            write(writer, task_spans(number, shots=(event,)))
        connection = writer._session._database.connection  # type: ignore[union-attr]
        found = usage(connection, directory / "history.db")
        assert found.files == size_on_disk(directory) - small_files(directory)
        assert found.artifacts == sum(
            path.stat().st_size for path in (directory / "artifacts").rglob("*.png")
        )


def test_the_file_shrinks_when_the_limit_is_lowered(directory: Path) -> None:
    """To below the limit, not only to what is live: the rest of the file is given back."""
    large(directory)
    before = size_on_disk(directory)
    assert before > 4 * MIB
    with keeper(directory, limits(max_bytes=3 * MIB)) as retainer:
        done = work(retainer)
        assert done.tasks > 0
        assert size_on_disk(directory) <= 3 * MIB
        assert log_of(directory) == 0
    assert ask(directory, "PRAGMA freelist_count") == [0]
    assert 2 <= len(kept(directory)) < 12
    check_whole(directory)


def test_each_step_gives_back_a_few_pages(directory: Path) -> None:
    """So that nobody waits for long; enough steps give back what the next tasks do not need."""
    large(directory)
    with keeper(directory, limits(max_tasks=1, max_bytes=100 * MIB)) as retainer:
        connection = retainer._connection
        pages = [connection.execute("PRAGMA page_count").fetchone()[0]]
        while retainer.step().more:
            pages.append(connection.execute("PRAGMA page_count").fetchone()[0])
        given_back = [one - two for one, two in pairwise(pages)]
        bound = VACUUM_BYTES // PAGE_SIZE
        # SQLite's maps of ranges of pages go with them: 5 bytes for each.
        assert max(given_back) <= bound + 5 * bound // PAGE_SIZE + 1
        assert not retainer.space.has_spare()
        assert retainer.space.has_spare(all_of_it=True)


def test_a_reader_with_an_old_snapshot_does_not_empty_the_history(directory: Path) -> None:
    """The log grows meanwhile; what is decided on is what is live, so nothing more goes."""
    large(directory, tasks=4)
    with store(directory) as writer, reading(directory):
        for number in range(4, 12):
            write(writer, task_spans(number, text="x" * 400_000))
    with keeper(directory, limits(max_bytes=32 * MIB)) as retainer:
        assert work(retainer).tasks == 0
    assert len(kept(directory)) == 12


def test_while_a_reader_is_in_the_way_nothing_is_deleted_for_nothing(directory: Path) -> None:
    """It is put on record, and told; and when the reader has gone, it is made good."""
    large(directory)
    problems: list[Exception] = []
    limit = limits(max_bytes=3 * MIB)
    now = [1000.0]
    with keeper(directory, limit, problem=problems.append) as retainer:
        retainer.log._monotonic = lambda: now[0]
        with reading(directory) as reader:
            first = retainer.step()
            while not retainer.log.blocked:
                now[0] += 1
                first = retainer.step()
            assert first.blocked
            log, tasks = log_of(directory), kept(directory)
            assert problems == []  # readers come and go; this one does not
            for _ in range(12):
                now[0] += 1
                done = retainer.step()
                assert (done.tasks, done.more) == (0, False)
            # One record of the state itself is all that was written.
            assert log_of(directory) - log < 100_000
            assert kept(directory) == tasks
            assert ask(
                directory, "SELECT DISTINCT reason FROM _retention WHERE reason = 'blocked'"
            ) == ["blocked"]
            assert "one transaction that does not end" in str(problems[0])
            reader.execute("ROLLBACK")
        now[0] += 1
        work(retainer)
        assert size_on_disk(directory) <= 3 * MIB
    check_whole(directory)


def test_folding_never_waits_for_a_reader(directory: Path) -> None:
    """Whatever the busy timeout is: the agent would stand still."""
    record(directory, range(2))
    with keeper(directory) as retainer:
        connection = retainer._connection
        connection.execute("PRAGMA busy_timeout = 60000")
        with reading(directory):
            connection.execute("UPDATE tasks SET agent = 'another'")
            assert not retainer.log.fold()
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (60000,)
        assert retainer.log.fold()


def test_the_log_keeps_to_its_part(directory: Path) -> None:
    """With a small limit, a small log: it is folded in before it is large."""
    part = divide(20 * MIB).log
    with keeper(directory, limits(max_bytes=20 * MIB)) as retainer:
        connection = retainer._connection
        connection.execute("CREATE TABLE filler (text TEXT)")
        for _ in range(60):
            connection.execute("INSERT INTO filler VALUES (hex(randomblob(50000)))")
            retainer.step()
            assert log_of(directory) <= 2 * part + 300_000


def test_pruned_text_is_in_no_file(directory: Path) -> None:
    """Neither in the database nor in the log: what is deleted is overwritten, the log emptied."""
    marker = "Zaunkönig-4711"
    with store(directory) as writer:
        for number in range(6):
            said = marker if number == 2 else "nothing to see"
            write(writer, task_spans(number, steps=3, text=f"{said} " * 40))
    with keeper(directory, limits(max_tasks=3)) as retainer:
        work(retainer)
        assert kept(directory) == [3, 4, 5]
        for path in directory.rglob("history.db*"):
            assert marker.encode() not in path.read_bytes()


def test_what_was_deleted_leaves_the_log_when_nobody_wants_anything(directory: Path) -> None:
    """Also when nobody runs ``prune``: the writer does it in its next quiet moment."""
    record(directory, range(5))
    with keeper(directory, limits(max_tasks=2)) as retainer:
        while retainer.step().more:
            pass
        assert log_of(directory) > 0
        while retainer.rest():
            pass
        assert log_of(directory) == 0
        assert not retainer.log.wants_fold


def test_another_writer_is_not_waited_for(directory: Path) -> None:
    """A step that finds the history locked says so and is done: it can be done later."""
    record(directory, range(4))
    with keeper(directory, limits(max_tasks=1)) as retainer:
        other = sqlite3.Connection(str(directory / "history.db"), isolation_level=None)
        with closing(other):
            other.execute("BEGIN IMMEDIATE")
            done = retainer.step(wait=0)
            assert (done.busy, done.more, done.tasks) == (True, True, 0)
            assert not retainer.rest()
            other.execute("ROLLBACK")
        assert retainer.step().tasks == 3


def test_settings_of_another_place_are_followed(tmp_path: Path) -> None:
    """Database and artifacts may lie elsewhere; both are looked after where they are."""
    settings = Settings.resolve(
        directory=tmp_path / "home",
        database=tmp_path / "fast" / "tasks.db",
        artifacts=tmp_path / "big" / "pictures",
        retention=limits(max_tasks=1),
        durability="normal",
    )
    writer = Writer(settings)
    try:
        for number in range(3):
            event = shot(writer, png(number, 9))
            for path in (tmp_path / "big").rglob("*.png"):
                os.utime(path, (1, 1))
            write(writer, task_spans(number, shots=(event,)))
        writer.flush(10)
    finally:
        writer.close()
    with closing(sqlite3.Connection(str(tmp_path / "fast" / "tasks.db"))) as connection:
        assert connection.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
    assert len(list((tmp_path / "big").rglob("*.png"))) == 1


def test_a_full_disk_is_relieved_by_what_may_go_anyway(directory: Path) -> None:
    """The log is emptied, removals go on; what is within the limits stays."""
    record(directory, range(6))
    with keeper(directory, limits(max_tasks=4)) as retainer:
        retainer._connection.execute("UPDATE tasks SET agent = 'another'")
        assert log_of(directory) > 0
        assert retainer.make_room()
        assert kept(directory) == [2, 3, 4, 5]
        while retainer.step().more:
            pass
        assert retainer.log.fold()
        assert not retainer.make_room()
        assert kept(directory) == [2, 3, 4, 5]
    check_whole(directory)


def test_a_full_disk_is_told_from_other_trouble(directory: Path) -> None:
    """SQLite and the system each have their words for it."""
    record(directory, range(1))
    with keeper(directory) as retainer:
        connection = retainer._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError) as full:
            connection.execute("CREATE TABLE filler AS SELECT hex(randomblob(200000))")
        with pytest.raises(sqlite3.OperationalError) as other:
            connection.execute("SELECT * FROM nothing")
    assert is_full(full.value)
    assert not is_full(other.value)
    assert is_full(OSError(errno.ENOSPC, "no space"))
    assert not is_full(OSError(errno.EIO, "broken"))
    assert not is_full(None)


def test_making_room_on_a_full_disk_may_fail(directory: Path) -> None:
    """To remove takes a bit of space as well; then it says so, and raises nothing."""
    record(directory, range(6))
    with keeper(directory, limits(max_tasks=4)) as retainer:

        def full(*rows: int) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        retainer.step = full  # type: ignore[assignment,method-assign]
        assert not retainer.make_room()
    assert kept(directory) == [0, 1, 2, 3, 4, 5]


def test_a_prune_gives_up_on_a_lock_that_is_held(directory: Path) -> None:
    """After a few busy timeouts, and what was removed before stays removed."""
    record(directory, range(4))
    with keeper(directory, limits(max_tasks=1)) as retainer:
        other = sqlite3.Connection(str(directory / "history.db"), isolation_level=None)
        retainer._settings = replace(retainer._settings, busy_timeout=0.01)
        with closing(other):
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                work(retainer)
            other.execute("ROLLBACK")
        assert work(retainer).tasks == 3


def test_closing_empties_the_log_though_somebody_has_it_open(directory: Path) -> None:
    """SQLite itself does so only for the last one; a viewer that does nothing is no reason."""
    record(directory, range(2))
    with closing(sqlite3.Connection(str(directory / "history.db"))) as viewer:
        viewer.execute("SELECT count(*) FROM tasks").fetchone()
        record(directory, range(2, 3))
        assert log_of(directory) == 0
