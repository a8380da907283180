# SPDX-License-Identifier: Apache-2.0
"""Laminar: observed functions, browser-use, and model clients in their providers' formats."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_taskhistory.conventions import genai, lmnr
from otel_taskhistory.conventions.facts import ModelCall, SpanFacts, Tokens, ToolCall
from otel_taskhistory.conventions.merging import merge
from otel_taskhistory.spans.record import SpanRecord
from tests.otlp import records_in
from tests.store.deliveries import span

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
LLM = {"lmnr.span.type": "LLM"}
TOOL = {"lmnr.span.type": "TOOL"}


def recorded(name: str) -> list[tuple[SpanRecord, SpanFacts]]:
    """The spans of a recording in the order of their start, as this dialect and GenAI read them."""
    spans = sorted(records_in(CORPUS / f"{name}.jsonl"), key=lambda record: record.start_ns)
    return [(record, both(record)) for record in spans]


def both(record: SpanRecord) -> SpanFacts:
    """What the two dialects that read a span say together."""
    said = [dialect(record, []) for dialect in (lmnr.read, genai.read)]
    facts = reduce(merge, (one for one in said if one is not None), None)
    assert facts is not None
    return facts


def read(attributes: dict[str, Any], **keywords: Any) -> SpanFacts:
    """What this dialect alone says of a span with these attributes."""
    facts = lmnr.read(span(1, attributes=attributes, **keywords))
    assert facts is not None
    return facts


def tool(facts: SpanFacts) -> ToolCall:
    """The tool call of a span that is one."""
    assert facts.tool_call is not None
    return facts.tool_call


def call(attributes: dict[str, Any]) -> ModelCall:
    """The model call of a span with these attributes."""
    (found,) = both(span(1, attributes={**LLM, **attributes})).model_calls
    return found


def messages(said: Any) -> list[dict[str, Any]]:
    """The messages of a prompt or decision."""
    assert said is not None
    assert said.structured
    found: list[dict[str, Any]] = json.loads(said.raw)
    return found


# --- recordings -------------------------------------------------------------------------------


def test_observed_functions() -> None:
    """Arguments are the goal, a returned value the result; tools and models say what they are."""
    found = recorded("lmnr__native__observe")
    assert [(record.name, facts.role, facts.status) for record, facts in found] == [
        ("agent_task", "other", "succeeded"),
        ("lookup_order", "tool", "succeeded"),
        ("boom", "tool", "failed"),
        ("llm", "model", "succeeded"),
    ]
    (root, looked, boom, model) = (facts for _, facts in found)
    assert (root.goal, root.conversation_id) == ("Where is order A-17?", "sess-9")
    assert root.result == '{"order_id":"A-17","status":"shipped","note":"café 😀"}'
    assert tool(looked) == ToolCall("lookup_order", None, '{"order_id":"A-17"}', root.result)
    assert tool(boom) == ToolCall("boom", None, "{}", None)
    assert (boom.error, boom.error_type) == ("disk on fire", "ValueError")
    (asked,) = model.model_calls
    assert (asked.model, asked.tokens) == ("gpt-fake", Tokens(120, 17))
    assert messages(asked.prompt) == [
        {"role": "user", "parts": [{"type": "text", "content": "Where is order A-17?"}]}
    ]
    assert messages(asked.decision) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Order shipped"}]}
    ]


def test_a_browser_run() -> None:
    """The run is the agent's, its steps lie below it, the actions are tools by their own names."""
    found = recorded("browser-use__lmnr-native__local-page")
    assert [(record.name, facts.role) for record, facts in found] == [
        ("agent.run", "agent"),
        ("agent.step", "step"),
        ("navigate", "tool"),
        ("agent.step", "step"),
        ("click", "tool"),
        ("agent.step", "step"),
        ("done", "tool"),
    ]
    assert {facts.status for _, facts in found} == {"succeeded"}
    calls = [tool(facts) for _, facts in found if facts.role == "tool"]
    assert [one.arguments for one in calls] == [
        '{"url":"http://127.0.0.1:33659/","new_tab":false}',
        '{"index":999}',
        '{"text":"shipped","success":true}',
    ]
    results = [json.loads(one.result or "") for one in calls]
    assert [result["extracted_content"] for result in results] == [
        "🔗 Navigated to http://127.0.0.1:33659/",
        "Element index 999 not available - page may have changed. Try refreshing browser state.",
        "shipped",
    ]


# --- roles, goals, results --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "role"),
    [
        ("LLM", "openai.chat", "model"),
        ("CACHED", "openai.chat", "model"),
        ("LLM", "openai.embeddings", "other"),
        ("TOOL", "navigate", "tool"),
        ("DEFAULT", "agent.run", "agent"),
        ("DEFAULT", "ComputerAgent.run", "agent"),
        ("DEFAULT", "agent.step", "step"),
        ("DEFAULT", "agent.running_late", "other"),
        ("EVALUATION", "evaluation", "other"),
        ("EXECUTOR", "executor", "other"),
        (None, "f", "other"),
        (7, "f", "other"),
    ],
)
def test_roles(kind: Any, name: str, role: str) -> None:
    """By type, and runs of agents by name; an embedding asks no model for a decision."""
    attributes = {"lmnr.span.path": ("f",), "lmnr.span.type": kind}
    assert read(attributes, name=name).role == role


def test_spans_of_others() -> None:
    """Association properties alone are on every span of a program, its own or not."""
    attributes = {"lmnr.association.properties.session_id": "s"}
    assert lmnr.read(span(1, attributes=attributes)) is None


@pytest.mark.parametrize(
    ("given", "goal"),
    [
        ('{"q":"Where?"}', "Where?"),
        ('{"task":"tidy up","max_steps":7}', "tidy up"),
        ('{"max_steps":100}', None),
        ('{"a":"x","b":"y"}', '{"a":"x","b":"y"}'),
        ('[{"role":"user","content":"Where?"}]', "Where?"),
        ('{"q":"cut he', None),
        ("plain", "plain"),
        ("null", None),
        (7, None),
    ],
)
def test_goals(given: Any, goal: str | None) -> None:
    """Of a root, whoever wrote it, and of an agent wherever it runs."""
    attributes = {"lmnr.span.type": "DEFAULT", "lmnr.span.input": given}
    assert read(attributes).goal == goal
    assert read(attributes, parent=9).goal is None
    assert read(attributes, parent=9, parent_remote=True).goal == goal
    assert read(attributes, parent=9, name="agent.run").goal == goal


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ('"done"', "done"),
        ('{"a":1}', '{"a":1}'),
        ("plain", "plain"),
        ('{"a":1, "cut', '{"a":1, "cut'),
        ("null", None),
        (None, None),
    ],
)
def test_results(given: Any, result: str | None) -> None:
    """A returned text is itself; anything else is JSON."""
    assert read({"lmnr.span.type": "DEFAULT", "lmnr.span.output": given}).result == result


# --- tools ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "status", "error"),
    [
        ('{"is_done":false,"error":"no such element"}', "failed", "no such element"),
        ('{"is_done":false,"error":null}', "succeeded", None),
        ('{"is_done":false,"error":""}', "succeeded", None),
        ('{"error":"cut of', "succeeded", None),
        ('"error"', "succeeded", None),
        ({"error": "nested"}, "failed", "nested"),
    ],
)
def test_an_action_that_went_wrong(output: Any, status: str, error: str | None) -> None:
    """The span has no status; the error within the output tells."""
    facts = read({**TOOL, "lmnr.span.output": output})
    assert (facts.status, facts.error) == (status, error)


@pytest.mark.parametrize(
    ("given", "name", "arguments"),
    [
        ('{"action":"click","params":{"index":1}}', "click", '{"index":1}'),
        ('{"action":7,"params":null}', "f", None),
        ('{"action":"click","other":1}', "f", '{"action":"click","other":1}'),
        ('{"action":"click","par', "f", '{"action":"click","par'),
        ("plain", "f", "plain"),
    ],
)
def test_what_a_tool_was_given(given: str, name: str, arguments: str | None) -> None:
    """Browser-use wraps action and parameters; any other input is the arguments."""
    found = tool(read({**TOOL, "lmnr.span.input": given}, name="f"))
    assert (found.name, found.arguments) == (name, arguments)


def test_a_result_that_is_a_text() -> None:
    """It is the text, not its JSON; a tool that gave back nothing has no result."""
    assert tool(read({**TOOL, "lmnr.span.output": '"ok"'})).result == "ok"
    assert tool(read({**TOOL, "lmnr.span.output": "null"})).result is None
    assert tool(read({**TOOL, "lmnr.span.output": '"cut'})).result == '"cut'


# --- model calls ------------------------------------------------------------------------------


def test_a_chat_of_openai() -> None:
    """Messages and choices as OpenAI writes them."""
    found = call(
        {
            "gen_ai.request.model": "gpt-x",
            "gen_ai.response.id": "chatcmpl-1",
            "gen_ai.usage.cost": 0.25,
            "gen_ai.input.messages": json.dumps(
                [
                    {"role": "system", "content": "Be terse."},
                    {"role": "user", "content": [{"type": "text", "text": "Where?"}]},
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": "c1",
                                "type": "function",
                                "function": {"name": "look", "arguments": '{"id": 1}'},
                            }
                        ],
                    },
                    {"role": "tool", "tool_call_id": "c1", "content": "here"},
                ]
            ),
            "gen_ai.output.messages": json.dumps(
                [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls",
                        "message": {
                            "role": "assistant",
                            "content": "Again",
                            "tool_calls": [
                                {
                                    "id": "c2",
                                    "type": "function",
                                    "function": {"name": "look", "arguments": "{}"},
                                }
                            ],
                        },
                    }
                ]
            ),
        }
    )
    assert (found.model, found.response_id, found.cost) == ("gpt-x", "chatcmpl-1", 0.25)
    assert (found.finish_reason, found.call_ids) == ("tool_calls", ("c2",))
    system, user, asked, answered = messages(found.prompt)
    assert system == {"role": "system", "parts": [{"type": "text", "content": "Be terse."}]}
    assert user["parts"] == [{"type": "text", "content": "Where?"}]
    assert asked["parts"] == [
        {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"id": 1}}
    ]
    assert "tool_calls" not in asked
    assert answered["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "here"}]
    (decided,) = messages(found.decision)
    assert [part["type"] for part in decided["parts"]] == ["text", "tool_call"]
    assert decided["finish_reason"] == "tool_calls"


def test_a_message_of_anthropic() -> None:
    """Content in blocks, the reason beside the content."""
    found = call(
        {
            "gen_ai.input.messages": '[{"role": "user", "content": "Where?"}]',
            "gen_ai.output.messages": json.dumps(
                [
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "text", "text": "I look"},
                            {"type": "tool_use", "id": "t1", "name": "look", "input": {"id": 1}},
                        ],
                        "stop_reason": "tool_use",
                    }
                ]
            ),
        }
    )
    assert (found.finish_reason, found.call_ids) == ("tool_use", ("t1",))
    assert messages(found.prompt)[0]["parts"] == [{"type": "text", "content": "Where?"}]
    assert messages(found.decision)[0]["parts"] == [
        {"type": "text", "content": "I look"},
        {"type": "tool_call", "id": "t1", "name": "look", "arguments": {"id": 1}},
    ]


def test_contents_of_gemini() -> None:
    """Parts without a type; the model is the assistant."""
    found = call(
        {
            "gen_ai.input.messages": '[{"role": "user", "parts": [{"text": "Where?"}]}]',
            "gen_ai.output.messages": json.dumps(
                [
                    {
                        "content": {"role": "model", "parts": [{"text": "Here"}]},
                        "finish_reason": "STOP",
                    }
                ]
            ),
        }
    )
    assert messages(found.prompt) == [
        {"role": "user", "parts": [{"type": "text", "content": "Where?"}]}
    ]
    (decided,) = messages(found.decision)
    assert (decided["role"], found.finish_reason) == ("assistant", "STOP")
    assert decided["parts"] == [{"type": "text", "content": "Here"}]


def test_messages_of_langchain() -> None:
    """Whether as they are or as constructors."""
    found = call(
        {
            "lmnr.span.input": json.dumps(
                [
                    {"type": "human", "content": "Where?"},
                    {
                        "lc": 1,
                        "type": "constructor",
                        "id": ["langchain", "schema", "messages", "AIMessage"],
                        "kwargs": {"type": "ai", "content": "Here"},
                    },
                ]
            )
        }
    )
    assert [(one["role"], one["parts"][0]["content"]) for one in messages(found.prompt)] == [
        ("user", "Where?"),
        ("assistant", "Here"),
    ]


def test_messages_that_need_no_conversion() -> None:
    """Those in the conventions' own form stay the very string of the span."""
    raw = '[ {"role": "user", "parts": [{"type": "text", "content": "x"}]} ]'
    found = call({"gen_ai.input.messages": raw, "gen_ai.output.messages": raw})
    assert found.prompt is not None
    assert found.prompt.raw is raw
    assert found.decision is not None
    assert found.decision.raw is raw


@pytest.mark.parametrize(
    ("given", "raw", "structured"),
    [
        ('[{"role":"user","content":"cut he', '[{"role":"user","content":"cut he', True),
        ("plain", "plain", False),
        ('"quoted"', "quoted", False),
    ],
)
def test_prompts_that_are_no_messages(given: str, raw: str, structured: bool) -> None:
    """A text is a text, and JSON that was cut is kept as it came."""
    found = call({"lmnr.span.input": given})
    assert found.prompt is not None
    assert (found.prompt.raw, found.prompt.structured) == (raw, structured)


@pytest.mark.parametrize("nothing", ["null", "", "[]", "{}", '""'])
def test_calls_without_content(nothing: str) -> None:
    """Nothing said is no prompt and no decision."""
    found = call({"lmnr.span.input": nothing, "lmnr.span.output": nothing})
    assert (found.prompt, found.decision) == (None, None)


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
        st.sampled_from(
            ["\ud800", "\x00", '"\\ud800"', "[", '{"', "LLM", "TOOL", "DEFAULT", "NaN"]
        ),
        st.sampled_from(
            [
                '[{"message": 7}]',
                '[{"content": {"parts": 7}}]',
                '[{"role": 7, "content": {"x": NaN}}]',
                '[[{"role": "user"}], null, 7]',
                '{"action": [], "params": "x"}',
                '{"error": {"a": 1}}',
                '{"messages": [{"role": "user", "content": 7}]}',
                '[{"role": "assistant", "content": "", "tool_calls": [7, {"id": 7}]}]',
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
        *("lmnr.span.path", "lmnr.span.input", "lmnr.span.output", "lmnr.span.type"),
        *("lmnr.association.properties.session_id", "gen_ai.input.messages"),
        *("gen_ai.output.messages", "gen_ai.request.model", "gen_ai.usage.input_tokens"),
        *("gen_ai.usage.cost", "gen_ai.tool.name", "gen_ai.agent.name"),
    ]
)


@given(
    attributes=st.dictionaries(KEYS, VALUES, max_size=6),
    kind=st.sampled_from(["LLM", "TOOL", "DEFAULT", None]),
)
def test_no_value_raises(attributes: dict[str, Any], kind: str | None) -> None:
    """Whatever the attributes hold, a reading comes of it, the same each time."""
    if kind is not None:
        attributes = {**attributes, "lmnr.span.type": kind}
    record = span(1, attributes=attributes)
    assert repr(lmnr.read(record)) == repr(lmnr.read(record))
