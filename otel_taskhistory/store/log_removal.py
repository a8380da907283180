# SPDX-License-Identifier: Apache-2.0
"""Removing log records: with their span, with their trace, or because their span never came.

What a record used may be used by nobody any more: `Remover.drop_unneeded` finds out.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

WAITING_NS: Final = 24 * 3600 * 10**9
"""How long a log record waits for its span."""

WAITING_BYTES: Final = 64 * 2**20
"""How much may wait, about; the oldest goes first."""

_FORGET_TRACES: Final = """
DELETE FROM _traces WHERE id IN (SELECT value FROM json_each(?))
    AND NOT EXISTS (SELECT 1 FROM _logs WHERE trace = _traces.id)
    AND NOT EXISTS (SELECT 1 FROM _spans WHERE trace = _traces.id)
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE trace = _traces.id)
    AND NOT EXISTS (SELECT 1 FROM _headless WHERE trace = _traces.id)
"""

_AMONG: Final = "IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Taken:
    """Log records that were removed, and what they used."""

    logs: int
    nodes: tuple[int, ...] = ()
    contents: tuple[int, ...] = ()


def take_overdue(connection: sqlite3.Connection, now_ns: int, limit: int) -> Taken:
    """Remove records that wait too long for their span, or are too many; at most `limit`."""
    old = _ids(
        connection,
        "SELECT id FROM _logs WHERE span IS NULL AND seen_ns < ? ORDER BY seen_ns LIMIT ?",
        now_ns - WAITING_NS,
        limit,
    )
    waiting = connection.execute("SELECT sum(size) FROM _logs WHERE span IS NULL").fetchone()[0]
    if not old and (waiting or 0) > WAITING_BYTES:
        old = _ids(
            connection,
            "SELECT id FROM _logs WHERE span IS NULL ORDER BY seen_ns LIMIT ?",
            limit,
        )
    return _take(connection, old)


def take_waiting(connection: sqlite3.Connection, trace: int, limit: int) -> Taken:
    """Remove records of a trace whose span never came; the trace goes. At most `limit`."""
    found = _ids(connection, "SELECT id FROM _logs WHERE trace = ? LIMIT ?", trace, limit)
    return _take(connection, found)


def drop_of_spans(connection: sqlite3.Connection, spans: str) -> None:
    """Remove the records of spans that are about to be removed.

    Args:
        connection: what the records use is still to be looked up over it, by ``span``, before.
        spans: rows, as a JSON array.
    """
    for table in ("_log_contents", "_log_nodes", "_logs"):
        connection.execute(f"DELETE FROM {table} WHERE span {_AMONG}", (spans,))


def _take(connection: sqlite3.Connection, logs: list[int]) -> Taken:
    if not logs:
        return Taken(0)
    these = json.dumps(logs)
    traces = _ids(connection, f"SELECT DISTINCT trace FROM _logs WHERE id {_AMONG}", these)
    nodes = _ids(connection, f"SELECT node FROM _log_nodes WHERE log {_AMONG}", these)
    contents = _ids(connection, f"SELECT content FROM _log_contents WHERE log {_AMONG}", these)
    for column in ("resource", "scope"):
        contents += _ids(connection, f"SELECT {column} FROM _logs WHERE id {_AMONG}", these)
    connection.execute(f"DELETE FROM _log_nodes WHERE log {_AMONG}", (these,))
    connection.execute(f"DELETE FROM _log_contents WHERE log {_AMONG}", (these,))
    connection.execute(f"DELETE FROM _logs WHERE id {_AMONG}", (these,))
    connection.execute(_FORGET_TRACES, (json.dumps(traces),))
    return Taken(len(logs), tuple(nodes), tuple(contents))


def _ids(connection: sqlite3.Connection, sql: str, *values: Any) -> list[int]:
    return [row[0] for row in connection.execute(sql, values).fetchall()]
