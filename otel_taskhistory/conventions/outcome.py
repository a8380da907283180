# SPDX-License-Identifier: Apache-2.0
"""How a span ended, by what every dialect has in common: status, error type, exception events.

The rules, the first that fits:

1. What our tracer decided (``taskhistory.status``).
2. Status OK: it succeeded. OK is set by hand and is final; an error type or an exception beside
   it is of something that was dealt with.
3. Status ERROR, or ``error.type`` on a span that set no status (the conventions have it only on
   operations that ended in an error, and some instrumentations set no status): by what ended it,

   * control flow that frameworks do by raising (LangGraph's pause for a human): it succeeded;
   * a cancellation, an exit by hand, a generator that was closed, a stream that nobody read to
     its end: it was cancelled;
   * anything else: it failed.
4. Otherwise it succeeded: an exception event alone is of one that was caught.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions.facts import Status
from otel_taskhistory.spans.record import EventRecord, SpanRecord

_STATUSES: dict[str, Status] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    # Of a span that another history sends, closed, as its process was gone.
    "interrupted": "interrupted",
}

CANCELLATIONS: Final = frozenset(
    {
        *("CancelledError", "KeyboardInterrupt", "GeneratorExit", "Cancelled"),
        # Of other languages, whose agents may send their spans here.
        *("AbortError", "CancellationException"),
        *("OperationCanceledException", "TaskCanceledException"),
        *("cancelled", "canceled", "CANCELLED"),
    }
)
"""Last words of the types by which work is given up rather than broken."""

CONTROL_FLOW: Final = frozenset(
    {
        # LangGraph: waits for a human, or hands over to another graph.
        *("GraphInterrupt", "NodeInterrupt", "GraphBubbleUp", "ParentCommand"),
        # pydantic-ai: the call is carried out elsewhere, or waits for approval.
        *("CallDeferred", "ApprovalRequired"),
    }
)
"""Last words of the types that frameworks raise to go on elsewhere or later."""

_ABANDONED: Final = frozenset(
    {
        "abandoned stream",  # the official instrumentations
        "generator ignored GeneratorExit",  # Python, when the instrumented stream would not stop
    }
)
_TRACEBACK: Final = "Traceback (most recent call last):"
_CLASS: Final = ("<class '", "'>")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Status, and for one that is not ``succeeded`` what is known of the reason."""

    status: Status
    error: str | None = None
    error_type: str | None = None


def outcome_of(record: SpanRecord) -> Outcome:
    """Read the outcome of a span, by the rules of this module.

    The last exception event that has a message says why; without one, the status message does. A
    traceback in a message is left away: the whole message stays with the span.
    """
    if record.end_ns is None:
        return Outcome("running")
    said = record.text(semconv.TASKHISTORY_STATUS)
    decided = _STATUSES.get(said) if said else None
    if decided is None and not _in_error(record):
        return Outcome("succeeded")
    exceptions = [event for event in record.events if event.name == semconv.EXCEPTION_EVENT]
    status = decided or _status(record, exceptions)
    if status == "succeeded":
        return Outcome(status)
    telling = next((event for event in reversed(exceptions) if _message(event)), None)
    if telling is None and exceptions:
        telling = exceptions[-1]
    error = _message(telling) if telling else None
    error_type = _type(telling) if telling else None
    if status == "cancelled":
        error = record.text(semconv.TASKHISTORY_STATUS_REASON) or error
    error = error or without_traceback(record.status_message)
    return Outcome(status, error, error_type or type_name(record.text(semconv.ERROR_TYPE)))


def without_traceback(message: str | None) -> str | None:
    """What a message says beside the traceback in it; None when it says nothing.

    Of one that begins with the traceback: the exception that the traceback ends with.
    """
    if not message:
        return None
    before, found, after = message.partition(_TRACEBACK)
    said = before.strip()
    if not said and found:
        lines = after.rpartition(_TRACEBACK)[2].splitlines()
        # The frames are indented; what follows them is the exception, its message maybe in lines.
        last = max((at for at, line in enumerate(lines) if line[:1].isspace()), default=-1)
        said = "\n".join(lines[last + 1 :]).strip() or after.strip()
    return said or None


def type_name(said: str | None) -> str | None:
    """A type of error as told; ``<class 'a.B'>`` is ``a.B``."""
    if said is None:
        return None
    opening, closing = _CLASS
    if said.startswith(opening) and said.endswith(closing):
        said = said[len(opening) : -len(closing)]
    return said or None


def _in_error(record: SpanRecord) -> bool:
    if record.status_code == "OK":
        return False
    return record.status_code == "ERROR" or record.text(semconv.ERROR_TYPE) is not None


def _status(record: SpanRecord, exceptions: list[EventRecord]) -> Status:
    """What became of a span that says there was an error."""
    message = (record.status_message or "").strip()
    last = exceptions[-1] if exceptions else None
    told = [_type(last) if last else None, type_name(record.text(semconv.ERROR_TYPE))]
    if last is None and told[1] is None:
        # The SDK writes "CancelledError: …" there, and events may have been switched off.
        told.append(message.partition(":")[0])
    kinds = {_last_word(kind) for kind in told if kind}
    if kinds & CONTROL_FLOW or _is_clean_exit(last):
        return "succeeded"
    if kinds & CANCELLATIONS or message in _ABANDONED:
        return "cancelled"
    return "failed"


def _is_clean_exit(last: EventRecord | None) -> bool:
    """``SystemExit`` without a status, or with status 0."""
    if last is None or _last_word(_type(last) or "") != "SystemExit":
        return False
    return (_message(last) or "0") in ("0", "None")


def _last_word(dotted: str) -> str:
    return dotted.rpartition(".")[2]


def _type(event: EventRecord) -> str | None:
    value = event.attributes.get(semconv.EXCEPTION_TYPE)
    return type_name(value) if isinstance(value, str) else None


def _message(event: EventRecord) -> str | None:
    value = event.attributes.get(semconv.EXCEPTION_MESSAGE)
    return value if isinstance(value, str) and value else None
