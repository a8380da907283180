# SPDX-License-Identifier: Apache-2.0
"""Real spans of OpenInference's instrumentations: what was said, compared with what was sent.

The expectations were read off the recorded requests and responses by eye.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.conventions import openinference
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts, Tokens, ToolCall
from otel_taskhistory.spans.record import SpanRecord
from tests.otlp import records_in

CORPUS = Path(__file__).resolve().parents[1] / "data" / "corpus"
FILES = sorted(path.stem for path in CORPUS.glob("*__openinference__*.jsonl"))

PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAEElEQVR4nGM4IScHRwzEcQCxYxBBO0tjggAAAABJRU5E"
    "rkJggg=="
)
"""The picture in the recordings, base64."""


@cache
def recorded(stem: str) -> tuple[tuple[SpanRecord, SpanFacts | None], ...]:
    """The spans of a recording in their order of start, with what they say."""
    records = sorted(records_in(CORPUS / f"{stem}.jsonl"), key=lambda record: record.start_ns)
    return tuple((record, openinference.read(record)) for record in records)


def said_by(stem: str) -> Iterator[tuple[SpanRecord, SpanFacts]]:
    """The spans that speak this dialect."""
    return ((record, facts) for record, facts in recorded(stem) if facts is not None)


def calls(stem: str) -> list[ModelCall]:
    """The model calls of a recording, in order."""
    return [call for _, facts in said_by(stem) for call in facts.model_calls]


def tools(stem: str) -> list[tuple[ToolCall, str]]:
    """The tool calls of a recording, with their status."""
    return [(facts.tool_call, facts.status) for _, facts in said_by(stem) if facts.tool_call]


def agents(stem: str) -> list[tuple[Any, ...]]:
    """(name, goal, result, status) of each agent's run."""
    return [
        (facts.agent, facts.goal, facts.result, facts.status)
        for _, facts in said_by(stem)
        if facts.role == "agent"
    ]


def short(said: Said | None) -> list[Any]:
    """A prompt or decision as (role, what the parts say) for each message."""
    assert said is not None
    assert said.structured
    assert said.system is None
    messages = json.loads(said.raw)
    return [(message["role"], *map(_of_part, message["parts"])) for message in messages]


def _of_part(part: dict[str, Any]) -> Any:
    match part["type"]:
        case "text":
            return part["content"]
        case "reasoning":
            return ("thought", part["content"])
        case "tool_call":
            return ("call", part["id"], part["name"], part.get("arguments"))
        case "tool_call_response":
            return ("result", part["id"], part["response"])
        case "blob":
            return (part["modality"], part["mime_type"], part["content"])
    return part


SYSTEM = ("system", "You are a support agent.")
ASKED = ("user", "Where is order A-17?")
CALL = ("call", "call_1", "lookup_order", {"order_id": "A-17"})
ORDER = '{"order_id": "A-17", "status": "shipped", "note": "café 😀"}'
ORDER_REPR = "{'order_id': 'A-17', 'status': 'shipped', 'note': 'café 😀'}"
SHIPPED = ("assistant", "Order A-17 has shipped.")


def test_there_are_recordings() -> None:
    """The tests below look at something."""
    assert len(FILES) >= 25


@pytest.mark.parametrize("stem", FILES)
def test_every_span_is_what_its_kind_says(stem: str) -> None:
    """Each span of these instrumentations has facts, its kind's role, and what goes with that."""
    for record, facts in recorded(stem):
        kind = record.attributes.get("openinference.span.kind")
        if kind is None:
            assert facts is None
            continue
        assert facts is not None
        expected = {"LLM": "model", "TOOL": "tool", "AGENT": "agent"}.get(kind, "other")
        if record.name == "order task":  # an agent that is not named one
            expected = "agent"
        if stem.startswith("smolagents") and record.name.startswith("Step "):
            expected = "step"
        assert facts.role == expected
        assert len(facts.model_calls) == (kind == "LLM")
        assert (facts.tool_call is not None) == (kind == "TOOL")
        assert facts.status != "running"


@pytest.mark.parametrize("stem", FILES)
def test_no_text_that_was_flattened_is_lost(stem: str) -> None:
    """Every text and picture in a flattened message is in the prompt or decision."""
    for record, facts in said_by(stem):
        for call in facts.model_calls:
            told = {"input": call.prompt, "output": call.decision}
            for key, value in record.attributes.items():
                prefix, _, leaf = key.partition("_messages.")
                content = leaf.endswith((".content", ".text", ".url", ".function.name", ".id"))
                if not prefix.startswith("llm.") or not content or "__REDACTED__" in value:
                    continue
                said = told[prefix.removeprefix("llm.")]
                assert said is not None
                text = value.rpartition(";base64,")[2] if "==AAAA" not in value else value
                assert json.dumps(text, ensure_ascii=False)[1:-1] in said.raw


# --- the openai client --------------------------------------------------------------------------


def test_openai_chat() -> None:
    """A loop of two calls: prompts grow, the decision asks by id, tokens have all four kinds."""
    first, second = calls("openai__openinference__chat-loop-under-user-root")
    assert short(first.prompt) == [SYSTEM, ASKED]
    assert short(first.decision) == [("assistant", CALL)]
    assert short(second.prompt) == [
        *(SYSTEM, ASKED, ("assistant", CALL)),
        ("tool", ("result", "call_1", '{"status": "shipped"}')),
    ]
    assert short(second.decision) == [("assistant", "Order A-17 has shipped. café 😀")]
    assert (first.model, first.finish_reason) == ("gpt-fake-2026", "tool_calls")
    assert first.tokens == second.tokens == Tokens(120, 17, 40, 6)
    assert (first.call_ids, second.call_ids) == (("call_1",), ())
    assert (first.response_id, second.response_id) == ("chatcmpl-fake1", "chatcmpl-fake2")


def test_openai_responses() -> None:
    """Items of the Responses API; instructions come first, arguments that were left out are in."""
    first, second = calls("openai__openinference__responses")
    assert short(first.prompt) == [SYSTEM, ASKED]
    assert short(first.decision) == [
        ("assistant", ("thought", "I should look it up")),
        ("assistant", CALL),
    ]
    assert short(second.prompt) == [
        *(SYSTEM, ASKED),
        ("assistant", ("call", "call_1", "lookup_order", {})),
        ("tool", ("result", "call_1", "shipped")),
    ]
    assert short(second.decision) == [SHIPPED]
    assert (first.finish_reason, first.response_id) == ("completed", "resp_fake9")
    # The same messages are the same text, wherever in the conversation they stand.
    assert first.prompt is not None
    assert second.prompt is not None
    assert second.prompt.raw.startswith(first.prompt.raw[:-1] + ",")


@pytest.mark.parametrize(
    ("stem", "text"), [("chat-image", "What is this?"), ("responses-image-stream", "What?")]
)
def test_openai_pictures(stem: str, text: str) -> None:
    """A data URL is a picture with its base64 and type; numbers of messages may begin at 1."""
    (call,) = calls(f"openai__openinference__{stem}")
    assert short(call.prompt) == [("user", text, ("image", "image/png", PICTURE))]


def test_spans_that_lost_attributes() -> None:
    """Of 62 messages the later ones are left, in order; the first of them lost its role."""
    (call,) = calls("openai__openinference__limits-default-62-messages")
    messages = short(call.prompt)
    assert len(messages) == 30
    assert messages[:2] == [
        ("assistant", ("call", "call_15", "lookup_order", {"order_id": "A-15"})),
        ("tool", ("result", "call_15", "result 15")),
    ]
    assert messages[-2:] == [
        ("assistant", "step 29", ("call", "call_29", "lookup_order", {"order_id": "A-29"})),
        ("tool", ("result", "call_29", "result 29")),
    ]
    assert short(call.decision) == [("assistant", "Order A-17 has shipped. café 😀")]
    assert call.model == "gpt-fake-2026"


def test_values_that_were_cut() -> None:
    """The raw request is no JSON any more; the flattened one holds what is left of the picture."""
    (call,) = calls("openai__openinference__limits-len200-image")
    ((role, text, picture),) = short(call.prompt)
    assert (role, text, picture["type"]) == ("user", "What is this?", "uri")
    assert picture["uri"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert len(picture["uri"]) == 200
    assert short(call.decision) == [("assistant", "Order A-17 has shipped. café 😀")]
    assert call.response_id is None


# --- the anthropic client -----------------------------------------------------------------------


def test_anthropic() -> None:
    """Thinking with its signature, a call told twice is one, results of tools, instructions."""
    first, second = calls("anthropic__openinference__messages-loop-under-user-root")
    call = ("call", "toolu_1", "lookup_order", {"order_id": "A-17"})
    thought = ("assistant", ("thought", "I should look it up"), "Looking up.", call)
    assert short(first.prompt) == [SYSTEM, ASKED]
    assert short(first.decision) == [thought]
    assert first.decision is not None
    assert json.loads(first.decision.raw)[0]["parts"][0]["signature"] == "sig=="
    assert short(second.prompt) == [
        *(SYSTEM, ASKED, thought),
        ("user", ("result", "toolu_1", "boom: not found")),
    ]
    assert short(second.decision) == [SHIPPED]
    assert first.tokens == Tokens(125, 17, 40, None)
    assert (first.finish_reason, first.call_ids) == ("tool_use", ("toolu_1",))
    assert (first.model, first.response_id) == ("claude-fake", "msg_fake1")


def test_a_picture_in_a_tool_result() -> None:
    """It is redacted in the flattened messages, and there in the request."""
    (call,) = calls("anthropic__openinference__messages-tool-result-image")
    *_, (role, (_, call_id, response)) = short(call.prompt)
    assert (role, call_id) == ("user", "toolu_1")
    assert response[0] == {"type": "text", "text": "here"}
    assert response[1]["source"]["data"] == PICTURE


def test_anthropic_failures() -> None:
    """An error is that of the exception; a stream that nobody read to its end was cancelled."""
    ((_, failed),) = said_by("anthropic__openinference__messages-error")
    assert (failed.status, failed.error_type) == ("failed", "anthropic.InternalServerError")
    assert failed.error is not None
    assert failed.error.startswith("Error code: 500")
    assert short(failed.model_calls[0].prompt) == [("user", "hi")]
    assert failed.model_calls[0].decision is None
    ((_, abandoned),) = said_by("anthropic__openinference__messages-stream-abandoned")
    assert (abandoned.status, abandoned.error) == ("cancelled", "abandoned stream")
    assert abandoned.model_calls[0].status == "cancelled"
    assert abandoned.model_calls[0].decision is None
    assert abandoned.model_calls[0].tokens == Tokens(125, 1, 40, None)


# --- openai-agents ------------------------------------------------------------------------------


def test_openai_agents_items_that_are_not_flattened() -> None:
    """Decisions and results that only the raw values have; a failed tool with its result."""
    first, second, third = calls("openai-agents__openinference__tools")
    flaky = ("call", "call_2", "flaky", {"n": 1})
    failed = "An error occurred while running the tool. Please try again."
    assert short(first.prompt) == [SYSTEM, ASKED]
    assert short(first.decision) == [("assistant", CALL)]
    looked = [("assistant", CALL), ("tool", ("result", "call_1", ORDER_REPR))]
    assert short(second.prompt) == [SYSTEM, ASKED, *looked]
    assert short(second.decision) == [("assistant", flaky)]
    assert short(third.prompt) == [
        *(SYSTEM, ASKED, *looked),
        ("assistant", flaky),
        ("tool", ("result", "call_2", failed)),
    ]
    assert short(third.decision) == [SHIPPED]
    assert [call.call_ids for call in (first, second, third)] == [("call_1",), ("call_2",), ()]
    assert first.tokens == Tokens(120, 17, None, None)
    assert tools("openai-agents__openinference__tools") == [
        (ToolCall("lookup_order", None, '{"order_id": "A-17"}', ORDER), "succeeded"),
        (ToolCall("flaky", None, '{"n": 1}', failed), "failed"),
    ]


def test_openai_agents_nested_and_handed_over() -> None:
    """Agents by name, the call of an agent as a tool, the handoff as the instrumentation says."""
    stem = "openai-agents__openinference__handoff-and-agent-as-tool"
    names = [name for name, *_ in agents(stem)]
    assert names == [None, "triage_agent", "geo_agent", "support_agent"]
    assert [(call.name, call.result) for call, _ in tools(stem)] == [
        ("ask_geo", "Paris"),
        ("handoff to support_agent", "support_agent"),
    ]
    assert [short(call.decision)[-1] for call in calls(stem)] == [
        ("assistant", ("call", "call_a", "ask_geo", {"input": "capital of France"})),
        ("assistant", "Paris"),
        ("assistant", ("call", "call_h", "transfer_to_support_agent", {})),
        ("assistant", "handled by support"),
    ]
    assert len(short(calls(stem)[-1].prompt)) == 6


def test_openai_agents_pictures() -> None:
    """Only the raw input has them."""
    (call,) = calls("openai-agents__openinference__image")
    assert short(call.prompt) == [
        SYSTEM,
        ("user", "What is this?", ("image", "image/png", PICTURE)),
    ]
    assert short(call.decision) == [("assistant", "A red square")]


def test_openai_agents_responses() -> None:
    """Instructions, which the raw input lacks, come before it."""
    first, second = calls("openai-agents__openinference__responses-model")
    assert short(first.prompt) == [SYSTEM, ASKED]
    assert short(second.prompt) == [
        *(SYSTEM, ASKED),
        ("assistant", ("thought", "I should look it up")),
        ("assistant", CALL),
        ("tool", ("result", "call_1", ORDER_REPR)),
    ]
    assert short(second.decision) == [SHIPPED]
    assert second.tokens == Tokens(120, 17, 40, 6)
    assert second.finish_reason == "stop"


def test_openai_agents_streams() -> None:
    """A chat model's answer in the form of a response, with the id of the real one."""
    first, second = calls("openai-agents__openinference__chatcompletions-model-streamed")
    assert short(first.decision) == [("assistant", CALL)]
    assert short(second.decision) == [("assistant", "Order A-17 has shipped. café 😀 ")]
    assert (first.response_id, second.response_id) == ("chatcmpl-fake1", "chatcmpl-fake1")
    assert short(second.prompt)[2:] == [
        ("assistant", CALL),
        ("tool", ("result", "call_1", ORDER_REPR)),
    ]


def test_openai_agents_failure() -> None:
    """The agent and the tool failed, whatever the root says."""
    stem = "openai-agents__openinference__tool-raises"
    assert [status for *_, status in agents(stem)] == ["succeeded", "failed"]
    (call, status), *_ = tools(stem)
    assert (call.name, call.arguments, status) == ("boom", "{}", "failed")


# --- langchain ----------------------------------------------------------------------------------


def test_langchain_tools() -> None:
    """A run with a handled failure, of which only the tool's message tells."""
    stem = "langchain__openinference__tools"
    assert tools(stem) == [
        (ToolCall("lookup_order", "call_1", "A-17", ORDER), "succeeded"),
        (ToolCall("soft_fail", "call_2", '{"n": 1}', "bad n"), "failed"),
    ]
    first, second, third = calls(stem)
    assert short(first.prompt) == [SYSTEM, ASKED]
    assert short(first.decision) == [("assistant", "Looking up", CALL)]
    looked_up = [("assistant", "Looking up", CALL), ("tool", ("result", "call_1", ORDER))]
    assert short(second.prompt) == [SYSTEM, ASKED, *looked_up]
    assert short(third.prompt)[-1] == ("tool", ("result", "call_2", "bad n"))
    assert short(third.decision) == [SHIPPED]
    # The attributes have two of the counts, the response all four.
    assert first.tokens == Tokens(120, 17, 40, 6)
    assert agents(stem) == [
        ("support_agent", "Where is order A-17?", "Order A-17 has shipped.", "succeeded")
    ]
    assert {facts.conversation_id for _, facts in said_by(stem)} == {"sess-9"}
    assert {call.response_id for call in calls(stem)} == {None}  # LangChain's own ids are none


def test_langchain_conversation() -> None:
    """Two turns of a thread: two goals, of which the second is the last thing said."""
    stem = "langchain__openinference__thread-id-2turns"
    assert [goal for _, goal, *_ in agents(stem)] == ["Where is order A-17?", "And again?"]
    assert {facts.conversation_id for _, facts in said_by(stem)} == {"thread-42"}


def test_langchain_nested_agents() -> None:
    """Each model call and tool has the name of its agent."""
    stem = "langchain__openinference__subagent"
    assert agents(stem) == [
        ("main_agent", "Capital of France?", "It is Paris", "succeeded"),
        ("geo_agent", "capital of France", "Paris", "succeeded"),
    ]
    of_models = [facts.agent for _, facts in said_by(stem) if facts.role == "model"]
    assert of_models == ["main_agent", "geo_agent", "main_agent"]
    assert [(call.call_id, call.result) for call, _ in tools(stem)] == [("call_g", "Paris")]


def test_langchain_parallel_tools() -> None:
    """Two calls of one decision, each with its own id and result."""
    stem = "langchain__openinference__async-stream-parallel"
    assert calls(stem)[0].call_ids == ("p1", "p2")
    found = sorted((call.call_id, call.arguments, call.result) for call, _ in tools(stem))
    assert found == [
        ("p1", "A", ORDER.replace("A-17", "A")),
        ("p2", "B", ORDER.replace("A-17", "B")),
    ]


def test_langchain_pictures() -> None:
    """Both pictures, one of which was given in LangChain's own form."""
    picture = ("image", "image/png", PICTURE)
    (call,) = calls("langchain__openinference__image")
    assert short(call.prompt) == [SYSTEM, ("user", "What is this?", picture, picture)]
    assert agents("langchain__openinference__image") == [
        ("support_agent", "What is this?", "A red square", "succeeded")
    ]


def test_langchain_failure() -> None:
    """The exception's message, not the traceback that the status carries."""
    for _, facts in said_by("langchain__openinference__model-raises"):
        assert (facts.status, facts.error) == ("failed", "model backend 503")
        assert facts.error_type == "RuntimeError"
    (call,) = calls("langchain__openinference__model-raises")
    assert short(call.prompt) == [SYSTEM, ("user", "hi")]
    assert call.decision is None


def test_attributes_that_could_not_be_encoded() -> None:
    """A message that lost its text keeps its place."""
    (call,) = calls("langchain__openinference__surrogate-nul")
    assert short(call.prompt) == [SYSTEM, ("user",)]
    assert short(call.decision) == [("assistant",)]


def test_a_chain_of_langchain() -> None:
    """Its root is no agent, but says what was asked and answered."""
    stem = "langchain__openinference__lcel-chain"
    root = next(facts for record, facts in said_by(stem) if record.parent_span_id is None)
    assert (root.role, root.goal, root.result) == ("other", "hello", "ok 😀")
    (call,) = calls(stem)
    assert short(call.prompt) == [("system", "Be terse"), ("user", "hello")]


# --- smolagents and haystack --------------------------------------------------------------------


def test_smolagents() -> None:
    """Arguments by name out of the calling convention, positional ones by the schema."""
    stem = "smolagents__openinference__code"
    assert [(call.name, call.arguments, call.result, status) for call, status in tools(stem)] == [
        ("lookup_order", '{"order_id":"A-17"}', ORDER, "succeeded"),
        ("boom", "{}", None, "failed"),
        ("final_answer", '{"answer":"shipped"}', "shipped", "succeeded"),
    ]
    assert agents(stem) == [("CodeAgent", "Where is order A-17?", "shipped", "succeeded")]
    assert calls(stem) == []  # the run's sum of tokens is no model call
    steps = [facts for record, facts in said_by(stem) if record.name.startswith("Step ")]
    assert [facts.status for facts in steps] == ["succeeded", "failed", "succeeded"]
    assert steps[2].result is not None
    assert steps[2].result.endswith("shipped")


def test_smolagents_nested_agents() -> None:
    """The agent within has the task that it was given."""
    (main, goal, result, _), (inner, task, *_) = agents(
        "smolagents__openinference__managed-subagent"
    )
    assert (main, goal, result) == ("main_agent", "Capital of France?", "It is Paris")
    assert inner == "geo_agent"
    assert task.startswith("You're a helpful agent named 'geo_agent'.")
    assert "capital of France" in task


def test_smolagents_steps_say_what_came_out() -> None:
    """Even where that is a Python dict, which looks like JSON."""
    found = [
        facts.result
        for record, facts in said_by("smolagents__openinference__max-steps")
        if record.name.startswith("Step ")
    ]
    assert found == [ORDER_REPR.replace("A-17", "A")] * 2


def test_haystack() -> None:
    """The flattened messages, for the raw ones are a Python ``repr``; so are goal and answer."""
    stem = "haystack__openinference__image"
    (call,) = calls(stem)
    assert short(call.prompt) == [("user", "What?")]
    assert short(call.decision) == [("assistant", "Order A-17 has shipped. café 😀")]
    assert call.tokens == Tokens(120, 17, None, None)
    root = next(facts for record, facts in said_by(stem) if record.parent_span_id is None)
    assert (root.goal, root.result) == ("What?", "Order A-17 has shipped. café 😀")
