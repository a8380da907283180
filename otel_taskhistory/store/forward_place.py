# SPDX-License-Identifier: Apache-2.0
"""Where a forwarder stands in a history: its connection, its number, and that it is the only one.

It writes how far it has got, and nothing else but what any writer does for the others: it calls
interrupted what dead processes left running, for nothing else would tell a remote end that those
spans are over. No agent ever waits for it: what it writes is one row, and when somebody else writes
for long it remembers and writes later.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Final, TypeVar

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.database import Database, cannot_use
from otel_taskhistory.store.forwarding import (
    Destination,
    Forward,
    acknowledge,
    begin,
    forward_to,
    seen,
)
from otel_taskhistory.store.lockfile import LockFile, lock_file
from otel_taskhistory.store.log import is_busy
from otel_taskhistory.store.processes import dead, lock_path
from otel_taskhistory.store.reading import Reading
from otel_taskhistory.store.recovery import recover

T = TypeVar("T")

_FIRST_LOCK: Final = 2**40
"""Forwarders share the file of the writers' locks, with numbers that no writer ever gets."""

_WAIT: Final = 0.2
"""Seconds to wait for another writer, while all is well: the next time will do."""

_LOOK_AFTER_NS: Final = 10 * 10**9
"""How often it is looked whether a process has died."""

_SIGN_AFTER_NS: Final = 600 * 10**9
"""How often it is written down that the forwarder is here, when nothing else is written."""


class ForwardPlace:
    """An open history, to forward from; use from one thread. `close` at the end.

    Args:
        settings: where the history is.
        destination: where its spans go.
        hold: hold what is not sent yet, so that retention waits for it, within bounds.
        again: send all that is there once more.
        clock: ns since 1970.

    Raises:
        TaskHistoryError: there is no history, it must not or cannot be written, or another
            process forwards to the same destination.
    """

    def __init__(
        self,
        settings: Settings,
        destination: Destination,
        *,
        hold: bool = False,
        again: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._settings = settings
        self._destination = destination
        self._hold = hold
        self._clock = clock
        self._locks: LockFile | None = None
        self._database: Database
        self._artifacts: ArtifactFolder
        self._forward: Forward
        self._change = self._sent = self._refused = 0
        self._signed = self._looked = self._removed = 0
        self._open(again=again)

    def read_artifact(self, path: str) -> bytes:
        """The bytes of a picture, by its path in the artifact folder.

        Raises:
            OSError, ValueError: as `ArtifactFolder.read` says.
        """
        return self._artifacts.read(path)

    @property
    def change(self) -> int:
        """All up to this number is done with."""
        return self._change

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run `query` within one short read transaction and return what it returns.

        Raises:
            TaskHistoryError: the history cannot be read now.
        """
        connection = self._database.connection
        try:
            connection.execute("BEGIN")
            return query(connection)
        except sqlite3.Error as error:
            raise cannot_use(self._settings.database, error) from error
        finally:
            if connection.in_transaction:
                connection.rollback()

    def take_removed(self) -> int:
        """How many spans retention has removed before they were sent, that nobody was told of."""
        removed, self._removed = self._removed, 0
        return removed

    def look_after(self) -> bool:
        """Do from time to time what keeps the place good; call between two batches.

        Returns:
            Whether another history is in the place of the one before, and `change` is its.

        Raises:
            TaskHistoryError: the history was taken away.
        """
        if self._database.moved():
            self._reopen()
            return True
        now = self._clock()
        if abs(now - self._looked) >= _LOOK_AFTER_NS:
            self._looked = now
            self._recover(now)
        if self._unsaved or abs(now - self._signed) >= _SIGN_AFTER_NS:
            self._save(_WAIT)
        return False

    def acknowledge(self, up_to: int, *, sent: int, refused: int = 0) -> None:
        """All up to a number has arrived, or is not to be sent again; written down soon."""
        if up_to <= self._change and not (sent or refused):
            return
        self._change = max(self._change, up_to)
        self._sent += sent
        self._refused += refused
        self._save(_WAIT)

    def close(self) -> None:
        """Write down what was not yet, and let others in; what is not written then is sent again.

        Raises:
            TaskHistoryError: what was sent last could not be written down: it is sent again.
        """
        try:
            saved = not self._unsaved or self._save(self._settings.busy_timeout)
        finally:
            self._let_go()
        if not saved:
            raise TaskHistoryError(
                f"{self._settings.database} could not be written, so the last {self._sent} spans"
                " that were sent are sent again next time"
            )

    @property
    def _unsaved(self) -> bool:
        return self._change > self._forward.change or bool(self._sent or self._refused)

    def _open(self, *, again: bool) -> None:
        settings = self._settings
        # Says what is wrong where there is none; opened for writing one would be made.
        Reading(
            settings.database, owner=settings.owner if settings.owner_explicit else None
        ).close()
        self._database = Database(settings)
        try:
            self._artifacts = ArtifactFolder(settings.artifacts)
            now = self._clock()
            with self._database.transaction() as connection:
                self._forward = begin(
                    connection, self._destination, now, hold=self._hold, again=again
                )
                self._take_lock(self._forward)
        except (OSError, sqlite3.Error) as error:
            self._let_go()
            raise cannot_use(settings.database, error) from error
        except BaseException:
            self._let_go()
            raise
        self._change = self._forward.change
        self._sent = self._refused = 0
        self._signed = self._looked = now
        self._removed += self._forward.removed - self._forward.told
        self._recover(now)

    def _take_lock(self, forward: Forward) -> None:
        """See to it that nobody else sends the same; where there are no locks, trust."""
        try:
            locks = lock_file(lock_path(self._settings.database), create=True)
            free = locks is None or (
                not locks.holds(_FIRST_LOCK + forward.id) and locks.hold(_FIRST_LOCK + forward.id)
            )
        except OSError:
            return
        if not free:
            raise TaskHistoryError(
                f"another process forwards this history to {forward.endpoint} (policy"
                f" {forward.policy}) right now: stop it, or leave it to that one"
            )
        self._locks = locks

    def _let_go(self) -> None:
        if self._locks is not None:
            self._locks.release(_FIRST_LOCK + self._forward.id)
            self._locks = None
        self._database.close()

    def _reopen(self) -> None:
        """Another history is in its place, which knows itself how far it has got."""
        if self._locks is not None:
            self._locks.release(_FIRST_LOCK + self._forward.id)
            self._locks = None
        self._database.leave()
        # What was acknowledged last is forgotten with the history that it was of.
        self._change, self._sent, self._refused = self._forward.change, 0, 0
        self._open(again=False)

    def _recover(self, now: int) -> None:
        connection = self._database.connection
        if not dead(connection, self._settings.database):
            return
        try:
            with self._database.transaction(wait=_WAIT):
                recover(connection, dead(connection, self._settings.database), now)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise

    def _save(self, wait: float) -> bool:
        now = self._clock()
        try:
            with self._database.transaction(wait=wait) as connection:
                before = forward_to(connection, self._destination)
                if not seen(connection, self._forward.id, now, hold=self._hold):
                    # Somebody has removed the row by hand.
                    self._forward = begin(connection, self._destination, now, hold=self._hold)
                acknowledge(
                    connection,
                    self._forward.id,
                    self._change,
                    sent=self._sent,
                    refused=self._refused,
                )
                saved = forward_to(connection, self._destination)
        except sqlite3.OperationalError:
            # Others write, the disk is full: what was sent stays sent, and is written down later.
            return False
        assert saved is not None
        self._removed += before.removed - before.told if before is not None else 0
        self._forward = saved
        self._sent = self._refused = 0
        self._signed = now
        return True
