# SPDX-License-Identifier: Apache-2.0
"""What a crash has left goes: files that no row knows, bit by bit; never a file that is wanted."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from otel_taskhistory import TaskHistory, TaskHistoryExporter
from otel_taskhistory.configure import new_provider
from otel_taskhistory.processor import TaskHistoryProcessor
from otel_taskhistory.recording.tracer import TaskTracer
from otel_taskhistory.store import sweep
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.unlinks import GRACE_NS
from tests.store.keeping import ask, keeper, limits, record, work

PNG = (Path(__file__).parent.parent / "data" / "pictures" / "png_ok.png").read_bytes()
GRACE_SECONDS = GRACE_NS / 10**9


def show(directory: Path, *pictures: bytes) -> None:
    """One task that shows these pictures, recorded into a history that is closed again."""
    exporter = TaskHistoryExporter(directory)
    provider = new_provider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    with TaskTracer(provider, exporter=exporter).task("a goal") as task:
        for picture in pictures:
            with task.step() as step:
                step.screenshot(picture)
    provider.shutdown()


def leave(directory: Path, data: bytes, *, age: float = 2 * GRACE_SECONDS) -> Path:
    """A picture whose row was never committed, as a crash leaves it."""
    folder = ArtifactFolder(directory / "artifacts")
    path = folder.path(folder.put(data, "bin").path)
    moment = time.time() - age
    os.utime(path, (moment, moment))
    return path


def test_the_next_open_removes_what_a_crash_left(tmp_path: Path) -> None:
    """A file without a row goes once it is ten minutes old; what a row knows stays at any age."""
    history = tmp_path / "history"
    show(history, PNG)
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
    show(history)
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
    """Opening looks at a few files only; the rest is looked at when nobody wants anything."""
    monkeypatch.setattr(sweep, "AT_A_TIME", 4)
    history = tmp_path / "history"
    record(history, range(1, 2))
    left = [leave(history, b"%d" % number) for number in range(20)]
    with keeper(history, limits()) as retainer:
        for _ in range(10):
            while retainer.step().more:
                pass
        assert sum(path.exists() for path in left) == 16
        assert retainer.rest()
        assert sum(path.exists() for path in left) >= 12
        while retainer.rest():
            pass
    assert not any(path.exists() for path in left)


def test_an_agent_that_works_sweeps_between_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to run anything: what a crash left in a large folder goes while it records."""
    monkeypatch.setattr(sweep, "AT_A_TIME", 4)
    history = tmp_path / "history"
    show(history)
    left = [leave(history, b"%d" % number) for number in range(20)]
    exporter = TaskHistoryExporter(history)
    provider = new_provider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    with TaskTracer(provider, exporter=exporter).task("a goal"):
        deadline = time.monotonic() + 60
        while any(path.exists() for path in left) and time.monotonic() < deadline:
            time.sleep(0.01)
    provider.shutdown()
    assert not any(path.exists() for path in left)
    with TaskHistory(history) as reader:
        assert len(reader.tasks()) == 2


def test_a_picture_that_is_used_again_stays(tmp_path: Path) -> None:
    """Its file is young again from the moment it is stored, before any row knows it."""
    history = tmp_path / "history"
    show(history)
    path = leave(history, PNG)
    assert ArtifactFolder(history / "artifacts").put(PNG, "bin").created is False
    TaskHistoryExporter(history).shutdown()
    assert path.exists()


def test_where_all_files_have_rows_nothing_is_written(tmp_path: Path) -> None:
    """A look at the folder needs no lock: another program may write as long as it likes."""
    history = tmp_path / "history"
    show(history, PNG)
    for path in (history / "artifacts").glob("??/*.png"):
        os.utime(path, (1, 1))
    with keeper(history) as retainer:
        other = sqlite3.Connection(str(history / "history.db"), isolation_level=None)
        with closing(other):
            other.execute("BEGIN IMMEDIATE")
            assert not retainer.step(wait=0).busy
            other.execute("ROLLBACK")


def test_a_sweep_that_finds_the_history_locked_goes_on_later(tmp_path: Path) -> None:
    """Nothing that was found is forgotten, and nobody is told of an error."""
    history = tmp_path / "history"
    record(history, range(1, 2))
    left = leave(history, b"left")
    with keeper(history) as retainer:
        other = sqlite3.Connection(str(history / "history.db"), isolation_level=None)
        with closing(other):
            other.execute("BEGIN IMMEDIATE")
            assert retainer.step(wait=0).busy
            assert not retainer.rest()
            other.execute("ROLLBACK")
        while retainer.rest():
            pass
    assert not left.exists()


def test_a_file_that_a_span_of_another_machine_names_stays(tmp_path: Path) -> None:
    """It came without its picture; whoever brings the file later brings what the row names."""
    history = tmp_path / "history"
    show(history, PNG)
    with closing(sqlite3.Connection(str(history / "history.db"))) as connection, connection:
        connection.execute("UPDATE screenshots SET artifact = NULL")
        connection.execute("DELETE FROM _artifacts")
    (path,) = (history / "artifacts").glob("??/*.png")
    os.utime(path, (1, 1))
    with keeper(history) as retainer:
        assert retainer.sweep_files() == 0
        assert path.exists()
        retainer.remove("latest")
        work(retainer)
        assert ask(history, "SELECT 1 FROM screenshots") == []
        assert retainer.sweep_files() == 1
    assert not path.exists()
