# SPDX-License-Identifier: Apache-2.0
"""Clocks that are wrong remove nothing that is within the limits, nor keep anything for years."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_taskhistory.settings import Settings
from otel_taskhistory.store.wall import BELIEVED_NS, FUTURE_NS, doubt
from otel_taskhistory.store.writer import Writer
from tests.store.deliveries import write
from tests.store.keeping import ask, check_whole, keeper, kept, limits, task_spans, work

SECOND = 10**9
HOUR = 3600 * SECOND
DAY = 24 * HOUR
TODAY = 1_780_000_000 * SECOND
BOOT = 40 * SECOND  # 1970


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def record(directory: Path, number: int, at: int, **limit: int) -> None:
    """An agent that starts, records a task and ends while the clock says so."""
    settings = Settings.resolve(directory=directory, retention=limits(**limit), durability="normal")
    writer = Writer(settings, clock=lambda: at)
    try:
        write(writer, task_spans(number))
        assert writer.flush(30)
    finally:
        writer.close()


def keep(directory: Path, at: int, **limit: int) -> list[int]:
    """Keep to the limits while the clock says so; the tasks that are left."""
    with keeper(directory, limits(**limit), clock=lambda: at) as retainer:
        work(retainer)
    return kept(directory)


def test_a_machine_that_starts_in_1970_loses_nothing(directory: Path) -> None:
    """An hour later it is told the time, and then all its tasks would be half a century old."""
    for number in range(1, 4):
        record(directory, number, TODAY + number, max_age=30 * 86400)
    record(directory, 4, BOOT, max_age=30 * 86400)
    assert keep(directory, BOOT + HOUR, max_age=30 * 86400) == [1, 2, 3, 4]
    record(directory, 5, TODAY + DAY, max_age=30 * 86400)
    assert keep(directory, TODAY + DAY, max_age=30 * 86400) == [1, 2, 3, 4, 5]
    check_whole(directory)


def test_what_is_recorded_while_the_clock_is_behind_is_the_newest(directory: Path) -> None:
    """By number and size too the oldest go, in the order in which they came."""
    for number in range(1, 4):
        record(directory, number, TODAY + number)
    for number in (4, 5):
        record(directory, number, BOOT + number)
    assert keep(directory, BOOT + HOUR, max_tasks=3) == [3, 4, 5]


def test_a_clock_that_was_ahead_is_forgotten_after_a_day(directory: Path) -> None:
    """Else its tasks would be the newest for ten years, and never be old."""
    record(directory, 1, TODAY + 3650 * DAY)
    record(directory, 2, TODAY)
    for hours in (0, 12, 23):
        assert keep(directory, TODAY + hours * HOUR, max_age=86400) == [1, 2]
    assert min(ask(directory, "SELECT committed_ns FROM tasks")) > TODAY + 3000 * DAY
    assert keep(directory, TODAY + 25 * HOUR, max_age=86400) == [1, 2]
    assert set(ask(directory, "SELECT committed_ns FROM tasks")) == {TODAY + 25 * HOUR}
    record(directory, 3, TODAY + 30 * HOUR)
    assert keep(directory, TODAY + 50 * HOUR, max_age=86400) == [3]
    assert ask(directory, "SELECT 1 FROM _meta WHERE key = 'clock_behind_ns'") == []


def test_two_short_times_are_not_one_long_one(directory: Path) -> None:
    """A clock that is set right in between begins anew."""
    record(directory, 1, TODAY)
    keep(directory, TODAY - 3 * HOUR)
    keep(directory, TODAY + HOUR)
    record(directory, 2, TODAY + 9 * DAY)
    before = ask(directory, "SELECT committed_ns FROM tasks")
    keep(directory, TODAY + 9 * DAY - 2 * HOUR)
    assert ask(directory, "SELECT committed_ns FROM tasks") == before


@pytest.mark.parametrize(
    ("latest", "since", "now", "expected"),
    [
        (0, None, 0, None),
        (FUTURE_NS, None, 0, None),
        (FUTURE_NS + 1, None, 0, "note"),
        (FUTURE_NS + 1, 0, 0, None),
        (FUTURE_NS + 1, 1, 0, "note"),
        (3 * BELIEVED_NS, 0, BELIEVED_NS - 1, None),
        (3 * BELIEVED_NS, 0, BELIEVED_NS, "believe"),
        (FUTURE_NS, 0, 0, "forget"),
    ],
)
def test_when_a_clock_is_believed(
    latest: int, since: int | None, now: int, expected: str | None
) -> None:
    """After a day in which it said the same; a moment later than now is no reason to doubt it."""
    assert doubt(latest, since, now) == expected
