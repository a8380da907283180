# SPDX-License-Identifier: Apache-2.0
"""Span records and log records as OTLP/JSON, so that `otel_taskhistory.spans.otlp` reads the same.

The form is that of the Collector's file exporter: ids in hex, 64-bit numbers as text, enums as
numbers, one export request a line. What JSON has no form for is written as protobuf's JSON mapping
has it (``"NaN"``, base64); a whole number beyond 64 bit is an ``intValue`` with more digits (in hex
beyond some thousand, which Python would not read), and half a surrogate pair a JSON escape.

A span that has not ended has no ``endTimeUnixNano``. What we know of a record and OTLP has no field
for stands in a field ``taskhistory`` beside the others, which receivers pass over.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from otel_taskhistory.spans.otlp import KINDS, KNOWN, MARKS, STATUSES
from otel_taskhistory.spans.record import (
    HAS_IS_REMOTE,
    IS_REMOTE,
    Attributes,
    EventRecord,
    LinkRecord,
    LogRecord,
    OriginRecord,
    SpanRecord,
)

Document = dict[str, Any]

_MOST_BITS: Final = 13_000
"""Of a whole number in decimal: Python reads and writes 4,300 digits."""

_compact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ascii: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def spans_document(
    records: Iterable[SpanRecord], known: Iterable[Document] | None = None
) -> Document:
    """An export request of traces; spans that follow each other share their resource and scope.

    Args:
        known: of each record what `known_of` gives; None where nothing more is known.
    """
    said = iter(known) if known is not None else None

    def write(record: SpanRecord) -> Document:
        more = next(said) if said is not None else None
        return _span(record) | ({KNOWN: more} if more else {})

    return {"resourceSpans": list(_groups(records, "scopeSpans", "spans", write))}


def known_of(
    marks: Iterable[str] = (),
    *,
    interrupted_ns: int | None = None,
    ended: bool = False,
    pinned: str | None = None,
) -> Document:
    """What a history knows of a record and OTLP has no field for.

    Args:
        marks: parts of it that are not exactly what was recorded; of those that can be named.
        interrupted_ns: when the process ended that left the span open.
        ended: the span has ended though its time is 0, which stands for none in OTLP.
        pinned: the id of its task, when that is pinned; of one span of it.
    """
    found: Document = {}
    if ended:
        found["ended"] = True
    if interrupted_ns is not None:
        found["interruptedTimeUnixNano"] = str(interrupted_ns)
    named = sorted(MARKS.intersection(marks))
    if named:
        found["marks"] = named
    if pinned is not None:
        found["pinnedTaskId"] = pinned
    return found


def logs_document(
    records: Iterable[LogRecord], known: Iterable[Document] | None = None
) -> Document:
    """An export request of logs, likewise."""
    said = iter(known) if known is not None else None

    def write(record: LogRecord) -> Document:
        more = next(said) if said is not None else None
        return _log(record) | ({KNOWN: more} if more else {})

    return {"resourceLogs": list(_groups(records, "scopeLogs", "logRecords", write))}


def to_line(document: Document) -> bytes:
    """A document as one line of UTF-8, always the same for the same document."""
    try:
        return _compact.encode(document).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair: only an escape can say it
        return _ascii.encode(document).encode() + b"\n"


def _groups(records: Iterable[Any], scopes: str, inner: str, write: Any) -> Iterator[Document]:
    for resource, of_resource in groupby(records, key=lambda record: record.resource):
        groups = []
        for scope, of_scope in groupby(of_resource, key=lambda record: record.scope):
            group: Document = {"scope": _origin(scope)} if scope != OriginRecord() else {}
            group[inner] = [write(record) for record in of_scope]
            if scope.schema_url:
                group["schemaUrl"] = scope.schema_url
            groups.append(group)
        around: Document = {"resource": _origin(resource), scopes: groups}
        if resource.schema_url:
            around["schemaUrl"] = resource.schema_url
        yield around


def _origin(origin: OriginRecord) -> Document:
    found: Document = {}
    if origin.name:
        found["name"] = origin.name
    if origin.version is not None:
        found["version"] = origin.version
    return found | _attributes(origin.attributes, origin.dropped_attributes)


def _span(record: SpanRecord) -> Document:
    found: Document = {"traceId": record.trace_id, "spanId": record.span_id}
    if record.trace_state:
        found["traceState"] = record.trace_state
    if record.parent_span_id is not None:
        found["parentSpanId"] = record.parent_span_id
    flags = record.flags
    if record.parent_remote:
        flags |= HAS_IS_REMOTE | IS_REMOTE
    found |= {
        "flags": flags,
        "name": record.name,
        "kind": KINDS.index(record.kind),
        "startTimeUnixNano": str(record.start_ns),
    }
    if record.end_ns is not None:
        found["endTimeUnixNano"] = str(record.end_ns)
    found |= _attributes(record.attributes, record.dropped_attributes)
    if record.events:
        found["events"] = [_event(event) for event in record.events]
    if record.dropped_events:
        found["droppedEventsCount"] = record.dropped_events
    if record.links:
        found["links"] = [_link(link) for link in record.links]
    if record.dropped_links:
        found["droppedLinksCount"] = record.dropped_links
    status: Document = {}
    if record.status_message:
        status["message"] = record.status_message
    if record.status_code != STATUSES[0]:
        status["code"] = STATUSES.index(record.status_code)
    found["status"] = status
    return found


def _event(event: EventRecord) -> Document:
    return {
        "timeUnixNano": str(event.time_ns),
        "name": event.name,
        **_attributes(event.attributes, event.dropped_attributes),
    }


def _link(link: LinkRecord) -> Document:
    found: Document = {"traceId": link.trace_id, "spanId": link.span_id}
    if link.trace_state:
        found["traceState"] = link.trace_state
    if link.flags:
        found["flags"] = link.flags
    return found | _attributes(link.attributes, link.dropped_attributes)


def _log(record: LogRecord) -> Document:
    found: Document = {
        "timeUnixNano": str(record.time_ns),
        "observedTimeUnixNano": str(record.observed_ns),
    }
    if record.severity_number:
        found["severityNumber"] = record.severity_number
    if record.severity_text:
        found["severityText"] = record.severity_text
    if record.event_name:
        found["eventName"] = record.event_name
    if record.body is not None:
        found["body"] = any_value(record.body)
    found |= _attributes(record.attributes, record.dropped_attributes)
    if record.flags:
        found["flags"] = record.flags
    return found | {"traceId": record.trace_id, "spanId": record.span_id}


def _attributes(attributes: Attributes, dropped: int) -> Document:
    found: Document = {}
    if attributes:
        found["attributes"] = _pairs(attributes)
    if dropped:
        found["droppedAttributesCount"] = dropped
    return found


def _pairs(values: Mapping[Any, Any]) -> list[Document]:
    return [
        {"key": key if isinstance(key, str) else str(key), "value": any_value(value)}
        for key, value in values.items()
    ]


def any_value(value: Any) -> Document:
    """An AnyValue of any value that `otel_taskhistory.spans.encode.decode` returns."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value) if value.bit_length() <= _MOST_BITS else hex(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _not_finite(value)}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _pairs(value)}}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    return {"stringValue": str(value)}


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
