# SPDX-License-Identifier: Apache-2.0
"""A tracer on a real SDK provider, and a sink that notes what it is given."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_taskhistory import semconv
from otel_taskhistory.recording import misuse
from otel_taskhistory.recording.sink import Deferred, Earlier, StoredPicture
from otel_taskhistory.recording.tracer import TaskTracer


@dataclass
class NotedCheckpoint:
    event: str
    detail: dict[str, Any]
    attributes: dict[str, Any]
    """The span's at that moment."""
    events: list[str]


class NotedDeferred:
    def __init__(self, sink: NotingSink) -> None:
        self._sink = sink

    async def wait(self) -> None:
        self._sink.log.append("wait")
        if self._sink.on_wait is not None:
            await self._sink.on_wait()


@dataclass
class NotingSink:
    """A `Sink` that keeps what it is given."""

    log: list[str] = field(default_factory=list)
    checkpoints: list[NotedCheckpoint] = field(default_factory=list)
    pictures: list[Any] = field(default_factory=list)
    asked: list[dict[str, str | None]] = field(default_factory=list)
    known: dict[str, Earlier] = field(default_factory=dict)
    """What `earlier` answers, by task id or key."""
    on_wait: Any = None
    broken: bool = False
    """Whether everything raises, against the protocol."""

    def checkpoint(self, span: Any, event: str, detail: dict[str, Any]) -> None:
        self._break()
        json.dumps(detail)
        self.log.append(event)
        noted = NotedCheckpoint(
            event, detail, dict(span.attributes), [one.name for one in span.events]
        )
        self.checkpoints.append(noted)

    def picture(self, image: Any) -> StoredPicture:
        self._break()
        self.pictures.append(image)
        return StoredPicture("ab" * 32, "ab/cd.png", "image/png", 640, 480, 1234, "ok")

    @contextlib.contextmanager
    def deferring(self) -> Iterator[Deferred]:
        self._break()
        self.log.append("deferring")
        yield NotedDeferred(self)
        self.log.append("deferred")

    def earlier(self, *, task_id: str | None = None, key: str | None = None) -> Earlier | None:
        self._break()
        self.asked.append({"task_id": task_id, "key": key})
        return self.known.get(task_id or key or "")

    def _break(self) -> None:
        if self.broken:
            raise OSError("the disk is gone, and with it the secret prompt")


class Kit:
    """A tracer, and what came out of it."""

    def __init__(self, **provider: Any) -> None:
        self.sink = NotingSink()
        self.memory = InMemorySpanExporter()
        self.provider = TracerProvider(**provider)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tasks = TaskTracer(self.provider, exporter=self.sink)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The ended spans in the order of their ends."""
        return list(self.memory.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        """The only ended span of this name."""
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def role(self, role: str) -> ReadableSpan:
        """The only ended span of this role."""
        (span,) = (
            span for span in self.spans if (span.attributes or {}).get("taskhistory.role") == role
        )
        return span

    def status(self, name: str) -> Any:
        return (self.one(name).attributes or {}).get(semconv.TASKHISTORY_STATUS)


@pytest.fixture(autouse=True)
def _no_trouble_from_before() -> Iterator[None]:
    """Counts and log limits are the process's; each test begins without any."""
    misuse.reset()
    yield
    misuse.reset()


@pytest.fixture
def kit() -> Kit:
    """A tracer on a provider that records, with a sink that notes."""
    return Kit()


@pytest.fixture
def make_kit() -> type[Kit]:
    """For a kit with a provider of one's own making."""
    return Kit


@pytest.fixture
def goes_on() -> Any:
    """A block that the given exception must leave; it stops there."""

    @contextlib.contextmanager
    def leaving(kind: type[BaseException]) -> Iterator[None]:
        try:
            yield
        except kind:
            return
        pytest.fail(f"{kind.__name__} did not go on")

    return leaving


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """Gives the lines that the library logged so far; none of them may be of OpenTelemetry."""
    caplog.set_level(logging.DEBUG)

    def lines() -> list[str]:
        foreign = [
            record.getMessage()
            for record in caplog.records
            if record.name.startswith("opentelemetry") and record.levelno >= logging.WARNING
        ]
        assert foreign == []
        return [
            record.getMessage() for record in caplog.records if record.name == misuse.LOGGER.name
        ]

    return lines
