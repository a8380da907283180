# SPDX-License-Identifier: Apache-2.0
"""The doctor finds what is wrong, says what to do, and changes nothing unless it is told to."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.aside import set_aside
from otel_taskhistory.store.database import PAGE_SIZE
from otel_taskhistory.store.doctor import Diagnosis, Finding, examine
from otel_taskhistory.store.doctor.environment import check_environment
from otel_taskhistory.store.doctor.place import (
    check_file_system,
    check_room,
    check_sqlite,
    file_system,
)
from otel_taskhistory.store.doctor.wal import Wal, check_wal, look_at_wal
from otel_taskhistory.store.header import immutable
from otel_taskhistory.store.holders import Holder, holders
from tests.recorded import PICTURES, one_task, recording

DATABASES = Path(__file__).parents[1] / "data" / "databases"
ROOT = Path(__file__).parents[2]
LONG_AGO = time.time() - 3600

KILLED = """
import os, sys
from pathlib import Path
from tests.recorded import one_task, recording
with recording(Path(sys.argv[1])) as tasks:
    one_task(tasks)
    with tasks.task("never ends") as task, task.step("killed in here") as step:
        step.prompt("what now?")
        os._exit(9)
"""

WAITS = """
import sys
from pathlib import Path
from tests.recorded import one_task, recording
with recording(Path(sys.argv[1])) as tasks:
    one_task(tasks)
    with tasks.task("goes on"):
        print("recorded", flush=True)
        input()
"""

HOLDS = """
import sqlite3, sys
c = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
c.execute("BEGIN")
c.execute("SELECT 1 FROM tasks").fetchone()
print("open", flush=True)
input()
"""


@pytest.fixture
def history(tmp_path: Path) -> Settings:
    """A closed history with two tasks and two pictures."""
    with recording(tmp_path / "history") as tasks:
        one_task(tasks, steps=2)
        with tasks.task("look") as task, task.step("see") as step:
            step.screenshot((PICTURES / "png_ok.png").read_bytes())
            step.screenshot((PICTURES / "png_rgba.png").read_bytes())
    return Settings.resolve(directory=tmp_path / "history")


def killed(folder: Path) -> Settings:
    """A history whose writer was killed within a step."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT, check=False)
    assert done.returncode == 9
    return Settings.resolve(directory=folder)


def seen(diagnosis: Diagnosis, check: str) -> list[Finding]:
    """What was found by one check."""
    return [finding for finding in diagnosis.findings if finding.check == check]


def the(diagnosis: Diagnosis, check: str) -> Finding:
    """The one finding of a check."""
    (finding,) = seen(diagnosis, check)
    return finding


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and mode of every file below a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


@contextmanager
def opened(settings: Settings) -> Iterator[sqlite3.Connection]:
    """A connection that a test meddles with."""
    with closing(sqlite3.Connection(str(settings.database), isolation_level=None)) as connection:
        yield connection


def damage(settings: Settings, name: str) -> None:
    """Overwrite the first page of a table or index."""
    with closing(immutable(settings.database)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)
        ).fetchone()
    with settings.database.open("rb+") as file:
        file.seek((page - 1) * PAGE_SIZE)
        file.write(b"\xff" * PAGE_SIZE)


# --- nothing wrong, nothing changed -------------------------------------------------------------


def test_a_healthy_history_is_healthy(history: Settings) -> None:
    """Nothing but notes is found."""
    diagnosis = examine(history)
    assert diagnosis.healthy
    assert {finding.severity for finding in diagnosis.findings} <= {"note"}
    assert diagnosis.identity is not None
    assert diagnosis.identity.owner == "host-agent"


def test_a_look_at_a_closed_history_changes_nothing(history: Settings) -> None:
    """No byte, no mode, no -wal and no -shm."""
    before = everything(history.directory)
    examine(history)
    assert everything(history.directory) == before


def test_a_look_at_a_killed_history_changes_nothing(tmp_path: Path) -> None:
    """Not even the index of the write-ahead log, and yet its rows are seen."""
    settings = killed(tmp_path)
    before = everything(tmp_path)
    assert {"history.db-wal", "history.db-shm"} <= set(before)
    diagnosis = examine(settings)
    assert the(diagnosis, "running").count == 1
    assert everything(tmp_path) == before


def test_a_log_without_its_index_is_seen_too(tmp_path: Path) -> None:
    """As it is after a copy by hand; nothing is made beside it."""
    settings = killed(tmp_path)
    (tmp_path / "history.db-shm").unlink()
    before = everything(tmp_path)
    assert seen(examine(settings), "running")
    assert everything(tmp_path) == before


def test_a_history_in_use_is_looked_at_without_a_trace(tmp_path: Path) -> None:
    """An agent that writes is not in the way, and neither is the doctor."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"recorded\n"
        settings = Settings.resolve(directory=tmp_path)
        before = everything(tmp_path)
        diagnosis = examine(settings)
        assert everything(tmp_path) == before
        assert diagnosis.healthy
        if sys.platform.startswith("linux"):
            assert f"pid {agent.pid}" in the(diagnosis, "in use").what
        agent.communicate(b"\n")
    assert agent.returncode == 0
    assert seen(examine(settings), "in use") == []


# --- what cannot be a history -------------------------------------------------------------------

OURS_BUT = {
    "destroyed header": lambda data: b"\0" * 100 + data[100:],
    "cut in the middle": lambda data: data[: len(data) // 2],
    "only a header": lambda data: data[:100],
    "nothing but zeros": lambda data: b"\0" * len(data),
    "first page overwritten": lambda data: (
        data[:100] + b"\xff" * (PAGE_SIZE - 100) + data[PAGE_SIZE:]
    ),
}


@pytest.mark.parametrize("name", sorted(path.name for path in DATABASES.glob("*.db")))
def test_a_database_that_is_no_history_is_told_in_one_sentence(tmp_path: Path, name: str) -> None:
    """Foreign, unknown, empty and damaged files: an error that names the file, and no change."""
    for path in DATABASES.glob(f"{name}*"):
        shutil.copy(path, tmp_path / path.name.replace(name, "history.db"))
    before = everything(tmp_path)
    for fix in (False, True):
        diagnosis = examine(Settings.resolve(directory=tmp_path), fix=fix)
        assert not diagnosis.healthy
        (finding,) = [*seen(diagnosis, "history"), *seen(diagnosis, "database")]
        assert finding.severity == "error"
        assert str(tmp_path / "history.db") in finding.what
        assert {key: data for key, (data, _) in everything(tmp_path).items()} == {
            key: data for key, (data, _) in before.items()
        }


@pytest.mark.parametrize("kind", OURS_BUT)
def test_a_destroyed_history_of_ours_is_told(history: Settings, kind: str) -> None:
    """It is called damaged, with what the next agent does about it; nothing is changed."""
    change: Callable[[bytes], bytes] = OURS_BUT[kind]
    history.database.write_bytes(change(history.database.read_bytes()))
    before = everything(history.directory)
    finding = the(examine(history, fix=True), "database")
    assert "damaged" in finding.what
    assert "sets the history aside" in finding.todo
    assert everything(history.directory) == before


@pytest.mark.parametrize("name", ["tasks", "tasks_agent", "_spans", "_meta"])
def test_damage_within_the_database_is_found(history: Settings, name: str) -> None:
    """Also in an index, where counting and writing go well; --fix does not touch the evidence."""
    damage(history, name)
    before = everything(history.directory)
    diagnosis = examine(history, fix=True)
    assert not diagnosis.healthy
    assert "damaged" in the(diagnosis, "database").what
    assert everything(history.directory) == before


def test_a_newer_history_is_told(history: Settings) -> None:
    """Readable or not, with both versions and what to do."""
    with opened(history) as connection:
        connection.execute("PRAGMA user_version = 9999")
    assert "9999" in the(examine(history), "schema").what
    with opened(history) as connection:
        connection.execute("UPDATE _meta SET value = '9000' WHERE key = 'readable_from'")
    finding = the(examine(history), "history")
    assert "upgrade" in finding.what
    assert finding.severity == "error"


def test_no_history_and_another_owners_are_told(history: Settings, tmp_path: Path) -> None:
    """With where it was looked for, and whose it is."""
    nothing = examine(Settings.resolve(directory=tmp_path / "nothing"), fix=True)
    assert "there is no history" in the(nothing, "history").what
    assert not (tmp_path / "nothing").exists()
    other = examine(Settings.resolve(directory=history.directory, owner="runtime"))
    assert "'host-agent', not of 'runtime'" in the(other, "history").what


def test_an_artifact_folder_of_another_history_is_told(history: Settings) -> None:
    """An agent would be refused; the sentence names both."""
    stamp = history.artifacts / ".otel-taskhistory.json"
    said = json.loads(stamp.read_text())
    stamp.write_text(json.dumps({**said, "history_id": "another"}))
    assert "another" in the(examine(history), "artifact folder").what


# --- what the rows say --------------------------------------------------------------------------


def test_rows_that_refer_to_nothing_are_found(history: Settings) -> None:
    """Integrity is more than sound pages."""
    with opened(history) as connection:
        connection.execute("UPDATE _steps SET last_call = 9999 WHERE id = 1")
    finding = the(examine(history), "references")
    assert (finding.severity, finding.items) == ("error", ("_steps 1 → _model_calls",))


def add_search(settings: Settings) -> None:
    """A full-text index over the goals."""
    with opened(settings) as connection:
        connection.execute(
            "CREATE VIRTUAL TABLE goals USING fts5(goal, content='tasks', content_rowid='id')"
        )
        connection.execute("INSERT INTO goals(goals) VALUES ('rebuild')")


def test_a_sound_search_index_is_no_finding(history: Settings) -> None:
    """It is checked in a copy: the database is not written to."""
    add_search(history)
    before = everything(history.directory)
    assert examine(history).healthy
    assert everything(history.directory) == before


def test_a_search_index_out_of_step_is_found_and_made_anew(history: Settings) -> None:
    """Ghosts of removed rows are searchable no more after --fix."""
    add_search(history)
    with opened(history) as connection:
        connection.execute("UPDATE tasks SET goal = 'something else'")
    finding = the(examine(history), "search index")
    assert (finding.severity, finding.fixable) == ("error", True)
    assert the(examine(history, fix=True), "search index").fixed == "made anew: goals"
    assert examine(history).healthy


def test_an_index_by_other_rules_is_a_note_and_made_anew(history: Settings) -> None:
    """Search says itself that it does not see all; --fix makes the index anew at once."""
    with opened(history) as connection:
        connection.execute("UPDATE _meta SET value = '0' WHERE key = 'words'")
    finding = the(examine(history), "search index")
    assert (finding.severity, finding.fixable) == ("note", True)
    assert "words of what was said" in str(the(examine(history, fix=True), "search index").fixed)
    assert not seen(examine(history), "search index")


def test_losses_are_summed_up(history: Settings) -> None:
    """By reason, whatever the details hold."""
    with opened(history) as connection:
        for detail in ('{"spans": 3, "reason": "disk full"}', '{"spans": 4}', "not json"):
            connection.execute(
                "INSERT INTO _timeline (at_ns, event, detail) VALUES (1, 'loss', ?)", (detail,)
            )
    finding = the(examine(history), "losses")
    assert (finding.severity, finding.count) == ("warning", 7)
    assert "disk full: 3" in finding.items


def test_what_the_sdk_dropped_is_told_with_its_tasks(history: Settings) -> None:
    """The sum, and whose prompts may be gone."""
    with opened(history) as connection:
        connection.execute("UPDATE _spans SET dropped_attributes = 70, dropped_events = 2")
        (spans,) = connection.execute("SELECT count(*) FROM _spans").fetchone()
        connection.execute("UPDATE tasks SET dropped = 72 WHERE goal = 'look'")
    finding = the(examine(history), "dropped")
    assert f"{72 * spans} attributes" in finding.what
    assert len(finding.items) == 1


def test_reduced_spans_are_a_warning_and_marked_values_a_note(history: Settings) -> None:
    """Half an emoji that comes back exactly is nothing wrong; a span without content is."""
    with opened(history) as connection:
        connection.execute("UPDATE _spans SET marks = '[\"name\"]' WHERE id = 1")
    assert examine(history).healthy
    assert the(examine(history), "reduced").severity == "note"
    with opened(history) as connection:
        connection.execute('UPDATE _spans SET marks = \'["reduced", "name"]\' WHERE id = 2')
    severities = [finding.severity for finding in seen(examine(history), "reduced")]
    assert sorted(severities) == ["note", "warning"]


def test_a_task_whose_process_is_gone_is_told_one_that_runs_is_not(tmp_path: Path) -> None:
    """By the processes of its open spans."""
    settings = killed(tmp_path / "killed")
    finding = the(examine(settings), "running")
    assert (finding.severity, finding.count) == ("warning", 1)
    with recording(tmp_path / "alive") as tasks:
        task = tasks.task("still going")
        tasks_settings = Settings.resolve(directory=tmp_path / "alive")
        assert seen(examine(tasks_settings), "running") == []
        task.end()


# --- pictures -----------------------------------------------------------------------------------


def test_a_missing_and_a_changed_picture_are_found(history: Settings) -> None:
    """By name, by size, and by content unless it is to be quick."""
    first, second = sorted(history.artifacts.rglob("*.png"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    diagnosis = examine(history, fix=True)
    assert the(diagnosis, "missing files").items == (str(first.relative_to(history.artifacts)),)
    assert "other content" in the(diagnosis, "damaged files").items[0]
    assert seen(examine(history, quick=True), "damaged files") == []
    second.write_bytes(b"short")
    assert "5 bytes instead of" in the(examine(history, quick=True), "damaged files").items[0]


def test_files_that_no_row_knows_go_when_they_are_old(history: Settings) -> None:
    """A file comes before its row: a young one may be on its way, and stays."""
    folder = ArtifactFolder(history.artifacts)
    old, young = folder.put(b"old", "png").path, folder.put(b"young", "png").path
    os.utime(folder.path(old), (LONG_AGO, LONG_AGO))
    finding = the(examine(history), "files without rows")
    assert finding.items == (old,)
    assert folder.path(old).exists()
    assert the(examine(history, fix=True), "files without rows").fixed == "removed 1 files"
    assert not folder.path(old).exists()
    assert folder.path(young).exists()
    assert len(list(folder.walk())) == 3
    assert examine(history).healthy


def test_leftovers_of_killed_writers_go(history: Settings) -> None:
    """Temporary files past the grace time; what is not ours stays."""
    leftover = history.artifacts / "ab" / f"taskhistory-{'0' * 32}.tmp"
    stamp = history.artifacts / f".otel-taskhistory.json.{'0' * 16}"
    foreign = history.artifacts / "ab" / "notes.tmp"
    for path in (leftover, stamp, foreign):
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        os.utime(path, (LONG_AGO, LONG_AGO))
    young = history.artifacts / "ab" / f"taskhistory-{'1' * 32}.tmp"
    young.touch(mode=0o600)
    assert the(examine(history), "leftovers").count == 2
    assert the(examine(history, fix=True), "leftovers").fixed
    assert [path.exists() for path in (leftover, stamp, foreign, young)] == [
        False,
        False,
        True,
        True,
    ]


# --- the place ----------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_what_others_may_read_is_found_and_closed(history: Settings) -> None:
    """Folders, database and pictures."""
    (picture, _) = sorted(history.artifacts.rglob("*.png"))
    for path, mode in (
        (history.directory, 0o755),
        (history.database, 0o644),
        (picture, 0o604),
        (picture.parent, 0o750),
    ):
        path.chmod(mode)
    finding = the(examine(history), "access")
    assert (finding.severity, finding.count) == ("error", 4)
    assert stat.S_IMODE(picture.stat().st_mode) == 0o604
    assert the(examine(history, fix=True), "access").fixed
    for path in (history.directory, *history.directory.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert examine(history).healthy


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_history_that_was_put_away_is_a_warning(history: Settings) -> None:
    """Of a folder that nobody may write to it is told that others can read it, and that reading
    works; --fix leaves it one that nobody may write to.
    """
    below = [path for path in history.directory.rglob("*") if path.suffix != ".lock"]
    paths = [history.directory, *below]
    folders = {path for path in paths if path.is_dir()}
    for path in reversed(paths):
        path.chmod(0o555 if path in folders else 0o444)
    try:
        finding = the(examine(history), "access")
        assert (finding.severity, finding.fixable) == ("warning", True)
        assert "Reading works" in finding.meaning
        assert the(examine(history, fix=True), "access").fixed
        for path in paths:
            assert stat.S_IMODE(path.stat().st_mode) == (0o500 if path in folders else 0o400)
        assert not seen(examine(history), "access")
    finally:
        for path in paths:
            path.chmod(0o700 if path in folders else 0o600)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_a_damaged_history_is_closed_to_others_and_else_untouched(history: Settings) -> None:
    """Permissions are the one thing that is safe to fix then."""
    damage(history, "tasks")
    history.database.chmod(0o644)
    content = history.database.read_bytes()
    assert the(examine(history, fix=True), "access").fixed
    assert stat.S_IMODE(history.database.stat().st_mode) == 0o600
    assert history.database.read_bytes() == content


def test_a_history_that_was_set_aside_is_told(history: Settings) -> None:
    """With where it is, when and why, until somebody has removed it."""
    damage(history, "tasks")
    home = set_aside(history)
    assert home is not None
    with recording(history.directory) as tasks:
        one_task(tasks, "after that")
    finding = the(examine(history), "set aside")
    assert str(home) in finding.what
    assert not examine(history).healthy
    shutil.rmtree(home)
    assert examine(history).healthy


@pytest.mark.parametrize(
    ("kind", "severity"), [("nfs4", "error"), ("9p", "error"), ("overlay", "note"), ("ext4", None)]
)
def test_the_file_system_is_told_by_the_longest_mount_point(
    tmp_path: Path, kind: str, severity: str | None
) -> None:
    """Names with spaces are escaped there; a later mount hides an earlier one."""
    place = tmp_path / "a b"
    place.mkdir()
    escaped = str(place).replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/a / ext4 rw 0 0\nsrv:/x {escaped} ext2 rw 0 0\nsrv:/y {escaped} {kind} rw 0 0\n"
        f"/dev/b {escaped}x nfs rw 0 0\nbroken\n"
    )
    assert file_system(place / "history.db", mounts) == kind
    assert file_system(tmp_path / "a b2", mounts) == "ext4"
    assert file_system(place, tmp_path / "none") is None
    found = list(check_file_system(Settings.resolve(directory=place), mounts))
    assert {finding.severity for finding in found} == ({severity} if severity else set())


@pytest.mark.parametrize(("free", "severity"), [(10, "error"), (10**8, "warning"), (10**12, None)])
def test_room_is_compared_with_the_limit(
    history: Settings, monkeypatch: pytest.MonkeyPatch, free: int, severity: str | None
) -> None:
    """A disk that is full, or will be before the limit is reached."""
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free))
    assert {f.severity for f in check_room(history)} == ({severity} if severity else set())
    unlimited = Settings.resolve(directory=history.directory, retention=Retention(max_bytes=None))
    wrong = {f.severity for f in check_room(unlimited)}
    assert wrong == ({"error"} if severity == "error" else set())


@pytest.mark.parametrize(
    ("version", "options", "severities"),
    [
        ((3, 36, 0), {"ENABLE_FTS5"}, ["error"]),
        ((3, 53, 0), {"ENABLE_FTS5", "THREADSAFE=1"}, []),
        ((3, 53, 0), {"THREADSAFE=1"}, ["error"]),
        ((3, 53, 0), {"ENABLE_FTS5", "THREADSAFE=0"}, ["error"]),
        ((3, 40, 1), {"ENABLE_FTS5"}, ["note"]),
        ((3, 44, 6), {"ENABLE_FTS5"}, []),
        ((3, 45, 0), {"ENABLE_FTS5"}, ["note"]),
        ((3, 50, 7), {"ENABLE_FTS5"}, []),
        ((3, 51, 2), {"ENABLE_FTS5"}, ["note"]),
        ((3, 51, 3), {"ENABLE_FTS5"}, []),
    ],
)
def test_sqlite_is_judged_by_version_and_options(
    version: tuple[int, ...], options: set[str], severities: list[str]
) -> None:
    """Too old, without full-text search, for one thread; with a bug that is known."""
    found = check_sqlite(version, frozenset(options))
    assert [finding.severity for finding in found] == severities


# --- the write-ahead log ------------------------------------------------------------------------


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who reads is told on Linux")
def test_a_reader_that_blocks_the_log_is_named(history: Settings) -> None:
    """How far the log goes, how much of it is folded in, and who is in the way."""
    with opened(history) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO _meta VALUES ('one', 'row')")
        with subprocess.Popen(
            [sys.executable, "-c", HOLDS, str(history.database)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"open\n"
            writer.execute("INSERT INTO _meta VALUES ('another', 'row')")
            busy, *_ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert busy
            # In another process: here it would take the locks of the writer's index away.
            wal = _look_from_elsewhere(history.database)
            assert [holder["pid"] for holder in wal["readers"]] == [reader.pid]
            assert wal["folded"] < wal["frames"] == 2
            reader.communicate(b"\n")
        (finding,) = check_wal(Wal(2**30, 9, 4, (Holder(reader.pid, "sh", False, 124, 124),)))
        assert f"pid {reader.pid}" in finding.meaning
        assert "4 of its 9 pages" in finding.what


def _look_from_elsewhere(database: Path) -> dict[str, Any]:
    program = (
        "import dataclasses, json, sys; from pathlib import Path;"
        "from otel_taskhistory.store.doctor.wal import look_at_wal;"
        "print(json.dumps(dataclasses.asdict(look_at_wal(Path(sys.argv[1])))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(database)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_large_log_is_told_and_folded_in(tmp_path: Path) -> None:
    """--fix gives the room back when nobody is in the way."""
    settings = killed(tmp_path)
    wal = tmp_path / "history.db-wal"
    with wal.open("ab") as file:  # frames that do not count: of a log that was longer once
        file.truncate(40 * 2**20)
    finding = the(examine(settings), "write-ahead log")
    assert (finding.severity, finding.fixable) == ("warning", True)
    assert the(examine(settings, fix=True), "write-ahead log").fixed
    assert not wal.exists() or wal.stat().st_size < 2**20


def test_a_log_or_an_index_that_tells_nothing_is_no_failure(tmp_path: Path) -> None:
    """Not there, too short, half written: then only its size is known."""
    database = tmp_path / "history.db"
    assert look_at_wal(database) is None
    (tmp_path / "history.db-wal").write_bytes(b"x" * 10)
    assert look_at_wal(database) == Wal(10, None, None, ())
    for index in (b"", b"x" * 50, b"\0" * 200, struct.pack("=48s48s", b"a" * 48, b"b") + b"x" * 99):
        (tmp_path / "history.db-shm").write_bytes(index)
        assert look_at_wal(database) == Wal(10, None, None, ())
    assert list(check_wal(None)) == []


# --- who holds it -------------------------------------------------------------------------------


def test_locks_are_read_as_the_system_writes_them(tmp_path: Path) -> None:
    """Waiting ones, other files, endless ranges and lines of another form are told apart."""
    path = tmp_path / "file"
    path.touch()
    found = path.stat()
    which = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    proc = tmp_path / "proc"
    (proc / "7" / "fd").mkdir(parents=True)
    (proc / "7" / "fdinfo").mkdir()
    (proc / "7" / "comm").write_text("reader\n")
    (proc / "7" / "fd" / "3").symlink_to(path)
    (proc / "7" / "fdinfo" / "3").write_text("pos:\t0\nflags:\t0100000\nmnt_id:\t1\n")
    (proc / "locks").write_text(
        f"1: POSIX  ADVISORY  READ 7 {which} 1073741826 1073742335\n"
        f"1: -> POSIX  ADVISORY  WRITE 8 {which} 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 9 {which} 0 EOF\n"
        f"3: POSIX  ADVISORY  READ {os.getpid()} {which} 0 5\n"
        "4: POSIX  ADVISORY  READ 10 00:00:1 0 5\n"
        "rubbish\n"
    )
    seven, nine = holders(path, proc=proc)
    assert (seven.pid, seven.command, seven.writes) == (7, "reader", False)
    assert (seven.first, seven.last) == (1073741826, 1073742335)
    assert (nine.pid, nine.command, nine.writes, nine.last) == (9, "", None, 2**63 - 1)
    (proc / "7" / "fdinfo" / "3").write_text("flags:\t0100002\n")
    assert holders(path, proc=proc)[0].writes is True
    assert holders(path, proc=tmp_path / "none") == ()
    assert holders(tmp_path / "none", proc=proc) == ()


# --- the environment ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "severities"),
    [
        ({}, []),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "1000"}, ["warning"]),
        ({"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "1000"}, ["warning"]),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": " "}, []),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "32"}, ["warning"]),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "4096"}, []),
        ({"OTEL_SPAN_EVENT_COUNT_LIMIT": "1"}, ["warning"]),
        ({"OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}, ["warning"]),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, []),
        ({"OTEL_SDK_DISABLED": "true"}, ["error"]),
        ({"OTEL_SDK_DISABLED": "false"}, []),
        ({"OTEL_TRACES_EXPORTER": "taskhistory,console"}, ["note"]),
        ({"OTEL_TRACES_EXPORTER": "taskhistory,otlp"}, ["warning", "note"]),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, ["warning", "note"]),
        ({"OTEL_TRACES_EXPORTER": "none"}, ["note"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://user:secret@host"}, ["note"]),
    ],
)
def test_settings_that_cut_lose_or_send_are_told(
    environ: dict[str, str], severities: list[str]
) -> None:
    """Each by its name, and never with a value that may hold a secret."""
    found = list(check_environment(environ))
    assert [finding.severity for finding in found] == severities
    assert all(any(name in finding.what for name in environ) for finding in found)
    assert not any("secret" in str(finding) for finding in found)


def test_the_environment_is_part_of_the_diagnosis(history: Settings) -> None:
    """With the variables of the process itself, or those that are given."""
    assert not examine(history, environ={"OTEL_SDK_DISABLED": "true"}).healthy
