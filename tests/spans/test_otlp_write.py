# SPDX-License-Identifier: Apache-2.0
"""Records as OTLP and back, in JSON and in protobuf: nothing is lost, and nothing is believed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from otel_taskhistory.spans.otlp import Given, items_in
from otel_taskhistory.spans.otlp_protobuf import (
    logs_from_protobuf,
    logs_to_protobuf,
    spans_from_protobuf,
    spans_to_protobuf,
)
from otel_taskhistory.spans.otlp_write import known_of, logs_document, spans_document, to_line
from otel_taskhistory.spans.record import (
    EventRecord,
    LinkRecord,
    LogRecord,
    OriginRecord,
    SpanRecord,
)
from tests.store.deliveries import TRACE, span, span_id

VALUES: dict[str, Any] = {
    "bytes": b"\xff\x00",
    "beyond 64 bit": -(2**80),
    "edges": [2**63 - 1, -(2**63), 2**63],
    "beyond what Python reads": 10**5_000,
    "not finite": [math.inf, -math.inf],
    "like each other": [True, 1, 1.0, "1", None, "", [], {}],
    "half an emoji": "n\ud83ey",
    "half\ud83e": {"\udc00": "v"},
    "nul": "a\0b",
    "": "no name",
    "like a tag": {"$bytes": "x", "$map": {"$reduced": "cycle"}},
    "deep": [[[{"a": [{"b": None}]}]]],
    "small": [5e-324, -0.0, 1e300],
}

EVERYTHING = span(
    1,
    7,
    attributes=VALUES,
    events=(EventRecord("e\ud83e", 5, VALUES, 3), EventRecord("", 0)),
    links=(LinkRecord("f" * 32, "e" * 16, "a=b", 0x301, VALUES, 2),),
    resource=OriginRecord("", None, "http://schema", VALUES, 4),
    scope=OriginRecord("scope", "1.2", "http://other", VALUES, 5),
    kind="CLIENT",
    status_code="ERROR",
    status_message="m\udc00\\",
    trace_state="a=b",
    flags=0x301,
    parent_remote=True,
    dropped_attributes=6,
    dropped_events=7,
    dropped_links=8,
)
LOG = LogRecord(
    *(TRACE, span_id(1), "event\ud83e", VALUES, VALUES, 2**70, 5, 9, "INFO", 1, 2),
    resource=EVERYTHING.resource,
    scope=EVERYTHING.scope,
)


def given(document: Any) -> list[Given]:
    """What a document holds, all of it readable."""
    items = list(items_in(document))
    assert all(isinstance(item, Given) for item in items)
    return [item for item in items if isinstance(item, Given)]


def through_json(document: Any) -> Any:
    """The document as it is read from its line; the line is strict JSON."""
    line = to_line(document)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize("record", [EVERYTHING, LOG], ids=["span", "log record"])
def test_every_value_comes_back(record: SpanRecord | LogRecord) -> None:
    """With its type; the same record gives the same line again."""
    document = (
        spans_document([record]) if isinstance(record, SpanRecord) else logs_document([record])
    )
    (item,) = given(through_json(document))
    assert item.record == record
    assert item.marks == frozenset()


def test_not_a_number_comes_back() -> None:
    """It equals nothing, not even itself."""
    (item,) = given(through_json(spans_document([span(1, attributes={"x": math.nan})])))
    assert math.isnan(item.record.attributes["x"])


def test_what_follows_each_other_shares_its_origin() -> None:
    """Only then: the order of the records stays."""
    one, other = OriginRecord("a"), OriginRecord("b")
    spans = [span(n, scope=scope) for n, scope in enumerate((one, one, other, one), start=1)]
    document = spans_document(spans)
    (around,) = document["resourceSpans"]
    assert [len(scope["spans"]) for scope in around["scopeSpans"]] == [2, 1, 1]
    assert [item.record for item in given(document)] == spans


def test_what_only_we_know_comes_back() -> None:
    """Its time of interruption, its marks, an end at 0, a pin; for each record its own."""
    known = [
        known_of(["attributes", "meaning"], interrupted_ns=5),
        {},
        known_of(ended=True, pinned=TRACE),
    ]
    spans = [span(1, end=None), span(2), replace(span(3), end_ns=0)]
    found = given(through_json(spans_document(spans, known)))
    assert [item.record for item in found] == spans
    assert [item.interrupted_ns for item in found] == [5, None, None]
    assert [item.pinned for item in found] == [None, None, TRACE]
    assert [item.marks for item in found] == [{"attributes"}, set(), set()]
    (log,) = given(through_json(logs_document([LOG], [known_of(["body"])])))
    assert log.marks == {"body"}


@pytest.mark.parametrize(
    "known",
    [
        "text",
        {"interruptedTimeUnixNano": str(2**63)},
        {"interruptedTimeUnixNano": "-5"},
        {"interruptedTimeUnixNano": 0},
        {"interruptedTimeUnixNano": True},
        {"marks": {"name": 1}},
        {"marks": ["meaning", "reduced", "\ud83e", "x" * 100_000, 5, None]},
        {"pinnedTaskId": "f" * 32},
        {"pinnedTaskId": TRACE + "-" + "x" * 16},
        {"pinnedTaskId": TRACE + "\n"},
        {"pinnedTaskId": True},
        {"ended": "yes"},
    ],
)
def test_what_others_say_in_our_name_is_not_believed(known: Any) -> None:
    """Files come from anywhere: what makes no sense is passed over, and costs nothing."""
    document = spans_document([span(1, end=None)])
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["taskhistory"] = known
    assert given(document) == [Given(span(1, end=None))]


def test_in_protobuf_everything_comes_back_that_has_a_form_there() -> None:
    """What has none is text; half a surrogate pair is a question mark."""
    known = {
        key: value
        for key, value in VALUES.items()
        if not key.startswith(("beyond", "edges", "half"))
    }
    origin = OriginRecord("n", "1", "", known)
    record = span(1, attributes=known, scope=origin, resource=OriginRecord(attributes=known))
    (item,) = given(spans_from_protobuf(spans_to_protobuf(spans_document([record]))))
    assert item.record == record
    odd = span(1, attributes={"big": 10**5_000, "edge": 2**63, "half": "n\ud83e"})
    (item,) = given(spans_from_protobuf(spans_to_protobuf(spans_document([odd]))))
    assert item.record.attributes == {"big": hex(10**5_000), "edge": str(2**63), "half": "n?"}
    log = LogRecord(TRACE, span_id(1), "event", known, known, 5, 6)
    (item,) = given(logs_from_protobuf(logs_to_protobuf(logs_document([log]))))
    assert item.record == log


def test_what_only_we_know_does_not_go_by_protobuf() -> None:
    """It has no field there."""
    document = spans_document([span(1, end=None)], [known_of(["name"], interrupted_ns=5)])
    assert spans_to_protobuf(document) == spans_to_protobuf(spans_document([span(1, end=None)]))


def test_too_deep_for_protobuf_is_text() -> None:
    """Receivers refuse a whole request for it."""
    deep: Any = "end"
    for _ in range(150):
        deep = [deep]
    body = spans_to_protobuf(spans_document([span(1, attributes={"deep": deep})]))
    (item,) = given(spans_from_protobuf(body))
    value = item.record.attributes["deep"]
    while isinstance(value, list):
        (value,) = value
    assert isinstance(value, str)
    assert "end" in value
