# SPDX-License-Identifier: Apache-2.0
"""JSON that a limit of the SDK has cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_taskhistory import conventions
from otel_taskhistory.conventions.genai_cut import DEEPEST, CutText, parse, parse_cut
from tests.store.deliveries import span

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("   ", None),
        ("[", []),
        ("[{", [{}]),
        ('[{"a"', [{}]),
        ('[{"a":', [{}]),
        ('[{"a": tr', [{}]),
        ('[{"a": 12', [{}]),
        ('[{"a": 12,', [{"a": 12}]),
        ('[{"a": [1, {"b": "c"}], "d": "wor', [{"a": [1, {"b": "c"}], "d": "wor"}]),
        ('["a\\', ["a"]),
        ('["a\\u00', ["a"]),
        ('["a\\ud83d\\ude', ["a\ud83d"]),
        ('["a\\ud83d\\ude00', ["a😀"]),
        ('["a\\\\', ["a\\"]),
        ('["a\\"', ['a"']),
        ("not json", None),
        ("]}", None),
    ],
)
def test_what_stands_before_the_cut(text: str, value: Any) -> None:
    """Is read; members without a value, and words that may go on, are left out."""
    assert parse(text) == value


def test_a_half_string_is_known_as_one() -> None:
    """So that nobody takes half an id for an id."""
    whole, half = parse('["whole", "ha')
    assert (type(whole), type(half)) == (str, CutText)


@given(value=VALUES, data=st.data())
def test_cut_anywhere(value: Any, data: st.DataObject) -> None:
    """Whole text is read as ever; cut at any place nothing raises, and strings are beginnings."""
    text = json.dumps(value)
    assert parse(text) == value
    cut = parse(text[: data.draw(st.integers(0, len(text)))])
    if isinstance(cut, str) and isinstance(value, str):
        assert value.startswith(cut[:-1])


@settings(max_examples=50)
@given(value=VALUES.filter(lambda value: isinstance(value, list | dict)))
def test_the_second_reader_agrees_with_the_first(value: Any) -> None:
    """On JSON that is whole the lenient reader gives what Python's does."""
    assert parse_cut(json.dumps(value)) == value


@given(text=st.text(alphabet='[]{},:"\\ua1 \ud800\0', max_size=40))
def test_no_text_makes_it_raise(text: str) -> None:
    """Whatever stands where JSON should."""
    parse(text)


def test_it_is_neither_deep_nor_slow() -> None:
    """Nesting is followed to a limit; a long text costs one pass, not one for each position."""
    value, depth = parse("[" * 100_000), 0
    while value:
        value, depth = value[0], depth + 1
    assert DEEPEST - 2 <= depth <= DEEPEST + 2
    assert parse('["' + "\\" * 400_001) == ["\\" * 200_000]
    assert len(parse("[" + "1," * 200_000)) == 200_000


def test_what_can_be_read_of_a_cut_prompt_is_shown_and_the_rest_marked() -> None:
    """Messages up to the cut, then a part that says so; instructions beside them stay apart."""
    whole = json.dumps(
        [
            {"role": "user", "parts": [{"type": "text", "content": "where is it"}]},
            {"role": "assistant", "parts": [{"type": "text", "content": "let me see"}]},
        ]
    )
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system_instructions": '[{"type": "text", "content": "be terse"}]',
        "gen_ai.input.messages": whole[: whole.index(" see")],
    }
    (call,) = conventions.read(span(1, attributes=attributes)).model_calls
    assert call.prompt is not None
    assert call.prompt.structured
    assert call.prompt.system == attributes["gen_ai.system_instructions"]
    first, last = json.loads(call.prompt.raw)
    assert first["parts"] == [{"type": "text", "content": "where is it"}]
    assert last["parts"] == [{"type": "text", "content": "let me"}, {"type": "cut"}]
    instructions = {**attributes, "gen_ai.input.messages": whole}
    instructions["gen_ai.system_instructions"] = '[{"type": "text", "content": "be te'
    (call,) = conventions.read(span(1, attributes=instructions)).model_calls
    assert call.prompt is not None
    assert call.prompt.raw == whole
    assert json.loads(call.prompt.system or "") == [
        {"type": "text", "content": "be te"},
        {"type": "cut"},
    ]
    unreadable = {**attributes, "gen_ai.input.messages": "[INST] no list"}
    (call,) = conventions.read(span(1, attributes=unreadable)).model_calls
    assert call.prompt is not None
    assert call.prompt.raw == "[INST] no list"
