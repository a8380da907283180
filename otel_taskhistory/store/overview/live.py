# SPDX-License-Identifier: Apache-2.0
"""What happened to a task since somebody last looked."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.store.gone import gone
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.overview.tasks import last_seq, read_task, row_of

CHANGED_STEPS: Final = 200
"""Changed steps that are told at once."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened to a task after a number of the timeline."""

    status: str
    seq: int
    """Up to here."""
    steps: tuple[tuple[str, int], ...]
    """(id, index) of each step that changed, in their order; the first `CHANGED_STEPS`."""
    step_count: int
    reset: bool
    """The number asked for is not of this history: all is to be read again."""


_CHANGED: Final = """
SELECT DISTINCT own.span_id, step.step_index FROM (
    SELECT span FROM _timeline WHERE task = :task AND seq > :after
) AS entry
JOIN _steps AS step ON step.span = entry.span JOIN _spans AS own ON own.id = step.span
WHERE step.task = :task ORDER BY step.step_index, own.span_id LIMIT :limit
"""


def changes_after(connection: sqlite3.Connection, task_id: str, after: int) -> Changes:
    """What happened after `after`, a ``seq`` of the timeline; 0 for all of it."""
    row = row_of(connection, find_task(connection, task_id))
    task = gone(connection).task(read_task(connection, row, 0, ()))
    seq = last_seq(connection, row)
    steps = []
    if seq > after:
        values = {"task": row, "after": after, "limit": CHANGED_STEPS}
        steps = connection.execute(_CHANGED, values).fetchall()
    return Changes(task.status, seq, tuple(steps), task.step_count, after > seq)
