# SPDX-License-Identifier: Apache-2.0
"""Attribute values as JSON text: every value there is, back again as it was."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_taskhistory.spans.encode import (
    MAX_DEPTH,
    Hole,
    decode,
    encode,
    escape_surrogates,
    escape_surrogates_in_json,
    has_lone_surrogate,
    quote,
    unescape_surrogates,
)

ANY_TEXT = st.text(st.characters())  # surrogates too
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.binary(max_size=30)
    | ANY_TEXT
)
KEYS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["$", "$bytes", "$map", "$int", "$escaped", "$float", "$reduced", "$pairs", "a.b", ""]
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal in type too, for True is 1 and 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return math.copysign(1, one) == math.copysign(1, other) and one == other
    return bool(one == other)


@given(VALUES)
@example({"$map": {"$int": "7"}})
@example([-0.0, 2**63, -(2**63) - 1, True, 1, 1.0, "1", None, "", b""])
@example({"$pairs": [["a", 1]]})
@example("\\\ud83e\\ud83e\\\\")
def test_values_come_back(value: Any) -> None:
    """What is encoded is strict JSON in UTF-8, and decodes to the very value."""
    text = encode(value).text
    json.loads(text, parse_constant=pytest.fail)
    text.encode()
    assert same(decode(text), value)


@given(ANY_TEXT)
def test_surrogates_are_escaped_reversibly(text: str) -> None:
    """Text with half characters can be written as UTF-8, and be had again."""
    escaped = escape_surrogates(text)
    escaped.encode()
    if has_lone_surrogate(text):
        assert unescape_surrogates(escaped) == text
    else:
        assert escaped is text


@given(st.lists(ANY_TEXT), st.booleans())
def test_json_keeps_its_whole_characters(texts: list[str], ascii_only: bool) -> None:
    """JSON without lone surrogates is not touched; with some it becomes JSON that SQLite reads."""
    raw = json.dumps(texts, ensure_ascii=ascii_only)
    made = escape_surrogates_in_json(raw)
    made.encode()
    read = json.loads(made)
    assert not any(map(has_lone_surrogate, read))
    if not any(map(has_lone_surrogate, texts)):
        assert read == texts
        assert made == raw


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_number_for(value: float) -> None:
    """NaN and the infinities are tagged, never bare."""
    text = encode({"x": value}).text
    json.loads(text, parse_constant=pytest.fail)
    found = decode(text)["x"]
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_a_huge_number_is_kept() -> None:
    """More digits than Python turns into text are kept, too."""
    huge = 7 ** (10**4)
    assert decode(encode([huge, -huge]).text) == [huge, -huge]


def test_depth_is_limited_and_marked() -> None:
    """Nesting of any depth is stored as deep as JSON readers go, and marked where it was cut."""
    value: Any = "bottom"
    for _ in range(2000):
        value = {"down": [value]}
    encoded = encode({"deep": value, "beside": "whole"})
    assert encoded.reduced
    read = decode(encoded.text)
    assert read["beside"] == "whole"
    depth, at = 0, read["deep"]
    while "$reduced" not in (at if isinstance(at, dict) else ()):
        at = at["down"] if isinstance(at, dict) else at[0]
        depth += 1
    assert at == {"$reduced": "depth"}
    assert depth == MAX_DEPTH - 1


def test_circles_are_marked() -> None:
    """What holds itself is cut where it closes; the same thing twice side by side is no circle."""
    circle: dict[str, Any] = {"name": "one"}
    circle["self"] = circle
    twice = ["x"]
    encoded = encode({"circle": circle, "twice": [twice, twice]})
    assert decode(encoded.text) == {
        "circle": {"name": "one", "self": {"$reduced": "cycle"}},
        "twice": [["x"], ["x"]],
    }
    assert encoded.reduced


class Angry:
    """Refuses everything that could be asked of it."""

    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


class Liar:
    """Not even its class can be asked for."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


class AngryInt(int):
    """A number that cannot be turned into a number."""

    def __int__(self) -> int:
        raise ValueError("no")

    __index__ = __str__ = __repr__ = __int__  # type: ignore[assignment]


class AngryMap(Mapping[str, Any]):
    """A mapping that breaks off."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        yield "first"
        raise OSError("gone")

    def __len__(self) -> int:
        return 2


class Colour(enum.IntEnum):
    """A number with a name."""

    RED = 3


def released() -> memoryview:
    """A view of bytes that is not valid any more."""
    view = memoryview(b"x")
    view.release()
    return view


@pytest.mark.parametrize(
    "make", [Angry, Liar, AngryMap, released, object, lambda: {1, 2}, lambda: iter("x")]
)
def test_objects_that_refuse_cost_no_other(make: Callable[[], Any]) -> None:
    """Whatever a foreign object raises, it is marked, and what is beside it is whole."""
    value = make()
    encoded = encode({"before": 1, "bad": value, "list": [value, "in it"], "after": [2]})
    assert encoded.reduced
    read = decode(encoded.text)
    assert (read["before"], read["after"], read["list"][1]) == (1, [2], "in it")
    assert "$reduced" in read["bad"]


def test_subclasses_of_plain_types_are_what_they_hold() -> None:
    """Enums and other subclasses are kept as their value, whatever their own methods do."""

    class Named(str):
        __slots__ = ()

    values = [Colour.RED, AngryInt(5), Named("x"), bytearray(b"b"), memoryview(b"m")]
    encoded = encode(values)
    assert decode(encoded.text) == [3, 5, "x", b"b", b"m"]
    assert not encoded.reduced


def test_keys_that_are_no_text() -> None:
    """They are shown as text and the value is marked; where two would be one, all are kept."""
    encoded = encode({1: "a", None: "b", (1, "c"): "d"})
    assert encoded.reduced
    assert decode(encoded.text) == {"1": "a", "None": "b", "(1, 'c')": "d"}
    both = {1: "number", "1": "text", ("x", b"y"): 2**70, None: None}
    assert decode(encode(both).text) == both
    halves = {"\ud83e": 1, "\\ud83e": 2}
    assert decode(encode(halves).text) == halves


def test_long_strings_are_left_to_the_store() -> None:
    """Strings from a length on come as holes that know the attribute they belong to."""
    long = "x" * 50
    value = {"a": {"b": [long, "short"]}, "c": long, "d": b"\0" * 60}
    encoded = encode(value, hole_from=50)
    holes = [(piece.key, piece.text[:5]) for piece in encoded.pieces if isinstance(piece, Hole)]
    assert holes == [("a", "xxxxx"), ("c", "xxxxx"), ("d", "AAAAA")]
    assert encoded.text == encode(value).text


def test_holes_in_events_are_known_by_attribute() -> None:
    """In a list of events it is the attribute of the event that counts, not the event's field."""
    events = [{"name": "x", "attributes": {"gen_ai.input.messages": "y" * 20}}]
    encoded = encode(events, hole_from=20, named_to=3)
    assert [p.key for p in encoded.pieces if isinstance(p, Hole)] == ["gen_ai.input.messages"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quote_is_json(text: str) -> None:
    """`quote` gives the JSON string of a text."""
    assert json.loads(quote(text)) == text
