# SPDX-License-Identifier: Apache-2.0
"""The queries behind `otel_taskhistory.TaskHistory`; each runs within one read transaction.

Lists are paged by key: a cursor names the last row that was seen, so rows that come or go meanwhile
neither repeat nor hide others, also where many began at the same moment.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.store.columns import SAID, columns, from_row, said
from otel_taskhistory.store.gone import INTERRUPTED, RUNNING, Gone, gone
from otel_taskhistory.store.ids import find_step, find_task
from otel_taskhistory.store.rebuild import Texts
from otel_taskhistory.store.views import (
    Page,
    Stats,
    Step,
    Task,
)

_CURSOR: Final = re.compile(r"(-?[0-9]{1,20})\.([0-9a-f]{1,40})")


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks; what is None does not matter."""

    status: str | None = None
    since_ns: int | None = None
    """Begun at or after, ns since 1970."""
    until_ns: int | None = None
    """Begun before, ns since 1970."""
    agent: str | None = None
    kind: str | None = "agent"

    def where(self, left: Gone) -> tuple[list[str], list[Any]]:
        """SQL conditions on ``tasks``, and their parameters.

        Args:
            left: whose tasks are interrupted, whatever their rows say.
        """
        conditions = [
            ("kind = ?", self.kind),
            ("agent = ?", self.agent),
            ("started_ns >= ?", self.since_ns),
            ("started_ns < ?", self.until_ns),
        ]
        given = [(sql, value) for sql, value in conditions if value is not None]
        sqls, values = [sql for sql, _ in given], [value for _, value in given]
        if self.status is None:
            return sqls, values
        stored = "status = ?"
        values.append(self.status)
        if left.seen and self.status in (RUNNING, INTERRUPTED):
            listed = "task_id IN (SELECT value FROM json_each(?))"
            stored += f" AND NOT {listed}" if self.status == RUNNING else f" OR {listed}"
            values.append(json.dumps(left.task_ids()))
        return [*sqls, f"({stored})"], values


# --- tasks --------------------------------------------------------------------------------------


def tasks(
    connection: sqlite3.Connection, which: TaskFilter, limit: int, cursor: str | None
) -> Page[Task]:
    """Tasks, newest first."""
    left = gone(connection)
    conditions, values = which.where(left)
    if cursor is not None:
        conditions.append("(started_ns, id) < (?, ?)")
        values += [int(part) for part in _position(cursor, digits=10)]
    rows = connection.execute(
        f"SELECT started_ns, id, {columns(Task)} FROM tasks"
        f" {_where(conditions)} ORDER BY started_ns DESC, id DESC LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    page = [left.task(_task(row[2:])) for row in rows[:limit]]
    return Page(page, f"{rows[limit - 1][0]}.{rows[limit - 1][1]}" if len(rows) > limit else None)


def count_tasks(connection: sqlite3.Connection, which: TaskFilter) -> int:
    """How many tasks there are on all pages."""
    conditions, values = which.where(gone(connection))
    found = connection.execute(f"SELECT count(*) FROM tasks {_where(conditions)}", values)
    return int(found.fetchone()[0])


def task(connection: sqlite3.Connection, text: str) -> Task:
    """The task that `text` means; see `find_task`."""
    left = gone(connection)
    row = connection.execute(
        f"SELECT {columns(Task)} FROM tasks WHERE task_id = ?", (find_task(connection, text),)
    ).fetchone()
    return left.task(_task(row))


# --- steps --------------------------------------------------------------------------------------


def steps(
    connection: sqlite3.Connection,
    task_id: str,
    limit: int,
    cursor: str | None,
    without: Collection[str],
) -> Page[Step]:
    """The steps of a task in order."""
    left = gone(connection)
    values: list[Any] = [find_task(connection, task_id)]
    after = ""
    if cursor is not None:
        index, step_id = _position(cursor)
        after = "AND (step_index, step_id) > (?, ?)"
        values += [int(index), step_id]
    rows = connection.execute(
        f"SELECT {columns(Step, without=SAID)} FROM steps WHERE task_id = ? {after}"
        " ORDER BY step_index, step_id LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    page = [_step(row, left) for row in rows[:limit]]
    following = f"{page[-1].step_index}.{page[-1].step_id}" if len(rows) > limit else None
    return Page(_with_content(connection, page, without), following)


def step(connection: sqlite3.Connection, text: str, task_id: str | None = None) -> Step:
    """The step with this id, or whose id alone begins so.

    Raises:
        TaskNotFound: there is none, or several.
    """
    left = gone(connection)
    task_id, step_id = find_step(connection, text, task_id)
    row = connection.execute(
        f"SELECT {columns(Step, without=SAID)} FROM steps WHERE task_id = ? AND step_id = ?",
        (task_id, step_id),
    ).fetchone()
    return _with_content(connection, [_step(row, left)])[0]


def steps_with_index(connection: sqlite3.Connection, task_id: str, index: int) -> list[Step]:
    """The steps with this number; several when the agent gave a number twice."""
    left = gone(connection)
    rows = connection.execute(
        f"SELECT {columns(Step, without=SAID)} FROM steps WHERE task_id = ? AND step_index = ?"
        " ORDER BY step_id",
        (task_id, index),
    ).fetchall()
    return _with_content(connection, [_step(row, left) for row in rows])


def step_outcomes(
    connection: sqlite3.Connection, task_id: str
) -> tuple[dict[str, int], list[Step]]:
    """(steps by status, the steps that failed or were interrupted without their content)."""
    left = gone(connection)
    counts = dict(
        connection.execute(
            "SELECT step.status, count(*) FROM _steps AS step"
            " JOIN tasks AS task ON task.id = step.task WHERE task.task_id = ?"
            " GROUP BY step.status ORDER BY count(*) DESC, step.status",
            (task_id,),
        ).fetchall()
    )
    bad = ["failed", INTERRUPTED] + [RUNNING] * bool(left.seen)
    rows = connection.execute(
        f"SELECT {columns(Step, without=SAID)} FROM steps WHERE task_id = ?"
        " AND status IN (SELECT value FROM json_each(?)) ORDER BY step_index, step_id",
        (task_id, json.dumps(bad)),
    ).fetchall()
    found = [_step(row, left) for row in rows]
    if left.seen:
        counts |= {name: sum(step.status == name for step in found) for name in bad}
    return (
        {name: number for name, number in counts.items() if number},
        [step for step in found if step.status != RUNNING],
    )


def _with_content(
    connection: sqlite3.Connection, page: list[Step], without: Collection[str] = ()
) -> list[Step]:
    wanted = SAID.difference(without)
    if not wanted:
        return page
    texts = Texts(connection)
    full = []
    for own in page:
        row = connection.execute(
            "SELECT call.prompt_node, call.prompt_text, call.decision_node, call.decision_text"
            " FROM tasks AS task JOIN _spans AS own ON own.trace = task.trace AND own.span_id = ?"
            " JOIN _steps AS step ON step.span = own.id AND step.task = task.id"
            " JOIN _model_calls AS call ON call.id = step.last_call WHERE task.task_id = ?",
            (own.step_id, own.task_id),
        ).fetchone()
        if row is not None:
            prompt, decision = said(texts, row, wanted)
            own = replace(own, prompt=prompt, decision=decision)
        full.append(own)
    return full


def stats(connection: sqlite3.Connection) -> Stats:
    """What the history holds."""
    left = gone(connection)

    def one(sql: str) -> Any:
        return connection.execute(sql).fetchone()

    by_status = dict(
        connection.execute(
            "SELECT status, count(*) FROM tasks WHERE kind = 'agent' GROUP BY status"
        ).fetchall()
    )
    if left.seen:
        by_status |= {
            name: count_tasks(connection, TaskFilter(status=name))
            for name in (RUNNING, INTERRUPTED)
        }
    return Stats(
        tasks={status: number for status, number in by_status.items() if number},
        other_tasks=one("SELECT count(*) FROM tasks WHERE kind <> 'agent'")[0],
        steps=one("SELECT count(*) FROM _steps")[0],
        model_calls=one("SELECT count(*) FROM _model_calls WHERE twin_of IS NULL")[0],
        tool_calls=one("SELECT count(*) FROM _tool_calls WHERE twin_of IS NULL")[0],
        screenshots=one("SELECT count(*) FROM screenshots")[0],
        spans=one("SELECT count(*) FROM _spans")[0],
        input_tokens=one("SELECT coalesce(sum(input_tokens), 0) FROM tasks")[0],
        output_tokens=one("SELECT coalesce(sum(output_tokens), 0) FROM tasks")[0],
        first_task_at=one("SELECT min(started_at) FROM tasks")[0],
        last_task_at=one("SELECT max(started_at) FROM tasks")[0],
    )


# --- helpers ------------------------------------------------------------------------------------


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _task(row: tuple[Any, ...]) -> Task:
    found = from_row(Task, row)
    return replace(found, pinned=bool(found.pinned))


def _step(row: tuple[Any, ...], left: Gone) -> Step:
    found = from_row(Step, row)
    return left.of_span(found, found.trace_id, found.step_id)


def _is_number(text: str) -> bool:
    """Whether it is a whole number that SQLite has."""
    return text.lstrip("-").isdecimal() and -(2**63) <= int(text) < 2**63


def _position(cursor: str, *, digits: int = 16) -> tuple[str, str]:
    found = _CURSOR.fullmatch(cursor.strip())
    numbers = [] if found is None else [found[1], *([found[2]] if digits == 10 else [])]
    if found is None or not all(map(_is_number, numbers)):
        raise SettingsError(
            f"{cursor!r} is no cursor of such a list: use the one that the page before gave"
        )
    return found[1], found[2]
