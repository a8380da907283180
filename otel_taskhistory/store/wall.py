# SPDX-License-Identifier: Apache-2.0
"""The time of a history: it never goes back, whatever the clock of the machine does.

Tasks go in the order of their last commits, and by their age. A machine that starts without a
clock says 1970 until somebody tells it the time; one whose clock was ahead goes back when that is
noticed. So a commit counts as no earlier than the one before it. That keeps the order right in both
cases. In the second such times would be ahead for years, and nothing would ever be old: when the
clock has said for a day that they are in the future, they become those of the present.
"""

from __future__ import annotations

import sqlite3
from typing import Final, Literal

from otel_taskhistory.store.bookkeeping import FINISHED

FUTURE_NS: Final = 3600 * 10**9
"""A commit that is later than now by more than this was made while the clock was ahead, or the
clock is behind now."""

BELIEVED_NS: Final = 24 * 3600 * 10**9
"""For so long a clock must say so to be believed: one that is behind is set right before that."""

_AT_A_TIME: Final = 500
_BEHIND: Final = "clock_behind_ns"

LATEST: Final = "max({})".format(
    ", ".join(
        f"coalesce((SELECT committed_ns FROM tasks INDEXED BY tasks_finished WHERE kind = '{kind}'"
        f" AND {FINISHED} ORDER BY committed_ns DESC, id DESC LIMIT 1), 0)"
        for kind in ("agent", "other")
    )
)
"""SQL: the last commit of the task that was committed last; two look-ups."""

SINCE: Final = "(SELECT CAST(value AS INTEGER) FROM _meta WHERE key = 'clock_behind_ns')"
"""SQL: since when the clock has been behind that."""

_SET_RIGHT: Final = f"""
UPDATE tasks SET committed_ns = ? WHERE id IN (
    SELECT id FROM tasks INDEXED BY tasks_finished
    WHERE kind = ? AND {FINISHED} AND committed_ns > ? LIMIT {_AT_A_TIME})
"""

Doubt = Literal["note", "forget", "believe"]


def no_earlier(connection: sqlite3.Connection, now_ns: int) -> int:
    """The time of a commit that is made now."""
    return max(now_ns, latest(connection))


def latest(connection: sqlite3.Connection) -> int:
    """The last commit of the task that was committed last: no later one counts as earlier."""
    found: int = connection.execute(f"SELECT {LATEST}").fetchone()[0]
    return found


def doubt(latest_ns: int, since_ns: int | None, now_ns: int) -> Doubt | None:
    """What is to be done about a clock that is behind, or was.

    Args:
        latest_ns: what `LATEST` gives.
        since_ns: what `SINCE` gives.
    """
    if latest_ns <= now_ns + FUTURE_NS:
        return None if since_ns is None else "forget"
    if since_ns is None or now_ns < since_ns:
        return "note"
    return "believe" if now_ns - since_ns >= BELIEVED_NS else None


def settle(connection: sqlite3.Connection, what: Doubt, now_ns: int) -> None:
    """Within a transaction, do it; what is too much for one is left to the next."""
    execute = connection.execute
    if what == "note":
        execute(
            "INSERT INTO _meta (key, value) VALUES ('clock_behind_ns', ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(now_ns),),
        )
    elif what == "forget":
        execute("DELETE FROM _meta WHERE key = 'clock_behind_ns'")
    else:
        for kind in ("agent", "other"):
            execute(_SET_RIGHT, (now_ns, kind, now_ns + FUTURE_NS))
