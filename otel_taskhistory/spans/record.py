# SPDX-License-Identifier: Apache-2.0
"""One span as plain facts, wherever it comes from: immutable, and no value can make it raise.

Values keep the types they came with (`str`, `bool`, `int`, `float`, `bytes`, `None`, sequences
and mappings of these, or, from careless code, anything else). Turning them into text is the job
of `otel_taskhistory.spans.encode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Attributes = Mapping[str, Any]

HAS_IS_REMOTE: Final = 0x100
IS_REMOTE: Final = 0x200
"""Bits of OTLP's span flags: it is known where the parent ran; and that was elsewhere."""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something that happened at one moment within a span."""

    name: str
    time_ns: int
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes: int = 0


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """A reference from one span to another."""

    trace_id: str
    span_id: str
    trace_state: str = ""
    flags: int = 0
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes: int = 0


@dataclass(frozen=True, slots=True)
class OriginRecord:
    """A resource (who emitted) or an instrumentation scope (which library did)."""

    name: str = ""
    version: str | None = None
    schema_url: str = ""
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes: int = 0


@dataclass(frozen=True, slots=True)
class LogRecord:
    """Everything OTLP knows of a log record that belongs to a span.

    Attributes:
        trace_id, span_id: of the span within which it was written.
        event_name: as the record says, or its attribute ``event.name`` in older ones.
        body: a value of any type that attributes can have.
        time_ns, observed_ns: nanoseconds since 1970 UTC; 0 where nobody said.
        severity_number, severity_text: as in OpenTelemetry's logs data model.
    """

    trace_id: str
    span_id: str
    event_name: str
    body: Any = None
    attributes: Attributes = field(default_factory=dict)
    time_ns: int = 0
    observed_ns: int = 0
    severity_number: int = 0
    severity_text: str = ""
    flags: int = 0
    dropped_attributes: int = 0
    resource: OriginRecord = field(default_factory=OriginRecord)
    scope: OriginRecord = field(default_factory=OriginRecord)


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """Everything OTLP knows of a span.

    Attributes:
        trace_id: 32 lower-case hex digits.
        span_id: 16 lower-case hex digits.
        parent_span_id: 16 hex digits, or None for a root.
        start_ns, end_ns: nanoseconds since 1970 UTC as they were given, even out of order;
            `end_ns` is None while the span runs.
        kind: ``INTERNAL``, ``CLIENT``, ``SERVER``, ``PRODUCER``, ``CONSUMER``, ``UNSPECIFIED``.
        status_code: ``UNSET``, ``OK`` or ``ERROR``.
        flags: W3C trace flags (and OTLP's remote bits where they came with the span).
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    start_ns: int
    end_ns: int | None
    attributes: Attributes = field(default_factory=dict)
    events: tuple[EventRecord, ...] = ()
    links: tuple[LinkRecord, ...] = ()
    resource: OriginRecord = field(default_factory=OriginRecord)
    scope: OriginRecord = field(default_factory=OriginRecord)
    kind: str = "INTERNAL"
    status_code: str = "UNSET"
    status_message: str | None = None
    trace_state: str = ""
    flags: int = 1
    parent_remote: bool = False
    dropped_attributes: int = 0
    dropped_events: int = 0
    dropped_links: int = 0

    def text(self, key: str) -> str | None:
        """The attribute `key` when it is a non-empty string, else None."""
        value = self.attributes.get(key)
        return value if isinstance(value, str) and value else None

    def integer(self, key: str) -> int | None:
        """The attribute `key` when it is a whole number that fits 64 bit (a bool is none)."""
        return as_integer(self.attributes.get(key))


def as_integer(value: Any) -> int | None:
    """`value` when it is a whole number that fits 64 bit, else None; a bool is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    return None
