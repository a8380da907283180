# SPDX-License-Identifier: Apache-2.0
"""Killed while spans of another instrumentation are open, and being looked at."""

from __future__ import annotations

import json
import random
import sys
import threading
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory, TaskHistoryExporter
from tests.processes import Program, check, rows

ROUNDS = 8

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills as POSIX does")


def test_killed_at_random_moments_with_watched_spans_open(tmp_path: Path) -> None:
    """What had ended is whole; what was open is interrupted, with its prompt if it was seen."""
    chance = random.Random(3)
    directory = tmp_path / "history"
    ended = 0
    for _ in range(ROUNDS):
        with Program("foreign", directory) as agent:
            for _ in range(chance.randint(1, 12)):
                said = agent.line()
            threading.Event().wait(chance.random() * 0.02)
            agent.kill()
            assert agent.process.stdout is not None
            said = (agent.process.stdout.read().splitlines() or [said])[-1]
        ended += int(said.removeprefix("ended "))
        with TaskHistory(directory) as history:  # nobody has written since
            task = history.task("latest")
            assert task.status == "interrupted"
            statuses = {step.status for step in history.steps("latest", limit=1000)}
        assert statuses <= {"succeeded", "interrupted"}
        TaskHistoryExporter(directory).shutdown()
        check(directory)
    found = rows(directory, "SELECT name, status, prompt FROM steps ORDER BY started_at")
    succeeded = [name for name, status, _ in found if status == "succeeded"]
    # The end of one more may be on disk than the agent could say.
    assert ended <= len(succeeded) <= ended + ROUNDS
    for name, status, prompt in found:
        assert status in ("succeeded", "interrupted")
        if prompt is not None:
            (message,) = json.loads(prompt)
            assert name == f"chat {message['parts'][0]['content']}"
        else:
            assert status == "interrupted"
    assert rows(directory, "SELECT status, count(*) FROM tasks GROUP BY status") == [
        ("interrupted", ROUNDS)
    ]
