# SPDX-License-Identifier: Apache-2.0
"""What the spans of a task say of it as a whole: goal, result, agent, status and its neighbours.

Each fact comes from the first of these that tells it:

* goal: the root; the agent runs that no tool call began, the first to begin first; the earliest
  prompt (`otel_taskhistory.store.goals`).
* result: the root; of those agent runs the outermost, and of these the last to end; when the task
  succeeded, the last decision.
* agent: the root; the agent runs; any span, the first to begin first. Conversation: likewise.
* the task that it is part of: what the root names; the trace that the root has a link to, else the
  first span with a link.
* status and error: `otel_taskhistory.store.task_outcome`.

A task of our own tracer says all that itself, and what others say below it is about its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from otel_taskhistory.store.assembly import Plan, PlannedTask
from otel_taskhistory.store.goals import Sayings
from otel_taskhistory.store.rows import TaskFields
from otel_taskhistory.store.span_rows import Facts, Text
from otel_taskhistory.store.task_outcome import failures_of, runs_of
from otel_taskhistory.store.times import optional_ns, sqlite_ns
from otel_taskhistory.store.tree import Seen
from otel_taskhistory.store.twins import FILLABLE, Call

_PROMPT = FILLABLE.index(("prompt_node", "prompt_text"))
_DECISION = FILLABLE.index(("decision_node", "decision_text"))


class TaskReader:
    """Reads tasks of one trace.

    Args:
        text: gives a text of the facts.
        facts: of the spans of the trace, by row.
    """

    def __init__(self, text: Text, facts: Mapping[int, Facts]) -> None:
        self._text = text
        self._facts = facts

    def own(self, task: PlannedTask) -> TaskFields:
        """Of a task with spans of our own tracer, or whose first root was."""
        root = task.root
        attempts = task.attempts or ([root] if root is not None else [])
        said = [self._facts[span.row] for span in attempts]
        last = said[-1] if said else {}
        started = root or min(task.spans, key=lambda span: span.order, default=None)
        ended = last.get("interrupted_ns", attempts[-1].end_ns) if attempts else None
        return TaskFields(
            root=attempts[-1].row if attempts else None,
            kind=task.kind,
            agent=self._first("agent", reversed(said)),
            status=last.get("status", "running"),
            started_ns=sqlite_ns(started.start_ns) if started is not None else 0,
            ended_ns=optional_ns(ended),
            conversation_id=self._first("conversation_id", reversed(said)),
            parent_task_id=self._first("parent_task_id", said),
            attempt=attempts[-1].attempt if attempts else 1,
            error_type=self._first("error_type", [last]),
            key=self._first("key", said),
            goal=self._first("goal", said) or self._text(last.get("goal")),
            result=self._text(last.get("result")),
            error=self._first("error", [last]),
        )

    def fields(
        self, task: PlannedTask, plan: Plan, sayings: Sayings, calls: Mapping[int, list[Call]]
    ) -> TaskFields:
        """Of any task.

        Args:
            task: of `plan`.
            plan: of its trace.
            sayings: reads prompts and decisions.
            calls: the model calls of the trace that are shown, by span row.
        """
        own = self.own(task)
        if any(span.own for span in task.spans):
            return own
        runs = runs_of(task, plan.tree)
        in_order = sorted(task.spans, key=lambda span: span.order)
        root = [self._facts[task.root.row]] if task.root is not None else []
        by_runs = [*root, *(self._facts[span.row] for _, span in runs)]
        by_all = [*by_runs, *(self._facts[span.row] for span in in_order)]
        failed = [self._facts[span.row] for span in failures_of(task, plan.tree)]
        status = failed[0]["status"] if failed else own.status
        asked = [span for span in in_order if span.row in calls and self._is_outer(span, plan)]
        goal = self._first("goal", by_runs) or _goal(asked, calls, sayings)
        result = own.result or self._result_of(runs)
        if result is None and status == "succeeded":
            result = _answer(asked, calls, sayings)
        linked = (span.linked for span in (*([task.root] if task.root else ()), *in_order))
        return TaskFields(
            root=own.root,
            kind=own.kind,
            agent=self._first("agent", by_all),
            status=status,
            started_ns=own.started_ns,
            ended_ns=own.ended_ns,
            conversation_id=self._first("conversation_id", by_all),
            parent_task_id=own.parent_task_id or next(filter(None, linked), None),
            attempt=own.attempt,
            error_type=self._first("error_type", failed) or own.error_type,
            key=own.key,
            goal=goal,
            result=result,
            error=self._first("error", failed) or own.error,
        )

    def _first(self, name: str, facts: Iterable[Facts]) -> str | None:
        return self._text(next((f[name] for f in facts if f.get(name) not in (None, "")), None))

    def _result_of(self, runs: list[tuple[int, Seen]]) -> str | None:
        with_result = [(depth, span) for depth, span in runs if span.has_result]
        if not with_result:
            return None
        _, last = min(with_result, key=lambda run: (run[0], -(run[1].end_ns or 0), run[1].order))
        return self._text(self._facts[last.row]["result"])

    def _is_outer(self, span: Seen, plan: Plan) -> bool:
        return span.row not in plan.tree.below_tool


def _goal(asked: list[Seen], calls: Mapping[int, list[Call]], sayings: Sayings) -> str | None:
    for span in asked:
        for call in calls[span.row]:
            prompt = call.said[_PROMPT]
            if any(row is not None for row in prompt):
                return sayings.goal((prompt[0], prompt[1]))
    return None


def _answer(asked: list[Seen], calls: Mapping[int, list[Call]], sayings: Sayings) -> str | None:
    last = max(asked, key=lambda span: (span.end_ns or 0, span.order), default=None)
    if last is None:
        return None
    decision = calls[last.row][-1].said[_DECISION]
    return sayings.result((decision[0], decision[1]))
