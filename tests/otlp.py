# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON as instrumentations have written it, as spans and log records; for tests only."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from otel_taskhistory.spans.record import (
    EventRecord,
    LinkRecord,
    LogRecord,
    OriginRecord,
    SpanRecord,
)

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


def logs_in(file: Path) -> Iterator[LogRecord]:
    """The log records of a file of ExportLogsServiceRequests, in the order of lines."""
    for line in file.read_text(encoding="utf-8").splitlines():
        for resource_logs in json.loads(line).get("resourceLogs", []):
            resource = _origin(resource_logs.get("resource", {}), resource_logs)
            for scope_logs in resource_logs.get("scopeLogs", []):
                scope = _origin(scope_logs.get("scope", {}), scope_logs)
                for log in scope_logs.get("logRecords", []):
                    yield _log(log, resource, scope)


def logs_of(record: SpanRecord, logs: Iterable[LogRecord]) -> list[LogRecord]:
    """Those of the log records that were written within a span, in the order of time."""
    own = [log for log in logs if (log.trace_id, log.span_id) == (record.trace_id, record.span_id)]
    return sorted(own, key=lambda log: log.time_ns)


def _log(log: dict[str, Any], resource: OriginRecord, scope: OriginRecord) -> LogRecord:
    attributes = _attributes(log)
    named = attributes.get("event.name")
    return LogRecord(
        trace_id=log.get("traceId", ""),
        span_id=log.get("spanId", ""),
        event_name=log.get("eventName") or (named if isinstance(named, str) else ""),
        body=_value(log.get("body", {})),
        attributes=attributes,
        time_ns=int(log.get("timeUnixNano", 0)),
        observed_ns=int(log.get("observedTimeUnixNano", 0)),
        severity_number=log.get("severityNumber", 0),
        severity_text=log.get("severityText", ""),
        flags=log.get("flags", 0),
        dropped_attributes=log.get("droppedAttributesCount", 0),
        resource=resource,
        scope=scope,
    )


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
                return {
                    item["key"]: _value(item.get("value", {})) for item in given.get("values", [])
                }
            case _:
                return given
    return None


def bottomless() -> bytes:
    """A line of OTLP/JSON that is nested deeper than any Python reads."""
    return b'{"resourceSpans":%s%s}\n' % (b"[" * 200_000, b"]" * 200_000)
