# SPDX-License-Identifier: Apache-2.0
"""A copy of a history that is in use: consistent, verified, and itself a history.

The database is copied page by page within one read transaction (SQLite's backup interface), so what
is only in the write-ahead log comes along, and no writer waits: the log just cannot be folded in
until the copy is done. ``VACUUM INTO`` would do as well and pack the file; it was left alone since
it takes two to three times as long (386 MiB with one index), and tells nothing of its progress.

Artifacts are copied first, then the database, then the few artifacts that came in between: so
retention has little time to remove a file that the copied rows name. When it does nevertheless, the
database is copied anew. Artifacts are copies, neither hard links nor clones of the file system: a
link would share its fate with the original (damage, a changed mode), and both would save the
reading that verifies it.

Everything is made under another name beside the target, which is renamed when all of it is on disk.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import ARTIFACTS_NAME, DATABASE_NAME, Settings
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.files import make_file, make_folder, sync_folder, write_file
from otel_taskhistory.store.reading import Identity, Reading
from otel_taskhistory.store.recovery import recover
from otel_taskhistory.store.stamp import ARTIFACT_STAMP
from otel_taskhistory.units import format_size

Progress = Callable[[str, int, int], None]
"""Told (what is being done, bytes done, bytes in all) from time to time."""

_PAGES: Final = 4096  # pages between two reports of progress: 16 MiB
_SPARE: Final = 16 * 2**20
"""Room that must be left: the file system's own records, and what the agent writes meanwhile."""
_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class MissingPicture:
    """An artifact that the copy does not have."""

    path: str
    """Relative to the artifact folder."""
    why: str
    """``missing``, ``damaged`` (its content is not what its name says) or ``unreadable``."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was copied."""

    directory: Path
    """The copy: a history, to be opened with ``--directory``."""
    history_id: str
    tasks: int
    database_bytes: int
    artifacts: int
    """Files, each of the content that its name says."""
    artifact_bytes: int
    missing: tuple[MissingPicture, ...]
    """Artifacts that the history has lost; their rows are in the copy."""
    removed: tuple[str, ...]
    """Artifacts that retention has removed, with their tasks, while the copy was made."""
    problems: tuple[str, ...]
    """What else is wrong with the history, and so with its copy."""

    @property
    def whole(self) -> bool:
        """Whether the copy has all that its rows name."""
        return not self.missing and not self.problems


@dataclass(frozen=True, slots=True)
class Wanted:
    """An artifact that a row names."""

    path: str
    sha256: str
    size: int

    @property
    def extension(self) -> str:
        """Without the dot."""
        return self.path.rpartition(".")[2]


def backup(source: Settings, target: Path, progress: Progress | None = None) -> BackupReport:
    """Copy a history, in use or not, to a new folder.

    Args:
        source: where the history is; another owner's is refused when the owner was given.
        target: what must not exist yet, or be an empty folder. Folders above it are made.
        progress: told how far it is; may raise, which ends it.

    Raises:
        TaskHistoryError: there is no history, it is damaged, the target cannot be used, or there
            is not enough room; nothing is left at the target then.
        OSError: the target cannot be written.
    """
    tell = progress or (lambda what, done, total: None)
    target = Path(os.path.realpath(target))
    _check_target(source, target)
    owner = source.owner if source.owner_explicit else None
    reading = Reading(source.database, owner=owner, busy_timeout=source.busy_timeout)
    with closing(reading):
        wanted = reading.read(wanted_artifacts)
        _check_room(reading, wanted, target)
        make_folder(target.parent)
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        partial.mkdir(mode=0o700)
        try:
            partial.chmod(0o700)
            report = _Copy(source, reading, partial, tell).make(wanted, target)
            _put_in_place(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return report


class _Copy:
    """A copy in the making."""

    def __init__(self, source: Settings, reading: Reading, folder: Path, tell: Progress) -> None:
        self._reading = reading
        self._from = ArtifactFolder(source.artifacts)
        self._database = folder / DATABASE_NAME
        self._to = ArtifactFolder(folder / ARTIFACTS_NAME)
        self._tell = tell
        self._copied: dict[str, int] = {}  # size by path
        self._missing: dict[str, str] = {}  # why by path

    def make(self, wanted: list[Wanted], target: Path) -> BackupReport:
        make_folder(self._to.root)
        self._copy_artifacts(wanted)
        removed: list[str] = []
        for _ in range(_ATTEMPTS):
            self._copy_database()
            with closing(sqlite3.Connection(str(self._database))) as copy:
                wanted = wanted_artifacts(copy)
            self._copy_artifacts(wanted)
            removed = self._removed_meanwhile(wanted)
            if not removed:
                break
        problems = self._verify()
        named = {artifact.path for artifact in wanted}
        for path in self._copied.keys() - named:  # of tasks that retention has removed since
            self._to.remove(path)
            del self._copied[path]
        identity, tasks = self._finish()
        return BackupReport(
            directory=target,
            history_id=identity.history_id,
            tasks=tasks,
            database_bytes=self._database.stat().st_size,
            artifacts=len(self._copied),
            artifact_bytes=sum(self._copied.values()),
            missing=tuple(
                MissingPicture(path, why)
                for path, why in sorted(self._missing.items())
                if path in named and path not in removed
            ),
            removed=tuple(removed),
            problems=tuple(problems),
        )

    def _copy_database(self) -> None:
        # Read-only, whatever state the source is in; called again when files change under it.
        self._reading.read(self._copy_pages)

    def _copy_pages(self, source: sqlite3.Connection) -> None:
        self._database.unlink(missing_ok=True)
        make_file(self._database)
        with closing(sqlite3.Connection(str(self._database), isolation_level=None)) as copy:
            size = source.execute("PRAGMA page_size").fetchone()[0]
            # Within the read transaction that has begun here: were each step one of its own,
            # every commit of the agent would make the copy begin anew.
            source.execute("SELECT 1 FROM sqlite_schema").fetchone()
            copy.execute("PRAGMA synchronous = OFF")
            try:
                source.backup(
                    copy,
                    pages=_PAGES,
                    progress=lambda _, left, total: self._tell(
                        "database", (total - left) * size, total * size
                    ),
                )
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_FULL:  # only ever the copy
                    raise OSError(
                        errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._database.parent.parent)
                    ) from error
                raise

    def _copy_artifacts(self, wanted: list[Wanted]) -> None:
        left = [artifact for artifact in wanted if artifact.path not in self._copied]
        total, done = sum(artifact.size for artifact in left), 0
        for artifact in left:
            self._copy_artifact(artifact)
            done += artifact.size
            self._tell("pictures", done, total)

    def _copy_artifact(self, artifact: Wanted) -> None:
        self._missing.pop(artifact.path, None)
        try:
            data = self._from.read(artifact.path)
        except FileNotFoundError:
            self._missing[artifact.path] = "missing"
            return
        except (OSError, ValueError):
            self._missing[artifact.path] = "unreadable"
            return
        if hashlib.sha256(data).hexdigest() != artifact.sha256:
            self._missing[artifact.path] = "damaged"
            return
        self._to.put(data, artifact.extension)
        self._copied[artifact.path] = len(data)

    def _removed_meanwhile(self, wanted: list[Wanted]) -> list[str]:
        """Missing artifacts that the history itself names no more."""
        missing = [artifact.path for artifact in wanted if artifact.path in self._missing]
        if not missing:
            return []
        still = {artifact.path for artifact in self._reading.read(wanted_artifacts)}
        return [path for path in missing if path not in still]

    def _verify(self) -> list[str]:
        """Check the copy, every page and row of it; what is no reason to refuse it is returned.

        Raises:
            TaskHistoryError: it is damaged.
        """
        self._tell("check", 0, 0)
        try:
            with closing(sqlite3.Connection(str(self._database))) as copy:
                found = [row[0] for row in copy.execute("PRAGMA integrity_check(20)")]
                loose = copy.execute("SELECT count(*) FROM pragma_foreign_key_check").fetchone()[0]
        except sqlite3.DatabaseError as error:
            found, loose = [str(error)], 0
        if found != ["ok"]:
            raise TaskHistoryError(
                f"the history at {self._reading.database} is damaged ({_first_line(found)}), so is"
                " a copy of it, and none was kept. otel-taskhistory doctor tells more"
            )
        return [f"{loose} rows refer to rows that are not there"] if loose else []

    def _finish(self) -> tuple[Identity, int]:
        """Stamp the copy and see that all of it is on disk."""
        with closing(sqlite3.Connection(str(self._database), isolation_level=None)) as copy:
            # Without a write-ahead log it is one file, readable in a place where nobody may write.
            # The next agent to write switches the log on again.
            copy.execute("PRAGMA journal_mode = DELETE")
            copy.execute(
                "INSERT INTO _meta (key, value) VALUES ('backup_at', ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),),
            )
            # What runs in the original will never end in the copy.
            living = copy.execute("SELECT id FROM _processes WHERE ended_ns IS NULL").fetchall()
            copy.execute("BEGIN")
            recover(copy, [row[0] for row in living], time.time_ns())
            copy.execute("COMMIT")
            tasks = copy.execute("SELECT count(*) FROM tasks").fetchone()[0]
        with self._database.open("rb+") as file:  # written without syncs up to here
            os.fsync(file.fileno())
        identity = self._reading.identity
        stamp = {
            "owner": identity.owner,
            "history_id": identity.history_id,
            "service_name": identity.service_name,
            "database": f"../{DATABASE_NAME}",
        }
        write_file(self._to.root / ARTIFACT_STAMP, json.dumps(stamp, indent=1).encode() + b"\n")
        sync_folder(self._database.parent)
        return identity, tasks


def wanted_artifacts(connection: sqlite3.Connection) -> list[Wanted]:
    """The files that the rows of a history name."""
    rows = connection.execute(
        "SELECT path, sha256, bytes FROM _artifacts WHERE status <> 'not_stored'"
        " UNION SELECT path, sha256, bytes FROM screenshots"
        "  WHERE path IS NOT NULL AND artifact IS NULL AND status <> 'not_stored'"
        " ORDER BY path"
    )
    return [Wanted(*row) for row in rows]


def _check_target(source: Settings, target: Path) -> None:
    artifacts = Path(os.path.realpath(source.artifacts))
    if target == artifacts or artifacts in target.parents:
        raise TaskHistoryError(
            f"{target} lies in the artifact folder of the history: name a folder elsewhere"
        )
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise TaskHistoryError(f"{target} is a file: name a folder that does not exist yet")
    if any(target.iterdir()):
        raise TaskHistoryError(
            f"{target} is not empty: a backup needs a folder of its own, one that does not exist"
            " yet or is empty"
        )
    if os.path.ismount(target):
        raise TaskHistoryError(f"{target} is where a file system begins: name a folder in it")


def _check_room(reading: Reading, wanted: list[Wanted], target: Path) -> None:
    def size(connection: sqlite3.Connection) -> int:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])

    needed = reading.read(size) + sum(artifact.size for artifact in wanted)
    place = next(folder for folder in _upwards(target.parent) if folder.is_dir())
    free = shutil.disk_usage(place).free
    if free < needed + _SPARE:
        raise TaskHistoryError(
            f"not enough room for a backup in {place}: it takes {format_size(needed)} and"
            f" {format_size(_SPARE)} to spare, {format_size(free)} are free. Nothing was copied"
        )


def _upwards(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.parents


def _put_in_place(partial: Path, target: Path) -> None:
    if target.is_dir():
        target.rmdir()  # only ever an empty one; some systems rename onto none
    elif os.path.lexists(target):
        raise TaskHistoryError(f"{target} was made by somebody else meanwhile; nothing was changed")
    try:
        partial.rename(target)
    except OSError as error:
        raise TaskHistoryError(
            f"the backup is complete, but cannot be named {target} ({error.strerror})"
        ) from error
    sync_folder(target.parent)


def _first_line(found: list[str]) -> str:
    lines = [line for text in found for line in str(text).splitlines()]
    return next((line for line in lines if not line.startswith("*** in ")), "no reason given")
