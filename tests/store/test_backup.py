# SPDX-License-Identifier: Apache-2.0
"""A backup is a consistent, verified copy of a history in use, and a history itself."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from otel_taskhistory import TaskHistory, TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.configure import new_provider
from otel_taskhistory.errors import HistoryNotFound, HistoryRefused, TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.backup import MissingPicture, backup
from otel_taskhistory.store.database import PAGE_SIZE
from tests.recorded import PICTURES, one_task, recording

ROOT = Path(__file__).parents[2]

WRITES = """
import sys
from pathlib import Path
from tests.recorded import PICTURES, one_task, recording
picture = (PICTURES / "png_ok.png").read_bytes()
with recording(Path(sys.argv[1])) as tasks:
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        with tasks.task(f"task {number}") as task:
            for _ in range(3):
                with task.step("s") as step:
                    step.prompt([{"role": "user", "content": "x" * 500 + str(number)}])
                    step.screenshot(picture + str(number).encode())
"""

KILLED = """
import os, sys
from pathlib import Path
from tests.recorded import one_task, recording
with recording(Path(sys.argv[1])) as tasks:
    one_task(tasks, "written before the kill", steps=5)
    os._exit(9)
"""


@pytest.fixture
def source(tmp_path: Path) -> Settings:
    """A closed history with two tasks and two pictures."""
    with recording(tmp_path / "source") as tasks:
        one_task(tasks, "first", steps=3)
        with tasks.task("second") as task, task.step("look") as step:
            step.screenshot((PICTURES / "png_ok.png").read_bytes())
            step.screenshot((PICTURES / "png_rgba.png").read_bytes())
    return Settings.resolve(directory=tmp_path / "source")


@contextmanager
def opened(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection that a test reads, or meddles, with."""
    with closing(sqlite3.Connection(str(database), isolation_level=None)) as connection:
        yield connection


def pragma(database: Path, name: str) -> int:
    """A number in the header of a database."""
    with opened(database) as connection:
        return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def all_pictures_match(directory: Path) -> int:
    """Check that each row's file is there with the right content; how many there are."""
    with opened(directory / "history.db") as connection:
        rows = connection.execute("SELECT path, sha256 FROM _artifacts").fetchall()
    for path, sha256 in rows:
        data = (directory / "artifacts" / path).read_bytes()
        assert hashlib.sha256(data).hexdigest() == sha256
    return len(rows)


def test_a_copy_is_the_same_history(source: Settings, tmp_path: Path) -> None:
    """Same owner and id, same tasks and pictures, the numbers by which it is recognised kept."""
    report = backup(source, tmp_path / "copies" / "monday")
    assert report.whole
    assert (report.tasks, report.artifacts) == (2, 2)
    copy = Settings.resolve(directory=tmp_path / "copies" / "monday")
    with TaskHistory(source.directory) as one, TaskHistory(copy.directory) as other:
        assert other.identity == one.identity
        assert list(other.tasks(kind=None)) == list(one.tasks(kind=None))
        for task in one.tasks():
            assert list(other.steps(task.task_id)) == list(one.steps(task.task_id))
    assert all_pictures_match(copy.directory) == 2
    for name in ("application_id", "user_version", "auto_vacuum", "page_size"):
        assert pragma(copy.database, name) == pragma(source.database, name)


def test_the_copy_can_be_written_on(source: Settings, tmp_path: Path) -> None:
    """An agent that is pointed to the copy goes on in it, with a write-ahead log."""
    backup(source, tmp_path / "copy")
    with recording(tmp_path / "copy") as tasks:
        one_task(tasks, "later")
        assert (tmp_path / "copy" / "history.db-wal").exists()
    with TaskHistory(tmp_path / "copy") as history:
        assert [task.goal for task in history.tasks()] == ["later", "second", "first"]


def test_the_source_is_not_changed(source: Settings, tmp_path: Path) -> None:
    """Not a byte, and no file appears beside it."""
    before = files_of(source.directory)
    backup(source, tmp_path / "copy")
    assert files_of(source.directory) == before


def test_a_history_in_use_is_copied_consistently(tmp_path: Path) -> None:
    """While another process writes, the copy is whole: rows, references and pictures."""
    folder = tmp_path / "source"
    with subprocess.Popen(
        [sys.executable, "-c", WRITES, str(folder)], cwd=ROOT, stdout=subprocess.PIPE
    ) as agent:
        try:
            assert agent.stdout is not None
            assert agent.stdout.readline() == b"ready\n"
            counts = []
            while len(counts) < 5 or counts[-1] == counts[0]:
                report = backup(
                    Settings.resolve(directory=folder), tmp_path / f"copy-{len(counts)}"
                )
                assert report.whole
                assert report.removed == ()
                assert all_pictures_match(report.directory) == report.artifacts
                counts.append(report.artifacts)
            assert counts == sorted(counts)
        finally:
            agent.kill()


def test_rows_that_are_only_in_the_log_are_copied(tmp_path: Path) -> None:
    """Plain cp copies none of what a killed writer has left in its log, a backup all of it."""
    folder = tmp_path / "source"
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == 9
    shutil.copy(folder / "history.db", tmp_path / "by-cp.db")
    with opened(tmp_path / "by-cp.db") as connection:
        assert connection.execute("SELECT count(*) FROM tasks").fetchone() == (0,)
    backup(Settings.resolve(directory=folder), tmp_path / "copy")
    with TaskHistory(tmp_path / "copy") as history:
        (task,) = history.tasks()
        assert (task.goal, task.step_count) == ("written before the kill", 5)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mask", [0o000, 0o777])
def test_a_copy_is_for_its_user_only(source: Settings, tmp_path: Path, mask: int) -> None:
    """Folders 0700 and files 0600, whatever the umask."""
    before = os.umask(mask)
    try:
        backup(source, tmp_path / "deep" / "copy")
    finally:
        os.umask(before)
    for path in (tmp_path / "deep", *(tmp_path / "deep").rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path


def test_a_copy_is_one_file_and_its_pictures(source: Settings, tmp_path: Path) -> None:
    """Nothing else is in it, and nothing is left beside it."""
    (tmp_path / "copies" / "empty").mkdir(parents=True)
    report = backup(source, tmp_path / "copies" / "empty")
    assert sorted(path.name for path in report.directory.iterdir()) == ["artifacts", "history.db"]
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["empty"]


@pytest.mark.parametrize("picture", ["missing", "damaged", "unreadable"])
def test_a_lost_picture_is_told_and_the_rest_is_there(
    source: Settings, tmp_path: Path, picture: str
) -> None:
    """It is named with the reason; every other file is in the copy, and so is its row."""
    first, second = sorted(source.artifacts.rglob("*.png"))
    if picture == "missing":
        first.unlink()
    elif picture == "damaged":
        first.write_bytes(first.read_bytes()[:-1] + b"?")
    else:
        first.unlink()
        first.mkdir()
    report = backup(source, tmp_path / "copy")
    path = str(first.relative_to(source.artifacts))
    assert report.missing == (MissingPicture(path, picture),)
    assert not report.whole
    assert report.artifacts == 1
    assert (report.directory / "artifacts" / second.relative_to(source.artifacts)).exists()
    assert not (report.directory / "artifacts" / path).exists()
    with TaskHistory(report.directory) as history:
        assert len(history.screenshots(history.task("latest").task_id)) == 2


def add_artifact(source: Settings, content: bytes) -> str:
    """A row and its file, as a writer adds them."""
    put = ArtifactFolder(source.artifacts).put(content, "png")
    with opened(source.database) as connection:
        connection.execute(
            "INSERT INTO _artifacts (sha256, path, media_type, bytes, status)"
            " VALUES (?, ?, 'image/png', ?, 'ok')",
            (put.sha256, put.path, put.size),
        )
    return put.path


def remove_artifact(source: Settings, path: str) -> None:
    """Row, then file, as retention removes them."""
    with opened(source.database) as connection:
        connection.execute("DELETE FROM _artifacts WHERE path = ?", (path,))
    ArtifactFolder(source.artifacts).remove(path)


def test_what_retention_removes_meanwhile_is_copied_anew(source: Settings, tmp_path: Path) -> None:
    """A picture that came and went between the steps of a backup leaves neither row nor gap."""
    came: list[str] = []
    snapshots = []

    def meddle(what: str, done: int, total: int) -> None:
        if what == "pictures" and not came:
            came.append(add_artifact(source, b"came late"))
        if what == "database" and done == total:
            snapshots.append(done)
            if len(snapshots) == 1:
                remove_artifact(source, came[0])

    report = backup(source, tmp_path / "copy", meddle)
    assert report.whole
    assert report.removed == ()
    assert len(snapshots) == 2
    assert all_pictures_match(report.directory) == 2


def test_a_backup_ends_however_busy_retention_is(source: Settings, tmp_path: Path) -> None:
    """After a few attempts, what the history itself has removed is named and is no fault."""
    here: list[str] = []

    def meddle(what: str, done: int, total: int) -> None:
        if what == "database" and done == total:
            remove_artifact(source, here.pop())
        if not here:
            here.append(add_artifact(source, os.urandom(16)))

    with opened(source.database) as agent:  # an agent is there all the time
        agent.execute("SELECT 1 FROM tasks").fetchone()
        report = backup(source, tmp_path / "copy", meddle)
    assert len(report.removed) == 1
    assert report.whole
    assert report.artifacts == 2


def test_what_was_copied_and_then_removed_is_not_in_the_copy(
    source: Settings, tmp_path: Path
) -> None:
    """The copy has no file that none of its rows names."""
    path = add_artifact(source, b"goes soon")

    def meddle(what: str, done: int, total: int) -> None:
        if what == "pictures" and done == total and (source.artifacts / path).exists():
            remove_artifact(source, path)

    report = backup(source, tmp_path / "copy", meddle)
    assert report.artifacts == 2
    assert not (report.directory / "artifacts" / path).exists()


@pytest.mark.parametrize("place", ["full", "file", "artifacts", "itself"])
def test_a_target_that_is_not_free_is_refused(source: Settings, tmp_path: Path, place: str) -> None:
    """Only what is not there yet, or empty, becomes a backup; nothing is changed otherwise."""
    target = {
        "full": tmp_path / "full",
        "file": tmp_path / "file",
        "artifacts": source.artifacts / "copy",
        "itself": source.directory,
    }[place]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = files_of(tmp_path)
    with pytest.raises(TaskHistoryError, match=r"name a folder|empty"):
        backup(source, target)
    assert files_of(tmp_path) == before


def test_too_little_room_is_told_before_anything_is_copied(
    source: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says how much it takes and how much there is."""
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=1000))
    with pytest.raises(TaskHistoryError, match=r"not enough room .* 1000 B are free"):
        backup(source, tmp_path / "deep" / "copy")
    assert not (tmp_path / "deep").exists()


def test_a_disk_that_fills_up_leaves_nothing(
    source: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half backup is never taken for one: it is gone, whatever ended it."""

    def put(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ArtifactFolder, "put", put)
    with pytest.raises(OSError, match="No space"):
        backup(source, tmp_path / "copies" / "copy")
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_backup_that_is_interrupted_leaves_nothing(source: Settings, tmp_path: Path) -> None:
    """Ctrl-C in the middle, and the target is as it was."""

    def stop(what: str, done: int, total: int) -> None:
        if what == "check":
            raise KeyboardInterrupt

    (tmp_path / "copies" / "copy").mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        backup(source, tmp_path / "copies" / "copy", stop)
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["copy"]
    assert list((tmp_path / "copies" / "copy").iterdir()) == []


def test_a_damaged_history_makes_no_backup(source: Settings, tmp_path: Path) -> None:
    """A copy of damage would be taken for a good one: it says so and keeps none."""
    with opened(source.database) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'tasks_agent'"
        ).fetchone()
    with source.database.open("rb+") as file:
        file.seek((page - 1) * PAGE_SIZE)
        file.write(b"\xff" * PAGE_SIZE)
    with pytest.raises(TaskHistoryError, match=r"is damaged .* doctor"):
        backup(source, tmp_path / "copies" / "copy")
    assert list((tmp_path / "copies").iterdir()) == []


def test_references_into_nothing_are_told(source: Settings, tmp_path: Path) -> None:
    """What is wrong with the rows of a history is wrong with the copy, and said."""
    with opened(source.database) as connection:
        connection.execute("UPDATE _steps SET last_call = 9999 WHERE id = 1")
    report = backup(source, tmp_path / "copy")
    assert report.problems == ("1 rows refer to rows that are not there",)
    assert not report.whole


def test_there_must_be_a_history_of_that_owner(source: Settings, tmp_path: Path) -> None:
    """No history, or another owner's, is the same clear refusal as for every reader."""
    with pytest.raises(HistoryNotFound):
        backup(Settings.resolve(directory=tmp_path / "nothing"), tmp_path / "copy")
    with pytest.raises(HistoryRefused):
        backup(Settings.resolve(directory=source.directory, owner="other"), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_what_runs_in_the_original_is_interrupted_in_the_copy(tmp_path: Path) -> None:
    """Nobody will ever end it there; the original goes on undisturbed."""
    exporter = TaskHistoryExporter(tmp_path / "history")
    provider = new_provider(shutdown_on_exit=False)
    provider.add_span_processor(TaskHistoryProcessor(exporter))
    with TaskTracer(provider, exporter=exporter).task("a goal") as task, task.step() as step:
        step.prompt("what now?")
        backup(exporter.settings, tmp_path / "copy")
        with TaskHistory(tmp_path / "copy") as copy:
            assert copy.task("latest").status == "interrupted"
            assert [(s.status, s.prompt) for s in copy.steps("latest")] == [
                ("interrupted", "what now?")
            ]
        with TaskHistory(tmp_path / "history") as original:
            assert original.task("latest").status == "running"
    with TaskHistory(tmp_path / "history") as original:
        assert original.task("latest").status == "succeeded"
    provider.shutdown()
