# SPDX-License-Identifier: Apache-2.0
"""Dialects: how instrumentations say prompt, decision, tool call and tokens.

Each is a module with ``read(record) -> SpanFacts | None``, a pure function that knows nothing of
databases. `read` asks them in order; the first that speaks a span's dialect is believed.
"""

from __future__ import annotations

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai, taskhistory
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.conventions.outcome import outcome_of
from otel_taskhistory.spans.record import SpanRecord

_DIALECTS = (taskhistory.read, genai.read)


def read(record: SpanRecord) -> SpanFacts:
    """What a span means; a span that no dialect knows is ``other`` with a status."""
    for dialect in _DIALECTS:
        facts = dialect(record)
        if facts is not None:
            return facts
    return unknown(record)


def unknown(record: SpanRecord) -> SpanFacts:
    """The facts of a span that speaks no dialect, by its status alone."""
    outcome = outcome_of(record)
    goal = record.text(semconv.TASKHISTORY_TASK_GOAL)
    return SpanFacts(
        role="task" if goal else "other",
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=record.text(semconv.GEN_AI_AGENT_NAME),
        conversation_id=record.text(semconv.GEN_AI_CONVERSATION_ID),
        goal=goal,
        result=record.text(semconv.TASKHISTORY_TASK_RESULT),
    )
