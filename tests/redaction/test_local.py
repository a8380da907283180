# SPDX-License-Identifier: Apache-2.0
"""With `scrub` no secret is in any file of the history; without it all are."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_taskhistory import configure
from otel_taskhistory.completion_hook import TaskHistoryCompletionHook
from otel_taskhistory.errors import SettingsError
from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.log_exporter import TaskHistoryLogExporter
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.redaction import MASK
from tests.processes import SOUND_PNG, one, rows

SECRET = "c0rrect-horse-battery"


def files(directory: Path) -> bytes:
    """Everything that is in the files of a history."""
    return b"\n".join(file.read_bytes() for file in directory.rglob("*") if file.is_file())


def record(exporter: TaskHistoryExporter, number: int = 0) -> None:
    """A task with the secret wherever an agent or instrumentation may put it."""
    provider = TracerProvider(
        resource=Resource({"service.name": "desk", "note": SECRET}), shutdown_on_exit=False
    )
    processor = TaskHistoryProcessor(exporter, snapshot_interval=None)
    provider.add_span_processor(processor)
    tasks = TaskTracer(provider, exporter=exporter)
    data_url = "data:text/plain;base64," + base64.b64encode(SECRET.encode()).decode()
    with tasks.task(
        f"a goal with {SECRET}", key=f"key {SECRET} {number}", attributes={"x.password": "hunter2"}
    ) as task:
        with task.step(f"log in with {SECRET}") as step:
            step.prompt(
                [
                    {"role": "system", "content": f"the password is {SECRET}"},
                    {"role": "user", "content": [{"type": "text", "text": data_url}]},
                ],
                model="model-1",
            )
            step.decision({"role": "assistant", "content": json.dumps({"password": "hunter2"})})
            with step.tool_call("type", {"text": SECRET, "api_key": "hunter2"}) as call:
                call.result(f"typed {SECRET}")
            step.screenshot(SOUND_PNG, caption=f"a screen with {SECRET}")
            step.result(SECRET)
        foreign = provider.get_tracer("other", attributes={"s": SECRET})
        with foreign.start_as_current_span("call", attributes={"input.value": SECRET}) as span:
            span.add_event(SECRET, {"e": SECRET})
            processor.force_flush()
            exporter.snapshot(span)  # type: ignore[arg-type]
            log = SimpleNamespace(
                instrumentation_scope=None,
                resource=provider.resource,
                log_record=SimpleNamespace(
                    trace_id=span.get_span_context().trace_id,
                    span_id=span.get_span_context().span_id,
                    attributes={"a": SECRET},
                    event_name="e",
                    severity_number=None,
                    body={"password": "hunter2", "text": SECRET},
                    timestamp=1,
                    observed_timestamp=1,
                    severity_text=SECRET,
                    trace_flags=1,
                ),
            )
            TaskHistoryLogExporter(exporter).export([log])
            TaskHistoryCompletionHook(exporter).on_completion(
                inputs=[{"role": "user", "parts": [{"type": "text", "content": SECRET}]}],
                span=span,
            )
        task.fail(ValueError(f"no {SECRET}"))


@pytest.mark.parametrize("by", ["argument", "secrets alone", "environment"])
def test_no_file_of_a_scrubbed_history_has_the_secret(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans, checkpoints, snapshots, log records, hooks, the search index, the write-ahead log."""
    settings: dict[str, Any] = {}
    if by == "environment":
        monkeypatch.setenv("OTEL_TASKHISTORY_SCRUB", "true")
        monkeypatch.setenv("SITE_PASSWORD", SECRET)
    else:
        settings = {"secrets": [SECRET], "scrub": True if by == "argument" else None}
    exporter = TaskHistoryExporter(tmp_path, durability="normal", **settings)
    record(exporter)
    exporter.force_flush()
    before_end = files(tmp_path)
    exporter.shutdown()
    for stored in (before_end, files(tmp_path)):
        for gone in (SECRET, "hunter2", base64.b64encode(SECRET.encode()).decode()):
            assert gone.encode() not in stored
    assert one(tmp_path, "SELECT goal FROM tasks") == f"a goal with {MASK}"
    assert one(tmp_path, "SELECT tool_arguments FROM steps") == json.dumps(
        {"text": MASK, "api_key": MASK}
    )
    assert exporter.stats()["lost"] == 0


def test_the_search_finds_it_when_nothing_is_scrubbed(tmp_path: Path) -> None:
    """So that the test above can fail."""
    exporter = TaskHistoryExporter(tmp_path, durability="normal")
    record(exporter)
    exporter.shutdown()
    assert files(tmp_path).count(SECRET.encode()) > 10
    assert b"hunter2" in files(tmp_path)


def test_pictures_stay_as_they_are(tmp_path: Path) -> None:
    """Nobody can read them for secrets; they are the very bytes that were given."""
    exporter = TaskHistoryExporter(tmp_path, durability="normal", scrub=True)
    record(exporter)
    exporter.shutdown()
    (path,) = rows(tmp_path, "SELECT path FROM screenshots")[0]
    assert (tmp_path / "artifacts" / path).read_bytes() == SOUND_PNG


def test_a_key_with_a_secret_in_it_is_found_again(tmp_path: Path) -> None:
    """It is looked for as it was written: the second start is of the same task."""
    exporter = TaskHistoryExporter(tmp_path, durability="normal", secrets=[SECRET])
    record(exporter)
    record(exporter)
    record(exporter, number=1)
    exporter.shutdown()
    assert one(tmp_path, "SELECT count(*) FROM tasks WHERE kind = 'agent'") == 2


def test_what_is_asked_for_behind_another_exporter_holds_too(tmp_path: Path) -> None:
    """A log exporter or hook that scrubs does so whatever the exporter of spans does."""
    exporter = TaskHistoryExporter(tmp_path, durability="normal")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    with provider.get_tracer("other").start_as_current_span("chat") as span:
        TaskHistoryCompletionHook(secrets=[SECRET]).on_completion(
            inputs=[{"role": "user", "parts": [{"type": "text", "content": SECRET}]}], span=span
        )
    provider.shutdown()
    assert SECRET.encode() not in files(tmp_path)
    assert MASK.encode() in files(tmp_path)


def test_configure_takes_the_same_settings(tmp_path: Path) -> None:
    """And refuses to promise what the exporter that is there already does not do."""
    provider = TracerProvider(shutdown_on_exit=False)
    tasks = configure(tmp_path, tracer_provider=provider, secrets=[SECRET])
    configure(tracer_provider=provider, secrets=[SECRET])
    configure(tracer_provider=provider, scrub=True)
    with pytest.raises(SettingsError, match="already"):
        configure(tracer_provider=provider, secrets=["another-one"])
    with pytest.raises(SettingsError, match="already"):
        configure(tracer_provider=provider, scrub=False)
    with tasks.task(SECRET):
        pass
    provider.shutdown()
    assert one(tmp_path, "SELECT goal FROM tasks") == MASK


def test_without_our_processor_it_is_scrubbed_too(tmp_path: Path) -> None:
    """As auto-instrumentation sets it up."""
    exporter = TaskHistoryExporter(tmp_path, durability="normal", secrets=[SECRET])
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    with provider.get_tracer("other").start_as_current_span("chat", attributes={"a": SECRET}):
        pass
    provider.shutdown()
    assert SECRET.encode() not in files(tmp_path)
    assert one(tmp_path, "SELECT count(*) FROM spans") == 1


def test_settings_of_the_three_are_the_same(tmp_path: Path) -> None:
    """What the exporter takes, the others take; what it does not know, none does."""
    for make in (TaskHistoryLogExporter, TaskHistoryCompletionHook):
        make(directory=tmp_path, owner="o", durability="normal", busy_timeout=1, scrub=True)
        with pytest.raises(TypeError, match="no_such_setting"):
            make(no_such_setting=1)
        with pytest.raises(SettingsError):
            make(durability="weak")
