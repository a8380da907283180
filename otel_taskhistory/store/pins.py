# SPDX-License-Identifier: Apache-2.0
"""Pins of tasks that come from another history: set before the task is there, so it cannot go."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from otel_taskhistory.settings import Settings
from otel_taskhistory.store.pruning import NO_LIMITS, keeping


def pin_coming(settings: Settings, task_id: str, clock: Callable[[], int] = time.time_ns) -> None:
    """Pin a task of a history, also one that is still to come.

    Args:
        settings: of a history that is there.
        task_id: whole.
        clock: ns since 1970.

    Raises:
        TaskHistoryError: the history cannot be written.
    """
    with (
        keeping(replace(settings, retention=NO_LIMITS), clock) as (database, _),
        database.transaction() as connection,
    ):
        connection.execute(
            "INSERT INTO _pins (task_id, at_ns) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (task_id, clock()),
        )
        connection.execute("UPDATE tasks SET pinned = 1 WHERE task_id = ?", (task_id,))
