# SPDX-License-Identifier: Apache-2.0
"""Figures over the agents' tasks that began in a period: outcomes, tokens, cost, tools, bytes.

What is read: the index entries of the tasks in the period, and of each of their steps, model calls
and tool calls one row, without any prompt, decision, argument or result. What belongs to a task
counts with the task, whenever it happened, so the figures of a period add up to those of its tasks.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_taskhistory.store import space
from otel_taskhistory.store.gone import INTERRUPTED, RUNNING, Gone, gone
from otel_taskhistory.store.times import LATEST_NS, iso

MOST_NAMES: Final = 100
"""Agents, models and tools that are told of one by one, those with the most first."""
LARGEST: Final = 5
"""Tasks that are named for their bytes."""
GOAL_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sums of what was said to be used; 0 where nobody said."""

    input: int
    output: int
    cached: int
    reasoning: int
    cost: float


@dataclass(frozen=True, slots=True)
class AgentUse:
    """What one agent did: tasks are those it was given, steps and tokens those of its own turns."""

    agent: str | None
    tasks: int
    failed: int
    """Tasks that failed or were interrupted."""
    steps: int
    failed_steps: int
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class ModelUse:
    """What one model was asked for."""

    model: str | None
    calls: int
    failed: int
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How often one tool was called, and how long it took, in ms over the calls that have ended."""

    name: str
    calls: int
    failed: int
    median_ms: float | None
    p95_ms: float | None
    longest_ms: float | None

    @property
    def failure_rate(self) -> float:
        """Which share of the calls failed, 0 to 1."""
        return self.failed / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class LargeTask:
    """A task that takes much room."""

    task_id: str
    goal: str | None
    """Its first `GOAL_CHARACTERS`."""
    bytes: int
    """By how much its commits made the history grow: what it shares counts with who came first."""
    pinned: bool


@dataclass(frozen=True, slots=True)
class Losses:
    """What could not be stored, as the timeline tells."""

    records: int
    first_at: str | None
    last_at: str | None


@dataclass(frozen=True, slots=True)
class Room:
    """Where the bytes of the whole history are, whatever the period."""

    database_live: int
    database_free: int
    """Pages within the file that hold nothing."""
    log: int
    """The write-ahead log with its index."""
    artifacts: int
    to_be_removed: int
    """Files whose tasks are gone already."""


@dataclass(frozen=True, slots=True)
class Summaries:
    """The figures of a period; the lists have `MOST_NAMES` rows at most, the totals all."""

    since: str | None
    until: str | None
    tasks: dict[str, int]
    """By status."""
    steps: dict[str, int]
    """By status."""
    agents: tuple[AgentUse, ...]
    agents_total: int
    models: tuple[ModelUse, ...]
    models_total: int
    tools: tuple[ToolUse, ...]
    tools_total: int
    losses: Losses
    largest: tuple[LargeTask, ...]
    room: Room


@dataclass(frozen=True, slots=True)
class TaskName:
    """A task by its id, and what people know it by."""

    task_id: str
    goal: str | None
    """Its first `GOAL_CHARACTERS`."""
    status: str


_IN_PERIOD: Final = """
FROM tasks AS task {join}
WHERE task.kind = 'agent' AND task.started_ns >= :since AND task.started_ns < :until
"""
_SUMS: Final = """
coalesce(sum({of}.input_tokens), 0), coalesce(sum({of}.output_tokens), 0),
coalesce(sum({of}.cached_tokens), 0), coalesce(sum({of}.reasoning_tokens), 0),
coalesce(sum({of}.cost), 0.0)
"""
_BAD: Final = "sum({of}.status IN ('failed', 'interrupted'))"


def _sql(select: str, join: str = "", also: str = "", group: str = "") -> str:
    return f"SELECT {select} {_IN_PERIOD.format(join=join)} {also} {group}"


# CROSS JOIN is SQLite's way to say: in this order.
TASKS: Final = _sql("task.status, count(*)", group="GROUP BY 1")
STEPS: Final = _sql(
    "step.status, count(*)", "CROSS JOIN _steps AS step ON step.task = task.id", group="GROUP BY 1"
)
AGENTS: Final = _sql(f"task.agent, count(*), {_BAD.format(of='task')}", group="GROUP BY 1")
STEPS_OF_AGENTS: Final = _sql(
    "coalesce(step.agent, task.agent), count(*),"
    f" {_BAD.format(of='step')}, {_SUMS.format(of='step')}",
    "CROSS JOIN _steps AS step ON step.task = task.id",
    group="GROUP BY 1",
)
MODELS: Final = _sql(
    f"call.model, count(*), sum(call.status = 'failed'), {_SUMS.format(of='call')}",
    "CROSS JOIN _model_calls AS call ON call.task = task.id",
    "AND call.twin_of IS NULL",
    "GROUP BY 1",
)
TOOLS: Final = _sql(
    "call.name, call.status = 'failed', max(call.ended_ns - call.started_ns, 0)",
    "CROSS JOIN _tool_calls AS call ON call.task = task.id",
    "AND call.twin_of IS NULL",
)
LEFT_RUNNING: Final = _sql(
    "task.agent, count(*)", also="AND task.task_id IN (SELECT value FROM json_each(:left))",
    group="GROUP BY 1",
)  # fmt: skip
STEPS_LEFT_RUNNING: Final = """
SELECT coalesce(step.agent, task.agent), count(*)
FROM _spans AS own CROSS JOIN _steps AS step ON step.span = own.id
CROSS JOIN tasks AS task ON task.id = step.task
WHERE own.process IN (SELECT value FROM json_each(:died)) AND step.status = 'running'
    AND task.kind = 'agent' AND task.started_ns >= :since AND task.started_ns < :until
GROUP BY 1
"""
LOSSES: Final = """
SELECT count(*), min(at_ns), max(at_ns) FROM _timeline
WHERE task IS NULL AND event = 'loss' AND at_ns >= :since AND at_ns < :until
"""
_LARGEST: Final = f"""
SELECT task_id, substr(goal, 1, {GOAL_CHARACTERS}), bytes, pinned FROM tasks
WHERE id IN (SELECT id FROM tasks WHERE bytes > 0 ORDER BY bytes DESC, id DESC LIMIT {LARGEST})
ORDER BY bytes DESC, id DESC
"""

# Of each kind the newest of all by one index, or all of a beginning by another.
NEWEST_NAMES: Final = f"""
SELECT task_id, substr(goal, 1, {GOAL_CHARACTERS}), status FROM tasks
WHERE kind = ? ORDER BY started_ns DESC, id DESC LIMIT ?
"""
NAMES_FROM: Final = f"""
SELECT task_id, substr(goal, 1, {GOAL_CHARACTERS}), status FROM tasks
WHERE task_id >= ? AND task_id < ?
ORDER BY kind <> 'agent', started_ns DESC, id DESC LIMIT ?
"""

_Bounds = dict[str, int | str]


def summaries(
    connection: sqlite3.Connection,
    database: Path,
    since_ns: int | None = None,
    until_ns: int | None = None,
) -> Summaries:
    """The figures of the agents' tasks that began in a period.

    Args:
        connection: of `otel_taskhistory.store.reading`, which knows whose writers have died.
        database: its file.
        since_ns: begun then or later, ns since 1970; None for the beginning.
        until_ns: begun before that; None for no end.
    """
    left = gone(connection)
    bounds: _Bounds = {
        "since": 0 if since_ns is None else since_ns,
        "until": LATEST_NS if until_ns is None else until_ns,
        "left": json.dumps(left.task_ids()),
        "died": json.dumps(list(left.seen)),
    }
    agents = _agents(connection, bounds, left)
    models = _models(connection, bounds)
    tools = _tools(connection, bounds)
    return Summaries(
        since=None if since_ns is None else iso(since_ns),
        until=None if until_ns is None else iso(until_ns),
        tasks=_by_status(connection, TASKS, LEFT_RUNNING, bounds, left),
        steps=_by_status(connection, STEPS, STEPS_LEFT_RUNNING, bounds, left),
        agents=tuple(agents[:MOST_NAMES]),
        agents_total=len(agents),
        models=tuple(models[:MOST_NAMES]),
        models_total=len(models),
        tools=tuple(tools[:MOST_NAMES]),
        tools_total=len(tools),
        losses=_losses(connection, bounds),
        largest=_largest(connection),
        room=_room(space.usage(connection, database)),
    )


def _by_status(
    connection: sqlite3.Connection, sql: str, left_running: str, bounds: _Bounds, left: Gone
) -> dict[str, int]:
    """Rows by status, those of writers that died without a word as interrupted."""
    found: dict[str, int] = dict(connection.execute(sql, bounds).fetchall())
    if left.seen:
        number = sum(row[1] for row in connection.execute(left_running, bounds).fetchall())
        found[RUNNING] = found.get(RUNNING, 0) - number
        found[INTERRUPTED] = found.get(INTERRUPTED, 0) + number
    return {status: number for status, number in found.items() if number}


def _agents(connection: sqlite3.Connection, bounds: _Bounds, left: Gone) -> list[AgentUse]:
    def rows(sql: str) -> dict[str | None, tuple[int, ...]]:
        return {row[0]: row[1:] for row in connection.execute(sql, bounds).fetchall()}

    tasks, steps = rows(AGENTS), rows(STEPS_OF_AGENTS)
    died = (rows(LEFT_RUNNING), rows(STEPS_LEFT_RUNNING)) if left.seen else ({}, {})
    found = []
    for name in tasks.keys() | steps.keys():
        given, failed = tasks.get(name, (0, 0))
        number, failed_steps, *used = steps.get(name, (0, 0, 0, 0, 0, 0, 0))
        failed += died[0].get(name, (0,))[0]
        failed_steps += died[1].get(name, (0,))[0]
        found.append(AgentUse(name, given, failed, number, failed_steps, Tokens(*used)))
    return sorted(found, key=lambda use: (-use.tasks, -use.steps, use.agent or ""))


def _models(connection: sqlite3.Connection, bounds: _Bounds) -> list[ModelUse]:
    found = [
        ModelUse(name, calls, failed, Tokens(*used))
        for name, calls, failed, *used in connection.execute(MODELS, bounds).fetchall()
    ]
    return sorted(found, key=lambda use: (-use.calls, use.model or ""))


def _tools(connection: sqlite3.Connection, bounds: _Bounds) -> list[ToolUse]:
    """Counted row by row: of a call only its name, a bit and 8 bytes are kept."""
    counts: dict[str, list[int]] = {}
    times: dict[str, array[int]] = {}
    for name, failed, took_ns in connection.execute(TOOLS, bounds):
        count = counts.setdefault(name, [0, 0])
        count[0] += 1
        count[1] += failed
        if took_ns is not None:
            times.setdefault(name, array("q")).append(took_ns)
    found = []
    for name, (calls, failures) in counts.items():
        ordered = sorted(times.get(name, ()))
        found.append(
            ToolUse(
                name,
                calls,
                failures,
                _quantile_ms(ordered, 0.5),
                _quantile_ms(ordered, 0.95),
                _quantile_ms(ordered, 1.0),
            )
        )
    return sorted(found, key=lambda use: (-use.calls, use.name))


def _quantile_ms(ordered: list[int], share: float) -> float | None:
    """Of sorted ns, between neighbours in proportion; None of none."""
    if not ordered:
        return None
    at = (len(ordered) - 1) * share
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return (ordered[low] + (ordered[high] - ordered[low]) * (at - low)) / 1e6


def _losses(connection: sqlite3.Connection, bounds: _Bounds) -> Losses:
    number, first, last = connection.execute(LOSSES, bounds).fetchone()
    return Losses(number, *(None if ns is None else iso(ns) for ns in (first, last)))


def _largest(connection: sqlite3.Connection) -> tuple[LargeTask, ...]:
    rows = connection.execute(_LARGEST).fetchall()
    return tuple(LargeTask(task, goal, size, bool(pinned)) for task, goal, size, pinned in rows)


def _room(usage: space.Usage) -> Room:
    return Room(
        database_live=usage.live,
        database_free=usage.free,
        log=usage.log_file + usage.index_file,
        artifacts=usage.artifacts,
        to_be_removed=usage.unlinks,
    )


def task_names(connection: sqlite3.Connection, prefix: str, most: int) -> list[TaskName]:
    """Tasks whose id begins with `prefix`: those of agents first, of each kind the newest first."""
    left = set(gone(connection).task_ids())
    if prefix:
        rows = connection.execute(NAMES_FROM, (prefix, f"{prefix}\U0010ffff", most)).fetchall()
    else:
        rows = connection.execute(NEWEST_NAMES, ("agent", most)).fetchall()
        rows += connection.execute(NEWEST_NAMES, ("other", most - len(rows))).fetchall()
    return [
        TaskName(own, goal, INTERRUPTED if own in left else status) for own, goal, status in rows
    ]
