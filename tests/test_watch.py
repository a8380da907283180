# SPDX-License-Identifier: Apache-2.0
"""Following a history: what is there, then what comes, and where to go on."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import (
    Retention,
    TaskHistory,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)
from otel_taskhistory.errors import SettingsError, TaskNotFound
from otel_taskhistory.history import TimelineRecord

PATIENCE = 30.0


class Agent:
    """Records into a history."""

    def __init__(self, directory: Path) -> None:
        self.exporter = TaskHistoryExporter(directory)
        self.provider = TracerProvider()
        self.provider.add_span_processor(
            TaskHistoryProcessor(self.exporter, snapshot_interval=None)
        )
        self.tasks = TaskTracer(self.provider, exporter=self.exporter)

    def run(self, goal: str = "x") -> str:
        """One task of one step; its id."""
        with self.tasks.task(goal) as task, task.step("s") as step:
            step.prompt("what now?")
        return task.id


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    """One that is closed by its history's folder going away."""
    return Agent(tmp_path)


ONE_TASK = ["task.started", "step.started", "step.prompt", "step.ended", "task.ended"]


def events(records: list[TimelineRecord]) -> list[str]:
    """Their events."""
    return [record.event for record in records]


def test_what_is_there_and_then_what_comes(agent: Agent, tmp_path: Path) -> None:
    """In the order of commits, each once, with the cursor that goes on after it."""
    agent.run()
    watch = TaskHistory(tmp_path).watch()
    assert events([next(watch) for _ in range(5)]) == ONE_TASK
    assert watch.wait(0) is None
    threading.Timer(0.3, agent.run).start()
    later = [next(watch) for _ in range(5)]
    assert events(later) == ONE_TASK
    assert [record.seq for record in later] == list(range(6, 11))


def test_going_on_after_a_cursor(agent: Agent, tmp_path: Path) -> None:
    """Also in another process, from any record on, and from a plain number."""
    agent.run()
    history = TaskHistory(tmp_path)
    watch = history.watch()
    third = [next(watch) for _ in range(3)][-1]
    assert events([next(history.watch(third.cursor)) for _ in range(1)]) == ["step.ended"]
    rest = history.watch(third.seq)
    assert events([next(rest), next(rest)]) == ["step.ended", "task.ended"]
    assert history.watch(history.timeline_end()).wait(0) is None
    assert watch.cursor == third.cursor


def test_one_task_only(agent: Agent, tmp_path: Path) -> None:
    """Of several, by the beginning of its id."""
    first, _ = agent.run("first"), agent.run("second")
    watch = TaskHistory(tmp_path).watch(task_id=first[:12])
    found = [next(watch) for _ in range(5)]
    assert {record.task_id for record in found} == {first}
    assert watch.wait(0) is None


def test_an_async_iterator(agent: Agent, tmp_path: Path) -> None:
    """The loop goes on while it waits."""

    async def follow() -> tuple[list[TimelineRecord], int]:
        found: list[TimelineRecord] = []
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while len(found) < 5:
                ticks += 1
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        threading.Timer(0.3, agent.run).start()
        async for record in TaskHistory(tmp_path).watch():
            found.append(record)
            if len(found) == 5:
                break
        await ticking
        return found, ticks

    found, ticks = asyncio.run(asyncio.wait_for(follow(), PATIENCE))
    assert events(found) == ONE_TASK
    assert ticks > 5


def test_close_ends_whoever_waits(agent: Agent, tmp_path: Path) -> None:
    """From another thread."""
    watch = TaskHistory(tmp_path).watch()
    threading.Timer(0.2, watch.close).start()
    assert list(watch) == []


def test_a_gap_is_told(agent: Agent, tmp_path: Path) -> None:
    """Who was behind when retention removed records learns that some are missing."""
    agent.run("one")
    history = TaskHistory(tmp_path)
    begun = history.watch()
    cursor = next(begun).cursor
    agent.run("two")
    history.prune(Retention(max_age=None, max_tasks=1, max_bytes=None))
    watch = history.watch(cursor)
    first = next(watch)
    assert first.event == "gap"
    assert json.loads(first.detail)["reason"] == "removed by retention"
    assert events([next(watch) for _ in range(5)]) == ONE_TASK
    # Who comes late has missed nothing that is there.
    assert events([next(history.watch())]) == ["task.started"]


def test_another_history_in_the_same_place_is_told(tmp_path: Path) -> None:
    """A cursor of a history that is gone does not skip records of the one that is there."""
    agent = Agent(tmp_path / "old")
    agent.run()
    cursor = TaskHistory(tmp_path / "old").timeline_end()
    Agent(tmp_path / "new").run()
    watch = TaskHistory(tmp_path / "new").watch(cursor)
    found = [next(watch) for _ in range(6)]
    assert events(found) == ["gap", *ONE_TASK]


@pytest.mark.parametrize("after", ["x", "-1", "abc.x", -1, True, "1.2.3"])
def test_what_is_no_cursor(agent: Agent, tmp_path: Path, after: object) -> None:
    """One sentence says so."""
    with pytest.raises(SettingsError, match="no place in a timeline"):
        TaskHistory(tmp_path).watch(after)  # type: ignore[arg-type]


def test_an_unknown_task(agent: Agent, tmp_path: Path) -> None:
    """At once, not when something happens."""
    with pytest.raises(TaskNotFound):
        TaskHistory(tmp_path).watch(task_id="nothing")


def test_a_reader_that_watches_writes_nothing(agent: Agent, tmp_path: Path) -> None:
    """The files are those of the writer, and stay as they are."""
    agent.run()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    watch = TaskHistory(tmp_path).watch()
    while watch.wait(0.3) is not None:
        pass
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert {path for path in after if before.get(path) != after[path]} <= {
        tmp_path / "history.db-shm"
    }
