# SPDX-License-Identifier: Apache-2.0
"""From a tracer to durable rows: what is there when, by whichever processor it comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.testing import Recorded
from tests.processes import PROGRAMS, SOUND_PNG, check, one, rows


def work(tasks: TaskTracer, goal: str = "a goal") -> str:
    """A task with everything a step can have; its id."""
    with tasks.task(goal, agent="desk-1") as task, task.step("only") as step:
        step.prompt([{"role": "user", "content": "hello"}], model="m")
        step.decision("good day", usage={"input_tokens": 3, "output_tokens": 2})
        with step.tool_call("look", {"at": 1}, call_id="c1") as call:
            call.result("seen")
        step.screenshot(SOUND_PNG, caption="the page")
        step.result("done")
    return task.id


def public(directory: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What the public tables say, without ids and times."""
    return {
        "tasks": rows(directory, "SELECT goal, agent, status, step_count, model FROM tasks"),
        "steps": rows(
            directory,
            "SELECT name, status, step_index, model, prompt, decision, tool_name, tool_arguments,"
            " tool_result, result, screenshot, input_tokens FROM steps",
        ),
        "calls": rows(directory, "SELECT model, prompt, decision, status FROM model_calls"),
        "tools": rows(directory, "SELECT call_id, name, arguments, result, status FROM tool_calls"),
        "shots": rows(
            directory, "SELECT role, sha256, path, width, bytes, caption, status FROM screenshots"
        ),
    }


def test_two_tasks_under_one_active_span_are_two_traces_linked_to_the_caller(
    taskhistory: Recorded,
) -> None:
    """Neither is a part of the caller's trace, and both say who began them."""
    tracer = taskhistory.provider.get_tracer("caller")
    with tracer.start_as_current_span("request") as caller:
        ids = [work(taskhistory.tasks, goal) for goal in ("first", "second")]
    context = caller.get_span_context()
    assert len({*ids, trace.format_trace_id(context.trace_id)}) == 3
    links = rows(
        taskhistory.directory,
        "SELECT trace_id, links FROM spans WHERE parent_span_id IS NULL AND name LIKE 'invoke%'",
    )
    assert {trace_id for trace_id, _ in links} == set(ids)
    for _, text in links:
        (link,) = json.loads(text)
        assert link["trace_id"] == trace.format_trace_id(context.trace_id)
        assert link["span_id"] == trace.format_span_id(context.span_id)


def test_a_step_is_visible_while_it_runs_and_finished_when_it_is_left(
    taskhistory: Recorded,
) -> None:
    """Another connection, opened read-only, sees each thing as soon as it was said."""
    directory = taskhistory.directory
    with taskhistory.tasks.task("a goal") as task:
        assert rows(directory, "SELECT status, goal FROM tasks") == [("running", "a goal")]
        with task.step("look") as step:
            assert one(directory, "SELECT status FROM steps") == "running"
            step.prompt("what is this?", model="m")
            assert rows(directory, "SELECT status, prompt, decision FROM steps") == [
                ("running", "what is this?", None)
            ]
            step.decision("a table")
            assert one(directory, "SELECT decision FROM steps") == "a table"
            with step.tool_call("touch") as call:
                assert one(directory, "SELECT status FROM tool_calls") == "running"
                call.result("hard")
            assert rows(directory, "SELECT status, result FROM tool_calls") == [
                ("succeeded", "hard")
            ]
            step.screenshot(SOUND_PNG)
            assert one(directory, "SELECT screenshot FROM steps") is not None
            assert one(directory, "SELECT status FROM steps") == "running"
        assert rows(directory, "SELECT status, decision FROM steps") == [("succeeded", "a table")]
        assert one(directory, "SELECT status FROM tasks") == "running"
    assert one(directory, "SELECT status FROM tasks") == "succeeded"


def test_when_export_returns_success_the_rows_are_readable(tmp_path: Path) -> None:
    """Asked from within the processor, by another connection."""
    directory = tmp_path / "history"
    exporter = TaskHistoryExporter(directory)
    seen: list[tuple[SpanExportResult, int]] = []

    class Asking(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            result = exporter.export([span])
            context = span.get_span_context()
            assert context is not None
            seen.append(
                (
                    result,
                    one(
                        directory,
                        "SELECT count(*) FROM spans WHERE span_id = ?"
                        " AND end_time_unix_nano IS NOT NULL",
                        trace.format_span_id(context.span_id),
                    ),
                )
            )

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Asking())
    work(TaskTracer(provider, exporter=exporter))
    exporter.shutdown()
    assert seen == [(SpanExportResult.SUCCESS, 1)] * 3


@pytest.mark.parametrize("standard", [SimpleSpanProcessor, BatchSpanProcessor])
def test_with_only_standard_processors_the_same_tables_fill(tmp_path: Path, standard: Any) -> None:
    """Screenshots and checkpoints find the live exporter by themselves."""
    found = {}
    for name in ("ours", "standard"):
        directory = tmp_path / name
        exporter = TaskHistoryExporter(directory)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(
            TaskHistoryProcessor(exporter) if name == "ours" else standard(exporter)
        )
        work(TaskTracer(provider))
        provider.shutdown()
        check(directory)
        found[name] = public(directory)
    assert found["standard"] == found["ours"]
    assert len(found["ours"]["shots"]) == 1
    assert found["ours"]["steps"][0][4] is not None


def test_with_a_standard_processor_a_running_step_is_visible_by_its_checkpoints(
    tmp_path: Path,
) -> None:
    """Though the processor itself says nothing before the end."""
    exporter = TaskHistoryExporter(tmp_path / "history")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    with TaskTracer(provider).task("a goal") as task, task.step("s") as step:
        step.prompt("what?")
        assert rows(exporter.settings.directory, "SELECT status, prompt FROM steps") == [
            ("running", "what?")
        ]
    provider.shutdown()
    assert one(exporter.settings.directory, "SELECT status FROM steps") == "succeeded"


def test_auto_instrumentation_records_with_no_change_of_the_agent(tmp_path: Path) -> None:
    """``OTEL_TRACES_EXPORTER=taskhistory opentelemetry-instrument python agent.py``."""
    directory = tmp_path / "history"
    instrument = Path(sys.executable).with_name("opentelemetry-instrument")
    done = subprocess.run(
        [instrument, sys.executable, PROGRAMS / "auto.py"],
        env={
            **os.environ,
            "OTEL_TRACES_EXPORTER": "taskhistory",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_TASKHISTORY_DIRECTORY": str(directory),
            "OTEL_SERVICE_NAME": "an-agent",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(directory, "SELECT goal, status, kind FROM tasks ORDER BY started_at") == [
        ("by our tracer", "succeeded", "agent"),
        (None, "succeeded", "agent"),
    ]
    assert one(directory, "SELECT decision FROM steps WHERE name = 'only'") == "good day"
    assert one(directory, "SELECT count(*) FROM screenshots WHERE status = 'ok'") == 1
    check(directory)
    stamp = json.loads((directory / "artifacts" / ".otel-taskhistory.json").read_bytes())
    assert stamp["service_name"] == "an-agent"


def test_spans_of_denied_scopes_are_not_recorded(taskhistory: Recorded) -> None:
    """A Datasette in the agent's process makes spans by the dozen; they are no failure either."""
    with taskhistory.provider.get_tracer("datasette").start_as_current_span("page"):
        pass
    work(taskhistory.tasks)
    names = rows(taskhistory.directory, "SELECT name FROM spans")
    assert ("page",) not in names
    assert len(names) == 3


def test_attributes_that_the_limits_of_the_sdk_dropped_are_counted(tmp_path: Path) -> None:
    """In the span's row and in the task's."""
    exporter = TaskHistoryExporter(tmp_path / "history")
    provider = TracerProvider(
        shutdown_on_exit=False, span_limits=SpanLimits(max_span_attributes=8, max_events=2)
    )
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    with TaskTracer(provider).task("a goal") as task, task.step("s") as step:
        for number in range(20):
            step.set_attribute(f"a{number}", number)
        for number in range(5):
            step.span.add_event(f"e{number}")
    provider.shutdown()
    directory = exporter.settings.directory
    attributes, events = rows(
        directory,
        "SELECT dropped_attributes_count, dropped_events_count FROM spans WHERE name = 's'",
    )[0]
    assert attributes >= 12
    assert events == 3
    assert one(directory, "SELECT dropped FROM tasks") == attributes + events


def test_one_poisoned_span_costs_no_other_of_its_batch(
    taskhistory: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 512, 511 are stored whole and one reduced and marked, in one transaction."""
    collected: list[ReadableSpan] = []

    class Collecting(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            collected.extend(spans)
            return SpanExportResult.SUCCESS

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Collecting()))
    tracer = provider.get_tracer("an.instrumentation")
    with tracer.start_as_current_span("root"):
        for number in range(511):
            with tracer.start_as_current_span(f"span {number}") as span:
                span.set_attribute("number", number)
    writer = taskhistory.exporter._writer
    session = writer._session
    assert session is not None
    apply = session._ledger.write

    def poisoned(record: Any, *args: Any, **kwargs: Any) -> Any:
        if record.attributes.get("number") == 200:
            raise OverflowError("no such number")
        return apply(record, *args, **kwargs)

    monkeypatch.setattr(session._ledger, "write", poisoned)
    before = taskhistory.exporter.stats()
    assert taskhistory.exporter.export(collected) is SpanExportResult.SUCCESS
    after = taskhistory.exporter.stats()
    assert after["commits"] == before["commits"] + 1
    assert (after["reduced"], after["lost"]) == (1, 0)
    stored = rows(
        taskhistory.directory, "SELECT name, attributes, marks FROM spans WHERE name LIKE 'span %'"
    )
    assert len(stored) == 511
    for name, attributes, marks in stored:
        number = int(name.split()[1])
        if number == 200:
            assert (attributes, json.loads(marks)) == ("{}", ["reduced"])
        else:
            assert json.loads(attributes) == {"number": number}
            assert marks is None
    assert one(taskhistory.directory, "SELECT span_count FROM tasks") == 512


def test_an_unstorable_picture_in_a_prompt_costs_only_itself(
    taskhistory: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file cannot be written: the step is whole, the picture is marked, the next one is ok."""
    import base64

    from otel_taskhistory.store.artifacts import ArtifactFolder

    def refuse(folder: ArtifactFolder, data: bytes, extension: str) -> None:
        raise PermissionError(13, "no entry")

    url = f"data:image/png;base64,{base64.b64encode(SOUND_PNG).decode()}"
    prompt = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
    ]
    with taskhistory.tasks.task("a goal") as task:
        with monkeypatch.context() as patch:
            patch.setattr(ArtifactFolder, "put", refuse)
            with task.step("first") as step:
                step.prompt(prompt)
                step.decision("I cannot see it")
                assert step.screenshot(SOUND_PNG).status == "not_stored"
        with task.step("second") as step:
            assert step.screenshot(SOUND_PNG).status == "ok"
            step.decision("I can")
    assert rows(taskhistory.directory, "SELECT name, status, decision FROM steps") == [
        ("first", "succeeded", "I cannot see it"),
        ("second", "succeeded", "I can"),
    ]
    shots = rows(
        taskhistory.directory, "SELECT role, status, path IS NULL FROM screenshots ORDER BY id"
    )
    assert ("screenshot", "not_stored", 1) in shots
    assert shots[-1] == ("screenshot", "ok", 0)
    assert taskhistory.exporter.stats()["away"] == 0


def test_a_screenshot_has_the_row_of_its_file(taskhistory: Recorded) -> None:
    """Retention and doctor go by it: a file without one is an orphan."""
    work(taskhistory.tasks)
    assert rows(
        taskhistory.directory,
        "SELECT art.path FROM screenshots JOIN _artifacts AS art ON art.id = screenshots.artifact",
    ) == [(path,) for (path,) in rows(taskhistory.directory, "SELECT path FROM screenshots")]


def test_names_of_reduced_values_are_any_text(taskhistory: Recorded) -> None:
    """An attribute that anybody may set costs no span, whatever stands in it."""
    with taskhistory.tasks.task("a goal") as task:
        task.span.set_attribute("taskhistory.reduced", ["a\ud83e", "b"])
    (found,) = rows(
        taskhistory.directory, "SELECT status, marks FROM tasks JOIN spans USING (task_id)"
    )
    assert found[0] == "succeeded"
    assert "ud83e" in found[1]
    assert taskhistory.exporter.stats()["lost"] == 0
