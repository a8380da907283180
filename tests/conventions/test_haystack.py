# SPDX-License-Identifier: Apache-2.0
"""Haystack's own spans: recorded agents and pipelines, and the words of former versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.conventions import haystack, haystack_messages
from otel_taskhistory.conventions.facts import ModelCall, SpanFacts, Tokens, ToolCall
from otel_taskhistory.spans.record import SpanRecord
from tests.otlp import records_in
from tests.store.deliveries import span

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
LLM, TOOL = "haystack.agent.step.llm", "haystack.agent.step.tool"
COMPONENT, PIPELINE, AGENT = "haystack.component.run", "haystack.pipeline.run", "haystack.agent.run"


def recorded(name: str) -> list[tuple[SpanRecord, SpanFacts]]:
    """The spans of a recording in the order of their start."""
    found = []
    for record in sorted(records_in(CORPUS / f"{name}.jsonl"), key=lambda one: one.start_ns):
        facts = haystack.read(record)
        assert facts is not None
        found.append((record, facts))
    return found


def read(name: str, attributes: dict[str, Any]) -> SpanFacts:
    """What a span of this name with these attributes says."""
    facts = haystack.read(span(1, name=name, attributes=attributes))
    assert facts is not None
    return facts


def call(facts: SpanFacts) -> ModelCall:
    """The model call of a span that is one."""
    (found,) = facts.model_calls
    return found


def tool(facts: SpanFacts) -> ToolCall:
    """The tool call of a span that is one."""
    assert facts.tool_call is not None
    return facts.tool_call


def messages(said: Any) -> list[dict[str, Any]]:
    """The messages of a prompt or decision."""
    assert said is not None
    assert said.structured
    found: list[dict[str, Any]] = json.loads(said.raw)
    return found


def text(content: str) -> dict[str, str]:
    """A part that is text."""
    return {"type": "text", "content": content}


# --- recordings -------------------------------------------------------------------------------


def test_an_agent_whose_tool_failed() -> None:
    """Goal and answer of the agent, its two model calls, and the failure in the tool's output."""
    found = recorded("haystack__native__agent-tool-raises")
    assert [(record.name, facts.role, facts.status) for record, facts in found] == [
        ("haystack.agent.run", "agent", "succeeded"),
        ("haystack.agent.step", "other", "succeeded"),
        ("haystack.agent.step.llm", "model", "succeeded"),
        ("haystack.agent.step.tool", "tool", "failed"),
        ("haystack.agent.step", "other", "succeeded"),
        ("haystack.agent.step.llm", "model", "succeeded"),
    ]
    run, _, asked, failed, _, answered = (facts for _, facts in found)
    assert (run.goal, run.result) == ("Do it", "Order A-17 has shipped. café 😀")
    error = "Failed to invoke Tool `boom` with parameters {}. Error: disk on fire"
    assert tool(failed) == ToolCall("boom", None, "{}", json.dumps({"error": error}))
    assert failed.error == error
    first, second = call(asked), call(answered)
    assert (first.model, second.model) == ("gpt-fake-2026", "gpt-fake-2026")
    assert (first.finish_reason, first.call_ids) == ("tool_calls", ("call_1",))
    assert (second.finish_reason, second.call_ids) == ("stop", ())
    assert first.tokens == second.tokens == Tokens(120, 17, 40, 6)
    assert messages(first.prompt) == [
        {"role": "system", "parts": [text("You are a support agent.")]},
        {"role": "user", "parts": [text("Do it")]},
    ]
    called = {"type": "tool_call", "id": "call_1", "name": "boom", "arguments": {}}
    assert messages(first.decision) == [
        {"role": "assistant", "parts": [called], "finish_reason": "tool_calls"}
    ]
    assert messages(second.prompt)[2:] == [
        {"role": "assistant", "parts": [called], "finish_reason": "tool_calls"},
        {
            "role": "tool",
            "parts": [
                {
                    "type": "tool_call_response",
                    "id": "call_1",
                    "response": error,
                    "name": "boom",
                    "error": True,
                }
            ],
        },
    ]
    assert messages(second.decision)[0]["parts"] == [text("Order A-17 has shipped. café 😀")]


def test_a_pipeline() -> None:
    """The component that asks the model is the model call; the pipeline has goal and result."""
    found = recorded("haystack__native__pipeline")
    assert [facts.role for _, facts in found] == ["other", "other", "model"]
    pipeline, _, asked = (facts for _, facts in found)
    assert (pipeline.goal, pipeline.result) == ("hi", "Order A-17 has shipped. café 😀")
    assert messages(call(asked).prompt) == [{"role": "user", "parts": [text("Say hi")]}]
    assert call(asked).tokens == Tokens(120, 17, 40, 6)


def test_a_pipeline_that_raised() -> None:
    """Pipeline and model call failed; the prompt is there, the model was never told."""
    found = recorded("haystack__native__pipeline-raises")
    assert [(facts.role, facts.status) for _, facts in found] == [
        ("other", "failed"),
        ("model", "failed"),
    ]
    asked = call(found[1][1])
    assert (asked.status, asked.model, asked.decision) == ("failed", None, None)
    assert messages(asked.prompt) == [{"role": "user", "parts": [text("hi")]}]
    assert (asked.error or "").endswith("Error: Error code: 500 - backend exploded")
    assert found[0][1].goal == "hi"


def test_a_picture_that_tracing_left_out() -> None:
    """What stands in its place is no picture, and is not passed off as one."""
    pipeline, asked = (facts for _, facts in recorded("haystack__native__image"))
    assert pipeline.goal == "What?"
    (message,) = messages(call(asked).prompt)
    assert message["parts"] == [
        text("What?"),
        {
            "type": "image",
            "omitted": "Base64 string (100 characters)",
            "mime_type": "image/png",
        },
    ]


# --- what a span is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "attributes", "role"),
    [
        (AGENT, {}, "agent"),
        ("haystack.agent.step", {}, "other"),
        (LLM, {}, "model"),
        (TOOL, {}, "tool"),
        (PIPELINE, {}, "other"),
        ("haystack.async_pipeline.run", {}, "other"),
        ("haystack.agent.hook", {}, "other"),
        (COMPONENT, {}, "other"),
        (COMPONENT, {"haystack.component.type": "OpenAIChatGenerator"}, "model"),
        (COMPONENT, {"haystack.component.type": "HuggingFaceLocalGenerator"}, "model"),
        (COMPONENT, {"haystack.component.type": "ToolInvoker"}, "tool"),
        (COMPONENT, {"haystack.component.type": "PromptBuilder"}, "other"),
        (COMPONENT, {"haystack.component.type": 7}, "other"),
    ],
)
def test_roles(name: str, attributes: dict[str, Any], role: str) -> None:
    """The name says what a span is, for a component its type does, with or without content."""
    assert read(name, attributes).role == role


def test_spans_of_others() -> None:
    """Only the names tell Haystack's spans."""
    assert haystack.read(span(1, attributes={"haystack.agent.input": "{}"})) is None
    assert haystack.read(span(1, name="haystacks")) is None


def test_the_name_of_an_agent() -> None:
    """An agent within a pipeline is called as its component."""
    attributes = {"haystack.component.type": "Agent", "haystack.component.name": "researcher"}
    facts = read(COMPONENT, attributes)
    assert (facts.role, facts.agent) == ("other", "researcher")


# --- goals and results ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "goal"),
    [
        ({"embedder": {"text": "Why?"}, "builder": {"question": "Why?"}}, "Why?"),
        ({"builder": {"tone": "dry", "question": "Why?"}}, '{"builder":{"tone":"dry",'),
        ({"llm": {"messages": [{"role": "user", "content": "Why?", "meta": {}}]}}, "Why?"),
        ({"retriever": {"top_k": 3}}, None),
    ],
)
def test_goals_of_pipelines(given: Any, goal: str | None) -> None:
    """The messages, or the one text among the inputs; several texts stand as they are."""
    found = read(PIPELINE, {"haystack.pipeline.input_data": json.dumps(given)}).goal
    assert found == goal or (goal is not None and found is not None and found.startswith(goal))


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"llm": {"replies": ["Because"], "meta": [{}]}}, "Because"),
        ({"llm": {"replies": [{"_role": "assistant", "_content": [{"text": "So"}]}]}}, "So"),
        ({"agent": {"last_message": {"role": "assistant", "content": [{"text": "So"}]}}}, "So"),
        ({"builder": {"answers": [{"type": "x", "init_parameters": {"data": "So"}}]}}, "So"),
        ({"builder": {"answers": [{"data": "So", "query": "q"}]}}, "So"),
        ({"writer": {"documents_written": 3}}, '{"writer": {"documents_written": 3}}'),
        ({}, None),
    ],
)
def test_results_of_pipelines(given: Any, result: str | None) -> None:
    """The reply or answer among the outputs, else all of them."""
    assert read(PIPELINE, {"haystack.pipeline.output_data": json.dumps(given)}).result == result


def test_an_agent_that_ended_with_a_tool() -> None:
    """The result of the tool is the answer; an agent that said nothing has none."""
    answer = {"tool_call_result": {"result": "42", "origin": {"tool_name": "t"}, "error": False}}
    asked = {"role": "user", "content": [{"text": "q"}]}
    state = {"messages": [asked, {"role": "tool", "content": [answer]}]}
    assert read(AGENT, {"haystack.agent.output": json.dumps(state)}).result == "42"
    state = {"messages": [asked]}
    assert read(AGENT, {"haystack.agent.output": json.dumps(state)}).result is None


@pytest.mark.parametrize(
    ("given", "goal"),
    [
        ('{"messages": [{"role": "user", "content": [{"text": "Where is ord', "Where is ord"),
        ('{"messages": [{"role": "user", "content": [{"text": "old"}]}, {"role": "assist', None),
        ('{"messages": []}', None),
        ("Agent input", None),
        (7, None),
    ],
)
def test_goals_that_were_cut(given: Any, goal: str | None) -> None:
    """A question that was cut is still shown when no other can follow it."""
    assert read(AGENT, {"haystack.agent.input": given}).goal == goal


# --- messages of all versions -----------------------------------------------------------------

TOOL_CALL = {"tool_name": "look", "arguments": {"id": 1}, "id": "c1"}


@pytest.mark.parametrize(
    "said",
    [
        {"role": "user", "meta": {}, "name": None, "content": [{"text": "Hi"}]},
        {"_role": "user", "_meta": {}, "_name": None, "_content": [{"text": "Hi"}]},
        {"role": "user", "meta": {}, "name": None, "content": "Hi"},
        {"role": "ChatRole.USER", "content": "Hi"},
        {"role": "user", "content": {"text": "Hi"}},
    ],
)
def test_forms_of_a_message(said: dict[str, Any]) -> None:
    """As written by this version and by former ones."""
    assert haystack_messages.is_message(said)
    assert haystack_messages.message(said) == {"role": "user", "parts": [text("Hi")]}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"text": "Hi"}, text("Hi")),
        ({"type": "text", "text": "Hi"}, text("Hi")),
        (
            {"tool_call": {**TOOL_CALL, "extra": None}},
            {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"id": 1}},
        ),
        (
            {**TOOL_CALL, "extra": {"signature": "s"}},
            {
                "type": "tool_call",
                "id": "c1",
                "name": "look",
                "arguments": {"id": 1},
                "extra": {"signature": "s"},
            },
        ),
        (
            {"tool_call": {"tool_name": "look", "arguments": {}, "id": None}},
            {"type": "tool_call", "name": "look", "arguments": {}},
        ),
        (
            {"tool_call_result": {"result": "ok", "origin": TOOL_CALL, "error": False}},
            {"type": "tool_call_response", "id": "c1", "response": "ok", "name": "look"},
        ),
        (
            {"result": [{"text": "ok"}], "origin": TOOL_CALL, "error": True},
            {
                "type": "tool_call_response",
                "id": "c1",
                "response": [text("ok")],
                "name": "look",
                "error": True,
            },
        ),
        (
            {"reasoning": {"reasoning_text": "Hm", "extra": {}}},
            {"type": "reasoning", "content": "Hm"},
        ),
        (
            {"image": {"base64_image": "iVBORw0KGgo=", "mime_type": "image/png", "detail": "low"}},
            {
                "type": "blob",
                "modality": "image",
                "mime_type": "image/png",
                "content": "iVBORw0KGgo=",
                "detail": "low",
            },
        ),
        (
            {"file": {"base64_data": "JVBERi0=", "mime_type": "application/pdf", "filename": "a"}},
            {
                "type": "blob",
                "modality": "document",
                "mime_type": "application/pdf",
                "content": "JVBERi0=",
                "filename": "a",
            },
        ),
        ({"video": {"x": 1}}, {"type": "json", "content": {"video": {"x": 1}}}),
        (7, {"type": "json", "content": 7}),
    ],
)
def test_parts(block: Any, part: dict[str, Any]) -> None:
    """Each kind, wrapped or by itself; what is unknown stays whole."""
    assert haystack_messages.parts([block]) == [part]


def test_a_generator_of_text() -> None:
    """A prompt that is a text, replies that are texts, and what is said of them beside them."""
    facts = read(
        COMPONENT,
        {
            "haystack.component.type": "OpenAIGenerator",
            "haystack.component.input": '{"prompt": "Say hi", "system_prompt": "Be terse."}',
            "haystack.component.output": json.dumps(
                {
                    "replies": ["hi"],
                    "meta": [
                        {
                            "model": "m",
                            "finish_reason": "stop",
                            "usage": {"prompt_tokens": 5, "completion_tokens": 1},
                        }
                    ],
                }
            ),
        },
    )
    found = call(facts)
    assert (found.model, found.finish_reason, found.tokens) == ("m", "stop", Tokens(5, 1))
    assert messages(found.prompt) == [{"role": "user", "parts": [text("Say hi")]}]
    assert found.prompt is not None
    assert json.loads(found.prompt.system or "") == [text("Be terse.")]
    assert messages(found.decision) == [
        {"role": "assistant", "parts": [text("hi")], "finish_reason": "stop"}
    ]
    plain = read(LLM, {f"{LLM}.input": '{"prompt": "Say hi"}'})
    assert call(plain).prompt is not None
    assert call(plain).prompt == type(found.prompt)("Say hi", structured=False)


def test_a_model_call_that_was_cut() -> None:
    """Content is kept as it came, and what can be read of the metadata is."""
    prompt = '{"messages": [{"role": "user", "content": [{"text": "Wh'
    decision = '{"replies": [{"role": "assistant", "meta": {"model": "m", "usage": {"prompt_tokens": 5, "compl'  # noqa: E501
    found = call(read(LLM, {f"{LLM}.input": prompt, f"{LLM}.output": decision}))
    assert found.prompt is not None
    assert (found.prompt.raw, found.prompt.structured) == (prompt, False)
    assert found.decision is not None
    assert (found.decision.raw, found.decision.structured) == (decision, False)
    assert (found.model, found.tokens) == (None, Tokens())
    whole = f'{decision}etion_tokens": 1}}}}, "name": null, "content": [{{"text": "Hi'
    found = call(read(LLM, {f"{LLM}.output": whole}))
    assert (found.model, found.tokens, found.call_ids) == ("m", Tokens(5, 1), ())


# --- tools ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "status", "error"),
    [
        ({f"{TOOL}.output": "ok"}, "succeeded", None),
        ({f"{TOOL}.output": '{"error": "no"}'}, "failed", "no"),
        ({f"{TOOL}.output": '{"error": "no"}', "haystack.tool.error": False}, "succeeded", None),
        ({f"{TOOL}.output": '{"error": "no", "rows": []}'}, "succeeded", None),
        ({"haystack.tool.error": True}, "failed", None),
    ],
)
def test_a_tool_that_failed(attributes: dict[str, Any], status: str, error: str | None) -> None:
    """By its flag, or where there is none by an output that is nothing but an error."""
    facts = read(TOOL, {"haystack.tool.name": "t", **attributes})
    assert (facts.status, facts.error) == (status, error)


def test_a_tool_invoker_with_one_call() -> None:
    """Former versions hand over the conversation; the call is the one that its end asks for."""
    asked = {"role": "assistant", "content": [{"tool_call": TOOL_CALL}]}
    older = {
        "role": "assistant",
        "content": [{"tool_call": {"tool_name": "old", "arguments": {}, "id": "c0"}}],
    }
    answer = {"tool_call_result": {"result": "ok", "origin": TOOL_CALL, "error": False}}
    facts = read(
        COMPONENT,
        {
            "haystack.component.name": "tool_invoker",
            "haystack.component.type": "ToolInvoker",
            "haystack.component.input": json.dumps({"messages": [older, asked], "state": {}}),
            "haystack.component.output": json.dumps(
                {"tool_messages": [{"role": "tool", "content": [answer]}]}
            ),
        },
    )
    assert tool(facts) == ToolCall("look", "c1", '{"id":1}', "ok")
    assert facts.status == "succeeded"


def test_a_tool_invoker_with_several_calls() -> None:
    """One span carried them out: all names, all arguments, all results, and the first error."""
    other = {"tool_name": "write", "arguments": {}, "id": "c2"}
    asked = {"role": "assistant", "content": [{"tool_call": TOOL_CALL}, {"tool_call": other}]}
    answers = [
        {"tool_call_result": {"result": "ok", "origin": TOOL_CALL, "error": False}},
        {"tool_call_result": {"result": "disk full", "origin": other, "error": True}},
    ]
    facts = read(
        TOOL,
        {
            f"{TOOL}.input": json.dumps({"messages": [asked]}),
            f"{TOOL}.output": json.dumps(
                {"tool_messages": [{"role": "tool", "content": [one]} for one in answers]}
            ),
        },
    )
    assert tool(facts) == ToolCall("look, write", None, '[{"id":1},{}]', '["ok","disk full"]')
    assert (facts.status, facts.error) == ("failed", "disk full")


def test_a_tool_invoker_without_content() -> None:
    """Content tracing may be off: the component's name is all there is."""
    facts = read(
        COMPONENT,
        {"haystack.component.type": "ToolInvoker", "haystack.component.name": "invoker"},
    )
    assert tool(facts) == ToolCall("invoker")


# --- anything ---------------------------------------------------------------------------------


class Hostile:
    """A value that refuses whatever is asked of it."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.binary(max_size=8),
        st.builds(Hostile),
        st.text(st.characters(), max_size=12),
        st.sampled_from(["\ud800", "\x00", "[", '{"', "NaN", "OpenAIGenerator", "ToolInvoker"]),
        st.sampled_from(
            [
                '{"messages": [{"role": 7, "content": [{"text": 7}, null, {"tool_call": 7}]}]}',
                '{"messages": [{"_role": "tool", "_content": [{"tool_call_result": {}}]}]}',
                '{"replies": [{"role": "assistant", "content": [], "meta": {"usage": 7}}]}',
                '{"replies": ["a", 7], "meta": [7, {"model": 7}]}',
                '{"replies": [], "meta": 7}',
                '{"error": 7}',
                '{"a": {"replies": 7, "answers": [7]}}',
                '{"messages": "text", "system_prompt": 7}',
                '{"tool_messages": [{"role": "tool", "content": [{"origin": 7, "result": NaN}]}]}',
            ]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        *("haystack.agent.input", "haystack.agent.output", f"{LLM}.input", f"{LLM}.output"),
        *(f"{TOOL}.input", f"{TOOL}.output", "haystack.tool.name", "haystack.tool.error"),
        *("haystack.pipeline.input_data", "haystack.pipeline.output_data"),
        *("haystack.component.type", "haystack.component.name"),
        *("haystack.component.input", "haystack.component.output"),
    ]
)


@given(
    name=st.sampled_from([AGENT, LLM, TOOL, PIPELINE, COMPONENT, "haystack.x"]),
    attributes=st.dictionaries(KEYS, VALUES, max_size=6),
    kind=st.sampled_from(["OpenAIChatGenerator", "ToolInvoker", "Agent", None]),
)
def test_no_value_raises(name: str, attributes: dict[str, Any], kind: str | None) -> None:
    """Whatever the attributes hold, a reading comes of it, the same each time."""
    if kind is not None:
        attributes = {**attributes, "haystack.component.type": kind}
    record = span(1, name=name, attributes=attributes)
    assert repr(haystack.read(record)) == repr(haystack.read(record))
