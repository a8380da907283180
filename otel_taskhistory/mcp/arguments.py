# SPDX-License-Identifier: Apache-2.0
"""What a model may ask with: one of several words, a time, a step by number or id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from otel_taskhistory.errors import TaskNotFound
from otel_taskhistory.store.ids import find_step, find_task
from otel_taskhistory.store.overview.steps import step_list
from otel_taskhistory.store.times import LATEST_NS
from otel_taskhistory.units import bad_value, parse_moment

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_ID: Final = 64
_DIGITS: Final = 10  # a longer row of digits is an id of a step, not a number


def one_of(what: str, value: str | None, known: Sequence[str]) -> str | None:
    """A word, which must be one of those that are known; None when it was not given.

    Raises:
        SettingsError: it is not.
    """
    if value is not None and value not in known:
        raise bad_value(what, value, "is not known", f"use one of {', '.join(known)}")
    return value


def moment_ns(what: str, text: str | None) -> int | None:
    """A time as ns since 1970, as `parse_moment` reads it; UTC unless it says a zone."""
    if text is None:
        return None
    ns = (parse_moment(text, UTC, name=what) - _EPOCH) // timedelta(microseconds=1) * 1000
    return min(max(ns, 0), LATEST_NS)


def find_numbered(connection: Any, typed_task: str, step: int | str) -> tuple[str, str]:
    """(task id, step id) of a number or an id.

    Raises:
        TaskNotFound: there is no such task or step, or several.
    """
    task_id = find_task(connection, typed_task)
    wanted = str(step).strip()
    if len(wanted) > _LONGEST_ID:
        raise TaskNotFound(f"no step has an id of {len(wanted):,} characters")
    if not (wanted.lstrip("-").isdecimal() and wanted.isascii() and len(wanted) < _DIGITS):
        return find_step(connection, wanted, task_id)
    number = int(wanted)
    page = step_list(connection, task_id, f"from:{number}.0", 4)
    same = [line.step for line in page.lines if line.step.step_index == number]
    if len(same) == 1:
        return task_id, same[0].step_id
    if same:
        ids = ", ".join(one.step_id for one in same)
        raise TaskNotFound(
            f"several steps of task {task_id} have the number {number}: ask by {ids}"
        )
    if page.total and len(wanted) >= 4:
        return find_step(connection, wanted, task_id)
    raise TaskNotFound(f"task {task_id} has no step {number}: it has {page.total} steps")
