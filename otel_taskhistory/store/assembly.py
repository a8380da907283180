# SPDX-License-Identifier: Apache-2.0
"""Which spans of a trace are tasks, steps and whose tool calls: a pure function of the spans.

Used for traces with spans of other instrumentations; spans of our own tracer say themselves what
they are. The rules:

* The task is the first parentless span (a task span of ours before any other). A further
  parentless span that is an agent run, or that starts after the first root ended, is a task of
  its own; any other belongs to the first.
* A step of ours is a step. Below it, model and tool spans belong to it and open no steps.
* Elsewhere each model call opens a step. A model span within a model span is the same call seen
  by two instrumentations.
* A tool call belongs to the step whose decision asked for its call id, else to the latest model
  call of the same agent that began before it, else to the latest of any agent.
* A task without model calls and without steps of ours has the children of its root as steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Seen:
    """What assembly needs to know of one span."""

    row: int
    span_id: str
    parent_span_id: str | None
    start_ns: int
    end_ns: int | None
    role: str
    own: bool = False
    agent: str | None = None
    attempt: int = 1
    step_index: int | None = None
    call_id: str | None = None
    asked_for: frozenset[str] = frozenset()

    @property
    def order(self) -> tuple[int, str]:
        """Spans are put in the order of their start, equal ones by id."""
        return (self.start_ns, self.span_id)


@dataclass(slots=True)
class PlannedTask:
    """A task: its root (None while unseen) and its steps in order."""

    root: Seen | None
    first: bool
    steps: list[Seen] = field(default_factory=list)
    spans: list[Seen] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """``agent`` when anything in it is of an agent or a model."""
        return "agent" if any(span.own or span.role != "other" for span in self.spans) else "other"


@dataclass(slots=True)
class Plan:
    """The outcome: tasks, and for model and tool spans the step span they belong to."""

    tasks: list[PlannedTask]
    step_of: dict[int, Seen]
    twins: dict[int, int]
    """Model span row → row of the model or step span that is the same call."""
    agents: dict[int, str]
    """Span row → name of the agent it runs under."""


def assemble(spans: Iterable[Seen]) -> Plan:
    """Plan one trace. The order of `spans` makes no difference."""
    ordered = sorted(spans, key=lambda span: span.order)
    tree = _Tree(ordered)
    tasks = _tasks(ordered, tree)
    plan = Plan(tasks, {}, {}, {})
    for span in ordered:
        agent = next((s.agent for s in tree.upwards(span) if s.agent), None)
        if agent:
            plan.agents[span.row] = agent
    for task in tasks:
        _plan_steps(task, tree, plan)
    return plan


class _Tree:
    def __init__(self, spans: list[Seen]) -> None:
        self.by_id = {span.span_id: span for span in spans}
        self.children: dict[str, list[Seen]] = defaultdict(list)
        for span in spans:
            if span.parent_span_id:
                self.children[span.parent_span_id].append(span)

    def parent(self, span: Seen) -> Seen | None:
        return self.by_id.get(span.parent_span_id) if span.parent_span_id else None

    def upwards(self, span: Seen) -> Iterator[Seen]:
        """The span and its ancestors; a cycle ends where it began."""
        met: set[int] = set()
        at: Seen | None = span
        while at is not None and at.row not in met:
            met.add(at.row)
            yield at
            at = self.parent(at)


def _tasks(ordered: list[Seen], tree: _Tree) -> list[PlannedTask]:
    roots = [span for span in ordered if span.parent_span_id is None]
    own = [span for span in roots if span.own and span.role == "task"]
    main = PlannedTask(next(iter(own or roots), None), first=True)
    tasks = [main]
    by_root: dict[int, PlannedTask] = {}
    for root in roots:
        if root is main.root or main.root is None:
            continue
        after = main.root.end_ns is not None and root.start_ns > main.root.end_ns
        if root.role in ("agent", "task") or after:
            task = PlannedTask(root, first=False)
            by_root[root.row] = task
            tasks.append(task)
    for span in ordered:
        *_, top = tree.upwards(span)
        by_root.get(top.row, main).spans.append(span)
    return tasks


def _plan_steps(task: PlannedTask, tree: _Tree, plan: Plan) -> None:
    calls: list[Seen] = []
    for span in task.spans:
        if span.own and span.role == "step":
            task.steps.append(span)
            calls.append(span)
        elif span.role == "model":
            _place_call(span, tree, plan, task, calls)
    if not task.steps and task.root is not None:
        task.steps = [s for s in tree.children[task.root.span_id] if s.row != task.root.row]
    steps = {step.row for step in task.steps}
    for span in task.spans:
        if span.role == "tool":
            step = _step_of_tool(span, tree, plan, steps, calls)
            if step is not None:
                plan.step_of[span.row] = step


def _place_call(span: Seen, tree: _Tree, plan: Plan, task: PlannedTask, calls: list[Seen]) -> None:
    for above in tree.upwards(span):
        if above is span:
            continue
        if above.own and above.role == "step":
            plan.step_of[span.row] = above
            return
        if above.role == "model":
            plan.twins[span.row] = plan.twins.get(above.row, above.row)
            plan.step_of[span.row] = plan.step_of.get(above.row, above)
            return
    plan.step_of[span.row] = span
    task.steps.append(span)
    calls.append(span)


def _step_of_tool(
    span: Seen, tree: _Tree, plan: Plan, steps: set[int], calls: list[Seen]
) -> Seen | None:
    for above in tree.upwards(span):
        if above.row in steps and (above.own or above.role != "model"):
            return above
    before = [call for call in calls if call.start_ns <= span.start_ns]
    asked = [call for call in calls if span.call_id in call.asked_for] if span.call_id else []
    if asked:
        return max(asked, key=lambda call: (call.start_ns <= span.start_ns, call.order))
    agent = plan.agents.get(span.row)
    same = [call for call in before if plan.agents.get(call.row) == agent]
    return max(same or before, key=lambda call: call.order, default=None)
