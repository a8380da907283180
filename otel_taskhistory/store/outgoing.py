# SPDX-License-Identifier: Apache-2.0
"""A history's ledger as records, for whoever takes it elsewhere: one span in memory at a time.

The order is always the same, whatever the order in which the spans came: by start, then by id; log
records by time, then by what they say. Pictures within messages are put back where they were, so a
record is what was recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from otel_taskhistory.spans.record import LogRecord, SpanRecord
from otel_taskhistory.store.readback import Readback, ReadLog, ReadSpan
from otel_taskhistory.store.rebuild import ReadArtifact

_IN_ORDER = "ORDER BY CAST(start_ns AS INTEGER), span_id"
_OF_TASK = f"""
SELECT id FROM _spans WHERE task = (SELECT id FROM tasks WHERE task_id = ?) {_IN_ORDER}
"""
_OF_TRACE = f"""
SELECT id FROM _spans WHERE trace = (SELECT id FROM _traces WHERE trace_id = ?) {_IN_ORDER}
"""
_SIDES = """
SELECT trace_id FROM _traces AS trace
WHERE EXISTS (SELECT 1 FROM _sides WHERE _sides.trace = trace.id)
    OR EXISTS (SELECT 1 FROM _logs WHERE _logs.trace = trace.id AND _logs.span IS NULL)
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE task_id = trace.trace_id)
ORDER BY trace_id
"""
_PINNED = "SELECT 1 FROM tasks WHERE task_id = ? AND pinned"
_TASKS = "SELECT task_id FROM tasks ORDER BY started_ns, task_id"


class Outgoing:
    """Reads over one connection, within one transaction.

    Args:
        connection: of the history.
        read_artifact: the bytes of an artifact. None leaves references in the places of pictures.
    """

    def __init__(
        self, connection: sqlite3.Connection, read_artifact: ReadArtifact | None = None
    ) -> None:
        self._connection = connection
        self._readback = Readback(connection, read_artifact)

    def tasks(self) -> list[str]:
        """The ids of all tasks, of every kind, in the order of their start."""
        return [task for (task,) in self._connection.execute(_TASKS)]

    def sides(self) -> list[str]:
        """The ids of the traces that make no task, or of which only log records have come."""
        return [trace for (trace,) in self._connection.execute(_SIDES)]

    def spans_of_task(self, task_id: str) -> Iterator[SpanRecord]:
        """All spans of a task, as they were recorded."""
        return (read.record for read in self.read(self._rows(_OF_TASK, task_id)))

    def spans_of_trace(self, trace_id: str) -> Iterator[SpanRecord]:
        """All spans of a trace, likewise."""
        return (read.record for read in self.read(self._rows(_OF_TRACE, trace_id)))

    def rows_of_task(self, task_id: str) -> list[int]:
        """The rows of the spans of a task, in their order."""
        return self._rows(_OF_TASK, task_id)

    def rows_of_trace(self, trace_id: str) -> list[int]:
        """The rows of the spans of a trace, in their order."""
        return self._rows(_OF_TRACE, trace_id)

    def spans(self, keys: Iterable[int]) -> Iterator[SpanRecord]:
        """The spans of these rows, in this order; those that are gone are left out."""
        return (read.record for read in self.read(keys))

    def read(self, keys: Iterable[int]) -> Iterator[ReadSpan]:
        """As `spans`, with what the ledger knows beside."""
        for key in keys:
            found = self._readback.span(key)
            if found is not None:
                yield found

    def size_of(self, row: int) -> int:
        """Bytes that the span of a row takes, about; 0 when it is gone."""
        found = self._connection.execute("SELECT size FROM _spans WHERE id = ?", (row,)).fetchone()
        return int(found[0]) if found else 0

    def logs_of_task(self, task_id: str) -> Iterator[LogRecord]:
        """The log records within the spans of a task; with those that wait for their span yet."""
        for read in self.logs(self._rows(_OF_TASK, task_id)):
            yield read.record
        if "-" not in task_id:
            for read in self.waiting_logs(task_id):
                yield read.record

    def logs(self, keys: Iterable[int]) -> Iterator[ReadLog]:
        """The log records within the spans of these rows, with what the ledger knows beside."""
        for key in keys:
            yield from self._readback.logs_of_span(key)

    def waiting_logs(self, trace_id: str) -> list[ReadLog]:
        """The log records of a trace whose spans have not come."""
        return self._readback.waiting_logs(trace_id)

    def is_pinned(self, task_id: str) -> bool:
        """Whether a task is kept whatever the limits say."""
        return self._connection.execute(_PINNED, (task_id,)).fetchone() is not None

    def _rows(self, sql: str, key: str) -> list[int]:
        return [row for (row,) in self._connection.execute(sql, (key,)).fetchall()]
