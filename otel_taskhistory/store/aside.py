# SPDX-License-Identifier: Apache-2.0
"""A damaged history of ours makes way for a new one, and nothing of it is lost.

Its database, what SQLite has put beside that, and its artifacts move into ``corrupt-TIME`` beside
the database, which is again the folder of a history. Before that

* it must be *ours*: by the application id in its header or, where the header is destroyed, by the
  stamp of the artifact folder, which names this very file;
* it must be *damaged*, seen with the write-ahead log and under a lock that lets one process at a
  time look, open or move (`opening`): a database that is read while another process folds its log
  in may look damaged, and one that another process has just put in its place is whole;
* no other process may have it open for writing (where the system tells: Linux).

Moving is renaming. A note in the new folder says what goes there; when a crash interrupts the
move, the next opening finds the note and finishes, before it makes anything new.

One ``corrupt-TIME`` is kept, the latest: an older one goes when the new one is complete. But damage
seldom comes alone. What is damaged within a day of the one that is kept joins that one's folder
instead, as long as all together stay below ``max_bytes``.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from otel_taskhistory.errors import HistoryRefused, TaskHistoryError
from otel_taskhistory.settings import ARTIFACTS_NAME, DATABASE_NAME, Settings
from otel_taskhistory.store.damage import (
    find_damage,
    looks_damaged,
    named_by_artifacts,
    read_stamp,
)
from otel_taskhistory.store.files import SIDECARS, make_file, sync_folder, tree_size, write_file
from otel_taskhistory.store.header import whole
from otel_taskhistory.store.holders import holders
from otel_taskhistory.store.stamp import ARTIFACT_STAMP, read_artifact_stamp

_logger = logging.getLogger("otel_taskhistory")

PREFIX: Final = "corrupt-"
NOTE: Final = "set-aside.json"
"""In a history that was set aside: where it was, when it was moved and why."""
UNFINISHED: Final = "unfinished.json"
"""The same note while the move goes on."""

TOGETHER: Final = timedelta(days=1)
"""What is damaged so soon after the history that is kept does not take its place."""

_LOCK_SECONDS: Final = 30.0
"""A process that opens a history waits so long for others that open it, or set it aside: before
that all of it is read (2 GiB in about a second from memory, from a disk in as long as it takes)."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """A damaged history that was set aside."""

    directory: Path
    """To be opened as a history (``--directory``)."""
    at: datetime
    why: str
    finished: bool


@contextmanager
def opening(database: Path, seconds: float = _LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of those who open a history for writing, or set it aside; not re-entrant.

    It is held from before the first look until the connection has its place in the write-ahead
    log. Between those two, a connection on a file that is moved away would pair it with the log
    of its successor.

    Args:
        seconds: how long to wait for it.

    Raises:
        TaskHistoryError: another process has held it for that long.
        OSError: its file cannot be made.
    """
    path = database.with_name(f"{database.name}.lock")
    deadline = time.monotonic() + seconds
    while (lock := _locked(path, deadline)) is None:
        if time.monotonic() > deadline:
            raise TaskHistoryError(
                f"{database} could not be opened: another process has held {path} locked for"
                f" {seconds:g} s. End that process, or try again"
            )
    with closing(lock):
        try:
            yield
        finally:
            # While it is locked: who has waited for this file finds that it is not there any more,
            # and makes a new one. On Windows it stays, since it is open.
            with suppress(OSError):
                path.unlink()


def _locked(path: Path, deadline: float) -> sqlite3.Connection | None:
    """A connection that holds the lock file locked; None when it could not be had this time."""
    with suppress(FileExistsError):
        make_file(path)
    before = _inode(path)  # before it is opened: what is opened is this file, or a newer one
    # SQLite's own lock on an empty file: it is there on every system, waits, dies with its process,
    # and unlike flock() is not inherited by forked children.
    lock = sqlite3.Connection(
        str(path), timeout=max(deadline - time.monotonic(), 0), isolation_level=None
    )
    try:
        lock.execute("BEGIN EXCLUSIVE")
        if before is not None and before == _inode(path):
            return lock
    except sqlite3.OperationalError:
        pass  # held by another, or removed by the one who has held it
    except BaseException:
        lock.close()
        raise
    lock.close()
    return None


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino)


def make_way(settings: Settings) -> Path | None:
    """Before a history is opened for writing: set it aside if it is ours and damaged.

    Usually one look at the stamp, which changes nothing; see `set_aside` for the rest.
    """
    if _unfinished(settings.database) or looks_damaged(settings):
        return set_aside(settings)
    return None


def set_aside(settings: Settings) -> Path | None:
    """Move a damaged history of ours away; the caller has no connection to it open.

    Returns:
        The folder it is in now, None when on a second look there is nothing to set aside.

    Raises:
        HistoryRefused: it is damaged, but another owner's.
        TaskHistoryError: it is damaged, but in use by another process, or cannot be moved.
    """
    database = settings.database
    try:
        with opening(database):
            home = _finish_interrupted(settings)
            if home is None:
                why = find_damage(settings)
                if why is None:
                    return None
                _check_unused(database)
                home = _begin(settings, why)
                _move(settings, home)
            _drop_older(database, home)
    except OSError as error:
        raise TaskHistoryError(
            f"the damaged history at {database} could not be set aside ({error}): move its folder"
            " away while no agent runs, or point OTEL_TASKHISTORY_DIRECTORY (or directory=)"
            " somewhere else"
        ) from error
    _logger.error(
        "otel-taskhistory: the history at %s was damaged (%s) and is now at %s; a new one begins."
        " Copy it away if you need it: the next that is damaged takes its place",
        database,
        _read_note(home / NOTE).get("why", "unknown"),
        home,
    )
    return home


def histories_aside(database: Path) -> list[SetAside]:
    """What was set aside beside a database, the latest first."""
    found = []
    for note in _notes(database):
        said = _read_note(note)
        with suppress(KeyError, ValueError):
            at = datetime.fromisoformat(said["at"])
            found.append(SetAside(note.parent, at, str(said["why"]), note.name == NOTE))
    return sorted(found, key=lambda aside: aside.at, reverse=True)


# --- moving -------------------------------------------------------------------------------------


def _check_unused(database: Path) -> None:
    """Refuse while another process writes, which then has no trouble with it yet."""
    using = {str(holder) for holder in holders(database) if holder.writes is not False}
    if using:
        raise TaskHistoryError(
            f"the history at {database} is damaged, and cannot be set aside while other processes"
            f" have it open: {', '.join(sorted(using))}. End them and start again"
        )


def _begin(settings: Settings, why: str) -> Path:
    """Make the folder and the note that says what is to go there."""
    database = settings.database
    now = datetime.now(UTC)
    found = os.stat(database)
    parent = _place(settings, now)
    name = f"{PREFIX}{now:%Y%m%dT%H%M%SZ}"
    home, number = parent / name, 1
    while True:
        try:
            home.mkdir(mode=0o700)
            break
        except FileExistsError:
            number += 1
            home = parent / f"{name}-{number}"
    home.chmod(0o700)
    note = {
        "at": now.isoformat().replace("+00:00", "Z"),
        "why": why,
        "owner": settings.owner,
        "database": str(database),
        "artifacts": str(settings.artifacts),
        "device": found.st_dev,
        "inode": found.st_ino,
    }
    try:
        write_file(home / UNFINISHED, json.dumps(note, indent=1).encode() + b"\n")
    except BaseException:
        home.rmdir()
        raise
    sync_folder(parent)
    return home


def _beside(database: Path) -> Path:
    return Path(os.path.realpath(database)).parent  # SQLite goes by what a link points to


def _place(settings: Settings, now: datetime) -> Path:
    """Where the new folder goes: beside the database, or into the one of a day ago."""
    database = settings.database
    beside = _beside(database)
    outer = [aside for aside in histories_aside(database) if aside.directory.parent == beside]
    if not outer or not outer[0].finished or not timedelta() <= now - outer[0].at < TOGETHER:
        return beside
    limit = settings.retention.max_bytes
    files = [f"{os.path.realpath(database)}{suffix}" for suffix in ("", *SIDECARS)]
    size = sum(os.stat(file).st_size for file in files if os.path.exists(file))
    size += tree_size(outer[0].directory) + tree_size(settings.artifacts)
    return beside if limit is not None and size > limit else outer[0].directory


def _move(settings: Settings, home: Path) -> None:
    """Rename everything into `home`. May be called again after an interruption."""
    real = os.path.realpath(settings.database)
    # The database first: from then on nobody takes what is left for a history.
    for suffix in ("", *SIDECARS):
        target = home / f"{DATABASE_NAME}{suffix}"
        if os.path.exists(real + suffix) and not target.exists():
            os.rename(real + suffix, target)
    sync_folder(home)
    sync_folder(Path(real).parent)
    if _goes_along(settings, home):
        _move_artifacts(settings.artifacts, home)
    (home / UNFINISHED).replace(home / NOTE)
    sync_folder(home)


def _goes_along(settings: Settings, home: Path) -> bool:
    """Whether the artifact folder is this history's: by its stamp, else by its place."""
    if not os.path.lexists(settings.artifacts) or os.path.lexists(home / ARTIFACTS_NAME):
        return False
    if named_by_artifacts(settings):
        return True
    try:
        stamp = read_artifact_stamp(settings.artifacts)
    except (HistoryRefused, OSError):
        stamp = None
    if stamp is None:
        return settings.artifacts == settings.directory / ARTIFACTS_NAME
    try:
        with closing(whole(home / DATABASE_NAME)) as connection:
            return read_stamp(connection).get("history_id") == stamp.history_id
    except sqlite3.DatabaseError:
        return False


def _move_artifacts(folder: Path, home: Path) -> None:
    target = home / ARTIFACTS_NAME
    moved = False
    if not folder.is_symlink():
        try:
            folder.rename(target)
            moved = True
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
    if not moved:
        # On another file system, or chosen by a link: it stays there, under another name.
        real = Path(os.path.realpath(folder))
        away = real.with_name(f"{real.name}.{home.name}")
        real.rename(away)
        target.symlink_to(away, target_is_directory=True)
        if folder.is_symlink():
            real.mkdir(mode=0o700)
            real.chmod(0o700)
    stamp = target / ARTIFACT_STAMP
    try:
        said = json.loads(stamp.read_bytes())
        fits = said["database"] == f"../{DATABASE_NAME}"
    except (OSError, ValueError, KeyError, TypeError):
        return  # without a stamp that can be read; its files count
    if not fits:
        said["database"] = f"../{DATABASE_NAME}"
        write_file(stamp, json.dumps(said, indent=1).encode() + b"\n")


def _unfinished(database: Path) -> list[Path]:
    return [note.parent for note in _notes(database) if note.name == UNFINISHED]


def _finish_interrupted(settings: Settings) -> Path | None:
    """Finish a move that a crash has interrupted; the folder, None when there is none."""
    for home in _unfinished(settings.database):
        note = _read_note(home / UNFINISHED)
        at_its_place = os.path.exists(settings.database)
        if (home / DATABASE_NAME).exists():
            if at_its_place:
                # A new history has begun without looking: what is beside it is not ours to move.
                (home / UNFINISHED).replace(home / NOTE)
            else:
                _move(settings, home)
            return home
        found = os.stat(settings.database) if at_its_place else None
        if found and [found.st_dev, found.st_ino] == [note.get("device"), note.get("inode")]:
            _move(settings, home)
            return home
        # Nothing was moved, and somebody has put another database in its place since.
        (home / UNFINISHED).unlink()
        home.rmdir()
    return None


def _drop_older(database: Path, home: Path) -> None:
    """Keep one: remove what was set aside earlier, unless `home` is in it."""
    for note in _notes(database):
        folder = note.parent
        if note.name == UNFINISHED or folder.parent != _beside(database):
            continue
        if folder == home or folder in home.parents:
            continue
        artifacts = folder / ARTIFACTS_NAME
        if artifacts.is_symlink():
            away = Path(os.path.realpath(artifacts))
            if away.name.endswith(f".{folder.name}"):  # the name that we gave it
                shutil.rmtree(away, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)


def _notes(database: Path) -> list[Path]:
    """The notes of all histories beside a database, also within one another."""
    found = []
    for depth in (f"{PREFIX}*", f"{PREFIX}*/{PREFIX}*"):
        for name in (NOTE, UNFINISHED):
            found += sorted(_beside(database).glob(f"{depth}/{name}"))
    return found


def _read_note(note: Path) -> dict[str, Any]:
    try:
        said = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
