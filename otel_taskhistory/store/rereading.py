# SPDX-License-Identifier: Apache-2.0
"""Spans of the ledger read again with the dialects there are now, and the log records there are.

What follows from them is brought up to date as if they had just come; nothing is told twice to the
timeline. A span keeps its reading when it cannot be read as it was: its attributes could not be
stored when it came, or a picture of it has gone.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_taskhistory import conventions
from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from otel_taskhistory.store.ledger import Ledger, Written
from otel_taskhistory.store.log_owners import LogOwners
from otel_taskhistory.store.logs import Logs
from otel_taskhistory.store.projection import Projection
from otel_taskhistory.store.readback import Readback, ReadSpan
from otel_taskhistory.store.rebuild import ReadArtifact
from otel_taskhistory.store.recovery import reapply

NOT_UNDERSTOOD: Final = "meaning"
"""Mark of a span that made a dialect fail."""

_REDUCED: Final = "reduced"
"""Mark of a span of which only identity, structure and times could be stored."""


@dataclass(frozen=True, slots=True)
class Read:
    """A reading: what a span means, and what was in the way, if anything."""

    facts: SpanFacts
    error: Exception | None = None


def read(record: SpanRecord, logs: Sequence[LogRecord] = ()) -> Read:
    """What a span means; a dialect that fails costs the meaning, not the span."""
    try:
        return Read(conventions.read(record, logs))
    except Exception as error:
        # It can be found out later, by `reproject`, with a version whose dialects do better.
        return Read(conventions.unknown(record), error)


class Rereader:
    """Over the writer's connection; a transaction is open whenever a method runs.

    Args:
        connection: the writer's.
        ledger, logs, projection: likewise.
        artifact: the bytes of a picture.
        put: called with each reading before it is taken into account.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        ledger: Ledger,
        logs: Logs,
        projection: Projection,
        artifact: ReadArtifact,
        put: Callable[[SpanFacts], None],
    ) -> None:
        self._connection = connection
        self._ledger = ledger
        self._logs = logs
        self._projection = projection
        self._artifact = artifact
        self._put = put

    def readback(self) -> Readback:
        """What reads spans of this transaction; keeps texts, so take one for several spans."""
        return Readback(self._connection, self._artifact)

    def spans(self, rows: Iterable[int]) -> list[Exception]:
        """Read these spans again; what was in the way of understanding any."""
        source = self.readback()
        return [error for row in rows if (error := self.span(row, source)) is not None]

    def span(self, row: int, source: Readback) -> Exception | None:
        """Read one span again; what was in the way of understanding it.

        Raises:
            Exception: the reading cannot be stored.
        """
        known = source.span(row)
        if known is None or known.missing or _REDUCED in known.marks:
            return None
        record = known.record
        owners = LogOwners(self._connection, source)
        logs = owners.logs_of(record) if self._logs.any else []
        reading = read(record, logs)
        if reading.error is not None:
            return reading.error  # what was found out before stays
        self._take(known, reading.facts)
        return None

    def _take(self, known: ReadSpan, facts: SpanFacts) -> None:
        self._put(facts)
        before = self._ledger.reread(
            known.row, facts, known.marks - {NOT_UNDERSTOOD}, self._projection.process
        )
        written = Written(known.row, known.trace, new=False, changed=True, known=before)
        record = known.record
        if known.interrupted_ns is not None:
            record, facts = _interrupted(record, facts, known.interrupted_ns)
        self._projection.apply(record, facts, written)


_AMONG: Final = "IN (SELECT value FROM json_each(?))"

_DUE: Final = f"""
SELECT 1 FROM tasks AS task JOIN _processes AS own ON own.id = task.process
WHERE task.trace {_AMONG} AND task.root IS NULL AND task.status = 'running'
    AND own.ended_ns IS NOT NULL LIMIT 1
"""


class Kept:
    """When the tasks of some traces were committed last, and by whom, to be put back at the end.

    Likewise for traces that have no task.

    Args:
        connection: the writer's, in a transaction.
        spans: rows of spans of these traces.
    """

    def __init__(self, connection: sqlite3.Connection, spans: Sequence[int]) -> None:
        self._connection = connection
        found = connection.execute(
            f"SELECT DISTINCT trace FROM _spans WHERE id {_AMONG}", (json.dumps(list(spans)),)
        )
        self._traces = json.dumps([row[0] for row in found.fetchall()])
        self._known: dict[int, tuple[int, int | None]] = {}
        self._latest: dict[int, tuple[int, int | None]] = {}
        """Of each trace that has tasks, that of the task which was committed last."""
        self._sides: dict[int, int] = dict(self._side_traces())
        for task, trace, committed, process in self._tasks():
            kept = (committed, process)
            self._known[task] = kept
            self._latest[trace] = max(kept, self._latest.get(trace, kept), key=lambda one: one[0])

    def put_back(self) -> None:
        """To be called when the tasks have been made anew."""
        for task, trace, committed, process in self._tasks():
            kept = self._known.get(task) or self._latest.get(trace)
            if kept is None:  # the trace was no task so far
                kept = (self._sides.get(trace) or self._seen(trace), process)
            if kept != (committed, process):
                self._connection.execute(
                    "UPDATE tasks SET committed_ns = ?, process = ? WHERE id = ?", (*kept, task)
                )
        for trace, committed in self._side_traces():
            latest = self._latest.get(trace)
            was = self._sides.get(trace) or (latest[0] if latest is not None else self._seen(trace))
            if was != committed:
                self._connection.execute(
                    "UPDATE _sides SET committed_ns = ? WHERE trace = ?", (was, trace)
                )
        # Without a root a task does not say by itself that it was interrupted.
        if self._connection.execute(_DUE, (self._traces,)).fetchone() is not None:
            reapply(self._connection)

    def _tasks(self) -> list[tuple[int, int, int, int | None]]:
        found = self._connection.execute(
            f"SELECT id, trace, committed_ns, process FROM tasks WHERE trace {_AMONG}",
            (self._traces,),
        )
        return found.fetchall()

    def _side_traces(self) -> list[tuple[int, int]]:
        """(trace, when it was committed last) of those that have no task."""
        return self._connection.execute(
            f"SELECT trace, committed_ns FROM _sides WHERE trace {_AMONG}", (self._traces,)
        ).fetchall()

    def _seen(self, trace: int) -> int:
        found = self._connection.execute(
            "SELECT max(seen_ns) FROM _spans WHERE trace = ?", (trace,)
        )
        return int(found.fetchone()[0])


def _interrupted(
    record: SpanRecord, facts: SpanFacts, ended_ns: int
) -> tuple[SpanRecord, SpanFacts]:
    """What a span that ran, and its calls, became when its process ended; see `recovery`."""
    calls = tuple(
        replace(call, status="interrupted", ended_ns=ended_ns) if call.status == "running" else call
        for call in facts.model_calls
    )
    if facts.status == "running":
        record, facts = replace(record, end_ns=ended_ns), replace(facts, status="interrupted")
    return record, replace(facts, model_calls=calls)
