# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai in all its formats, on what its versions 1 and 2 have really emitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.conventions import genai, pydantic_ai
from otel_taskhistory.conventions.facts import ModelCall, SpanFacts, Tokens
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.spans.record import LogRecord, OriginRecord, SpanRecord
from otel_taskhistory.store.pictures import take_out
from tests.otlp import logs_in, logs_of, records_in
from tests.store.deliveries import span

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
PYDANTIC = OriginRecord("pydantic-ai", "2.68.0")


def facts_of(record: SpanRecord, logs: list[LogRecord] | None = None) -> SpanFacts:
    """What this dialect and the conventions together say of a span, this one believed more."""
    own, general = pydantic_ai.read(record, logs or []), genai.read(record, logs or [])
    assert own is not None
    return own if general is None else merge(own, general)


def run(name: str) -> list[tuple[SpanRecord, SpanFacts]]:
    """The spans of a recording and what they say, with the logs that were recorded beside them."""
    file = CORPUS / f"{name}.logs.jsonl"
    logs = list(logs_in(file)) if file.exists() else []
    return [
        (record, facts_of(record, logs_of(record, logs)))
        for record in records_in(CORPUS / f"{name}.jsonl")
        if record.scope.name == "pydantic-ai"
    ]


def call_of(facts: SpanFacts) -> ModelCall:
    """The one model call of a span."""
    (call,) = facts.model_calls
    return call


def texts(raw: str | None) -> list[str]:
    """The messages of a prompt or decision, each as ``role: its parts``, as short as can be."""

    def short(part: dict[str, Any]) -> str:
        match part["type"]:
            case "tool_call":
                return f"{part['name']}({json.dumps(part.get('arguments'))})"
            case "tool_call_response":
                return f"={json.dumps(part.get('response', part.get('result')))}"
            case "reasoning":
                return f"<{part.get('content')}>"
            case "text":
                return str(part.get("content"))
            case kind:
                return f"[{kind} {part.get('mime_type') or part.get('uri')}]"

    messages = json.loads(raw) if raw else []
    return [f"{m['role']}: {' '.join(map(short, m['parts']))}" for m in messages]


RETRY = "bad n, try 2\\n\\nFix the errors and try again."


@pytest.mark.parametrize("where", ["attributes", "logs"])
def test_format_1(where: str) -> None:
    """Messages that are a list of events in an attribute, or log records, are the same messages."""
    spans = run(f"pydantic-ai1__native-v1-{where}__tools-retry")
    assert [(record.name, facts.role, facts.status) for record, facts in spans] == [
        ("chat fake-gpt-1", "model", "succeeded"),
        ("running tool", "tool", "succeeded"),
        ("chat fake-gpt-1", "model", "succeeded"),
        ("running tool", "tool", "failed"),
        ("chat fake-gpt-1", "model", "succeeded"),
        ("running tool", "tool", "succeeded"),
        ("chat fake-gpt-1", "model", "succeeded"),
        ("agent run", "agent", "succeeded"),
    ]
    calls = [call_of(facts) for _, facts in spans if facts.role == "model"]
    last = calls[-1]
    assert last.prompt is not None
    assert last.decision is not None
    assert texts(last.prompt.raw) == [
        "system: You are a support agent.",
        "user: Where is order A-17?",
        'assistant: <think> Looking up. lookup_order({"order_id": "A-17"})',
        'tool: ={"order_id": "A-17", "status": "shipped"}',
        'assistant: flaky({"n": 1})',
        f'tool: ="{RETRY}"',
        'assistant: flaky({"n": 2})',
        'tool: ="ok"',
    ]
    assert texts(last.decision.raw) == ["assistant: Order A-17 has shipped."]
    assert [call.call_ids for call in calls] == [("call_1",), ("call_2",), ("call_3",), ()]
    assert {(call.model, call.tokens.input, call.tokens.output) for call in calls} == {
        ("fake-gpt-1", 120, 17)
    }
    _, root = spans[-1]
    assert (root.agent, root.goal) == ("support_agent", "Where is order A-17?")
    assert root.result == "Order A-17 has shipped."
    assert root.model_calls == ()


def test_a_tool_call_to_try_again_has_failed_and_keeps_what_the_model_was_told() -> None:
    """``ModelRetry``: an ERROR with a result."""
    for name in (
        "pydantic-ai1__native-v1-attributes__tools-retry",
        "pydantic-ai__native-v2__tools-retry-thinking",
        "pydantic-ai__native-v6__tools-retry-thinking",
    ):
        tools = [facts for _, facts in run(name) if facts.role == "tool"]
        assert [facts.status for facts in tools] == ["succeeded", "failed", "succeeded"]
        failed = tools[1]
        assert failed.tool_call is not None
        assert failed.tool_call.result is not None
        assert failed.tool_call.name == "flaky"
        assert failed.tool_call.call_id == "call_2"
        assert failed.tool_call.arguments == '{"n":1}'
        assert failed.tool_call.result.startswith("bad n, try 2")
        assert failed.error == "bad n, try 2"
        assert failed.error_type == "pydantic_ai.exceptions.ToolRetryError"


def test_arguments_and_results_of_tools_in_every_format() -> None:
    """Formats 1 and 2 have names of their own for them."""
    for name in (
        "pydantic-ai1__native-v1-logs__tools-retry",
        "pydantic-ai__native-v2__tools-retry-thinking",
        "pydantic-ai__native-v6__tools-retry-thinking",
    ):
        facts = next(facts for _, facts in run(name) if facts.role == "tool")
        assert facts.tool_call is not None
        assert facts.tool_call.result is not None
        assert (facts.tool_call.name, facts.tool_call.call_id) == ("lookup_order", "call_1")
        assert facts.tool_call.arguments == '{"order_id":"A-17"}'
        assert json.loads(facts.tool_call.result)["status"] == "shipped"


@pytest.mark.parametrize("format_", ["v2", "v6"])
def test_thinking_is_reasoning(format_: str) -> None:
    """Its own name for a kind of part is put into the conventions' in prompt and decision."""
    spans = run(f"pydantic-ai__native-{format_}__tools-retry-thinking")
    first, second, *_ = (call_of(facts) for _, facts in spans if facts.role == "model")
    assert first.decision is not None
    assert first.prompt is not None
    assert second.prompt is not None
    thought = (
        'assistant: <I should look the order up.> Looking up. lookup_order({"order_id": "A-17"})'
    )
    assert texts(first.decision.raw) == [thought]
    assert first.call_ids == ("call_1",)
    assert first.finish_reason == "tool_call"
    assert (first.tokens.input, first.tokens.output, first.tokens.cached) == (120, 17, 40)
    assert first.tokens.reasoning == 6
    role = "user" if format_ == "v2" else "tool"
    shipped = '{"order_id": "A-17", "status": "shipped", "note": "caf\\u00e9 \\ud83d\\ude00"}'
    assert texts(second.prompt.raw) == [
        "system: Be terse.",
        "user: Where is order A-17?",
        thought,
        f"{role}: ={shipped}",
    ]
    assert second.prompt.system == '[{"type":"text","content":"You are a support agent."}]'


def test_messages_without_odd_parts_stay_the_strings_that_came() -> None:
    """Only what is to be renamed is written anew, so that the rest is stored once."""
    kept = '{"role": "user",  "parts": [{"type": "text", "content": "caf\\u00e9 \\ud83d"}]}'
    odd = '{"role":"assistant","parts":[{"type":"thinking","content":"hm","id":"x"}]}'
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": f"[ {kept} , {odd},{kept}]",
        "gen_ai.output.messages": f"[{kept}]",
    }
    facts = pydantic_ai.read(span(1, attributes=attributes, scope=PYDANTIC))
    assert facts is not None
    call = call_of(facts)
    parts = '[{"type": "reasoning", "content": "hm", "id": "x"}]'
    renamed = f'{{"role": "assistant", "parts": {parts}}}'
    assert call.prompt is not None
    assert call.prompt.raw == f"[{kept},{renamed},{kept}]"
    assert call.decision is None  # the conventions read it as it is


@pytest.mark.parametrize(
    "name",
    [
        "pydantic-ai1__native-v1-attributes__image",
        "pydantic-ai1__native-v1-logs__image",
        "pydantic-ai1__native-v3__image",
        "pydantic-ai__native-v2__image",
        "pydantic-ai__native-v4__image",
    ],
)
def test_pictures(name: str) -> None:
    """A picture is a ``blob`` in every format, and the store finds it there."""
    spans = run(name)
    call = call_of(next(facts for _, facts in spans if facts.role == "model"))
    assert call.prompt is not None
    (message,) = (m for m in json.loads(call.prompt.raw) if m["role"] == "user")
    text, picture, *urls = message["parts"]
    assert text["type"] == "text"
    assert {key: picture[key] for key in ("type", "modality", "mime_type")} == {
        "type": "blob",
        "modality": "image",
        "mime_type": "image/png",
    }
    assert picture["content"].startswith("iVBORw0KGgo")
    assert all(url["type"] == "uri" and url["uri"].startswith("https://") for url in urls)
    _, found = take_out(call.prompt.raw)
    assert len(found) == 1
    assert found[0].data.startswith(b"\x89PNG")
    goal = next(facts.goal for _, facts in spans if facts.role == "agent")
    assert goal == text["content"]


def test_a_picture_that_a_tool_returned() -> None:
    """It is in the result of the tool, and in the next prompt."""
    spans = run("pydantic-ai__native-v2__image")
    tool = next(facts.tool_call for _, facts in spans if facts.tool_call is not None)
    assert tool.name == "shot"
    assert tool.result is not None
    assert len(take_out(tool.result)[1]) == 1
    last = call_of([facts for _, facts in spans if facts.role == "model"][-1])
    assert last.prompt is not None
    assert len(take_out(last.prompt.raw)[1]) == 2


def test_a_second_turn_has_its_own_goal() -> None:
    """With the conversation before it in the transcript, the goal is what is asked now."""
    spans = run("pydantic-ai__native-v5__subagent-conversation")
    agents = [facts for _, facts in spans if facts.role == "agent"]
    assert [(facts.agent, facts.goal, facts.result) for facts in agents] == [
        ("geo_agent", "capital of France?", "Paris"),
        ("main_agent", "Capital of France?", "The capital is Paris."),
        ("main_agent", "And again?", "The capital is Paris."),
    ]
    assert agents[1].conversation_id == agents[2].conversation_id
    assert agents[0].conversation_id != agents[1].conversation_id


def message(role: str, *parts: Any) -> dict[str, Any]:
    """A message of texts, or of parts as they are."""
    said = [{"type": "text", "content": p} if isinstance(p, str) else p for p in parts]
    return {"role": role, "parts": said}


ASKS = {"type": "tool_call", "id": "c", "name": "t", "arguments": {}}
ANSWERED = {"type": "tool_call_response", "id": "c", "name": "t", "result": "r"}


@pytest.mark.parametrize(
    ("messages", "index", "goal"),
    [
        ([message("system", "s"), message("user", "one"), message("assistant", "a")], None, "one"),
        # Requests and responses are counted; a request is several messages when roles differ.
        (
            [
                *(message("system", "s"), message("user", "one"), message("assistant", ASKS)),
                *(message("tool", ANSWERED), message("user", "by the way"), message("assistant")),
                *(message("system", "t"), message("user", "two"), message("assistant", "b")),
            ],
            4,
            "two",
        ),
        # What pydantic-ai says to have the output corrected is no goal.
        (
            [
                *(message("user", "one"), message("assistant", "bad")),
                *(message("user", "no.\n\nFix the errors and try again."), message("assistant")),
            ],
            None,
            "one",
        ),
        ([message("user", "one"), message("assistant", "a"), message("user", ANSWERED)], 2, None),
        ([message("user", "a", {"type": "binary", "content": "x"}, "b")], None, "a\nb"),
        ([message("user", "one")], 99, None),
        ([message("user", "one")], -1, None),
        ([7, None, {"role": ["user"]}, {"role": "user", "parts": {"a": 1}}], None, None),
        ("no list", None, None),
        (None, None, None),
    ],
)
def test_the_goal_is_the_first_text_of_this_run(messages: Any, index: Any, goal: Any) -> None:
    """``pydantic_ai.new_message_index`` counts requests and responses."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "pydantic_ai.all_messages": json.dumps(messages),
    }
    if index is not None:
        attributes["pydantic_ai.new_message_index"] = index
    facts = pydantic_ai.read(span(1, attributes=attributes, scope=PYDANTIC))
    assert facts is not None
    assert facts.goal == goal


@pytest.mark.parametrize(
    ("said", "goal"),
    [
        (["user: one", "assistant: a"], "one"),
        (["system: s", "user: one", "assistant: a", "user: two", "assistant: b"], "two"),
        (["user: one", "assistant: bad", "user: no\nFix the errors and try again."], "one"),
        (["assistant: a"], None),
        ([], None),
    ],
)
def test_the_goal_in_format_1(said: list[str], goal: str | None) -> None:
    """Without an index a run is taken to begin after an answer without tool calls."""
    events = [
        {"role": role, "content": text, "event.name": f"gen_ai.{role}.message"}
        for role, _, text in (item.partition(": ") for item in said)
    ]
    attributes = {"agent_name": "a", "all_messages_events": json.dumps(events)}
    facts = pydantic_ai.read(span(1, name="agent run", attributes=attributes, scope=PYDANTIC))
    assert facts is not None
    assert (facts.role, facts.agent, facts.goal) == ("agent", "a", goal)


def test_spans_from_before_they_had_an_operation() -> None:
    """Versions 0.1 to 1.0 tell runs and tool calls by the span's name alone."""
    tool = pydantic_ai.read(
        span(
            1,
            name="running tool",
            scope=PYDANTIC,
            attributes={"gen_ai.tool.name": "t", "tool_arguments": "{}", "tool_response": ""},
        )
    )
    assert tool is not None
    assert tool.tool_call is not None
    assert (tool.tool_call.name, tool.tool_call.arguments, tool.tool_call.result) == ("t", "{}", "")
    group = span(2, name="running tools", scope=PYDANTIC, attributes={"tools": ["t"]})
    assert pydantic_ai.read(group) is None


def test_a_model_call_that_raised_has_no_prompt() -> None:
    """Only the run tells what was asked; nothing is made up for the call."""
    (_, call), (_, root) = run("pydantic-ai1__native-v2__model-raises")
    assert (call.status, call.error) == ("failed", "model backend 503")
    assert call_of(call).prompt is None
    assert call_of(call).decision is None
    assert call_of(call).status == "failed"
    assert call_of(call).error == "model backend 503"
    assert (root.status, root.goal, root.result) == ("failed", "hi", None)
    assert root.error_type == "RuntimeError"


def test_a_run_that_was_given_up() -> None:
    """The part of the stream that came is the decision; the run failed, and says why."""
    (_, call), (_, root) = run("pydantic-ai__native-v5__streaming-abandoned")
    assert call.status == "succeeded"
    decision = call_of(call).decision
    assert decision is not None
    assert texts(decision.raw) == ["assistant: All is well and more"]
    assert (root.status, root.error) == ("failed", "'user pressed stop'")
    assert root.goal == "stream please"


def test_retries_that_were_used_up() -> None:
    """Each attempt failed with its own reason."""
    spans = run("pydantic-ai__native-v5__retries-exhausted")
    tools = [facts for _, facts in spans if facts.role == "tool"]
    assert [facts.status for facts in tools] == ["failed"] * 3
    assert [facts.error for facts in tools[:2]] == ["bad n, try 2"] * 2
    assert (tools[2].error or "").startswith("Tool 'flaky' exceeded max retries count of 2.")
    assert spans[-1][1].status == "failed"
    assert spans[-1][1].goal == "Loop"


def test_parallel_tools_keep_their_ids() -> None:
    """In the order of their ends, each with the call that asked for it."""
    spans = run("pydantic-ai__native-v5__parallel-tools")
    asked = call_of(spans[0][1]).call_ids
    assert asked == ("p1", "p2", "p3")
    done = [facts.tool_call for _, facts in spans if facts.tool_call is not None]
    assert [(tool.name, tool.call_id) for tool in done] == [
        ("lookup_order", "p1"),
        ("flaky", "p3"),
        ("lookup_order", "p2"),
    ]


def test_without_content() -> None:
    """Names, ids and statuses are there, texts are not, and a failure has its cause at least."""
    spans = run("pydantic-ai__native-v5__nocontent")
    root = spans[-1][1]
    assert (root.role, root.goal, root.result) == ("agent", None, None)
    tools = [facts for _, facts in spans if facts.role == "tool"]
    assert [(facts.status, facts.error) for facts in tools] == [
        ("succeeded", None),
        ("failed", "model_retry"),
        ("succeeded", None),
    ]
    assert all(t.tool_call is not None and t.tool_call.result is None for t in tools)
    first = call_of(spans[0][1])
    assert first.call_ids == ("call_1",)
    assert first.decision is not None
    assert texts(first.decision.raw) == ["assistant: <None> None lookup_order(null)"]


def test_nul_in_texts() -> None:
    """A NUL is a character like any other."""
    (_, call), (_, root) = run("pydantic-ai__native-v5__nul")
    assert root.goal is not None
    assert root.goal.startswith("nul \0")
    assert root.result is not None
    assert "\0" in root.result
    assert root.result.endswith("end")
    assert call_of(call).prompt is not None


def test_cost_and_sums() -> None:
    """The cost is the call's; what a run sums up is no model call."""
    record = span(
        1,
        scope=PYDANTIC,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "operation.cost": 0.00052575,
            "gen_ai.usage.input_tokens": 3,
        },
    )
    call = call_of(facts_of(record))
    assert (call.cost, call.tokens) == (0.00052575, Tokens(input=3))
    root = span(
        2,
        name="agent run",
        scope=PYDANTIC,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "model_name": "m",
            "gen_ai.usage.input_tokens": 480,
            "final_result": '{"a": 1}',
        },
    )
    facts = facts_of(root)
    assert (facts.role, facts.model_calls, facts.result) == ("agent", (), '{"a": 1}')


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "chat", "events": '[{"role": "user", "content": "cut'},
        {"gen_ai.operation.name": "chat", "events": 7},
        {"gen_ai.operation.name": "chat", "events": [3, None, {"event.name": 1}, {"role": "x"}]},
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[{"type":"thinking"'},
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[1,"thinking"'},
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '"thinking"]'},
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": b"\xff"},
    ],
)
def test_a_call_whose_messages_cannot_be_read(attributes: dict[str, Any]) -> None:
    """It is a model call all the same; this dialect says nothing of its messages."""
    facts = pydantic_ai.read(span(1, attributes=attributes, scope=PYDANTIC))
    assert facts is not None
    assert facts.role == "model"
    assert call_of(facts).prompt is None
    assert call_of(facts).decision is None


def test_logs_of_others_are_no_messages() -> None:
    """Lines that the program logs while a model answers say nothing of the call."""
    body = {"role": "user", "content": "a line"}
    logs = [
        LogRecord("t", "s", "gen_ai.user.message", body=body, scope=OriginRecord("app")),
        LogRecord("t", "s", "", body=body, scope=PYDANTIC),
    ]
    record = span(1, attributes={"gen_ai.operation.name": "chat"}, scope=PYDANTIC)
    facts = pydantic_ai.read(record, logs)
    assert facts is not None
    assert call_of(facts).prompt is None


def test_spans_of_others() -> None:
    """Neither scope nor keys: not this dialect."""
    attributes = {"gen_ai.operation.name": "chat", "events": "[]", "final_result": "x"}
    assert pydantic_ai.read(span(1, attributes=attributes)) is None
    # The scope may get lost on the way.
    assert pydantic_ai.read(span(1, attributes=attributes | {"model_request_parameters": "{}"}))


def test_a_model_call_that_ended_without_an_answer_and_without_an_error_was_cancelled() -> None:
    """The SDK sees no ``CancelledError``; only what the framework did not write tells of it."""
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    cancelled = facts_of(span(1, attributes=asked, scope=PYDANTIC))
    assert (cancelled.status, call_of(cancelled).status) == ("cancelled", "cancelled")
    for more in ({"gen_ai.response.model": "m"}, {"gen_ai.output.messages": "[]"}):
        answered = facts_of(span(1, attributes=asked | more, scope=PYDANTIC))
        assert (answered.status, call_of(answered).status) == ("succeeded", "succeeded")
    raised = facts_of(span(1, attributes=asked, scope=PYDANTIC, status_code="ERROR"))
    assert raised.status == "failed"
    lost = facts_of(span(1, attributes=asked, scope=PYDANTIC, dropped_attributes=3))
    assert lost.status == "succeeded"
