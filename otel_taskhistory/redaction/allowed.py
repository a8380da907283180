# SPDX-License-Identifier: Apache-2.0
"""What ``ids_only`` lets pass: a list of keys, and of which shape the value of each must be.

Whatever is not in this list stays here, so that the next release of an instrumentation cannot
carry contents out under a new name. docs/privacy.md shows this list; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_taskhistory import semconv
from otel_taskhistory.redaction.shapes import (
    Shape,
    is_flag,
    is_hash,
    is_id,
    is_id_or_number,
    is_media_type,
    is_name,
    is_number,
    is_token,
    is_type,
    is_version,
    is_word,
    several,
)

_OUR_KEYS: Final = frozenset(
    value for name, value in vars(semconv).items() if name.isupper() and isinstance(value, str)
)
_words: Final = several(is_word)
_keys: Final = several(lambda value: isinstance(value, str) and value in _OUR_KEYS)

OURS: Final[Mapping[str, Shape]] = {
    semconv.TASKHISTORY_ROLE: is_word,
    semconv.TASKHISTORY_STATUS: is_word,
    semconv.TASKHISTORY_TASK_ATTEMPT: is_number,
    semconv.TASKHISTORY_TASK_PARENT_ID: is_id,
    semconv.TASKHISTORY_STEP_INDEX: is_number,
    semconv.TASKHISTORY_PROMPT_FORMAT: is_word,
    semconv.TASKHISTORY_DECISION_FORMAT: is_word,
    semconv.TASKHISTORY_CALL_STARTED: is_number,
    semconv.TASKHISTORY_CALL_ENDED: is_number,
    semconv.TASKHISTORY_CALL_ABSENT: _keys,
    semconv.TASKHISTORY_REDUCED: _keys,
    semconv.TASKHISTORY_SCREENSHOT_SHA256: is_hash,
    semconv.TASKHISTORY_SCREENSHOT_MEDIA_TYPE: is_media_type,
    semconv.TASKHISTORY_SCREENSHOT_WIDTH: is_number,
    semconv.TASKHISTORY_SCREENSHOT_HEIGHT: is_number,
    semconv.TASKHISTORY_SCREENSHOT_BYTES: is_number,
    semconv.TASKHISTORY_SCREENSHOT_STATUS: is_word,
}
"""What our own tracer writes."""

CONVENTIONS: Final[Mapping[str, Shape]] = {
    semconv.GEN_AI_OPERATION_NAME: is_word,
    semconv.GEN_AI_AGENT_NAME: is_name,
    semconv.GEN_AI_CONVERSATION_ID: is_id,
    semconv.GEN_AI_REQUEST_MODEL: is_token,
    semconv.GEN_AI_RESPONSE_MODEL: is_token,
    semconv.GEN_AI_RESPONSE_ID: is_id,
    semconv.GEN_AI_RESPONSE_FINISH_REASONS: _words,
    semconv.GEN_AI_TOOL_NAME: is_token,
    semconv.GEN_AI_TOOL_CALL_ID: is_id,
    semconv.EXCEPTION_TYPE: is_type,
    semconv.ERROR_TYPE: is_type,
}
"""OpenTelemetry's conventions, as far as we write them."""

# By what a key begins with: the first word, then the rest.
_OTHERS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "gen_ai": {
        "agent.id": is_id,
        "agent.version": is_version,
        "agent.call.id": is_id,
        "conversation.compacted": is_flag,
        "data_source.id": is_id,
        "embeddings.dimension.count": is_number,
        "is_streaming": is_flag,
        "output.type": is_word,
        "provider.name": is_token,
        "request.choice.count": is_number,
        "request.frequency_penalty": is_number,
        "request.is_stream": is_flag,
        "request.max_tokens": is_number,
        "request.presence_penalty": is_number,
        "request.seed": is_number,
        "request.stream": is_flag,
        "request.temperature": is_number,
        "request.top_k": is_number,
        "request.top_p": is_number,
        "response.finish_reason": is_word,
        "span.kind": is_word,
        "system": is_token,
        "task.id": is_id,
        "task.parent.id": is_id,
        "task.status": is_word,
        "tool.status": is_word,
        "tool.type": is_word,
        "workflow.name": is_name,
    },
    "openinference": {"span.kind": is_word},
    "llm": {
        "finish_reason": is_word,
        "is_streaming": is_flag,
        "model_name": is_token,
        "provider": is_token,
        "request.model_name": is_token,
        "request.type": is_word,
        "response.model_name": is_token,
        "system": is_token,
    },
    "agent": {"name": is_name},
    "tool": {"name": is_token},
    "tool_call": {"id": is_id},
    "session": {"id": is_id},
    "traceloop": {
        "span.kind": is_word,
        "entity.name": is_name,
        "workflow.name": is_name,
    },
    "lmnr": {
        "span.type": is_word,
        "association.properties.session_id": is_id,
    },
    "haystack": {
        "agent.max_steps": is_number,
        "agent.step": is_number,
        "agent.steps_taken": is_number,
        "component.name": is_name,
        "component.type": is_type,
        "component.visits": is_number,
        "tool.error": is_flag,
        "tool.name": is_token,
    },
    "event_loop": {"cycle_id": is_id, "parent_cycle_id": is_id},
    "graph": {"node.id": is_name, "node.parent_id": is_name},
    "logfire": {"level_num": is_number, "span_type": is_word, "pending_parent_id": is_hash},
    "mcp": {
        "method.name": is_token,
        "protocol.version": is_version,
        "session.id": is_id,
    },
    "jsonrpc": {"request.id": is_id_or_number},
    "messaging": {"operation": is_word},
    "anthropic": {"request.id": is_id, "message.stop_reason": is_word},
    "http": {"request.method": is_word, "response.status_code": is_number},
    "rpc": {"system": is_word},
    "exception": {"escaped": is_flag},
}
"""What other instrumentations write."""

_BARE: Final[Mapping[str, Shape]] = {"agent_name": is_name, "model_name": is_token}

_COUNTED: Final = (
    ("gen_ai", ("usage", "aggregated_usage", "cost")),
    ("llm", ("usage", "token_count", "cost")),
)

ATTRIBUTES: Final[Mapping[str, Shape]] = {
    **OURS,
    **CONVENTIONS,
    **{
        f"{first}.{rest}": shape
        for first, shapes in _OTHERS.items()
        for rest, shape in shapes.items()
    },
    **_BARE,
}
"""Attributes of spans, events, links and log records that pass, each with its shape."""

COUNTS: Final = tuple(f"{first}.{rest}." for first, all_of in _COUNTED for rest in all_of)
"""How keys begin whose values pass when they are numbers: tokens and what they cost."""

RESOURCE: Final[Mapping[str, Shape]] = {
    semconv.SERVICE_NAME: is_token,
    "service.namespace": is_token,
    "service.version": is_version,
    "service.instance.id": is_id,
    "deployment.environment": is_word,
    "deployment.environment.name": is_word,
    "telemetry.sdk.name": is_word,
    "telemetry.sdk.language": is_word,
    "telemetry.sdk.version": is_version,
}
"""Attributes of a resource that pass. Not host, user, process and paths."""


def passes(key: str, value: Any) -> bool:
    """Whether an attribute of a span, an event, a link or a log record may leave."""
    shape = ATTRIBUTES.get(key)
    if shape is not None:
        # An empty value says that there is none: so our spans take back what an earlier call said.
        return shape(value) or (isinstance(value, str | list | tuple) and not value)
    return key.startswith(COUNTS) and is_number(value) and is_token(key)
