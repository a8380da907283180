# SPDX-License-Identifier: Apache-2.0
"""Where a history can and cannot be: one clear error, and nothing changed on disk."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_taskhistory.configure import configure, new_provider
from otel_taskhistory.errors import HistoryRefused, SchemaTooNew, SettingsError, TaskHistoryError
from otel_taskhistory.exporter import TaskHistoryExporter
from otel_taskhistory.store import database as database_module
from otel_taskhistory.store import stamp as stamp_module
from otel_taskhistory.store.header import Header
from otel_taskhistory.store.schema import APPLICATION_ID, SCHEMA_VERSION
from tests.processes import SOUND_PNG, Program, check, listing, one, rows, run

DATABASES = Path(__file__).parent / "data" / "databases"


@contextmanager
def refused(folder: Path, *words: str, kind: type[Exception] = TaskHistoryError) -> Iterator[None]:
    """The block raises one sentence that holds `words`, and changes nothing in `folder`."""
    before = listing(folder)
    with pytest.raises(kind) as raised:
        yield
    said = str(raised.value)
    assert "\n" not in said
    for word in words:
        assert word in said
    assert listing(folder) == before


def made(directory: Path, **settings: Any) -> Path:
    """A history with one task in it, closed."""
    exporter = TaskHistoryExporter(directory, **settings)
    provider = new_provider(shutdown_on_exit=False)
    tasks = configure(tracer_provider=provider, directory=directory, owner=settings.get("owner"))
    with tasks.task("a goal") as task, task.step("s") as step:
        step.screenshot(SOUND_PNG)
    provider.shutdown()
    exporter.shutdown()
    return directory


@pytest.mark.parametrize("below", ["", "deeper/history"])
def test_a_directory_that_is_a_file_or_below_one(tmp_path: Path, below: str) -> None:
    """The error names the setting."""
    (tmp_path / "file").write_text("mine")
    with refused(tmp_path, "OTEL_TASKHISTORY_DIRECTORY", str(tmp_path / "file")):
        TaskHistoryExporter(tmp_path / "file" / below)


def test_an_artifact_folder_that_is_a_file(tmp_path: Path) -> None:
    """No database is made for it either."""
    (tmp_path / "pictures").write_text("mine")
    with refused(tmp_path, str(tmp_path / "pictures")):
        TaskHistoryExporter(tmp_path / "history", artifacts=tmp_path / "pictures")


def test_a_database_that_is_a_directory_or_a_pipe(tmp_path: Path) -> None:
    """Nothing waits for the other end of the pipe."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with refused(tmp_path, "is no file"):
            TaskHistoryExporter(tmp_path, database=tmp_path / name)


def test_a_directory_that_may_not_be_written_to() -> None:
    """Said before anything is made in it, or beside it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "history").mkdir(mode=0o755)
        made(folder / "others")
        (folder / "others").chmod(0o777)
        (folder / "others" / "artifacts").chmod(0o777)
        (folder / "others" / "artifacts" / ".otel-taskhistory.json").chmod(0o644)
        (folder / "others" / "history.db").chmod(0o644)  # to be read, not to be written
        before = listing(folder)
        for directory in (
            *(folder / "history", folder / "history" / "new", folder / "new", folder / "others"),
        ):
            said = run("as_nobody", directory, environ={"PYTHONDONTWRITEBYTECODE": "1"})
            assert said.startswith("TaskHistoryError: cannot use the history at ")
            assert "OTEL_TASKHISTORY_DIRECTORY" in said
            assert listing(folder) == before


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("db_not_sqlite.db", ["is not a SQLite database"]),
        ("db_header_only.db", ["cannot use the history"]),
        ("db_corrupt_page2.db", ["another application"]),
        ("db_bad_text.db", ["another application"]),
        ("db_fts_out_of_sync.db", ["another application"]),
        ("db_newer_schema.db", ["another application"]),
        ("db_rows_in_wal.db", ["another application"]),
    ],
)
def test_a_database_that_is_not_ours(tmp_path: Path, name: str, words: list[str]) -> None:
    """Not a byte of it changes, and nothing is made beside it."""
    for source in DATABASES.glob(f"{name}*"):
        shutil.copyfile(source, tmp_path / source.name.replace(name, "history.db"))
    with refused(tmp_path, *words, "OTEL_TASKHISTORY_DIRECTORY"):
        TaskHistoryExporter(tmp_path)


def test_a_file_of_zero_bytes_is_a_new_history(tmp_path: Path) -> None:
    """And private from then on."""
    shutil.copyfile(DATABASES / "db_zero_byte.db", tmp_path / "history.db")
    (tmp_path / "history.db").chmod(0o644)
    made(tmp_path)
    check(tmp_path)
    assert one(tmp_path, "SELECT goal FROM tasks") == "a goal"
    assert stat.S_IMODE((tmp_path / "history.db").stat().st_mode) == 0o600


def test_a_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    """Writers refuse it."""
    made(tmp_path / "history")
    newer = SCHEMA_VERSION + 1
    with closing(sqlite3.connect(tmp_path / "history" / "history.db")) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    words = (f"version {newer}", f"version {SCHEMA_VERSION}", "upgrade")
    with refused(tmp_path, *words, kind=SchemaTooNew):
        TaskHistoryExporter(tmp_path / "history")


def test_the_history_of_another_owner(tmp_path: Path) -> None:
    """Both owners are named, and the setting to change."""
    made(tmp_path / "history", owner="runtime-api")
    words = ("'runtime-api'", "'host-agent'", "OTEL_TASKHISTORY_OWNER")
    with refused(tmp_path, *words, kind=HistoryRefused):
        TaskHistoryExporter(tmp_path / "history")


@pytest.mark.parametrize("new", [True, False])
def test_the_artifact_folder_of_another_history(tmp_path: Path, new: bool) -> None:
    """Also by a history that is still to be made."""
    made(tmp_path / "one")
    if not new:
        made(tmp_path / "two")
    with refused(tmp_path, "holds the artifacts of history", "OTEL_TASKHISTORY_ARTIFACTS"):
        TaskHistoryExporter(tmp_path / "two", artifacts=tmp_path / "one" / "artifacts")


def test_an_artifact_stamp_that_cannot_be_understood(tmp_path: Path) -> None:
    """Whose folder it is must be certain."""
    made(tmp_path)
    (tmp_path / "artifacts" / ".otel-taskhistory.json").write_text("{")
    with refused(tmp_path, "does not say whose artifact folder this is"):
        TaskHistoryExporter(tmp_path)


def test_both_stamps_say_who_wrote_first(tmp_path: Path) -> None:
    """Owner, history id, service; the last one when the first span tells it."""
    exporter = TaskHistoryExporter(tmp_path, owner="desk")
    stamp_file = tmp_path / "artifacts" / ".otel-taskhistory.json"
    assert json.loads(stamp_file.read_bytes())["service_name"] is None
    provider = TracerProvider(
        resource=Resource.create({"service.name": "a-service"}), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("x").start_span("s").end()
    beside = json.loads(stamp_file.read_bytes())
    meta = dict(rows(tmp_path, "SELECT key, value FROM _meta"))
    for key in ("owner", "history_id", "service_name"):
        assert beside[key] == meta[key] == getattr(exporter.stamp, key)
    assert (meta["owner"], meta["service_name"]) == ("desk", "a-service")
    assert stat.S_IMODE(stamp_file.stat().st_mode) == 0o600
    provider.shutdown()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_TASKHISTORY_MAX_AGE", "banana"),
        ("OTEL_TASKHISTORY_DURABILITY", "half"),
        ("OTEL_TASKHISTORY_BUSY_TIMEOUT", "-1"),
        ("OTEL_TASKHISTORY_OWNER", "../up"),
    ],
)
def test_a_bad_environment_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """The variable and its value are named; no provider and no history is made."""
    monkeypatch.setenv(variable, value)
    with refused(tmp_path, variable, value, kind=SettingsError):
        configure(tmp_path / "history")
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_modes_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Folders 0700, files 0600: database, WAL, index, stamp, pictures."""
    before = os.umask(umask)
    try:
        exporter = TaskHistoryExporter(tmp_path / "a" / "history")
        provider = new_provider(shutdown_on_exit=False)
        tasks = configure(tracer_provider=provider, directory=tmp_path / "a" / "history")
        with tasks.task("a goal") as task, task.step("s") as step:
            step.screenshot(SOUND_PNG)
    finally:
        os.umask(before)
    found = listing(tmp_path / "a")
    names = {path.rpartition("/")[2] for path in found}
    assert {"history.db", "history.db-wal", "history.db-shm", ".otel-taskhistory.json"} <= names
    for path, (mode, *_) in found.items():
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path
    provider.shutdown()
    exporter.shutdown()


def test_twenty_processes_open_one_new_history_at_once(tmp_path: Path) -> None:
    """All of them succeed, in the same history."""
    directory = tmp_path / "history"
    openers = [Program("opener", directory, number) for number in range(20)]
    try:
        for opener in openers:
            opener.until("ready")
        for opener in openers:
            opener.go_on()
        said = {opener.end() for opener in openers}
    finally:
        for opener in openers:
            opener.__exit__(None, None, None)
    assert len(said) == 1
    check(directory)
    goals = {goal for (goal,) in rows(directory, "SELECT goal FROM tasks")}
    assert goals == {f"goal {number}" for number in range(20)}
    assert one(directory, "SELECT count(*) FROM steps WHERE status = 'succeeded'") == 20


def test_a_look_while_the_history_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header from before the transaction that makes it, the rest from after it: looked again."""
    made(tmp_path)
    read = stamp_module.read_header
    looks: list[Path] = []

    def read_first_from_before(database: Path) -> Any:
        looks.append(database)
        return Header(0, 0) if len(looks) == 1 else read(database)

    monkeypatch.setattr(stamp_module, "read_header", read_first_from_before)
    stamp = stamp_module.read_database_stamp(tmp_path / "history.db")
    assert stamp is not None
    assert stamp.owner == "host-agent"


def test_an_sqlite_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before anything is made."""
    monkeypatch.setattr(database_module.sqlite3, "sqlite_version_info", (3, 34, 0))
    monkeypatch.setattr(database_module.sqlite3, "sqlite_version", "3.34.0")
    with refused(tmp_path, "3.34.0", "3.37.0"):
        TaskHistoryExporter(tmp_path / "history")


def test_a_place_that_turns_out_to_be_impossible_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that were made for it go again."""

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(database_module, "_make_file", full)
    with pytest.raises(TaskHistoryError, match="No space left"):
        TaskHistoryExporter(tmp_path / "a" / "b" / "history")
    assert list(tmp_path.iterdir()) == []


def test_the_application_id_of_a_history(tmp_path: Path) -> None:
    """By which `file` and we recognise it."""
    made(tmp_path)
    assert one(tmp_path, "PRAGMA application_id") == APPLICATION_ID
    assert one(tmp_path, "PRAGMA auto_vacuum") == 2
