# SPDX-License-Identifier: Apache-2.0
"""A row that is made, or changed where it differs.

SQLite's own upsert writes every column it names, and with them the index entries and triggers of
those that stay the same. A step is written at each of its checkpoints, and little of it is new.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Put:
    """What became of a row: its number, and what it said before, if there was one."""

    row: int
    before: tuple[Any, ...] | None

    @property
    def new(self) -> bool:
        """Whether it was made."""
        return self.before is None


class Upsert:
    """Of one table.

    Args:
        table: has an ``id``.
        columns: those that are written, the key first.
        key: how many of them are the key, which is unique.
        unless: the value of a column by which a row is left as it is.
        also: a column that is only read: the last one of `Put.before`.
    """

    def __init__(
        self,
        table: str,
        columns: Sequence[str],
        key: int,
        *,
        unless: tuple[str, str] | None = None,
        also: str | None = None,
    ) -> None:
        self._table = table
        self._columns = tuple(columns)
        self._key = key
        self._unless = unless
        read = (*self._columns, also) if also else self._columns
        where = " AND ".join(f"{name} = ?" for name in self._columns[:key])
        self._find = f"SELECT id, {', '.join(read)} FROM {table} WHERE {where}"
        marks = ", ".join("?" * len(self._columns))
        self._insert = f"INSERT INTO {table} ({', '.join(self._columns)}) VALUES ({marks})"

    def put(self, connection: sqlite3.Connection, values: Sequence[Any]) -> Put:
        """Write one row; `values` in the order of the columns."""
        found = connection.execute(self._find, values[: self._key]).fetchone()
        if found is None:
            row = connection.execute(self._insert, values).lastrowid
            assert row is not None
            return Put(row, None)
        row, *before = found
        if self._unless is None or before[self._columns.index(self._unless[0])] != self._unless[1]:
            self._change(connection, row, before, values)
        return Put(row, tuple(before))

    def _change(
        self,
        connection: sqlite3.Connection,
        row: int,
        before: Sequence[Any],
        values: Sequence[Any],
    ) -> None:
        changed = [
            (name, value)
            for name, was, value in zip(self._columns, before, values, strict=False)
            if was != value
        ]
        if changed:
            said = ", ".join(f"{name} = ?" for name, _ in changed)
            connection.execute(
                f"UPDATE {self._table} SET {said} WHERE id = ?",
                (*(value for _, value in changed), row),
            )
