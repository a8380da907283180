# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory tasks``: the list."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory.cli import cli
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.text import width
from tests.recorded import one_task, recording

from .conftest import Run


def lines(result: Result) -> list[str]:
    """The lines of a successful command."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def test_a_task_is_one_line_with_what_matters(run: Run, directory: Path) -> None:
    """Id to type, status, when, how long, steps, tokens, agent, goal."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, "book a table", steps=3)
        with tasks.task("fails\nbadly", agent="desk") as task:
            task.fail("no")
    head, failed, succeeded = lines(run("tasks", columns=120))
    assert head.split() == [
        "id",
        "status",
        "started",
        "(UTC)",
        "took",
        "steps",
        "tokens",
        "agent",
        "goal",
    ]
    assert succeeded.startswith(f"{task_id[:8]}  ✓ succeeded  ")
    assert succeeded.split()[-5:] == ["36", "desk", "book", "a", "table"]
    assert "✗ failed" in failed
    assert failed.endswith("desk   fails badly")


def test_the_short_ids_can_be_typed(run: Run, directory: Path) -> None:
    """Each id of the list is understood by `show`."""
    with recording(directory) as tasks:
        for number in range(3):
            one_task(tasks, f"goal {number}")
    for line in lines(run("tasks"))[1:]:
        assert run("show", line.split()[0]).stdout.splitlines()[0].endswith(line[-6:])


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_the_table_fits_the_screen(run: Run, directory: Path, columns: int) -> None:
    """Less important columns go first, then the goal is cut; the id is always there."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, "a goal that has a great many words " * 9)
        one_task(tasks, "日本語の目標 " * 30)
    found = lines(run("tasks", columns=columns))
    assert len(found) == 3
    assert all(width(line) <= columns for line in found)
    assert task_id[:8] in found[2]


@pytest.mark.parametrize("columns", [14, 20, 30])
def test_a_narrow_screen_is_still_of_use(run: Run, directory: Path, columns: int) -> None:
    """Id, status and goal of each task, one below the other, within the screen."""
    with recording(directory) as tasks:
        task_id = one_task(tasks, "book a table for two at eight")
        with tasks.task("日本語の目標 " * 30) as task:
            task.fail("no")
    found = lines(run("tasks", columns=columns))
    assert all(width(line) <= columns for line in found)
    assert found[0].split()[1] == "✗"
    assert "日本" in found[1]
    at = next(number for number, line in enumerate(found) if line.startswith(task_id[:8]))
    assert "✓" in found[at]
    assert found[at + 1].startswith("  book a")
    assert len(found) <= 6


def test_in_a_pipe_no_goal_is_cut(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs get each task as one line with all columns, however long the goal is."""
    goal = "a goal that has a great many words " * 40
    with recording(directory) as tasks:
        one_task(tasks, goal)
    monkeypatch.delenv("COLUMNS", raising=False)
    result = CliRunner().invoke(cli, ["tasks", "--directory", str(directory)])
    head, line = lines(result)
    assert line.endswith(goal.strip())
    assert "agent" in head.split()


def test_a_cut_list_says_so_and_how_to_go_on(run: Run, directory: Path) -> None:
    """With the true total; the cursor it gives leads to the rest."""
    with recording(directory) as tasks:
        for number in range(5):
            one_task(tasks, f"goal {number}")
    *_, last = lines(run("tasks", "--limit", "3"))
    assert last.startswith("showing 3 of 5; next page: --cursor ")
    rest = lines(run("tasks", "--limit", "3", "--cursor", last.split()[-1]))
    assert [line[-6:] for line in rest[1:]] == ["goal 1", "goal 0"]


def test_json_is_one_list_of_rows(run: Run, directory: Path) -> None:
    """Every column as stored; that more follow is said on stderr only."""
    with recording(directory) as tasks:
        for number in range(3):
            one_task(tasks, f"goal {number}")
    result = run("tasks", "--json", "--limit", "2")
    rows = json.loads(result.stdout, parse_constant=pytest.fail)
    assert [row["goal"] for row in rows] == ["goal 2", "goal 1"]
    with TaskHistory(directory) as history:
        stored = history.task("latest")
    assert rows[0] == {name: getattr(stored, name) for name in rows[0]}
    assert list(rows[0])[:4] == ["task_id", "trace_id", "kind", "goal"]
    assert result.stderr.startswith("showing 2 of 3; next page: --cursor ")
    assert json.loads(run("tasks", "--json", "--status", "running").stdout) == []


def test_csv_disarms_formulas_and_keeps_numbers(run: Run, directory: Path) -> None:
    """A cell that a spreadsheet would run begins with an apostrophe; negative numbers do not."""
    goals = [
        "=1+1",
        "+1",
        "-1",
        "@SUM(1)",
        "\t=1",
        "\r=1",
        "=cmd|'/c calc'!A0",
        "a=1",
        "two\nlines",
    ]
    with recording(directory) as tasks:
        for goal in goals:
            with tasks.task(goal, agent="desk") as task, task.step("s") as step:
                step.decision("x", usage={"input_tokens": 7})
    rows = list(csv.DictReader(io.StringIO(run("tasks", "--csv").stdout, newline="")))
    assert [row["goal"] for row in reversed(rows)] == [
        *(f"'{goal}" for goal in goals[:7]),
        "a=1",
        "two\nlines",
    ]
    assert {row["input_tokens"] for row in rows} == {"7"}


def test_filters_are_those_of_the_history(run: Run, directory: Path) -> None:
    """By status, agent, kind and time, also as "so long ago"."""
    with recording(directory) as tasks:
        one_task(tasks, "good")
        with tasks.task("bad", agent="other desk") as task:
            task.fail("no")
    assert [line[-3:] for line in lines(run("tasks", "--status", "failed"))[1:]] == ["bad"]
    assert [line[-4:] for line in lines(run("tasks", "--agent", "desk"))[1:]] == ["good"]
    for since in ("1h", "today", "yesterday", "yesterday 10:00", "0:00", "2001-01-01 10:00"):
        assert len(lines(run("tasks", "--since", since))) == 3, since
    assert lines(run("tasks", "--until", "yesterday")) == ["no task matches"]
    assert len(lines(run("tasks", "--all", "--until", "2999-01-01T00:00:00Z"))) == 3
    assert lines(run("tasks", "--until", "2001-01-01")) == ["no task matches"]
    assert run("tasks", "--since", "1h", "--until", "2h").exit_code == 2
    assert lines(run("tasks", "--kind", "other"))[0].startswith("no task of this kind")


def test_an_empty_history_is_said_to_be_empty(run: Run, directory: Path) -> None:
    """That is no failure."""
    with recording(directory):
        pass
    assert lines(run("tasks")) == [f"no task is recorded yet in {directory}"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--since", "banana"],
        ["--since", "25:00"],
        ["--since", "tomorrow"],
        ["--status", "ok"],
        ["--limit", "0"],
        ["--json", "--csv"],
        ["--kind", "x"],
        ["extra"],
    ],
)
def test_wrong_usage_is_status_2(run: Run, directory: Path, arguments: list[str]) -> None:
    """With what is wrong on stderr and nothing on stdout."""
    with recording(directory) as tasks:
        one_task(tasks)
    result = run("tasks", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
