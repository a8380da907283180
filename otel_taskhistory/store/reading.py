# SPDX-License-Identifier: Apache-2.0
"""Read access to a history that changes nothing, blocks nobody and leaves no file behind.

What lies on disk decides how the database is opened:

============================  ==================================================================
``-wal`` and ``-shm``         live: read-only. A writer is there, or was killed.
no ``-wal``, or an empty one  settled: closed cleanly, nobody writes. Opened as immutable, so that
                              no ``-wal`` and ``-shm`` are made; each result counts only when the
                              files are the same after the query as before it.
anything else                 a private temporary copy (copied by hand without its ``-shm``, left
                              by a killed writer in a place where we may not write, ...).
============================  ==================================================================

Every read is a short transaction of its own: a reader that holds a snapshot keeps the write-ahead
log growing. A database that was exchanged is opened anew, and so is one after a fork.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn, TypeVar

from otel_taskhistory.errors import (
    HistoryNotFound,
    HistoryRefused,
    SchemaTooNew,
    TaskHistoryError,
)
from otel_taskhistory.store.gone import ReadConnection
from otel_taskhistory.store.header import read_header
from otel_taskhistory.store.inherited import abandon
from otel_taskhistory.store.schema import APPLICATION_ID, OLDEST_SQLITE, SCHEMA_VERSION

T = TypeVar("T")
How = Literal["live", "settled", "copy"]

ELSEWHERE: Final = (
    "point --directory (in Python directory=, or OTEL_TASKHISTORY_DIRECTORY) to another history"
)

_HEADER: Final = 100
_ATTEMPTS: Final = 20
"""A read is tried again when a writer came or went meanwhile; more in a row takes some doing."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a history says of itself."""

    owner: str
    history_id: str
    service_name: str | None
    """None until a writer with a ``service.name`` of its own came."""
    created_at: str | None
    schema_version: int


class Reading:
    """An open history, to be read from any thread.

    Args:
        database: the SQLite file; absolute.
        owner: refuse a history of another owner; None takes any.
        busy_timeout: seconds to wait where SQLite makes readers wait (recovery after a crash).

    Raises:
        HistoryNotFound: there is none.
        HistoryRefused: what is there is not ours, or another owner's.
        SchemaTooNew: a newer version wrote it, for newer readers only.
        TaskHistoryError: it is damaged or cannot be read.
    """

    def __init__(
        self, database: Path, *, owner: str | None = None, busy_timeout: float = 5.0
    ) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise TaskHistoryError(
                f"SQLite {sqlite3.sqlite_version} is too old, otel-taskhistory needs"
                f" {'.'.join(map(str, OLDEST_SQLITE))}: use a Python that is built with a newer one"
            )
        self.database = database
        self._owner = owner
        self._busy_timeout = busy_timeout
        self._lock = threading.RLock()
        self._opened: _Opened | None = None
        self._not_live: tuple[int, ...] | None = None
        _all.add(self)
        self.identity = self.read(lambda connection: _identity(connection, database))

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run `query` within one short read transaction and return what it returns.

        It must fetch all it needs before it returns, and may be called more than once.

        Raises:
            TaskHistoryError: the history is gone, damaged, or cannot be read now.
        """
        with self._lock:
            for _ in range(_ATTEMPTS):
                before = _look(self.database)
                try:
                    opened = self._open(before)
                    opened.connection.look(self.database)
                    result = opened.run(query)
                except sqlite3.DatabaseError as error:
                    if not self._worth_another_try(before, error):
                        _translate(self.database, error)
                    self.close()
                    continue
                except OSError as error:
                    raise _unreadable(self.database, error) from error
                if opened.how != "settled" or _look(self.database) == before:
                    return result
                self.close()
            raise TaskHistoryError(
                f"the history at {self.database} changed during each of {_ATTEMPTS} attempts to"
                " read it: try again"
            )

    def close(self) -> None:
        """Close the database; reading again opens it again."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _open(self, files: _Files) -> _Opened:
        opened = self._opened
        if opened is not None:
            if opened.process == os.getpid() and opened.serves(files):
                return opened
            self.close()
        _check_header(self.database)
        how = files.how
        if how == "live" and self._not_live == files.main[:2]:
            how = "copy" if files.pending else "settled"
        opened = _Opened(self.database, files, how, self._busy_timeout)
        try:
            identity = opened.run(lambda connection: _identity(connection, self.database))
            if self._owner is not None and identity.owner != self._owner:
                raise HistoryRefused(
                    f"{self.database} is the history of {identity.owner!r}, not of"
                    f" {self._owner!r}: leave out --owner (in Python owner=, or"
                    f" OTEL_TASKHISTORY_OWNER) to read it, or {ELSEWHERE}"
                )
        except BaseException:
            opened.close()
            raise
        self._opened = opened
        return opened

    def _worth_another_try(self, before: _Files, error: sqlite3.DatabaseError) -> bool:
        how = before.how if self._opened is None else self._opened.how
        code = error.sqlite_errorcode & 0xFF if hasattr(error, "sqlite_errorcode") else 0
        if how == "live" and code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            # No right to write, and no living writer that has made the -shm usable.
            again = self._not_live != before.main[:2]
            self._not_live = before.main[:2]
            return again
        return _look(self.database) != before


_all: weakref.WeakSet[Reading] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Another thread of the parent may have been reading.
    for reading in list(_all):
        reading._lock = threading.RLock()
        reading.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class _Opened:
    """One connection, and the files it was opened on."""

    def __init__(self, database: Path, files: _Files, how: How, busy_timeout: float) -> None:
        self.how = how
        self.process = os.getpid()
        self._files = files
        self._remove_copy: weakref.finalize[[Path, int], _Opened] | None = None
        uri = database.as_uri()  # percent-encodes what means something in a URI
        if how == "copy":
            folder = _copy(database, files)
            self._remove_copy = weakref.finalize(self, _remove, folder, self.process)
            uri = (folder / database.name).as_uri()
        else:
            uri += "?mode=ro" if how == "live" else "?mode=ro&immutable=1"
        # The class itself: instrumentations patch sqlite3.connect.
        self.connection = ReadConnection(
            uri, uri=True, timeout=busy_timeout, isolation_level=None, check_same_thread=False
        )
        # Who drops a history without closing it hears no complaint; in a forked child, see `close`.
        self._let_go = weakref.finalize(self, _let_go, self.connection, self.process)
        self._let_go.atexit = False
        # A text that is no UTF-8 must not hide its row, let alone the others.
        self.connection.text_factory = _text
        self.connection.execute("PRAGMA query_only = 1")
        self.connection.execute("PRAGMA temp_store = MEMORY")

    def serves(self, files: _Files) -> bool:
        """Whether this connection still shows what lies there."""
        if self.how == "live":
            return files.main[:2] == self._files.main[:2] and files.how == "live"
        return files == self._files

    def run(self, query: Callable[[sqlite3.Connection], T]) -> T:
        connection = self.connection
        try:
            connection.execute("BEGIN")
            return query(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def close(self) -> None:
        self._let_go()
        if self._remove_copy is not None:
            self._remove_copy()


def _let_go(connection: sqlite3.Connection, process: int) -> None:
    if process == os.getpid():
        connection.close()
    else:
        abandon(connection)


# --- what lies on disk --------------------------------------------------------------------------

_State = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Files:
    """Device, inode, size and time of each file of a database; None for one that is not there."""

    main: _State
    wal: _State | None
    journal: _State | None
    shm: bool

    @property
    def pending(self) -> bool:
        """Whether something is written that is not in the main file, or half in it."""
        return any(state is not None and state[2] > 0 for state in (self.wal, self.journal))

    @property
    def how(self) -> How:
        if self.journal is not None and self.journal[2] > 0:
            return "live"
        if self.wal is not None and self.shm:
            return "live"
        return "copy" if self.pending else "settled"


def _look(database: Path) -> _Files:
    real = os.path.realpath(database)  # SQLite puts the others beside what a link points to
    try:
        main = _state(real)
        if main is None:
            raise HistoryNotFound(
                f"there is no history at {database}: nothing was recorded there yet, or it is"
                f" elsewhere; {ELSEWHERE}"
            )
        return _Files(
            main, _state(f"{real}-wal"), _state(f"{real}-journal"), _exists(f"{real}-shm")
        )
    except OSError as error:
        raise _unreadable(database, error) from error


def _state(path: str) -> _State | None:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _exists(path: str) -> bool:
    return _state(path) is not None


def _check_header(database: Path) -> None:
    """Refuse what is no history by its first bytes, before SQLite touches it."""
    size = database.stat().st_size
    if not size:
        raise HistoryNotFound(
            f"{database} is empty: nothing was recorded there yet; start the agent, or {ELSEWHERE}"
        )
    header = read_header(database)
    if header is None:
        raise HistoryRefused(f"{database} is not a SQLite database; {ELSEWHERE}")
    if size == _HEADER:
        raise _damaged(database, "cut off after its header")
    if header.application_id != APPLICATION_ID:
        raise HistoryRefused(f"{database} is a database of another application; {ELSEWHERE}")


def _identity(connection: sqlite3.Connection, database: Path) -> Identity:
    """Who wrote the history, and whether we can read it."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = '_meta'").fetchone() is None:
        raise HistoryNotFound(f"{database} was never finished: start the agent, or {ELSEWHERE}")
    meta = dict(connection.execute("SELECT key, value FROM _meta"))
    readable_from = meta.get("readable_from", "")
    if version > SCHEMA_VERSION and not (
        readable_from.isdecimal() and int(readable_from) <= SCHEMA_VERSION
    ):
        raise SchemaTooNew(
            f"{database} has schema version {version}, to be read from version"
            f" {readable_from or version} on; this otel-taskhistory knows version"
            f" {SCHEMA_VERSION}: upgrade it (pip install --upgrade otel-taskhistory)"
        )
    if "owner" not in meta or "history_id" not in meta:
        raise _damaged(database, "its stamp is missing")
    return Identity(
        owner=meta["owner"],
        history_id=meta["history_id"],
        service_name=meta.get("service_name"),
        created_at=meta.get("created_at"),
        schema_version=version,
    )


# --- private copies -----------------------------------------------------------------------------


def _copy(database: Path, files: _Files) -> Path:
    """A copy of the database with what is pending, in a folder that only its user can enter."""
    real = os.path.realpath(database)
    folder = Path(tempfile.mkdtemp(prefix="otel-taskhistory-"))
    try:
        target = folder / database.name
        shutil.copyfile(real, target)
        for suffix, there in (("-wal", files.wal), ("-journal", files.journal)):
            if there is not None:
                shutil.copyfile(f"{real}{suffix}", f"{target}{suffix}")
        if _look(database) != files:
            raise sqlite3.OperationalError("changed while it was copied")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _remove(folder: Path, process: int) -> None:
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


# --- errors -------------------------------------------------------------------------------------


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _translate(database: Path, error: sqlite3.DatabaseError) -> NoReturn:
    if not hasattr(error, "sqlite_errorcode"):  # of the module, not of the database: a bug of ours
        raise error
    code = error.sqlite_errorcode & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        raise _damaged(database, str(error)) from error
    if code == sqlite3.SQLITE_ERROR:  # wrong SQL, or a table that is not there: never the disk
        raise _damaged(database, str(error)) from error
    raise _unreadable(database, error) from error


def _damaged(database: Path, why: str) -> TaskHistoryError:
    return TaskHistoryError(
        f"the history at {database} is damaged ({why}): keep a copy of its folder and move it"
        f" away to begin a new one, or {ELSEWHERE}"
    )


def _unreadable(database: Path, error: Exception) -> TaskHistoryError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return TaskHistoryError(f"cannot read the history at {database} ({why}); {ELSEWHERE}")
