# SPDX-License-Identifier: Apache-2.0
"""Strands Agents: what it says beside the conventions, in all its versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_taskhistory.conventions import genai, strands
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.spans.record import EventRecord, OriginRecord, SpanRecord
from tests.store.deliveries import NOON, agent, message, span, tool

SCOPE = OriginRecord("strands.telemetry.tracer")


def event(name: str, **attributes: Any) -> EventRecord:
    """A span event."""
    return EventRecord(name, NOON, attributes)


def read(record: SpanRecord) -> SpanFacts:
    """Both dialects together, as they are registered."""
    said = [facts for facts in (strands.read(record), genai.read(record)) if facts]
    assert said
    facts = said[0]
    for further in said[1:]:
        facts = merge(facts, further)
    return facts


def tool_span(*events: EventRecord, status: str | None = "success", **said: Any) -> SpanRecord:
    """A tool span without content, OK as all of them are."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    attributes |= {} if status is None else {"gen_ai.tool.status": status}
    attributes |= said.pop("attributes", {})
    said.setdefault("status_code", "OK")
    return span(1, attributes=attributes, events=events, scope=SCOPE, **said)


def test_arguments_and_result_of_a_tool() -> None:
    """Travel in events, in two forms."""
    first = tool_span(
        event("gen_ai.tool.message", role="tool", content='{"a": 1}', id="t"),
        event("gen_ai.choice", message='[{"text": "found"}]', id="t"),
    )
    asked = [{"role": "tool", "parts": [{"type": "tool_call", "arguments": {"a": 1}}]}]
    answered = [{"role": "tool", "parts": [{"type": "tool_call_response", "response": [1]}]}]
    details = "gen_ai.client.inference.operation.details"
    second = tool_span(
        event(details, **{"gen_ai.input.messages": json.dumps(asked)}),
        event(details, **{"gen_ai.output.messages": json.dumps(answered)}),
    )
    for record, arguments, result in (
        (first, '{"a": 1}', '[{"text": "found"}]'),
        (second, '{"a":1}', "[1]"),
    ):
        call = read(record).tool_call
        assert call is not None
        assert (call.name, call.arguments, call.result) == ("look", arguments, result)


@pytest.mark.parametrize(
    ("record", "status", "error"),
    [
        (tool_span(), "succeeded", None),
        (
            tool_span(
                event("gen_ai.choice", message='[{"text": "Error: no disk"}]'), status="error"
            ),
            "failed",
            "Error: no disk",
        ),
        (
            tool_span(event("gen_ai.choice", message="no list"), status="error"),
            "failed",
            "no list",
        ),
        (tool_span(status="error", status_code="ERROR", status_message="why"), "failed", "why"),
        (tool_span(status=None), "cancelled", None),
        (tool_span(event("gen_ai.choice", message="[]"), status=None), "succeeded", None),
        (tool_span(status=None, end=None), "running", None),
    ],
)
def test_how_a_tool_ended(record: SpanRecord, status: str, error: str | None) -> None:
    """Its own status counts; a span that is OK without status or result never got one."""
    facts = read(record)
    assert (facts.status, facts.error) == (status, error)


def test_a_cancelled_run() -> None:
    """The status of its span is not set."""
    attributes = {"strands.cancellation.type": "CancelledError"}
    facts = read(agent(1, None, "desk", attributes=attributes, scope=SCOPE))
    assert (facts.role, facts.agent) == ("agent", "desk")
    assert (facts.status, facts.error_type) == ("cancelled", "CancelledError")


def test_reasoning_and_media_of_bedrock() -> None:
    """Become parts of the conventions; bytes that Strands has replaced are shown as replaced."""
    said = [
        {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "s"}}},
        {"image": {"format": "png", "source": {"bytes": "<replaced>"}}},
        {"document": {"format": "pdf", "name": "d", "source": {"bytes": "AAAA"}}},
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/k"}}}},
    ]
    record = span(
        1,
        attributes={"gen_ai.operation.name": "chat"},
        events=(event("gen_ai.user.message", content=json.dumps(said)),),
        scope=SCOPE,
    )
    prompt = read(record).model_calls[0].prompt
    assert prompt is not None
    assert json.loads(prompt.raw)[0]["parts"] == [
        {"type": "reasoning", "content": "Hm", "signature": "s"},
        {
            "type": "blob",
            "modality": "image",
            "mime_type": "image/png",
            "content": "<replaced>",
        },
        {
            "type": "blob",
            "modality": "document",
            "mime_type": "application/pdf",
            "content": "AAAA",
            "name": "d",
        },
        {"type": "image", **said[3]},
    ]


def test_the_first_versions() -> None:
    """Spans had names instead of operations, and content in plain attributes."""
    system = {"gen_ai.system": "strands-agents"}
    run = read(
        span(
            1,
            name="desk",
            attributes={
                **system,
                "gen_ai.agent.name": "desk",
                "gen_ai.request.model": "m",
                "gen_ai.prompt": "Where is it?",
                "gen_ai.completion": "Shipped.",
            },
        )
    )
    assert (run.role, run.agent, run.goal, run.result) == (
        "agent",
        "desk",
        "Where is it?",
        "Shipped.",
    )
    cycle = span(
        2,
        1,
        name="Cycle 1",
        attributes={**system, "event_loop.cycle_id": "1", "gen_ai.prompt": "x"},
    )
    assert strands.read(cycle) is None
    assert genai.read(cycle) is None
    call = read(
        span(
            3,
            2,
            name="Model invoke",
            attributes={
                **system,
                "gen_ai.request.model": "m",
                "gen_ai.prompt": '[{"role": "user", "content": [{"text": "Where is it?"}]}]',
                "gen_ai.completion": '[{"toolUse": {"toolUseId": "t", "name": "look"}}]',
                "gen_ai.usage.prompt_tokens": 7,
            },
        )
    )
    (model_call,) = call.model_calls
    assert (call.role, model_call.call_ids, model_call.tokens.input) == ("model", ("t",), 7)
    used = read(
        span(
            4,
            2,
            name="Tool: look",
            attributes={
                **system,
                "tool.name": "look",
                "tool.id": "t",
                "tool.parameters": '{"a": 1}',
                "tool.result": '[{"text": "no"}]',
                "tool.status": "error",
            },
        )
    )
    assert used.tool_call is not None
    assert (used.tool_call.name, used.tool_call.call_id) == ("look", "t")
    assert (used.tool_call.arguments, used.tool_call.result) == ('{"a": 1}', '[{"text": "no"}]')
    assert (used.status, used.error) == ("failed", "no")


@pytest.mark.parametrize(
    "record",
    [
        span(1),
        tool(1, None),
        agent(1, None, scope=SCOPE),
        span(1, attributes={"gen_ai.operation.name": "chat"}, scope=SCOPE),
        span(1, attributes={"gen_ai.system": ["strands-agents"]}),
    ],
)
def test_where_it_says_nothing_more(record: SpanRecord) -> None:
    """Spans of others, and those of its own that speak the conventions."""
    assert strands.read(record) is None


def test_the_agent_messages_stay_the_very_strings() -> None:
    """With content in attributes, as it can be told to."""
    raw = json.dumps([message("hi")])
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": raw}
    prompt = read(span(1, attributes=attributes, scope=SCOPE)).model_calls[0].prompt
    assert prompt is not None
    assert prompt.raw is raw
