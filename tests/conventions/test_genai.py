# SPDX-License-Identifier: Apache-2.0
"""The OpenTelemetry GenAI conventions, as instrumentations write them and as they should not."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from otel_taskhistory import conventions, semconv
from otel_taskhistory.conventions import genai
from otel_taskhistory.conventions.facts import ModelCall, Said, Tokens
from otel_taskhistory.spans.encode import decode
from otel_taskhistory.spans.record import OriginRecord
from tests.store.deliveries import agent, asks, message, model, own_tool, span, tool


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
        ({"gen_ai.response.model": "m"}, "model"),
        ({"gen_ai.request.model": "m", "llm.request.type": "embedding"}, "other"),
        ({"gen_ai.request.model": "m", "llm.request.type": "chat"}, "model"),
        ({"gen_ai.completion.0.content": "x"}, "model"),
        ({"gen_ai.prompt.variable.q": "x"}, "other"),
        ({"gen_ai.span.kind": "LLM"}, "model"),
        ({"gen_ai.span.kind": "EMBEDDING", "gen_ai.request.model": "m"}, "other"),
        ({"gen_ai.operation.name": "create_agent", "gen_ai.agent.name": "a"}, "setup"),
        *(
            ({"gen_ai.operation.name": name, "gen_ai.request.model": "m"}, "other")
            for name in ("retrieval", "plan", "handoff", "execute_task", "something_new")
        ),
        ({"gen_ai.operation.name": "execute_event_loop_cycle", "gen_ai.prompt": "x"}, "other"),
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
        '[{"role":"assistant","parts":[{"type":"tool_call","id":"c1',
        '"tool_call"',
        '[["tool_call"]]',
        '[{"parts":"tool_call"}]',
        '[{"parts":[{"type":"tool_call"},{"type":"tool_call","id":7},"tool_call"]}]',
        '["tool_call"' + "[" * 5000,
        '[{"parts":[{"type":"text","content":"\\"tool_call\\""}]}]',
    ],
)
def test_odd_decisions_ask_for_nothing(decision: str) -> None:
    """What is of another shape is kept, and asks for no tool; nor does half an id."""
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


def call_of(**attributes: Any) -> ModelCall:
    """The model call of a span with these attributes, dots written as ``__``."""
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    facts = genai.read(span(1, attributes={semconv.GEN_AI_OPERATION_NAME: "chat"} | named))
    assert facts is not None
    return facts.model_calls[0]


def test_a_cut_decision_still_says_which_tool_it_asked_for() -> None:
    """When the limit of the SDK struck behind the id."""
    cut = '[{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"look'
    assert call_of(gen_ai__output__messages=cut).call_ids == ("c1",)


def test_decisions_in_the_words_of_apis() -> None:
    """Ids of calls in the shapes of OpenAI, Anthropic and Bedrock, each once."""
    decision = [
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "b"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c"}}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "a"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "d"}]},
    ]
    assert call_of(gen_ai__output__messages=json.dumps(decision)).call_ids == ("a", "b", "c")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (("stop", "length"), "stop"),
        (["", "length"], "length"),
        ('["tool_calls"]', "tool_calls"),
        ('["tool_ca', None),
        ("end_turn", "end_turn"),
        ((7, None), None),
        (None, "from the message"),
    ],
)
def test_why_a_model_stopped(said: Any, reason: str | None) -> None:
    """As an array, as JSON text, as a word, or in the output message alone."""
    finish = "from the message" if said is None else ""
    decision = json.dumps([{"role": "assistant", "parts": [], "finish_reason": finish}])
    attributes = {"gen_ai__response__finish_reasons": said, "gen_ai__output__messages": decision}
    assert call_of(**attributes).finish_reason == reason


def test_why_anthropics_sdk_says_a_model_stopped() -> None:
    """It has an attribute of its own."""
    assert call_of(anthropic__message__stop_reason="end_turn").finish_reason == "end_turn"


@pytest.mark.parametrize(
    ("attributes", "tokens"),
    [
        ({"prompt_tokens": 1, "completion_tokens": 2}, Tokens(1, 2)),
        ({"input_tokens": 3, "prompt_tokens": 1, "output_tokens": 0}, Tokens(3, 0)),
        ({"input_tokens": "3", "prompt_tokens": 1}, Tokens(1)),
        ({"cache_read_input_tokens": 4}, Tokens(cached=4)),
        ({"details.cache_read_tokens": 4, "cache_read.input_tokens": 5}, Tokens(cached=5)),
        ({"reasoning_tokens": 6}, Tokens(reasoning=6)),
        ({"details.reasoning_tokens": 6}, Tokens(reasoning=6)),
    ],
)
def test_tokens_under_older_names(attributes: dict[str, Any], tokens: Tokens) -> None:
    """The newest name that holds a number is believed; zero is a number."""
    named = {f"gen_ai.usage.{key}": value for key, value in attributes.items()}
    assert call_of(**named).tokens == tokens


@pytest.mark.parametrize(
    ("attributes", "cost"),
    [
        ({"operation.cost": 0.00052575}, 0.00052575),
        ({"gen_ai.usage.cost": 1}, 1.0),
        ({"operation.cost": "much"}, None),
        ({"operation.cost": math.nan}, None),
        ({}, None),
    ],
)
def test_cost_where_it_is_told(attributes: dict[str, Any], cost: float | None) -> None:
    """In US dollars; what is no price is none."""
    assert call_of(**attributes).cost == cost


@pytest.mark.parametrize(
    ("asked", "answered", "model"),
    [
        ("asked", "answered", "answered"),
        ("unknown", "answered", "answered"),
        ("asked", "unknown", "asked"),
        ("unknown", None, None),
        ("asked", 7, "asked"),
    ],
)
def test_the_model_that_answered(asked: Any, answered: Any, model: str | None) -> None:
    """Else the one that was asked; "unknown" is the name of none."""
    attributes = {"gen_ai__request__model": asked, "gen_ai__response__model": answered}
    assert call_of(**attributes).model == model


def test_the_id_of_the_response() -> None:
    """By it two spans of one call are known to be one."""
    assert call_of(gen_ai__response__id="chatcmpl-1").response_id == "chatcmpl-1"


@pytest.mark.parametrize("suffix", ["_ref", ".ref"])
def test_uploaded_content_is_a_link(suffix: str) -> None:
    """Where messages and instructions were uploaded, as parts of a type of their own."""
    facts = call_of(
        **{
            semconv.GEN_AI_INPUT_MESSAGES + suffix: "s3://bucket/inputs.json",
            semconv.GEN_AI_OUTPUT_MESSAGES + suffix: "s3://bucket/outputs.json",
            semconv.GEN_AI_SYSTEM_INSTRUCTIONS + suffix: "s3://bucket/system.json",
        }
    )
    assert facts.prompt is not None
    assert facts.decision is not None
    assert facts.prompt.system is not None
    link = {"type": "uploaded", "uri": "s3://bucket/inputs.json"}
    assert json.loads(facts.prompt.raw) == [{"role": "user", "parts": [link]}]
    assert json.loads(facts.prompt.system)[0]["uri"] == "s3://bucket/system.json"
    assert json.loads(facts.decision.raw)[0]["role"] == "assistant"
    assert facts.call_ids == ()


def test_an_uploaded_goal_is_none() -> None:
    """A link is no text."""
    attributes = {semconv.GEN_AI_INPUT_MESSAGES + "_ref": "s3://bucket/inputs.json"}
    facts = genai.read(agent(1, None, attributes=attributes))
    assert facts is not None
    assert facts.goal is None


def test_lists_in_odd_wrappings() -> None:
    """A message by itself, and a sequence of JSON texts, are lists of messages."""
    alone = said(message("x"))
    assert alone is not None
    assert alone.structured
    assert json.loads(alone.raw) == [message("x")]
    texts = said((json.dumps(message("x")), json.dumps(message("y"))))
    assert texts is not None
    assert texts.structured
    assert json.loads(texts.raw) == [message("x"), message("y")]


def test_plain_prompts_and_completions() -> None:
    """The attributes from before there were messages: text, JSON messages, blocks."""
    texts = call_of(gen_ai__prompt="Tell me", gen_ai__completion="Told")
    assert (texts.prompt, texts.decision) == (Said("Tell me", False), Said("Told", False))
    raw = '[{"role": "user", "content": "hi"}]'
    listed = call_of(gen_ai__prompt=raw)
    assert listed.prompt == Said(raw, structured=True)
    blocks = call_of(gen_ai__completion='[{"text": "Hello"}]').decision
    assert blocks is not None
    assert json.loads(blocks.raw) == [message("Hello", "assistant")]


def test_goals_in_the_words_of_apis() -> None:
    """Agent spans whose messages have content instead of parts, and cut ones, say their goal."""
    asked = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}]
    attributes = {
        semconv.GEN_AI_INPUT_MESSAGES: json.dumps(asked),
        semconv.GEN_AI_OUTPUT_MESSAGES: '[{"role":"assistant","content":"it is don',
    }
    facts = genai.read(agent(1, None, attributes=attributes))
    assert facts is not None
    assert (facts.goal, facts.result) == ("a\nb", "it is don")


def test_the_answer_is_not_what_the_user_or_a_tool_said() -> None:
    """An agent's output may hold its whole run."""
    run = [message("42", "assistant"), message("thanks"), message("raw", "tool")]
    facts = genai.read(agent(1, None, attributes={semconv.GEN_AI_OUTPUT_MESSAGES: run}))
    assert facts is not None
    assert facts.result == "42"


def test_conversations_by_session() -> None:
    """Where there is no conversation id, a session id ties tasks together."""
    facts = genai.read(agent(1, None, attributes={"session.id": "s"}))
    assert facts is not None
    assert facts.conversation_id == "s"


def test_what_stands_for_nothing_in_a_tool_call() -> None:
    """Other instrumentations' words for "no id" and "no arguments"; those of our agent stay."""
    odd = {
        semconv.GEN_AI_TOOL_CALL_ID: "<not specified>",
        semconv.GEN_AI_TOOL_CALL_ARGUMENTS: "None",
    }
    theirs, ours = genai.read(tool(1, None, attributes=odd)), own_tool(1, 2, attributes=odd)
    assert theirs is not None
    assert theirs.tool_call is not None
    assert (theirs.tool_call.call_id, theirs.tool_call.arguments) == (None, None)
    assert genai.tool_call(ours).arguments == "None"
    assert genai.tool_call(ours).call_id == "<not specified>"


def test_spans_that_only_their_name_tells() -> None:
    """The conventions begin a name with the operation; a name alone is not believed."""
    named = span(1, name="invoke_agent desk", attributes={semconv.GEN_AI_AGENT_NAME: "desk"})
    assert conventions.read(named).role == "agent"
    assert genai.read(span(1, name="invoke_agent desk")) is None
    called = span(1, name="execute_tool look", attributes={"gen_ai.system": "x"})
    facts = genai.read(called)
    assert facts is not None
    assert facts.tool_call is not None
    assert facts.tool_call.name == "look"


@pytest.mark.parametrize(
    ("name", "role"),
    [("workflow.run", "agent"), ("workflow.build", "setup"), ("executor.process w", None)],
)
def test_workflows_of_agent_framework(name: str, role: str | None) -> None:
    """They have no operation, but names of a fixed form."""
    assert genai.role_of(span(1, name=name, scope=OriginRecord("agent_framework"))) == role


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({}, "cancelled"),
        ({"status_code": "OK"}, "succeeded"),
        ({"status_code": "ERROR"}, "failed"),
        ({"end": None}, "running"),
        ({"attributes": {"anthropic.message.stop_reason": "end_turn"}}, "succeeded"),
    ],
)
def test_a_stream_of_anthropics_sdk_that_nobody_read(said: dict[str, Any], status: str) -> None:
    """Its spans end with OK or ERROR, but for those whose stream was left."""
    attributes = {semconv.GEN_AI_OPERATION_NAME: "chat"} | said.pop("attributes", {})
    scope = OriginRecord("com.anthropic.sdk.python")
    facts = genai.read(span(1, attributes=attributes, scope=scope, **said))
    assert facts is not None
    assert facts.status == status
