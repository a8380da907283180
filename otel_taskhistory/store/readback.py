# SPDX-License-Identifier: Apache-2.0
"""Spans and log records read back from the ledger, equal to what came in.

So what they mean can be found out again: when a dialect has been taught something, or when a log
record comes after its span. What is not equal is what the ledger could not keep as it was, and
says so in ``marks``: sequences are lists (the SDK has tuples), keys are texts, a value without a
representation is its marker (see `otel_taskhistory.spans.encode`).
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.spans.encode import decode, unescape_surrogates
from otel_taskhistory.spans.record import (
    EventRecord,
    LinkRecord,
    LogRecord,
    OriginRecord,
    SpanRecord,
)
from otel_taskhistory.store.rebuild import ReadArtifact, Texts

_SPAN: Final = """
SELECT trace.trace_id, own.span_id, own.parent_span_id, own.parent_remote, own.name, own.kind,
    own.start_ns, own.end_ns, own.status_code, own.status_message, own.trace_state, own.flags,
    own.dropped_attributes, own.dropped_events, own.dropped_links, own.marks, own.templates,
    own.attributes, own.events, own.links, own.resource, own.scope, own.trace, own.facts, own.role,
    (SELECT ended_ns FROM _processes WHERE id = own.process)
FROM _spans AS own JOIN _traces AS trace ON trace.id = own.trace
WHERE own.id = ?
"""

_LOGS: Final = """
SELECT trace.trace_id, log.span_id, log.event_name, log.body, log.attributes, log.time_ns,
    log.observed_ns, log.severity_number, log.severity_text, log.flags, log.dropped_attributes,
    log.marks, log.templates, log.resource, log.scope, log.digest, log.size
FROM _traces AS trace JOIN _logs AS log ON log.trace = trace.id
WHERE {}
"""
_EVENTS: Final = _LOGS.format("trace.trace_id = ? AND log.span_id = ? AND log.event_name <> ''")
_OF_SPAN: Final = _LOGS.format("log.span = ?")
_WAITING: Final = _LOGS.format("trace.trace_id = ? AND log.span IS NULL")

BODY, LOG_ATTRIBUTES = 1, 2
"""Bits of ``_logs.templates``."""


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """A span of the ledger, and what the ledger knows about it beside what it says itself.

    Attributes:
        record: the span, its pictures in place.
        row, trace: the numbers of its row and of its trace's.
        facts, role: how it was read last, as the ledger keeps it.
        marks: see ``spans.marks``.
        interrupted_ns: when the process that left it open has ended, if it did.
        missing: whether a picture of it could not be read, so that the record is not whole.
    """

    record: SpanRecord
    row: int
    trace: int
    facts: str
    role: str
    marks: frozenset[str]
    interrupted_ns: int | None
    missing: bool


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log record of the ledger, its marks (see ``logs.marks``), and about how large it is."""

    record: LogRecord
    marks: frozenset[str]
    bytes: int


class Readback:
    """Reads over one connection, within one transaction.

    Args:
        connection: of the history.
        read: the bytes of an artifact. None leaves references in the places of pictures.
    """

    def __init__(self, connection: sqlite3.Connection, read: ReadArtifact | None = None) -> None:
        self._connection = connection
        self._read = read
        self._begin()

    def _begin(self) -> None:
        self._texts = Texts(self._connection, self._read)
        self._origins: dict[int, OriginRecord] = {}

    def span(self, row: int) -> ReadSpan | None:
        """The span of a row; None when there is no such row (it was removed)."""
        found = self._connection.execute(_SPAN, (row,)).fetchone()
        if found is None:
            return None
        (trace_id, span_id, parent, remote, name, kind, start, end, status, message) = found[:10]
        (trace_state, flags, *dropped) = found[10:15]
        (marked, templates, attributes, events, links, resource, scope) = found[15:22]
        marks = frozenset(json.loads(marked)) if marked else frozenset()
        record = SpanRecord(
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=parent,
            parent_remote=bool(remote),
            name=_text(name, "name", marks),
            kind=kind,
            start_ns=int(start),
            end_ns=None if end is None else int(end),
            attributes=self._value(attributes, templates & 1),
            events=tuple(_event(event) for event in self._value(events, templates & 2)),
            links=tuple(_link(link) for link in self._value(links, templates & 4)),
            resource=self.origin(resource),
            scope=self.origin(scope),
            status_code=status,
            status_message=None if message is None else _text(message, "status_message", marks),
            trace_state=_text(trace_state, "trace_state", marks),
            flags=flags,
            dropped_attributes=dropped[0],
            dropped_events=dropped[1],
            dropped_links=dropped[2],
        )
        row_of_trace, facts, role, ended = found[22:]
        missing = bool(self._texts.missing)
        if missing:  # texts are remembered, but not that something is missing in them
            self._begin()
        return ReadSpan(record, row, row_of_trace, facts, role, marks, ended, missing)

    def events(self, trace_id: str, span_id: str) -> list[LogRecord]:
        """The log records of a span that have a name, in the order of their time.

        What has none is a line of a log for people: it is kept, and not asked what it means.
        """
        return [read.record for read in self._logs(_EVENTS, trace_id, span_id)]

    def logs_of_span(self, row: int) -> list[ReadLog]:
        """All log records of the span of a row, in the same order."""
        return self._logs(_OF_SPAN, row)

    def waiting_logs(self, trace_id: str) -> list[ReadLog]:
        """The log records of a trace whose spans have not come."""
        return self._logs(_WAITING, trace_id)

    def _logs(self, sql: str, *values: str | int) -> list[ReadLog]:
        found = self._connection.execute(sql, values).fetchall()
        # Equal times are told apart by what was said, not by what came first.
        ordered = sorted(found, key=lambda row: (int(row[5]) or int(row[6]), int(row[6]), row[15]))
        return [self._log(row) for row in ordered]

    def _log(self, row: tuple[Any, ...]) -> ReadLog:
        marks = frozenset(json.loads(row[11])) if row[11] else frozenset()
        record = LogRecord(
            trace_id=row[0],
            span_id=row[1],
            event_name=_text(row[2], "event_name", marks),
            body=self._value(row[3], row[12] & BODY),
            attributes=self._value(row[4], row[12] & LOG_ATTRIBUTES),
            time_ns=int(row[5]),
            observed_ns=int(row[6]),
            severity_number=row[7],
            severity_text=_text(row[8], "severity_text", marks),
            flags=row[9],
            dropped_attributes=row[10],
            resource=self.origin(row[13]),
            scope=self.origin(row[14]),
        )
        return ReadLog(record, marks, row[16])

    def _value(self, text: str, template: int) -> Any:
        return decode(self._texts.filled(text) if template else text)

    def origin(self, row: int) -> OriginRecord:
        """The resource or scope of a content row."""
        if row not in self._origins:
            said = decode(self._texts.content(row))
            self._origins[row] = OriginRecord(
                said["name"],
                said["version"],
                said["schema_url"],
                said["attributes"],
                said["dropped_attributes_count"],
            )
        return self._origins[row]


def _text(text: str, column: str, marks: frozenset[str]) -> str:
    return unescape_surrogates(text) if column in marks else text


def _event(said: dict[str, Any]) -> EventRecord:
    return EventRecord(
        said["name"],
        said["time_unix_nano"],
        said["attributes"],
        said["dropped_attributes_count"],
    )


def _link(said: dict[str, Any]) -> LinkRecord:
    return LinkRecord(
        said["trace_id"],
        said["span_id"],
        said["trace_state"],
        said["flags"],
        said["attributes"],
        said["dropped_attributes_count"],
    )
