# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry GenAI semantic conventions: model calls, tool calls, agent runs.

All generations of them: where content may stand is told in
`otel_taskhistory.conventions.genai_content`, which names numbers have had in
`otel_taskhistory.conventions.genai_usage`. See the conventions' pages on GenAI spans and on agent
spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai_flattened, genai_usage
from otel_taskhistory.conventions.content import as_text
from otel_taskhistory.conventions.facts import ModelCall, Role, Said, SpanFacts, ToolCall
from otel_taskhistory.conventions.genai_content import Content
from otel_taskhistory.conventions.genai_messages import last_text, messages_in
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.spans.record import Attributes, EventRecord, LogRecord, SpanRecord

ROLES: Final[Mapping[str, Role]] = {
    "chat": "model",
    "text_completion": "model",
    "generate_content": "model",
    # Not in the conventions, but said by some.
    "completion": "model",
    "chat_completion": "model",
    "text_generation": "model",
    "responses": "model",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "invoke_workflow": "agent",
    "invoke_graph": "agent",
    "invoke_swarm": "agent",
    "create_agent": "setup",
}
"""What an operation is. Any other (``embeddings``, ``retrieval``, ``plan``, ``handoff``,
``execute_task``, ``execute_event_loop_cycle``, …) is work within a step or around steps: it asks
no model by itself."""

_NAMED: Final = tuple(f"{operation} " for operation in ROLES if "_" in operation)
"""How the name of a span begins that says its operation, where no attribute does."""
_KINDS: Final[Mapping[str, Role]] = {
    "LLM": "model",
    "TOOL": "tool",
    "AGENT": "agent",
}
"""``gen_ai.span.kind``, of some vendors' agents for OpenTelemetry."""
_SPAN_KIND: Final = "gen_ai.span.kind"
_REQUEST_TYPE: Final = "llm.request.type"
_NO_MODEL_CALLS: Final = frozenset({"embedding", "embeddings", "rerank"})

_MODEL_SIGNS: Final = (
    semconv.GEN_AI_REQUEST_MODEL,
    semconv.GEN_AI_RESPONSE_MODEL,
    semconv.GEN_AI_INPUT_MESSAGES,
    semconv.GEN_AI_OUTPUT_MESSAGES,
)
_GENAI_SIGNS: Final = (
    "gen_ai.provider.name",
    "gen_ai.system",
    semconv.GEN_AI_AGENT_NAME,
    semconv.GEN_AI_TOOL_NAME,
    semconv.GEN_AI_REQUEST_MODEL,
)
_CONVERSATIONS: Final = (semconv.GEN_AI_CONVERSATION_ID, "session.id")
_NO_CALL_ID: Final = "<not specified>"
"""What Google ADK writes when a call has no id."""
_NO_ARGUMENTS: Final = "None"
"""What Agent Framework writes when a call has no arguments."""
_NO_MODEL: Final = "unknown"
"""What instrumentations write that could not find out which model was asked."""

_ANTHROPIC_SDK: Final = "com.anthropic.sdk.python"
_WORKFLOWS: Final = "agent_framework"


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    role = role_of(record)
    if role is None:
        return None
    outcome = _outcome(record)
    content = Content(record.attributes, record.events, logs)
    is_agent = role == "agent"
    return SpanFacts(
        role=role,
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=content.text(semconv.GEN_AI_AGENT_NAME),
        conversation_id=content.text(*_CONVERSATIONS),
        goal=record.text(semconv.TASKHISTORY_TASK_GOAL)
        or (_text(content.input(), "user") if is_agent else None),
        result=record.text(semconv.TASKHISTORY_TASK_RESULT)
        or (_text(content.output(), "assistant", "model", None) if is_agent else None),
        model_calls=(_model_call(content, record, outcome),) if role == "model" else (),
        tool_call=tool_call(record) if role == "tool" else None,
    )


def role_of(record: SpanRecord) -> Role | None:
    """What a span is by the conventions; None when they do not say that it is anything."""
    attributes = record.attributes
    operation = attributes.get(semconv.GEN_AI_OPERATION_NAME)
    if operation is not None:
        return ROLES.get(operation) if isinstance(operation, str) else None
    kind = attributes.get(_SPAN_KIND)
    if isinstance(kind, str):
        return _KINDS.get(kind.upper())
    if record.scope.name == _WORKFLOWS:
        return _workflow_role(record.name)
    if record.name.startswith(_NAMED) and any(sign in attributes for sign in _GENAI_SIGNS):
        return ROLES[record.name.partition(" ")[0]]
    if record.text(semconv.GEN_AI_TOOL_NAME):
        return "tool"
    if any(sign in attributes for sign in _MODEL_SIGNS) or genai_flattened.is_flattened(attributes):
        return None if record.text(_REQUEST_TYPE) in _NO_MODEL_CALLS else "model"
    return None


def model_call(
    attributes: Attributes,
    record: SpanRecord,
    outcome: Outcome,
    *,
    ordinal: int,
    started_ns: int | None = None,
    ended_ns: int | None = None,
    events: Sequence[EventRecord] = (),
    logs: Sequence[LogRecord] = (),
) -> ModelCall:
    """The model call that `attributes` (of a span or of one of its events) tell of.

    Args:
        events: events of the span that may tell more of this call.
        logs: log records likewise.
    """
    return _model_call(
        Content(attributes, events, logs),
        record,
        outcome,
        ordinal=ordinal,
        started_ns=started_ns,
        ended_ns=ended_ns,
    )


def tool_call(record: SpanRecord) -> ToolCall:
    """The tool call that a span is."""
    call_id = record.text(semconv.GEN_AI_TOOL_CALL_ID)
    arguments = _value(record.attributes, semconv.GEN_AI_TOOL_CALL_ARGUMENTS)
    if semconv.TASKHISTORY_ROLE not in record.attributes:  # ours are what the agent gave
        call_id = None if call_id == _NO_CALL_ID else call_id
        arguments = None if arguments == _NO_ARGUMENTS else arguments
    return ToolCall(
        name=record.text(semconv.GEN_AI_TOOL_NAME)
        or record.name.removeprefix("execute_tool ")
        or record.name,
        call_id=call_id,
        arguments=arguments,
        result=_value(record.attributes, semconv.GEN_AI_TOOL_CALL_RESULT),
    )


def _model_call(
    content: Content,
    record: SpanRecord,
    outcome: Outcome,
    *,
    ordinal: int = 0,
    started_ns: int | None = None,
    ended_ns: int | None = None,
) -> ModelCall:
    answer = content.answer()
    return ModelCall(
        ordinal=ordinal,
        status=outcome.status,
        started_ns=record.start_ns if started_ns is None else started_ns,
        ended_ns=record.end_ns if ended_ns is None else ended_ns,
        model=_model(content),
        prompt=content.prompt(),
        decision=answer.said,
        finish_reason=answer.finish_reason,
        tokens=genai_usage.tokens(content.sources),
        cost=genai_usage.cost(content.sources),
        error=outcome.error,
        call_ids=answer.call_ids,
        response_id=content.text(semconv.GEN_AI_RESPONSE_ID),
    )


def _model(content: Content) -> str | None:
    """The model that answered, else the one that was asked for."""
    for key in (semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL):
        name = content.text(key)
        if name is not None and name != _NO_MODEL:
            return name
    return None


def _workflow_role(name: str) -> Role | None:
    """Spans of Agent Framework's workflows, which have no operation."""
    if name.startswith("workflow.run"):
        return "agent"
    return "setup" if name.startswith("workflow.build") else None


def _outcome(record: SpanRecord) -> Outcome:
    """As for any span, and what only one SDK leaves unsaid.

    Anthropic's own spans end with OK or ERROR; one that ends with neither is of a stream that
    nobody read to its end.
    """
    outcome = outcome_of(record)
    if (
        outcome.status == "succeeded"
        and record.scope.name == _ANTHROPIC_SDK
        and record.status_code == "UNSET"
        and "anthropic.message.stop_reason" not in record.attributes
    ):
        return Outcome("cancelled", "abandoned stream")
    return outcome


def _text(said: Said | None, *roles: str | None) -> str | None:
    """The text of the last message of these roles, as an agent's input or output ends with it."""
    if said is None or not said.structured:
        return said.raw if said is not None else None
    return last_text(messages_in(said), *roles)


def _value(attributes: Attributes, key: str) -> str | None:
    """As text; an empty string is a value, too."""
    value = attributes.get(key)
    return value if isinstance(value, str) else as_text(value)
