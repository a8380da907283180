# SPDX-License-Identifier: Apache-2.0
"""What there is that limits are about, found by a few index look-ups whatever there is."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from heapq import merge
from typing import Final

from otel_taskhistory.store.bookkeeping import FINISHED, ROOTLESS
from otel_taskhistory.store.forwarding import HELD_AFTER, is_held
from otel_taskhistory.store.retention import (
    KINDS,
    Candidate,
    Choice,
    Holding,
    Kept,
    Kind,
    Limits,
    choose,
    is_stale,
)
from otel_taskhistory.store.space import live_bytes
from otel_taskhistory.store.wall import LATEST, SINCE, Doubt, doubt

HALVES: Final = ((FINISHED, "tasks_finished"), (ROOTLESS, "tasks_rootless"))
"""Which tasks count, and the index that holds them, oldest first."""


def _head(kind: Kind, half: tuple[str, str]) -> str:
    which, index = half
    return (
        f"SELECT committed_ns FROM tasks INDEXED BY {index} WHERE kind = '{kind}' AND {which}"
        " ORDER BY committed_ns, id LIMIT 1"
    )


LOOK: Final = f"""
SELECT other.number, other.bytes,
    ({_head("other", HALVES[0])}), ({_head("other", HALVES[1])}),
    agent.number, agent.bytes, ({_head("agent", HALVES[0])}), ({_head("agent", HALVES[1])}),
    {LATEST}, {SINCE},
    (SELECT min(id) FROM _owners WHERE removed_ns IS NOT NULL),
    coalesce((SELECT min(node) FROM _loose_nodes), (SELECT min(artifact) FROM _loose_artifacts)),
    (SELECT min(due_ns) FROM _unlinks), artifacts.bytes, (SELECT min(committed_ns) FROM _sides),
    {HELD_AFTER}
FROM _totals AS other, _totals AS agent, _totals AS artifacts
WHERE other.name = 'other' AND agent.name = 'agent' AND artifacts.name = 'artifacts'
"""

OLDEST: Final = """
SELECT id, committed_ns FROM tasks INDEXED BY {index} WHERE kind = ? AND {which}
ORDER BY committed_ns, id LIMIT ?
"""

OLDEST_SIDES: Final = """
SELECT -trace, committed_ns FROM _sides ORDER BY committed_ns, trace LIMIT ?
"""

SIDES: Final = """
SELECT own.trace_id, 'other', NULL, side.committed_ns, owner.bytes, -side.trace
FROM _sides AS side JOIN _owners AS owner ON owner.id = -side.trace
JOIN _traces AS own ON own.id = side.trace ORDER BY side.committed_ns, side.trace
"""

CANDIDATES: Final = """
SELECT task_id, kind, goal, committed_ns, bytes, id FROM tasks INDEXED BY {index}
WHERE kind = ? AND {which} ORDER BY committed_ns, id
"""


@dataclass(frozen=True, slots=True)
class Look:
    """All that decides whether there is anything to do."""

    holding: Holding
    doubt: Doubt | None
    """What is to be done about the clock."""
    owner: int | None
    """A removed task of which rows are left."""
    loose: bool
    """Whether there are rows to be looked at that nobody may need."""
    unlink_ns: int | None
    """When the next file is to be removed."""
    artifacts: int
    """Bytes."""


def look(connection: sqlite3.Connection, now_ns: int) -> Look:
    """What there is."""
    row = connection.execute(LOOK, (now_ns,)).fetchone()
    holding = Holding(
        now_ns,
        Kept(row[0], row[1], _first(row[2], row[3], now_ns, row[14])),
        Kept(row[4], row[5], _first(row[6], row[7], now_ns)),
        live_bytes(connection) + row[13],
        row[15],
    )
    unsure = doubt(row[8], row[9], now_ns)
    return Look(holding, unsure, row[10], row[11] is not None, row[12], row[13])


def _first(
    finished: int | None, rootless: int | None, now_ns: int, side: int | None = None
) -> int | None:
    if rootless is not None and not is_stale(rootless, now_ns):
        rootless = None
    return min((ns for ns in (finished, rootless, side) if ns is not None), default=None)


def oldest(
    connection: sqlite3.Connection, kind: Kind, now_ns: int, without: Collection[int] = ()
) -> tuple[int, int] | None:
    """(row, last commit) of the task of this kind that goes first; None when none may go.

    The row is below zero for the trace of that number, which makes no task.
    """
    heads: list[tuple[int, int]] = []
    if kind == "other":
        sides = connection.execute(OLDEST_SIDES, (len(without) + 1,)).fetchall()
        heads += [(committed, side) for side, committed in sides if side not in without][:1]
    for which, index in HALVES:
        rows = connection.execute(
            OLDEST.format(which=which, index=index), (kind, len(without) + 1)
        ).fetchall()
        heads += [
            (committed, task)
            for task, committed in rows
            if task not in without and (which == FINISHED or is_stale(committed, now_ns))
        ][:1]
    if not heads:
        return None
    committed, task = min(heads)
    return task, committed


def choice(
    connection: sqlite3.Connection,
    limits: Limits,
    holding: Holding,
    without: Collection[int] = (),
) -> Choice | None:
    """As `choose`, but with what is held; that is looked up only when it matters."""
    chosen = choose(limits, holding)
    if chosen is None or chosen.reason == "max_bytes" or holding.held_after is None:
        return chosen
    for kind in KINDS:
        head = oldest(connection, kind, holding.now_ns, without)
        held = head is not None and is_held(connection, head[0], holding.held_after)
        holding = holding.with_(kind, replace(holding.of(kind), held=held))
    return choose(limits, holding)


def candidates(connection: sqlite3.Connection, kind: Kind, now_ns: int) -> Iterator[Candidate]:
    """The tasks of this kind that may go, oldest first; read as they are asked for."""
    (after,) = connection.execute(f"SELECT {HELD_AFTER}", (now_ns,)).fetchone()
    finished, rootless = (
        _read(connection, after, CANDIDATES.format(which=which, index=index), kind)
        for which, index in HALVES
    )
    stale = (found for found in rootless if is_stale(found.committed_ns, now_ns))
    sides = _read(connection, after, SIDES) if kind == "other" else iter(())
    return merge(sides, finished, stale, key=lambda found: found.committed_ns)


def _read(
    connection: sqlite3.Connection, held_after: int | None, sql: str, *values: str
) -> Iterator[Candidate]:
    for row in connection.execute(sql, values):
        held = held_after is not None and is_held(connection, row[5], held_after)
        yield Candidate(row[0], row[1], row[2], row[3], row[4], held)


def all_candidates(connection: sqlite3.Connection, now_ns: int) -> dict[Kind, Iterator[Candidate]]:
    """`candidates` of each kind."""
    return {kind: candidates(connection, kind, now_ns) for kind in KINDS}
