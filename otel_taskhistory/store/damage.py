# SPDX-License-Identifier: Apache-2.0
"""Whether a database is damaged, and whether it is a history of ours at all."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from otel_taskhistory.errors import HistoryRefused
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.header import Header, first_bytes, immutable, read_header, whole
from otel_taskhistory.store.schema import APPLICATION_ID, SCHEMA_VERSION
from otel_taskhistory.store.stamp import ARTIFACT_STAMP, Stamp, check_owner, read_artifact_stamp

_OF_OUR_SCHEMA: Final = b"CREATE TABLE _meta ("
_SCHEMA_LIES_WITHIN: Final = 2**20
"""Bytes from the beginning of the file; it is made first, and pages only ever move towards it."""


def is_damage(error: BaseException) -> bool:
    """Whether an error of SQLite says that the database may be damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_ours(settings: Settings) -> bool:
    """Whether a database, as damaged as it may be, is proved to be a history of ours.

    By the application id in its header. Where that is destroyed two things must come together: the
    stamp of the artifact folder names this file, and what is left of it is not another program's,
    but our schema, or blocks of zeros as file systems leave them after a power loss.

    Raises:
        OSError: it cannot be read.
    """
    header = read_header(settings.database)
    if header is not None and header.application_id != 0:
        return header.application_id == APPLICATION_ID
    if header is not None and _first_error(settings.database) is None:
        return False  # readable, and of an application that gives its databases no id
    return named_by_artifacts(settings) and _has_remains(settings.database)


def _has_remains(database: Path) -> bool:
    start = first_bytes(database, _SCHEMA_LIES_WITHIN)
    return _OF_OUR_SCHEMA in start or not any(start)


def named_by_artifacts(settings: Settings) -> bool:
    """Whether the artifact folder's stamp says that its database is, or was, this file."""
    folder = settings.artifacts
    try:
        said = json.loads((folder / ARTIFACT_STAMP).read_bytes())
        named = Path(os.path.normpath(folder / said["database"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return named == Path(os.path.normpath(settings.database))


def looks_damaged(settings: Settings) -> bool:
    """Whether a look at its stamp shows that a database may be a damaged one of ours.

    Nothing is changed. A database whose writer was killed while it folded its log in looks so too.
    """
    database = settings.database
    try:
        if database.stat().st_size == 0 or _is_newer(read_header(database)):
            return False
        return _first_error(database) is not None and is_ours(settings)
    except OSError:  # not there, or not ours to read: no sign of damage
        return False


def _is_newer(header: Header | None) -> bool:
    return (
        header is not None
        and header.application_id == APPLICATION_ID
        and header.user_version > SCHEMA_VERSION
    )


def _first_error(database: Path) -> str | None:
    """What SQLite says against the schema and the stamp."""
    try:
        with closing(immutable(database)) as connection:
            read_stamp(connection)
    except sqlite3.DatabaseError as error:
        return str(error) if is_damage(error) else None
    return None


def read_stamp(connection: sqlite3.Connection) -> dict[str, str]:
    """What the database says of itself, as far as it says anything."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = '_meta'").fetchone()
    return dict(connection.execute("SELECT key, value FROM _meta")) if found else {}


def find_damage(settings: Settings) -> str | None:
    """Why the database is damaged, None when it is whole or not ours; looks at all of it.

    Raises:
        HistoryRefused: it is damaged, but another owner's.
    """
    database = settings.database
    try:
        if database.stat().st_size == 0 or not is_ours(settings):
            return None
    except FileNotFoundError:
        return None
    if _is_newer(read_header(database)):
        return None
    meta: dict[str, str] = {}
    try:
        with closing(whole(database)) as connection:
            # As long as it can be read, damage or not.
            meta = read_stamp(connection)
            why = first_problem(connection)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            return None
        why = str(error)
    if why is not None:
        _check_whose(settings, meta)
    return why


def first_problem(connection: sqlite3.Connection) -> str | None:
    """What ``quick_check`` says against a database itself, in one line; None when it is whole.

    Raises:
        sqlite3.DatabaseError: it cannot even be checked.
    """
    for (text,) in connection.execute("PRAGMA quick_check(20)"):
        lines = [line for line in str(text).splitlines() if not line.startswith("*** in ")]
        # Newer versions of SQLite look at search indexes too, which are made anew from the rows.
        problems = [line for line in lines if line != "ok" and "inverted index" not in line]
        if problems:
            return problems[0]
    return None


def _check_whose(settings: Settings, meta: dict[str, str]) -> None:
    if "owner" in meta:
        stamp = Stamp(meta["owner"], meta.get("history_id", ""), meta.get("service_name"))
    else:
        try:
            known = read_artifact_stamp(settings.artifacts)
        except (HistoryRefused, OSError):
            known = None
        if known is None:
            return
        stamp = known
    check_owner(
        stamp, settings.database, owner=settings.owner, owner_explicit=True, service_name=None
    )
