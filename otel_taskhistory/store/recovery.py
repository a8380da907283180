# SPDX-License-Identifier: Apache-2.0
"""What dead processes left running becomes ``interrupted``, when its process was last seen.

The fact of the ledger is that an open span names the process that wrote it, and that this process
has ended (``_processes.ended_ns``, its last commit). An ended span names none, so a span that ends
after all needs nothing from here. What follows for tasks, steps, model calls and tool calls is
done by a fixed number of statements per process over any number of rows, none of which is fetched,
and without reading the spans themselves. Every function runs inside the caller's transaction.

A task is interrupted when its root span is. Its root is that of its latest attempt, so a task that
somebody resumed, or whose own process lives, is left alone whatever else was written into its
trace. A task whose root was never seen (the standard processors write it at its end) is interrupted
when the process that last wrote it is gone and a span shows that it ran there: one whose parent
was in the same process and never came. It ended when its last span did.

`revive` takes everything back for a process that was taken for dead and is not.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_taskhistory.store.processes import Registration, dead, forget_ended
from otel_taskhistory.store.times import iso
from otel_taskhistory.store.wall import no_earlier

_END: Final = """
UPDATE _processes SET ended_ns = coalesce(ended_ns, seen_ns) WHERE id = ? RETURNING ended_ns
"""

_OPEN: Final = "SELECT id FROM _spans WHERE process = :process"
"""The spans that a process left, or has, open: an index alone has them."""

# In these a unary plus keeps SQLite from looking for rows by their status: those of one process
# are few among all that are running or interrupted.
_TELL_TOOL_CALLS: Final = f"""
INSERT INTO _timeline (task, span, at_ns, event, detail)
SELECT step.task, step.span, :ended, 'tool_call.ended', json_patch('{{}}', json_object(
    'span_id', own.span_id, 'name', call.name, 'call_id', call.call_id, 'status', 'interrupted'))
FROM _tool_calls AS call JOIN _spans AS own ON own.id = call.span
JOIN _steps AS step ON step.id = call.step
WHERE call.span IN ({_OPEN}) AND +call.status = 'running' AND call.told = 'running'
ORDER BY call.span
"""

_TELL_STEPS: Final = f"""
INSERT INTO _timeline (task, span, at_ns, event, detail)
SELECT task, span, :ended, 'step.interrupted', json_object('index', step_index) FROM _steps
WHERE span IN ({_OPEN}) AND +status = 'running' AND told = 'running'
ORDER BY span
"""

_ROOTLESS: Final = """
SELECT id FROM tasks AS task
WHERE root IS NULL AND +status = 'running' AND process = :process
    AND EXISTS (SELECT 1 FROM _spans AS own
        WHERE own.task = task.id AND own.parent_span_id IS NOT NULL AND NOT own.parent_remote
            AND NOT EXISTS (SELECT 1 FROM _spans AS above
                WHERE above.trace = own.trace AND above.span_id = own.parent_span_id))
"""


def _interrupt(table: str, *, told: bool) -> str:
    """SQL that ends the running rows of a table of calls or steps."""
    also = ", told = iif(told IS NULL, NULL, 'interrupted')" if told else ""
    return f"""
UPDATE {table} SET status = 'interrupted', ended_ns = :ended{also}
WHERE span IN ({_OPEN}) AND +status = 'running'
"""


def _tell_tasks(which: str) -> str:
    return f"""
INSERT INTO _timeline (task, at_ns, event, detail)
SELECT id, :ended, 'task.interrupted', json_object('attempt', attempt) FROM tasks
WHERE {which} AND +status = 'running'
ORDER BY id
"""


def _interrupt_tasks(which: str) -> str:
    return f"""
UPDATE tasks SET status = 'interrupted', ended_ns = :ended, ended_at = :ended_at,
    duration_ms = max(:ended - started_ns, 0) / 1e6, committed_ns = coalesce(:now, committed_ns)
WHERE {which} AND +status = 'running'
"""


# That the root of a task never came says nothing of when it ended: later than its last span. (What
# was imported was over long before the import.)
_INTERRUPT_ROOTLESS: Final = f"""
UPDATE tasks SET status = 'interrupted', ended_ns = seen.ns,
    ended_at = strftime('%Y-%m-%dT%H:%M:%S', seen.ns / 1000000000, 'unixepoch')
        || printf('.%06dZ', seen.ns % 1000000000 / 1000),
    duration_ms = max(seen.ns - started_ns, 0) / 1e6, committed_ns = coalesce(:now, committed_ns)
FROM (SELECT task.id AS task, min(:ended, max(coalesce((
        SELECT max(coalesce(own.end_ns, own.start_ns)) FROM _spans AS own
        WHERE own.task = task.id AND typeof(coalesce(own.end_ns, own.start_ns)) = 'integer'
    ), :ended), 0)) AS ns FROM tasks AS task WHERE task.id IN ({_ROOTLESS})) AS seen
WHERE tasks.id = seen.task
"""

BY_ROOT: Final = f"root IN ({_OPEN})"
WITHOUT_ROOT: Final = f"id IN ({_ROOTLESS})"

LEFT_RUNNING: Final = f"""
SELECT task_id, kind, goal, bytes FROM tasks
WHERE {BY_ROOT} AND +status = 'running' AND pinned = 0 ORDER BY id
"""
"""The tasks that `recover` would call interrupted, of :process, whose root is there."""

_TELL: Final = (_TELL_TOOL_CALLS, _TELL_STEPS, _tell_tasks(BY_ROOT), _tell_tasks(WITHOUT_ROOT))
_INTERRUPT: Final = (
    _interrupt("_model_calls", told=False),
    _interrupt("_tool_calls", told=True),
    _interrupt("_steps", told=True),
    _interrupt_tasks(BY_ROOT),
    _INTERRUPT_ROOTLESS,
)


def _revive(table: str, *, told: bool) -> str:
    also = ", told = iif(told IS NULL, NULL, 'running')" if told else ""
    return f"""
UPDATE {table} SET status = 'running', ended_ns = NULL{also}
WHERE span IN ({_OPEN}) AND +status = 'interrupted'
"""


_REVIVED_TASKS: Final = f"""
+status = 'interrupted' AND (root IN ({_OPEN}) OR root IS NULL AND process = :process)
"""
_REVIVE: Final = (
    _revive("_model_calls", told=False),
    _revive("_tool_calls", told=True),
    _revive("_steps", told=True),
    f"""
INSERT INTO _timeline (task, at_ns, event, detail)
SELECT id, :now, 'task.resumed', json_object('attempt', attempt) FROM tasks
WHERE {_REVIVED_TASKS}
ORDER BY id
""",
    f"""
UPDATE tasks SET status = 'running', ended_ns = NULL, ended_at = NULL, duration_ms = NULL
WHERE {_REVIVED_TASKS}
""",
)

_PROCESSES_OF_TASK: Final = """
SELECT process FROM tasks WHERE task_id = :task_id AND process IS NOT NULL
UNION
SELECT process FROM _spans
WHERE task = (SELECT id FROM tasks WHERE task_id = :task_id) AND process IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Recovered:
    """How many rows became ``interrupted``."""

    tasks: int = 0
    steps: int = 0
    tool_calls: int = 0


def enter(
    connection: sqlite3.Connection, database: Path, registration: Registration, now_ns: int
) -> Recovered:
    """Sign in as a writer, and recover what the dead left; when a history is opened for writing."""
    registration.sign(connection)
    recovered = recover(connection, dead(connection, database), now_ns)
    forget_ended(connection)
    return recovered


def leave(connection: sqlite3.Connection, registration: Registration, now_ns: int) -> Recovered:
    """Sign out; spans that were never ended are interrupted now.

    After the commit (or its failure: others see then that the lock is free) call
    `Registration.release`.
    """
    registration.sign(connection)
    return recover(connection, [registration.row], now_ns)


def recover(connection: sqlite3.Connection, dead: list[int], now_ns: int) -> Recovered:
    """Call these processes ended, and interrupted what they left running.

    Args:
        dead: rows of ``_processes``, as `processes.dead` finds them.
        now_ns: noted as the last commit of the tasks that are interrupted by it, so that one that
            is found after a long time is not removed for its age before anybody saw it.
    """
    total = Recovered()
    for process in dead:
        values = _end(connection, process, now_ns)
        for statement in _TELL:
            connection.execute(statement, values)
        found = _interrupt_all(connection, values)
        total = Recovered(
            total.tasks + found.tasks,
            total.steps + found.steps,
            total.tool_calls + found.tool_calls,
        )
    return total


def _end(connection: sqlite3.Connection, process: int, now_ns: int | None) -> dict[str, object]:
    """Call a process ended; the values for the statements above."""
    row = connection.execute(_END, (process,)).fetchone()
    ended = row[0] if row else 0
    now = None if now_ns is None else no_earlier(connection, now_ns)
    return {"process": process, "ended": ended, "ended_at": iso(ended), "now": now}


def _interrupt_all(connection: sqlite3.Connection, values: dict[str, object]) -> Recovered:
    _, tool_calls, steps, tasks, rootless = (
        connection.execute(statement, values).rowcount for statement in _INTERRUPT
    )
    return Recovered(tasks + rootless, steps, tool_calls)


def recover_task(
    connection: sqlite3.Connection, database: Path, task_id: str, now_ns: int
) -> Recovered:
    """As `recover`, for the dead among the processes that have to do with one task.

    For somebody who wants to go on with it: its process may have died after we opened.
    """
    of_task = {row[0] for row in connection.execute(_PROCESSES_OF_TASK, {"task_id": task_id})}
    if not of_task:
        return Recovered()
    gone = [row for row in dead(connection, database) if row in of_task]
    return recover(connection, gone, now_ns)


def revive(connection: sqlite3.Connection, process: int, now_ns: int) -> None:
    """Take back what `recover` did; after `Registration.sign` has said that this is due.

    What its tasks have become since (resumed by another process, ended) stays.
    """
    for statement in _REVIVE:
        connection.execute(statement, {"process": process, "now": now_ns})


def reapply(connection: sqlite3.Connection) -> None:
    """Write what the ledger knows of interruptions into rows that were rebuilt from the spans.

    Nothing is told to the timeline: it was, when it happened.
    """
    ended = connection.execute("SELECT id FROM _processes WHERE ended_ns IS NOT NULL ORDER BY id")
    for (process,) in ended.fetchall():
        _interrupt_all(connection, _end(connection, process, None))
