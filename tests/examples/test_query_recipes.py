# SPDX-License-Identifier: Apache-2.0
"""``examples/query_recipes``: each command of its README prints what is printed there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory
from tests.recorded import chat, recording

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "query_recipes"


def blocks() -> list[tuple[str, str]]:
    """(commands, what they print) of each block of the README, in order."""
    found = []
    for block in re.findall(
        r"```console\n(.*?)```", (RECIPES / "README.md").read_text(), re.DOTALL
    ):
        lines = block.splitlines()
        commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        printed = [line for line in lines if not line.startswith("$ ")]
        found.append(("\n".join(commands), "\n".join(printed)))
    return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the root of a checkout, with a history recorded as is told."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    commands, printed = blocks()[0]
    assert said(folder, commands) == printed
    return folder


def said(folder: Path, commands: str) -> str:
    """What a shell prints that runs commands with this Python on its path."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{folder}:{ROOT}",
        "OTEL_TASKHISTORY_DIRECTORY": str(folder / "recipes-history"),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.rstrip("\n")


@pytest.mark.parametrize("number", range(1, len(blocks())))
def test_a_recipe_prints_what_is_printed(checkout: Path, number: int) -> None:
    """To the letter: the history is recorded by a simulated clock."""
    commands, printed = blocks()[number]
    assert printed
    assert said(checkout, commands) == printed


def test_every_recipe_is_in_the_readme() -> None:
    """No file that is not shown."""
    commands = "\n".join(command for command, _ in blocks())
    helpers = {"__init__.py", "texts.py"}
    for path in [*RECIPES.glob("*.py"), *RECIPES.glob("*.sql")]:
        assert path.stem in commands or path.name in helpers, path.name


def test_the_pictures_are_those_of_the_history(checkout: Path) -> None:
    """The files that are written are the ones that were recorded."""
    said(checkout, blocks()[-1][0])
    with TaskHistory(checkout / "recipes-history") as history:
        (task,) = history.tasks(agent="desk")
        recorded = [
            history.artifact(str(shot.path)).read_bytes()
            for shot in history.screenshots(task.task_id)
        ]
    written = [path.read_bytes() for path in sorted((checkout / "pictures").iterdir())]
    assert written == recorded
    assert len(written) == 3


def test_recorded_text_does_not_act_on_a_terminal(tmp_path: Path) -> None:
    """Controls and marks of direction in a goal, an error and a prompt are not printed."""
    evil = "\x1b[2J\u202ethe goal\r"
    with recording(tmp_path / "recipes-history") as tasks, tasks.task(f"find{evil}") as task:
        with task.step("one") as step:
            step.prompt(chat(evil, evil))
            step.fail(evil)
        task.fail(evil)
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    for command in ("failed_steps.py", "prompt_changes.py goal"):
        printed = said(tmp_path, f"python examples/query_recipes/{command}")
        assert "the goal" in printed
        assert not re.search("[\x1b\u202e\r]", printed)
