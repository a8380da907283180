# SPDX-License-Identifier: Apache-2.0
"""Records with new identities: a copy of tasks that can lie beside the originals.

Every id of a trace or a span that is in the copy becomes a new one, wherever it stands: in parents,
links and, where a text is nothing but such an id, in attributes and bodies. Each root gets a link
to the span that it is a copy of.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from otel_taskhistory import semconv
from otel_taskhistory.spans.otlp import Given
from otel_taskhistory.spans.record import EventRecord, LinkRecord, LogRecord, SpanRecord


class Copies:
    """New ids for old ones; `know` all records before `of` is asked for the first."""

    def __init__(self) -> None:
        self._new: dict[str, str] = {}

    def know(self, record: SpanRecord | LogRecord) -> None:
        """This record is in the copy."""
        for old, size in ((record.trace_id, 16), (record.span_id, 8)):
            if old not in self._new:
                self._new[old] = secrets.token_hex(size)

    def of(self, given: Given) -> Given:
        """The copy of a record."""
        record = given.record
        if isinstance(record, LogRecord):
            copied: SpanRecord | LogRecord = replace(
                record,
                trace_id=self._new[record.trace_id],
                span_id=self._new[record.span_id],
                body=self._value(record.body),
                attributes=self._value(record.attributes),
            )
        else:
            copied = self._span(record)
        return replace(given, record=copied)

    def _span(self, record: SpanRecord) -> SpanRecord:
        links = tuple(self._link(link) for link in record.links)
        if record.parent_span_id not in self._new:
            said = {semconv.TASKHISTORY_COPY_OF: True}
            links += (LinkRecord(record.trace_id, record.span_id, attributes=said),)
        parent = record.parent_span_id
        return replace(
            record,
            trace_id=self._new[record.trace_id],
            span_id=self._new[record.span_id],
            parent_span_id=None if parent is None else self._new.get(parent, parent),
            attributes=self._value(record.attributes),
            events=tuple(self._event(event) for event in record.events),
            links=links,
        )

    def _link(self, link: LinkRecord) -> LinkRecord:
        if link.trace_id not in self._new:
            return replace(link, attributes=self._value(link.attributes))
        return replace(
            link,
            trace_id=self._new[link.trace_id],
            span_id=self._new.get(link.span_id, link.span_id),
            attributes=self._value(link.attributes),
        )

    def _event(self, event: EventRecord) -> EventRecord:
        return replace(event, attributes=self._value(event.attributes))

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._new.get(value, value)
        if isinstance(value, Mapping):
            return {key: self._value(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._value(one) for one in value]
        return value
