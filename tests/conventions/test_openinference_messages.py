# SPDX-License-Identifier: Apache-2.0
"""Flattened messages put together again, whatever is missing, doubled or contradictory."""

from __future__ import annotations

import random
from typing import Any

import pytest

from otel_taskhistory.conventions.openinference_messages import Flattened, FlattenedTexts
from otel_taskhistory.conventions.openinference_parts import arguments_of, call_ids, medium, pieces

PNG = "iVBORw0KGgo" + "A" * 33
"""Sound base64 that begins like a PNG."""


def read(attributes: dict[str, Any], role: str = "user") -> list[dict[str, Any]]:
    """The messages of flattened attributes, given without what is the same in all names."""
    flattened = Flattened(role)
    for path, value in attributes.items():
        flattened.add(path, value)
    return flattened.messages()


def content(**fields: Any) -> dict[str, Any]:
    """The part for one content; ``__`` stands for a dot in the names."""
    prefix = "0.message.contents.0."
    names = {name: name.replace("__", ".") for name in fields}
    attributes = {
        prefix + (dotted if dotted.startswith("tool_call.") else f"message_content.{dotted}"): value
        for (name, dotted), value in zip(names.items(), fields.values(), strict=True)
    }
    ((part,),) = (message["parts"] for message in read(attributes))
    return part


def text(said: str) -> dict[str, Any]:
    """A text part."""
    return {"type": "text", "content": said}


def test_order_and_gaps_do_not_matter() -> None:
    """Messages are in the order of their numbers, which may begin anywhere."""
    attributes = {
        "11.message.content": "c",
        "2.message.role": "system",
        "11.message.role": "user",
        "2.message.content": "a",
        "7.message.content": "b",
        "7.message.role": "assistant",
    }
    found = read(attributes)
    assert [(message["role"], message["parts"]) for message in found] == [
        ("system", [text("a")]),
        ("assistant", [text("b")]),
        ("user", [text("c")]),
    ]
    assert read(dict(reversed(attributes.items()))) == found


def test_ten_thousand_keys_in_any_order() -> None:
    """A long conversation is whole."""
    attributes: dict[str, Any] = {}
    for number in range(2_500):
        attributes |= {
            f"{number}.message.role": "assistant",
            f"{number}.message.content": f"text {number}",
            f"{number}.message.tool_calls.0.tool_call.id": f"c{number}",
            f"{number}.message.tool_calls.0.tool_call.function.name": "look",
        }
    shuffled = list(attributes.items())
    random.Random(5).shuffle(shuffled)
    found = read(dict(shuffled))
    assert [message["parts"][0]["content"] for message in found] == [
        f"text {number}" for number in range(2_500)
    ]
    assert call_ids(found) == tuple(f"c{number}" for number in range(2_500))


def test_many_calls_in_one_message() -> None:
    """Told in both places, each is there once."""
    attributes: dict[str, Any] = {}
    for number in range(2_000):
        for place in ("contents", "tool_calls"):
            prefix = f"0.message.{place}.{number}.tool_call"
            attributes |= {f"{prefix}.id": f"c{number}", f"{prefix}.function.name": "look"}
    (message,) = read(attributes)
    assert [part["id"] for part in message["parts"]] == [f"c{number}" for number in range(2_000)]


@pytest.mark.parametrize(
    "path", ["", "x.message.role", "-1.message.role", "²", "1" * 30, "message"]
)
def test_what_has_no_number_is_no_message(path: str) -> None:
    """The attribute stays in the span."""
    assert read({path: "user"}) == []


@pytest.mark.parametrize(
    ("attributes", "role"),
    [
        ({"0.message.content": "x"}, "user"),
        ({"0.message.role": "", "0.message.content": "x"}, "user"),
        ({"0.message.role": 7, "0.message.content": "x"}, "user"),
        ({"0.message.role": "developer"}, "developer"),
        ({"0.message.tool_call_id": "c"}, "tool"),
        ({"0.message.tool_calls.0.tool_call.function.name": "f"}, "assistant"),
        ({"0.message.function_call_name": "f"}, "assistant"),
        ({"0.role": "system", "0.content": "x"}, "system"),
    ],
)
def test_whose_a_message_is(attributes: dict[str, Any], role: str) -> None:
    """As it says, else as what it holds tells, else as usual in its list."""
    assert [message["role"] for message in read(attributes)] == [role]


def test_results_of_tools() -> None:
    """The content, or the contents, are the result; beside one, contents are parts."""
    call = {"0.message.role": "tool", "0.message.tool_call_id": "c1"}
    result = {"type": "tool_call_response", "id": "c1", "response": "found"}
    assert read(call | {"0.message.content": "found"})[0]["parts"] == [result]
    contents = {"0.message.contents.0.message_content.text": "found"}
    assert read(call | contents)[0]["parts"] == [result | {"response": [text("found")]}]
    mixed = {
        "0.message.role": "user",
        "0.message.tool_call_id": "c1",
        "0.message.content": "found",
        "0.message.contents.1.message_content.text": "go on",
    }
    assert read(mixed)[0]["parts"] == [result, text("go on")]
    assert read(call)[0]["parts"] == [result | {"response": None}]
    nameless = {"0.message.role": "function", "0.message.content": "x", "0.message.name": "f"}
    assert read(nameless) == [
        {
            "role": "function",
            "parts": [{"type": "tool_call_response", "response": "x"}],
            "name": "f",
        }
    ]


def test_a_content_that_is_told_twice() -> None:
    """As a text and among the contents it is one part; another text is another."""
    both = {"0.message.content": "x", "0.message.contents.0.message_content.text": "x"}
    assert read(both)[0]["parts"] == [text("x")]
    two = {**both, "0.message.content": "xy", "0.message.contents.1.message_content.text": "y"}
    assert read(two)[0]["parts"] == [text("x"), text("y")]
    other = both | {"0.message.content": "y"}
    assert read(other)[0]["parts"] == [text("y"), text("x")]


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (5, [text("5")]),
        (True, [text("true")]),
        ("", []),
        (None, []),
        ([{"type": "text", "text": "x"}], [text("x")]),
    ],
)
def test_contents_of_other_types(value: Any, parts: list[Any]) -> None:
    """They are shown; a list of blocks is read."""
    found = read({"0.message.role": "user", "0.message.content": value})[0]["parts"]
    assert found == parts


def test_bytes_in_the_place_of_a_content() -> None:
    """They are kept, as base64."""
    ((part,),) = (message["parts"] for message in read({"0.message.content": b"x"}))
    assert part["taskhistory.bytes"] == "eA=="


def test_fields_of_no_known_name_are_kept() -> None:
    """In messages, contents and calls; none of them takes the place of what we add."""
    (message,) = read(
        {
            "0.message.role": "user",
            "0.message.parts": "x",
            "0.message.weight": 1,
            "0.message.contents.x.type": "text",
            "0.message.contents.0.message_content.text": "t",
            "0.message.contents.0.message_content.cache.kind": "long",
            "0.message.tool_calls.0.tool_call.function.name": "f",
            "0.message.tool_calls.0.tool_call.type": "function",
            "0.message.tool_calls.0.tool_call.reasoning_signature": "s",
        }
    )
    assert message["weight"] == 1
    assert message["contents.x.type"] == "text"
    assert message["parts"] == [
        text("t") | {"cache.kind": "long"},
        {"type": "tool_call", "name": "f", "reasoning_signature": "s"},
    ]


# --- contents -----------------------------------------------------------------------------------


def test_contents() -> None:
    """Texts, thoughts, tool calls among them, and types to come, with all they say."""
    assert content(type="text", text="x") == text("x")
    assert content(text="x") == text("x")
    assert content(type="text") == text("")
    thought = {"type": "reasoning", "content": "hm", "signature": "s", "id": "rs_1"}
    assert content(type="reasoning", text="hm", signature="s", id="rs_1") == thought
    assert content(type="reasoning", data="opaque") == {
        "type": "reasoning",
        "content": "",
        "data": "opaque",
    }
    assert content(type="tool_use", tool_call__id="c", tool_call__function__name="f") == {
        "type": "tool_call",
        "id": "c",
        "name": "f",
    }
    assert content(type="document", document__url="x", text="t") == {
        "type": "document",
        "document.url": "x",
        "text": "t",
    }
    assert content(type=["odd"], more=1) == {"type": "unknown", "more": 1}


def test_pictures_and_sounds() -> None:
    """A data URL or bare base64 is a blob; anything else a reference, and nothing is cut off."""
    url = f"data:image/png;base64,{PNG}"
    blob = {"type": "blob", "mime_type": "image/png", "modality": "image", "content": PNG}
    assert content(type="image", image__image__url=url) == blob
    assert content(image__image__url=url, detail="low") == blob | {"detail": "low"}
    assert content(type="image", image__image__url=PNG) == blob
    link = {"type": "uri", "modality": "image", "uri": "https://x/y.png"}
    assert content(type="image", image__image__url="https://x/y.png") == link
    assert content(type="image", image__url="https://x/y.png") == link
    sound = content(
        type="audio",
        audio__audio__url="https://x/y.wav",
        audio__audio__mime_type="audio/wav",
        audio__audio__transcript="hello",
    )
    assert sound == {
        "type": "uri",
        "modality": "audio",
        "uri": "https://x/y.wav",
        "mime_type": "audio/wav",
        "audio.audio.transcript": "hello",
    }
    assert content(type="image", image__image__url=7) == {"type": "image", "image.image.url": 7}


@pytest.mark.parametrize(
    "url",
    [
        f"data:image/png;base64,{PNG[:-1]}",  # cut
        f"data:image/png;base64,{PNG[:20]}\n{PNG[20:]}",
        "data:image/svg+xml,<svg/>",
        "data:",
        PNG[:-1],
        "",
    ],
)
def test_what_is_no_sound_picture_stays_a_reference(url: str) -> None:
    """Exactly as it was said."""
    assert medium("image", url)["uri"] == url


def test_types_of_media() -> None:
    """Parameters are no part of a type; one that the URL lacks may be told beside it."""
    assert medium("image", f"data:image/png;a=b;base64,{PNG}")["mime_type"] == "image/png"
    assert medium("audio", f"data:;base64,{PNG}", "audio/wav")["mime_type"] == "audio/wav"
    assert medium("audio", f"data:;base64,{PNG}", 7)["mime_type"] == "audio/unknown"
    assert medium("image", "__REDACTED__") == {"type": "image", "url": "__REDACTED__"}


# --- tool calls ---------------------------------------------------------------------------------


def calls(*told: dict[str, Any], among: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The parts of a message with these in its list of calls, and one among its contents."""
    places = [(f"tool_calls.{number}", call) for number, call in enumerate(told)]
    places += [("contents.0", among)] if among is not None else []
    attributes = {
        f"0.message.{place}.tool_call.{name}": value
        for place, call in places
        for name, value in call.items()
    }
    parts: list[dict[str, Any]] = read(attributes)[0]["parts"]
    return parts


LOOK = {"id": "c1", "function.name": "look", "function.arguments": '{"at": 1}'}
PART = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1}}


def test_one_call_told_twice_is_one() -> None:
    """By id, or without one by what it calls; each place may tell a part of it."""
    assert calls(LOOK) == [PART]
    assert calls(LOOK, among=LOOK) == [PART]
    assert calls(LOOK, LOOK) == [PART]
    assert calls(LOOK, among={"id": "c1"}) == [PART]
    assert calls({"id": "c1"}, among=LOOK) == [PART]
    anonymous = {name: value for name, value in LOOK.items() if name != "id"}
    part = {name: value for name, value in PART.items() if name != "id"}
    assert calls(anonymous, among=anonymous) == [part]


def test_two_calls_are_two() -> None:
    """Equal ones without an id, and ones that contradict each other under one id."""
    anonymous = {"function.name": "look"}
    part = {"type": "tool_call", "name": "look"}
    assert calls(anonymous, anonymous) == [part, part]
    assert calls(anonymous, anonymous, among=anonymous) == [part, part]
    other = LOOK | {"function.name": "touch"}
    assert calls(LOOK, other) == [PART, PART | {"name": "touch"}]


def test_a_call_in_the_old_form() -> None:
    """It is a call like any other, and not told again beside the list."""
    old = {
        "0.message.function_call_name": "look",
        "0.message.function_call_arguments_json": '{"at": 1}',
    }
    part = {"type": "tool_call", "name": "look", "arguments": {"at": 1}}
    assert read(old)[0] == {"role": "assistant", "parts": [part]}
    prefix = "0.message.tool_calls.0.tool_call"
    both = old | {f"{prefix}.{name}": value for name, value in LOOK.items()}
    assert read(both)[0]["parts"] == [PART]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        (' {"a": [1.5, null]}\n', {"a": [1.5, None]}),
        ("{}", {}),
        ("", ""),
        ("A-17", "A-17"),
        ("01", "01"),
        ("[1]", "[1]"),
        ('{"a": 1', '{"a": 1'),
        ("{'a': 1}", "{'a': 1}"),
        ('{"a": NaN}', '{"a": NaN}'),
        ('{"a": 1e999}', '{"a": 1e999}'),
        ('{"a":' * 5000, '{"a":' * 5000),
        ({"a": 1}, {"a": 1}),
        (7, 7),
    ],
)
def test_arguments(given: Any, expected: Any) -> None:
    """The text of an object is the object; anything else is what it is."""
    assert arguments_of(given) == expected


# --- what messages say --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "count"),
    [
        (text("x"), 1),
        (text(""), 0),
        (text("__REDACTED__"), 0),
        ({"type": "reasoning", "content": "x"}, 1),
        ({"type": "tool_call", "name": "f"}, 1),
        ({"type": "tool_call_response", "response": "x"}, 1),
        ({"type": "tool_call_response", "response": [{"data": "x"}]}, 1),
        ({"type": "tool_call_response", "response": ""}, 0),
        ({"type": "tool_call_response", "response": None}, 0),
        ({"type": "tool_call_response", "response": '[{"data": "__REDACTED__"}]'}, 0),
        ({"type": "tool_call_response", "response": [{"data": ["__REDACTED__"]}]}, 0),
        ({"type": "blob", "content": "x"}, 1),
        ({"type": "uri", "uri": "x"}, 1),
        ({"type": "file", "file_id": "x"}, 1),
        ({"type": "web_search_call"}, 0),
        ({"type": "image", "url": "__REDACTED__"}, 0),
    ],
)
def test_pieces(part: dict[str, Any], count: int) -> None:
    """What is empty, redacted or of a type of its own is no piece."""
    assert pieces([{"role": "user", "parts": [part]}]) == count
    assert pieces([{"role": "user", "parts": [part, text("y")]}, {}, {"parts": 7}]) == count + 1


def test_flattened_texts() -> None:
    """In the order of their numbers, from attributes or a list."""
    texts = FlattenedTexts()
    for path, value in {"1.prompt.text": "b", "0.prompt.text": "a", "x": "c", "2": None}.items():
        texts.add(path, value)
    assert texts.texts() == ["a", "b"]
    listed = FlattenedTexts()
    listed.add_all(("a", 7, "", "b"))
    assert listed.texts() == ["a", "7", "b"]
