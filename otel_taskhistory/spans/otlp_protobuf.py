# SPDX-License-Identifier: Apache-2.0
"""OTLP in protobuf ↔ OTLP/JSON documents, so that there is one reader and one writer of records.

The messages are those of the package ``opentelemetry-proto``, which comes with the extra ``otlp``.
Their JSON form is protobuf's own mapping but for ids, which OTLP has in hex.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import Any

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.spans.otlp import KNOWN
from otel_taskhistory.spans.otlp_write import Document, to_line

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_DEEPEST = 90


def spans_from_protobuf(body: bytes) -> Document:
    """An ``ExportTraceServiceRequest`` as a document for `otel_taskhistory.spans.otlp.items_in`.

    Raises:
        ValueError: it is none, or cut off.
        TaskHistoryError: the extra ``otlp`` is not installed.
    """
    return _read(_messages().spans, body)


def logs_from_protobuf(body: bytes) -> Document:
    """An ``ExportLogsServiceRequest``, likewise."""
    return _read(_messages().logs, body)


def spans_to_protobuf(document: Document) -> bytes:
    """The ``ExportTraceServiceRequest`` of a document of `otlp_write.spans_document`.

    What protobuf has no form for is text then: a whole number beyond 64 bit, and what is nested
    deeper than parsers go (as OTLP/JSON). Half a surrogate pair is a question mark.

    Raises:
        TaskHistoryError: the extra ``otlp`` is not installed.
    """
    return _write(_messages().spans, document)


def logs_to_protobuf(document: Document) -> bytes:
    """The ``ExportLogsServiceRequest`` of a document of `otlp_write.logs_document`."""
    return _write(_messages().logs, document)


def is_metrics(body: bytes) -> int:
    """How many metrics an ``ExportMetricsServiceRequest`` holds; 0 when it is none."""
    from google.protobuf.message import DecodeError

    try:
        message = _messages().metrics.FromString(body)
    except DecodeError:
        return 0
    return sum(
        bool(metric.name) and metric.WhichOneof("data") is not None
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


class _Messages:
    def __init__(self) -> None:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
            ExportLogsServiceRequest,
        )
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
            ExportMetricsServiceRequest,
        )
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        self.spans = ExportTraceServiceRequest
        self.logs = ExportLogsServiceRequest
        self.metrics = ExportMetricsServiceRequest


def _messages() -> _Messages:
    try:
        return _Messages()
    except ImportError as error:
        raise TaskHistoryError(
            "OTLP in protobuf needs more packages: pip install 'otel-taskhistory[otlp]'"
        ) from error


def _read(kind: Any, body: bytes) -> Document:
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    try:
        message = kind.FromString(body)
    except DecodeError:
        raise ValueError("no OTLP in protobuf, or cut off") from None
    document: Document = MessageToDict(message, use_integers_for_enums=True)
    _for_all_ids(document, _to_hex)
    return document


def _write(kind: Any, document: Document) -> bytes:
    from google.protobuf.json_format import ParseDict

    copied = _fit(document)
    _for_all_ids(copied, _to_base64)
    body: bytes = ParseDict(copied, kind(), ignore_unknown_fields=True).SerializeToString()
    return body


def _for_all_ids(document: Document, change: Callable[[str], str]) -> None:
    for one in _records(document):
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in one:
                one[name] = change(one[name])


def _records(document: Document) -> Iterator[Document]:
    """All spans with their links, and all log records."""
    for around, scopes, inner in (
        ("resourceSpans", "scopeSpans", "spans"),
        ("resourceLogs", "scopeLogs", "logRecords"),
    ):
        for resource in document.get(around, ()):
            for scope in resource.get(scopes, ()):
                for record in scope.get(inner, ()):
                    yield record
                    yield from record.get("links", ())


def _to_hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _to_base64(text: str) -> str:
    try:
        return base64.b64encode(binascii.unhexlify(text)).decode()
    except (binascii.Error, ValueError):
        return ""  # a link to what is no id


def _fit(value: Any, depth: int = 0) -> Any:
    """A copy in which everything has a form in protobuf.

    Args:
        depth: how many messages lie around it, of which parsers take a hundred.
    """
    if isinstance(value, dict):
        if len(value) == 1:
            if "intValue" in value and not _INT_MIN <= int(value["intValue"], 0) <= _INT_MAX:
                return {"stringValue": value["intValue"]}
            if depth > _DEEPEST and ("kvlistValue" in value or "arrayValue" in value):
                return {"stringValue": _fit(to_line(value).decode().rstrip())}
        return {key: _fit(one, depth + 1) for key, one in value.items() if key != KNOWN}
    if isinstance(value, list):
        return [_fit(one, depth) for one in value]
    if isinstance(value, str) and not value.isascii():
        return value.encode(errors="replace").decode()
    return value
