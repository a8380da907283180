# SPDX-License-Identifier: Apache-2.0
"""pi-durable: submissions and phases, with spans made as it makes them: ids and control data."""

from __future__ import annotations

from typing import Any

import pytest

from otel_taskhistory.conventions import pi_durable
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.spans.record import LinkRecord
from tests.store.deliveries import TRACE, span, span_id

OTHER_TRACE = "1" * 32


def submit(number: int = 1, **said: Any) -> SpanFacts:
    """What a submission says."""
    return read("pi.durable.submit", number, **said)


def phase(number: int = 2, parent: int | None = 1, **said: Any) -> SpanFacts:
    """What a phase of its task says."""
    attributes = {
        "pi.durable.task.id": 7,
        "pi.durable.task.kind": "pi.generation",
        "pi.durable.phase.name": "request",
    } | said.pop("attributes", {})
    return read("pi.durable.phase", number, parent, attributes=attributes, **said)


def read(name: str, number: int, parent: int | None = None, **said: Any) -> SpanFacts:
    """What a span of this name says."""
    facts = pi_durable.read(span(number, parent, name=name, **said))
    assert facts is not None
    return facts


def test_a_submission_and_its_phases() -> None:
    """A task with steps below it; there is no content, and none is made up."""
    task = submit(attributes={"pi.durable.submission.id": 3, "pi.durable.conversation.id": "c-1"})
    assert (task.role, task.status, task.conversation_id) == ("task", "succeeded", "c-1")
    assert (task.goal, task.result, task.model_calls, task.key) == (None, None, (), None)
    step = phase(attributes={"pi.durable.resumed": False})
    assert (step.role, step.status, step.attempt) == ("step", "succeeded", 1)
    assert not task.own
    assert not step.own


def test_a_phase_that_is_resumed_is_a_further_attempt() -> None:
    """After a crash, in a trace of its own, with a link to what it continues."""
    link = LinkRecord(TRACE, span_id(2))
    again = phase(
        3, None, trace_id=OTHER_TRACE, links=(link,), attributes={"pi.durable.resumed": True}
    )
    assert (again.role, again.attempt) == ("step", 2)


@pytest.mark.parametrize(
    ("attributes", "attempt"),
    [
        ({}, 1),
        ({"pi.durable.resumed": "true"}, 1),
        ({"pi.durable.phase.resumed": True}, 2),
        ({"pi.durable.resumed": True, "pi.durable.attempt": 5}, 5),
        ({"pi.durable.resumed": True, "pi.durable.attempt": 1}, 2),
        ({"pi.durable.attempt": 3}, 3),
        ({"pi.durable.attempt": 0}, 1),
        ({"pi.durable.attempt": 10**30}, 1),
        ({"pi.durable.attempt": float("nan")}, 1),
        ({"pi.durable.attempt": "many"}, 1),
    ],
)
def test_attempts(attributes: dict[str, Any], attempt: int) -> None:
    """Counted if somebody counts, else the second when resumed."""
    assert phase(attributes=attributes).attempt == attempt


@pytest.mark.parametrize(
    ("said", "status", "error"),
    [
        ({"end": None}, "running", None),
        ({"status_code": "ERROR", "status_message": "disk full"}, "failed", "disk full"),
        ({"attributes": {"pi.durable.outcome": "faulted"}}, "failed", None),
        ({"attributes": {"pi.durable.task.status": "aborted"}}, "cancelled", None),
        ({"attributes": {"pi.durable.status": "waiting"}}, "succeeded", None),
        ({"attributes": {"pi.durable.outcome": ["aborted"]}}, "succeeded", None),
    ],
)
def test_statuses(said: dict[str, Any], status: str, error: str | None) -> None:
    """An outcome that the span's status hides is seen; a phase that now waits has succeeded."""
    facts = phase(**said)
    assert (facts.status, facts.error) == (status, error)


@pytest.mark.parametrize(
    ("attributes", "conversation"),
    [
        ({"pi.durable.conversation_id": "c"}, "c"),
        ({"pi.durable.conversation.id": 1}, None),
        ({"pi.durable.conversation.id": 1, "pi.durable.session.id": "s"}, "s/1"),
        ({"pi.durable.conversation.id": 1, "pi.durable.session.id": 2}, None),
        ({"pi.durable.conversation.id": ""}, None),
        ({"pi.durable.conversation.id": b"\xff"}, None),
        ({"pi.durable.conversation.id": True, "pi.durable.session.id": "s"}, None),
    ],
)
def test_conversations(attributes: dict[str, Any], conversation: str | None) -> None:
    """A number tells conversations of one session apart, but not those of different sessions."""
    assert submit(attributes=attributes).conversation_id == conversation


def test_spans_of_others() -> None:
    """By the exact name."""
    for name in ("pi.durable", "pi.durable.submission", "x pi.durable.phase", ""):
        assert pi_durable.read(span(1, name=name, attributes={"pi.durable.resumed": True})) is None
