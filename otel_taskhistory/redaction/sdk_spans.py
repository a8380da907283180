# SPDX-License-Identifier: Apache-2.0
"""A `SpanRecord` as a span of the OpenTelemetry SDK, as exporters take it.

The inverse of `otel_taskhistory.spans.sdk.record_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from otel_taskhistory.spans.record import Attributes, LinkRecord, OriginRecord, SpanRecord

_T = TypeVar("_T")


def span_of(record: SpanRecord) -> ReadableSpan:
    """Convert one span that has ended.

    Raises:
        Exception: of many types, when the record holds what no span can hold.
    """
    if not isinstance(record.name, str) or not isinstance(record.start_ns, int):
        raise TypeError("the name of a span is a text, its start a whole number")
    context = _context(
        record.trace_id,
        record.span_id,
        flags=record.flags,
        trace_state=record.trace_state,
        remote=False,
    )
    parent = (
        None
        if record.parent_span_id is None
        else _context(
            record.trace_id,
            record.parent_span_id,
            flags=record.flags,
            trace_state="",
            remote=record.parent_remote,
        )
    )
    return ReadableSpan(
        name=record.name,
        context=context,
        parent=parent,
        resource=_resource(record.resource),
        attributes=_attributes(record.attributes, record.dropped_attributes),
        events=_bounded(
            [
                Event(
                    _text(event.name),
                    _attributes(event.attributes, event.dropped_attributes),
                    event.time_ns,
                )
                for event in record.events
            ],
            record.dropped_events,
        ),
        links=_bounded([_link(link) for link in record.links], record.dropped_links),
        kind=SpanKind.__members__.get(record.kind, SpanKind.INTERNAL),
        status=_status(record),
        start_time=record.start_ns,
        end_time=record.end_ns,
        instrumentation_scope=InstrumentationScope(
            _text(record.scope.name),
            record.scope.version,
            record.scope.schema_url,
            _attributes(record.scope.attributes, 0),
        ),
    )


def _context(
    trace_id: str, span_id: str, *, flags: int, trace_state: str, remote: bool
) -> SpanContext:
    return SpanContext(
        trace_id=int(trace_id, 16),
        span_id=int(span_id, 16),
        is_remote=remote,
        trace_flags=TraceFlags(flags & 0xFF),
        trace_state=TraceState.from_header([trace_state]) if trace_state else TraceState(),
    )


def _link(link: LinkRecord) -> Link:
    return Link(
        _context(
            link.trace_id,
            link.span_id,
            flags=link.flags,
            trace_state=link.trace_state,
            # OTLP's bit "the parent is remote", where it came with the link.
            remote=bool(link.flags & 0x200),
        ),
        _attributes(link.attributes, link.dropped_attributes),
    )


def _status(record: SpanRecord) -> Status:
    code = StatusCode[record.status_code]
    message = record.status_message if code is StatusCode.ERROR else None
    return Status(code, None if message is None else _text(message))


def _resource(origin: OriginRecord) -> Resource:
    return Resource(dict(origin.attributes), origin.schema_url or None)


def _attributes(attributes: Attributes, dropped: int) -> Any:
    bounded = BoundedAttributes(attributes=dict(attributes))
    bounded.dropped += dropped
    return bounded


def _bounded(items: Sequence[_T], dropped: int) -> BoundedList[_T]:
    bounded: BoundedList[_T] = BoundedList.from_seq(None, items)
    bounded.dropped = dropped
    return bounded


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name or a message is a text")
    return value
