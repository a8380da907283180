# SPDX-License-Identifier: Apache-2.0
"""What a page of a running task asks for about once a second."""

from __future__ import annotations

from typing import Any

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.store.overview.live import CHANGED_STEPS, changes_after


def changes(history: TaskHistory, task_id: str, after: int | str | None) -> dict[str, Any]:
    """What happened to a task after a number of the timeline.

    Returns:
        ``status``, ``ended``; ``seq``, the number to ask with next; ``steps``, [id, index] of
        those that changed; ``more`` of them than are named; ``step_count``; ``reset`` when the
        number asked with is not of this history.

    Raises:
        TaskNotFound: there is no such task.
        SettingsError: `after` is no number.
    """
    try:
        number = int(after or 0)
    except ValueError:
        raise SettingsError(f"after={after!r} is no number of the timeline") from None
    found = history.read(lambda c: changes_after(c, task_id, min(number, 2**62)))
    return {
        "status": found.status,
        "ended": found.status != "running",
        "seq": found.seq,
        "steps": [list(step) for step in found.steps],
        "more": len(found.steps) >= CHANGED_STEPS,
        "step_count": found.step_count,
        "reset": found.reset,
    }
