# SPDX-License-Identifier: Apache-2.0
"""Spans and prompts come out of the store exactly as they went in."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_taskhistory.conventions.facts import ModelCall, Said, SpanFacts
from otel_taskhistory.errors import TaskNotFound
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.encode import decode, encode
from otel_taskhistory.spans.record import EventRecord, LinkRecord, OriginRecord, SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.rebuild import Texts, rebuild_prompt, rebuild_span
from otel_taskhistory.store.writer import Entry, Writer
from tests.recorded import PICTURES, data_url

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
MESSAGES = "gen_ai.input.messages"


class Store:
    """A history that is written and, beside that, read in one test."""

    def __init__(self, folder: Path) -> None:
        self._settings = Settings.resolve(directory=folder, durability="normal", environ={})
        self._writer = Writer(self._settings)
        self.connection = sqlite3.Connection(str(self._settings.database), isolation_level=None)
        self._artifacts = ArtifactFolder(self._settings.artifacts)

    def write(self, record: SpanRecord, facts: SpanFacts | None = None) -> None:
        """Store one span."""
        entry = Entry(record, facts or SpanFacts(), seen_ns=1)
        job = self._writer.submit([entry], durable=False)
        assert job.stored
        assert self._writer.counters.last_error is None

    def rebuilt(self, record: SpanRecord) -> dict[str, Any]:
        """The span out of the store."""
        return rebuild_span(self.connection, self.read, record.trace_id, record.span_id)

    def view(self, record: SpanRecord) -> dict[str, Any]:
        """The span as the SQL view shows it."""
        cursor = self.connection.execute(
            "SELECT * FROM spans WHERE trace_id = ? AND span_id = ?",
            (record.trace_id, record.span_id),
        )
        names = [column[0] for column in cursor.description]
        return dict(zip(names, cursor.fetchone(), strict=True))

    def read(self, path: str) -> bytes:
        """The bytes of a picture."""
        return self._artifacts.read(path)

    def picture(self) -> Path:
        """The file of the only picture."""
        ((relative, _),) = self._artifacts.walk()
        return self._artifacts.path(relative)

    def close(self) -> None:
        """Close both connections."""
        self.connection.close()
        self._writer.close()


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """A store in a new folder."""
    with closing(Store(folder)) as store:
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store for one test."""
    with opened(tmp_path / "history") as store:
        yield store


def span(attributes: dict[str, Any], **facts: Any) -> SpanRecord:
    """A span with these attributes."""
    given = {"name": "a span", "start_ns": 1_000, "end_ns": 2_000, **facts}
    return SpanRecord(TRACE, SPAN, None, attributes=attributes, **given)


LONG = "long enough to be stored once and by reference: " + "x" * 300


def test_every_part_of_a_span_comes_back(store: Store) -> None:
    """Ids, times, status, events, links, resource and scope are what they were."""
    record = span(
        {"short": "s", "long": LONG, "number": 2**70, "bytes": b"\xff\x00" * 400, "none": None},
        parent_remote=True,
        kind="CLIENT",
        status_code="ERROR",
        status_message="it broke",
        trace_state="a=b",
        flags=0x301,
        events=(EventRecord("exception", 1_500, {"exception.stacktrace": LONG, "n": 1}, 2),),
        links=(LinkRecord("1" * 32, "2" * 16, "c=d", 1, {"why": LONG}, 3),),
        resource=OriginRecord("", None, "https://example.test", {"service.name": "desk"}, 1),
        scope=OriginRecord("a scope", "1.0", "", {"x": 1.5}, 0),
        dropped_attributes=4,
        dropped_events=5,
        dropped_links=6,
    )
    store.write(record)
    rebuilt = store.rebuilt(record)
    assert decode(rebuilt["attributes"]) == record.attributes
    (event,) = decode(rebuilt["events"])
    assert event["attributes"] == record.events[0].attributes
    (link,) = decode(rebuilt["links"])
    assert link["attributes"] == {"why": LONG}
    assert decode(rebuilt["resource"])["attributes"] == {"service.name": "desk"}
    assert decode(rebuilt["scope"])["name"] == "a scope"
    assert {
        key: rebuilt[key]
        for key in rebuilt
        if key not in ("attributes", "events", "links", "resource", "scope", "marks")
    } == {
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_span_id": None,
        "parent_remote": True,
        "trace_state": "a=b",
        "flags": 0x301,
        "name": "a span",
        "kind": "CLIENT",
        "start_time_unix_nano": 1_000,
        "end_time_unix_nano": 2_000,
        "status_code": "ERROR",
        "status_message": "it broke",
        "dropped_attributes_count": 4,
        "dropped_events_count": 5,
        "dropped_links_count": 6,
        "missing": [],
    }


def test_half_an_emoji_comes_back(store: Store) -> None:
    """Lone surrogates in names and values are escaped in the store, and themselves again here."""
    record = span({"p": "x\ud83ey", "q": "back\\slash"}, name="n\ud83e", status_message="\ude00")
    store.write(record)
    rebuilt = store.rebuilt(record)
    assert (rebuilt["name"], rebuilt["status_message"]) == ("n\ud83e", "\ude00")
    assert decode(rebuilt["attributes"]) == record.attributes


def test_times_beyond_64_bit_come_back(store: Store) -> None:
    """A time that SQLite cannot hold as a number is one again."""
    record = span({}, start_ns=0, end_ns=2**64 - 1)
    store.write(record)
    assert store.rebuilt(record)["end_time_unix_nano"] == 2**64 - 1


def test_a_picture_is_put_back_where_it_was(store: Store) -> None:
    """The view shows references, the rebuilt span the very base64 that was recorded."""
    url = data_url("png_ok.png")
    messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": url}] * 2}])
    record = span({MESSAGES: messages, "shot": f"see {url} and {url}"})
    store.write(record)
    assert decode(store.rebuilt(record)["attributes"]) == record.attributes
    shown = store.view(record)["attributes"]
    assert "iVBOR" not in shown
    assert "artifact:sha256:" in shown
    assert store.picture().read_bytes() == (PICTURES / "png_ok.png").read_bytes()


def test_a_typed_reference_stays_text(store: Store) -> None:
    """A text that only looks like a reference to a picture is not replaced by one."""
    url = data_url("png_ok.png")
    store.write(span({"shot": url}))
    typed = store.view(span({}))["attributes"]
    record = SpanRecord(TRACE, "1" * 16, None, "typed", 1, 2, {"typed": typed + LONG})
    store.write(record)
    assert decode(store.rebuilt(record)["attributes"]) == record.attributes


def test_a_picture_whose_file_is_gone_is_told(store: Store) -> None:
    """Its reference stays in the text, and the result names the file."""
    record = span({"shot": data_url("png_ok.png")})
    store.write(record)
    store.picture().unlink()
    rebuilt = store.rebuilt(record)
    assert rebuilt["attributes"] == store.view(record)["attributes"]
    assert [Path(path).suffix for path in rebuilt["missing"]] == [".png"]


def test_a_prompt_is_rebuilt_with_its_pictures(store: Store) -> None:
    """`rebuild_prompt` gives the messages that were sent, base64 in place."""
    messages = [
        {"role": "system", "parts": [{"type": "text", "content": LONG}]},
        {"role": "user", "parts": [{"type": "text", "content": data_url("png_ok.png")}]},
    ]
    call = ModelCall(1, "succeeded", 1_000, 2_000, prompt=Said(json.dumps(messages), True))
    record = span({})
    store.write(record, SpanFacts(role="step", own=True, step_index=1, model_calls=(call,)))
    (node,) = store.connection.execute("SELECT prompt_node FROM _model_calls").fetchone()
    assert json.loads(rebuild_prompt(store.connection, store.read, node)) == messages


def test_an_unknown_span_is_told(store: Store) -> None:
    """Not a KeyError: the message names trace and span."""
    with pytest.raises(TaskNotFound, match=f"trace {TRACE} has no span {SPAN}"):
        rebuild_span(store.connection, store.read, TRACE, SPAN)


# --- properties -----------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8") | st.just("\0"), max_size=30)
long_texts = st.builds(lambda head, tail: head + LONG + tail, texts, texts)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | long_texts | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "parts": st.lists(
            st.fixed_dictionaries({"type": st.just("text"), "content": texts | long_texts}),
            max_size=3,
        ),
    }
)
spaces = st.sampled_from(["", " ", "\n  ", "\t"])


@st.composite
def message_lists(draw: st.DrawFn) -> str:
    """A JSON list of messages as some library wrote it: its own spacing and escapes."""
    written = [
        json.dumps(message, ensure_ascii=draw(st.booleans()), separators=draw(separators))
        for message in draw(st.lists(messages, min_size=1, max_size=5))
    ]
    opening, before, after = draw(spaces), draw(spaces), draw(spaces)
    return f"{opening}[{before}{f'{after},{before}'.join(written)}{after}]"


separators = st.sampled_from([(",", ":"), (", ", ": ")])
attributes = st.dictionaries(texts, values, max_size=4)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same to the last bit, NaN included."""
    return encode(one).text == encode(other).text


@given(attributes=attributes, raws=st.lists(message_lists(), max_size=3), event=attributes)
@settings(max_examples=60)
def test_any_span_is_rebuilt_exactly_and_the_view_agrees(
    tmp_path_factory: pytest.TempPathFactory,
    attributes: dict[str, Any],
    raws: list[str],
    event: dict[str, Any],
) -> None:
    """Whatever the values, spacing and escapes: rebuilt equals recorded, and SQL equals Python."""
    keyed = {f"gen_ai.messages.{number}": raw for number, raw in enumerate(raws)}
    record = span({**attributes, **keyed}, events=(EventRecord("e", 1_500, event),))
    with opened(tmp_path_factory.mktemp("rebuild") / "history") as store:
        store.write(record)
        rebuilt, view = store.rebuilt(record), store.view(record)
    assert same(decode(rebuilt["attributes"]), record.attributes)
    assert same(decode(rebuilt["events"])[0]["attributes"], event)
    assert {key: view[key] for key in ("attributes", "events", "links", "resource", "scope")} == {
        key: rebuilt[key] for key in ("attributes", "events", "links", "resource", "scope")
    }


@given(raws=st.lists(message_lists(), min_size=1, max_size=4))
@settings(max_examples=40)
def test_the_view_of_prompts_and_python_agree(
    tmp_path_factory: pytest.TempPathFactory, raws: list[str]
) -> None:
    """`model_calls.prompt` is the same list of messages whichever way it is put together."""
    with opened(tmp_path_factory.mktemp("prompts") / "history") as store:
        calls = tuple(
            ModelCall(number, "succeeded", number, number, prompt=Said(raw, structured=True))
            for number, raw in enumerate(raws, start=1)
        )
        facts = SpanFacts(role="step", own=True, step_index=1, model_calls=calls)
        store.write(span({}), facts)
        texts = Texts(store.connection)
        rows = store.connection.execute(
            "SELECT prompt_node, prompt_text FROM _model_calls ORDER BY ordinal"
        ).fetchall()
        python = [texts.said(*row) for row in rows]
        view = [
            row[0]
            for row in store.connection.execute("SELECT prompt FROM model_calls ORDER BY ordinal")
        ]
    assert python == view
    assert [json.loads(prompt or "") for prompt in python] == [json.loads(raw) for raw in raws]


def test_base64_of_the_test_picture_is_canonical() -> None:
    """What the tests above rely on: the picture is one that is taken out."""
    encoded = data_url("png_ok.png").partition(",")[2]
    assert base64.b64encode(base64.b64decode(encoded)).decode() == encoded
