# SPDX-License-Identifier: Apache-2.0
"""Tasks as OTLP/JSON lines, in flat memory and always in the same order.

Task by task in the order of their start, then the traces that make no task. Of each first the
spans, then the log records, as `otel_taskhistory.store.outgoing` orders them; an export request of
at most `SPANS` records and about `BYTES` bytes a line.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Final

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.spans.otlp_write import known_of, logs_document, spans_document, to_line
from otel_taskhistory.spans.record import LogRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.outgoing import Outgoing
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
        for line in lines_of(history, artifacts, name, is_task=number < len(tasks)):
            file.write(line.text)
            done.spans += line.spans
            done.logs += line.taken - line.spans
            done.missing += line.missing
        done.tasks += number < len(tasks)
    tell(total, total)
    return done


def lines_of(
    history: TaskHistory, artifacts: ReadArtifact | None, name: str, *, is_task: bool
) -> Iterator[_Line]:
    """The lines of one task, or of one trace that makes none."""
    rows = history.read(partial(_rows, name=name, is_task=is_task))
    at = 0
    while at < len(rows):
        line = history.read(partial(_spans, rows=rows[at : at + SPANS], artifacts=artifacts))
        at += line.taken
        if line.spans:
            yield line
    logs = history.read(partial(_logs, name=name, is_task=is_task, artifacts=artifacts))
    for start in range(0, len(logs), SPANS):
        part = logs[start : start + SPANS]
        yield _Line(to_line(logs_document(part)), len(part), 0)


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


def _spans(
    connection: sqlite3.Connection, rows: Sequence[int], artifacts: ReadArtifact | None
) -> _Line:
    """As many of these spans as fit into a line."""
    outgoing = Outgoing(connection, artifacts)
    known, size, taken, missing = [], 0, 0, 0
    for row in rows:
        for found in outgoing.read([row]):
            known.append((found.record, known_of(found.interrupted_ns, found.marks)))
            missing += found.missing
            size += outgoing.size_of(row)
        taken += 1
        if size >= BYTES:
            break
    records = [record for record, _ in known]
    document = spans_document(records, [said for _, said in known])
    return _Line(to_line(document), taken, len(records), missing)


def _logs(
    connection: sqlite3.Connection, name: str, is_task: bool, artifacts: ReadArtifact | None
) -> list[LogRecord]:
    outgoing = Outgoing(connection, artifacts)
    return list(outgoing.logs_of_task(name) if is_task else outgoing.logs_of_trace(name))
