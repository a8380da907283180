# SPDX-License-Identifier: Apache-2.0
"""What readers are shown of tasks whose process has died before any writer has noted it.

A process that dies cannot say so: its rows say ``running`` until the next writer opens the
history (`recovery`). Readers change nothing, so they are shown what that writer would note:
``interrupted``, at the time when the process was last seen. Only a process that is certain to be
gone counts (see `processes.certainly_gone`); what is in doubt is shown as it is stored.

Who is gone must be found out before the snapshot begins that is read: what a process has committed
before it died (that the task succeeded, for instance) is in every later one. So `Reading` does it.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from otel_taskhistory.store.processes import certainly_gone
from otel_taskhistory.store.recovery import BY_ROOT, WITHOUT_ROOT
from otel_taskhistory.store.times import iso
from otel_taskhistory.store.views import ModelCall, Step, Task, ToolCall

RUNNING: Final = "running"
INTERRUPTED: Final = "interrupted"

_TASKS: Final = f"""
SELECT task_id FROM tasks
WHERE +status = 'running' AND ({BY_ROOT} OR {WITHOUT_ROOT})
"""
_END_OF_TASK: Final = """
SELECT iif(root IS NOT NULL, :seen, min(:seen, max(coalesce((
        SELECT max(coalesce(own.end_ns, own.start_ns)) FROM _spans AS own
        WHERE own.task = task.id AND typeof(coalesce(own.end_ns, own.start_ns)) = 'integer'
    ), :seen), 0)))
FROM tasks AS task WHERE task_id = :task_id
"""
"""As `recovery` notes it: a task whose root never came ended with its last span."""

_PROCESS_OF_TASK: Final = """
SELECT coalesce((SELECT process FROM _spans WHERE id = root), process) FROM tasks WHERE task_id = ?
"""
_PROCESS_OF_SPAN: Final = """
SELECT own.process FROM _traces AS trace JOIN _spans AS own ON own.trace = trace.id
WHERE trace.trace_id = ? AND own.span_id = ?
"""

_Row = TypeVar("_Row", Task, Step, ModelCall, ToolCall)
_OfSpan = TypeVar("_OfSpan", Step, ModelCall, ToolCall)


class ReadConnection(sqlite3.Connection):
    """A connection for short read transactions, which knows who had died before each.

    Attributes:
        died: rows of ``_processes``.
    """

    died: frozenset[int] = frozenset()

    def look(self, database: Path) -> None:
        """Find out who has died, before a transaction; `database` is where the lock file is."""
        self.died = frozenset(certainly_gone(self, database))


@dataclass(frozen=True, slots=True)
class Gone:
    """The writers that have died without a word, within one read transaction."""

    connection: sqlite3.Connection
    seen: dict[int, int]
    """By row of ``_processes`` the time of the last commit, ns since 1970."""

    def task(self, task: Task) -> Task:
        """A task as it is now."""
        if not self.seen or task.status != RUNNING:
            return task
        (process,) = self.connection.execute(_PROCESS_OF_TASK, (task.task_id,)).fetchone()
        if process not in self.seen or not self._left(process, task.task_id):
            return task
        values = {"seen": self.seen[process], "task_id": task.task_id}
        (ended,) = self.connection.execute(_END_OF_TASK, values).fetchone()
        return _interrupted(task, ended)

    def task_ids(self) -> list[str]:
        """The tasks that they left running."""
        return [task_id for process in self.seen for task_id in self._left(process)]

    def of_span(self, row: _OfSpan, trace_id: str, span_id: str) -> _OfSpan:
        """A step or call as it is now; it is interrupted when its span is of such a process."""
        if not self.seen or row.status != RUNNING:
            return row
        found = self.connection.execute(_PROCESS_OF_SPAN, (trace_id, span_id)).fetchone()
        if found is None or found[0] not in self.seen:
            return row
        return _interrupted(row, self.seen[found[0]])

    def _left(self, process: int, task_id: str | None = None) -> list[str]:
        rows = self.connection.execute(
            f"{_TASKS} AND (:task_id IS NULL OR task_id = :task_id)",
            {"process": process, "task_id": task_id},
        )
        return [row[0] for row in rows.fetchall()]


def gone(connection: sqlite3.Connection) -> Gone:
    """Those who had died before the transaction, and whom no writer has called ended since."""
    died = getattr(connection, "died", None)
    if not died:
        return Gone(connection, {})
    rows = connection.execute(
        "SELECT id, seen_ns FROM _processes WHERE ended_ns IS NULL"
        " AND id IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(died)),),
    )
    return Gone(connection, dict(rows.fetchall()))


def _interrupted(row: _Row, ended_ns: int) -> _Row:
    ended_at = iso(ended_ns)
    return replace(
        row, status=INTERRUPTED, ended_at=ended_at, duration_ms=_between(row.started_at, ended_at)
    )


def _between(started_at: str, ended_at: str) -> float | None:
    """Milliseconds between two times as they are stored, 0 when the clock was set back."""
    try:
        took = datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)
    except (TypeError, ValueError):  # not written by us
        return None
    return max(took.total_seconds() * 1000, 0.0)
