# SPDX-License-Identifier: Apache-2.0
"""pi-durable: a submission, and the phases of the durable tasks that work on it.

Spans are ``pi.durable.submit`` (something was handed to a conversation) and ``pi.durable.phase``
(one phase of a task ran, from a checkpoint to the next). They hold ids and control data under
``pi.durable.…`` and never content, so there is neither goal nor prompt to be read.

A submission is a task. Its phases are its steps, by being below it; a phase that continues what a
dead process left behind is ``resumed``, a further attempt. Phases in traces of their own link to
what they continue. Keys are read with a dot or an underscore between the last words, as both
spellings are about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from otel_taskhistory.conventions.facts import Role, SpanFacts
from otel_taskhistory.conventions.outcome import outcome_of
from otel_taskhistory.spans.record import LogRecord, SpanRecord, as_integer

_PREFIX: Final = "pi.durable."
_SUBMIT: Final = "pi.durable.submit"
_PHASE: Final = "pi.durable.phase"
_ROLES: Final[dict[str, Role]] = {_SUBMIT: "task", _PHASE: "step"}

_CONVERSATION: Final = ("conversation.id", "conversation_id", "conversation")
_SESSION: Final = ("session.id", "session_id", "session")
_RESUMED: Final = ("resumed", "phase.resumed", "task.resumed")
_ATTEMPT: Final = ("attempt", "phase.attempt", "task.attempt")
_OUTCOME: Final = ("outcome", "status", "outcome.status", "task.status")
_MOST_ATTEMPTS: Final = 10**6

_ABORTED: Final = frozenset({"aborted", "withdrawn", "cancelled"})
_FAILED: Final = frozenset({"failed", "faulted", "orphaned", "unanswered", "error"})


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    role = _ROLES.get(record.name)
    if role is None:
        return None
    outcome = outcome_of(record)
    status = outcome.status
    if status == "succeeded":
        said = _value(record, _OUTCOME)
        if said in _ABORTED:
            status = "cancelled"
        elif said in _FAILED:
            status = "failed"
    return SpanFacts(
        role=role,
        status=status,
        error=outcome.error,
        error_type=outcome.error_type,
        conversation_id=_conversation(record),
        attempt=_attempt(record),
    )


def _attempt(record: SpanRecord) -> int:
    """Which attempt it is; one that was resumed is at least the second."""
    counted = as_integer(_value(record, _ATTEMPT))
    attempt = counted if counted is not None and 1 <= counted <= _MOST_ATTEMPTS else 1
    return max(attempt, 2) if _value(record, _RESUMED) is True else attempt


def _value(record: SpanRecord, names: tuple[str, ...]) -> Any:
    """The first of these attributes that is there, if it can be compared."""
    for name in names:
        value = record.attributes.get(_PREFIX + name)
        if isinstance(value, str | int | float):
            return value
    return None


def _conversation(record: SpanRecord) -> str | None:
    """The conversation, in words that are its own.

    pi-durable numbers its conversations, in each storage from the beginning: a number alone would
    tie the conversations of different sessions together.
    """
    conversation, session = _value(record, _CONVERSATION), _value(record, _SESSION)
    if isinstance(conversation, str):
        return conversation or None
    number = as_integer(conversation)
    return f"{session}/{number}" if number is not None and isinstance(session, str) else None
