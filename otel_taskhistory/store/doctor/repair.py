# SPDX-License-Identifier: Apache-2.0
"""``doctor --fix``: what is safe to do about a finding. No row and no evidence is ever removed.

Files are removed only within the writer's own transaction that has seen no row for them, after
the grace time, as the agents do it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Final

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.doctor.content import (
    check_running,
    processes_gone,
    search_is_sound,
    search_tables,
)
from otel_taskhistory.store.doctor.findings import Finding
from otel_taskhistory.store.doctor.pictures import leftovers
from otel_taskhistory.store.doctor.place import loose_paths
from otel_taskhistory.store.pruning import NO_LIMITS, keeping
from otel_taskhistory.store.reading import Reading
from otel_taskhistory.store.search.anew import is_current
from otel_taskhistory.store.search.index import Indexer, not_found
from otel_taskhistory.store.writer import Writer


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
    with keeping(settings) as (_, retainer):
        return f"removed {retainer.sweep_files()} files"


def _finish_removal(settings: Settings) -> str:
    """Nothing is removed that was not removed before, whatever the limits say."""
    with keeping(replace(settings, retention=NO_LIMITS)) as (_, retainer):
        if retainer.run().blocked:
            raise TaskHistoryError("a reader is in the way: end it and try again")
    return "finished what was begun, and gave the room back"


def _retry_files(settings: Settings) -> str:
    with keeping(replace(settings, retention=NO_LIMITS)) as (_, retainer):
        removed, left = retainer.retry_files()
    if left:
        first = left[0]
        raise TaskHistoryError(
            f"{removed} files could be deleted, {len(left)} still cannot be: {first.path}"
            f" ({first.error})"
        )
    return f"deleted {removed} files"


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
        if not database.log.fold(settings.busy_timeout):
            raise TaskHistoryError("a reader or writer is in the way")
    return "folded it into the database and gave the room back"


def _remake_search(settings: Settings) -> str:
    made = []
    with closing(Database(settings)) as database:
        unsound = [
            table
            for table in search_tables(database.connection)
            if not search_is_sound(database.connection, table)
        ]
        for table in unsound:
            if table != _WORDS:
                quoted = table.replace('"', '""')
                with database.transaction() as connection:
                    connection.execute(f'INSERT INTO "{quoted}" ("{quoted}") VALUES (\'rebuild\')')
                made.append(table)
        current = is_current(database.connection)
        if _WORDS in unsound or not current or not_found(database.connection):
            _remake_words(database)
            made.append("the words of what was said")
    return f"made anew: {', '.join(made)}" if made else "checked: it is sound"


def _remake_words(database: Database) -> None:
    """In short transactions, between which agents write."""
    indexer = Indexer(database.connection)
    with database.transaction():
        indexer.rebuild()
    more = True
    while more:
        with database.transaction():
            more = indexer.step()


_WORDS: Final = "_words"
"""Our own index, which holds no texts from which SQLite could make it anew."""

_REPAIRS: Final[dict[str, Callable[[Settings], str]]] = {
    "access": _tighten,
    "files without rows": _remove_unknown,
    "leftovers": _remove_leftovers,
    "limits": _finish_removal,
    "removal": _finish_removal,
    "running": _start,
    "write-ahead log": _fold_in,
    "search index": _remake_search,
    "undeletable files": _retry_files,
}
