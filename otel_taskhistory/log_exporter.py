# SPDX-License-Identifier: Apache-2.0
"""TaskHistoryLogExporter: log records that belong to spans, into the history of those spans.

Some instrumentations say what was sent to a model, and what it answered, in log records only. With
``OTEL_LOGS_EXPORTER=taskhistory`` they are kept beside their spans, and are part of what the spans
mean, whichever of the two comes first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Unpack

from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult

from otel_taskhistory.exporter import DENIED_SCOPES, Arguments, TaskHistoryExporter
from otel_taskhistory.recording.sink import live_sink, unregister_sink
from otel_taskhistory.redaction.neighbours import warn_of_environment
from otel_taskhistory.redaction.scrubber import scrubber_of
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.record import LogRecord
from otel_taskhistory.spans.sdk_logs import log_record_of
from otel_taskhistory.store.writer import report

_OUR_LOGGER: Final = "otel_taskhistory"
"""What we log is about recording and not about tasks; recording it would make more of it."""


class Outlet:
    """Where log records go: the process's live exporter, or an exporter of our own.

    One process has one connection to a history. So the live `TaskHistoryExporter` is used whenever
    it writes the same history; an own one is opened with the first record that needs it.

    Args:
        exporter: a given one; it is used whatever else there is, and not shut down by us.
        settings: of the own one, as `TaskHistoryExporter` takes them. Without any, the live
            exporter is used whatever history it writes.

    Raises:
        SettingsError: a setting is bad.
        TypeError: there is no such setting.
    """

    def __init__(
        self, exporter: TaskHistoryExporter | None = None, **settings: Unpack[Arguments]
    ) -> None:
        self._given = exporter
        self._arguments: dict[str, Any] = {
            name: value for name, value in settings.items() if value is not None
        }
        self._on_error: Callable[[BaseException], None] | None = settings.get("on_error")
        resolved = {
            name: value
            for name, value in self._arguments.items()
            if name not in ("on_error", "service_name")
        }
        self._anywhere = not resolved.keys() - {"scrub", "secrets"}
        decided = Settings.resolve(**resolved)
        self._database = decided.database
        # Whatever the exporter does that writes them. What it has masked stays as it is.
        self._scrubber = scrubber_of(decided)
        self._own: TaskHistoryExporter | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._logged_at: dict[str, float] = {}
        self.closed = False

    def add(self, records: Sequence[LogRecord], *, wait: bool) -> bool:
        """See `TaskHistoryExporter.add_logs`; never raises."""
        if self.closed:
            return False
        try:
            if self._scrubber is not None:
                records = [self._scrubber.record(record) for record in records]
            return self._exporter().add_logs(records, wait=wait)
        except Exception as error:
            self.failed("log records could not be recorded", error)
            return False

    def failed(self, what: str, error: BaseException) -> None:
        """Report a failure that no exporter has seen."""
        report(what, error, self._on_error, self._logged_at)

    def flush(self, timeout_millis: int) -> bool:
        """Whether all that was handed over is committed."""
        exporter = self._given or self._live() or self._own
        return exporter is None or exporter.force_flush(timeout_millis)

    def close(self) -> None:
        """Shut the own exporter down; others go on."""
        self.closed = True
        own, self._own = self._own, None
        if own is not None:
            own.shutdown()

    def _exporter(self) -> TaskHistoryExporter:
        if self._given is not None:
            return self._given
        live = self._live()
        if live is not None:
            own, self._own = self._own, None
            if own is not None:  # spans have come to be recorded here meanwhile
                own.shutdown()
            return live
        if self._pid != os.getpid():  # a forked child must not wait for a lock of its parent
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            if self._own is None:
                self._own = TaskHistoryExporter(**self._arguments)
                # Tracers have nothing to do with it: the spans that they end go elsewhere.
                unregister_sink(self._own)
            return self._own

    def _live(self) -> TaskHistoryExporter | None:
        live = live_sink()
        if not isinstance(live, TaskHistoryExporter) or live.closed:
            return None
        return live if self._anywhere or live.settings.database == self._database else None


class TaskHistoryLogExporter(LogRecordExporter):
    """Records what was logged within spans; when `export` returned SUCCESS it is committed.

    Log records outside of spans are passed over: a history is made of tasks.

    Args:
        exporter: writes the spans of this process. By default the live `TaskHistoryExporter`, and
            when there is none one of our own, with the settings given here.
        settings: any that `TaskHistoryExporter` takes: ``directory``, ``owner``, ``scrub``, ….

    Raises:
        SettingsError: a setting is bad. Nothing else in this class raises.
        TypeError: there is no such setting.
    """

    def __init__(
        self, exporter: TaskHistoryExporter | None = None, **settings: Unpack[Arguments]
    ) -> None:
        self._outlet = Outlet(exporter, **settings)
        warn_of_environment("log records")
        self.passed_over = 0
        """Log records that were written outside of spans."""

    def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
        """Commit log records; FAILURE when they could not be (they wait in memory then)."""
        if self._outlet.closed:
            return LogRecordExportResult.FAILURE
        records: list[LogRecord] = []
        whole = True
        for readable in batch:
            try:
                if _is_denied(readable):
                    continue
                record = log_record_of(readable)
            except Exception as error:
                self._outlet.failed("a log record could not be read", error)
                whole = False
                continue
            if record is None:
                self.passed_over += 1
            else:
                records.append(record)
        stored = not records or self._outlet.add(records, wait=True)
        return LogRecordExportResult.SUCCESS if stored and whole else LogRecordExportResult.FAILURE

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Commit what waits; whether all is in, after at most about `timeout_millis`."""
        return self._outlet.flush(timeout_millis)

    def shutdown(self) -> None:
        """Commit what waits; further records are refused. An exporter of spans goes on."""
        self._outlet.close()


def _is_denied(readable: Any) -> bool:
    scope = readable.instrumentation_scope
    name = scope.name if scope is not None else ""
    return name in DENIED_SCOPES or name == _OUR_LOGGER
