# SPDX-License-Identifier: Apache-2.0
"""What readers are shown of a task whose process has died, before any writer has noted it."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_taskhistory import TaskHistory, TaskHistoryExporter
from otel_taskhistory.cli import cli
from otel_taskhistory.store import lockfile
from otel_taskhistory.store.gone import ReadConnection
from otel_taskhistory.store.processes import certainly_gone, dead, lock_path
from tests.processes import listing
from tests.recorded import one_task, recording
from tests.workers import Worker

pytestmark = pytest.mark.skipif(os.name != "posix", reason="kills as POSIX does")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history is."""
    return tmp_path / "history"


def left_behind(directory: Path) -> str:
    """A task with a step and a tool call whose process was killed in the middle; its id."""
    with Worker(directory) as worker:
        worker.kill()
        return worker.task_id


def everything(directory: Path, task_id: str) -> tuple[list[Any], list[float | None], Any]:
    """A task and all that is in it: (rows without durations, durations in ms, counts)."""
    with TaskHistory(directory) as history:
        rows: list[Any] = [
            history.task(task_id),
            *history.tasks(),
            *history.steps(task_id),
            *history.model_calls(task_id),
            *history.tool_calls(task_id),
            *history.step_outcomes(task_id)[1],
        ]
        counts = (history.step_outcomes(task_id)[0], history.stats().tasks)
    return (
        [replace(row, duration_ms=None) for row in rows],
        [row.duration_ms for row in rows],
        counts,
    )


def as_shown(
    shown: tuple[list[Any], list[float | None], Any],
) -> tuple[list[Any], list[Any], Any]:
    """What is to be found later: durations are shown of times that are cut to microseconds."""
    rows, durations, counts = shown
    return rows, [pytest.approx(duration, abs=0.002) for duration in durations], counts


def edit(directory: Path, **values: object) -> None:
    """Write something else into every row of a writer."""
    database = sqlite3.connect(directory / "history.db")
    with closing(database), database:
        for column, value in values.items():
            database.execute(f"UPDATE _processes SET {column} = ?", (value,))


def test_a_reader_is_shown_what_the_next_writer_will_note(directory: Path) -> None:
    """Task, step, model call, tool call and the counts: interrupted, when last seen."""
    task_id = left_behind(directory)
    shown = everything(directory, task_id)
    rows, _, counts = shown
    assert {row.status for row in rows} == {"interrupted"}
    assert all(row.ended_at is not None for row in rows)
    assert counts == ({"interrupted": 1}, {"interrupted": 1})
    with closing(sqlite3.connect(directory / "history.db")) as database:
        assert database.execute("SELECT status FROM tasks").fetchall() == [("running",)]
    TaskHistoryExporter(directory).shutdown()
    assert everything(directory, task_id) == as_shown(shown)


def test_a_task_whose_root_never_came_is_shown_so_too(directory: Path) -> None:
    """Behind a standard processor only what had ended is there; it ended with its last span."""
    program = f"""if True:
        import os, signal
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from otel_taskhistory import TaskHistoryExporter, TaskTracer
        exporter = TaskHistoryExporter({str(directory)!r})
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        task = TaskTracer(provider, exporter=exporter).task("a goal")
        with task.step() as step:
            step.decision("done")
        exporter.force_flush()
        print(task.id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    task_id = done.stdout.strip()
    shown = everything(directory, task_id)
    assert {type(row).__name__: row.status for row in shown[0]} == {
        "Task": "interrupted",
        "Step": "succeeded",
        "ModelCall": "succeeded",
    }
    TaskHistoryExporter(directory).shutdown()
    assert everything(directory, task_id) == as_shown(shown)


def test_showing_it_changes_nothing(directory: Path) -> None:
    """Not a byte, not a file, not a lock."""
    task_id = left_behind(directory)
    before = listing(directory)
    everything(directory, task_id)
    after = listing(directory)
    shm = "history.db-shm"  # in which every reader notes where it reads
    assert {**after, shm: None} == {**before, shm: None}


def test_lists_by_status_agree_with_what_is_shown(directory: Path) -> None:
    """A dead one is not among the running, and is among the interrupted; so are the counts."""
    task_id = left_behind(directory)
    with Worker(directory, "none"), TaskHistory(directory) as history:
        # That writer has noted it. One that dies now has not been.
        assert [task.task_id for task in history.tasks(status="interrupted")] == [task_id]
        with Worker(directory) as lives, Worker(directory) as dies:
            dies.kill()
            assert [task.task_id for task in history.tasks(status="running")] == [lives.task_id]
            found = {task.task_id for task in history.tasks(status="interrupted")}
            assert found == {task_id, dies.task_id}
            assert history.count_tasks(status="running") == 1
            assert history.count_tasks(status="interrupted") == 2
            assert history.count_tasks(status="succeeded") == 0
            assert history.stats().tasks == {"interrupted": 2, "running": 1}


def test_the_living_are_shown_as_running(directory: Path) -> None:
    """Whether it records at this moment or not, and also to a reader in the very process."""
    with Worker(directory) as worker, TaskHistory(directory) as history:
        assert history.task(worker.task_id).status == "running"
        assert history.step(worker.step_id).status == "running"
    with (
        recording(directory) as tasks,
        tasks.task("here") as task,
        TaskHistory(directory) as history,
    ):
        assert history.task(task.id).status == "running"


def test_a_task_that_ended_just_before_its_process_did(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had died is found out before the snapshot: its last commit is in what is read."""
    task_id = ""

    def look(self: ReadConnection, database: Path) -> None:
        nonlocal task_id
        if not task_id:
            with recording(directory) as tasks:
                task_id = one_task(tasks)
        self.died = frozenset(range(100))  # it has left in order meanwhile

    with recording(directory) as tasks:
        one_task(tasks, "before")
    with TaskHistory(directory) as history:
        monkeypatch.setattr(ReadConnection, "look", look)
        monkeypatch.setattr(ReadConnection, "died", frozenset())
        assert [task.status for task in history.tasks()] == ["succeeded", "succeeded"]
        assert history.task(task_id).ended_at is not None


@linux
def test_a_process_of_another_machine_is_not_called_gone(directory: Path) -> None:
    """Its lock may only look free from here: a writer decides, who comes to go on with the work."""
    task_id = left_behind(directory)
    edit(directory, host="elsewhere", birth="another-boot pid:[1] 7")
    with TaskHistory(directory) as history:
        assert history.task(task_id).status == "running"
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        assert dead(connection, directory / "history.db") != []
        assert certainly_gone(connection, directory / "history.db") == set()


@linux
def test_a_process_of_a_container_of_this_machine_is_judged_by_its_lock(directory: Path) -> None:
    """The kernel is one, so are its locks; the name of the host does not matter."""
    with Worker(directory) as worker, TaskHistory(directory) as history:
        edit(directory, host="a-container")
        assert history.task(worker.task_id).status == "running"
        worker.kill()
        assert history.task(worker.task_id).status == "interrupted"


@pytest.mark.parametrize(
    "values",
    [
        {"birth": "x"},
        {"birth": "a b c d"},
        {"pid": 2**62},
        {"pid": -1},
        {"host": "", "lock": "no id"},
        {"id": 2**63 - 2},
    ],
    ids=str,
)
def test_rows_of_writers_that_make_no_sense(directory: Path, values: dict[str, object]) -> None:
    """Whatever is read there, neither a reader nor the next writer fails."""
    task_id = left_behind(directory)
    database = sqlite3.connect(directory / "history.db")
    with closing(database), database:
        for column, value in values.items():
            database.execute(f"UPDATE _processes SET {column} = ?", (value,))
    with TaskHistory(directory) as history:
        assert history.task(task_id).status in ("running", "interrupted")
    with recording(directory) as tasks:
        one_task(tasks, "goes on")
    with TaskHistory(directory) as history:
        assert history.tasks()[0].status == "succeeded"


def test_a_place_that_can_only_be_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount may be read-only: the lock is asked about all the same, and can be held later."""
    task_id = left_behind(directory)
    opened = os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_RDWR and str(path).endswith(".writers.lock"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opened(path, flags, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(lockfile.os, "open", read_only)
        with TaskHistory(directory) as history:
            assert history.task(task_id).status == "interrupted"
        file = lockfile.lock_file(lock_path(directory / "history.db"), create=False)
        assert file is not None
        assert not file._writable
    with recording(directory) as tasks, tasks.task("held"):
        assert file._writable
        with closing(sqlite3.connect(directory / "history.db")) as connection:
            locks = connection.execute("SELECT lock FROM _processes ORDER BY id DESC LIMIT 1")
            assert locks.fetchall() == [(file.id,)]


def test_the_command_shows_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody sees who is woken at night: interrupted, when it was last seen."""
    monkeypatch.setenv("COLUMNS", "100")
    task_id = left_behind(directory)

    def run(*arguments: str) -> str:
        found = CliRunner().invoke(cli, [*arguments, "--directory", str(directory)])
        assert found.exit_code == 0, found.output
        return found.stdout

    page = run("show", "latest")
    assert page.startswith("‼ interrupted")
    assert "last seen" in page
    assert "running" not in page
    assert "interrupted" in run("show", "latest", "--step", "1")
    assert json.loads(run("tasks", "--status", "running", "--json")) == []
    (task,) = json.loads(run("tasks", "--status", "interrupted", "--json"))
    assert task["task_id"] == task_id
    assert "interrupted" in run("tasks")
