# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory backup``: says what was copied where, and what was not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory import TaskHistory
from otel_taskhistory.cli.backup import backup
from otel_taskhistory.errors import TaskHistoryError
from tests.recorded import PICTURES, one_task, recording


def run(*arguments: str | Path) -> Result:
    """Run the command as `main` would."""
    return CliRunner().invoke(backup, [str(argument) for argument in arguments])


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """The folder of a history with a picture."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks)
        with tasks.task("look") as task, task.step("see") as step:
            step.screenshot((PICTURES / "png_ok.png").read_bytes())
    return tmp_path / "history"


def test_a_backup_says_what_is_in_it_and_where(history: Path, tmp_path: Path) -> None:
    """One line, status 0, and the copy opens with --directory."""
    done = run("--directory", history, tmp_path / "copy")
    assert done.exit_code == 0
    assert done.stdout.startswith("2 tasks and 1 picture, ")
    assert done.stdout.endswith(f": {tmp_path / 'copy'}\n")
    with TaskHistory(tmp_path / "copy") as copy:
        assert [task.goal for task in copy.tasks()] == ["look", "a goal"]


def test_a_lost_picture_is_status_1_and_the_rest_is_there(history: Path, tmp_path: Path) -> None:
    """It is named; the backup is kept."""
    (picture,) = (history / "artifacts").rglob("*.png")
    picture.unlink()
    done = run("--directory", history, tmp_path / "copy")
    assert done.exit_code == 1
    assert f"{picture.relative_to(history / 'artifacts')}: missing" in done.stdout
    assert (tmp_path / "copy" / "history.db").exists()


def test_json_is_one_document(history: Path, tmp_path: Path) -> None:
    """With counts, sizes and what is missing."""
    said = json.loads(run("--directory", history, tmp_path / "copy", "--json").stdout)
    assert said["whole"] is True
    assert (said["directory"], said["tasks"], said["artifacts"]) == (str(tmp_path / "copy"), 2, 1)
    assert said["missing"] == []


def test_what_cannot_be_done_is_an_error_of_one_sentence(history: Path, tmp_path: Path) -> None:
    """The command's caller turns it into one line and status 1."""
    done = run("--directory", history, history)
    assert isinstance(done.exception, TaskHistoryError)
    assert "is not empty" in str(done.exception)


def test_a_target_must_be_named(history: Path) -> None:
    """Wrong usage is status 2."""
    assert run("--directory", history).exit_code == 2
