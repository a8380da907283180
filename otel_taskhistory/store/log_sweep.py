# SPDX-License-Identifier: Apache-2.0
"""Removes log records whose span never came, a bounded bit at a time, and says how many."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import Final

from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.log_removal import Taken, take_overdue
from otel_taskhistory.store.removal import BATCH, Remover
from otel_taskhistory.store.unlinks import Unlinks

_logger = logging.getLogger("otel_taskhistory")

_LOOK_AFTER_NS: Final = 600 * 10**9
_LOOK_AFTER_LOGS: Final = 1000
_WAIT: Final = 0.1  # seconds, for another writer: it can be done later
_PER_LOG: Final = 20
"""Rows that may go with one record: itself, its messages and texts."""


class LogSweep:
    """Over the writer's connection; no transaction is open whenever a method is called.

    Args:
        database: the writer's.
        folder: the artifacts.
        clock: ns since 1970.
        tell: appends to the timeline, within the transaction, what was lost.
    """

    def __init__(
        self,
        database: Database,
        folder: ArtifactFolder,
        clock: Callable[[], int],
        tell: Callable[[dict[str, object]], None],
    ) -> None:
        self._database = database
        self._folder = folder
        self._clock = clock
        self._tell = tell
        self._remover: Remover | None = None
        self._looked_ns = 0
        self._written = 0

    def step(self, written: int) -> None:
        """Look whether anything is due, every now and then.

        Whatever goes wrong is logged; the next look is as far away as if it had gone well.

        Args:
            written: how many records that wait were written since the last call.
        """
        self._written += written
        now = self._clock()
        if self._written < _LOOK_AFTER_LOGS and abs(now - self._looked_ns) < _LOOK_AFTER_NS:
            return
        self._looked_ns, self._written = now, 0
        try:
            with self._database.transaction(wait=_WAIT) as connection:
                taken = take_overdue(connection, now, BATCH)
                if taken.logs:
                    self._drop(connection, taken)
        except Exception as error:
            _logger.warning(
                "otel-taskhistory: log records without a span could not be looked for (%s)",
                type(error).__name__,
            )
            return
        if taken.logs == BATCH:  # there may be more: with the next write
            self._looked_ns = 0

    def _drop(self, connection: sqlite3.Connection, taken: Taken) -> None:
        if self._remover is None:
            self._remover = Remover(connection, Unlinks(connection, self._folder, self._clock))
        self._remover.left = _PER_LOG * taken.logs
        self._remover.drop_unneeded(taken.nodes, taken.contents, ())
        self._tell({"reason": "log records whose span never came", "logs": taken.logs})
