# SPDX-License-Identifier: Apache-2.0
"""How much of what was sent may be in memory at once, counted in bytes; from any thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Full(Exception):
    """There is no room now."""


class Room:
    """Room for so many bytes; senders that find none are told to come again.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held = 0

    @contextmanager
    def part(self) -> Iterator[Part]:
        """A part of it, which is empty at first and given back on leaving."""
        part = Part(self)
        try:
            yield part
        finally:
            part.give_back()

    def take(self, size: int) -> None:
        """Take some of it.

        Raises:
            Full: so much is not there.
        """
        with self._lock:
            if self._held + size > self._limit:
                raise Full
            self._held += size

    def give_back(self, size: int) -> None:
        """Give back what was taken."""
        with self._lock:
            self._held -= size


class Part:
    """What one request takes."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._size = 0

    def grow(self, size: int) -> None:
        """Take so much more.

        Raises:
            Full: so much is not there.
        """
        self._room.take(size)
        self._size += size

    def give_back(self) -> None:
        """Give all of it back."""
        size, self._size = self._size, 0
        self._room.give_back(size)


class Turnstile:
    """Lets so many bytes on to the store at once, in the order they came; on one event loop.

    What is larger than that by itself goes alone.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside = 0
        self._waiting: deque[_Turn] = deque()

    async def enter(self, size: int) -> None:
        """Wait until there is room; who has entered must leave."""
        turn = _Turn(size, asyncio.get_running_loop().create_future())
        self._waiting.append(turn)
        self._let_in()
        try:
            await turn.come
        except asyncio.CancelledError:
            if turn.inside:
                self.leave(size)
            else:
                self._waiting.remove(turn)
                self._let_in()
            raise

    def leave(self, size: int) -> None:
        """Make room for those who wait."""
        self._inside -= size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            size = self._waiting[0].size
            if self._inside and self._inside + size > self._limit:
                return
            self._inside += size
            turn = self._waiting.popleft()
            turn.inside = True
            if not turn.come.done():  # else it is about to find that it was cancelled, and leaves
                turn.come.set_result(None)


@dataclass(slots=True, eq=False)
class _Turn:
    """Somebody who waits."""

    size: int
    come: asyncio.Future[None]
    inside: bool = False
