# SPDX-License-Identifier: Apache-2.0
"""Recorded telemetry into a history, in transactions of some hundred records.

An import is a writer like an agent: it has its row among the processes, and what it has left open
when it ends in order is interrupted then: spans that never ended, traces whose root never came.
Importing the same again changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.redaction.scrubber import Scrubber, scrubber_of
from otel_taskhistory.spans.encode import escape_surrogates
from otel_taskhistory.spans.otlp import Given, Item, PassedOver, Rejected
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from otel_taskhistory.store.commit import StoreAway
from otel_taskhistory.store.left_open import LeftOpen, call_interrupted
from otel_taskhistory.store.pins import pin_coming
from otel_taskhistory.store.rereading import NOT_UNDERSTOOD, read
from otel_taskhistory.store.writer import AnyEntry, Entry, LogEntry, Writer, size_of

RECORDS: Final = 256
"""Records per transaction at most: agents that write at the same time wait for no longer."""

BYTES: Final = 8 * 2**20
"""And about this many bytes, unless one record alone is larger."""

_WAIT: Final = 30.0
"""Seconds that the history may be away before an import gives up."""


@dataclass(slots=True)
class Imported:
    """What became of what was imported."""

    spans: int = 0
    """Spans that were read and are in the history; they may have been there before."""
    logs: int = 0
    """Log records, likewise."""
    rejected: int = 0
    """Lines and records that could not be kept, or could not be kept whole."""
    late: int = 0
    """Spans and log records whose task was removed from the history not long ago."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """What belongs to no span, by what it is."""

    @property
    def whole(self) -> bool:
        """Whether everything that belongs to a span is in."""
        return self.rejected == 0


class Importer:
    """Takes items and writes them; `finish` at the end, then `close`.

    Args:
        writer: of the history; used for nothing else meanwhile.
        clock: ns since 1970.
    """

    def __init__(self, writer: Writer, clock: Callable[[], int] = time.time_ns) -> None:
        self.writer = writer
        self._scrubber = scrubber_of(writer.settings)
        self._clock = clock
        self._entries: list[AnyEntry] = []
        self._size = 0
        self._left: list[LeftOpen] = []
        self._pins: list[str] = []  # of a history that is not there yet
        self.done = Imported()

    def take(self, item: Item) -> str | None:
        """Write one item with the next transaction; why it is rejected, if it is.

        Raises:
            TaskHistoryError: the history cannot be written; what was written before is in.
        """
        if isinstance(item, Rejected):
            self.done.rejected += 1
            return item.why
        if isinstance(item, PassedOver):
            self.done.passed_over[item.what] += item.number
            return None
        if item.interrupted_ns is not None and isinstance(item.record, SpanRecord):
            left = LeftOpen(item.record.trace_id, item.record.span_id, item.interrupted_ns)
            self._left.append(left)
        if item.pinned is not None:
            self._pin(item.pinned)
        self._entries.append(entry_of(item.record, self._clock(), item.marks, self._scrubber))
        self._size += size_of(item.record)
        if len(self._entries) >= RECORDS or self._size >= BYTES:
            self._write(durable=False)
        return None

    def finish(self) -> Imported:
        """Write what is left, so that all of it survives power loss; what became of everything.

        Raises:
            TaskHistoryError: the history cannot be written; what was written before is in.
        """
        self._write(durable=True)
        return self.done

    def close(self) -> None:
        """Close the writer; what was left open is interrupted, when that is known at that time.

        Raises:
            TaskHistoryError: the history cannot be written now; all that was imported is in.
        """
        self.writer.close()
        left, self._left = self._left, []
        try:
            if left:
                call_interrupted(self.writer.settings, left, self._clock)
        except StoreAway as error:
            raise TaskHistoryError(
                f"{self.writer.settings.database} cannot be written ({error}): all is in, but not"
                " when what was left open was interrupted; import again later"
            ) from error

    def _pin(self, task_id: str) -> None:
        """Before its spans come: else retention may take the task at once."""
        self._write(durable=False)
        if self.writer.settings.database.exists():
            pin_coming(self.writer.settings, task_id, self._clock)
        else:
            self._pins.append(task_id)

    def _write(self, *, durable: bool) -> None:
        entries, self._entries, self._size = self._entries, [], 0
        counters = self.writer.counters
        lost, late, reduced = counters.lost, counters.late, counters.reduced
        job = self.writer.submit(entries, durable=durable)
        if not (job.stored or self.writer.flush(_WAIT)):
            raise TaskHistoryError(
                f"{self.writer.settings.database} cannot be written"
                f" ({counters.last_error}): what was imported so far is in, import again later"
            )
        logs = sum(isinstance(entry, LogEntry) for entry in entries)
        self.done.spans += len(entries) - logs
        self.done.logs += logs
        self.done.rejected += counters.lost - lost + counters.reduced - reduced
        self.done.late += counters.late - late
        pins, self._pins = self._pins, []
        for task_id in pins:
            pin_coming(self.writer.settings, task_id, self._clock)


def import_records(
    writer: Writer,
    records: Iterable[SpanRecord | LogRecord],
    clock: Callable[[], int] | None = None,
) -> Imported:
    """Write records that are at hand into a history; see `Importer`."""
    importer = Importer(writer, clock or time.time_ns)
    for record in records:
        importer.take(Given(record))
    return importer.finish()


def entry_of(
    record: SpanRecord | LogRecord,
    seen_ns: int,
    marks: frozenset[str] = frozenset(),
    scrubber: Scrubber | None = None,
) -> AnyEntry:
    """A record as the store takes it; a span is read by itself, the store adds its log records.

    Secrets are masked by `scrubber`, if there is one, before anything is read or written.
    """
    if isinstance(record, LogRecord):
        return LogEntry(scrubber.record(record) if scrubber else record, seen_ns, marks)
    record = scrubber.record(record) if scrubber else record
    reading = read(record)
    if reading.error is not None:
        marks |= {NOT_UNDERSTOOD}
    named = record.attributes.get(semconv.TASKHISTORY_REDUCED)
    if isinstance(named, list | tuple):
        marks |= {escape_surrogates(name) for name in named if isinstance(name, str)}
    return Entry(record, reading.facts, seen_ns, marks)
