# SPDX-License-Identifier: Apache-2.0
"""A typed program that uses all of the public API; it is checked, not run, see `test_types`.

`assert_type` says what users rely on: a return type that became wider is an error here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span

import otel_taskhistory
from otel_taskhistory import (
    HistoryNotFound,
    HistoryRefused,
    Policy,
    RedactingExporter,
    Retention,
    SchemaTooNew,
    SettingsError,
    Step,
    Task,
    TaskHistory,
    TaskHistoryError,
    TaskHistoryExporter,
    TaskHistoryLogExporter,
    TaskHistoryProcessor,
    TaskNotFound,
    TaskTracer,
    ToolCall,
    configure,
    policy_named,
)
from otel_taskhistory import history as rows
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.testing import Recorded


class Nowhere(SpanExporter):
    """An exporter of the user's."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class WithoutMail:
    """A policy of the user's."""

    def span(self, record: SpanRecord) -> SpanRecord | None:
        return None if "mail" in record.name else record


def set_up(directory: Path) -> TaskTracer:
    """By one call, and by hand."""
    retention = Retention(max_age=timedelta(days=7), max_tasks=None, max_bytes=2**30)
    configured = configure(
        directory, retention=retention, durability="normal", exporters=[Nowhere()]
    )
    assert_type(configured, TaskTracer)

    own: Policy = WithoutMail()
    masking: Policy = policy_named("scrub", secrets=["s3cret-value"])
    exporter = TaskHistoryExporter(directory, owner="host-agent", retention=retention)
    assert_type(exporter.stats(), dict[str, Any])
    provider = TracerProvider()
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    provider.add_span_processor(BatchSpanProcessor(RedactingExporter(Nowhere(), own)))
    provider.add_span_processor(BatchSpanProcessor(RedactingExporter(Nowhere(), masking)))
    assert_type(TaskHistoryLogExporter().force_flush(), bool)
    return TaskTracer(provider, exporter=exporter)


def record(tasks: TaskTracer, picture: bytes) -> str:
    """A task with all that a step can hold."""
    with tasks.task("book a table", agent="desk", key="k", conversation_id="c") as task:
        assert_type(task, Task)
        assert_type(tasks.current_task(), Task | None)
        with task.step("open", index=1) as step:
            assert_type(step, Step)
            assert_type(step.task, Task | None)
            assert_type(tasks.current_step(), Step | None)
            step.prompt([{"role": "user", "content": "hello"}], model="m", system="be brief")
            step.decision("I click", usage={"input_tokens": 1}, finish_reason="stop")
            with step.tool_call("click", {"on": 1}, call_id="c1") as call:
                assert_type(call, ToolCall)
                assert_type(call.step, Step | None)
                call.result({"ok": True})
            step.screenshot(picture, caption="the page")
            step.set_attribute("attempts", 2)
            step.fail(TimeoutError("no answer"))
        assert_type(task.ended, bool)
        assert_type(task.span, Span)
        task.cancel("not needed any more")
        task.end()
    with tasks.task("another", resume=task.id):
        tasks.step("loose").end()
        tasks.tool_call("loose", {}).end()
    assert_type(task.trace_id, str)
    return task.id


async def record_in_a_loop(tasks: TaskTracer) -> None:
    """The same in asyncio."""
    async with tasks.task("in a loop") as task:
        assert_type(task, Task)
        async with task.step() as step, step.tool_call("click") as call:
            assert_type(call, ToolCall)


def read(directory: Path, task_id: str) -> None:
    """Everything that is read."""
    with TaskHistory(directory, owner="host-agent") as history:
        page = history.tasks(status="failed", since=datetime.now(UTC), limit=5, cursor=None)
        assert_type(page, rows.Page[rows.Task])
        assert_type(page.next, str | None)
        assert_type(history.count_tasks(), int)
        assert_type(history.task(task_id), rows.Task)
        assert_type(history.task(task_id).goal, str | None)
        assert_type(history.steps(task_id, without=("prompt",)), rows.Page[rows.Step])
        assert_type(history.step("0" * 16).prompt, str | None)
        assert_type(history.steps_with_index(task_id, 1), list[rows.Step])
        assert_type(history.step_outcomes(task_id), tuple[dict[str, int], list[rows.Step]])
        assert_type(history.model_calls(task_id), list[rows.ModelCall])
        assert_type(history.tool_calls(task_id), list[rows.ToolCall])
        (shot,) = history.screenshots(task_id)
        assert_type(shot, rows.Screenshot)
        assert_type(history.artifact(str(shot.path)), Path)
        changes = history.prompt_changes(task_id, ["0" * 16])
        assert_type(changes, dict[str, list[rows.PromptChange]])
        assert_type(history.stack_traces(task_id, "0" * 16), list[tuple[str, str]])
        assert_type(history.short_ids([task_id]), dict[str, str])
        for hit in history.search("words", limit=3):
            assert_type(hit, rows.Hit)
        for happened in history.watch(after=None, task_id=task_id):
            assert_type(happened, rows.TimelineRecord)
            assert_type(happened.cursor, str)
        assert_type(history.timeline_end(), str)
        assert_type(history.stats(), rows.Stats)
        assert_type(history.usage(), rows.Usage)
        assert_type(history.standing(), rows.Standing)
        assert_type(history.retention_records(), list[rows.RetentionRecord])
        assert_type(history.identity, rows.Identity)
        assert_type(history.read(lambda c: int(c.total_changes)), int)
        assert_type(history.pin(task_id), rows.Task)
        assert_type(history.unpin(task_id), rows.Task)
        assert_type(history.prune(Retention(max_tasks=1), dry_run=True), rows.Pruned)
        assert_type(history.remove(task_id), rows.Pruned)
        assert_type(history.purge(), bool)
        assert_type(history.backup(directory), rows.BackupReport)
        history.close()


def errors(directory: Path) -> str:
    """What can go wrong when something is set up or read."""
    try:
        TaskHistory(directory).task("latest")
    except TaskNotFound as error:
        looked_up: LookupError = error
        return str(looked_up)
    except (HistoryNotFound, HistoryRefused, SchemaTooNew, SettingsError) as refused:
        ours: TaskHistoryError = refused
        return str(ours)
    return otel_taskhistory.__version__


def test_with_the_fixture(taskhistory: Recorded) -> None:
    """A test of an agent."""
    record(taskhistory.tasks, b"")
    assert_type(taskhistory.history, TaskHistory)
    assert_type(taskhistory.directory, Path)
