# SPDX-License-Identifier: Apache-2.0
"""How much room a history takes, and giving back what it does not need.

Deleting frees pages within the database file. They go back to the file system in two steps: an
incremental vacuum moves free pages to the end and cuts them off, and folding the write-ahead log
(a checkpoint) lets the file itself shrink. A reader that holds an old snapshot prevents the second.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_taskhistory.store import faults
from otel_taskhistory.store.log import PART, Log, is_busy, waiting

_KIB: Final = 2**10
_MIB: Final = 2**20

VACUUM_BYTES: Final = 2 * _MIB
"""What is given back at a time, about 10 ms (174 ms were measured for 36 MiB)."""

_SHM: Final = 64 * _KIB  # 32 KiB for each 16 MiB of log; the log is kept below that


@dataclass(frozen=True, slots=True)
class Division:
    """How the room of a history is divided; all in bytes."""

    content: int | None
    """What live pages and artifacts may take together; None without a limit."""
    garbage: int
    """Beside that: what of the search index is about removed tasks, until it is merged."""
    log: int
    """From this size on SQLite folds the log in; it may grow to twice that while it does."""
    free: int
    """Free pages that may stay in the file: what the next tasks need anyway."""


def divide(max_bytes: int | None) -> Division:
    """Divide `max_bytes` so that all files together stay below it.

    What is over the limit is decided by what is live. That the files obey the limit too needs a
    reserve for log and free pages, which does not depend on how large they are at the moment: else
    a reader that makes the log grow would make the history shrink.
    """
    if max_bytes is None:
        return Division(None, PART * 4, PART, 8 * _MIB)
    log = min(max(max_bytes // 32, 128 * _KIB), PART)
    free = min(max(max_bytes // 64, 64 * _KIB), 8 * _MIB)
    content = max(max_bytes - 2 * log - free - _SHM, max_bytes // 4)
    garbage = content // 16
    return Division(content - garbage, garbage, log, free)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a history takes, in bytes."""

    live: int
    """Pages of the database that hold something."""
    free: int
    """Pages of the database that hold nothing."""
    artifacts: int
    """Files that rows refer to."""
    unlinks: int
    """Files whose rows are gone and that wait to be removed."""
    database_file: int
    log_file: int
    index_file: int
    """The ``-shm`` file."""

    @property
    def content(self) -> int:
        """What the limit is decided on."""
        return self.live + self.artifacts

    @property
    def files(self) -> int:
        """What lies on disk."""
        return self.database_file + self.log_file + self.index_file + self.artifacts + self.unlinks


def is_full(error: BaseException | None) -> bool:
    """Whether an error of SQLite or of the system says that there is no room on the disk."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def usage(connection: sqlite3.Connection, database: Path, real: str | None = None) -> Usage:
    """What a history takes now; a few look-ups, whatever its size.

    Args:
        connection: to it.
        database: its file.
        real: the same without symbolic links, if that is known.
    """
    pages, free, size = _pages(connection)
    artifacts, unlinks = connection.execute(
        "SELECT kept.bytes, gone.bytes FROM _totals AS kept, _totals AS gone"
        " WHERE kept.name = 'artifacts' AND gone.name = 'unlinks'"
    ).fetchone()
    real = os.path.realpath(database) if real is None else real
    return Usage(
        live=(pages - free) * size,
        free=free * size,
        artifacts=artifacts,
        unlinks=unlinks,
        database_file=_size(real),
        log_file=_size(f"{real}-wal"),
        index_file=_size(f"{real}-shm"),
    )


def live_bytes(connection: sqlite3.Connection) -> int:
    """Pages of the database that hold something, as this transaction sees them."""
    pages, free, size = _pages(connection)
    return (pages - free) * size


def content_bytes(connection: sqlite3.Connection) -> int:
    """Live pages and artifacts, likewise: what the limit is decided on."""
    artifacts = connection.execute("SELECT bytes FROM _totals WHERE name = 'artifacts'").fetchone()
    return live_bytes(connection) + int(artifacts[0])


class Space:
    """Keeps the files of one history small, over the writer's connection.

    Args:
        connection: no transaction is open whenever a method runs.
        log: of the same connection; gets its part of `max_bytes`.
        database: its file.
        max_bytes: the limit for all files together.
    """

    def __init__(
        self, connection: sqlite3.Connection, log: Log, database: Path, max_bytes: int | None
    ) -> None:
        self.division = divide(max_bytes)
        self.log = log
        self._connection = connection
        self._database = database
        self._real = os.path.realpath(database)
        self._max_bytes = max_bytes
        self._page_size = _pragma(connection, "page_size")
        self._unlinks = 0
        """Bytes of files that waited to be removed, at the last look."""
        log.limit(self.division.log)

    def usage(self) -> Usage:
        """What the history takes now."""
        return usage(self._connection, self._database, self._real)

    def has_spare(self, *, all_of_it: bool = False) -> bool:
        """Whether free pages are to be given back: more than the next tasks need, or any."""
        free = _pragma(self._connection, "freelist_count") * self._page_size
        return free > (0 if all_of_it else self.division.free)

    def give_back(self, *, all_of_it: bool = False) -> bool:
        """Cut a few free pages off; False when another process writes just now.

        Args:
            all_of_it: leave none for the next tasks.
        """
        free = _pragma(self._connection, "freelist_count")
        # Half of what may stay, so that this is not done again for each page.
        stays = 0 if all_of_it else self.division.free // 2 // self._page_size
        pages = min(free - stays, VACUUM_BYTES // self._page_size)
        if pages <= 0:
            return True
        try:
            with waiting(self._connection, 0.1):
                # Not execute(): Python's sqlite3 then runs one step of it, which is one page.
                self._connection.executescript(f"PRAGMA incremental_vacuum({pages});")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        faults.point("space.vacuumed")
        return True

    def keep_small(self, content: int | None = None) -> None:
        """Empty the log when it, or all files together, are larger than they may be.

        Args:
            content: what live pages and artifacts take, if that is known.
        """
        self.log.keep_small(at_once=self._is_too_large(content))

    def _is_too_large(self, content: int | None) -> bool:
        if self._max_bytes is None:
            return False
        if content is not None:
            # Without a look into the database: surely more than there is.
            files = sum(_size(f"{self._real}{suffix}") for suffix in ("", "-wal", "-shm"))
            if files + content + self._unlinks <= self._max_bytes:
                return False
        now = self.usage()
        self._unlinks = now.unlinks
        return now.files > self._max_bytes


def _pages(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """How many pages there are, how many are free, and the bytes of one.

    As statements of their own, which stay prepared: this is asked for around each commit.
    """
    pages, free, size = (
        _pragma(connection, name) for name in ("page_count", "freelist_count", "page_size")
    )
    return pages, free, size


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    row: Any = connection.execute(f"PRAGMA {name}").fetchone()
    return int(row[0])


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
