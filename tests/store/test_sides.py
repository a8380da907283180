# SPDX-License-Identifier: Apache-2.0
"""Traces that make no task are kept within limits like those without an agent, and go with them."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.settings import Retention
from otel_taskhistory.store.rows import Rows
from tests.store import deliveries
from tests.store.deliveries import entry, span, write
from tests.store.keeping import (
    ask,
    check_whole,
    keeper,
    left,
    limits,
    other_spans,
    store,
    task_spans,
    trace_id,
    work,
)

RECORDED = deliveries.NOON
NOON = time.time_ns()  # a writer of these tests goes by the real clock


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A history of an agent's task, and of three traces that make none."""
    directory = tmp_path / "history"
    with store(directory) as writer:
        write(writer, task_spans(1))
        for number in (2, 3, 4):
            write(writer, other_spans(number))
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA recursive_triggers = ON")
        for number in (2, 3, 4):
            stray(connection, number, NOON + number)
    return directory


def stray(connection: sqlite3.Connection, number: int, at: int) -> None:
    """Find that a trace makes no task, as its assembly does."""
    task, trace = connection.execute(
        "SELECT id, trace FROM tasks WHERE task_id = ?", (trace_id(number),)
    ).fetchone()
    # The others were committed by the real clock, which no commit is earlier than.
    connection.execute("UPDATE tasks SET committed_ns = ?", (NOON,))
    for table in ("_timeline", "_steps"):
        connection.execute(f"DELETE FROM {table} WHERE task = ?", (task,))
    connection.execute("UPDATE _spans SET task = NULL WHERE trace = ?", (trace,))
    rows = Rows(connection)
    rows.drop_task(task, set())
    rows.set_side(trace, is_side=True)
    rows.touch(at, None)


def traces(directory: Path) -> list[int]:
    """The numbers of the traces whose spans can be seen."""
    return [int(one, 16) for one in ask(directory, "SELECT DISTINCT trace_id FROM spans")]


def test_their_spans_are_there_but_no_task(directory: Path) -> None:
    """Everything stays in ``spans``; a list of tasks, of whatever kind, does not show them."""
    assert traces(directory) == [1, 2, 3, 4]
    with TaskHistory(directory) as history:
        assert [task.task_id for task in history.tasks(kind=None)] == [trace_id(1)]
    check_whole(directory)


def test_they_count_with_the_traces_without_an_agent(directory: Path) -> None:
    """A tenth of the number of tasks, for both together, oldest first."""
    with store(directory) as writer:
        write(writer, other_spans(5))
    with keeper(directory, limits(max_tasks=30)) as retainer:
        assert work(retainer).other_tasks == 1
    assert traces(directory) == [1, 3, 4, 5]
    check_whole(directory)


def test_they_go_before_any_agents_task(directory: Path) -> None:
    """When the history is too large."""
    with TaskHistory(directory) as history:
        size = history.usage().content
        plan = history.prune(Retention(max_age=None, max_tasks=10), dry_run=True)
        assert [one.candidate.task_id for one in plan.planned] == [trace_id(2), trace_id(3)]
    told: list[Exception] = []
    with keeper(directory, limits(max_bytes=size // 2), problem=told.append) as retainer:
        retainer.step(rows=1)
        assert traces(directory) == [1, 3, 4]
        work(retainer)
    counts = "SELECT sum(other_tasks), sum(agent_tasks) FROM _retention WHERE reason = 'max_bytes'"
    assert ask(directory, counts) == [(3, 1)]


def test_they_go_by_age(directory: Path) -> None:
    """Of the last commit to them, as tasks do; one of exactly the limit stays."""
    with keeper(directory, limits(max_age=60), clock=lambda: NOON + 60 * 10**9 + 3) as retainer:
        work(retainer)
    assert traces(directory) == [3, 4]


def test_nothing_is_left_of_them(directory: Path) -> None:
    """Spans, contents, trace and owner; a late span of one is dropped and counted."""
    with keeper(directory, limits(max_age=60), clock=lambda: NOON + 3600 * 10**9) as retainer:
        work(retainer)
    assert left(directory) == {}
    with store(directory) as writer:
        write(writer, [entry(one, NOON + 3600 * 10**9 - RECORDED) for one in other_spans(2)])
        assert writer.counters.late == 1
    assert traces(directory) == []


def test_a_trace_that_makes_a_task_after_all_loses_its_owner(directory: Path) -> None:
    """From then on it is the task that counts."""
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection, connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        (trace,) = connection.execute(
            "SELECT id FROM _traces WHERE trace_id = ?", (trace_id(2),)
        ).fetchone()
        rows = Rows(connection)
        task = rows.task(trace, trace_id(2), trace_id(2), NOON, "agent")
        connection.execute("UPDATE _spans SET task = ? WHERE trace = ?", (task, trace))
        rows.set_side(trace, is_side=False)
    assert ask(directory, "SELECT id FROM _owners WHERE id < 0 ORDER BY id") == [-4, -3]
    check_whole(directory)


def test_one_that_is_worked_off_is_not_half_there(directory: Path) -> None:
    """Its spans can be seen until it goes, and none of them after that."""
    with store(directory) as writer:
        spans = [span(n, 1, name="GET", trace_id=trace_id(9)) for n in range(2, 60)]
        write(writer, [*other_spans(9), *spans])
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA recursive_triggers = ON")
        stray(connection, 9, NOON)
    assert traces(directory) == [1, 2, 3, 4, 9]
    with keeper(directory, limits(max_age=60), clock=lambda: NOON + 60 * 10**9 + 1) as retainer:
        assert retainer.step(rows=5).more
        assert len(ask(directory, "SELECT 1 FROM _spans WHERE task < 0")) > 40
        assert traces(directory) == [1, 2, 3, 4]
        work(retainer)
    check_whole(directory)


def test_a_commit_makes_one_young_again_and_larger(directory: Path) -> None:
    """More spans of the same trace: it goes later, and counts for more."""
    sums = "SELECT number, bytes FROM _totals WHERE name = 'other'"
    ((number, before),) = ask(directory, sums)
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection, connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        connection.execute("UPDATE _spans SET size = size + 5000 WHERE trace = 2")
        rows = Rows(connection)
        rows.set_side(2, is_side=True)
        rows.touch(time.time_ns(), None)
    assert ask(directory, sums) == [(number, before + 5_000)]
    with keeper(directory, limits(max_tasks=20)) as retainer:
        work(retainer)
    assert traces(directory) == [1, 2, 4]
    check_whole(directory)
