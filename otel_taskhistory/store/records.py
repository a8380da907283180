# SPDX-License-Identifier: Apache-2.0
"""What was removed, when and because of which limit: kept for people, and told to watchers."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.store.times import iso

KEPT: Final = 1000
"""Records that are kept, the newest."""

_LATELY_NS: Final = 2 * 3600 * 10**9

REASONS: Final = ("max_age", "max_tasks", "max_bytes", "asked", "too_large", "blocked")
"""Why: a limit, or somebody asked. The last two removed no task: all that may go is gone and the
history is still too large (pictures of running tasks may have gone); or a reader with an old
snapshot keeps the space from being given back."""


@dataclass(frozen=True, slots=True)
class RetentionRecord:
    """What one pass removed for one reason."""

    at: str
    """UTC, ISO 8601 with ``Z``."""
    reason: str
    """``max_age``, ``max_tasks``, ``max_bytes``, ``asked``, ``too_large`` or ``blocked``."""
    agent_tasks: int
    other_tasks: int
    files: int
    bytes: int
    """By how much live pages and artifacts became smaller."""
    oldest: str | None
    """When the task of them that was committed first was committed last."""
    newest: str | None


def begin(connection: sqlite3.Connection, reason: str, now_ns: int) -> int:
    """A record for what is removed now; the oldest one goes when there are too many."""
    record = connection.execute(
        "INSERT INTO _retention (at_ns, reason) VALUES (?, ?)", (now_ns, reason)
    ).lastrowid
    assert record is not None
    for (seq,) in connection.execute(
        "DELETE FROM _retention WHERE id <= ? RETURNING seq", (record - KEPT,)
    ).fetchall():
        connection.execute("DELETE FROM _timeline WHERE seq = ?", (seq,))
    return record


def add_task(connection: sqlite3.Connection, record: int, kind: str, committed_ns: int) -> None:
    """Count a removed task."""
    connection.execute(
        "UPDATE _retention SET"
        " agent_tasks = agent_tasks + :agent, other_tasks = other_tasks + :other,"
        " oldest_ns = min(coalesce(oldest_ns, :at), :at),"
        " newest_ns = max(coalesce(newest_ns, :at), :at) WHERE id = :record",
        {
            "record": record,
            "agent": kind == "agent",
            "other": kind != "agent",
            "at": committed_ns,
        },
    )


def add_space(connection: sqlite3.Connection, record: int, files: int, size: int) -> None:
    """Count what became free; a large task gives its space back over several transactions."""
    connection.execute(
        "UPDATE _retention SET files = files + ?, bytes = bytes + ? WHERE id = ?",
        (files, size, record),
    )


def tell(connection: sqlite3.Connection, record: int) -> None:
    """Append to the timeline what a record says, at the end of its transaction."""
    at_ns, reason, agent, other, files, size = connection.execute(
        "SELECT at_ns, reason, agent_tasks, other_tasks, files, bytes FROM _retention WHERE id = ?",
        (record,),
    ).fetchone()
    detail = {"reason": reason, "agent_tasks": agent, "other_tasks": other}
    seq = connection.execute(
        "INSERT INTO _timeline (at_ns, event, detail) VALUES (?, 'pruned', ?)",
        (at_ns, json.dumps(detail | {"files": files, "bytes": size}, separators=(",", ":"))),
    ).lastrowid
    connection.execute("UPDATE _retention SET seq = ? WHERE id = ?", (seq, record))


def records(connection: sqlite3.Connection, limit: int = KEPT) -> list[RetentionRecord]:
    """What was removed, the latest first."""
    rows = connection.execute(
        "SELECT at_ns, reason, agent_tasks, other_tasks, files, bytes, oldest_ns, newest_ns"
        " FROM _retention ORDER BY id DESC LIMIT ?",
        (limit,),
    )
    return [RetentionRecord(iso(row[0]), *row[1:6], *map(_iso, row[6:])) for row in rows]


def lately(connection: sqlite3.Connection, reason: str, now_ns: int) -> str | None:
    """When a state was put on record last, if that was in the last two hours.

    While it lasts it is, each hour.
    """
    row = connection.execute(
        "SELECT max(at_ns) FROM _retention WHERE reason = ? AND at_ns > ?",
        (reason, now_ns - _LATELY_NS),
    ).fetchone()
    return _iso(row[0])


def pruned_up_to(connection: sqlite3.Connection) -> int:
    """The latest number of the timeline that was removed with its task; 0 when none was.

    Who continues after a smaller number may have missed records: a gap to be told of.
    """
    row: Any = connection.execute("SELECT value FROM _meta WHERE key = 'pruned_seq'").fetchone()
    return int(row[0]) if row else 0


def _iso(ns: int | None) -> str | None:
    return None if ns is None else iso(ns)
