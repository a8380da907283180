# SPDX-License-Identifier: Apache-2.0
"""Our own side of the benchmarks: a history in a folder of its own, and who records into it."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.trace import Span

from otel_taskhistory import TaskHistoryExporter, TaskHistoryProcessor, TaskTracer
from otel_taskhistory.recording.sink import Earlier, StoredPicture
from otel_taskhistory.store.retainer import WAITING

WHOLE: Final = SpanLimits(max_span_attribute_length=None)

WARM_BYTES: Final = 6 * 2**20
"""More than SQLite lets a WAL grow before it is folded: from then on it is overwritten, and a
commit costs half as much as while the file grows."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """An agent's side of a history."""

    exporter: TaskHistoryExporter
    provider: TracerProvider
    tasks: TaskTracer
    directory: Path

    @property
    def database(self) -> Path:
        """The file."""
        return self.directory / "history.db"


@contextmanager
def recorder(**settings: Any) -> Iterator[Recorder]:
    """A new history behind a `TaskHistoryProcessor`; settings are those of the exporter.

    Raises:
        RuntimeError: at the end, when something was lost: then nothing was measured.
    """
    with folder() as directory:
        exporter = TaskHistoryExporter(directory / "history", **settings)
        provider = TracerProvider(span_limits=WHOLE)
        provider.add_span_processor(TaskHistoryProcessor(exporter))
        tasks = TaskTracer(provider, exporter=exporter)
        try:
            yield Recorder(exporter, provider, tasks, directory / "history")
        finally:
            provider.shutdown()
        check(exporter)


def check(exporter: TaskHistoryExporter) -> None:
    """See that all was stored as it was.

    Raises:
        RuntimeError: it was not.
    """
    stats = exporter.stats()
    if stats["lost"] or stats["reduced"] or stats["waiting"] or stats["errors"]:
        raise RuntimeError(f"not everything was stored: {stats}")


def warm(recorded: Recorder) -> None:
    """Let the WAL grow to the size at which it stays."""
    with recorded.tasks.task("warm up") as task:
        for number in range(WARM_BYTES // 16_000):
            with task.step() as step:
                # An attribute that means nothing: a prompt would have to be indexed.
                step.set_attribute("warm", f"{number} " + "warm up " * 2000)
    settle(recorded.exporter)


def settle(exporter: TaskHistoryExporter, seconds: float = 60.0) -> None:
    """Wait until all is committed, and indexed as far as it is while an agent rests.

    Raises:
        TimeoutError: it takes too long.
    """
    exporter.force_flush()
    database = exporter.settings.database
    deadline = time.monotonic() + seconds
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        while waiting(connection) >= WAITING:
            if time.monotonic() > deadline:
                raise TimeoutError("the search index is not brought up to date")
            time.sleep(0.002)


def waiting(connection: sqlite3.Connection) -> int:
    """How many rows wait to be indexed."""
    found = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM _unindexed LIMIT ?)", (WAITING,)
    )
    return int(found.fetchone()[0])


def wal(database: Path) -> int:
    """Bytes of the write-ahead log."""
    file = database.with_name(database.name + "-wal")
    return file.stat().st_size if file.exists() else 0


def tables(database: Path) -> dict[str, int]:
    """Bytes on disk of each table and index, the largest first."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return dict(
            connection.execute(
                "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC"
            ).fetchall()
        )


class NoSink:
    """For a tracer whose checkpoints are not to be recorded, only its spans when they end."""

    def checkpoint(self, span: Span, event: str, detail: dict[str, Any]) -> None:
        """Nothing."""

    def picture(self, image: Any) -> StoredPicture:
        """No benchmark with this sink has pictures."""
        raise NotImplementedError

    @contextmanager
    def deferring(self) -> Iterator[Any]:
        """Nothing is to be waited for."""
        yield None

    def earlier(self, *, task_id: str | None = None, key: str | None = None) -> Earlier | None:
        """None."""
        return None


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="taskhistory-bench-") as path:
        yield Path(path)
