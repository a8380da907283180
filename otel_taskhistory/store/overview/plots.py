# SPDX-License-Identifier: Apache-2.0
"""Figures over many tasks: tokens and failures by day, how long tools take."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

TOOLS: Final = 25
"""Tools that are told of, those with the most calls among the first `_NAMES` by name."""
CALLS: Final = 2_000
"""Calls of each tool that are looked at, the newest."""
_NAMES: Final = 200
_DAY_NS: Final = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Day:
    """The tasks that began on a day (UTC)."""

    day: str
    """``2026-11-30``."""
    tasks: int
    failed: int
    """Failed or interrupted."""
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ToolTimes:
    """How long a tool takes, in ms, over its newest calls that have ended."""

    name: str
    calls: int
    failed: int
    median_ms: float
    p95_ms: float
    longest_ms: float
    capped: bool
    """It has more calls than were looked at."""


def days(connection: sqlite3.Connection, until_ns: int, number: int) -> list[Day]:
    """The last `number` days up to `until_ns`, also those without a task."""
    last = until_ns // _DAY_NS
    rows = connection.execute(
        "SELECT started_ns / ?, count(*), sum(status IN ('failed', 'interrupted')),"
        " coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0)"
        " FROM tasks WHERE kind = 'agent' AND started_ns >= ? AND started_ns < ? GROUP BY 1",
        (_DAY_NS, (last - number + 1) * _DAY_NS, (last + 1) * _DAY_NS),
    )
    found = {row[0]: row[1:] for row in rows}
    return [
        Day(_date(connection, day), *found.get(day, (0, 0, 0, 0)))
        for day in range(last - number + 1, last + 1)
    ]


def newest_task_ns(connection: sqlite3.Connection) -> int | None:
    """When the newest task began."""
    (found,) = connection.execute(
        "SELECT max(started_ns) FROM tasks WHERE kind = 'agent'"
    ).fetchone()
    return None if found is None else int(found)


def tool_times(connection: sqlite3.Connection) -> list[ToolTimes]:
    """Times of each tool, the one with the most calls first."""
    names = connection.execute(
        "WITH RECURSIVE named (name) AS ("
        " SELECT min(name) FROM _tool_calls UNION ALL"
        " SELECT (SELECT min(name) FROM _tool_calls WHERE name > named.name) FROM named"
        " WHERE named.name IS NOT NULL"
        ") SELECT name FROM named WHERE name IS NOT NULL LIMIT ?",
        (_NAMES,),
    ).fetchall()
    found = []
    for (name,) in names:
        rows = connection.execute(
            "SELECT (ended_ns - started_ns) / 1e6, status = 'failed' FROM _tool_calls"
            " WHERE name = ? AND twin_of IS NULL ORDER BY started_ns DESC LIMIT ?",
            (name, CALLS + 1),
        ).fetchall()
        times = sorted(max(took, 0.0) for took, _ in rows[:CALLS] if took is not None)
        if times:
            found.append(
                ToolTimes(
                    name,
                    len(rows[:CALLS]),
                    sum(failed for _, failed in rows[:CALLS]),
                    _quantile(times, 0.5),
                    _quantile(times, 0.95),
                    times[-1],
                    len(rows) > CALLS,
                )
            )
    return sorted(found, key=lambda tool: (-tool.calls, tool.name))[:TOOLS]


def _quantile(times: list[float], share: float) -> float:
    """Of sorted times, between neighbours in proportion."""
    at = (len(times) - 1) * share
    low = int(at)
    high = min(low + 1, len(times) - 1)
    return times[low] + (times[high] - times[low]) * (at - low)


def _date(connection: sqlite3.Connection, day: int) -> str:
    (text,) = connection.execute("SELECT date(?, 'unixepoch')", (day * 86_400,)).fetchone()
    return str(text)
