# SPDX-License-Identifier: Apache-2.0
"""OpenInference as instrumentations write it: model calls, agents and tools; and odd spans."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_taskhistory import conventions, semconv
from otel_taskhistory.conventions import openinference
from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts, Tokens, ToolCall
from otel_taskhistory.spans.encode import decode
from otel_taskhistory.spans.record import EventRecord, OriginRecord, SpanRecord
from tests.store.deliveries import span

KIND = "openinference.span.kind"
OURS = OriginRecord("openinference.instrumentation.openai")
LANGCHAIN = OriginRecord("openinference.instrumentation.langchain")


def facts_of(kind: str | None, attributes: dict[str, Any], **said: Any) -> SpanFacts:
    """What a span of this kind says."""
    more = {} if kind is None else {KIND: kind}
    facts = openinference.read(span(1, attributes=more | attributes, **said))
    assert facts is not None
    return facts


def call_of(attributes: dict[str, Any], **said: Any) -> ModelCall:
    """The model call that an LLM span is."""
    (call,) = facts_of("LLM", attributes, **said).model_calls
    return call


def messages(said: Said | None) -> Any:
    """The messages of a prompt or decision."""
    assert said is not None
    assert said.structured
    return json.loads(said.raw)


def chat(*texts: str, role: str = "user") -> dict[str, Any]:
    """Flattened input messages."""
    return {
        key: value
        for number, text in enumerate(texts)
        for key, value in (
            (f"llm.input_messages.{number}.message.role", role),
            (f"llm.input_messages.{number}.message.content", text),
        )
    }


def text(content: str) -> dict[str, Any]:
    """A text part."""
    return {"type": "text", "content": content}


# --- roles --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        *[("LLM", "model"), ("TOOL", "tool"), ("AGENT", "agent"), ("llm", "model")],
        *[(kind, "other") for kind in ("CHAIN", "PROMPT", "EMBEDDING", "RETRIEVER", "RERANKER")],
        *[("GUARDRAIL", "other"), ("EVALUATOR", "other"), ("UNKNOWN", "other"), ("NEW", "other")],
    ],
)
def test_the_kind_says_the_role(kind: str, role: str) -> None:
    """Kinds to come are not guessed."""
    facts = facts_of(kind, {"llm.model_name": "m", "tool.name": "t"})
    assert facts.role == role
    assert (len(facts.model_calls), facts.tool_call is not None) == (
        role == "model",
        role == "tool",
    )


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        ({"llm.model_name": "m"}, "model"),
        ({"llm.invocation_parameters": "{}"}, "model"),
        ({"llm.input_messages.0.message.content": "hi"}, "model"),
        ({"llm.prompts": ["hi"]}, "model"),
        ({"tool.name": "t", "llm.model_name": "m"}, "tool"),
        ({KIND: 7, "llm.model_name": "m"}, "model"),
        ({KIND: "", "tool_call.function.name": "t"}, "tool"),
    ],
)
def test_a_span_without_a_kind_is_known_by_what_it_has(
    attributes: dict[str, Any], role: str
) -> None:
    """The kind comes last, so a span that runs often has none."""
    facts = facts_of(None, attributes, end=None)
    assert (facts.role, facts.status) == (role, "running")


def test_spans_of_others_are_left_to_others() -> None:
    """Without any sign of the dialect there are no facts; with its scope there are."""
    attributes = {"input.value": "x", "llm.usage.total_tokens": 3, "session.id": "s"}
    assert openinference.read(span(1, attributes=attributes)) is None
    facts = facts_of(None, attributes, scope=OURS)
    assert (facts.role, facts.conversation_id) == ("other", "s")


# --- which prompt is believed -------------------------------------------------------------------


def test_the_request_is_believed_when_it_says_as_much() -> None:
    """It has the details that are not flattened."""
    request = {"model": "m", "messages": [{"role": "user", "content": "hi", "name": "ann"}]}
    call = call_of({**chat("hi"), "input.value": json.dumps(request)})
    (message,) = messages(call.prompt)
    assert (message["name"], message["parts"]) == ("ann", [text("hi")])


def test_the_flattened_messages_are_believed_when_they_say_more() -> None:
    """A request may be of another form than the instrumentation's own."""
    request = {"messages": [{"role": "user", "content": "hi"}]}
    call = call_of({**chat("hi", "and more"), "input.value": json.dumps(request)})
    assert [message["parts"] for message in messages(call.prompt)] == [
        [text("hi")],
        [text("and more")],
    ]


def test_what_is_redacted_says_nothing() -> None:
    """Pictures over 32,000 characters are only in the request."""
    picture = "iVBORw0KGgo" + "A" * 33  # 44 characters, sound base64
    url = f"data:image/png;base64,{picture}"
    request = {
        "messages": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
        ]
    }
    contents = "llm.input_messages.0.message.contents.0.message_content"
    redacted = {f"{contents}.type": "image", f"{contents}.image.image.url": "__REDACTED__"}
    call = call_of({**redacted, "input.value": json.dumps(request)})
    assert messages(call.prompt)[0]["parts"][0]["content"] == picture
    hidden = call_of({**redacted, "input.value": "__REDACTED__"})
    part = {"type": "image", "url": "__REDACTED__"}
    assert messages(hidden.prompt) == [{"role": "user", "parts": [part]}]


@pytest.mark.parametrize(
    "request_",
    [
        '{"messages": [{"role": "user", "content": "hi',
        '{"messages": ["ChatMessage(role=user)"]}',
        '{"messages": []}',
        '{"messages": {"role": "user"}, "input": 7}',
        "[" * 5000,
        "[1, 2]",
        "__REDACTED__",
        b"\x00",
        math.nan,
    ],
)
def test_requests_of_no_known_form(request_: Any) -> None:
    """Cut, written as ``repr``, empty, or something else: the flattened messages are there."""
    call = call_of({**chat("hi"), "input.value": request_})
    assert messages(call.prompt) == [{"role": "user", "parts": [text("hi")]}]


def test_a_structured_request() -> None:
    """Attributes may nest; then the request needs no parsing."""
    call = call_of({"input.value": {"messages": ({"role": "user", "content": "hi"},)}})
    assert messages(call.prompt)[0]["parts"] == [text("hi")]


@pytest.mark.parametrize(
    "request_",
    [
        {"instructions": "be brief", "input": "hi"},
        {
            "system": [{"type": "text", "text": "be brief"}],
            "messages": [{"role": "user", "content": "hi"}],
        },
        {
            "config": {"system_instruction": "be brief"},
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        },
    ],
)
def test_instructions_beside_the_messages_come_first(request_: dict[str, Any]) -> None:
    """As the instrumentations themselves flatten them."""
    call = call_of({"input.value": json.dumps(request_)})
    first, second = messages(call.prompt)
    assert (first["role"], [part["content"] for part in first["parts"]]) == ("system", ["be brief"])
    assert (second["role"], [part["content"] for part in second["parts"]]) == ("user", ["hi"])


def test_a_text_beside_flattened_instructions() -> None:
    """openai-agents flattens its instructions, but not an input that is one text."""
    call = call_of({**chat("be brief", role="system"), "input.value": "hi"})
    assert messages(call.prompt) == [
        {"role": "system", "parts": [text("be brief")]},
        {"role": "user", "parts": [text("hi")]},
    ]


def test_plain_texts() -> None:
    """A prompt that is one text is that text; several are messages."""
    assert call_of({"input.value": "hi"}).prompt == Said("hi", structured=False)
    assert call_of({"llm.prompts": ["hi"]}).prompt == Said("hi", structured=False)
    assert call_of({"llm.prompts": "hi"}).prompt == Said("hi", structured=False)
    assert call_of({"llm.prompts.3.prompt.text": "hi"}).prompt == Said("hi", structured=False)
    several = call_of({"llm.prompts.1.prompt.text": "b", "llm.prompts.0.prompt.text": "a"})
    assert [message["parts"] for message in messages(several.prompt)] == [[text("a")], [text("b")]]
    template = {"llm.prompt_template.template": "say {x}"}
    assert call_of(template).prompt == Said("say {x}", structured=False)
    assert messages(call_of(template | chat("say hi")).prompt)[0]["parts"] == [text("say hi")]
    assert call_of({"llm.model_name": "m"}).prompt is None


def test_messages_of_the_original_are_left_to_its_dialect() -> None:
    """Packages that translate other instrumentations' spans leave the GenAI attributes there."""
    both = {
        **chat("hi"),
        "output.value": "yes",
        semconv.GEN_AI_INPUT_MESSAGES: "[]",
        semconv.GEN_AI_OUTPUT_MESSAGES: "[]",
    }
    translated = call_of(both)
    assert (translated.prompt, translated.decision) == (None, None)


def test_an_original_that_a_limit_has_cut_gives_way_to_the_flattened_messages() -> None:
    """One long value was cut, the many short ones beside it are whole; a whole one is believed."""
    whole = json.dumps([{"role": "user", "parts": [text("from the original")]}])

    def read(original: str) -> ModelCall:
        attributes = {
            KIND: "LLM",
            "gen_ai.operation.name": "chat",
            **chat("hi"),
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "yes",
            semconv.GEN_AI_INPUT_MESSAGES: original,
            semconv.GEN_AI_OUTPUT_MESSAGES: original,
        }
        (call,) = conventions.read(span(1, attributes=attributes)).model_calls
        return call

    for cut in (whole[:40], "no list at all"):
        call = read(cut)
        assert messages(call.prompt)[0]["parts"] == [text("hi")]
        assert messages(call.decision)[0]["parts"] == [text("yes")]
    assert read(whole).prompt == Said(whole, structured=True)


# --- decisions ----------------------------------------------------------------------------------


def test_decisions() -> None:
    """Flattened, of a completions API, as a plain text, and none."""
    flattened = {"llm.output_messages.0.message.content": "yes", "llm.finish_reason": "stop"}
    assert messages(call_of(flattened).decision) == [
        {"role": "assistant", "parts": [text("yes")], "finish_reason": "stop"}
    ]
    choices = {"llm.choices.0.completion.text": "yes"}
    assert call_of(choices).decision == Said("yes", structured=False)
    assert call_of({"output.value": "yes"}).decision == Said("yes", structured=False)
    assert call_of({"output.value": "__REDACTED__"}).decision is None
    assert call_of({"llm.output_messages.0.message.role": "assistant"}).decision is None
    empty = {"llm.output_messages.0.message.role": "assistant", "llm.finish_reason": "length"}
    assert messages(call_of(empty).decision)[0]["parts"] == []


def test_a_function_call_of_old() -> None:
    """It is a call as any other, unless the messages tell of one."""
    told = {"llm.function_call": '{"name": "look", "arguments": "{\\"at\\": 1}"}'}
    part = {"type": "tool_call", "name": "look", "arguments": {"at": 1}}
    assert messages(call_of(told).decision)[0]["parts"] == [part]
    prefix = "llm.output_messages.0.message"
    both = told | {
        f"{prefix}.content": "x",
        f"{prefix}.tool_calls.0.tool_call.function.name": "look",
    }
    parts = messages(call_of(both).decision)[0]["parts"]
    assert [part["type"] for part in parts] == ["text", "tool_call"]


def test_an_answer_that_only_the_response_has() -> None:
    """With its reason, model, id and tokens."""
    response = {
        "id": "chatcmpl-1",
        "model": "m-2",
        "choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    call = call_of({"output.value": json.dumps(response)})
    (message,) = messages(call.decision)
    assert (message["parts"], message["finish_reason"]) == ([text("yes")], "stop")
    assert (call.finish_reason, call.model, call.response_id) == ("stop", "m-2", "chatcmpl-1")
    assert call.tokens == Tokens(3, 2, None, None)


def test_the_ids_of_responses() -> None:
    """A framework may keep the client's response, or the provider's id in metadata."""
    message = {"role": "assistant", "content": "x", "raw": {"id": "chatcmpl-1", "choices": []}}
    assert call_of({"output.value": json.dumps(message)}).response_id == "chatcmpl-1"

    def generated(**kwargs: Any) -> str | None:
        path = ["langchain", "schema", "messages", "AIMessage"]
        kwargs = {"content": "x", "type": "ai", **kwargs}
        held = {"lc": 1, "type": "constructor", "id": path, "kwargs": kwargs}
        output = json.dumps({"generations": [[{"text": "x", "message": held}]]})
        return call_of({"output.value": output}).response_id

    assert generated(id="lc_run--1", response_metadata={"id": "msg_1"}) == "msg_1"
    assert generated(id="run-1") is None
    assert generated(id="chatcmpl-2") == "chatcmpl-2"


# --- numbers ------------------------------------------------------------------------------------


def test_tokens() -> None:
    """All kinds; a side that is not told follows from the total."""
    count = "llm.token_count"
    call = call_of(
        {
            f"{count}.prompt": 10,
            f"{count}.completion": 5.0,
            f"{count}.prompt_details.cache_input": 4,
            f"{count}.completion_details.reasoning": 3,
        }
    )
    assert call.tokens == Tokens(10, 5, 4, 3)
    assert call_of({f"{count}.total": 9, f"{count}.prompt": 4}).tokens == Tokens(4, 5)
    assert call_of({f"{count}.total": 9, f"{count}.completion": 4}).tokens == Tokens(5, 4)
    assert call_of({f"{count}.total": 9}).tokens == Tokens()


@pytest.mark.parametrize("number", ["12", True, -1, 1.5, math.nan, math.inf, 2**70, None, b"1"])
def test_what_is_no_number_is_none(number: Any) -> None:
    """A sum over a task must not fail, nor mean nothing."""
    call = call_of({"llm.token_count.prompt": number, "llm.token_count.completion": 2})
    assert call.tokens == Tokens(None, 2)
    cost = call_of({"llm.cost.total": number}).cost
    assert cost == (1.5 if number == 1.5 else None)


def test_costs() -> None:
    """The total, else both sides together."""
    sides = {"llm.cost.prompt": 0.25, "llm.cost.completion": 0.5}
    assert call_of(sides).cost == 0.75
    assert call_of(sides | {"llm.cost.total": 1}).cost == 1.0
    assert call_of({}).cost is None


def test_models() -> None:
    """The one that answered, else the one that was asked, wherever it is told."""
    asked = {"input.value": '{"model": "d", "messages": []}'}
    assert call_of(asked).model == "d"
    asked |= {"llm.request.model_name": "c"}
    assert call_of(asked).model == "c"
    asked |= {"llm.model_name": "b"}
    assert call_of(asked).model == "b"
    asked |= {"llm.response.model_name": "a"}
    assert call_of(asked).model == "a"


# --- outcomes -----------------------------------------------------------------------------------


def test_a_call_that_nobody_read_to_its_end() -> None:
    """These instrumentations set a status on each call that ended; other spans may leave it."""
    answered = {"llm.output_messages.0.message.content": "ye"}
    assert facts_of("LLM", answered, scope=OURS).status == "cancelled"
    assert facts_of("LLM", answered, scope=OURS, status_code="OK").status == "succeeded"
    assert facts_of("LLM", answered).status == "succeeded"
    finished = answered | {"llm.finish_reason": "stop"}
    assert facts_of("LLM", finished, scope=OURS).status == "succeeded"
    assert facts_of("LLM", answered, scope=OURS, end=None).status == "running"
    assert facts_of("CHAIN", {}, scope=OURS).status == "succeeded"


def test_an_error() -> None:
    """What the exception says, on the span and on its call."""
    said = {"exception.type": "ValueError", "exception.message": "no"}
    facts = facts_of(
        "LLM", chat("hi"), status_code="ERROR", events=(EventRecord("exception", 1, said),)
    )
    assert (facts.status, facts.error, facts.error_type) == ("failed", "no", "ValueError")
    assert (facts.model_calls[0].status, facts.model_calls[0].error) == ("failed", "no")


def test_a_tool_that_handled_its_error() -> None:
    """LangChain's message says so; a span that failed keeps its own reason."""
    output = {
        "type": "tool",
        "data": {"content": "bad n", "tool_call_id": "c1", "status": "error"},
    }
    attributes = {"tool.name": "t", "output.value": json.dumps(output)}
    facts = facts_of("TOOL", attributes, status_code="OK")
    assert (facts.status, facts.error) == ("failed", "bad n")
    assert facts.tool_call == ToolCall("t", "c1", None, "bad n")
    failed = facts_of("TOOL", attributes, status_code="ERROR", status_message="no")
    assert (failed.status, failed.error) == ("failed", "no")


# --- agents, conversations, tools ---------------------------------------------------------------


def test_who_the_agent_is() -> None:
    """By name, by LangChain's metadata, by node, by the name of the span."""
    node = {"graph.node.id": "n"}
    assert facts_of("AGENT", {"agent.name": "a"} | node).agent == "a"
    assert facts_of("AGENT", {"metadata": '{"lc_agent_name": "b"}'} | node).agent == "b"
    assert facts_of("AGENT", node).agent == "n"
    assert facts_of("AGENT", {}, name="c.run").agent == "c"
    assert facts_of("AGENT", {}, name="my_agent", scope=LANGCHAIN).agent == "my_agent"
    assert facts_of("AGENT", {}, name="Agent workflow").agent is None
    assert facts_of("CHAIN", node).agent is None
    assert facts_of("LLM", {"metadata": {"lc_agent_name": "b"}}).agent == "b"
    assert facts_of("LLM", {"metadata": '{"lc_agent_name": "b'}).agent is None


def test_an_agent_of_langchain_whatever_its_name() -> None:
    """The run of an agent is told from the nodes within it by its metadata."""
    state = '{"messages": [{"role": "user", "content": "hi"}]}'
    run = {"metadata": '{"lc_agent_name": "a"}', "input.value": state}
    facts = facts_of("CHAIN", run, parent=7)
    assert (facts.role, facts.goal) == ("agent", "hi")
    node = run | {"metadata": '{"lc_agent_name": "a", "langgraph_node": "model"}'}
    assert facts_of("CHAIN", node, parent=7).role == "other"


def test_conversations() -> None:
    """The session, else what LangChain's metadata calls one."""
    assert (
        facts_of("CHAIN", {"session.id": "s", "metadata": '{"thread_id": "t"}'}).conversation_id
        == "s"
    )
    assert facts_of("CHAIN", {"metadata": '{"thread_id": "t"}'}).conversation_id == "t"
    assert facts_of("CHAIN", {"session.id": 7, "metadata": "[thread_id"}).conversation_id is None
    assert facts_of("LLM", {semconv.GEN_AI_CONVERSATION_ID: "c"}).conversation_id == "c"


def test_goals_and_results_of_runs() -> None:
    """An agent anywhere, a chain only as a root; a chain within says a plain result."""
    attributes = {"input.value": "do it", "output.value": "done"}
    for facts in (
        facts_of("AGENT", attributes, parent=7),
        facts_of("CHAIN", attributes),
        facts_of("CHAIN", attributes, parent=7, parent_remote=True),
    ):
        assert (facts.goal, facts.result) == ("do it", "done")
    within = facts_of("CHAIN", attributes, parent=7)
    assert (within.goal, within.result) == (None, "done")
    state = attributes | {"output.mime_type": "application/json"}
    assert facts_of("CHAIN", state, parent=7).result is None
    assert facts_of("TOOL", attributes).goal is None
    explicit = {
        semconv.TASKHISTORY_TASK_GOAL: "goal",
        semconv.TASKHISTORY_TASK_RESULT: "result",
    }
    facts = facts_of("AGENT", attributes | explicit)
    assert (facts.goal, facts.result) == ("goal", "result")


def test_a_tool_call() -> None:
    """Name and id in either spelling, else the name of the span."""
    facts = facts_of(
        "TOOL", {"tool.name": "t", "tool.id": "c1", "input.value": '{"a": 1}', "output.value": "x"}
    )
    assert facts.tool_call == ToolCall("t", "c1", '{"a": 1}', "x")
    other = {
        "tool_call.function.name": "t",
        "tool_call.id": "c2",
        "tool_call.function.arguments": '{"a": 2}',
    }
    assert facts_of(None, other).tool_call == ToolCall("t", "c2", '{"a": 2}', None)
    bare = facts_of("TOOL", {"tool.name": 7, "tool.id": "", "output.value": {"a": b"x"}})
    assert bare.tool_call == ToolCall("span 1", None, None, '{"a":{"$bytes":"eA=="}}')


# --- bad input ----------------------------------------------------------------------------------

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(codec=None), max_size=12),
    st.binary(max_size=6),
    st.sampled_from(["__REDACTED__", "system", "assistant", "tool", "data:image/png;base64,AAAA"]),
)
_NAMES = st.sampled_from(
    [
        *("role", "content", "parts", "type", "text", "id", "kwargs", "data", "lc", "messages"),
        *("input", "output", "generations", "message", "choices", "tool_calls", "function", "name"),
        *("arguments", "args", "raw", "usage", "status", "stop_reason", "update", "goto", "task"),
        *("generation_info", "response_metadata", "additional_kwargs", "tool_call_id", "image_url"),
        *("source", "base64", "mime_type", "system", "instructions", "config", "provider_data"),
        *(
            "candidates",
            "object",
            "model",
            "resume",
            "prompt",
            "contents",
            "sanitize_inputs_outputs",
        ),
    ]
)
_TYPES = st.sampled_from(
    [
        "ai",
        "human",
        "tool",
        "constructor",
        "function_call",
        "reasoning",
        "image",
        "tool_use",
        "text",
    ]
)
_NESTED = st.recursive(
    _LEAVES | _TYPES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=5),
    max_leaves=20,
)


def _as_json(value: Any) -> str:
    return json.dumps(value, default=repr)


_VALUES = st.one_of(
    _NESTED,
    _NESTED.map(_as_json),
    st.tuples(_NESTED, st.integers(0, 40)).map(lambda cut: _as_json(cut[0])[: cut[1]]),
    st.just("[" * 3000),
    st.just("ChatMessage(_role=<ChatRole.USER: 'user'>, _content=[TextContent(text='\\ud800')])"),
    st.just("content='x' name='y' tool_call_id='z'"),
    st.builds(object),
)
_PATHS = st.sampled_from(
    [
        *(
            "role",
            "content",
            "name",
            "tool_call_id",
            "contents",
            "tool_calls",
            "function_call_name",
        ),
        *("function_call_arguments_json", "finish_reason", "parts"),
        *("contents.0.message_content.type", "contents.0.message_content.text"),
        *("contents.0.message_content.image.image.url", "contents.x.message_content.type"),
        *(
            "contents.1.message_content.type",
            "contents.1.tool_call.id",
            "contents.1.tool_call.type",
        ),
        *("tool_calls.0.tool_call.id", "tool_calls.0.tool_call.function.name"),
        *("tool_calls.0.tool_call.function.arguments", "tool_calls.1.tool_call.id"),
        *("tool_calls.1.tool_call.function.arguments", "contents.1.tool_call.function.arguments"),
    ]
)
_NUMBERS = st.sampled_from(["0", "1", "7", "-1", "", "x", "²", "9" * 30])
_KEYS = st.one_of(
    st.sampled_from(
        [
            *(KIND, "input.value", "output.value", "input.mime_type", "output.mime_type"),
            *("metadata", "session.id", "agent.name", "graph.node.id", "tool.name", "tool.id"),
            *("tool.parameters", "tool_call.id", "tool_call.function.arguments", "llm.prompts"),
            *("llm.model_name", "llm.function_call", "llm.finish_reason", "llm.token_count.prompt"),
            *("llm.token_count.total", "llm.cost.total", "llm.prompts.0.prompt.text"),
            *("llm.choices.0.completion.text", "llm.prompt_template.template"),
        ]
    ),
    st.builds(
        "llm.{}_messages.{}.message.{}".format,
        st.sampled_from(["input", "output"]),
        _NUMBERS,
        _PATHS,
    ),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["LLM", "TOOL", "AGENT", "CHAIN", None, 7]),
    st.dictionaries(_KEYS, _VALUES, max_size=12),
    st.booleans(),
)
def test_no_attributes_raise(kind: Any, attributes: dict[str, Any], ended: bool) -> None:
    """Whatever stands where, there are facts or none, and messages are JSON messages."""
    record = span(1, attributes={KIND: kind} | attributes, end=2 if ended else None, scope=OURS)
    facts = openinference.read(record)
    assert facts is not None
    for call in facts.model_calls:
        for said in (call.prompt, call.decision):
            if said is not None and said.structured:
                for message in decode(said.raw):
                    assert isinstance(message["role"], str)
                    assert all(isinstance(part["type"], str) for part in message["parts"])
        assert all(isinstance(call_id, str) for call_id in call.call_ids)
    for said_text in (facts.goal, facts.result, facts.agent, facts.conversation_id):
        assert said_text is None or isinstance(said_text, str)


def test_keys_that_are_no_names() -> None:
    """Careless code may set any key."""
    record = SpanRecord("0" * 32, "1" * 16, None, "x", 0, 1, {7: 8, None: 1, KIND: "LLM"})  # type: ignore[dict-item]
    facts = openinference.read(record)
    assert facts is not None
    assert facts.role == "model"
