# SPDX-License-Identifier: Apache-2.0
"""Keeps the write-ahead log small, whoever else reads and writes the same history.

SQLite folds the log into the database by itself when it has grown to its part, and begins it anew
when at that moment nobody else reads or writes. With several agents on one history, or somebody who
always reads, that moment may never come: then the log grows without end. So when it has grown to
twice its part it is folded in and emptied here, with the write lock held, right after a commit:
those who wait for the lock look for it every few milliseconds only, so at that moment it is free.

Emptied, not only begun anew: what was deleted is to be in no file any more.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from otel_taskhistory.store import faults

PART: Final = 4 * 2**20
"""Bytes of log at which SQLite folds it in, where nothing else is said."""

COMMIT_SECONDS: Final = 0.02
"""How long folding waits for readers, during which nobody writes: about as long as a commit."""

_RETRY_SECONDS: Final = 0.2
_STUCK_RETRY_SECONDS: Final = 1.0  # while a reader holds an old snapshot, most tries are in vain
_STUCK_SECONDS: Final = 10.0  # readers come and go; one that stays so long is worth telling of
_STARVED_SECONDS: Final = 60.0  # and so are many, of which there is always one


class Log:
    """The write-ahead log, as the connection of a writer sees it.

    Args:
        connection: no transaction is open whenever a method runs.
        database: the real path of its file.
        monotonic: seconds, for tests.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        database: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.blocked = False
        """Whether it has grown and could not be emptied: others are in the way."""
        self._connection = connection
        self._path = f"{database}-wal"
        self._monotonic = monotonic
        self._wait_from = float("-inf")
        """When waiting for readers is worth it again."""
        self._folded: int | None = None
        """How many of its pages were in the database then, and readers kept it at that."""
        self._stuck_since: float | None = None
        """Since when that number is the same, although more was written."""
        self._blocked_since = 0.0
        self._unfolded = False
        self.limit(PART)

    def limit(self, part: int) -> None:
        """Set from which size on, in bytes, it is folded in."""
        self._part = part
        page_size = self._connection.execute("PRAGMA page_size").fetchone()[0]
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {part // page_size}")
        self._connection.execute(f"PRAGMA journal_size_limit = {part}")

    @property
    def size(self) -> int:
        """Bytes of its file."""
        try:
            return os.stat(self._path).st_size
        except OSError:  # gone with the database: `Database.moved` tells
            return 0

    @property
    def is_stuck(self) -> bool:
        """Whether somebody is in the way for longer than any reader that finishes needs."""
        if not self.blocked:
            return False
        now = self._monotonic()
        if self._stuck_since is not None and now - self._stuck_since >= _STUCK_SECONDS:
            return True
        return now - self._blocked_since >= _STARVED_SECONDS

    @property
    def wants_fold(self) -> bool:
        """Whether it may still hold something that was deleted."""
        return self._unfolded and self.size > 0

    def deleted(self) -> None:
        """Something was deleted: what it was is in the log until that is emptied."""
        self._unfolded = True

    def keep_small(self, *, at_once: bool = False) -> None:
        """Empty it when it has grown; to be called right after a commit.

        Where others are in the way it is tried again after a moment, not after each commit.

        Args:
            at_once: however small it is.
        """
        size = self.size
        if size <= 2 * self._part:
            if self.blocked:
                self.blocked, self._stuck_since = False, None
            if not at_once or size == 0:
                return
        now = self._monotonic()
        stuck = self._stuck_since is not None
        if now >= self._wait_from:
            self._wait_from = now + (_STUCK_RETRY_SECONDS if stuck else _RETRY_SECONDS)
            self.fold(0.0 if stuck else COMMIT_SECONDS)
        elif not (stuck or self.blocked):
            self.fold()

    def fold(self, wait: float = 0.0) -> bool:
        """Fold it into the database and empty it.

        Args:
            wait: seconds to wait at most for readers, during which nobody else writes.

        Returns:
            False when a reader or another writer was in the way.
        """
        try:
            with waiting(self._connection, wait):
                row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            row = (1, -1, -1)
        done = bool(row[0] == 0)
        self._note(done, row[1], row[2])
        faults.point("space.folded")
        return done

    def _note(self, done: bool, pages: int, folded: int) -> None:
        """Remember how a try went: -1 pages when somebody else was at the same."""
        now = self._monotonic()
        if done:
            self.blocked = self._unfolded = False
            self._folded = self._stuck_since = None
            self._wait_from = float("-inf")
            return
        # A log that is small is nothing to worry about, whoever reads it.
        blocked = self.size > 2 * self._part
        if blocked and not self.blocked:
            self._blocked_since = now
        self.blocked = blocked
        if pages < 0:
            return
        if folded == pages or folded != self._folded:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        self._folded = folded


@contextmanager
def waiting(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Wait so long for locks, and afterwards as long as before."""
    before: Any = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {before}")


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether somebody else was at it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
