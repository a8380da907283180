# SPDX-License-Identifier: Apache-2.0
"""Whoever gets everything beside the history is told of at the start, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.log_exporter import TaskHistoryLogExporter
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.redaction import neighbours
from otel_taskhistory.redaction.exporter import RedactingExporter


class Remote(SpanExporter):
    """Carries what it gets to who knows where."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class Wrapper(SpanProcessor):
    """Has another processor in it."""

    def __init__(self, processor: SpanProcessor) -> None:
        self.processor = processor


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    """One of a test's own."""
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider
    provider.shutdown()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives the warnings so far."""
    monkeypatch.setattr(neighbours, "_told_of_environment", set())
    caplog.set_level(logging.WARNING, logger="otel_taskhistory")
    return lambda: [line for line in caplog.messages if "as they are" in line]


def test_a_provider_wired_by_hand_is_looked_at_with_its_first_span(
    tmp_path: Path, provider: TracerProvider, told: Any
) -> None:
    """Whatever the order, also what is added later, and each once."""
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    provider.add_span_processor(TaskHistoryProcessor(TaskHistoryExporter(tmp_path)))
    provider.add_span_processor(BatchSpanProcessor(RedactingExporter(Remote())))
    provider.add_span_processor(Wrapper(BatchSpanProcessor(Remote())))
    tracer = provider.get_tracer("x")
    span = tracer.start_span("a")
    assert len(told()) == 1
    assert "Remote on this provider" in told()[0]
    span.end()
    tracer.start_span("b").end()
    assert len(told()) == 1
    provider.add_span_processor(SimpleSpanProcessor(Remote()))
    tracer.start_span("c").end()
    assert len(told()) == 2


def test_a_redacting_exporter_is_not_told_of(
    tmp_path: Path, provider: TracerProvider, told: Any
) -> None:
    """By whatever policy: that was decided."""
    provider.add_span_processor(TaskHistoryProcessor(TaskHistoryExporter(tmp_path)))
    provider.add_span_processor(SimpleSpanProcessor(RedactingExporter(Remote(), "everything")))
    provider.get_tracer("x").start_span("a").end()
    assert told() == []


def test_behind_other_processors_the_global_provider_is_looked_at(
    tmp_path: Path, provider: TracerProvider, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the first spans that come, if it is the one."""
    exporter = TaskHistoryExporter(tmp_path)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.add_span_processor(SimpleSpanProcessor(Remote()))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    provider.get_tracer("x").start_span("a").end()
    provider.get_tracer("x").start_span("b").end()
    assert len(told()) == 1


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("", 0),
        ("otlp", 0),
        ("taskhistory", 0),
        ("taskhistory,none", 0),
        ("taskhistory, taskhistory_otlp", 0),
        ("taskhistory,otlp", 1),
        ("console , taskhistory", 1),
    ],
)
def test_exporters_of_the_environment_are_told_of_when_ours_is_made(
    tmp_path: Path, value: str, number: int, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For spans and for log records, before any of them; twice made, once told."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", value)
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", value)
    for _ in range(2):
        TaskHistoryExporter(tmp_path).shutdown()
    assert len(told()) == number
    TaskHistoryLogExporter(directory=tmp_path)
    assert len(told()) == number * 2
    assert all(("spans" in line) or ("log records" in line) for line in told())


class Broken(SpanProcessor):
    """Cannot be looked at."""

    @property
    def span_exporter(self) -> Any:
        raise RuntimeError("no")


def test_what_cannot_be_looked_at_does_not_hinder_recording(
    tmp_path: Path, provider: TracerProvider
) -> None:
    """The agent goes on, and its span is stored."""
    exporter = TaskHistoryExporter(tmp_path)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    provider.add_span_processor(Broken())
    provider.get_tracer("x").start_span("a").end()
    assert exporter.stats()["spans"] == 1
