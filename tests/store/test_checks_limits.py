# SPDX-License-Identifier: Apache-2.0
"""The doctor on limits: what is past them and why, what was not finished, files that stay."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory.settings import Settings
from otel_taskhistory.store import records
from otel_taskhistory.store.doctor import Diagnosis, Finding, examine
from tests.store.deliveries import own_step, own_task, png, write
from tests.store.keeping import (
    age_files,
    check_whole,
    execute,
    files,
    goes_on,
    keeper,
    kept,
    limits,
    record,
    shot,
    store,
    task_spans,
    trace_id,
)

MIB = 2**20
HOUR = 3600 * 10**9


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where the history of a test lies."""
    return tmp_path / "history"


def look(directory: Path, *, fix: bool = False, **limit: Any) -> Diagnosis:
    """What the doctor says where these limits hold."""
    settings = Settings.resolve(directory=directory)
    settings = replace(settings, retention=limits(**limit))
    return examine(settings, environ={}, fix=fix)


def the(diagnosis: Diagnosis, check: str) -> Finding:
    """The one finding of a check."""
    (finding,) = [one for one in diagnosis.findings if one.check == check]
    return finding


def names(diagnosis: Diagnosis) -> set[str]:
    """The checks that found something."""
    return {finding.check for finding in diagnosis.findings}


@pytest.fixture
def blocked_file(directory: Path) -> Path:
    """A picture whose task is gone, in whose place there is what cannot be removed."""
    with store(directory) as writer:
        write(writer, task_spans(1, shots=(shot(writer, png(1, 700)),)))
        write(writer, task_spans(2))
    (name,) = files(directory)
    path = directory / "artifacts" / name
    path.unlink()
    (path / "inside").mkdir(parents=True)
    os.utime(path, (1, 1))
    with keeper(directory, limits(max_tasks=1)) as retainer:
        retainer.run(pause=lambda seconds: None)
    assert kept(directory) == [2]
    return path


def test_a_history_within_its_limits_is_not_spoken_of(directory: Path) -> None:
    """Nothing about limits, removals or files."""
    record(directory, range(1, 4))
    found = names(look(directory, max_age=3600, max_tasks=3, max_bytes=32 * MIB))
    assert not found & {"limits", "removal", "undeletable files"}


def test_tasks_past_the_limits_are_a_note(directory: Path) -> None:
    """No agent has run since: nothing is wrong, and nothing is removed, not by ``--fix`` either."""
    record(directory, range(1, 6))
    diagnosis = look(directory, max_tasks=3, fix=True)
    finding = the(diagnosis, "limits")
    assert (finding.severity, finding.count) == ("note", 2)
    assert finding.items == (trace_id(1), trace_id(2))
    assert "max_tasks" in finding.what
    assert diagnosis.healthy
    assert kept(directory) == [1, 2, 3, 4, 5]


def test_a_reader_in_the_way_is_the_reason(directory: Path) -> None:
    """As an agent has put on record in the last hours."""
    record(directory, range(1, 6))
    with keeper(directory) as retainer:
        records.begin(retainer._connection, "blocked", time.time_ns())
    finding = the(look(directory, max_tasks=3), "limits")
    assert finding.severity == "warning"
    assert "did not end" in finding.meaning
    execute(directory, "UPDATE _retention SET at_ns = at_ns - ?", 3 * HOUR)
    assert the(look(directory, max_tasks=3), "limits").severity == "note"


def test_what_may_not_go_is_the_reason(directory: Path) -> None:
    """Pinned and running tasks, with what they take."""
    words = " ".join(str(n * 7919) for n in range(200_000))
    with store(directory) as writer:
        for number in (1, 2):
            same: dict[str, Any] = {"trace_id": trace_id(number)}
            step = own_step(2, prompt=f"{number} {words}", index=1, **same)
            write(writer, [own_task(1, end=None if number == 1 else 9, **same), step])
    goes_on(directory, 1)
    execute(directory, "UPDATE tasks SET pinned = 1 WHERE task_id = ?", trace_id(2))
    finding = the(look(directory, max_bytes=MIB), "limits")
    assert finding.severity == "warning"
    assert "1 pinned tasks" in finding.meaning
    assert "1 running tasks" in finding.meaning
    assert "max_bytes (1 MiB)" in finding.what


def test_an_impossible_limit_is_the_reason(directory: Path) -> None:
    """An empty history is larger than that."""
    record(directory, range(1, 2))
    diagnosis = look(directory, max_bytes=1000)
    findings = [one for one in diagnosis.findings if one.check == "limits"]
    assert any("Even an empty history" in one.meaning for one in findings)


def test_files_that_are_too_large_are_made_smaller(directory: Path) -> None:
    """Free pages that no agent has given back: ``--fix`` does."""
    record(directory, range(1, 12), text=" ".join(str(n * 7919) for n in range(60_000)))
    with keeper(directory) as retainer:
        for number in range(1, 11):
            retainer.remove(trace_id(number))
    before = (directory / "history.db").stat().st_size
    limit = before // 2
    finding = the(look(directory, max_bytes=limit), "limits")
    assert finding.fixable
    assert "free pages" in finding.meaning
    assert the(look(directory, max_bytes=limit, fix=True), "limits").fixed
    assert (directory / "history.db").stat().st_size < limit
    assert "limits" not in names(look(directory, max_bytes=limit))


def test_a_removal_that_was_not_finished_is_told_and_finished(directory: Path) -> None:
    """Hidden, but still in the files; ``--fix`` finishes it, and removes nothing else."""
    with store(directory) as writer:
        write(writer, task_spans(1, steps=40, shots=(shot(writer, png(1, 700)),)))
        write(writer, task_spans(2))
    age_files(directory)
    with keeper(directory, limits(max_tasks=1)) as retainer:
        retainer.step(rows=20)
    assert "removal" not in names(look(directory, max_tasks=None))  # somebody may be at it
    execute(directory, "UPDATE _owners SET removed_ns = removed_ns - ?", HOUR)
    finding = the(look(directory), "removal")
    assert (finding.severity, finding.fixable) == ("warning", True)
    assert "tasks: 1" in finding.items
    fixed = look(directory, fix=True)
    assert the(fixed, "removal").fixed
    assert fixed.healthy
    assert kept(directory) == [2]
    check_whole(directory)
    assert "removal" not in names(look(directory))


def test_a_file_that_cannot_be_deleted_is_told_and_tried_again(
    directory: Path, blocked_file: Path
) -> None:
    """With what is in the way; when that is seen to, ``--fix`` deletes it at once."""
    finding = the(look(directory), "undeletable files")
    assert finding.severity == "warning"
    assert blocked_file.name in finding.items[0]
    assert "tried 1 times" in finding.items[0]
    assert "files without rows" not in names(look(directory))
    still = the(look(directory, fix=True), "undeletable files")
    assert not still.fixed
    assert "still cannot be" in still.todo
    (blocked_file / "inside").rmdir()
    blocked_file.rmdir()
    blocked_file.write_bytes(b"")
    age_files(directory)
    execute(directory, "UPDATE _unlinks SET mtime_ns = ?", blocked_file.stat().st_mtime_ns)
    fixed = look(directory, fix=True)
    assert the(fixed, "undeletable files").fixed == "deleted 1 files"
    assert not blocked_file.exists()
    assert fixed.healthy
    check_whole(directory)
