# SPDX-License-Identifier: Apache-2.0
"""Google ADK: what it says beside the conventions, in all its versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_taskhistory.conventions import genai, genai_adk
from otel_taskhistory.conventions.facts import SpanFacts, Tokens
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.spans.record import OriginRecord, SpanRecord
from tests.store.deliveries import message, span

SCOPE = OriginRecord("gcp.vertex.agent")


def read(record: SpanRecord) -> SpanFacts:
    """Both dialects together, as they are registered."""
    own, theirs = genai_adk.read(record), genai.read(record)
    if own is None or theirs is None:
        found = own or theirs
        assert found is not None
        return found
    return merge(own, theirs)


def of_adk(name: str, **attributes: Any) -> SpanRecord:
    """A span of one of the versions before 2.0; its attributes without their prefix."""
    said = {f"gcp.vertex.agent.{key}": value for key, value in attributes.items()}
    return span(1, name=name, attributes={"gen_ai.system": "gcp.vertex.agent"} | said, scope=SCOPE)


def test_a_model_call_of_the_first_versions() -> None:
    """Request and response as JSON, in the words of Gemini's API."""
    request = {
        "model": "gemini-x",
        "config": {"system_instruction": "Be brief."},
        "contents": [
            {"role": "user", "parts": [{"text": "Where is it?"}]},
            {"role": "model", "parts": [{"function_call": {"id": "c1", "name": "look"}}]},
        ],
    }
    answer = [{"text": "Hm", "thought": True}, {"function_call": {"id": "c2", "name": "look"}}]
    response = {
        "content": {"role": "model", "parts": answer},
        "finish_reason": "STOP",
        "usage_metadata": {
            "prompt_token_count": 7,
            "candidates_token_count": 3,
            "cached_content_token_count": 2,
            "thoughts_token_count": 1,
        },
    }
    facts = read(
        of_adk(
            "call_llm",
            llm_request=json.dumps(request),
            llm_response=json.dumps(response),
            session_id="s",
        )
    )
    (call,) = facts.model_calls
    assert (facts.role, facts.conversation_id) == ("model", "s")
    assert (call.model, call.finish_reason, call.tokens) == ("gemini-x", "STOP", Tokens(7, 3, 2, 1))
    assert call.prompt is not None
    assert call.decision is not None
    system, asked, called = json.loads(call.prompt.raw)
    assert (system, asked) == (message("Be brief.", "system"), message("Where is it?"))
    assert called["parts"] == [{"type": "tool_call", "id": "c1", "name": "look"}]
    (answered,) = json.loads(call.decision.raw)
    assert [part["type"] for part in answered["parts"]] == ["reasoning", "tool_call"]
    assert call.call_ids == ("c2",)


@pytest.mark.parametrize("odd", ["{}", "[", "text", 7, None, '{"contents": 7, "config": 7}', b"x"])
def test_odd_requests_and_responses(odd: Any) -> None:
    """What can be read is read."""
    (call,) = read(of_adk("call_llm", llm_request=odd, llm_response=odd)).model_calls
    assert (call.decision, call.tokens) == (None, Tokens())


def test_a_tool_of_the_first_versions() -> None:
    """Arguments and result in attributes of their own."""
    record = of_adk("execute_tool look", tool_call_args='{"a": 1}', tool_response='{"b": 2}')
    attributes = {**record.attributes, "gen_ai.operation.name": "execute_tool"}
    call = read(span(1, name=record.name, attributes=attributes, scope=SCOPE)).tool_call
    assert call is not None
    assert (call.name, call.arguments, call.result) == ("look", '{"a": 1}', '{"b": 2}')


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ('{"error": "not found"}', "not found"),
        ('{"error": {"code": 5}}', '{"code":5}'),
        ('{"status": "odd"}', "TOOL_ERROR"),
        ("text", "TOOL_ERROR"),
        (None, "TOOL_ERROR"),
    ],
)
def test_a_tool_that_returns_an_error(result: str | None, error: str) -> None:
    """Its result says what went wrong; the status says only that something did."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "error.type": "TOOL_ERROR",
    }
    if result is not None:
        attributes["gen_ai.tool.call.result"] = result
    record = span(
        1, attributes=attributes, scope=SCOPE, status_code="ERROR", status_message="TOOL_ERROR"
    )
    facts = read(record)
    assert (facts.status, facts.error, facts.error_type) == ("failed", error, "TOOL_ERROR")


def test_runs_of_the_first_versions() -> None:
    """The name of a span says that it is an agent's, and whose."""
    run, root = read(of_adk("agent_run [desk]")), read(of_adk("invocation"))
    assert (run.role, run.agent) == ("agent", "desk")
    assert (root.role, root.agent) == ("agent", None)


def test_where_it_says_nothing_more() -> None:
    """Spans of others, and those of its own that speak the conventions."""
    assert genai_adk.read(span(1, name="call_llm")) is None
    chat = span(1, attributes={"gen_ai.operation.name": "generate_content"}, scope=SCOPE)
    assert genai_adk.read(chat) is None
