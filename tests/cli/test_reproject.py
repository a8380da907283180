# SPDX-License-Identifier: Apache-2.0
"""``reproject``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from otel_taskhistory import conventions
from tests.recorded import one_task, recording

Run = Callable[..., Result]


@pytest.fixture
def history(directory: Path) -> Path:
    """Three tasks."""
    with recording(directory) as tasks:
        for number in range(3):
            one_task(tasks, f"goal {number}")
    return directory


@pytest.mark.usefixtures("history")
def test_nothing_to_be_done(run: Run) -> None:
    """Where the present rules have read everything."""
    done = run("reproject")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "everything was read by the present rules" in done.stdout
    done = run("reproject", "--json")
    assert json.loads(done.stdout) == {
        "traces": 0,
        "spans": 0,
        "failed": 0,
        "errors": [],
        "older_writer": False,
    }


@pytest.mark.usefixtures("history")
def test_after_an_upgrade(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is read again, once; with --all whenever one likes."""
    before = json.loads(run("tasks", "--json").stdout)
    monkeypatch.setattr(conventions, "VERSION", conventions.VERSION + 1)
    assert "read 3 traces and 9 spans again" in run("reproject").stdout
    assert json.loads(run("reproject", "--json").stdout)["spans"] == 0
    assert json.loads(run("reproject", "--all", "--json").stdout)["spans"] == 9
    assert json.loads(run("tasks", "--json").stdout) == before


@pytest.mark.usefixtures("history")
def test_readers_say_that_a_history_was_read_by_older_rules(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that somebody thinks of reading it again; not a word once that was done."""
    assert json.loads(run("stats", "--json").stdout)["older_rules"] == 0
    monkeypatch.setattr(conventions, "VERSION", conventions.VERSION + 1)
    assert json.loads(run("stats", "--json").stdout)["older_rules"] == 3
    assert "3 traces read by older rules" in run("stats").stdout
    examined = run("doctor", "--quick", "--json")
    checks = [finding["check"] for finding in json.loads(examined.stdout)["findings"]]
    assert (checks.count("rules"), examined.exit_code) == (1, 0)
    run("reproject")
    assert "older rules" not in run("stats").stdout
    assert "rules" not in run("doctor", "--quick").stdout


@pytest.mark.usefixtures("history")
def test_what_cannot_be_read_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1; what was known stays."""

    def failing(*_: object) -> None:
        raise ValueError("with content")

    before = json.loads(run("tasks", "--json").stdout)
    monkeypatch.setattr(conventions, "read", failing)
    done = run("reproject", "--all")
    assert done.exit_code == 1
    assert "9 could not be read (ValueError)" in done.stdout
    assert "with content" not in done.output
    assert json.loads(run("tasks", "--json").stdout) == before


@pytest.mark.usefixtures("history")
def test_a_history_that_a_newer_version_has_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is not taken back to what an older one understands."""
    with monkeypatch.context() as newer:
        newer.setattr(conventions, "VERSION", conventions.VERSION + 1)
        assert run("reproject").exit_code == 0
    done = run("reproject", "--all")
    assert done.exit_code == 1
    assert "upgrade otel-taskhistory" in done.stderr


def test_no_history(run: Run, directory: Path) -> None:
    """Nothing is made where there is none."""
    done = run("reproject")
    assert done.exit_code == 1
    assert "no history" in done.stderr
    assert not directory.exists()
