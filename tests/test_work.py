# SPDX-License-Identifier: Apache-2.0
"""What recording costs, counted instead of timed: statements, steps of SQLite's machine, bytes.

Times are measured in ``bench/``. The limits here are a little above what is needed now, so that a
change that makes recording dearer is noticed; one that makes it cheaper may lower them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import Tracer, set_span_in_context

from otel_taskhistory import Task, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.store.database import connect

STATEMENTS_A_COMMIT = 36
STATEMENTS_A_SPAN = 44
BYTES_A_STEP = 6_800
EMPTY_BYTES = 200_000

OPS = 50
"""Virtual machine instructions of SQLite are counted in so many."""


@dataclass
class Transaction:
    """What was done between BEGIN and COMMIT."""

    statements: list[str] = field(default_factory=list)
    ticks: int = 0
    """Virtual machine instructions, divided by `OPS`."""


@dataclass
class Work:
    """What the writer did."""

    transactions: list[Transaction] = field(default_factory=list)
    """Those that recorded something; not those that indexed it."""

    @property
    def statements(self) -> int:
        """How many there were."""
        return sum(len(one.statements) for one in self.transactions)

    @property
    def ticks(self) -> int:
        """Virtual machine instructions, divided by `OPS`."""
        return sum(one.ticks for one in self.transactions)


class Counter:
    """Counts what is done over every connection that a writer opens."""

    def __init__(self) -> None:
        self._work = Work()
        self._open = Transaction()

    def connect(self, database: Path, busy_timeout: float) -> sqlite3.Connection:
        """As `database.connect`. The callbacks stay: SQLite's lock is held while they are changed,
        which the writing thread may hold while it waits for Python's.
        """
        connection = connect(database, busy_timeout)

        def statement(text: str) -> None:
            if text.startswith("BEGIN"):
                self._open = Transaction()
            elif text == "COMMIT":
                if not any("_words" in one for one in self._open.statements):
                    self._work.transactions.append(self._open)
            elif connection.in_transaction and not text.startswith("--"):  # as those of triggers
                self._open.statements.append(text)

        def tick() -> None:
            self._open.ticks += connection.in_transaction

        connection.set_trace_callback(statement)
        connection.set_progress_handler(tick, OPS)
        return connection

    @contextmanager
    def counted(self, exporter: TaskHistoryExporter) -> Iterator[Work]:
        """Count what is done for what is recorded within the block."""
        exporter.force_flush()
        self._work = work = Work()
        yield work
        exporter.force_flush()
        self._work = Work()


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """In place before a history is opened."""
    made = Counter()
    monkeypatch.setattr("otel_taskhistory.store.database.connect", made.connect)
    return made


@contextmanager
def recording(directory: Path) -> Iterator[tuple[TaskHistoryExporter, TaskTracer]]:
    """An exporter and a tracer of ours on it."""
    exporter = TaskHistoryExporter(directory)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter, snapshot_interval=None))
    yield exporter, TaskTracer(provider, exporter=exporter)
    provider.shutdown()
    assert exporter.stats()["errors"] == {}


def text(number: int, size: int) -> str:
    """A text that no other number has."""
    return " ".join(f"word{number}x{index}" for index in range(size // 12))


def one_step(task: Task, messages: list[dict[str, str]], number: int) -> None:
    """A step with all its checkpoints; the conversation grows by three messages, 2 KB."""
    with task.step() as step:
        step.prompt(messages, model="m")
        answer = text(3 * number, 700)
        step.decision(answer, usage={"input_tokens": 7})
        with step.tool_call("open", {"page": number}) as call:
            result = text(3 * number + 1, 700)
            call.result(result)
    messages.append({"role": "assistant", "content": answer})
    messages.append({"role": "tool", "content": result})
    messages.append({"role": "user", "content": text(3 * number + 2, 700)})


def test_a_step_with_all_checkpoints_takes_a_bounded_number_of_statements(
    tmp_path: Path, counter: Counter
) -> None:
    """Start, prompt, decision, tool call, its end and the end of the step are six commits, which
    need STATEMENTS_A_COMMIT each on average.
    """
    messages = [{"role": "user", "content": text(-1, 700)}]
    with recording(tmp_path) as (exporter, tasks), tasks.task("count") as task:
        for number in range(4):
            one_step(task, messages, number)
        with counter.counted(exporter) as work:
            one_step(task, messages, 4)
    assert len(work.transactions) == 6
    assert work.statements <= 6 * STATEMENTS_A_COMMIT, work.statements


def test_a_step_of_a_long_conversation_takes_no_more_work_than_an_early_one(
    tmp_path: Path, counter: Counter
) -> None:
    """What the store does for a step does not grow with the task nor with the prompt."""
    works = []
    messages = [{"role": "user", "content": text(-1, 700)}]
    with recording(tmp_path) as (exporter, tasks), tasks.task("grow") as task:
        for number in range(81):
            if number in (20, 80):
                with counter.counted(exporter) as work:
                    one_step(task, messages, number)
                works.append(work)
            else:
                one_step(task, messages, number)
    early, late = works
    assert abs(late.statements - early.statements) <= 6
    assert late.ticks <= 1.2 * early.ticks, (early.ticks, late.ticks)


class Spans(SpanProcessor):
    """Keeps the spans that have ended."""

    def __init__(self) -> None:
        self.ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)


def foreign(make: Callable[[Tracer], None]) -> list[ReadableSpan]:
    """Spans of another instrumentation, in the order in which they end."""
    provider = TracerProvider(shutdown_on_exit=False)
    spans = Spans()
    provider.add_span_processor(spans)
    make(provider.get_tracer("some.instrumentation"))
    return spans.ended


def calls(tracer: Tracer, number: int) -> None:
    """A run of an agent with so many model calls, each with 2 KB that are new."""
    root = tracer.start_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"})
    inside = set_span_in_context(root, Context())
    for index in range(number):
        asked = [{"role": "user", "parts": [{"type": "text", "content": text(2 * index, 1000)}]}]
        said = [{"role": "assistant", "parts": [{"type": "text", "content": text(-index, 1000)}]}]
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": json.dumps(said),
        }
        tracer.start_span("chat m", inside, attributes=attributes).end()
    root.end()


def test_spans_that_come_as_a_batch_share_what_is_done_once(
    tmp_path: Path, counter: Counter
) -> None:
    """256 spans of another instrumentation are one commit, and STATEMENTS_A_SPAN each."""
    spans = foreign(lambda tracer: calls(tracer, 255))
    exporter = TaskHistoryExporter(tmp_path)
    exporter.export(foreign(lambda tracer: calls(tracer, 2)))
    with counter.counted(exporter) as work:
        exporter.export(spans)
    exporter.shutdown()
    assert len(work.transactions) == 1
    assert work.statements <= len(spans) * STATEMENTS_A_SPAN, work.statements / 256


def test_a_late_span_of_a_trace_takes_no_more_work_than_an_early_one(
    tmp_path: Path, counter: Counter
) -> None:
    """Spans that come one by one cost the same whatever their trace has already."""
    spans = foreign(lambda tracer: calls(tracer, 81))
    exporter = TaskHistoryExporter(tmp_path)
    works = {}
    for number, span in enumerate(spans[:81]):
        with counter.counted(exporter) as work:
            exporter.export([span])
        works[number] = work
    exporter.shutdown()
    assert works[80].ticks <= 1.5 * works[20].ticks, (works[20].ticks, works[80].ticks)


def stored(directory: Path) -> int:
    """Bytes of all files of a history that was closed."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_a_step_of_a_growing_conversation_takes_little_more_than_its_new_text(
    tmp_path: Path,
) -> None:
    """60 further steps take their new text and BYTES_A_STEP each, search index included, however
    long the prompts are that are sent again.
    """
    sizes = []
    for steps in (30, 90):
        messages = [{"role": "user", "content": text(-1, 700)}]
        directory = tmp_path / str(steps)
        with recording(directory) as (_, tasks), tasks.task("grow") as task:
            for number in range(steps):
                one_step(task, messages, number)
        sizes.append(stored(directory))
    new = sum(len(text(number, 700)) for number in range(3 * 30, 3 * 90))
    each = (sizes[1] - sizes[0] - new) / 60
    assert each <= BYTES_A_STEP, each


def test_the_pages_of_an_empty_history_are_few(tmp_path: Path) -> None:
    """A history in which nothing was recorded yet takes less than EMPTY_BYTES."""
    TaskHistoryExporter(tmp_path).shutdown()
    assert stored(tmp_path) <= EMPTY_BYTES, stored(tmp_path)
    with closing(sqlite3.connect(tmp_path / "history.db")) as connection, connection:
        assert connection.execute("PRAGMA freelist_count").fetchone()[0] == 0
