# SPDX-License-Identifier: Apache-2.0
"""``prune``, ``pin`` and ``unpin``."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from otel_taskhistory import history
from otel_taskhistory.cli import prune
from tests.processes import Program, rows
from tests.recorded import chat, one_task, recording

Run = Callable[..., Result]


@pytest.fixture
def ids(directory: Path) -> list[str]:
    """Five tasks, the oldest first."""
    with recording(directory, owner="another") as tasks:
        return [one_task(tasks, f"goal {number}") for number in range(5)]


def hashes(directory: Path) -> dict[str, str]:
    """What lies on disk, byte for byte."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def there(run: Run) -> list[str]:
    """The tasks that are listed, the oldest first."""
    return [task["task_id"] for task in json.loads(run("tasks", "--json").stdout)][::-1]


def test_dry_run_says_what_would_go_and_changes_not_a_byte(
    run: Run, directory: Path, ids: list[str]
) -> None:
    """Names the tasks, oldest first, and why; the files are the same afterwards."""
    before = hashes(directory)
    result = run("prune", "--max-tasks", "3", "--dry-run")
    assert result.exit_code == 0
    assert "goal 0" in result.stdout
    assert "goal 1" in result.stdout
    assert "goal 2" not in result.stdout
    assert "beyond the newest 3" in result.stdout
    assert "2 tasks" in result.stdout
    found = json.loads(run("prune", "--max-tasks", "3", "--dry-run", "--json").stdout)
    assert [task["task_id"] for task in found["tasks"]] == ids[:2]
    assert {task["reason"] for task in found["tasks"]} == {"max_tasks"}
    assert found["agent_tasks"] == 2
    assert hashes(directory) == before


def test_prune_removes_what_is_past_the_limits(run: Run, ids: list[str]) -> None:
    """Whoever owns the history, and whatever the other limits are."""
    result = run("prune", "--max-tasks", "2", "--max-age", "none", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "removed 3 tasks" in result.stdout
    assert there(run) == ids[3:]


def test_prune_as_json_is_one_document(run: Run, ids: list[str]) -> None:
    """Also where there is nothing to be removed."""
    found = json.loads(run("prune", "--max-tasks", "4", "--yes", "--json").stdout)
    assert (found["dry_run"], found["agent_tasks"], found["blocked"]) == (False, 1, False)
    assert found["bytes"] >= 0
    found = json.loads(run("prune", "--max-tasks", "4", "--yes", "--json").stdout)
    assert found["agent_tasks"] == 0


def test_without_anything_past_the_limits_nothing_is_asked(run: Run, ids: list[str]) -> None:
    """It says so, with the limits that it went by."""
    result = run("prune")
    assert result.exit_code == 0
    assert "nothing is past the limits (30d, 1,000 tasks, 2 GiB)" in result.stdout
    assert there(run) == ids


def test_without_a_terminal_it_does_not_go_on_unasked(run: Run, ids: list[str]) -> None:
    """Nobody can answer: wrong usage, and nothing is removed."""
    result = run("prune", "--max-tasks", "1")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert there(run) == ids


@pytest.mark.parametrize(("answer", "left"), [(True, 1), (False, 5)])
def test_it_asks_before_it_removes(
    run: Run, ids: list[str], monkeypatch: pytest.MonkeyPatch, answer: bool, left: int
) -> None:
    """No is no."""
    asked = []

    def confirm(question: str, *, abort: bool) -> None:
        asked.append(question)
        if not answer:
            raise prune.click.Abort

    monkeypatch.setattr(prune, "_is_interactive", lambda: True)
    monkeypatch.setattr(prune.click, "confirm", confirm)
    run("prune", "--max-tasks", "1")
    assert asked == ["Remove 4 tasks?"]
    assert len(there(run)) == left


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--max-tasks", "0"),
        ("--max-tasks", ""),
        ("--max-tasks", "9" * 5000),
        ("--max-age", "200000d"),
        ("--max-bytes", "0"),
        ("--max-tasks", "many"),
        ("--max-tasks", "-1"),
        ("--max-age", "0s"),
        ("--max-age", "soon"),
        ("--max-bytes", "-5MB"),
        ("--max-bytes", "2 lightyears"),
    ],
)
def test_a_limit_that_makes_no_sense_is_wrong_usage(
    run: Run, ids: list[str], option: str, value: str
) -> None:
    """Named, shown, and nothing is removed."""
    result = run("prune", option, value, "--yes")
    assert result.exit_code == 2
    assert option in result.stderr
    assert "Retention." not in result.stderr
    assert "OTEL_" not in result.stderr
    assert len(there(run)) == 5


def test_prune_of_one_task_removes_that_one(run: Run, directory: Path, ids: list[str]) -> None:
    """By the beginning of its id; the others stay, whatever the limits are."""
    before = hashes(directory)
    result = run("prune", "--task", ids[2], "--dry-run")
    assert "goal 2" in result.stdout
    assert hashes(directory) == before
    result = run("prune", "--task", ids[2][:20], "--yes")
    assert result.exit_code == 0, result.stderr
    assert "removed 1 task" in result.stdout
    assert there(run) == [*ids[:2], *ids[3:]]
    assert run("prune", "--task", ids[2], "--yes").exit_code == 1
    assert run("prune", "--task", ids[1], "--max-tasks", "1").exit_code == 2


def test_a_pinned_task_is_kept_until_it_is_unpinned(run: Run, ids: list[str]) -> None:
    """It says which task; a limit passes it over, and asking for it is refused."""
    result = run("pin", ids[0][:16])
    assert result.exit_code == 0
    assert ids[0] in result.stdout
    assert run("prune", "--task", ids[0], "--yes").exit_code == 1
    run("prune", "--max-tasks", "1", "--yes")
    assert there(run) == [ids[0], ids[4]]
    assert "not pinned any more" in run("unpin", ids[0]).stdout
    run("prune", "--max-tasks", "1", "--yes")
    assert there(run) == [ids[4]]


def test_what_is_past_a_limit_a_moment_later_is_not_removed_unasked(
    run: Run, directory: Path, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was past the limits, so nobody was asked; an agent ends a task just then."""
    plan = history.TaskHistory.prune
    late: list[str] = []

    def slow(self: history.TaskHistory, *args: Any, **given: Any) -> Any:
        found = plan(self, *args, **given)
        if given.get("dry_run") and not late:
            with recording(directory, owner="another") as tasks:
                late.append(one_task(tasks, "came late"))
        return found

    monkeypatch.setattr(history.TaskHistory, "prune", slow)
    assert run("prune", "--max-tasks", "5").exit_code == 0
    assert there(run) == [*ids, *late]
    assert run("prune", "--max-tasks", "5", "--yes").exit_code == 0
    assert there(run) == [*ids[1:], *late]


@pytest.fixture
def left_running(directory: Path, ids: list[str]) -> str:
    """A task whose process has died without a word; no agent has started since."""
    owner = {"OTEL_TASKHISTORY_OWNER": "another"}
    with Program("agent", directory, "succeeds", environ=owner) as agent:
        agent.until("before the task")
        agent.go_on()
        task_id = agent.line().removeprefix("task ")
        # A start goes with the next group when something is being committed.
        while not rows(directory, "SELECT 1 FROM tasks WHERE task_id = ?", task_id):
            time.sleep(0.01)
        agent.kill()
    return task_id


def test_a_task_of_a_dead_process_goes_like_any_other(
    run: Run, ids: list[str], left_running: str
) -> None:
    """It is listed as interrupted, so it counts, is planned with, and can be asked for."""
    planned = json.loads(run("prune", "--max-tasks", "2", "--dry-run", "--json").stdout)
    assert [task["task_id"] for task in planned["tasks"]] == ids[:4]
    assert "removed 4 tasks" in run("prune", "--max-tasks", "2", "--yes").stdout
    assert there(run) == [ids[4], left_running]
    result = run("prune", "--task", "latest", "--yes")
    assert result.exit_code == 0, result.stderr
    assert there(run) == [ids[4]]


def test_what_another_program_locks_is_said_in_one_line(
    run: Run, directory: Path, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives up after a while, and says that it is the lock, not a matter of permissions."""
    monkeypatch.setenv("OTEL_TASKHISTORY_BUSY_TIMEOUT", "0.01")
    with closing(sqlite3.Connection(str(directory / "history.db"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for arguments in (("--max-tasks", "2"), ("--purge",), ("--task", ids[0])):
            result = run("prune", *arguments, "--yes")
            assert result.exit_code == 1
            (line,) = result.stderr.splitlines()
            assert "holds its lock" in line
        other.execute("ROLLBACK")
    assert there(run) == ids


def test_purging_waits_for_its_turn_beside_a_busy_agent(run: Run, directory: Path) -> None:
    """An agent that commits all the time leaves the lock for a moment between two commits."""
    with recording(directory) as tasks:
        first = one_task(tasks, "gone")
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                one_task(tasks, "goes on")

        agent = threading.Thread(target=work)
        agent.start()
        try:
            result = run("prune", "--task", first, "--purge", "--yes")
        finally:
            stop.set()
            agent.join()
        assert result.exit_code == 0, result.stderr


def test_pinning_what_is_not_there_fails(run: Run, ids: list[str]) -> None:
    """In one line that names near ones."""
    result = run("pin", "no-such-task")
    assert result.exit_code == 1
    assert "no-such-task" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_where_there_is_no_history_none_is_made(run: Run, directory: Path) -> None:
    """Pruning nothing is an error, not a new history."""
    for arguments in (("prune", "--yes"), ("pin", "latest"), ("unpin", "latest")):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "no history" in result.stderr
    assert not directory.exists()


def test_purge_leaves_nothing_of_what_was_removed(run: Run, directory: Path) -> None:
    """Not a word of any removed task in any file, however its rows were moved about before."""
    with recording(directory) as tasks:
        for number in range(40):
            with tasks.task(f"goal MARK{number:02}") as task:
                for index in range(3):
                    with task.step(f"step MARK{number:02}") as step:
                        step.prompt(
                            chat("be brief", f"MARK{number:02} {index} " * (index * 70 + 1))
                        )
                        step.decision(f"MARK{number:02} answer")
    result = run("prune", "--max-tasks", "5", "--purge", "--yes")
    assert result.exit_code == 0, result.stderr
    for path in directory.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert not [number for number in range(35) if f"MARK{number:02}".encode() in data], path
    assert "MARK39" in run("tasks").stdout


def test_goals_are_shown_safely(run: Run, directory: Path) -> None:
    """A goal acts on no terminal."""
    with recording(directory) as tasks:
        one_task(tasks, "evil \x1b]0;title\x07 goal")
        one_task(tasks, "good")
    result = run("prune", "--max-tasks", "1", "--dry-run")
    assert "\x1b" not in result.stdout
    assert "evil" in result.stdout
