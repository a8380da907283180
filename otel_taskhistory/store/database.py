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

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlite_utils import Database as SqliteUtils

from otel_taskhistory.errors import HistoryRefused, SchemaTooNew, TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.migrations import (
    APPLICATION_ID,
    READABLE_FROM,
    SCHEMA_VERSION,
    migrations,
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

OLDEST_SQLITE: Final = (3, 37, 0)
"""STRICT tables came with it."""

_PAUSE: Final = 0.01  # seconds between two tries at switching on WAL


class Database:
    """An open history. Use from one thread at a time."""

    def __init__(self, settings: Settings, *, service_name: str | None = None) -> None:
        """Open a history for writing, make it if there is none.

        Args:
            service_name: the ``service.name`` of this process when somebody chose one.

        Raises:
            TaskHistoryError: it must not be used, or cannot be; nothing was changed then.
        """
        check_sqlite()
        self.path = settings.database
        self._busy_timeout = settings.busy_timeout
        self._synchronous = ""
        stamp = _look(settings, service_name)
        try:
            _make_folder(settings.directory)
            _make_folder(settings.database.parent)
            _make_folder(settings.artifacts)
            _make_file(settings.database)
            self.connection = _connect(settings.database, settings.busy_timeout)
        except (OSError, sqlite3.Error) as error:
            raise cannot_use(settings.database, error) from error
        try:
            self.stamp = self._prepare(settings, stamp, service_name)
            _stamp_artifacts(settings, self.stamp)
            self._enter_wal()
            self.identity = _identity(settings.database)
        except (OSError, sqlite3.Error) as error:
            self.connection.close()
            raise cannot_use(settings.database, error) from error
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self, settings: Settings, seen: Stamp | None, service: str | None) -> Stamp:
        """Bring the schema up to date and put the stamp in, in one transaction."""
        connection = self.connection
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only counts before any table
        with self.transaction():
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise SchemaTooNew(
                    f"{self.path} has schema version {version}, this version of otel-taskhistory"
                    f" writes version {SCHEMA_VERSION}: upgrade otel-taskhistory"
                )
            if version < SCHEMA_VERSION:
                # strict=False: only the tables of our own migrations need it, and name it.
                migrations.apply(SqliteUtils(connection, execute_plugins=False))
                # Not a parameter: PRAGMA takes none. Both are constants of ours.
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                _put_meta(connection, "schema_version", str(SCHEMA_VERSION))
                _put_meta(connection, "readable_from", str(READABLE_FROM))
            if seen is None:
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
            meta = dict(connection.execute("SELECT key, value FROM _meta"))
            stamp = Stamp(meta["owner"], meta["history_id"], meta.get("service_name"))
            # Another process may have made the history between our look and our lock.
            _check(settings, stamp, service)
            if stamp.service_name is None and service is not None:
                _put_meta(connection, "service_name", service)
                stamp = Stamp(stamp.owner, stamp.history_id, service)
        return stamp

    def claim_service(self, service_name: str) -> None:
        """Stamp the history with its first writer's service, once it is known."""
        with self.transaction():
            _put_meta(self.connection, "service_name", service_name)
        self.stamp = Stamp(self.stamp.owner, self.stamp.history_id, service_name)

    def _enter_wal(self) -> None:
        # The switch needs the database for itself for a moment and does not wait for it.
        deadline = time.monotonic() + max(self._busy_timeout, 1.0)
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
            return

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One write transaction; whatever leaves the block rolls it back.

        Args:
            durable: survive power loss (one fsync), not only the death of the process.
        """
        connection = self.connection
        if connection.in_transaction:  # an interrupt hit between BEGIN and our knowing of it
            connection.rollback()
        mode = "FULL" if durable else "NORMAL"
        if mode != self._synchronous:  # has no effect inside a transaction
            connection.execute(f"PRAGMA synchronous = {mode}")
            self._synchronous = mode
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise

    def moved(self) -> bool:
        """Whether the file under the path is no longer the one that was opened."""
        return _identity(self.path) != self.identity

    def close(self) -> None:
        """Close the connection; SQLite then folds the WAL into the database."""
        self.connection.close()


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


def _look(settings: Settings, service: str | None) -> Stamp | None:
    """Look at what is there, without changing a byte; refuse what is not ours."""
    try:
        if settings.directory.exists() and not settings.directory.is_dir():
            raise HistoryRefused(
                f"{settings.directory} is no directory: point OTEL_TASKHISTORY_DIRECTORY (or"
                " directory=) somewhere else"
            )
        stamp = None if looks_empty(settings.database) else read_database_stamp(settings.database)
        if stamp is None:
            check_artifacts(settings.artifacts, None, settings.database, settings.owner)
        else:
            _check(settings, stamp, service)
        return stamp
    except (OSError, sqlite3.Error, KeyError) as error:
        raise cannot_use(settings.database, error) from error


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


def _connect(database: Path, busy_timeout: float) -> sqlite3.Connection:
    connection = sqlite3.Connection(
        str(database), timeout=busy_timeout, isolation_level=None, check_same_thread=False
    )
    for pragma in (
        "foreign_keys = ON",
        "recursive_triggers = ON",
        "secure_delete = ON",
        "temp_store = MEMORY",
        "journal_size_limit = 4194304",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _make_folder(folder: Path) -> None:
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
        path.chmod(0o700)  # whatever the umask took away


def _make_file(database: Path) -> None:
    """Make the empty file with its final mode: SQLite gives the -wal and -shm the same one."""
    try:
        handle = os.open(database, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def _stamp_artifacts(settings: Settings, stamp: Stamp) -> None:
    """Say in the artifact folder whose it is, atomically; a stamp that is there stays."""
    target = settings.artifacts / ARTIFACT_STAMP
    if target.exists():
        check_artifacts(settings.artifacts, stamp, settings.database, settings.owner)
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
    temporary = settings.artifacts / f"{ARTIFACT_STAMP}.{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o600)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _identity(database: Path) -> tuple[int, int]:
    try:
        found = database.stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_dev, found.st_ino)
