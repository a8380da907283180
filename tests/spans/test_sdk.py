# SPDX-License-Identifier: Apache-2.0
"""A span of the SDK as a record: everything it knows, and nothing of it changes afterwards."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from otel_taskhistory.spans.sdk import record_of

REMOTE = SpanContext(
    trace_id=0xABC,
    span_id=0xDEF,
    is_remote=True,
    trace_flags=TraceFlags(TraceFlags.SAMPLED),
    trace_state=TraceState([("vendor", "value")]),
)


def provider(**limits: int) -> TracerProvider:
    """An SDK provider with a resource."""
    resource = Resource({"service.name": "desk"}, schema_url="https://example.org/r")
    return TracerProvider(resource=resource, span_limits=SpanLimits(**limits))


def test_everything_is_taken_over() -> None:
    """Identity, times, attributes, events, links, status, resource, scope and drops."""
    tracer = provider(max_attributes=2, max_events=1, max_link_attributes=1).get_tracer(
        "lib", "1.2", "https://example.org/s", {"scope": "yes"}
    )
    span = tracer.start_span(
        "work",
        context=trace.set_span_in_context(NonRecordingSpan(REMOTE)),
        kind=SpanKind.CLIENT,
        links=[Link(REMOTE, {"one": 1, "two": 2})],
        start_time=5,
    )
    for name in ("a", "b", "c"):
        span.set_attribute(name, name)
    span.add_event("first", timestamp=6)
    span.add_event("second", {"x": b"\xff"}, timestamp=7)
    span.set_status(Status(StatusCode.ERROR, "bad"))
    span.end(end_time=9)
    assert isinstance(span, ReadableSpan)
    record = record_of(span)
    assert record.trace_id == f"{0xABC:032x}"
    assert record.parent_span_id == f"{0xDEF:016x}"
    assert record.parent_remote
    assert (record.name, record.kind, record.start_ns, record.end_ns) == ("work", "CLIENT", 5, 9)
    assert record.attributes == {"b": "b", "c": "c"}
    assert record.dropped_attributes == 1
    assert [(event.name, event.time_ns, dict(event.attributes)) for event in record.events] == [
        ("second", 7, {"x": b"\xff"})
    ]
    assert record.dropped_events == 1
    (link,) = record.links
    assert (link.span_id, link.trace_state, link.flags) == (f"{0xDEF:016x}", "vendor=value", 1)
    assert dict(link.attributes) == {"two": 2}
    assert link.dropped_attributes == 1
    assert (record.status_code, record.status_message) == ("ERROR", "bad")
    assert record.resource.attributes["service.name"] == "desk"
    assert record.resource.schema_url == "https://example.org/r"
    assert (record.scope.name, record.scope.version) == ("lib", "1.2")
    assert record.scope.attributes == {"scope": "yes"}
    assert record.trace_state == "vendor=value"


def test_a_running_span_is_taken_as_it_is_now() -> None:
    """Its end is not known, and what its agent adds later is not in the record."""
    span = provider().get_tracer("lib").start_span("work", attributes={"a": 1})
    assert isinstance(span, ReadableSpan)
    record = record_of(span)
    span.set_attribute("b", 2)
    span.add_event("later")
    assert record.end_ns is None
    assert record.attributes == {"a": 1}
    assert record.events == ()


def test_a_span_without_identity_is_refused() -> None:
    """Without ids there is nothing to keep it under."""
    with pytest.raises(ValueError, match="valid context"):
        record_of(ReadableSpan("nobody", context=trace.INVALID_SPAN_CONTEXT))
