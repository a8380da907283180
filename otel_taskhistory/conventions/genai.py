# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry GenAI semantic conventions: model calls, tool calls, agent runs.

Content is read from span attributes (``gen_ai.input.messages`` and its neighbours), as JSON text
or as structured values. See the conventions' pages on GenAI spans and on agent spans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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
from otel_taskhistory.spans.record import Attributes, LogRecord, SpanRecord, as_integer

_ROLES: Final[Mapping[str, Role]] = {
    "chat": "model",
    "text_completion": "model",
    "generate_content": "model",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "invoke_workflow": "agent",
}
_MOST_TOKENS: Final = 10**12
"""More is no number of tokens; the sums of a task stay within SQLite's numbers."""

_MODEL_SIGNS: Final = (
    semconv.GEN_AI_REQUEST_MODEL,
    semconv.GEN_AI_INPUT_MESSAGES,
    semconv.GEN_AI_OUTPUT_MESSAGES,
)


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
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
        goal=record.text(semconv.TASKHISTORY_TASK_GOAL)
        or (
            _last_text(attributes, semconv.GEN_AI_INPUT_MESSAGES, "user")
            if role == "agent"
            else None
        ),
        result=record.text(semconv.TASKHISTORY_TASK_RESULT)
        or (_last_text(attributes, semconv.GEN_AI_OUTPUT_MESSAGES) if role == "agent" else None),
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
            _count(attributes, semconv.GEN_AI_USAGE_INPUT_TOKENS),
            _count(attributes, semconv.GEN_AI_USAGE_OUTPUT_TOKENS),
            _count(attributes, semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS),
            _count(attributes, semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS),
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
    if system is None:
        return said
    # Instructions and prompt are shown as one list, so that either that is one string becomes one.
    parts = system.raw if system.structured else _text_parts(system.raw)
    if said is None:
        return Said("[]", structured=True, system=parts)
    if not said.structured:
        return Said(f'[{{"role": "user", "parts": {_text_parts(said.raw)}}}]', True, parts)
    return Said(said.raw, structured=True, system=parts)


def _text_parts(text: str) -> str:
    return json.dumps([{"type": "text", "content": text}], ensure_ascii=False)


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
        for part in _parts(message) if isinstance(message, dict) else ():
            if isinstance(part, dict) and part.get("type") == "tool_call":
                call_id = part.get("id")
                if isinstance(call_id, str) and call_id:
                    yield call_id


def _last_text(attributes: Attributes, key: str, role: str | None = None) -> str | None:
    """The text of the last message (of a role), as an agent's input or output ends with it."""
    said = _messages(attributes.get(key))
    if said is None or not said.structured:
        return said.raw if said is not None else None
    try:
        messages = json.loads(said.raw)
    except (ValueError, RecursionError):  # cut by a limit of the SDK
        return None
    for message in reversed(messages):
        if isinstance(message, dict) and role in (None, message.get("role")):
            texts = [part for part in map(_text_of_part, _parts(message)) if part]
            if texts:
                return "\n".join(texts)
    return None


def _parts(message: Mapping[str, Any]) -> list[Any]:
    parts = message.get("parts")
    return parts if isinstance(parts, list) else []


def _text_of_part(part: Any) -> str | None:
    if not isinstance(part, dict) or part.get("type") != "text":
        return None
    content = part.get("content")
    return content if isinstance(content, str) else None


def _count(attributes: Attributes, key: str) -> int | None:
    """A number of tokens; whatever cannot be one is none."""
    number = as_integer(attributes.get(key))
    return number if number is not None and 0 <= number <= _MOST_TOKENS else None


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
