# SPDX-License-Identifier: Apache-2.0
"""What Logfire says of its spans, and the spans of its own instrumentations of model clients.

Each span of Logfire's SDK names its kind in ``logfire.span_type``:

* ``pending_span`` announces a span that has just begun, see `announced`. It has an id of its own;
  its parent is the announced span, whose parent is in ``logfire.pending_parent_id``.
* ``log`` is a log line in the form of a span without duration: never work.
* ``span`` is what it looks like; other dialects say what it means, but for calls that Logfire's
  own instrumentations of model clients saw (`otel_taskhistory.conventions.logfire_clients`).

Values that Logfire scrubbed (``[Scrubbed due to …]``) are what was said; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import logfire_clients
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.conventions.outcome import outcome_of
from otel_taskhistory.spans.record import LogRecord, SpanRecord

_SPAN_TYPE: Final = "logfire.span_type"
_PENDING_PARENT: Final = "logfire.pending_parent_id"
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}")
_NO_SPAN: Final = "0" * 16


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    kind = record.attributes.get(_SPAN_TYPE)
    if kind == "pending_span":
        begun = announced(record)
        if begun is None:
            return None
        return SpanFacts(
            role="pending",
            status="running",
            agent=record.text(semconv.GEN_AI_AGENT_NAME),
            conversation_id=record.text(semconv.GEN_AI_CONVERSATION_ID),
            announces=begun.span_id,
            announced_parent=begun.parent_span_id,
        )
    if kind not in ("span", "log"):
        return None
    called = logfire_clients.read(record)
    if called is not None or kind == "span":
        return called
    outcome = outcome_of(record)
    return SpanFacts(status=outcome.status, error=outcome.error, error_type=outcome.error_type)


def announced(record: SpanRecord) -> SpanRecord | None:
    """The span that a pending span announces, as far as it is known: it has begun.

    Returns:
        None when `record` is no pending span, or does not name the span that it announces.
    """
    if record.attributes.get(_SPAN_TYPE) != "pending_span" or record.parent_span_id is None:
        return None
    parent = record.text(_PENDING_PARENT)
    if parent is not None and (_SPAN_ID.fullmatch(parent) is None or parent == _NO_SPAN):
        parent = None
    hidden = (_SPAN_TYPE, _PENDING_PARENT)
    return replace(
        record,
        span_id=record.parent_span_id,
        parent_span_id=parent,
        end_ns=None,
        attributes={key: value for key, value in record.attributes.items() if key not in hidden},
        events=(),
        status_code="UNSET",
        status_message=None,
        parent_remote=False,
    )
