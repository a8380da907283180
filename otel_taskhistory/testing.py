# SPDX-License-Identifier: Apache-2.0
"""The pytest fixture ``taskhistory``: a history of the test's own, with a TaskTracer on it.

pytest loads this module in every run of everybody who has the package installed, so it imports
nothing of it until a test asks for the fixture. ::

    def test_the_agent_clicks(taskhistory):
        run_agent(taskhistory.tasks)
        task = taskhistory.history.task("latest")
        assert [step.tool_name for step in taskhistory.history.steps(task.task_id)] == ["click"]
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from otel_taskhistory.exporter import TaskHistoryExporter
    from otel_taskhistory.history import TaskHistory
    from otel_taskhistory.recording.tracer import TaskTracer


@dataclass(frozen=True, slots=True)
class Recorded:
    """A history for one test, and what writes and reads it."""

    directory: Path
    """The history itself, in a temporary directory."""
    tasks: TaskTracer
    """Begins tasks on `provider`."""
    history: TaskHistory
    """Reads what was recorded; a step is there as soon as it has ended."""
    exporter: TaskHistoryExporter
    provider: TracerProvider
    """Not the global one; it records every span whole."""


@pytest.fixture
def taskhistory(tmp_path: Path) -> Iterator[Recorded]:
    """A history in a temporary directory, recorded by a provider that is not the global one."""
    from otel_taskhistory.configure import new_provider
    from otel_taskhistory.exporter import TaskHistoryExporter
    from otel_taskhistory.history import TaskHistory
    from otel_taskhistory.processor import TaskHistoryProcessor
    from otel_taskhistory.recording.tracer import TaskTracer

    directory = tmp_path / "taskhistory"
    with pytest.MonkeyPatch.context() as environment:
        # What is set for the agent's own history, or to record nothing, is not meant for this one.
        for name in list(os.environ):
            if name.startswith("OTEL_TASKHISTORY_") or name == "OTEL_SDK_DISABLED":
                environment.delenv(name)
        exporter = TaskHistoryExporter(directory, durability="normal")
        provider = new_provider(shutdown_on_exit=False)
        history = TaskHistory(directory)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    try:
        yield Recorded(
            directory, TaskTracer(provider, exporter=exporter), history, exporter, provider
        )
    finally:
        history.close()
        provider.shutdown()
