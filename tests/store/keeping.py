# SPDX-License-Identifier: Apache-2.0
"""Histories of many small tasks, and what keeps them within limits, for the tests of retention."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from otel_taskhistory import semconv
from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.spans.record import EventRecord, SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.retainer import Retainer
from otel_taskhistory.store.writer import Writer
from tests.store.deliveries import NOON, message, own_step, own_task, own_tool, span, write

SECOND = 10**9
DAY = 24 * 3600 * SECOND
SYSTEM = message("You carry out tasks. " * 40, "system")
"""A system prompt that all tasks share; long enough for a row of its own."""

STRAYS = "SELECT id FROM _owners WHERE id < 0 AND removed_ns IS NULL"
"""The owners of traces that make no task."""

KEPT_FOR_GOOD = ("_sqlite_migrations", "_meta", "_processes", "_totals", "_retention", "_removed")
"""Tables that may hold something although there is no task."""


def limits(**given: Any) -> Retention:
    """A retention with these limits and no others; `max_age` in seconds or as a timedelta."""
    age = given.pop("max_age", None)
    if age is not None and not isinstance(age, timedelta):
        age = timedelta(seconds=age)
    return Retention(max_age=age, **({"max_tasks": None, "max_bytes": None} | given))


def trace_id(number: int) -> str:
    """The trace of the task with this number."""
    return f"{number:032x}"


def task_spans(
    number: int,
    *,
    steps: int = 1,
    ended: bool = True,
    shots: tuple[EventRecord, ...] = (),
    text: str = "",
) -> list[SpanRecord]:
    """An agent's task: steps whose conversation grows, each with a tool call.

    Args:
        number: makes the trace id, and all texts that are not `SYSTEM`.
        steps: how many.
        ended: whether the task itself has.
        shots: screenshots of the first step.
        text: more text for each prompt.
    """
    same: dict[str, Any] = {"trace_id": trace_id(number)}
    goal = {semconv.TASKHISTORY_TASK_GOAL: f"goal {number}"}
    spans = [own_task(1, attributes=goal, start=0, end=900 if ended else None, **same)]
    prompt = [SYSTEM]
    for step in range(1, steps + 1):
        asked = f"task {number} step {step} {text} " + f"{number}.{step} " * 50
        prompt = [*prompt, message(asked)]
        answer = [message(f"answer {number}.{step} " * 20, "assistant")]
        at = 2 * step
        spans.append(
            own_step(
                at,
                prompt=prompt,
                decision=answer,
                index=step,
                events=shots if step == 1 else (),
                **same,
            )
        )
        result = {semconv.GEN_AI_TOOL_CALL_RESULT: f"result of {number}.{step} " * 20}
        spans.append(own_tool(at + 1, at, attributes=result, **same))
        prompt = [*prompt, *answer]
    return spans


def other_spans(number: int, *, text: str = "ok") -> list[SpanRecord]:
    """A trace without an agent: a web request."""
    said = {"http.route": "/health", "body": text}
    return [span(1, name="GET /health", attributes=said, trace_id=trace_id(number), kind="SERVER")]


def shot(writer: Writer, picture: bytes) -> EventRecord:
    """The event of a screenshot whose file is stored."""
    stored = writer.store_picture(picture)
    return EventRecord(
        semconv.TASKHISTORY_SCREENSHOT_EVENT,
        NOON,
        {
            semconv.TASKHISTORY_SCREENSHOT_SHA256: stored.sha256,
            semconv.TASKHISTORY_SCREENSHOT_PATH: stored.path,
            semconv.TASKHISTORY_SCREENSHOT_MEDIA_TYPE: stored.media_type,
            semconv.TASKHISTORY_SCREENSHOT_BYTES: stored.bytes,
            semconv.TASKHISTORY_SCREENSHOT_STATUS: stored.status,
        },
    )


@contextmanager
def store(directory: Path) -> Iterator[Writer]:
    """A real store in `directory`, closed at the end; what is committed is committed now."""
    writer = Writer(Settings.resolve(directory=directory, durability="normal"))
    try:
        yield writer
    finally:
        writer.close()


def record(directory: Path, numbers: range, **said: Any) -> None:
    """A history of ended tasks, the first of them committed first."""
    with store(directory) as writer:
        for number in numbers:
            write(writer, task_spans(number, **said))


@contextmanager
def keeper(
    directory: Path,
    retention: Retention | None = None,
    clock: Callable[[], int] = time.time_ns,
    problem: Callable[[Exception], None] | None = None,
) -> Iterator[Retainer]:
    """What keeps the history within limits, as a writer has it; a problem fails the test."""
    settings = Settings.resolve(
        directory=directory, retention=retention or limits(), durability="normal"
    )
    database = Database(settings)
    try:
        folder = ArtifactFolder(settings.artifacts)
        yield Retainer(database, folder, settings, clock, problem or _raise)
    finally:
        database.close()


def _raise(error: Exception) -> None:
    raise error


def age_files(directory: Path, seconds: float = 3600.0) -> None:
    """Say that all artifacts were touched so long ago for the last time."""
    at = time.time() - seconds
    for path in files(directory):
        os.utime(directory / "artifacts" / path, (at, at))


def work(retainer: Retainer) -> Any:
    """`Retainer.run` without pauses."""
    return retainer.run(pause=lambda seconds: None)


def execute(directory: Path, sql: str, *values: Any) -> None:
    """Change a history by hand."""
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection, connection:
        connection.execute(sql, values)


def ask(directory: Path, sql: str, *values: Any) -> list[Any]:
    """The rows of a query; of a single column its values."""
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection:
        found = connection.execute(sql, values).fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def kept(directory: Path) -> list[int]:
    """The numbers of the tasks that are there, oldest first."""
    return [int(found, 16) for found in ask(directory, "SELECT task_id FROM tasks ORDER BY id")]


def committed(directory: Path, number: int, at_ns: int) -> None:
    """Say that the last commit of a task was at this time."""
    execute(
        directory, "UPDATE tasks SET committed_ns = ? WHERE task_id = ?", at_ns, trace_id(number)
    )


def goes_on(directory: Path, number: int) -> None:
    """Say that a task of a closed history runs: as if its process were alive."""
    execute(directory, "UPDATE tasks SET status = 'running' WHERE task_id = ?", trace_id(number))
    execute(
        directory,
        "UPDATE _steps SET status = 'running' WHERE status = 'interrupted' AND task ="
        " (SELECT id FROM tasks WHERE task_id = ?)",
        trace_id(number),
    )


def left(directory: Path) -> dict[str, int]:
    """The tables that hold rows, but for those that may without a task, and how many."""
    tables = ask(
        directory,
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        " AND name NOT LIKE '~_words%' ESCAPE '~'",
    )
    counts = {name: ask(directory, f"SELECT count(*) FROM {name}")[0] for name in tables}
    told = ask(directory, "SELECT count(*) FROM _timeline WHERE event = 'pruned'")[0]
    counts["_timeline"] -= told
    return {name: n for name, n in counts.items() if n and name not in KEPT_FOR_GOOD}


def files(directory: Path) -> set[str]:
    """The artifacts that lie on disk, by their paths relative to the folder."""
    root = directory / "artifacts"
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def size_on_disk(directory: Path) -> int:
    """All files of a history together, as `du` adds them up."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def check_whole(directory: Path) -> None:
    """What holds after every pass: no half task, no row without its file, sums that are true."""
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    owners = f"SELECT id FROM tasks UNION {STRAYS}"
    assert ask(directory, f"SELECT id FROM _owners EXCEPT SELECT * FROM ({owners})") == []
    traces = f"SELECT trace FROM tasks UNION SELECT -id FROM ({STRAYS})"
    assert ask(directory, f"SELECT id FROM _traces EXCEPT SELECT * FROM ({traces})") == []
    nobodys = f"SELECT id FROM _spans WHERE task IS NULL AND -trace NOT IN ({STRAYS})"
    assert ask(directory, nobodys) == []
    rows = set(ask(directory, "SELECT path FROM _artifacts WHERE status <> 'not_stored'"))
    assert rows == files(directory)
    assert unneeded(directory) == {}
    assert totals(directory) == counted(directory)


def unneeded(directory: Path) -> dict[str, list[int]]:
    """Rows that are shared and that nothing refers to."""
    from otel_taskhistory.store.removal import references

    found = {}
    with closing(sqlite3.Connection(str(directory / "history.db"))) as connection:
        for table in ("_contents", "_nodes", "_artifacts"):
            used = " UNION ".join(
                f"SELECT {column} FROM {source} WHERE {column} IS NOT NULL"
                for source, column in references(connection, table)
            )
            rows = connection.execute(
                f"SELECT id FROM {table} EXCEPT SELECT * FROM ({used})"
            ).fetchall()
            if rows:
                found[table] = [row[0] for row in rows]
    return found


def totals(directory: Path) -> dict[str, tuple[int, int]]:
    """The sums that triggers keep."""
    rows = ask(directory, "SELECT name, number, bytes FROM _totals WHERE name <> 'late'")
    return {name: (number, size) for name, number, size in rows}


def counted(directory: Path) -> dict[str, tuple[int, int]]:
    """The same, counted."""
    one = "SELECT count(*), coalesce(sum(bytes), 0) FROM"
    which = "pinned = 0 AND (status <> 'running' OR root IS NULL)"
    sums = {
        kind: ask(directory, f"{one} tasks WHERE kind = ? AND {which}", kind)[0]
        for kind in ("agent", "other")
    }
    strays = ask(directory, f"{one} _owners WHERE id IN ({STRAYS})")[0]
    sums["other"] = tuple(map(sum, zip(sums["other"], strays, strict=True)))
    sums["artifacts"] = ask(directory, f"{one} _artifacts WHERE status <> 'not_stored'")[0]
    sums["unlinks"] = ask(directory, f"{one} _unlinks")[0]
    return sums
