# SPDX-License-Identifier: Apache-2.0
"""Opening a history for reading: whatever lies there, nothing is changed and nobody waits."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.errors import (
    HistoryNotFound,
    HistoryRefused,
    SchemaTooNew,
    TaskHistoryError,
)
from otel_taskhistory.store import schema
from otel_taskhistory.store.reading import Reading
from tests.recorded import one_task, recording

DATABASES = Path(__file__).parents[1] / "data" / "databases"
ROOT = Path(__file__).parents[2]

KILLED = """
import os, sys
from pathlib import Path
from tests.recorded import one_task, recording
with recording(Path(sys.argv[1])) as tasks:
    one_task(tasks, "written before the kill")
    os._exit(9)
"""


def goals(connection: sqlite3.Connection) -> list[str]:
    """What there is to read."""
    return [row[0] for row in connection.execute("SELECT goal FROM tasks ORDER BY id")]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, to see whether anything has changed."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def killed_history(folder: Path) -> Path:
    """A history whose writer was killed: its rows are in the -wal only."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == 9
    assert (folder / "history.db-wal").stat().st_size > 0
    return folder / "history.db"


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """The database of a history whose writer has closed it."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks)
    return tmp_path / "history" / "history.db"


def test_reading_a_closed_history_changes_nothing_in_its_folder(closed: Path) -> None:
    """No -wal and no -shm appear, and no byte of what is there changes."""
    before = contents(closed.parent)
    assert set(before) == {"history.db", "history.db.writers.lock"}
    reading = Reading(closed)
    assert reading.read(goals) == ["a goal"]
    assert contents(closed.parent) == before
    reading.close()
    assert contents(closed.parent) == before


def test_a_reader_sees_each_commit_of_a_living_writer(tmp_path: Path) -> None:
    """What another connection has committed is there at the next read."""
    with recording(tmp_path) as tasks:
        one_task(tasks, "first")
        with closing(Reading(tmp_path / "history.db")) as reading:
            assert reading.read(goals) == ["first"]
            one_task(tasks, "second")
            assert reading.read(goals) == ["first", "second"]


def test_an_open_reader_holds_no_snapshot(tmp_path: Path) -> None:
    """Between two reads the writer can fold its whole write-ahead log into the database."""
    with recording(tmp_path) as tasks:
        one_task(tasks)
        with closing(Reading(tmp_path / "history.db")) as reading:
            reading.read(goals)
            with closing(sqlite3.Connection(str(tmp_path / "history.db"))) as other:
                busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert busy == 0
            assert reading.read(goals) == ["a goal"]


def test_a_reader_that_was_first_sees_the_writer_that_comes_later(closed: Path) -> None:
    """A history opened while nobody wrote is followed when somebody does, and when he has gone."""
    with closing(Reading(closed)) as reading:
        assert reading.read(goals) == ["a goal"]
        with recording(closed.parent) as tasks:
            one_task(tasks, "while reading")
            assert reading.read(goals) == ["a goal", "while reading"]
        assert reading.read(goals) == ["a goal", "while reading"]
        with recording(closed.parent) as tasks:
            one_task(tasks, "later")
        assert reading.read(goals) == ["a goal", "while reading", "later"]


def test_a_result_counts_only_when_nobody_wrote_meanwhile(closed: Path) -> None:
    """Without locks, a read during which a writer came and went is done again."""
    calls = []

    def query(connection: sqlite3.Connection) -> list[str]:
        calls.append(goals(connection))
        if len(calls) == 1:
            with recording(closed.parent) as tasks:
                one_task(tasks, "in the middle of the query")
        return calls[-1]

    with closing(Reading(closed)) as reading:
        assert reading.read(query) == ["a goal", "in the middle of the query"]
    assert len(calls) == 2


def test_a_database_that_was_exchanged_is_opened_anew(closed: Path, tmp_path: Path) -> None:
    """Deleting or replacing the file does not leave a reader on the old one."""
    with recording(tmp_path / "other") as tasks:
        one_task(tasks, "another history")
    with closing(Reading(closed)) as reading:
        reading.read(goals)
        (tmp_path / "other" / "history.db").replace(closed)
        assert reading.read(goals) == ["another history"]
        closed.unlink()
        with pytest.raises(HistoryNotFound, match="there is no history at"):
            reading.read(goals)


def test_what_a_killed_writer_committed_is_seen(tmp_path: Path) -> None:
    """Rows that are in the write-ahead log only are read where they lie."""
    path = killed_history(tmp_path)
    with closing(Reading(path)) as reading:
        assert reading.read(goals) == ["written before the kill"]


def test_a_log_without_its_index_is_read_from_a_private_copy(tmp_path: Path) -> None:
    """A database copied with its -wal shows all its rows, gets no -shm, and the copy is removed."""
    killed_history(tmp_path / "killed")
    (tmp_path / "copied").mkdir()
    for name in ("history.db", "history.db-wal"):
        shutil.copy(tmp_path / "killed" / name, tmp_path / "copied")
    before = contents(tmp_path / "copied")
    temporary = set(Path(tempfile.gettempdir()).glob("otel-taskhistory-*"))
    reading = Reading(tmp_path / "copied" / "history.db")
    assert reading.read(goals) == ["written before the kill"]
    copies = set(Path(tempfile.gettempdir()).glob("otel-taskhistory-*")) - temporary
    assert [path.stat().st_mode & 0o777 for path in copies] == [0o700]
    reading.close()
    assert contents(tmp_path / "copied") == before
    assert not any(path.exists() for path in copies)


@pytest.mark.parametrize("name", ["a b?c#d%e", "%41", "日本", "it's"])
def test_any_path_can_be_read(tmp_path: Path, name: str) -> None:
    """Characters that mean something in a URI mean nothing here."""
    with recording(tmp_path / name) as tasks:
        one_task(tasks)
        with closing(Reading(tmp_path / name / "history.db")) as reading:
            assert reading.read(goals) == ["a goal"]
    with closing(Reading(tmp_path / name / "history.db")) as reading:
        assert reading.read(goals) == ["a goal"]


def test_a_link_to_a_database_is_read_with_its_log(tmp_path: Path) -> None:
    """The write-ahead log lies beside what the link points to."""
    killed_history(tmp_path / "real")
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "history.db")
    with closing(Reading(tmp_path / "link.db")) as reading:
        assert reading.read(goals) == ["written before the kill"]


def test_a_text_that_is_no_utf8_hides_nothing(closed: Path) -> None:
    """The bad text comes with replacement characters, its neighbours as they are."""
    with closing(sqlite3.Connection(str(closed))) as other, other:
        other.execute("UPDATE tasks SET goal = CAST(x'61ff62' AS TEXT), result = 'kept'")
    with closing(Reading(closed)) as reading:
        row = reading.read(lambda c: c.execute("SELECT goal, result FROM tasks").fetchone())
    assert row == ("a\ufffdb", "kept")


def test_nothing_can_be_written_through_a_reader(tmp_path: Path) -> None:
    """Not even by a query that tries, beside a living writer too."""
    with recording(tmp_path) as tasks:
        one_task(tasks)
        with (
            closing(Reading(tmp_path / "history.db")) as reading,
            pytest.raises(TaskHistoryError, match="cannot read the history"),
        ):
            reading.read(lambda c: c.execute("DELETE FROM tasks"))


def test_threads_share_a_reader(tmp_path: Path) -> None:
    """Each of several threads gets its own result, whole."""
    with recording(tmp_path) as tasks:
        one_task(tasks)
        with closing(Reading(tmp_path / "history.db")) as reading:
            results: list[list[str]] = []
            threads = [
                threading.Thread(
                    target=lambda: results.extend(reading.read(goals) for _ in range(20))
                )
                for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    assert results == [["a goal"]] * 160


def in_a_fork(work: Callable[[], Any]) -> str:
    """What `work` returns, or its error, in a forked child that has nothing to import any more."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons: forking with threads
        child = os.fork()
    if child == 0:
        try:
            text = str(work())
        except BaseException as error:  # the parent reports it
            text = f"{type(error).__name__}: {error}"
        os.write(writes, text.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_reads_through_a_connection_of_its_own(tmp_path: Path) -> None:
    """An inherited connection is neither used nor closed: parent and child both go on reading."""
    with recording(tmp_path) as tasks:
        one_task(tasks)
        with closing(Reading(tmp_path / "history.db")) as reading:
            mine = reading._opened

            def in_the_child() -> str:
                found = reading.read(goals)
                assert reading._opened is not mine
                return str(found)

            assert in_a_fork(in_the_child) == "['a goal']"
            one_task(tasks, "later")
            assert reading.read(goals) == ["a goal", "later"]


# --- where we may not write ---------------------------------------------------------------------


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def without_the_right_to_write(folder: Path) -> str:
    """What a user reads who may only read in `folder`."""
    for path in folder.iterdir():
        path.chmod(0o755 if path.is_dir() else 0o644)

    def read() -> list[str]:
        if os.getuid() == 0:  # root may write anywhere
            os.setgid(65534)
            os.setuid(65534)
        with pytest.raises(OSError, match="denied"):
            (folder / "x").write_text("")
        with closing(Reading(folder / "history.db")) as reading:
            return reading.read(goals)

    folder.chmod(0o555)
    try:
        return in_a_fork(read)
    finally:
        folder.chmod(0o755)


read_only = pytest.mark.skipif(
    not hasattr(os, "fork") or not hasattr(os, "setuid"), reason="needs fork and setuid"
)


@read_only
def test_a_closed_history_is_read_without_the_right_to_write(open_folder: Path) -> None:
    """A read-only folder (a mounted backup, another user's) shows what is in it."""
    with recording(open_folder / "history") as tasks:
        one_task(tasks)
    assert without_the_right_to_write(open_folder / "history") == "['a goal']"
    assert not list((open_folder / "history").glob("history.db-*"))


@read_only
@pytest.mark.parametrize("shm", [True, False])
def test_a_killed_history_is_read_without_the_right_to_write(open_folder: Path, shm: bool) -> None:
    """Also the rows in the write-ahead log are seen there, with or without its index."""
    path = killed_history(open_folder / "history")
    if not shm:
        path.with_name("history.db-shm").unlink()
    seen = without_the_right_to_write(open_folder / "history")
    assert seen == "['written before the kill']"


@read_only
def test_a_living_history_is_read_without_the_right_to_write(open_folder: Path) -> None:
    """A reader of another user sees the commits of a living writer."""
    with recording(open_folder / "history") as tasks:
        one_task(tasks)
        assert without_the_right_to_write(open_folder / "history") == "['a goal']"
        one_task(tasks, "the writer goes on")
        assert without_the_right_to_write(open_folder / "history") == (
            "['a goal', 'the writer goes on']"
        )


@read_only
def test_a_history_that_may_not_be_read_is_said_to_be_so(open_folder: Path) -> None:
    """Missing permission is one sentence that names the file."""
    with recording(open_folder / "history") as tasks:
        one_task(tasks)

    def read() -> None:
        os.setgid(65534)
        os.setuid(65534)
        Reading(open_folder / "history" / "history.db")

    if os.getuid() != 0:
        pytest.skip("needs root, to become another user")
    text = in_a_fork(read)
    assert text.startswith("TaskHistoryError: cannot read the history at ")
    assert "Permission denied" in text


# --- what is no history, or none for us -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("db_not_sqlite.db", HistoryRefused, "is not a SQLite database"),
        ("db_header_only.db", TaskHistoryError, "is damaged (cut off after its header)"),
        ("db_zero_byte.db", HistoryNotFound, "is empty: nothing was recorded there yet"),
        ("db_bad_text.db", HistoryRefused, "is a database of another application"),
        ("db_newer_schema.db", HistoryRefused, "is a database of another application"),
        ("db_rows_in_wal.db", HistoryRefused, "is a database of another application"),
        ("db_corrupt_page2.db", HistoryRefused, "is a database of another application"),
        ("db_fts_out_of_sync.db", HistoryRefused, "is a database of another application"),
        ("nowhere.db", HistoryNotFound, "there is no history at"),
        ("db_bad_text.db/history.db", HistoryNotFound, "there is no history at"),
    ],
)
def test_what_is_no_history_is_refused_in_one_sentence(
    tmp_path: Path, name: str, error: type[Exception], words: str
) -> None:
    """The message names the file, says what is wrong and where to point; nothing is changed."""
    shutil.copytree(DATABASES, tmp_path / "databases")
    before = contents(tmp_path / "databases")
    with pytest.raises(error) as caught:
        Reading(tmp_path / "databases" / name)
    message = str(caught.value)
    assert words in message
    assert str(tmp_path / "databases" / name) in message
    assert "--directory" in message
    assert "OTEL_TASKHISTORY_DIRECTORY" in message
    assert "\n" not in message
    assert contents(tmp_path / "databases") == before


def test_a_damaged_history_is_told_at_the_read_that_meets_it(closed: Path) -> None:
    """Overwritten pages are one sentence that says what to do."""
    whole = closed.read_bytes()
    size = struct.unpack(">H", whole[16:18])[0]
    closed.write_bytes(whole[:size] + b"\x5a" * (len(whole) - size))
    with pytest.raises(TaskHistoryError, match=r"the history at .* is damaged \(.*\): keep a copy"):
        Reading(closed)


def test_a_history_whose_making_was_cut_short_is_none_yet(tmp_path: Path) -> None:
    """A stamped file without tables is no history, and no damage either."""
    path = tmp_path / "history.db"
    with closing(sqlite3.Connection(str(path))) as connection:
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute("VACUUM")
    with pytest.raises(HistoryNotFound, match="was never finished"):
        Reading(path)


@pytest.mark.parametrize("readable_from", ["99", "", "soon", None])
def test_a_newer_schema_is_refused_when_it_says_so(closed: Path, readable_from: str | None) -> None:
    """The message names both versions and what to do."""
    with closing(sqlite3.Connection(str(closed))) as other, other:
        other.execute("PRAGMA user_version = 99")
        other.execute("DELETE FROM _meta WHERE key = 'readable_from'")
        if readable_from is not None:
            other.execute("INSERT INTO _meta VALUES ('readable_from', ?)", (readable_from,))
    with pytest.raises(SchemaTooNew, match=r"schema version 99.* knows version 1: upgrade"):
        Reading(closed)


def test_a_newer_schema_is_read_when_it_allows(closed: Path) -> None:
    """A version that only adds stays readable by older readers."""
    with closing(sqlite3.Connection(str(closed))) as other, other:
        other.execute("PRAGMA user_version = 99")
        other.execute("ALTER TABLE tasks ADD COLUMN mood TEXT")
    with closing(Reading(closed)) as reading:
        assert reading.read(goals) == ["a goal"]
        assert reading.identity.schema_version == 99


def test_the_history_of_another_owner_is_refused_when_one_is_named(tmp_path: Path) -> None:
    """Who names no owner takes the one of the history; who names another is told both."""
    with recording(tmp_path, owner="runtime") as tasks:
        one_task(tasks)
    path = tmp_path / "history.db"
    with closing(Reading(path)) as reading:
        assert reading.identity.owner == "runtime"
    with closing(Reading(path, owner="runtime")) as reading:
        assert reading.read(goals) == ["a goal"]
    with pytest.raises(HistoryRefused, match="history of 'runtime', not of 'host-agent'"):
        Reading(path, owner="host-agent")


def test_an_old_sqlite_is_told(monkeypatch: pytest.MonkeyPatch, closed: Path) -> None:
    """The message names the version that is there and the one that is needed."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(TaskHistoryError, match=r"is too old, otel-taskhistory needs 3\.37\.0"):
        Reading(closed)


def test_a_reader_that_is_dropped_closes_its_connection(closed: Path) -> None:
    """Nobody has to call `close`, and newer Pythons do not complain that nobody did."""
    reading = Reading(closed)
    assert reading._opened is not None
    connection = reading._opened.connection
    del reading
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
