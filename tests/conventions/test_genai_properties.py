# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a span or a log record, reading it raises nothing and gives sound facts."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_taskhistory import semconv
from otel_taskhistory.conventions import genai, genai_adk, strands
from otel_taskhistory.conventions.facts import Said, SpanFacts
from otel_taskhistory.conventions.outcome import outcome_of
from otel_taskhistory.spans.record import EventRecord, LogRecord, OriginRecord, SpanRecord
from tests.store.deliveries import NOON, TRACE, message, span, span_id

DIALECTS = (strands.read, genai_adk.read, genai.read)

EVENTS = (
    semconv.GEN_AI_INFERENCE_DETAILS_EVENT,
    "gen_ai.content.prompt",
    "gen_ai.content.completion",
    "gen_ai.system.message",
    "gen_ai.user.message",
    "gen_ai.assistant.message",
    "gen_ai.tool.message",
    "gen_ai.choice",
    "exception",
)
KEYS = (
    *(value for name, value in vars(semconv).items() if name.startswith("GEN_AI_")),
    *("gen_ai.input.messages_ref", "gen_ai.system", "gen_ai.prompt", "gen_ai.completion"),
    *("gen_ai.prompt.0.role", "gen_ai.prompt.0.content", "gen_ai.prompt.3.tool_calls.0.name"),
    *("gen_ai.completion.0.content", "gen_ai.completion.0.tool_calls.0.arguments"),
    *("gen_ai.completion.1.tool_calls", "gen_ai.prompt.1.parts", "gen_ai.prompt.1.finish_reason"),
    *("gen_ai.usage.prompt_tokens", "operation.cost", "session.id", "error.type"),
    *("gen_ai.tool.status", "strands.cancellation.type", "event_loop.cycle_id", "tool.name"),
    *("tool.parameters", "tool.result", "gen_ai.event.content", "event.name"),
    *("gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response"),
    *("gcp.vertex.agent.tool_response", "gcp.vertex.agent.session_id"),
    *("content", "message", "tool_calls", "role", "id", "finish_reason", "index", "parts", "name"),
    *("exception.type", "exception.message", "taskhistory.status", "llm.request.type"),
)
WORDS = (
    *("chat", "execute_tool", "invoke_agent", "strands-agents", "gcp.vertex.agent", "unknown"),
    *("text", "tool_call", "toolUse", "toolResult", "image", "reasoningContent", "[", "[{", "{"),
    *('["stop"]', "error", "<class 'x'>", "GraphInterrupt", "None", "<not specified>", "a.B"),
    *("\0", "\ud800", "Traceback (most recent call last):", "tool", "function", "binary", "kind"),
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -1, math.nan, math.inf])
    | st.just(5000).map(lambda digits: 10**digits)
    | st.floats()
    | st.binary(max_size=8)
    | st.sampled_from(WORDS)
    | st.text(st.characters(codec=None), max_size=8)
    | st.builds(object)
)
NAMES = st.sampled_from(KEYS) | st.sampled_from(WORDS) | st.text(max_size=4)
FORMS = st.sampled_from(
    [
        {"role": "user", "parts": [{"type": "text", "content": "x"}]},
        {"role": "tool", "content": [{"toolResult": {"toolUseId": 1, "content": "x"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": 1, "function": "f"}, 7]},
        {"role": 7, "content": {"tools": []}},
        {"image": {"format": 7, "source": {"bytes": b"x"}}},
        {"reasoningContent": {"reasoningText": 7}},
        {"kind": "image-url", "url": 7},
        {"type": "image", "source": {"type": "base64", "data": 7}},
        {"type": "image_url", "image_url": "x"},
        {"inline_data": {"mime_type": 7, "data": []}},
    ]
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | FORMS.map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.builds(
    lambda value, cut: json.dumps(value, default=str)[: cut or None],
    PLAIN | FORMS | st.lists(FORMS, max_size=3),
    st.integers(0, 60),
)
VALUES = st.recursive(
    SCALARS | TEXTS | FORMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(NAMES | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
ATTRIBUTES = st.dictionaries(st.sampled_from(KEYS) | NAMES, VALUES, max_size=8)
SCOPES = st.sampled_from(
    ["", "strands.telemetry.tracer", "gcp.vertex.agent", "com.anthropic.sdk.python"]
).map(OriginRecord)
RECORDS = st.builds(
    lambda attributes, events, **said: span(1, attributes=attributes, events=tuple(events), **said),
    attributes=ATTRIBUTES,
    events=st.lists(
        st.builds(EventRecord, st.sampled_from(EVENTS), st.just(NOON), ATTRIBUTES), max_size=4
    ),
    name=st.sampled_from(["chat x", "invoke_agent x", "execute_tool ", "call_llm", "Tool: ", ""]),
    scope=SCOPES,
    status_code=st.sampled_from(["UNSET", "OK", "ERROR"]),
    status_message=st.none() | st.sampled_from(WORDS),
)
LOGS = st.lists(
    st.builds(
        LogRecord,
        st.just(TRACE),
        st.just(span_id(1)),
        st.sampled_from([*EVENTS, ""]),
        body=VALUES,
        attributes=ATTRIBUTES,
    ),
    max_size=4,
)


def check(facts: SpanFacts) -> None:
    """Every fact is of its type, and content is JSON where it says so."""
    texts: list[Any] = [facts.error, facts.error_type, facts.agent, facts.conversation_id]
    texts += [facts.goal, facts.result]
    for call in facts.model_calls:
        texts += [call.model, call.finish_reason, call.error, call.response_id, *call.call_ids]
        texts += [said.raw for said in (call.prompt, call.decision) if isinstance(said, Said)]
        counts = (call.tokens.input, call.tokens.output, call.tokens.cached, call.tokens.reasoning)
        assert all(count is None or type(count) is int for count in counts)
        assert call.cost is None or math.isfinite(call.cost)
    if facts.tool_call is not None:
        call_ = facts.tool_call
        assert isinstance(call_.name, str)
        texts += [call_.call_id, call_.arguments, call_.result]
    assert all(text is None or isinstance(text, str) for text in texts)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(record=RECORDS, logs=LOGS, operation=st.sampled_from(["chat", "execute_tool", "", None]))
def test_nothing_makes_reading_raise(
    record: SpanRecord, logs: list[LogRecord], operation: str | None
) -> None:
    """Attributes of known names with values of any type, in spans, events and log records."""
    if operation is not None:
        attributes = {**record.attributes, semconv.GEN_AI_OPERATION_NAME: operation}
        record = span(
            1,
            attributes=attributes,
            events=record.events,
            scope=record.scope,
            status_code=record.status_code,
        )
    outcome_of(record)
    for read in DIALECTS:
        facts = read(record, logs)
        if facts is not None:
            check(facts)


def nested(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("key", [semconv.GEN_AI_INPUT_MESSAGES, "gen_ai.prompt", "content"])
@pytest.mark.parametrize("value", [nested(5000), "[" * 50_000, '[{"a":' * 20_000])
def test_deep_values(key: str, value: Any) -> None:
    """Nesting that Python's own reader gives up on."""
    attributes = {semconv.GEN_AI_OPERATION_NAME: "chat", key: value}
    event = EventRecord("gen_ai.user.message", NOON, attributes)
    body = {"content": value}
    log = LogRecord(TRACE, span_id(1), "gen_ai.choice", body, attributes)
    for operation in ("chat", "invoke_agent", "execute_tool"):
        said = attributes | {semconv.GEN_AI_OPERATION_NAME: operation}
        for read in DIALECTS:
            facts = read(span(1, attributes=said, events=(event,)), [log])
            if facts is not None:
                check(facts)


def test_the_same_value_everywhere_is_read_the_same() -> None:
    """As JSON text, as nested values and as a log record, a prompt is the same messages."""
    asked = [message("hi"), message("hello", "assistant")]
    forms: list[tuple[dict[str, Any], list[LogRecord]]] = [
        ({semconv.GEN_AI_INPUT_MESSAGES: json.dumps(asked)}, []),
        ({semconv.GEN_AI_INPUT_MESSAGES: asked}, []),
        (
            {},
            [
                LogRecord(TRACE, span_id(1), "gen_ai.user.message", {"content": "hi"}),
                LogRecord(TRACE, span_id(1), "gen_ai.assistant.message", {"content": "hello"}),
            ],
        ),
    ]
    for attributes, logs in forms:
        said = {semconv.GEN_AI_OPERATION_NAME: "chat", **attributes}
        facts = genai.read(span(1, attributes=said), logs)
        assert facts is not None
        prompt = facts.model_calls[0].prompt
        assert prompt is not None
        assert json.loads(prompt.raw) == asked
