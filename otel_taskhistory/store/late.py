# SPDX-License-Identifier: Apache-2.0
"""Spans that come after their task was removed: they are dropped and counted.

Else a late span would bring half a task back. That a task was removed is remembered for a day, of
the last `otel_taskhistory.store.removal.REMEMBERED` ones.
"""

from __future__ import annotations

import sqlite3
from typing import Final

REMEMBERED_NS: Final = 24 * 3600 * 10**9

LATE: Final = """
SELECT 1 FROM _removed WHERE trace_id = ? AND span_id IN (?, ?) AND at_ns > ?
"""


class LateSpans:
    """Over the writer's connection; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def has_trace(self, trace_id: str, now_ns: int) -> bool:
        """Whether this trace, of which there is nothing, was removed."""
        return self._is_removed(trace_id, "", "", now_ns)

    def has_span(
        self, trace_id: str, span_id: str, parent_span_id: str | None, now_ns: int
    ) -> bool:
        """Whether this span, or the one above it, was removed while its trace stayed."""
        if not self._is_removed(trace_id, span_id, parent_span_id or span_id, now_ns):
            return False
        # So that those below it are told too.
        self._connection.execute(
            "INSERT INTO _removed (trace_id, span_id, at_ns) VALUES (?, ?, ?)"
            " ON CONFLICT (trace_id, span_id) DO NOTHING",
            (trace_id, span_id, now_ns),
        )
        return True

    def _is_removed(self, trace_id: str, one: str, other: str, now_ns: int) -> bool:
        values = (trace_id, one, other, now_ns - REMEMBERED_NS)
        if self._connection.execute(LATE, values).fetchone() is None:
            return False
        self._connection.execute("UPDATE _totals SET number = number + 1 WHERE name = 'late'")
        return True
