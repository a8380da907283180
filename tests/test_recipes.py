# SPDX-License-Identifier: Apache-2.0
"""``docs/querying.md``: each recipe is run as it is printed, and says what it promises to say."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistory
from tests.recorded import PICTURES, chat, public_tables, recording

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "querying.md"


@dataclass(frozen=True)
class Recipe:
    """A block of code of the page."""

    title: str
    language: str
    code: str


def recipes() -> list[Recipe]:
    """Every block of code, under the heading it stands below."""
    found, title, block, language = [], "", None, ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if block is None and line.startswith("#"):
            title = line.lstrip("# ")
        elif line.startswith("```") and block is None:
            block, language = [], line[3:]
        elif line.startswith("```") and block is not None:
            found.append(Recipe(title, language, "\n".join(block)))
            block = None
        elif block is not None:
            block.append(line)
    assert block is None
    return found


SETUP, *RECIPES = recipes()


@dataclass(frozen=True)
class Kitchen:
    """A recorded history, and where the recipes are run."""

    history: Path
    scratch: Path
    booked: str
    """Id of the newest task."""
    failed: str

    def run(self, recipe: Recipe) -> str:
        """What a recipe prints, in a shell with everything of this Python on its path."""
        environment = {
            **os.environ,
            "HOME": str(self.scratch),
            "OTEL_TASKHISTORY_DIRECTORY": str(self.history),
            "PATH": f"{self.scratch}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        command = ["bash", "-euo", "pipefail", "-c", f"{SETUP.code}\n{recipe.code}"]
        if recipe.language == "python":
            command = [sys.executable, "-c", recipe.code]
        done = subprocess.run(
            command,
            cwd=self.history,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Kitchen:
    """A task that failed, one that has no decision, and one with retries and pictures."""
    folder = tmp_path_factory.mktemp("kitchen")
    history, scratch = folder / "history", folder / "scratch"
    scratch.mkdir()
    # The command of this tree, whichever one is installed.
    program = scratch / "otel-taskhistory"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m otel_taskhistory "$@"\n')
    program.chmod(0o700)
    picture = (PICTURES / "png_ok.png").read_bytes()
    with recording(history) as tasks:
        with tasks.task("find the report", agent="desk") as task:
            failed = task.id
            with task.step("fetch") as step:
                step.prompt(chat("be brief", "find the report"), model="small")
                step.decision("I fetch it", usage={"input_tokens": 50, "output_tokens": 5})
                with step.tool_call("http.get", {"url": "/report"}) as call:
                    call.fail("404 Not Found")
                step.fail(ValueError("no report there"))
            with task.step("ask again") as step:
                step.prompt(chat("be brief", "find the report", "I fetch it", "404"), model="small")
            task.fail("the report is gone")
        with tasks.task("book a table", agent="desk") as task:
            messages = chat("be brief", "book a table")
            with task.step("open site") as step:
                step.prompt(messages, model="large")
                step.decision("open it", usage={"input_tokens": 100, "output_tokens": 10})
                for _ in range(2):
                    with step.tool_call("browser.open", {"url": "/"}) as call:
                        call.result("a form")
                step.screenshot(picture)
            messages = [
                *messages,
                {"role": "assistant", "content": "open it"},
                {"role": "user", "content": "there is a form, what now?"},
            ]
            with task.step("fill form") as step:
                step.prompt(messages, model="large")
                step.decision("bad JSON", usage={"input_tokens": 200, "output_tokens": 20})
                step.prompt(messages, model="large")
                step.decision("fill it in", usage={"input_tokens": 200, "output_tokens": 20})
                with step.tool_call("browser.fill", {"name": "=1+1"}) as call:
                    call.result("done")
                step.screenshot(picture)
            task.result("table booked")
    with TaskHistory(history) as opened:
        booked = opened.task("latest").task_id
    return Kitchen(history, scratch, booked, failed)


# --- what each of them says -----------------------------------------------------------------------

Check = Callable[[Kitchen, str], Any]
CHECKS: dict[str, Check] = {}


def says(title: str) -> Callable[[Check], Check]:
    """Puts a check in its place."""

    def put(check: Check) -> Check:
        assert title not in CHECKS
        CHECKS[title] = check
        return check

    return put


def rows(out: str) -> list[dict[str, Any]]:
    """JSON as sqlite-utils prints it."""
    found = json.loads(out)
    assert isinstance(found, list)
    return found


def cells(out: str) -> list[list[str]]:
    """The cells of a table, without its heading and line."""
    return [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()[2:]]


@says("The last tasks")
def _last_tasks(kitchen: Kitchen, out: str) -> None:
    assert [(row[0], row[1], row[3]) for row in cells(out)] == [
        (kitchen.booked, "succeeded", "book a table"),
        (kitchen.failed, "failed", "find the report"),
    ]


@says("What runs now")
def _running(kitchen: Kitchen, out: str) -> None:
    assert rows(out) == []


@says("The steps of a task")
def _steps(kitchen: Kitchen, out: str) -> None:
    assert [row[:4] for row in cells(out)] == [
        ["1", "open site", "succeeded", "browser.open"],
        ["2", "fill form", "succeeded", "browser.fill"],
    ]


@says("Extract a prompt")
def _prompt(kitchen: Kitchen, out: str) -> None:
    with TaskHistory(kitchen.history) as history:
        step = history.steps("latest")[1]
    assert out == step.prompt
    assert len(json.loads(out)) == 4


@says("A prompt message by message")
def _messages(kitchen: Kitchen, out: str) -> None:
    assert [(row["position"], row["role"], row["said"]) for row in rows(out)] == [
        (1, "system", "be brief"),
        (2, "user", "book a table"),
        (3, "assistant", "open it"),
        (4, "user", "there is a form, what now?"),
    ]


@says("What was the agent asked at step N")
def _asked(kitchen: Kitchen, out: str) -> None:
    assert out == "there is a form, what now?"


@says("Failed steps with their errors")
def _failed_steps(kitchen: Kitchen, out: str) -> None:
    (row,) = rows(out)
    assert row == {
        "goal": "find the report",
        "step_index": 1,
        "tool_name": "http.get",
        "error_type": "ValueError",
        "error": "no report there",
    }


@says("Tool calls that failed")
def _failed_calls(kitchen: Kitchen, out: str) -> None:
    (row,) = rows(out)
    assert (row["name"], row["error"]) == ("http.get", "404 Not Found")
    assert json.loads(row["arguments"]) == {"url": "/report"}


@says("Slowest tools")
def _slowest(kitchen: Kitchen, out: str) -> None:
    assert {row[0]: (row[1], row[2]) for row in cells(out)} == {
        "http.get": ("1", "1"),
        "browser.open": ("2", "0"),
        "browser.fill": ("1", "0"),
    }


@says("Tokens by day and model")
def _tokens(kitchen: Kitchen, out: str) -> None:
    found: dict[str, list[int]] = {}
    for day, model, *numbers in cells(out):
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", day)
        before = found.get(model, [0, 0, 0])
        found[model] = [a + int(b) for a, b in zip(before, numbers, strict=False)]
    assert found == {"large": [3, 500, 50], "small": [2, 50, 5]}


@says("Retries")
def _retries(kitchen: Kitchen, out: str) -> None:
    (row,) = rows(out)
    assert (row["task_id"], row["name"], row["times"]) == (kitchen.booked, "browser.open", 2)


@says("Several model calls in one step")
def _several(kitchen: Kitchen, out: str) -> None:
    (row,) = rows(out)
    assert (row["task_id"], row["calls"], row["failed"]) == (kitchen.booked, 2, 0)


@says("Steps without a decision")
def _undecided(kitchen: Kitchen, out: str) -> None:
    (row,) = rows(out)
    assert (row["task_id"], row["step_index"], row["name"]) == (kitchen.failed, 2, "ask again")


@says("All screenshots of a task")
def _screenshots(kitchen: Kitchen, out: str) -> None:
    paths = out.splitlines()
    assert len(paths) == 2
    for path in paths:
        data = (kitchen.history / path).read_bytes()
        assert data == (PICTURES / "png_ok.png").read_bytes()


@says("Copy the screenshots of a task, numbered")
def _copied(kitchen: Kitchen, out: str) -> None:
    copied = sorted((kitchen.scratch / "shots").iterdir())
    assert [path.name for path in copied] == ["001.png", "002.png"]
    assert copied[1].read_bytes() == (PICTURES / "png_ok.png").read_bytes()


@says("Who sent the same picture")
def _same_picture(kitchen: Kitchen, out: str) -> None:
    (row,) = rows(out)
    assert (row["times"], row["tasks"]) == (2, 1)


@says("Export to CSV")
def _exported(kitchen: Kitchen, out: str) -> None:
    def read(name: str) -> list[dict[str, str]]:
        with (kitchen.scratch / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    assert [row["goal"] for row in read("tasks.csv")] == ["book a table", "find the report"]
    steps = read("steps.csv")
    assert [row["name"] for row in steps] == ["fetch", "ask again", "open site", "fill form"]
    assert steps[3]["input_tokens"] == "400"


@says("What happened last")
def _timeline(kitchen: Kitchen, out: str) -> None:
    found = rows(out)
    assert (found[0]["event"], found[0]["task_id"]) == ("task.ended", kitchen.booked)
    assert len(found) == 10


@says("Spans with an attribute")
def _spans(kitchen: Kitchen, out: str) -> None:
    assert {row["model"] for row in rows(out)} == {"small", "large"}


@says("Tasks by outcome")
def _outcomes(kitchen: Kitchen, out: str) -> None:
    lines = [re.findall(r"[\w.]+", line) for line in out.splitlines()]
    assert ["desk", "failed", "1", "2"] in [line[:4] for line in lines]
    assert ["desk", "succeeded", "1", "2"] in [line[:4] for line in lines]


@says("Which step of a task took longest")
def _longest(kitchen: Kitchen, out: str) -> None:
    assert re.fullmatch(r"[12]: (open site|fill form), \d+\.0 ms\n", out)


@says("A day in local time")
def _day(kitchen: Kitchen, out: str) -> None:
    found = list(csv.DictReader(out.splitlines()))
    assert [row["goal"] for row in found] == ["find the report", "book a table"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", found[0]["started"])


@says("The API")
def _api(kitchen: Kitchen, out: str) -> None:
    assert out.splitlines() == [
        "find the report -> the report is gone",
        "  1 fetch failed no report there",
        "  2 ask again succeeded ",
    ]


@says("All tasks, page by page")
def _pages(kitchen: Kitchen, out: str) -> None:
    assert out == "2 tasks of 2\n"


@says("With sqlite3 alone")
def _plain(kitchen: Kitchen, out: str) -> None:
    assert out.splitlines() == ["1 2 messages, decided: True", "2 4 messages, decided: True"]


@says("With sqlite-utils as a library")
def _library(kitchen: Kitchen, out: str) -> None:
    assert out.splitlines() == ["browser.open 2", "browser.fill 1", "http.get 1"]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_does_what_it_says(kitchen: Kitchen, recipe: Recipe) -> None:
    """As it is printed, on a recorded history."""
    if "sqlite3 -" in recipe.code and shutil.which("sqlite3") is None:
        pytest.skip("needs the sqlite3 shell")
    CHECKS[recipe.title](kitchen, kitchen.run(recipe))


def test_every_recipe_is_checked() -> None:
    """And every check has its recipe: one block below each heading."""
    assert SETUP.language == "sh"
    assert {recipe.language for recipe in RECIPES} == {"sh", "python"}
    assert sorted(recipe.title for recipe in RECIPES) == sorted(CHECKS)


def test_only_public_names_are_used() -> None:
    """What begins with an underscore may change."""
    for recipe in RECIPES:
        assert not re.search(r"\b(?:from|join) _\w+", recipe.code), recipe.title


def test_the_tables_of_the_page_are_those_of_a_history(kitchen: Kitchen) -> None:
    """Each is there to be read, and what people ask for most is named."""
    names = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    with TaskHistory(kitchen.history) as history:
        stored = public_tables(history)
    assert {"tasks", "steps", "model_calls", "tool_calls", "screenshots"} <= set(names)
    assert set(names) <= set(stored)
