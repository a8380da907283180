# SPDX-License-Identifier: Apache-2.0
"""The rows of tasks, steps and the timeline, whoever decides what is in them."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

from otel_taskhistory.store.contents import compact
from otel_taskhistory.store.times import iso, milliseconds

_UPSERT_STEP: Final = """
INSERT INTO _steps (task, span, step_index, name, agent, status, attempt, started_ns, ended_ns,
    error, error_type, result, result_content)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (span) DO UPDATE SET task = excluded.task, step_index = excluded.step_index,
    name = excluded.name, agent = excluded.agent, status = excluded.status,
    attempt = excluded.attempt, started_ns = excluded.started_ns, ended_ns = excluded.ended_ns,
    error = excluded.error, error_type = excluded.error_type, result = excluded.result,
    result_content = excluded.result_content
RETURNING id, told
"""

_CALLS_OF_STEP: Final = """
SELECT call.id, call.status, call.started_ns, call.ended_ns, call.model, call.input_tokens,
    call.output_tokens, call.cached_tokens, call.reasoning_tokens, call.cost,
    coalesce(call.prompt_node, call.prompt_text) IS NOT NULL,
    coalesce(call.decision_node, call.decision_text) IS NOT NULL, call.told, call.ordinal,
    call.twin_of
FROM _model_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.step = ? ORDER BY call.started_ns, own.span_id, call.ordinal
"""

_TOOLS_OF_STEP: Final = """
SELECT call.id, call.started_ns, call.ended_ns, call.status, call.told, call.name, call.call_id,
    own.span_id
FROM _tool_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.step = ? ORDER BY call.started_ns, own.span_id
"""

_SHOTS_OF_SPAN: Final = """
SELECT id, captured_at, told, sha256, bytes, status FROM screenshots
WHERE span = ? AND role = 'screenshot' ORDER BY position
"""

_DERIVED: Final = (
    "model",
    "last_call",
    "first_tool",
    "screenshot",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "cost",
)
_READ_STEP: Final = f"""
SELECT task, span, status, told, started_ns, ended_ns, step_index, {", ".join(_DERIVED)}
FROM _steps WHERE id = ?
"""
_WRITE_STEP: Final = f"""
UPDATE _steps SET {", ".join(f"{name} = ?" for name in _DERIVED)}, told = ? WHERE id = ?
"""

_SUMS: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_ADD_TO_TASK: Final = (
    "UPDATE tasks SET "
    + ", ".join(
        f"{name} = CASE WHEN ?{2 * n + 1} IS NULL THEN {name}"
        f" ELSE coalesce({name}, 0) + ?{2 * n + 1} - coalesce(?{2 * n + 2}, 0) END"
        for n, name in enumerate(_SUMS)
    )
    + f" WHERE id = ?{2 * len(_SUMS) + 1}"
)
"""Parameters: new and old value of a step's sums, then the task. Once known, a sum stays known."""

_TASK_TOTALS: Final = """
UPDATE tasks SET
    step_count = (SELECT count(*) FROM _steps WHERE task = ?1),
    input_tokens = (SELECT sum(input_tokens) FROM _steps WHERE task = ?1),
    output_tokens = (SELECT sum(output_tokens) FROM _steps WHERE task = ?1),
    cached_tokens = (SELECT sum(cached_tokens) FROM _steps WHERE task = ?1),
    reasoning_tokens = (SELECT sum(reasoning_tokens) FROM _steps WHERE task = ?1),
    cost = (SELECT sum(cost) FROM (SELECT cost FROM _steps WHERE task = ?1
        ORDER BY step_index, started_ns)),
    span_count = (SELECT count(*) FROM _spans WHERE task = ?1),
    dropped = (SELECT coalesce(sum(dropped_attributes + dropped_events + dropped_links), 0)
        FROM _spans WHERE task = ?1)
WHERE id = ?1
"""

# The model of a task is that of its last step that has one.
_TASK_MODEL: Final = """
UPDATE tasks SET model = (SELECT model FROM _steps WHERE task = ?1 AND model IS NOT NULL
    ORDER BY step_index DESC, started_ns DESC LIMIT 1)
WHERE id = ?1
"""

_FINAL: Final = frozenset({"succeeded", "failed", "cancelled", "interrupted"})


@dataclass(frozen=True, slots=True)
class TaskFields:
    """What the root of a task says."""

    root: int
    kind: str
    agent: str | None
    status: str
    started_ns: int
    ended_ns: int | None
    conversation_id: str | None
    parent_task_id: str | None
    attempt: int
    error_type: str | None
    key: str | None
    goal: str | None
    result: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class StepFields:
    """What the span of a step says, in the order of `_UPSERT_STEP`."""

    task: int
    span: int
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


class Rows:
    """SQL of the projection over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._touched: set[int] = set()

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a query."""
        row: tuple[Any, ...] | None = self._connection.execute(sql, values).fetchone()
        return row

    # --- timeline ---

    def event(
        self, task: int | None, span: int | None, at_ns: int, event: str, detail: dict[str, Any]
    ) -> None:
        """Append to the timeline. `detail` holds ids, counts and sizes, never content."""
        self._connection.execute(
            "INSERT INTO _timeline (task, span, at_ns, event, detail) VALUES (?, ?, ?, ?, ?)",
            (task, span, at_ns, event, compact(detail)),
        )

    # --- traces and tasks ---

    def is_assembled(self, trace: int) -> bool:
        """Whether the trace has spans whose meaning depends on the others."""
        row = self.one("SELECT assembled FROM _traces WHERE id = ?", trace)
        return bool(row and row[0])

    def mark_assembled(self, trace: int) -> None:
        """Remember that the trace has such spans."""
        self._connection.execute("UPDATE _traces SET assembled = 1 WHERE id = ?", (trace,))

    def has_own_root(self, trace: int) -> bool:
        """Whether the trace began with a task of our tracer."""
        return (
            self.one(
                "SELECT 1 FROM tasks JOIN _spans ON _spans.id = tasks.root"
                " WHERE tasks.trace = ? AND _spans.role = 'task'",
                trace,
            )
            is not None
        )

    def task_row(self, trace: int, task_id: str, trace_id: str, start_ns: int, kind: str) -> int:
        """The row of a task; made, as running and without a root, if it is new."""
        row = self.one("SELECT id, root, started_ns FROM tasks WHERE task_id = ?", task_id)
        if row is None:
            task = self._connection.execute(
                "INSERT INTO tasks (task_id, trace_id, kind, status, started_at, started_ns,"
                " committed_ns, trace) VALUES (?, ?, ?, 'running', ?, ?, 0, ?)",
                (task_id, trace_id, kind, iso(start_ns), start_ns, trace),
            ).lastrowid
            assert task is not None
            self.event(task, None, start_ns, "task.started", {"task_id": task_id})
        else:
            task = int(row[0])
            if row[1] is None and start_ns < row[2]:
                self._connection.execute(
                    "UPDATE tasks SET started_ns = ?, started_at = ? WHERE id = ?",
                    (start_ns, iso(start_ns), task),
                )
        self._touched.add(task)
        return task

    def put_task(self, task: int, fields: TaskFields, started_ns: int | None = None) -> None:
        """Write what a root says; of several attempts the latest counts."""
        row = self.one("SELECT root, attempt, status, started_ns FROM tasks WHERE id = ?", task)
        assert row is not None
        root, attempt, status, known_start = row
        start = fields.started_ns if root is None else min(known_start, fields.started_ns)
        start = start if started_ns is None else started_ns
        if root is not None and root != fields.root and fields.attempt < attempt:
            self._connection.execute(
                "UPDATE tasks SET started_ns = ?, started_at = ?, goal = coalesce(?, goal),"
                " key = coalesce(?, key) WHERE id = ?",
                (start, iso(start), fields.goal, fields.key, task),
            )
            return
        self._connection.execute(
            "UPDATE tasks SET root = ?, kind = ?, agent = ?, status = ?, started_ns = ?,"
            " started_at = ?, ended_ns = ?, ended_at = ?, duration_ms = ?, conversation_id = ?,"
            " parent_task_id = ?, attempt = ?, error_type = ?, key = coalesce(?, key),"
            " goal = coalesce(?, goal), result = ?, error = ? WHERE id = ?",
            (
                *(fields.root, fields.kind, fields.agent, fields.status, start, iso(start)),
                *(fields.ended_ns, None if fields.ended_ns is None else iso(fields.ended_ns)),
                *(milliseconds(start, fields.ended_ns), fields.conversation_id),
                *(fields.parent_task_id, fields.attempt, fields.error_type, fields.key),
                *(fields.goal, fields.result, fields.error, task),
            ),
        )
        self._touched.add(task)
        if root is not None and root != fields.root and fields.attempt > attempt:
            detail = {"attempt": fields.attempt}
            self.event(task, None, fields.started_ns, "task.resumed", detail)
            status = "running"
        if status not in _FINAL and fields.status in _FINAL:
            at = fields.ended_ns if fields.ended_ns is not None else start
            self.event(task, None, at, "task.ended", {"status": fields.status})

    def count_span(self, task: int, span: int, *, new: bool, dropped: int) -> None:
        """Count a span of ours in its task; `dropped` is by how much its drops have grown."""
        self._touched.add(task)
        if new:
            self._connection.execute("UPDATE _spans SET task = ? WHERE id = ?", (task, span))
        if new or dropped:
            self._connection.execute(
                "UPDATE tasks SET span_count = span_count + ?, dropped = dropped + ? WHERE id = ?",
                (new, dropped, task),
            )

    def total(self, task: int) -> None:
        """Compute the sums of a task anew."""
        self._connection.execute(_TASK_TOTALS, (task,))
        self._connection.execute(_TASK_MODEL, (task,))

    def touch(self, now_ns: int) -> None:
        """Note the commit in every task that this transaction changed."""
        for task in self._touched:
            self._connection.execute(
                "UPDATE tasks SET committed_ns = ? WHERE id = ?", (now_ns, task)
            )
        self._touched.clear()

    def untouch(self, task: int) -> None:
        """The task is gone."""
        self._touched.discard(task)

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._touched.clear()

    # --- steps ---

    def step_by_span_id(self, trace: int, span_id: str | None) -> int | None:
        """The step whose span has this id."""
        row = self.one(
            "SELECT step.id FROM _spans AS own JOIN _steps AS step ON step.span = own.id"
            " WHERE own.trace = ? AND own.span_id = ?",
            trace,
            span_id,
        )
        return row[0] if row else None

    def put_step(self, fields: StepFields) -> tuple[int, bool]:
        """Write what the span of a step says; returns its row and whether it is new."""
        row = self.one(_UPSERT_STEP, *astuple(fields))
        assert row is not None
        step, told = row
        if told is None:
            self._connection.execute(
                "UPDATE tasks SET step_count = step_count + 1 WHERE id = ?", (fields.task,)
            )
        return step, told is None

    def adopt_tools(self, trace: int, span_id: str, step: int) -> None:
        """Take over tool calls below a step of ours that came before it."""
        self._connection.execute(
            "UPDATE _tool_calls SET step = ? WHERE step IS NULL AND span IN"
            " (SELECT id FROM _spans WHERE trace = ? AND parent_span_id = ?)",
            (step, trace, span_id),
        )

    def refresh_step(self, step: int, *, totals: bool = True) -> None:
        """Derive what a step has from its calls and pictures, and tell the timeline the news."""
        row = self.one(_READ_STEP, step)
        assert row is not None
        task, span, status, told, started, ended, index, *before = row
        calls = self._connection.execute(_CALLS_OF_STEP, (step,)).fetchall()
        tools = self._connection.execute(_TOOLS_OF_STEP, (step,)).fetchall()
        shots = self._connection.execute(_SHOTS_OF_SPAN, (span,)).fetchall()
        after = _derive(calls, tools, shots)
        if after != before or told != status:
            self._connection.execute(_WRITE_STEP, (*after, status, step))
        if totals and after[8] != before[8]:
            self.total(task)
        elif totals and after[4:8] != before[4:8]:
            pairs = zip(after[4:8], before[4:8], strict=True)
            self._connection.execute(_ADD_TO_TASK, (*chain.from_iterable(pairs), task))
        if totals and after[0] != before[0]:
            self._connection.execute(_TASK_MODEL, (task,))
        self._touched.add(task)
        self._tell(task, span, (told, status, started, ended, index), calls, tools, shots)

    def _tell(
        self,
        task: int,
        span: int,
        step: tuple[str | None, str, int, int | None, int],
        calls: list[Any],
        tools: list[Any],
        shots: list[Any],
    ) -> None:
        told, status, started, ended, index = step
        news: list[tuple[int, int, str, dict[str, Any]]] = []
        if told is None:
            news.append((started, 0, "step.started", {"index": index}))
        for call in calls:
            wanted = call[10] + 2 * (call[11] and call[3] is not None)
            if call[14] is not None or call[12] | wanted == call[12]:
                continue
            detail = {"call": call[13]} | ({"model": call[4]} if call[4] else {})
            if wanted & 1 and not call[12] & 1:
                news.append((call[2], 1, "step.prompt", detail))
            if wanted & 2 and not call[12] & 2:
                news.append((call[3], 2, "step.decision", detail))
            self._connection.execute(
                "UPDATE _model_calls SET told = ? WHERE id = ?", (call[12] | wanted, call[0])
            )
        for tool in tools:
            news += self._tool_news(tool)
        for shot in shots:
            if not shot[2]:
                detail = {"sha256": shot[3], "bytes": shot[4], "status": shot[5]}
                news.append((_ns_of(shot[1]), 4, "step.screenshot", detail))
                self._connection.execute("UPDATE screenshots SET told = 1 WHERE id = ?", (shot[0],))
        if status in _FINAL and told not in _FINAL:
            at = ended if ended is not None else started
            news.append((at, 5, "step.ended", {"index": index, "status": status}))
        for at, _, event, detail in sorted(news, key=lambda item: item[:2]):
            self.event(task, span, at, event, detail)

    def _tool_news(self, tool: Any) -> list[tuple[int, int, str, dict[str, Any]]]:
        row, started, ended, status, told, name, call_id, span_id = tool
        if told == status:
            return []
        news: list[tuple[int, int, str, dict[str, Any]]] = []
        detail = {"span_id": span_id, "name": name} | ({"call_id": call_id} if call_id else {})
        if told is None:
            news.append((started, 3, "tool_call.started", detail))
        if status in _FINAL and told not in _FINAL:
            at = ended if ended is not None else started
            news.append((at, 4, "tool_call.ended", {**detail, "status": status}))
        self._connection.execute("UPDATE _tool_calls SET told = ? WHERE id = ?", (status, row))
        return news


def _derive(calls: list[Any], tools: list[Any], shots: list[Any]) -> list[Any]:
    """The derived columns of a step, in the order of `_DERIVED`."""
    finished = [call for call in calls if call[1] != "running" and call[3] is not None]
    first_hand = [call for call in finished or calls if call[14] is None]
    last = (first_hand or finished or calls or [None])[-1]
    counted = [call for call in calls if call[14] is None]
    sums = [_sum(call[column] for call in counted) for column in range(5, 10)]
    if all(value is None for value in sums[:4]):  # a twin may know what the call itself does not
        sums = [_sum(call[column] for call in calls) for column in range(5, 10)]
    models = [call[4] for call in calls if call[4]]
    model = last[4] if last and last[4] else models[-1] if models else None
    return [
        model,
        last[0] if last else None,
        tools[0][0] if tools else None,
        shots[-1][0] if shots else None,
        *sums,
    ]


def _sum(values: Any) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _ns_of(at: str) -> int:
    moment = datetime.fromisoformat(at)
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000
