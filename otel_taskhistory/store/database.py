# SPDX-License-Identifier: Apache-2.0
"""The writer's connection to a history.

What holds for it, always:

* One connection per process and history; `Database.transaction` is the only way to write.
* Every transaction begins IMMEDIATE: it waits for the lock at its start, once, at most the busy
  timeout, and never fails later because another writer came in between.
* WAL; ``synchronous`` is FULL for a transaction that must survive power loss, else NORMAL, which
  costs no fsync and survives the death of the process.
* ``auto_vacuum=INCREMENTAL`` was set before the first table, so that space can be given back.
* Deleted content is overwritten (``secure_delete``); foreign keys are enforced.
* The connection class is used directly: instrumentations patch ``sqlite3.connect``, and an
  exporter that is traced feeds itself for ever.
* The stamp is written before WAL is switched on, so that it can be read from the main file alone.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import re
import secrets
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from otel_taskhistory.errors import HistoryRefused, SchemaTooNew, TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.aside import make_way, opening, set_aside
from otel_taskhistory.store.damage import is_damage, looks_damaged
from otel_taskhistory.store.files import write_file
from otel_taskhistory.store.inherited import abandon
from otel_taskhistory.store.log import COMMIT_SECONDS, PART, Log
from otel_taskhistory.store.schema import (
    APPLICATION_ID,
    OLDEST_SQLITE,
    READABLE_FROM,
    SCHEMA_VERSION,
)
from otel_taskhistory.store.stamp import (
    ARTIFACT_STAMP,
    Stamp,
    check_artifacts,
    check_owner,
    looks_empty,
    read_artifact_stamp,
    read_database_stamp,
)

_logger = logging.getLogger("otel_taskhistory")

PAGE_SIZE: Final = 1024
"""Bytes. A checkpoint changes a little in some twenty tables and indexes: with SQLite's usual 4096
it writes three times as much, an empty history is three times as large, and a conversation of 200
steps half as large again. A text of 1 MB takes about half as long again to write."""

_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{16}")
_GRACE_SECONDS: Final = 600.0
_PAUSE: Final = 0.01  # seconds between two tries at switching on WAL
_SHORTEST_PAUSE: Final = 0.0005  # seconds between two looks at a lock
_LONGEST_PAUSE: Final = 0.004
_LOCK_SECONDS: Final = 30.0  # a damaged history of 2 GiB that is set aside is read once before
_OPENING_SECONDS: Final = 5.0  # how long opening waits for others who open, whatever is set


class Database:
    """An open history. Use from one thread at a time."""

    def __init__(
        self, settings: Settings, *, service_name: str | None = None, wait: float | None = None
    ) -> None:
        """Open a history for writing, make it if there is none.

        Args:
            service_name: the ``service.name`` of this process when somebody chose one.
            wait: seconds to wait for others who open or write, at most; by default long enough
                for many processes that begin at once.

        Raises:
            TaskHistoryError: it must not be used, and nothing was changed then; or it cannot be.
        """
        check_sqlite()
        self.path = settings.database
        self._settings = settings
        self._synchronous = ""
        self._wait = max(settings.busy_timeout, _OPENING_SECONDS) if wait is None else wait
        make_way(settings)
        try:
            self._make_and_open(service_name, wait)
        except TaskHistoryError as error:
            damaged = error.__cause__ is not None and is_damage(error.__cause__)
            if not damaged or set_aside(settings) is None:
                raise
            self._make_and_open(service_name, wait)

    def _make_and_open(self, service_name: str | None, wait: float | None) -> None:
        settings = self._settings
        look(settings, service_name)  # refuses before anything is made
        made: list[Path] = []
        try:
            for folder in (settings.directory, settings.database.parent, settings.artifacts):
                _make_folder(folder, made)
            # Others may open it too or, if it is damaged, set it aside: one after the other.
            with opening(settings.database, _LOCK_SECONDS if wait is None else wait):
                _sweep(settings.database)
                self._open(look(settings, service_name), service_name, made)
        except OSError as error:
            _remove(made)
            raise cannot_use(settings.database, error) from error
        except BaseException:
            _remove(made)
            raise

    def _open(self, stamp: Stamp | None, service_name: str | None, made: list[Path]) -> None:
        settings = self._settings
        try:
            _make_file(settings.database, made)
            self._real = os.path.realpath(settings.database)  # beside it SQLite puts the WAL
            self.connection = connect(settings.database, self._wait)
        except sqlite3.Error as error:
            raise cannot_use(settings.database, error) from error
        try:
            self.stamp = self._prepare(settings, stamp, service_name)
            _stamp_artifacts(settings, self.stamp)
            self._enter_wal()
            self.log = Log(self.connection, self._real)
            self._files = self._look_at_files()
        except (OSError, sqlite3.Error) as error:
            self.connection.close()
            raise cannot_use(settings.database, error) from error
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, settings: Settings, seen: Stamp | None, service: str | None) -> Stamp:
        """Bring the schema up to date and put the stamp in, in one transaction."""
        connection = self.connection
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if seen and version == SCHEMA_VERSION and (service is None or seen.service_name):
            return seen  # nothing to write, so nobody to wait for
        # Both only count before any table, and the first not after the second.
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        with self.transaction(wait=self._wait):
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise SchemaTooNew(
                    f"{self.path} has schema version {version}, this version of otel-taskhistory"
                    f" writes version {SCHEMA_VERSION}: upgrade otel-taskhistory"
                )
            if version < SCHEMA_VERSION:
                # Only here: sqlite-utils takes a third of the time of all that we import.
                from otel_taskhistory.store.migrations import migrate

                migrate(connection)
                # Not a parameter: PRAGMA takes none. Both are constants of ours.
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                _put_meta(connection, "schema_version", str(SCHEMA_VERSION))
                _put_meta(connection, "readable_from", str(READABLE_FROM))
            # Whatever was seen before: that transaction may never have been committed.
            adopted = read_artifact_stamp(settings.artifacts)
            history_id = adopted.history_id if adopted else secrets.token_hex(8)
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            for key, value in (
                ("owner", settings.owner),
                ("history_id", history_id),
                ("created_at", now),
            ):
                connection.execute(
                    "INSERT INTO _meta (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    (key, value),
                )
            stamp = self._read_stamp()
            # Another process may have made the history between our look and our lock.
            _check(settings, stamp, service)
            if stamp.service_name is None and service is not None:
                _put_meta(connection, "service_name", service)
                stamp = Stamp(stamp.owner, stamp.history_id, service)
        return stamp

    def claim_service(self, service: str | None) -> Stamp:
        """Within a transaction: stamp the history with its first writer's service.

        Returns:
            The stamp, to be kept when the transaction is committed.

        Raises:
            HistoryRefused: another process has stamped it with another one.
        """
        if service is None or self.stamp.service_name is not None:
            return self.stamp
        stamp = self._read_stamp()
        if stamp.service_name is not None:
            self.stamp = stamp
            _check(self._settings, stamp, service)
            return stamp
        _put_meta(self.connection, "service_name", service)
        return Stamp(stamp.owner, stamp.history_id, service)

    def keep_stamp(self, stamp: Stamp) -> None:
        """The transaction that `claim_service` was part of is committed."""
        if stamp == self.stamp:
            return
        self.stamp = stamp
        # The database says it in any case, and the next opening adds it here.
        with suppress(OSError, TaskHistoryError):
            _stamp_artifacts(self._settings, stamp)

    def _read_stamp(self) -> Stamp:
        meta = dict(self.connection.execute("SELECT key, value FROM _meta"))
        return Stamp(meta["owner"], meta["history_id"], meta.get("service_name"))

    def _enter_wal(self) -> None:
        # The switch needs the database for itself for a moment and does not wait for it.
        deadline = time.monotonic() + self._wait
        while True:
            try:
                mode = self.connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
                continue
            if mode != "wal":
                raise TaskHistoryError(
                    f"{self.path} cannot use a write-ahead log (journal mode stays {mode!r}):"
                    " put the history on a local file system (OTEL_TASKHISTORY_DIRECTORY)"
                )
            break
        self.connection.execute("SELECT 1 FROM _meta").fetchone()  # makes the -wal and the -shm
        self.connection.execute("PRAGMA busy_timeout = 0")  # from now on `_begin` waits

    @contextmanager
    def transaction(
        self, *, durable: bool = False, wait: float | None = None
    ) -> Iterator[sqlite3.Connection]:
        """One write transaction; whatever leaves the block rolls it back.

        Args:
            durable: survive power loss (one fsync), not only the death of the process.
            wait: seconds to wait for the lock at most; None for the busy timeout.
        """
        connection = self.connection
        if connection.in_transaction:  # an interrupt hit between BEGIN and our knowing of it
            connection.rollback()
        mode = "FULL" if durable else "NORMAL"
        if mode != self._synchronous:  # has no effect inside a transaction
            connection.execute(f"PRAGMA synchronous = {mode}")
            self._synchronous = mode
        try:
            self._begin(self._settings.busy_timeout if wait is None else wait)
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise

    def _begin(self, wait: float) -> None:
        """Begin a transaction, waiting for the lock at most `wait` seconds.

        SQLite itself looks for the lock ten times a second in the end, and a process that commits
        without a pause then keeps all others out for seconds. We look more often.
        """
        deadline = time.monotonic() + wait
        pause = _SHORTEST_PAUSE
        while True:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() >= deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def fold_log(self) -> None:
        """After a commit: fold the write-ahead log into the database when it has grown.

        Nothing is lost when that fails: the log goes on to grow until the next try.
        """
        try:
            self.log.keep_small()
        except sqlite3.Error as error:
            _logger.debug("otel-taskhistory: the log could not be folded in: %s", error)

    def moved(self) -> bool:
        """Whether the files under the path are no longer those that were opened."""
        return self._look_at_files() != self._files

    def _look_at_files(self) -> tuple[_Identity | None, ...]:
        """Of the database, its WAL and the WAL's index: without one of them the others are lost."""
        paths = (self.path, f"{self._real}-wal", f"{self._real}-shm")
        return tuple(_identity(path) for path in paths)

    def close(self) -> None:
        """Close the connection, and fold the WAL into the database.

        SQLite does so only when nobody else has it open, though it be a viewer that does nothing.
        """
        if self.log.size and not self.moved():
            with suppress(sqlite3.Error):
                self.log.fold(COMMIT_SECONDS)
        self.connection.close()

    def leave(self) -> None:
        """Close the connection to files that are no longer the history."""
        self.connection.close()
        there = self._look_at_files()
        if there[0] == self._files[0]:
            return
        # The database is gone, its log is not: SQLite would replay it into whichever database
        # comes in that place, for instance a backup that was put back.
        for suffix, opened, now in zip(("-wal", "-shm"), self._files[1:], there[1:], strict=True):
            if now is not None and now == opened:
                with suppress(OSError):  # of no consequence where nothing can be opened either
                    os.unlink(f"{self._real}{suffix}")

    def abandon(self) -> None:
        """In a forked child: the connection is the parent's."""
        abandon(self.connection)


_Identity = tuple[int, int]


def check_sqlite() -> None:
    """Refuse an SQLite that lacks what the schema needs.

    Raises:
        TaskHistoryError: it is too old.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise TaskHistoryError(
            f"SQLite {sqlite3.sqlite_version} is too old, otel-taskhistory needs {needed}: use a"
            " Python that is built with a newer SQLite"
        )


def cannot_use(database: Path, error: Exception) -> TaskHistoryError:
    """The one sentence about a history that cannot be opened."""
    return TaskHistoryError(
        f"cannot use the history at {database}: {error}. Make the place writable, or point"
        " OTEL_TASKHISTORY_DIRECTORY (or directory=) somewhere else"
    )


def look(settings: Settings, service: str | None) -> Stamp | None:
    """Look at what is there, without changing a byte; refuse what is not ours.

    A damaged history of ours is none: `make_way` sets it aside before a new one is made.

    Returns:
        The stamp, or None when a new history is to be made.

    Raises:
        TaskHistoryError: it must not be used, or cannot be.
    """
    try:
        for folder in (settings.directory, settings.database.parent, settings.artifacts):
            _check_folder(folder)
        stamp = None
        if not looks_empty(settings.database):
            try:
                stamp = read_database_stamp(settings.database)
            except (HistoryRefused, sqlite3.DatabaseError):
                if not looks_damaged(settings):
                    raise
            _check_access(settings.database, os.R_OK | os.W_OK)
        if stamp is None:
            check_artifacts(settings.artifacts, None, settings.database, settings.owner)
            return None
        if stamp.service_name is None:
            # It came later than the rest, so the database may have it in its WAL only.
            beside = read_artifact_stamp(settings.artifacts)
            if beside is not None and beside.history_id == stamp.history_id:
                stamp = beside
        _check(settings, stamp, service)
        return stamp
    except (OSError, sqlite3.Error, KeyError) as error:
        raise cannot_use(settings.database, error) from error


def _check_folder(folder: Path) -> None:
    """Refuse, before anything is made, a place where nothing can be."""
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "is no directory", str(folder))
    except FileNotFoundError:
        return
    _check_access(folder, os.W_OK | os.X_OK)


def _check_access(path: Path, wanted: int) -> None:
    if not os.access(path, wanted):
        raise PermissionError(errno.EACCES, "may not be written to", str(path))


def _check(settings: Settings, stamp: Stamp, service: str | None) -> None:
    check_owner(
        stamp,
        settings.database,
        owner=settings.owner,
        owner_explicit=settings.owner_explicit,
        service_name=service,
    )
    check_artifacts(settings.artifacts, stamp, settings.database, settings.owner)


def _put_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    connection.execute(
        "INSERT INTO _meta (key, value) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def connect(database: Path, busy_timeout: float) -> sqlite3.Connection:
    """A connection that may write; all that do have these settings."""
    connection = sqlite3.Connection(
        str(database),
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,  # there are more than the 128 that Python keeps
    )
    for pragma in (
        "foreign_keys = ON",
        "recursive_triggers = ON",
        "secure_delete = ON",
        "temp_store = MEMORY",
        f"journal_size_limit = {PART}",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def connect_to_read(settings: Settings) -> sqlite3.Connection:
    """A connection that sees what is committed, beside the one that writes."""
    return sqlite3.Connection(
        f"{settings.database.as_uri()}?mode=ro", uri=True, timeout=settings.busy_timeout
    )


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder that only its user can enter; folders that exist keep their mode."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:  # another process made it; not ours to change then
            continue
        made.append(path)
        path.chmod(0o700)  # whatever the umask took away


def _make_file(database: Path, made: list[Path]) -> None:
    """Make the empty file with its final mode: SQLite gives the -wal and -shm the same one."""
    path = Path(os.path.realpath(database))  # a link may lead to where nothing is yet
    try:
        if path.stat().st_size == 0:
            with suppress(PermissionError):  # another user's: the mode is his to choose
                path.chmod(0o600)
        return
    except FileNotFoundError:
        pass
    # Under another name first: closing a file gives up all locks this process has on it, and by
    # its final name another thread may have opened and locked it by then.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        temporary.chmod(0o600)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            path.chmod(0o600)
        made.append(path)
    except FileExistsError:
        return  # another process or thread was faster
    finally:
        temporary.unlink(missing_ok=True)


def _sweep(database: Path) -> None:
    """Remove what `_make_file` leaves where its process is killed: empty, and named as it names."""
    path = Path(os.path.realpath(database))
    old = time.time() - _GRACE_SECONDS
    with suppress(OSError):
        for name in os.listdir(path.parent):
            if not name.startswith(f"{path.name}.") or not _TEMPORARY.fullmatch(name[-17:]):
                continue
            left = path.with_name(name)
            found = left.lstat()
            if stat.S_ISREG(found.st_mode) and not found.st_size and found.st_mtime < old:
                left.unlink()


def _remove(made: list[Path]) -> None:
    """Leave no trace of a failed attempt; what somebody else has filled by now stays."""
    for path in reversed(made):
        with suppress(OSError):
            if path.is_dir():
                path.rmdir()
            elif path.stat().st_size == 0:
                path.unlink()


def _stamp_artifacts(settings: Settings, stamp: Stamp) -> None:
    """Say in the artifact folder whose it is, atomically; a stamp that is there stays.

    But a ``service.name`` that became known is added.

    Raises:
        HistoryRefused: the folder is another history's.
        OSError: it cannot be written to.
    """
    target = settings.artifacts / ARTIFACT_STAMP
    check_artifacts(settings.artifacts, stamp, settings.database, settings.owner)
    there = read_artifact_stamp(settings.artifacts)
    if there is not None and (there.service_name or not stamp.service_name):
        return
    text = json.dumps(
        {
            "owner": stamp.owner,
            "history_id": stamp.history_id,
            "service_name": stamp.service_name,
            "database": os.path.relpath(settings.database, settings.artifacts),
        },
        indent=1,
    )
    write_file(target, text.encode() + b"\n")


def _identity(path: str | Path) -> _Identity | None:
    try:
        found = os.stat(path)
    except OSError:  # not there, or not to be reached any more
        return None
    return (found.st_dev, found.st_ino)
