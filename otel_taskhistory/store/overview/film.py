# SPDX-License-Identifier: Apache-2.0
"""The pictures of a task, part by part."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.store import details
from otel_taskhistory.store.columns import columns, from_row
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.overview.steps import (
    CURSOR,
    FIRST_ID,
    FIRST_INDEX,
    STEPS_AT_ONCE,
    rows_near,
)
from otel_taskhistory.store.overview.tasks import row_of
from otel_taskhistory.store.views import Screenshot


@dataclass(frozen=True, slots=True)
class Film:
    """Pictures of a part of a task's steps, in order; `after` is the cursor of the next part."""

    pictures: tuple[tuple[int | None, Screenshot], ...]
    """(index of the step, picture); of equal ones in a row the first."""
    after: str | None


_STEP_PLACES: Final = """
SELECT own.span_id, step.step_index FROM _steps AS step JOIN _spans AS own ON own.id = step.span
WHERE step.task = :task AND step.step_index >= :index
    AND (step.step_index > :index OR own.span_id > :step)
ORDER BY step.step_index, own.span_id LIMIT :limit
"""


def film(
    connection: sqlite3.Connection, task_id: str, cursor: str | None, limit: int = STEPS_AT_ONCE
) -> Film:
    """The pictures of up to `limit` steps; `cursor` is `Film.after` of the part before."""
    task_id = find_task(connection, task_id)
    row = row_of(connection, task_id)
    found = CURSOR.fullmatch(cursor) if cursor is not None else None
    if cursor is not None and (found is None or found[1]):
        raise SettingsError(f"cursor={cursor!r} is none of this list")
    position = (FIRST_INDEX, FIRST_ID) if found is None else (int(found[2]), found[3])
    steps = rows_near(connection, _STEP_PLACES, row, position, limit + 1)
    pictures: list[tuple[int | None, Screenshot]] = []
    if cursor is None:
        loose = connection.execute(
            f"SELECT {columns(Screenshot)} FROM screenshots WHERE task_id = ? AND step_id IS NULL"
            " ORDER BY captured_at, id LIMIT ?",
            (task_id, limit),
        )
        pictures += [(None, from_row(Screenshot, shot)) for shot in loose]
    for step_id, index in steps[:limit]:
        own = details.screenshots(connection, task_id, step_id)
        pictures += [(index, shot) for shot in own]
    shown: list[tuple[int | None, Screenshot]] = []
    for one in pictures:
        if not shown or shown[-1][1].sha256 != one[1].sha256:
            shown.append(one)
    after = f"{steps[limit - 1][1]}.{steps[limit - 1][0]}" if len(steps) > limit else None
    return Film(tuple(shown), after)
