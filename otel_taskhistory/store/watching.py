# SPDX-License-Identifier: Apache-2.0
"""The timeline from any record on: what is there, and whether something is missing before it.

``seq`` rises in the order of commits, so whoever has seen all up to a number has missed nothing
before it, but for what retention removed meanwhile; and that is told.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.records import pruned_up_to
from otel_taskhistory.store.views import TimelineRecord

GAP: Final = "gap"
"""Event of a record that is none of the history: some that were there before are gone."""

AT_A_TIME: Final = 500

_CURSOR: Final = re.compile(r"([0-9A-Za-z-]{1,64})\.([0-9]{1,19})")

_ALL: Final = """
SELECT seq, task_id, step_id, at, event, detail FROM timeline WHERE seq > ? ORDER BY seq LIMIT ?
"""
_OF_TASK: Final = """
SELECT seq, task_id, step_id, at, event, detail FROM timeline
WHERE seq IN (SELECT seq FROM _timeline WHERE task = ? AND seq > ? ORDER BY seq LIMIT ?)
ORDER BY seq
"""


@dataclass(frozen=True, slots=True)
class Position:
    """Up to which record somebody has read.

    Attributes:
        history_id: of which history; None at the beginning of whatever history is there.
        seq: number of the last record that was seen.
    """

    history_id: str | None = None
    seq: int = 0

    @classmethod
    def read(cls, cursor: str | int | None) -> Position:
        """What `TimelineRecord.cursor` says, or a plain number of this history.

        Raises:
            SettingsError: it is none.
        """
        if cursor is None:
            return cls()
        if isinstance(cursor, int) and not isinstance(cursor, bool) and cursor >= 0:
            return cls(None, cursor)
        found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
        if found is not None:
            return cls(found[1], int(found[2]))
        if isinstance(cursor, str) and cursor.isascii() and cursor.isdigit():
            return cls(None, min(int(cursor), 2**63 - 1))
        raise SettingsError(
            f"after={cursor!r} is no place in a timeline: use the cursor of a record"
        )

    def __str__(self) -> str:
        return str(self.seq) if self.history_id is None else f"{self.history_id}.{self.seq}"


def records_after(
    connection: sqlite3.Connection, position: Position, task: str | None = None
) -> list[TimelineRecord]:
    """The next records, at most `AT_A_TIME`; one of a `GAP` first when some are gone.

    Args:
        connection: in a read transaction.
        position: what was seen last.
        task: only of this task; an id, the beginning of one, or ``latest``.

    Raises:
        TaskNotFound: there is no such task, or several.
    """
    (history_id,) = connection.execute(
        "SELECT value FROM _meta WHERE key = 'history_id'"
    ).fetchone()
    found: list[TimelineRecord] = []
    seen = position.seq
    if position.history_id not in (None, history_id):
        found.append(_gap(history_id, 0, 0, "another history is in its place"))
        seen = 0
    elif seen > (there := max(end_of(connection).seq, pruned_up_to(connection))):
        found.append(_gap(history_id, 0, 0, f"the timeline ends at {there}: it was put back"))
        seen = 0
    elif task is None and 0 < seen < (gone := pruned_up_to(connection)):
        missing = _missing(connection, seen, gone)
        if missing:
            found.append(_gap(history_id, seen, gone, "removed by retention"))
    if task is None:
        rows = connection.execute(_ALL, (seen, AT_A_TIME))
    else:
        (own,) = connection.execute(
            "SELECT id FROM tasks WHERE task_id = ?", (find_task(connection, task),)
        ).fetchone()
        rows = connection.execute(_OF_TASK, (own, seen, AT_A_TIME))
    found += [
        TimelineRecord(seq, *said, f"{history_id}.{seq}")  # type: ignore[call-arg]
        for seq, *said in rows
    ]
    return found


_TOLD: Final = 2_000
"""Characters that are read of a goal or an error."""

_GOAL: Final = f"SELECT NULL, substr(goal, 1, {_TOLD}) FROM tasks WHERE task_id = ?"
_TASK_ERROR: Final = f"SELECT error_type, substr(error, 1, {_TOLD}) FROM tasks WHERE task_id = ?"
_STEP_ERROR: Final = f"""
SELECT step.error_type, substr(step.error, 1, {_TOLD}) FROM tasks AS task
JOIN _spans AS own ON own.trace = task.trace AND own.span_id = ?
JOIN _steps AS step ON step.span = own.id
WHERE task.task_id = ?
"""
_CALL_ERROR: Final = f"""
SELECT json_extract(iif(json_valid(own.facts), own.facts, 'null'), '$.error_type'),
    substr(call.error, 1, {_TOLD}) FROM tasks AS task
JOIN _spans AS own ON own.trace = task.trace AND own.span_id = ?
JOIN _tool_calls AS call ON call.span = own.id
WHERE task.task_id = ?
"""


def told_of(connection: sqlite3.Connection, record: TimelineRecord) -> str | None:
    """The goal of a task that begins, the error of what has ended; as the tables say it now.

    Returns:
        Its beginning, an error with its type; None where there is none, or nothing of it any more.
    """
    asked: tuple[str, ...] = (record.task_id or "",)
    detail = json.loads(record.detail)
    if record.event == "task.started":
        sql = _GOAL
    elif record.event == "task.ended":
        sql = _TASK_ERROR
    elif record.event == "step.ended" and record.step_id is not None:
        sql, asked = _STEP_ERROR, (record.step_id, *asked)
    elif record.event == "tool_call.ended" and isinstance(detail.get("span_id"), str):
        sql, asked = _CALL_ERROR, (detail["span_id"], *asked)
    else:
        return None
    row = connection.execute(sql, asked).fetchone()
    if row is None:
        return None
    kind, said = (str(one or "") for one in row)
    name = kind.rpartition(".")[2]
    # Most messages of exceptions do not say what they are; some errors are nothing else.
    return said if said and name in said else ": ".join(filter(None, (name, said))) or None


def end_of(connection: sqlite3.Connection) -> Position:
    """The place after all that is there."""
    history_id, seq = connection.execute(
        "SELECT value, (SELECT coalesce(max(seq), 0) FROM _timeline) FROM _meta"
        " WHERE key = 'history_id'"
    ).fetchone()
    return Position(history_id, seq)


def _missing(connection: sqlite3.Connection, seen: int, gone: int) -> bool:
    """Whether one of the numbers after `seen` is not there any more."""
    (there,) = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM _timeline WHERE seq > ? AND seq <= ? LIMIT ?)",
        (seen, gone, AT_A_TIME),
    ).fetchone()
    return bool(there < min(gone - seen, AT_A_TIME))


def _gap(history_id: str, seen: int, gone: int, reason: str) -> TimelineRecord:
    detail = json.dumps({"reason": reason, "after": seen, "up_to": gone}, separators=(",", ":"))
    return TimelineRecord(seen, None, None, "", GAP, detail, f"{history_id}.{gone}")


def state_of(real: str) -> tuple[object, ...]:
    """What differs after a commit; costs two looks at the file system.

    Args:
        real: the database, links followed: SQLite puts the log beside what a link points to.

    Raises:
        OSError: the file system does not say.
    """
    return (_state(real), _state(f"{real}-wal"))


def _state(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
