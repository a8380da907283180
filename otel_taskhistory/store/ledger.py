# SPDX-License-Identifier: Apache-2.0
"""Spans exactly as they came, one row each, with their long values by reference.

Which version of a span is kept does not depend on the order of deliveries: ended beats open, then
the later end, then the longer content, then the greater digest. Of a running span the newest
snapshot counts.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.spans.encode import Encoded, encode, escape_surrogates
from otel_taskhistory.spans.record import OriginRecord, SpanRecord
from otel_taskhistory.store.contents import SHARE_FROM, Contents, compact
from otel_taskhistory.store.pictures import take_out

ATTRIBUTES, EVENTS, LINKS = 1, 2, 4
"""Bits of ``_spans.templates``: which of the columns is a template."""

_MAX: Final = 2**63 - 1

_INSERT: Final = """
INSERT INTO _spans (trace, span_id, parent_span_id, parent_remote, name, kind, start_ns, end_ns,
    status_code, status_message, trace_state, flags, dropped_attributes, dropped_events,
    dropped_links, resource, scope, role, facts, process, seen_ns, size, marks, templates,
    attributes, events, links)
VALUES (:trace, :span_id, :parent_span_id, :parent_remote, :name, :kind, :start_ns, :end_ns,
    :status_code, :status_message, :trace_state, :flags, :dropped_attributes, :dropped_events,
    :dropped_links, :resource, :scope, :role, :facts, :process, :seen_ns, :size, :marks, :templates,
    :attributes, :events, :links)
"""

_UPDATE: Final = """
UPDATE _spans SET parent_span_id = :parent_span_id, parent_remote = :parent_remote, name = :name,
    kind = :kind, start_ns = :start_ns, end_ns = :end_ns, status_code = :status_code,
    status_message = :status_message, trace_state = :trace_state, flags = :flags,
    dropped_attributes = :dropped_attributes, dropped_events = :dropped_events,
    dropped_links = :dropped_links, resource = :resource, scope = :scope, role = :role,
    facts = :facts, process = :process, seen_ns = :seen_ns, size = :size, marks = :marks,
    templates = :templates, attributes = :attributes, events = :events, links = :links
WHERE id = :id
"""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one record.

    Attributes:
        row: the span's row id.
        trace: the row id of its trace.
        new: it was not known before.
        changed: the ledger now says something that it did not say before.
        was_open: it was known, and running.
        dropped_before: attributes, events and links that the row counted as dropped before.
    """

    row: int
    trace: int
    new: bool
    changed: bool
    was_open: bool
    dropped_before: int = 0


class Ledger:
    """Writes spans over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection, contents: Contents) -> None:
        self._connection = connection
        self._contents = contents

    def trace(self, trace_id: str) -> int:
        """The row of a trace, made if it is new."""
        row = self._connection.execute(
            "SELECT id FROM _traces WHERE trace_id = ?", (trace_id,)
        ).fetchone()
        if row:
            return int(row[0])
        made = self._connection.execute(
            "INSERT INTO _traces (trace_id) VALUES (?)", (trace_id,)
        ).lastrowid
        assert made is not None
        return made

    def write(
        self,
        record: SpanRecord,
        *,
        role: str,
        facts: str,
        process: int | None,
        seen_ns: int,
        marks: set[str],
    ) -> Written:
        """Write one span, or leave the version that is there when it is the better one."""
        trace = self.trace(record.trace_id)
        known = self._connection.execute(
            "SELECT id, end_ns, size, templates, attributes, events, links, status_code, name,"
            " dropped_attributes + dropped_events + dropped_links"
            " FROM _spans WHERE trace = ? AND span_id = ?",
            (trace, record.span_id),
        ).fetchone()
        if known and known[1] is not None and record.end_ns is None:
            return Written(known[0], trace, new=False, changed=False, was_open=False)
        if known and known[1] is not None and _earlier(_fits(record.end_ns or 0), known[1]):
            return Written(known[0], trace, new=False, changed=False, was_open=False)
        row = self._row(record, trace, marks)
        if known and known[1] == row["end_ns"] and not self._better(record, row, known):
            return Written(known[0], trace, new=False, changed=False, was_open=known[1] is None)
        refs = row.pop("refs")
        row.update(role=role, facts=facts, process=process, seen_ns=seen_ns)
        if known:
            self._connection.execute(_UPDATE, {**row, "id": known[0]})
            span = int(known[0])
        else:
            span = self._connection.execute(_INSERT, row).lastrowid or 0
        self._refer(span, refs)
        return Written(
            span,
            trace,
            new=not known,
            changed=True,
            was_open=bool(known) and known[1] is None,
            dropped_before=known[9] if known else 0,
        )

    def _better(self, record: SpanRecord, row: dict[str, Any], known: tuple[Any, ...]) -> bool:
        """Whether `record`, which ended when the known one did, is to replace it."""
        if record.end_ns is None:
            return True
        columns = ("templates", "attributes", "events", "links", "status_code", "name")
        if tuple(row[column] for column in columns) == known[3:9]:
            return False
        if row["size"] != known[2]:
            return bool(row["size"] > known[2])
        return self._digest_of(record) > self._digest_in(known[0])

    @staticmethod
    def _digest_of(record: SpanRecord) -> bytes:
        values = (record.attributes, events_value(record), links_value(record))
        texts = [take_out(encode(value).text)[0] for value in values]
        return _digest([record.name, record.status_code, *texts])

    def _digest_in(self, span: int) -> bytes:
        found = self._connection.execute(
            "SELECT spans.name, spans.status_code, spans.attributes, spans.events, spans.links"
            " FROM _spans AS own JOIN _traces AS trace ON trace.id = own.trace"
            " JOIN spans ON spans.trace_id = trace.trace_id AND spans.span_id = own.span_id"
            " WHERE own.id = ?",
            (span,),
        )
        return _digest(found.fetchone())

    def _row(self, record: SpanRecord, trace: int, marks: set[str]) -> dict[str, Any]:
        marks = set(marks)
        refs: list[tuple[str, int]] = []
        size = 0
        columns: dict[str, str] = {}
        templates = 0
        for bit, column, value in (
            (ATTRIBUTES, "attributes", record.attributes),
            (EVENTS, "events", events_value(record)),
            (LINKS, "links", links_value(record)),
        ):
            encoded = encode(value, hole_from=SHARE_FROM)
            if encoded.reduced:
                marks.add(column)
            text, used = self._stored(encoded, trace)
            columns[column] = text
            size += sum(len(p) if isinstance(p, str) else len(p.text) for p in encoded.pieces)
            if used is not None:
                templates |= bit
                refs += used
        texts: dict[str, str | None] = {
            "name": record.name,
            "status_message": record.status_message,
            "trace_state": record.trace_state,
        }
        for name, said in texts.items():
            if said is not None and (escaped := escape_surrogates(str(said))) != said:
                texts[name] = escaped
                marks.add(name)
        return {
            "trace": trace,
            "span_id": record.span_id,
            "parent_span_id": record.parent_span_id,
            "parent_remote": record.parent_remote,
            **texts,
            "kind": record.kind,
            "start_ns": _fits(record.start_ns),
            "end_ns": None if record.end_ns is None else _fits(record.end_ns),
            "status_code": record.status_code,
            "flags": record.flags,
            "dropped_attributes": _count(record.dropped_attributes),
            "dropped_events": _count(record.dropped_events),
            "dropped_links": _count(record.dropped_links),
            "resource": self._origin(record.resource, marks, "resource"),
            "scope": self._origin(record.scope, marks, "scope"),
            "size": size,
            "marks": compact(sorted(marks)) if marks else None,
            "templates": templates,
            **columns,
            "refs": refs,
        }

    def _origin(self, origin: OriginRecord, marks: set[str], name: str) -> int:
        encoded = encode(origin_value(origin))
        if encoded.reduced:
            marks.add(name)
        return self._contents.text(encoded.text)

    def _stored(self, encoded: Encoded, trace: int) -> tuple[str, list[tuple[str, int]] | None]:
        """The text of a column, and the rows it refers to, or None when it is no template."""
        if all(isinstance(piece, str) for piece in encoded.pieces):
            return encoded.text, None
        refs: list[tuple[str, int]] = []
        pieces: list[Any] = []
        for piece in encoded.pieces:
            if isinstance(piece, str):
                pieces.append(piece)
                continue
            listing = None
            if piece.text.startswith("["):
                listing = self._contents.messages(piece.text, (trace, piece.key))
            if listing is not None:
                refs.append(("node", listing.node))
                pieces.append([listing.node, listing.opening, listing.separator, listing.closing])
            else:
                content = self._contents.text(piece.text)
                refs.append(("content", content))
                pieces.append(content)
        return compact(pieces), refs

    def _refer(self, span: int, refs: list[tuple[str, int]]) -> None:
        for kind, row in refs:
            self._connection.execute(
                "INSERT INTO _span_nodes (node, span) VALUES (?, ?) ON CONFLICT DO NOTHING"
                if kind == "node"
                else "INSERT INTO _span_contents (content, span) VALUES (?, ?)"
                " ON CONFLICT DO NOTHING",
                (row, span),
            )


def _digest(texts: Iterable[str]) -> bytes:
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=20).digest()


def events_value(record: SpanRecord) -> list[Mapping[str, Any]]:
    """The events as the ledger keeps them."""
    return [
        {
            "name": event.name,
            "time_unix_nano": event.time_ns,
            "attributes": event.attributes,
            "dropped_attributes_count": event.dropped_attributes,
        }
        for event in record.events
    ]


def links_value(record: SpanRecord) -> list[Mapping[str, Any]]:
    """The links as the ledger keeps them."""
    return [
        {
            "trace_id": link.trace_id,
            "span_id": link.span_id,
            "trace_state": link.trace_state,
            "flags": link.flags,
            "attributes": link.attributes,
            "dropped_attributes_count": link.dropped_attributes,
        }
        for link in record.links
    ]


def origin_value(origin: OriginRecord) -> Mapping[str, Any]:
    """A resource or scope as the ledger keeps it."""
    return {
        "name": origin.name,
        "version": origin.version,
        "schema_url": origin.schema_url,
        "attributes": origin.attributes,
        "dropped_attributes_count": origin.dropped_attributes,
    }


def _fits(ns: int) -> int | str:
    """A time that does not fit SQLite's 64 bit is kept as its digits, which sort after numbers."""
    return ns if -_MAX <= ns <= _MAX else str(ns)


def _earlier(one: int | str, other: int | str) -> bool:
    return int(one) < int(other)


def _count(number: int) -> int:
    return min(max(number, 0), _MAX)
