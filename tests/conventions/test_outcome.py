# SPDX-License-Identifier: Apache-2.0
"""How a span ended, by status, exception and what our tracer decided."""

from __future__ import annotations

from typing import Any

import pytest

from otel_taskhistory import semconv
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.spans.record import EventRecord
from tests.store.deliveries import span


def exception(message: Any, kind: Any = "ValueError") -> EventRecord:
    """An exception event."""
    attributes = {semconv.EXCEPTION_MESSAGE: message, semconv.EXCEPTION_TYPE: kind}
    return EventRecord(semconv.EXCEPTION_EVENT, 1, attributes)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"end": None}, Outcome("running")),
        ({"end": None, "status_code": "ERROR"}, Outcome("running")),
        ({}, Outcome("succeeded")),
        ({"status_code": "OK"}, Outcome("succeeded")),
        ({"status_code": "ERROR"}, Outcome("failed")),
        ({"status_code": "ERROR", "status_message": "why"}, Outcome("failed", "why")),
        (
            {"status_code": "ERROR", "status_message": "why", "events": (exception("because"),)},
            Outcome("failed", "because", "ValueError"),
        ),
        (
            {"status_code": "ERROR", "events": (exception("first"), exception("last", "KeyError"))},
            Outcome("failed", "last", "KeyError"),
        ),
        ({"events": (exception("handled"),)}, Outcome("succeeded")),
        (
            {"status_code": "ERROR", "attributes": {"error.type": "timeout"}},
            Outcome("failed", None, "timeout"),
        ),
        (
            {"status_code": "ERROR", "events": (exception(7, None),), "status_message": "why"},
            Outcome("failed", "why"),
        ),
        ({"attributes": {"taskhistory.status": "failed"}}, Outcome("failed")),
        (
            {"attributes": {"taskhistory.status": "succeeded"}, "status_code": "ERROR"},
            Outcome("succeeded"),
        ),
        (
            {
                "attributes": {
                    "taskhistory.status": "cancelled",
                    "taskhistory.status.reason": "not needed",
                },
                "events": (exception("ignored"),),
            },
            Outcome("cancelled", "not needed", "ValueError"),
        ),
        ({"attributes": {"taskhistory.status": "sleeping"}}, Outcome("succeeded")),
        ({"attributes": {"taskhistory.status": ["failed"]}}, Outcome("succeeded")),
    ],
)
def test_outcome(said: dict[str, Any], expected: Outcome) -> None:
    """What our tracer decided, then the span's status; the last exception says why."""
    assert outcome_of(span(1, **said)) == expected
