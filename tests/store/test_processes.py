# SPDX-License-Identifier: Apache-2.0
"""Who of the processes that write a history is alive."""

from __future__ import annotations

import errno
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistoryExporter
from otel_taskhistory.settings import Settings
from otel_taskhistory.store import lockfile
from otel_taskhistory.store import processes as module
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.processes import (
    LOOK_AFTER_NS,
    Registration,
    dead,
    forget_ended,
    lock_path,
    processes,
)
from tests.workers import Worker

NOW = 1_790_000_000 * 10**9

posix = pytest.mark.skipif(os.name != "posix", reason="forks, or kills, as POSIX does")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Clock:
    """A clock that goes as the test says."""

    def __init__(self) -> None:
        self.ns = NOW

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history is."""
    return tmp_path / "history"


@pytest.fixture
def database(directory: Path) -> Iterator[Database]:
    """An open history that nobody has signed in to yet."""
    database = Database(Settings.resolve(directory=directory, environ={}))
    yield database
    database.close()


def sign(database: Database, clock: Clock | None = None, **values: str) -> Registration:
    """A writer that has signed in."""
    registration = Registration(
        database.path, service=values.get("service"), clock=clock or Clock()
    )
    with database.transaction() as connection:
        assert registration.sign(connection) is False
    return registration


def rows_of(database: Database, pid: int) -> list[int]:
    """The rows of a process."""
    found = database.connection.execute(
        "SELECT id FROM _processes WHERE pid = ? AND ended_ns IS NULL ORDER BY id", (pid,)
    )
    return [row[0] for row in found]


def gone(database: Database) -> list[int]:
    """Who is dead."""
    with database.transaction() as connection:
        return dead(connection, database.path)


def edit(database: Database, **values: object) -> None:
    """Write something else into every row."""
    with database.transaction() as connection:
        for column, value in values.items():
            connection.execute(f"UPDATE _processes SET {column} = ?", (value,))


# --- the row and the lock file ---


def test_a_writer_says_who_it_is(database: Database) -> None:
    """The row names pid, host, service and start, and tells which lock file has its lock."""
    registration = sign(database, service="desk")
    (found,) = processes(database.connection, database.path)
    assert (found.row, found.pid, found.service) == (registration.row, os.getpid(), "desk")
    assert found.host
    assert (found.started_ns, found.seen_ns, found.alive) == (NOW, NOW, True)
    assert found.lock == lock_path(database.path).read_text()


@posix
def test_the_lock_file_is_private(database: Database) -> None:
    """The lock file is 0600 whatever the umask says."""
    before = os.umask(0)
    try:
        sign(database)
    finally:
        os.umask(before)
    mode = lock_path(database.path).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_writers_that_come_by_a_link_meet_the_others(directory: Path, database: Database) -> None:
    """The lock file is beside the database that a link leads to, not beside the link."""
    sign(database)
    link = directory / "link.db"
    link.symlink_to(database.path)
    assert lock_path(link) == lock_path(database.path)


def test_seen_is_the_last_commit(database: Database) -> None:
    """Each transaction notes its time as the last sign of life."""
    clock = Clock()
    registration = sign(database, clock)
    clock.ns += 5
    with database.transaction() as connection:
        registration.sign(connection)
    assert processes(database.connection, database.path)[0].seen_ns == NOW + 5


def test_a_row_that_was_rolled_back_is_made_again(database: Database) -> None:
    """A writer whose first transaction failed is signed in by its next one, with a lock."""
    registration = Registration(database.path, service=None, clock=Clock())
    with suppress(ZeroDivisionError), database.transaction() as connection:
        registration.sign(connection)
        raise ZeroDivisionError
    assert processes(database.connection, database.path) == []
    with database.transaction() as connection:
        registration.sign(connection)
    (found,) = processes(database.connection, database.path)
    assert found.row == registration.row
    assert found.alive
    assert found.lock is not None


def test_rows_of_the_past_are_bounded(database: Database) -> None:
    """Rows of ended writers go, but the newest hundred and those that a span refers to."""
    with database.transaction() as connection:
        connection.executemany(
            "INSERT INTO _processes (id, pid, host, started_ns, seen_ns, ended_ns)"
            " VALUES (?, 1, 'h', 1, 1, 1)",
            [(number,) for number in range(1, 301)],
        )
        connection.execute("INSERT INTO _traces (id, trace_id) VALUES (1, 'a')")
        connection.execute(
            "INSERT INTO _contents (id, hash, template, pictures, text) VALUES (1, x'', 0, 0, '')"
        )
        connection.execute(
            "INSERT INTO _spans (trace, span_id, parent_remote, name, kind, start_ns, status_code,"
            " trace_state, flags, dropped_attributes, dropped_events, dropped_links, resource,"
            " scope, role, facts, process, seen_ns, size, templates, attributes, events, links)"
            " VALUES (1, 'b', 0, 'n', 'k', 1, 'UNSET', '', 0, 0, 0, 0, 1, 1, 'other', '{}', 7, 1,"
            " 0, 0, '{}', '[]', '[]')"
        )
        assert forget_ended(connection) == 199
        assert forget_ended(connection) == 0
    kept = [row[0] for row in database.connection.execute("SELECT id FROM _processes ORDER BY id")]
    assert kept == [7, *range(201, 301)]


# --- alive and dead ---


@posix
def test_a_killed_process_is_dead_and_a_living_one_is_not(
    directory: Path, database: Database
) -> None:
    """Whoever was killed is found dead, and nobody else."""
    with Worker(directory, "none") as lives, Worker(directory, "none") as dies:
        assert gone(database) == []
        dies.kill()
        assert gone(database) == rows_of(database, dies.pid)
        assert len(rows_of(database, lives.pid)) == 1


@linux
def test_a_zombie_is_dead(directory: Path, database: Database) -> None:
    """A killed process is dead although its parent has not taken note of it yet."""
    with Worker(directory, "none") as worker:
        worker.kill(reap=False)
        assert gone(database) == rows_of(database, worker.pid) != []


@posix
def test_a_forked_child_does_not_keep_its_parent_alive(directory: Path, database: Database) -> None:
    """The child that survives its parent has every descriptor of it, and none of its locks."""
    with Worker(directory, "none") as worker:
        child = worker.ask("fork")["child"]
        worker.kill()
        parents = rows_of(database, worker.pid)
        assert len(parents) == 1
        assert gone(database) == parents
        assert [p.pid for p in processes(database.connection, database.path) if p.alive] in (
            [],  # a child registers when it has something to write
            [child],
        )


@posix
def test_a_forked_child_that_ends_does_not_end_its_parent(
    directory: Path, database: Database
) -> None:
    """What a child closes at its death are its own descriptors: the parent keeps its lock."""
    with Worker(directory, "none") as worker:
        child = worker.ask("fork")["child"]
        os.kill(child, 9)
        worker.ask("")
        assert not set(rows_of(database, worker.pid)) & set(gone(database))


@posix
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_knows_that_it_holds_nothing(database: Database) -> None:
    """The child does not take the locks that its parent held for its own."""
    registration = sign(database)
    file = lockfile.lock_file(lock_path(database.path), create=False)
    assert file is not None
    assert file.holds(registration.row)
    child = os.fork()
    if not child:
        os._exit(file.holds(registration.row))
    assert os.waitpid(child, 0)[1] == 0


@linux
def test_a_pid_that_is_used_again_does_not_pass_for_the_dead(
    directory: Path, database: Database
) -> None:
    """A dead writer stays dead when another process has its pid, with a lock and without."""
    with Worker(directory, "none") as other, Worker(directory, "none") as worker:
        worker.kill()
        (row,) = rows_of(database, worker.pid)
        with database.transaction() as connection:
            connection.execute("UPDATE _processes SET pid = ? WHERE id = ?", (other.pid, row))
        assert gone(database) == [row]
        with database.transaction() as connection:
            connection.execute("UPDATE _processes SET lock = NULL WHERE id = ?", (row,))
        assert gone(database) == [row]


@posix
@pytest.mark.parametrize("shift", [-(10**18), 10**18])
def test_the_clock_decides_nothing(directory: Path, database: Database, shift: int) -> None:
    """Whatever the times say, the living live and the dead are dead."""
    with Worker(directory, "none") as lives, Worker(directory, "none") as dies:
        dies.kill()
        with database.transaction() as connection:
            connection.execute(
                "UPDATE _processes SET started_ns = started_ns + ?, seen_ns = seen_ns + ?",
                (shift, shift),
            )
        assert gone(database) == rows_of(database, dies.pid)
        assert rows_of(database, lives.pid)


@posix
def test_a_process_under_another_host_name_lives_by_its_lock(
    directory: Path, database: Database
) -> None:
    """A container that shares the history is alive while it holds its lock, and dead after."""
    with Worker(directory, "none") as worker:
        edit(database, host="elsewhere")
        assert gone(database) == []
        worker.kill()
        assert len(gone(database)) == 1


# --- several writers in one process ---


@posix
def test_closing_one_of_two_exporters_leaves_the_other_alive(
    directory: Path, database: Database
) -> None:
    """Two exporters of a process have a lock each; closing one does not drop the other's."""
    first, second = TaskHistoryExporter(directory), TaskHistoryExporter(directory)
    rows = rows_of(database, os.getpid())
    assert len(rows) == 2
    first.shutdown()
    assert rows_of(database, os.getpid()) == rows[1:]
    assert _seen_dead_from_outside(directory) == []
    second.shutdown()
    assert rows_of(database, os.getpid()) == []


@posix
def test_a_writer_that_gave_up_its_lock_is_dead_in_its_own_process(database: Database) -> None:
    """A closed writer whose end could not be noted is dead, also for the process it was in."""
    lives, closed = sign(database), sign(database)
    closed.release()
    assert gone(database) == [closed.row]
    assert closed.row != lives.row


def _register(directory: Path, ready: object, go_on: object) -> None:
    exporter = TaskHistoryExporter(directory)
    ready.set()  # type: ignore[attr-defined]
    go_on.wait()  # type: ignore[attr-defined]
    del exporter
    os._exit(0)


@posix
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_multiprocessing_children_are_writers_of_their_own(
    directory: Path, database: Database, method: str
) -> None:
    """A child has its own row, lives and dies by itself, also when it leaves by ``os._exit``."""
    exporter = TaskHistoryExporter(directory)
    mine = rows_of(database, os.getpid())
    context = multiprocessing.get_context(method)
    ready, go_on = context.Event(), context.Event()
    child = context.Process(target=_register, args=(directory, ready, go_on))
    child.start()
    assert ready.wait(60)
    childs = rows_of(database, child.pid or 0)
    assert childs
    assert gone(database) == []
    go_on.set()
    child.join()
    assert gone(database) == childs
    assert _seen_dead_from_outside(directory) == childs
    assert rows_of(database, os.getpid()) == mine
    exporter.shutdown()


def _seen_dead_from_outside(directory: Path) -> list[int]:
    """Whom another process calls dead, before it opens the history for itself."""
    code = (
        "import sqlite3, sys; from pathlib import Path\n"
        "from otel_taskhistory.store.processes import dead\n"
        "path = Path(sys.argv[1]) / 'history.db'\n"
        "print(*dead(sqlite3.connect(path), path))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return [int(row) for row in done.stdout.split()]


# --- when the lock file is not what it should be ---


@linux
def test_a_deleted_lock_file_kills_nobody(directory: Path, database: Database) -> None:
    """Without the file, and with another one in its place, the living live and the dead do not."""
    with Worker(directory, "none") as lives, Worker(directory, "none") as dies:
        (directory / "history.db.writers.lock").unlink()
        assert gone(database) == []
        sign(database)  # makes another file
        assert gone(database) == []
        dies.kill()
        assert gone(database) == rows_of(database, dies.pid)
        assert rows_of(database, lives.pid)


@linux
def test_a_process_moves_to_the_lock_file_that_is_there(database: Database) -> None:
    """A writer whose lock file was replaced holds its lock in the new one a little later."""
    clock = Clock()
    registration = sign(database, clock)
    path = lock_path(database.path)
    before = path.read_text()
    path.unlink()
    clock.ns += LOOK_AFTER_NS
    with database.transaction() as connection:
        registration.sign(connection)
    (found,) = processes(database.connection, database.path)
    assert found.lock == path.read_text() != before
    assert found.alive


@linux
def test_a_dropped_lock_kills_nobody(directory: Path, database: Database) -> None:
    """A program that opens and closes the lock file itself drops its lock, and stays alive."""
    with Worker(directory, "none") as worker:
        worker.ask("close-lock")
        assert gone(database) == []
        worker.kill()
        assert gone(database) == rows_of(database, worker.pid)


@linux
def test_the_lock_file_is_opened_once(database: Database) -> None:
    """However often a process looks, it has one descriptor of the lock file."""
    sign(database)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert gone(database) == []
    assert len(os.listdir("/proc/self/fd")) == before


@linux
def test_a_closed_descriptor_kills_nobody(directory: Path, database: Database) -> None:
    """A program that closes all descriptors, as daemons do, stays alive."""
    with Worker(directory, "none") as worker:
        assert "closed" in worker.ask("close-all")
        assert gone(database) == []


@linux
def test_closed_descriptors_are_opened_and_locked_again(database: Database) -> None:
    """Locks whose descriptor was closed, and given to another file, are taken again."""
    first, second = sign(database), sign(database)
    path = lock_path(database.path)
    edit(database, birth=None)  # so that the locks alone tell
    held = lockfile.lock_file(path, create=False)
    assert held is not None
    handle = held._handle
    os.close(handle)
    other = os.open(os.devnull, os.O_RDONLY)
    assert other == handle
    try:
        assert gone(database) == []
        assert held._handle != handle
        assert _seen_dead_from_outside(path.parent) == []
        first.release()
        assert gone(database) == [first.row]
        assert second.row != first.row
    finally:
        os.close(other)


@linux
@pytest.mark.parametrize("obstacle", ["directory", "symlink", "full"])
def test_without_a_lock_file_the_process_itself_is_looked_at(
    directory: Path, database: Database, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lock file cannot be had, writers record all the same and are told by their pid."""
    path = directory / "history.db.writers.lock"
    if obstacle == "directory":
        path.mkdir()
    elif obstacle == "symlink":
        (directory / "other").touch()
        path.symlink_to(directory / "other")
    else:
        monkeypatch.setattr(lockfile.os, "write", lambda handle, data: 0)
    registration = sign(database)
    (found,) = processes(database.connection, database.path)
    assert (found.row, found.lock, found.alive) == (registration.row, None, True)
    monkeypatch.undo()
    with Worker(directory, "none") as worker:
        edit(database, lock=None)
        worker.kill()
        assert gone(database) == rows_of(database, worker.pid)


@posix
def test_a_file_system_without_locks_stops_nobody(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where locks are not known, a writer has none and is alive as long as it is seen."""
    import fcntl

    def lockf(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "lockf", lockf)
        registration = sign(database)
        (found,) = processes(database.connection, database.path)
    assert (found.row, found.lock, found.alive) == (registration.row, None, True)


@posix
def test_without_proc_the_pid_decides(
    directory: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing tells when a process began, a writer without a lock lives by its pid alone."""
    with Worker(directory, "none") as worker:
        edit(database, lock=None, birth=None)
        monkeypatch.setattr(module, "_birth", lambda pid: None)
        assert gone(database) == []
        worker.kill()
        assert gone(database) == rows_of(database, worker.pid)


@posix
def test_in_doubt_a_process_is_alive(directory: Path, database: Database) -> None:
    """Of another host, without a lock to ask about, nobody is called dead."""
    with Worker(directory, "none") as worker:
        worker.kill()
        edit(database, host="elsewhere", lock=None)
        assert gone(database) == []


@linux
def test_another_container_is_in_doubt_and_another_boot_is_not(
    directory: Path, database: Database
) -> None:
    """Pids of another namespace say nothing; those of before the last boot are all gone."""
    with Worker(directory, "none") as worker:
        worker.kill()
        (birth,) = database.connection.execute("SELECT birth FROM _processes").fetchone()
        boot, namespace, tick = birth.split(" ")
        edit(database, lock=None, birth=f"{boot} pid:[1] {tick}")
        assert gone(database) == []
        edit(database, birth=f"00000000 {namespace} {tick}")
        assert len(gone(database)) == 1


@posix
def test_a_number_that_is_taken_is_left_out(directory: Path, database: Database) -> None:
    """A process that writes a deleted database keeps its lock's number; a new one takes the next.

    Neither is then taken for the other.
    """
    with Worker(directory, "none") as worker:
        (taken,) = rows_of(database, worker.pid)
        with database.transaction() as connection:
            connection.execute("DELETE FROM _processes")
            connection.execute("UPDATE sqlite_sequence SET seq = 0 WHERE name = '_processes'")
        registration = sign(database)
        assert registration.row == taken + 1
        registration.release()
        assert gone(database) == [registration.row]


def test_windows_locks_the_same_bytes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows the byte behind the content with the row's number is locked, by ``msvcrt``."""
    calls: list[tuple[int, int, int]] = []

    def locking(handle: int, mode: int, length: int) -> None:
        calls.append((mode, os.lseek(handle, 0, os.SEEK_CUR), length))

    windows = types.SimpleNamespace(LK_NBLCK=2, LK_UNLCK=0, locking=locking)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "msvcrt", windows)
        patch.setattr(lockfile.sys, "platform", "win32")
        registration = sign(database)
        registration.release()
    assert calls == [(2, 4096 + registration.row, 1), (0, 4096 + registration.row, 1)]


def test_reading_makes_no_lock_file(database: Database) -> None:
    """Who only looks at the processes of a history changes no file."""
    edit(database)
    assert processes(database.connection, database.path) == []
    assert not lock_path(database.path).exists()
    reader = sqlite3.connect(f"file:{database.path}?mode=ro", uri=True)
    assert processes(reader, database.path) == []
    reader.close()
