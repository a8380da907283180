# SPDX-License-Identifier: Apache-2.0
"""No value can make the conversion raise, and what has no exact form is marked and reported."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import io
import itertools
import json
import pathlib
import sqlite3
import sys
import types
import unittest.mock
import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pydantic
import pytest
from PIL import Image

from otel_taskhistory import semconv
from otel_taskhistory.recording.messages import (
    convert_decision,
    convert_prompt,
    convert_usage,
    dump_value,
    restore_prompt,
)


class Refuses:
    """Raises whatever is asked of it."""

    error: type[Exception] = ValueError

    def __getattribute__(self, name: str) -> Any:
        raise object.__getattribute__(self, "error")(name)

    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


class RefusesDeeply(Refuses):
    error = RecursionError


class LiesAboutItsClass:
    @property
    def __class__(self) -> Any:
        raise OSError

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Endless:
    """Each attribute leads to a new object, as in a browser's object graph."""

    def __init__(self) -> None:
        self.number = 1

    @property
    def __dict__(self) -> Any:
        return {"next": Endless()}


class BadItems(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")


class BadText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError

    def encode(self, *args: Any) -> bytes:
        raise ValueError


def cycle() -> list[Any]:
    """A list that holds itself."""
    loop: list[Any] = ["before"]
    loop.append(loop)
    return loop


def deep(levels: int) -> list[Any]:
    """A list in a list, and so on."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def namespace_of_itself() -> types.SimpleNamespace:
    """An object that has itself as an attribute."""
    space = types.SimpleNamespace(name="x")
    space.me = space
    return space


HOSTILE: dict[str, Callable[[], Any]] = {
    "refuses": Refuses,
    "recursion error": RefusesDeeply,
    "class raises": LiesAboutItsClass,
    "endless": Endless,
    "mock": unittest.mock.MagicMock,
    "bad items": lambda: BadItems(a=1),
    "cycle": cycle,
    "deep": lambda: deep(500),
    "too deep for the interpreter": lambda: deep(5_000),
    "generator": lambda: (n for n in [1]),
    "endless iterator": itertools.count,
    "file": io.BytesIO,
    "function": lambda: deep,
    "class": lambda: Refuses,
    "module": lambda: json,
    "exception": lambda: ValueError("x"),
    "nan": lambda: float("nan"),
    "endless integer": lambda: 10**5000,
    "surrogate": lambda: "x\ud83ey\\",
    "surrogate key": lambda: {"\ud83e": 1, "\\ud83e": 2},
    "lock": lambda: sys.stdout,
    "bad text": lambda: [BadText("\ud83e")],
    "ellipsis": lambda: ...,
    "namespace of itself": namespace_of_itself,
}


def check_json(text: str) -> Any:
    """Parse it as strictly as every reader must be able to."""
    text.encode("utf-8")
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute("SELECT json_valid(?)", (text,)).fetchone() == (1,)
        assert database.execute("SELECT json_extract(?, '$[0]') IS NULL", (text,)).fetchone()

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_value_is_marked_and_costs_nothing_else(name: str) -> None:
    """Wherever it stands in a prompt, the rest of the prompt is there and the loss is reported."""
    make = HOSTILE[name]
    for entry in (
        make(),
        {"role": "user", "content": make()},
        {"role": "user", "content": [{"type": "text", "text": make()}]},
        {"role": "user", "content": "x", "extra": {"deep": [make()]}},
    ):
        prompt = [{"role": "system", "content": "Be brief."}, entry, "after"]
        recorded = convert_prompt(prompt, system=make(), tools=[make()])
        messages = check_json(recorded.messages)
        assert [messages[0]["parts"], messages[2]["parts"]] == [
            [{"type": "text", "content": "Be brief."}],
            [{"type": "text", "content": "after"}],
        ]
        assert recorded.reduced == (
            semconv.GEN_AI_INPUT_MESSAGES,
            semconv.GEN_AI_SYSTEM_INSTRUCTIONS,
            semconv.GEN_AI_TOOL_DEFINITIONS,
        )
        assert isinstance(check_json(recorded.system or ""), list)
        assert isinstance(check_json(recorded.tools or ""), list)
        assert len(restore_prompt(recorded.messages)) == 3
        check_json(convert_prompt(entry).messages)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_is_recorded(name: str) -> None:
    """As a decision, alone or inside one, it is one message, reported as reduced."""
    make = HOSTILE[name]
    message = {"role": "assistant", "content": "ok", "extra": make()}
    for reply in (make(), [make()], message, {"choices": [{"message": message}]}):
        decision = convert_decision(reply, usage=make(), finish_reason=make())
        (recorded,) = check_json(decision.messages)
        assert recorded["role"] == "assistant"
        assert decision.reduced == (semconv.GEN_AI_OUTPUT_MESSAGES,)
        assert decision.usage == {}
    assert recorded["parts"] == [{"type": "text", "content": "ok"}]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_result_has_a_text(name: str) -> None:
    """Results and arguments become text with the loss reported."""
    text, reduced = dump_value({"result": HOSTILE[name](), "kept": "here"})
    assert reduced
    assert check_json(text)["kept"] == "here"
    check_json(json.dumps(dump_value(HOSTILE[name]())[0]))


def test_an_iterator_is_left_to_the_agent() -> None:
    """A generator in a prompt is named, not read: the agent still gets all of it."""
    stream = (chunk for chunk in ["a", "b"])
    recorded = convert_prompt(
        [{"role": "user", "content": stream}, stream], system=stream, tools=stream
    )
    convert_decision(stream)
    dump_value(map(str, stream))
    assert list(stream) == ["a", "b"]
    assert recorded.messages.count('"taskhistory.unreadable": "generator"') == 2
    assert recorded.tools == '[{"taskhistory.unreadable": "generator"}]'


def test_lone_surrogates_are_escaped_in_their_string_only() -> None:
    """SQLite can read the text; the other strings are as they were; the escape can be undone."""
    prompt = [
        {"role": "user", "content": "half \ud83e and \\d"},
        {"role": "user", "content": "whole 😀 and \\d and \\ud83e"},
    ]
    recorded = convert_prompt(prompt)
    with closing(sqlite3.connect(":memory:")) as database:
        query = "SELECT json_extract(?, '$[0].parts[0].content')"
        (text,) = database.execute(query, (recorded.messages,)).fetchone()
    assert text == "half \\ud83e and \\\\d"
    assert json.loads(recorded.messages)[1]["parts"][0]["content"] == prompt[1]["content"]
    assert restore_prompt(recorded.messages) == prompt
    assert recorded.reduced == (semconv.GEN_AI_INPUT_MESSAGES,)
    alone = convert_prompt("half \ud83e")
    assert alone.text
    assert '"content": "half \\\\ud83e"' in alone.messages
    assert restore_prompt(alone.messages, alone.text) == "half \ud83e"
    assert dump_value("a\\b\ud83e") == ("a\\\\b\\ud83e", True)
    assert dump_value("a\\b\\ud83e") == ("a\\b\\ud83e", False)


def test_nul_nan_and_long_integers() -> None:
    """NUL stays; what JSON has no number for becomes a string, and only that is reduced."""
    assert convert_prompt("a\0b").messages.count("a\\u0000b") == 1
    assert dump_value([float("nan"), float("inf"), -float("inf"), 10**400, 0.1]) == (
        f'["NaN", "Infinity", "-Infinity", {10**400}, 0.1]',
        True,
    )
    assert dump_value([10**400]) == (f"[{10**400}]", False)


def test_cycles_and_depth_keep_what_is_above() -> None:
    """A cycle is cut where it closes; nesting beyond 200 is cut there; both say so."""
    assert dump_value(cycle()) == ('["before", {"taskhistory.unreadable": "a cycle"}]', True)
    text, reduced = dump_value(deep(300))
    assert reduced
    assert text.count("[") == 200
    assert '{"taskhistory.unreadable": "nested too deep"}' in text
    assert dump_value(deep(190)) == (json.dumps(deep(190)), False)
    shared = ["twice"]
    assert dump_value([shared, shared]) == ('[["twice"], ["twice"]]', False)


def test_a_deep_stack_of_the_agent_costs_depth_only() -> None:
    """Near the recursion limit, the outer levels are still recorded."""

    def at(frames: int) -> Any:
        if frames:
            return at(frames - 1)
        value = {"role": "user", "content": deep(150)}
        return convert_prompt([value]), convert_decision(value), dump_value(deep(150))

    used = len(list(_frames()))
    for left in range(60, 300, 40):
        prompt, decision, (text, _) = at(sys.getrecursionlimit() - used - left)
        assert json.loads(prompt.messages)[0]["role"] == "user"
        assert json.loads(decision.messages)[0]["role"] == "user"
        json.loads(text)


def _frames() -> Any:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]


class DumpRaises(pydantic.BaseModel):
    action: str = "click"

    def model_dump(self, **options: Any) -> dict[str, Any]:
        raise RecursionError


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = 1


class ToDict:
    def to_dict(self) -> dict[str, Any]:
        return {"type": "text", "text": "hi"}


class Choice(pydantic.BaseModel):
    action: str
    done: bool = False


class Numbers:
    """Like a NumPy array."""

    dtype = "uint8"

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers
        self.size = len(numbers)
        self.shape = (len(numbers),)

    def tolist(self) -> list[int]:
        return list(self._numbers)

    def tobytes(self) -> bytes:
        return bytes(self._numbers)


EXACT: dict[str, tuple[Any, Any]] = {
    "tuple": ((1, "a"), [1, "a"]),
    "named tuple": (collections.namedtuple("Pair", "a b")(1, 2), [1, 2]),  # noqa: PYI024
    "set": ({"b", "a"}, ["a", "b"]),
    "deque": (collections.deque([1]), [1]),
    "keys": ({"a": 1}.keys(), ["a"]),
    "uuid": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "datetime": (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00+00:00"),
    "date": (datetime.date(2026, 1, 2), "2026-01-02"),
    "path": (pathlib.PurePosixPath("/a/b"), "/a/b"),
    "decimal": (decimal.Decimal("1.10"), "1.10"),
    "bytes": (b"\xff\xfe\0", {"taskhistory.bytes": "//4A"}),
    "bytearray": (bytearray(b"a"), {"taskhistory.bytes": "YQ=="}),
    "enum": (Color.RED, "red"),
    "int enum": (Level.LOW, 1),
    "str enum": ([Word.YES], ["yes"]),
    "integer keys": ({1: "a", None: "b", 1.5: 0}, {"1": "a", "null": "b", "1.5": 0}),
    "colliding keys": ({1: "a", "1": "b"}, {"taskhistory.items": [[1, "a"], ["1", "b"]]}),
    "tuple keys": ({(1, 2): "a"}, {"[1, 2]": "a"}),
    "dataclass": (Point(1, 2.5), {"x": 1, "y": 2.5}),
    "slots": (Slotted(), {"a": 1}),
    "to_dict": (ToDict(), {"type": "text", "text": "hi"}),
    "pydantic model": (Choice(action="go"), {"action": "go", "done": False}),
    "model_dump raises": (DumpRaises(), {"action": "click"}),
    "namespace": (types.SimpleNamespace(a=[1], _b=2), {"a": [1]}),
    "array": (Numbers(1, 2), [1, 2]),
    "long array": (
        Numbers(*([7] * 10_001)),
        {
            "taskhistory.array": {"dtype": "uint8", "shape": [10_001]},
            "taskhistory.bytes": "BwcH" * 3333 + "Bwc=",
        },
    ),
    "mapping": (types.MappingProxyType({"a": 1}), {"a": 1}),
    "big integer": (2**70, 2**70),
}


@pytest.mark.parametrize("name", EXACT)
def test_values_that_have_a_json_form_are_not_reduced(name: str) -> None:
    """Values of Python's own classes and of common libraries have one exact form, anywhere."""
    value, plain = EXACT[name]
    text, reduced = dump_value([value])
    assert (json.loads(text), reduced) == ([plain], False)
    prompt = [{"role": "user", "content": [{"type": "text", "text": "x"}], "extra": value}]
    recorded = convert_prompt(prompt)
    assert restore_prompt(recorded.messages) == [{**prompt[0], "extra": plain}]
    assert recorded.reduced == ()


def test_objects_without_a_json_form_read_the_same_in_every_process() -> None:
    """An object that can only be shown is shown without its address, so its text is stable."""

    class Handle:
        pass

    assert "0x" in repr(Handle())
    first, reduced = dump_value(Handle())
    assert reduced
    assert first == dump_value(Handle())[0]
    assert "Handle" in first
    assert "0x" not in first
    assert json.loads(dump_value(deep)[0])["name"] == "deep"


def test_a_pillow_image_is_kept_as_the_picture_that_is_sent() -> None:
    """Gemini's SDK takes images as objects; the record has the PNG."""
    image = Image.new("RGB", (4, 3), "red")
    recorded = convert_prompt(["what is this?", image])
    text, picture = (message["parts"][0] for message in json.loads(recorded.messages))
    assert text["content"] == "what is this?"
    assert (picture["type"], picture["mime_type"]) == ("blob", "image/png")
    assert picture["content"].startswith("iVBORw0KGgo")
    assert recorded.reduced == ()


def test_bytes_in_a_gemini_part_are_a_blob() -> None:
    """Bytes where the SDK takes them are the picture's base64, and come back marked as bytes."""
    part = {"inline_data": {"mime_type": "image/png", "data": b"\x89PNG\xff\xfe"}}
    recorded = convert_prompt([{"role": "user", "parts": [part]}])
    (message,) = json.loads(recorded.messages)
    assert message["parts"][0]["content"] == "iVBOR//+"
    (restored,) = restore_prompt(recorded.messages)
    assert restored["parts"][0]["inline_data"]["data"] == {"taskhistory.bytes": "iVBOR//+"}


def test_our_own_keys_in_a_message_are_content() -> None:
    """A recorded message, sent as a message, is not taken for the original it stands for."""
    recorded = json.loads(convert_prompt([{"role": "user", "content": "hi"}]).messages)
    again = convert_prompt(recorded)
    assert restore_prompt(again.messages) == recorded


def test_usage_of_nonsense_is_empty() -> None:
    """Counts that are no counts are left out."""
    nonsense = {
        "input_tokens": "12",
        "output_tokens": -1,
        "total_tokens": True,
        "prompt_tokens": 1e99,
    }
    assert convert_usage(nonsense) == {}
    for value in (None, 5, "x", [], object(), Refuses()):
        assert convert_usage(value) == {}
