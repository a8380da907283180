# SPDX-License-Identifier: Apache-2.0
"""The queries behind `otel_taskhistory.TaskHistory`; each runs within one read transaction.

Lists are paged by key: a cursor names the last row that was seen, so rows that come or go meanwhile
neither repeat nor hide others, also where many began at the same moment.
"""

from __future__ import annotations

import difflib
import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeVar

from otel_taskhistory.errors import SettingsError, TaskNotFound
from otel_taskhistory.store.rebuild import Texts
from otel_taskhistory.store.views import (
    ModelCall,
    Page,
    Screenshot,
    Stats,
    Step,
    Task,
    TimelineRecord,
    ToolCall,
)

Row = TypeVar("Row", Task, Step, ModelCall, ToolCall, Screenshot)

SHORT_ID: Final = 8
"""Digits of an id that people type, when they are enough."""

_NEAR: Final = 3
"""Ids that are named when one is not found."""
_NEWEST: Final = 500
"""Tasks among which a mistyped id is looked for."""
_SAID: Final = frozenset({"prompt", "decision"})
"""Columns that are put together from shared contents: see `Texts`."""
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

    def where(self) -> tuple[list[str], list[Any]]:
        """SQL conditions on ``tasks``, and their parameters."""
        conditions = [
            ("kind = ?", self.kind),
            ("status = ?", self.status),
            ("agent = ?", self.agent),
            ("started_ns >= ?", self.since_ns),
            ("started_ns < ?", self.until_ns),
        ]
        given = [(sql, value) for sql, value in conditions if value is not None]
        return [sql for sql, _ in given], [value for _, value in given]


# --- tasks --------------------------------------------------------------------------------------


def tasks(
    connection: sqlite3.Connection, which: TaskFilter, limit: int, cursor: str | None
) -> Page[Task]:
    """Tasks, newest first."""
    conditions, values = which.where()
    if cursor is not None:
        conditions.append("(started_ns, id) < (?, ?)")
        values += [int(part) for part in _position(cursor, digits=10)]
    rows = connection.execute(
        f"SELECT started_ns, id, {_columns(Task)} FROM tasks"
        f" {_where(conditions)} ORDER BY started_ns DESC, id DESC LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    page = [_task(row[2:]) for row in rows[:limit]]
    return Page(page, f"{rows[limit - 1][0]}.{rows[limit - 1][1]}" if len(rows) > limit else None)


def count_tasks(connection: sqlite3.Connection, which: TaskFilter) -> int:
    """How many tasks there are on all pages."""
    conditions, values = which.where()
    found = connection.execute(f"SELECT count(*) FROM tasks {_where(conditions)}", values)
    return int(found.fetchone()[0])


def find_task(connection: sqlite3.Connection, text: str) -> str:
    """The id of the task that `text` means: an id, the unique beginning of one, or ``latest``.

    Raises:
        TaskNotFound: there is none, or several; names them or near ones.
    """
    text = text.strip()
    if text == "latest":
        row = connection.execute(
            "SELECT task_id FROM tasks ORDER BY kind <> 'agent', started_ns DESC, id DESC LIMIT 1"
        ).fetchone()
        if row is None:
            raise TaskNotFound("there is no task in this history yet")
        return str(row[0])
    wanted = text.lower()
    found = _beginning_with(connection, "tasks", "task_id", wanted) if wanted else []
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if found:
        raise TaskNotFound(f"{_several(connection, found, 'tasks')} begin with {text!r}: give more")
    raise TaskNotFound(f"there is no task {text!r}{_near(connection, wanted)}")


def task(connection: sqlite3.Connection, text: str) -> Task:
    """The task that `text` means; see `find_task`."""
    row = connection.execute(
        f"SELECT {_columns(Task)} FROM tasks WHERE task_id = ?", (find_task(connection, text),)
    ).fetchone()
    return _task(row)


def short_ids(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, str]:
    """The shortest beginning of each task id that no other id has, of at least 8 digits."""
    short = {}
    for own in ids:
        neighbours = connection.execute(
            "SELECT (SELECT max(task_id) FROM tasks WHERE task_id < ?1),"
            " (SELECT min(task_id) FROM tasks WHERE task_id > ?1)",
            (own,),
        ).fetchone()
        shared = max((_shared(own, other) for other in neighbours if other), default=0)
        # A whole id is found although it begins others: TRACE_ID-SPAN_ID.
        short[own] = own[: max(SHORT_ID, shared + 1)]
    return short


# --- steps --------------------------------------------------------------------------------------


def steps(
    connection: sqlite3.Connection, task_id: str, limit: int, cursor: str | None, *, content: bool
) -> Page[Step]:
    """The steps of a task in order; without `content`, prompts and decisions are None."""
    values: list[Any] = [find_task(connection, task_id)]
    after = ""
    if cursor is not None:
        index, step_id = _position(cursor)
        after = "AND (step_index, step_id) > (?, ?)"
        values += [int(index), step_id]
    rows = connection.execute(
        f"SELECT {_columns(Step, without=_SAID)} FROM steps WHERE task_id = ? {after}"
        " ORDER BY step_index, step_id LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    page = [_row(Step, row) for row in rows[:limit]]
    following = f"{page[-1].step_index}.{page[-1].step_id}" if len(rows) > limit else None
    if content:
        page = _with_content(connection, page)
    return Page(page, following)


def step(connection: sqlite3.Connection, text: str, task_id: str | None = None) -> Step:
    """The step with this id, or whose id alone begins so.

    Raises:
        TaskNotFound: there is none, or several.
    """
    task_id, step_id = find_step(connection, text, task_id)
    row = connection.execute(
        f"SELECT {_columns(Step, without=_SAID)} FROM steps WHERE task_id = ? AND step_id = ?",
        (task_id, step_id),
    ).fetchone()
    return _with_content(connection, [_row(Step, row)])[0]


def find_step(
    connection: sqlite3.Connection, text: str, task_id: str | None = None
) -> tuple[str, str]:
    """(task id, step id) of the step that `text` means."""
    wanted = text.strip().lower()
    found = connection.execute(
        "SELECT task.task_id, own.span_id FROM _steps AS step"
        " JOIN _spans AS own ON own.id = step.span JOIN tasks AS task ON task.id = step.task"
        " WHERE own.span_id >= ?1 AND own.span_id < ?2 AND (?3 IS NULL OR task.task_id = ?3)"
        " LIMIT 10",
        (wanted, _after(wanted), task_id),
    ).fetchall()
    exact = [row for row in found if row[1] == wanted]
    if len(exact or found) == 1:
        owner, step_id = (exact or found)[0]
        return owner, step_id
    where = f" in task {task_id}" if task_id else ""
    if not found:
        raise TaskNotFound(f"there is no step {text!r}{where}")
    named = ", ".join(f"{step_id} of task {owner}" for owner, step_id in found[:_NEAR])
    raise TaskNotFound(f"several steps{where} have the id {text!r}, or begin so: {named}")


def steps_with_index(connection: sqlite3.Connection, task_id: str, index: int) -> list[Step]:
    """The steps with this number; several when the agent gave a number twice."""
    rows = connection.execute(
        f"SELECT {_columns(Step, without=_SAID)} FROM steps WHERE task_id = ? AND step_index = ?"
        " ORDER BY step_id",
        (task_id, index),
    ).fetchall()
    return _with_content(connection, [_row(Step, row) for row in rows])


def step_outcomes(
    connection: sqlite3.Connection, task_id: str
) -> tuple[dict[str, int], list[Step]]:
    """(steps by status, the steps that failed or were interrupted without their content)."""
    counts = connection.execute(
        "SELECT step.status, count(*) FROM _steps AS step JOIN tasks AS task ON task.id = step.task"
        " WHERE task.task_id = ? GROUP BY step.status ORDER BY count(*) DESC",
        (task_id,),
    ).fetchall()
    rows = connection.execute(
        f"SELECT {_columns(Step, without=_SAID)} FROM steps WHERE task_id = ?"
        " AND status IN ('failed', 'interrupted') ORDER BY step_index, step_id",
        (task_id,),
    ).fetchall()
    return dict(counts), [_row(Step, row) for row in rows]


def _with_content(connection: sqlite3.Connection, page: list[Step]) -> list[Step]:
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
            own = replace(own, prompt=texts.said(*row[:2]), decision=texts.said(*row[2:]))
        full.append(own)
    return full


# --- what belongs to steps ----------------------------------------------------------------------


def model_calls(
    connection: sqlite3.Connection, task_id: str, step_id: str | None, *, content: bool
) -> list[ModelCall]:
    """The model calls of a task or of one of its steps, in the order of their start."""
    light = _columns(ModelCall, without=_SAID)
    calls = [
        _row(ModelCall, row)
        for row in connection.execute(
            f"SELECT {light} FROM model_calls WHERE task_id = ?1 AND (?2 IS NULL OR step_id = ?2)"
            " ORDER BY started_at, span_id, ordinal",
            (task_id, step_id),
        )
    ]
    if not content:
        return calls
    texts = Texts(connection)
    full = []
    for call in calls:
        row = connection.execute(
            "SELECT call.prompt_node, call.prompt_text, call.decision_node, call.decision_text"
            " FROM tasks AS task JOIN _spans AS own ON own.trace = task.trace AND own.span_id = ?"
            " JOIN _model_calls AS call ON call.span = own.id AND call.ordinal = ?"
            " WHERE task.task_id = ?",
            (call.span_id, call.ordinal, task_id),
        ).fetchone()
        full.append(replace(call, prompt=texts.said(*row[:2]), decision=texts.said(*row[2:])))
    return full


def tool_calls(connection: sqlite3.Connection, task_id: str, step_id: str | None) -> list[ToolCall]:
    """The tool calls of a task or of one of its steps, in the order of their start."""
    rows = connection.execute(
        f"SELECT {_columns(ToolCall)} FROM tool_calls"
        " WHERE task_id = ?1 AND (?2 IS NULL OR step_id = ?2) ORDER BY started_at, span_id",
        (task_id, step_id),
    )
    return [_row(ToolCall, row) for row in rows]


def screenshots(
    connection: sqlite3.Connection, task_id: str, step_id: str | None
) -> list[Screenshot]:
    """The pictures of a task or of one of its steps, in the order they were taken."""
    rows = connection.execute(
        f"SELECT {_columns(Screenshot)} FROM screenshots"
        " WHERE task_id = ?1 AND (?2 IS NULL OR step_id = ?2) ORDER BY captured_at, id",
        (task_id, step_id),
    )
    return [_row(Screenshot, row) for row in rows]


def timeline(
    connection: sqlite3.Connection,
    history_id: str,
    after: int,
    limit: int,
    task_id: str | None = None,
) -> list[TimelineRecord]:
    """What happened after `after`, in the order of commits; at most `limit` records."""
    rows = connection.execute(
        "SELECT seq, task_id, step_id, at, event, detail FROM timeline"
        " WHERE seq > ?1 AND (?2 IS NULL OR task_id = ?2) ORDER BY seq LIMIT ?3",
        (after, task_id, limit),
    )
    return [TimelineRecord(*row, f"{history_id}.{row[0]}") for row in rows]


def stats(connection: sqlite3.Connection) -> Stats:
    """What the history holds."""

    def one(sql: str) -> Any:
        return connection.execute(sql).fetchone()

    by_status = connection.execute(
        "SELECT status, count(*) FROM tasks WHERE kind = 'agent' GROUP BY status"
    ).fetchall()
    return Stats(
        tasks=dict(by_status),
        other_tasks=one("SELECT count(*) FROM tasks WHERE kind <> 'agent'")[0],
        steps=one("SELECT count(*) FROM _steps")[0],
        model_calls=one("SELECT count(*) FROM _model_calls WHERE twin_of IS NULL")[0],
        tool_calls=one("SELECT count(*) FROM _tool_calls")[0],
        screenshots=one("SELECT count(*) FROM screenshots")[0],
        spans=one("SELECT count(*) FROM _spans")[0],
        input_tokens=one("SELECT coalesce(sum(input_tokens), 0) FROM tasks")[0],
        output_tokens=one("SELECT coalesce(sum(output_tokens), 0) FROM tasks")[0],
        first_task_at=one("SELECT min(started_at) FROM tasks")[0],
        last_task_at=one("SELECT max(started_at) FROM tasks")[0],
    )


# --- helpers ------------------------------------------------------------------------------------


def _columns(kind: type[Any], *, without: frozenset[str] = frozenset()) -> str:
    names = (field.name for field in fields(kind))
    return ", ".join(f"NULL AS {name}" if name in without else name for name in names)


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _row(kind: type[Row], row: tuple[Any, ...]) -> Row:
    return kind(*row)


def _task(row: tuple[Any, ...]) -> Task:
    found = _row(Task, row)
    return replace(found, pinned=bool(found.pinned))


def _position(cursor: str, *, digits: int = 16) -> tuple[str, str]:
    found = _CURSOR.fullmatch(cursor.strip())
    if found is None or (digits == 10 and not found[2].isdecimal()):
        raise SettingsError(
            f"{cursor!r} is no cursor of such a list: use the one that the page before gave"
        )
    return found[1], found[2]


def _after(prefix: str) -> str:
    """The least text that is greater than every text that begins with `prefix`."""
    return f"{prefix}\U0010ffff"


def _shared(one: str, other: str) -> int:
    """How many characters two texts share at their beginning."""
    for position, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            return position
    return min(len(one), len(other))


def _beginning_with(
    connection: sqlite3.Connection, table: str, column: str, prefix: str
) -> list[str]:
    rows = connection.execute(
        f"SELECT {column} FROM {table} WHERE {column} >= ? AND {column} < ? ORDER BY 1 LIMIT 1000",
        (prefix, _after(prefix)),
    )
    return [row[0] for row in rows]


def _several(connection: sqlite3.Connection, found: list[str], what: str) -> str:
    short = short_ids(connection, found[:_NEAR])
    named = ", ".join(short.values()) + (", …" if len(found) > _NEAR else "")
    return f"{len(found)} {what} ({named})"


def _near(connection: sqlite3.Connection, wanted: str) -> str:
    """What is said about an id that is not there."""
    span = connection.execute(
        "SELECT task.task_id FROM _spans AS own JOIN tasks AS task ON task.trace = own.trace"
        " WHERE own.span_id = ? LIMIT 1",
        (wanted,),
    ).fetchone()
    if span is not None:
        return f", but a span of task {span[0]} has this id"
    newest = [
        row[0]
        for row in connection.execute(
            "SELECT task_id FROM tasks ORDER BY kind <> 'agent', started_ns DESC, id DESC LIMIT ?",
            (_NEWEST,),
        )
    ]
    if not newest:
        return ": there is no task in this history yet"
    # Compared over the digits that were given: eight typed wrong resemble no whole id.
    heads = {own[: max(len(wanted), 4)]: own for own in reversed(newest)}
    near = [heads[head] for head in difflib.get_close_matches(wanted, heads, n=_NEAR, cutoff=0.7)]
    named = short_ids(connection, near or newest[:_NEAR])
    return f"; {'near' if near else 'the newest'}: {', '.join(named.values())}"
