# SPDX-License-Identifier: Apache-2.0
"""The agent's process is killed: what had returned is there, and the history opens clean."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.exporter import TaskHistoryExporter
from tests.processes import SOUND_PNG, Program, check, one, rows

POINTS = [
    "before the task",
    "task",
    *(
        f"step {number} {what}"
        for number in (1, 2)
        for what in (
            *("begun", "prompt", "decision", "tool begun", "tool ended", "screenshot", "ended"),
        )
    ),
    "task ended",
]


def killed_at(directory: Path, point: str) -> None:
    """Run the agent until it stands at `point`, and kill it there."""
    with Program("agent", directory, "succeeds") as agent:
        while not agent.line().startswith(point):
            agent.go_on()
        agent.kill()


@pytest.mark.parametrize("point", POINTS)
def test_what_had_returned_is_there_after_kill_9(tmp_path: Path, point: str) -> None:
    """At each point between two calls: all that was said until then, and nothing half."""
    directory = tmp_path / "history"
    killed_at(directory, point)
    check(directory)
    reached = POINTS.index(point)

    def after(other: str) -> bool:
        return reached >= POINTS.index(other)

    expected_tasks = []
    if after("task"):
        status = "succeeded" if after("task ended") else "running"
        expected_tasks = [("find the number of files", "desk-1", status)]
    assert rows(directory, "SELECT goal, agent, status FROM tasks") == expected_tasks
    steps: list[tuple[Any, ...]] = []
    tools: list[tuple[Any, ...]] = []
    shots: list[tuple[Any, ...]] = []
    for number in (1, 2):
        if not after(f"step {number} begun"):
            break
        ended = after(f"step {number} ended")
        steps.append(
            (
                number,
                "succeeded" if ended else "running",
                after(f"step {number} prompt") and 2 * number,
                f"I list folder {number}" if after(f"step {number} decision") else None,
                f"folder {number} has 2 files" if ended else None,
            )
        )
        if after(f"step {number} tool begun"):
            done = after(f"step {number} tool ended")
            result = json.dumps([f"a{number}", f"b{number}"]) if done else None
            tools.append((f"c{number}", "succeeded" if done else "running", result))
        if after(f"step {number} screenshot"):
            shots.append((f"folder {number}", len(SOUND_PNG), "ok"))
    found = rows(
        directory,
        "SELECT step_index, status, prompt, decision, result FROM steps ORDER BY step_index",
    )
    assert [
        (index, status, prompt is not None and len(json.loads(prompt)), *rest)
        for index, status, prompt, *rest in found
    ] == steps
    assert (
        rows(directory, "SELECT call_id, status, result FROM tool_calls ORDER BY call_id") == tools
    )
    assert rows(directory, "SELECT caption, bytes, status FROM screenshots ORDER BY id") == shots


@pytest.mark.parametrize("point", ["step 1 tool begun", "step 2 ended"])
def test_a_history_whose_writer_was_killed_is_written_on(tmp_path: Path, point: str) -> None:
    """The next agent opens it as it is and adds to it."""
    directory = tmp_path / "history"
    killed_at(directory, point)
    before = rows(directory, "SELECT span_id, name, attributes FROM spans ORDER BY span_id")
    with Program("agent", directory, "succeeds") as agent:
        while agent.line() != "task ended":
            agent.go_on()
        agent.go_on()
        agent.end()
    check(directory)
    assert one(directory, "SELECT count(*) FROM tasks") == 2
    assert one(directory, "SELECT count(*) FROM steps WHERE status = 'succeeded'") >= 2
    names = ", ".join("?" for _ in before)
    assert (
        rows(
            directory,
            "SELECT span_id, name, attributes FROM spans"
            f" WHERE span_id IN ({names}) ORDER BY span_id",
            *(span_id for span_id, _, _ in before),
        )
        == before
    )


def test_a_history_whose_maker_was_killed_in_the_making_is_made_anew(tmp_path: Path) -> None:
    """Killed at random moments of its first opening: the next one always succeeds."""
    chance = random.Random(7)
    for number in range(8):
        directory = tmp_path / str(number)
        with Program("agent", directory, "succeeds") as agent:
            while not (directory / "history.db").exists():
                assert agent.process.poll() is None
            time.sleep(chance.random() * 0.05)  # a random moment, whichever it is
            agent.kill()
        exporter = TaskHistoryExporter(directory)
        assert exporter.stamp.owner == "host-agent"
        exporter.shutdown()
        check(directory)
