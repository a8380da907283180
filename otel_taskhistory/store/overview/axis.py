# SPDX-License-Identifier: Apache-2.0
"""Every step and call of a task as bars on one axis of time, in lanes, without any content.

It takes all rows of the task, but only their short columns; the pages ask for it after they are
shown.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory.store.gone import Gone, gone
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.overview.tasks import row_of

MOST_CALLS: Final = 60_000
"""Bars of calls that are drawn; steps are drawn all."""
MOST_PICTURES: Final = 4_000
"""Pictures on the axis; of more, every second, third, … one. The film has all."""
MOST_LANES: Final = 12
"""Parallel bars side by side; more of them lie over each other in the last lane."""

_CLIMB: Final = 64
"""Spans that are climbed from a nested agent's first step to what called it."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A step or call."""

    kind: str
    """``step``, ``model`` or ``tool``."""
    name: str
    agent: str
    status: str
    started_ns: int
    ended_ns: int | None
    step: int
    """Its number in `Axis.step_ids`; -1 for a call outside of every step."""
    lane: int


@dataclass(frozen=True, slots=True)
class AgentLanes:
    """An agent's part of the axis."""

    name: str
    depth: int
    """0 for one that nobody called."""
    step_lanes: int
    call_lanes: int


@dataclass(frozen=True, slots=True)
class AxisPicture:
    """A picture on the axis."""

    sha256: str
    captured_at: str
    step: int


@dataclass(frozen=True, slots=True)
class Axis:
    """All bars of a task; times are ns since 1970.

    Attributes:
        step_ids, step_indexes: of the steps, in the order of the list.
        calls_left_out, pictures_left_out: how many are not drawn.
    """

    status: str
    started_ns: int
    ended_ns: int | None
    step_ids: tuple[str, ...]
    step_indexes: tuple[int, ...]
    agents: tuple[AgentLanes, ...]
    bars: tuple[Bar, ...]
    pictures: tuple[AxisPicture, ...]
    calls_left_out: int
    pictures_left_out: int


_STEPS: Final = """
SELECT step.span, own.span_id, step.step_index, step.name, coalesce(step.agent, ''), step.status,
    step.started_ns, step.ended_ns, own.process, step.id
FROM _steps AS step JOIN _spans AS own ON own.id = step.span
WHERE step.task = ? ORDER BY step.step_index, own.span_id
"""
_MODEL_CALLS: Final = """
SELECT call.step, coalesce(call.model, ''), call.status, call.started_ns, call.ended_ns,
    own.process
FROM _model_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.task = ? AND call.twin_of IS NULL LIMIT ?
"""
_TOOL_CALLS: Final = """
SELECT call.step, call.name, call.status, call.started_ns, call.ended_ns, own.process
FROM _tool_calls AS call JOIN _spans AS own ON own.id = call.span
WHERE call.task = ? AND call.twin_of IS NULL LIMIT ?
"""
_NUMBER_OF_CALLS: Final = """
SELECT (SELECT count(*) FROM _model_calls WHERE task = :task)
    + (SELECT count(*) FROM _tool_calls WHERE task = :task)
"""
_PICTURES: Final = """
SELECT sha256, captured_at, step_id FROM screenshots
WHERE task_id = ? AND status = 'ok' ORDER BY captured_at, id
"""
_ABOVE: Final = """
SELECT own.id, own.parent_span_id, own.trace, step.id, step.agent, tool.step
FROM _spans AS own LEFT JOIN _steps AS step ON step.span = own.id
LEFT JOIN _tool_calls AS tool ON tool.span = own.id
"""


def axis_of(connection: sqlite3.Connection, task_id: str) -> Axis:
    """The axis of a task.

    Raises:
        TaskNotFound: there is no such task.
    """
    left = gone(connection)
    task_id = find_task(connection, task_id)
    row = row_of(connection, task_id)
    status, started, ended, agent, process = connection.execute(
        "SELECT status, started_ns, ended_ns, coalesce(agent, ''), process FROM tasks WHERE id = ?",
        (row,),
    ).fetchone()
    status, ended = _now(left, status, ended, process)
    steps = connection.execute(_STEPS, (row,)).fetchall()
    number = {found[9]: position for position, found in enumerate(steps)}
    agent_of = {found[9]: found[4] for found in steps}
    drawn: list[_Drawn] = []
    for position, found in enumerate(steps):
        state, until = _now(left, found[5], found[7], found[8])
        drawn.append(_Drawn("step", found[3], found[4], state, found[6], until, position))
    (all_calls,) = connection.execute(_NUMBER_OF_CALLS, {"task": row}).fetchone()
    calls = 0
    for kind, sql in (("model", _MODEL_CALLS), ("tool", _TOOL_CALLS)):
        for found in connection.execute(sql, (row, MOST_CALLS - calls)).fetchall():
            state, until = _now(left, found[2], found[4], found[5])
            of, step = agent_of.get(found[0], agent), number.get(found[0], -1)
            drawn.append(_Drawn(kind, found[1], of, state, found[3], until, step))
            calls += 1
    depths = _nesting(connection, steps, agent)
    bars, lanes = _in_lanes(drawn)
    pictures, thinned = _pictures(connection, task_id, {s[1]: n for n, s in enumerate(steps)})
    return Axis(
        status=status,
        started_ns=started,
        ended_ns=ended,
        step_ids=tuple(found[1] for found in steps),
        step_indexes=tuple(found[2] for found in steps),
        agents=tuple(AgentLanes(name, depth, *lanes.get(name, (0, 0))) for name, depth in depths),
        bars=tuple(bars),
        pictures=pictures,
        calls_left_out=max(all_calls - MOST_CALLS, 0),
        pictures_left_out=thinned,
    )


@dataclass(slots=True)
class _Drawn:
    kind: str
    name: str
    agent: str
    status: str
    started_ns: int
    ended_ns: int | None
    step: int


def _now(left: Gone, status: str, ended: int | None, process: int | None) -> tuple[str, int | None]:
    if status == "running" and process in left.seen:
        return "interrupted", left.seen[process]
    return status, ended


@dataclass(slots=True)
class _Lanes:
    """Lanes of an agent's steps or calls: each bar goes to the first one that is free."""

    free: list[int] = field(default_factory=list)
    busy: list[tuple[int, int]] = field(default_factory=list)
    used: int = 0

    def put(self, started: int, ended: int) -> int:
        while self.busy and self.busy[0][0] <= started:
            heapq.heappush(self.free, heapq.heappop(self.busy)[1])
        if self.free:
            lane = heapq.heappop(self.free)
        elif self.used < MOST_LANES:
            lane, self.used = self.used, self.used + 1
        else:
            return MOST_LANES - 1
        heapq.heappush(self.busy, (ended, lane))
        return lane


def _in_lanes(drawn: Iterable[_Drawn]) -> tuple[list[Bar], dict[str, tuple[int, int]]]:
    """(the bars in the order of time, lanes of steps and of calls by agent)."""
    lanes: dict[tuple[str, bool], _Lanes] = {}
    bars = []
    for one in sorted(drawn, key=lambda one: (one.started_ns, one.kind != "step", one.step)):
        own = lanes.setdefault((one.agent, one.kind == "step"), _Lanes())
        ended = one.ended_ns if one.ended_ns is not None else 2**63
        lane = own.put(one.started_ns, max(ended, one.started_ns))
        bar = (one.kind, one.name, one.agent, one.status, one.started_ns, one.ended_ns)
        bars.append(Bar(*bar, one.step, lane))
    counts = {
        agent: tuple(getattr(lanes.get((agent, of)), "used", 0) for of in (True, False))
        for agent, _ in lanes
    }
    return bars, {agent: (steps, calls) for agent, (steps, calls) in counts.items()}


def _nesting(
    connection: sqlite3.Connection, steps: list[tuple[Any, ...]], agent: str
) -> list[tuple[str, int]]:
    """(agent, depth), each after the one that called it; the task's own agent first."""
    names = {found[9]: found[4] for found in steps}
    first: dict[str, int] = {}
    for found in sorted(steps, key=lambda found: found[6]):
        first.setdefault(found[4], found[0])
    caller: dict[str, str] = {}
    for name, span in first.items():
        above = _caller(connection, span, name, names)
        if name != agent and above is not None:
            caller[name] = above
    order: list[tuple[str, int]] = []

    def add(name: str, depth: int) -> None:
        if any(name == other for other, _ in order):
            return
        order.append((name, depth))
        for called, by in caller.items():
            if by == name:
                add(called, depth + 1)

    for name in [agent, *(name for name in first if name not in caller), *first]:
        add(name, 0)
    return [one for one in order if one[0] in first or one[0] == agent]


def _caller(
    connection: sqlite3.Connection, span: int, name: str, names: dict[int, str]
) -> str | None:
    """The agent in whose step, or in whose tool, the step of another agent began."""
    found = connection.execute(f"{_ABOVE} WHERE own.id = ?", (span,)).fetchone()
    for _ in range(_CLIMB):
        _, parent, trace, *_ = found
        if parent is None:
            return None
        found = connection.execute(
            f"{_ABOVE} WHERE own.trace = ? AND own.span_id = ?", (trace, parent)
        ).fetchone()
        if found is None:
            return None
        *_, step, _, tool_step = found
        above = names.get(step, names.get(tool_step))
        if above is not None and above != name:
            return above
    return None


def _pictures(
    connection: sqlite3.Connection, task_id: str, numbers: dict[str, int]
) -> tuple[tuple[AxisPicture, ...], int]:
    """(pictures in the order of time without repetitions in a row, how many are left out)."""
    found: list[AxisPicture] = []
    for sha256, at, step_id in connection.execute(_PICTURES, (task_id,)):
        if not found or found[-1].sha256 != sha256:
            found.append(AxisPicture(sha256, at, numbers.get(step_id, -1)))
    every = -(-len(found) // MOST_PICTURES) or 1
    kept = found[::every]
    return tuple(kept), len(found) - len(kept)
