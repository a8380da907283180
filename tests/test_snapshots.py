# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import json
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor
from otel_taskhistory.snapshots import Snapshots

SOON = 20.0  # seconds; a bound on waiting, not a measure


class Recorder:
    """What a `Snapshots` recorded, and a way to wait for it."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.news = threading.Semaphore(0)

    def __call__(self, span: ReadableSpan) -> None:
        self.spans.append(dict(span.attributes or {}))
        self.news.release()


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    """A provider of the SDK without processors."""
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider
    provider.shutdown()


def started(provider: TracerProvider) -> Span:
    """A span that is open."""
    span = provider.get_tracer("tests").start_span("chat m")
    assert isinstance(span, Span)
    return span


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    """What another connection sees."""
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def test_an_open_span_is_recorded_once_and_again_only_when_it_changed(
    provider: TracerProvider,
) -> None:
    """A look at a span in which nothing was set since the last one records nothing."""
    span, recorder = started(provider), Recorder()
    snapshots = Snapshots(lambda: {(1, 1): span}, recorder)
    snapshots.look()
    snapshots.look()
    assert recorder.spans == [{}]
    span.set_attribute("gen_ai.input.messages", "[]")
    snapshots.look()
    snapshots.look()
    assert recorder.spans == [{}, {"gen_ai.input.messages": "[]"}]
    span.add_event("something happened")
    snapshots.look()
    assert len(recorder.spans) == 3


def test_a_value_set_again_is_seen_even_when_it_is_as_long(provider: TracerProvider) -> None:
    """What counts is that it was set, not how many attributes there are."""
    span, recorder = started(provider), Recorder()
    snapshots = Snapshots(lambda: {(1, 1): span}, recorder)
    span.set_attribute("k", "one")
    snapshots.look()
    span.set_attribute("k", "two")
    snapshots.look()
    assert recorder.spans == [{"k": "one"}, {"k": "two"}]


def test_what_ended_is_forgotten(provider: TracerProvider) -> None:
    """Nothing is kept of spans that are no longer open."""
    open_spans = {(1, number): started(provider) for number in range(10)}
    snapshots = Snapshots(lambda: open_spans, Recorder())
    snapshots.look()
    assert len(snapshots._seen) == 10
    open_spans = {}
    snapshots.look()
    assert snapshots._seen == {}


def test_the_thread_rests_while_nothing_is_open(provider: TracerProvider) -> None:
    """And looks again when the next span starts."""
    open_spans: dict[tuple[int, int], ReadableSpan] = {(1, 1): started(provider)}
    recorder = Recorder()
    snapshots = Snapshots(lambda: open_spans, recorder, interval=0.01)
    snapshots.begin()
    assert recorder.news.acquire(timeout=SOON)
    open_spans = {}
    for _ in range(2000):
        if not snapshots._awake:
            break
        threading.Event().wait(0.01)
    assert not snapshots._awake
    open_spans = {(1, 2): started(provider)}
    snapshots.begin()
    assert recorder.news.acquire(timeout=SOON)
    snapshots.stop()
    assert snapshots._thread is not None
    snapshots._thread.join(SOON)
    assert not snapshots._thread.is_alive()


def test_a_signal_handler_may_start_a_span_while_another_is_starting() -> None:
    """At each line that the start of a span runs, another one begins; nothing is held that it
    would wait for.
    """
    begun: list[int] = []

    def in_all_places() -> None:
        snapshots = Snapshots(dict, lambda span: None, interval=0.01)
        busy = False

        def interrupt(frame: FrameType, event: str, value: Any) -> Any:
            nonlocal busy
            if event == "line" and not busy:
                busy = True
                snapshots.begin()
                snapshots._awake = False  # the next line meets a watch that rests, too
                begun.append(frame.f_lineno)
                busy = False
            return interrupt

        snapshots.begin()  # its thread is up: that a thread can start in a handler is Python's
        snapshots._awake = False
        sys.settrace(interrupt)
        try:
            snapshots.begin()
        finally:
            sys.settrace(None)
        snapshots.stop()

    thread = threading.Thread(target=in_all_places, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()
    assert len(begun) > 5


def test_a_failing_look_does_not_end_the_watch(
    provider: TracerProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next look comes."""
    span, recorder = started(provider), Recorder()
    failures = iter([RuntimeError("once")])

    def record(seen: ReadableSpan) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure
        recorder(seen)

    snapshots = Snapshots(lambda: {(1, 1): span}, record, interval=0.01)
    snapshots.begin()
    assert recorder.news.acquire(timeout=SOON)
    snapshots.stop()
    assert "could not be looked at" in caplog.text


def test_a_model_call_of_another_instrumentation_is_visible_while_it_runs(tmp_path: Path) -> None:
    """Its prompt is a running step that other processes see; its end makes it a finished one."""
    exporter = TaskHistoryExporter(tmp_path / "history")
    processor = TaskHistoryProcessor(exporter, snapshot_interval=0.05)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("some.instrumentation")
    prompt = [{"role": "user", "parts": [{"type": "text", "content": "what now?"}]}]
    with (
        tracer.start_as_current_span("invoke_agent a") as agent,
        tracer.start_as_current_span("chat m") as call,
    ):
        agent.set_attribute("gen_ai.operation.name", "invoke_agent")
        call.set_attribute("gen_ai.operation.name", "chat")
        call.set_attribute("gen_ai.input.messages", json.dumps(prompt))
        database = exporter.settings.database
        for _ in range(2000):
            found = rows(database, "SELECT status, prompt FROM steps WHERE prompt IS NOT NULL")
            if found:
                break
            threading.Event().wait(0.01)
        assert [(status, json.loads(text)) for status, text in found] == [("running", prompt)]
    assert rows(database, "SELECT status FROM steps") == [("succeeded",)]
    provider.shutdown()


def test_a_span_that_is_dropped_without_an_end_is_let_go(tmp_path: Path) -> None:
    """Watching keeps nothing alive: memory does not grow with spans that nobody ends."""
    exporter = TaskHistoryExporter(tmp_path / "history")
    processor = TaskHistoryProcessor(exporter, snapshot_interval=None)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    for _ in range(20):
        provider.get_tracer("t").start_span("forgotten")
    gc.collect()
    assert len(processor._open) == 0
    provider.shutdown()
