# SPDX-License-Identifier: Apache-2.0
"""The agent is killed while SQLite folds the write-ahead log into the database.

The database file alone is then half old and half new; with its log it is whole.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.store.database import PAGE_SIZE
from tests.crash.agent import recording
from tests.crash.checks import reading

STEPS = 20
PAGE = PAGE_SIZE


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A history as it was while an agent had it open, and the same with its log folded in."""
    directory = tmp_path_factory.mktemp("folding")
    live, folded = directory / "live", directory / "folded"
    with recording(directory / "history") as tasks, tasks.task("a goal") as task:
        for number in range(STEPS):
            with task.step(f"step {number}") as step:
                step.prompt(f"prompt {number} " + "x" * 2 * PAGE)
        shutil.copytree(directory / "history", live)
    shutil.copytree(live, folded)
    with closing(sqlite3.connect(folded / "history.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return live, folded


@pytest.mark.parametrize("part", [0, 0.01, 0.3, 0.9, 1])
def test_a_half_folded_history_is_opened(
    copies: tuple[Path, Path], tmp_path: Path, part: float
) -> None:
    """Whatever part of the log had been folded in, readers and the next agent find it whole."""
    live, folded = copies
    history = tmp_path / "history"
    shutil.copytree(live, history)
    content = (folded / "history.db").read_bytes()
    pages = round(part * len(content) / PAGE) or (part > 0)
    with (history / "history.db").open("r+b") as file:
        file.write(content[: pages * PAGE])
    with TaskHistory(history) as reader:
        assert len(reader.steps("latest")) == STEPS
    with recording(history) as tasks, tasks.task("the next") as task, task.step("its step"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"history"}
    with reading(history) as database:
        assert database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        prompts = database.execute("SELECT prompt FROM steps ORDER BY step_index, task_id")
        found = {row[0].split(" x")[0] for row in prompts if row[0] is not None}
    assert found == {f"prompt {number}" for number in range(STEPS)}
