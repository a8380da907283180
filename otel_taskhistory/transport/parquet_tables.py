# SPDX-License-Identifier: Apache-2.0
"""The tables that are written as Parquet: their columns and types, and their rows, task by task.

They are the public tables of these names, with what is needed to join the histories of many
machines. ``agent`` is missing: it is the folder. Statuses are as of now, as everywhere.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final, Literal

from otel_taskhistory import semconv
from otel_taskhistory.spans.encode import decode, escape_surrogates
from otel_taskhistory.store.columns import columns, from_row, said
from otel_taskhistory.store.gone import Gone, gone
from otel_taskhistory.store.rebuild import Texts
from otel_taskhistory.store.times import iso, milliseconds
from otel_taskhistory.store.views import ModelCall, Step, Task, ToolCall

Kind = Literal["text", "whole", "number", "yes_no", "time"]
Row = dict[str, Any]

BYTES: Final = 8 * 2**20
"""Text that `rows_of` reads at a time, about; one row may be larger by itself."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its name, and its columns with what they hold.

    Attributes:
        name: of the public table, and of the folder.
        columns: in their order. ``time`` is UTC in microseconds, ``whole`` has 64 bit.
    """

    name: str
    columns: tuple[tuple[str, Kind], ...]

    def schema(self, arrow: Any) -> Any:
        """The columns as a schema of ``pyarrow``, which is given: it is an extra."""
        types = {
            "text": arrow.string(),
            "whole": arrow.int64(),
            "number": arrow.float64(),
            "yes_no": arrow.bool_(),
            "time": arrow.timestamp("us", tz="UTC"),
        }
        return arrow.schema([(name, types[kind]) for name, kind in self.columns])


# --- columns ------------------------------------------------------------------------------------

_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("started_at", "ended_at"), "time"),
    **dict.fromkeys(("duration_ms", "cost"), "number"),
    **dict.fromkeys(("step_count", "span_count", "dropped", "attempt"), "whole"),
    **dict.fromkeys(("step_index", "ordinal"), "whole"),
    **dict.fromkeys(
        ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"), "whole"
    ),
    "pinned": "yes_no",
}
"""What is not text."""

_RENAMED: Final = {("steps", "agent"): "step_agent", ("tasks", "agent"): "agent_name"}
"""The folder is called by the agent of the task; a step may be another agent's."""

_OF_TASK: Final = ("agent_name",)
_ORIGIN: Final = (
    "history_id",
    "owner",
    "service_name",
    "service_instance_id",
    "host_name",
    "resource",
)
"""Where a row comes from; ``resource`` holds all attributes of the resource, as JSON."""


def _table(name: str, row: type[Any]) -> Table:
    names = [_RENAMED.get((name, field.name), field.name) for field in fields(row)]
    names += [more for more in (*_OF_TASK, *_ORIGIN) if more not in names]
    return Table(name, tuple((column, _KINDS.get(column, "text")) for column in names))


TABLES: Final = (
    _table("tasks", Task),
    _table("steps", Step),
    _table("model_calls", ModelCall),
    _table("tool_calls", ToolCall),
)


# --- rows ---------------------------------------------------------------------------------------

# As the views of these names, but by the numbers behind them, so that a page is found by its key.
_CALL: Final = """
JOIN _spans AS own ON own.id = call.span
LEFT JOIN _steps AS step ON step.id = call.step
LEFT JOIN _spans AS step_span ON step_span.id = step.span
"""
_SAID: Final = "call.prompt_node, call.prompt_text, call.decision_node, call.decision_text"
_STEPS: Final = f"""
SELECT step.id, own.span_id, {_SAID},
    own.span_id, :task_id, substr(:task_id, 1, 32), step.step_index, step.name, step.agent,
    step.status, step.attempt, step.started_ns, step.ended_ns, NULL, step.model, NULL, NULL,
    tool.name,
    coalesce(tool.arguments, (SELECT text FROM _contents WHERE id = tool.arguments_content)),
    coalesce(tool.result, (SELECT text FROM _contents WHERE id = tool.result_content)),
    coalesce(step.result, (SELECT text FROM _contents WHERE id = step.result_content)),
    step.error, step.error_type, (SELECT path FROM screenshots WHERE id = step.screenshot),
    step.input_tokens, step.output_tokens, step.cached_tokens, step.reasoning_tokens, step.cost
FROM _steps AS step
JOIN _spans AS own ON own.id = step.span
LEFT JOIN _model_calls AS call ON call.id = step.last_call
LEFT JOIN _tool_calls AS tool ON tool.id = step.first_tool
WHERE step.task = :task AND step.id > :after ORDER BY step.id LIMIT :limit
"""
_MODEL_CALLS: Final = f"""
SELECT call.id, own.span_id, {_SAID},
    step_span.span_id, :task_id, own.span_id, call.ordinal, call.attempt, call.model, NULL, NULL,
    call.finish_reason, call.input_tokens, call.output_tokens, call.cached_tokens,
    call.reasoning_tokens, call.cost, call.status, call.error, call.started_ns, call.ended_ns, NULL
FROM _model_calls AS call {_CALL}
WHERE call.task = :task AND call.twin_of IS NULL AND call.id > :after ORDER BY call.id LIMIT :limit
"""
_TOOL_CALLS: Final = f"""
SELECT call.id, own.span_id, NULL, NULL, NULL, NULL,
    call.call_id, step_span.span_id, :task_id, own.span_id, call.name,
    coalesce(call.arguments, (SELECT text FROM _contents WHERE id = call.arguments_content)),
    coalesce(call.result, (SELECT text FROM _contents WHERE id = call.result_content)),
    call.status, call.error, call.started_ns, call.ended_ns, NULL
FROM _tool_calls AS call {_CALL}
WHERE call.task = :task AND call.twin_of IS NULL AND call.id > :after ORDER BY call.id LIMIT :limit
"""
_QUERIES: Final[dict[str, tuple[type[Any], str]]] = {
    "steps": (Step, _STEPS),
    "model_calls": (ModelCall, _MODEL_CALLS),
    "tool_calls": (ToolCall, _TOOL_CALLS),
}
_BEFORE: Final = 6
"""Columns that come before those of the row: its number, its span, and where it says what."""


def rows_of(
    connection: sqlite3.Connection,
    *,
    table: Table,
    task_id: str,
    after: int,
    limit: int,
    prompts: bool,
) -> tuple[list[Row], int | None]:
    """Some rows of a table that belong to a task, without their origin, in the order of their keys.

    Args:
        task_id: whole.
        after: the key behind which to go on; 0 for the first.
        limit: rows at most; fewer when they are large.
        prompts: read the column ``prompt``, which is None else.

    Returns:
        The rows, and where to go on; None when there are no more.
    """
    task = connection.execute("SELECT id FROM tasks WHERE task_id = ?", (task_id,)).fetchone()
    if task is None:
        return [], None
    left = gone(connection)
    if table.name == "tasks":
        return [_shaped("tasks", _task(connection, left, task_id))], None
    kind, sql = _QUERIES[table.name]
    wanted = frozenset({"prompt", "decision"} if prompts else {"decision"})
    texts = Texts(connection)
    rows: list[Row] = []
    size = 0
    values = {"task_id": task_id, "task": task[0], "after": after, "limit": limit}
    found = connection.execute(sql, values)
    try:
        for row in found:
            after, span_id = row[:2]
            own = _timed(kind, from_row(kind, row[_BEFORE:]))
            shaped = _shaped(table.name, left.of_span(own, task_id[:32], span_id))
            if "decision" in shaped:
                asked, answered = said(texts, row[2:_BEFORE], wanted)
                shaped |= {"prompt": asked, "decision": answered}
            rows.append(shaped)
            size += size_of(shaped)
            if size >= BYTES:
                return rows, after
    finally:
        found.close()
    return rows, after if len(rows) == limit else None


def size_of(row: Row) -> int:
    """Characters of text in a row."""
    return sum(len(value) for value in row.values() if isinstance(value, str))


def _task(connection: sqlite3.Connection, left: Gone, task_id: str) -> Task:
    row = connection.execute(
        f"SELECT {columns(Task)} FROM tasks WHERE task_id = ?", (task_id,)
    ).fetchone()
    return left.task(from_row(Task, row))


def _timed(kind: type[Any], row: Any) -> Any:
    """A row whose times are ns, with those that readers are given."""
    values = {field.name: getattr(row, field.name) for field in fields(kind)}
    started, ended = values["started_at"], values["ended_at"]
    values["started_at"] = iso(started)
    values["ended_at"] = None if ended is None else iso(ended)
    values["duration_ms"] = milliseconds(started, ended)
    return kind(**values)


def _shaped(table: str, row: Any) -> Row:
    """A row by the names and in the types of the columns."""
    shaped: Row = {}
    for field in fields(row):
        value = getattr(row, field.name)
        name = _RENAMED.get((table, field.name), field.name)
        if value is not None:
            match _KINDS.get(name):
                case "time":
                    value = _moment(value)
                case "yes_no":
                    value = bool(value)
        shaped[name] = value
    return shaped


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # not written by us
        return None


# --- where it comes from ------------------------------------------------------------------------

_RESOURCE: Final = """
SELECT task.agent, coalesce(
    (SELECT resource FROM _spans WHERE id = task.root),
    (SELECT resource FROM _spans AS own WHERE own.task = task.id
        ORDER BY CAST(own.start_ns AS INTEGER), own.span_id LIMIT 1))
FROM tasks AS task WHERE task.task_id = ?
"""
_NAMED: Final = {
    "service_name": semconv.SERVICE_NAME,
    "service_instance_id": "service.instance.id",
    "host_name": "host.name",
}


def origin_of(connection: sqlite3.Connection, task_id: str) -> Row:
    """The agent of a task, and what the resource of its first span says of where it ran.

    Returns:
        ``agent_name``, ``service_name``, ``service_instance_id``, ``host_name`` and ``resource``;
        nothing at all when there is no such task.
    """
    row = connection.execute(_RESOURCE, (task_id,)).fetchone()
    if row is None:
        return {}
    agent, resource = row
    attributes = {} if resource is None else _attributes(Texts(connection).content(resource))
    found: Row = {"agent_name": agent}
    for column, name in _NAMED.items():
        found[column] = _text(attributes[name]) if name in attributes else None
    whole = json.dumps(attributes, ensure_ascii=False) if attributes else None
    found["resource"] = None if whole is None else escape_surrogates(whole)
    return found


def _attributes(text: str) -> dict[str, Any]:
    """The attributes of a resource, each as the ledger has it."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):  # not written by us
        return {}
    attributes = said.get("attributes") if isinstance(said, dict) else None
    return attributes if isinstance(attributes, dict) else {}


def _text(encoded: Any) -> str:
    """Text and numbers as they are, anything else as the ledger has it."""
    text = json.dumps(encoded, ensure_ascii=False)
    value = decode(text)
    return escape_surrogates(value if isinstance(value, str) else text)


def places_of(
    connection: sqlite3.Connection, task_ids: Sequence[str]
) -> dict[str, tuple[str, str | None]]:
    """By task its day (UTC, ``2026-11-30``) and its agent; those that are gone are left out."""
    found = {}
    for task_id in task_ids:
        row = connection.execute(
            "SELECT started_ns, agent FROM tasks WHERE task_id = ?", (task_id,)
        ).fetchone()
        if row is not None:
            found[task_id] = (iso(row[0])[:10], row[1])
    return found
