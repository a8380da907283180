# SPDX-License-Identifier: Apache-2.0
"""How a span ended, by status, exception and what our tracer decided."""

from __future__ import annotations

from typing import Any

import pytest

from otel_taskhistory import semconv
from otel_taskhistory.conventions.outcome import Outcome, outcome_of, without_traceback
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
        # --- error.type and status ---
        ({"attributes": {"error.type": "timeout"}}, Outcome("failed", None, "timeout")),
        ({"attributes": {"error.type": "x"}, "status_code": "OK"}, Outcome("succeeded")),
        ({"attributes": {"error.type": 7}}, Outcome("succeeded")),
        ({"status_code": "OK", "events": (exception("handled"),)}, Outcome("succeeded")),
        (
            {"status_code": "ERROR", "attributes": {"error.type": "<class 'openai.Bad'>"}},
            Outcome("failed", None, "openai.Bad"),
        ),
        # --- given up, not broken ---
        *(
            ({"attributes": {"error.type": kind}}, Outcome("cancelled", None, kind))
            for kind in (
                "CancelledError",
                "asyncio.exceptions.CancelledError",
                "KeyboardInterrupt",
                "GeneratorExit",
                "System.OperationCanceledException",
            )
        ),
        (
            {"status_code": "ERROR", "events": (exception("", "GeneratorExit"),)},
            Outcome("cancelled", None, "GeneratorExit"),
        ),
        (
            {"status_code": "ERROR", "status_message": "CancelledError: "},
            Outcome("cancelled", "CancelledError:"),
        ),
        (
            {
                "status_code": "ERROR",
                "status_message": "abandoned stream",
                "attributes": {"error.type": "_OTHER"},
            },
            Outcome("cancelled", "abandoned stream", "_OTHER"),
        ),
        (
            {
                "status_code": "ERROR",
                "status_message": "generator ignored GeneratorExit",
                "attributes": {"error.type": "RuntimeError"},
            },
            Outcome("cancelled", "generator ignored GeneratorExit", "RuntimeError"),
        ),
        ({"events": (exception("", "CancelledError"),)}, Outcome("succeeded")),
        # --- control flow ---
        *(
            ({"status_code": "ERROR", "events": (exception("wait", kind),)}, Outcome("succeeded"))
            for kind in ("GraphInterrupt", "langgraph.errors.GraphInterrupt", "NodeInterrupt")
        ),
        (
            {"status_code": "ERROR", "attributes": {"error.type": "GraphInterrupt"}},
            Outcome("succeeded"),
        ),
        (
            {"status_code": "ERROR", "events": (exception("0", "SystemExit"),)},
            Outcome("succeeded"),
        ),
        (
            {"status_code": "ERROR", "events": (exception("2", "SystemExit"),)},
            Outcome("failed", "2", "SystemExit"),
        ),
        (
            {"status_code": "ERROR", "events": (exception("again", "a.ToolRetryError"),)},
            Outcome("failed", "again", "a.ToolRetryError"),
        ),
        # --- several exceptions ---
        (
            {"status_code": "ERROR", "events": (exception("why"), exception("", "Wrapper"))},
            Outcome("failed", "why", "ValueError"),
        ),
        ({"attributes": {"taskhistory.status": "sleeping"}}, Outcome("succeeded")),
        ({"attributes": {"taskhistory.status": ["failed"]}}, Outcome("succeeded")),
    ],
)
def test_outcome(said: dict[str, Any], expected: Outcome) -> None:
    """What our tracer decided, then status and error type; the last exception says why."""
    assert outcome_of(span(1, **said)) == expected


FRAMES = 'Traceback (most recent call last):\n\n  File "a.py", line 1, in f\n    raise x\n'


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (None, None),
        ("", None),
        (" \n", None),
        ("Error code: 500 - no", "Error code: 500 - no"),
        ("two\nlines", "two\nlines"),
        ("RuntimeError('503')" + FRAMES + "RuntimeError: 503\n", "RuntimeError('503')"),
        (FRAMES + "RuntimeError: 503\nTry again.\n", "RuntimeError: 503\nTry again."),
        (FRAMES + "A: b\n\nDuring handling:\n\n" + FRAMES + "C: d\n", "C: d"),
        ("Traceback (most recent call last):", None),
        (FRAMES, FRAMES.removeprefix("Traceback (most recent call last):").strip()),
    ],
)
def test_what_a_message_says_without_its_traceback(message: str | None, said: str | None) -> None:
    """What stands before it, else the exception that it ends with; never less than there is."""
    assert without_traceback(message) == said
    if said is not None:
        record = span(1, status_code="ERROR", status_message=message)
        assert outcome_of(record) == Outcome("failed", said)
