# SPDX-License-Identifier: Apache-2.0
"""Where a value stands: the rows that hold it, and the task, step and record that tell of a row."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.store.search.documents import What
from otel_taskhistory.store.times import iso

USES: Final = 10_000
"""Lists of messages that are followed to count how often one was sent."""
GOAL: Final = 300
"""Characters of a goal that name a task, about."""


@dataclass(frozen=True, slots=True)
class Use:
    """A row that holds a value; sorted, the first one is where it came first."""

    at_ns: int
    rank: int
    what: What
    row: int
    field: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row belongs; the facts of a `Hit`."""

    task_id: str
    goal: str | None
    step_id: str | None
    step_index: int | None
    seq: int | None
    at: str


_CONTENT: Final = """
WITH above AS (
    SELECT :content AS id
    UNION SELECT content FROM _content_parts WHERE child = :content
    UNION SELECT upper.content FROM _content_parts AS lower
        JOIN _content_parts AS upper ON upper.child = lower.content WHERE lower.child = :content
)
"""

_HELD: Final = f"""{_CONTENT}
SELECT coalesce(ended_ns, started_ns), 1, {int(What.TOOL_CALL)}, call.id, 'result'
FROM above JOIN _tool_calls AS call ON call.result_content = above.id
UNION ALL
SELECT started_ns, 2, {int(What.TOOL_CALL)}, call.id, 'arguments'
FROM above JOIN _tool_calls AS call ON call.arguments_content = above.id
UNION ALL
SELECT coalesce(ended_ns, started_ns), 3, {int(What.STEP)}, step.id, 'result'
FROM above JOIN _steps AS step ON step.result_content = above.id
UNION ALL
SELECT coalesce(ended_ns, started_ns), 0, {int(What.MODEL_CALL)}, call.id, 'decision'
FROM above JOIN _model_calls AS call ON call.decision_text = above.id
UNION ALL
SELECT started_ns, 4, {int(What.MODEL_CALL)}, call.id, 'prompt'
FROM above JOIN _model_calls AS call ON call.prompt_text = above.id
"""

_LISTED: Final = f"""
WITH RECURSIVE {_CONTENT.strip().removeprefix("WITH ")},
lists (node) AS (
    SELECT node.id FROM above JOIN _nodes AS node ON node.content = above.id
    UNION
    SELECT longer.id FROM lists JOIN _nodes AS longer ON longer.parent = lists.node
    ORDER BY 1 LIMIT {USES}
)
SELECT coalesce(call.ended_ns, call.started_ns), 0, {int(What.MODEL_CALL)}, call.id, 'decision'
FROM lists JOIN _model_calls AS call ON call.decision_node = lists.node
UNION ALL
SELECT call.started_ns, 4, {int(What.MODEL_CALL)}, call.id, 'prompt'
FROM lists JOIN _model_calls AS call ON call.prompt_node = lists.node
"""


def uses_of(connection: sqlite3.Connection, content: int) -> list[Use]:
    """The rows that hold a value, by itself or within a message; the first one first."""
    found = {
        Use(at, rank, What(what), row, field)
        for sql in (_HELD, _LISTED)
        for at, rank, what, row, field in connection.execute(sql, {"content": content}).fetchall()
    }
    return sorted(found, key=lambda use: (use.at_ns, use.rank, use.row))


_GOAL: Final = f"substr(task.goal, 1, {2 * GOAL})"

_TASK_PLACE: Final = f"""
SELECT task.task_id, {_GOAL}, NULL, NULL,
    (SELECT min(seq) FROM _timeline WHERE task = task.id
        AND event = iif(:field = 'goal', 'task.started', 'task.ended')),
    coalesce(iif(:field = 'goal', NULL, task.ended_at), task.started_at)
FROM tasks AS task WHERE task.id = :row
"""


def _row_place(table: str, step: str, at: str, also: str = "") -> str:
    return f"""
SELECT task.task_id, {_GOAL}, step_span.span_id, step.step_index,
    coalesce((SELECT min(seq) FROM _timeline WHERE span = step.span AND event = :event),
        (SELECT min(seq) FROM _timeline WHERE span = step.span)), {at}
FROM {table} AS own JOIN tasks AS task ON task.id = own.task
LEFT JOIN _steps AS step ON step.id = {step}
LEFT JOIN _spans AS step_span ON step_span.id = step.span
WHERE own.id = :row {also}
"""


_AT: Final = "iif(:begins, own.started_ns, coalesce(own.ended_ns, own.started_ns))"
_PLACES: Final = {
    What.STEP: _row_place("_steps", "own.id", _AT),
    # A twin holds what the call shown has too.
    What.MODEL_CALL: _row_place("_model_calls", "own.step", _AT, "AND own.twin_of IS NULL"),
    What.TOOL_CALL: _row_place("_tool_calls", "own.step", _AT, "AND own.twin_of IS NULL"),
}
_BEFORE: Final = frozenset(("name", "prompt", "arguments"))
"""What is there when its row begins; everything else comes with its end."""

_EVENTS: Final[dict[tuple[What, str], str]] = {
    (What.STEP, "name"): "step.started",
    (What.MODEL_CALL, "prompt"): "step.prompt",
    (What.MODEL_CALL, "decision"): "step.decision",
    (What.TOOL_CALL, "name"): "tool_call.started",
    (What.TOOL_CALL, "arguments"): "tool_call.started",
    (What.TOOL_CALL, "result"): "tool_call.ended",
    (What.TOOL_CALL, "error"): "tool_call.ended",
}


def place_of(connection: sqlite3.Connection, use: Use) -> Place | None:
    """Where a row belongs; None when it is in no visible task."""
    if use.what is What.TASK:
        row: Any = connection.execute(_TASK_PLACE, {"row": use.row, "field": use.field}).fetchone()
        return None if row is None else _place(row, row[5])
    event = _EVENTS.get((use.what, use.field), "step.ended")
    values = {"row": use.row, "begins": use.field in _BEFORE, "event": event}
    row = connection.execute(_PLACES[use.what], values).fetchone()
    return None if row is None else _place(row, iso(row[5]))


def _place(row: Any, at: str) -> Place:
    task_id, goal, step_id, index, seq, _ = row
    return Place(task_id, _named(goal), step_id, index, seq, at)


def _named(goal: str | None) -> str | None:
    """A goal on one line, its beginning if it is long."""
    if goal is None:
        return None
    flat = " ".join(goal.split())
    return flat if len(flat) <= GOAL else f"{flat[: GOAL - 1].rstrip()}…"


# Calls have no column for it; what their span says is with its facts.
_OF_A_CALL: Final = """
SELECT json_extract(iif(json_valid(own.facts), own.facts, 'null'), '$.error_type')
FROM {} AS call JOIN _spans AS own ON own.id = call.span WHERE call.id = ?
"""
_TYPES: Final = {
    What.TASK: "SELECT error_type FROM tasks WHERE id = ?",
    What.STEP: "SELECT error_type FROM _steps WHERE id = ?",
    What.MODEL_CALL: _OF_A_CALL.format("_model_calls"),
    What.TOOL_CALL: _OF_A_CALL.format("_tool_calls"),
}


def error_type_of(connection: sqlite3.Connection, what: What, row: int) -> str | None:
    """The type of the error of a row, as it was recorded; None when nobody said."""
    found = connection.execute(_TYPES[what], (row,)).fetchone()
    return found[0] if found is not None and isinstance(found[0], str) else None
