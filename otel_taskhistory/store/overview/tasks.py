# SPDX-License-Identifier: Apache-2.0
"""Tasks: those of a list, and what stands at the top of one."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.store.columns import columns, from_row
from otel_taskhistory.store.gone import Gone, gone
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.overview.texts import head
from otel_taskhistory.store.reader import TaskFilter
from otel_taskhistory.store.views import Page, Screenshot, Task

GOAL_BYTES: Final = 600
"""Of a goal or error in a list."""
HEAD_BYTES: Final = 64 * 1024
"""Of a goal, result or error at the top of its task."""

_LATE_STEPS: Final = 40
"""Steps among which, from the end, the last picture of a task is looked for."""

_TASK_TEXTS: Final = ("goal", "result", "error")


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A task of a list; its texts may be cut."""

    task: Task
    picture: Screenshot | None
    """The last one that can be shown."""


@dataclass(frozen=True, slots=True)
class TaskHead:
    """What stands at the top of a task."""

    task: Task
    steps_by_status: dict[str, int]
    first_failed: tuple[str, int, str] | None
    """(id, index, name) of the first step that failed or was interrupted."""
    children: tuple[Task, ...]
    """Tasks that this one began, without their texts but the goal; the first few."""
    parent: Task | None
    seq: int
    """Of the last record of the timeline."""


def task_lines(
    connection: sqlite3.Connection, which: TaskFilter, limit: int, cursor: str | None
) -> Page[TaskLine]:
    """Tasks, newest first; `Page.next` is a cursor of `otel_taskhistory.store.reader.tasks`."""
    left = gone(connection)
    conditions, values = which.where(left)
    if cursor is not None:
        found = re.fullmatch(r"([0-9]{1,19})\.([0-9]{1,18})", cursor)
        if found is None:
            raise SettingsError(f"cursor={cursor!r} is none of this list")
        conditions.append("(started_ns, id) < (?, ?)")
        values += [int(found[1]), int(found[2])]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = connection.execute(
        f"SELECT started_ns, id FROM tasks {where} ORDER BY started_ns DESC, id DESC LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    lines = []
    for _, row in rows[:limit]:
        task = left.task(read_task(connection, row, GOAL_BYTES, ("goal", "error")))
        lines.append(TaskLine(task, _last_picture(connection, row, task.task_id)))
    following = f"{rows[limit - 1][0]}.{rows[limit - 1][1]}" if len(rows) > limit else None
    return Page(lines, following)


def task_head(
    connection: sqlite3.Connection, typed: str, most: int | None = HEAD_BYTES
) -> TaskHead:
    """The task that `typed` means: its id, the beginning of it, or ``latest``.

    Args:
        most: bytes of its goal, result and error that are read; None for all.

    Raises:
        TaskNotFound: there is none, or several.
    """
    left = gone(connection)
    task_id = find_task(connection, typed)
    row = row_of(connection, task_id)
    task = left.task(read_task(connection, row, most, _TASK_TEXTS))
    counts, failed = _outcomes(connection, row, left)
    children = [
        _short_task(connection, left, child)
        for (child,) in connection.execute(_CHILDREN, (task_id,)).fetchall()
    ]
    parent = None
    if task.parent_task_id is not None:
        found = connection.execute(
            "SELECT id FROM tasks WHERE task_id = ?", (task.parent_task_id,)
        ).fetchone()
        parent = None if found is None else _short_task(connection, left, found[0])
    return TaskHead(task, counts, failed, tuple(children), parent, last_seq(connection, row))


_CHILDREN: Final = """
SELECT id FROM tasks WHERE parent_task_id = ? ORDER BY started_ns, id LIMIT 20
"""


def agents(connection: sqlite3.Connection, limit: int = 50) -> list[str]:
    """Names of agents, in alphabetic order, found by jumping from one to the next in the index."""
    rows = connection.execute(
        "WITH RECURSIVE named (agent) AS ("
        " SELECT min(agent) FROM tasks WHERE agent > ''"
        " UNION ALL"
        " SELECT (SELECT min(agent) FROM tasks WHERE agent > named.agent) FROM named"
        " WHERE named.agent IS NOT NULL"
        ") SELECT agent FROM named WHERE agent IS NOT NULL LIMIT ?",
        (limit,),
    )
    return [row[0] for row in rows]


def _short_task(connection: sqlite3.Connection, left: Gone, row: int) -> Task:
    return left.task(read_task(connection, row, GOAL_BYTES, ("goal",)))


def read_task(
    connection: sqlite3.Connection, row: int, most: int | None, wanted: Sequence[str]
) -> Task:
    """A task as it is stored, with these of its texts, each up to `most` bytes."""
    there = "".join(f"{name} IS NOT NULL, " for name in wanted)
    names = columns(Task, without=frozenset(_TASK_TEXTS))
    found = connection.execute(f"SELECT {there}{names} FROM tasks WHERE id = ?", (row,))
    values = found.fetchone()
    task = from_row(Task, values[len(wanted) :])
    texts = {
        name: head(connection, "tasks", name, row, most)
        for name, given in zip(wanted, values, strict=False)
        if given
    }
    return replace(
        task,
        pinned=bool(task.pinned),
        goal=texts.get("goal"),
        result=texts.get("result"),
        error=texts.get("error"),
    )


_LAST_PICTURE: Final = f"""
SELECT {columns(Screenshot)} FROM screenshots WHERE id = (
    SELECT shot.id FROM (
        SELECT span, step_index, id FROM _steps WHERE task = ?
        ORDER BY step_index DESC, id DESC LIMIT {_LATE_STEPS}
    ) AS late
    JOIN _spans AS own ON own.id = late.span
    JOIN screenshots AS shot ON shot.task_id = ? AND shot.step_id = own.span_id
    WHERE shot.status = 'ok'
    ORDER BY late.step_index DESC, late.id DESC, shot.role = 'screenshot' DESC, shot.id DESC
    LIMIT 1
)
"""


def _last_picture(connection: sqlite3.Connection, row: int, task_id: str) -> Screenshot | None:
    found = connection.execute(_LAST_PICTURE, (row, task_id)).fetchone()
    return None if found is None else from_row(Screenshot, found)


_OUTCOMES: Final = "SELECT status, count(*) FROM _steps WHERE task = ? GROUP BY status"
_FIRST_BAD: Final = """
SELECT own.span_id, step.step_index, step.name FROM _steps AS step
JOIN _spans AS own ON own.id = step.span
WHERE step.task = ? AND (step.status IN ('failed', 'interrupted')
    OR step.status = 'running' AND own.process IN (SELECT value FROM json_each(?)))
ORDER BY step.step_index, own.span_id LIMIT 1
"""
_GONE_STEPS: Final = """
SELECT count(*) FROM _steps AS step JOIN _spans AS own ON own.id = step.span
WHERE step.task = ? AND step.status = 'running'
    AND own.process IN (SELECT value FROM json_each(?))
"""


def _outcomes(
    connection: sqlite3.Connection, row: int, left: Gone
) -> tuple[dict[str, int], tuple[str, int, str] | None]:
    """(number of steps by status, the first bad one)."""
    counts: dict[str, int] = dict(connection.execute(_OUTCOMES, (row,)).fetchall())
    died = json.dumps(list(left.seen))
    if left.seen and counts.get("running"):
        (number,) = connection.execute(_GONE_STEPS, (row, died)).fetchone()
        counts["running"] -= number
        counts["interrupted"] = counts.get("interrupted", 0) + number
    counts = {status: number for status, number in counts.items() if number}
    if not counts.keys() & {"failed", "interrupted"}:
        return counts, None
    return counts, connection.execute(_FIRST_BAD, (row, died)).fetchone()


def row_of(connection: sqlite3.Connection, task_id: str) -> int:
    """The row of a task that is there."""
    row = connection.execute("SELECT id FROM tasks WHERE task_id = ?", (task_id,)).fetchone()
    return int(row[0])


def last_seq(connection: sqlite3.Connection, row: int) -> int:
    """The last number of the timeline that tells of a task."""
    (seq,) = connection.execute("SELECT max(seq) FROM _timeline WHERE task = ?", (row,)).fetchone()
    return int(seq or 0)
