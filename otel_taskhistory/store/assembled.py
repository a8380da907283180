# SPDX-License-Identifier: Apache-2.0
"""Writes what `assembly` planned for a trace, changing only the rows that differ."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final

from otel_taskhistory.store.assembly import PlannedTask, Seen, assemble
from otel_taskhistory.store.inputs import InputPictures
from otel_taskhistory.store.rows import Rows, StepFields, TaskFields
from otel_taskhistory.store.times import sqlite_ns

_SPANS: Final = """
SELECT own.id, own.span_id, own.parent_span_id, own.start_ns, own.end_ns, own.role, own.name,
    own.facts, own.task, tool.call_id,
    (SELECT group_concat(call_ids) FROM _model_calls WHERE span = own.id)
FROM _spans AS own LEFT JOIN _tool_calls AS tool ON tool.span = own.id
WHERE own.trace = ?
"""


class TraceAssembler:
    """Over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection, rows: Rows, inputs: InputPictures) -> None:
        self._connection = connection
        self._rows = rows
        self._inputs = inputs

    def assemble(self, trace: int, trace_id: str) -> None:
        """Bring tasks, steps and the links to them up to date for one trace."""
        spans: list[Seen] = []
        facts: dict[int, dict[str, Any]] = {}
        names: dict[int, str] = {}
        task_of: dict[int, int | None] = {}
        for row in self._connection.execute(_SPANS, (trace,)):
            spans.append(_seen(row))
            names[row[0]] = row[6]
            facts[row[0]] = json.loads(row[7])
            task_of[row[0]] = row[8]
        plan = assemble(spans)
        wanted_steps: set[int] = set()
        tasks: set[int] = set()
        refresh: list[int] = []
        for planned in plan.tasks:
            task = self._task(planned, trace, trace_id, facts)
            tasks.add(task)
            for span in planned.spans:
                if task_of[span.row] != task:
                    self._connection.execute(
                        "UPDATE _spans SET task = ? WHERE id = ?", (task, span.row)
                    )
            order = {span.row: n for n, span in enumerate(planned.steps, start=1)}
            by_start = sorted(planned.steps, key=lambda span: span.order)
            for number, span in enumerate(by_start, start=1):
                order[span.row] = span.step_index or number
            for span in by_start:
                step, _ = self._rows.put_step(
                    self._step(span, task, order[span.row], names, facts, plan.agents)
                )
                wanted_steps.add(step)
                refresh.append(step)
        self._drop_other_steps(trace, wanted_steps)
        self._link(plan.step_of, plan.twins, spans)
        for step in refresh:
            self._rows.refresh_step(step, totals=False)
        for span in spans:
            if span.role == "model" or (span.own and span.role == "step"):
                self._inputs.of_calls(span.row)
            elif span.role == "tool":
                self._inputs.of_result(span.row)
        for task in tasks:
            self._rows.total(task)
        self._drop_other_tasks(trace, tasks)

    def _task(
        self, planned: PlannedTask, trace: int, trace_id: str, facts: dict[int, dict[str, Any]]
    ) -> int:
        root = planned.root
        started = min((span.start_ns for span in planned.spans), default=0)
        if root is not None and not planned.first:
            task_id = f"{trace_id}-{root.span_id}"
        else:
            task_id = trace_id
        task = self._rows.task_row(trace, task_id, trace_id, started, planned.kind)
        if root is None:
            self._connection.execute(
                "UPDATE tasks SET kind = ?, root = NULL WHERE id = ?", (planned.kind, task)
            )
            return task
        attempts = [
            span
            for span in planned.spans
            if span.own and span.role == "task" and span.attempt > root.attempt
        ]
        last = max([root, *attempts], key=lambda span: (span.attempt, span.order))
        first, said = facts[root.row], facts[last.row]
        inner = _inner_agent(planned, facts)
        self._rows.put_task(
            task,
            TaskFields(
                root=last.row,
                kind=planned.kind,
                agent=said.get("agent") or inner.get("agent"),
                status=said.get("status", "running"),
                started_ns=sqlite_ns(root.start_ns),
                ended_ns=last.end_ns,
                conversation_id=said.get("conversation_id") or inner.get("conversation_id"),
                parent_task_id=first.get("parent_task_id"),
                attempt=last.attempt,
                error_type=said.get("error_type"),
                key=first.get("key"),
                goal=first.get("goal") or inner.get("goal"),
                result=said.get("result") or inner.get("result"),
                error=said.get("error"),
            ),
            started_ns=sqlite_ns(root.start_ns),
        )
        return task

    def _step(
        self,
        span: Seen,
        task: int,
        index: int,
        names: dict[int, str],
        facts: dict[int, dict[str, Any]],
        agents: dict[int, str],
    ) -> StepFields:
        said = facts[span.row]
        return StepFields(
            task=task,
            span=span.row,
            step_index=index,
            name=names[span.row],
            agent=agents.get(span.row),
            status=said.get("status", "running"),
            attempt=span.attempt,
            started_ns=sqlite_ns(span.start_ns),
            ended_ns=None if span.end_ns is None else sqlite_ns(span.end_ns),
            error=said.get("error"),
            error_type=said.get("error_type"),
            result=said.get("result"),
            result_content=None,
        )

    def _drop_other_steps(self, trace: int, wanted: set[int]) -> None:
        found = self._connection.execute(
            "SELECT step.id FROM _spans AS own JOIN _steps AS step ON step.span = own.id"
            " WHERE own.trace = ?",
            (trace,),
        ).fetchall()
        for (step,) in found:
            if step not in wanted:
                for table in ("_model_calls", "_tool_calls"):
                    self._connection.execute(
                        f"UPDATE {table} SET step = NULL WHERE step = ?", (step,)
                    )
                self._connection.execute("DELETE FROM _steps WHERE id = ?", (step,))

    def _link(self, step_of: dict[int, Seen], twins: dict[int, int], spans: list[Seen]) -> None:
        for table, role in (("_model_calls", "model"), ("_tool_calls", "tool")):
            for span in spans:
                if span.role != role:
                    continue
                step = step_of.get(span.row)
                self._connection.execute(
                    f"UPDATE {table} SET step = (SELECT id FROM _steps WHERE span = ?1),"
                    " task = (SELECT task FROM _spans WHERE id = ?2) WHERE span = ?2",
                    (step.row if step else None, span.row),
                )
        for span in spans:
            if span.role == "model":
                self._connection.execute(
                    "UPDATE _model_calls SET twin_of = ("
                    "SELECT id FROM _model_calls WHERE span = ?1 ORDER BY ordinal LIMIT 1)"
                    " WHERE span = ?2",
                    (self._twin(span, step_of, twins), span.row),
                )

    def _twin(self, span: Seen, step_of: dict[int, Seen], twins: dict[int, int]) -> int | None:
        if span.row in twins:
            return twins[span.row]
        step = step_of.get(span.row)
        # A step of ours that recorded its own prompt knows the call best.
        return step.row if step is not None and step.own and step.row != span.row else None

    def _drop_other_tasks(self, trace: int, wanted: set[int]) -> None:
        found = self._connection.execute("SELECT id FROM tasks WHERE trace = ?", (trace,))
        for (task,) in found.fetchall():
            if task in wanted:
                continue
            main = min(wanted)
            self._connection.execute("UPDATE _timeline SET task = ? WHERE task = ?", (main, task))
            self._connection.execute(
                "UPDATE screenshots SET task_id = (SELECT task_id FROM tasks WHERE id = ?1)"
                " WHERE task_id = (SELECT task_id FROM tasks WHERE id = ?2)",
                (main, task),
            )
            self._connection.execute("DELETE FROM tasks WHERE id = ?", (task,))
            self._rows.untouch(task)


def _seen(row: tuple[Any, ...]) -> Seen:
    said = json.loads(row[7])
    asked: set[str] = set()
    for listing in json.loads(f"[{row[10]}]") if row[10] else []:
        asked.update(listing)
    return Seen(
        row=row[0],
        span_id=row[1],
        parent_span_id=row[2],
        start_ns=int(row[3]),
        end_ns=None if row[4] is None else int(row[4]),
        role=row[5],
        own=said.get("own", False),
        agent=said.get("agent"),
        attempt=said.get("attempt", 1),
        step_index=said.get("step_index"),
        call_id=row[9],
        asked_for=frozenset(asked),
    )


def _inner_agent(planned: PlannedTask, facts: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """What the first agent run below a root that is no agent says of goal and agent."""
    for span in sorted(planned.spans, key=lambda span: span.order):
        if span.role == "agent" or facts[span.row].get("agent"):
            return facts[span.row]
    return {}
