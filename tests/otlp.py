# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON as instrumentations have written it, as span records; for tests only."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_taskhistory.spans.record import EventRecord, LinkRecord, OriginRecord, SpanRecord

_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUSES = ("UNSET", "OK", "ERROR")
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200


def records_in(file: Path) -> Iterator[SpanRecord]:
    """The spans of a file of ExportTraceServiceRequests, one a line, in the order of lines."""
    for line in file.read_text(encoding="utf-8").splitlines():
        for resource_spans in json.loads(line).get("resourceSpans", []):
            resource = _origin(resource_spans.get("resource", {}), resource_spans)
            for scope_spans in resource_spans.get("scopeSpans", []):
                scope = _origin(scope_spans.get("scope", {}), scope_spans)
                for span in scope_spans.get("spans", []):
                    yield _record(span, resource, scope)


def _record(span: dict[str, Any], resource: OriginRecord, scope: OriginRecord) -> SpanRecord:
    flags = span.get("flags", 0)
    return SpanRecord(
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_span_id=span.get("parentSpanId") or None,
        name=span.get("name", ""),
        start_ns=int(span.get("startTimeUnixNano", 0)),
        end_ns=int(span.get("endTimeUnixNano", 0)),
        attributes=_attributes(span),
        events=tuple(
            EventRecord(
                event.get("name", ""),
                int(event.get("timeUnixNano", 0)),
                _attributes(event),
                event.get("droppedAttributesCount", 0),
            )
            for event in span.get("events", [])
        ),
        links=tuple(
            LinkRecord(
                link["traceId"],
                link["spanId"],
                link.get("traceState", ""),
                link.get("flags", 0),
                _attributes(link),
            )
            for link in span.get("links", [])
        ),
        resource=resource,
        scope=scope,
        kind=_KINDS[span.get("kind", 0)],
        status_code=_STATUSES[span.get("status", {}).get("code", 0)],
        status_message=span.get("status", {}).get("message"),
        trace_state=span.get("traceState", ""),
        flags=flags,
        parent_remote=bool(flags & _HAS_IS_REMOTE and flags & _IS_REMOTE),
        dropped_attributes=span.get("droppedAttributesCount", 0),
        dropped_events=span.get("droppedEventsCount", 0),
        dropped_links=span.get("droppedLinksCount", 0),
    )


def _origin(said: dict[str, Any], around: dict[str, Any]) -> OriginRecord:
    return OriginRecord(
        said.get("name", ""), said.get("version"), around.get("schemaUrl", ""), _attributes(said)
    )


def _attributes(said: dict[str, Any]) -> dict[str, Any]:
    return {item["key"]: _value(item.get("value", {})) for item in said.get("attributes", [])}


def _value(value: dict[str, Any]) -> Any:
    for kind, given in value.items():
        match kind:
            case "intValue":
                return int(given)
            case "doubleValue":
                return float(given)
            case "bytesValue":
                return base64.b64decode(given)
            case "arrayValue":
                return [_value(item) for item in given.get("values", [])]
            case "kvlistValue":
                return {item["key"]: _value(item["value"]) for item in given.get("values", [])}
            case _:
                return given
    return None
