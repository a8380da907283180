# SPDX-License-Identifier: Apache-2.0
"""What the ledger holds is read back as the record that came in."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_taskhistory.spans.encode import encode
from otel_taskhistory.spans.record import (
    EventRecord,
    LinkRecord,
    LogRecord,
    OriginRecord,
    SpanRecord,
)
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.importing import import_records
from otel_taskhistory.store.readback import Readback, ReadSpan
from tests.otlp import logs_in, records_in
from tests.store.deliveries import TRACE, data_url, message, model, png, rows, span, span_id, store
from tests.store.test_lossless import BIG, EXACT, JSON_TEXTS

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
FILES = sorted(file for file in CORPUS.glob("*.jsonl") if ".logs." not in file.name)


def as_it_comes_back(value: Any) -> Any:
    """The documented reductions: sequences are lists, NaN is told by its name."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: as_it_comes_back(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: as_it_comes_back(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_it_comes_back(item) for item in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down."""
    one, other = as_it_comes_back(one), as_it_comes_back(other)
    return bool(one == other) and encode(one).text == encode(other).text


def read_back(directory: Path) -> list[ReadSpan]:
    """All spans of a history, in the order in which they came."""
    folder = ArtifactFolder(directory / "artifacts")
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        source = Readback(connection, folder.read)
        numbers = [row[0] for row in connection.execute("SELECT id FROM _spans ORDER BY id")]
        found = [source.span(number) for number in numbers]
        assert source.span(10**9) is None
    return [one for one in found if one is not None]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_real_spans(tmp_path: Path, file: Path) -> None:
    """Spans of real instrumentations are equal to what came in, pictures and all."""
    records = list({(one.trace_id, one.span_id): one for one in records_in(file)}.values())
    with store(tmp_path) as writer:
        import_records(writer, records)
    found = read_back(tmp_path)
    assert len(found) == len(records)
    for back, record in zip(found, records, strict=True):
        assert same(back.record, record)
        assert not back.missing


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*.logs.jsonl")), ids=lambda file: file.stem)
def test_real_log_records(tmp_path: Path, file: Path) -> None:
    """So are log records that have a name, by span and in the order of their time."""
    records = [one for one in logs_in(file) if one.trace_id and one.span_id and one.event_name]
    with store(tmp_path) as writer:
        import_records(writer, records)
    folder = ArtifactFolder(tmp_path / "artifacts")
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection:
        source = Readback(connection, folder.read)
        for trace_id, one in {(log.trace_id, log.span_id) for log in records}:
            expected = [log for log in records if (log.trace_id, log.span_id) == (trace_id, one)]
            expected.sort(key=lambda log: (log.time_ns or log.observed_ns, log.observed_ns))
            assert same(source.events(trace_id, one), expected)
    assert records


def kept(directory: Path, record: SpanRecord) -> ReadSpan:
    """A record after it was written."""
    with store(directory) as writer:
        import_records(writer, [record])
    (back,) = read_back(directory)
    return back


def test_every_kind_of_value_in_every_place(tmp_path: Path) -> None:
    """Attributes, events, links, resource, scope, and texts that look like JSON."""
    origin = OriginRecord("lib", None, "https://example.org", EXACT, 4)
    record = SpanRecord(
        trace_id=TRACE,
        span_id=span_id(1),
        parent_span_id=span_id(7),
        parent_remote=True,
        name="n\ud83e\\",
        kind="CONSUMER",
        start_ns=2**70,
        end_ns=2**71,
        attributes=EXACT | BIG | JSON_TEXTS,
        events=(EventRecord("e", 1, EXACT | JSON_TEXTS, 3), EventRecord("", -5)),
        links=(LinkRecord("x", "", "a=b", 5, EXACT, 2),),
        resource=origin,
        scope=replace(origin, version="2"),
        status_code="ERROR",
        status_message="\udc00",
        trace_state="a=\ud800",
        flags=0x301,
        dropped_attributes=1,
        dropped_events=2,
        dropped_links=3,
    )
    assert same(kept(tmp_path, record).record, record)


def test_what_has_no_form_comes_back_as_its_marker(tmp_path: Path) -> None:
    """And keys as texts: that is all that is not equal."""
    record = span(1, attributes={"o": object(), "k": {1: 2}, "t": (1, (2,))})
    attributes = kept(tmp_path, record).record.attributes
    assert attributes["o"]["$reduced"] == "object"
    assert attributes["k"] == {"1": 2}
    assert attributes["t"] == [1, [2]]


def test_a_picture_that_has_gone(tmp_path: Path) -> None:
    """Its place is told, and that the record is not whole."""
    prompt = [message(data_url(png(1, 300)))]
    with store(tmp_path) as writer:
        import_records(writer, [model(1, None, prompt=prompt), model(2, 1, prompt=prompt), span(3)])
    (path,) = [row["path"] for row in rows(tmp_path / "history.db", "SELECT path FROM _artifacts")]
    (tmp_path / "artifacts" / path).unlink()
    torn, also_torn, other = read_back(tmp_path)
    assert torn.missing
    assert also_torn.missing
    assert "artifact:sha256:" in torn.record.attributes["gen_ai.input.messages"]
    assert not other.missing


texts = st.text(st.characters(), max_size=20) | st.sampled_from(list(JSON_TEXTS.values()))
names = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=400) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
attributes = st.dictionaries(names, values, max_size=4)
times = st.integers(-(2**70), 2**70)
counts = st.integers(0, 2**32 - 1)
origins = st.builds(
    OriginRecord, names, st.none() | names, names, attributes, dropped_attributes=counts
)
spans = st.builds(
    SpanRecord,
    trace_id=st.just(TRACE),
    span_id=st.just(span_id(1)),
    parent_span_id=st.none() | st.just(span_id(2)),
    name=texts,
    start_ns=times,
    end_ns=st.none() | times,
    attributes=attributes,
    events=st.lists(st.builds(EventRecord, texts, times, attributes, counts), max_size=2).map(
        tuple
    ),
    links=st.lists(
        st.builds(LinkRecord, names, names, names, counts, attributes, counts), max_size=2
    ).map(tuple),
    resource=origins,
    scope=origins,
    kind=st.sampled_from(["CLIENT", "UNSPECIFIED"]),
    status_code=st.sampled_from(["UNSET", "OK", "ERROR"]),
    status_message=st.none() | texts,
    trace_state=texts,
    flags=counts,
    parent_remote=st.booleans(),
    dropped_attributes=counts,
    dropped_events=counts,
    dropped_links=counts,
)
logs = st.builds(
    LogRecord,
    trace_id=st.just(TRACE),
    span_id=st.just(span_id(1)),
    event_name=texts.filter(bool),
    body=values,
    attributes=attributes,
    time_ns=times,
    observed_ns=times,
    severity_number=st.integers(0, 24),
    severity_text=texts,
    flags=counts,
    dropped_attributes=counts,
    resource=origins,
    scope=origins,
)


@given(spans, st.lists(logs, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_record(
    tmp_path_factory: pytest.TempPathFactory, record: SpanRecord, said: list[LogRecord]
) -> None:
    """Whatever a span and its log records say, the ledger gives them back."""
    directory = tmp_path_factory.mktemp("history")
    with store(directory) as writer:
        import_records(writer, [record, *said])
    (back,) = read_back(directory)
    assert same(back.record, record)
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        folder = ArtifactFolder(directory / "artifacts")
        found = Readback(connection, folder.read).events(TRACE, span_id(1))
    distinct = {encode(as_it_comes_back(one)).text for one in said}
    assert {encode(as_it_comes_back(one)).text for one in found} == distinct
    moments = [(one.time_ns or one.observed_ns, one.observed_ns) for one in found]
    assert moments == sorted(moments)
