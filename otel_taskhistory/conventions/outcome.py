# SPDX-License-Identifier: Apache-2.0
"""How a span ended, by what every dialect has in common: its status and its exception event."""

from __future__ import annotations

from dataclasses import dataclass

from otel_taskhistory import semconv
from otel_taskhistory.conventions.facts import Status
from otel_taskhistory.spans.record import SpanRecord

_STATUSES: dict[str, Status] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Status, and for one that is not ``succeeded`` what is known of the reason."""

    status: Status
    error: str | None = None
    error_type: str | None = None


def outcome_of(record: SpanRecord) -> Outcome:
    """Read the outcome of a span.

    What our tracer decided comes first (``taskhistory.status``), then the span's own status. The
    last exception event says why; without one, the status message or ``error.type`` does.
    """
    if record.end_ns is None:
        return Outcome("running")
    said = record.text(semconv.TASKHISTORY_STATUS)
    status = _STATUSES.get(said) if said else None
    if status is None:
        status = "failed" if record.status_code == "ERROR" else "succeeded"
    if status == "succeeded":
        return Outcome(status)
    error = error_type = None
    for event in reversed(record.events):
        if event.name == semconv.EXCEPTION_EVENT:
            error = _text(event.attributes.get(semconv.EXCEPTION_MESSAGE))
            error_type = _text(event.attributes.get(semconv.EXCEPTION_TYPE))
            break
    if status == "cancelled":
        error = record.text(semconv.TASKHISTORY_STATUS_REASON) or error
    error = error or record.status_message or None
    return Outcome(status, error, error_type or record.text(semconv.ERROR_TYPE))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
