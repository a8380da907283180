# SPDX-License-Identifier: Apache-2.0
"""Writes what `assembly` planned for a trace, changing only the rows that differ."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from otel_taskhistory.store.assembly import Plan, PlannedTask, Seen, assemble, attempts_in_order
from otel_taskhistory.store.inputs import InputPictures
from otel_taskhistory.store.rows import Rows, TaskFields
from otel_taskhistory.store.steps import StepFields, Steps
from otel_taskhistory.store.times import optional_ns, sqlite_ns
from otel_taskhistory.store.twins import FILLABLE, Call, put_together

_SPANS: Final = """
SELECT own.id, own.span_id, own.parent_span_id, own.parent_remote, own.start_ns, own.end_ns,
    own.role, own.name, own.facts, own.task, tool.call_id,
    (SELECT group_concat(call_ids) FROM _model_calls WHERE span = own.id),
    (SELECT ended_ns FROM _processes WHERE id = own.process)
FROM _spans AS own LEFT JOIN _tool_calls AS tool ON tool.span = own.id
WHERE {where}
"""
_OF_TRACE: Final = "own.trace = ?"
_ROOTS: Final = "own.trace = ? AND own.role = 'task'"
_ONE: Final = "own.trace = ? AND own.span_id = ?"

_CALL_COLUMNS: Final = tuple(chain.from_iterable(FILLABLE))
_CALLS: Final = f"""
SELECT call.id, call.span, own.span_id, call.ordinal, call.started_ns, call.filled, call.twin_of,
    call.step, call.task, call.nested, {", ".join(f"call.{name}" for name in _CALL_COLUMNS)}
FROM _spans AS own JOIN _model_calls AS call ON call.span = own.id WHERE own.trace = ?
"""
_WRITE_CALL: Final = f"""
UPDATE _model_calls SET filled = ?, twin_of = ?, step = ?, task = ?, nested = ?,
    {", ".join(f"{name} = ?" for name in _CALL_COLUMNS)}
WHERE id = ?
"""


@dataclass(frozen=True, slots=True)
class _Span:
    """A span as assembly sees it, and what else its rows need."""

    seen: Seen
    name: str
    facts: dict[str, Any]
    """See `Ledger`: texts as they are, or the numbers of their content rows."""
    task: int | None


class TraceAssembler:
    """Over one connection; a transaction is open whenever a method runs."""

    def __init__(
        self, connection: sqlite3.Connection, rows: Rows, steps: Steps, inputs: InputPictures
    ) -> None:
        self._connection = connection
        self._rows = rows
        self._steps = steps
        self._inputs = inputs

    def own_task(self, trace: int) -> TaskFields:
        """What the task spans of ours say, where they are all attempts at one task.

        As `assemble` would find it, without looking at other spans.
        """
        spans = {span.seen.row: span for span in self._spans(_ROOTS, trace)}
        attempts = attempts_in_order(s.seen for s in spans.values() if s.seen.is_own_task)
        planned = PlannedTask(attempts[0], first=True, attempts=attempts, spans=attempts)
        return self._task_fields(planned, spans)

    def own_step(self, trace: int, span_id: str, task: int) -> StepFields:
        """What the span of a step of ours says, likewise."""
        (span,) = self._spans(_ONE, trace, span_id)
        attempt = span.seen.attempt
        for above in self._spans(_ONE, trace, span.seen.parent_span_id):
            if above.seen.is_own_task:
                attempt = above.seen.attempt
        index = span.seen.step_index or 0  # there is one, or the trace would be assembled
        plan = Plan([], attempts={span.seen.row: attempt})
        return self._step_fields(span, task, index, plan)

    def assemble(self, trace: int, trace_id: str, changed: set[int]) -> None:
        """Bring tasks, steps and the links to them up to date for one trace.

        Args:
            trace: its row.
            trace_id: its id.
            changed: rows of the spans that came or grew.
        """
        spans = {span.seen.row: span for span in self._spans(_OF_TRACE, trace)}
        plan = assemble(span.seen for span in spans.values())
        tasks: dict[int, int] = {}
        """Span row → task row."""
        task_ids: dict[int, str] = {}
        for planned in plan.tasks:
            task, task_id = self._put_task(planned, trace, trace_id, spans)
            task_ids[task] = task_id
            tasks.update((span.row, task) for span in planned.spans)
        self._put_spans(spans, tasks)
        steps = self._put_steps(trace, plan, spans, tasks)
        self._put_calls(trace, plan, steps, tasks)
        self._put_tools(trace, plan, steps, tasks)
        self._put_screenshots(trace, steps, tasks, task_ids)
        self._steps.refresh_trace(trace)
        self._inputs.of_trace(trace)
        self._drop_other_tasks(trace, set(task_ids))
        for task in task_ids:
            self._rows.total(task)
        self._rows.touched |= {tasks[row] for row in changed}

    def _spans(self, where: str, *values: Any) -> list[_Span]:
        found = self._connection.execute(_SPANS.format(where=where), values).fetchall()
        return [self._span(row) for row in found]

    def _span(self, row: tuple[Any, ...]) -> _Span:
        facts = json.loads(row[8])
        if row[12] is not None:  # open, and its process has ended
            facts |= {"status": "interrupted", "interrupted_ns": row[12]}
        asked = json.loads(f"[{row[11]}]") if row[11] else []
        seen = Seen(
            row=row[0],
            span_id=row[1],
            parent_span_id=row[2],
            parent_remote=bool(row[3]),
            start_ns=int(row[4]),
            end_ns=None if row[5] is None else int(row[5]),
            role=row[6],
            own=facts.get("own", False),
            agent=self._text(facts.get("agent")),
            attempt=facts.get("attempt", 1),
            step_index=facts.get("step_index"),
            call_id=row[10],
            asked_for=frozenset(chain.from_iterable(asked)),
        )
        return _Span(seen, row[7], facts, row[9])

    def _text(self, value: str | int | None) -> str | None:
        """A text of the facts, wherever it is."""
        if not isinstance(value, int):
            return value
        row = self._rows.one("SELECT text FROM _contents WHERE id = ?", value)
        assert row is not None
        return str(row[0])

    # --- tasks ---

    def _put_task(
        self, planned: PlannedTask, trace: int, trace_id: str, spans: dict[int, _Span]
    ) -> tuple[int, str]:
        task_id = trace_id
        if planned.root is not None and not (planned.first and self._rows.has_first_task(trace)):
            task_id = f"{trace_id}-{planned.root.span_id}"
        fields = self._task_fields(planned, spans)
        task = self._rows.task(trace, task_id, trace_id, fields.started_ns, fields.kind)
        self._rows.put_task(task, fields)
        return task, task_id

    def _task_fields(self, planned: PlannedTask, spans: dict[int, _Span]) -> TaskFields:
        root = planned.root
        attempts = planned.attempts or ([root] if root is not None else [])
        said = [spans[span.row].facts for span in attempts]
        last = said[-1] if said else {}
        inner = _inner_agents(planned, spans)
        started = root or min(planned.spans, key=lambda span: span.order, default=None)

        def found(name: str, *where: dict[str, Any]) -> str | None:
            values = (facts[name] for facts in where if facts.get(name) not in (None, ""))
            return self._text(next(values, None))

        return TaskFields(
            root=attempts[-1].row if attempts else None,
            kind=planned.kind,
            agent=found("agent", *reversed(said), *inner),
            status=last.get("status", "running"),
            started_ns=sqlite_ns(started.start_ns) if started is not None else 0,
            ended_ns=optional_ns(last.get("interrupted_ns", attempts[-1].end_ns))
            if attempts
            else None,
            conversation_id=found("conversation_id", *reversed(said), *inner),
            parent_task_id=found("parent_task_id", *said),
            attempt=attempts[-1].attempt if attempts else 1,
            error_type=found("error_type", last),
            key=found("key", *said),
            goal=found("goal", *said, *inner) or self._text(last.get("goal")),
            result=self._text(last.get("result")) if "result" in last else found("result", *inner),
            error=found("error", last),
        )

    def _put_spans(self, spans: dict[int, _Span], tasks: dict[int, int]) -> None:
        for row, span in spans.items():
            if span.task == tasks[row]:
                continue
            self._connection.execute("UPDATE _spans SET task = ? WHERE id = ?", (tasks[row], row))
            if span.task is not None:
                self._connection.execute(
                    "UPDATE _timeline SET task = ? WHERE span = ?", (tasks[row], row)
                )

    def _drop_other_tasks(self, trace: int, wanted: set[int]) -> None:
        found = self._connection.execute("SELECT id FROM tasks WHERE trace = ?", (trace,))
        for (task,) in found.fetchall():
            if task not in wanted:
                self._rows.drop_task(task, wanted)

    # --- steps and what belongs to them ---

    def _put_steps(
        self, trace: int, plan: Plan, spans: dict[int, _Span], tasks: dict[int, int]
    ) -> dict[int, int]:
        """The steps; returns span row → step row."""
        known = self._steps.of_trace(trace)
        steps: dict[int, int] = {}
        for planned in plan.tasks:
            for number, seen in enumerate(planned.steps, start=1):
                fields = self._step_fields(spans[seen.row], tasks[seen.row], number, plan)
                step, before = known.pop(seen.row, (0, None))
                if before != fields:
                    step, _ = self._steps.put(fields)
                steps[seen.row] = step
        for row, (step, _) in known.items():
            self._steps.drop(step, row)
        return steps

    def _step_fields(self, span: _Span, task: int, number: int, plan: Plan) -> StepFields:
        seen, said = span.seen, span.facts
        result = said.get("result")
        return StepFields(
            task=task,
            span=seen.row,
            step_index=number if seen.step_index is None else seen.step_index,
            name=span.name,
            agent=seen.agent if seen.own else plan.agents.get(seen.row),
            status=said["status"],
            attempt=plan.attempts.get(seen.row, seen.attempt),
            started_ns=sqlite_ns(seen.start_ns),
            ended_ns=optional_ns(said.get("interrupted_ns", seen.end_ns)),
            error=self._text(said.get("error")),
            error_type=self._text(said.get("error_type")),
            result=None if isinstance(result, int) else result,
            result_content=result if isinstance(result, int) else None,
        )

    def _put_calls(
        self, trace: int, plan: Plan, steps: dict[int, int], tasks: dict[int, int]
    ) -> None:
        rows = self._connection.execute(_CALLS, (trace,)).fetchall()
        calls = [Call(*(*row[:5], _grouped(row[10:]), *row[5:7])) for row in rows]
        together = put_together(calls, plan)
        for row in rows:
            call = together[row[0]]
            # A call of a step of ours is in the step's own span.
            step = plan.step_of.get(call.span)
            wanted = (
                *(call.filled, call.twin_of),
                *(steps.get(call.span if step is None else step.row), tasks[call.span]),
                *(int(call.span in plan.nested), *chain.from_iterable(call.said)),
            )
            if wanted != row[5:]:
                self._connection.execute(_WRITE_CALL, (*wanted, call.id))

    def _put_tools(
        self, trace: int, plan: Plan, steps: dict[int, int], tasks: dict[int, int]
    ) -> None:
        found = self._connection.execute(
            "SELECT call.id, call.span, call.step, call.task FROM _spans AS own"
            " JOIN _tool_calls AS call ON call.span = own.id WHERE own.trace = ?",
            (trace,),
        )
        for row, span, *known in found.fetchall():
            place = plan.step_of.get(span)
            step = steps.get(place.row) if place is not None else None
            if known == [step, tasks[span]]:
                continue
            self._connection.execute(
                "UPDATE _tool_calls SET step = ?, task = ? WHERE id = ?", (step, tasks[span], row)
            )
            if known[0] not in (None, step):
                self._move_timeline(row, span, known[0], place)

    def _move_timeline(self, tool: int, span: int, before: int, step: Seen | None) -> None:
        """What was told of a tool call goes with it to another step, or is told again later."""
        told = (
            " WHERE span = (SELECT span FROM _steps WHERE id = ?2)"
            " AND event IN ('tool_call.started', 'tool_call.ended')"
            " AND json_extract(detail, '$.span_id') = (SELECT span_id FROM _spans WHERE id = ?1)"
        )
        if step is None:
            self._connection.execute(f"DELETE FROM _timeline {told}", (span, before))
            self._connection.execute("UPDATE _tool_calls SET told = NULL WHERE id = ?", (tool,))
            return
        self._connection.execute(
            "UPDATE _timeline SET span = ?3, task = (SELECT task FROM _spans WHERE id = ?1)" + told,
            (span, before, step.row),
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
            wanted = [task_ids[tasks[span]], span_id if span in steps else None]
            if known != wanted:
                self._connection.execute(
                    "UPDATE screenshots SET task_id = ?, step_id = ? WHERE id = ?", (*wanted, row)
                )


def _grouped(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
    """Columns of `FILLABLE` in its groups."""
    left = iter(values)
    return tuple(tuple(next(left) for _ in names) for names in FILLABLE)


def _inner_agents(planned: PlannedTask, spans: dict[int, _Span]) -> list[dict[str, Any]]:
    """What agent runs say of goal and agent, the first one first, where nothing of ours does."""
    if any(span.own for span in planned.spans):
        return []
    inner = (seen for seen in planned.spans if seen.role == "agent" or seen.agent)
    return [spans[seen.row].facts for seen in sorted(inner, key=lambda seen: seen.order)]
