# SPDX-License-Identifier: Apache-2.0
"""Model calls and MCP calls by Logfire's own instrumentations, with spans as they make them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_taskhistory.conventions import logfire
from otel_taskhistory.conventions.facts import ModelCall, SpanFacts, Tokens
from otel_taskhistory.spans.record import OriginRecord
from tests.store.deliveries import NOON, SECOND, span


def read(scope: str, name: str, kind: str = "span", **said: Any) -> SpanFacts:
    """What a span of Logfire's with these attributes says; keys may have dots as underscores."""
    rest = {key: said.pop(key) for key in ("start", "end", "status_code") if key in said}
    attributes = {"logfire.span_type": kind, **said.pop("attributes", {}), **said}
    record = span(1, name=name, scope=OriginRecord(scope), attributes=attributes, **rest)
    facts = logfire.read(record)
    assert facts is not None
    return facts


def call_of(facts: SpanFacts) -> ModelCall:
    """The one model call of a span."""
    assert facts.role == "model"
    (call,) = facts.model_calls
    return call


def parts(raw: str) -> list[Any]:
    """Role and parts of each message, without what tells the form that it had."""
    return [
        (
            message["role"],
            [
                {key: item for key, item in part.items() if not key.startswith("taskhistory.")}
                for part in message["parts"]
            ],
        )
        for message in json.loads(raw)
    ]


CHAT = {
    "model": "gpt-x",
    "messages": [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Where is A-17?"},
    ],
}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}]


def test_a_chat_completion() -> None:
    """Request and response are prompt and decision."""
    response = {
        "message": {"role": "assistant", "content": None, "tool_calls": CALLS},
        "usage": {"prompt_tokens": 12, "completion_tokens": 3},
    }
    facts = read(
        "logfire.openai",
        "Chat Completion with {request_data[model]!r}",
        request_data=json.dumps(CHAT),
        response_data=json.dumps(response),
        attributes={"gen_ai.response.model": "gpt-x-2026", "operation.cost": 0.5},
    )
    call = call_of(facts)
    assert call.prompt is not None
    assert call.decision is not None
    assert parts(call.prompt.raw) == [
        ("system", [{"type": "text", "content": "Be terse."}]),
        ("user", [{"type": "text", "content": "Where is A-17?"}]),
    ]
    asked = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"n": 1}}
    assert parts(call.decision.raw) == [("assistant", [asked])]
    assert call.call_ids == ("c1",)
    assert (call.model, call.cost) == ("gpt-x-2026", 0.5)
    assert call.tokens == Tokens(input=12, output=3)


def test_a_message_of_anthropic() -> None:
    """Instructions stand beside the messages."""
    facts = read(
        "logfire.anthropic",
        "Message with {request_data[model]!r}",
        request_data=json.dumps({"model": "claude", "system": "Be.", "messages": CHAT["messages"]}),
        response_data='{"message": {"role": "assistant", "content": "hi"},'
        ' "usage": {"input_tokens": 1}}',
    )
    call = call_of(facts)
    assert call.prompt is not None
    assert call.decision is not None
    assert call.prompt.system is not None
    assert json.loads(call.prompt.system)[0]["content"] == "Be."
    assert parts(call.decision.raw) == [("assistant", [{"type": "text", "content": "hi"}])]
    assert (call.model, call.tokens.input) == ("claude", 1)


EVENTS = [
    {"event.name": "gen_ai.system.message", "role": "system", "content": "Be terse."},
    {"event.name": "gen_ai.user.message", "role": "user", "content": "hi"},
    {"event.name": "gen_ai.assistant.message", "role": "assistant", "tool_calls": CALLS},
    {"event.name": "gen_ai.tool.message", "role": "tool", "id": "c1", "content": "ok"},
    {"event.name": "gen_ai.unknown", "role": "unknown", "content": "x", "data": {"a": 1}},
    {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "one"},
    {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "two"},
]


@pytest.mark.parametrize("scope", ["logfire.openai", "logfire.openai_agents"])
def test_the_responses_api(scope: str) -> None:
    """Of the list of events the last ones of the assistant are the answer."""
    facts = read(
        scope,
        "Responses API with {gen_ai.request.model!r}",
        events=json.dumps(EVENTS),
        request_data='{"model": "gpt-x", "stream": false}',
    )
    call = call_of(facts)
    assert call.prompt is not None
    assert call.decision is not None
    assert [role for role, _ in parts(call.prompt.raw)] == [
        *("system", "user", "assistant", "tool", "unknown")
    ]
    assert parts(call.decision.raw) == [
        ("assistant", [{"type": "text", "content": "one"}]),
        ("assistant", [{"type": "text", "content": "two"}]),
    ]
    assert call.model == "gpt-x"


def test_a_generation_of_openai_agents() -> None:
    """Prompt and answer are one list, the answer last."""
    answer = {"role": "assistant", "content": "done"}
    facts = read(
        "logfire.openai_agents",
        "Chat completion with {gen_ai.request.model!r}",
        request_data=json.dumps({"model": "m", "messages": [*CHAT["messages"], answer]}),
    )
    call = call_of(facts)
    assert call.prompt is not None
    assert call.decision is not None
    assert [role for role, _ in parts(call.prompt.raw)] == ["system", "user"]
    assert parts(call.decision.raw) == [("assistant", [{"type": "text", "content": "done"}])]


def test_a_stream_is_one_call() -> None:
    """The request only prepares it; the log at its end is the call, and says how long it took."""
    request = json.dumps(CHAT | {"stream": True})
    opened = read("logfire.openai", "Chat Completion with …", request_data=request)
    assert (opened.role, opened.model_calls) == ("setup", ())
    ended = read(
        "logfire.openai",
        "streaming response from …",
        "log",
        start=5,
        end=5,
        request_data=request,
        response_data='{"combined_chunk_content": "all is well", "chunk_count": 2}',
        duration=1.5,
    )
    call = call_of(ended)
    assert call.decision is not None
    assert parts(call.decision.raw) == [("assistant", [{"type": "text", "content": "all is well"}])]
    assert (call.started_ns, call.ended_ns) == (NOON + 7 * SECOND // 2, NOON + 5 * SECOND)


def test_a_stream_that_could_not_be_opened() -> None:
    """It is a call that failed: no log will come."""
    request = json.dumps(CHAT | {"stream": True})
    facts = read("logfire.openai", "Chat …", request_data=request, status_code="ERROR")
    call = call_of(facts)
    assert call.status == "failed"
    assert call.prompt is not None
    assert call.decision is None


@pytest.mark.parametrize(
    ("scope", "name", "request_data"),
    [
        ("logfire.openai", "Embedding Creation with …", {"model": "m", "input": "x"}),
        ("logfire.openai", "Image Generation with …", {"model": "m", "prompt": "a cat"}),
        ("logfire.openai", "OpenAI API call to '/models'", {}),
        ("logfire.openai", "Chat Completion with …", "[Scrubbed due to 'password']"),
        ("logfire.fastapi", "arguments", {"x": 1}),
    ],
)
def test_other_requests_are_no_model_calls(scope: str, name: str, request_data: Any) -> None:
    """Neither embeddings nor pictures nor what was scrubbed."""
    attributes = {"logfire.span_type": "span", "request_data": json.dumps(request_data)}
    record = span(1, name=name, scope=OriginRecord(scope), attributes=attributes)
    assert logfire.read(record) is None


def test_an_old_completion() -> None:
    """Its prompt is one text."""
    facts = read(
        "logfire.openai",
        "Completion with {request_data[model]!r}",
        request_data='{"model": "m", "prompt": "once"}',
        response_data='{"finish_reason": "stop", "text": "upon"}',
    )
    call = call_of(facts)
    assert call.prompt is not None
    assert parts(call.prompt.raw) == [("user", [{"type": "text", "content": "once"}])]
    assert call.finish_reason == "stop"


def test_mcp() -> None:
    """A tool call has arguments and result; one that answers with an error has failed."""
    request = {"method": "tools/call", "params": {"name": "look", "arguments": {"n": 1}}}
    content = [{"type": "text", "text": "no"}]
    facts = read(
        "logfire.mcp",
        "MCP request: tools/call look",
        request=json.dumps(request),
        response=json.dumps({"content": content, "isError": True}),
        attributes={"rpc.method": "tools/call"},
    )
    assert (facts.role, facts.status, facts.error_type) == ("tool", "failed", "tool_error")
    assert facts.tool_call is not None
    assert (facts.tool_call.name, facts.tool_call.arguments) == ("look", '{"n":1}')
    assert json.loads(facts.tool_call.result or "") == content
    listing = read("logfire.mcp", "MCP request: tools/list", request='{"method": "tools/list"}')
    assert (listing.role, listing.tool_call) == ("other", None)
    cut = read("logfire.mcp", "MCP request: tools/call look", **{"rpc.method": "tools/call"})
    assert cut.tool_call is not None
    assert cut.tool_call.name == "look"
