# SPDX-License-Identifier: Apache-2.0
"""The store fails while the agent works: the agent goes on, and no loss is silent."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory.configure import new_provider
from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.store import commit
from tests.processes import PATIENCE, check, listing, one, rows


class Agent:
    """An agent, and what its history told it."""

    def __init__(self, directory: Path, busy_timeout: float) -> None:
        self.directory = directory
        self.errors: list[BaseException] = []
        self.exporter = TaskHistoryExporter(
            directory, busy_timeout=busy_timeout, on_error=self.errors.append
        )
        self.provider: TracerProvider = new_provider(shutdown_on_exit=False)
        self.provider.add_span_processor(TaskHistoryProcessor(self.exporter))
        self.tasks = TaskTracer(self.provider, exporter=self.exporter)

    def step(self, name: str) -> None:
        """A task with one step."""
        with self.tasks.task(name) as task, task.step(name) as step:
            step.prompt(f"prompt of {name}")
            step.decision(f"decision of {name}")

    @property
    def stats(self) -> dict[str, Any]:
        return self.exporter.stats()

    @property
    def goals(self) -> list[str]:
        """Of the tasks that have succeeded, in the order they were committed."""
        return [
            goal
            for (goal,) in rows(
                self.directory,
                "SELECT goal FROM tasks WHERE status = 'succeeded' AND kind = 'agent' ORDER BY id",
            )
        ]

    def losses(self) -> list[dict[str, Any]]:
        found = rows(self.directory, "SELECT detail FROM timeline WHERE event = 'loss'")
        return [json.loads(detail) for (detail,) in found]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent that waits a fifth of a second for locks."""
    agent = Agent(tmp_path / "history", 0.2)
    yield agent
    agent.provider.shutdown()


@pytest.fixture
def other(agent: Agent) -> Iterator[sqlite3.Connection]:
    """Another program's connection to the database."""
    with closing(
        sqlite3.connect(agent.directory / "history.db", isolation_level=None)
    ) as connection:
        yield connection


class Waits:
    """Counts how often somebody waits for the writer with the full busy timeout."""

    def __init__(self, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patient = 0
        work = agent.exporter._writer._write

        def write(entries: list[Any], durable: bool, patient: bool) -> bool:
            self.patient += patient
            return work(entries, durable, patient)

        monkeypatch.setattr(agent.exporter._writer, "_write", write)


@pytest.mark.parametrize("busy_timeout", [0.2, 0])
def test_a_lock_held_for_longer_than_the_busy_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy_timeout: float
) -> None:
    """The agent waits once; then its steps return at once; when the lock goes all is written."""
    agent = Agent(tmp_path / "history", busy_timeout)
    agent.step("before")
    waits = Waits(agent, monkeypatch)
    with closing(
        sqlite3.connect(agent.directory / "history.db", isolation_level=None)
    ) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for number in range(20):
            agent.step(f"step {number}")
        assert waits.patient == 1
        stats = agent.stats
        assert stats["away"] == 1
        assert stats["lost"] == 0
        assert stats["waiting"] == 20 * 6
        assert stats["waiting_bytes"] > 0
        assert stats["last_error"] == "StoreAway: OperationalError: database is locked"
        assert agent.goals == ["before"]
        connection.execute("ROLLBACK")
    assert agent.exporter.force_flush()
    assert agent.goals == ["before", *(f"step {number}" for number in range(20))]
    stats = agent.stats
    assert (stats["waiting"], stats["waiting_bytes"], stats["lost"]) == (0, 0, 0)
    assert stats["spans"] == 21 * 2
    assert len(agent.errors) == 1
    agent.step("after")
    assert agent.goals[-1] == "after"
    seqs = rows(agent.directory, "SELECT task_id, event FROM timeline ORDER BY seq")
    assert [event for _, event in seqs[:5]] == [
        *("task.started", "step.started", "step.prompt", "step.decision", "step.ended"),
    ]
    agent.provider.shutdown()
    check(agent.directory)


def test_the_store_comes_back_by_itself(agent: Agent, other: sqlite3.Connection) -> None:
    """Nobody has to record or flush anything for what waits to be written."""
    other.execute("BEGIN IMMEDIATE")
    agent.step("while locked")
    other.execute("ROLLBACK")
    while agent.stats["waiting"]:
        pass
    assert agent.goals == ["while locked"]


def test_a_full_disk(agent: Agent) -> None:
    """The agent goes on, and when there is room again everything is written."""
    agent.step("before")
    session = agent.exporter._writer._session
    assert session is not None
    connection = session._database.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with agent.tasks.task("large") as task:
        for number in range(5):
            with task.step(f"step {number}") as step:
                step.prompt(f"{number}" * 50_000)
    assert agent.stats["away"] == 1
    assert "full" in agent.stats["last_error"]
    assert rows(agent.directory, "SELECT count(*) FROM steps WHERE name LIKE 'step %'") != [(5,)]
    check(agent.directory)
    connection.execute("PRAGMA max_page_count = 1000000")
    assert agent.exporter.force_flush()
    assert rows(
        agent.directory,
        "SELECT name, length(prompt), status FROM steps WHERE name LIKE 'step %' ORDER BY name",
    ) == [(f"step {number}", 50_000, "succeeded") for number in range(5)]
    assert agent.stats["lost"] == 0
    check(agent.directory)


def test_a_full_backlog_loses_the_oldest_and_says_so(
    agent: Agent,
    other: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The gap is a row in the timeline with the count, told to on_error and in the log."""
    monkeypatch.setattr(commit, "BACKLOG_BYTES", 40_000)
    caplog.set_level(logging.WARNING)
    other.execute("BEGIN IMMEDIATE")
    for number in range(30):
        agent.step(f"step {number}")
    waiting = agent.stats["waiting"]
    assert agent.stats["waiting_bytes"] <= 45_000  # the newest is never given up
    other.execute("ROLLBACK")
    assert agent.exporter.force_flush()
    lost = 30 * 6 - waiting
    assert agent.stats["lost"] == lost > 0
    gaps = agent.losses()
    assert sum(gap["spans"] + gap["checkpoints"] for gap in gaps) == lost
    assert agent.goals[-1] == "step 29"
    assert len(agent.goals) < 30
    # In the order of commits: what a retry had in hand, the gap, what came after it.
    assert one(agent.directory, "SELECT max(seq) FROM timeline WHERE event = 'loss'") < one(
        agent.directory,
        "SELECT min(seq) FROM timeline WHERE task_id ="
        " (SELECT task_id FROM tasks WHERE goal = 'step 29')",
    )
    assert any("lost" in str(error) for error in agent.errors)
    assert any("could not be written in time" in line for line in caplog.messages)
    assert not any("prompt of" in line for line in caplog.messages)
    check(agent.directory)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(2), RecursionError()])
def test_an_interrupt_between_begin_and_commit(
    agent: Agent, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The next export works, and no other process finds the database locked."""
    agent.step("before")
    session = agent.exporter._writer._session
    assert session is not None
    finish = session._projection.finish
    raised = []

    def interrupted() -> None:
        if not raised:
            raised.append(error)
            raise error
        finish()

    monkeypatch.setattr(session._projection, "finish", interrupted)
    agent.step("interrupted")
    assert agent.exporter.force_flush()
    assert raised == [error]
    assert not session._database.connection.in_transaction
    other.execute("PRAGMA busy_timeout = 0")
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    agent.step("after")
    assert agent.goals == ["before", "interrupted", "after"]
    assert agent.stats["lost"] == 0


def test_a_commit_that_fails_forgets_nothing_that_it_had_told(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss that was to be told in a transaction that is rolled back is told in the next."""
    agent.step("before")
    writer = agent.exporter._writer
    session = writer._session
    assert session is not None
    writer._gap("a test", 3, 4)
    finish = session._projection.finish
    raised = []

    def fails_once() -> None:
        if not raised:
            raised.append(True)
            raise OSError(5, "Input/output error")
        finish()

    monkeypatch.setattr(session._projection, "finish", fails_once)
    agent.step("next")
    assert agent.exporter.force_flush()
    assert agent.losses() == [{"reason": "a test", "spans": 3, "checkpoints": 4}]


@pytest.mark.parametrize(
    "what", ["all", "database", "wal", "shm", "directory", "replaced by another"]
)
def test_files_that_are_deleted_or_replaced_while_they_are_open(agent: Agent, what: str) -> None:
    """Writing into a file without a name is noticed: a new history begins, the gap is noted."""
    directory = agent.directory
    agent.step("before")
    names = {
        "all": ["history.db", "history.db-wal", "history.db-shm"],
        "database": ["history.db"],
        "wal": ["history.db-wal"],
        "shm": ["history.db-shm"],
        "replaced by another": [],
        "directory": [],
    }[what]
    for name in names:
        (directory / name).unlink()
    if what == "directory":
        shutil.rmtree(directory)
    if what == "replaced by another":
        replacement = Agent(directory.with_name("other"), 0.2)
        replacement.step("of the replacement")
        replacement.provider.shutdown()
        os.replace(directory.with_name("other") / "history.db", directory / "history.db")
        shutil.rmtree(directory / "artifacts")
    agent.step("after")
    assert agent.exporter.force_flush()
    assert agent.goals[-1] == "after"
    if what == "replaced by another":
        assert agent.goals == ["of the replacement", "after"]
    assert [gap["reason"] for gap in agent.losses()] == ["the database was deleted or replaced"]
    assert any("deleted or replaced" in str(error) for error in agent.errors)
    check(directory)
    agent.step("and on")
    agent.provider.shutdown()
    assert agent.goals[-2:] == ["after", "and on"]
    check(directory)


def test_a_file_of_another_application_in_the_place_is_not_touched(agent: Agent) -> None:
    """The agent goes on, its steps wait; when the file is gone they are written."""
    directory = agent.directory
    agent.step("before")
    for name in ("history.db", "history.db-wal", "history.db-shm"):
        (directory / name).unlink()
    foreign = directory / "history.db"
    foreign.write_text("the notes of somebody else")
    before = listing(directory)
    agent.step("after")
    agent.step("and on")
    assert not agent.exporter.force_flush(300)
    assert listing(directory) == before
    assert "not a SQLite database" in agent.stats["last_error"]
    foreign.unlink()
    assert agent.exporter.force_flush()
    assert agent.goals == ["after", "and on"]


def test_a_copy_made_by_the_agent_itself_does_not_cost_the_write_ahead_log(agent: Agent) -> None:
    """Closing a file gives up the locks of the process; another process that then closes the
    history would remove the log that is being written to. That is noticed before the next commit.
    """
    directory = agent.directory
    agent.step("before")
    shutil.copyfile(directory / "history.db", directory / "copy.db")
    rows_by_a_writer(directory)
    agent.step("after")
    assert agent.exporter.force_flush()
    assert agent.goals == ["before", "after"]
    agent.provider.shutdown()
    assert agent.goals == ["before", "after"]
    check(directory)


def rows_by_a_writer(directory: Path) -> None:
    """Another process opens the database, able to write, reads, and closes it."""
    import subprocess
    import sys

    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        "c.execute('SELECT * FROM tasks').fetchall(); c.close()"
    )
    subprocess.run([sys.executable, "-c", script, directory / "history.db"], check=True)


def test_double_shutdown_and_export_after_it(agent: Agent) -> None:
    """Both are harmless; the history is not opened again."""
    agent.step("before")
    agent.exporter.shutdown()
    before = listing(agent.directory)
    agent.exporter.shutdown()
    agent.provider.shutdown()
    assert agent.exporter.export([]).name == "FAILURE"
    agent.step("after")
    assert agent.exporter.force_flush()
    assert listing(agent.directory) == before
    assert agent.goals == ["before"]
    assert not any(thread.name == "otel-taskhistory" for thread in threading.enumerate())


def test_shutdown_while_another_program_holds_the_lock_is_bounded_and_tells_what_is_lost(
    agent: Agent, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written until then is counted and reported."""
    close = agent.exporter._writer.close
    monkeypatch.setattr(agent.exporter._writer, "close", lambda: close(0.3))
    other.execute("BEGIN IMMEDIATE")
    agent.step("never stored")
    agent.exporter.shutdown()
    assert agent.stats["lost"] == 6
    assert any("2 spans and 4 checkpoints were lost" in str(error) for error in agent.errors)
    other.execute("ROLLBACK")


def test_force_flush_honours_its_timeout(agent: Agent, other: sqlite3.Connection) -> None:
    """Whoever holds the lock."""
    other.execute("BEGIN IMMEDIATE")
    agent.step("waits")
    assert agent.exporter.force_flush(1) is False
    assert agent.provider.force_flush(1) is False
    other.execute("ROLLBACK")
    assert agent.exporter.force_flush(int(PATIENCE * 1000)) is True


def test_a_log_handler_that_makes_spans_on_our_provider(
    agent: Agent, other: sqlite3.Connection
) -> None:
    """Neither recursion nor a hang, in the agent's threads and in the writing one."""
    tracer = agent.provider.get_tracer("a.logger")

    class Spans(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with tracer.start_as_current_span("log"):
                pass

    handler = Spans()
    logging.getLogger().addHandler(handler)
    try:
        other.execute("BEGIN IMMEDIATE")
        agent.step("locked")  # logged by the writing thread
        agent.exporter._failed("a test", RuntimeError())  # and by this one
        other.execute("ROLLBACK")
        assert agent.exporter.force_flush()
        agent.step("after")
    finally:
        logging.getLogger().removeHandler(handler)
    assert agent.goals == ["locked", "after"]
    assert one(agent.directory, "SELECT count(*) FROM spans WHERE name = 'log'") >= 2


def test_an_error_callback_that_records_and_fails(tmp_path: Path) -> None:
    """It is called once per failure, may record, and its own failure is only logged."""
    called: list[BaseException] = []

    def on_error(error: BaseException) -> None:
        called.append(error)
        with provider.get_tracer("a.callback").start_as_current_span("in the callback"):
            exporter._failed("a failure within", ValueError())
        raise RuntimeError("so does this")

    exporter = TaskHistoryExporter(tmp_path / "history", on_error=on_error)
    provider = new_provider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    exporter._failed("a test", RuntimeError())
    assert [type(error) for error in called] == [RuntimeError]
    assert exporter.stats()["errors"] == {"RuntimeError": 1, "ValueError": 1}
    provider.shutdown()
    assert one(tmp_path / "history", "SELECT name FROM spans") == "in the callback"


def test_an_instrumentation_of_sqlite3_does_not_see_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It patches ``sqlite3.connect``; an exporter that traces itself feeds itself for ever."""

    def traced(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the history was opened by the patched function")

    monkeypatch.setattr(sqlite3, "connect", traced)
    monkeypatch.setattr(sqlite3.dbapi2, "connect", traced)
    agent = Agent(tmp_path / "history", 0.2)
    agent.step("a step")
    with agent.tasks.task("keyed", key="k"):
        pass
    assert agent.tasks.task("keyed", key="k").ended
    agent.provider.shutdown()
    assert agent.errors == []
