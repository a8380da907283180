# SPDX-License-Identifier: Apache-2.0
"""A hold: retention waits for what is not sent yet, but not for ever and not for any room."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.store import forwarding
from otel_taskhistory.store.database import connect
from otel_taskhistory.store.forwarding import HOLD_NS, Destination
from otel_taskhistory.store.pruning import plan_pruning
from otel_taskhistory.store.retention import HOLD_AGE, HOLD_TASKS, Choice, Holding, Kept, choose
from otel_taskhistory.store.retention import Limits as Bounds
from tests.store.deliveries import NOON, write
from tests.store.keeping import (
    DAY,
    ask,
    check_whole,
    committed,
    keeper,
    kept,
    limits,
    other_spans,
    record,
    store,
    trace_id,
    work,
)
from tests.store.test_retention_cost import cost

HERE = Destination("http://127.0.0.1:4318/v1/traces", "ids_only")
NOW = NOON + 1000 * DAY


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def hold(directory: Path, *, up_to: int = 0, at_ns: int = NOW, held: bool = True) -> None:
    """Somebody forwards, has sent the first `up_to` tasks of one step, and holds the others."""
    with closing(connect(directory / "history.db", 5)) as connection, connection:
        found = forwarding.begin(connection, HERE, at_ns, hold=held)
        forwarding.acknowledge(connection, found.id, 3 * up_to, sent=3 * up_to, refused=0)


def prune(
    directory: Path, retention: Retention, now_ns: int = NOW, *, exact: bool = True
) -> list[int]:
    """Do all that retention has to do at that time; the tasks that are left.

    Just those go that a dry run names, unless it is for room, which is known only about.
    """
    settings = Settings.resolve(directory=directory, retention=retention)
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection:
        before = set(ask(directory, "SELECT task_id FROM tasks"))
        planned = {
            one.candidate.task_id
            for one in plan_pruning(connection, settings, lambda: now_ns).planned
        }
    with keeper(directory, retention, clock=lambda: now_ns) as retainer:
        work(retainer)
    check_whole(directory)
    gone = before - set(ask(directory, "SELECT task_id FROM tasks"))
    assert gone == planned if exact else gone and planned
    return kept(directory)


def test_without_a_hold_nothing_waits(directory: Path) -> None:
    """That somebody forwards protects nothing by itself."""
    record(directory, range(1, 7))
    hold(directory, held=False)
    assert prune(directory, limits(max_tasks=2)) == [5, 6]


def test_what_is_not_sent_yet_stays_what_is_sent_goes(directory: Path) -> None:
    """The number of tasks that may stay is exceeded by those that are not sent yet."""
    record(directory, range(1, 7))
    hold(directory, up_to=2)
    assert prune(directory, limits(max_tasks=2)) == [3, 4, 5, 6]
    hold(directory, up_to=5)
    assert prune(directory, limits(max_tasks=2)) == [5, 6]


def test_a_hold_reaches_four_times_the_number(directory: Path) -> None:
    """Beyond that the oldest go though they were not sent."""
    record(directory, range(1, 12))
    hold(directory)
    assert prune(directory, limits(max_tasks=2)) == list(range(4, 12))
    assert len(kept(directory)) == 2 * HOLD_TASKS


def test_a_hold_reaches_twice_the_age(directory: Path) -> None:
    """Who must delete after so many days knows what a hold makes of it."""
    record(directory, range(1, 5))
    hold(directory, up_to=1)
    for number, days in ((1, 25), (2, 21), (3, 19), (4, 5)):
        committed(directory, number, NOW - days * DAY)
    assert prune(directory, limits(max_age=timedelta(days=10))) == [3, 4]
    assert HOLD_AGE == 2


def test_a_hold_takes_no_more_room(directory: Path) -> None:
    """What is not sent goes when the history takes more than it may."""
    record(directory, range(1, 40), text="much to say " * 2000)
    hold(directory)
    left = prune(directory, limits(max_bytes=1_500_000), exact=False)
    assert 0 < len(left) < 39
    assert left[-1] == 39


def test_a_hold_ends_when_nobody_forwards_any_more(directory: Path) -> None:
    """A forwarder that was uninstalled does not keep the history large for ever."""
    record(directory, range(1, 7))
    hold(directory, at_ns=NOW)
    just_before = NOW + HOLD_NS - 1
    assert prune(directory, limits(max_tasks=2), just_before) == [1, 2, 3, 4, 5, 6]
    assert prune(directory, limits(max_tasks=2), just_before + 1) == [5, 6]


def test_of_several_holds_the_one_that_is_furthest_behind_counts(directory: Path) -> None:
    """A task stays until the last of those that hold has sent it."""
    record(directory, range(1, 7))
    hold(directory, up_to=4)
    with closing(connect(directory / "history.db", 5)) as connection, connection:
        there = Destination(HERE.endpoint, "everything")
        found = forwarding.begin(connection, there, NOW, hold=True)
        forwarding.acknowledge(connection, found.id, 3, sent=3, refused=0)
    assert prune(directory, limits(max_tasks=2)) == [2, 3, 4, 5, 6]


def test_traces_without_a_task_and_without_an_agent_are_held_too(directory: Path) -> None:
    """Whatever can be sent is held, with the limits of its kind."""
    with store(directory) as writer:
        for number in range(1, 7):
            write(writer, other_spans(number))
    hold(directory)
    assert prune(directory, limits(max_tasks=10)) == [3, 4, 5, 6]  # one, four times


def test_the_limits_that_are_lifted_stay_lifted() -> None:
    """The decision itself: age and number reach further for a held task, room does not."""
    bounds = Bounds(age_ns=10, tasks=5, other_tasks=5, content=100, other_bytes=50)
    empty = Kept(0, 0, None)

    def chosen(tasks: int, age: int, content: int = 0, *, held: bool) -> Choice | None:
        one = Kept(tasks, 0, 1000 - age, held)
        return choose(bounds, Holding(1000, empty, one, content))

    assert chosen(6, 0, held=False) == Choice("agent", "max_tasks")
    assert chosen(20, 20, held=True) is None
    assert chosen(21, 0, held=True) == Choice("agent", "max_tasks")
    assert chosen(1, 21, held=True) == Choice("agent", "max_age")
    assert chosen(1, 0, 101, held=True) == Choice("agent", "max_bytes")


def test_a_hold_costs_nothing_while_nothing_is_past_a_limit(directory: Path) -> None:
    """Whether a task is held is looked up only when it would go otherwise."""
    record(directory, range(1, 6))

    def step() -> int:
        with keeper(directory, limits(max_tasks=10)) as retainer:
            connection = retainer._connection
            retainer.step()
            return cost(connection, retainer.step)

    before = step()
    hold(directory, at_ns=2**62)
    assert step() <= before + 40


def test_a_held_task_can_be_removed_by_name(directory: Path) -> None:
    """Asked for, a task goes whatever is held."""
    from otel_taskhistory.store.pruning import remove_task

    record(directory, range(1, 3))
    hold(directory)
    remove_task(Settings.resolve(directory=directory), trace_id(1))
    assert kept(directory) == [2]
