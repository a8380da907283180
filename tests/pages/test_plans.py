# SPDX-License-Identifier: Apache-2.0
"""Pages look a few things up: no big table is scanned, no large value is read that is not shown."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.pages import (
    Links,
    changes,
    film_fragment,
    step_fragment,
    steps_fragment,
    task_list_page,
    task_page,
)
from otel_taskhistory.store.reading import Reading
from tests.pages.conftest import Recorded
from tests.recorded import recording

LINKS = Links()
BIG = (
    *("tasks", "screenshots", "_steps", "_spans", "_contents", "_nodes", "_timeline"),
    *("_model_calls", "_tool_calls", "_artifacts"),
)
LARGE = 3 * 2**20


class Watched:
    """A history whose statements and texts are counted."""

    def __init__(self, history: TaskHistory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.characters = 0
        real = Reading.read

        def read(reading: Reading, query: Callable[[sqlite3.Connection], object]) -> object:
            def watched(connection: sqlite3.Connection) -> object:
                factory = connection.text_factory
                connection.text_factory = self._text
                connection.set_trace_callback(self.statements.append)
                try:
                    return query(connection)
                finally:
                    connection.set_trace_callback(None)
                    connection.text_factory = factory

            return real(reading, watched)

        monkeypatch.setattr(Reading, "read", read)
        self.history = history
        self._real = real

    def _text(self, value: bytes) -> str:
        self.characters += len(value)
        return value.decode("utf-8", "replace")

    def scans(self) -> list[str]:
        """What the statements so far scan of the big tables."""
        found = []
        for statement in self.statements:
            if not re.match(r"\s*(SELECT|WITH)\b", statement):
                continue

            def plan(connection: sqlite3.Connection, sql: str = statement) -> list[str]:
                rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}")
                return [row[3] for row in rows.fetchall()]

            aliases = {
                alias: table
                for table, alias in re.findall(r"(?:FROM|JOIN)\s+(\w+) AS (\w+)", statement)
            }
            lines = self._real(self.history._reading, plan)
            # Scanning what the statement itself has put together is no scan of a table.
            own = {
                line.split()[1] for line in lines if line.startswith(("MATERIALIZE", "CO-ROUTINE"))
            }
            for line in lines:
                scanned = re.match(r"SCAN (\w+)", line)
                if scanned and scanned[1] not in own and aliases.get(scanned[1], scanned[1]) in BIG:
                    found.append(f"{line}: {statement}")
        return found


PAGES: dict[str, Callable[[TaskHistory, str, str], str]] = {
    "list": lambda history, task, step: task_list_page(history, {}, LINKS),
    "failed": lambda history, task, step: task_list_page(history, {"status": "failed"}, LINKS),
    "filtered": lambda history, task, step: task_list_page(
        history, {"agent": "desk", "since": "30d", "status": "running"}, LINKS
    ),
    "other kinds": lambda history, task, step: task_list_page(history, {"kind": "other"}, LINKS),
    "task": lambda history, task, step: task_page(history, task, LINKS),
    "task at a step": lambda history, task, step: task_page(history, task, LINKS, step),
    "steps": lambda history, task, step: steps_fragment(history, task, f"3.{step}", LINKS),
    "steps before": lambda history, task, step: steps_fragment(
        history, task, f"before:9.{step}", LINKS
    ),
    "step": lambda history, task, step: step_fragment(history, task, step, LINKS),
    "film": lambda history, task, step: film_fragment(history, task, None, LINKS),
    "changes": lambda history, task, step: str(changes(history, task, 5)),
}


@pytest.mark.parametrize("page", PAGES)
def test_no_page_scans_a_big_table(
    page: str, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement of a page finds its rows by an index."""
    history = recorded.history()
    step = history.steps(recorded.booking)[4].step_id
    watched = Watched(history, monkeypatch)
    PAGES[page](history, recorded.booking, step)
    assert watched.statements
    assert watched.scans() == []


def test_a_scan_would_be_found(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check sees a query without an index, also behind another name."""
    history = recorded.history()
    watched = Watched(history, monkeypatch)
    history.read(
        lambda c: c.execute("SELECT 1 FROM tasks AS own WHERE own.error_type = 'x'").fetchall()
    )
    assert len(watched.scans()) == 1


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, list[str]]:
    """A task whose every value is large."""
    directory = tmp_path_factory.mktemp("heavy") / "history"
    steps = []
    with recording(directory) as tasks, tasks.task("goal " * (LARGE // 5), agent="desk") as task:
        for number in range(4):
            with task.step() as step:
                steps.append(step.id)
                large = f"{number}" * LARGE
                step.prompt([{"role": "user", "content": f"prompt {large}"}], model="m")
                step.decision({"role": "assistant", "content": f"decision {large}"})
                with step.tool_call("look", {"a": f"argument {large}"}) as call:
                    call.result(f"result {large}")
                step.result(f"step result {large}")
                step.fail(f"error {large}")
        task.fail(f"task error {'e' * LARGE}")
    return directory, task.id, steps


@pytest.mark.parametrize(
    "page", [name for name in PAGES if name not in ("filtered", "other kinds")]
)
def test_no_page_reads_a_large_value_that_it_does_not_show(
    page: str, heavy: tuple[Path, str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of values of megabytes only the beginnings are read, and little is sent."""
    directory, task_id, steps = heavy
    history = TaskHistory(directory)
    watched = Watched(history, monkeypatch)
    shown = PAGES[page](history, task_id, steps[1])
    assert watched.characters < 64 * 1024
    assert len(shown) < 600_000


def test_all_of_a_large_value_is_there_when_it_is_asked_for(
    heavy: tuple[Path, str, list[str]],
) -> None:
    """What was cut says how large it is and where the rest is; there it is whole."""
    directory, task_id, steps = heavy
    history = TaskHistory(directory)
    short = step_fragment(history, task_id, steps[1], LINKS)
    assert "show all 3 MiB" in short
    assert f'href="{LINKS.step(task_id, steps[1], full=True)}"' in short
    whole = step_fragment(history, task_id, steps[1], LINKS, full=True)
    for value in ("prompt ", "decision ", "argument ", "result ", "step result ", "error "):
        assert value + "1" * LARGE in whole
