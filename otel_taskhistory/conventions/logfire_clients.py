# SPDX-License-Identifier: Apache-2.0
"""Model calls and MCP tool calls as Logfire's own instrumentations say them.

``instrument_openai`` and ``instrument_anthropic`` put the request as it was sent into
``request_data`` and the response into ``response_data``. For the Responses API, and from
``instrument_openai_agents``, the messages are a list of events in ``events``, the answer at its
end. ``instrument_mcp`` has the JSON-RPC messages in ``request`` and ``response``.

A stream makes two spans: one for the request that opened it, and when it is used up a log with the
whole call and its ``duration``. The log is the model call; the request only prepared it, unless it
failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions.content import as_text, cost_of, parsed, text_of, tokens_of
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts, Tokens, ToolCall
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.conventions.pydantic_ai_messages import call_ids_in, conversation
from otel_taskhistory.recording.messages import convert_decision, convert_prompt
from otel_taskhistory.spans.record import SpanRecord

_SCOPES: Final = "logfire."
"""Logfire's instrumentations have scopes of this name and of what they instrument."""
_AGENTS_SCOPE: Final = "logfire.openai_agents"
_MCP_SCOPE: Final = "logfire.mcp"

_CALL_TOOL: Final = "tools/call"


@dataclass(frozen=True, slots=True)
class _Told:
    """What a span says of a model call."""

    prompt: Said | None = None
    decision: Said | None = None
    finish_reason: str | None = None
    model: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    opens_stream: bool = False


def read(record: SpanRecord) -> SpanFacts | None:
    """What a span of these instrumentations says, None for any other."""
    if not record.scope.name.startswith(_SCOPES):
        return None
    if record.scope.name == _MCP_SCOPE:
        return _tool_call(record)
    told = _events(record) if "events" in record.attributes else _request(record)
    if told is None:
        return None
    outcome = outcome_of(record)
    opens_stream = told.opens_stream and outcome.status in ("succeeded", "running")
    return SpanFacts(
        role="setup" if opens_stream else "model",
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        model_calls=() if opens_stream else (_model_call(record, told, outcome),),
    )


def _model_call(record: SpanRecord, told: _Told, outcome: Outcome) -> ModelCall:
    duration_ns = 0
    if _is_log(record):  # its only time is the end of the call
        duration_ns = _nanoseconds(record.attributes.get("duration"))
    return ModelCall(
        ordinal=0,
        status=outcome.status,
        started_ns=record.start_ns - duration_ns,
        ended_ns=record.end_ns,
        model=record.text(semconv.GEN_AI_RESPONSE_MODEL)
        or record.text(semconv.GEN_AI_REQUEST_MODEL)
        or told.model,
        prompt=told.prompt,
        decision=told.decision,
        finish_reason=told.finish_reason,
        tokens=Tokens(
            tokens_of(told.usage.get("input_tokens")),
            tokens_of(told.usage.get("output_tokens")),
            tokens_of(told.usage.get("cached_tokens")),
            tokens_of(told.usage.get("reasoning_tokens")),
        ),
        cost=cost_of(record.attributes.get("operation.cost")),
        error=outcome.error,
        call_ids=() if told.decision is None else call_ids_in(parsed(told.decision.raw) or ()),
    )


def _request(record: SpanRecord) -> _Told | None:
    """The request of an OpenAI or Anthropic client; None for one that is no model call."""
    request = _mapping(record.attributes.get("request_data"))
    messages = request.get("messages")
    if not isinstance(messages, list):
        messages = request.get("prompt") if record.name.startswith("Completion") else None
        if not isinstance(messages, str | list):
            return None
    response = _mapping(record.attributes.get("response_data"))
    reply = response.get("message", response.get("combined_chunk_content", response.get("text")))
    if reply is None and record.scope.name == _AGENTS_SCOPE:
        # Prompt and answer in one list, the answer last.
        sent = len(messages)
        while sent and _mapping(messages[sent - 1]).get("role") == "assistant":
            sent -= 1
        messages, reply = messages[:sent], messages[sent:] or None
    prompt = convert_prompt(messages, system=request.get("system"))
    usage = response.get("usage")
    told = None if reply is None else convert_decision(reply, usage=usage)
    return _Told(
        prompt=Said(prompt.messages, structured=not prompt.text, system=prompt.system),
        decision=None if told is None else Said(told.messages, structured=True),
        finish_reason=text_of(response.get("finish_reason")),
        model=text_of(request.get("model")),
        usage={} if told is None else told.usage,
        opens_stream=request.get("stream") is True and reply is None and not _is_log(record),
    )


def _events(record: SpanRecord) -> _Told | None:
    """The events of a call of the Responses API: the answer are the last ones."""
    told = conversation(record.attributes["events"])
    if told is None:
        return None
    told.split_answer()
    request = _mapping(record.attributes.get("request_data"))
    return _Told(
        prompt=told.prompt,
        decision=told.decision,
        finish_reason=told.finish_reason,
        model=text_of(request.get("model")),
        opens_stream=request.get("stream") is True
        and told.decision is None
        and not _is_log(record),
    )


def _tool_call(record: SpanRecord) -> SpanFacts:
    """An MCP message: a tool call, or something else that is no work by itself."""
    request = _mapping(record.attributes.get("request"))
    params = _mapping(request.get("params"))
    response = _mapping(record.attributes.get("response"))
    outcome = outcome_of(record)
    called = request.get("method") == _CALL_TOOL or record.text("rpc.method") == _CALL_TOOL
    if not called:
        return SpanFacts(status=outcome.status, error=outcome.error, error_type=outcome.error_type)
    failed = outcome.status == "succeeded" and response.get("isError") is True
    return SpanFacts(
        role="tool",
        status="failed" if failed else outcome.status,
        error=outcome.error,
        error_type="tool_error" if failed else outcome.error_type,
        tool_call=ToolCall(
            name=text_of(params.get("name")) or record.name.rpartition(" ")[2] or _CALL_TOOL,
            arguments=as_text(params.get("arguments")),
            result=as_text(response.get("content")),
        ),
    )


def _is_log(record: SpanRecord) -> bool:
    return record.attributes.get("logfire.span_type") == "log"


def _mapping(value: Any) -> Mapping[str, Any]:
    found = parsed(value)
    return found if isinstance(found, Mapping) else {}


def _nanoseconds(seconds: Any) -> int:
    """A duration that can be one: at most a week, for the start must not lie anywhere."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return 0
    return round(seconds * 10**9) if 0 <= seconds <= 7 * 24 * 3600 else 0
