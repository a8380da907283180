# SPDX-License-Identifier: Apache-2.0
"""Whatever the attributes are: no dialect of pydantic-ai and its neighbours raises."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_taskhistory.conventions import autogen, logfire, mcp, pi_durable, pydantic_ai
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.spans.encode import escape_surrogates
from otel_taskhistory.spans.record import LogRecord, OriginRecord, SpanRecord
from tests.store.deliveries import span

Read = Callable[[SpanRecord, Sequence[LogRecord]], SpanFacts | None]

WORDS = st.sampled_from(
    [
        *("user", "assistant", "system", "tool", "text", "thinking", "binary", "image-url"),
        *("tool_call", "image/png", "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message"),
        *("chat", "execute_tool", "invoke_agent", "create_agent", "tools/call", "process", "log"),
        *("span", "pending_span", "0" * 16, "a" * 16, "cut", "[", '{"a', "NaN"),
    ]
)
KEYS = st.sampled_from(
    [
        *("role", "parts", "type", "content", "kind", "text", "url", "media_type", "id", "name"),
        *("binary_content", "tool_calls", "function", "arguments", "message", "messages", "model"),
        *("event.name", "finish_reason", "data", "system", "usage", "params", "method", "stream"),
        *("prompt_tokens", "isError", "combined_chunk_content", "result", "response"),
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=8)
    | st.text(st.characters(), max_size=8)  # surrogates and NUL too
    | WORDS
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=5)
    ),
    max_leaves=25,
)


def cut(value: Any, at: int) -> str:
    """JSON text of a value, perhaps cut by a limit of the SDK."""
    text = json.dumps(value, default=repr)
    return text if at < 0 else text[:at]


SAID = VALUES | st.builds(cut, VALUES, st.integers(-40, 40))

COMMON = (
    *("gen_ai.operation.name", "gen_ai.request.model", "gen_ai.agent.name", "gen_ai.tool.name"),
    *("gen_ai.conversation.id", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"),
)
DIALECTS: dict[str, tuple[Read, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "pydantic-ai": (
        pydantic_ai.read,
        ("pydantic-ai",),
        ("agent run", "running tool", "chat m"),
        (
            *("pydantic_ai.all_messages", "all_messages_events", "pydantic_ai.new_message_index"),
            *("events", "gen_ai.input.messages", "gen_ai.output.messages", "final_result"),
            *("gen_ai.system_instructions", "operation.cost", "tool_arguments", "tool_response"),
            *("agent_name", "pydantic_ai.tool.retry.cause"),
            "gen_ai.usage.details.reasoning_tokens",
        ),
    ),
    "logfire": (
        logfire.read,
        ("logfire", "logfire.openai", "logfire.openai_agents", "logfire.mcp"),
        ("Completion with m", "MCP request: tools/call x", "Chat"),
        (
            *("logfire.span_type", "logfire.span_type", "logfire.pending_parent_id", "events"),
            *("request_data", "response_data", "request", "response", "duration", "rpc.method"),
            "operation.cost",
        ),
    ),
    "mcp": (
        mcp.read,
        ("mcp-python-sdk",),
        ("MCP send tools/call", "tools/call x", "x"),
        (
            *("mcp.method.name", "mcp.method.name", "mcp.session.id", "mcp.tool.name"),
            *("mcp.request.argument", "mcp.response.value"),
        ),
    ),
    "autogen": (
        autogen.read,
        ("autogen-core", "autogen SingleThreadedAgentRuntime"),
        ("autogen process x", "create_agent x"),
        (
            *("messaging.operation", "messaging.destination", "message", "recipient_agent_type"),
            *("sender_agent_type", "gen_ai.agent.id", "gen_ai.system"),
        ),
    ),
    "pi-durable": (
        pi_durable.read,
        ("pi-durable",),
        ("pi.durable.submit", "pi.durable.phase"),
        (
            *("pi.durable.resumed", "pi.durable.attempt", "pi.durable.conversation.id"),
            *("pi.durable.outcome", "pi.durable.session.id"),
        ),
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_nothing_raises(dialect: str, data: st.DataObject) -> None:
    """For no attributes of any type, and for no log records; and what is said can be stored."""
    read, scopes, names, keys = DIALECTS[dialect]
    record = span(
        1,
        data.draw(st.sampled_from([None, 2])),
        name=data.draw(st.sampled_from(names)),
        end=data.draw(st.sampled_from([None, 2.0])),
        scope=OriginRecord(data.draw(st.sampled_from(scopes))),
        attributes=data.draw(
            st.dictionaries(st.sampled_from(COMMON + keys), SAID | WORDS, max_size=8)
        ),
        status_code=data.draw(st.sampled_from(["UNSET", "ERROR"])),
    )
    bodies = data.draw(st.lists(st.tuples(WORDS, SAID), max_size=3))
    logs = [
        LogRecord(record.trace_id, record.span_id, name, body, scope=record.scope)
        for name, body in bodies
    ]
    facts = read(record, logs)
    if facts is None:
        return
    for text in texts_of(facts):
        assert text is None or escape_surrogates(text).encode()
    assert isinstance(facts.attempt, int)
    assert len(facts.model_calls) == (facts.role == "model")
    assert (facts.tool_call is not None) == (facts.role == "tool")
    for call in facts.model_calls:
        for said in (call.prompt, call.decision):
            if said is not None and said.structured:
                assert isinstance(json.loads(said.raw), list)


def texts_of(facts: SpanFacts) -> list[str | None]:
    """All that is to be a text or nothing."""
    found = [facts.agent, facts.conversation_id, facts.goal, facts.result, facts.error]
    found += [facts.error_type, facts.announces, facts.announced_parent]
    if facts.tool_call is not None:
        call = facts.tool_call
        found += [call.name, call.call_id, call.arguments, call.result]
    for model in facts.model_calls:
        found += [model.model, model.finish_reason, model.error, *model.call_ids]
        assert model.cost is None or isinstance(model.cost, float)
    return [text for text in found if text != ""]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_span_without_anything(dialect: str) -> None:
    """No attributes, no name, no scope: not this dialect."""
    read, *_ = DIALECTS[dialect]
    assert read(span(1, name=""), ()) is None
