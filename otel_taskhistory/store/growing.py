# SPDX-License-Identifier: Apache-2.0
"""Traces that only grow: where a span goes that changes nothing but its own step.

A trace is assembled as a whole when a span may change what others mean. Most spans cannot: a model
call after all others, a tool call that is none of a step before it, a span that says nothing. For
those the outcome of the last assembly is kept in memory, and it is looked whether each rule of
`otel_taskhistory.store.assembly` would come out the same for all the others. Where that is not
certain the answer is no, and the trace is assembled as a whole again: which of the two is done
makes no difference to the rows (``tests/store/test_growing.py`` compares them).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_taskhistory.store.assembly import Plan, ToolSteps
from otel_taskhistory.store.rows import TaskFields
from otel_taskhistory.store.span_rows import SpanRow
from otel_taskhistory.store.tree import Seen
from otel_taskhistory.store.twins import FILLABLE, Call

_REMEMBERED: Final = 20_000
"""Spans, over all traces; the traces that grew last stay."""

_PROMPT: Final = FILLABLE.index(("prompt_node", "prompt_text"))

_CALLS: Final = frozenset({"model", "tool", "other"})
"""Roles of spans that can come without changing others."""

_OF_TASK: Final = ("agent", "conversation_id")
"""Facts that a task takes from any of its spans, those of its runs before others."""

_STAYS: Final = (
    *("span_id", "parent_span_id", "parent_remote", "start_ns", "role", "own", "agent", "attempt"),
    *("step_index", "linked", "scope", "call_attempt"),
)
"""What makes a span another one than it was."""


@dataclass(slots=True)
class Grown:
    """A trace as it was assembled last, one task of an instrumentation, which has not ended.

    Attributes:
        task: its row.
        plan: of the whole trace.
        spans: all of them, by row.
        fields: what the task says.
        steps: span row → number of the step that it opened.
        tools: finds the steps of tool calls.
        root: of the task, if it is there.
    """

    task: int
    plan: Plan
    spans: dict[int, SpanRow]
    fields: TaskFields
    steps: dict[int, int]
    tools: ToolSteps
    root: Seen | None
    step_rows: dict[int, int] = field(default_factory=dict)
    """Span row → row of the step that it opened."""
    settled: frozenset[str] = frozenset()
    """What the task has from its root or its runs, whatever other spans say: names of facts."""
    first: int | None = None
    """Row of the model call whose prompt the goal is from."""
    last_ns: int = -1
    """When the last model or tool call began."""
    named: set[str] = field(default_factory=set)
    """Ids of spans that others name as their parent."""
    beside_runs: set[str] = field(default_factory=set)
    """Ids of spans right below which there are agent runs."""
    scopes: dict[str | None, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Of the model calls right below each span."""
    responses: dict[str, int] = field(default_factory=dict)
    """Id of a response → row of the span that names it."""
    asked: dict[str, int] = field(default_factory=dict)
    """Id of a tool call that was asked for → row of the span that did."""
    called: set[str] = field(default_factory=set)
    """Ids of the tool calls that are there."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        spans: Mapping[int, SpanRow],
        task: int,
        fields: TaskFields,
        step_rows: Mapping[int, int],
        calls: Mapping[int, list[Call]],
    ) -> Grown | None:
        """What is to be kept; None for a trace that has to be assembled as a whole each time.

        Args:
            plan: of the whole trace.
            spans: all of them, by row.
            task: its row.
            fields: what it says.
            step_rows: span row → row of the step that it opened.
            calls: the model calls that are shown, by span row.
        """
        if len(plan.tasks) != 1 or not plan.tree.is_as_named:
            return None
        (only,) = plan.tasks
        has_calls = bool(only.steps) and all(step.role == "model" for step in only.steps)
        if not has_calls or fields.status != "running":
            return None
        if plan.same_call or plan.same_tool or plan.nested or plan.retried:
            return None
        if any(row.seen.own or row.seen.role == "pending" for row in spans.values()):
            return None
        steps = {step.row: number for number, step in enumerate(only.steps, start=1)}
        grown = cls(task, plan, dict(spans), fields, steps, ToolSteps(only, plan, {}), only.root)
        grown.step_rows = dict(step_rows)
        told: set[str] = set()
        for row in spans.values():
            grown._note(row.seen)
            is_run = row.seen.role in ("agent", "task") and row.seen.row not in plan.tree.below_tool
            if is_run or row.seen is only.root:
                told.update(name for name, value in row.facts.items() if value != "")
        grown.settled = frozenset(told)
        if "goal" not in told:
            first = only.steps[0].row
            prompt = calls[first][0].said[_PROMPT] if first in calls else ()
            if first in plan.tree.below_tool or all(value is None for value in prompt):
                return None  # a later call is where the goal is from
            grown.first = first
        return grown

    def take(self, row: SpanRow) -> bool:
        """Add a span that came, or one that has changed, to what is known.

        Returns:
            False when others may mean something else now. Then this is to be thrown away.
        """
        span, before = row.seen, self.spans.get(row.seen.row)
        if span.own or span.role not in _CALLS or span.parent_span_id in self.beside_runs:
            return False
        if self.root is not None and span.row == self.root.row:
            return False
        if not (self._fits(span) if before is None else self._is_the_same(before, row)):
            return False
        if not (self._tells_nothing(row) and self._is_one_call(span)):
            return False
        tree = self.plan.tree
        self.spans[span.row] = row
        tree.add(span)
        if tree.top[span.row] is not self.root:
            if tree.is_root(tree.top[span.row]):
                return False  # what was only made ready is put to use, perhaps
            if self.root is not None:
                tree.inherit(self.root, [span])
        if span.role == "model":
            self._take_model(span, new=before is None)
        elif span.role == "tool" and not self._take_tool(span, new=before is None):
            return False
        self._note(span)
        return True

    def step_of(self, span: Seen) -> Seen | None:
        """The span of the step that it belongs to."""
        return self.plan.step_of.get(span.row)

    # --- may it come? ---

    def _fits(self, span: Seen) -> bool:
        """Whether a new span comes to lie where no other is moved by it."""
        tree = self.plan.tree
        if tree.is_root(span) or span.span_id in tree.by_id:
            return False
        if self.root is None and span.start_ns < self.fields.started_ns:
            return False
        if span.role == "model" and (span.start_ns <= self.last_ns or span.call_attempt > 1):
            return False
        if span.span_id not in self.named:
            return True
        # Those below it named a span that was not there. Now it is, and is all there is above them.
        return (
            span.role == "other"
            and span.agent is None
            and span.parent_span_id not in tree.by_id
            and not any(
                below.seen.parent_remote and below.seen.parent_span_id == span.span_id
                for below in self.spans.values()
            )
        )

    def _is_the_same(self, before: SpanRow, row: SpanRow) -> bool:
        """Whether a known span is where it was and what it was, whatever it says now."""
        if any(before.facts.get(name) != row.facts.get(name) for name in _OF_TASK):
            return False
        return all(getattr(before.seen, name) == getattr(row.seen, name) for name in _STAYS)

    def _tells_nothing(self, row: SpanRow) -> bool:
        """Whether the task has all that the span could tell of it from others, or the same."""
        fields, span = self.fields, row.seen
        for name in _OF_TASK:
            said = row.facts.get(name)
            if said and name not in self.settled and said != getattr(fields, name):
                return False
        if span.linked is not None and span.linked != fields.parent_task_id:
            return False
        if span.role != "model" or "goal" in self.settled:
            return True
        return fields.goal is not None and span.row != self.first

    def _is_one_call(self, span: Seen) -> bool:
        """Whether it is a call of its own, and so is each other one, as far as it matters."""
        tree = self.plan.tree
        above = tree.parent(span)
        if above is not None and span.role != "other":
            calls_above = tree.model_above if span.role == "model" else tree.tool_above
            if above.role == span.role or (above.role == "other" and above.row in calls_above):
                return False
        if span.role != "model":
            return True
        if any(self.responses.get(found, span.row) != span.row for found in span.response_ids):
            return False
        if any(self.asked.get(found, span.row) != span.row for found in span.asked_for):
            return False
        known = self.spans.get(span.row)
        asked = known.seen.asked_for if known is not None else frozenset()
        if not asked <= span.asked_for or (span.asked_for - asked) & self.called:
            return False
        return not self.scopes[span.parent_span_id] - {span.scope}

    # --- it comes ---

    def _take_model(self, span: Seen, *, new: bool) -> None:
        if new:
            self.steps[span.row] = len(self.steps) + 1
            self.plan.step_of[span.row] = span
            self.tools.add(span, span.asked_for)
            return
        self.plan.step_of[span.row] = span
        self.tools.ask(span, [found for found in span.asked_for if found not in self.asked])

    def _take_tool(self, span: Seen, *, new: bool) -> bool:
        """Whether it is, or stays, in a step that can be told."""
        step = self.tools.step_of(span)
        before = self.plan.step_of.get(span.row)
        if not new and (before.row if before else None) != (step.row if step else None):
            return False
        if step is not None:
            self.plan.step_of[span.row] = step
        return True

    def _note(self, span: Seen) -> None:
        if span.parent_span_id is not None:
            self.named.add(span.parent_span_id)
            if span.role not in _CALLS:
                self.beside_runs.add(span.parent_span_id)
        if span.role == "model":
            self.scopes[span.parent_span_id].add(span.scope)
            self.responses.update(dict.fromkeys(span.response_ids, span.row))
            self.asked.update(dict.fromkeys(span.asked_for, span.row))
        if span.call_id is not None:
            self.called.add(span.call_id)
        if span.role in ("model", "tool"):
            self.last_ns = max(self.last_ns, span.start_ns)


class Growing:
    """What is kept of the traces that grew last."""

    def __init__(self) -> None:
        self._traces: OrderedDict[int, Grown] = OrderedDict()
        self._spans = 0

    def clear(self) -> None:
        """What is kept may not be true any more."""
        self._traces.clear()
        self._spans = 0

    def pop(self, trace: int) -> Grown | None:
        """What is kept of a trace, which is to be put back when it is still true."""
        grown = self._traces.pop(trace, None)
        if grown is not None:
            self._spans -= len(grown.spans)
        return grown

    def put(self, trace: int, grown: Grown | None) -> None:
        """Keep it, the longer the later it is put."""
        self.pop(trace)
        if grown is None:
            return
        self._traces[trace] = grown
        self._spans += len(grown.spans)
        while self._spans > _REMEMBERED:
            self.pop(next(iter(self._traces)))
