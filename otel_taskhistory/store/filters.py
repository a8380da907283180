# SPDX-License-Identifier: Apache-2.0
"""What a caller asks of a list of tasks, checked: a bad value is an error, never another list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from otel_taskhistory.errors import SettingsError
from otel_taskhistory.store.reader import TaskFilter
from otel_taskhistory.store.times import LATEST_NS

STATUSES: Final = ("running", "succeeded", "failed", "cancelled", "interrupted")
KINDS: Final = ("agent", "other")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST: Final = 2**31


def task_filter(
    status: str | None,
    since: datetime | str | None,
    until: datetime | str | None,
    agent: str | None,
    kind: str | None,
) -> TaskFilter:
    """Which tasks are asked for.

    Args:
        status: one of `STATUSES`; None for all.
        since, until: a datetime with a zone, or ISO 8601 with one.
        agent: exactly this name.
        kind: one of `KINDS`; None for both.

    Raises:
        SettingsError: an argument makes no sense.
    """
    for name, value, known in (("status", status, STATUSES), ("kind", kind, KINDS)):
        if value is not None and value not in known:
            raise SettingsError(f"{name}={value!r} is none of {', '.join(known)}")
    return TaskFilter(status, moment_ns("since", since), moment_ns("until", until), agent, kind)


def moment_ns(name: str, moment: datetime | str | None) -> int | None:
    """A time as ns since 1970; without a zone nobody knows which moment it is.

    Raises:
        SettingsError: it is none, or has no zone.
    """
    if moment is None:
        return None
    try:
        read = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise SettingsError(
            f"{name}={moment!r} is no time: use ISO 8601, e.g. 2026-11-30T12:00:00Z"
        ) from None
    if not isinstance(read, datetime) or read.tzinfo is None:
        raise SettingsError(
            f"{name}={moment!r} has no time zone: add one, e.g. 2026-11-30T12:00:00Z"
        )
    ns = (read - _EPOCH) // timedelta(microseconds=1) * 1000
    return min(max(ns, 0), LATEST_NS)  # no task began outside of these


def row_limit(limit: int) -> int:
    """How many rows are asked for.

    Raises:
        SettingsError: it is no number of rows.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise SettingsError(f"limit={limit!r} is no number of rows: use one from 1")
    return min(limit, _MOST)
