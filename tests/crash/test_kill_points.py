# SPDX-License-Identifier: Apache-2.0
"""The agent is killed between two calls: the history shows exactly what had returned."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistory
from tests.crash.agent import recording
from tests.crash.checks import INTERRUPTED_IS_MARKED, reading
from tests.crash.kill_points_agent import PLACE, POINTS
from tests.crash.scripted import picture, sha256, stored

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork and no SIGKILL there")

ROOT = Path(__file__).resolve().parents[2]

EVENTS = {
    "task": "task.started",
    "step": "step.started",
    "prompt": "step.prompt",
    "decision": "step.decision",
    "tool call": "tool_call.started",
    "tool call ended": "tool_call.ended",
    "screenshot": "step.screenshot",
    "second screenshot": "step.screenshot",
    "step ended": "step.ended",
    "task ended": "task.ended",
}
"""What the timeline says of each point."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a history for each point, named after it."""
    directory = tmp_path_factory.mktemp("killed")
    subprocess.run(
        [sys.executable, "-m", "tests.crash.kill_points_agent", str(directory)],
        cwd=ROOT,
        check=True,
    )
    return directory


def rows(history: Path, query: str) -> list[dict[str, Any]]:
    """What any SQLite reader finds."""
    with reading(history) as database:
        return [dict(row) for row in database.execute(query)]


@pytest.mark.parametrize("point", POINTS)
def test_what_had_returned_is_there(killed: Path, point: str) -> None:
    """Killed right after a call has returned: what it recorded is there, whole, nothing else is,
    and what was running is to be seen as running.
    """
    history = killed / point

    def at(other: str) -> bool:
        return POINTS.index(point) >= POINTS.index(other)

    def if_at(other: str, value: Any) -> Any:
        return value if at(other) else None

    assert rows(history, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    assert rows(history, "PRAGMA foreign_key_check") == []
    tasks = rows(history, "SELECT goal, agent, status, step_count FROM tasks")
    task = {
        "goal": PLACE.goal,
        "agent": "agent-0",
        "status": "succeeded" if at("task ended") else "running",
        "step_count": int(at("step")),
    }
    assert tasks == ([task] if at("task") else [])

    steps = rows(history, "SELECT * FROM steps")
    assert len(steps) == at("step")
    for step in steps:
        assert step["status"] == ("succeeded" if at("step ended") else "running")
        assert (step["ended_at"] is not None) == at("step ended")
        assert (step["prompt"] and stored(step["prompt"])) == if_at("prompt", PLACE.sent())
        assert step["model"] == if_at("prompt", "model-1")
        assert step["decision"] == if_at("decision", PLACE.decision)
        assert step["tool_name"] == if_at("tool call", "browser.click")
        # A result is no checkpoint: it comes with the end of what it is of.
        assert step["result"] == if_at("step ended", PLACE.result)

    calls = rows(history, "SELECT * FROM tool_calls")
    assert len(calls) == at("tool call")
    for call in calls:
        assert call["status"] == ("succeeded" if at("tool call ended") else "running")
        assert (call["name"], call["call_id"]) == ("browser.click", "call-1")
        assert json.loads(call["arguments"]) == PLACE.arguments
        assert call["result"] == if_at("tool call ended", PLACE.tool_result)

    taken = zip(("screenshot", "second screenshot"), PLACE.screenshots, strict=True)
    expected = [sha256(picture(number)) for name, number in taken if at(name)]
    shots = rows(history, "SELECT * FROM screenshots WHERE role = 'screenshot' ORDER BY id")
    assert [shot["sha256"] for shot in shots] == expected
    for shot in shots:
        file = history / "artifacts" / shot["path"]
        assert sha256(file.read_bytes()) == shot["sha256"]

    events = [row["event"] for row in rows(history, "SELECT event FROM timeline ORDER BY seq")]
    assert events == [event for name, event in EVENTS.items() if at(name)]


@pytest.mark.parametrize("point", ["open", "prompt", "tool call", "step ended", "task ended"])
def test_the_next_agent_goes_on(killed: Path, tmp_path: Path, point: str) -> None:
    """Whoever opens the history next adds to it, and what had ended stays as it was."""
    history = tmp_path / "history"
    shutil.copytree(killed / point, history)
    ended = "SELECT * FROM steps WHERE status = 'succeeded' ORDER BY step_id"
    before = rows(history, ended)
    with recording(history) as tasks:
        if INTERRUPTED_IS_MARKED:
            assert statuses(history) <= {"succeeded", "interrupted"}
        with tasks.task("the next") as task, task.step("its step") as step:
            step.prompt("go on")
    assert not (history / "history.db-wal").exists()  # it was closed cleanly
    after = rows(history, ended)
    assert [row for row in after if row["name"] == PLACE.name] == before
    with TaskHistory(history) as reader:
        assert reader.task("latest").goal == "the next"
        assert [(step.prompt, step.status) for step in reader.steps("latest")] == [
            ("go on", "succeeded")
        ]


def statuses(history: Path) -> set[str]:
    """All statuses that there are."""
    return {
        row["status"]
        for table in ("tasks", "steps", "model_calls", "tool_calls")
        for row in rows(history, f"SELECT status FROM {table}")
    }


def test_a_killed_history_is_read_without_being_changed(killed: Path) -> None:
    """Readers see what a dead process left, and how; none but the next writer may touch it."""
    history = killed / "tool call"
    before = (history / "history.db").read_bytes(), (history / "history.db-wal").read_bytes()
    with TaskHistory(history) as reader:
        (task,) = reader.tasks(status="interrupted")
        (step,) = reader.steps(task.task_id)
        assert step.status == "interrupted"
        assert step.prompt is not None
        assert stored(step.prompt) == PLACE.sent()
    with pytest.raises(sqlite3.OperationalError), reading(history) as database:
        database.execute("UPDATE tasks SET status = 'failed'")
    after = (history / "history.db").read_bytes(), (history / "history.db-wal").read_bytes()
    assert after == before
