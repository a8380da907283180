# SPDX-License-Identifier: Apache-2.0
"""Strands Agents, where it goes its own way beside the GenAI conventions.

Model calls and agent runs speak the conventions (their content travels in span events, see
`otel_taskhistory.conventions.genai_events`). Here is what is Strands' own: arguments and results
of tools in events, failures told by ``gen_ai.tool.status`` alone, cancelled runs told by
``strands.cancellation.type``, and the spans of its first versions, which had names instead of
operations. Register it before the conventions: what it says of status is the better word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai, genai_cut, genai_events
from otel_taskhistory.conventions.content import as_text, text_of
from otel_taskhistory.conventions.facts import Role, SpanFacts, ToolCall
from otel_taskhistory.conventions.genai_events import CHOICE
from otel_taskhistory.conventions.genai_flattened import COMPLETION, PROMPT
from otel_taskhistory.conventions.genai_messages import messages_in, said_of
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.spans.record import LogRecord, SpanRecord

SCOPES: Final = frozenset({"strands.telemetry.tracer", "strands-agents"})
_SYSTEM: Final = "strands-agents"
_SYSTEM_KEYS: Final = ("gen_ai.provider.name", "gen_ai.system")

_CANCELLATION: Final = "strands.cancellation.type"
_TOOL_STATUS: Final = ("gen_ai.tool.status", "tool.status")
_TOOL_MESSAGE: Final = "gen_ai.tool.message"
_TOOL_NAME: Final = "tool.name"
_TOOL_ID: Final = "tool.id"
_TOOL_ARGUMENTS: Final = "tool.parameters"
_TOOL_RESULT: Final = "tool.result"
_CYCLE: Final = "event_loop.cycle_id"


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says beyond the conventions, or None when it says nothing more."""
    if not _is_strands(record):
        return None
    if semconv.GEN_AI_OPERATION_NAME not in record.attributes:
        return _first_version(record, logs)
    role = genai.role_of(record)
    if role != "tool" and _CANCELLATION not in record.attributes:
        return None
    outcome = _outcome(record, role)
    return SpanFacts(
        role=role or "other",
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=record.text(semconv.GEN_AI_AGENT_NAME),
        tool_call=_tool_call(record) if role == "tool" else None,
    )


def _first_version(record: SpanRecord, logs: Sequence[LogRecord]) -> SpanFacts | None:
    """A span without an operation: its name, or what it carries, tells what it is."""
    role: Role = "other"
    if record.name == "Model invoke":
        role = "model"
    elif record.text(_TOOL_NAME) or record.name.startswith("Tool: "):
        role = "tool"
    elif _CYCLE not in record.attributes and record.text(semconv.GEN_AI_AGENT_NAME):
        role = "agent"
    if role == "other":
        return None
    outcome = _outcome(record, role)
    call = genai.model_call(
        record.attributes, record, outcome, ordinal=0, events=record.events, logs=logs
    )
    return SpanFacts(
        role=role,
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=record.text(semconv.GEN_AI_AGENT_NAME) or record.text("agent.name"),
        goal=record.text(PROMPT) if role == "agent" else None,
        result=record.text(COMPLETION) if role == "agent" else None,
        model_calls=(call,) if role == "model" else (),
        tool_call=_tool_call(record) if role == "tool" else None,
    )


def _is_strands(record: SpanRecord) -> bool:
    if record.scope.name in SCOPES:
        return True
    return any(record.attributes.get(key) == _SYSTEM for key in _SYSTEM_KEYS)


def _tool_call(record: SpanRecord) -> ToolCall:
    """The call, with what events (or attributes of the first versions) say of it."""
    call = genai.tool_call(record)
    said = record.attributes
    arguments = call.arguments or as_text(said.get(_TOOL_ARGUMENTS))
    result = call.result or as_text(said.get(_TOOL_RESULT))
    if arguments is None:
        arguments = _event_text(record, _TOOL_MESSAGE, "content") or _part_text(
            record, semconv.GEN_AI_INPUT_MESSAGES, "tool_call", "arguments"
        )
    if result is None:
        result = _event_text(record, CHOICE, "message") or _part_text(
            record, semconv.GEN_AI_OUTPUT_MESSAGES, "tool_call_response", "response"
        )
    name = record.text(semconv.GEN_AI_TOOL_NAME) or record.text(_TOOL_NAME)
    return replace(
        call,
        name=name or call.name.removeprefix("Tool: "),
        call_id=call.call_id or record.text(_TOOL_ID),
        arguments=arguments,
        result=result,
    )


def _event_text(record: SpanRecord, name: str, key: str) -> str | None:
    """What the last event of a name says."""
    told = [event.attributes.get(key) for event in record.events if event.name == name]
    return as_text(told[-1]) if told else None


def _part_text(record: SpanRecord, key: str, kind: str, field: str) -> str | None:
    """What a part of a kind says, in messages that stand in attributes or in an event."""
    sources = [record.attributes, *genai_events.details(record.events, ())]
    for message in (one for said in sources for one in messages_in(said_of(said.get(key)))):
        parts = message.get("parts")
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and part.get("type") == kind:
                return as_text(part.get(field))
    return None


def _outcome(record: SpanRecord, role: Role | None) -> Outcome:
    outcome = outcome_of(record)
    if outcome.status != "succeeded":
        return outcome
    cancelled = record.text(_CANCELLATION)
    if cancelled is not None:
        return Outcome("cancelled", None, cancelled)
    if role != "tool":
        return outcome
    status = next((said for key in _TOOL_STATUS if (said := record.text(key))), None)
    if status == "error":
        return Outcome("failed", _said_by(_tool_call(record).result))
    if status is None and _tool_call(record).result is None:
        # Its span is ended in any case; status and result are told when the tool has returned.
        return Outcome("cancelled")
    return outcome


def _said_by(result: str | None) -> str | None:
    """The text of a result in Bedrock's form; any other as it is."""
    found = genai_cut.parse(result) if result is not None and result.startswith("[") else None
    texts = [_text(block) for block in found] if isinstance(found, list) else []
    return "\n".join(text for text in texts if text) or result


def _text(block: Any) -> str | None:
    return text_of(block.get("text")) if isinstance(block, dict) else None
