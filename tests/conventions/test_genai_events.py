# SPDX-License-Identifier: Apache-2.0
"""Content that comes as span events and log records, in every generation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai
from otel_taskhistory.conventions.facts import ModelCall
from otel_taskhistory.conventions.genai_events import is_meant_for
from otel_taskhistory.spans.record import EventRecord, LogRecord, OriginRecord, SpanRecord
from tests.store.deliveries import NOON, TRACE, agent, message, model, span, span_id

DETAILS = semconv.GEN_AI_INFERENCE_DETAILS_EVENT


def event(name: str, **attributes: Any) -> EventRecord:
    """A span event."""
    return EventRecord(name, NOON, attributes)


def log(name: str, body: Any = None, attributes: Any = None, **said: Any) -> LogRecord:
    """A log record of the span with number 1."""
    return LogRecord(TRACE, span_id(1), name, body, attributes or {}, **said)


def chat(*events: EventRecord, logs: tuple[LogRecord, ...] = (), **attributes: Any) -> ModelCall:
    """The model call that a span without content is, with these events and records."""
    said = {semconv.GEN_AI_OPERATION_NAME: "chat"} | attributes
    facts = genai.read(span(1, attributes=said, events=events), logs)
    assert facts is not None
    return facts.model_calls[0]


def listed(said: Any) -> Any:
    """The messages of a prompt or decision."""
    assert said is not None
    assert said.structured
    return json.loads(said.raw)


def test_messages_as_log_records() -> None:
    """A record each; a call stands in its message or beside it; an answer has the call's id."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
    found = chat(
        logs=(
            log("gen_ai.system.message", {"content": "Be brief."}),
            log("gen_ai.user.message", {"content": "Where?", "name": "ann"}),
            log("gen_ai.assistant.message", {"tool_calls": [call]}),
            log("gen_ai.tool.message", {"content": "shipped", "id": "c1"}),
            log("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {}}),
            log(
                "gen_ai.choice",
                {"index": 1, "message": {"content": None}, "tool_calls": [call | {"id": "c2"}]},
            ),
        )
    )
    assert listed(found.prompt) == [
        message("Be brief.", "system"),
        message("Where?") | {"name": "ann"},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c1", "name": "look", "arguments": {"a": 1}}],
        },
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "c1", "response": "shipped"}],
        },
    ]
    assert [one["role"] for one in listed(found.decision)] == ["assistant", "assistant"]
    assert (found.finish_reason, found.call_ids) == ("stop", ("c2",))


def test_names_in_an_attribute() -> None:
    """Older records have no name of their own."""
    found = chat(logs=(log("", {"content": "hi"}, {"event.name": "gen_ai.user.message"}),))
    assert listed(found.prompt) == [message("hi")]


def test_offered_tools_are_no_message() -> None:
    """Some tell of them as if the user had said it."""
    tools = {"content": {"tools": [{"name": "look"}]}}
    found = chat(
        logs=(log("gen_ai.user.message", {"content": "hi"}), log("gen_ai.user.message", tools))
    )
    assert listed(found.prompt) == [message("hi")]


def test_bodies_in_other_forms() -> None:
    """Text, GenAI parts, blocks of providers, pydantic-ai's first format, nothing at all."""
    picture = {"kind": "binary", "media_type": "image/png", "binary_content": "AAAA"}
    found = chat(
        logs=(
            log("gen_ai.user.message", "just text"),
            log("gen_ai.user.message", message("parts")),
            log("gen_ai.user.message", {"content": ("a", picture)}),
            log("gen_ai.user.message", {"content": [{"kind": "image-url", "url": "https://a"}]}),
            log("gen_ai.user.message", {"content": [{"type": "tool_result", "tool_use_id": "c"}]}),
            log("gen_ai.user.message"),
            log("gen_ai.choice", {"message": "plain", "finish_reason": "stop"}),
        )
    )
    text, given, mixed, link, result, nothing = listed(found.prompt)
    assert (text, given, nothing) == (
        message("just text"),
        message("parts"),
        {"role": "user", "parts": []},
    )
    assert [part["type"] for part in mixed["parts"]] == ["text", "blob"]
    assert link["parts"] == [{"type": "uri", "modality": "image", "uri": "https://a"}]
    assert result["parts"][0]["type"] == "tool_call_response"
    assert listed(found.decision) == [message("plain", "assistant") | {"finish_reason": "stop"}]


def test_messages_as_span_events() -> None:
    """Lists are JSON text there, as attributes of events could not nest."""
    calls = json.dumps([{"id": "c1", "function": {"name": "look", "arguments": "{}"}}])
    found = chat(
        event("gen_ai.user.message", content="[not a list of blocks]", **{"gen_ai.system": "x"}),
        event("gen_ai.user.message", content='[{"text": "Where"}, {"text": "is it?"}]'),
        event("gen_ai.choice", message='{"content": "Looking", "role": "assistant"}', index=0),
        event("gen_ai.choice", content="", tool_calls=calls, finish_reason="tool_calls"),
    )
    assert listed(found.prompt)[0] == message("[not a list of blocks]")
    assert [part["content"] for part in listed(found.prompt)[1]["parts"]] == ["Where", "is it?"]
    assert listed(found.decision)[0] == message("Looking", "assistant")
    assert (found.call_ids, found.finish_reason) == (("c1",), "tool_calls")


@pytest.mark.parametrize(
    "text",
    [
        '{"content": "x"}',
        '[{"type": "invoice", "text": "x"}]',
        '[{"text": "x", "lang": "en"}]',
        '[{"text": "x"}, 7]',
        "[1, 2]",
        "[",
        "{",
    ],
)
def test_texts_that_look_like_json(text: str) -> None:
    """Stay what the user sent, or the model answered."""
    found = chat(event("gen_ai.user.message", content=text), event("gen_ai.choice", message=text))
    assert listed(found.prompt) == [message(text)]
    assert listed(found.decision) == [message(text, "assistant")]


def test_events_that_hold_a_whole_body() -> None:
    """As Azure's SDKs write them, and as a limit of the SDK leaves them."""
    body = json.dumps({"role": "user", "content": "Where is it?"})
    found = chat(
        event("gen_ai.user.message", **{"gen_ai.event.content": body}),
        event("gen_ai.user.message", **{"gen_ai.event.content": body[:-5]}),
        event("gen_ai.user.message", **{"gen_ai.event.content": "text"}),
    )
    assert listed(found.prompt) == [message("Where is it?"), message("Where is "), message("text")]


@pytest.mark.parametrize("as_log", [True, False])
def test_details_of_a_call(as_log: bool) -> None:
    """One event or record with the attributes that the span does not have."""
    said = {
        semconv.GEN_AI_INPUT_MESSAGES: [message("hi")],
        semconv.GEN_AI_OUTPUT_MESSAGES: [message("hello", "assistant") | {"finish_reason": "s"}],
        semconv.GEN_AI_SYSTEM_INSTRUCTIONS: [{"type": "text", "content": "Be brief."}],
        semconv.GEN_AI_RESPONSE_ID: "r1",
        semconv.GEN_AI_USAGE_INPUT_TOKENS: 5,
    }
    found = chat(logs=(log(DETAILS, None, said),)) if as_log else chat(event(DETAILS, **said))
    assert listed(found.prompt) == [message("hi")]
    assert found.prompt is not None
    assert found.prompt.system == '[{"type":"text","content":"Be brief."}]'
    assert (found.finish_reason, found.response_id, found.tokens.input) == ("s", "r1", 5)


def test_details_in_a_body_and_in_pieces() -> None:
    """A record may say it in its body; a span may have an event for each attribute."""
    found = chat(
        event(DETAILS, **{semconv.GEN_AI_INPUT_MESSAGES: json.dumps([message("hi")])}),
        event("gen_ai.content.completion", **{"gen_ai.completion": "hello"}),
        logs=(log(DETAILS, {semconv.GEN_AI_RESPONSE_ID: "r1"}),),
    )
    assert listed(found.prompt) == [message("hi")]
    assert found.decision is not None
    assert (found.decision.raw, found.response_id) == ("hello", "r1")


def test_attributes_come_first_unless_they_were_cut() -> None:
    """The very string of the span is kept; a cut one gives way to a whole one."""
    raw = json.dumps([message("from the span")])
    records = (log("gen_ai.user.message", {"content": "from the log"}),)
    found = chat(logs=records, **{semconv.GEN_AI_INPUT_MESSAGES: raw})
    assert found.prompt is not None
    assert found.prompt.raw is raw
    cut = chat(logs=records, **{semconv.GEN_AI_INPUT_MESSAGES: raw[:-9]})
    assert listed(cut.prompt) == [message("from the log")]
    alone = chat(**{semconv.GEN_AI_INPUT_MESSAGES: raw[:-9]})
    assert alone.prompt is not None
    assert alone.prompt.raw == raw[:-9]


def test_an_agent_run_told_by_events() -> None:
    """Its goal is what the user said last, its result what it answered."""
    events = (
        event("gen_ai.system.message", content="Be brief."),
        event("gen_ai.user.message", content='[{"text": "Where is it?"}]'),
        event("gen_ai.choice", message="Shipped.", finish_reason="end_turn"),
    )
    facts = genai.read(agent(1, None, events=events))
    assert facts is not None
    assert (facts.goal, facts.result) == ("Where is it?", "Shipped.")


def parents_log(at: float, scope: str = "i", name: str = "gen_ai.user.message") -> LogRecord:
    """A record that was written into the span with number 1, so many seconds after noon."""
    return log(name, {"content": "hi"}, time_ns=NOON + int(at * 1e9), scope=OriginRecord(scope))


def child(**said: Any) -> SpanRecord:
    """A model span below it, of the scope ``i``, from 2 to 3 seconds after noon."""
    return model(2, 1, start=2, scope=OriginRecord("i"), **{"end": 3, **said})


@pytest.mark.parametrize(
    ("record", "written", "meant"),
    [
        (child(), parents_log(2.5), True),
        (child(end=None), parents_log(9), True),
        (child(), parents_log(1.9), False),
        (child(), parents_log(3.1), False),
        (child(), parents_log(2.5, scope="other"), False),
        (child(), parents_log(2.5, name="something else"), False),
        (child(trace_id="f" * 32), parents_log(2.5), False),
        (model(2, 7, start=2, end=3, scope=OriginRecord("i")), parents_log(2.5), False),
    ],
)
def test_records_that_were_written_into_the_parent(
    record: SpanRecord, written: LogRecord, meant: bool
) -> None:
    """Belong to the model call of the same instrumentation that ran at that moment."""
    assert is_meant_for(written, record) == meant
