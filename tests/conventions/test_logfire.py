# SPDX-License-Identifier: Apache-2.0
"""Logfire's kinds of spans: pending ones announce others, logs are no work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.conventions import logfire
from otel_taskhistory.spans.record import SpanRecord
from tests.otlp import records_in
from tests.store.deliveries import span, span_id

CORPUS = Path(__file__).parents[1] / "data" / "corpus"


def records(name: str) -> list[SpanRecord]:
    """The spans of a recording, in the order of their export."""
    return list(records_in(CORPUS / f"{name}.jsonl"))


def test_pending_spans_of_an_agent() -> None:
    """Each says which span it announces and that span's parent; the root's is none."""
    said = [
        (record, logfire.read(record)) for record in records("logfire__pending-spans__pydantic-ai")
    ]
    pending = [(record, facts) for record, facts in said if facts is not None]
    assert [
        (record.name, facts.announces, facts.announced_parent) for record, facts in pending
    ] == [
        ("invoke_agent lf_agent", "97abd4824dcfe887", None),
        ("chat test", "d44538cab9f9e7e3", "97abd4824dcfe887"),
        ("execute_tool lookup_order", "fff01d20ec0b56df", "97abd4824dcfe887"),
        ("chat test", "aa11f8d519a86780", "97abd4824dcfe887"),
    ]
    assert {(facts.role, facts.status, facts.agent) for _, facts in pending} == {
        ("pending", "running", "lf_agent")
    }
    assert {facts.conversation_id for _, facts in pending} == {
        "01a22e31-dca5-7049-a787-42c7b2bb6498"
    }
    # Whatever is announced comes, and it is no span of its own.
    real = {record.span_id: record for record, facts in said if facts is None}
    assert {facts.announces for _, facts in pending} == set(real)
    assert all(record.span_id not in real for record, _ in pending)


@pytest.mark.parametrize(
    "name", ["logfire__pending-spans__pydantic-ai", "logfire__pending-spans__manual"]
)
def test_the_announced_span_is_the_one_that_comes(name: str) -> None:
    """Its ids, parent, name, kind and start are those that the span has when it ends."""
    real = {record.span_id: record for record in records(name)}
    found = [begun for record in records(name) if (begun := logfire.announced(record)) is not None]
    assert found
    for begun in found:
        ended = real[begun.span_id]
        assert begun.end_ns is None
        assert (begun.trace_id, begun.parent_span_id) == (ended.trace_id, ended.parent_span_id)
        assert (begun.name, begun.kind, begun.start_ns) == (ended.name, ended.kind, ended.start_ns)
        known = {k: v for k, v in begun.attributes.items() if not k.startswith("logfire.")}
        assert known.items() <= ended.attributes.items()
        assert "logfire.span_type" not in begun.attributes


def test_spans_and_logs_by_hand() -> None:
    """A log line is nothing by itself; of a manual span this dialect has nothing to say."""
    said = {
        record.name: logfire.read(record)
        for record in records("logfire__additional-processor__manual-spans-and-logs")
    }
    line = said.pop("hello {x}")
    assert line is not None
    assert (line.role, line.status) == ("other", "succeeded")
    assert said == {"step that fails": None, "task {goal}": None}


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        ("0000000000000000", None),
        (None, None),
        ("", None),
        (7, None),
        ("XYZ", None),
        ("97ABD4824DCFE887", None),
        ("97abd4824dcfe887\n", None),
        ("97abd4824dcfe887", "97abd4824dcfe887"),
    ],
)
def test_odd_parents_are_none(parent: Any, expected: str | None) -> None:
    """Only what can be a span's id is taken for one."""
    attributes = {"logfire.span_type": "pending_span", "logfire.pending_parent_id": parent}
    facts = logfire.read(span(2, 1, attributes=attributes))
    assert facts is not None
    assert (facts.role, facts.announces, facts.announced_parent) == (
        "pending",
        span_id(1),
        expected,
    )


@pytest.mark.parametrize(
    "record",
    [
        span(1, attributes={"logfire.span_type": "pending_span"}),  # announces nothing
        span(1, attributes={"logfire.span_type": "span"}),
        span(1, attributes={"logfire.span_type": "something new"}),
        span(1, attributes={"logfire.span_type": ["log"]}),
        span(1, attributes={"logfire.msg": "x"}),
        span(1),
    ],
)
def test_nothing_to_say(record: SpanRecord) -> None:
    """Spans that are not Logfire's, or that it says nothing of."""
    assert logfire.read(record) is None
    assert logfire.announced(record) is None
