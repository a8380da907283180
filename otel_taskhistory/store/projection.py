# SPDX-License-Identifier: Apache-2.0
"""What the spans mean: tasks, steps, model calls, tool calls, screenshots and the timeline.

Spans of our own tracer name their role, so that each changes the few rows it is about. A trace
with spans of other instrumentations is assembled anew from its span rows, once per transaction.
Either way the rows follow from the set of spans alone, not from the order in which they came;
only the timeline keeps that order.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.assembled import TraceAssembler
from otel_taskhistory.store.calls import Calls, Change
from otel_taskhistory.store.contents import Contents
from otel_taskhistory.store.inputs import InputPictures
from otel_taskhistory.store.ledger import Written, dropped_of
from otel_taskhistory.store.rows import Rows, TraceState
from otel_taskhistory.store.steps import Steps
from otel_taskhistory.store.times import sqlite_ns


@dataclass(slots=True)
class _Dirty:
    """A trace that is to be assembled before the commit."""

    trace_id: str
    changed: set[int] = field(default_factory=set)
    """Rows of its spans that came or grew."""
    as_whole: bool = False
    """More than that may have changed."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment within a transaction: what was to be done at its end."""

    dirty: dict[int, tuple[str, set[int]]]
    touched: set[int]


class Projection:
    """Keeps the public tables true; a transaction is open whenever a method runs."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        contents: Contents,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.process: int | None = None
        """The row of the process that runs what is applied, if it is this one."""
        self._connection = connection
        self._clock = clock
        self._rows = Rows(connection)
        self._steps = Steps(connection, self._rows)
        self._inputs = InputPictures(connection)
        self._calls = Calls(connection, contents)
        self._assembler = TraceAssembler(
            connection, self._rows, self._steps, self._calls, self._inputs
        )
        self._dirty: dict[int, _Dirty] = {}

    def begin(self, *, still: bool) -> None:
        """A transaction has begun.

        Args:
            still: nothing has changed since the last one was committed.
        """
        self._rows.begin(still=still)
        if not still:
            self._assembler.forget_tasks()

    @property
    def is_calm(self) -> bool:
        """Whether the transaction was about running tasks only, and nobody else wrote before it."""
        return self._rows.calm

    @property
    def content(self) -> int | None:
        """Bytes of the history after the transaction, if that is known."""
        return self._rows.content

    def apply(self, record: SpanRecord, facts: SpanFacts, written: Written) -> None:
        """Take one span into account that the ledger has just written."""
        if not written.changed:
            return
        assembled = self._is_assembled(record, facts, written)
        change = self._calls.put(record, facts, written)
        if assembled:
            dirty = self._dirty.setdefault(written.trace, _Dirty(record.trace_id))
            dirty.changed.add(written.row)
            dirty.as_whole |= change.regressed or written.said is None
            return
        task = self._task(record, written)
        if facts.role == "task":
            self._assembler.know_task(record, facts, written)
            self._rows.put_task(task, self._assembler.own_task(written.trace))
            self._steps.set_attempt(written.trace, record.span_id, facts.attempt)
        elif facts.role == "step":
            self._own_step(task, record, facts, written, change)
        elif facts.role == "tool":
            step = self._steps.by_span_id(written.trace, record.parent_span_id)
            if change.made:
                self._calls.place(written.row, task, step)
            self._inputs.of_span(written.row)
            if step is not None:
                self._steps.refresh(step)
        if change.regressed:
            self._inputs.of_trace(written.trace)

    def finish(self) -> None:
        """Do what is done once for all that was applied; to be called before the commit."""
        now = self._clock()
        for trace, dirty in self._dirty.items():
            self._assembler.assemble(trace, dirty.trace_id, dirty.changed, as_whole=dirty.as_whole)
        self._dirty.clear()
        self._rows.touch(now, self.process)

    def finish_each(self) -> list[Exception]:
        """As `finish`, but a trace that cannot be assembled costs no other.

        Not the usual way: changing many rows within a savepoint takes SQLite time that grows with
        the square of their number.

        Returns:
            Why traces could not be assembled: their spans are in the ledger, but what they mean
            stays as it was until the next one of them comes.
        """
        now = self._clock()
        failed: list[Exception] = []
        for trace, dirty in self._dirty.items():
            touched = set(self._rows.touched)
            self._connection.execute("SAVEPOINT trace")
            try:
                self._assembler.assemble(
                    trace, dirty.trace_id, dirty.changed, as_whole=dirty.as_whole
                )
            except (sqlite3.OperationalError, OSError):
                raise  # it is about the store, not about this trace
            except Exception as error:
                self._connection.execute("ROLLBACK TO trace")
                self._rows.touched = touched
                self._rows.forget_tasks()
                self._assembler.forget()
                failed.append(error)
            self._connection.execute("RELEASE trace")
        self._dirty.clear()
        self._rows.touch(now, self.process)
        return failed

    def mark(self) -> Mark:
        """What `finish` has to do so far, for `forget`."""
        dirty = {trace: (one.trace_id, set(one.changed)) for trace, one in self._dirty.items()}
        return Mark(dirty, set(self._rows.touched))

    def forget(self, back_to: Mark | None = None) -> None:
        """What was applied since the last `finish`, or since `back_to`, was rolled back."""
        self._assembler.forget()
        self._rows.forget(whole=back_to is None)
        dirty = back_to.dirty if back_to is not None else {}
        self._dirty = {
            trace: _Dirty(name, set(rows), as_whole=True) for trace, (name, rows) in dirty.items()
        }
        self._rows.touched = set(back_to.touched) if back_to is not None else set()

    # --- how a trace is understood ---

    def _is_assembled(self, record: SpanRecord, facts: SpanFacts, written: Written) -> bool:
        """Whether the meaning of the span depends on others of its trace."""
        trace = written.trace
        state = self._rows.state(trace)
        if state is not TraceState.ASSEMBLED:
            wanted = self._state(record, facts, written, state)
            if wanted is not state:
                self._rows.set_state(trace, wanted)
            if wanted is TraceState.PLAIN and state is TraceState.PENDING:
                return True  # once more, now that it is known to be ours
            state = wanted
        return state is not TraceState.PLAIN or trace in self._dirty

    def _state(
        self, record: SpanRecord, facts: SpanFacts, written: Written, state: TraceState
    ) -> TraceState:
        known = written.known
        if known is not None and (
            known.parent_span_id != record.parent_span_id
            or known.start_ns != record.start_ns
            or known.role != facts.role
            or _own_and_index(known.facts) != (facts.own, facts.step_index)
        ):
            return TraceState.ASSEMBLED  # it is another span than it was
        if facts.own:
            odd = (
                (facts.role == "step" and facts.step_index is None)
                or (facts.role == "tool" and self._touches_tool(record, written))
                or (facts.role == "task" and facts.attempt == 1 and self._has_other_first(written))
            )
            return TraceState.ASSEMBLED if odd else TraceState.PLAIN
        if facts.role != "other" or record.parent_span_id is None or record.parent_remote:
            return TraceState.ASSEMBLED
        if state is TraceState.PLAIN and (
            written.trace in self._dirty or self._rows.has_task(written.trace)
        ):
            return TraceState.PLAIN  # a web request below one of our steps
        return TraceState.PENDING

    def _touches_tool(self, record: SpanRecord, written: Written) -> bool:
        """Whether a tool call lies within another, as none of our tracer does: it may be the same.

        Looked for from both ends, as either may come first.
        """
        found = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM _spans WHERE trace = ? AND span_id = ?"
            " AND role = 'tool') OR EXISTS (SELECT 1 FROM _spans WHERE trace = ?"
            " AND parent_span_id = ? AND role = 'tool')",
            (written.trace, record.parent_span_id, written.trace, record.span_id),
        )
        return bool(found.fetchone()[0])

    def _has_other_first(self, written: Written) -> bool:
        """Whether another task was begun in this trace, which no tracer of ours does."""
        found = self._connection.execute(
            "SELECT facts FROM _spans WHERE trace = ? AND role = 'task' AND id <> ?",
            (written.trace, written.row),
        )
        return any(json.loads(facts).get("attempt", 1) == 1 for (facts,) in found)

    # --- spans of our own tracer ---

    def _task(self, record: SpanRecord, written: Written) -> int:
        """The task of a span of ours, or of one below a task of ours: the trace itself."""
        task = self._rows.task(
            written.trace, record.trace_id, record.trace_id, sqlite_ns(record.start_ns), "agent"
        )
        before = written.known.dropped if written.known is not None else 0
        self._rows.count_span(
            task, written.row, new=written.new, dropped=dropped_of(record) - before
        )
        return task

    def _own_step(
        self, task: int, record: SpanRecord, facts: SpanFacts, written: Written, change: Change
    ) -> None:
        fields = self._assembler.own_step(record, facts, written, task)
        step, new = self._steps.put(fields)
        if new:
            self._steps.adopt_tools(written.trace, record.span_id, step)
        if change.made:
            self._calls.place(written.row, task, step)
        self._inputs.of_span(written.row)
        self._steps.refresh(step)


def _own_and_index(facts: str) -> tuple[bool, int | None]:
    said = json.loads(facts)
    return said.get("own", False), said.get("step_index")
