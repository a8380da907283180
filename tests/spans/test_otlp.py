# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON is read as it was meant, whoever wrote it, and nothing that it holds upsets us."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_taskhistory.spans.otlp import Given, PassedOver, Rejected, items_in
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from tests.otlp import logs_in, records_in

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
OTLP = Path(__file__).parents[1] / "data" / "otlp"
FILES = sorted(file for file in CORPUS.glob("*.jsonl") if ".logs." not in file.name)
LOGS = sorted(CORPUS.glob("*.logs.jsonl"))
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"


def request(**said: Any) -> dict[str, Any]:
    """An export request of one span."""
    span = {"traceId": TRACE, "spanId": SPAN, "startTimeUnixNano": "5", **said}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def log_request(**said: Any) -> dict[str, Any]:
    """An export request of one log record."""
    log = {"traceId": TRACE, "spanId": SPAN, **said}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}


def one(**said: Any) -> SpanRecord:
    """The span of such a request, read without a mark."""
    (item,) = items_in(request(**said))
    assert isinstance(item, Given), item
    assert isinstance(item.record, SpanRecord)
    assert not item.marks
    return item.record


def one_log(**said: Any) -> LogRecord:
    """The log record of such a request."""
    (item,) = items_in(log_request(**said))
    assert isinstance(item, Given), item
    assert isinstance(item.record, LogRecord)
    return item.record


def why(document: Any) -> list[str]:
    """Why things in a document were rejected."""
    return [item.why for item in items_in(document) if isinstance(item, Rejected)]


def given_in(file: Path) -> list[Given]:
    """What was read of a file, of which nothing may be rejected."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        for item in items_in(json.loads(line)):
            assert not isinstance(item, Rejected)
            if isinstance(item, Given):
                found.append(item)
    return found


def plain(value: Any) -> Any:
    """A value in which NaN equals itself."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_spans_of_real_instrumentations(file: Path) -> None:
    """Every span of every recording is read as a second, simpler reader reads it."""
    read = [item.record for item in given_in(file)]
    expected = list(records_in(file))
    assert len(read) == len(expected) > 0
    for record, other in zip(read, expected, strict=True):
        ended = replace(other, end_ns=other.end_ns or None)
        assert plain(asdict(record)) == plain(asdict(ended))  # type: ignore[call-overload]


@pytest.mark.parametrize("file", LOGS, ids=lambda file: file.stem)
def test_log_records_of_real_instrumentations(file: Path) -> None:
    """Likewise for log records; those outside of a span are counted and passed over."""
    expected = [log for log in logs_in(file) if log.trace_id and log.span_id]
    assert [item.record for item in given_in(file)] == expected
    assert expected


def test_ids_in_hex_of_any_case_and_in_base64() -> None:
    """Each becomes the same lower-case hex digits."""
    for text in (
        TRACE,
        TRACE.upper(),
        base64.b64encode(bytes.fromhex(TRACE)).decode(),
        base64.urlsafe_b64encode(bytes.fromhex(TRACE)).decode().rstrip("="),
    ):
        assert one(traceId=text).trace_id == TRACE
    encoded = base64.b64encode(bytes.fromhex(SPAN)).decode()
    assert one(spanId=encoded, parentSpanId=encoded).parent_span_id == SPAN
    for nothing in ("", None, "0" * 16, base64.b64encode(bytes(8)).decode()):
        assert one(parentSpanId=nothing).parent_span_id is None


@pytest.mark.parametrize("name", ["traceId", "spanId"])
@pytest.mark.parametrize("value", [None, "", "0" * 32, "0" * 16, "xyz", "g" * 32, 7, ["a"]])
def test_a_span_without_an_identity_is_rejected(name: str, value: Any) -> None:
    """It says which id is missing or wrong, and the next span is read."""
    document = request(**{name: value})
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append({"traceId": TRACE, "spanId": SPAN})
    wrong, right = items_in(document)
    assert isinstance(wrong, Rejected)
    assert name in wrong.why
    assert isinstance(right, Given)


def test_a_parent_that_is_no_id_is_no_root() -> None:
    """The span would hang in the wrong place: it is rejected."""
    (reason,) = why(request(parentSpanId="nobody"))
    assert "parentSpanId" in reason


def test_numbers_as_numbers_and_as_text() -> None:
    """Times, counts and flags; 64 bit and more, never through a float."""
    big = 2**63 + 1
    for value in (big, str(big)):
        record = one(startTimeUnixNano=value, endTimeUnixNano=value, droppedEventsCount="3")
        assert (record.start_ns, record.end_ns, record.dropped_events) == (big, big, 3)
    assert one(flags=0x301).parent_remote
    assert not one(flags="257").parent_remote
    assert one(flags=2**40).flags == 0
    assert "startTimeUnixNano" in why(request(startTimeUnixNano="noon"))[0]


def test_a_span_without_an_end_runs() -> None:
    """It was written down before it ended."""
    for nothing in (None, 0, "0", ""):
        assert one(endTimeUnixNano=nothing).end_ns is None


def test_enums_by_number_by_name_and_unknown() -> None:
    """Kind, status and severity; what nobody knows is what nobody said."""
    for kind in (3, "3", "SPAN_KIND_CLIENT", "CLIENT"):
        assert one(kind=kind).kind == "CLIENT"
    for nothing in (None, 17, "SPAN_KIND_NEW", -1, [], True):
        assert one(kind=nothing).kind == "UNSPECIFIED"
    for code in (2, "STATUS_CODE_ERROR", "ERROR"):
        assert one(status={"code": code, "message": "m"}).status_code == "ERROR"
    assert one(status={}).status_message is None
    for severity, number in (
        (9, 9),
        ("9", 9),
        ("SEVERITY_NUMBER_INFO", 9),
        ("SEVERITY_NUMBER_INFO3", 11),
        ("FATAL4", 24),
        ("SEVERITY_NUMBER_UNSPECIFIED", 0),
        (None, 0),
        ([], 0),
    ):
        assert one_log(severityNumber=severity).severity_number == number


def value(said: Any) -> Any:
    """An attribute value, read without a mark."""
    return one(attributes=[{"key": "k", "value": said}]).attributes["k"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, None),
        (None, None),
        ({"stringValue": ""}, ""),
        ({"string_value": "snake"}, "snake"),
        ({"boolValue": True}, True),
        ({"boolValue": "false"}, False),
        ({"intValue": "9223372036854775808"}, 2**63),
        ({"intValue": -5}, -5),
        ({"intValue": "1e3"}, 1000),
        ({"intValue": 3.0}, 3),
        ({"doubleValue": 3}, 3.0),
        ({"doubleValue": "1e300"}, 1e300),
        ({"doubleValue": "Infinity"}, math.inf),
        ({"doubleValue": "-Infinity"}, -math.inf),
        ({"bytesValue": "_-8"}, b"\xff\xef"),
        ({"bytesValue": "/+8="}, b"\xff\xef"),
        ({"bytesValue": ""}, b""),
        ({"arrayValue": {}}, []),
        ({"arrayValue": {"values": [{}, {"intValue": "1"}]}}, [None, 1]),
        (
            {"kvlistValue": {"values": [{"key": "a.b", "value": {"boolValue": True}}]}},
            {"a.b": True},
        ),
        ({"kvlistValue": {}}, {}),
        ({"newValue": 1}, None),
    ],
)
def test_values(said: Any, expected: Any) -> None:
    """Of each type, and of none: None, "" and a missing value stay three things."""
    assert value(said) == expected
    assert type(value(said)) is type(expected)


def test_nan() -> None:
    """Is a float, however it is written."""
    assert math.isnan(value({"doubleValue": "NaN"}))
    assert math.isnan(value({"doubleValue": math.nan}))


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"intValue": "1.5"}, "1.5"),
        ({"intValue": ""}, ""),
        ({"intValue": True}, True),
        ({"doubleValue": "much"}, "much"),
        ({"bytesValue": "!!!notbase64"}, "!!!notbase64"),
        ({"boolValue": "maybe"}, "maybe"),
        ({"stringValue": 7}, 7),
        ("bare", "bare"),
    ],
)
def test_a_value_that_its_type_does_not_fit_is_kept_and_marked(said: Any, kept: Any) -> None:
    """As it stands there; the part of the span that it is in is named."""
    (item,) = items_in(request(attributes=[{"key": "k", "value": said}]))
    assert isinstance(item, Given)
    assert item.record.attributes == {"k": kept}
    assert item.marks == {"attributes"}
    (item,) = items_in(request(events=[{"attributes": [{"key": "k", "value": said}]}]))
    assert isinstance(item, Given)
    assert item.marks == {"events"}


def test_attributes_as_a_plain_object_and_pairs_that_are_none() -> None:
    """The former are read; the latter are left out, and marked."""
    assert one(attributes={"k": {"intValue": 1}}).attributes == {"k": 1}
    pairs = [7, {"key": 3}, {"key": "k", "value": {"intValue": 1}}, {"value": {"intValue": 2}}]
    (item,) = items_in(request(attributes=pairs))
    assert isinstance(item, Given)
    assert item.record.attributes == {"k": 1, "": 2}
    assert item.marks == {"attributes"}


def test_names_in_snake_case_and_former_names() -> None:
    """As the protocol's own definition spells them, and as OTLP before 0.19 did."""
    span = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_span_id": "1" * 16,
        "start_time_unix_nano": 5,
        "trace_state": "a=b",
        "dropped_links_count": 2,
    }
    document = {
        "resource_spans": [
            {
                "schema_url": "https://example.org",
                "instrumentationLibrarySpans": [
                    {"instrumentationLibrary": {"name": "lib", "version": "1"}, "spans": [span]}
                ],
            }
        ]
    }
    (item,) = items_in(document)
    assert isinstance(item, Given)
    record = item.record
    assert isinstance(record, SpanRecord)
    assert (record.parent_span_id, record.start_ns, record.trace_state) == ("1" * 16, 5, "a=b")
    assert (record.scope.name, record.scope.version) == ("lib", "1")
    assert record.resource.schema_url == "https://example.org"
    assert record.dropped_links == 2


def test_events_and_links() -> None:
    """With all they say; a link's ids are kept as they are when they are none."""
    record = one(
        events=[{"name": "e", "timeUnixNano": "7", "droppedAttributesCount": 1}],
        links=[
            {"traceId": TRACE.upper(), "spanId": SPAN, "traceState": "x=y", "flags": 1},
            {"traceId": "elsewhere", "spanId": ""},
        ],
    )
    (event,) = record.events
    assert (event.name, event.time_ns, event.dropped_attributes) == ("e", 7, 1)
    assert [(link.trace_id, link.span_id) for link in record.links] == [
        (TRACE, SPAN),
        ("elsewhere", ""),
    ]
    assert (record.links[0].trace_state, record.links[0].flags) == ("x=y", 1)
    (item,) = items_in(request(events=[3], links=["x"]))
    assert isinstance(item, Given)
    assert item.marks == {"events", "links"}


def test_marks_of_a_resource_are_those_of_all_its_spans() -> None:
    """So that each row says where a value is not what it should be."""
    document = request()
    document["resourceSpans"][0]["resource"] = {"attributes": {"k": {"intValue": "x"}}}
    document["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"attributes": [1]}
    (item,) = items_in(document)
    assert isinstance(item, Given)
    assert item.marks == {"resource", "scope"}
    assert item.record.resource.attributes == {"k": "x"}


def test_a_log_record_names_its_event_in_either_way() -> None:
    """By its field, else by the attribute of older ones."""
    old = [{"key": "event.name", "value": {"stringValue": "gen_ai.choice"}}]
    assert one_log(attributes=old).event_name == "gen_ai.choice"
    assert one_log(attributes=old, eventName="newer").event_name == "newer"
    assert one_log(attributes={"event.name": {"intValue": 1}}).event_name == ""
    assert one_log(body={"kvlistValue": {"values": []}}).body == {}


@pytest.mark.parametrize("name", ["traceId", "spanId"])
def test_a_log_record_outside_of_a_span_is_passed_over(name: str) -> None:
    """It belongs to no task; one with a broken id is rejected."""
    for nothing in ("", None, "0" * 16 if name == "spanId" else "0" * 32):
        (item,) = items_in(log_request(**{name: nothing}))
        assert isinstance(item, PassedOver)
    assert why(log_request(**{name: "broken"}))


def test_other_signals_and_other_documents() -> None:
    """Metrics are passed over and counted; what is no OTLP at all is told."""
    items = list(items_in({"resourceMetrics": [{}, {}]}))
    assert items == [PassedOver("metrics", 2)]
    assert list(items_in({})) == []
    assert list(items_in({"resourceSpans": []})) == []
    assert list(items_in([])) == []
    for other in ({"hello": 1}, 7, "text", None, True, [7]):
        (reason,) = why(other)
        assert "no OTLP" in reason
    (item,) = items_in([request()])
    assert isinstance(item, Given)


def test_nesting_without_end_costs_the_value_only() -> None:
    """It is cut where the ledger cuts as well."""
    deep: dict[str, Any] = {"intValue": 1}
    for _ in range(2000):
        deep = {"arrayValue": {"values": [deep]}}
    beside = {"key": "beside", "value": {"stringValue": "whole"}}
    record = one(attributes=[{"key": "deep", "value": deep}, beside])
    assert record.attributes["beside"] == "whole"
    levels, inner = 0, record.attributes["deep"]
    while inner:
        levels, inner = levels + 1, inner[0]
    assert 200 <= levels < 210


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    (
        *("traceId", "spanId", "parentSpanId", "name", "kind", "flags", "status", "attributes"),
        *("events", "links", "startTimeUnixNano", "endTimeUnixNano", "body", "traceState"),
        *("droppedLinksCount", "severityNumber", "eventName", "values", "key", "value"),
        *("intValue", "arrayValue", "kvlistValue", "bytesValue", "doubleValue", "code", "message"),
    )
)
shaped = st.recursive(
    json_values,
    lambda inner: st.dictionaries(FIELDS, inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(FIELDS, shaped, max_size=8))
@settings(max_examples=100)
def test_no_field_can_upset_the_reader(said: dict[str, Any]) -> None:
    """Whatever stands in it: each record is read, passed over or rejected, and each is one."""
    for document in (request(**said), log_request(**said)):
        (item,) = items_in(document)
        assert isinstance(item, Given | PassedOver | Rejected)


@given(st.dictionaries(st.sampled_from(["resourceSpans", "resourceLogs"]), shaped) | shaped)
@settings(max_examples=100)
def test_no_document_can_upset_the_reader(document: Any) -> None:
    """Whatever it is."""
    for item in items_in(document):
        assert isinstance(item, Given | PassedOver | Rejected)
