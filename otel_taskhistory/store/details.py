# SPDX-License-Identifier: Apache-2.0
"""What belongs to a task or to one of its steps: calls, pictures, stack traces, the timeline."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from typing import Final

from otel_taskhistory.store.columns import SAID, columns, from_row, said
from otel_taskhistory.store.gone import gone
from otel_taskhistory.store.rebuild import Texts
from otel_taskhistory.store.times import iso, milliseconds
from otel_taskhistory.store.views import ModelCall, Screenshot, TimelineRecord, ToolCall

# The views of these names, of one task or step: a view cannot be asked by the numbers behind it.
_CALL: Final = """
JOIN _spans AS own ON own.id = call.span
LEFT JOIN tasks AS task ON task.id = call.task
LEFT JOIN _steps AS step ON step.id = call.step
LEFT JOIN _spans AS step_span ON step_span.id = step.span
"""
_MODEL_CALLS: Final = f"""
SELECT call.prompt_node, call.prompt_text, call.decision_node, call.decision_text,
    step_span.span_id, task.task_id, own.span_id, call.ordinal, call.attempt, call.model,
    call.finish_reason, call.input_tokens, call.output_tokens, call.cached_tokens,
    call.reasoning_tokens, call.cost, call.status, call.error, call.started_ns, call.ended_ns
FROM _model_calls AS call {_CALL}
WHERE call.{{column}} = ? AND call.twin_of IS NULL
ORDER BY call.started_ns, own.span_id, call.ordinal
"""
_TOOL_CALLS: Final = f"""
SELECT call.call_id, step_span.span_id, task.task_id, own.span_id, call.name,
    coalesce(call.arguments, (SELECT text FROM _contents WHERE id = call.arguments_content)),
    coalesce(call.result, (SELECT text FROM _contents WHERE id = call.result_content)),
    call.status, call.error, call.started_ns, call.ended_ns
FROM _tool_calls AS call {_CALL}
WHERE call.{{column}} = ? AND call.twin_of IS NULL ORDER BY call.started_ns, own.span_id
"""


def model_calls(
    connection: sqlite3.Connection, task_id: str, step_id: str | None, without: Collection[str]
) -> list[ModelCall]:
    """The model calls of a task or of one of its steps, in the order of their start."""
    left = gone(connection)
    column, belongs_to = _belonging(connection, task_id, step_id)
    wanted = SAID.difference(without)
    texts = Texts(connection)
    calls = []
    for row in connection.execute(_MODEL_CALLS.format(column=column), (belongs_to,)).fetchall():
        facts, (started, ended) = row[4:-2], row[-2:]
        asked, answered = said(texts, row[:4], wanted)
        times = _times(started, ended)
        call = from_row(ModelCall, (*facts[:6], asked, answered, *facts[6:], *times))
        calls.append(left.of_span(call, task_id[:32], call.span_id))
    return calls


def tool_calls(connection: sqlite3.Connection, task_id: str, step_id: str | None) -> list[ToolCall]:
    """The tool calls of a task or of one of its steps, in the order of their start."""
    left = gone(connection)
    column, belongs_to = _belonging(connection, task_id, step_id)
    rows = connection.execute(_TOOL_CALLS.format(column=column), (belongs_to,)).fetchall()
    calls = [from_row(ToolCall, (*row[:-2], *_times(*row[-2:]))) for row in rows]
    return [left.of_span(call, task_id[:32], call.span_id) for call in calls]


def screenshots(
    connection: sqlite3.Connection, task_id: str, step_id: str | None
) -> list[Screenshot]:
    """The pictures of a task or of one of its steps, in the order they were taken."""
    rows = connection.execute(
        f"SELECT {columns(Screenshot)} FROM screenshots"
        " WHERE task_id = :task AND (:step IS NULL OR step_id = :step) ORDER BY captured_at, id",
        {"task": task_id, "step": step_id},
    )
    return [from_row(Screenshot, row) for row in rows]


def stack_traces(
    connection: sqlite3.Connection, task_id: str, step_id: str
) -> list[tuple[str, str]]:
    """(name of the span, stack trace) of each exception in the spans of a step."""
    spans = connection.execute(
        """
        WITH step (id, span, trace) AS (
            SELECT step.id, step.span, own.trace FROM tasks AS task
            JOIN _spans AS own ON own.trace = task.trace AND own.span_id = :step
            JOIN _steps AS step ON step.span = own.id AND step.task = task.id
            WHERE task.task_id = :task
        )
        SELECT own.name, own.events, own.templates & 2 FROM _spans AS own
        WHERE own.id IN (
            SELECT span FROM step
            UNION SELECT call.span FROM _tool_calls AS call JOIN step ON call.step = step.id
            UNION SELECT call.span FROM _model_calls AS call JOIN step ON call.step = step.id
        ) ORDER BY own.start_ns, own.span_id
        """,
        {"task": task_id, "step": step_id},
    ).fetchall()
    texts = Texts(connection)
    found = []
    for name, events, template in spans:
        for event in json.loads(texts.filled(events) if template else events):
            stack = event["attributes"].get("exception.stacktrace")
            if isinstance(stack, str):
                found.append((name, stack))
    return found


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
        " WHERE seq > :after AND (:task IS NULL OR task_id = :task) ORDER BY seq LIMIT :limit",
        {"after": after, "task": task_id, "limit": limit},
    )
    return [from_row(TimelineRecord, (*row, f"{history_id}.{row[0]}")) for row in rows]


def _belonging(
    connection: sqlite3.Connection, task_id: str, step_id: str | None
) -> tuple[str, int]:
    """By which column of a call it belongs to the task, or to the step, and that row's number."""
    if step_id is None:
        found = connection.execute("SELECT id FROM tasks WHERE task_id = ?", (task_id,))
        return "task", int(found.fetchone()[0])
    row = connection.execute(
        "SELECT step.id FROM tasks AS task"
        " JOIN _spans AS own ON own.trace = task.trace AND own.span_id = ?"
        " JOIN _steps AS step ON step.span = own.id AND step.task = task.id"
        " WHERE task.task_id = ?",
        (step_id, task_id),
    ).fetchone()
    return "step", -1 if row is None else int(row[0])


def _times(started_ns: int, ended_ns: int | None) -> tuple[str, str | None, float | None]:
    ended = None if ended_ns is None else iso(ended_ns)
    return iso(started_ns), ended, milliseconds(started_ns, ended_ns)
