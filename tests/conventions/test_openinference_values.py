# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of agents and tools: goals, results, arguments, in the forms of frameworks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_taskhistory.conventions import openinference_langchain as langchain
from otel_taskhistory.conventions.openinference_values import (
    ToolOutput,
    goal_of,
    result_of,
    tool_arguments,
    tool_output,
)


def saved(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """A message as LangChain saves it."""
    return {"type": kind, "data": {"content": content, "type": kind, **more}}


def constructor(class_name: str, content: Any, **more: Any) -> dict[str, Any]:
    """A message as LangChain serialises its classes."""
    path = ["langchain", "schema", "messages", class_name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": content, **more}}


def shown(role: str, text: str) -> str:
    """A message as Haystack's is shown by Python."""
    kind = f"<ChatRole.{role.upper()}: '{role}'>"
    return f"ChatMessage(_role={kind}, _content=[TextContent(text={text!r})], _meta={{}})"


def state(*messages: Any, **more: Any) -> str:
    """A state of LangGraph."""
    return json.dumps({"messages": list(messages), **more})


# --- goals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "do it",
        state({"role": "user", "content": "do it"}),
        state({"role": "user", "content": "first"}, {"role": "user", "content": "do it"}),
        state({"role": "system", "content": "x"}, saved("human", "do it"), saved("ai", "y")),
        state(constructor("HumanMessage", "do it"), constructor("AIMessage", "x")),
        state(["user", "do it"]),
        state(["system", "x"], ["human", "do it"]),
        state("do it"),
        json.dumps({"messages": "do it"}),
        json.dumps({"messages": [[constructor("HumanMessage", "do it", type="human")]]}),
        state(saved("human", [{"type": "text", "text": "do"}, {"type": "text", "text": "it"}])),
        json.dumps([{"role": "user", "content": "do it"}]),
        json.dumps({"task": "do it", "stream": False, "input": "x"}),
        json.dumps({"input": "do it", "chat_history": []}),
        json.dumps({"input": {"messages": [{"role": "user", "content": "do it"}]}}),
        json.dumps({"user_id": "u", "new_message": {"role": "user", "parts": [{"text": "do it"}]}}),
        json.dumps(
            {
                "llm": {
                    "messages": [
                        shown("user", "x"),
                        shown("user", "do it"),
                        shown("assistant", "y"),
                    ]
                }
            }
        ),
        {"messages": [{"role": "user", "content": "do it"}]},
    ],
)
def test_goals(value: Any) -> None:
    """The last thing that the user said, or what the input calls the task."""
    goal = goal_of(value)
    assert goal is not None
    assert goal.replace("\n", " ") == "do it"


@pytest.mark.parametrize(
    "value",
    [
        '{"order": "A-17", "days": 3}',
        '{"messages": [',
        "[1, 2]",
        '{"messages": []}',
        '{"task": ""}',
        '{"messages": [{"content": "nobody\'s"}]}',
    ],
)
def test_input_of_no_known_form_is_its_text(value: str) -> None:
    """Arguments of a function, cut JSON, and the like."""
    assert goal_of(value) == value


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "__REDACTED__",
        state(saved("ai", "x")),
        state(saved("human", [{"type": "image_url", "image_url": {"url": "data:x"}}])),
        '{"graph": null, "update": null, "resume": "yes", "goto": []}',
    ],
)
def test_input_that_says_no_goal(value: Any) -> None:
    """Nothing, a conversation without words of a user, the answer to a question of the agent."""
    assert goal_of(value) is None


# --- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "done",
        state(saved("human", "x"), saved("ai", "done"), saved("tool", "y", tool_call_id="c")),
        state(constructor("AIMessageChunk", "done")),
        state({"role": "user", "content": "x"}, {"role": "assistant", "content": "done"}),
        json.dumps([{"graph": None, "update": {"messages": [saved("ai", "done")]}, "goto": []}]),
        json.dumps(saved("ai", "done")),
        json.dumps({"output": "done", "steps": 3}),
        json.dumps({"content": {"role": "model", "parts": [{"text": "done"}]}, "partial": False}),
        json.dumps({"llm": {"replies": [shown("user", "x"), shown("assistant", "done")]}}),
    ],
)
def test_results(value: Any) -> None:
    """The last answer of a final state, or what the output calls one."""
    assert result_of(value) == "done"


@pytest.mark.parametrize("value", ['{"rows": 3}', '{"messages": [', "[1]", "{'a': 1}"])
def test_output_of_no_known_form_is_its_text(value: str) -> None:
    """A Python ``repr`` as well."""
    assert result_of(value) == value


def test_no_result() -> None:
    """A final state whose last answer is no text."""
    call = {"name": "look", "args": {}, "id": "c"}
    assert result_of(state(saved("ai", "thinking"), saved("ai", "", tool_calls=[call]))) is None
    assert result_of(state(saved("human", "x"))) is None
    assert result_of("__REDACTED__") is None


# --- tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "held",
    [
        saved("tool", "found", tool_call_id="c1"),
        constructor("ToolMessage", "found", tool_call_id="c1"),
        {"type": "tool", "content": "found", "tool_call_id": "c1"},
        {"output": saved("tool", "found", tool_call_id="c1")},
        {"update": {"messages": [saved("tool", "found", tool_call_id="c1")]}, "goto": []},
        [saved("tool", "found", tool_call_id="c1")],
    ],
)
def test_outputs_that_are_tool_messages(held: Any) -> None:
    """What the model is told, and which call it answers."""
    assert tool_output(json.dumps(held)) == ToolOutput("found", "c1")
    assert tool_output(held) == ToolOutput("found", "c1")


def test_tool_messages_in_detail() -> None:
    """A failure is told by their status; content that is no text is its JSON."""
    failed = saved("tool", "no", tool_call_id="c1", status="error")
    assert tool_output(json.dumps(failed)) == ToolOutput("no", "c1", failed=True)
    blocks = [{"type": "image", "base64": "iVBO"}]
    assert tool_output(saved("tool", blocks, tool_call_id=None)) == ToolOutput(
        '[{"type":"image","base64":"iVBO"}]', None
    )


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("content='it\\'s\\nthere' name='f' tool_call_id='c1'", ToolOutput("it's\nthere", "c1")),
        ("content=\"it's\" tool_call_id='c1'", ToolOutput("it's", "c1")),
        ("content='no' tool_call_id='c1' status='error'", ToolOutput("no", "c1", failed=True)),
        ("content='' tool_call_id='c1'", ToolOutput("", "c1")),
    ],
)
def test_tool_messages_as_python_shows_them(text: str, output: ToolOutput) -> None:
    """As older versions wrote them."""
    assert tool_output(text) == output


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        '{"a": 1}',
        '{"type": "tool", "data": {"tool_call_id": "c1"',
        '{"tool_call_id": "c1", "content": "x"}',
        "content=[1] tool_call_id='c1'",
        "content='x' name='tool_call_id'",
        "tool_call_id",
        "{'a': 1}",
    ],
)
def test_other_outputs_are_what_they_are(text: str) -> None:
    """Nothing is taken out of them."""
    assert tool_output(text) == ToolOutput(text)


def test_outputs_of_other_types() -> None:
    """None, empty and redacted ones say nothing."""
    assert tool_output(None) == tool_output("") == tool_output("__REDACTED__") == ToolOutput(None)
    assert tool_output(7) == ToolOutput("7")


def called(*args: Any, **kwargs: Any) -> str:
    """The input of a tool of smolagents."""
    return json.dumps({"args": args, "sanitize_inputs_outputs": False, "kwargs": kwargs})


SCHEMA = '{"order_id": {"type": "string"}, "days": {"type": "integer"}}'


@pytest.mark.parametrize(
    ("given", "schema", "expected"),
    [
        ("A-17", SCHEMA, "A-17"),
        ('{"n": 1}', None, '{"n": 1}'),
        ("{'n': 1}", None, "{'n': 1}"),
        (called(order_id="A-17"), SCHEMA, '{"order_id":"A-17"}'),
        (called("A-17"), SCHEMA, '{"order_id":"A-17"}'),
        (called("A-17", days=3), SCHEMA, '{"order_id":"A-17","days":3}'),
        (called({"order_id": "A-17"}), SCHEMA, '{"order_id":"A-17"}'),
        (called("A-17"), None, '["A-17"]'),
        (called("A-17"), "{cut", '["A-17"]'),
        (called("a", "b", "c", d=1), SCHEMA, '{"args":["a","b","c"],"kwargs":{"d":1}}'),
        (called(), SCHEMA, "{}"),
        (called("A-17")[:-3], SCHEMA, called("A-17")[:-3]),
        ({"n": 1}, None, '{"n":1}'),
    ],
)
def test_arguments(given: Any, schema: Any, expected: str) -> None:
    """As they came, out of the calling convention where there is one."""
    assert tool_arguments(given, None, schema) == expected


def test_arguments_that_are_elsewhere() -> None:
    """As the model wrote them; in the place of the schema, where some packages put them."""
    assert tool_arguments(None, '{"n": 1}', SCHEMA) == '{"n": 1}'
    assert tool_arguments("__REDACTED__", None, '{"n": 1}') == '{"n": 1}'
    assert tool_arguments(None, None, {"n": 1}) == '{"n":1}'
    for schema in (SCHEMA, '{"type": "object"}', '{"properties": {}}', "{}", "{cut", "x", None, 7):
        assert tool_arguments(None, None, schema) is None


# --- messages of LangChain ----------------------------------------------------------------------


def test_messages_of_langchain() -> None:
    """Role, name, content, calls and thoughts; each once."""
    call = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    message = langchain.message_of(
        constructor(
            "AIMessage",
            [{"type": "text", "text": "x"}, call],
            name="ann",
            id="lc_run--1",
            usage_metadata={"input_tokens": 1},
            additional_kwargs={"reasoning_content": "hm"},
            tool_calls=[
                {"name": "f", "args": {}, "id": "c1"},
                {"name": "g", "args": {"a": 1}, "id": "c2"},
            ],
        )
    )
    assert message is not None
    assert {key: value for key, value in message.items() if key != "parts"} == {
        "role": "assistant",
        "name": "ann",
    }
    kinds = [(part["type"], part.get("id")) for part in message["parts"]]
    assert kinds == [
        ("reasoning", None),
        ("text", None),
        ("tool_call", "c1"),
        ("tool_call", "c2"),
    ]


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (
            {"type": "image", "base64": "QUJD", "mime_type": "image/png"},
            {"type": "blob", "mime_type": "image/png", "modality": "image", "content": "QUJD"},
        ),
        (
            {
                "type": "file",
                "source_type": "base64",
                "data": "QUJD",
                "mime_type": "application/pdf",
            },
            {
                "type": "blob",
                "mime_type": "application/pdf",
                "modality": "document",
                "content": "QUJD",
            },
        ),
        (
            {"type": "image", "url": "https://x/y.png"},
            {"type": "uri", "modality": "image", "uri": "https://x/y.png"},
        ),
    ],
)
def test_media_of_langchain(block: dict[str, Any], part: dict[str, Any]) -> None:
    """Its own form of blocks, of both versions."""
    message = langchain.message_of(saved("human", [block]))
    assert message == {"role": "user", "parts": [part]}


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        ["user", "a", "b"],
        {},
        {"type": "human"},
        {"type": "human", "data": {}},
        {"content": "x"},
        {"type": "remove", "data": {"content": "", "id": "1"}},
        {"lc": 1, "type": "constructor", "id": ["x", "Odd"], "kwargs": {"content": "x"}},
        {"lc": 1, "type": "constructor", "id": [], "kwargs": {"content": "x"}},
    ],
)
def test_what_is_no_message_of_langchain(value: Any) -> None:
    """It is left alone."""
    assert langchain.message_of(value) is None


def test_results_of_models_of_langchain() -> None:
    """One message for each generation of the first prompt; plain texts too."""
    reply = langchain.reply_of({"generations": [[{"text": "a"}, {"text": "b"}], [{"text": "c"}]]})
    assert reply is not None
    assert [message["parts"][0]["content"] for message in reply.messages] == ["a", "b"]
    info = {"finish_reason": "length"}
    output = {"model_name": "m", "token_usage": {"prompt_tokens": 1}}
    reply = langchain.reply_of(
        {"generations": [[{"text": "a", "generation_info": info}]], "llm_output": output}
    )
    assert reply is not None
    assert (reply.reasons, reply.model, reply.usage) == (["length"], "m", {"prompt_tokens": 1})
    empty = langchain.reply_of({"generations": [[]], "llm_output": None})
    assert empty is not None
    assert empty.messages == []
    assert langchain.reply_of({"generations": []}) is None
    assert langchain.reply_of({"generations": [[7, {"message": 7}]]}) is not None
