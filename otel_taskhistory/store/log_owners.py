# SPDX-License-Identifier: Apache-2.0
"""Which log records tell of which span, whichever of them came first.

A record belongs to the span that it names. But an instrumentation that does not make its span the
current one writes the records of a model call into the span around it. Such a record is about the
span below that ran when it was written (see `genai_events.is_meant_for`), and not about the one
that it names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from otel_taskhistory.conventions.genai_events import is_meant_for
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from otel_taskhistory.store.readback import Readback

_BELOW = """
SELECT own.id, own.span_id, own.start_ns, own.end_ns, own.scope
FROM _traces AS trace JOIN _spans AS own ON own.trace = trace.id
WHERE trace.trace_id = ? AND own.parent_span_id = ?
"""
_ABOVE = """
SELECT own.id FROM _traces AS trace JOIN _spans AS own ON own.trace = trace.id
WHERE trace.trace_id = ? AND own.span_id = ? AND json_extract(own.facts, '$.own') IS NULL
"""


class LogOwners:
    """Over one connection, within one transaction."""

    def __init__(self, connection: sqlite3.Connection, source: Readback) -> None:
        self._connection = connection
        self._source = source

    def logs_of(self, record: SpanRecord) -> list[LogRecord]:
        """The records that tell of a span, in the order of their time."""
        named = self._source.events(record.trace_id, record.span_id)
        if named:
            below = self._below(record.trace_id, record.span_id)
            named = [log for log in named if not _any_meant(log, below.values())]
        return [*self._given_above(record), *named]

    def spans_of(self, log: LogRecord) -> list[int]:
        """Rows of the spans below the one that a record names, of which it tells."""
        below = self._below(log.trace_id, log.span_id)
        return [row for row, record in below.items() if is_meant_for(log, record)]

    def robbed_by(self, record: SpanRecord) -> list[int]:
        """Rows of spans of which fewer records tell now that this one is there."""
        if not self._given_above(record):
            return []
        found = self._connection.execute(_ABOVE, (record.trace_id, record.parent_span_id))
        return [row for (row,) in found.fetchall()]

    def _given_above(self, record: SpanRecord) -> list[LogRecord]:
        if record.parent_span_id is None:
            return []
        given = self._source.events(record.trace_id, record.parent_span_id)
        return [log for log in given if is_meant_for(log, record)]

    def _below(self, trace_id: str, span_id: str) -> dict[int, SpanRecord]:
        """Spans by row, with what decides whether a record is meant for one."""
        found = self._connection.execute(_BELOW, (trace_id, span_id)).fetchall()
        return {
            row: SpanRecord(
                trace_id,
                below,
                span_id,
                "",
                int(start),
                None if end is None else int(end),
                scope=self._source.origin(scope),
            )
            for row, below, start, end, scope in found
        }


def _any_meant(log: LogRecord, records: Iterable[SpanRecord]) -> bool:
    return any(is_meant_for(log, record) for record in records)
