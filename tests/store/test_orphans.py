# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory, TaskHistoryExporter
from otel_taskhistory.configure import new_provider
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.store import orphans
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.orphans import GRACE_SECONDS

PNG = (Path(__file__).parent.parent / "data" / "pictures" / "png_ok.png").read_bytes()


def record(directory: Path, *pictures: bytes) -> None:
    """One task that shows these pictures, recorded into a history that is closed again."""
    exporter = TaskHistoryExporter(directory)
    provider = new_provider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    with TaskTracer(provider, exporter=exporter).task("a goal") as task:
        for picture in pictures:
            with task.step() as step:
                step.screenshot(picture)
    provider.shutdown()


def leave(directory: Path, data: bytes, *, age: float) -> Path:
    """A picture whose row was never committed, as a crash leaves it."""
    folder = ArtifactFolder(directory / "artifacts")
    path = folder.path(folder.put(data, "bin").path)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    return path


def test_the_next_open_removes_what_a_crash_left(tmp_path: Path) -> None:
    """A file without a row goes once it is ten minutes old; what a row knows stays at any age."""
    history = tmp_path / "history"
    record(history, PNG)
    (known,) = (history / "artifacts").glob("??/*.png")
    os.utime(known, (1, 1))
    old = leave(history, b"old", age=GRACE_SECONDS + 60)
    young = leave(history, b"young", age=GRACE_SECONDS - 60)
    TaskHistoryExporter(history).shutdown()
    assert known.exists()
    assert young.exists()
    assert not old.exists()


def test_files_that_are_not_ours_stay(tmp_path: Path) -> None:
    """Whatever else lies in the folder is somebody's."""
    history = tmp_path / "history"
    record(history)
    foreign = [history / "artifacts" / name for name in ("notes.txt", "ab/x.png", "ab/cd.tmp")]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        os.utime(path, (1, 1))
    TaskHistoryExporter(history).shutdown()
    assert all(path.read_text() == "mine" for path in foreign)


def test_a_large_folder_is_looked_through_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening looks at a few files only; each commit looks at some more."""
    monkeypatch.setattr(orphans, "AT_A_TIME", 4)
    history = tmp_path / "history"
    record(history)
    left = [leave(history, b"%d" % number, age=2 * GRACE_SECONDS) for number in range(20)]
    TaskHistoryExporter(history).shutdown()
    assert sum(path.exists() for path in left) == 16
    record(history, PNG, PNG, PNG)
    assert not any(path.exists() for path in left)
    with TaskHistory(history) as reader:
        assert len(reader.steps("latest")) == 3


def test_a_picture_that_is_used_again_stays(tmp_path: Path) -> None:
    """Its file is young again from the moment it is stored, before any row knows it."""
    history = tmp_path / "history"
    record(history)
    path = leave(history, PNG, age=2 * GRACE_SECONDS)
    assert ArtifactFolder(history / "artifacts").put(PNG, "bin").created is False
    TaskHistoryExporter(history).shutdown()
    assert path.exists()
