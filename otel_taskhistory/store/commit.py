# SPDX-License-Identifier: Apache-2.0
"""Group commit: whoever comes first writes for all who have come meanwhile.

Work is handed over as jobs in one queue. A thread that finds nobody writing becomes the leader,
takes what is in the queue and commits it in one transaction; the others wait for theirs, and one
of them leads next, so that nobody leads for long. Work nobody waits for (checkpoints that come
during a commit, spans that end in an event loop) is led by a background thread.

When the store cannot be written, the circuit opens: work goes to a backlog at once, bounded by
bytes, the oldest goes first, and the background thread tries again until the store is back.

No lock is held that a signal handler in the same thread could want: the queue is an atomic deque,
and leadership is only ever tried for. A handler that records while its own thread leads leaves its
job in the queue for the leader.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_logger = logging.getLogger("otel_taskhistory")

GROUP: Final = 512
"""Entries per transaction at most, so that followers do not wait for long."""

BACKLOG_BYTES: Final = 64 * 2**20
"""What waits in memory while the store is away, at most (by the size of the values)."""

_RETRY_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 1.0  # a waiter looks again by itself: no wake-up can be lost for long


class StoreAway(Exception):
    """The store cannot be written now; the work may be tried again."""


class Job:
    """Entries that are committed together, and the wait for it.

    Args:
        entries: what to write, in order.
        durable: whether the commit must survive power loss.
        size: about how many bytes the entries hold.
    """

    __slots__ = ("_callbacks", "_latch", "done", "durable", "entries", "size", "stored", "waited")

    def __init__(self, entries: list[Any], *, durable: bool, size: int) -> None:
        self.entries = entries
        self.durable = durable
        self.size = size
        self.done = False
        self.stored = False
        self.waited = False
        self._latch = threading.Event()
        self._callbacks: list[Callable[[], None]] = []

    def finish(self, *, stored: bool) -> None:
        """The fate is decided: committed, or left to the backlog."""
        self.stored = stored
        self.done = True
        self.wake()
        for callback in self._callbacks:
            callback()

    def wake(self) -> None:
        """Let the waiter look at how things are."""
        self._latch.set()

    def sleep(self, seconds: float) -> None:
        """Wait to be woken, at most `seconds`."""
        self._latch.wait(seconds)
        self._latch.clear()

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once, from whatever thread; at once when it is done already."""
        self._callbacks.append(callback)
        if self.done:
            callback()


class GroupCommit:
    """Runs jobs through `write`, one group at a time.

    Args:
        write: commits entries or raises `StoreAway`; gets (entries, durable).
        on_away: told once each time the circuit opens, with the reason.
        on_lost: told how many entries were given up on because the backlog was full.
    """

    def __init__(
        self,
        write: Callable[[list[Any], bool], None],
        on_away: Callable[[Exception], None],
        on_lost: Callable[[int], None],
    ) -> None:
        self._write = write
        self._on_away = on_away
        self._on_lost = on_lost
        self._queue: deque[Job] = deque()
        self._leadership = threading.Lock()
        self._leader = 0
        self._backlog: deque[Job] = deque()
        self._backlog_size = 0
        self._away = False
        self._closing = False
        self._bell = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def away(self) -> bool:
        """Whether the circuit is open."""
        return self._away

    @property
    def waiting(self) -> tuple[int, int]:
        """How many entries wait for the store, and about how many bytes they are."""
        return sum(len(job.entries) for job in list(self._backlog)), self._backlog_size

    def submit(self, job: Job, *, wait: bool = True, lead: bool = True) -> None:
        """Hand a job over.

        Args:
            wait: return when its fate is decided. Else it is committed now only if nobody else
                commits; otherwise it goes with the next group.
            lead: whether this thread may do the writing. Else the background thread does.
        """
        job.waited = wait
        self._queue.append(job)
        if not lead:
            self._ring()
            return
        while not job.done:
            if self._leadership.acquire(blocking=False):
                self._lead_once()
            elif not wait or self._leader == threading.get_ident():
                return
            else:
                job.sleep(_LOOK_SECONDS)

    def flush(self, seconds: float) -> bool:
        """Commit all that waits, the backlog too, within about `seconds`; whether all is in."""
        deadline = time.monotonic() + seconds
        while self._queue or self._backlog:
            left = deadline - time.monotonic()
            if left <= 0 or self._leader == threading.get_ident():
                return False
            if not self._leadership.acquire(timeout=left):
                return False
            self._lead_once(retry=True)
            if self._away:
                time.sleep(min(_RETRY_SECONDS / 10, max(left, 0)))
        return True

    def alone(self, work: Callable[[], None]) -> None:
        """Run `work` while nobody else writes."""
        if self._leader == threading.get_ident():
            raise StoreAway("the store is being written by this very thread")
        with self._leadership:
            self._leader = threading.get_ident()
            try:
                work()
            finally:
                self._leader = 0
        self._hand_over()

    def close(self) -> None:
        """Let the background thread end."""
        self._closing = True
        self._bell.set()

    # --- the leader ---

    def _lead_once(self, *, retry: bool = False) -> None:
        """Write one group; the leadership is ours and is given back."""
        self._leader = threading.get_ident()
        try:
            if self._away and not retry:
                self._shelve_queue()
            elif not self._away or self._write_backlog():
                self._write_group()
        finally:
            self._leader = 0
            self._leadership.release()
            self._hand_over()

    def _write_group(self) -> None:
        jobs: list[Job] = []
        entries: list[Any] = []
        while self._queue and len(entries) < GROUP:
            jobs.append(self._queue.popleft())
            entries += jobs[-1].entries
        if not jobs:
            return
        try:
            self._write(entries, any(job.durable for job in jobs))
        except StoreAway as reason:
            self._open_circuit(reason)
            for job in jobs:
                self._shelve(job)
        except BaseException:
            # An interrupt of the agent's own: nothing was committed, the jobs are taken again.
            self._queue.extendleft(reversed(jobs))
            raise
        else:
            for job in jobs:
                job.finish(stored=True)

    def _hand_over(self) -> None:
        """Let somebody lead for what has come meanwhile."""
        for job in list(self._queue):
            if job.waited:
                job.wake()
                return
        if self._queue:
            self._ring()

    # --- while the store is away ---

    def _open_circuit(self, reason: Exception) -> None:
        if not self._away:
            self._away = True
            self._on_away(reason)
        self._ring()

    def _shelve_queue(self) -> None:
        while self._queue:
            self._shelve(self._queue.popleft())

    def _shelve(self, job: Job) -> None:
        self._backlog.append(job)
        self._backlog_size += job.size
        lost = 0
        while self._backlog_size > BACKLOG_BYTES and len(self._backlog) > 1:
            oldest = self._backlog.popleft()
            self._backlog_size -= oldest.size
            lost += len(oldest.entries)
        if lost:
            self._on_lost(lost)
        job.finish(stored=False)

    def _write_backlog(self) -> bool:
        """Try to write what waits, in order; whether the store is back."""
        while self._backlog:
            jobs: list[Job] = []
            entries: list[Any] = []
            for job in self._backlog:
                if entries and len(entries) + len(job.entries) > GROUP:
                    break
                jobs.append(job)
                entries += job.entries
            try:
                self._write(entries, any(job.durable for job in jobs))
            except StoreAway as reason:
                self._open_circuit(reason)
                return False
            for job in jobs:
                self._backlog.popleft()
                self._backlog_size -= job.size
        self._away = False
        return True

    # --- the background thread ---

    def _ring(self) -> None:
        self._bell.set()
        thread = self._thread
        if thread is not None and thread.is_alive():
            return
        thread = threading.Thread(target=self._serve, name="otel-taskhistory", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The interpreter shuts down: no thread starts any more. Then this thread writes what
            # it can; what it cannot is with the leader, who looks at the queue once more.
            if self._leadership.acquire(blocking=False):
                self._lead_once_quietly()
            return
        self._thread = thread

    def _lead_once_quietly(self) -> None:
        self._leader = threading.get_ident()
        try:
            if not self._away:
                self._write_group()
        finally:
            self._leader = 0
            self._leadership.release()

    def _serve(self) -> None:
        while not self._closing:
            self._bell.wait(_RETRY_SECONDS if self._away else None)
            self._bell.clear()
            try:
                while (self._queue or self._away) and not self._closing:
                    with_leadership = self._leadership.acquire(timeout=_LOOK_SECONDS)
                    if with_leadership:
                        self._lead_once(retry=True)
                    if self._away:
                        break
            except Exception:
                # Whatever it was, the next job must find a living thread.
                _logger.exception("otel-taskhistory: the background writer met an error")
