# SPDX-License-Identifier: Apache-2.0
"""What `convert_prompt` writes, `restore_prompt` gives back, for prompts nobody thought of."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_taskhistory.recording.messages import convert_prompt, dump_value, restore_prompt

PROFILE = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

OUR_WORDS = [
    "role",
    "content",
    "parts",
    "type",
    "text",
    "id",
    "name",
    "arguments",
    "response",
    "tool_calls",
    "function",
    "tool_call_id",
    "image_url",
    "url",
    "source",
    "data",
    "media_type",
    "mime_type",
    "modality",
    "uri",
    "file_id",
    "item_id",
    "call_id",
    "input",
    "output",
    "summary",
    "thinking",
    "reasoning",
    "refusal",
    "reasoning_content",
    "inline_data",
    "function_call",
    "taskhistory.format",
    "taskhistory.escaped",
    "taskhistory.single",
    "taskhistory.arguments",
    "messages",
]
KINDS = [
    "text",
    "image",
    "image_url",
    "input_image",
    "input_text",
    "output_text",
    "input_audio",
    "file",
    "document",
    "thinking",
    "reasoning",
    "tool_use",
    "tool_result",
    "tool_call",
    "tool_call_response",
    "blob",
    "uri",
    "message",
    "function_call",
    "function_call_output",
    "computer_call",
    "custom_tool_call",
    "human",
    "ai",
    "tool",
    "json",
    "given",
    "string",
    "untyped",
]

texts = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["", "\x00", "\\ud83e", "a\\b", "data:image/png;base64,AAAA", "<b>é</b>"]),
)
surrogates = st.text(
    st.characters(categories=("Cs", "L", "P"), include_characters="\\u"), max_size=8
)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.sampled_from(OUR_WORDS), inner, max_size=4)
    ),
    max_leaves=6,
)
extras = st.dictionaries(st.sampled_from(["cache_control", "x", "status", "name"]), json_values)
pictures = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
urls = st.one_of(
    st.builds("data:{};base64,{}".format, st.sampled_from(["image/png", "a/b"]), pictures),
    texts.map(lambda text: f"https://example.org/{text}"),
    texts,
)


@st.composite
def shuffled(draw: st.DrawFn, *dicts: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """The items of several dicts, in any order."""
    merged: dict[str, Any] = {}
    for drawn in dicts:
        merged |= draw(drawn)
    return dict(draw(st.permutations(list(merged.items()))))


def fixed(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """A dict with these fields: strategies, or the values themselves."""
    strategies = {
        name: value if isinstance(value, st.SearchStrategy) else st.just(value)
        for name, value in fields.items()
    }
    return st.fixed_dictionaries(strategies)


json_texts = json_values.map(json.dumps)
arguments = st.one_of(
    texts,
    json_texts,
    st.dictionaries(texts, json_values, max_size=3).map(json.dumps),
    st.dictionaries(texts, json_values, max_size=3).map(
        lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    ),
    st.dictionaries(texts, json_values, max_size=3).map(lambda v: json.dumps(v, indent=1)),
    json_values,
)

openai_blocks = st.one_of(
    shuffled(fixed(type="text", text=texts), extras),
    *(
        shuffled(fixed(type=kind, **{kind: shuffled(fixed(url=urls), extras) | urls}), extras)
        for kind in ("image_url", "video_url", "audio_url")
    ),
    shuffled(fixed(type="input_image", image_url=urls), extras),
    shuffled(fixed(type="input_image", file_id=texts), extras),
    shuffled(fixed(type="input_file", file_data=urls), extras),
    shuffled(fixed(type=st.sampled_from(["input_text", "output_text"]), text=texts), extras),
    shuffled(
        fixed(
            type="input_audio",
            input_audio=shuffled(fixed(data=pictures, format=st.sampled_from(["wav", "mp3"]))),
        )
    ),
    shuffled(
        fixed(
            type="file",
            file=shuffled(fixed(file_id=texts), extras) | shuffled(fixed(file_data=urls), extras),
        )
    ),
    shuffled(fixed(type="refusal", refusal=texts)),
)
openai_calls = st.one_of(
    fixed(id=texts, type="function", function=fixed(name=texts, arguments=arguments)),
    shuffled(
        fixed(id=texts, type="function"),
        fixed(function=shuffled(fixed(arguments=arguments, name=texts), extras)),
        extras,
    ),
    shuffled(fixed(type="custom", custom=shuffled(fixed(name=texts, input=texts))), extras),
    shuffled(fixed(name=texts, args=json_values, id=texts | st.none(), type="tool_call")),
    json_values,
)
chat_messages = shuffled(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "developer", "tool", "x"])},
        optional={
            "content": st.one_of(
                texts, st.none(), st.lists(openai_blocks | json_values, max_size=3), json_values
            ),
            "tool_calls": st.lists(openai_calls, max_size=3) | scalars,
            "tool_call_id": texts,
            "refusal": texts | scalars,
            "reasoning_content": texts | scalars,
            "reasoning": texts | scalars,
        },
    ),
    extras,
)
anthropic_blocks = st.one_of(
    shuffled(fixed(type="text", text=texts), extras),
    shuffled(
        fixed(type=st.sampled_from(["image", "document"])),
        fixed(
            source=st.one_of(
                fixed(type="base64", media_type="image/png", data=pictures),
                shuffled(fixed(type="base64", media_type=texts, data=pictures | texts), extras),
                shuffled(fixed(type="url", url=texts)),
                shuffled(fixed(type="file", file_id=texts), extras),
            )
        ),
        extras,
    ),
    shuffled(fixed(type="tool_use", id=texts, name=texts, input=json_values), extras),
    shuffled(fixed(type="tool_result", tool_use_id=texts, content=json_values), extras),
    shuffled(fixed(type="thinking", thinking=texts, signature=texts)),
    shuffled(fixed(type="redacted_thinking", data=texts)),
)
anthropic_messages = shuffled(
    fixed(
        role=st.sampled_from(["user", "assistant"]),
        content=texts | st.lists(anthropic_blocks, max_size=4),
    ),
    extras,
)
responses_items = st.one_of(
    shuffled(
        fixed(type="message", role="user", content=texts | st.lists(openai_blocks, max_size=3)),
        extras,
    ),
    shuffled(
        st.fixed_dictionaries(
            {"type": st.just("function_call"), "name": texts, "arguments": arguments},
            optional={"id": texts, "call_id": texts},
        ),
        extras,
    ),
    shuffled(
        fixed(
            type=st.sampled_from(["function_call_output", "computer_call_output"]),
            call_id=texts,
            output=json_values,
        ),
        extras,
    ),
    shuffled(
        st.fixed_dictionaries(
            {
                "type": st.just("reasoning"),
                "summary": st.lists(
                    shuffled(fixed(type="summary_text", text=texts), extras) | json_values,
                    max_size=2,
                ),
            },
            optional={"content": st.none() | st.lists(fixed(type="t", text=texts), max_size=2)},
        ),
        extras,
    ),
    shuffled(fixed(type="computer_call", id=texts, call_id=texts, action=json_values), extras),
    shuffled(fixed(type="custom_tool_call", call_id=texts, name=texts, input=texts), extras),
    shuffled(fixed(type="item_reference", id=texts)),
)
gemini_parts = st.one_of(
    texts,
    shuffled(fixed(text=texts), extras),
    shuffled(fixed(text=texts, thought=st.booleans()), extras),
    shuffled(
        fixed(
            inline_data=shuffled(
                fixed(
                    mime_type="image/png",
                    data=pictures | pictures.map(lambda p: p.replace("+", "-").replace("/", "_")),
                ),
                extras,
            )
        ),
        extras,
    ),
    shuffled(fixed(inlineData=shuffled(fixed(mimeType=texts, data=pictures)))),
    shuffled(fixed(fileData=shuffled(fixed(mimeType=texts, fileUri=texts), extras)), extras),
    shuffled(
        fixed(functionCall=shuffled(fixed(name=texts, args=json_values))),
        extras | fixed(thoughtSignature=texts),
    ),
    shuffled(
        fixed(function_response=shuffled(fixed(name=texts, response=json_values, id=texts))),
        extras,
    ),
    shuffled(fixed(toolUse=shuffled(fixed(toolUseId=texts, name=texts, input=json_values)))),
    shuffled(fixed(executable_code=json_values), extras),
    json_values,
)
gemini_messages = shuffled(
    st.fixed_dictionaries(
        {"parts": st.lists(gemini_parts, max_size=3)},
        optional={"role": st.sampled_from(["user", "model", "assistant", "function"]) | scalars},
    ),
    extras,
)
genai_messages = shuffled(
    fixed(
        role=texts,
        parts=st.lists(
            shuffled(fixed(type=st.sampled_from(KINDS) | texts), extras, fixed(content=texts)),
            max_size=3,
        ),
    ),
    extras,
)
mistaken = shuffled(
    st.dictionaries(st.sampled_from(OUR_WORDS), json_values, max_size=5),
    st.fixed_dictionaries({}, optional={"type": st.sampled_from(KINDS), "role": texts}),
)
FORMATS = {
    "chat": chat_messages,
    "anthropic": anthropic_messages,
    "responses": responses_items,
    "gemini": gemini_messages,
    "genai": genai_messages,
    "langchain": shuffled(
        fixed(type=st.sampled_from(["human", "ai", "system", "tool"]), content=json_values),
        st.fixed_dictionaries({}, optional={"tool_calls": st.lists(openai_calls, max_size=2)}),
        extras,
    ),
    "blocks": openai_blocks | anthropic_blocks | gemini_parts,
    "mistaken": mistaken,
    "json": json_values,
}


def same(one: Any, other: Any) -> bool:
    """Equal, also in the order of keys and in what is 1, 1.0 or True."""
    return json.dumps(one) == json.dumps(other)


@pytest.mark.parametrize("name", FORMATS)
def test_a_restored_prompt_is_the_one_that_was_sent(name: str) -> None:
    """Every value comes back, key order included, and nothing is called reduced.

    A message is the same text whatever its neighbours: that of a list is the texts of its
    messages, written one by one, side by side.
    """

    # There are many kinds of blocks, and they are small.
    @settings(PROFILE, max_examples=120 if name == "blocks" else 30)
    @given(st.lists(FORMATS[name], max_size=3))
    def check(prompt: list[Any]) -> None:
        recorded = convert_prompt(prompt)
        assert same(restore_prompt(recorded.messages, recorded.text), prompt)
        assert recorded.reduced == ()
        assert recorded.count == len(prompt)
        alone = [convert_prompt([entry]).messages[1:-1] for entry in prompt]
        assert recorded.messages == f"[{', '.join(alone)}]"

    check()


@PROFILE
@given(st.one_of(texts, json_values, *FORMATS.values()))
def test_a_prompt_that_is_no_list_comes_back_as_it_was(prompt: Any) -> None:
    """A single message, a string or any other value is not turned into a list of one."""
    recorded = convert_prompt(prompt)
    assert same(restore_prompt(recorded.messages, recorded.text), prompt)


@PROFILE
@given(
    st.lists(
        st.one_of(
            fixed(role="user", content=surrogates),
            fixed(role="user", content=st.lists(fixed(type="text", text=surrogates), max_size=2)),
            st.dictionaries(surrogates, surrogates, max_size=3),
        ),
        max_size=3,
    )
)
def test_lone_surrogates_come_back(prompt: list[Any]) -> None:
    """Half an emoji is escaped so that the text is UTF-8, and restored; the loss is reported."""
    recorded = convert_prompt(prompt)
    recorded.messages.encode("utf-8")
    assert same(restore_prompt(recorded.messages), prompt)
    broken = "\\ud" in json.dumps(prompt) and not is_utf8(prompt)
    assert bool(recorded.reduced) == broken


def is_utf8(value: Any) -> bool:
    """Whether no string in a value has a lone surrogate."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@PROFILE
@given(st.from_type(type).flatmap(st.from_type) | json_values | st.binary())
def test_any_value_has_a_text(value: Any) -> None:
    """Whatever Hypothesis can make of any class becomes UTF-8 text, JSON unless it was a str."""
    text, reduced = dump_value(value)
    text.encode("utf-8")
    assert isinstance(reduced, bool)
    if not isinstance(value, str):
        json.loads(text)
