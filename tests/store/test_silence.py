# SPDX-License-Identifier: Apache-2.0
"""Tasks of agents elsewhere that have fallen silent, and news of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.otlp import Given, items_in
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.importing import entry_of
from otel_taskhistory.store.reproject import reproject
from otel_taskhistory.store.silence import interrupt_silent
from otel_taskhistory.store.writer import Writer
from tests.processes import rows

SECOND = 10**9
HOUR = 3600 * SECOND
BEGAN = 1_780_000_000 * SECOND
TRACE = "ab" * 16


class Clock:
    """Time, as told."""

    def __init__(self) -> None:
        self.now = BEGAN + 10 * SECOND  # when the spans below have come

    def __call__(self) -> int:
        return self.now


class Received:
    """A history into which spans come, and what it says of them."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.settings = Settings.resolve(directory=directory)
        self.writer = Writer(self.settings, clock=self.clock)

    def come(self, *records: SpanRecord) -> None:
        job = self.writer.submit(
            [entry_of(record, self.clock()) for record in records], durable=False
        )
        assert job.stored

    def later(self, ns: int) -> int:
        """Look for silence after so long; how many were interrupted."""
        self.clock.now += ns
        return interrupt_silent(self.settings, self.clock.now, HOUR)

    def status(self, trace: str = TRACE) -> str:
        with TaskHistory(self.settings.directory) as history:
            return history.task(trace).status

    def events(self) -> list[str]:
        found = rows(
            self.settings.directory,
            "SELECT event FROM timeline WHERE event LIKE 'task.%' ORDER BY seq",
        )
        return [event for (event,) in found]


@pytest.fixture
def received(tmp_path: Path) -> Iterator[Received]:
    """An empty one."""
    running = Received(tmp_path / "history")
    yield running
    running.writer.close()


def span(number: int, parent: int | None = None, trace: str = TRACE, **said: Any) -> SpanRecord:
    """A span of an agent elsewhere."""
    attributes = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": said.pop("does", "chat")}},
        {"key": "logfire.span_type", "value": {"stringValue": said.pop("type", "span")}},
    ]
    one = {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": f"span {number}",
        "startTimeUnixNano": BEGAN + number,
        "endTimeUnixNano": BEGAN + number + SECOND,
        "attributes": attributes,
        **said,
    }
    (item,) = items_in({"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]})
    assert isinstance(item, Given)
    assert isinstance(item.record, SpanRecord)
    return item.record


def open_(record: SpanRecord) -> SpanRecord:
    """A span that was sent while it ran."""
    return replace(record, end_ns=None)


def test_a_task_whose_root_does_not_come_runs_until_nothing_has_come_for_long(
    received: Received,
) -> None:
    """It ended with its last span then, which the timeline says."""
    received.come(span(2, 1))
    assert received.later(HOUR) == 0
    assert received.status() == "running"
    assert received.later(SECOND) == 1
    assert received.status() == "interrupted"
    assert received.events() == ["task.started", "task.interrupted"]
    assert received.later(HOUR) == 0  # once
    with TaskHistory(received.settings.directory) as history:
        ended = history.task(TRACE).ended_at
        assert ended == history.steps(TRACE)[-1].ended_at


def test_as_long_as_spans_come_it_runs(received: Received) -> None:
    """However long it takes."""
    for number in range(2, 6):
        received.come(span(number, 1))
        assert received.later(HOUR - SECOND) == 0
        assert received.status() == "running"
    received.come(span(1, does="invoke_agent"))
    assert received.status() == "succeeded"
    assert received.later(10 * HOUR) == 0
    assert received.status() == "succeeded"


def test_news_make_it_run_again_and_its_end_is_its_end(received: Received) -> None:
    """That it was silent was only that."""
    received.come(span(2, 1))
    assert received.later(2 * HOUR) == 1
    received.come(span(3, 1))
    assert received.status() == "running"
    assert received.later(2 * HOUR) == 1
    received.come(span(1, does="invoke_agent"))
    assert received.status() == "succeeded"
    assert received.events()[-1] == "task.ended"


def test_a_task_with_an_open_root(received: Received) -> None:
    """Of an agent that sends what it begins: it and its open steps are interrupted, and go on."""
    root = open_(span(1, does="invoke_agent"))
    received.come(root, open_(span(2, 1)))
    assert received.later(2 * HOUR) == 1
    assert received.status() == "interrupted"
    with TaskHistory(received.settings.directory) as history:
        assert [step.status for step in history.steps(TRACE)] == ["interrupted"]
    received.come(span(3, 1))
    received.later(SECOND)
    assert received.status() == "running"
    with TaskHistory(received.settings.directory) as history:
        statuses = {step.name: step.status for step in history.steps(TRACE)}
    assert statuses == {"span 2": "running", "span 3": "succeeded"}
    received.come(span(2, 1), replace(root, end_ns=BEGAN + HOUR))
    assert received.status() == "succeeded"


@pytest.mark.parametrize("ours", [True, False])
def test_a_task_of_a_receiver_that_ended_goes_on_in_the_next(
    received: Received, ours: bool
) -> None:
    """It was interrupted meanwhile; with spans of a tracer like ours, and with those of others."""
    role = {"taskhistory.role": "step", "taskhistory.step.index": 1} if ours else {}
    received.come(named(span(2, 1), role))
    received.writer.close()
    assert received.status() == "interrupted"
    received.writer = Writer(received.settings, clock=received.clock)
    assert received.later(SECOND) == 0
    assert received.status() == "interrupted"
    received.come(named(span(3, 1), {**role, "taskhistory.step.index": 2}))
    received.later(SECOND)
    assert received.status() == "running"
    assert received.later(2 * HOUR) == 1
    received.come(named(span(1, does="invoke_agent"), {"taskhistory.role": "task"} if ours else {}))
    assert received.status() == "succeeded"
    assert received.later(2 * HOUR) == 0


def named(record: SpanRecord, attributes: dict[str, Any]) -> SpanRecord:
    """A span with further attributes."""
    return replace(record, attributes={**record.attributes, **attributes})


def test_what_is_silent_is_that_also_when_all_is_read_again(received: Received) -> None:
    """It is a fact of the ledger."""
    other = "cd" * 16
    received.come(span(2, 1), open_(span(1, trace=other, does="invoke_agent")))
    assert received.later(2 * HOUR) == 2
    received.writer.close()
    reproject(received.settings)
    assert (received.status(), received.status(other)) == ("interrupted", "interrupted")


def test_nothing_of_other_processes_is_touched(received: Received, tmp_path: Path) -> None:
    """An agent beside it may be silent as long as it likes: whether it lives can be seen."""
    received.come(open_(span(1, does="invoke_agent")))
    received.writer._commit.flush(60)
    database = received.settings.database
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE _processes SET pid = pid + 1")
    assert received.later(2 * HOUR) == 0


def test_never_is_never(received: Received) -> None:
    """And a history that is not there is left not there."""
    received.come(span(2, 1))
    assert interrupt_silent(received.settings, BEGAN + 1000 * HOUR, None) == 0
    assert received.status() == "running"
