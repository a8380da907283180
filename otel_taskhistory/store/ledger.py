# SPDX-License-Identifier: Apache-2.0
"""Spans exactly as they came, one row each, with their long values by reference.

Which version of a span is kept does not depend on the order of deliveries: ended beats open, then
the later end, then the longer content, then the greater digest. Of a running span the snapshot
that was taken last counts.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.spans.encode import Encoded, encode, escape_surrogates
from otel_taskhistory.spans.record import OriginRecord, SpanRecord
from otel_taskhistory.store.contents import SHARE_FROM, Contents, compact
from otel_taskhistory.store.filling import filled
from otel_taskhistory.store.late import LateSpans
from otel_taskhistory.store.pictures import might_hold_pictures

ATTRIBUTES, EVENTS, LINKS = 1, 2, 4
"""Bits of ``_spans.templates``: which of the columns is a template."""

_MAX: Final = 2**63 - 1
_ORIGINS: Final = 64
_REFERRING: Final = 256
_MAX_COUNT: Final = 2**32 - 1  # as in OTLP; a sum of such does not overflow

_SAID: Final = (
    *("parent_span_id", "parent_remote", "name", "kind", "start_ns", "status_code"),
    *("status_message", "trace_state", "flags", "dropped_attributes", "dropped_events"),
    *("dropped_links", "resource", "scope", "templates", "attributes", "events", "links"),
)
"""Columns that say what a version of a span says, but for its end."""

_KEPT: Final = ("end_ns", "size", "seen_ns", "facts", "role", "process", "marks")
"""Columns that say how it is kept, and its end."""

_KNOWN: Final = f"""
SELECT id, {", ".join(_KEPT)}, {", ".join(_SAID)} FROM _spans
WHERE trace = ? AND span_id = ?
"""
_FIRST_SAID: Final = 1 + len(_KEPT)
_DROPPED: Final = ("dropped_attributes", "dropped_events", "dropped_links")
_LONG_FACTS: Final = ("goal", "result", "error", "error_type")

# The same texts whatever the rows are by which they are shared.
_TEXTS: Final = f"""
SELECT {filled(":attributes", ":templates & 1")}, {filled(":events", ":templates & 2")},
    {filled(":links", ":templates & 4")},
    (SELECT text FROM _contents WHERE id = :resource),
    (SELECT text FROM _contents WHERE id = :scope)
"""

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


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one record.

    Attributes:
        row: the span's row id.
        trace: the row id of its trace.
        new: it was not known before.
        changed: the ledger now says something that it did not say before.
        known: what the row said before, if there was one and it has changed.
        marked: some value in it has no exact representation; the row says where.
        name: the span's, as it was written.
        said: its facts likewise: texts, or the numbers of their content rows. None when it was
            not written but read again.
    """

    row: int
    trace: int
    new: bool
    changed: bool
    known: Known | None = None
    marked: bool = False
    name: str = ""
    said: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What a row said before it changed.

    Attributes:
        role: see `SpanFacts`.
        facts: likewise, as the ledger keeps them.
        parent_span_id, start_ns: as in the row.
        dropped: attributes, events and links that were dropped.
    """

    role: str
    facts: str
    parent_span_id: str | None
    start_ns: int | str
    dropped: int


class Ledger:
    """Writes spans over one connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection, contents: Contents) -> None:
        self._connection = connection
        self._contents = contents
        self._late = LateSpans(connection)
        self._origins: dict[int, tuple[OriginRecord, str]] = {}
        """The texts of resources and scopes by identity: most spans have the same ones."""
        self._referred: dict[int, set[tuple[str, int]]] = {}
        """What spans that came last are known to refer to."""
        self._traces: dict[str, int] = {}

    def begin(self, *, still: bool) -> None:
        """A transaction has begun.

        Args:
            still: nothing can have been removed since the last one was committed.
        """
        if not still or len(self._traces) > _REFERRING:
            self._traces.clear()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._referred.clear()
        self._traces.clear()

    def trace(self, trace_id: str, now_ns: int) -> int | None:
        """The row of a trace, made if it is new; None when it was removed."""
        known = self._traces.get(trace_id)
        if known is not None:
            return known
        row = self._connection.execute(
            "SELECT id FROM _traces WHERE trace_id = ?", (trace_id,)
        ).fetchone()
        if row:
            self._traces[trace_id] = int(row[0])
            return int(row[0])
        if self._late.has_trace(trace_id, now_ns):
            return None
        made = self._connection.execute(
            "INSERT INTO _traces (trace_id) VALUES (?)", (trace_id,)
        ).lastrowid
        assert made is not None
        self._traces[trace_id] = made
        return made

    def write(
        self,
        record: SpanRecord,
        facts: SpanFacts,
        *,
        process: int | None,
        seen_ns: int,
        marks: Iterable[str] = (),
    ) -> Written | None:
        """Write one span, or leave the version that is there when it is the better one.

        Returns:
            None when its task was removed.
        """
        trace = self.trace(record.trace_id, seen_ns)
        if trace is None:
            return None
        known = self._connection.execute(_KNOWN, (trace, record.span_id)).fetchone()
        if not known and self._late.has_span(
            record.trace_id, record.span_id, record.parent_span_id, seen_ns
        ):
            return None
        if known and _is_older(record.end_ns, seen_ns, known[1], known[3]):
            return Written(known[0], trace, new=False, changed=False)
        row = self._row(record, trace, set(marks))
        refs: list[tuple[str, int]] = row.pop("refs")
        kept = self._facts(facts, refs)
        row["facts"] = compact(kept)
        # What is stored reduced as a whole is counted as that.
        marked = row["marks"] is not None and "reduced" not in marks
        row.update(role=facts.role, process=process, seen_ns=seen_ns)
        if not known:
            span = self._connection.execute(_INSERT, row).lastrowid
            assert span is not None
            self._refer(span, refs)
            name = row["name"]
            return Written(span, trace, new=True, changed=True, marked=marked, name=name, said=kept)
        span = int(known[0])
        replaced = dict(zip(_SAID, known[_FIRST_SAID:], strict=True))
        better = self._is_better(row, known)
        if better:
            # Contents of the version that goes stay with the span, to be removed with it.
            refs += _others(replaced, row)
            self._update(span, row, known)
        else:
            refs += _others(row, replaced)
            self._connection.execute(
                "UPDATE _spans SET seen_ns = max(seen_ns, ?) WHERE id = ?", (seen_ns, span)
            )
        self._refer(span, refs)
        if not better:
            return Written(span, trace, new=False, changed=False)
        before = Known(
            known[5],
            known[4],
            replaced["parent_span_id"],
            replaced["start_ns"],
            sum(replaced[column] for column in _DROPPED),
        )
        return Written(
            *(span, trace),
            new=False,
            changed=True,
            known=before,
            marked=marked,
            name=row["name"],
            said=kept,
        )

    def reread(
        self, span: int, facts: SpanFacts, marks: Iterable[str], process: int | None
    ) -> Known:
        """Write what a span is read as now, whatever it was read as before.

        Args:
            span: its row.
            facts: what it is read as.
            marks: all marks of the row.
            process: who is to answer for what a span announces that was not known to do so.
        """
        found = self._connection.execute(
            "SELECT role, facts, parent_span_id, start_ns,"
            " dropped_attributes + dropped_events + dropped_links, marks FROM _spans WHERE id = ?",
            (span,),
        ).fetchone()
        refs: list[tuple[str, int]] = []
        said = compact(self._facts(facts, refs))
        marked = compact(sorted(marks)) if marks else None
        if (facts.role, said, marked) != (found[0], found[1], found[5]):
            self._connection.execute(
                "UPDATE _spans SET role = ?, facts = ?, marks = ?, process = CASE"
                " WHEN end_ns IS NULL THEN process WHEN ? = 'pending' THEN coalesce(process, ?)"
                " END WHERE id = ?",
                (facts.role, said, marked, facts.role, process, span),
            )
            self._refer(span, refs)
        return Known(found[0], found[1], found[2], int(found[3]), found[4])

    def _update(self, span: int, row: dict[str, Any], known: tuple[Any, ...]) -> None:
        """Write what differs: SQLite would rewrite the index entries of the rest too."""
        before = zip((*_KEPT, *_SAID), known[1:], strict=True)
        changed = [name for name, value in before if row[name] != value]
        if row["end_ns"] is not None and "end_ns" not in changed:
            changed.append("end_ns")  # by which a trigger knows that there is another version
        said = ", ".join(f"{name} = ?" for name in changed)
        self._connection.execute(
            f"UPDATE _spans SET {said} WHERE id = ?", (*(row[name] for name in changed), span)
        )

    def _is_better(self, row: dict[str, Any], known: tuple[Any, ...]) -> bool:
        """Whether a version that is not older than the known one is to replace it."""
        said = tuple(row[column] for column in _SAID)
        if said == known[_FIRST_SAID:] and row["end_ns"] == known[1]:
            return False
        if row["end_ns"] != known[1] or (row["end_ns"] is None and row["seen_ns"] > known[3]):
            return True
        if row["size"] != known[2]:
            return bool(row["size"] > known[2])
        return self._digest(row) > self._digest(dict(zip(_SAID, known[_FIRST_SAID:], strict=True)))

    def _digest(self, row: dict[str, Any]) -> bytes:
        texts = self._connection.execute(_TEXTS, row).fetchone()
        said = [row[column] for column in _SAID[: _SAID.index("resource")]]
        hashed = hashlib.blake2b(compact(said).encode(), digest_size=20)
        for text in texts:
            hashed.update(b"\0" + text.encode())
        return hashed.digest()

    def _facts(self, facts: SpanFacts, refs: list[tuple[str, int]]) -> dict[str, Any]:
        """What assembly needs of a span when others of its trace come later.

        Text as it is when short, else the number of its content row.
        """
        said: dict[str, Any] = {
            "own": facts.own or None,
            "status": facts.status,
            "attempt": facts.attempt if facts.attempt != 1 else None,
            "step_index": facts.step_index,
            "linked": facts.linked_traces[0] if facts.linked_traces else None,
            "announces": facts.announces,
            "announced_parent": facts.announced_parent,
        }
        for name in ("agent", "conversation_id", "key", "parent_task_id", *_LONG_FACTS):
            text = getattr(facts, name)
            if text is None:
                continue
            text = escape_surrogates(text)
            if len(text) >= SHARE_FROM or might_hold_pictures(text):
                said[name] = self._contents.text(text)
                refs.append(("content", said[name]))
            else:
                said[name] = text
        return {name: value for name, value in said.items() if value is not None}

    def _row(self, record: SpanRecord, trace: int, marks: set[str]) -> dict[str, Any]:
        marks = set(marks)
        refs: list[tuple[str, int]] = []
        size = 0
        columns: dict[str, str] = {}
        templates = 0
        for bit, column, value, named_to in (
            (ATTRIBUTES, "attributes", record.attributes, 1),
            (EVENTS, "events", events_value(record), 3),
            (LINKS, "links", links_value(record), 3),
        ):
            if type(value) is list and not value:  # most spans have neither events nor links
                columns[column] = "[]"
                size += 2
                continue
            encoded = encode(value, hole_from=SHARE_FROM, named_to=named_to)
            if encoded.reduced:
                marks.add(column)
            text, used = self.stored(encoded, trace)
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
            "parent_remote": int(record.parent_remote),
            **texts,
            "kind": record.kind,
            "start_ns": fits(record.start_ns),
            "end_ns": None if record.end_ns is None else fits(record.end_ns),
            "status_code": record.status_code,
            "flags": record.flags,
            "dropped_attributes": to_count(record.dropped_attributes),
            "dropped_events": to_count(record.dropped_events),
            "dropped_links": to_count(record.dropped_links),
            "resource": self._origin(record.resource, marks, "resource"),
            "scope": self._origin(record.scope, marks, "scope"),
            "size": size,
            "marks": compact(sorted(marks)) if marks else None,
            "templates": templates,
            **columns,
            "refs": refs,
        }

    def _origin(self, origin: OriginRecord, marks: set[str], name: str) -> int:
        known = self._origins.get(id(origin))
        if known is not None and known[0] is origin:
            return self._contents.text(known[1])
        encoded = encode(origin_value(origin))
        if encoded.reduced:
            marks.add(name)
        else:
            if len(self._origins) >= _ORIGINS:
                self._origins.clear()
            self._origins[id(origin)] = (origin, encoded.text)
        return self._contents.text(encoded.text)

    def stored(self, encoded: Encoded, trace: int) -> tuple[str, list[tuple[str, int]] | None]:
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
        known = self._referred.setdefault(span, set())
        if len(self._referred) > _REFERRING:
            del self._referred[next(iter(self._referred))]
        for kind, row in refs:
            if (kind, row) in known:
                continue
            known.add((kind, row))
            self._connection.execute(
                "INSERT INTO _span_nodes (node, span) VALUES (?, ?) ON CONFLICT DO NOTHING"
                if kind == "node"
                else "INSERT INTO _span_contents (content, span) VALUES (?, ?)"
                " ON CONFLICT DO NOTHING",
                (row, span),
            )


def _others(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, int]]:
    """What only the one version of a span refers to, beside its templates."""
    names = ("resource", "scope")
    return [("content", one[name]) for name in names if one[name] != other[name]]


def _is_older(end_ns: int | None, seen_ns: int, known_end: int | str | None, seen: int) -> bool:
    """Whether a version ended, or while both are open was seen, before the known one."""
    if known_end is None:
        return end_ns is None and seen_ns < seen
    return end_ns is None or end_ns < int(known_end)


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


def fits(ns: int) -> int | str:
    """A time that does not fit SQLite's 64 bit is kept as its digits, which sort after numbers."""
    return ns if -_MAX <= ns <= _MAX else str(ns)


def dropped_of(record: SpanRecord) -> int:
    """How many attributes, events and links of a span were dropped, as the ledger counts them."""
    dropped = (record.dropped_attributes, record.dropped_events, record.dropped_links)
    return sum(to_count(number) for number in dropped)


def to_count(number: int) -> int:
    """A number of things as OTLP has it: 32 bit without a sign."""
    return min(max(number, 0), _MAX_COUNT)
