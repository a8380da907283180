# SPDX-License-Identifier: Apache-2.0
"""An agent goes on when its history is damaged: a new one begins, the old one is kept."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_taskhistory import (
    TaskHistory,
    TaskHistoryError,
    TaskHistoryExporter,
    TaskHistoryProcessor,
    TaskTracer,
)
from otel_taskhistory.store.database import PAGE_SIZE
from otel_taskhistory.store.reading import Reading
from tests.processes import PATIENCE
from tests.recorded import one_task, recording

DATABASES = Path(__file__).parent / "data" / "databases"

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "destroyed header": lambda data: b"\0" * 100 + data[100:],
    "cut in the middle": lambda data: data[: len(data) // 2],
    "only a header": lambda data: data[:100],
    "nothing but zeros": lambda data: b"\0" * len(data),
    "first page overwritten": lambda data: (
        data[:100] + b"\xff" * (PAGE_SIZE - 100) + data[PAGE_SIZE:]
    ),
    "all but the first page overwritten": lambda data: (
        data[:PAGE_SIZE] + b"\xff" * (len(data) - PAGE_SIZE)
    ),
}

OVERWRITES = f"""
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("INSERT INTO _meta VALUES ('seen', 'by another')")  # nobody's cache counts any more
print(c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
c.close()
with open(sys.argv[1], "rb+") as file:
    file.seek({PAGE_SIZE})
    size = file.seek(0, 2)
    file.seek({PAGE_SIZE})
    file.write(b"\\xff" * (size - {PAGE_SIZE}))
"""


def goals(directory: Path) -> list[str | None]:
    """Of all tasks, the oldest first."""
    with TaskHistory(directory) as history:
        return [task.goal for task in reversed(history.tasks())]


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_history_makes_way_for_a_new_one(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent starts and records; the old files are kept as they were, and the log says where."""
    with recording(tmp_path) as tasks:
        one_task(tasks, "old")
    database = tmp_path / "history.db"
    database.write_bytes(DAMAGE[kind](database.read_bytes()))
    content = database.read_bytes()
    with caplog.at_level(logging.ERROR, "otel_taskhistory"), recording(tmp_path) as tasks:
        one_task(tasks, "new")
    assert goals(tmp_path) == ["new"]
    (home,) = tmp_path.glob("corrupt-*")
    assert (home / "history.db").read_bytes() == content
    assert str(home) in caplog.text


@pytest.mark.parametrize("name", sorted(path.name for path in DATABASES.glob("*.db")))
def test_what_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    """Only an empty file becomes a history."""
    for path in DATABASES.glob(f"{name}*"):
        shutil.copy(path, tmp_path / path.name.replace(name, "history.db"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if name == "db_zero_byte.db":
        with recording(tmp_path) as tasks:
            one_task(tasks)
        assert goals(tmp_path) == ["a goal"]
        return
    with pytest.raises(TaskHistoryError, match=r"history\.db"):
        TaskHistoryExporter(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_damage_met_while_writing_costs_no_step(tmp_path: Path) -> None:
    """Steps wait until the damaged history is aside, and are in the new one."""
    exporter = TaskHistoryExporter(tmp_path, busy_timeout=1)
    try:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(TaskHistoryProcessor(exporter))
        tasks = TaskTracer(provider, exporter=exporter)
        one_task(tasks, "before")
        done = subprocess.run(
            [sys.executable, "-c", OVERWRITES, str(tmp_path / "history.db")],
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout == "(0, 0, 0)\n"
        one_task(tasks, "after")
        assert exporter.force_flush(int(PATIENCE * 1000))
        one_task(tasks, "later")
    finally:
        exporter.shutdown()
    assert goals(tmp_path) == ["after", "later"]
    (home,) = tmp_path.glob("corrupt-*")
    assert (home / "history.db").exists()
    reading = Reading(tmp_path / "history.db")
    losses = reading.read(
        lambda c: c.execute("SELECT detail FROM timeline WHERE event = 'loss'").fetchall()
    )
    reading.close()
    assert "damaged" in losses[0][0]
    assert not os.path.exists(tmp_path / "history.db.lock")
