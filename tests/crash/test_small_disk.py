# SPDX-License-Identifier: Apache-2.0
"""A disk that is full in earnest, and one that may only be read: file systems made for the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistory, TaskHistoryExporter
from otel_taskhistory.errors import TaskHistoryError
from tests.processes import Program, check, listing, rows, run
from tests.recorded import one_task, recording
from tests.workers import Worker

Mount = Callable[..., None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Mount]]:
    """An empty file system of 3 MiB, and what changes its options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options: str) -> None:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)],
            check=True,
            capture_output=True,
        )

    try:
        mount("size=3m")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may make a file system (mount -t tmpfs)")
    try:
        yield folder, lambda *options: mount("remount", *options)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_that_gets_room_again(disk: tuple[Path, Mount]) -> None:
    """The agent goes on without an exception, and when there is room all its steps are written."""
    folder, remount = disk
    directory = folder / "history"
    with Program("steady", directory, 60, 100_000, 60_000) as agent:
        while not directory.exists() or os.statvfs(folder).f_bavail > 1:
            assert agent.process.poll() is None
            threading.Event().wait(0.02)
        threading.Event().wait(1)  # it meets the full disk again and again meanwhile
        remount("size=64m")
        said: dict[str, Any] = json.loads(agent.line())
    assert said["away"] >= 1
    assert (said["flushed"], said["lost"], said["waiting"]) == (True, 0, 0)
    goals = rows(directory, "SELECT goal FROM tasks WHERE status = 'succeeded' ORDER BY id")
    assert goals == [(f"task {number}",) for number in range(60)]
    check(directory)
    statuses = {status for (status,) in rows(directory, "SELECT status FROM screenshots")}
    assert statuses <= {"ok", "not_stored"}
    assert not list((directory / "artifacts").rglob("*.tmp"))


@pytest.mark.skipif(sys.platform != "linux", reason="asks the mount about locks")
def test_a_file_system_that_may_only_be_read(disk: tuple[Path, Mount]) -> None:
    """Readers see all of it, also what a killed writer left; an agent is refused in a sentence."""
    folder, remount = disk
    directory = folder / "history"
    run("steady", directory, 1, 10, 1000)
    with Worker(directory) as worker:
        worker.kill()
    remount("ro")  # possible only while nobody has a file open to write
    before = listing(directory)
    with TaskHistory(directory) as history:
        found = {task.goal: task.status for task in history.tasks()}
    assert found == {"task 0": "succeeded", "book a table": "interrupted"}
    with pytest.raises(TaskHistoryError, match="Make the place writable"):
        TaskHistoryExporter(directory)
    assert listing(directory) == before
    remount("rw")
    with recording(directory) as tasks:
        one_task(tasks, "goes on")
    check(directory)
