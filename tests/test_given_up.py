# SPDX-License-Identifier: Apache-2.0
"""Spans of other instrumentations that end because their work was given up, or are never ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode, Tracer

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor
from tests.processes import rows

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "desk-1"}
MODEL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "model-1"}


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[TracerProvider]:
    """A provider that records into the history of this test."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(TaskHistoryExporter(tmp_path)))
    yield provider
    provider.shutdown()


@pytest.fixture
def tracer(provider: TracerProvider) -> Tracer:
    """That of a framework."""
    return provider.get_tracer("some.framework")


def outcome(directory: Path) -> list[tuple[str, str | None]]:
    """Status and type of error of each task, newest first, and of its steps."""
    with TaskHistory(directory) as history:
        found: list[tuple[str, str | None]] = []
        for task in history.tasks(kind=None):
            found.append((task.status, task.error_type))
            found += [(step.status, step.error_type) for step in history.steps(task.task_id)]
        return found


def run(tracer: Tracer, error: BaseException) -> None:
    """An agent whose model call ends by an exception."""
    with (
        tracer.start_as_current_span("invoke_agent desk-1", attributes=AGENT),
        tracer.start_as_current_span("chat model-1", attributes=MODEL),
    ):
        raise error


async def test_a_cancelled_run_is_cancelled(tracer: Tracer, tmp_path: Path) -> None:
    """The SDK leaves the status of such spans unset; task and step are cancelled all the same."""

    async def agent() -> None:
        with (
            tracer.start_as_current_span("invoke_agent desk-1", attributes=AGENT),
            tracer.start_as_current_span("chat model-1", attributes=MODEL),
        ):
            await asyncio.Event().wait()

    running = asyncio.create_task(agent())
    await asyncio.sleep(0)
    running.cancel("no longer needed")
    with pytest.raises(asyncio.CancelledError):
        await running
    assert outcome(tmp_path) == [("cancelled", "asyncio.exceptions.CancelledError")] * 2
    with TaskHistory(tmp_path) as history:
        assert history.task("latest").error == "no longer needed"


def test_ctrl_c_cancels(tracer: Tracer, tmp_path: Path) -> None:
    """A run that KeyboardInterrupt goes through is cancelled."""
    with pytest.raises(KeyboardInterrupt):
        run(tracer, KeyboardInterrupt())
    assert outcome(tmp_path) == [("cancelled", "KeyboardInterrupt")] * 2


def test_ok_does_not_hide_a_cancellation(tracer: Tracer, tmp_path: Path) -> None:
    """Instrumentations set OK in a ``finally``, whatever happened."""

    def agent() -> None:
        with tracer.start_as_current_span("invoke_agent desk-1", attributes=AGENT) as span:
            try:
                raise KeyboardInterrupt
            finally:
                span.set_status(Status(StatusCode.OK))

    with pytest.raises(KeyboardInterrupt):
        agent()
    assert outcome(tmp_path) == [("cancelled", "KeyboardInterrupt")]


def test_a_closed_generator_is_not_given_up(tracer: Tracer, tmp_path: Path) -> None:
    """Who has read all it wants closes a stream: the run went well."""

    def agent() -> Iterator[str]:
        with tracer.start_as_current_span("invoke_agent desk-1", attributes=AGENT):
            yield "all there is"

    stream = agent()
    next(stream)
    stream.close()
    assert outcome(tmp_path) == [("succeeded", None)]


def test_work_in_a_handler_is_its_own(tracer: Tracer, tmp_path: Path) -> None:
    """A run that a handler of Ctrl-C begins, to sum up, succeeds; one it is stopped in does not."""
    try:
        run(tracer, KeyboardInterrupt())
    except KeyboardInterrupt:
        with tracer.start_as_current_span("invoke_agent desk-1", attributes=AGENT):
            pass
        with pytest.raises(KeyboardInterrupt):
            run(tracer, KeyboardInterrupt("again"))
    told = [("cancelled", "KeyboardInterrupt")] * 2
    assert outcome(tmp_path) == [*told, ("succeeded", None), *told]


def test_a_failure_that_a_span_tells_of_stays_one(tracer: Tracer, tmp_path: Path) -> None:
    """An error status says more than the cancellation that came after it."""

    def agent() -> None:
        with tracer.start_as_current_span("invoke_agent desk-1", attributes=AGENT) as span:
            span.set_status(Status(StatusCode.ERROR, "the disk is full"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agent()
    assert outcome(tmp_path) == [("failed", None)]


def test_what_a_span_says_itself_wins(tracer: Tracer, tmp_path: Path) -> None:
    """What we saw stands beside the attributes of the span, and replaces none."""
    attributes = {**AGENT, "error.type": "user_abort"}
    with (
        pytest.raises(KeyboardInterrupt),
        tracer.start_as_current_span("invoke_agent desk-1", attributes=attributes),
    ):
        raise KeyboardInterrupt
    ((stored,),) = rows(tmp_path, "SELECT attributes FROM spans")
    assert json.loads(stored) == {**attributes, "taskhistory.status": "cancelled"}


def test_a_failed_span_that_nobody_ends_has_failed(
    provider: TracerProvider, tracer: Tracer, tmp_path: Path
) -> None:
    """A run whose instrumentation forgets its root when it raises has failed, with its error, when
    the provider is shut down; one that is merely open is interrupted.
    """
    forgotten = tracer.start_span("desk-1.run", attributes=AGENT)
    forgotten.record_exception(RuntimeError("the model is overloaded"))
    forgotten.set_status(StatusCode.ERROR)
    left = tracer.start_span("desk-1.run", attributes=AGENT)
    provider.shutdown()
    assert left.is_recording()
    assert sorted(outcome(tmp_path)) == [("failed", "RuntimeError"), ("interrupted", None)]
