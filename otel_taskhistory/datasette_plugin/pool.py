# SPDX-License-Identifier: Apache-2.0
"""Readers of one history for several threads: each read has one for itself, made when needed.

Where a history can only be read from a private copy (see `store.reading`) there is one reader for
all, so that there is one copy.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.settings import Settings


def reads_a_copy(history: TaskHistory) -> bool:
    """Whether what is read is a private copy of the database."""
    row = history.read(lambda connection: connection.execute("PRAGMA database_list").fetchone())
    return os.path.realpath(str(row[2])) != os.path.realpath(history.settings.database)


class Pool:
    """Opens at most `limit` readers, and lends each to one thread at a time.

    A read must not borrow again while it has one.
    """

    def __init__(self, settings: Settings, limit: int) -> None:
        self._settings = settings
        self._limit = limit
        self._idle: list[TaskHistory] = []
        self._open = 0
        self._changed = threading.Condition()

    @contextmanager
    def borrow(self) -> Iterator[TaskHistory]:
        """A reader that nobody else uses meanwhile.

        Raises:
            TaskHistoryError: the history cannot be opened.
        """
        history = self._take()
        try:
            yield history
        finally:
            # Back on the top: the one that was used last has its pages in memory.
            with self._changed:
                self._idle.append(history)
                self._changed.notify()

    def close(self) -> None:
        """Close those that are not lent; borrowing opens them again."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._changed.notify_all()
        for history in idle:
            history.close()

    def _take(self) -> TaskHistory:
        with self._changed:
            while not self._idle and self._open >= self._limit:
                self._changed.wait()
            if self._idle:
                return self._idle.pop()
            self._open += 1
        try:
            history = TaskHistory.at(self._settings)
            if reads_a_copy(history):
                self._limit = 1
            return history
        except BaseException:
            with self._changed:
                self._open -= 1
                self._changed.notify()
            raise
