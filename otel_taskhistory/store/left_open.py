# SPDX-License-Identifier: Apache-2.0
"""Spans that a process left open in the history they were taken from, here as there.

That is known of a span by the row of ``_processes`` it names: its ``ended_ns`` is when the span was
interrupted. For imported spans such a row stands for a process that was never here (``pid`` 0).
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.settings import Settings
from otel_taskhistory.store.session import Session

TRACES: Final = 50
"""Traces that are read again in one transaction."""

_KNOWN: Final = "SELECT id FROM _processes WHERE pid = 0 AND host = '' AND ended_ns = ?"
_NEW: Final = """
INSERT INTO _processes (pid, host, started_ns, seen_ns, ended_ns)
VALUES (0, '', :ended, :ended, :ended)
"""
_MOVE: Final = """
UPDATE _spans SET process = ?
WHERE trace = (SELECT id FROM _traces WHERE trace_id = ?) AND span_id = ?
    AND (SELECT ended_ns FROM _processes WHERE id = process) IS NOT NULL
    AND (SELECT ended_ns FROM _processes WHERE id = process) IS NOT ?
"""
_ROWS: Final = """
SELECT id FROM _spans WHERE trace = (SELECT id FROM _traces WHERE trace_id = ?) ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """A span, and when its process had ended, ns since 1970."""

    trace_id: str
    span_id: str
    ended_ns: int


def call_interrupted(
    settings: Settings,
    spans: Sequence[LeftOpen],
    clock: Callable[[], int] = time.time_ns,
) -> None:
    """Call these spans interrupted at their times, if they are still open and nobody runs them.

    Args:
        settings: of a history that nobody in this process writes.
        spans: as they were in the history they come from.
        clock: ns since 1970.

    Raises:
        StoreAway: the history cannot be written now; what was done before is done.
    """
    of_trace: dict[str, list[LeftOpen]] = defaultdict(list)
    for span in spans:
        of_trace[span.trace_id].append(span)
    names = list(of_trace)
    session = Session(settings, None, clock)
    try:
        for start in range(0, len(names), TRACES):
            some = names[start : start + TRACES]

            def choose(connection: sqlite3.Connection, some: list[str] = some) -> list[int]:
                moved = [name for name in some if _move_all(connection, of_trace[name])]
                found = [connection.execute(_ROWS, (name,)).fetchall() for name in moved]
                return [row for rows in found for (row,) in rows]

            session.read_again(choose, wait=settings.busy_timeout)
    finally:
        session.close()


def _move_all(connection: sqlite3.Connection, spans: Sequence[LeftOpen]) -> int:
    """How many of the spans of a trace are interrupted at another time than before."""
    moved = 0
    for span in spans:
        known = connection.execute(_KNOWN, (span.ended_ns,)).fetchone()
        process = (
            known[0] if known else connection.execute(_NEW, {"ended": span.ended_ns}).lastrowid
        )
        values = (process, span.trace_id, span.span_id, span.ended_ns)
        moved += connection.execute(_MOVE, values).rowcount
    return moved
