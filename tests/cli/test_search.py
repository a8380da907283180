# SPDX-License-Identifier: Apache-2.0
"""The command ``search``."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_taskhistory.cli import cli
from tests.cli.conftest import Run
from tests.cli.test_watch import recording


@pytest.fixture
def recorded(directory: Path) -> str:
    """The id of a task that says a few things."""
    with recording(directory) as tasks, tasks.task("Book a table at the Café") as task:
        for number in range(3):
            with task.step(f"look {number}") as step:
                step.prompt([{"role": "user", "content": "=cmd \x1b[31mred\x1b[0m spoon"}])
                with step.tool_call("browser.click", {"selector": "#go"}) as call:
                    call.result("clicked")
        return task.id


def test_a_hit_says_where_and_shows_what(run: Run, recorded: str) -> None:
    """The id, the step, what it is, how often, and the words marked; nothing acts on a terminal."""
    result = run("search", "spoon")
    assert result.exit_code == 0
    where, goal, snippet = result.stdout.splitlines()
    assert where.split()[:6] == [recorded[:8], "step", "1", "·", "prompt", "·"]
    assert "3 times" in where
    assert goal == "    Book a table at the Café"
    assert "[spoon]" in snippet
    assert "\x1b" not in result.output


def test_several_words_need_no_quotation_marks(run: Run, recorded: str) -> None:
    """They are one query; a phrase is one argument with marks of its own."""
    assert "[Book]" in run("search", "book", "cafe").stdout
    assert "[table at]" in run("search", '"table at"').stdout
    assert run("search", '"at table"').stdout.startswith("nothing says")


def test_nothing_found_is_no_failure(run: Run, recorded: str) -> None:
    """Status 0, and a line that says so; nothing at all for programs."""
    result = run("search", "nowhere")
    assert (result.exit_code, result.output) == (0, "nothing says 'nowhere'\n")
    assert json.loads(run("search", "nowhere", "--json").stdout) == []


def test_a_limit_is_announced(run: Run, recorded: str) -> None:
    """On stderr, so that programs are not disturbed."""
    result = run("search", "browser.click", "--limit", "2", "--json")
    assert len(json.loads(result.stdout)) == 2
    assert "there are more" in result.stderr


def test_csv_has_no_formulas(run: Run, recorded: str) -> None:
    """A cell that a spreadsheet would run begins with an apostrophe."""
    rows = list(csv.DictReader(io.StringIO(run("search", "spoon", "--csv").stdout)))
    assert rows[0]["snippet"].startswith("'=cmd")


def test_programs_get_the_goal_and_where_the_words_are(run: Run, recorded: str) -> None:
    """In JSON and CSV; what has the rest of the words is named too."""
    (hit, *_) = json.loads(run("search", "clicked", "go", "--json").stdout)
    assert hit["goal"] == "Book a table at the Café"
    assert (hit["field"], hit["also"]) == ("arguments", ["result"])
    rows = list(csv.DictReader(io.StringIO(run("search", "clicked", "go", "--csv").stdout)))
    assert rows[0]["goal"] == "Book a table at the Café"
    assert "step 3 · arguments and result" in run("search", "clicked", "go").stdout


def test_an_error_is_named_by_its_type(run: Run, directory: Path) -> None:
    """Whatever of it stands in the snippet."""
    with (
        recording(directory) as tasks,
        tasks.task("x") as task,
        pytest.raises(TimeoutError),
        task.step("s"),
    ):
        raise TimeoutError("slow " * 60 + "needle")
    assert "step 1 · error TimeoutError · " in run("search", "needle").stdout


@pytest.mark.parametrize("columns", [20, 33, 60])
def test_a_snippet_is_folded_between_words(run: Run, directory: Path, columns: int) -> None:
    """A word in which the match stands is on one line, where it fits."""
    with recording(directory) as tasks, tasks.task("x") as task, task.step("s") as step:
        step.result("one two three four a=/needle/b five six seven eight nine ten eleven")
    found = run("search", "needle", columns=columns).stdout.splitlines()
    assert any("a=/[needle]/b" in line.split() for line in found)
    assert all(len(line) <= columns for line in found)


def test_in_a_pipe_a_snippet_is_one_line(
    run: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three lines a hit: where, of which task, what."""
    with recording(directory) as tasks, tasks.task("goal " * 30) as task, task.step("s") as step:
        step.result("word " * 60 + "needle " + "word " * 60)
    monkeypatch.delenv("COLUMNS")
    result = CliRunner().invoke(cli, ["search", "needle", "--directory", str(directory)])
    found = result.stdout.splitlines()
    assert len(found) == 3
    assert len(found[2]) > 150


def test_an_index_that_is_made_anew_is_told(run: Run, recorded: str, directory: Path) -> None:
    """That something may be missing for now, and how to have it at once; on stderr."""
    with closing(sqlite3.connect(directory / "history.db")) as connection:
        connection.execute("UPDATE _meta SET value = '0' WHERE key = 'words'")
        connection.commit()
    result = run("search", "spoon")
    assert "is being made anew" in result.stderr
    assert "doctor --fix" in result.stderr
    run("doctor", "--fix")
    assert run("search", "spoon").stderr == ""
