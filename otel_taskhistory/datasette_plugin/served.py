# SPDX-License-Identifier: Apache-2.0
"""One history while it is served: readers in threads of their own, and its pictures."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from otel_taskhistory.datasette_plugin.pictures import Pictures
from otel_taskhistory.datasette_plugin.pool import Pool
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.settings import Settings

T = TypeVar("T")

READERS: Final = 4
"""Pages that are read at the same time; more of them wait."""


class Served:
    """What the pages of one history need.

    Args:
        settings: where the history is.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._pool = Pool(settings, READERS)
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self.pictures = Pictures(settings, self._pool)

    async def read(self, work: Callable[[TaskHistory], T]) -> T:
        """Run `work` in a thread, with the history opened for it alone.

        Raises:
            TaskHistoryError: the history cannot be opened; and what `work` raises.
        """

        def run() -> T:
            with self._pool.borrow() as history:
                return work(history)

        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(READERS, "taskhistory-page")
            threads = self._threads
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(threads, context.run, run)

    def close(self) -> None:
        """End the threads, and close the files; a later read begins anew."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(cancel_futures=True)
        self.pictures.close()
        self._pool.close()
