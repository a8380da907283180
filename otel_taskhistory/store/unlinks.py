# SPDX-License-Identifier: Apache-2.0
"""Files that wait to be removed because their rows are gone.

The row of a file is deleted first, and in the same transaction noted here. After that commit the
file goes, and then the note. So a crash at any moment leaves no row without its file; the file
whose note is left goes next time.

Meanwhile somebody may store the same picture again: the file first, its row later. Hence a file
goes only within a write transaction that sees no row for it, and only when the file is the very
one that was noted, untouched since: `ArtifactFolder.put` touches a file that is there already.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.store import faults
from otel_taskhistory.store.artifacts import ArtifactFolder

UNLINKS: Final = 128
"""Files removed at a time, under the write lock; on a quiet disk about 40 µs each."""

_LONGEST_SECONDS: Final = 0.02
"""And no longer than that: removing a file may have to wait for the disk."""

GRACE_NS: Final = 600 * 10**9
"""Ten minutes: a file without a row is younger when its row is still to come."""

# Two touches within one tick of the file system's clock have the same time. Linux ticks every 4 ms
# or 10 ms; a file system that keeps whole seconds, or two (FAT), shows it.
_TICK_NS: Final = 100 * 10**6
_COARSE_TICK_NS: Final = 2_500 * 10**6

_LONGEST_WAIT_NS: Final = 3600 * 10**9

# The second: a span that came without its picture names the file that it will have.
_ROWS: Final = """
SELECT 1 FROM _artifacts WHERE sha256 = :sha256 AND path = :path UNION ALL
SELECT 1 FROM screenshots WHERE sha256 = :sha256 AND path = :path AND artifact IS NULL
LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Undeletable:
    """A file that could not be removed, for ``doctor``."""

    path: str
    bytes: int
    failures: int
    error: str
    next_ns: int
    """When it is tried again."""


class Unlinks:
    """Over the writer's connection; a transaction is open whenever a method runs."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        folder: ArtifactFolder,
        clock: Callable[[], int],
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._clock = clock
        self.added = 0
        """Files noted, since the start of this process."""
        self.missing = 0
        """Files that were not there, likewise."""

    def add(self, path: str, size: int) -> None:
        """Note a file whose row has just been deleted."""
        self.added += 1
        touched = self._touched(path)
        if touched is None:
            self.missing += 1
            return
        now = self._clock()
        self._connection.execute(
            "INSERT INTO _unlinks (path, bytes, mtime_ns, at_ns, due_ns) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (path) DO UPDATE SET mtime_ns = excluded.mtime_ns,"
            " at_ns = excluded.at_ns, due_ns = excluded.due_ns",
            (
                path,
                size,
                touched,
                now,
                now if now - touched >= _tick(touched) else now + _tick(touched),
            ),
        )

    def work_off(self, size: int = UNLINKS) -> None:
        """Remove files that are due, a few at a time and at least one."""
        now = self._clock()
        due = self._connection.execute(
            "SELECT path, mtime_ns, failures FROM _unlinks WHERE due_ns <= ?"
            " ORDER BY due_ns LIMIT ?",
            (now, size),
        ).fetchall()
        until = time.monotonic() + _LONGEST_SECONDS
        for path, mtime_ns, failures in due:
            self._try(path, mtime_ns, failures, now)
            if time.monotonic() > until:
                break

    def retry(self) -> None:
        """Let files that could not be removed be due now."""
        self._connection.execute(
            "UPDATE _unlinks SET due_ns = ? WHERE failures > 0", (self._clock(),)
        )

    def wait_for_tick(self, pause: Callable[[float], None]) -> bool:
        """Wait for files that were touched a moment ago, in no transaction; False for none."""
        now = self._clock()
        due = self._connection.execute(
            "SELECT due_ns FROM _unlinks WHERE due_ns < ? AND failures = 0 ORDER BY due_ns LIMIT 1",
            (now + 2 * _COARSE_TICK_NS,),
        ).fetchone()
        if due is None:
            return False
        pause(max(due[0] - now, 0) / 10**9)
        return True

    def _try(self, path: str, mtime_ns: int, failures: int, now: int) -> None:
        touched = self._touched(path)
        if touched is None or self._has_row(path):
            self._done(path)
        elif touched != mtime_ns:
            # Somebody has stored it again, whose row comes with a commit to be; or never comes.
            self._connection.execute(
                "UPDATE _unlinks SET mtime_ns = ?, due_ns = ? WHERE path = ?",
                (touched, now + GRACE_NS, path),
            )
        else:
            try:
                self._folder.remove(path)
            except OSError as error:
                wait = min(10**9 * 2**failures, _LONGEST_WAIT_NS)
                self._connection.execute(
                    "UPDATE _unlinks SET failures = failures + 1, error = ?, due_ns = ?"
                    " WHERE path = ?",
                    (error.strerror or type(error).__name__, now + wait, path),
                )
                return
            faults.point("unlink.unlinked")
            self._done(path)

    def _done(self, path: str) -> None:
        self._connection.execute("DELETE FROM _unlinks WHERE path = ?", (path,))

    def adopt(self, files: Iterable[tuple[str, int]]) -> None:
        """Note files that no row knows and that are older than any row to come.

        Args:
            files: path and size.
        """
        before = self._clock() - GRACE_NS
        for path, size in files:
            if self.knows(path):
                continue
            touched = self._touched(path)
            if touched is not None and touched < before:
                self.add(path, size)

    def knows(self, path: str) -> bool:
        """Whether a file has a row, or is noted already; needs no transaction."""
        noted = self._connection.execute("SELECT 1 FROM _unlinks WHERE path = ?", (path,))
        return self._has_row(path) or noted.fetchone() is not None

    def _has_row(self, path: str) -> bool:
        sha256 = _sha256(path)
        found = self._connection.execute(_ROWS, {"path": path, "sha256": sha256})
        return found.fetchone() is not None

    def _touched(self, path: str) -> int | None:
        """When a file was written or used last; None when it is not there."""
        try:
            info = self._info(path)
        except OSError:  # that it cannot be removed either is found out, and told, in its turn
            return 0
        return None if info is None else info.st_mtime_ns

    def _info(self, path: str) -> os.stat_result | None:
        """What the file system says of a file; None when it is not there, or is not ours.

        Raises:
            OSError: it does not say.
        """
        try:
            return os.lstat(self._folder.path(path))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None


def undeletable(connection: sqlite3.Connection) -> list[Undeletable]:
    """Files that could not be removed so far."""
    rows = connection.execute(
        "SELECT path, bytes, failures, coalesce(error, ''), due_ns FROM _unlinks"
        " WHERE failures > 0 ORDER BY path"
    )
    return [Undeletable(*row) for row in rows]


def _sha256(path: str) -> str:
    """The hash that an artifact is named by: ``ab/abcd….png``."""
    return path[3:67]


def _tick(mtime_ns: int) -> int:
    return _COARSE_TICK_NS if mtime_ns % 10**9 == 0 else _TICK_NS
