# SPDX-License-Identifier: Apache-2.0
"""How much waits in memory for the store to come back, each string counted once.

A running span is recorded many times, and each time holds the prompt that it held before: the same
object. It takes its room once, until the last job that holds it has gone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol


class Sized(Protocol):
    """What waits."""

    shelved: bool
    """It is counted among what waits."""
    gone: bool
    """It waits no more, and must not be counted any more."""
    size: int
    """Bytes that only it holds."""
    texts: Mapping[int, int]
    """Bytes of long strings, which others may hold too, by identity."""


class Backlog:
    """Counts what waits; from any thread and signal handler."""

    def __init__(self) -> None:
        # Taken twice only by a signal handler, and then a size may be miscounted, no more.
        self._lock = threading.RLock()
        self._holders: dict[int, int] = {}
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """About how many bytes wait."""
        return self._bytes

    def add(self, job: Sized) -> None:
        """Count a job, unless it is counted, or gone: the thread may be faster than who waits."""
        with self._lock:
            if job.shelved or job.gone:
                return
            job.shelved = True
            self._bytes += job.size
            for text, size in job.texts.items():
                holders = self._holders.get(text, 0)
                self._holders[text] = holders + 1
                if not holders:
                    self._bytes += size

    def remove(self, job: Sized) -> None:
        """The job waits no more."""
        with self._lock:
            job.gone = True
            if not job.shelved:
                return
            job.shelved = False
            self._bytes -= job.size
            for text, size in job.texts.items():
                holders = self._holders.get(text, 0) - 1
                if holders > 0:
                    self._holders[text] = holders
                elif self._holders.pop(text, None) is not None:
                    self._bytes -= size
