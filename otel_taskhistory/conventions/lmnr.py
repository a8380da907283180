# SPDX-License-Identifier: Apache-2.0
"""Laminar (lmnr) and what records with it, as browser-use does.

``lmnr.span.type`` says what a span is, ``lmnr.span.input`` and ``lmnr.span.output`` hold JSON.
Laminar's own instrumentations of model clients use GenAI names, but write messages in the format
of the provider; those are converted here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai_usage
from otel_taskhistory.conventions.content import as_text, parsed, text_of
from otel_taskhistory.conventions.facts import ModelCall, Role, Said, SpanFacts, ToolCall
from otel_taskhistory.conventions.lmnr_messages import (
    Decided,
    decision_of,
    is_converted,
    prompt_of,
)
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.conventions.traceloop_json import is_empty
from otel_taskhistory.conventions.traceloop_values import goal_in, result_in
from otel_taskhistory.spans.record import LogRecord, SpanRecord

_TYPE: Final = "lmnr.span.type"
_PATH: Final = "lmnr.span.path"
_INPUT: Final = "lmnr.span.input"
_OUTPUT: Final = "lmnr.span.output"
_SESSION: Final = "lmnr.association.properties.session_id"
_ROLES: Final[Mapping[str, Role]] = {"LLM": "model", "CACHED": "model", "TOOL": "tool"}
"""A ``CACHED`` span is a model call that was replayed. ``DEFAULT`` and the types of evaluations
are functions that somebody observed."""

_AGENT_RUN: Final = re.compile(r"(?:.*[._ ])?\w*agent\.run", re.IGNORECASE)
"""Names of spans that are runs of an agent: ``agent.run``, ``ComputerAgent.run``."""
_AGENT_STEP: Final = re.compile(r"(?:.*[._ ])?\w*agent\.step", re.IGNORECASE)
"""And of the steps of one: browser-use leaves no span of its model calls."""
_NO_MODEL_CALL: Final = "embeddings"
"""Laminar types embeddings as ``LLM``; the name of their spans ends so."""


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    kind = record.attributes.get(_TYPE)
    if kind is None and _PATH not in record.attributes:
        return None
    outcome = outcome_of(record)
    role = _role(record, kind)
    facts = SpanFacts(
        role=role,
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=record.text(semconv.GEN_AI_AGENT_NAME),
        conversation_id=record.text(_SESSION) or record.text(semconv.GEN_AI_CONVERSATION_ID),
    )
    match role:
        case "model":
            return replace(facts, model_calls=(_model_call(record, outcome),))
        case "tool":
            return _with_tool(facts, record)
        case _:
            return replace(facts, goal=_goal(record, role), result=_result(record))


def _role(record: SpanRecord, kind: Any) -> Role:
    role = _ROLES.get(kind) if isinstance(kind, str) else None
    if role == "model" and record.name.endswith(_NO_MODEL_CALL):
        return "other"
    if role is not None:
        return role
    if _AGENT_STEP.fullmatch(record.name):
        return "step"
    return "agent" if _AGENT_RUN.fullmatch(record.name) else "other"


# --- functions --------------------------------------------------------------------------------


def _goal(record: SpanRecord, role: Role) -> str | None:
    """What the function at the root was given, or what an agent was to do."""
    if role != "agent" and record.parent_span_id is not None and not record.parent_remote:
        return None
    given = record.attributes.get(_INPUT)
    value = parsed(given)
    if value is None:
        return text_of(given) if isinstance(given, str) and not _is_json(given) else None
    return goal_in(value)


def _result(record: SpanRecord) -> str | None:
    given = record.attributes.get(_OUTPUT)
    value = parsed(given)
    if value is None:
        return text_of(given) if isinstance(given, str) and given != "null" else None
    return result_in(value)


def _is_json(text: str) -> bool:
    return text == "null" or text.lstrip()[:1] in ("{", "[", '"')


# --- tools ------------------------------------------------------------------------------------


def _with_tool(facts: SpanFacts, record: SpanRecord) -> SpanFacts:
    given = record.attributes.get(_INPUT)
    value = parsed(given)
    name, arguments = record.name, as_text(given)
    if isinstance(value, Mapping) and value.keys() == {"action", "params"}:  # browser-use
        name = text_of(value["action"]) or name
        arguments = as_text(value["params"])
    result, error = _tool_result(record)
    call = ToolCall(
        name=record.text(semconv.GEN_AI_TOOL_NAME) or name,
        call_id=record.text(semconv.GEN_AI_TOOL_CALL_ID),
        arguments=arguments,
        result=result,
    )
    facts = replace(facts, tool_call=call)
    if error is not None and facts.status == "succeeded":
        return replace(facts, status="failed", error=error)
    return facts


def _tool_result(record: SpanRecord) -> tuple[str | None, str | None]:
    """The result, and the error that it tells of: a span whose tool gave one back has no status."""
    given = record.attributes.get(_OUTPUT)
    if isinstance(given, str) and given.startswith('"'):
        value = parsed(given)
        return (value if isinstance(value, str) else given), None
    value = parsed(given) if isinstance(given, str) and '"error"' in given else given
    error = text_of(value.get("error")) if isinstance(value, Mapping) else None
    return (None if isinstance(given, str) and given == "null" else as_text(given)), error


# --- model calls ------------------------------------------------------------------------------


def _model_call(record: SpanRecord, outcome: Outcome) -> ModelCall:
    """The call; what it lacks here, `otel_taskhistory.conventions.genai` may find on the span."""
    prompt = _prompt(record)
    decided = _decided(record)
    return ModelCall(
        ordinal=0,
        status=outcome.status,
        started_ns=record.start_ns,
        ended_ns=record.end_ns,
        model=record.text(semconv.GEN_AI_RESPONSE_MODEL)
        or record.text(semconv.GEN_AI_REQUEST_MODEL),
        prompt=prompt,
        decision=decided.said if decided else None,
        finish_reason=decided.finish_reason if decided else None,
        tokens=genai_usage.tokens([record.attributes]),
        cost=genai_usage.cost([record.attributes]),
        call_ids=decided.call_ids if decided else (),
        response_id=record.text(semconv.GEN_AI_RESPONSE_ID),
        error=outcome.error,
    )


def _prompt(record: SpanRecord) -> Said | None:
    given = record.attributes.get(semconv.GEN_AI_INPUT_MESSAGES)
    if is_empty(given):
        given = record.attributes.get(_INPUT)
        value = parsed(given)
        # Text that is no JSON, or cut: as it came.
        return prompt_of(value) if value is not None else _raw(given)
    value = parsed(given)
    if not isinstance(value, list) or is_converted(value):
        return None  # it is as the conventions have it, or cut
    return prompt_of(value)


def _decided(record: SpanRecord) -> Decided | None:
    given = record.attributes.get(semconv.GEN_AI_OUTPUT_MESSAGES)
    if is_empty(given):
        given = record.attributes.get(_OUTPUT)
        value = parsed(given)
        if value is not None:
            return decision_of(value)
        raw = _raw(given)
        return Decided(raw, None, ()) if raw is not None else None
    value = parsed(given)
    if not isinstance(value, list) or is_converted(value):
        return None
    return decision_of(value)


def _raw(given: Any) -> Said | None:
    if not isinstance(given, str) or given in ("", "null"):
        return None
    return Said(given, structured=given.startswith("["))
