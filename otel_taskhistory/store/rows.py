# SPDX-License-Identifier: Apache-2.0
"""The rows of traces, tasks and the timeline, whoever decides what is in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from otel_taskhistory.store.contents import compact
from otel_taskhistory.store.space import content_bytes
from otel_taskhistory.store.times import iso, milliseconds, sqlite_ns
from otel_taskhistory.store.wall import latest

FINAL: Final = frozenset({"succeeded", "failed", "cancelled", "interrupted"})
"""Statuses of what is over."""

TOLD_ENDED: Final = FINAL - {"interrupted"}
"""What was interrupted may still be told to have ended: its process was alive after all."""

_TASK_COLUMNS: Final = (
    *("root", "kind", "agent", "status", "started_ns", "ended_ns", "conversation_id"),
    *("parent_task_id", "attempt", "error_type", "key", "goal", "result", "error"),
)
_PUT_TASK: Final = f"""
UPDATE tasks SET {", ".join(f"{name} = ?" for name in _TASK_COLUMNS)},
    started_at = ?, ended_at = ?, duration_ms = ?
WHERE id = ?
"""

_REMEMBERED: Final = 1_000

_SUMS: Final = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_TOTALS: Final = f"""
UPDATE tasks SET
    step_count = (SELECT count(*) FROM _steps WHERE task = :task),
    {", ".join(f"{name} = (SELECT sum({name}) FROM _steps WHERE task = :task)" for name in _SUMS)},
    cost = (SELECT sum(cost) FROM (SELECT step.cost FROM _steps AS step
        JOIN _spans AS own ON own.id = step.span WHERE step.task = :task
        ORDER BY step.step_index, step.started_ns, own.span_id)),
    span_count = (SELECT count(*) FROM _spans WHERE task = :task),
    dropped = (SELECT coalesce(sum(dropped_attributes + dropped_events + dropped_links), 0)
        FROM _spans WHERE task = :task)
WHERE id = :task
"""

# The model of a task is that of its last step that has one.
_MODEL: Final = """
UPDATE tasks SET model = (SELECT step.model
    FROM _steps AS step JOIN _spans AS own ON own.id = step.span
    WHERE step.task = :task AND step.model IS NOT NULL
    ORDER BY step.step_index DESC, step.started_ns DESC, own.span_id DESC LIMIT 1)
WHERE id = :task
"""


class TraceState(IntEnum):
    """How the meaning of a trace is found."""

    PLAIN = 0
    """Only spans of ours, and others below them that mean nothing: each span by itself."""
    PENDING = 1
    """Only spans that mean nothing, so far; assembled anew until one of ours comes."""
    ASSEMBLED = 2
    """Assembled anew whenever a span comes."""


@dataclass(frozen=True, slots=True)
class TaskFields:
    """What the spans of a task say of it as a whole, in the order of `_TASK_COLUMNS`."""

    root: int | None
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


class Rows:
    """SQL of traces, tasks and timeline; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.touched: set[int] = set()
        """Tasks that this transaction has changed."""
        self.sides: set[int] = set()
        """Traces without a task that it has changed."""
        self.calm = False
        """Whether what this transaction has changed so far is about running tasks only, which are
        no business of the limits."""
        self.content: int | None = None
        """Bytes of the history when its last transaction was about to be committed; None when
        that is not known."""
        self._running: dict[str, int] = {}
        """Rows of running tasks whose root is known."""
        self._states: dict[int, TraceState] = {}
        self._latest: int | None = None
        """The last commit of a task that is over; None when it has to be looked up."""

    def one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a query."""
        row: tuple[Any, ...] | None = self._connection.execute(sql, values).fetchone()
        return row

    def event(
        self, task: int | None, span: int | None, at_ns: int, event: str, detail: dict[str, Any]
    ) -> None:
        """Append to the timeline. `detail` holds ids, counts and sizes, never content."""
        self._connection.execute(
            "INSERT INTO _timeline (task, span, at_ns, event, detail) VALUES (?, ?, ?, ?, ?)",
            (task, span, at_ns, event, compact(detail)),
        )

    # --- traces ---

    def state(self, trace: int) -> TraceState:
        """How the meaning of a trace is found."""
        known = self._states.get(trace)
        if known is not None:
            return known
        row = self.one("SELECT assembled FROM _traces WHERE id = ?", trace)
        if row is None:
            return TraceState.PLAIN
        self._states[trace] = TraceState(row[0])
        return self._states[trace]

    def set_state(self, trace: int, state: TraceState) -> None:
        """Remember how the meaning of a trace is found."""
        self._connection.execute("UPDATE _traces SET assembled = ? WHERE id = ?", (state, trace))
        self._states[trace] = state

    def set_side(self, trace: int, *, is_side: bool) -> None:
        """Note whether a trace has no task: retention is to find its rows all the same."""
        if is_side:
            self.sides.add(trace)
            return
        self.sides.discard(trace)
        self._connection.execute("DELETE FROM _sides WHERE trace = ?", (trace,))

    def has_first_task(self, trace: int) -> bool:
        """Whether the task that has the id of the trace is there, or may come."""
        return self.one("SELECT 1 FROM _headless WHERE trace = ?", trace) is None

    def has_task(self, trace: int) -> bool:
        """Whether anything is known of tasks of this trace."""
        return self.one("SELECT 1 FROM tasks WHERE trace = ?", trace) is not None

    # --- tasks ---

    def task(self, trace: int, task_id: str, trace_id: str, start_ns: int, kind: str) -> int:
        """The row of a task; made, as running and without a root, if it is new."""
        known = self._running.get(task_id)
        if known is not None:
            self.touched.add(known)
            return known
        row = self.one("SELECT id, root, started_ns, status FROM tasks WHERE task_id = ?", task_id)
        if row is not None and row[1] is not None and row[3] == "running":
            self._running[task_id] = row[0]
            self.touched.add(row[0])
            return int(row[0])
        self.calm = False
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
                self._set_start(task, start_ns)
        self.touched.add(task)
        return task

    def put_task(self, task: int, fields: TaskFields) -> None:
        """Write what the spans of a task say; the timeline is told when it ends or is resumed."""
        row = self.one(f"SELECT {', '.join(_TASK_COLUMNS)} FROM tasks WHERE id = ?", task)
        assert row is not None
        before = TaskFields(*row)
        if before == fields:
            return
        self.forget_tasks()
        self.touched.add(task)
        started, ended = fields.started_ns, fields.ended_ns
        self._connection.execute(
            _PUT_TASK,
            (
                *(getattr(fields, name) for name in _TASK_COLUMNS),
                *(iso(started), None if ended is None else iso(ended)),
                *(milliseconds(started, ended), task),
            ),
        )
        status = before.status
        if before.root not in (None, fields.root) and fields.attempt > before.attempt:
            resumed = self.one("SELECT start_ns FROM _spans WHERE id = ?", fields.root)
            at = started if resumed is None else sqlite_ns(int(resumed[0]))
            self.event(task, None, at, "task.resumed", {"attempt": fields.attempt})
            status = "running"
        if status not in TOLD_ENDED and fields.status in FINAL and fields.status != status:
            at = started if ended is None else ended
            if fields.status == "interrupted":
                self.event(task, None, at, "task.interrupted", {"attempt": fields.attempt})
            else:
                self.event(task, None, at, "task.ended", {"status": fields.status})

    def _set_start(self, task: int, start_ns: int) -> None:
        self._connection.execute(
            "UPDATE tasks SET started_ns = ?, started_at = ? WHERE id = ?",
            (start_ns, iso(start_ns), task),
        )

    def drop_task(self, task: int, others: set[int]) -> None:
        """It is no task of its own after all; its spans have gone to other tasks."""
        self.forget_tasks()
        self._connection.execute("DELETE FROM _timeline WHERE task = ? AND span IS NULL", (task,))
        self._connection.execute("DELETE FROM tasks WHERE id = ?", (task,))
        self.touched.discard(task)
        self.touched |= others

    def count_span(self, task: int, span: int, *, new: bool, dropped: int) -> None:
        """Count a span of ours in its task; `dropped` is by how much its drops have grown."""
        self.touched.add(task)
        if new:
            self._connection.execute("UPDATE _spans SET task = ? WHERE id = ?", (task, span))
        if new or dropped:
            self._connection.execute(
                "UPDATE tasks SET span_count = span_count + ?, dropped = dropped + ? WHERE id = ?",
                (new, dropped, task),
            )

    def count_spans(self, task: int, new: int, dropped: int) -> None:
        """Count further spans in their task; `dropped` is by how much their drops have grown."""
        self.touched.add(task)
        if new or dropped:
            self._connection.execute(
                "UPDATE tasks SET span_count = span_count + ?, dropped = dropped + ? WHERE id = ?",
                (new, dropped, task),
            )

    def add_to_task(
        self, task: int, before: Sequence[Any], after: Sequence[Any], *, new: bool
    ) -> None:
        """Note in a task how the derived columns of one of its steps have changed.

        Args:
            before: model, three keys, four kinds of tokens, cost.
            after: likewise.
            new: whether the step is.
        """
        self.touched.add(task)
        sums = list(zip(_SUMS, before[4:8], after[4:8], strict=True))
        if any(now is None and then is not None for _, then, now in sums) or before[8] != after[8]:
            self._connection.execute(_TOTALS, {"task": task})
        else:
            for name, then, now in sums:
                if now != then:
                    self._connection.execute(
                        f"UPDATE tasks SET {name} = coalesce({name}, 0) + ? WHERE id = ?",
                        (now - (then or 0), task),
                    )
            if new:
                self._connection.execute(
                    "UPDATE tasks SET step_count = step_count + 1 WHERE id = ?", (task,)
                )
        if before[0] != after[0] or (new and after[0] is not None):
            self._connection.execute(_MODEL, {"task": task})

    def total(self, task: int) -> None:
        """Compute the sums of a task anew."""
        self._connection.execute(_TOTALS, {"task": task})
        self._connection.execute(_MODEL, {"task": task})

    def begin(self, *, still: bool) -> None:
        """Note how large the history is when a transaction begins.

        Args:
            still: nothing has changed since the last one was committed.
        """
        self.calm = still
        if not still or len(self._running) + len(self._states) > _REMEMBERED:
            self._running.clear()
            self._states.clear()
            self._latest = None
        if not still or self.content is None:
            self.content = content_bytes(self._connection)

    def forget(self, *, whole: bool) -> None:
        """The transaction was rolled back, as a whole or a part of it."""
        self.forget_tasks()
        self._states.clear()
        self.sides.clear()
        if whole:
            self.content = None

    def forget_tasks(self) -> None:
        """Some task is another one than it was."""
        self.calm = False
        self._running.clear()

    def touch(self, now_ns: int, process: int | None) -> None:
        """Note the commit, who made it and what it added, in every task that it changed."""
        if self.sides or not self.touched <= set(self._running.values()):
            self.calm = False
        if self.touched or self.sides:
            if self._latest is None:
                self._latest = latest(self._connection)
            now_ns = max(now_ns, self._latest)
        if not self.calm:
            self._latest = None  # it may be of one of these
        before, self.content = self.content, content_bytes(self._connection)
        grown = 0
        if self.touched and before is not None:
            grown = (self.content - before) // len(self.touched)
        for task in self.touched:
            self._connection.execute(
                "UPDATE tasks SET committed_ns = ?, process = ?, bytes = max(bytes + ?, 0)"
                " WHERE id = ?",
                (now_ns, process, grown, task),
            )
        for trace in self.sides:
            self._connection.execute(
                "INSERT INTO _sides (trace, committed_ns) VALUES (?, ?)"
                " ON CONFLICT (trace) DO UPDATE SET committed_ns = excluded.committed_ns",
                (trace, now_ns),
            )
        self.touched.clear()
        self.sides.clear()
