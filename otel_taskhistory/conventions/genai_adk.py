# SPDX-License-Identifier: Apache-2.0
"""Google ADK, where it goes its own way beside the GenAI conventions.

Its newer versions speak the conventions, with content in log records by default. The versions
before 2.0 have the request and the response of a model as JSON in attributes of their own, and
spans that have names instead of operations. A failed tool says what failed in its result alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai, genai_cut, genai_usage
from otel_taskhistory.conventions.content import as_text, message_list, text_of, tokens_of
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts, Tokens
from otel_taskhistory.conventions.genai_blocks import Json, plain
from otel_taskhistory.conventions.genai_messages import call_ids
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.recording.formats import items
from otel_taskhistory.recording.keys import PREFIX
from otel_taskhistory.spans.record import LogRecord, SpanRecord

SCOPES: Final = frozenset({"gcp.vertex.agent"})
_OWN: Final = "gcp.vertex.agent."
_REQUEST: Final = _OWN + "llm_request"
_RESPONSE: Final = _OWN + "llm_response"
_ARGUMENTS: Final = _OWN + "tool_call_args"
_RESULT: Final = _OWN + "tool_response"
_SESSION: Final = _OWN + "session_id"
_TOOL_ERROR: Final = "TOOL_ERROR"
"""Status message and error type of a tool that returned an error."""
_RUN: Final = "agent_run ["
_ROOT: Final = "invocation"
_CALL: Final = "call_llm"


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says beyond the conventions, or None when it says nothing more."""
    if record.scope.name not in SCOPES and record.text("gen_ai.system") not in SCOPES:
        return None
    role = genai.role_of(record)
    session = record.text(_SESSION)
    outcome = outcome_of(record)
    facts = SpanFacts(
        role=role or "other",
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        conversation_id=session,
    )
    if role == "tool":
        return _tool(record, facts)
    if record.name == _CALL or _REQUEST in record.attributes:
        return replace(facts, role="model", model_calls=(_model_call(record, outcome),))
    if role is None and record.name.startswith(_RUN):
        name = record.name[len(_RUN) :].removesuffix("]")
        return replace(facts, role="agent", agent=name or None)
    if role is None and record.name == _ROOT:
        return replace(facts, role="agent")
    return None if session is None else facts


def _tool(record: SpanRecord, facts: SpanFacts) -> SpanFacts:
    call = genai.tool_call(record)
    result = call.result or as_text(record.attributes.get(_RESULT))
    error = facts.error
    if facts.status == "failed" and error in (None, _TOOL_ERROR):
        error = _error_in(result) or error
    arguments = call.arguments or as_text(record.attributes.get(_ARGUMENTS))
    return replace(facts, error=error, tool_call=replace(call, arguments=arguments, result=result))


def _error_in(result: str | None) -> str | None:
    """What a tool's result ``{"error": …}`` says."""
    if result is None or not result.startswith("{"):
        return None
    found = genai_cut.parse(result)
    return as_text(found.get("error")) if isinstance(found, dict) else None


def _model_call(record: SpanRecord, outcome: Outcome) -> ModelCall:
    """The call as the attributes of the older versions tell it; the conventions fill the rest."""
    request = _object(record.attributes.get(_REQUEST))
    response = _object(record.attributes.get(_RESPONSE))
    answer = _contents([response.get("content")])
    reason = response.get("finish_reason")
    told = genai_usage.tokens([record.attributes])
    usage = response.get("usage_metadata")
    counted = usage if isinstance(usage, dict) else {}
    return ModelCall(
        ordinal=0,
        status=outcome.status,
        started_ns=record.start_ns,
        ended_ns=record.end_ns,
        model=record.text(semconv.GEN_AI_REQUEST_MODEL) or text_of(request.get("model")),
        prompt=_prompt(request),
        decision=message_list(answer) if answer else None,
        finish_reason=text_of(reason),
        tokens=Tokens(
            _either(told.input, counted.get("prompt_token_count")),
            _either(told.output, counted.get("candidates_token_count")),
            _either(told.cached, counted.get("cached_content_token_count")),
            _either(told.reasoning, counted.get("thoughts_token_count")),
        ),
        error=outcome.error,
        call_ids=call_ids(answer),
    )


def _prompt(request: Json) -> Said | None:
    contents = request.get("contents")
    messages = _contents(contents if isinstance(contents, list) else [contents])
    config = request.get("config")
    system = config.get("system_instruction") if isinstance(config, dict) else None
    if system:
        instructions = {"role": "system", "parts": items.system_parts(system)}
        messages.insert(0, _unmarked(instructions))
    return message_list(messages) if messages else None


def _contents(contents: list[Any]) -> list[Json]:
    """Gemini's contents as messages."""
    return [_unmarked(items.to_message(content)) for content in contents if content]


def _unmarked(message: Json) -> Json:
    """A message without the marks by which the recorder could invert it."""
    said = {key: item for key, item in message.items() if not key.startswith(PREFIX)}
    parts = said.get("parts")
    if isinstance(parts, list):
        said["parts"] = [
            {key: item for key, item in part.items() if not key.startswith(PREFIX)}
            if isinstance(part, dict)
            else part
            for part in parts
        ]
    return said


def _object(value: Any) -> Json:
    found = genai_cut.parse(value) if isinstance(value, str) else value
    found = plain(found)
    return found if isinstance(found, dict) else {}


def _either(told: int | None, counted: Any) -> int | None:
    return told if told is not None else tokens_of(counted)
