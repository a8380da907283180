# SPDX-License-Identifier: Apache-2.0
"""The rows of steps: what their spans say, and what follows from their calls and pictures."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final

from otel_taskhistory.store.rows import FINAL, TOLD_ENDED, Rows
from otel_taskhistory.store.upsert import Upsert

_COLUMNS: Final = (
    *("span", "task", "step_index", "name", "agent", "status", "attempt", "started_ns"),
    *("ended_ns", "error", "error_type", "result", "result_content"),
)
_STEP: Final = Upsert("_steps", _COLUMNS, key=1, also="told")

_OF_STEP: Final = ("_steps AS step", "step.id = ?")
_OF_TRACE: Final = (
    "_spans AS owner JOIN _steps AS step ON step.span = owner.id",
    "owner.trace = ?",
)
_Where = tuple[str, str]
"""From what, and which rows of that."""

_CALLS: Final = """
SELECT call.step, call.id, call.status, call.started_ns, call.ended_ns, call.model,
    (coalesce(call.prompt_node, call.prompt_text) IS NOT NULL)
    + 2 * (coalesce(call.decision_node, call.decision_text) IS NOT NULL
        AND call.ended_ns IS NOT NULL),
    call.told, call.ordinal, call.twin_of,
    CASE WHEN call.nested THEN 2 WHEN call.span = step.span OR call.attempt > 1 THEN 0 ELSE 1 END,
    call.input_tokens, call.output_tokens, call.cached_tokens, call.reasoning_tokens, call.cost
FROM {steps} JOIN _model_calls AS call ON call.step = step.id
JOIN _spans AS own ON own.id = call.span
WHERE {where} ORDER BY call.started_ns, own.span_id, call.ordinal
"""

_TOOLS: Final = """
SELECT call.step, call.id, call.started_ns, call.ended_ns, call.status, call.told, call.name,
    call.call_id, own.span_id
FROM {steps} JOIN _tool_calls AS call ON call.step = step.id
JOIN _spans AS own ON own.id = call.span
WHERE {where} AND call.twin_of IS NULL ORDER BY call.started_ns, own.span_id
"""

_SHOTS: Final = """
SELECT step.id, shot.id, shot.captured_at, shot.told, shot.sha256, shot.bytes, shot.status
FROM {steps} JOIN screenshots AS shot ON shot.span = step.span
WHERE {where} AND shot.role = 'screenshot' ORDER BY shot.position
"""

_DERIVED: Final = (
    *("model", "last_call", "first_tool", "screenshot", "input_tokens", "output_tokens"),
    *("cached_tokens", "reasoning_tokens", "cost"),
)
_STEPS: Final = f"""
SELECT step.id, step.task, step.span, step.status, step.told, step.started_ns, step.ended_ns,
    step.step_index, {", ".join(f"step.{name}" for name in _DERIVED)}
FROM {{steps}} JOIN _spans AS own ON own.id = step.span
WHERE {{where}} ORDER BY step.started_ns, own.span_id
"""
_WRITE: Final = f"""
UPDATE _steps SET {", ".join(f"{name} = ?" for name in _DERIVED)}, told = ? WHERE id = ?
"""

_values: Final = attrgetter(*_COLUMNS)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StepFields:
    """What the span of a step says, in the order of `_COLUMNS`."""

    span: int
    task: int
    step_index: int
    name: str
    agent: str | None
    status: str
    attempt: int
    started_ns: int
    ended_ns: int | None
    error: str | None
    error_type: str | None
    result: str | None
    result_content: int | None


@dataclass(frozen=True, slots=True)
class _Call:
    id: int
    status: str
    started_ns: int
    ended_ns: int | None
    model: str | None
    known: int
    """Bits: 1 it has a prompt, 2 it has a decision."""
    told: int
    ordinal: int
    twin_of: int | None
    rank: int
    """0 recorded by the step itself, 1 by a span below it, 2 by an agent below that.

    A further attempt at a call is as near as the first.
    """
    sums: tuple[Any, ...]
    """Four kinds of tokens, and cost."""


@dataclass(frozen=True, slots=True)
class _Tool:
    id: int
    started_ns: int
    ended_ns: int | None
    status: str
    told: str | None
    name: str
    call_id: str | None
    span_id: str


@dataclass(frozen=True, slots=True)
class _Shot:
    id: int
    captured_at: str
    told: int
    sha256: str
    bytes: int
    status: str


@dataclass(frozen=True, slots=True)
class _Step:
    id: int
    task: int
    span: int
    status: str
    told: str | None
    started_ns: int
    ended_ns: int | None
    step_index: int
    derived: tuple[Any, ...]


_News = tuple[int, int, str, dict[str, Any]]
"""Time, rank among what happened at that time, event, detail."""


class Steps:
    """SQL of the steps over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection, rows: Rows) -> None:
        self._connection = connection
        self._rows = rows

    def by_span_id(self, trace: int, span_id: str | None) -> int | None:
        """The step whose span has this id."""
        row = self._connection.execute(
            "SELECT step.id FROM _spans AS own JOIN _steps AS step ON step.span = own.id"
            " WHERE own.trace = ? AND own.span_id = ?",
            (trace, span_id),
        ).fetchone()
        return row[0] if row else None

    def put(self, fields: StepFields) -> tuple[int, bool]:
        """Write what the span of a step says; returns its row and whether it is new."""
        put = _STEP.put(self._connection, _values(fields))
        return put.row, put.before is None or put.before[-1] is None

    def of_trace(self, trace: int) -> dict[int, tuple[int, StepFields]]:
        """The steps of a trace by span row: step row, and what was put."""
        found = self._connection.execute(
            f"SELECT step.id, {', '.join(f'step.{name}' for name in _COLUMNS)} FROM _spans AS owner"
            " JOIN _steps AS step ON step.span = owner.id WHERE owner.trace = ?",
            (trace,),
        )
        return {row[1]: (row[0], StepFields(*row[1:])) for row in found.fetchall()}

    def drop(self, step: int, span: int) -> None:
        """The span is no step after all: take the step back, and what the timeline said of it.

        Its calls are told anew under the step that they go to.
        """
        execute = self._connection.execute
        execute("DELETE FROM _timeline WHERE span = ?", (span,))
        execute("UPDATE _model_calls SET step = NULL, told = 0 WHERE step = ?", (step,))
        execute("UPDATE _tool_calls SET step = NULL, told = NULL WHERE step = ?", (step,))
        execute("UPDATE screenshots SET told = 0 WHERE span = ? AND role = 'screenshot'", (span,))
        execute("DELETE FROM _steps WHERE id = ?", (step,))

    def adopt_tools(self, trace: int, span_id: str, step: int) -> None:
        """Take over tool calls of ours below a step that came before it."""
        self._connection.execute(
            "UPDATE _tool_calls SET step = ? WHERE step IS NULL AND span IN"
            " (SELECT id FROM _spans WHERE trace = ? AND parent_span_id = ?)",
            (step, trace, span_id),
        )

    def set_attempt(self, trace: int, span_id: str, attempt: int) -> None:
        """The steps below a task span belong to its attempt."""
        self._connection.execute(
            "UPDATE _steps SET attempt = ? WHERE attempt <> ? AND span IN"
            " (SELECT id FROM _spans WHERE trace = ? AND parent_span_id = ?)",
            (attempt, attempt, trace, span_id),
        )

    def refresh(self, step: int) -> None:
        """Derive what a step has from its calls and pictures, and tell the timeline the news."""
        self._refresh(_OF_STEP, step, totals=True)

    def refresh_trace(self, trace: int) -> None:
        """`refresh` for all steps of a trace; the sums of its tasks are left to `Rows.total`."""
        self._refresh(_OF_TRACE, trace, totals=False)

    def _refresh(self, where: _Where, value: int, *, totals: bool) -> None:
        calls: dict[int, list[_Call]] = defaultdict(list)
        for step, *call in self._select(_CALLS, where, value):
            calls[step].append(_Call(*(*call[:10], tuple(call[10:]))))
        tools: dict[int, list[_Tool]] = defaultdict(list)
        for step, *tool in self._select(_TOOLS, where, value):
            tools[step].append(_Tool(*tool))
        shots: dict[int, list[_Shot]] = defaultdict(list)
        for step, *shot in self._select(_SHOTS, where, value):
            shots[step].append(_Shot(*shot))
        for row in self._select(_STEPS, where, value):
            step = _Step(*(*row[:8], tuple(row[8:])))
            after = _derive(calls[step.id], tools[step.id], shots[step.id])
            if after != step.derived or step.told != step.status:
                self._connection.execute(_WRITE, (*after, step.status, step.id))
            if totals:
                self._rows.add_to_task(step.task, step.derived, after, new=step.told is None)
            self._tell(step, calls[step.id], tools[step.id], shots[step.id])

    def _select(self, sql: str, where: _Where, value: int) -> list[Any]:
        steps, which = where
        return self._connection.execute(sql.format(steps=steps, where=which), (value,)).fetchall()

    def _tell(
        self, step: _Step, calls: list[_Call], tools: list[_Tool], shots: list[_Shot]
    ) -> None:
        news: list[_News] = []
        if step.told is None:
            news.append((step.started_ns, 0, "step.started", {"index": step.step_index}))
        for call in calls:
            news += self._call_news(call)
        for tool in tools:
            news += self._tool_news(tool)
        for shot in shots:
            if not shot.told:
                detail = {"sha256": shot.sha256, "bytes": shot.bytes, "status": shot.status}
                news.append((_ns_of(shot.captured_at), 4, "step.screenshot", detail))
                self._connection.execute("UPDATE screenshots SET told = 1 WHERE id = ?", (shot.id,))
        if step.status in FINAL and step.status != step.told and step.told not in TOLD_ENDED:
            at = step.started_ns if step.ended_ns is None else step.ended_ns
            if step.status == "interrupted":
                news.append((at, 5, "step.interrupted", {"index": step.step_index}))
            else:
                ended = {"index": step.step_index, "status": step.status}
                news.append((at, 5, "step.ended", ended))
        for at, _, event, detail in sorted(news, key=lambda item: item[:2]):
            self._rows.event(step.task, step.span, at, event, detail)

    def _call_news(self, call: _Call) -> list[_News]:
        if call.twin_of is not None or call.told | call.known == call.told:
            return []
        news: list[_News] = []
        detail = {"call": call.ordinal} | ({"model": call.model} if call.model else {})
        if call.known & 1 and not call.told & 1:
            news.append((call.started_ns, 1, "step.prompt", detail))
        if call.known & 2 and not call.told & 2:
            at = call.started_ns if call.ended_ns is None else call.ended_ns
            news.append((at, 2, "step.decision", detail))
        self._connection.execute(
            "UPDATE _model_calls SET told = ? WHERE id = ?", (call.told | call.known, call.id)
        )
        return news

    def _tool_news(self, tool: _Tool) -> list[_News]:
        if tool.told == tool.status:
            return []
        news: list[_News] = []
        detail: dict[str, Any] = {"span_id": tool.span_id, "name": tool.name}
        if tool.call_id:
            detail["call_id"] = tool.call_id
        if tool.told is None:
            news.append((tool.started_ns, 3, "tool_call.started", detail))
        if tool.status in FINAL and tool.told not in TOLD_ENDED:
            at = tool.started_ns if tool.ended_ns is None else tool.ended_ns
            news.append((at, 4, "tool_call.ended", {**detail, "status": tool.status}))
        self._connection.execute(
            "UPDATE _tool_calls SET told = ? WHERE id = ?", (tool.status, tool.id)
        )
        return news


def _derive(calls: list[_Call], tools: list[_Tool], shots: list[_Shot]) -> tuple[Any, ...]:
    """The derived columns of a step, in the order of `_DERIVED`."""
    calls = [call for call in calls if call.twin_of is None]
    # What an agent within a tool asked its own model is not what this step asked.
    nearest = min((call.rank for call in calls), default=0)
    mine = [call for call in calls if call.rank == nearest]
    open_ = ("running", "interrupted")
    finished = [call for call in mine if call.status not in open_ and call.ended_ns is not None]
    last = next(iter((finished or mine)[-1:]), None)
    models = [call.model for call in mine if call.model]
    return (
        last.model if last and last.model else models[-1] if models else None,
        last.id if last else None,
        tools[0].id if tools else None,
        shots[-1].id if shots else None,
        *(_sum(call.sums[position] for call in calls) for position in range(5)),
    )


def _sum(values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _ns_of(at: str) -> int:
    return (datetime.fromisoformat(at) - _EPOCH) // timedelta(microseconds=1) * 1000
