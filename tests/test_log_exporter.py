# SPDX-License-Identifier: Apache-2.0
"""Log records of this process go into the history of their spans, by whatever way they come."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExportResult,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor
from otel_taskhistory.errors import SettingsError
from otel_taskhistory.log_exporter import TaskHistoryLogExporter
from otel_taskhistory.recording.sink import live_sink
from tests.store.deliveries import check, rows

PROGRAMS = Path(__file__).parent / "programs"
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.system": "s"}


class Process:
    """An instrumented process: spans and log records, each with its provider."""

    def __init__(self, exporter: TaskHistoryExporter | None, logs: Any, **resource: str) -> None:
        self.exporter = exporter
        self.logs = logs
        said = Resource(resource)
        self.tracers = TracerProvider(shutdown_on_exit=False, resource=said)
        if exporter is not None:
            self.tracers.add_span_processor(TaskHistoryProcessor(exporter))
        self.loggers = LoggerProvider(shutdown_on_exit=False, resource=said)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))

    def work(self) -> None:
        """An agent run whose prompt is in a log record only."""
        tracer = self.tracers.get_tracer("an.instrumentation")
        with (
            tracer.start_as_current_span("invoke_agent", attributes=AGENT),
            tracer.start_as_current_span("chat m", attributes=CALL),
        ):
            self.say("gen_ai.user.message", {"content": "asked"})

    def say(self, name: str, body: Any, scope: str = "an.instrumentation") -> None:
        """Log something where we are."""
        record = LogRecord(timestamp=time.time_ns(), event_name=name, body=body)
        self.loggers.get_logger(scope).emit(record)

    def end(self) -> None:
        """Shut everything down."""
        self.loggers.shutdown()
        self.tracers.shutdown()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


@pytest.fixture
def process(directory: Path) -> Iterator[Process]:
    """A process with both exporters."""
    exporter = TaskHistoryExporter(directory, durability="normal")
    one = Process(exporter, TaskHistoryLogExporter())
    yield one
    one.end()
    check(directory / "history.db")


def prompts(directory: Path) -> list[Any]:
    """The prompts of all steps."""
    return [row["prompt"] for row in rows(directory / "history.db", "SELECT prompt FROM steps")]


def test_content_of_log_records_is_that_of_their_spans(process: Process, directory: Path) -> None:
    """Through the writer of the span exporter, and committed when `export` returns."""
    process.work()
    (prompt,) = prompts(directory)
    assert "asked" in prompt
    assert process.exporter is not None
    assert process.exporter.stats()["logs"] == 1


def test_a_running_span_shows_it(process: Process, directory: Path) -> None:
    """Another process sees what was asked before the answer is there."""
    tracer = process.tracers.get_tracer("an.instrumentation")
    with tracer.start_as_current_span("chat m", attributes=CALL):
        process.say("gen_ai.user.message", {"content": "asked"})
        (step,) = rows(directory / "history.db", "SELECT status, prompt FROM steps")
        assert step["status"] == "running"
        assert "asked" in step["prompt"]


def test_everything_that_a_record_says(process: Process, directory: Path) -> None:
    """As the SDK has it."""
    tracer = process.tracers.get_tracer("t")
    with tracer.start_as_current_span("s") as span:
        process.loggers.get_logger("lib", "1", "https://example.org", {"s": 1}).emit(
            LogRecord(
                timestamp=7,
                observed_timestamp=8,
                severity_text="oops",
                severity_number=SeverityNumber.ERROR2,
                body={"deep": [1, None, b"x"]},
                attributes={"a": (1, 2), "event.name": "old"},
            )
        )
        context = span.get_span_context()
    (row,) = rows(directory / "history.db", "SELECT * FROM logs")
    assert (row["time_unix_nano"], row["observed_time_unix_nano"]) == (7, 8)
    assert (row["severity_number"], row["severity_text"]) == (18, "oops")
    assert row["body"] == '{"deep":[1,null,{"$bytes":"eA=="}]}'
    assert row["attributes"] == '{"a":[1,2],"event.name":"old"}'
    assert row["event_name"] == "old"
    assert row["span_id"] == f"{context.span_id:016x}"
    assert row["trace_id"] == f"{context.trace_id:032x}"
    assert row["flags"] == int(context.trace_flags)
    assert '"lib"' in row["scope"]


def test_what_is_outside_of_spans_is_passed_over(process: Process, directory: Path) -> None:
    """And counted; what we log ourselves, or a Datasette in this process, is not recorded."""
    process.say("outside", "x")
    assert process.logs.passed_over == 1
    with process.tracers.get_tracer("t").start_as_current_span("s"):
        process.say("", "x", scope="otel_taskhistory")
        process.say("", "x", scope="datasette")
    assert rows(directory / "history.db", "SELECT * FROM logs") == []


def test_lines_of_the_standard_logging(process: Process, directory: Path) -> None:
    """Of whatever a handler of the SDK hands on, with the span within which it was logged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its successor is another package
        handler = LoggingHandler(logger_provider=process.loggers)
    logger = logging.getLogger("some.module")
    logger.addHandler(handler)
    try:
        with process.tracers.get_tracer("t").start_as_current_span("s"):
            logger.warning("look at %s", "this")
    finally:
        logger.removeHandler(handler)
    (row,) = rows(directory / "history.db", "SELECT body, event_name FROM logs")
    assert row == {"body": '"look at this"', "event_name": ""}


def test_behind_a_batch_processor(directory: Path) -> None:
    """Records that come after their span has ended belong to it all the same."""
    process = Process(TaskHistoryExporter(directory), TaskHistoryLogExporter())
    process.loggers = LoggerProvider(shutdown_on_exit=False)
    process.loggers.add_log_record_processor(
        BatchLogRecordProcessor(process.logs, schedule_delay_millis=60_000)
    )
    process.work()
    assert prompts(directory) == [None]
    process.loggers.force_flush()
    assert "asked" in prompts(directory)[0]
    process.end()
    check(directory / "history.db")


def test_without_an_exporter_of_spans_it_opens_its_own(directory: Path) -> None:
    """Not before there is something to be kept; tracers do not find it."""
    process = Process(None, TaskHistoryLogExporter(directory=directory))
    process.say("outside", "x")
    assert not directory.exists()
    process.work()
    assert live_sink() is None
    database = directory / "history.db"
    assert rows(database, "SELECT count(*) AS n FROM logs") == [{"n": 1}]
    assert process.logs.force_flush()
    process.end()
    assert process.logs.export([]) is LogRecordExportResult.FAILURE
    process.logs.shutdown()
    check(database)


def test_an_exporter_of_spans_that_comes_later_takes_over(directory: Path) -> None:
    """One process has one connection to a history."""
    logs = TaskHistoryLogExporter(directory=directory)
    alone = Process(None, logs)
    alone.work()
    own = logs._outlet._own
    assert own is not None
    both = Process(TaskHistoryExporter(directory), logs)
    both.work()
    assert own.closed
    assert logs._outlet._own is None
    both.end()
    assert rows(directory / "history.db", "SELECT count(*) AS n FROM logs") == [{"n": 2}]
    assert "asked" in prompts(directory)[0]


def test_a_live_exporter_of_another_history_is_left_alone(directory: Path, tmp_path: Path) -> None:
    """Settings that name a history are kept to; a given exporter is used in any case."""
    live = TaskHistoryExporter(tmp_path / "live")
    other = TaskHistoryLogExporter(directory=directory)
    process = Process(live, other)
    process.work()
    assert rows(directory / "history.db", "SELECT count(*) AS n FROM logs") == [{"n": 1}]
    assert rows(tmp_path / "live" / "history.db", "SELECT * FROM logs") == []
    given = TaskHistoryLogExporter(live, directory=directory)
    process.loggers.add_log_record_processor(SimpleLogRecordProcessor(given))
    process.work()
    assert rows(tmp_path / "live" / "history.db", "SELECT count(*) AS n FROM logs") == [{"n": 1}]
    process.end()
    given.shutdown()
    assert live.closed


def test_settings_are_checked_at_once() -> None:
    """As those of the span exporter."""
    with pytest.raises(SettingsError):
        TaskHistoryLogExporter(durability="perhaps")


def test_nothing_raises(tmp_path: Path) -> None:
    """Not a folder that cannot be made, not a record that cannot be read: it is told."""
    blocked = tmp_path / "a file"
    blocked.write_text("x")
    told: list[BaseException] = []
    logs = TaskHistoryLogExporter(directory=blocked / "history", on_error=told.append)
    process = Process(None, logs)
    process.work()
    assert told
    told.clear()
    assert logs.export([object()]) is LogRecordExportResult.FAILURE
    assert [type(one) for one in told] == [AttributeError]
    process.end()


def test_records_of_another_service_are_refused(directory: Path) -> None:
    """As its spans are: two components with default settings share no history by mistake."""
    first = Process(
        TaskHistoryExporter(directory), TaskHistoryLogExporter(), **{"service.name": "a"}
    )
    first.work()
    other = Process(first.exporter, first.logs, **{"service.name": "b"})
    other.work()
    assert first.exporter is not None
    assert first.exporter.stats()["lost"] == 3
    assert rows(directory / "history.db", "SELECT count(*) AS n FROM logs") == [{"n": 1}]
    first.end()


def test_from_many_threads(process: Process, directory: Path) -> None:
    """All of them arrive, each with its span."""
    threads = [threading.Thread(target=process.work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("asked" in prompt for prompt in prompts(directory)) == 8


def test_while_the_store_is_away(directory: Path) -> None:
    """Records wait in memory with the spans, and come in with them."""
    exporter = TaskHistoryExporter(directory, busy_timeout=0.1)
    process = Process(exporter, TaskHistoryLogExporter())
    process.work()
    with closing(sqlite3.connect(directory / "history.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        process.work()
        assert exporter.stats()["waiting"] > 0
        other.rollback()
    assert process.logs.force_flush()
    assert sum("asked" in prompt for prompt in prompts(directory)) == 2
    process.end()


def test_auto_instrumentation(tmp_path: Path) -> None:
    """``OTEL_LOGS_EXPORTER=taskhistory`` beside the one for traces, and no change of the agent."""
    directory = tmp_path / "history"
    instrument = Path(sys.executable).with_name("opentelemetry-instrument")
    done = subprocess.run(
        [instrument, sys.executable, PROGRAMS / "auto_logs.py"],
        env={
            **os.environ,
            "OTEL_TRACES_EXPORTER": "taskhistory",
            "OTEL_LOGS_EXPORTER": "taskhistory",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_TASKHISTORY_DIRECTORY": str(directory),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    (step,) = rows(directory / "history.db", "SELECT prompt, decision, status FROM steps")
    assert step["status"] == "succeeded"
    assert "how are you?" in step["prompt"]
    assert "well, thank you" in step["decision"]
    assert rows(directory / "history.db", "SELECT count(*) AS n FROM logs") == [{"n": 3}]
    check(directory / "history.db")
