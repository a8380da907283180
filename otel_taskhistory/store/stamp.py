# SPDX-License-Identifier: Apache-2.0
"""Whose history this is: the stamp that the database and the artifact folder both carry.

Everything here only looks; a place that must not be used is refused before a byte is written.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_taskhistory.errors import HistoryRefused, SchemaTooNew
from otel_taskhistory.store.header import immutable, read_header, whole
from otel_taskhistory.store.schema import APPLICATION_ID, SCHEMA_VERSION

ARTIFACT_STAMP: Final = ".otel-taskhistory.json"
"""Name of the file in the artifact folder that says whose it is."""

_LOOKS: Final = 3
_PAUSE: Final = 0.02  # seconds between them
_UNKNOWN_SERVICE: Final = "unknown_service"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identity of a history; `service_name` is None until a writer with an explicit one came."""

    owner: str
    history_id: str
    service_name: str | None


def explicit_service(name: object) -> str | None:
    """`name` when somebody chose it; None for the SDK's ``unknown_service…`` default."""
    if isinstance(name, str) and name and not name.startswith(_UNKNOWN_SERVICE):
        return name
    return None


def looks_empty(database: Path) -> bool:
    """Whether a history may begin here: no file, or one of zero bytes."""
    try:
        found = database.stat()
    except FileNotFoundError:
        return True
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def read_database_stamp(database: Path) -> Stamp | None:
    """The stamp of an existing database; None when it is ours but is not finished.

    Raises:
        HistoryRefused: not SQLite, or another application's.
        SchemaTooNew: ours, but of a newer version.
        sqlite3.DatabaseError: ours by its header, but damaged.
        OSError: it cannot be read.
    """
    if not stat.S_ISREG(database.stat().st_mode):
        raise HistoryRefused(
            f"{database} is no file. Point OTEL_TASKHISTORY_DIRECTORY (or directory=) somewhere"
            " else, or move it away"
        )
    for _ in range(_LOOKS):
        try:
            return _read_stamp(database, ours=_is_ours(database))
        except (sqlite3.DatabaseError, HistoryRefused) as error:
            # Perhaps somebody is making the history: what was read first is from before its one
            # transaction, what was read then from after it, or half of it.
            failure = error
            time.sleep(_PAUSE)
    if isinstance(failure, HistoryRefused):
        raise failure
    ours = _is_ours(database)
    if ours and _is_being_made(database):
        return None
    if ours and Path(f"{os.path.realpath(database)}-wal").exists():
        # A writer was killed while it folded its log in: only with the log the database is whole.
        return _read_stamp(database, ours=ours, connect=whole)
    raise failure


def _is_ours(database: Path) -> bool:
    """Whether the header says that it is a history; False when it names no application.

    Raises:
        HistoryRefused: not SQLite, another application's, or of a newer version.
    """
    header = read_header(database)
    if header is None:
        raise HistoryRefused(
            f"{database} is not a SQLite database; nothing was changed. Point"
            " OTEL_TASKHISTORY_DIRECTORY (or directory=) somewhere else, or move the file away"
        )
    if header.application_id not in (APPLICATION_ID, 0):
        raise _foreign(database)
    ours = header.application_id == APPLICATION_ID
    if ours and header.user_version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{database} has schema version {header.user_version}, this version of"
            f" otel-taskhistory writes version {SCHEMA_VERSION}: upgrade otel-taskhistory, or point"
            " OTEL_TASKHISTORY_DIRECTORY (or directory=) somewhere else"
        )
    return ours


def _read_stamp(
    database: Path, *, ours: bool, connect: Callable[[Path], sqlite3.Connection] = immutable
) -> Stamp | None:
    # What this may miss is in the WAL; the stamp is in the main file since before there was one.
    with closing(connect(database)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
        if not ours and tables:
            raise _foreign(database)
        if not ours or "_meta" not in tables:
            return None
        meta = dict(connection.execute("SELECT key, value FROM _meta"))
    return Stamp(meta["owner"], meta["history_id"], meta.get("service_name"))


def _is_being_made(database: Path) -> bool:
    """Whether somebody is, or was when it died, in the transaction that makes the history.

    Only then is there a rollback journal. Who opens it waits for the transaction, or rolls it
    back, before it reads the stamp again.
    """
    return Path(f"{os.path.realpath(database)}-journal").exists()


def read_artifact_stamp(folder: Path) -> Stamp | None:
    """The stamp of an artifact folder, None when it has none.

    Raises:
        HistoryRefused: there is one, but it cannot be understood.
    """
    path = folder / ARTIFACT_STAMP
    try:
        stamp = json.loads(path.read_bytes())
        return Stamp(str(stamp["owner"]), str(stamp["history_id"]), stamp.get("service_name"))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryRefused(
            f"{path} does not say whose artifact folder this is ({type(error).__name__});"
            " point OTEL_TASKHISTORY_ARTIFACTS (or artifacts=) somewhere else"
        ) from error


def check_owner(
    stamp: Stamp, place: Path, *, owner: str, owner_explicit: bool, service_name: str | None
) -> None:
    """Refuse a history of another component.

    Raises:
        HistoryRefused: it has another owner, or, when nobody chose the owner, another service.
    """
    if stamp.owner != owner:
        raise HistoryRefused(
            f"{place} is the history of {stamp.owner!r}, this process writes as {owner!r}: set"
            " OTEL_TASKHISTORY_OWNER (or owner=) to match, or point OTEL_TASKHISTORY_DIRECTORY"
            " (or directory=) somewhere else"
        )
    if owner_explicit or service_name is None or stamp.service_name is None:
        return
    if stamp.service_name != service_name:
        raise HistoryRefused(
            f"{place} is the history of service {stamp.service_name!r}, this process is service"
            f" {service_name!r}: give each component its own OTEL_TASKHISTORY_OWNER (or owner=),"
            f" or set it to {owner!r} in both to share one history"
        )


def check_artifacts(folder: Path, history: Stamp | None, database: Path, owner: str) -> None:
    """Refuse an artifact folder that belongs to another history.

    A folder whose stamp names this very place of a database and this owner is adopted by a new
    history: its database is gone, its pictures are no one's.

    Args:
        history: the stamp of the database, None when a new one is to be made.

    Raises:
        HistoryRefused: the folder is another history's.
    """
    found = read_artifact_stamp(folder)
    if found is None or (history is not None and found.history_id == history.history_id):
        return
    if history is None and found.owner == owner and _database_of(folder) == database:
        return
    mine = f"history {history.history_id}" if history else "a new history"
    raise HistoryRefused(
        f"{folder} holds the artifacts of history {found.history_id} (owner"
        f" {found.owner!r}), not of {mine}: point OTEL_TASKHISTORY_ARTIFACTS (or"
        " artifacts=) somewhere else, or move the folder away"
    )


def _database_of(folder: Path) -> Path | None:
    """Where the database of a stamped artifact folder is, or was."""
    stamp = json.loads((folder / ARTIFACT_STAMP).read_bytes())
    relative = stamp.get("database")
    return Path(os.path.normpath(folder / relative)) if isinstance(relative, str) else None


def _foreign(database: Path) -> HistoryRefused:
    return HistoryRefused(
        f"{database} is a database of another application; nothing was changed. Point"
        " OTEL_TASKHISTORY_DIRECTORY (or directory=) somewhere else"
    )
