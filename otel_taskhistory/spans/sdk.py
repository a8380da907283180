# SPDX-License-Identifier: Apache-2.0
"""A span of the OpenTelemetry SDK, ended or still running, as a `SpanRecord`.

Nothing is copied that the SDK guarantees not to change; the attributes of a running span are,
since its agent goes on writing to them.
"""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import format_span_id, format_trace_id

from otel_taskhistory.spans.record import (
    HAS_IS_REMOTE,
    IS_REMOTE,
    EventRecord,
    LinkRecord,
    SpanRecord,
)
from otel_taskhistory.spans.sdk_origin import resource_of, scope_of

_REMOTE: Final = HAS_IS_REMOTE | IS_REMOTE


def record_of(span: ReadableSpan) -> SpanRecord:
    """Convert one span.

    Raises:
        ValueError: the span has no valid context, so that it has no identity to be kept under.
    """
    context = span.get_span_context()
    if context is None or not context.is_valid:
        raise ValueError("a span without a valid context cannot be recorded")
    parent = span.parent
    attributes = span.attributes
    return SpanRecord(
        trace_id=format_trace_id(context.trace_id),
        span_id=format_span_id(context.span_id),
        parent_span_id=format_span_id(parent.span_id) if parent else None,
        parent_remote=bool(parent and parent.is_remote),
        name=span.name,
        kind=span.kind.name,
        start_ns=span.start_time or 0,
        end_ns=span.end_time,
        attributes=dict(attributes) if attributes else {},
        events=tuple(
            EventRecord(
                event.name,
                event.timestamp,
                event.attributes or {},
                _dropped(event.attributes),
            )
            for event in span.events
        ),
        links=tuple(
            LinkRecord(
                format_trace_id(link.context.trace_id),
                format_span_id(link.context.span_id),
                link.context.trace_state.to_header(),
                int(link.context.trace_flags),
                link.attributes or {},
                _dropped(link.attributes),
            )
            for link in span.links
        ),
        resource=resource_of(span.resource),
        scope=scope_of(span.instrumentation_scope),
        status_code=span.status.status_code.name,
        status_message=span.status.description or None,
        trace_state=context.trace_state.to_header(),
        # As OTLP has it, so that the span is the same when it comes by that way.
        flags=int(context.trace_flags) | (_REMOTE if parent and parent.is_remote else 0),
        dropped_attributes=span.dropped_attributes,
        dropped_events=span.dropped_events,
        dropped_links=span.dropped_links,
    )


def _dropped(attributes: Any) -> int:
    """How many attributes the SDK's limits took from an event or a link."""
    return getattr(attributes, "dropped", 0)
