# SPDX-License-Identifier: Apache-2.0
"""``doctor --fix``: what is safe to do about a finding. No row and no evidence is ever removed.

Files are removed only within the writer's own transaction that has seen no row for them, after
the grace time, as the agents do it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.doctor.content import (
    check_running,
    processes_gone,
    search_is_sound,
    search_tables,
)
from otel_taskhistory.store.doctor.findings import Finding
from otel_taskhistory.store.doctor.pictures import GRACE_SECONDS, leftovers
from otel_taskhistory.store.doctor.place import loose_paths
from otel_taskhistory.store.reading import Reading
from otel_taskhistory.store.writer import Writer

_AT_ONCE: Final = 200  # files per transaction, so that no agent waits for long


def repair(settings: Settings, findings: list[Finding]) -> list[Finding]:
    """Do what can be done about each finding; those that were fixed say how.

    A database that is damaged or not ours is not opened for writing, only its files' modes are set.
    """
    writable = not any(
        finding.check in ("database", "history") and finding.severity == "error"
        for finding in findings
    )
    return [
        _repaired(settings, finding)
        if finding.fixable and (writable or finding.check == "access")
        else finding
        for finding in findings
    ]


def _repaired(settings: Settings, finding: Finding) -> Finding:
    try:
        return finding.as_fixed(_REPAIRS[finding.check](settings))
    except (OSError, sqlite3.Error, TaskHistoryError) as error:
        return replace(finding, todo=f"It could not be fixed: {error}")


def _tighten(settings: Settings) -> str:
    number = 0
    for path, _, mode in loose_paths(settings):
        path.chmod(mode)
        number += 1
    return f"took the permissions of {number} files and folders away from others"


def _remove_unknown(settings: Settings) -> str:
    folder = ArtifactFolder(settings.artifacts)
    now = time.time()
    removed = 0
    with closing(Database(settings)) as database:
        candidates = [path for path, found in folder.walk() if found.st_mtime < now - GRACE_SECONDS]
        for first in range(0, len(candidates), _AT_ONCE):
            # The lock is held while a file goes: nobody can add a row that names it meanwhile.
            with database.transaction() as connection:
                for path in candidates[first : first + _AT_ONCE]:
                    known = connection.execute(
                        "SELECT 1 FROM _artifacts WHERE sha256 = ? UNION ALL"
                        " SELECT 1 FROM screenshots WHERE sha256 = ? LIMIT 1",
                        (path[3:67], path[3:67]),
                    ).fetchone()
                    if known is None and _is_old(folder, path, now):
                        removed += folder.remove(path)
    return f"removed {removed} files"


def _is_old(folder: ArtifactFolder, path: str, now: float) -> bool:
    """Looked at again under the lock: whoever stores the same picture anew touches its file."""
    try:
        return folder.path(path).lstat().st_mtime < now - GRACE_SECONDS
    except (OSError, ValueError):
        return False


def _remove_leftovers(settings: Settings) -> str:
    removed = 0
    for path in leftovers(settings.artifacts):
        with suppress(FileNotFoundError):
            path.unlink()
            removed += 1
    return f"removed {removed} files"


def _start(settings: Settings) -> str:
    """What every start of an agent does."""
    Writer(settings).close()
    with closing(Reading(settings.database, busy_timeout=settings.busy_timeout)) as history:
        left = history.read(lambda connection: list(check_running(connection, processes_gone)))
    if left:
        raise TaskHistoryError("a start of the history does not mark them (yet)")
    return "marked them as interrupted, as the start of an agent does"


def _fold_in(settings: Settings) -> str:
    with closing(Database(settings)) as database:
        busy, pages, folded = database.connection.execute(
            "PRAGMA wal_checkpoint(TRUNCATE)"
        ).fetchone()
    if busy:
        raise TaskHistoryError(
            f"a reader or writer is in the way ({folded} of {pages} pages are folded in)"
        )
    return "folded it into the database and gave the room back"


def _remake_search(settings: Settings) -> str:
    made = []
    with closing(Database(settings)) as database:
        for table in search_tables(database.connection):
            if search_is_sound(database.connection, table):
                continue
            quoted = table.replace('"', '""')
            with database.transaction() as connection:
                connection.execute(f'INSERT INTO "{quoted}" ("{quoted}") VALUES (\'rebuild\')')
            made.append(table)
    return f"made anew: {', '.join(made)}" if made else "checked: it is sound"


_REPAIRS: Final[dict[str, Callable[[Settings], str]]] = {
    "access": _tighten,
    "files without rows": _remove_unknown,
    "leftovers": _remove_leftovers,
    "running": _start,
    "write-ahead log": _fold_in,
    "search index": _remake_search,
}
