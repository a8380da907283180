# SPDX-License-Identifier: Apache-2.0
"""A span is kept as it was recorded, and plain SQL can read all of it."""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from otel_taskhistory import semconv
from otel_taskhistory.spans.encode import decode, quote, unescape_surrogates
from otel_taskhistory.spans.record import EventRecord, LinkRecord, OriginRecord, SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.rebuild import rebuild_span
from tests.store.deliveries import (
    TRACE,
    agent,
    check,
    data_url,
    message,
    model,
    own_step,
    own_task,
    png,
    public,
    rows,
    span,
    span_id,
    store,
    stored,
    tool,
    write,
)

JSON_COLUMNS = ("attributes", "events", "links", "resource", "scope")


class Refuses:
    """An object that will not be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def deep(levels: int) -> Any:
    """A list within a list within a list."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE

EXACT = {
    "bytes": b"\x00\xff\xfe",
    "nothing": None,
    "empty text": "",
    "true": True,
    "one": 1,
    "one as text": "1",
    "float": 1.0,
    "minus zero": -0.0,
    "beyond 64 bit": 2**63,
    "far beyond": -(10**40),
    "nan": math.nan,
    "infinite": math.inf,
    "nested": {"map": {"deep": [1, [b"x", None], {"a.b": 1}]}, "a": 1, "a.b": 2},
    "mixed": [1, "1", None, 1.5, b"1", False],
    "nul": "before\0after",
    "controls": '\x01\x1f\x7f\x80\u2028\u2029\ufeff\b\f\n\r\t"\\/',
    "astral": "😀 𝔘 \U0010ffff",
    "many lines": "line\n" * 300,
    "dollar": {"$bytes": "not bytes"},
    "dollars": {"$map": {"$int": "1"}, "$": 0},
    "Key 0.002mm": 3,
    "x'); DROP TABLE spans;--": 4,
    "": "an empty name",
    "$": "dollar",
    "$.a[0]": "looks like a path",
    "long name " * 200: "x",
    "empty list": [],
    "empty map": {},
    "long in a list": ["x" * 1000, {"y": "x" * 1000}],
    "long bytes": bytes(range(256)) * 40,
}
BIG = {"ten megabytes": "0123456789" * 2**20, "three of quotes": '"\\\n' * 2**20}
MARKED = {
    "half a character": ("x\ud83ey", "x\ud83ey"),
    "half a character, long": ("\udc00" + "z" * 3000, "\udc00" + "z" * 3000),
    "circle": (CIRCLE, {"self": {"$reduced": "cycle"}}),
    "object": (Refuses(), {"$reduced": "object", "text": "<Refuses: RuntimeError>"}),
    "keys": ({1: "a", b"b": 2}, {"1": "a", "b'b'": 2}),
    "half a key": ({"\ud83e": 1}, {"\\ud83e": 1}),
}
SQLITE_DEPTH = 1000
"""Levels of JSON that SQLite reads."""

JSON_TEXTS = {
    "separators": '[{"role":"user"} ,{"role":"a"} , {"b":1}]',
    "other separators": '[ {"role" : "user" } ,\n {"role":"a"}\n]\n',
    "pretty": json.dumps([message("a" * 300), message("b")] * 3, indent=2),
    "duplicate keys": '[{"a":1,"a":2,"a":"%s"}]' % ("x" * 400),
    "cut": json.dumps([message("a" * 300), message("b" * 300)])[:-30],
    "cut in an escape": '[{"a":"' + "x" * 300 + "\\u00",
    "no json": "[{]" + "x" * 300,
    "no list": '{"a":[{"b":1}]}' + " " * 300,
    "a list of texts": json.dumps(["a" * 300, "b"]),
    "a mixed list": json.dumps([{"a": "a" * 300}, 1, {"b": 2}]),
    "slashes": r'[{"url":"http:\/\/a\/' + "b" * 300 + r'"}]',
    "escapes": r'[{"a":"caf\u00e9 \ud83d\ude00 \u0000 \u2028' + "c" * 300 + '"}]',
    "half an escape": r'[{"a":"\ud83e' + "d" * 300 + r'"},{"b":"\ud83e"}]',
    "bare nan": '[{"a":NaN,"b":"' + "e" * 300 + '"},{"c":-Infinity}]',
    "raw controls": '[{"a":"line\nline\x01\0nul' + "f" * 300 + '"}]',
    "short nul": '[{"a":"\0"},{"b":"' + "g" * 300 + '"}]',
    "deep": "[" + '{"a":' * 3000 + "1" + "}" * 3000 + "]",
    "deep but fine": "[" + '{"a":' * 200 + "1" + "}" * 200 + "]",
    "empty": "[" + " " * 300 + "]",
    "spaces": "[" + "\u00a0" * 300 + '{"a":1}]',
    "picture": json.dumps([{"u": data_url(png(1))}, {"u": json.dumps({"v": data_url(png(2))})}]),
}


def kept(directory: Path, record: SpanRecord) -> dict[str, Any]:
    """The row of ``spans`` after the record was stored between two others."""
    before, after = span(2, 1, name="before"), span(3, 1, name="after")
    database = stored(directory, [[span(1), before, record, after]])
    found = rows(database, "SELECT * FROM spans ORDER BY span_id")
    assert [row["name"] for row in found][:3] == ["span 1", "before", "after"]
    check(database)
    readable(database)
    return found[3]


def readable(database: Path) -> None:
    """Every view can be read, and SQLite's own JSON functions accept every JSON column."""
    for name in public(database):
        for row in rows(database, f"SELECT * FROM {name}"):
            assert row
    for name in JSON_COLUMNS:
        (bad,) = rows(database, f"SELECT count(*) AS n FROM spans WHERE NOT json_valid({name})")
        assert bad == {"n": 0}
    rows(database, "SELECT json_extract(attributes, '$.a') FROM spans")
    for event in rows(database, "SELECT json_valid(detail) AS ok FROM timeline"):
        assert event["ok"]


def same(one: Any, other: Any) -> bool:
    """Equal in type as well, NaN to itself."""
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_every_value_comes_back(tmp_path: Path) -> None:
    """Values of every kind are in the view ``spans`` as they were, and nothing is marked."""
    events = (EventRecord("happened", 7, EXACT, 3),)
    links = (LinkRecord("ab" * 16, "cd" * 8, "a=b", 1, EXACT, 2),)
    origin = OriginRecord("lib", "1", "https://example.org", EXACT)
    row = kept(
        tmp_path,
        span(
            9, 1, attributes=EXACT | BIG, events=events, links=links, resource=origin, scope=origin
        ),
    )
    assert row["marks"] is None
    assert same(decode(row["attributes"]), EXACT | BIG)
    (event,) = decode(row["events"])
    assert (event["name"], event["time_unix_nano"]) == ("happened", 7)
    assert event["dropped_attributes_count"] == 3
    assert same(event["attributes"], EXACT)
    (link,) = decode(row["links"])
    assert (link["trace_id"], link["span_id"]) == ("ab" * 16, "cd" * 8)
    assert (link["trace_state"], link["flags"]) == ("a=b", 1)
    assert same(link["attributes"], EXACT)
    for name in ("resource", "scope"):
        assert same(decode(row[name])["attributes"], EXACT)
        assert decode(row[name])["name"] == "lib"


@pytest.mark.parametrize("name", MARKED)
def test_what_has_no_form_is_marked(tmp_path: Path, name: str) -> None:
    """What cannot be kept as it is has a marker in its place, and the row says where."""
    value, expected = MARKED[name]
    attributes = {"a": 1, name: value, "whole": EXACT["nested"]}
    row = kept(tmp_path, span(9, 1, attributes=attributes))
    assert json.loads(row["marks"]) == ["attributes"]
    assert decode(row["attributes"]) == {"a": 1, name: expected, "whole": EXACT["nested"]}


def test_deep_nesting_is_cut_and_marked(tmp_path: Path) -> None:
    """2000 levels cost the span nothing else."""
    row = kept(tmp_path, span(9, 1, attributes={"deep": deep(2000), "beside": "whole"}))
    assert json.loads(row["marks"]) == ["attributes"]
    assert decode(row["attributes"])["beside"] == "whole"
    assert '{"$reduced":"depth"}' in row["attributes"]


def test_half_characters_everywhere(tmp_path: Path) -> None:
    """In names, keys, messages, states: the row is there, and what was half is marked."""
    half = "a\\b\ud83e"
    record = span(
        9,
        1,
        name=half,
        attributes={half: half, "gen_ai.agent.name": half, "taskhistory.task.goal": half},
        events=(EventRecord(half, 1, {half: [half]}),),
        status_code="ERROR",
        status_message=half,
        trace_state="a=" + half,
        resource=OriginRecord(attributes={half: half}),
        scope=OriginRecord(name=half),
    )
    row = kept(tmp_path, record)
    assert set(json.loads(row["marks"])) == {
        *("attributes", "events", "name", "resource", "scope", "status_message", "trace_state")
    }
    assert unescape_surrogates(row["name"]) == half
    assert unescape_surrogates(row["status_message"]) == half
    assert decode(row["attributes"])["gen_ai.agent.name"] == half
    assert decode(row["events"])[0]["name"] == half


@pytest.mark.parametrize("name", JSON_TEXTS)
@pytest.mark.parametrize("make", [own_step, model])
def test_json_is_not_written_anew(tmp_path: Path, name: str, make: Any) -> None:
    """Texts that are JSON, or nearly, are the same to the last character in the attributes."""
    raw = JSON_TEXTS[name]
    said = {
        semconv.GEN_AI_INPUT_MESSAGES: raw,
        semconv.GEN_AI_OUTPUT_MESSAGES: raw,
        semconv.GEN_AI_SYSTEM_INSTRUCTIONS: raw,
        "other": raw,
    }
    database = stored(tmp_path, [[own_task(), make(2, 1, attributes=said)]])
    check(database)
    readable(database)
    with closing(sqlite3.connect(database)) as connection:
        folder = ArtifactFolder(tmp_path / "artifacts")
        again = rebuild_span(
            connection, lambda path: folder.path(path).read_bytes(), TRACE, span_id(2)
        )
    attributes = decode(again["attributes"])
    assert {key: attributes[key] for key in said} == said
    assert again["missing"] == []
    assert again["marks"] is None


LISTS = [name for name, raw in JSON_TEXTS.items() if raw.strip().startswith("[")]


@pytest.mark.parametrize("name", LISTS)
def test_prompts_that_are_lists_are_strict_json(tmp_path: Path, name: str) -> None:
    """A prompt of messages can be read with SQL's JSON functions; one that is none stays a text."""
    raw = JSON_TEXTS[name]
    database = stored(tmp_path, [[own_task(), own_step(2, prompt=raw)]])
    (step,) = rows(database, "SELECT prompt, json_valid(prompt) AS ok FROM steps")
    try:
        said = json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        assert step == {"prompt": raw, "ok": 0}
        return
    if raw.count("{") > SQLITE_DEPTH:  # newer Pythons read what SQLite does not
        assert step == {"prompt": raw, "ok": 0}
        return
    if not all(isinstance(one, dict) for one in said) or not said:
        assert step["prompt"] == raw
        return
    assert step["ok"]
    (counted,) = rows(database, "SELECT json_array_length(prompt) AS n FROM steps")
    assert counted["n"] == len(said)
    if name not in ("bare nan", "half an escape", "picture"):
        assert json.loads(step["prompt"]) == said


@given(st.text(st.characters()))
@example("\0")
@example("x" * 300)
@example('"\\' * 200)
@settings(max_examples=60)
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Whatever a text is, short or long, alone or in a message, SQL gives the very same."""
    record = span(
        2,
        1,
        attributes={
            "text": text,
            "long": text * 40,
            "messages": json.dumps([{"a": text * 40}, {"b": text}], ensure_ascii=False),
            "ascii": json.dumps([{"a": text * 40}, {"b": text}]),
        },
    )
    database = stored(tmp_path_factory.mktemp("history"), [[record]])
    (row,) = rows(database, "SELECT attributes FROM spans")
    assert decode(row["attributes"]) == record.attributes


def test_sqlite_quotes_as_we_do() -> None:
    """SQLite's json_quote, by which views fill in texts, is our `quote` for every character."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for first in range(0, sys.maxunicode + 1, 4096):
            text = "".join(
                chr(code) for code in range(first, first + 4096) if not 0xD800 <= code < 0xE000
            )
            (quoted,) = connection.execute("SELECT json_quote(?)", (text,)).fetchone()
            assert quoted == quote(text)
        for code in range(128):
            (quoted,) = connection.execute("SELECT json_quote(?)", (f"a{chr(code)}b",)).fetchone()
            assert quoted == quote(f"a{chr(code)}b")


def test_times_of_any_size(tmp_path: Path) -> None:
    """Times are kept as they came and shown within the calendar; a clock set back is no century."""
    odd = [
        (0, 0),
        (2**64 - 1, 2**64 - 1),
        (-5, 3),
        (10**19, 5),
        (1_790_000_000_000_000_000, 1_780_000_000_000_000_000),
    ]
    records = [
        replace(agent(number, None), start_ns=start, end_ns=end, trace_id=f"{number:032x}")
        for number, (start, end) in enumerate(odd, start=1)
    ]
    database = stored(tmp_path, [records])
    check(database)
    found = rows(database, "SELECT start_time_unix_nano AS s, end_time_unix_nano AS e FROM spans")
    assert [(int(row["s"]), int(row["e"])) for row in found] == odd
    for task in rows(database, "SELECT * FROM tasks"):
        assert task["duration_ms"] >= 0
        assert task["started_at"].endswith("Z")


def test_values_in_the_projection_are_safe(tmp_path: Path) -> None:
    """Half characters, NUL and odd types in what is read by name never hide a row."""
    half = "x\ud83e\0y"
    odd: dict[str, Any] = {
        semconv.GEN_AI_TOOL_NAME: half,
        semconv.GEN_AI_TOOL_CALL_ID: half,
        semconv.GEN_AI_TOOL_CALL_ARGUMENTS: {half: [half, b"x", math.nan]},
        semconv.GEN_AI_TOOL_CALL_RESULT: half * 200,
        semconv.GEN_AI_AGENT_NAME: half,
        semconv.GEN_AI_CONVERSATION_ID: half,
        semconv.GEN_AI_RESPONSE_MODEL: half,
        semconv.GEN_AI_RESPONSE_FINISH_REASONS: [half],
        semconv.TASKHISTORY_TASK_GOAL: half * 200,
        semconv.TASKHISTORY_TASK_RESULT: half,
        semconv.TASKHISTORY_STEP_RESULT: half * 200,
        semconv.TASKHISTORY_TASK_KEY: half,
        semconv.ERROR_TYPE: half,
        semconv.GEN_AI_USAGE_INPUT_TOKENS: 2**62,
        semconv.GEN_AI_USAGE_OUTPUT_TOKENS: "12",
    }
    failed = {"status_code": "ERROR", "status_message": half}
    with store(tmp_path) as writer:
        for number in range(3):
            trace = f"{number + 1:032x}"
            records = [
                own_task(1, attributes=odd, trace_id=trace, **failed),
                own_step(
                    2, 1, prompt=half, decision=half, attributes=odd, trace_id=trace, **failed
                ),
                agent(3, 1, trace_id=trace, attributes=odd, **failed),
                model(4, 3, trace_id=trace, attributes=odd, prompt=half, decision=half),
                tool(5, 3, trace_id=trace, attributes=odd, **failed),
            ]
            for batch in ([records], [[one] for one in records], [records[::-1]])[number]:
                write(writer, batch)
    check(tmp_path / "history.db")
    readable(tmp_path / "history.db")
    (first, *others) = (
        {
            **row,
            "task_id": None,
            "trace_id": None,
            "id": None,
            "trace": None,
            "root": None,
            "committed_ns": None,
            "bytes": None,
        }
        for row in rows(tmp_path / "history.db", "SELECT * FROM tasks")
    )
    assert all(other == first for other in others)
    assert first["goal"] == "x\\ud83e\0y" * 200
