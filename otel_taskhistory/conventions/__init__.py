# SPDX-License-Identifier: Apache-2.0
"""Dialects: how instrumentations say prompt, decision, tool call and tokens.

Each is a module with ``read(record, logs=()) -> SpanFacts | None``, a pure function that knows
nothing of databases and raises for no input. `read` asks all of them and puts together what they
say, see `otel_taskhistory.conventions.merging`. A new dialect is one module and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import (
    autogen,
    genai,
    genai_adk,
    haystack,
    lmnr,
    logfire,
    mcp,
    openinference,
    pi_durable,
    pydantic_ai,
    strands,
    taskhistory,
    traceloop,
)
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.conventions.genai_messages import readable
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.conventions.outcome import outcome_of
from otel_taskhistory.spans.record import LogRecord, SpanRecord

Dialect = Callable[[SpanRecord, Sequence[LogRecord]], SpanFacts | None]

VERSION: Final = 1
"""Rises whenever a span may be read otherwise than before, so that histories can be read anew."""

DIALECTS: Final[tuple[Dialect, ...]] = (
    logfire.read,
    openinference.read,
    lmnr.read,
    pydantic_ai.read,
    strands.read,
    traceloop.read,
    haystack.read,
    mcp.read,
    autogen.read,
    pi_durable.read,
    genai_adk.read,
    genai.read,
)
"""The most telling first; our own is not among them, as nothing else reads its spans. The common
conventions come last: what a framework says beside them is what it knows better."""


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts:
    """What a span means; a span that no dialect knows is ``other`` with a status.

    Args:
        record: the span.
        logs: records that were written within it and have come so far, in order of time.
    """
    own = taskhistory.read(record)
    if own is not None:
        return own
    begun = logfire.announced(record)
    if begun is not None:
        return replace(
            read(begun),
            role="pending",
            announces=begun.span_id,
            announced_parent=begun.parent_span_id,
        )
    said = (dialect(record, logs) for dialect in DIALECTS)
    facts = reduce(merge, (one for one in said if one is not None), None) or unknown(record)
    return _with_explicit(record, _readable(facts))


def _readable(facts: SpanFacts) -> SpanFacts:
    """With prompts and decisions that a limit has cut as the messages that are left of them."""
    calls = tuple(
        replace(call, prompt=readable(call.prompt), decision=readable(call.decision))
        for call in facts.model_calls
    )
    return facts if calls == facts.model_calls else replace(facts, model_calls=calls)


def unknown(record: SpanRecord) -> SpanFacts:
    """The facts of a span that speaks no dialect, by its status alone."""
    outcome = outcome_of(record)
    return _with_explicit(
        record,
        SpanFacts(
            status=outcome.status,
            error=outcome.error,
            error_type=outcome.error_type,
            agent=record.text(semconv.GEN_AI_AGENT_NAME),
            conversation_id=record.text(semconv.GEN_AI_CONVERSATION_ID),
        ),
    )


def _with_explicit(record: SpanRecord, facts: SpanFacts) -> SpanFacts:
    """What any span can say by attributes of ours, and by links."""
    goal = record.text(semconv.TASKHISTORY_TASK_GOAL)
    result = record.text(semconv.TASKHISTORY_TASK_RESULT)
    linked = tuple(
        dict.fromkeys(link.trace_id for link in record.links if link.trace_id != record.trace_id)
    )
    if goal is None and result is None and not linked:
        return facts
    return replace(
        facts,
        role="task" if goal and facts.role == "other" else facts.role,
        goal=goal or facts.goal,
        result=result or facts.result,
        linked_traces=linked,
    )
