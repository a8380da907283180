# SPDX-License-Identifier: Apache-2.0
"""Histories for tests of the reading side, recorded the way an agent records."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import (
    TaskHistory,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)

PICTURES = Path(__file__).parent / "data" / "pictures"


@contextmanager
def recording(directory: Path, owner: str | None = None) -> Iterator[TaskTracer]:
    """A tracer that records in `directory`; on leaving, the history is closed cleanly."""
    exporter = TaskHistoryExporter(directory=directory, owner=owner, durability="normal")
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    try:
        yield TaskTracer(provider, exporter=exporter)
    finally:
        provider.shutdown()


def chat(*texts: str) -> list[dict[str, Any]]:
    """Chat messages that begin with a system prompt, then user and assistant in turn."""
    roles = ["system", *(["user", "assistant"] * len(texts))]
    return [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]


def data_url(name: str) -> str:
    """A picture of the test data as a data URL."""
    data = base64.b64encode((PICTURES / name).read_bytes()).decode()
    return f"data:image/png;base64,{data}"


def one_task(tasks: TaskTracer, goal: str = "a goal", *, steps: int = 1) -> str:
    """Record a task that succeeds, its conversation growing; returns its id."""
    messages = chat("be brief", goal)
    with tasks.task(goal, agent="desk") as task:
        for number in range(1, steps + 1):
            with task.step(f"part {number}") as step:
                step.prompt(messages, model="model-1")
                step.decision(f"answer {number}", usage={"input_tokens": 10, "output_tokens": 2})
                with step.tool_call("look", {"at": number}, call_id=f"call-{number}") as call:
                    call.result({"seen": number})
                step.result(f"done {number}")
            messages = [
                *messages,
                {"role": "assistant", "content": f"answer {number}"},
                {"role": "user", "content": f"go on after {number}"},
            ]
        task.result("all done")
        return task.id


def public_tables(history: TaskHistory) -> list[str]:
    """The names of the tables and views that people query."""
    return history.read(
        lambda connection: [
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
                " AND name NOT LIKE '\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite_%'"
            ).fetchall()
        ]
    )
