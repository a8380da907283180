# SPDX-License-Identifier: Apache-2.0
"""A damaged history of ours makes way for a new one; nothing of it is lost, nothing else moves."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from otel_taskhistory.errors import HistoryRefused, TaskHistoryError
from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.store.aside import histories_aside, make_way, set_aside
from otel_taskhistory.store.damage import is_ours, looks_damaged
from otel_taskhistory.store.database import PAGE_SIZE
from otel_taskhistory.store.header import immutable
from otel_taskhistory.store.reading import Reading
from tests.recorded import PICTURES, one_task, recording

DATABASES = Path(__file__).parents[1] / "data" / "databases"
ROOT = Path(__file__).parents[2]

HOLDS = """
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], uri=True, isolation_level=None)
c.execute("BEGIN")
c.execute("SELECT 1 FROM sqlite_schema").fetchone()
print("open", flush=True)
input()
"""


def history(folder: Path, goal: str = "a goal", **places: Path) -> Settings:
    """A closed history with one task and one picture."""
    with recording(folder) as tasks:
        one_task(tasks, goal)
        with tasks.task("look") as task, task.step("see") as step:
            step.screenshot((PICTURES / "png_ok.png").read_bytes())
    return Settings.resolve(directory=folder, **places)


def damage_page(settings: Settings, number: int | None = None) -> None:
    """Overwrite a page: by default the root of the table of tasks."""
    with closing(immutable(settings.database)) as connection:
        if number is None:
            (number,) = connection.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = 'tasks'"
            ).fetchone()
    with settings.database.open("rb+") as file:
        file.seek((number - 1) * PAGE_SIZE + (100 if number == 1 else 0))
        file.write(b"\xff" * (PAGE_SIZE - 196))


def damage_header(settings: Settings) -> None:
    """Overwrite the first bytes of the file."""
    with settings.database.open("rb+") as file:
        file.write(b"\0" * 100)


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder by relative path, but locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


@pytest.mark.parametrize("damage", [damage_page, damage_header])
def test_a_damaged_history_moves_whole(tmp_path: Path, damage: Callable[[Settings], None]) -> None:
    """Database and artifacts lie unchanged in corrupt-TIME, and nothing is left in their place."""
    settings = history(tmp_path)
    damage(settings)
    before = files_of(tmp_path)
    home = set_aside(settings)
    assert home is not None
    assert home.parent == tmp_path
    assert home.name.startswith("corrupt-2")
    after = files_of(home)
    note = json.loads(after.pop("set-aside.json"))
    assert after == before
    assert note["why"]
    assert not settings.database.exists()
    assert not settings.artifacts.exists()
    assert home.stat().st_mode & 0o777 == 0o700


def test_what_was_set_aside_opens_as_a_history(tmp_path: Path) -> None:
    """The part that is not damaged can be read with --directory, and its pictures are found."""
    settings = history(tmp_path)
    with closing(sqlite3.Connection(str(settings.database))) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'tasks_agent'"
        ).fetchone()
    damage_page(settings, page)
    home = set_aside(settings)
    assert home is not None
    moved = Settings.resolve(directory=home)
    with closing(Reading(moved.database)) as readable:
        goals = readable.read(lambda c: c.execute("SELECT goal FROM tasks").fetchall())
        (path,) = readable.read(lambda c: c.execute("SELECT path FROM screenshots").fetchone())
    assert [goal for (goal,) in goals] == ["a goal", "look"]
    assert (moved.artifacts / path).read_bytes() == (PICTURES / "png_ok.png").read_bytes()


def test_rows_that_are_only_in_the_log_move_along(tmp_path: Path) -> None:
    """The write-ahead log of a killed writer stays beside its database, byte for byte."""
    settings = history(tmp_path)
    program = (
        "import sqlite3, os, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute(\"INSERT INTO _meta VALUES ('late', 'row')\"); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(settings.database)], check=False)
    wal = Path(f"{settings.database}-wal")
    content = wal.read_bytes()
    assert content
    damage_page(settings)
    home = set_aside(settings)
    assert home is not None
    assert (home / "history.db-wal").read_bytes() == content
    assert not wal.exists()


def test_a_whole_history_stays(tmp_path: Path) -> None:
    """Without damage nothing moves, whoever asks."""
    settings = history(tmp_path)
    before = files_of(tmp_path)
    assert set_aside(settings) is None
    assert make_way(settings) is None
    assert files_of(tmp_path) == before


def test_a_history_that_only_looks_damaged_without_its_log_stays(tmp_path: Path) -> None:
    """A writer that was killed while it folded its log in has left no damage: the log has it."""
    settings = history(tmp_path)
    program = (
        "import sqlite3, os, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('PRAGMA wal_autocheckpoint = 0'); c.execute('VACUUM'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(settings.database)], check=False)
    with settings.database.open("rb+") as file:  # as if the pages had not been copied yet
        file.truncate(3 * 4096)
    assert looks_damaged(settings)
    assert make_way(settings) is None
    assert settings.database.exists()


@pytest.mark.parametrize("name", sorted(path.name for path in DATABASES.glob("*.db")))
def test_a_database_that_nothing_proves_to_be_ours_stays(tmp_path: Path, name: str) -> None:
    """Foreign, unknown and empty files are left alone, damaged or not, and no file appears."""
    for path in DATABASES.glob(f"{name}*"):
        shutil.copy(path, tmp_path / path.name.replace(name, "history.db"))
    settings = Settings.resolve(directory=tmp_path)
    before = files_of(tmp_path)
    assert make_way(settings) is None
    assert set_aside(settings) is None
    assert files_of(tmp_path) == before


def test_a_destroyed_header_is_ours_by_the_stamp_of_the_artifacts(tmp_path: Path) -> None:
    """An artifact folder that names this file proves it; another owner is refused."""
    settings = history(tmp_path)
    damage_header(settings)
    assert is_ours(settings)
    with pytest.raises(HistoryRefused, match="host-agent"):
        set_aside(Settings.resolve(directory=tmp_path, owner="another"))
    stamp = settings.artifacts / ".otel-taskhistory.json"
    stamp.write_text(stamp.read_text().replace("history.db", "other.db"))
    assert not is_ours(settings)
    assert set_aside(settings) is None


@pytest.mark.parametrize("content", [b"the notes of somebody else\n" * 200, b"\0" * 90 + b"x"])
def test_another_file_in_the_place_of_ours_is_not_ours(tmp_path: Path, content: bytes) -> None:
    """The artifacts name the place, not what somebody has put there."""
    settings = history(tmp_path)
    settings.database.write_bytes(content)
    assert not is_ours(settings)
    assert make_way(settings) is None
    assert set_aside(settings) is None
    assert settings.database.read_bytes() == content


def test_a_readable_database_of_another_application_is_never_ours(tmp_path: Path) -> None:
    """Not even in the place that our artifacts name."""
    settings = history(tmp_path)
    settings.database.unlink()
    with closing(sqlite3.Connection(str(settings.database))) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert not is_ours(settings)
    assert set_aside(settings) is None


def test_a_damaged_history_of_another_owner_is_refused(tmp_path: Path) -> None:
    """Another component's evidence is not ours to move."""
    settings = history(tmp_path)
    damage_page(settings)
    with pytest.raises(HistoryRefused, match="host-agent"):
        set_aside(Settings.resolve(directory=tmp_path, owner="another"))
    assert settings.database.exists()


def test_a_newer_history_is_never_set_aside(tmp_path: Path) -> None:
    """What a newer version has written may only look damaged to this one."""
    settings = history(tmp_path)
    with closing(sqlite3.Connection(str(settings.database))) as connection:
        connection.execute("PRAGMA user_version = 9999")
    damage_page(settings)
    assert make_way(settings) is None
    assert set_aside(settings) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="who has it open: Linux only")
@pytest.mark.parametrize(("mode", "moves"), [("rw", False), ("ro", True)])
def test_a_history_that_another_process_writes_stays(
    tmp_path: Path, mode: str, moves: bool
) -> None:
    """A writer that has no trouble with it is named and left alone; a reader is in nobody's way."""
    settings = history(tmp_path)
    uri = f"{settings.database.as_uri()}?mode={mode}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        damage_page(settings)
        if moves:
            assert set_aside(settings) is not None
        else:
            with pytest.raises(TaskHistoryError, match=rf"pid {other.pid}"):
                set_aside(settings)
            assert settings.database.exists()
        other.communicate(b"\n")


def test_of_two_that_start_at_once_one_moves(tmp_path: Path) -> None:
    """Both look, one finds the damage, the other finds that nothing is left to do."""
    settings = history(tmp_path)
    damage_page(settings)
    found: list[Path | None] = []
    threads = [threading.Thread(target=lambda: found.append(set_aside(settings))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert sum(home is not None for home in found) == 1
    assert len(list(tmp_path.glob("corrupt-*"))) == 1


def _again(settings: Settings, folder: Path) -> Path:
    history(folder, "another goal")
    damage_page(settings)
    home = set_aside(settings)
    assert home is not None
    return home


def _make_older(home: Path, age: timedelta) -> None:
    note = home / "set-aside.json"
    said = json.loads(note.read_text())
    said["at"] = (datetime.now(UTC) - age).isoformat()
    note.write_text(json.dumps(said))


def test_the_next_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    """One is kept, the latest; a folder of the user's own that has such a name is not ours."""
    settings = history(tmp_path)
    (tmp_path / "corrupt-by-hand").mkdir()
    damage_page(settings)
    first = set_aside(settings)
    assert first is not None
    _make_older(first, timedelta(days=2))
    second = _again(settings, tmp_path)
    assert sorted(tmp_path.glob("corrupt-*")) == sorted([second, tmp_path / "corrupt-by-hand"])
    assert (second / "history.db").exists()


def test_damage_within_a_day_is_kept_together(tmp_path: Path) -> None:
    """A failing disk that damages the new history at once does not cost the old one."""
    settings = history(tmp_path)
    damage_page(settings)
    first = set_aside(settings)
    assert first is not None
    second = _again(settings, tmp_path)
    third = _again(settings, tmp_path)
    assert second.parent == first
    assert third.parent == first
    assert list(tmp_path.glob("corrupt-*")) == [first]
    assert [found.directory for found in histories_aside(settings.database)][-1] == first
    assert len(histories_aside(settings.database)) == 3


def test_together_they_stay_below_the_limit_of_the_history(tmp_path: Path) -> None:
    """What is set aside takes at most as much again as the history may."""
    settings = history(tmp_path)
    damage_page(settings)
    first = set_aside(settings)
    assert first is not None
    small = Settings.resolve(directory=tmp_path, retention=Retention(max_bytes=1000))
    second = _again(small, tmp_path)
    assert list(tmp_path.glob("corrupt-*")) == [second]


@pytest.mark.parametrize("done", range(5))
def test_a_move_that_was_interrupted_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """After a crash at any rename the next start finds the rest, before it makes anything new."""
    settings = history(tmp_path)
    Path(f"{settings.database}-journal").write_bytes(b"")  # one more file to move
    damage_header(settings)
    before = files_of(tmp_path)
    calls = []

    def crashing(real: Callable[..., None]) -> Callable[..., None]:
        def rename(*paths: object) -> None:
            if len(calls) == done:
                raise KeyboardInterrupt
            calls.append(paths)
            real(*paths)

        return rename

    # The note, the database, the journal, the artifacts, the note again.
    monkeypatch.setattr(os, "rename", crashing(os.rename))
    monkeypatch.setattr(os, "replace", crashing(os.replace))
    with pytest.raises(KeyboardInterrupt):
        set_aside(settings)
    monkeypatch.undo()
    home = make_way(settings)
    assert home is not None
    after = files_of(home)
    assert "unfinished.json" not in after
    after.pop("set-aside.json")
    assert after == before
    assert not settings.database.exists()
    assert make_way(settings) is None


def test_an_interrupted_move_leaves_what_was_put_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that somebody has restored since is not taken for the damaged history."""
    settings = history(tmp_path)
    good = settings.database.read_bytes()
    damage_page(settings)

    def crash(*paths: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", crash)
    with pytest.raises(KeyboardInterrupt):
        set_aside(settings)
    monkeypatch.undo()
    restored = tmp_path / "restored.db"
    restored.write_bytes(good)
    restored.replace(settings.database)
    assert make_way(settings) is None
    assert settings.database.read_bytes() == good
    assert list(tmp_path.glob("corrupt-*")) == []


def test_artifacts_on_another_file_system_stay_there_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history that was set aside still finds them, and the new one has a folder of its own."""
    settings = history(tmp_path / "history")
    elsewhere = tmp_path / "elsewhere"
    settings.artifacts.rename(elsewhere)
    settings.artifacts.symlink_to(elsewhere)
    damage_page(settings)
    home = set_aside(settings)
    assert home is not None
    (picture,) = (home / "artifacts").rglob("*.png")
    assert picture.read_bytes() == (PICTURES / "png_ok.png").read_bytes()
    assert list(elsewhere.iterdir()) == []
    assert (home / "artifacts").resolve() == tmp_path / f"elsewhere.{home.name}"


def test_a_database_elsewhere_is_set_aside_beside_itself(tmp_path: Path) -> None:
    """It gets the name that a history's database has, and the stamp of its artifacts fits."""
    settings = Settings.resolve(directory=tmp_path / "h", database=tmp_path / "d" / "mine.sqlite")
    made = history(tmp_path / "h")
    (tmp_path / "d").mkdir()
    made.database.rename(settings.database)
    damage_page(settings)
    home = set_aside(settings)
    assert home is not None
    assert home.parent == tmp_path / "d"
    assert (home / "history.db").exists()
    stamp = json.loads((home / "artifacts" / ".otel-taskhistory.json").read_text())
    assert stamp["database"] == "../history.db"
