# SPDX-License-Identifier: Apache-2.0
"""Pictures of running tasks, the only thing of theirs that may go before they end.

When all that may go is gone and the history is still larger than allowed, it is the running (or
pinned) tasks that fill it. Running ones are kept; but files of screenshots that their finished
steps took go, the oldest first. The row of such a screenshot stays, with the status ``removed`` and
without a path. Pictures that are part of a prompt or result stay, as these are kept whole.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from otel_taskhistory.store.removal import Remover

REMOVED: Final = "removed"
"""``screenshots.status`` of a picture whose file had to go before its task."""

_AT_A_TIME: Final = 64
_TASKS: Final = 100

RUNNING: Final = "SELECT task_id FROM tasks WHERE status = 'running' ORDER BY started_ns LIMIT ?"

SHOTS: Final = """
SELECT shot.id, shot.artifact, shot.role = 'screenshot', coalesce(step.status, 'running')
FROM screenshots AS shot INDEXED BY screenshots_kept
LEFT JOIN _steps AS step ON step.span = shot.span
WHERE shot.task_id = ? AND shot.id > ? AND shot.artifact IS NOT NULL
ORDER BY shot.id LIMIT ?
"""


class RunningPictures:
    """Over the writer's connection."""

    def __init__(self, connection: sqlite3.Connection, remover: Remover) -> None:
        self._connection = connection
        self._remover = remover
        self._done: dict[str, int] = {}
        """By task the screenshot up to which nothing more can go."""

    def has_any(self) -> bool:
        """Whether there are pictures to look at; needs no transaction."""
        return any(self._next(task_id, 1) for task_id in self._running())

    def drop_some(self) -> bool:
        """Within a transaction, remove the oldest few; whether any went."""
        dropped = False
        for task_id in self._running():
            waits = False
            for shot, artifact, is_screenshot, status in self._next(task_id, _AT_A_TIME):
                if is_screenshot and status == "running":
                    waits = True  # and is looked at again, with what comes after it
                    continue
                if is_screenshot and self._remover.is_only_used_by(artifact, shot):
                    self._drop(shot, artifact)
                    dropped = True
                if not waits:
                    self._done[task_id] = shot
            if dropped:
                break
        return dropped

    def _drop(self, shot: int, artifact: int) -> None:
        self._connection.execute(
            "UPDATE screenshots SET status = ?, path = NULL, artifact = NULL WHERE id = ?",
            (REMOVED, shot),
        )
        self._remover.drop_unneeded((), (), [artifact])

    def _running(self) -> list[str]:
        found = [row[0] for row in self._connection.execute(RUNNING, (_TASKS,)).fetchall()]
        self._done = {task: done for task, done in self._done.items() if task in found}
        return found

    def _next(self, task_id: str, limit: int) -> list[Any]:
        done = self._done.get(task_id, 0)
        return self._connection.execute(SHOTS, (task_id, done, limit)).fetchall()
