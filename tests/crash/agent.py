# SPDX-License-Identifier: Apache-2.0
"""What the agents of the crash tests have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import (
    Retention,
    Task,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)
from tests.crash.scripted import Place, picture, sha256


@contextmanager
def recording(directory: str | os.PathLike[str], durability: str = "full") -> Iterator[TaskTracer]:
    """A tracer on a history from which nothing is ever removed.

    Raises:
        AssertionError: on leaving, when not all was stored at once and whole.
    """
    exporter = TaskHistoryExporter(
        directory,
        durability=durability,
        retention=Retention(max_age=None, max_tasks=None, max_bytes=None),
    )
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    yield TaskTracer(provider, exporter=exporter)
    provider.shutdown()
    stats = exporter.stats()
    trouble = {name: stats[name] for name in ("lost", "reduced", "away", "waiting", "errors")}
    if any(trouble.values()):
        raise AssertionError(f"not all was stored: {trouble}")


def nobody(*words: object) -> None:
    """Say it to nobody."""


def carry_out(task: Task, place: Place, say: Callable[..., None] = nobody) -> None:
    """One step; what is said after a call says that it has returned."""
    step = task.step(place.name)
    say("step", place.thread, step.id, place.name)
    step.prompt(place.messages(), model="model-1")
    say("prompt", place.thread, step.id)
    step.decision(place.decision, usage={"input_tokens": 10, "output_tokens": 2})
    say("decision", place.thread, step.id)
    call = step.tool_call("browser.click", place.arguments, call_id=f"call-{place.name}")
    say("tool", place.thread, step.id)
    call.result(place.tool_result)
    say("ending", place.thread, "tool", step.id)
    call.end()
    say("ended", place.thread, "tool", step.id)
    for number in place.screenshots:
        data = picture(number)
        shot = step.screenshot(data)
        if (shot.sha256, shot.status) != (sha256(data), "ok"):
            raise AssertionError(f"a screenshot came back as {shot}")
        say("shot", place.thread, step.id, number)
    step.result(place.result)
    if place.status == "failed":
        step.fail(f"error of {place.name}")
    elif place.status == "cancelled":
        step.cancel()
    say("ending", place.thread, "step", step.id)
    step.end()
    say("ended", place.thread, "step", step.id)
