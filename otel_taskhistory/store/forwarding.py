# SPDX-License-Identifier: Apache-2.0
"""What of a history is still to be sent to a destination, and how far it has got there.

The order is that of commits (see `otel_taskhistory.store.forward_tables`), so one number says how
far a destination has got. It lies in the history itself and moves in transactions of its own, which
are as small as can be: who writes is never kept waiting for more than one row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

HOLD_NS: Final = 7 * 24 * 3600 * 10**9
"""A hold ends so long after whoever asked for it was here last."""

_DUE: Final = """
SELECT change.change, own.id, own.size, own.end_ns IS NULL, process.ended_ns,
    owner.removed_ns IS NOT NULL OR trace.trace_id LIKE 'removed-%'
FROM _changes AS change
JOIN _spans AS own ON own.id = change.span
JOIN _traces AS trace ON trace.id = own.trace
LEFT JOIN _processes AS process ON process.id = own.process
LEFT JOIN _owners AS owner ON owner.id = own.task
WHERE change.change > ? ORDER BY change.change LIMIT ?
"""

_LEFT: Final = """
SELECT count(*), count(DISTINCT own.trace)
FROM _changes AS change
JOIN _spans AS own ON own.id = change.span
JOIN _traces AS trace ON trace.id = own.trace
LEFT JOIN _processes AS process ON process.id = own.process
LEFT JOIN _owners AS owner ON owner.id = own.task
WHERE change.change > ? AND owner.removed_ns IS NULL AND trace.trace_id NOT LIKE 'removed-%'
    AND (own.end_ns IS NOT NULL OR process.ended_ns IS NOT NULL)
"""

_LEFT_OPEN: Final = """
SELECT own.id, own.size, process.seen_ns
FROM _spans AS own JOIN _processes AS process ON process.id = own.process
LEFT JOIN _owners AS owner ON owner.id = own.task
WHERE own.process = ? AND own.end_ns IS NULL AND owner.removed_ns IS NULL ORDER BY own.id
"""

_FORWARD: Final = """
SELECT id, endpoint, policy, change, sent, refused, removed, told, begun_ns, seen_ns, hold_until_ns
FROM _forwards
"""

HELD_AFTER: Final = "(SELECT min(change) FROM _forwards WHERE hold_until_ns > ?)"
"""SQL: what changed after this number is held at a time; NULL when nothing is."""

HELD_TASK: Final = """
SELECT EXISTS (SELECT 1 FROM _spans AS own JOIN _changes AS change ON change.span = own.id
    WHERE own.task = ? AND change.change > ?)
"""
HELD_TRACE: Final = """
SELECT EXISTS (SELECT 1 FROM _spans AS own JOIN _changes AS change ON change.span = own.id
    WHERE own.trace = ? AND change.change > ?)
"""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where spans are sent, and as what.

    Attributes:
        endpoint: the URL without anything that may be secret.
        policy: what is let through.
    """

    endpoint: str
    policy: str


@dataclass(frozen=True, slots=True)
class Forward:
    """How far a destination has got.

    Attributes:
        change: all up to this number was acknowledged, or is not to be sent.
        sent: spans that were acknowledged, each time one was.
        refused: spans that the endpoint did not want.
        removed: spans that retention removed before they were sent.
        told: how many of those somebody was told of.
        begun_ns, seen_ns: when somebody forwarded there first and last; ns since 1970.
        hold_until_ns: until when what is not sent yet is held; None when it is not.
    """

    id: int
    endpoint: str
    policy: str
    change: int
    sent: int
    refused: int
    removed: int
    told: int
    begun_ns: int
    seen_ns: int
    hold_until_ns: int | None


@dataclass(frozen=True, slots=True)
class Due:
    """A span that is to be sent.

    Attributes:
        change: where it is in the order.
        span: its key in the ledger.
        size: about how many bytes of text it has.
        left_ns: when the process that left it open was seen last; None when it has ended itself.
    """

    change: int
    span: int
    size: int
    left_ns: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    """The next spans to be sent, in order.

    Attributes:
        due: none when only what is not to be sent is left, or nothing.
        up_to: all up to this number is in `due` or is not to be sent.
        more: whether there is something after that.
    """

    due: tuple[Due, ...]
    up_to: int
    more: bool


@dataclass(frozen=True, slots=True)
class Left:
    """What is still to be sent."""

    spans: int
    traces: int


def next_batch(connection: sqlite3.Connection, after: int, *, spans: int, size: int) -> Batch:
    """What comes after a number: at most so many spans, and about so many bytes but one span.

    Spans of removed tasks are passed over, and so are those that were taken for interrupted and run
    again: they come later, when they end.
    """
    due: list[Due] = []
    total = 0
    up_to = after
    for change, span, its_size, is_open, left_ns, removed in connection.execute(
        _DUE, (after, spans)
    ).fetchall():
        sendable = not removed and not (is_open and left_ns is None)
        if sendable and due and total + its_size > size:
            return Batch(tuple(due), up_to, more=True)
        up_to = change
        if sendable:
            total += its_size
            due.append(Due(change, span, its_size, left_ns if is_open else None))
    more = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM _changes WHERE change > ?)", (up_to,)
    ).fetchone()
    return Batch(tuple(due), up_to, bool(more[0]))


def last_change(connection: sqlite3.Connection) -> int:
    """The number of what was committed last; 0 when nothing was that can be sent."""
    return int(connection.execute("SELECT coalesce(max(change), 0) FROM _changes").fetchone()[0])


def left_open(connection: sqlite3.Connection, processes: Sequence[int]) -> list[Due]:
    """The spans that these processes have left open, as if they were called ended now.

    In the order that they would have then, numbered from 1; for somebody who may not write it.
    """
    due: list[Due] = []
    for process in processes:
        for row in connection.execute(_LEFT_OPEN, (process,)).fetchall():
            due.append(Due(len(due) + 1, *row))
    return due


def what_is_left(connection: sqlite3.Connection, after: int) -> Left:
    """How much is to be sent after a number; reads as many rows as there are."""
    return Left(*connection.execute(_LEFT, (after,)).fetchone())


def forwards(connection: sqlite3.Connection) -> list[Forward]:
    """All destinations that were ever sent to, in the order of their first time."""
    return [Forward(*row) for row in connection.execute(f"{_FORWARD} ORDER BY id").fetchall()]


def destinations(connection: sqlite3.Connection) -> list[tuple[Forward, Left]]:
    """All of them, each with what is still to be sent there."""
    found = forwards(connection)
    return [(forward, what_is_left(connection, forward.change)) for forward in found]


def forward_to(connection: sqlite3.Connection, destination: Destination) -> Forward | None:
    """How far a destination has got; None when nothing was ever sent there."""
    row = connection.execute(
        f"{_FORWARD} WHERE endpoint = ? AND policy = ?",
        (destination.endpoint, destination.policy),
    ).fetchone()
    return Forward(*row) if row else None


def begin(
    connection: sqlite3.Connection,
    destination: Destination,
    now_ns: int,
    *,
    hold: bool,
    again: bool = False,
) -> Forward:
    """Within a write transaction: somebody forwards to a destination from now on.

    Args:
        hold: hold what is not sent yet; a hold of an earlier time ends without it.
        again: send all that is there once more.

    Returns:
        How far it has got, as it was before.
    """
    connection.execute(
        "INSERT INTO _forwards (endpoint, policy, begun_ns, seen_ns) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (endpoint, policy) DO NOTHING",
        (destination.endpoint, destination.policy, now_ns, now_ns),
    )
    found = forward_to(connection, destination)
    assert found is not None
    if again:
        connection.execute("UPDATE _forwards SET change = 0 WHERE id = ?", (found.id,))
    seen(connection, found.id, now_ns, hold=hold)
    return replace(found, change=0) if again else found


def seen(connection: sqlite3.Connection, forward: int, now_ns: int, *, hold: bool) -> bool:
    """Within a write transaction: whoever forwards is still here; whether the row is.

    What was removed counts as told from now on.
    """
    done = connection.execute(
        "UPDATE _forwards SET seen_ns = ?, hold_until_ns = ?, told = removed WHERE id = ?",
        (now_ns, now_ns + HOLD_NS if hold else None, forward),
    ).rowcount
    return done > 0


def acknowledge(
    connection: sqlite3.Connection, forward: int, up_to: int, *, sent: int, refused: int
) -> None:
    """Within a write transaction: all up to a number has arrived, or is not to be sent again."""
    connection.execute(
        "UPDATE _forwards SET change = max(change, ?), sent = sent + ?, refused = refused + ?"
        " WHERE id = ?",
        (up_to, sent, refused, forward),
    )


def is_held(connection: sqlite3.Connection, task: int, after: int) -> bool:
    """Whether a task has something that is not sent yet.

    Args:
        task: its row; below zero for the trace of that number, which makes no task.
        after: what `HELD_AFTER` gave.
    """
    sql, row = (HELD_TASK, task) if task > 0 else (HELD_TRACE, -task)
    return bool(connection.execute(sql, (row, after)).fetchone()[0])
