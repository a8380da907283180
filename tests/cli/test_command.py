# SPDX-License-Identifier: Apache-2.0
"""The command as a whole: exit status, errors, places, and the commands that are small."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_taskhistory._version import __version__
from otel_taskhistory.cli import COMMANDS, cli
from otel_taskhistory.store.database import PAGE_SIZE
from tests.recorded import PICTURES, one_task, recording

from .conftest import Run

ROOT = Path(__file__).parents[2]
DATABASES = ROOT / "tests" / "data" / "databases"


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "otel_taskhistory", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_the_module_is_the_command(tmp_path: Path) -> None:
    """``python -m otel_taskhistory`` does what ``otel-taskhistory`` does."""
    with recording(tmp_path) as tasks:
        one_task(tasks)
    done = program("tasks", "--directory", str(tmp_path), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)[0]["goal"] == "a goal"
    assert __version__ in program("--version").stdout


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself_and_takes_a_place(command: str) -> None:
    """With ``--help``; ``--directory`` and ``--owner`` belong to each."""
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 0
    assert "--directory PATH" in result.stdout
    assert "--owner NAME" in result.stdout


def test_no_command_or_a_wrong_one_is_wrong_usage() -> None:
    """Status 2."""
    assert program("nonsense").returncode == 2
    assert program().returncode == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("db_not_sqlite.db", "is not a SQLite database"),
        ("db_header_only.db", "is damaged"),
        ("db_zero_byte.db", "is empty"),
        ("db_bad_text.db", "of another application"),
        ("db_newer_schema.db", "of another application"),
        ("db_rows_in_wal.db", "of another application"),
        ("db_corrupt_page2.db", "of another application"),
        ("db_fts_out_of_sync.db", "of another application"),
        ("missing.db", "there is no history"),
    ],
)
@pytest.mark.parametrize("command", [["tasks"], ["show", "latest"], ["stats"]])
def test_what_is_no_history_is_status_1_and_one_line(
    run: Run, directory: Path, name: str, words: str, command: list[str]
) -> None:
    """No traceback, nothing on stdout, the file as it was."""
    directory.mkdir()
    source = DATABASES / name
    if source.exists():
        shutil.copy(source, directory / "history.db")
    result = run(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("otel-taskhistory: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert {path.name for path in directory.iterdir()} <= {"history.db"}
    if source.exists():
        assert (directory / "history.db").read_bytes() == source.read_bytes()


def test_a_damaged_history_is_one_line(run: Run, directory: Path) -> None:
    """Pages of our own database, overwritten."""
    with recording(directory) as tasks:
        one_task(tasks)
    whole = (directory / "history.db").read_bytes()
    (directory / "history.db").write_bytes(whole[:PAGE_SIZE] + b"\xa5" * (len(whole) - PAGE_SIZE))
    result = run("tasks")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "is damaged" in result.stderr


def test_a_bad_setting_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, its value, what would do."""
    monkeypatch.setenv("OTEL_TASKHISTORY_MAX_AGE", "banana")
    result = run("tasks")
    assert result.exit_code == 1
    assert "OTEL_TASKHISTORY_MAX_AGE='banana' is not a duration" in result.stderr


def test_debug_shows_the_stack_trace(tmp_path: Path) -> None:
    """Only when asked for."""
    quiet = program("tasks", "--directory", str(tmp_path))
    loud = program("--debug", "tasks", "--directory", str(tmp_path))
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr
    assert (quiet.returncode, loud.returncode) == (1, 1)


def test_an_error_of_ours_is_a_line_too(
    run: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug shows its kind, not our insides."""
    with recording(directory) as tasks:
        one_task(tasks)

    def fail(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr("otel_taskhistory.cli.tasks.print_tasks", fail)
    result = run("tasks")
    assert result.exit_code == 1
    assert result.stderr == (
        "otel-taskhistory: internal error (IndexError: list index out of range); --debug shows"
        " more\n"
    )


def test_a_reader_that_has_seen_enough_is_no_failure_to_report(tmp_path: Path) -> None:
    """``otel-taskhistory show … | head -1`` ends quietly."""
    with recording(tmp_path) as tasks:
        one_task(tasks, steps=50)
    with subprocess.Popen(
        [sys.executable, "-m", "otel_taskhistory", "show", "latest", "--directory", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_locale_without_our_characters_is_no_failure(tmp_path: Path) -> None:
    """They are written out instead."""
    with recording(tmp_path) as tasks:
        one_task(tasks, "日本")
    place = ["--directory", str(tmp_path)]
    done = program("tasks", *place, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u65e5\u672c" in done.stdout
    exact = program("tasks", "--json", *place, PYTHONIOENCODING="ascii")
    assert json.loads(exact.stdout)[0]["goal"] == "日本"


def test_the_owner_can_be_named(run: Run, directory: Path) -> None:
    """Another than the history's is refused."""
    with recording(directory, owner="runtime") as tasks:
        one_task(tasks)
    assert run("tasks").exit_code == 0
    assert run("tasks", "--owner", "runtime").exit_code == 0
    result = run("tasks", "--owner", "host-agent")
    assert result.exit_code == 1
    assert "is the history of 'runtime', not of 'host-agent'" in result.stderr


# --- path, stats, demo ----------------------------------------------------------------------------


def test_path_prints_where_the_history_would_be(tmp_path: Path) -> None:
    """Only that, whether or not it exists, so that a shell can use it."""
    home = {"XDG_STATE_HOME": str(tmp_path)}
    folder = tmp_path / "otel-taskhistory"
    assert program("path", **home).stdout == f"{folder}/host-agent\n"
    assert program("path", "--owner", "runtime", **home).stdout == f"{folder}/runtime\n"
    assert program("path", "--database", **home).stdout == f"{folder}/host-agent/history.db\n"
    assert program("path", "--artifacts", **home).stdout == f"{folder}/host-agent/artifacts\n"
    moved = program("path", "--artifacts", OTEL_TASKHISTORY_ARTIFACTS=str(tmp_path / "a"), **home)
    assert moved.stdout == f"{tmp_path / 'a'}\n"
    assert not folder.exists()


def test_stats_say_what_there_is_and_how_large(run: Run, directory: Path) -> None:
    """Tasks by status, calls, tokens, bytes on disk, whose it is, and the limits."""
    with recording(directory) as tasks:
        one_task(tasks, steps=2)
        with tasks.task("bad") as task, task.step("s") as step:
            step.screenshot((PICTURES / "png_ok.png").read_bytes())
            task.fail("no")
    facts = json.loads(run("stats", "--json").stdout)
    assert facts["tasks"] == {"failed": 1, "succeeded": 1}
    assert (facts["steps"], facts["model_calls"], facts["tool_calls"]) == (3, 2, 2)
    assert (facts["owner"], facts["max_tasks"]) == ("host-agent", 1000)
    assert facts["database_bytes"] == (directory / "history.db").stat().st_size
    assert facts["artifact_bytes"] == (PICTURES / "png_ok.png").stat().st_size
    assert facts["total_bytes"] == facts["database_bytes"] + facts["artifact_bytes"]
    text = run("stats").stdout
    assert "tasks     2 (1 succeeded, 1 failed)" in text
    assert facts["history_id"] in text
    assert str(directory) in text
    assert "limits    30d, 1,000 tasks, 2 GiB" in text


def test_the_demo_records_shows_and_says_how_to_go_on(tmp_path: Path) -> None:
    """A real agent's run, its list, the task that failed, and commands that work as printed."""
    place = tmp_path / "it's a demo"
    done = program("demo", "--directory", str(place), COLUMNS="120")
    assert (done.returncode, done.stderr) == (0, "")
    assert "✗ failed" in done.stdout
    assert "failed at step 1" in done.stdout
    *_, how = done.stdout.partition("The history is in ")
    commands = [line.strip() for line in how.splitlines() if line.startswith("  ")]
    assert len(commands) == 3
    for command in commands[:2]:
        again = subprocess.run(
            command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (again.returncode, again.stderr) == (0, "")
        assert again.stdout
    assert " serve --open" in commands[2]
    assert len(json.loads(program("tasks", "--json", "--directory", str(place)).stdout)) == 8
