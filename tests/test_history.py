# SPDX-License-Identifier: Apache-2.0
"""`TaskHistory`: the reading API, on histories that were really recorded."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import FrozenInstanceError, fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.errors import HistoryNotFound, HistoryRefused, SettingsError, TaskNotFound
from otel_taskhistory.history import (
    ModelCall,
    Page,
    Screenshot,
    Step,
    Task,
    TaskHistory,
    ToolCall,
)
from tests.recorded import PICTURES, chat, one_task, recording


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def execute(directory: Path, sql: str, *values: Any) -> None:
    """Change a closed history by hand."""
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection, connection:
        connection.execute(sql, values)


def row_of(directory: Path, view: str, kind: type[Any]) -> list[dict[str, Any]]:
    """Rows of a public table, the columns of a dataclass."""
    columns = ", ".join(field.name for field in fields(kind))
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection:
        rows = connection.execute(f"SELECT {columns} FROM {view}").fetchall()
    return [dict(zip(columns.split(", "), row, strict=True)) for row in rows]


def as_dict(row: Any) -> dict[str, Any]:
    """The fields of a row."""
    return {field.name: getattr(row, field.name) for field in fields(row)}


def every(history: TaskHistory, **arguments: Any) -> list[Task]:
    """The tasks of all pages."""
    found: list[Task] = []
    cursor = None
    while True:
        page = history.tasks(cursor=cursor, **arguments)
        found += page
        cursor = page.next
        if cursor is None:
            return found


def test_rows_are_the_columns_of_the_public_tables(directory: Path) -> None:
    """Each dataclass has the columns of its table, with the values that SQL shows."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, steps=3)
        with tasks.task("with a picture") as task, task.step("look") as step:
            step.prompt(chat("be brief", "what is there?"), model="model-1")
            step.decision("a square", usage={"input_tokens": 5, "output_tokens": 1})
            step.screenshot((PICTURES / "png_ok.png").read_bytes(), caption="the page")
    with TaskHistory(directory) as history:
        ids = [own.task_id for own in history.tasks()]
        assert ids == [task.id, task_id]
        found: dict[type[Any], list[Any]] = {
            Task: [history.task(own) for own in ids],
            Step: [step for own in ids for step in history.steps(own)],
            ModelCall: [call for own in ids for call in history.model_calls(own)],
            ToolCall: [call for own in ids for call in history.tool_calls(own)],
            Screenshot: [shot for own in ids for shot in history.screenshots(own)],
        }
    names = {Task: "tasks", Step: "steps", ModelCall: "model_calls", ToolCall: "tool_calls"}
    for kind, rows in found.items():
        shown = row_of(directory, names.get(kind, "screenshots"), kind)
        assert len(rows) == len(shown) > 0
        for row in rows:
            assert as_dict(row) in shown


def test_rows_cannot_be_changed(directory: Path) -> None:
    """They are facts."""
    with recording(directory) as tasks:
        one_task(tasks)
    with TaskHistory(directory) as history, pytest.raises(FrozenInstanceError):
        history.task("latest").goal = "another"  # type: ignore[misc]


def test_there_is_no_history_before_something_is_recorded(directory: Path) -> None:
    """Reading does not make one, and says where it looked."""
    with pytest.raises(HistoryNotFound, match=str(directory)):
        TaskHistory(directory)
    assert not directory.exists()


def test_the_owner_is_taken_from_the_history_unless_given(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory alone is enough to read it; a named owner, also by environment, must match."""
    with recording(directory, owner="runtime") as tasks:
        one_task(tasks)
    assert TaskHistory(directory).identity.owner == "runtime"
    assert TaskHistory(directory, "runtime").tasks()
    with pytest.raises(HistoryRefused, match="'runtime'"):
        TaskHistory(directory, "host-agent")
    monkeypatch.setenv("OTEL_TASKHISTORY_OWNER", "host-agent")
    with pytest.raises(HistoryRefused, match="'runtime'"):
        TaskHistory(directory)


def test_the_environment_says_where_the_history_is(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OTEL_TASKHISTORY_DIRECTORY counts when no directory is given."""
    with recording(directory) as tasks:
        one_task(tasks)
    monkeypatch.setenv("OTEL_TASKHISTORY_DIRECTORY", str(directory))
    assert [task.goal for task in TaskHistory().tasks()] == ["a goal"]


def test_a_running_task_and_step_are_seen_while_they_run(directory: Path) -> None:
    """Another connection sees the open step with the prompt it has recorded so far."""
    with recording(directory) as tasks, TaskHistory(directory) as history:
        with tasks.task("long work") as task, task.step("think") as step:
            step.prompt(chat("be brief", "hello"), model="model-1")
            (running,) = history.tasks(status="running")
            (own,) = history.steps(running.task_id)
            assert (running.ended_at, own.status, own.ended_at) == (None, "running", None)
            assert own.prompt is not None
            assert "hello" in own.prompt
        assert history.task("latest").status == "succeeded"


# --- lists ----------------------------------------------------------------------------------------


def test_tasks_come_newest_first_in_pages(directory: Path) -> None:
    """Pages follow each other without gap or repetition; the last has no cursor."""
    with recording(directory) as tasks:
        goals = [f"goal {number}" for number in range(7)]
        for goal in goals:
            one_task(tasks, goal)
    with TaskHistory(directory) as history:
        page = history.tasks(limit=3)
        assert [task.goal for task in page] == ["goal 6", "goal 5", "goal 4"]
        assert page.next is not None
        second = history.tasks(limit=3, cursor=page.next)
        assert [task.goal for task in second] == ["goal 3", "goal 2", "goal 1"]
        last = history.tasks(limit=3, cursor=second.next)
        assert ([task.goal for task in last], last.next) == (["goal 0"], None)
        assert history.tasks(limit=7).next is None
        assert history.count_tasks() == 7


def test_pages_are_stable_while_tasks_with_equal_times_come_in(directory: Path) -> None:
    """Many tasks that began at one moment are each seen once, whatever is added meanwhile."""
    with recording(directory) as tasks:
        before = {one_task(tasks) for _ in range(25)}
    execute(directory, "UPDATE tasks SET started_ns = 1000")
    with TaskHistory(directory) as history:
        seen: list[str] = []
        cursor = None
        while True:
            page = history.tasks(limit=4, cursor=cursor)
            seen += [task.task_id for task in page]
            cursor = page.next
            if cursor is None:
                break
            with recording(directory) as tasks:
                one_task(tasks, "meanwhile")
    assert len(seen) == len(set(seen))
    assert set(seen) == before


@pytest.fixture
def mixed(directory: Path) -> Iterator[TaskHistory]:
    """Five tasks: of two agents, one failed, one cancelled, one of another kind."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with recording(directory) as tasks:
        for number, (goal, agent) in enumerate(
            [("one", "a"), ("two", "b"), ("three", "a"), ("four", "a"), ("five", "b")]
        ):
            with tasks.task(goal, agent=agent) as task:
                if goal == "two":
                    task.fail("broken")
                if goal == "three":
                    task.cancel("not needed")
            ns = int((start + timedelta(hours=number)).timestamp()) * 10**9
            task_id = task.id
            with closing(sqlite3.Connection(str(directory / "history.db"))) as other, other:
                other.execute(
                    "UPDATE tasks SET started_ns = ?, kind = iif(goal = 'five', 'other', kind)"
                    " WHERE task_id = ?",
                    (ns, task_id),
                )
    with TaskHistory(directory) as history:
        yield history


@pytest.mark.parametrize(
    ("filters", "goals"),
    [
        ({}, "four three two one"),
        ({"kind": None}, "five four three two one"),
        ({"kind": "other"}, "five"),
        ({"status": "failed"}, "two"),
        ({"status": "cancelled"}, "three"),
        ({"status": "running"}, ""),
        ({"agent": "a"}, "four three one"),
        ({"agent": "A"}, ""),
        ({"agent": "b", "kind": None}, "five two"),
        ({"since": "2026-01-01T01:00:00Z"}, "four three two"),
        ({"until": "2026-01-01T01:00:00Z"}, "one"),
        ({"since": datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=1)))}, "four three"),
        (
            {"since": "2026-01-01T01:00:00+00:00", "until": "2026-01-01T03:00:00Z", "agent": "a"},
            "three",
        ),
    ],
)
def test_filters_choose_tasks(mixed: TaskHistory, filters: dict[str, Any], goals: str) -> None:
    """Each filter narrows the list and its count; `since` includes its moment, `until` does not."""
    assert [task.goal for task in every(mixed, limit=2, **filters)] == goals.split()
    assert mixed.count_tasks(**filters) == len(goals.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"status": "ok"}, "status='ok' is none of running, succeeded"),
        ({"kind": "agents"}, "kind='agents' is none of agent, other"),
        ({"since": "yesterday"}, "since='yesterday' is no time"),
        ({"since": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"until": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"limit": 0}, "limit=0 is no number of rows"),
        ({"cursor": "elsewhere"}, "'elsewhere' is no cursor"),
        ({"cursor": "1.abc"}, "'1.abc' is no cursor"),
    ],
)
def test_arguments_that_make_no_sense_are_told(
    mixed: TaskHistory, arguments: dict[str, Any], words: str
) -> None:
    """Nothing is guessed: a wrong status, a time without a zone, a cursor of something else."""
    with pytest.raises(SettingsError, match=re.escape(words)):
        mixed.tasks(**arguments)


def test_steps_come_in_their_order_in_pages(directory: Path) -> None:
    """By index, also where the agent gave one index twice."""
    with recording(directory) as tasks, tasks.task("numbered") as task:
        for index in (3, 1, 2, 2, 5):
            with task.step(f"step with {index}", index=index):
                pass
    with TaskHistory(directory) as history:
        seen: list[Step] = []
        cursor = None
        while True:
            page = history.steps("latest", limit=2, cursor=cursor)
            assert isinstance(page, Page)
            seen += page
            cursor = page.next
            if cursor is None:
                break
        assert [step.step_index for step in seen] == [1, 2, 2, 3, 5]
        assert len({step.step_id for step in seen}) == 5
        assert [step.name for step in history.steps_with_index("latest", 2)] == ["step with 2"] * 2


def test_contents_are_not_read_when_not_asked_for(directory: Path) -> None:
    """`without` leaves out what is large; everything else of the row is the same."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, steps=2)
    with TaskHistory(directory) as history:
        full = list(history.steps(task_id))
        light = list(history.steps(task_id, without=("prompt", "decision")))
        assert all(step.prompt and step.decision for step in full)
        assert light == [replace(step, prompt=None, decision=None) for step in full]
        calls = history.model_calls(task_id, without=("prompt",))
        assert [call.prompt for call in calls] == [None, None]
        assert all(call.decision for call in calls)


def test_calls_of_a_step_are_those_of_the_step(directory: Path) -> None:
    """With a step id, only what belongs to that step."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, steps=3)
    with TaskHistory(directory) as history:
        for number, step in enumerate(history.steps(task_id), start=1):
            (tool,) = history.tool_calls(task_id, step.step_id)
            (model,) = history.model_calls(task_id, step.step_id)
            assert tool.call_id == f"call-{number}"
            assert (model.prompt, model.decision) == (step.prompt, step.decision)
        assert len(history.tool_calls(task_id)) == len(history.model_calls(task_id)) == 3
        assert history.tool_calls(task_id, "0" * 16) == []


# --- ids ------------------------------------------------------------------------------------------


def test_a_task_is_found_by_id_prefix_and_as_latest(directory: Path) -> None:
    """Upper case and spaces around do not matter."""
    with recording(directory) as tasks:
        first, second = one_task(tasks, "first"), one_task(tasks, "second")
    with TaskHistory(directory) as history:
        assert history.task(first).goal == "first"
        assert history.task(f" {first[:12].upper()} ").goal == "first"
        assert history.task("latest").task_id == second
        assert list(history.steps(first[:12])) == list(history.steps(first))


def rename(directory: Path, *ids: str) -> None:
    """Give the tasks of a history, oldest first, other ids."""
    for number, task_id in enumerate(ids, start=1):
        execute(directory, "UPDATE tasks SET task_id = ? WHERE id = ?", task_id, number)


def test_an_ambiguous_beginning_names_the_tasks(directory: Path) -> None:
    """The message lists them by ids that tell them apart."""
    with recording(directory) as tasks:
        for number in range(3):
            one_task(tasks, f"{number}")
    rename(directory, "ab" * 8 + "0" * 16, "ab" * 8 + "1" * 16, "ff" * 16)
    with TaskHistory(directory) as history:
        with pytest.raises(TaskNotFound, match=r"2 tasks \(abababababababab0, abababababababab1\)"):
            history.task("ab")
        assert history.task("f").goal == "2"


def test_a_whole_id_is_found_although_others_begin_with_it(directory: Path) -> None:
    """The id of a further root in a trace begins with the id of the first."""
    with recording(directory) as tasks:
        one_task(tasks, "first")
        one_task(tasks, "second")
    rename(directory, "a" * 32, f"{'a' * 32}-{'b' * 16}")
    with TaskHistory(directory) as history:
        assert history.task("a" * 32).goal == "first"
        assert history.task("a" * 32 + "-b").goal == "second"
        short = history.short_ids(["a" * 32, f"{'a' * 32}-{'b' * 16}"])
        assert {history.task(own).task_id for own in short.values()} == set(short)


def test_a_wrong_id_names_near_ones(directory: Path) -> None:
    """TaskNotFound is a LookupError that helps; an id of a span says whose it is."""
    with recording(directory) as tasks:
        task_id = one_task(tasks)
    with TaskHistory(directory) as history:
        step_id = history.steps(task_id)[0].step_id
        with pytest.raises(
            LookupError, match=f"there is no task 'nope'; the newest: {task_id[:8]}"
        ):
            history.task("nope")
        wrong = task_id[:6] + ("0" if task_id[6] != "0" else "1") + task_id[7:]
        with pytest.raises(TaskNotFound, match=f"; near: {task_id[:8]}"):
            history.task(wrong)
        with pytest.raises(TaskNotFound, match=f"but a span of task {task_id} has this id"):
            history.task(step_id)
        with pytest.raises(TaskNotFound):
            history.task("")
        with pytest.raises(TaskNotFound):
            history.steps("nope")


def test_an_empty_history_has_no_latest_task(directory: Path) -> None:
    """It says so instead of failing."""
    with recording(directory):
        pass
    with TaskHistory(directory) as history:
        assert list(history.tasks()) == []
        with pytest.raises(TaskNotFound, match="there is no task in this history yet"):
            history.task("latest")


def test_a_step_is_found_by_id_and_prefix(directory: Path) -> None:
    """Whole, with what was sent and answered; a step id that is nowhere is told."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, steps=2)
    with TaskHistory(directory) as history:
        step = history.steps(task_id)[1]
        assert history.step(step.step_id) == step
        assert history.step(step.step_id[:12]) == step
        assert history.step(step.step_id, task_id=task_id) == step
        with pytest.raises(TaskNotFound, match="there is no step 'zz'"):
            history.step("zz")
        with pytest.raises(TaskNotFound, match="several steps"):
            history.step("")


# --- the rest -------------------------------------------------------------------------------------


def test_stats_count_what_there_is(mixed: TaskHistory, directory: Path) -> None:
    """By status, tasks of other kinds apart."""
    with recording(directory) as tasks:
        one_task(tasks, steps=2)
    stats = mixed.stats()
    assert stats.tasks == {"succeeded": 3, "failed": 1, "cancelled": 1}
    assert (stats.other_tasks, stats.steps, stats.model_calls, stats.tool_calls) == (1, 2, 2, 2)
    assert (stats.input_tokens, stats.output_tokens) == (20, 4)


def test_the_stack_trace_of_an_exception_is_kept(directory: Path) -> None:
    """Of the step and of its tool calls, with the name of the span."""
    with (
        recording(directory) as tasks,
        pytest.raises(ZeroDivisionError),
        tasks.task("fails") as task,
        task.step("divide") as step,
        step.tool_call("divide"),
    ):
        raise ZeroDivisionError("by nothing")
    with TaskHistory(directory) as history:
        (own,) = history.steps("latest")
        traces = history.stack_traces(own.task_id, own.step_id)
    assert len(traces) == 2
    assert all("ZeroDivisionError: by nothing" in stack for _, stack in traces)


def test_a_picture_has_a_path_only_when_it_is_one_of_ours(directory: Path) -> None:
    """A path that came with somebody's span is not followed out of the artifact folder."""
    with recording(directory) as tasks:
        one_task(tasks)
    with TaskHistory(directory) as history:
        name = "ab" * 32
        assert history.artifact(f"ab/{name}.png") == directory / "artifacts" / "ab" / f"{name}.png"
        with pytest.raises(ValueError, match="not the path of an artifact"):
            history.artifact("../../etc/passwd")


def test_a_closed_history_can_be_asked_again(directory: Path) -> None:
    """`close` gives back the files; it is no end."""
    with recording(directory) as tasks:
        one_task(tasks)
    history = TaskHistory(directory)
    history.close()
    assert len(history.tasks()) == 1
    history.close()
