# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry GenAI semantic conventions: model calls, tool calls, agent runs.

Content is read from span attributes (``gen_ai.input.messages`` and its neighbours), as JSON text
or as structured values. See the conventions' pages on GenAI spans and on agent spans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions.facts import (
    ModelCall,
    Role,
    Said,
    SpanFacts,
    Tokens,
    ToolCall,
)
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.spans.encode import encode
from otel_taskhistory.spans.record import Attributes, SpanRecord, as_integer

_ROLES: Final[Mapping[str, Role]] = {
    "chat": "model",
    "text_completion": "model",
    "generate_content": "model",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "invoke_workflow": "agent",
}
_MODEL_SIGNS: Final = (
    semconv.GEN_AI_REQUEST_MODEL,
    semconv.GEN_AI_INPUT_MESSAGES,
    semconv.GEN_AI_OUTPUT_MESSAGES,
)


def read(record: SpanRecord) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    attributes = record.attributes
    operation = attributes.get(semconv.GEN_AI_OPERATION_NAME)
    role = _ROLES.get(operation) if isinstance(operation, str) else None
    if role is None and operation is None:
        if record.text(semconv.GEN_AI_TOOL_NAME):
            role = "tool"
        elif any(sign in attributes for sign in _MODEL_SIGNS):
            role = "model"
    if role is None:
        return None
    outcome = outcome_of(record)
    calls = (model_call(attributes, record, outcome, ordinal=0),) if role == "model" else ()
    return SpanFacts(
        role=role,
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=record.text(semconv.GEN_AI_AGENT_NAME),
        conversation_id=record.text(semconv.GEN_AI_CONVERSATION_ID),
        goal=record.text(semconv.TASKHISTORY_TASK_GOAL),
        result=record.text(semconv.TASKHISTORY_TASK_RESULT),
        model_calls=calls,
        tool_call=tool_call(record) if role == "tool" else None,
    )


def model_call(
    attributes: Attributes,
    record: SpanRecord,
    outcome: Outcome,
    *,
    ordinal: int,
    started_ns: int | None = None,
    ended_ns: int | None = None,
) -> ModelCall:
    """The model call that `attributes` (of a span or of one of its events) tell of."""
    decision = _messages(attributes.get(semconv.GEN_AI_OUTPUT_MESSAGES))
    reasons = attributes.get(semconv.GEN_AI_RESPONSE_FINISH_REASONS)
    return ModelCall(
        ordinal=ordinal,
        status=outcome.status,
        started_ns=record.start_ns if started_ns is None else started_ns,
        ended_ns=record.end_ns if ended_ns is None else ended_ns,
        model=_text(attributes, semconv.GEN_AI_RESPONSE_MODEL)
        or _text(attributes, semconv.GEN_AI_REQUEST_MODEL),
        prompt=_prompt(attributes),
        decision=decision,
        finish_reason=_first(reasons),
        tokens=Tokens(
            as_integer(attributes.get(semconv.GEN_AI_USAGE_INPUT_TOKENS)),
            as_integer(attributes.get(semconv.GEN_AI_USAGE_OUTPUT_TOKENS)),
            as_integer(attributes.get(semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS)),
            as_integer(attributes.get(semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS)),
        ),
        error=outcome.error,
        call_ids=_call_ids(decision),
    )


def tool_call(record: SpanRecord) -> ToolCall:
    """The tool call that a span is."""
    return ToolCall(
        name=record.text(semconv.GEN_AI_TOOL_NAME) or record.name,
        call_id=record.text(semconv.GEN_AI_TOOL_CALL_ID),
        arguments=_value(record.attributes, semconv.GEN_AI_TOOL_CALL_ARGUMENTS),
        result=_value(record.attributes, semconv.GEN_AI_TOOL_CALL_RESULT),
    )


def _prompt(attributes: Attributes) -> Said | None:
    said = _messages(attributes.get(semconv.GEN_AI_INPUT_MESSAGES))
    system = _messages(attributes.get(semconv.GEN_AI_SYSTEM_INSTRUCTIONS))
    if system is None or not system.structured:
        return said
    if said is None:
        return Said("[]", structured=True, system=system.raw)
    return Said(said.raw, said.structured, system.raw)


def _messages(value: Any) -> Said | None:
    """A message list as text; a value that is no string (attributes may nest) becomes JSON."""
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        return Said(encode(value).text, structured=isinstance(value, list | tuple))
    return Said(value, structured=value.lstrip().startswith("["))


def _call_ids(decision: Said | None) -> tuple[str, ...]:
    """Ids of the tool calls in a decision; a decision that is cut or odd has none."""
    if decision is None or not decision.structured or '"tool_call"' not in decision.raw:
        return ()
    try:
        return tuple(_ids_in(json.loads(decision.raw)))
    except (ValueError, RecursionError):
        return ()


def _ids_in(messages: Any) -> Iterator[str]:
    for message in messages if isinstance(messages, list) else ():
        parts = message.get("parts") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and part.get("type") == "tool_call":
                call_id = part.get("id")
                if isinstance(call_id, str) and call_id:
                    yield call_id


def _value(attributes: Attributes, key: str) -> str | None:
    value = attributes.get(key)
    return value if value is None or isinstance(value, str) else encode(value).text


def _text(attributes: Attributes, key: str) -> str | None:
    value = attributes.get(key)
    return value if isinstance(value, str) and value else None


def _first(reasons: Any) -> str | None:
    if isinstance(reasons, list | tuple) and reasons and isinstance(reasons[0], str):
        return reasons[0]
    return reasons if isinstance(reasons, str) and reasons else None
