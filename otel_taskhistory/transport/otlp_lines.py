# SPDX-License-Identifier: Apache-2.0
"""Tasks as OTLP/JSON lines, in flat memory and always in the same order.

Task by task, as they are named or all in the order of their start, then the traces that make no
task. Of each first the spans, then the log records, as `otel_taskhistory.store.outgoing` orders
them; an export request of at most `SPANS` records and about `BYTES` bytes a line.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import BinaryIO, Final

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.spans.otlp_write import (
    Document,
    known_of,
    logs_document,
    spans_document,
    to_line,
)
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.outgoing import Outgoing
from otel_taskhistory.store.readback import ReadLog
from otel_taskhistory.store.rebuild import ReadArtifact

SPANS: Final = 100
BYTES: Final = 4 * 2**20

Tell = Callable[[int, int], None]
"""Called with how many traces are written, and how many there are."""


@dataclass(slots=True)
class Lines:
    """What was written."""

    tasks: int = 0
    spans: int = 0
    logs: int = 0
    missing: int = 0
    """Spans with a picture whose file could not be read: a reference stands in its place."""


@dataclass(frozen=True, slots=True)
class _Line:
    text: bytes
    taken: int
    spans: int
    missing: int = 0


def write_otlp_lines(
    history: TaskHistory, task_ids: Sequence[str] | None, file: BinaryIO, tell: Tell
) -> Lines:
    """Write tasks as lines that any OTLP receiver takes, and `import` without loss.

    Args:
        task_ids: whole ids of tasks; None for all there is, traces that make no task included.
        file: gets the lines.
        tell: see `Tell`.

    Raises:
        TaskHistoryError: the history cannot be read.
    """
    done = Lines()
    artifacts = ArtifactFolder(history.settings.artifacts).read
    tasks = all_tasks(history) if task_ids is None else list(task_ids)
    sides = history.read(_sides) if task_ids is None else []
    total = len(tasks) + len(sides)
    for number, name in enumerate((*tasks, *sides)):
        tell(number, total)
        for line in lines_of(history, artifacts, name, is_task=number < len(tasks), pins=True):
            file.write(line.text)
            done.spans += line.spans
            done.logs += line.taken - line.spans
            done.missing += line.missing
        done.tasks += number < len(tasks)
    tell(total, total)
    return done


def lines_of(
    history: TaskHistory,
    artifacts: ReadArtifact | None,
    name: str,
    *,
    is_task: bool,
    pins: bool = False,
) -> Iterator[_Line]:
    """The lines of one task, or of one trace that makes none.

    Args:
        pins: say also whether the task is pinned.
    """
    rows = history.read(partial(_rows, name=name, is_task=is_task))
    pinned = name if pins and is_task and history.read(partial(_is_pinned, name=name)) else None
    at = 0
    while at < len(rows):
        some = rows[at : at + SPANS]
        line = history.read(partial(_spans, rows=some, artifacts=artifacts, pinned=pinned))
        at += line.taken
        if line.spans:
            pinned = None  # once is enough
            yield line
    waiting = name if not is_task or "-" not in name else None
    for start in range(0, len(rows), SPANS):
        some = rows[start : start + SPANS]
        yield from history.read(partial(_logs, rows=some, waiting=None, artifacts=artifacts))
    yield from history.read(partial(_logs, rows=(), waiting=waiting, artifacts=artifacts))


def all_tasks(history: TaskHistory) -> list[str]:
    """The ids of all tasks, of every kind, in the order of their start."""
    return history.read(_tasks)


def _tasks(connection: sqlite3.Connection) -> list[str]:
    return Outgoing(connection).tasks()


def _sides(connection: sqlite3.Connection) -> list[str]:
    return Outgoing(connection).sides()


def _rows(connection: sqlite3.Connection, name: str, is_task: bool) -> list[int]:
    outgoing = Outgoing(connection)
    return outgoing.rows_of_task(name) if is_task else outgoing.rows_of_trace(name)


def _is_pinned(connection: sqlite3.Connection, name: str) -> bool:
    return Outgoing(connection).is_pinned(name)


def _spans(
    connection: sqlite3.Connection,
    rows: Sequence[int],
    artifacts: ReadArtifact | None,
    pinned: str | None,
) -> _Line:
    """As many of these spans as fit into a line."""
    outgoing = Outgoing(connection, artifacts)
    known: list[tuple[SpanRecord, Document]] = []
    size = taken = missing = 0
    for row in rows:
        for found in outgoing.read([row]):
            said = known_of(
                found.marks,
                interrupted_ns=found.interrupted_ns,
                ended=found.record.end_ns == 0,
                pinned=None if known else pinned,
            )
            known.append((found.record, said))
            missing += found.missing
            size += outgoing.size_of(row)
        taken += 1
        if size >= BYTES:
            break
    records = [record for record, _ in known]
    document = spans_document(records, [said for _, said in known])
    return _Line(to_line(document), taken, len(records), missing)


def _logs(
    connection: sqlite3.Connection,
    rows: Sequence[int],
    waiting: str | None,
    artifacts: ReadArtifact | None,
) -> list[_Line]:
    """The log records of these spans, and those of a trace that wait for theirs."""
    outgoing = Outgoing(connection, artifacts)
    lines: list[_Line] = []
    some: list[ReadLog] = []
    size = 0
    for found in chain(outgoing.logs(rows), outgoing.waiting_logs(waiting) if waiting else ()):
        some.append(found)
        size += found.bytes
        if len(some) >= SPANS or size >= BYTES:
            lines.append(_log_line(some))
            some, size = [], 0
    return [*lines, _log_line(some)] if some else lines


def _log_line(some: Sequence[ReadLog]) -> _Line:
    document = logs_document(
        [found.record for found in some], [known_of(found.marks) for found in some]
    )
    return _Line(to_line(document), len(some), 0)
