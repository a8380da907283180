# SPDX-License-Identifier: Apache-2.0
"""OpenInference: the dialect of Arize's instrumentations, for model clients and frameworks.

A span says its kind (``openinference.span.kind``); lists of messages are flattened into one
attribute for each leaf, and ``input.value``, ``output.value`` hold what was given and came back
as text or JSON. A prompt or decision is that of the two which says more, see
`otel_taskhistory.conventions.openinference_raw.believed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from otel_taskhistory import semconv
from otel_taskhistory.conventions.content import parsed, text_of
from otel_taskhistory.conventions.facts import Role, SpanFacts, ToolCall
from otel_taskhistory.conventions.openinference_calls import (
    INPUT,
    OUTPUT,
    is_abandoned,
    is_of_openinference,
    model_call,
)
from otel_taskhistory.conventions.openinference_messages import Lists, gathered
from otel_taskhistory.conventions.openinference_values import (
    ToolOutput,
    goal_of,
    result_of,
    said,
    tool_arguments,
    tool_output,
)
from otel_taskhistory.conventions.outcome import Outcome, outcome_of
from otel_taskhistory.recording.formats import Json
from otel_taskhistory.spans.record import LogRecord, SpanRecord

SPAN_KIND: Final = "openinference.span.kind"
METADATA: Final = "metadata"

_ROLES: Final[Mapping[str, Role]] = {"LLM": "model", "TOOL": "tool", "AGENT": "agent"}
"""All other kinds (chains, embeddings, retrievers, guardrails, …) are no steps by themselves."""

_TOOL_SIGNS: Final = ("tool.name", "tool_call.function.name")
_MODEL_SIGNS: Final = (
    *("llm.model_name", "llm.request.model_name", "llm.invocation_parameters"),
    *("llm.provider", "llm.system", "llm.prompts"),
)

_SESSIONS: Final = ("session_id", "conversation_id", "thread_id")
_AGENT_OF_LANGCHAIN: Final = "lc_agent_name"
_NODE: Final = "langgraph_node"


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> SpanFacts | None:
    """What the span says in this dialect, or None when it does not speak it."""
    lists = gathered(record.attributes)
    role = _role(record, lists)
    if role is None:
        return None
    metadata = _metadata(record)
    if _kind(record) == "CHAIN" and _is_agent_of_langchain(metadata):
        role = "agent"
    outcome = outcome_of(record)
    output = tool_output(record.attributes.get(OUTPUT)) if role == "tool" else None
    if output is not None and output.failed and outcome.status == "succeeded":
        # LangChain hands an error that the tool's own handler caught to the model; the span is OK.
        outcome = Outcome("failed", output.result)
    elif role == "model" and is_abandoned(record, outcome):
        outcome = Outcome("cancelled", "abandoned stream")
    return SpanFacts(
        role=role,
        status=outcome.status,
        error=outcome.error,
        error_type=outcome.error_type,
        agent=_agent(record, role, metadata),
        conversation_id=_conversation(record, metadata),
        goal=_goal(record, role),
        result=_result(record, role),
        model_calls=(model_call(record, lists, outcome),) if role == "model" else (),
        tool_call=_tool_call(record, output) if output is not None else None,
    )


# --- what a span is -----------------------------------------------------------------------------


def _role(record: SpanRecord, lists: Lists) -> Role | None:
    """By its kind; a span that has not ended often has none yet, but attributes that tell."""
    if kind := _kind(record):
        return "step" if _is_step(record, kind) else _ROLES.get(kind, "other")
    if any(record.text(sign) for sign in _TOOL_SIGNS):
        return "tool"
    if lists.found or any(sign in record.attributes for sign in _MODEL_SIGNS):
        return "model"
    return "other" if is_of_openinference(record) else None


def _is_step(record: SpanRecord, kind: str) -> bool:
    """Whether it is a step of smolagents: most of its model classes leave no span of their own."""
    named = record.name.removeprefix("Step ")
    return (
        kind == "CHAIN"
        and named != record.name
        and named.isdecimal()
        and (record.scope.name.endswith("smolagents"))
    )


def _kind(record: SpanRecord) -> str:
    return (record.text(SPAN_KIND) or "").upper()


def _metadata(record: SpanRecord) -> Json:
    """The metadata of LangChain, where it tells more than attributes do."""
    given = record.attributes.get(METADATA)
    keys = (_AGENT_OF_LANGCHAIN, *_SESSIONS)
    if isinstance(given, str) and not any(key in given for key in keys):
        return {}
    held = parsed(given)
    return held if isinstance(held, dict) else {}


def _is_agent_of_langchain(metadata: Json) -> bool:
    """Whether a chain is the run of an agent: its kind goes by its name, which may be any.

    The nodes within such a run have its metadata, too, and which node they are.
    """
    return text_of(metadata.get(_AGENT_OF_LANGCHAIN)) is not None and _NODE not in metadata


def _agent(record: SpanRecord, role: Role, metadata: Json) -> str | None:
    agent = (
        record.text("agent.name")
        or text_of(metadata.get(_AGENT_OF_LANGCHAIN))
        or record.text(semconv.GEN_AI_AGENT_NAME)
    )
    if agent is not None or role != "agent":
        return agent
    if (node := record.text("graph.node.id")) is not None:
        return node
    # smolagents and LangChain name the span after the agent.
    if record.name.endswith(".run") or ".langchain" in record.scope.name:
        return record.name.removesuffix(".run") or None
    return None


def _conversation(record: SpanRecord, metadata: Json) -> str | None:
    told = (text_of(metadata.get(key)) for key in _SESSIONS)
    return (
        record.text("session.id")
        or next((session for session in told if session is not None), None)
        or record.text(semconv.GEN_AI_CONVERSATION_ID)
    )


def _goal(record: SpanRecord, role: Role) -> str | None:
    explicit = record.text(semconv.TASKHISTORY_TASK_GOAL)
    if explicit is not None or not _is_run(record, role):
        return explicit
    return goal_of(record.attributes.get(INPUT))


def _result(record: SpanRecord, role: Role) -> str | None:
    explicit = record.text(semconv.TASKHISTORY_TASK_RESULT)
    if explicit is not None:
        return explicit
    value = record.attributes.get(OUTPUT)
    if _is_run(record, role):
        return result_of(value)
    # A chain within a run may turn out to be a step; a state of a graph is no result of one.
    is_state = "json" in (record.text("output.mime_type") or "")
    return said(value) if role in ("other", "step") and not is_state else None


def _is_run(record: SpanRecord, role: Role) -> bool:
    """Whether the span is what was to be done: an agent's run, or the chain of a whole trace."""
    if role == "agent":
        return True
    is_root = record.parent_span_id is None or record.parent_remote
    return role == "other" and is_root and _kind(record) == "CHAIN"


# --- tools --------------------------------------------------------------------------------------


def _tool_call(record: SpanRecord, output: ToolOutput) -> ToolCall:
    names = (record.text(sign) for sign in _TOOL_SIGNS)
    return ToolCall(
        name=next((name for name in names if name is not None), record.name),
        call_id=record.text("tool.id") or record.text("tool_call.id") or output.call_id,
        arguments=tool_arguments(
            record.attributes.get(INPUT),
            record.attributes.get("tool_call.function.arguments"),
            record.attributes.get("tool.parameters"),
        ),
        result=output.result,
    )
