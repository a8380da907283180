# SPDX-License-Identifier: Apache-2.0
"""Which spans of a trace are tasks, steps and whose tool calls: a pure function of the spans.

Used for traces with spans of other instrumentations; spans of our own tracer say themselves what
they are. The rules:

* A root is a span without a parent, or one whose parent is in another process and not recorded.
  A step or tool call of ours is none: the task it belongs to is not here yet.
* The task is the first root (a task span of ours before any other). A further root that is an
  agent run, or that starts after the first root ended, is a task of its own; any other belongs to
  the first, and so do further attempts at it.
* A step of ours is a step. Below it, model and tool spans belong to it and open no steps.
* Elsewhere each model call opens a step. A model span within a model span is the same call seen
  by two instrumentations, unless a tool or an agent lies between them.
* A tool call belongs to the step whose decision asked for its call id, else to the latest model
  call of the same agent that began before it, else to the latest of any agent.
* A task with no model calls and nothing of ours has the children of its root as steps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

_Order = tuple[int, str]


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
    parent_remote: bool = False

    @property
    def order(self) -> _Order:
        """Spans are put in the order of their start, equal ones by id."""
        return (self.start_ns, self.span_id)

    @property
    def is_own_task(self) -> bool:
        """Whether it is a task of our tracer, or a further attempt at one."""
        return self.own and self.role == "task"

    @property
    def is_own_step(self) -> bool:
        """Whether it is a step of our tracer."""
        return self.own and self.role == "step"


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
        """``agent`` when anything in it is of an agent or a model."""
        return "agent" if any(span.own or span.role != "other" for span in self.spans) else "other"


@dataclass(slots=True)
class Plan:
    """The outcome."""

    tasks: list[PlannedTask]
    step_of: dict[int, Seen] = field(default_factory=dict)
    """Model or tool span row → the span of the step it belongs to."""
    same_call: dict[int, int] = field(default_factory=dict)
    """Model span row → row of the model span right above it that is the same call."""
    nested: set[int] = field(default_factory=set)
    """Model span rows below a tool or agent of their step: calls of somebody else."""
    agents: dict[int, str] = field(default_factory=dict)
    """Span row → name of the agent it runs under."""
    attempts: dict[int, int] = field(default_factory=dict)
    """Row of a step of ours → the attempt it belongs to."""
    upwards: list[int] = field(default_factory=list)
    """All rows, children before their parents."""


def assemble(spans: Iterable[Seen]) -> Plan:
    """Plan one trace. The order of `spans` makes no difference."""
    ordered = sorted(spans, key=lambda span: span.order)
    tree = _Tree(ordered)
    plan = Plan(_tasks(ordered, tree))
    plan.upwards = [span.row for span in reversed(tree.downwards)]
    for span in tree.downwards:
        above = tree.parent(span)
        agent = span.agent or (plan.agents.get(above.row) if above is not None else None)
        if agent:
            plan.agents[span.row] = agent
    for task in plan.tasks:
        _plan_steps(task, tree, plan)
    return plan


def attempts_in_order(spans: Iterable[Seen]) -> list[Seen]:
    """Attempts at one task, the latest last."""
    return sorted(spans, key=lambda span: (span.attempt, span.order))


class _Tree:
    """Parents and what lies above each span, also where the parents form a circle."""

    def __init__(self, ordered: list[Seen]) -> None:
        self.by_id = {span.span_id: span for span in ordered}
        self._cut: set[int] = set()
        self.downwards: list[Seen] = []
        """All spans, parents before their children."""
        self._arrange(ordered)
        self.top: dict[int, Seen] = {}
        self.step_above: dict[int, Seen] = {}
        """The nearest step of ours above."""
        self.model_above: dict[int, Seen] = {}
        """The nearest model span above, with neither tool nor agent nor step between."""
        self.nested: set[int] = set()
        """Spans with a tool or agent between them and the step of ours above."""
        for span in self.downwards:
            self._look_up(span)

    def parent(self, span: Seen) -> Seen | None:
        """The span above, but where a circle was opened."""
        if not span.parent_span_id or span.row in self._cut:
            return None
        return self.by_id.get(span.parent_span_id)

    def begun_by(self, span: Seen) -> Seen | None:
        """The span that it names as its parent."""
        return self.by_id.get(span.parent_span_id) if span.parent_span_id else None

    def is_root(self, span: Seen) -> bool:
        if span.own and span.role != "task":  # a step of ours has a task, though it is not here
            return False
        if span.parent_span_id is None:
            return True
        return span.parent_remote and span.parent_span_id not in self.by_id

    def _arrange(self, ordered: list[Seen]) -> None:
        done: set[int] = set()
        for span in ordered:
            path: list[Seen] = []
            on_path: set[int] = set()
            at: Seen | None = span
            while at is not None and at.row not in done:
                if at.row in on_path:  # a circle: it is opened at its earliest span
                    circle = path[path.index(at) :]
                    self._cut.add(min(circle, key=lambda member: member.order).row)
                    path, on_path, at = [], set(), span
                    continue
                path.append(at)
                on_path.add(at.row)
                at = self.parent(at)
            self.downwards += reversed(path)
            done |= on_path

    def _look_up(self, span: Seen) -> None:
        above = self.parent(span)
        if above is None:
            self.top[span.row] = span
            return
        self.top[span.row] = self.top[above.row]
        step = above if above.is_own_step else self.step_above.get(above.row)
        if step is not None:
            self.step_above[span.row] = step
        model = above if above.role == "model" else None
        if above.role == "other":
            model = self.model_above.get(above.row)
        if model is not None:
            self.model_above[span.row] = model
        if not above.is_own_step and (above.row in self.nested or above.role in ("agent", "tool")):
            self.nested.add(span.row)


def _tasks(ordered: list[Seen], tree: _Tree) -> list[PlannedTask]:
    roots = [span for span in ordered if tree.is_root(span)]
    own = attempts_in_order(span for span in ordered if span.is_own_task)
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
    for span in tree.downwards:
        by_root.get(tree.top[span.row].row, main).spans.append(span)
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


def _plan_steps(task: PlannedTask, tree: _Tree, plan: Plan) -> None:
    """Decide the steps of a task, and whose the model and tool spans are."""
    for span in task.spans:
        if span.is_own_step:
            above = tree.begun_by(span)
            given = above.attempt if above is not None and above.is_own_task else span.attempt
            plan.attempts[span.row] = given
            task.steps.append(span)
        elif span.role == "model":
            _place_call(span, tree, plan, task)
    task.steps.sort(key=lambda span: span.order)
    tools = _Tools(task, tree, plan)
    if not task.steps and task.root is not None and not any(span.own for span in task.spans):
        tools.children_are_steps(task.root)
    for span in task.spans:
        if span.role == "tool":
            step = tools.step_of(span)
            if step is not None:
                plan.step_of[span.row] = step


def _place_call(span: Seen, tree: _Tree, plan: Plan, task: PlannedTask) -> None:
    same = tree.model_above.get(span.row)
    if same is not None:
        plan.same_call[span.row] = same.row
    step = tree.step_above.get(span.row)
    if step is not None:
        if span.row in tree.nested:
            plan.nested.add(span.row)
    elif same is not None:
        step = plan.step_of[same.row]
    else:
        step = span
        task.steps.append(span)
    plan.step_of[span.row] = step


class _Tools:
    """Finds the steps of tool calls."""

    def __init__(self, task: PlannedTask, tree: _Tree, plan: Plan) -> None:
        self._task = task
        self._tree = tree
        self._plan = plan
        self._within: dict[int, Seen] = {}
        self._latest = _Latest()
        self._of_agent: dict[str | None, _Latest] = defaultdict(_Latest)
        self._asked: dict[str, _Latest] = defaultdict(_Latest)
        asked: dict[int, set[str]] = defaultdict(set)
        for span in task.spans:
            step = span if span.is_own_step else plan.step_of.get(span.row)
            if step is not None and span.role != "tool":
                asked[step.row] |= span.asked_for
        for step in task.steps:
            self._latest.add(step)
            self._of_agent[plan.agents.get(step.row)].add(step)
            for call_id in asked[step.row]:
                self._asked[call_id].add(step)

    def children_are_steps(self, root: Seen) -> None:
        """The spans right below the root become the steps, with all that is below them."""
        for span in self._task.spans:
            above = self._tree.parent(span)
            if above is None:
                continue
            if above.row == root.row:
                self._task.steps.append(span)
                self._within[span.row] = span
            elif above.row in self._within:
                self._within[span.row] = self._within[above.row]
        self._task.steps.sort(key=lambda span: span.order)

    def step_of(self, tool: Seen) -> Seen | None:
        if tool.own:  # a call of ours is begun by its step
            above = self._tree.begun_by(tool)
            return above if above is not None and above.is_own_step else None
        within = self._tree.step_above.get(tool.row) or self._within.get(tool.row)
        if within is not None:
            return within
        asked = self._asked.get(tool.call_id) if tool.call_id else None
        if asked is not None:
            return asked.before(tool.start_ns) or asked.last
        same = self._of_agent.get(self._plan.agents.get(tool.row))
        found = same.before(tool.start_ns) if same is not None else None
        return found or self._latest.before(tool.start_ns)


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
