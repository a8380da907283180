# SPDX-License-Identifier: Apache-2.0
"""What retention costs: counted in steps of SQLite's virtual machine, never in seconds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.store import holdings, late, running, wall
from otel_taskhistory.store.retention import KINDS
from tests.store.keeping import (
    ask,
    execute,
    keeper,
    kept,
    limits,
    record,
    trace_id,
    work,
)

MANY = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?)
INSERT INTO tasks (task_id, trace_id, kind, status, started_at, started_ns, committed_ns, trace,
    root, bytes)
SELECT printf('%032x', n + 1000), printf('%032x', n + 1000), iif(n % 10, 'agent', 'other'),
    'succeeded', '', n, n + 4000000000000000000, (SELECT min(id) FROM _traces),
    (SELECT min(id) FROM _spans), 100
FROM number
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def cost(connection: sqlite3.Connection, work: Callable[[], Any]) -> int:
    """How many steps SQLite's virtual machine takes."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    try:
        work()
    finally:
        connection.set_progress_handler(None, 1)
    return steps


def plan_of(connection: sqlite3.Connection, sql: str) -> list[str]:
    """How SQLite answers a query."""
    values = (1,) * 10
    while True:
        try:
            found = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
            return [row[3] for row in found]
        except sqlite3.ProgrammingError:
            values = values[1:]


def queries() -> dict[str, str]:
    """All that decides what is to be done, and what is looked up for each span."""
    found = {"look": holdings.LOOK, "late": late.LATE}
    found |= {"running": running.RUNNING, "pictures": running.SHOTS}
    found |= {"sides": holdings.SIDES, "oldest sides": holdings.OLDEST_SIDES}
    found |= {"latest": f"SELECT {wall.LATEST}"}
    for which, index in holdings.HALVES:
        found[f"oldest {index}"] = holdings.OLDEST.format(which=which, index=index)
        found[f"candidates {index}"] = holdings.CANDIDATES.format(which=which, index=index)
    return found


@pytest.mark.parametrize("name", queries())
def test_every_question_is_answered_by_an_index(directory: Path, name: str) -> None:
    """No table is scanned and nothing is sorted.

    An index that holds all of what may go, in that order, is read as far as is asked.
    """
    record(directory, range(1, 3))
    with keeper(directory) as retainer:
        plan = plan_of(retainer._connection, queries()[name])
    assert plan
    for line in plan:
        in_order = line == "SCAN CONSTANT ROW" or line.endswith(
            "USING COVERING INDEX _sides_oldest"
        )
        assert not line.startswith("SCAN ") or in_order, plan
        assert "TEMP B-TREE" not in line, plan


def test_a_pass_with_nothing_to_do_costs_the_same_in_any_history(directory: Path) -> None:
    """A few look-ups, for a thousand tasks and for a hundred thousand."""
    record(directory, range(1, 3))
    execute(directory, "UPDATE tasks SET committed_ns = 4000000000000000000")
    costs = []
    retention = limits(max_age=1e6, max_tasks=200_000, max_bytes=2**40)
    with keeper(directory, retention, clock=lambda: 4 * 10**18) as retainer:
        for tasks in (1_000, 99_000):
            offset = sum(ask(directory, "SELECT max(id) FROM tasks"))
            execute(directory, MANY.replace("n + 1000", f"n + {1000 + offset}"), tasks)
            while retainer.rest():
                pass
            retainer.log.fold()
            costs.append(cost(retainer._connection, retainer.step))
    assert len(kept(directory)) == 100_002
    assert costs[0] == costs[1]
    assert costs[0] < 1_000


def test_removing_a_task_costs_in_proportion_to_the_task(directory: Path, tmp_path: Path) -> None:
    """Not to the history around it, with which it shares contents."""

    def removing(tasks: int, steps: int) -> int:
        where = tmp_path / f"{tasks}-{steps}"
        record(where, range(1, tasks + 1))
        record(where, range(1000, 1001), steps=steps)
        with keeper(where) as retainer:
            connection = retainer._connection
            return cost(connection, lambda: retainer.remove(trace_id(1000)))

    small, among_many, larger = removing(4, 5), removing(120, 5), removing(4, 20)
    assert among_many < 1.3 * small
    assert 2 * small < larger < 5 * small


def test_a_plan_reads_as_far_as_it_is_asked(directory: Path) -> None:
    """To say which few tasks go, not all tasks are looked at."""
    record(directory, range(1, 3))
    execute(directory, MANY, 5_000)
    with keeper(directory, limits(max_tasks=4_490)) as retainer:
        connection = retainer._connection
        for kind in KINDS:
            first = cost(
                connection, lambda kind=kind: next(holdings.candidates(connection, kind, 0))
            )
            assert first < 100


def test_a_backlog_is_worked_off_in_bounded_steps(directory: Path) -> None:
    """Each removes so many rows, whatever there is to be removed."""
    record(directory, range(1, 60), steps=2)
    counts = "SELECT (SELECT count(*) FROM _spans) + (SELECT count(*) FROM _nodes)"
    with keeper(directory, limits(max_tasks=3)) as retainer:
        before, steps = ask(directory, counts)[0], 0
        while retainer.step(rows=50).more:
            now = ask(directory, counts)[0]
            assert before - now <= 150
            before, steps = now, steps + 1
        assert steps > 10
        work(retainer)
    assert kept(directory) == [57, 58, 59]
