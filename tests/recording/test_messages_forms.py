# SPDX-License-Identifier: Apache-2.0
"""The form in which messages and parts are recorded: what readers and other tools meet."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from otel_taskhistory.recording.messages import Prompt, convert_prompt, restore_prompt

B64 = (
    "iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAEElEQVR4nGM4"
    "IScHRwzEcQCxYxBBO0tjggAAAABJRU5ErkJggg=="
)
PNG_URL = f"data:image/png;base64,{B64}"


def blob(mark: str, **extra: Any) -> dict[str, Any]:
    """The part of a picture."""
    medium = {"type": "blob", "mime_type": "image/png", "modality": "image", "content": B64}
    return {**medium, **extra, "taskhistory.format": mark}


def uri(mark: str, where: str, **extra: Any) -> dict[str, Any]:
    """The part of a picture somewhere else."""
    return {"type": "uri", "modality": "image", "uri": where, **extra, "taskhistory.format": mark}


def source(**fields: str) -> dict[str, Any]:
    """An image block of Anthropic."""
    return {"type": "image", "source": fields}


BLOCKS: list[tuple[Any, dict[str, Any]]] = [
    # OpenAI
    ({"type": "text", "text": "hi"}, {"type": "text", "content": "hi"}),
    ({"type": "image_url", "image_url": {"url": PNG_URL}}, blob("image_url")),
    (
        {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}},
        blob("image_url", image_url={"url": "", "detail": "low"}),
    ),
    (
        {"type": "image_url", "image_url": {"url": "https://e.org"}},
        uri("image_url", "https://e.org"),
    ),
    (
        {"type": "input_image", "image_url": PNG_URL, "detail": "low"},
        blob("input_image", detail="low"),
    ),
    (
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {
            "type": "blob",
            "mime_type": "audio/wav",
            "modality": "audio",
            "content": "AAAA",
            "taskhistory.format": "input_audio",
        },
    ),
    (
        {"type": "file", "file": {"file_id": "file-1"}},
        {
            "type": "file",
            "modality": "document",
            "file_id": "file-1",
            "taskhistory.format": "file",
        },
    ),
    ({"type": "refusal", "refusal": "no"}, {"type": "refusal", "refusal": "no"}),
    # What is no clean base64 stays a URL, whole.
    *(
        ({"type": "image_url", "image_url": {"url": url}}, uri("image_url", url))
        for url in (
            f"data:image/png;base64,{B64[:76]}\n{B64[76:]}",
            "data:image/png;base64,AAA",
            "data:image/png;base64,AB==",
            "data:image/png;base64,",
            "data:image/svg+xml;utf8,<svg/>",
            f"data:image/png;charset=x;base64,{B64}",
        )
    ),
    # Anthropic
    (source(type="base64", media_type="image/png", data=B64), blob("image")),
    (source(type="url", url="https://e.org"), uri("image", "https://e.org")),
    (
        {**source(type="base64", media_type="image/png", data=B64), "cache_control": {"type": "x"}},
        blob("image", cache_control={"type": "x"}),
    ),
    (
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
        {"type": "tool_call", "id": "t1", "name": "f", "arguments": {"a": 1}},
    ),
    (
        {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": [source(url="x")],
            "is_error": True,
        },
        {
            "type": "tool_call_response",
            "id": "t1",
            "response": [source(url="x")],
            "is_error": True,
        },
    ),
    (
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "reasoning", "content": "hm", "signature": "s"},
    ),
    ({"type": "redacted_thinking", "data": "x"}, {"type": "redacted_thinking", "data": "x"}),
    # Parts that were conventional when they were given say so.
    (
        {"type": "reasoning", "content": "hm"},
        {"type": "reasoning", "content": "hm", "taskhistory.format": "given"},
    ),
    # Without a type
    ("hi", {"type": "text", "content": "hi", "taskhistory.format": "string"}),
    (7, {"type": "json", "content": 7, "taskhistory.format": "json"}),
]


@pytest.mark.parametrize(("block", "part"), BLOCKS, ids=lambda value: str(value)[:60])
def test_a_block_becomes_a_conventional_part(block: Any, part: dict[str, Any]) -> None:
    """The part has the convention's keys, the block's other keys, and the mark of its form."""
    prompt = [{"role": "user", "content": [block]}]
    recorded = convert_prompt(prompt)
    expected = [{"role": "user", "parts": [part], "taskhistory.format": "chat.list"}]
    assert recorded.messages == json.dumps(expected, ensure_ascii=False)
    assert json.dumps(restore_prompt(recorded.messages)) == json.dumps(prompt)


GEMINI: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"text": "hi"}, {"type": "text", "content": "hi"}),
    (
        {"text": "hm", "thought": True},
        {"type": "reasoning", "content": "hm", "thought": True},
    ),
    ({"inlineData": {"mimeType": "image/png", "data": B64}}, blob("inlineData")),
    (
        {"fileData": {"mimeType": "image/png", "fileUri": "gs://b/a"}},
        {
            "type": "uri",
            "mime_type": "image/png",
            "modality": "image",
            "uri": "gs://b/a",
            "taskhistory.format": "fileData",
        },
    ),
    (
        {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "s"},
        {
            "type": "tool_call",
            "name": "f",
            "arguments": {"a": 1},
            "thoughtSignature": "s",
            "taskhistory.format": "functionCall",
        },
    ),
    (
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"type": "executableCode", "executableCode": {"language": "PYTHON", "code": "1"}},
    ),
]


@pytest.mark.parametrize(("given", "part"), GEMINI, ids=lambda value: str(value)[:60])
def test_a_gemini_part_becomes_a_conventional_part(
    given: dict[str, Any], part: dict[str, Any]
) -> None:
    """Its one key names the form; what has no counterpart is a part of its own type."""
    prompt = [{"role": "model", "parts": [given]}]
    recorded = convert_prompt(prompt)
    expected = [{"role": "assistant", "parts": [part], "taskhistory.format": "gemini"}]
    assert recorded.messages == json.dumps(expected, ensure_ascii=False)
    assert restore_prompt(recorded.messages) == prompt


def test_a_string_is_one_message() -> None:
    """A str prompt is the content of the only part, equal to what was sent."""
    content = 'Say "hi"\n\0 – 日本 😀'
    message = {"role": "user", "parts": [{"type": "text", "content": content}]}
    text = json.dumps([message], ensure_ascii=False)
    assert convert_prompt(content) == Prompt(text, True, None, None, (), 1)


def test_a_message_is_close_to_what_was_sent() -> None:
    """A plain message gets parts and one short key; a GenAI message stays as it is."""
    text = [{"type": "text", "content": "hi"}]
    (message,) = json.loads(convert_prompt([{"role": "user", "content": "hi"}]).messages)
    assert message == {"role": "user", "parts": text, "taskhistory.format": "chat"}
    genai = [{"role": "user", "parts": text, "name": "desk"}]
    assert convert_prompt(genai).messages == json.dumps(genai)
    assert restore_prompt(json.dumps(genai)) == genai


def test_tool_calls_of_openai_are_parts() -> None:
    """Arguments are objects where the string can be written again, else the string itself."""

    def call(arguments: str) -> dict[str, Any]:
        function = {"name": "f", "arguments": arguments}
        return {"id": "c1", "type": "function", "function": function}

    exact = ('{"a": 1, "b": "é"}', '{"a":1,"b":["x"]}', "{}")
    kept = ('{"a": 1.50}', '{"a":1,"a":2}', '{"a": NaN}', '{"a": 1e999}', "{bad", "", "[1]", "{ }")
    calls = [call(arguments) for arguments in exact + kept]
    prompt = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    recorded = convert_prompt(prompt)
    asked, answered = json.loads(recorded.messages)
    assert [part["arguments"] for part in asked["parts"]] == [*map(json.loads, exact), *kept]
    assert asked["parts"][0] == {
        "type": "tool_call",
        "id": "c1",
        "name": "f",
        "arguments": {"a": 1, "b": "é"},
    }
    assert asked["tool_calls"] == len(calls)
    assert answered["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "done"}]
    assert restore_prompt(recorded.messages) == prompt


def test_what_stands_beside_the_content_is_among_the_parts() -> None:
    """Reasoning comes before the content, a refusal and tool calls after it."""
    function = {"arguments": "{}", "name": "f"}
    prompt = [
        {
            "content": "I will not.",
            "refusal": "No.",
            "role": "assistant",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "c1", "function": function, "type": "function"}],
        }
    ]
    recorded = convert_prompt(prompt)
    (message,) = json.loads(recorded.messages)
    assert [part["type"] for part in message["parts"]] == [
        "reasoning",
        "text",
        "refusal",
        "tool_call",
    ]
    assert json.dumps(restore_prompt(recorded.messages)) == json.dumps(prompt)


def test_system_instructions_are_parts_and_tools_stay_as_they_are() -> None:
    """Every form of system instructions becomes parts; tool definitions are an array, unchanged."""
    text = {"type": "text", "content": "Be brief."}
    cached = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    for system, parts in (
        ("Be brief.", [text]),
        ([cached], [{**text, "cache_control": {"type": "ephemeral"}}]),
        ({"role": "system", "content": "Be brief."}, [text]),
        ([{"role": "system", "content": "Be brief."}], [text]),
        ({"parts": [{"text": "Be brief."}]}, [text]),
        ([], []),
        ("", [{"type": "text", "content": ""}]),
    ):
        assert json.loads(convert_prompt("x", system=system).system or "") == parts
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for tools in ([tool], (tool,), tool):
        assert convert_prompt("x", tools=tools).tools == json.dumps([tool])
    assert convert_prompt("x", tools=[]).tools == "[]"


def test_a_request_body_is_its_messages_after_the_rest() -> None:
    """The arguments of a request are one message in front, so that messages are kept one by one."""
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    body = {"model": "gpt-x", "messages": messages, "temperature": 0}
    recorded = convert_prompt(body)
    assert recorded.count == 3
    front, *rest = json.loads(recorded.messages)
    assert rest == json.loads(convert_prompt(messages).messages)
    assert front["parts"][0]["content"] == {**body, "messages": None}
    assert json.dumps(restore_prompt(recorded.messages)) == json.dumps(body)


def test_a_grown_conversation_begins_with_the_text_it_had() -> None:
    """The text of a longer conversation is that of the shorter one and more."""
    messages: list[Any] = []
    before = "["
    for step in range(10):
        messages.append({"role": "user", "content": [{"type": "text", "text": f"{step}"}, PNG_URL]})
        text = convert_prompt(messages).messages
        assert text.startswith(before)
        before = text[:-1]


def test_no_model_sdk_is_imported() -> None:
    """The conversion knows SDKs by their names only; it loads none, nor Pillow."""
    program = (
        "import sys; from otel_taskhistory.recording import messages; "
        "messages.convert_decision(messages.convert_prompt([{'role': 'user', 'content': 'x'}])); "
        "print({'openai', 'anthropic', 'google', 'pydantic', 'PIL', 'numpy'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"
