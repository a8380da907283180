# SPDX-License-Identifier: Apache-2.0
"""TaskHistoryExporter: spans in, one durable commit out.

A plain `SpanExporter`, so it works behind any processor and with spans of any instrumentation.
It is also the `Sink` of this process's tracers: checkpoints and pictures come to it directly.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final, TypedDict

from opentelemetry.sdk.resources import OTELResourceDetector
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Span, get_tracer_provider

from otel_taskhistory import semconv
from otel_taskhistory.errors import HistoryRefused
from otel_taskhistory.images import encode_pil, inspect, is_pil_image
from otel_taskhistory.recording.sink import (
    Deferred,
    Earlier,
    StoredPicture,
    register_sink,
    unregister_sink,
)
from otel_taskhistory.redaction.neighbours import (
    exporter_in,
    processors_of,
    warn_of_content,
    warn_of_environment,
)
from otel_taskhistory.redaction.scrubber import scrubber_of
from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.spans.encode import escape_surrogates
from otel_taskhistory.spans.given_up import given_up
from otel_taskhistory.spans.record import LogRecord, OriginRecord
from otel_taskhistory.spans.sdk import record_of
from otel_taskhistory.store.database import look
from otel_taskhistory.store.rereading import NOT_UNDERSTOOD, read
from otel_taskhistory.store.stamp import Stamp, check_owner, explicit_service
from otel_taskhistory.store.writer import Entry, Job, LogEntry, Wait, Writer, report

_logger = logging.getLogger("otel_taskhistory")

DENIED_SCOPES: Final = ("datasette", "otel_taskhistory.internal")
"""Scopes whose spans are not recorded: a Datasette in the agent's process makes 91 a page."""

MAX_PICTURE_BYTES: Final = 256 * 2**20
"""A larger file is not read for a screenshot; it is recorded as ``too_large``."""


class Arguments(TypedDict, total=False):
    """What `TaskHistoryExporter` takes, for all that make one; None is "not given"."""

    directory: str | os.PathLike[str] | None
    owner: str | None
    retention: Retention | None
    durability: str | None
    database: str | os.PathLike[str] | None
    artifacts: str | os.PathLike[str] | None
    busy_timeout: float | str | None
    scrub: bool | None
    secrets: Sequence[str]
    on_error: Callable[[BaseException], None] | None
    service_name: str | None


class TaskHistoryExporter(SpanExporter):
    """Writes spans into a history; when `export` has returned SUCCESS they are committed.

    Args:
        directory: the history itself. Default: ``OTEL_TASKHISTORY_DIRECTORY``, else a folder of
            this user and owner.
        owner: which component the history belongs to (``OTEL_TASKHISTORY_OWNER``, host-agent).
        retention: how much is kept; replaces the limits of the environment.
        durability: ``full`` (an ended step survives power loss) or ``normal`` (it survives the
            death of the process).
        database: the database file, if not in `directory`.
        artifacts: the folder of pictures, if not in `directory`.
        busy_timeout: seconds to wait for another writer's lock, at most, once.
        scrub: whether secrets are masked before anything is written (``OTEL_TASKHISTORY_SCRUB``,
            no): registered ones, values of environment variables whose names look secret, and
            whatever looks like one. Pictures stay as they are.
        secrets: values to be masked wherever they stand; giving some switches `scrub` on.
        on_error: called with the exception whenever something could not be stored as it was.
        service_name: the ``service.name`` of this process, if it is known already.

    Raises:
        TaskHistoryError: a setting is bad, or the history must not or cannot be used; the disk
            is as it was then. Nothing else in this class raises.
    """

    stays_local: Final = True
    """It gets all there is, and keeps it on this machine."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        owner: str | None = None,
        retention: Retention | None = None,
        durability: str | None = None,
        *,
        database: str | os.PathLike[str] | None = None,
        artifacts: str | os.PathLike[str] | None = None,
        busy_timeout: float | str | None = None,
        scrub: bool | None = None,
        secrets: Sequence[str] = (),
        on_error: Callable[[BaseException], None] | None = None,
        service_name: str | None = None,
    ) -> None:
        self.settings = Settings.resolve(
            directory=directory,
            owner=owner,
            database=database,
            artifacts=artifacts,
            retention=retention,
            durability=durability,
            busy_timeout=busy_timeout,
            scrub=scrub,
            secrets=secrets,
        )
        self._scrubber = scrubber_of(self.settings)
        self._on_error = on_error
        self._logged_at: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._refused: set[str] = set()
        self._refused_spans = 0
        self._deferring = threading.local()
        service = explicit_service(service_name)
        if service is None:
            # Only a guess: what the spans say counts, and is what the history is stamped with.
            look(self.settings, explicit_service(_service_of_environment()))
        self._writer = Writer(self.settings, service_name=service, on_error=on_error)
        self._looked_around = warn_of_environment("spans")
        register_sink(self)
        _exporters.add(self)

    # --- SpanExporter ---

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Commit ended spans; FAILURE when they could not be (they wait in memory then)."""
        self._look_around()
        try:
            entries = [entry for span in spans if (entry := self._entry(span, allow_open=False))]
            if self._writer.closed:
                return SpanExportResult.FAILURE
            if not entries:
                return SpanExportResult.SUCCESS if not spans else self._result_without(spans)
            job = self._writer.submit(entries, durable=True)
        except Exception as error:
            self._failed("spans could not be exported", error)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS if job.stored else SpanExportResult.FAILURE

    def _result_without(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Denied scopes are no failure; spans that could not be read are."""
        denied = all(self._is_denied(span) for span in spans)
        return SpanExportResult.SUCCESS if denied else SpanExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Commit what waits; whether all is in, after at most about `timeout_millis`."""
        return self._writer.closed or self._writer.flush(timeout_millis / 1000)

    @property
    def closed(self) -> bool:
        """Whether it was shut down, so that it records nothing any more."""
        return self._writer.closed

    def shutdown(self) -> None:
        """Commit what waits and close the history; further spans are refused."""
        unregister_sink(self)
        try:
            self._writer.close()
        except Exception as error:
            self._failed("the history could not be closed", error)

    # --- for `TaskHistoryLogExporter` and the completion hook ---

    def add_logs(self, records: Sequence[LogRecord], *, wait: bool = True) -> bool:
        """Record what was logged within spans; whether it is committed.

        Args:
            records: each names its span, which may have come already or may come later.
            wait: False returns at once: they are written before what is handed over after them,
                e.g. the end of their span.
        """
        if self._writer.closed:
            return False
        try:
            if self._scrubber is not None:
                records = [self._scrubber.record(record) for record in records]
            ours = [record for record in records if self._is_our_service(record.resource)]
            self._refused_spans += len(records) - len(ours)
            if not ours:
                return True
            now = time.time_ns()
            job = self._writer.submit(
                [LogEntry(record, now) for record in ours],
                durable=True,
                wait=Wait.DONE if wait else Wait.NOT,
            )
        except Exception as error:
            self._failed("log records could not be recorded", error)
            return False
        return job.stored or not wait

    # --- for the processor ---

    def begin(self, span: ReadableSpan) -> None:
        """Record a span that has just started."""
        self._hand_over(span)

    def snapshot(self, span: ReadableSpan) -> None:
        """Record a span that is still open as it is now."""
        self._hand_over(span)

    def finish(self, span: ReadableSpan, *, by: BaseException | None = None) -> None:
        """Record a span that has ended; its commit is waited for, or deferred.

        Args:
            span: the span.
            by: the cancellation that ended it, see `otel_taskhistory.spans.given_up`.
        """
        if self._writer.closed:
            return
        try:
            entry = self._entry(span, allow_open=False, by=by)
            if entry is None:
                return
            # A tool call of ours is part of a step, whose end makes it survive power loss.
            durable = not (entry.facts.own and entry.facts.role == "tool")
            jobs: list[Job] | None = getattr(self._deferring, "jobs", None)
            if jobs is not None:
                jobs.append(self._writer.submit([entry], durable=durable, wait=Wait.NOT))
            else:
                self._writer.submit([entry], durable=durable)
        except Exception as error:
            self._failed("the end of a span could not be recorded", error)

    # --- Sink ---

    def checkpoint(self, span: Span, event: str, detail: dict[str, Any]) -> None:
        """See `Sink.checkpoint`; the timeline finds out from the span itself what is new."""
        if isinstance(span, ReadableSpan):
            self._hand_over(span)

    def picture(self, image: Any) -> StoredPicture:
        """See `Sink.picture`."""
        try:
            data = _picture_bytes(image)
        except Exception as error:
            self._failed("a screenshot could not be read", error)
            return _not_stored(b"", "broken")
        if not data:
            return _not_stored(b"", "empty")
        if len(data) > MAX_PICTURE_BYTES:
            return _not_stored(data, "too_large")
        if self._refused:  # the history is another component's: nothing of ours goes there
            return _not_stored(data, "not_stored")
        try:
            stored = self._writer.store_picture(data)
        except Exception as error:
            self._failed("a screenshot could not be stored", error)
            return _not_stored(data, "not_stored")
        return StoredPicture(*astuple(stored))

    @contextmanager
    def deferring(self) -> Iterator[Deferred]:
        """See `Sink.deferring`."""
        before = getattr(self._deferring, "jobs", None)
        jobs: list[Job] = []
        self._deferring.jobs = jobs
        try:
            yield _Commits(jobs)
        finally:
            self._deferring.jobs = before

    def earlier(self, *, task_id: str | None = None, key: str | None = None) -> Earlier | None:
        """See `Sink.earlier`."""
        if key is not None and self._scrubber is not None:
            key = self._scrubber.text(key)  # as it was written
        try:
            found = self._writer.task_by(task_id=task_id, key=key)
        except Exception as error:
            self._failed("an earlier task could not be looked up", error)
            return None
        return Earlier(*found) if found else None

    # --- what users may ask ---

    @property
    def stamp(self) -> Stamp:
        """Owner, history id and service of the history."""
        return self._writer.stamp

    def stats(self) -> dict[str, Any]:
        """Counts since the start of this process: what was stored, reduced, lost, and waits."""
        counters = self._writer.counters
        waiting, waiting_bytes = self._writer.waiting
        return {
            "spans": counters.spans,
            "checkpoints": counters.checkpoints,
            "logs": counters.logs,
            "commits": counters.commits,
            "reduced": counters.reduced,
            "marked": counters.marked,
            "lost": counters.lost + self._refused_spans,
            "away": counters.away,
            "waiting": waiting,
            "waiting_bytes": waiting_bytes,
            "last_error": counters.last_error,
            "errors": {**counters.by_error, **self._failures, **self._not_scrubbed()},
        }

    # --- inside ---

    def _not_scrubbed(self) -> dict[str, int]:
        failures = 0 if self._scrubber is None else self._scrubber.failures
        return {"NotScrubbed": failures} if failures else {}

    def _hand_over(self, span: ReadableSpan) -> None:
        if self._writer.closed:
            return
        try:
            entry = self._entry(span, allow_open=True)
            # One that has ended meanwhile is handed over by its end, once.
            if entry is not None and not entry.ended:
                self._writer.submit([entry], durable=False, wait=Wait.IF_IDLE)
        except Exception as error:
            self._failed("a checkpoint could not be recorded", error)

    def _entry(
        self, span: ReadableSpan, *, allow_open: bool, by: BaseException | None = None
    ) -> Entry | None:
        """A span as the store takes it; None for one that is not to be recorded."""
        if self._is_denied(span):
            return None
        try:
            record = record_of(span) if by is None else given_up(record_of(span), by)
            if self._scrubber is not None:
                record = self._scrubber.record(record)
        except Exception as error:
            self._failed("a span could not be read", error)
            return None
        if record.end_ns is None and not allow_open:
            return None
        if not self._is_our_service(record.resource):
            self._refused_spans += record.end_ns is not None
            return None
        marks: frozenset[str] = frozenset()
        reading = read(record)
        if reading.error is not None:
            self._failed("a span could not be understood", reading.error)
            marks = frozenset({NOT_UNDERSTOOD})
        named = record.attributes.get(semconv.TASKHISTORY_REDUCED)
        if isinstance(named, list | tuple):
            marks |= {escape_surrogates(name) for name in named if isinstance(name, str)}
        return Entry(record, reading.facts, time.time_ns(), marks)

    def _look_around(self) -> None:
        """Tell of exporters that get everything beside this one, once, at the first spans.

        Behind the SDK's processors an exporter does not know its provider; most have one.
        """
        if self._looked_around:
            return
        self._looked_around = True
        try:
            processors = processors_of(get_tracer_provider())
            if any(exporter_in(one) is self for one in processors):
                warn_of_content(processors)
        except Exception as error:
            self._failed("the other exporters could not be looked at", error)

    def _is_denied(self, span: ReadableSpan) -> bool:
        scope = span.instrumentation_scope
        return scope is not None and scope.name in DENIED_SCOPES

    def _is_our_service(self, resource: OriginRecord) -> bool:
        """Two components with default settings must not share a history by mistake."""
        service = explicit_service(resource.attributes.get(semconv.SERVICE_NAME))
        stamp = self._writer.stamp
        if service is None or service == stamp.service_name:
            return True
        if stamp.service_name is None:
            self._writer.claim_service(service)
            return True
        if self.settings.owner_explicit:
            return True
        if service in self._refused:
            return False
        try:
            check_owner(
                stamp,
                self.settings.database,
                owner=self.settings.owner,
                owner_explicit=False,
                service_name=service,
            )
        except HistoryRefused as error:
            self._refused.add(service)
            self._failed("spans of another service were refused", error)
            return False
        return True

    def _failed(self, what: str, error: BaseException) -> None:
        kind = type(error).__name__
        self._failures[kind] = self._failures.get(kind, 0) + 1
        report(what, error, self._on_error, self._logged_at)

    def _after_fork(self) -> None:
        """In a forked child: what was inherited is the parent's."""
        self._deferring = threading.local()
        self._writer.abandon()


class _Commits:
    """Commits that an event loop can wait for; see `Deferred`."""

    def __init__(self, jobs: list[Job]) -> None:
        self._jobs = jobs

    async def wait(self) -> None:
        """Return when all of them are decided."""
        loop = asyncio.get_running_loop()
        for job in self._jobs:
            if job.done:
                continue
            done: asyncio.Future[None] = loop.create_future()
            job.when_done(lambda done=done: _settle(loop, done))  # type: ignore[misc]
            await done


def _settle(loop: asyncio.AbstractEventLoop, done: asyncio.Future[None]) -> None:
    def settle() -> None:
        if not done.done():
            done.set_result(None)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The loop was closed while the commit went on: nobody waits any more.
        _logger.debug("otel-taskhistory: an event loop ended before its commits")


def _service_of_environment() -> str | None:
    """The ``service.name`` that the SDK will find in ``OTEL_SERVICE_NAME`` and its like."""
    name = OTELResourceDetector().detect().attributes.get(semconv.SERVICE_NAME)
    return name if isinstance(name, str) else None


def _picture_bytes(image: Any) -> bytes:
    if image is None:
        return b""
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, str | os.PathLike):
        with Path(image).open("rb") as file:
            return file.read(MAX_PICTURE_BYTES + 1)
    if is_pil_image(image):
        return encode_pil(image)
    raise TypeError(f"a screenshot is bytes, a path or a PIL image, not {type(image).__name__}")


def _not_stored(data: bytes, status: str) -> StoredPicture:
    info = inspect(data)
    return StoredPicture(
        hashlib.sha256(data).hexdigest(),
        None,
        info.media_type,
        info.width,
        info.height,
        len(data),
        status,
    )


_exporters: weakref.WeakSet[TaskHistoryExporter] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for exporter in list(_exporters):
        exporter._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
