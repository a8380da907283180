# SPDX-License-Identifier: Apache-2.0
"""A disk that fails for a while: system calls of a real agent that do not succeed.

By ``strace`` the n-th to the m-th write (or sync) of each of its threads fails; only one of them,
the writing one, has that many.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistoryExporter
from tests.crash.test_fsync import why_not
from tests.processes import PATIENCE, PROGRAMS, check, rows

TASKS = 25

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is for Linux")


@pytest.fixture(autouse=True)
def _strace() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


def steady(directory: Path, *inject: str, patience: int = 60_000) -> dict[str, Any]:
    """What the agent says that records `TASKS` tasks while its system calls fail as told."""
    TaskHistoryExporter(directory).shutdown()  # the history is there before the disk fails
    rules = [part for rule in inject for part in ("-e", f"inject={rule}")]
    done = subprocess.run(
        [
            *("strace", "-f", "-qq", "-o", "/dev/null", *rules),
            *(sys.executable, str(PROGRAMS / "steady.py")),
            *(str(directory), str(TASKS), "2000", str(patience)),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def goals(directory: Path) -> list[str]:
    """Of the tasks that have succeeded, in the order of their commits."""
    found = rows(directory, "SELECT goal FROM tasks WHERE status = 'succeeded' ORDER BY id")
    return [goal for (goal,) in found]


@pytest.mark.parametrize(
    ("error", "first"), [("EIO", 90), ("ENOSPC", 90), ("EROFS", 301), ("EDQUOT", 301)]
)
def test_writes_that_fail_for_a_while_cost_no_step(tmp_path: Path, error: str, first: int) -> None:
    """I/O error, full disk, a file system that went read-only: steps wait, then all are there."""
    assert hasattr(errno, error)
    directory = tmp_path / "history"
    said = steady(directory, f"pwrite64:error={error}:when={first}..{first + 6}")
    assert said["away"] >= 1, said
    assert (said["flushed"], said["lost"], said["waiting"]) == (True, 0, 0)
    assert goals(directory) == [f"task {number}" for number in range(TASKS)]
    check(directory)


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_syncs_that_fail_for_a_while_cost_no_step(tmp_path: Path, call: str) -> None:
    """What the disk does not confirm is not taken for stored; pictures are told by their row."""
    directory = tmp_path / "history"
    said = steady(directory, f"{call}:error=EIO:when=9..14")
    assert (said["flushed"], said["lost"], said["waiting"]) == (True, 0, 0)
    assert goals(directory) == [f"task {number}" for number in range(TASKS)]
    shots = rows(directory, "SELECT status FROM screenshots")
    assert len(shots) == TASKS
    assert {status for (status,) in shots} <= {"ok", "not_stored"}
    check(directory)


def test_a_disk_that_never_comes_back_ends_no_agent(tmp_path: Path) -> None:
    """It works to its end and says what is lost; what was stored before is whole."""
    directory = tmp_path / "history"
    said = steady(directory, "pwrite64:error=EIO:when=401+", patience=500)
    assert said["flushed"] is False
    assert said["waiting"] > 0
    stored = goals(directory)
    assert stored == [f"task {number}" for number in range(len(stored))]
    assert 0 < len(stored) < TASKS
    check(directory)
