# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory doctor``: readable for people, strict for programs, its status the answer."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from otel_taskhistory.cli.doctor import doctor
from tests.recorded import one_task, recording

DATABASES = Path(__file__).parents[1] / "data" / "databases"


def run(*arguments: str | Path) -> Result:
    """Run the command as `main` would."""
    return CliRunner().invoke(doctor, [str(argument) for argument in arguments])


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """The folder of a closed history."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks)
    return tmp_path / "history"


def test_a_healthy_history_is_status_0(history: Path) -> None:
    """The last line says so."""
    done = run("--directory", history)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == str(history)
    assert done.stdout.splitlines()[-1] == "nothing is wrong"


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_what_is_wrong_is_status_1_until_it_is_fixed(history: Path) -> None:
    """What was found, what to do; then what was done, and no more to do."""
    history.chmod(0o755)
    done = run("--directory", history)
    assert done.exit_code == 1
    assert f"{history} (0755)" in done.stdout
    assert "→ otel-taskhistory doctor --fix" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 error"
    done = run("--directory", history, "--fix")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "nothing is wrong (1 fixed)"
    assert run("--directory", history).exit_code == 0


@pytest.mark.parametrize("name", sorted(path.name for path in DATABASES.glob("*.db")))
def test_no_database_makes_it_fail_without_a_word(tmp_path: Path, name: str) -> None:
    """Each damaged, foreign, newer, empty or half restored file: status 1 and no stack trace."""
    for path in DATABASES.glob(f"{name}*"):
        shutil.copy(path, tmp_path / path.name.replace(name, "history.db"))
    done = run("--directory", tmp_path)
    assert done.exit_code == 1
    assert isinstance(done.exception, SystemExit)
    assert "✗ " in done.stdout
    assert "Traceback" not in done.output


def test_json_is_one_document(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With whose history it is and each finding; the same status as the text."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100")
    done = run("--directory", history, "--json")
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert (said["healthy"], said["owner"]) == (False, "host-agent")
    (finding,) = [found for found in said["findings"] if found["severity"] == "warning"]
    assert finding["check"] == "environment"
    assert finding["items"] == ["OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"]
    assert finding["todo"]


def test_json_without_a_history(tmp_path: Path) -> None:
    """There is an answer even where there is nothing."""
    said = json.loads(run("--directory", tmp_path / "nothing", "--json").stdout)
    assert (said["healthy"], said["history_id"]) == (False, None)


def test_names_from_the_disk_are_safe_to_print(tmp_path: Path) -> None:
    """A folder's name does not act on the terminal."""
    done = run("--directory", tmp_path / "x\x1b]0;y\x07")
    assert done.exit_code == 1
    assert "\x1b" not in done.output
