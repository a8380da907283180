# SPDX-License-Identifier: Apache-2.0
"""Steps of a list, part by part in either direction, without prompts and results."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.errors import SettingsError, TaskNotFound
from otel_taskhistory.store.columns import columns, from_row
from otel_taskhistory.store.gone import Gone, gone
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.overview.tasks import row_of
from otel_taskhistory.store.overview.texts import Messages, head, value
from otel_taskhistory.store.times import iso, milliseconds
from otel_taskhistory.store.views import Screenshot, Step

BRIEF_BYTES: Final = 400
"""Of what a step in a list said, called or failed with."""
STEPS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step of a list: without prompt, decision and results; its texts may be cut."""

    step: Step
    said: str
    """The beginning of what its decision says in words; empty when it says nothing."""
    tools: int
    """How many tool calls it has."""
    failed_tools: int
    picture: Screenshot | None
    """The one to show: its last screenshot, else one that the model saw or made."""

    @property
    def place(self) -> str:
        """Its place in the list, for a cursor."""
        return f"{self.step.step_index}.{self.step.step_id}"


@dataclass(frozen=True, slots=True)
class StepList:
    """A part of the steps of a task, in order; the cursors are None at either end."""

    lines: tuple[StepLine, ...]
    before: str | None
    after: str | None
    total: int
    agent: str | None
    """Of the task."""


_STEP: Final = """
SELECT step.id, own.span_id, step.step_index, step.name, step.agent, step.status, step.attempt,
    step.started_ns, step.ended_ns, step.model, step.input_tokens, step.output_tokens,
    step.cached_tokens, step.reasoning_tokens, step.cost, step.error IS NOT NULL, step.error_type,
    tool.id, tool.name, tool.arguments IS NOT NULL, tool.arguments_content,
    (SELECT count(*) FROM _tool_calls AS own_call
        WHERE own_call.step = step.id AND own_call.twin_of IS NULL),
    (SELECT count(*) FROM _tool_calls AS own_call WHERE own_call.step = step.id
        AND own_call.twin_of IS NULL AND own_call.status = 'failed'),
    call.decision_node, call.decision_text
FROM _steps AS step JOIN _spans AS own ON own.id = step.span
LEFT JOIN _tool_calls AS tool ON tool.id = step.first_tool
LEFT JOIN _model_calls AS call ON call.id = step.last_call
"""
STEPS_AFTER: Final = f"""{_STEP}
WHERE step.task = :task AND step.step_index >= :index
    AND (step.step_index > :index OR own.span_id {{}} :step)
ORDER BY step.step_index, own.span_id LIMIT :limit
"""
STEPS_UNTIL: Final = f"""{_STEP}
WHERE step.task = :task AND step.step_index <= :index
    AND (step.step_index < :index OR own.span_id < :step)
ORDER BY step.step_index DESC, own.span_id DESC LIMIT :limit
"""
ONE_STEP: Final = f"{_STEP} WHERE step.span = ?"
_SPAN_OF_STEP: Final = """
SELECT step.span, step.step_index FROM tasks AS task
JOIN _spans AS own ON own.trace = task.trace AND own.span_id = ?
JOIN _steps AS step ON step.span = own.id AND step.task = task.id WHERE task.task_id = ?
"""
PICTURE: Final = f"""
SELECT {columns(Screenshot)} FROM screenshots WHERE task_id = ? AND step_id = ?
ORDER BY status = 'ok' DESC, role = 'screenshot' DESC, id DESC LIMIT 1
"""
FIRST_INDEX, FIRST_ID = -(2**63), ""
CURSOR: Final = re.compile(r"(before:|from:|)(-?[0-9]{1,19})\.([^\s]{1,64})")


def step_list(
    connection: sqlite3.Connection, task_id: str, cursor: str | None, limit: int = STEPS_AT_ONCE
) -> StepList:
    """Steps of a task (a whole id).

    Args:
        cursor: None for the first ones; ``INDEX.ID`` for those after this step, ``from:INDEX.ID``
            for it and those after, ``before:INDEX.ID`` for those before.

    Raises:
        SettingsError: that is no cursor.
    """
    left = gone(connection)
    row = row_of(connection, find_task(connection, task_id))
    task_id, trace_id, total, agent = connection.execute(
        "SELECT task_id, trace_id, step_count, agent FROM tasks WHERE id = ?", (row,)
    ).fetchone()
    found = CURSOR.fullmatch(cursor) if cursor is not None else None
    if cursor is not None and (found is None or abs(int(found[2])) >= 2**63):
        raise SettingsError(f"cursor={cursor!r} is none of this list")
    how = "" if found is None else found[1]
    position = (FIRST_INDEX, FIRST_ID) if found is None else (int(found[2]), found[3])
    if how == "before:":
        rows = rows_near(connection, STEPS_UNTIL, row, position, limit + 1)
        more, rows = len(rows) > limit, rows[:limit][::-1]
    else:
        sql = STEPS_AFTER.format(">=" if how == "from:" else ">")
        rows = rows_near(connection, sql, row, position, limit + 1)
        more, rows = len(rows) > limit, rows[:limit]
    lines = tuple(step_line(connection, found, task_id, trace_id, left) for found in rows)
    if not lines:
        return StepList((), None, None, total, agent)
    first, last = lines[0].place, lines[-1].place
    if how == "before:":
        return StepList(lines, f"before:{first}" if more else None, last, total, agent)
    begins = cursor is None or not rows_near(connection, STEPS_UNTIL, row, _position(first), 1)
    return StepList(
        lines, None if begins else f"before:{first}", last if more else None, total, agent
    )


def steps_around(
    connection: sqlite3.Connection, task_id: str, step_id: str, limit: int = STEPS_AT_ONCE
) -> StepList:
    """The part of the list with this step in it, and a few before it.

    Raises:
        TaskNotFound: the task has no such step.
    """
    _, index = span_of_step(connection, task_id, step_id)
    row = row_of(connection, task_id)
    earlier = rows_near(connection, STEPS_UNTIL, row, (index, step_id), limit // 5)
    if len(earlier) < limit // 5:
        return step_list(connection, task_id, None, limit)
    return step_list(connection, task_id, f"from:{earlier[-1][2]}.{earlier[-1][1]}", limit)


_AT_AN_END: Final = """
SELECT own.span_id FROM _steps AS step JOIN _spans AS own ON own.id = step.span
WHERE step.task = ? ORDER BY step.step_index {0}, own.span_id {0} LIMIT 1
"""


def first_step(connection: sqlite3.Connection, task_id: str) -> str | None:
    """The id of the first step of a task; None when it has none."""
    return _step_at(connection, task_id, "ASC")


def last_step(connection: sqlite3.Connection, task_id: str) -> str | None:
    """The id of the last step of a task; None when it has none."""
    return _step_at(connection, task_id, "DESC")


def _step_at(connection: sqlite3.Connection, task_id: str, order: str) -> str | None:
    row = row_of(connection, task_id)
    found = connection.execute(_AT_AN_END.format(order), (row,)).fetchone()
    return None if found is None else found[0]


def rows_near(
    connection: sqlite3.Connection, sql: str, task: int, place: tuple[int, str], limit: int
) -> list[Any]:
    """What `STEPS_AFTER` or its like finds from a place on: (index, id) of a step."""
    index, step_id = place
    values = {"task": task, "index": index, "step": step_id, "limit": limit}
    return connection.execute(sql, values).fetchall()


def _position(place: str) -> tuple[int, str]:
    index, _, step_id = place.partition(".")
    return int(index), step_id


def span_of_step(connection: sqlite3.Connection, task_id: str, step_id: str) -> tuple[int, int]:
    """(row of the span, index) of a step."""
    found = connection.execute(_SPAN_OF_STEP, (step_id, task_id)).fetchone()
    if found is None:
        raise TaskNotFound(f"task {task_id} has no step {step_id!r}")
    return found[0], found[1]


def step_line(
    connection: sqlite3.Connection, row: tuple[Any, ...], task_id: str, trace_id: str, left: Gone
) -> StepLine:
    """The step of a row of `STEPS_AFTER` and its like."""
    (
        number, step_id, index, name, agent, status, attempt, started, ended, model, *used,
        has_error, error_type, tool, tool_name, inline, content, tools, failed_tools, node, text,
    ) = row  # fmt: skip
    error = head(connection, "_steps", "error", number, BRIEF_BYTES) if has_error else None
    arguments = None
    if tool is not None:
        arguments = value(
            connection, "_tool_calls", tool, "arguments", inline, content, BRIEF_BYTES
        )
    step = Step(
        step_id=step_id, task_id=task_id, trace_id=trace_id, step_index=index, name=name,
        agent=agent, status=status, attempt=attempt, started_at=iso(started),
        ended_at=None if ended is None else iso(ended), duration_ms=milliseconds(started, ended),
        model=model, prompt=None, decision=None, tool_name=tool_name, tool_arguments=arguments,
        tool_result=None, result=None, error=error, error_type=error_type, screenshot=None,
        input_tokens=used[0], output_tokens=used[1], cached_tokens=used[2],
        reasoning_tokens=used[3], cost=used[4],
    )  # fmt: skip
    picture = connection.execute(PICTURE, (task_id, step_id)).fetchone()
    return StepLine(
        step=left.of_span(step, trace_id, step_id),
        said=_said(connection, node, text),
        tools=tools,
        failed_tools=failed_tools,
        picture=None if picture is None else from_row(Screenshot, picture),
    )


def _said(connection: sqlite3.Connection, node: int | None, text: int | None) -> str:
    """The first words of a decision."""
    messages = Messages(connection, BRIEF_BYTES)
    if text is not None:
        return messages.plain(text)
    if node is None:
        return ""
    (content,) = connection.execute("SELECT content FROM _nodes WHERE id = ?", (node,)).fetchone()
    try:
        message = json.loads(messages.message(content))
        parts = message.get("parts") or [{"type": "text", "content": message.get("content")}]
        words = [part.get("content") for part in parts if part.get("type") == "text"]
    except (ValueError, AttributeError, TypeError, RecursionError):  # no message of ours
        return ""
    return next((word for word in words if isinstance(word, str) and word.strip()), "")
