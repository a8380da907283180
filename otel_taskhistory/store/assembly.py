# SPDX-License-Identifier: Apache-2.0
"""Which spans of a trace are tasks, steps and whose tool calls: a pure function of the spans.

Used for traces with spans of other instrumentations; spans of our own tracer say themselves what
they are. The rules (their reasons are in ``docs/reading-traces.md``):

* A root is a span without a parent, or one whose parent is in another process and not recorded.
  A step or tool call of ours is none: the task it belongs to is not here yet.
* The task is the first root (a task span of ours before any other; not one below which something
  is only made ready). A further root that is an agent run, or that starts after the first root
  ended, is a task of its own; any other belongs to the first, and so do further attempts at it.
  Spans whose parent never came belong to the task that was going on when they began.
* A trace in which things are only made ready has no task.
* A step of ours is a step. Below it, model and tool spans belong to it and open no steps.
* Elsewhere each model call opens a step, but one that is the same call as another
  (`otel_taskhistory.store.same_calls`), and a further attempt at the call before it.
* A tool call belongs to the step whose decision asked for its call id, else to the latest model
  call that began before it of the same agent run, else of an agent of that name, else of any.
* A task with no model calls and nothing of ours has as steps those spans that call themselves one,
  else the children of its root.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from otel_taskhistory.store.same_calls import same_model_calls, same_tool_calls
from otel_taskhistory.store.tree import Seen, Tree

__all__ = ["Plan", "PlannedTask", "Seen", "ToolSteps", "assemble", "attempts_in_order"]

_SAYS_NOTHING: Final = frozenset({"other", "tool", "setup"})
"""Roles that do not make a trace one of an agent."""


@dataclass(slots=True)
class PlannedTask:
    """A task: its root (None while unseen), its attempts and its steps in order."""

    root: Seen | None
    first: bool
    attempts: list[Seen] = field(default_factory=list)
    """Task spans of ours, the root too, the latest last."""
    steps: list[Seen] = field(default_factory=list)
    spans: list[Seen] = field(default_factory=list)
    """All its spans, parents before their children."""

    @property
    def kind(self) -> str:
        """``agent`` when an agent or a model has to do with it."""
        if any(span.own or span.role not in _SAYS_NOTHING for span in self.spans):
            return "agent"
        return "other"


@dataclass(slots=True)
class Plan:
    """The outcome."""

    tasks: list[PlannedTask]
    tree: Tree
    step_of: dict[int, Seen] = field(default_factory=dict)
    """Model or tool span row → the span of the step it belongs to."""
    same_call: dict[int, int] = field(default_factory=dict)
    """Model span row → row of a model span that is the same call and is shown before it."""
    same_tool: dict[int, int] = field(default_factory=dict)
    """Tool span row → row of the tool span that is shown for it."""
    nested: set[int] = field(default_factory=set)
    """Model span rows below a tool or agent of their step: calls of somebody else."""
    attempts: dict[int, int] = field(default_factory=dict)
    """Row of a step of ours → the attempt at the task it belongs to."""
    retried: dict[int, Seen] = field(default_factory=dict)
    """Row of a step → the span of the last attempt at its model call."""

    @property
    def agents(self) -> dict[int, str]:
        """Span row → name of the agent it runs under."""
        return self.tree.agents


def assemble(spans: Iterable[Seen]) -> Plan:
    """Plan one trace. The order of `spans` makes no difference."""
    tree = Tree(spans)
    plan = Plan(_tasks(tree), tree)
    for task in plan.tasks:
        if task.root is not None:
            tree.inherit(task.root, task.spans)
        _plan_steps(task, plan)
    return plan


def attempts_in_order(spans: Iterable[Seen]) -> list[Seen]:
    """Attempts at one task, the latest last."""
    return sorted(spans, key=lambda span: (span.attempt, span.order))


# --- tasks ---


def _tasks(tree: Tree) -> list[PlannedTask]:
    at_work = {
        tree.top[span.row].row
        for span in tree.downwards
        if span.role != "setup" and not tree.is_below_setup(span)
    }
    if not at_work:
        return []
    roots = [span for span in tree.ordered if tree.is_root(span) and span.row in at_work]
    own = attempts_in_order(span for span in tree.ordered if span.is_own_task)
    main = PlannedTask(next(iter(own or roots), None), first=True)
    further = [root for root in roots if root is not main.root and not _is_attempt(root)]
    separate = {root.row for root in further if root.is_own_task}
    main.attempts = [span for span in own if span.row not in separate]
    ended = _ended(main)
    tasks = [main]
    by_root: dict[int, PlannedTask] = {}
    for root in further if main.root is not None else ():
        if root.role in ("agent", "task") or (ended is not None and root.start_ns > ended):
            attempts = [root] if root.is_own_task else []
            by_root[root.row] = PlannedTask(root, first=False, attempts=attempts)
            tasks.append(by_root[root.row])
    by_time = _ByTime(tasks)
    for span in tree.downwards:
        top = tree.top[span.row]
        task = by_root.get(top.row)
        if task is None:
            task = main if tree.is_root(top) or top.own else by_time.during(top)
        task.spans.append(span)
    return tasks


def _is_attempt(root: Seen) -> bool:
    """Whether it is a further attempt at the task of its trace, whose first root may be gone."""
    return root.is_own_task and (root.attempt > 1 or root.parent_span_id is not None)


def _ended(task: PlannedTask) -> int | None:
    """When the last attempt at a task ended; None while one runs."""
    ends: list[int] = []
    for span in task.attempts or ([task.root] if task.root else []):
        if span.end_ns is None:
            return None
        ends.append(span.end_ns)
    return max(ends, default=None)


class _ByTime:
    """Finds the task during which a span began whose parent never came."""

    def __init__(self, tasks: list[PlannedTask]) -> None:
        self._first, *further = tasks
        self._roots = [(task.root, task) for task in further if task.root is not None]
        self._roots.sort(key=lambda found: found[0].order)
        self._starts = [root.start_ns for root, _ in self._roots]

    def during(self, span: Seen) -> PlannedTask:
        """The last that began before it, if that was going on then; else the first."""
        position = bisect_right(self._starts, span.start_ns)
        if position:
            root, task = self._roots[position - 1]
            if root.end_ns is None or span.start_ns <= root.end_ns:
                return task
        return self._first


# --- steps ---


def _plan_steps(task: PlannedTask, plan: Plan) -> None:
    """Decide the steps of a task, and whose the model and tool spans are."""
    tree = plan.tree
    plan.same_call |= same_model_calls(task.spans, tree)
    plan.same_tool |= same_tool_calls(task.spans, tree)
    opening: list[Seen] = []
    for span in task.spans:
        if span.is_own_step:
            above = tree.begun_by(span)
            given = above.attempt if above is not None and above.is_own_task else span.attempt
            plan.attempts[span.row] = given
            task.steps.append(span)
        elif span.role == "model":
            step = tree.step_above.get(span.row)
            if step is not None:
                plan.step_of[span.row] = step
                if span.row in tree.nested:
                    plan.nested.add(span.row)
            elif span.row not in plan.same_call:
                opening.append(span)
    _open_steps(task, opening, plan)
    for span in task.spans:
        if span.role == "model" and span.row not in plan.step_of:
            plan.step_of[span.row] = plan.step_of[_shown(span.row, plan)]
    task.steps.sort(key=lambda span: span.order)
    within: dict[int, Seen] = {}
    if not task.steps and not any(span.own for span in task.spans):
        within = _steps_without_calls(task, tree)
        for span in sorted(task.spans, key=lambda span: span.order):
            # A step that is no agent's may hold the run of one.
            if span.row in within and span.row in tree.agents:
                tree.agents.setdefault(within[span.row].row, tree.agents[span.row])
    tools = ToolSteps(task, plan, within)
    for span in task.spans:
        if span.role == "tool":
            outer = plan.same_tool.get(span.row)
            step = plan.step_of.get(outer) if outer is not None else tools.step_of(span)
            if step is not None:
                plan.step_of[span.row] = step


def _shown(row: int, plan: Plan) -> int:
    """The model span that is shown for a call."""
    while row in plan.same_call:
        row = plan.same_call[row]
    return row


def _open_steps(task: PlannedTask, opening: list[Seen], plan: Plan) -> None:
    """A step for each model call, and none for a further attempt at the one before it."""
    latest: dict[int | None, Seen] = {}
    for span in sorted(opening, key=lambda span: span.order):
        run = plan.tree.run.get(span.row)
        key = run.row if run is not None else None
        step = latest.get(key) if span.call_attempt > 1 else None
        if step is None:
            step = latest[key] = span
            task.steps.append(span)
        else:
            plan.retried[step.row] = span
        plan.step_of[span.row] = step


def _steps_without_calls(task: PlannedTask, tree: Tree) -> dict[int, Seen]:
    """The steps where no model call was recorded; returns span row → the step that it is in."""
    if any(span.role == "step" for span in task.spans):
        task.steps = [span for span in task.spans if span.role == "step"]
    else:
        task.steps = list(_right_below(task, tree))
    task.steps.sort(key=lambda span: span.order)
    rows = {span.row for span in task.steps}
    within: dict[int, Seen] = {}
    for span in task.spans:
        above = tree.parent(span)
        if span.row in rows:
            within[span.row] = span
        elif above is not None and above.row in within:
            within[span.row] = within[above.row]
    return within


def _right_below(task: PlannedTask, tree: Tree) -> Iterator[Seen]:
    """The children of the root; of one that never came, the spans that name it."""
    root = task.root.row if task.root is not None else None
    for span in task.spans:
        if span.role == "setup" or span.row in tree.gone or span.row == root:
            continue
        above = tree.parent(span)
        if (above.row if above is not None else None) == root:
            yield span


class ToolSteps:
    """Finds the steps of tool calls.

    Args:
        task: with its steps.
        plan: whose step each model call is.
        within: the step that each span is in, where there are no model calls.
    """

    def __init__(self, task: PlannedTask, plan: Plan, within: dict[int, Seen]) -> None:
        self._tree = plan.tree
        self._within = within
        self._latest = _Latest()
        self._of_run: dict[int, _Latest] = defaultdict(_Latest)
        self._of_agent: dict[str | None, _Latest] = defaultdict(_Latest)
        self._asked: dict[str, _Latest] = defaultdict(_Latest)
        """By the id of a call the steps that asked for it."""
        asked: dict[int, set[str]] = defaultdict(set)
        for span in task.spans:
            step = span if span.is_own_step else plan.step_of.get(span.row)
            if step is not None and span.role != "tool":
                asked[step.row] |= span.asked_for
        for step in task.steps:
            self.add(step, asked[step.row])

    def add(self, step: Seen, asked_for: Iterable[str]) -> None:
        """A step that begins after those that are known, and the calls that it asked for."""
        self._latest.add(step)
        run = self._tree.run.get(step.row)
        if run is not None:
            self._of_run[run.row].add(step)
        self._of_agent[self._tree.agents.get(step.row)].add(step)
        self.ask(step, asked_for)

    def ask(self, step: Seen, asked_for: Iterable[str]) -> None:
        """It has asked for these calls, too; nobody did before."""
        for call_id in asked_for:
            self._asked[call_id].add(step)

    def is_asked(self, call_id: str) -> bool:
        """Whether a step has asked for this call."""
        return call_id in self._asked

    def step_of(self, tool: Seen) -> Seen | None:
        """The step that a tool call belongs to."""
        if tool.own:  # a call of ours is begun by its step
            above = self._tree.begun_by(tool)
            return above if above is not None and above.is_own_step else None
        within = self._tree.step_above.get(tool.row) or self._within.get(tool.row)
        if within is not None:
            return within
        asked = self._asked.get(tool.call_id) if tool.call_id else None
        if asked is not None:
            return asked.before(tool.start_ns) or asked.last
        run = self._tree.run.get(tool.row)
        groups = (
            self._of_run.get(run.row) if run is not None else None,
            self._of_agent.get(self._tree.agents.get(tool.row)),
            self._latest,
        )
        found = (group.before(tool.start_ns) for group in groups if group is not None)
        return next((step for step in found if step is not None), None)


class _Latest:
    """Spans, added in order, to be found by time."""

    __slots__ = ("_spans", "_starts")

    def __init__(self) -> None:
        self._spans: list[Seen] = []
        self._starts: list[int] = []

    def add(self, span: Seen) -> None:
        self._spans.append(span)
        self._starts.append(span.start_ns)

    def before(self, start_ns: int) -> Seen | None:
        """The last that began at or before `start_ns`."""
        position = bisect_right(self._starts, start_ns)
        return self._spans[position - 1] if position else None

    @property
    def last(self) -> Seen:
        return self._spans[-1]
