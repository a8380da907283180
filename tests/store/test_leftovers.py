# SPDX-License-Identifier: Apache-2.0
"""What a process leaves that was killed while it made a history."""

from __future__ import annotations

import os
import time
from pathlib import Path

from otel_taskhistory import TaskHistoryExporter

LONG_AGO = time.time() - 3600


def made(path: Path, content: bytes = b"", *, old: bool = True) -> Path:
    """A file in the folder of a history."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    if old:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def test_the_empty_file_of_a_killed_creation_goes_at_the_next_open(tmp_path: Path) -> None:
    """Only that: what holds anything, is young, or is named otherwise stays."""
    directory = tmp_path / "history"
    name = "history.db."
    left = [made(directory / f"{name}{digits * 16}") for digits in "0a"]
    stay = [
        made(directory / f"{name}{'1' * 16}", b"not ours"),
        made(directory / f"{name}{'2' * 16}", old=False),
        made(directory / f"{name}{'3' * 15}"),
        made(directory / f"{name}{'G' * 16}"),
        made(directory / f"{name}bak"),
        made(directory / f"other.db.{'4' * 16}"),
    ]
    (directory / f"{name}{'5' * 16}").mkdir()
    TaskHistoryExporter(directory).shutdown()
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in stay)
    assert (directory / f"{name}{'5' * 16}").is_dir()
