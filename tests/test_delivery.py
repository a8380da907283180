# SPDX-License-Identifier: Apache-2.0
"""Spans that come late, twice, without their parents or larger than usual, through the exporter."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor, conventions
from otel_taskhistory.configure import new_provider
from tests.processes import check, one, rows
from tests.recorded import one_task, recording

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[TaskHistoryExporter]:
    """An exporter with nothing in front of it."""
    exporter = TaskHistoryExporter(tmp_path / "history", durability="normal")
    yield exporter
    exporter.shutdown()
    check(tmp_path / "history")


def agent_run(calls: int = 3) -> list[ReadableSpan]:
    """The ended spans of an agent run with model calls, in the order they ended: the root last."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("an.instrumentation")
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
    with tracer.start_as_current_span("invoke_agent a", attributes=run):
        for number in range(1, calls + 1):
            said = {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": json.dumps([{"role": "user", "n": number}]),
                "gen_ai.usage.input_tokens": 10,
            }
            with tracer.start_as_current_span(f"chat {number}", attributes=said):
                pass
    provider.shutdown()
    return list(memory.get_finished_spans())


def tasks(exporter: TaskHistoryExporter) -> list[tuple[Any, ...]]:
    """What the list of tasks says."""
    sql = "SELECT status, step_count, input_tokens, span_count FROM tasks ORDER BY id"
    return rows(exporter.settings.directory, sql)


def step_names(exporter: TaskHistoryExporter) -> list[str]:
    """The steps in their order."""
    found = rows(exporter.settings.directory, "SELECT name FROM steps ORDER BY step_index")
    return [name for (name,) in found]


def test_a_child_that_ends_after_its_task_belongs_to_it(exporter: TaskHistoryExporter) -> None:
    """The task has ended, and its count of steps and tokens grows with what comes later."""
    *children, root = agent_run()
    assert exporter.export([root]) is SpanExportResult.SUCCESS
    assert tasks(exporter) == [("succeeded", 0, None, 1)]
    for number, child in enumerate(children, start=1):
        exporter.export([child])
        assert tasks(exporter) == [("succeeded", number, 10 * number, 1 + number)]
    assert step_names(exporter) == ["chat 1", "chat 2", "chat 3"]


def test_at_every_moment_what_has_come_is_shown(exporter: TaskHistoryExporter) -> None:
    """Children before parents, the last first: each reads as a step of the one task."""
    spans = agent_run()
    seen = []
    for span in reversed(spans[:-1]):
        exporter.export([span])
        seen.append((tasks(exporter), step_names(exporter)))
    assert seen == [
        ([("running", 1, 10, 1)], ["chat 3"]),
        ([("running", 2, 20, 2)], ["chat 2", "chat 3"]),
        ([("running", 3, 30, 3)], ["chat 1", "chat 2", "chat 3"]),
    ]
    exporter.export([spans[-1]])
    assert tasks(exporter) == [("succeeded", 3, 30, 4)]


def test_spans_whose_parent_never_comes_are_a_task(exporter: TaskHistoryExporter) -> None:
    """They are not lost: a missing parent is no proof of loss, it may be in another process."""
    *children, _ = agent_run()
    exporter.export(children)
    assert [row[1:] for row in tasks(exporter)] == [(3, 30, 3)]
    directory = exporter.settings.directory
    missing = "SELECT count(*) FROM spans WHERE parent_span_id NOT IN (SELECT span_id FROM spans)"
    assert one(directory, missing) == 3


def test_a_batch_that_is_sent_again_changes_nothing(exporter: TaskHistoryExporter) -> None:
    """As after a retry of a commit that had succeeded: no token is counted twice."""
    spans = agent_run()
    exporter.export(spans)
    before = tasks(exporter), step_names(exporter)
    timeline = rows(exporter.settings.directory, "SELECT * FROM timeline")
    for _ in range(3):
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        exporter.export(spans[::-1])
    assert (tasks(exporter), step_names(exporter)) == before
    assert rows(exporter.settings.directory, "SELECT * FROM timeline") == timeline


def test_a_remote_parent_that_was_not_sampled_loses_no_task(tmp_path: Path) -> None:
    """Whatever the caller's flag says, the local root is a task and all below it is recorded."""
    exporter = TaskHistoryExporter(tmp_path / "history")
    provider = new_provider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    for number, flags in enumerate((0, 1), start=1):
        parent = SpanContext(
            TRACE_ID + number, number, is_remote=True, trace_flags=TraceFlags(flags)
        )
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
        tracer = provider.get_tracer("a.server")
        with (
            tracer.start_as_current_span(f"POST /{flags}", context, SpanKind.SERVER),
            tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}),
        ):
            pass
    provider.shutdown()
    assert tasks(exporter) == [("succeeded", 1, None, 2), ("succeeded", 1, None, 2)]
    assert rows(tmp_path / "history", "SELECT trace_id FROM tasks ORDER BY id") == [
        (f"{TRACE_ID + number:032x}",) for number in (1, 2)
    ]


def test_more_links_events_and_attributes_than_anybody_needs(tmp_path: Path) -> None:
    """At the start or later, with times outside of the span: nothing raises, nothing is cut."""
    exporter = TaskHistoryExporter(tmp_path / "history")
    provider = new_provider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    links = [Link(SpanContext(TRACE_ID, number, is_remote=True)) for number in range(1, 201)]
    many = {f"key {number}": number for number in range(40_000)}
    span = provider.get_tracer("t").start_span("s", links=links, attributes=many)
    for number in range(500):
        span.add_event(f"event {number}", timestamp=number * 10**18 % 2**63)
    span.end()
    provider.shutdown()
    said = rows(
        tmp_path / "history",
        "SELECT json_array_length(links), json_array_length(events),"
        " (SELECT count(*) FROM json_each(attributes)),"
        " dropped_links_count + dropped_events_count + dropped_attributes_count FROM spans",
    )
    assert said == [(200, 500, 40_000, 0)]


def test_what_a_provider_of_somebody_else_cuts_is_counted(tmp_path: Path) -> None:
    """The SDK's own limits: 128 of each; the rest is told, in the span and in its task."""
    exporter = TaskHistoryExporter(tmp_path / "history")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    links = [Link(SpanContext(TRACE_ID, number, is_remote=True)) for number in range(1, 201)]
    span = provider.get_tracer("t").start_span("s", links=links)
    for number in range(200):
        span.add_event(f"event {number}")
    span.end()
    provider.shutdown()
    columns = "dropped_links_count, dropped_events_count, json_array_length(links)"
    assert rows(tmp_path / "history", f"SELECT {columns} FROM spans") == [(72, 72, 128)]
    assert one(tmp_path / "history", "SELECT dropped FROM tasks") == 144


def test_a_convention_that_raises_costs_no_span(
    exporter: TaskHistoryExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a root: it is stored whole and marked, and can be understood later."""
    spans = agent_run()
    read = conventions.read

    def fails_for_roots(record: Any, *args: Any) -> Any:
        if record.parent_span_id is None:
            raise LookupError("a bug")
        return read(record, *args)

    monkeypatch.setattr(conventions, "read", fails_for_roots)
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    directory = exporter.settings.directory
    marked = "SELECT name, marks FROM spans WHERE marks IS NOT NULL"
    assert rows(directory, marked) == [("invoke_agent a", '["meaning"]')]
    assert step_names(exporter) == ["chat 1", "chat 2", "chat 3"]
    assert exporter.stats()["errors"] == {"LookupError": 1}


def _record_in(directory: Path, goal: str) -> None:
    with recording(directory) as tracer:
        one_task(tracer, goal)


def test_children_that_are_spawned_record_into_the_same_history(tmp_path: Path) -> None:
    """Nothing is inherited there; each opens the history that its parent has open."""
    directory = tmp_path / "history"
    context = multiprocessing.get_context("spawn")
    with recording(directory) as tracer:
        one_task(tracer, "parent")
        children = [
            context.Process(target=_record_in, args=(directory, f"child {number}"))
            for number in range(3)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join()
        assert [child.exitcode for child in children] == [0, 0, 0]
        one_task(tracer, "parent again")
    found = rows(directory, "SELECT goal FROM tasks WHERE status = 'succeeded' ORDER BY goal")
    assert found == [
        *[(f"child {number}",) for number in range(3)],
        *[("parent",), ("parent again",)],
    ]
    check(directory)


def test_every_write_begins_by_taking_the_lock(exporter: TaskHistoryExporter) -> None:
    """A transaction that reads first and writes later fails at once where another one came first,
    whatever the busy timeout; so there is none.
    """
    said: list[str] = []
    session = exporter._writer._session
    assert session is not None
    session._database.connection.set_trace_callback(said.append)
    exporter.export(agent_run())
    exporter.force_flush()
    session._database.connection.set_trace_callback(None)
    begun = [sql for sql in said if sql.startswith(("BEGIN", "SAVEPOINT"))]
    assert begun
    assert set(begun) == {"BEGIN IMMEDIATE"}
    first = next(sql for sql in said if not sql.startswith(("PRAGMA", "--", "COMMIT")))
    assert first == "BEGIN IMMEDIATE"
