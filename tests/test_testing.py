# SPDX-License-Identifier: Apache-2.0
"""The pytest fixture that users get."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from opentelemetry import trace

from otel_taskhistory.testing import Recorded


def test_it_gives_a_history_with_a_tracer_on_it(taskhistory: Recorded, tmp_path: Path) -> None:
    """What the test's agent does can be read at once."""
    with taskhistory.tasks.task("a goal", agent="desk-1") as task, task.step("look") as step:
        step.prompt("what?")
        step.decision("that")
    (found,) = taskhistory.history.steps(task.id)
    assert (found.name, found.prompt, found.decision, found.status) == (
        *("look", "what?", "that", "succeeded"),
    )
    assert taskhistory.directory.is_relative_to(tmp_path)
    assert taskhistory.exporter.stats()["spans"] == 2
    with taskhistory.provider.get_tracer("x").start_as_current_span("foreign"):
        pass
    assert taskhistory.exporter.stats()["spans"] == 3


def test_it_is_not_global_and_each_test_has_its_own(taskhistory: Recorded) -> None:
    """Nothing is left of the test before."""
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert list(taskhistory.history.tasks(kind=None)) == []


def test_it_is_loaded_lightly_and_whatever_the_environment_says(tmp_path: Path) -> None:
    """In somebody's test run with settings for the agent's own history, which stays untouched."""
    (tmp_path / "test_users.py").write_text(
        "import sys\n"
        "LOADED = {'sqlite_utils', 'opentelemetry.sdk', 'PIL'} & set(sys.modules)\n"
        "def test_agent(taskhistory):\n"
        "    assert not LOADED\n"
        "    with taskhistory.tasks.task('a goal'):\n"
        "        pass\n"
        "    assert taskhistory.history.task('latest').goal == 'a goal'\n"
        "def test_shut_down(request):\n"
        "    import threading\n"
        "    assert threading.active_count() == 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_users.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "OTEL_SDK_DISABLED": "true",
            "OTEL_TASKHISTORY_DATABASE": str(tmp_path / "agents.db"),
            "OTEL_TASKHISTORY_OWNER": "the-agent",
            "OTEL_TASKHISTORY_MAX_AGE": "banana",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "agents.db").exists()
