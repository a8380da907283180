# SPDX-License-Identifier: Apache-2.0
"""How a history stands to its limits: what counts for them, what may not go, what is in the way."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.store import records, rules
from otel_taskhistory.store.holdings import look
from otel_taskhistory.store.times import iso

_COUNTS: Final = """
SELECT (SELECT count(*) FROM tasks WHERE pinned = 1),
    (SELECT count(*) FROM tasks WHERE pinned = 0 AND status = 'running' AND root IS NOT NULL),
    (SELECT count(*) FROM _owners WHERE removed_ns IS NOT NULL),
    (SELECT number FROM _totals WHERE name = 'unlinks'),
    (SELECT count(*) FROM _unlinks WHERE failures > 0),
    (SELECT number FROM _totals WHERE name = 'late')
"""

_COUNTED: Final = "SELECT name, number FROM _totals WHERE name IN ('agent', 'other')"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a history holds that limits are about, at one moment."""

    agent_tasks: int
    """Tasks of agents that count for ``max_tasks``: neither running nor pinned."""
    other_tasks: int
    """Likewise traces without an agent."""
    running: int
    pinned: int
    oldest_at: str | None
    """When the task that would go first was committed last; UTC, ISO 8601 with ``Z``."""
    content_bytes: int
    """Live pages and artifacts: what ``max_bytes`` is about."""
    unfinished: int
    """Removed tasks of which rows are left."""
    unlinks: int
    """Files that wait to be deleted."""
    undeletable: int
    """Those of them that could not be."""
    late_spans: int
    """Spans that came after their task was removed, and were dropped."""
    older_rules: int
    """Traces that were read by older rules than this version's; `reproject` reads them again."""
    blocked_at: str | None
    """When an agent said last, in the last hours, that a reader keeps space from coming back."""
    too_large_at: str | None
    """Likewise that all that may go is gone and the history is still too large."""


def standing(connection: sqlite3.Connection, clock: Callable[[], int] = time.time_ns) -> Standing:
    """How the history stands now."""
    now = clock()
    holding = look(connection, now).holding
    counted = dict(connection.execute(_COUNTED))
    pinned, running, unfinished, unlinks, undeletable, late = connection.execute(_COUNTS).fetchone()
    heads = [
        kept.oldest_ns for kept in (holding.other, holding.agent) if kept.oldest_ns is not None
    ]
    return Standing(
        agent_tasks=counted["agent"],
        other_tasks=counted["other"],
        running=running,
        pinned=pinned,
        oldest_at=iso(min(heads)) if heads else None,
        content_bytes=holding.content,
        unfinished=unfinished,
        unlinks=unlinks,
        undeletable=undeletable,
        late_spans=late,
        older_rules=rules.older_traces(connection),
        blocked_at=records.lately(connection, "blocked", now),
        too_large_at=records.lately(connection, "too_large", now),
    )
