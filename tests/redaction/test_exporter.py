# SPDX-License-Identifier: Apache-2.0
"""RedactingExporter: real spans go on, the originals stay, and no faulty policy leaks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.redaction import Policy, policy_named
from otel_taskhistory.redaction.exporter import RedactingExporter
from otel_taskhistory.redaction.policies import IdsOnly
from otel_taskhistory.redaction.sdk_spans import span_of
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.spans.sdk import record_of

CONTENT = "the whole prompt"


def spans_of_all_kinds(limits: SpanLimits | None = None) -> list[ReadableSpan]:
    """A span with everything a span may have, and a plain one."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": "desk", "note": CONTENT}, "https://example.org/1"),
        span_limits=limits,
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("a.library", "1.0", "https://example.org/2", {"s": CONTENT})
    state = TraceState([("vendor", "opaque"), ("ot", "th:8;rv:abc")])
    far = SpanContext(0xA1, 0xB2, True, TraceFlags(1), state)
    with tracer.start_as_current_span(
        "chat model-1",
        context=set_span_in_context(NonRecordingSpan(far)),
        kind=SpanKind.CLIENT,
        attributes={
            "gen_ai.request.model": "model-1",
            "input.value": CONTENT,
            "list": [1, 2],
            "flag": True,
        },
        links=[Link(SpanContext(0xC3, 0xD4, False, TraceFlags(0), state), {"why": CONTENT})],
    ) as span:
        for _ in range(3):
            span.add_event(
                "exception", {"exception.type": "ValueError", "exception.message": CONTENT}
            )
        span.set_status(StatusCode.ERROR, CONTENT)
    tracer.start_span("plain").end()
    provider.shutdown()
    return list(memory.get_finished_spans())


class Remote(SpanExporter):
    """Keeps what it got and what it was told."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.result = result
        self.spans: list[ReadableSpan] = []
        self.told: list[Any] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return self.result

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.told.append(timeout_millis)
        return False

    def shutdown(self) -> None:
        self.told.append("shutdown")


def sent(policy: Any, spans: Sequence[ReadableSpan] | None = None) -> tuple[Remote, dict[str, int]]:
    """What a remote exporter gets by a policy, and the counts."""
    remote = Remote()
    exporter = RedactingExporter(remote, policy)
    exporter.export(spans_of_all_kinds() if spans is None else spans)
    return remote, exporter.stats()


@pytest.mark.parametrize(
    "limits",
    [None, SpanLimits(max_span_attributes=2, max_events=1, max_event_attributes=1, max_links=0)],
)
def test_by_everything_the_very_same_bytes_leave(limits: SpanLimits | None) -> None:
    """Spans that were made anew are encoded as the original ones are, dropped counts included."""
    spans = spans_of_all_kinds(limits)
    remote, _ = sent("everything", spans)
    assert encode_spans(remote.spans).SerializeToString() == encode_spans(spans).SerializeToString()
    assert [record_of(span) for span in remote.spans] == [
        replace(record_of(span), parent_remote=record_of(span).parent_remote) for span in spans
    ]
    assert [span.to_json() for span in remote.spans] == [span.to_json() for span in spans]


@pytest.mark.parametrize("name", ["ids_only", "no_images", "scrub", "everything"])
def test_the_original_spans_stay_as_they_are(name: str) -> None:
    """The local history reads them after us, or before."""
    spans = spans_of_all_kinds()
    before = [record_of(span) for span in spans]
    remote, counts = sent(name, spans)
    assert [record_of(span) for span in spans] == before
    assert counts["spans"] == len(remote.spans) == 2


def test_ids_only_keeps_structure_and_leaves_contents() -> None:
    """Span by span: what is there, and what is not."""
    remote, _ = sent("ids_only")
    record = record_of(remote.spans[0])
    original = record_of(spans_of_all_kinds()[0])
    assert CONTENT not in repr(record)
    assert (record.name, record.kind, record.parent_span_id) == (
        "chat model-1",
        "CLIENT",
        original.parent_span_id,
    )
    assert record.parent_remote
    assert record.attributes == {"gen_ai.request.model": "model-1"}
    assert [(event.name, dict(event.attributes)) for event in record.events] == [
        ("exception", {"exception.type": "ValueError"})
    ] * 3
    (link,) = record.links
    assert (link.trace_id, link.span_id) == (f"{0xC3:032x}", f"{0xD4:016x}")
    assert (dict(link.attributes), link.trace_state) == ({}, "ot=th:8;rv:abc")
    assert (record.status_code, record.status_message) == ("ERROR", None)
    assert record.trace_state == "ot=th:8;rv:abc"
    assert record.resource.attributes == {"service.name": "desk"}
    assert (record.scope.name, record.scope.version) == ("a.library", "1.0")
    assert record.scope.attributes == {}


# --- policies of the user's own -------------------------------------------------------------------


def raises(record: SpanRecord) -> SpanRecord:
    """A policy with a fault; what it raises holds contents."""
    raise ValueError(record.attributes.get("input.value"))


def other_identity(record: SpanRecord) -> SpanRecord:
    """A policy that makes another span of it."""
    return replace(record, span_id="ab" * 8)


class EndsTheProcess(BaseException):
    """No `Exception`."""


@pytest.mark.parametrize(
    "policy",
    [
        raises,
        other_identity,
        lambda record: "nonsense",
        lambda record: record.attributes,
        lambda record: replace(record, name=None),
        lambda record: replace(record, attributes=None),
        lambda record: replace(record, attributes=[("a", CONTENT)] * 2 + [1]),
        lambda record: replace(record, events=[CONTENT]),
        lambda record: replace(record, end_ns=None),
        lambda record: replace(record, status_code="BROKEN"),
        lambda record: replace(record, scope=None),
        lambda: None,
    ],
)
def test_a_faulty_policy_lets_nothing_out_and_loses_nothing(
    policy: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The span leaves without contents, which is counted and said once, without contents too."""
    caplog.set_level(logging.WARNING, logger="otel_taskhistory")
    remote, counts = sent(policy)
    assert [span.name for span in remote.spans] == ["chat model-1", "plain"]
    assert CONTENT not in str([span.to_json() for span in remote.spans])
    assert counts == {"spans": 2, "withheld": 0, "policy_failed": 2, "lost": 0}
    assert len(caplog.messages) == 1
    assert "leaves without contents" in caplog.messages[0]
    assert CONTENT not in caplog.text


def test_a_policy_may_withhold_spans() -> None:
    """None is a decision; it is counted, and no fault."""
    remote, counts = sent(lambda record: record if record.name == "plain" else None)
    assert [span.name for span in remote.spans] == ["plain"]
    assert counts == {"spans": 1, "withheld": 1, "policy_failed": 0, "lost": 0}


def test_when_all_is_withheld_the_other_exporter_is_not_asked() -> None:
    """That is no failure."""
    remote = Remote(SpanExportResult.FAILURE)
    exporter = RedactingExporter(remote, lambda record: None)
    assert exporter.export(spans_of_all_kinds()) is SpanExportResult.SUCCESS


def test_a_policy_may_be_an_object_or_build_on_a_named_one() -> None:
    """What has a method ``span`` is one."""
    scrub = policy_named("scrub", secrets=["whole prompt"])
    assert isinstance(scrub, Policy)
    remote, _ = sent(scrub)
    assert remote.spans[0].attributes is not None
    assert remote.spans[0].attributes["input.value"] == "the ***REDACTED***"
    base = IdsOnly()
    remote, _ = sent(lambda record: replace(base.span(record), name="renamed"))
    assert {span.name for span in remote.spans} == {"renamed"}


@pytest.mark.parametrize("policy", ["ids-only", "", None, 7, IdsOnly, object()])
def test_what_is_no_policy_is_refused_at_once(policy: Any) -> None:
    """And not when the first span has already left."""
    with pytest.raises(SettingsError):
        RedactingExporter(Remote(), policy)


def test_what_is_no_exporter_is_refused_at_once() -> None:
    """Named by its type."""
    with pytest.raises(SettingsError, match="TracerProvider"):
        RedactingExporter(TracerProvider(shutdown_on_exit=False))  # type: ignore[arg-type]


@pytest.mark.parametrize("secrets", ["one text", ["abc"], [7], [None], [""], 5])
def test_secrets_that_cannot_be_masked_are_refused_and_not_shown(secrets: Any) -> None:
    """A list of texts of some length."""
    with pytest.raises(SettingsError) as caught:
        RedactingExporter(Remote(), "scrub", secrets=secrets)
    assert "secrets=" in str(caught.value)
    assert "abc" not in str(caught.value)


def test_flush_shutdown_and_results_are_those_of_the_other_exporter() -> None:
    """It is a thin wrap."""
    remote = Remote(SpanExportResult.FAILURE)
    exporter = RedactingExporter(remote)
    assert exporter.export(spans_of_all_kinds()) is SpanExportResult.FAILURE
    assert exporter.force_flush(5) is False
    exporter.shutdown()
    assert remote.told == [5, "shutdown"]


def test_a_span_without_identity_is_counted_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    """It is no span that anybody could keep; the others leave."""
    caplog.set_level(logging.WARNING, logger="otel_taskhistory")
    broken = ReadableSpan("no context", resource=Resource({}))
    remote, counts = sent("ids_only", [broken, *spans_of_all_kinds()])
    assert len(remote.spans) == 2
    assert counts["lost"] == 1
    assert "does not leave" in caplog.text


def test_records_that_did_not_come_from_the_sdk_become_spans() -> None:
    """Of another kind, with nothing in them, with values of other languages."""
    record = SpanRecord("ab" * 16, "cd" * 8, None, "n", 1, 2, kind="UNSPECIFIED", flags=0x301)
    made = span_of(record)
    assert made.kind is SpanKind.INTERNAL
    assert encode_spans([made]).resource_spans
