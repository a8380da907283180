# SPDX-License-Identifier: Apache-2.0
"""What pydantic-ai says besides the GenAI conventions, in all its formats (1 to 6).

An agent run (``invoke_agent X``, formerly ``agent run``) carries the whole conversation and the
answer. The goal is the user's first text of this run: the conversation before it may be an earlier
run's, ``pydantic_ai.new_message_index`` says where this one begins. Its sums of tokens are no
model call's and are not read.

A model call says its messages in attributes, in format 1 as a list of events in the attribute
``events`` or as log records. A tool call of formats 1 and 2 has ``tool_arguments`` and
``tool_response``. A call that the model is to try again has failed, and keeps its result: what the
model was told. A model call that raised says no messages; nothing is made up for it. One that was
cancelled has no status either, for the SDK does not see a ``CancelledError``; but pydantic-ai
writes the name of the model that answered on every call that came to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions.content import (
    as_text,
    cost_of,
    message_list,
    parsed,
)
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts, ToolCall
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.conventions.pydantic_ai_messages import (
    Conversation,
    call_ids_in,
    conversation,
    in_genai_form,
    text_in,
)
from otel_taskhistory.spans.record import LogRecord, SpanRecord

_SCOPE: Final = "pydantic-ai"
_TRANSCRIPT: Final = "pydantic_ai.all_messages"
_TRANSCRIPT_EVENTS: Final = "all_messages_events"
_SIGNS: Final = (_TRANSCRIPT, _TRANSCRIPT_EVENTS, "model_request_parameters")
"""Any of these tells the dialect where the scope's name was lost on the way."""

_NEW_MESSAGE_INDEX: Final = "pydantic_ai.new_message_index"
_RETRY_CAUSES: Final = ("pydantic_ai.tool.retry.cause", "pydantic_ai.output.retry.cause")
_TRY_AGAIN: Final = "Fix the errors and try again."
"""How each message ends by which pydantic-ai itself asks the model to correct its output."""

_OPERATIONS: Final = {"chat": "model", "execute_tool": "tool", "invoke_agent": "agent"}
_FORMER_NAMES: Final = {
    "agent run": "agent",
    "running tool": "tool",
    "running output function": "tool",
}
"""Names of spans from before they had an operation."""


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    if record.scope.name != _SCOPE and not any(sign in record.attributes for sign in _SIGNS):
        return None
    operation = record.attributes.get(semconv.GEN_AI_OPERATION_NAME)
    if isinstance(operation, str):
        role = _OPERATIONS.get(operation)
    else:
        role = _FORMER_NAMES.get(record.name)
        if role is None and semconv.GEN_AI_REQUEST_MODEL in record.attributes:
            role = "model"
    if role is None:
        return None
    outcome = outcome_of(record)
    if role == "model" and _never_answered(record, outcome):
        outcome = Outcome("cancelled")
    facts = SpanFacts(
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=record.text(semconv.GEN_AI_AGENT_NAME) or record.text("agent_name"),
        conversation_id=record.text(semconv.GEN_AI_CONVERSATION_ID),
    )
    if role == "agent":
        result = as_text(record.attributes.get("final_result"))
        return replace(facts, role="agent", goal=_goal(record), result=result)
    if role == "tool":
        error = facts.error
        if facts.status == "failed" and error is None:  # told without content
            error = next((cause for cause in map(record.text, _RETRY_CAUSES) if cause), None)
        return replace(facts, role="tool", error=error, tool_call=_tool_call(record))
    return replace(facts, role="model", model_calls=(_model_call(record, logs, outcome),))


def _tool_call(record: SpanRecord) -> ToolCall:
    said = record.attributes
    arguments = said.get(semconv.GEN_AI_TOOL_CALL_ARGUMENTS, said.get("tool_arguments"))
    result = said.get(semconv.GEN_AI_TOOL_CALL_RESULT, said.get("tool_response"))
    return ToolCall(
        name=record.text(semconv.GEN_AI_TOOL_NAME) or record.name,
        call_id=record.text(semconv.GEN_AI_TOOL_CALL_ID),
        arguments=as_text(arguments),
        # An empty text is what the tool returned, too.
        result="" if result == "" else as_text(result),
    )


# --- model calls ---


def _never_answered(record: SpanRecord, outcome: Outcome) -> bool:
    """Whether the call ended without an answer and without an error: it was cancelled."""
    return (
        outcome.status == "succeeded"
        and record.status_code == "UNSET"
        and record.scope.name == _SCOPE
        and not record.dropped_attributes
        and semconv.GEN_AI_REQUEST_MODEL in record.attributes
        and semconv.GEN_AI_RESPONSE_MODEL not in record.attributes
        and semconv.GEN_AI_OUTPUT_MESSAGES not in record.attributes
        and semconv.GEN_AI_USAGE_INPUT_TOKENS not in record.attributes
        and "events" not in record.attributes
    )


def _model_call(record: SpanRecord, logs: Sequence[LogRecord], outcome: Outcome) -> ModelCall:
    said = record.attributes
    call = ModelCall(
        ordinal=0,
        status=outcome.status,
        error=outcome.error,
        started_ns=record.start_ns,
        ended_ns=record.end_ns,
        model=record.text(semconv.GEN_AI_RESPONSE_MODEL)
        or record.text(semconv.GEN_AI_REQUEST_MODEL),
        cost=cost_of(said.get("operation.cost")),
    )
    told = conversation(said["events"]) if "events" in said else _logged(record, logs)
    if told is not None:
        return replace(
            call,
            prompt=told.prompt,
            decision=told.decision,
            finish_reason=told.finish_reason,
            call_ids=told.call_ids,
        )
    prompt = in_genai_form(said.get(semconv.GEN_AI_INPUT_MESSAGES))
    decision = in_genai_form(said.get(semconv.GEN_AI_OUTPUT_MESSAGES))
    return replace(
        call,
        # What needs no other form is read as the conventions say it.
        prompt=None if prompt is None else Said(prompt, structured=True, system=_system(record)),
        decision=None if decision is None else Said(decision, structured=True),
        call_ids=() if decision is None else call_ids_in(parsed(decision)),
    )


def _logged(record: SpanRecord, logs: Sequence[LogRecord]) -> Conversation | None:
    found = Conversation()
    for log in logs:
        if log.scope.name == record.scope.name:  # not what the program logs meanwhile
            found.add(log.event_name, parsed(log.body))
    return found if found.sent or found.answered else None


def _system(record: SpanRecord) -> str | None:
    """The instructions sent beside the messages, as a JSON array of parts."""
    said = record.attributes.get(semconv.GEN_AI_SYSTEM_INSTRUCTIONS)
    if isinstance(said, str):
        if isinstance(parsed(said), list):
            return said
        parts: list[dict[str, Any]] = [{"type": "text", "content": said}] if said else []
    else:
        parts = [part for part in said if isinstance(part, dict)] if isinstance(said, list) else []
    return message_list(parts).raw if parts else None


# --- agent runs ---


def _goal(record: SpanRecord) -> str | None:
    """The first text of the user in this run."""
    said = record.attributes
    if _TRANSCRIPT in said:
        messages = parsed(said[_TRANSCRIPT])
        if not isinstance(messages, list | tuple):
            return None
        begin = _position(messages, record.integer(_NEW_MESSAGE_INDEX) or 0)
        asked = (text_in(message) for message in messages[begin:] if _role(message) == "user")
        return next((text for text in asked if text), None)
    told = conversation(said.get(_TRANSCRIPT_EVENTS))
    return None if told is None else _last_opening(told.sent)


def _position(messages: Sequence[Any], index: int) -> int:
    """Where the request or response with this number begins.

    A response is one message. A request is as many as there are roles in it, so that what stands
    between two responses is one request.
    """
    seen = 0
    within_request = False
    for position, message in enumerate(messages):
        request = _role(message) != "assistant"
        if not (request and within_request):
            if seen == index:
                return position
            seen += 1
        within_request = request
    return len(messages)


def _last_opening(messages: Sequence[Any]) -> str | None:
    """The user's text by which the last run began, where nothing else says where that was.

    A run ends with an answer without tool calls. What the user says after one opens the next run,
    unless it is pydantic-ai that asks for a better answer.
    """
    opening = None
    answered = True
    for message in messages:
        role = _role(message)
        if role == "assistant":
            answered = not call_ids_in([message])
        elif role == "user" and (text := text_in(message)) and answered:
            if opening is None or not text.endswith(_TRY_AGAIN):
                opening = text
            answered = False
    return opening


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None
