# SPDX-License-Identifier: Apache-2.0
"""Follows the timeline of a history: what is there, and then what comes, while agents write.

Nobody tells a reader of an SQLite database that something was committed, so it looks: ten times a
second at the state of two files, and only when that differs at the database.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Final

from otel_taskhistory.store.reading import Reading
from otel_taskhistory.store.views import TimelineRecord
from otel_taskhistory.store.watching import AT_A_TIME, Position, records_after, state_of

_LOOK_SECONDS: Final = 0.1
_ANYWAY_SECONDS: Final = 2.0
"""Some file systems are slow to show, or too coarse to tell, that a file was written."""


class Watch(Iterator[TimelineRecord], AsyncIterator[TimelineRecord]):
    """The records after a place in the timeline; it ends only by `close`.

    To be used with ``for`` or ``async for``, by one consumer. Each record's `cursor` is where to go
    on later, also in another process. A record whose event is ``gap`` tells that some that were
    there are gone, removed by retention or with the history they were in.

    Args:
        reading: the history.
        after: `TimelineRecord.cursor` or ``seq`` of the last record that was seen; None for all.
        task_id: only records of this task: its id, the beginning of one, or ``latest``.

    Raises:
        SettingsError: `after` is no such thing.
        TaskNotFound: there is no such task, or several.
    """

    def __init__(self, reading: Reading, after: str | int | None, task_id: str | None) -> None:
        self._reading = reading
        self._task_id = task_id
        self._position = Position.read(after)
        self._waiting: deque[TimelineRecord] = deque()
        self._closed = threading.Event()
        self._state: tuple[object, ...] | None = None
        self._looked = 0.0
        self._more = False
        self._given = str(self._position)
        self._fetch()

    @property
    def cursor(self) -> str:
        """Where to go on after the record that was given last."""
        return self._given

    def close(self) -> None:
        """End it, from any thread: whoever waits for the next record gets the end."""
        self._closed.set()

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> TimelineRecord:
        while not self._closed.is_set():
            if self._waiting:
                return self._next()
            if not self._look():
                self._closed.wait(_LOOK_SECONDS)
        raise StopIteration

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> TimelineRecord:
        while not self._closed.is_set():
            if self._waiting:
                return self._next()
            # A look is a few microseconds; reading is done in a thread.
            if self._is_due():
                await asyncio.to_thread(self._fetch)
            else:
                await asyncio.sleep(_LOOK_SECONDS)
        raise StopAsyncIteration

    def wait(self, seconds: float) -> TimelineRecord | None:
        """The next record, or None when none came in so many seconds or it was closed."""
        until = time.monotonic() + seconds
        while not self._closed.is_set():
            if self._waiting:
                return self._next()
            if not self._look():
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._closed.wait(min(left, _LOOK_SECONDS))
        return None

    def _next(self) -> TimelineRecord:
        record = self._waiting.popleft()
        self._given = record.cursor
        return record

    def _look(self) -> bool:
        """Read when something was committed; whether there is anything now."""
        if self._is_due():
            self._fetch()
        return bool(self._waiting)

    def _is_due(self) -> bool:
        if self._more or time.monotonic() - self._looked >= _ANYWAY_SECONDS:
            return True
        return state_of(self._real) != self._state

    def _fetch(self) -> None:
        # The state first: a commit in between is seen next time.
        self._real = os.path.realpath(self._reading.database)
        self._state = state_of(self._real)
        self._looked = time.monotonic()
        found = self._reading.read(
            lambda connection: records_after(connection, self._position, self._task_id)
        )
        self._more = len(found) >= AT_A_TIME
        if found:
            self._position = Position.read(found[-1].cursor)
            self._waiting.extend(found)
