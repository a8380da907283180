# SPDX-License-Identifier: Apache-2.0
"""What lies above each span of a trace: a pure function of the spans, whatever is wrong with them.

* Parents may be missing or form a circle; a circle is opened at its earliest span.
* A span that announces another one (role ``pending``) stands for it, with its id and its parent,
  until that one comes. Then it is nothing any more.
* Some instrumentations hang what an agent does beside its span instead of below. A run with
  nothing below it takes in what lies beside it, under the same parent, within its time; not other
  runs, and nothing that two such runs could have done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

_Order = tuple[int, str]

_RUNS: Final = 64
"""Of so many runs under one parent it is looked whose a span beside them is."""


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
    status: str = "succeeded"
    agent: str | None = None
    attempt: int = 1
    step_index: int | None = None
    parent_remote: bool = False
    has_result: bool = False
    """Whether it says what came out."""
    linked: str | None = None
    """Id of the first trace that it has a link to."""
    announces: str | None = None
    """Of a ``pending`` span: id of the span that it announces."""
    announced_parent: str | None = None
    """And the id of that span's parent."""
    acts_as: str = "other"
    """And what that span will be, as far as it tells."""
    # --- of a tool span ---
    tool: str | None = None
    """The name of the tool."""
    call_id: str | None = None
    # --- of a span with model calls ---
    asked_for: frozenset[str] = frozenset()
    """Ids of the tool calls that its decisions asked for."""
    response_ids: frozenset[str] = frozenset()
    model: str | None = None
    tokens: tuple[int | None, int | None] = (None, None)
    """Input and output."""
    scope: int = 0
    """Which instrumentation wrote it."""
    call_attempt: int = 1
    """A number above 1: its model call is a further attempt at the one before it."""

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

    def covers(self, other: Seen) -> bool:
        """Whether `other` began and ended within its time; what runs still is not covered."""
        if other.start_ns < self.start_ns:
            return False
        return self.end_ns is None or (other.end_ns is not None and other.end_ns <= self.end_ns)


class Tree:
    """Parents, and what lies above each span.

    Attributes:
        ordered: all spans in the order of their start, as they are to be understood.
        downwards: all spans, parents before their children.
        top: span row → the span at the top of its branch.
        step_above: span row → the nearest step of ours above it.
        model_above: span row → the nearest model span above, with neither tool nor agent nor step
            between.
        tool_above: span row → the nearest tool span above, likewise.
        nested: rows of spans with a tool or agent between them and the step of ours above.
        below_tool: rows of spans that have a tool span above them.
        run: span row → the agent run it belongs to: itself, or the nearest above.
        agents: span row → name of the agent it runs under.
        gone: rows of spans that announced one that has come.
    """

    def __init__(self, spans: Iterable[Seen]) -> None:
        self.gone: set[int] = set()
        self.ordered = sorted(self._as_understood(list(spans)), key=lambda span: span.order)
        self.by_id = {span.span_id: span for span in self.ordered}
        self._taken_in = self._beside_their_runs()
        self._cut: set[int] = set()
        self.downwards: list[Seen] = []
        self._arrange()
        self.top: dict[int, Seen] = {}
        self.step_above: dict[int, Seen] = {}
        self.model_above: dict[int, Seen] = {}
        self.tool_above: dict[int, Seen] = {}
        self.nested: set[int] = set()
        self.below_tool: set[int] = set()
        self.run: dict[int, Seen] = {}
        self.agents: dict[int, str] = {}
        for span in self.downwards:
            self._look_up(span)

    def parent(self, span: Seen) -> Seen | None:
        """The span above, but where a circle was opened."""
        if span.row in self._cut:
            return None
        run = self._taken_in.get(span.row)
        if run is not None:
            return run
        return self.by_id.get(span.parent_span_id) if span.parent_span_id else None

    def begun_by(self, span: Seen) -> Seen | None:
        """The span that it names as its parent."""
        return self.by_id.get(span.parent_span_id) if span.parent_span_id else None

    def is_root(self, span: Seen) -> bool:
        """Whether it has no parent, or only one in another process that was not recorded."""
        if span.own and span.role != "task":  # a step of ours has a task, though it is not here
            return False
        if span.parent_span_id is None:
            return True
        return span.parent_remote and span.parent_span_id not in self.by_id

    def is_below_setup(self, span: Seen) -> bool:
        """Whether it is a part of making something ready."""
        return span.role == "other" and self.top[span.row].role == "setup"

    def inherit(self, root: Seen, spans: Iterable[Seen]) -> None:
        """Of these, what names a parent that never came belongs to the agent of `root`."""
        run, agent = self.run.get(root.row), self.agents.get(root.row)
        for span in spans:
            if self.top[span.row] is root:
                continue
            if run is not None:
                self.run.setdefault(span.row, run)
            if agent is not None:
                self.agents.setdefault(span.row, agent)

    @property
    def is_as_named(self) -> bool:
        """Whether each span lies below the one that it names, and none announces another."""
        return not (self.gone or self._taken_in or self._cut)

    def add(self, span: Seen) -> None:
        """Add a span below which none of those that are known lies, or change one.

        Right only where `is_as_named` holds and goes on to hold.
        """
        self.by_id[span.span_id] = span
        self._look_up(span)

    def _as_understood(self, spans: list[Seen]) -> list[Seen]:
        there = {span.span_id for span in spans if span.role != "pending"}
        found = [span for span in spans if span.role != "pending"]
        pending = (span for span in spans if span.role == "pending")
        for span in sorted(pending, key=lambda span: span.order):
            if span.announces is None or span.announces in there:
                self.gone.add(span.row)
                found.append(replace(span, role="other", agent=None))
                continue
            there.add(span.announces)
            found.append(
                replace(
                    span,
                    role=span.acts_as,
                    span_id=span.announces,
                    parent_span_id=span.announced_parent,
                    parent_remote=False,
                    end_ns=None,
                )
            )
        return found

    def _beside_their_runs(self) -> dict[int, Seen]:
        """Span row → the agent run beside it that it belongs to."""
        with_children = {span.parent_span_id for span in self.ordered}
        runs: dict[str, list[Seen]] = defaultdict(list)
        for span in self.ordered:
            is_run = span.role == "agent" and not span.own and span.end_ns is not None
            if is_run and span.parent_span_id and span.span_id not in with_children:
                runs[span.parent_span_id].append(span)
        found: dict[int, Seen] = {}
        for span in self.ordered if runs else ():
            beside = runs.get(span.parent_span_id or "", ())
            if not 0 < len(beside) <= _RUNS or span.own or span.row in self.gone:
                continue
            if span.role in ("agent", "task"):
                continue
            by = [run for run in beside if run.covers(span)]
            if len(by) == 1:
                found[span.row] = by[0]
        return found

    def _arrange(self) -> None:
        done: set[int] = set()
        for span in self.ordered:
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
        if above is not None:
            self._look_above(span, above)
        else:
            self.top[span.row] = span
        if span.role == "agent" or (span.role == "task" and not span.own):
            self.run[span.row] = span
        if span.agent:
            self.agents[span.row] = span.agent

    def _look_above(self, span: Seen, above: Seen) -> None:
        row, over, role = span.row, above.row, above.role
        self.top[row] = self.top[over]
        step = above if above.is_own_step else self.step_above.get(over)
        if step is not None:
            self.step_above[row] = step
        model = above if role == "model" else None
        tool = above if role == "tool" else None
        if role == "other":
            model, tool = self.model_above.get(over), self.tool_above.get(over)
        if model is not None:
            self.model_above[row] = model
        if tool is not None:
            self.tool_above[row] = tool
        if not above.is_own_step and (over in self.nested or role in ("agent", "tool")):
            self.nested.add(row)
        if role == "tool" or over in self.below_tool:
            self.below_tool.add(row)
        run = self.run.get(over)
        if run is not None:
            self.run[row] = run
        agent = self.agents.get(over)
        if agent:
            self.agents[row] = agent
