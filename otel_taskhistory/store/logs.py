# SPDX-License-Identifier: Apache-2.0
"""Log records exactly as they came, one row each, with their long values by reference.

A record belongs to the span within which it was written, whichever of the two comes first. Until
its span comes it waits, for a day and within a bound: a process may send its log records here and
its spans elsewhere. The same record is kept once, however often it is delivered.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.spans.encode import encode, escape_surrogates
from otel_taskhistory.spans.record import LogRecord
from otel_taskhistory.store.contents import SHARE_FROM, Contents, compact
from otel_taskhistory.store.late import LATE, REMEMBERED_NS
from otel_taskhistory.store.ledger import Ledger, fits, origin_value, to_count
from otel_taskhistory.store.readback import BODY, LOG_ATTRIBUTES

_ROW_BYTES: Final = 200
"""What a row takes beside its texts."""

_STATE: Final = """
SELECT (SELECT max(id) FROM _logs), EXISTS (SELECT 1 FROM _logs WHERE span IS NULL)
"""

_INSERT: Final = """
INSERT INTO _logs (trace, span_id, span, digest, event_name, time_ns, observed_ns, severity_number,
    severity_text, flags, dropped_attributes, resource, scope, seen_ns, size, marks, templates,
    body, attributes)
VALUES (:trace, :span_id, :span, :digest, :event_name, :time_ns, :observed_ns, :severity_number,
    :severity_text, :flags, :dropped_attributes, :resource, :scope, :seen_ns, :size, :marks,
    :templates, :body, :attributes)
"""


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """What became of a log record.

    Attributes:
        span: the row of its span, if that has come.
        new: it was not known before.
        news: it is new, and may change what the span means. A span of our own tracer means what it
            says itself.
    """

    span: int | None
    new: bool
    news: bool


class Logs:
    """Writes log records over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection, contents: Contents, ledger: Ledger) -> None:
        self._connection = connection
        self._contents = contents
        self._ledger = ledger
        self.any = False
        """Whether the history has any."""
        self.any_waiting = False
        """Whether any waits for its span."""

    def begin(self, *, still: bool) -> None:
        """A transaction has begun: one look tells spans of a history without logs to pass by.

        Args:
            still: nothing has changed since the last one was committed.
        """
        if still and not self.any:
            return
        last, waiting = self._connection.execute(_STATE).fetchone()
        self.any, self.any_waiting = last is not None, bool(waiting)

    def write(
        self, record: LogRecord, seen_ns: int, marks: Iterable[str] = ()
    ) -> WrittenLog | None:
        """Write one record, or find it.

        Args:
            record: what to write.
            seen_ns: when it came here.
            marks: what is to be said of it beside what is found out here.

        Returns:
            None when its task was removed.
        """
        trace = self._trace(record, seen_ns)
        if trace is None:
            return None
        span, own = self._span(trace, record.span_id)
        body = encode(record.body, hole_from=SHARE_FROM)
        attributes = encode(record.attributes, hole_from=SHARE_FROM)
        resource, scope = encode(origin_value(record.resource)), encode(origin_value(record.scope))
        texts = [one.text for one in (body, attributes, resource, scope)]
        digest = _digest(record, texts)
        known = self._connection.execute("SELECT 1 FROM _logs WHERE digest = ?", (digest,))
        if known.fetchone() is not None:
            return WrittenLog(span, new=False, news=False)
        marked = set(marks) | {
            name
            for name, one in (
                ("body", body),
                ("attributes", attributes),
                ("resource", resource),
                ("scope", scope),
            )
            if one.reduced
        }
        row: dict[str, Any] = {
            "trace": trace,
            "span_id": record.span_id,
            "span": span,
            "digest": digest,
            "event_name": escape_surrogates(record.event_name),
            "time_ns": fits(record.time_ns),
            "observed_ns": fits(record.observed_ns),
            "severity_number": to_count(record.severity_number),
            "severity_text": escape_surrogates(record.severity_text),
            "flags": to_count(record.flags),
            "dropped_attributes": to_count(record.dropped_attributes),
            "resource": self._contents.text(texts[2]),
            "scope": self._contents.text(texts[3]),
            "seen_ns": seen_ns,
            "size": _ROW_BYTES + len(texts[0]) + len(texts[1]),
            "templates": 0,
        }
        for name, text in (
            ("event_name", record.event_name),
            ("severity_text", record.severity_text),
        ):
            if row[name] != text:
                marked.add(name)
        row["marks"] = compact(sorted(marked)) if marked else None
        refs: list[tuple[str, int]] = []
        for bit, name, encoded in (
            (BODY, "body", body),
            (LOG_ATTRIBUTES, "attributes", attributes),
        ):
            row[name], used = self._ledger.stored(encoded, trace)
            if used is not None:
                row["templates"] |= bit
                refs += used
        log = self._connection.execute(_INSERT, row).lastrowid
        assert log is not None
        self._refer(log, span, refs)
        self.any = True
        self.any_waiting |= span is None
        return WrittenLog(span, new=True, news=bool(record.event_name) and not own)

    def claim(self, trace: int, span_id: str, span: int) -> None:
        """A span has come: what waited for it belongs to it."""
        if not self.any_waiting:
            return
        found = self._connection.execute(
            "UPDATE _logs SET span = ? WHERE trace = ? AND span_id = ? AND span IS NULL"
            " RETURNING id",
            (span, trace, span_id),
        ).fetchall()
        for (log,) in found:
            for table in ("_log_contents", "_log_nodes"):
                self._connection.execute(f"UPDATE {table} SET span = ? WHERE log = ?", (span, log))

    def _span(self, trace: int, span_id: str) -> tuple[int | None, bool]:
        """(the row of a span if it has come, whether it is one of our tracer's)."""
        row = self._connection.execute(
            "SELECT id, json_extract(facts, '$.own') FROM _spans WHERE trace = ? AND span_id = ?",
            (trace, span_id),
        ).fetchone()
        return (None, False) if row is None else (int(row[0]), bool(row[1]))

    def _trace(self, record: LogRecord, now_ns: int) -> int | None:
        """The row of the record's trace, made if it is new; None when it, or the span, was removed.

        Unlike late spans, these are not counted: the span that they belong to was.
        """
        execute = self._connection.execute
        row = execute("SELECT id FROM _traces WHERE trace_id = ?", (record.trace_id,)).fetchone()
        whole = record.span_id if row is not None else ""
        late = (record.trace_id, record.span_id, whole, now_ns - REMEMBERED_NS)
        if execute(LATE, late).fetchone() is not None:
            return None
        if row is not None:
            return int(row[0])
        made = execute("INSERT INTO _traces (trace_id) VALUES (?)", (record.trace_id,)).lastrowid
        assert made is not None
        return made

    def _refer(self, log: int, span: int | None, refs: list[tuple[str, int]]) -> None:
        for kind, row in refs:
            self._connection.execute(
                "INSERT INTO _log_nodes (node, log, span) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
                if kind == "node"
                else "INSERT INTO _log_contents (content, log, span) VALUES (?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (row, log, span),
            )


def _digest(record: LogRecord, texts: list[str]) -> bytes:
    """What tells a record from all others: all that it says."""
    said = [
        *(record.trace_id, record.span_id, escape_surrogates(record.event_name)),
        *(record.time_ns, record.observed_ns, record.severity_number),
        *(escape_surrogates(record.severity_text), record.flags, record.dropped_attributes),
    ]
    hashed = hashlib.blake2b(compact(said).encode(), digest_size=20)
    for text in texts:
        hashed.update(b"\0" + text.encode())
    return hashed.digest()
