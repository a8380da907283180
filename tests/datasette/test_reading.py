# SPDX-License-Identifier: Apache-2.0
"""Datasette over a history that is written, closed, killed, replaced, pruned, or gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_taskhistory import TaskHistory
from otel_taskhistory.store.database import PAGE_SIZE
from tests.recorded import PICTURES, one_task, recording

from .conftest import Open
from .recorded_here import PUBLIC, Recorded, sha256_of

ROOT = Path(__file__).parents[2]

KILLED = """
import os, sys
from pathlib import Path
from tests.recorded import one_task, recording
with recording(Path(sys.argv[1])) as tasks:
    one_task(tasks, "written before the kill")
    os._exit(9)
"""
PAGES = ("/-/taskhistory/", *(f"/history/{table}" for table in PUBLIC), "/history", "/")


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def kill_a_writer(directory: Path) -> None:
    """Leave the history as an agent does that was killed."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(directory)], cwd=ROOT, check=False)
    assert done.returncode == 9
    assert (directory / "history.db-wal").stat().st_size > 0


async def goals(datasette: Any) -> list[str]:
    """What Datasette's own JSON says, and that our page says the same."""
    answer = await datasette.client.get("/history/tasks.json?_shape=array&_sort=id")
    found = [row["goal"] for row in answer.json()]
    page = (await datasette.client.get("/-/taskhistory/")).text
    assert all(goal in page for goal in found)
    return found


async def test_a_closed_history_is_left_as_it_is(recorded: Recorded, open_datasette: Open) -> None:
    """No byte of it changes, no -wal and no -shm appear, from the start to the end."""
    before = files_of(recorded.directory)
    datasette = await open_datasette(recorded.database)
    for path in PAGES:
        response = await datasette.client.get(path, follow_redirects=True)
        assert response.status_code == 200
        assert files_of(recorded.directory) == before, path
    datasette.databases["history"].close()
    assert files_of(recorded.directory) == before


async def test_nothing_is_opened_before_we_are_asked(recorded: Recorded) -> None:
    """Not by the constructor, in which Datasette 1.0 may already look at its databases."""
    from datasette.app import Datasette

    datasette = Datasette([str(recorded.database)])
    assert type(datasette.databases["history"]).__name__ == "HistoryDatabase"
    assert set(files_of(recorded.directory)) >= {"history.db"}
    assert not (recorded.directory / "history.db-wal").exists()
    datasette.databases["history"].close()


@pytest.mark.parametrize("as_immutable", [False, True])
async def test_what_is_written_meanwhile_is_seen(
    directory: Path, open_datasette: Open, as_immutable: bool
) -> None:
    """At the next request, also when somebody has called the file immutable."""
    database = directory / "history.db"
    with recording(directory) as tasks:
        one_task(tasks, "first")
        if as_immutable:
            datasette = await open_datasette(immutables=[str(database)])
        else:
            datasette = await open_datasette(database)
        assert await goals(datasette) == ["first"]
        one_task(tasks, "second")
        assert await goals(datasette) == ["first", "second"]
    assert await goals(datasette) == ["first", "second"]
    with recording(directory) as tasks:
        one_task(tasks, "third")
        assert await goals(datasette) == ["first", "second", "third"]


async def test_an_open_datasette_holds_no_snapshot(directory: Path, open_datasette: Open) -> None:
    """Between two requests a writer can fold its whole log into the database."""
    with recording(directory) as tasks:
        one_task(tasks)
        datasette = await open_datasette(directory / "history.db")
        for path in PAGES:
            await datasette.client.get(path, follow_redirects=True)
        with closing(sqlite3.Connection(str(directory / "history.db"))) as other:
            busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0


async def test_what_a_killed_writer_has_left_is_seen(directory: Path, open_datasette: Open) -> None:
    """Its rows are in the log only."""
    await asyncio.to_thread(kill_a_writer, directory)
    datasette = await open_datasette(directory / "history.db")
    assert await goals(datasette) == ["written before the kill"]


async def test_a_copy_made_by_hand_is_read_from_one_private_copy(
    directory: Path, tmp_path: Path, open_datasette: Open
) -> None:
    """A log without its index: nothing is made beside it, and there are not as many as threads."""
    await asyncio.to_thread(kill_a_writer, directory)
    copied = tmp_path / "copied"
    copied.mkdir()
    for name in ("history.db", "history.db-wal"):
        shutil.copy(directory / name, copied)
    before = files_of(copied)
    datasette = await open_datasette(copied / "history.db")
    assert await goals(datasette) == ["written before the kill"]
    assert files_of(copied) == before
    own = datasette.databases["history"]
    assert own._pool._limit == 1
    assert own.served._pool._limit == 1


async def test_a_history_in_a_folder_where_one_may_not_write(
    recorded: Recorded, open_datasette: Open
) -> None:
    """It is read all the same, and left as it is."""
    before = files_of(recorded.directory)
    folders = [path for path in recorded.directory.rglob("*") if path.is_dir()]
    for folder in (recorded.directory, *folders):
        os.chmod(folder, 0o500)
    try:
        datasette = await open_datasette(recorded.database)
        for path in PAGES:
            response = await datasette.client.get(path, follow_redirects=True)
            assert response.status_code == 200
        address = f"/-/taskhistory/thumbnails/{sha256_of('png_ok.png')}"
        assert (await datasette.client.get(address)).status_code == 200
        assert files_of(recorded.directory) == before
    finally:
        for folder in (recorded.directory, *folders):
            os.chmod(folder, 0o700)


# Datasette 0.65 makes two coroutines and, when the first raises, never awaits the second.
@pytest.mark.filterwarnings("ignore:coroutine 'Database.table_exists'")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_history_that_is_gone_is_said(
    recorded: Recorded, tmp_path: Path, open_datasette: Open
) -> None:
    """On our pages and Datasette's; other databases go on; when it is back, so are its pages."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE notes (t TEXT)")
        connection.execute("INSERT INTO notes VALUES ('still here')")
        connection.commit()
    datasette = await open_datasette(recorded.database, other)
    assert (await datasette.client.get("/-/taskhistory/")).status_code == 200
    assert (await datasette.client.get("/history/tasks")).status_code == 200
    away = recorded.directory.rename(tmp_path / "away")
    for path in ("/-/taskhistory/", f"/-/taskhistory/tasks/{recorded.task_id}", "/history/tasks"):
        response = await datasette.client.get(path)
        assert response.status_code == 404, path
        assert "There is no history at" in response.text
        assert "OTEL_TASKHISTORY_DIRECTORY" in response.text
    answer = await datasette.client.get(f"/-/taskhistory/tasks/{recorded.task_id}/axis.json")
    assert "no history" in answer.json()["error"].lower()
    picture = await datasette.client.get(f"/-/taskhistory/artifacts/{sha256_of('png_ok.png')}")
    assert picture.status_code == 404
    page = await datasette.client.get("/other/notes")
    assert page.status_code == 200
    assert "still here" in page.text
    away.rename(recorded.directory)
    assert (await datasette.client.get("/-/taskhistory/")).status_code == 200
    assert (await datasette.client.get("/history/tasks")).status_code == 200


async def test_a_history_that_was_replaced_is_the_new_one(
    recorded: Recorded, tmp_path: Path, open_datasette: Open
) -> None:
    """From the next request on, without a trace of the old one."""
    datasette = await open_datasette(recorded.database)
    assert recorded.failed_id in (await datasette.client.get("/-/taskhistory/")).text
    with recording(tmp_path / "new") as tasks:
        one_task(tasks, "of the new one")
    shutil.rmtree(recorded.directory)
    (tmp_path / "new").rename(recorded.directory)
    assert await goals(datasette) == ["of the new one"]
    assert recorded.failed_id not in (await datasette.client.get("/history/tasks")).text


async def test_what_was_removed_is_gone(recorded: Recorded, open_datasette: Open) -> None:
    """Its page, its rows and its pictures, while the rest goes on."""
    datasette = await open_datasette(recorded.database)
    task = f"/-/taskhistory/tasks/{recorded.task_id}"
    picture = f"/-/taskhistory/artifacts/{sha256_of('png_ok.png')}"
    small = f"/-/taskhistory/thumbnails/{sha256_of('png_ok.png')}?w=160"
    for path in (task, picture):
        assert (await datasette.client.get(path)).status_code == 200
    with TaskHistory(recorded.directory) as history:
        history.remove(recorded.task_id)
    for path in (task, picture, small):
        assert (await datasette.client.get(path)).status_code == 404
    assert await goals(datasette) == ["fails"]


async def test_a_damaged_history_is_said_without_details(
    recorded: Recorded, open_datasette: Open, caplog: Any
) -> None:
    """What SQLite says of it goes into the log."""
    datasette = await open_datasette(recorded.database)
    whole = recorded.database.read_bytes()
    recorded.database.write_bytes(whole[:PAGE_SIZE] + b"\xa5" * (len(whole) - PAGE_SIZE))
    for path in ("/-/taskhistory/", "/history/tasks", "/-/taskhistory/plots"):
        response = await datasette.client.get(path)
        assert response.status_code == 503, path
        assert "malformed" not in response.text
        assert "cannot be read now" in response.text
    assert "is damaged" in caplog.text
    recorded.database.write_bytes(whole)
    assert (await datasette.client.get("/-/taskhistory/")).status_code == 200


async def test_what_is_no_history_is_left_to_datasette(
    tmp_path: Path, open_datasette: Open
) -> None:
    """Another application's database, an empty file."""
    data = PICTURES.parent / "databases"
    for name in ("db_bad_text.db", "db_zero_byte.db"):
        shutil.copy(data / name, tmp_path / name)
    datasette = await open_datasette(tmp_path / "db_bad_text.db", tmp_path / "db_zero_byte.db")
    for name in ("db_bad_text", "db_zero_byte"):
        assert type(datasette.databases[name]).__name__ == "Database"
        assert (await datasette.client.get(f"/{name}")).status_code == 200
