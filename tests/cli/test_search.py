# SPDX-License-Identifier: Apache-2.0
"""The command ``search``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

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
    where, snippet = result.stdout.splitlines()
    assert where.split()[:6] == [recorded[:8], "step", "1", "·", "prompt", "·"]
    assert "3 times" in where
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
