# SPDX-License-Identifier: Apache-2.0
"""OpenLLMetry: recorded runs of LangChain, LangGraph and the OpenAI Agents SDK, and older words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.conventions import genai, traceloop
from otel_taskhistory.conventions.facts import ModelCall, SpanFacts, Tokens, ToolCall
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from tests.otlp import logs_in, logs_of, records_in
from tests.store.deliveries import span

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
TOOL_SPAN = {"traceloop.span.kind": "tool", "traceloop.entity.name": "t"}
WORKFLOW = {"traceloop.span.kind": "workflow", "traceloop.entity.name": "w"}


def state(key: str, *messages: dict[str, Any]) -> str:
    """The state of a graph as LangChain's callbacks write it."""
    return json.dumps({key: {"messages": messages}})


def recorded(name: str) -> list[tuple[SpanRecord, SpanFacts]]:
    """The spans of a recording in the order of their start, as this dialect and GenAI read them."""
    file = CORPUS / f"{name}.jsonl"
    beside = CORPUS / f"{name}.logs.jsonl"
    logs = list(logs_in(beside)) if beside.exists() else []
    spans = sorted(records_in(file), key=lambda record: record.start_ns)
    return [(record, both(record, logs_of(record, logs))) for record in spans]


def both(record: SpanRecord, logs: list[LogRecord]) -> SpanFacts:
    """What the two dialects that read a span say together."""
    said = [dialect(record, logs) for dialect in (traceloop.read, genai.read)]
    facts = reduce(merge, (one for one in said if one is not None), None)
    assert facts is not None
    return facts


def read(attributes: dict[str, Any], **keywords: Any) -> SpanFacts:
    """What this dialect alone says of a span with these attributes."""
    facts = traceloop.read(span(1, attributes=attributes, **keywords))
    assert facts is not None
    return facts


def of_role(found: list[tuple[SpanRecord, SpanFacts]], role: str) -> Iterator[SpanFacts]:
    """What the spans of a role say, in order."""
    return (facts for _, facts in found if facts.role == role)


def outline(found: list[tuple[SpanRecord, SpanFacts]]) -> list[tuple[str, str, str]]:
    """Name, role and status of each span."""
    return [(record.name, facts.role, facts.status) for record, facts in found]


def tool(facts: SpanFacts) -> ToolCall:
    """The tool call of a span that is one."""
    assert facts.tool_call is not None
    return facts.tool_call


def texts(said: Any) -> list[str]:
    """The texts of a prompt or decision, in order."""
    assert said is not None
    assert said.structured
    parts = [part for message in json.loads(said.raw) for part in message["parts"]]
    return [part["content"] for part in parts if part["type"] == "text"]


# --- LangGraph --------------------------------------------------------------------------------


def test_two_turns_of_a_conversation() -> None:
    """Each turn has its own question and answer, though the state holds the whole conversation."""
    found = recorded("langchain__traceloop__thread-id-2turns")
    assert outline(found) == [
        ("create_agent support_agent", "setup", "succeeded"),
        ("invoke_agent support_agent", "agent", "succeeded"),
        ("support_agent.workflow", "agent", "succeeded"),
        ("execute_task model", "other", "succeeded"),
        ("FakeChat.chat", "model", "succeeded"),
        ("execute_task tools", "other", "succeeded"),
        ("execute_tool lookup_order", "tool", "succeeded"),
        ("execute_task model", "other", "succeeded"),
        ("FakeChat.chat", "model", "succeeded"),
        ("execute_task tools", "other", "succeeded"),
        ("execute_tool soft_fail", "tool", "failed"),
        ("execute_task model", "other", "succeeded"),
        ("FakeChat.chat", "model", "succeeded"),
        ("invoke_agent support_agent", "agent", "succeeded"),
        ("support_agent.workflow", "agent", "succeeded"),
        ("execute_task model", "other", "succeeded"),
        ("FakeChat.chat", "model", "succeeded"),
    ]
    agents = [facts for facts in of_role(found, "agent") if facts.goal]
    assert [(facts.goal, facts.result) for facts in agents] == [
        ("Where is order A-17?", "Order A-17 has shipped."),
        ("And again?", "Order A-17 has shipped."),
    ]
    assert {facts.conversation_id for _, facts in found[1:]} == {"thread-42"}
    assert {facts.agent for _, facts in found} == {"support_agent"}


def test_what_its_tools_were_given_and_gave_back() -> None:
    """Out of what is around them: arguments, call id, the tool's own words, a handled failure."""
    found = recorded("langchain__traceloop__thread-id-2turns")
    looked, failed = of_role(found, "tool")
    assert tool(looked).name == "lookup_order"
    assert tool(looked).call_id == "call_1"
    assert tool(looked).arguments == '{"order_id":"A-17"}'
    assert tool(looked).result == '{"order_id": "A-17", "status": "shipped", "note": "café 😀"}'
    assert (looked.status, looked.error) == ("succeeded", None)
    assert (tool(failed).name, tool(failed).call_id) == ("soft_fail", "call_2")
    assert (tool(failed).arguments, tool(failed).result) == ('{"n":1}', "bad n")
    assert (failed.status, failed.error) == ("failed", "bad n")


def test_its_model_calls() -> None:
    """Messages as they came, tokens, and the model that answered rather than ``unknown``."""
    calls = [
        facts.model_calls[0]
        for facts in of_role(recorded("langchain__traceloop__thread-id-2turns"), "model")
    ]
    assert {call.model for call in calls} == {"fake-chat-1"}
    assert {call.tokens for call in calls} == {Tokens(120, 17, 40)}
    assert [call.call_ids for call in calls] == [("call_1",), ("call_2",), (), ()]
    assert texts(calls[0].prompt) == ["Where is order A-17?"]
    assert calls[0].prompt is not None
    assert calls[0].prompt.system == '[{"type": "text", "content": "You are a support agent."}]'
    assert texts(calls[0].decision) == ["Looking up"]
    assert texts(calls[3].prompt)[-1] == "And again?"
    assert texts(calls[3].decision) == ["Order A-17 has shipped."]


def test_a_pause_for_a_human_is_no_failure() -> None:
    """What raised ``GraphInterrupt`` has succeeded so far, without a result."""
    found = recorded("langchain__traceloop__interrupt-resume")
    assert [status for name, role, status in outline(found) if status != "succeeded"] == []
    paused, resumed = map(tool, of_role(found, "tool"))
    assert (paused.call_id, paused.arguments, paused.result) == ("call_i", '{"x":"pay"}', None)
    assert (resumed.call_id, resumed.result) == ("call_i", "approved: yes")


def test_a_run_that_goes_on_after_a_pause() -> None:
    """The reply to an interrupt is no goal; a run that was paused has no answer yet."""
    found = recorded("langchain__traceloop__interrupt-resume")
    agents = [facts for record, facts in found if record.name == "support_agent.workflow"]
    assert [(facts.goal, facts.result) for facts in agents] == [("Pay", None), (None, "paid")]
    assert {facts.conversation_id for facts in agents} == {"thread-hitl"}


def test_an_agent_within_a_tool() -> None:
    """Every span knows the agent that it runs under."""
    found = recorded("langchain__traceloop__subagent")
    assert [facts.agent for facts in of_role(found, "model")] == [
        "main_agent",
        "geo_agent",
        "main_agent",
    ]
    (outer,) = (facts for record, facts in found if record.name == "main_agent.workflow")
    assert (outer.goal, outer.result) == ("Capital of France?", "It is Paris")
    (call,) = map(tool, of_role(found, "tool"))
    assert (call.arguments, call.result) == ('{"q":"capital of France"}', "Paris")


def test_a_chain() -> None:
    """The one text that a chain was given is its goal, the text that it returned its result."""
    found = recorded("langchain__traceloop__lcel-chain")
    (chain,) = of_role(found, "agent")
    assert (chain.goal, chain.result) == ("hello", "ok 😀")
    assert [facts.role for _, facts in found] == ["agent", "other", "model", "other"]


# --- LangGraph, messages as log events --------------------------------------------------------


def test_messages_in_log_records_of_the_node() -> None:
    """The node within which they were written is the model call; its client span is the twin."""
    found = recorded("langchain__traceloop-events__thread-id-2turns")
    calls = [
        facts.model_calls[0]
        for record, facts in found
        if record.name == "execute_task model" and facts.role == "model"
    ]
    assert len(calls) == 4
    assert texts(calls[0].prompt) == ["You are a support agent.", "Where is order A-17?"]
    assert texts(calls[0].decision) == ["Looking up"]
    assert calls[0].call_ids == ("call_1",)
    assert texts(calls[3].prompt)[-1] == "And again?"
    clients = [facts for record, facts in found if record.name == "FakeChat.chat"]
    assert {facts.role for facts in clients} == {"model"}
    assert clients[0].model_calls[0].tokens == Tokens(120, 17, 40)
    assert [facts.role for record, facts in found if record.name == "execute_task tools"] == [
        "other",
        "other",
    ]


def test_a_model_that_raised_has_its_prompt() -> None:
    """No choice was told: the prompt stands alone, and the call failed."""
    found = recorded("langchain__traceloop-events__model-raises")
    (node,) = (facts for record, facts in found if record.name == "execute_task model")
    (call,) = node.model_calls
    assert (call.status, call.error, call.decision) == ("failed", "model backend 503", None)
    assert texts(call.prompt)[0] == "You are a support agent."


def test_two_model_calls_of_one_node() -> None:
    """A message after an answer begins the next prompt; each call has its own times."""
    record = span(
        1,
        start=100,
        end=900,
        attributes={"traceloop.span.kind": "task", "traceloop.entity.name": "n"},
    )
    told = [
        ("gen_ai.user.message", {"content": "one"}, 200),
        ("gen_ai.choice", {"message": {"content": "first"}}, 300),
        ("gen_ai.choice", {"message": {"content": "other first"}}, 310),
        ("gen_ai.user.message", {"content": "two"}, 400),
        ("gen_ai.choice", {"message": {"content": "second"}}, 500),
    ]
    logs = [
        LogRecord(record.trace_id, record.span_id, name, body, time_ns=record.start_ns + at)
        for name, body, at in told
    ]
    facts = traceloop.read(record, logs)
    assert facts is not None
    assert [texts(call.prompt) for call in facts.model_calls] == [["one"], ["two"]]
    assert [texts(call.decision) for call in facts.model_calls] == [
        ["first", "other first"],
        ["second"],
    ]
    assert [(call.started_ns, call.ended_ns) for call in facts.model_calls] == [
        (record.start_ns, record.start_ns + 310),
        (record.start_ns + 400, record.end_ns),
    ]


def test_other_log_records_make_no_model_call() -> None:
    """What a node logs is its own affair."""
    record = span(1, attributes={"traceloop.span.kind": "task"})
    log = LogRecord(record.trace_id, record.span_id, "app.message", {"content": "hello"})
    facts = traceloop.read(record, [log])
    assert facts is not None
    assert facts.role == "other"


# --- OpenAI Agents SDK ------------------------------------------------------------------------


def test_an_agent_of_the_openai_sdk() -> None:
    """The workflow's name is the SDK's, not an agent's; arguments and results are plain."""
    found = recorded("openai-agents__traceloop__tools")
    assert [(record.name, facts.role, facts.agent) for record, facts in found[:4]] == [
        ("Agent Workflow", "agent", None),
        ("support_agent.agent", "agent", "support_agent"),
        ("openai.response", "model", None),
        ("lookup_order.tool", "tool", None),
    ]
    looked, flaky = of_role(found, "tool")
    assert tool(looked).arguments == '{"order_id": "A-17"}'
    assert json.loads(tool(looked).result or "")["status"] == "shipped"
    assert (tool(flaky).name, tool(flaky).arguments) == ("flaky", '{"n": 1}')
    assert flaky.status == "failed"
    assert "Error details are redacted" in (flaky.error or "")


def test_a_run_that_took_too_many_turns() -> None:
    """The agent's span tells what the root, which says OK, does not."""
    found = recorded("openai-agents__traceloop__max-turns")
    root, agent = of_role(found, "agent")
    assert (root.status, agent.status) == ("succeeded", "failed")
    assert "Max turns exceeded" in (agent.error or "")


# --- roles and ids ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        ({"traceloop.span.kind": "workflow"}, "agent"),
        ({"traceloop.span.kind": "agent"}, "agent"),
        ({"traceloop.span.kind": "task"}, "other"),
        ({"traceloop.span.kind": "tool"}, "tool"),
        ({"traceloop.span.kind": "handoff"}, "other"),
        ({"traceloop.span.kind": "session"}, "other"),
        ({"traceloop.span.kind": "server"}, "other"),
        ({"traceloop.span.kind": 7, "traceloop.entity.name": "x"}, "other"),
        ({"gen_ai.operation.name": "create_agent"}, "setup"),
        ({"gen_ai.operation.name": "handoff"}, "other"),
        ({"gen_ai.operation.name": "execute_task"}, "other"),
        ({"traceloop.workflow.name": "w", "gen_ai.operation.name": "chat"}, "model"),
        ({"traceloop.workflow.name": "w", "http.request.method": "GET"}, "other"),
        ({"llm.request.type": "chat"}, "model"),
        ({"llm.request.type": "completion"}, "model"),
        ({"llm.request.type": "response", "gen_ai.operation.name": "response"}, "model"),
        ({"llm.request.type": "embedding", "gen_ai.request.model": "e"}, "other"),
        ({"llm.request.type": "rerank"}, "other"),
    ],
)
def test_roles(attributes: dict[str, Any], role: str) -> None:
    """The kind says what a span is, else the operation, else the type of the request."""
    assert read(attributes).role == role


def test_spans_without_a_sign() -> None:
    """Spans of others, and model spans that say all in GenAI names, are not read here."""
    assert traceloop.read(span(1, attributes={"http.request.method": "GET"})) is None
    assert traceloop.read(span(1, attributes={"gen_ai.operation.name": "chat"})) is None


@pytest.mark.parametrize(
    ("attributes", "conversation"),
    [
        ({"session_id": "s"}, "s"),
        ({"thread_id": "t", "session_id": "s"}, "t"),
        ({"conversation_id": "c", "thread_id": "t"}, "c"),
        ({"chat_id": 7}, "7"),
        ({"session_id": True}, None),
        ({"user_id": "u"}, None),
    ],
)
def test_associated_ids(attributes: dict[str, Any], conversation: str | None) -> None:
    """What the program says of its spans names the conversation; a user is none."""
    associated = {f"traceloop.association.properties.{k}": v for k, v in attributes.items()}
    assert read({"traceloop.workflow.name": "w", **associated}).conversation_id == conversation


def test_a_failure_that_only_a_callback_noted() -> None:
    """It counts where nobody set a status."""
    noted = {**TOOL_SPAN, "gen_ai.task.status": "failure"}
    assert read(noted).status == "failed"
    assert read(noted, status_code="OK").status == "succeeded"
    paused = {**noted, "error.type": "GraphInterrupt"}
    assert read(paused, status_code="ERROR").status == "succeeded"


# --- goals and answers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "goal"),
    [
        ('{"args": ["Where is A-17?"], "kwargs": {}}', "Where is A-17?"),
        ('{"args": [], "kwargs": {"q": "Where?", "limit": 3}}', "Where?"),
        ('{"args": [], "kwargs": {"tone": "dry", "question": "Where?"}}', "Where?"),
        ('{"args": ["a", "b"], "kwargs": {}}', '{"args":["a","b"],"kwargs":{}}'),
        ('{"args": [7], "kwargs": {}}', None),
        ('{"args": [{"task": "tidy up", "budget": 1}], "kwargs": {}}', "tidy up"),
        ('{"inputs": {"input": "Where?", "chat_history": []}}', "Where?"),
        ('{"inputs": "Where?"}', "Where?"),
        ('{"inputs": {"messages": [["user", "Where?"]]}}', "Where?"),
        ('{"inputs": {"messages": "Where?"}}', "Where?"),
        ('{"inputs": {"messages": {"role": "user", "content": "Where?"}}}', "Where?"),
        (
            state(
                "inputs",
                {"role": "user", "content": "old"},
                {"role": "assistant", "content": "yes"},
                {"role": "user", "content": [{"type": "text", "text": "new"}, {"type": "image"}]},
            ),
            "new",
        ),
        ('{"inputs": {"messages": [{"role": "system", "content": "be nice"}]}}', None),
        ("Where is A-17?", "Where is A-17?"),
        ('"Where is A-17?"', "Where is A-17?"),
        ('{"inputs": {"messages": [{"role": "user", "content": "Where is ord', "Where is ord"),
        ('{"inputs": {"messages": [{"role": "user", "content": "old"}, {"role": "assi', None),
        ('{"inputs": {"q": "Where is ord', None),
        ('{"inputs": {"messages": []}}', None),
        ("null", None),
        ("", None),
        (7, None),
    ],
)
def test_goals(given: Any, goal: str | None) -> None:
    """The one question among the arguments; one that was cut is still shown when it is the one."""
    assert read({**WORKFLOW, "traceloop.entity.input": given}).goal == goal


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ('"It has shipped"', "It has shipped"),
        ("It has shipped", "It has shipped"),
        ('{"outputs": "ok"}', "ok"),
        ('{"outputs": {"input": "q", "output": "ok"}}', "ok"),
        ('{"outputs": {"total": 3}}', '{"total":3}'),
        (
            (
                '{"outputs": {"lc": 1, "type": "constructor", "id": ["AIMessage"],'
                ' "kwargs": {"content": "hi"}}}'
            ),
            "hi",
        ),
        (
            '{"outputs": {"structured_response": {"a": 1}, "messages": []}}',
            '{"a":1}',
        ),
        (
            state(
                "outputs",
                {"type": "ai", "content": "Wait", "tool_calls": [{"name": "f"}]},
                {"type": "tool", "content": "done by f"},
            ),
            "done by f",
        ),
        (
            state(
                "outputs",
                {"type": "ai", "content": "old"},
                {"type": "human", "content": "q"},
                {"type": "ai", "content": "", "tool_calls": [{"name": "f"}]},
            ),
            None,
        ),
        ('{"outputs": {"messages": [{"type": "ai", "content": "an old ans', None),
        ("3", "3"),
        ("null", None),
        ("[]", "[]"),
    ],
)
def test_answers(given: Any, answer: str | None) -> None:
    """What the model said last; a state that was cut may not hold the end, so it tells none."""
    assert read({**WORKFLOW, "traceloop.entity.output": given}).result == answer


def test_a_function_that_is_a_step() -> None:
    """What a decorated function gave back is its result; a root of a trace has a goal as well."""
    task = {
        "traceloop.span.kind": "task",
        "traceloop.entity.input": '{"args": ["in"], "kwargs": {}}',
        "traceloop.entity.output": '"out"',
    }
    root, inner = read(task), read(task, parent=7)
    assert (root.role, root.goal, root.result) == ("other", "in", "out")
    assert (inner.goal, inner.result) == (None, "out")
    state = {**task, "traceloop.entity.output": '{"outputs": {"messages": []}}'}
    assert read(state).result is None


# --- tools ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ('{"input_str": "{\'a\': 1}", "inputs": {"a": 1}}', '{"a":1}'),
        ('{"input_str": "{\'a\': (1, None)}", "inputs": null}', '{"a":[1,null]}'),
        ('{"input_str": "{\'a\': 1}", "tags": ["seq:step:1"], "meta', '{"a":1}'),
        ("{\"input_str\": \"{'a': 'cut he", "{'a': 'cut he"),
        ('{"input_str": "A-17"}', "A-17"),
        ('{"input_str": "01"}', "01"),
        ('{"input_str": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"input_str": "{f(): 1}"}', "{f(): 1}"),
        ('{"input_str": "' + "[" * 500 + '"}', "[" * 500),
        ('{"args": [], "kwargs": {"a": 1}}', '{"a":1}'),
        ('{"args": ["x", 2], "kwargs": {}}', '["x",2]'),
        ('{"args": ["x"], "kwargs": {"a": 1}}', '{"args": ["x"], "kwargs": {"a": 1}}'),
        ('{"args": [], "kwargs": {}}', "{}"),
        ('{"tool_name": "t", "arguments": {"a": 1}}', '{"a":1}'),
        ('{"order_id": "A-17"}', '{"order_id": "A-17"}'),
        ("plain", "plain"),
        (7, "7"),
    ],
)
def test_arguments(given: Any, arguments: str) -> None:
    """The arguments out of what is around them; text stays text, and odd text what it is."""
    for key in ("traceloop.entity.input", "gen_ai.tool.call.arguments"):
        assert tool(read({**TOOL_SPAN, key: given})).arguments == arguments


TOOL_MESSAGE = (
    '{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "ToolMessage"],'
    ' "kwargs": {"content": %s, "type": "tool", "tool_call_id": "c1", "status": "success"}}'
)
CUT_MESSAGE = TOOL_MESSAGE.partition("%s")[0] + '"it is lo'


@pytest.mark.parametrize(
    ("key", "given", "result", "call_id"),
    [
        ("gen_ai.tool.call.result", '{"output": %s}' % (TOOL_MESSAGE % '"ok"'), "ok", "c1"),
        ("gen_ai.tool.call.result", TOOL_MESSAGE % '"ok"', "ok", "c1"),
        (
            "gen_ai.tool.call.result",
            '{"output": %s}' % (TOOL_MESSAGE % '[{"type": "text", "text": "ok"}]'),
            '[{"type":"text","text":"ok"}]',
            "c1",
        ),
        (
            "gen_ai.tool.call.result",
            '{"output": {"graph": null, "goto": [], "update": {"messages": [%s]}}}'
            % (TOOL_MESSAGE % '"handed over"'),
            "handed over",
            "c1",
        ),
        ("gen_ai.tool.call.result", '{"output": "ok", "kwargs": {}}', "ok", None),
        ("gen_ai.tool.call.result", '{"output": {"a": 1}, "kwargs": {}}', '{"a":1}', None),
        ("gen_ai.tool.call.result", '{"output": 1, "more": 2}', '{"output": 1, "more": 2}', None),
        ("gen_ai.tool.call.result", '"quoted"', '"quoted"', None),
        ("traceloop.entity.output", '"quoted"', "quoted", None),
        ("traceloop.entity.output", '{"a": 1}', '{"a": 1}', None),
        ("traceloop.entity.output", "plain", "plain", None),
        ("gen_ai.tool.call.result", CUT_MESSAGE, "it is lo", None),
    ],
)
def test_results(key: str, given: str, result: str, call_id: str | None) -> None:
    """The tool's own words out of messages and commands; JSON of the tool stays what it is."""
    call = tool(read({**TOOL_SPAN, key: given}))
    assert (call.result, call.call_id) == (result, call_id)


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("x.tool", {"gen_ai.tool.name": "a", "traceloop.entity.name": "b"}, "a"),
        ("x.tool", {"traceloop.entity.name": "b"}, "b"),
        ("x.tool", {"gen_ai.completion.tool.name": "c"}, "c"),
        ("x.tool", {}, "x"),
        ("execute_tool x", {}, "x"),
    ],
)
def test_names_of_tools(name: str, attributes: dict[str, Any], expected: str) -> None:
    """By attribute, in the words of any version, else by the name of the span."""
    facts = read({"traceloop.span.kind": "tool", **attributes}, name=name)
    assert tool(facts).name == expected


# --- former versions --------------------------------------------------------------------------


def test_the_response_spans_of_former_versions() -> None:
    """An operation that the conventions do not have, with flattened messages."""
    (call,) = read(
        {
            "llm.request.type": "response",
            "gen_ai.operation.name": "response",
            "gen_ai.system": "openai",
            "gen_ai.request.model": "gpt-x",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "Where is A-17?",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.finish_reason": "tool_calls",
            "gen_ai.completion.0.tool_calls.0.id": "call_1",
            "gen_ai.completion.0.tool_calls.0.name": "lookup",
            "gen_ai.completion.0.tool_calls.0.arguments": '{"order_id": "A-17"}',
            "gen_ai.usage.prompt_tokens": 12,
            "gen_ai.usage.completion_tokens": 3,
        }
    ).model_calls
    assert (call.model, call.finish_reason, call.call_ids) == ("gpt-x", "tool_calls", ("call_1",))
    assert call.tokens == Tokens(12, 3)
    assert texts(call.prompt) == ["Where is A-17?"]
    assert call.decision is not None
    (part,) = json.loads(call.decision.raw)[0]["parts"]
    assert (part["name"], part["arguments"]) == ("lookup", {"order_id": "A-17"})


def test_the_first_versions() -> None:
    """Names of their own for everything, messages flattened."""
    facts = read(
        {
            "llm.request.type": "chat",
            "llm.vendor": "OpenAI",
            "llm.request.model": "gpt-x",
            "llm.response.model": "gpt-x-0301",
            "llm.prompts.0.role": "system",
            "llm.prompts.0.content": "Be terse.",
            "llm.prompts.2.role": "user",
            "llm.prompts.2.content": "Hi",
            "llm.completions.0.content": "Hello",
            "llm.response.finish_reason": "stop",
            "llm.usage.prompt_tokens": 9,
            "llm.usage.completion_tokens": 1,
            "llm.usage.total_tokens": 10,
        }
    )
    (call,) = facts.model_calls
    assert (call.model, call.finish_reason, call.tokens) == ("gpt-x-0301", "stop", Tokens(9, 1))
    assert texts(call.prompt) == ["Be terse.", "Hi"]
    assert texts(call.decision) == ["Hello"]


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"llm.usage.total_tokens": 10}, Tokens()),
        ({"llm.usage.total_tokens": 10, "gen_ai.usage.output_tokens": 4}, Tokens(6, 4)),
        ({"llm.usage.total_tokens": 10, "gen_ai.usage.prompt_tokens": 4}, Tokens(4, 6)),
        ({"llm.usage.total_tokens": 1, "gen_ai.usage.prompt_tokens": 4}, Tokens(4, 0)),
        ({"llm.usage.total_tokens": "10", "gen_ai.usage.prompt_tokens": -4}, Tokens()),
    ],
)
def test_sums_of_tokens(usage: dict[str, Any], tokens: Tokens) -> None:
    """A sum tells the one number that is missing, and nothing by itself."""
    (call,) = read({"llm.request.type": "chat", **usage}).model_calls
    assert call.tokens == tokens


def test_a_model_that_nobody_could_name() -> None:
    """What LangChain says of the model stands in for ``unknown``."""
    attributes = {
        "traceloop.workflow.name": "w",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "unknown",
    }
    assert both(span(1, attributes=attributes), []).model_calls[0].model is None
    attributes["traceloop.association.properties.ls_model_name"] = "fake-chat-1"
    assert both(span(1, attributes=attributes), []).model_calls[0].model == "fake-chat-1"


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
        st.sampled_from(["\ud800", "\x00", "[", "{", '{"', "workflow", "tool", "task", "unknown"]),
        st.sampled_from(
            [
                '{"inputs": {"messages": [{"lc": 1, "type": "constructor", "kwargs": 7}]}}',
                '{"inputs": {"messages": [{"type": "human", "content": [{"text": 7}]}]}}',
                '{"input_str": 7, "kwargs": 7}',
                '{"input_str": "{1: {2}}", "inputs": 7}',
                '{"output": {"lc": 1, "update": {"messages": 7}}}',
                '{"outputs": [[{"role": "tool", "content": null}]]}',
                '{"args": 7, "kwargs": {}}',
            ]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        *("traceloop.span.kind", "traceloop.entity.name", "traceloop.entity.input"),
        *("traceloop.entity.output", "traceloop.workflow.name", "gen_ai.task.input"),
        *("gen_ai.task.output", "gen_ai.task.status", "gen_ai.operation.name"),
        *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.tool.name"),
        *("gen_ai.tool.call.id", "gen_ai.agent.name", "error.type", "llm.request.type"),
        *("llm.request.model", "llm.prompts.0.content", "llm.prompts.0.role"),
        *("llm.completions.0.content", "llm.usage.total_tokens", "llm.usage.prompt_tokens"),
        *("gen_ai.usage.output_tokens", "gen_ai.input.messages", "gen_ai.output.messages"),
        *("traceloop.association.properties.session_id", "gen_ai.conversation.id"),
    ]
)


@given(
    attributes=st.dictionaries(KEYS, VALUES, max_size=8),
    kind=st.sampled_from(["workflow", "agent", "task", "tool", "handoff", None]),
    logs=st.lists(
        st.tuples(st.sampled_from(["gen_ai.user.message", "gen_ai.choice", "x", ""]), VALUES),
        max_size=4,
    ),
)
def test_no_value_raises(
    attributes: dict[str, Any], kind: str | None, logs: list[tuple[str, Any]]
) -> None:
    """Whatever the attributes and log records hold, a reading comes of it, the same each time."""
    if kind is not None:
        attributes = {**attributes, "traceloop.span.kind": kind}
    record = span(1, attributes=attributes)
    told = [LogRecord(record.trace_id, record.span_id, name, body) for name, body in logs]
    facts = traceloop.read(record, told)
    assert repr(facts) == repr(traceloop.read(record, told))
    for call in facts.model_calls if facts is not None else ():
        assert isinstance(call, ModelCall)
