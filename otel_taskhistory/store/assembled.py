# SPDX-License-Identifier: Apache-2.0
"""Writes what `assembly` planned for a trace, changing only the rows that differ."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.assembly import Plan, PlannedTask, Seen, assemble, attempts_in_order
from otel_taskhistory.store.calls import Calls
from otel_taskhistory.store.goals import Sayings
from otel_taskhistory.store.growing import Growing, Grown
from otel_taskhistory.store.inputs import InputPictures
from otel_taskhistory.store.ledger import Written
from otel_taskhistory.store.rows import Rows, TaskFields
from otel_taskhistory.store.span_rows import (
    CALL_COLUMNS,
    OF_TRACE,
    ONE,
    SOME,
    TASKS,
    TOOL_COLUMNS,
    CallRow,
    Facts,
    SpanRow,
    facts_of,
    model_calls,
    spans,
    tool_calls,
)
from otel_taskhistory.store.steps import StepFields, Steps
from otel_taskhistory.store.task_facts import TaskReader
from otel_taskhistory.store.times import optional_ns, sqlite_ns
from otel_taskhistory.store.twins import Call, put_together, put_tools_together


def _write(table: str, columns: Iterable[str]) -> str:
    return f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?"


_PLACE: Final = ("filled", "twin_of", "step", "task", "nested")
_WRITE_CALL: Final = _write("_model_calls", (*_PLACE, *CALL_COLUMNS))
_WRITE_TOOL: Final = _write("_tool_calls", (*_PLACE[:-1], *TOOL_COLUMNS))


_REMEMBERED_TASKS: Final = 256


class TraceAssembler:
    """Over one connection; a transaction is open whenever a method runs."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        rows: Rows,
        steps: Steps,
        calls: Calls,
        inputs: InputPictures,
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._steps = steps
        self._calls = calls
        self._inputs = inputs
        self._sayings = Sayings(connection)
        self._growing = Growing()
        self._attempts: dict[tuple[int, str], int] = {}
        """The attempts of task spans of ours that came last, by trace and span id."""

    def forget(self) -> None:
        """The transaction was rolled back: what was read in it must be again."""
        self._inputs.forget()
        self._sayings.forget()
        self.forget_tasks()

    def forget_tasks(self) -> None:
        """Somebody else may have changed what was read."""
        self._attempts.clear()
        self._growing.clear()

    def own_task(self, trace: int) -> TaskFields:
        """What the task spans of ours say, where they are all attempts at one task.

        As `assemble` would find it, without looking at other spans.
        """
        found = spans(self._connection, TASKS, (trace,), self._text)
        attempts = attempts_in_order(s.seen for s in found.values() if s.seen.is_own_task)
        planned = PlannedTask(attempts[0], first=True, attempts=attempts, spans=attempts)
        return TaskReader(self._text, facts_of(found)).own(planned)

    def know_task(self, record: SpanRecord, facts: SpanFacts, written: Written) -> None:
        """A task span of ours was written: steps below it ask for its attempt."""
        if len(self._attempts) >= _REMEMBERED_TASKS:
            del self._attempts[next(iter(self._attempts))]
        self._attempts[written.trace, record.span_id] = facts.attempt

    def own_step(
        self, record: SpanRecord, facts: SpanFacts, written: Written, task: int
    ) -> StepFields:
        """What the span of a step of ours says, likewise."""
        if written.said is None:  # it was read again, not written
            (span,) = self._one(written.trace, record.span_id)
        else:
            span = self._just_written(record, facts, written, written.said)
        attempt = self._attempt_above(written.trace, record.parent_span_id)
        attempt = span.seen.attempt if attempt is None else attempt
        index = span.seen.step_index or 0  # there is one, or the trace would be assembled
        return self._step_fields(span, span, task, index, span.seen.agent, attempt)

    def _just_written(
        self, record: SpanRecord, facts: SpanFacts, written: Written, said: Facts
    ) -> SpanRow:
        """As `spans` would read it; the process of an open one is alive, it is this one."""
        seen = Seen(
            row=written.row,
            span_id=record.span_id,
            parent_span_id=record.parent_span_id,
            start_ns=record.start_ns,
            end_ns=record.end_ns,
            role=facts.role,
            own=True,
            status=facts.status,
            agent=self._text(said.get("agent")),
            attempt=facts.attempt,
            step_index=facts.step_index,
        )
        return SpanRow(seen, written.name, said, None)

    def _attempt_above(self, trace: int, span_id: str | None) -> int | None:
        """The attempt of the task span of ours with this id."""
        if span_id is None:
            return None
        known = self._attempts.get((trace, span_id))
        if known is None:
            for above in self._one(trace, span_id):
                if above.seen.is_own_task:
                    return above.seen.attempt
        return known

    def assemble(self, trace: int, trace_id: str, changed: set[int], *, as_whole: bool) -> None:
        """Bring tasks, steps and the links to them up to date for one trace.

        Args:
            trace: its row.
            trace_id: its id.
            changed: rows of the spans that came or grew.
            as_whole: something else than that may have changed.
        """
        grown = self._growing.pop(trace)
        if grown is not None and not as_whole and self._grow(grown, changed):
            self._growing.put(trace, grown)
            return
        calls = model_calls(self._connection, OF_TRACE, trace)
        tools = tool_calls(self._connection, OF_TRACE, trace)
        found = spans(self._connection, OF_TRACE, (trace,), self._text, [*calls, *tools])
        plan = assemble(span.seen for span in found.values())
        calls, tools = self._without_announced(plan, calls), self._without_announced(plan, tools)
        together = put_together((row.call for row in calls), plan)
        reader = TaskReader(self._text, facts_of(found))
        shown = _shown(together.values())
        tasks: dict[int, int] = {}
        """Span row → task row."""
        task_ids: dict[int, str] = {}
        fields = None
        for planned in plan.tasks:
            fields = reader.fields(planned, plan, self._sayings, shown)
            task, task_id = self._put_task(planned, fields, trace, trace_id)
            task_ids[task] = task_id
            tasks.update((span.row, task) for span in planned.spans)
        self._put_spans(found, tasks)
        steps = self._put_steps(trace, plan, found, tasks)
        self._put_calls(calls, together, plan, steps, tasks)
        self._put_tools(tools, plan, steps, tasks)
        self._put_screenshots(trace, steps, tasks, task_ids)
        self._steps.refresh_trace(trace)
        self._inputs.of_trace(trace)
        self._drop_other_tasks(trace, set(task_ids))
        for task in task_ids:
            self._rows.total(task)
        self._rows.touched |= {tasks[row] for row in changed if row in tasks}
        self._rows.set_side(trace, is_side=not plan.tasks)
        if fields is not None and len(task_ids) == 1:
            now = {row: replace(span, task=tasks.get(row)) for row, span in found.items()}
            (task,) = task_ids
            self._growing.put(trace, Grown.of(plan, now, task, fields, steps, shown))

    def _grow(self, grown: Grown, changed: set[int]) -> bool:
        """Place spans of which nothing follows for others; False when that is not certain."""
        some = json.dumps(sorted(changed))
        calls = model_calls(self._connection, SOME, some)
        tools = tool_calls(self._connection, SOME, some)
        found = spans(self._connection, SOME, (some,), self._text, [*calls, *tools])
        dropped = sum(span.dropped for span in found.values())
        dropped -= sum(grown.spans[row].dropped for row in found if row in grown.spans)
        for span in sorted(found.values(), key=lambda span: span.seen.order):
            if not grown.take(replace(span, task=grown.task)):
                return False
        steps = self._place(grown, found, [*calls, *tools])
        added = sum(span.task is None for span in found.values())
        self._rows.count_spans(grown.task, added, dropped)
        for step in steps:
            self._steps.refresh(step)
        for row in found:
            self._inputs.of_span(row)
        return True

    def _place(self, grown: Grown, found: dict[int, SpanRow], calls: list[CallRow]) -> list[int]:
        """Put spans and calls into the task and its steps; the rows of those steps, in order."""
        places: dict[int, int | None] = {}
        for row, span in sorted(found.items(), key=lambda item: item[1].seen.order):
            if span.task != grown.task:
                self._connection.execute(
                    "UPDATE _spans SET task = ? WHERE id = ?", (grown.task, row)
                )
            number = grown.steps.get(row)
            if number is not None:
                agent = grown.plan.agents.get(row)
                attempt = max(span.seen.attempt, span.seen.call_attempt)
                fields = self._step_fields(span, span, grown.task, number, agent, attempt)
                grown.step_rows[row], _ = self._steps.put(fields)
            step = grown.step_of(span.seen)
            places[row] = None if step is None else grown.step_rows[step.row]
        for call in calls:
            step_row = places[call.call.span]
            is_tool = call.tool is not None
            filled, twin_of, step_before, task_before, _ = call.placed[:5]
            assert not filled
            assert twin_of is None
            if (step_before, task_before) != (step_row, grown.task):
                table = "_tool_calls" if is_tool else "_model_calls"
                self._connection.execute(
                    f"UPDATE {table} SET step = ?, task = ? WHERE id = ?",
                    (step_row, grown.task, call.call.id),
                )
        return sorted({step for step in places.values() if step is not None})

    def _one(self, trace: int, span_id: str | None) -> Iterable[SpanRow]:
        return spans(self._connection, ONE, (trace, span_id), self._text).values()

    def _text(self, value: str | int | None) -> str | None:
        """A text of the facts, wherever it is."""
        if not isinstance(value, int):
            return value
        row = self._rows.one("SELECT text FROM _contents WHERE id = ?", value)
        assert row is not None
        return str(row[0])

    def _without_announced(self, plan: Plan, rows: list[CallRow]) -> list[CallRow]:
        """What was announced and has come speaks for itself: drop what the announcement held."""
        for row in rows:
            if row.call.span in plan.tree.gone:
                self._calls.drop(row.call.span)
        return [row for row in rows if row.call.span not in plan.tree.gone]

    # --- tasks ---

    def _put_task(
        self, planned: PlannedTask, fields: TaskFields, trace: int, trace_id: str
    ) -> tuple[int, str]:
        task_id = trace_id
        if planned.root is not None and not (planned.first and self._rows.has_first_task(trace)):
            task_id = f"{trace_id}-{planned.root.span_id}"
        task = self._rows.task(trace, task_id, trace_id, fields.started_ns, fields.kind)
        self._rows.put_task(task, fields)
        return task, task_id

    def _put_spans(self, found: dict[int, SpanRow], tasks: dict[int, int]) -> None:
        for row, span in found.items():
            task = tasks.get(row)
            if span.task == task:
                continue
            self._connection.execute("UPDATE _spans SET task = ? WHERE id = ?", (task, row))
            if span.task is not None:
                self._connection.execute(
                    "UPDATE _timeline SET task = ? WHERE span = ?"
                    if task is not None
                    else "DELETE FROM _timeline WHERE ? IS NULL AND span = ?",
                    (task, row),
                )

    def _drop_other_tasks(self, trace: int, wanted: set[int]) -> None:
        found = self._connection.execute("SELECT id FROM tasks WHERE trace = ?", (trace,))
        for (task,) in found.fetchall():
            if task not in wanted:
                self._rows.drop_task(task, wanted)

    # --- steps and what belongs to them ---

    def _put_steps(
        self, trace: int, plan: Plan, found: dict[int, SpanRow], tasks: dict[int, int]
    ) -> dict[int, int]:
        """The steps; returns span row → step row."""
        known = self._steps.of_trace(trace)
        steps: dict[int, int] = {}
        for planned in plan.tasks:
            for number, seen in enumerate(planned.steps, start=1):
                last = plan.retried.get(seen.row, seen)
                fields = self._step_fields(
                    found[seen.row],
                    found[last.row],
                    tasks[seen.row],
                    number if seen.step_index is None else seen.step_index,
                    seen.agent if seen.own else plan.agents.get(seen.row),
                    plan.attempts.get(seen.row, max(last.attempt, last.call_attempt)),
                )
                step, before = known.pop(seen.row, (0, None))
                if before != fields:
                    step, _ = self._steps.put(fields)
                steps[seen.row] = step
        for row, (step, _) in known.items():
            self._steps.drop(step, row)
        return steps

    def _step_fields(
        self, span: SpanRow, last: SpanRow, task: int, index: int, agent: str | None, attempt: int
    ) -> StepFields:
        """What a step's span says, and that of the last attempt at its model call how it ended."""
        said = last.facts
        result = span.facts.get("result")
        return StepFields(
            task=task,
            span=span.seen.row,
            step_index=index,
            name=span.name,
            agent=agent,
            status=said["status"],
            attempt=attempt,
            started_ns=sqlite_ns(span.seen.start_ns),
            ended_ns=optional_ns(said.get("interrupted_ns", last.seen.end_ns)),
            error=self._text(said.get("error")),
            error_type=self._text(said.get("error_type")),
            result=None if isinstance(result, int) else result,
            result_content=result if isinstance(result, int) else None,
        )

    def _put_calls(
        self,
        rows: list[CallRow],
        together: dict[int, Call],
        plan: Plan,
        steps: dict[int, int],
        tasks: dict[int, int],
    ) -> None:
        for row in rows:
            call = together[row.call.id]
            # A call of a step of ours is in the step's own span.
            step = plan.step_of.get(call.span)
            wanted = (
                *(call.filled, call.twin_of),
                *(steps.get(call.span if step is None else step.row), tasks.get(call.span)),
                *(int(call.span in plan.nested), *(value for said in call.said for value in said)),
            )
            if wanted != row.placed:
                self._connection.execute(_WRITE_CALL, (*wanted, call.id))

    def _put_tools(
        self, rows: list[CallRow], plan: Plan, steps: dict[int, int], tasks: dict[int, int]
    ) -> None:
        together = put_tools_together((row.call for row in rows), plan)
        for row in rows:
            call = together[row.call.id]
            place = plan.step_of.get(call.span)
            step = steps.get(place.row) if place is not None else None
            wanted = (
                *(call.filled, call.twin_of, step, tasks.get(call.span)),
                *(value for said in call.said for value in said),
            )
            _, twin_before, step_before, *_ = row.placed
            if wanted != (*row.placed[:4], *row.placed[5:]):
                self._connection.execute(_WRITE_TOOL, (*wanted, call.id))
            if step_before is None or (step_before, twin_before) == (step, call.twin_of):
                continue
            is_shown = call.twin_of is None and twin_before is None
            self._move_timeline(call.id, call.span, step_before, place if is_shown else None)

    def _move_timeline(self, tool: int, span: int, before: int, step: Seen | None) -> None:
        """What was told of a tool call goes with it to another step, or is told again later."""
        told = (
            " WHERE span = (SELECT span FROM _steps WHERE id = :before)"
            " AND event IN ('tool_call.started', 'tool_call.ended')"
            " AND json_extract(detail, '$.span_id') = (SELECT span_id FROM _spans WHERE id = :span)"
        )
        values = {"span": span, "before": before}
        if step is None:
            self._connection.execute(f"DELETE FROM _timeline {told}", values)
            self._connection.execute("UPDATE _tool_calls SET told = NULL WHERE id = ?", (tool,))
            return
        self._connection.execute(
            "UPDATE _timeline SET span = :step, task = (SELECT task FROM _spans WHERE id = :span)"
            + told,
            values | {"step": step.row},
        )

    def _put_screenshots(
        self,
        trace: int,
        steps: dict[int, int],
        tasks: dict[int, int],
        task_ids: dict[int, str],
    ) -> None:
        """Place the pictures that steps of ours took; see `InputPictures` for the others."""
        found = self._connection.execute(
            "SELECT shot.id, shot.span, own.span_id, shot.task_id, shot.step_id"
            " FROM _spans AS own JOIN screenshots AS shot ON shot.span = own.id"
            " WHERE own.trace = ? AND shot.role = 'screenshot'",
            (trace,),
        )
        for row, span, span_id, *known in found.fetchall():
            task_id = task_ids[tasks[span]] if span in tasks else None
            wanted = [task_id, span_id if span in steps else None]
            if known != wanted:
                self._connection.execute(
                    "UPDATE screenshots SET task_id = ?, step_id = ? WHERE id = ?", (*wanted, row)
                )


def _shown(calls: Iterable[Call]) -> dict[int, list[Call]]:
    """The calls that are shown, by span row."""
    found: dict[int, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.order):
        if call.twin_of is None:
            found[call.span].append(call)
    return dict(found)
