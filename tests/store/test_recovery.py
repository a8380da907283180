# SPDX-License-Identifier: Apache-2.0
"""What dead processes left running becomes ``interrupted``; nothing else does."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.processes import dead
from otel_taskhistory.store.recovery import (
    Recovered,
    reapply,
    recover,
    recover_task,
)
from otel_taskhistory.store.times import iso
from tests.workers import Worker

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills as POSIX does")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history is."""
    return tmp_path / "history"


@pytest.fixture
def database(directory: Path) -> Iterator[Database]:
    """The history as another writer has it open, which has not looked for the dead."""
    database = Database(Settings.resolve(directory=directory, environ={}))
    yield database
    database.close()


@dataclass
class Agent:
    """An agent in the process of the test."""

    exporter: TaskHistoryExporter
    provider: TracerProvider
    tasks: TaskTracer


@contextmanager
def agent(directory: Path, *, plain: bool = False) -> Iterator[Agent]:
    """An agent with our processor, or (`plain`) with one that exports spans when they end."""
    exporter = TaskHistoryExporter(directory, durability="normal")
    provider = TracerProvider()
    processor = SimpleSpanProcessor(exporter) if plain else TaskHistoryProcessor(exporter)
    provider.add_span_processor(processor)
    yield Agent(exporter, provider, TaskTracer(provider, exporter=exporter))
    provider.shutdown()


def call_dead(database: Database, *, pid: int | None = None) -> Recovered:
    """Take the writers of a process (this one, by default) for dead, whether they are or not."""
    with database.transaction() as connection:
        rows = connection.execute(
            "SELECT id FROM _processes WHERE pid = ? AND ended_ns IS NULL", (pid or os.getpid(),)
        ).fetchall()
        return recover(connection, [row[0] for row in rows], time.time_ns())


def statuses(database: Database) -> dict[str, list[str]]:
    """Statuses in each of the public tables, in the order of start."""
    return {
        name: [
            row[0]
            for row in database.connection.execute(f"SELECT status FROM {name} ORDER BY started_at")
        ]
        for name in ("tasks", "steps", "model_calls", "tool_calls")
    }


def all_statuses(database: Database) -> set[str]:
    """The statuses that there are, in whichever table."""
    return {status for found in statuses(database).values() for status in found}


def told(database: Database, *events: str) -> list[tuple[str, Any]]:
    """The timeline's records of some events, in order."""
    found = database.connection.execute("SELECT event, detail FROM timeline ORDER BY seq")
    return [(event, json.loads(detail)) for event, detail in found if event in events]


ENDS = ("tool_call.ended", "step.interrupted", "step.ended", "task.interrupted", "task.ended")


# --- dead processes ---


def test_what_a_killed_process_left_running_is_interrupted(
    directory: Path, database: Database
) -> None:
    """After SIGKILL the next open calls task, step, model call and tool call interrupted."""
    with Worker(directory) as worker:
        worker.kill()
        assert all_statuses(database) == {"running"}
        TaskHistoryExporter(directory).shutdown()
    assert statuses(database) == {
        "tasks": ["interrupted"],
        "steps": ["interrupted"],
        "model_calls": ["interrupted"],
        "tool_calls": ["interrupted"],
    }
    history = TaskHistory(directory)
    task = history.task(worker.task_id)
    (step,) = history.steps(worker.task_id)
    (seen_ns,) = database.connection.execute(
        "SELECT seen_ns FROM _processes WHERE pid = ?", (worker.pid,)
    ).fetchone()
    assert task.ended_at == step.ended_at == iso(seen_ns)
    assert task.started_at <= step.started_at <= iso(seen_ns)
    assert task.duration_ms is not None
    assert task.duration_ms >= 0
    assert (task.error, step.error) == (None, None)
    assert step.prompt is not None
    assert "where?" in step.prompt
    assert step.tool_name == "click"


def test_an_interruption_is_told_once_however_often_the_history_is_opened(
    directory: Path, database: Database
) -> None:
    """The timeline has one record each for tool call, step and task, in this order."""
    with Worker(directory) as worker:
        worker.kill()
    for _ in range(3):
        TaskHistoryExporter(directory).shutdown()
    (span,) = database.connection.execute("SELECT span_id FROM tool_calls").fetchone()
    assert told(database, *ENDS) == [
        (
            "tool_call.ended",
            {"span_id": span, "name": "click", "call_id": "c1", "status": "interrupted"},
        ),
        ("step.interrupted", {"index": 1}),
        ("task.interrupted", {"attempt": 1}),
    ]
    records = database.connection.execute(
        "SELECT task_id, step_id FROM timeline WHERE event IN ('tool_call.ended',"
        " 'step.interrupted', 'task.interrupted') ORDER BY seq"
    ).fetchall()
    step = (worker.task_id, worker.step_id)
    assert records == [step, step, (worker.task_id, None)]


def test_the_living_are_left_alone(directory: Path, database: Database) -> None:
    """Opening a history changes nothing of what other processes are running."""
    with Worker(directory), Worker(directory) as dies:
        dies.kill()
        TaskHistoryExporter(directory).shutdown()
        found = database.connection.execute("SELECT task_id FROM tasks WHERE status = 'running'")
        assert dies.task_id not in [row[0] for row in found]
        assert sorted(statuses(database)["steps"]) == ["interrupted", "running"]
        assert sorted(statuses(database)["tasks"]) == ["interrupted", "running"]


def test_a_forked_child_does_not_keep_its_parents_task_running(
    directory: Path, database: Database
) -> None:
    """The task of a killed parent is interrupted although a child of it lives."""
    with Worker(directory) as worker:
        worker.ask("fork")
        worker.kill()
        TaskHistoryExporter(directory).shutdown()
        assert statuses(database)["tasks"] == ["interrupted"]


def test_spans_left_open_at_a_clean_end_are_interrupted_then(
    directory: Path, database: Database
) -> None:
    """A process that ends in order leaves nothing running: what it never ended is interrupted."""
    with agent(directory) as here:
        here.tasks.task("never ended").step("nor this").prompt("?")
        assert statuses(database)["tasks"] == ["running"]
    assert statuses(database)["tasks"] == ["interrupted"]
    assert statuses(database)["steps"] == ["interrupted"]
    (ended,) = database.connection.execute("SELECT ended_ns FROM _processes").fetchone()
    assert TaskHistory(directory).task("latest").ended_at == iso(ended)


def test_a_task_is_as_young_as_its_interruption(directory: Path, database: Database) -> None:
    """What is found after a long time is not due for removal before anybody has seen it."""
    with Worker(directory) as worker:
        worker.kill()
    before = time.time_ns()
    TaskHistoryExporter(directory).shutdown()
    (committed,) = database.connection.execute("SELECT committed_ns FROM tasks").fetchone()
    assert committed >= before


def test_processes_of_the_past_are_forgotten(directory: Path, database: Database) -> None:
    """Rows of processes do not pile up: each open removes old ones that nothing refers to."""
    with database.transaction() as connection:
        connection.executemany(
            "INSERT INTO _processes (pid, host, started_ns, seen_ns, ended_ns)"
            " VALUES (1, 'h', 1, 1, 1)",
            [()] * 300,
        )
    TaskHistoryExporter(directory).shutdown()
    assert database.connection.execute("SELECT count(*) FROM _processes").fetchone()[0] < 150


# --- tasks that somebody else has to do with ---


def test_a_resumed_task_runs_although_its_first_process_is_dead(
    directory: Path, database: Database
) -> None:
    """The latest attempt decides: interrupted, then running again, each attempt's step kept."""
    with Worker(directory) as first:
        first.kill()
        with Worker(directory, "resume", first.task_id) as second:
            assert second.task_id == first.task_id
            TaskHistoryExporter(directory).shutdown()
            assert statuses(database)["tasks"] == ["running"]
            assert statuses(database)["steps"] == ["interrupted", "running"]
            second.kill()
        TaskHistoryExporter(directory).shutdown()
    assert statuses(database)["tasks"] == ["interrupted"]
    assert statuses(database)["steps"] == ["interrupted", "interrupted"]
    assert told(database, "task.interrupted", "task.resumed") == [
        ("task.interrupted", {"attempt": 1}),
        ("task.resumed", {"attempt": 2}),
        ("task.interrupted", {"attempt": 2}),
    ]


def test_a_process_that_only_added_to_a_task_does_not_take_it_along(
    directory: Path, database: Database
) -> None:
    """Steps of a dead process in a living one's trace are interrupted, the task is not."""
    with Worker(directory) as lives:
        with agent(directory) as here:
            root = SpanContext(
                int(lives.task_id, 16),
                int(lives.step_id, 16),
                is_remote=True,
                trace_flags=TraceFlags(1),
            )
            tracer = here.provider.get_tracer("other")
            inner = tracer.start_span(
                "chat",
                context=set_span_in_context(NonRecordingSpan(root)),
                attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"},
            )
            here.exporter.begin(inner)  # type: ignore[arg-type]
        assert statuses(database)["tasks"] == ["running"]
        assert statuses(database)["steps"] == ["running"]
        open_ = database.connection.execute(
            "SELECT status FROM _model_calls JOIN _spans ON _spans.id = span WHERE span_id = ?",
            (f"{inner.get_span_context().span_id:016x}",),
        )
        assert open_.fetchall() == [("interrupted",)]


def test_earlier_looks_whether_the_process_of_a_task_died(
    directory: Path, database: Database
) -> None:
    """A process that died after we opened is found out when somebody asks for its task."""
    with Worker(directory) as worker, Worker(directory) as other, agent(directory) as here:
        earlier = here.exporter.earlier(task_id=worker.task_id)
        assert earlier is not None
        assert earlier.status == "running"
        worker.kill()
        earlier = here.exporter.earlier(task_id=worker.task_id)
        assert earlier is not None
        assert (earlier.status, earlier.last_step_index) == ("interrupted", 1)
        found = here.exporter.earlier(task_id=other.task_id)
        assert found is not None
        assert found.status == "running"


def test_recover_task_leaves_other_dead_processes_to_others(
    directory: Path, database: Database
) -> None:
    """Only the processes of the task asked for are looked into."""
    with Worker(directory) as one, Worker(directory) as two:
        one.kill()
        two.kill()
        with database.transaction() as connection:
            assert recover_task(connection, database.path, two.task_id, 1) == Recovered(1, 1, 1)
            assert recover_task(connection, database.path, two.task_id, 1) == Recovered()
            assert recover_task(connection, database.path, "0" * 32, 1) == Recovered()
            assert len(dead(connection, database.path)) == 1
    assert statuses(database)["tasks"] == ["running", "interrupted"]


# --- tasks whose root was never seen ---


def test_a_task_without_its_root_is_interrupted_with_its_process(
    directory: Path, database: Database
) -> None:
    """With a standard processor the root is not written; its local child shows where it ran."""
    with agent(directory, plain=True) as here:
        task = here.tasks.task("goal")
        with task.step("one"):
            pass
        assert statuses(database)["tasks"] == ["running"]
        assert call_dead(database) == Recovered(tasks=1)
        assert statuses(database)["tasks"] == ["interrupted"]
        assert told(database, *ENDS)[-1] == ("task.interrupted", {"attempt": 1})
        task.end()
        assert statuses(database)["tasks"] == ["succeeded"]
        assert told(database, *ENDS)[-1] == ("task.ended", {"status": "succeeded"})


def test_a_task_that_began_elsewhere_is_not_interrupted_by_a_helper(
    directory: Path, database: Database
) -> None:
    """Ended spans whose parent is in another process say nothing of that one."""
    with agent(directory, plain=True) as here:
        with here.tasks.task("goal").step("one"):
            pass
        with database.transaction() as connection:
            connection.execute("UPDATE _spans SET parent_remote = 1")
    assert statuses(database)["tasks"] == ["running"]


# --- taken back ---


def test_the_end_of_a_span_wins_over_its_interruption(directory: Path, database: Database) -> None:
    """A process wrongly taken for dead ends its spans: they have ended, and that is told."""
    with Worker(directory) as worker:
        assert call_dead(database, pid=worker.pid) == Recovered(1, 1, 1)
        worker.ask("end")
    assert all_statuses(database) == {"succeeded"}
    assert [event for event, _ in told(database, *ENDS)] == [
        *("tool_call.ended", "step.interrupted", "task.interrupted"),
        *("tool_call.ended", "step.ended", "task.ended"),
    ]
    before = database.connection.execute("SELECT * FROM tasks").fetchall()
    TaskHistoryExporter(directory).shutdown()
    assert database.connection.execute("SELECT * FROM tasks").fetchall() == before


def test_what_a_closed_exporter_left_open_may_end_in_another(
    directory: Path, database: Database
) -> None:
    """Of two exporters of a process one is closed: what ends after that has ended, and is told.

    The step shows its last finished model call, not the one that was cut off.
    """
    with agent(directory) as here:
        other = TaskHistoryExporter(directory, durability="normal")
        here.provider.add_span_processor(SimpleSpanProcessor(other))
        task = here.tasks.task("goal")
        step = task.step("one")
        step.prompt("first?")
        step.decision("yes")
        step.prompt("second?")
        tool = step.tool_call("click")
        here.exporter.shutdown()
        assert statuses(database) == {
            "tasks": ["interrupted"],
            "steps": ["interrupted"],
            "model_calls": ["succeeded", "interrupted"],
            "tool_calls": ["interrupted"],
        }
        tool.end()
        (shown,) = TaskHistory(directory).steps(task.id)
        assert shown.status == "interrupted"
        assert shown.decision is not None
        assert "yes" in shown.decision
        step.end()
        task.end()
    assert [(event, detail.get("status")) for event, detail in told(database, *ENDS)] == [
        ("tool_call.ended", "interrupted"),
        ("step.interrupted", None),
        ("task.interrupted", None),
        ("tool_call.ended", "succeeded"),
        ("step.ended", "succeeded"),
        ("task.ended", "succeeded"),
    ]


def test_a_process_wrongly_taken_for_dead_goes_on(directory: Path, database: Database) -> None:
    """Its next commit brings back all that it runs, not only the span that it is about."""
    with Worker(directory) as worker:
        before = {
            name: database.connection.execute(f"SELECT * FROM {name}").fetchall()
            for name in ("_tool_calls", "tasks")
        }
        call_dead(database, pid=worker.pid)
        worker.ask("checkpoint")
        assert statuses(database) == {
            "tasks": ["running"],
            "steps": ["running"],
            "model_calls": ["succeeded"],  # the decision was the commit
            "tool_calls": ["running"],
        }
        assert told(database, "task.resumed") == [("task.resumed", {"attempt": 1})]
        assert (
            database.connection.execute("SELECT * FROM _tool_calls").fetchall()
            == (before["_tool_calls"])
        )
        (ended_at, duration) = database.connection.execute(
            "SELECT ended_at, duration_ms FROM tasks"
        ).fetchone()
        assert (ended_at, duration) == (None, None)
        TaskHistoryExporter(directory).shutdown()
        assert statuses(database)["tasks"] == ["running"]
        worker.kill()
        TaskHistoryExporter(directory).shutdown()
    assert statuses(database)["tool_calls"] == ["interrupted"]
    (span,) = database.connection.execute("SELECT span_id FROM tool_calls").fetchone()
    detail = {"span_id": span, "name": "click", "call_id": "c1", "status": "interrupted"}
    assert told(database, "tool_call.ended") == [("tool_call.ended", detail)] * 2
    assert [event for event, _ in told(database, "task.interrupted", "task.resumed")] == [
        *("task.interrupted", "task.resumed", "task.interrupted"),
    ]


def test_all_that_a_process_runs_comes_back_with_it(directory: Path, database: Database) -> None:
    """A commit for one task brings back the others too, as if nothing had been."""
    with agent(directory) as here:
        steps = [here.tasks.task(goal).step("one") for goal in ("first", "second")]
        for step in steps:
            step.tool_call("click")
        tables = ("_steps", "_tool_calls")
        before = {name: _rows(database, name) for name in tables}
        call_dead(database)
        assert all_statuses(database) == {"interrupted"}
        steps[0].tool_call("type")
        assert all_statuses(database) == {"running"}
        after = {name: _rows(database, name) for name in tables}
        assert after["_steps"] == before["_steps"]
        assert after["_tool_calls"][:2] == before["_tool_calls"]


def test_a_task_that_was_resumed_meanwhile_stays_with_its_new_process(
    directory: Path, database: Database
) -> None:
    """When a process comes back whose task another one has resumed, the later attempt counts."""
    with Worker(directory) as first:
        call_dead(database, pid=first.pid)
        with Worker(directory, "resume", first.task_id) as second:
            first.ask("checkpoint")
            second.ask("end")
            first.ask("end")
            assert TaskHistory(directory).task(first.task_id).attempt == 2
    assert statuses(database)["tasks"] == ["succeeded"]


# --- what is derived anew ---


def test_assembly_knows_of_interruptions(directory: Path, database: Database) -> None:
    """A span that another process adds to the trace does not bring dead steps back to life."""
    with agent(directory) as here:
        tracer = here.provider.get_tracer("other")
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
        root = tracer.start_span("agent", attributes=attributes)
        within = set_span_in_context(root)
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        call = tracer.start_span("chat", context=within, attributes=attributes)
        here.exporter.begin(call)  # type: ignore[arg-type]
    ended = TaskHistory(directory).task("latest").ended_at
    assert statuses(database)["steps"] == ["interrupted"]
    with agent(directory, plain=True) as here:
        tracer = here.provider.get_tracer("other")
        context = set_span_in_context(NonRecordingSpan(root.get_span_context()))
        tracer.start_span("chat", context=context, attributes=attributes).end()
    assert statuses(database)["tasks"] == ["interrupted"]
    assert statuses(database)["steps"] == ["interrupted", "succeeded"]
    assert TaskHistory(directory).task("latest").ended_at == ended
    assert [event for event, _ in told(database, "step.interrupted", "task.interrupted")] == [
        "step.interrupted",
        "task.interrupted",
    ]


def test_reapply_finds_in_the_ledger_what_recovery_did(directory: Path, database: Database) -> None:
    """Rows that were rebuilt as running become what they were, and nothing is told again."""
    with Worker(directory) as worker, Worker(directory) as lives:
        worker.kill()
        with agent(directory, plain=True) as here, here.tasks.task("never ends").step("one"):
            pass
        tables = ("tasks", "_steps", "_model_calls", "_tool_calls")
        before = {name: _rows(database, name) for name in tables}
        timeline = _rows(database, "_timeline")
        with database.transaction() as connection:
            connection.execute(
                "UPDATE tasks SET status = 'running', ended_ns = NULL, ended_at = NULL,"
                " duration_ms = NULL WHERE status = 'interrupted'"
            )
            for name in tables[1:]:
                connection.execute(
                    f"UPDATE {name} SET status = 'running', ended_ns = NULL"
                    " WHERE status = 'interrupted'"
                )
            reapply(connection)
        assert {name: _rows(database, name) for name in tables} == before
        assert _rows(database, "_timeline") == timeline
        assert sorted(statuses(database)["tasks"]) == ["interrupted", "interrupted", "running"]
        assert TaskHistory(directory).task(lives.task_id).status == "running"


def _rows(database: Database, table: str) -> list[Any]:
    return database.connection.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


# --- many ---


class CountingCursor(sqlite3.Cursor):
    """Counts the rows that Python gets to see."""

    fetched = 0

    def fetchone(self) -> Any:
        """As ever."""
        row = super().fetchone()
        CountingCursor.fetched += row is not None
        return row

    def fetchall(self) -> list[Any]:
        """As ever."""
        rows = super().fetchall()
        CountingCursor.fetched += len(rows)
        return rows

    def __next__(self) -> Any:
        row = super().__next__()
        CountingCursor.fetched += 1
        return row


class CountingConnection(sqlite3.Connection):
    """Makes such cursors."""

    def execute(self, *statement: Any) -> Any:
        """As ever."""
        return self.cursor(CountingCursor).execute(*statement)


def test_recovery_is_set_based(database: Database) -> None:
    """50,000 running steps cost as many statements as one, and no row of them is fetched.

    Nor is any table read from end to end.
    """
    _many(database, tasks=500, steps=50_000)
    connection = CountingConnection(str(database.path), isolation_level=None)
    statements: list[str] = []
    connection.execute("BEGIN IMMEDIATE")
    connection.set_trace_callback(statements.append)
    CountingCursor.fetched = 0
    assert recover(connection, [1], 10) == Recovered(tasks=500, steps=50_000, tool_calls=1)
    connection.set_trace_callback(None)
    assert CountingCursor.fetched == 2  # when the process was last seen, and the last commit
    # What triggers do is traced as the statement that fires them, once more for each row.
    assert len({one for one in statements if not one.startswith("--")}) == 11
    for statement in statements:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        assert not [
            step for *_, step in plan if step.startswith("SCAN ") and step != "SCAN CONSTANT ROW"
        ], statement
    connection.execute("COMMIT")
    connection.close()
    assert set(statuses(database)["steps"]) == {"interrupted"}


def _many(database: Database, *, tasks: int, steps: int) -> None:
    """Running tasks and steps of a process, as if it had begun them all at once."""
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})"
    span = (
        "INSERT INTO _spans (id, trace, span_id, parent_span_id, parent_remote, name, kind,"
        " start_ns, status_code, trace_state, flags, dropped_attributes, dropped_events,"
        " dropped_links, resource, scope, role, facts, process, seen_ns, size, templates,"
        " attributes, events, links) SELECT {0}, 1 + i % {3}, printf('%016x', {0}), {1}, 0, 'n',"
        " 'INTERNAL', 1, 'UNSET', '', 0, 0, 0, 0, 1, 1, '{2}', '{{}}', 1, 1, 0, 0, '{{}}', '[]',"
        " '[]' FROM n"
    )
    task_columns = "task_id, trace_id, kind, status, started_at, started_ns, committed_ns, trace"
    step_columns = "task, span, step_index, name, status, attempt, started_ns, told"
    tool_columns = "span, step, task, name, status, started_ns, told"
    step_span = span.format(f"i + {tasks}", f"printf('%016x', 1 + i % {tasks})", "step", tasks)
    run = database.connection.execute
    with database.transaction():
        run("INSERT INTO _processes (pid, host, started_ns, seen_ns) VALUES (1, 'h', 1, 5)")
        run("INSERT INTO _contents (id, hash, template, pictures, text) VALUES (1, x'', 0, 0, '')")
        run(f"{numbers.format(tasks)} INSERT INTO _traces SELECT i, printf('%032x', i), 0 FROM n")
        run(f"{numbers.format(tasks)} {span.format('i', 'NULL', 'task', tasks)}")
        run(f"{numbers.format(steps)} {step_span}")
        run(
            f"INSERT INTO tasks (id, {task_columns}, root) SELECT id, trace_id, trace_id, 'agent',"
            " 'running', '', 1, 1, id, id FROM _traces"
        )
        run(
            f"INSERT INTO _steps ({step_columns}) SELECT trace, id, 1, 'n', 'running', 1, 1,"
            " 'running' FROM _spans WHERE role = 'step'"
        )
        run(
            f"INSERT INTO _tool_calls ({tool_columns})"
            " VALUES (1, 1, 1, 'n', 'running', 1, 'running')"
        )
