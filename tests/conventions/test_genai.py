# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry GenAI conventions, as instrumentations write them and as they should not."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from otel_taskhistory import conventions, semconv
from otel_taskhistory.conventions import genai
from otel_taskhistory.conventions.facts import Said, Tokens
from otel_taskhistory.spans.encode import decode
from tests.store.deliveries import agent, asks, message, model, span, tool


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        ({"gen_ai.operation.name": "chat"}, "model"),
        ({"gen_ai.operation.name": "text_completion"}, "model"),
        ({"gen_ai.operation.name": "generate_content"}, "model"),
        ({"gen_ai.operation.name": "execute_tool"}, "tool"),
        ({"gen_ai.operation.name": "invoke_agent"}, "agent"),
        ({"gen_ai.operation.name": "invoke_workflow"}, "agent"),
        ({"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e"}, "other"),
        ({"gen_ai.operation.name": 7}, "other"),
        ({"gen_ai.request.model": "m"}, "model"),
        ({"gen_ai.input.messages": "[]"}, "model"),
        ({"gen_ai.tool.name": "t", "gen_ai.request.model": "m"}, "tool"),
        ({"gen_ai.system": "openai"}, "other"),
        ({"http.request.method": "GET"}, "other"),
    ],
)
def test_roles(attributes: dict[str, Any], role: str) -> None:
    """The operation says what a span is; without one, what it carries does."""
    facts = conventions.read(span(1, attributes=attributes))
    assert (facts.role, facts.own) == (role, False)


def test_a_model_call() -> None:
    """Its prompt and decision are the very strings of the span."""
    prompt, decision = json.dumps([message("x")]), json.dumps(asks("c1", "c2"))
    record = model(
        1,
        None,
        prompt=prompt,
        decision=decision,
        attributes={
            semconv.GEN_AI_RESPONSE_MODEL: "model-1-2026",
            semconv.GEN_AI_RESPONSE_FINISH_REASONS: ("tool_calls", "stop"),
            semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 3,
            semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: 4.0,
        },
    )
    facts = genai.read(record)
    assert facts is not None
    (call,) = facts.model_calls
    assert call.prompt is not None
    assert call.prompt.raw is record.attributes[semconv.GEN_AI_INPUT_MESSAGES]
    assert call.decision == Said(decision, structured=True)
    assert (call.model, call.finish_reason) == ("model-1-2026", "tool_calls")
    assert call.tokens == Tokens(10, 2, 3, 4)
    assert call.call_ids == ("c1", "c2")
    assert (call.started_ns, call.ended_ns) == (record.start_ns, record.end_ns)


def said(prompt: Any, system: Any = None) -> Said | None:
    """How a prompt and instructions are read."""
    attributes = {semconv.GEN_AI_OPERATION_NAME: "chat", semconv.GEN_AI_INPUT_MESSAGES: prompt}
    if system is not None:
        attributes[semconv.GEN_AI_SYSTEM_INSTRUCTIONS] = system
    facts = genai.read(span(1, attributes=attributes))
    assert facts is not None
    return facts.model_calls[0].prompt


def test_prompts_in_many_forms() -> None:
    """JSON text, structured values, plain text, and nothing at all."""
    listed = [message("x")]
    raw = json.dumps(listed)
    assert said(raw) == Said(raw, structured=True)
    assert said("  " + raw) == Said("  " + raw, structured=True)
    assert said("just text") == Said("just text", structured=False)
    assert said("") is None
    assert said(None) is None
    structured = said(tuple(listed))
    assert structured is not None
    assert structured.structured
    assert decode(structured.raw) == listed
    other = said({"a": b"x"})
    assert other == Said('{"a":{"$bytes":"eA=="}}', structured=False)


def test_instructions_are_never_lost() -> None:
    """Beside messages, beside a plain text, alone, and as a plain text themselves."""
    raw, parts = json.dumps([message("x")]), '[{"type":"text","content":"be brief"}]'
    assert said(raw, parts) == Said(raw, structured=True, system=parts)
    assert said(None, parts) == Said("[]", structured=True, system=parts)
    plain = said(raw, "be brief")
    assert plain is not None
    assert plain.system is not None
    assert json.loads(plain.system) == json.loads(parts)
    both = said("just text", "be brief")
    assert both is not None
    assert both.structured
    assert json.loads(both.raw) == [message("just text")]
    assert both.system is not None


@pytest.mark.parametrize(
    "decision",
    [
        "[{",
        '[{"role":"assistant","parts":[{"type":"tool_call","id":"c1"',
        '"tool_call"',
        '[["tool_call"]]',
        '[{"parts":"tool_call"}]',
        '[{"parts":[{"type":"tool_call"},{"type":"tool_call","id":7},"tool_call"]}]',
        '["tool_call"' + "[" * 5000,
        '[{"parts":[{"type":"text","content":"\\"tool_call\\""}]}]',
    ],
)
def test_odd_decisions_ask_for_nothing(decision: str) -> None:
    """What is cut or of another shape is kept, and asked for no tool."""
    facts = genai.read(model(1, None, decision=decision))
    assert facts is not None
    assert facts.model_calls[0].call_ids == ()
    assert facts.model_calls[0].decision is not None


@pytest.mark.parametrize(
    "number", ["12", True, -1, 1.5, math.nan, math.inf, 2**63, 2**62, None, [1], b"1"]
)
def test_what_is_no_number_of_tokens_is_none(number: Any) -> None:
    """A sum over a task must not fail, nor mean nothing."""
    record = model(1, None, attributes={semconv.GEN_AI_USAGE_INPUT_TOKENS: number})
    facts = genai.read(record)
    assert facts is not None
    assert facts.model_calls[0].tokens == Tokens(None, 2)


def test_a_tool_call() -> None:
    """Structured arguments and results become JSON; without a name the span's name serves."""
    facts = genai.read(
        tool(1, None, "c1", attributes={semconv.GEN_AI_TOOL_CALL_ARGUMENTS: {"a": 1}})
    )
    assert facts is not None
    assert facts.tool_call is not None
    assert (facts.tool_call.name, facts.tool_call.call_id) == ("search", "c1")
    assert (facts.tool_call.arguments, facts.tool_call.result) == ('{"a":1}', "found")
    nameless = genai.read(span(1, attributes={semconv.GEN_AI_OPERATION_NAME: "execute_tool"}))
    assert nameless is not None
    assert nameless.tool_call is not None
    assert nameless.tool_call.name == "span 1"


def test_an_agent_run_says_its_goal_and_result() -> None:
    """The last thing the user said, and the last thing it answered; text parts only."""
    parts = [{"type": "blob", "content": "x"}, *message("second").pop("parts")]
    asked = [message("first"), {"role": "user", "parts": parts}, message("tool", "tool")]
    answered = [message("thinking", "assistant"), message("done", "assistant")]
    attributes = {
        semconv.GEN_AI_INPUT_MESSAGES: json.dumps(asked),
        semconv.GEN_AI_OUTPUT_MESSAGES: answered,
        semconv.GEN_AI_CONVERSATION_ID: "c",
    }
    facts = genai.read(agent(1, None, "ann", attributes=attributes))
    assert facts is not None
    assert (facts.goal, facts.result) == ("second", "done")
    assert (facts.agent, facts.conversation_id) == ("ann", "c")
    assert facts.model_calls == ()


@pytest.mark.parametrize("odd", ["[{", "[]", '[1, {"role": "user"}, {"parts": [1]}]', "[" * 9000])
def test_an_agent_run_with_odd_messages(odd: str) -> None:
    """Says nothing of its goal, and raises nothing."""
    attributes = {semconv.GEN_AI_INPUT_MESSAGES: odd, semconv.GEN_AI_OUTPUT_MESSAGES: odd}
    facts = genai.read(agent(1, None, attributes=attributes))
    assert facts is not None
    assert (facts.goal, facts.result) == (None, None)
