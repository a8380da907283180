# SPDX-License-Identifier: Apache-2.0
"""A log record of the OpenTelemetry SDK as a `LogRecord`.

The SDK's names for these classes were still moving between 1.39 and 1.45; what is read here is
what they have had in common.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import format_span_id, format_trace_id

from otel_taskhistory.spans.record import LogRecord
from otel_taskhistory.spans.sdk_origin import resource_of, scope_of

_OLD_EVENT_NAME = "event.name"


def log_record_of(readable: Any) -> LogRecord | None:
    """Convert one `ReadableLogRecord`; None for one that was not written within a span."""
    said = readable.log_record
    trace_id, span_id = said.trace_id, said.span_id
    if not trace_id or not span_id:
        return None
    attributes = dict(said.attributes) if said.attributes else {}
    named = getattr(said, "event_name", None) or attributes.get(_OLD_EVENT_NAME)
    severity = said.severity_number
    return LogRecord(
        trace_id=format_trace_id(trace_id),
        span_id=format_span_id(span_id),
        event_name=named if isinstance(named, str) else "",
        body=said.body,
        attributes=attributes,
        time_ns=said.timestamp or 0,
        observed_ns=said.observed_timestamp or 0,
        severity_number=0 if severity is None else int(severity.value),
        severity_text=said.severity_text or "",
        flags=int(said.trace_flags or 0),
        dropped_attributes=getattr(readable, "dropped_attributes", 0),
        resource=resource_of(readable.resource),
        scope=scope_of(readable.instrumentation_scope),
    )
