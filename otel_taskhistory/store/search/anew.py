# SPDX-License-Identifier: Apache-2.0
"""Makes the search index anew, a bounded bit at a time: when its rules of words have changed.

``_meta`` says under ``words`` by which version of the rules the index was made, or how far that is
while it is being made anew. First the documents go, then all words at once (FTS5 forgets them by
dropping pages, without looking at them), then every row that says something waits to be indexed
again. In between a search finds what is indexed already, and says that it does not see all.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from otel_taskhistory.store.search.documents import FIELDS, What
from otel_taskhistory.store.search.words import VERSION

ROWS: Final = 2_000
"""Rows that one step removes, or lets wait; some 10 ms."""

_UNDER_WAY: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,2})\.([0-9]{1,19})")
"""VERSION:KIND.ROW: of which kind the rows up to which number wait; kind 0 while documents go."""

_ORDER: Final = tuple(FIELDS)


def is_current(connection: sqlite3.Connection) -> bool:
    """Whether the index was made, as a whole, by the rules of this version; one look-up."""
    return _state(connection) == str(VERSION)


def begin(connection: sqlite3.Connection) -> None:
    """Let `step` begin, or begin again."""
    _note(connection, 0, 0)


def step(connection: sqlite3.Connection, characters: int) -> None:
    """Do a bit of it; nothing when the index is current.

    Args:
        connection: with a write transaction open.
        characters: of kept texts that are removed at a time, about.
    """
    state = _state(connection)
    if state == str(VERSION):
        return
    found = _UNDER_WAY.fullmatch(state)
    if found is None or int(found[1]) != VERSION:  # made by another version, or half so
        begin(connection)
        kind, row = 0, 0
    else:
        kind, row = int(found[2]), int(found[3])
    if kind not in _ORDER:
        _forget(connection, characters)
    else:
        _let_wait(connection, What(kind), row)


def rows_to_come(connection: sqlite3.Connection) -> int:
    """An upper bound of the rows that `step` still has to remove or to let wait."""
    if is_current(connection):
        return 0
    numbers = ", ".join(
        f"(SELECT coalesce(max(id), 0) FROM {table})"
        for table in ("_documents", *(table for table, _ in FIELDS.values()))
    )
    return sum(connection.execute(f"SELECT {numbers}").fetchone())


def _forget(connection: sqlite3.Connection, characters: int) -> None:
    last, left = 0, characters
    for document, length in connection.execute(
        "SELECT id, coalesce(length(text), 0) FROM _documents ORDER BY id LIMIT ?", (ROWS,)
    ):
        last, left = document, left - length
        if left < 0:
            break
    if last:
        connection.execute("DELETE FROM _documents WHERE id <= ?", (last,))
        return
    connection.execute("INSERT INTO _words (_words) VALUES ('delete-all')")
    _note(connection, _ORDER[0], 0)


def _let_wait(connection: sqlite3.Connection, what: What, after: int) -> None:
    table = FIELDS[what][0]
    (last,) = connection.execute(
        f"SELECT max(id) FROM (SELECT id FROM {table} WHERE id > ? ORDER BY id LIMIT ?)",
        (after, ROWS),
    ).fetchone()
    if last is not None:
        connection.execute(
            "INSERT OR IGNORE INTO _unindexed (what, row)"
            f" SELECT {int(what)}, id FROM {table} WHERE id > ? AND id <= ?",
            (after, last),
        )
        _note(connection, what, last)
        return
    place = _ORDER.index(what) + 1
    if place < len(_ORDER):
        _note(connection, _ORDER[place], 0)
    else:
        _set(connection, str(VERSION))


def _state(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM _meta WHERE key = 'words'").fetchone()
    return "" if row is None else str(row[0])


def _note(connection: sqlite3.Connection, kind: int, row: int) -> None:
    _set(connection, f"{VERSION}:{int(kind)}.{row}")


def _set(connection: sqlite3.Connection, value: str) -> None:
    connection.execute(
        "INSERT INTO _meta (key, value) VALUES ('words', ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (value,),
    )
