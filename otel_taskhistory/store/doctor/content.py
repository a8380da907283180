# SPDX-License-Identifier: Apache-2.0
"""What the database says: its integrity, its search indexes, what was lost or never ended."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_taskhistory.store.doctor.findings import Finding, Progress, some
from otel_taskhistory.store.files import make_file
from otel_taskhistory.store.processes import dead
from otel_taskhistory.store.search.anew import is_current
from otel_taskhistory.store.search.index import not_found

MEANS_DAMAGE: Final = (
    "What is on its damaged pages is lost or wrong; more may follow as it is written to."
)
DO_DAMAGE: Final = (
    "Copy the folder of the history away while no agent runs. The next agent that meets the damage"
    " sets the history aside and begins a new one; a backup can be opened with --directory."
)
_COPIED: Final = 512 * 2**20
"""Search indexes are checked in a copy of the database (the check is an INSERT); a larger one is
left to ``--fix``, which may write."""
_STEPS: Final = 1_000_000  # of SQLite's virtual machine between two signs of life

Gone = Callable[[sqlite3.Connection], set[int]]
"""Returns the ids of the rows of ``_processes`` whose process is gone."""


@dataclass(frozen=True, slots=True)
class Content:
    """What is looked for in a database, within one read transaction."""

    database: Path
    quick: bool
    progress: Progress
    gone: Gone

    def findings(self, connection: sqlite3.Connection) -> list[Finding]:
        """All that is found."""
        found = list(self._integrity(connection))
        if any(finding.severity == "error" for finding in found):
            return found  # nothing that damaged pages say is worth repeating
        return [
            *found,
            *self._search(connection),
            *check_losses(connection),
            *check_dropped(connection),
            *check_marks(connection),
            *check_running(connection, self.gone),
        ]

    def _integrity(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        pragma = "quick_check" if self.quick else "integrity_check"
        connection.set_progress_handler(lambda: self.progress("the database", 0, 0), _STEPS)
        try:
            texts = [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}(100)")]
            loose = list(connection.execute("SELECT * FROM pragma_foreign_key_check LIMIT 1000"))
        finally:
            connection.set_progress_handler(None, 0)
        lines = [line for text in texts for line in text.splitlines() if line != "ok"]
        lines = [line for line in lines if not line.startswith("*** in ")]
        search = [line for line in lines if "inverted index" in line]
        damage = [line for line in lines if line not in search]
        if damage:
            yield Finding(
                "database",
                "error",
                f"the database is damaged: {damage[0]}",
                MEANS_DAMAGE,
                DO_DAMAGE,
                count=len(damage),
                items=some(damage),
            )
        if search:
            yield _out_of_sync(search)
        if loose:
            yield Finding(
                "references",
                "error",
                "rows refer to rows that are not there",
                "Parts of steps or prompts cannot be shown.",
                "A program other than this one has written to the database. Restore a backup, or"
                " keep the history for what can still be read.",
                count=len(loose),
                items=some(f"{table} {row} → {parent}" for table, row, parent, _ in loose),
            )

    def _search(self, connection: sqlite3.Connection) -> Iterator[Finding]:
        if not is_current(connection):
            yield Finding(
                "search index",
                "note",
                "the search index is to be made anew: another version made it, by other rules",
                "Until then a search may miss what was said before; it says so.",
                "The next agent does it while it has nothing else to do; otel-taskhistory doctor"
                " --fix does it now.",
                fixable=True,
            )
            return
        missing = not_found(connection)
        if missing:
            yield _out_of_sync([f"values that are not found: {missing} of the latest"])
            return
        names = search_tables(connection)
        size = connection.execute("PRAGMA page_count").fetchone()[0]
        size *= connection.execute("PRAGMA page_size").fetchone()[0]
        if not names or self.quick:
            return
        if size > _COPIED:
            yield Finding(
                "search index",
                "note",
                "the search index was not checked: the database is large",
                "",
                "otel-taskhistory doctor --fix checks it too.",
                fixable=True,
            )
            return
        self.progress("the search index", 0, 0)
        with tempfile.TemporaryDirectory(prefix="otel-taskhistory-") as folder:
            path = Path(folder, "copy.db")
            make_file(path)
            with closing(sqlite3.Connection(str(path), isolation_level=None)) as copy:
                connection.backup(copy)
                wrong = [name for name in names if not search_is_sound(copy, name)]
        if wrong:
            yield _out_of_sync(wrong)


def search_tables(connection: sqlite3.Connection) -> list[str]:
    """The full-text indexes of a history, if it has any."""
    return [
        row[0]
        for row in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table'"
            " AND sql LIKE 'CREATE VIRTUAL TABLE%' AND lower(sql) LIKE '%using fts5%'"
        )
    ]


def search_is_sound(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a full-text index agrees with itself and its rows; the connection may write."""
    quoted = table.replace('"', '""')
    try:
        connection.execute(
            f'INSERT INTO "{quoted}" ("{quoted}", rank) VALUES (\'integrity-check\', 1)'
        )
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
            return False
        raise
    return True


def _out_of_sync(items: list[str]) -> Finding:
    return Finding(
        "search index",
        "error",
        "a search index does not agree with the rows it stands for",
        "Search may miss tasks, or find content that was removed.",
        "otel-taskhistory doctor --fix makes it anew from the rows.",
        items=some(items),
        fixable=True,
    )


def check_losses(connection: sqlite3.Connection) -> Iterator[Finding]:
    """What could not be stored, as the timeline says."""
    lost: Counter[str] = Counter()
    last = ""
    for at, detail in connection.execute(
        "SELECT at, detail FROM timeline WHERE event = 'loss' ORDER BY seq"
    ):
        told = _object(detail)
        spans = told.get("spans")
        lost[str(told.get("reason", "no reason was given"))] += (
            spans if isinstance(spans, int) else 0
        )
        last = at
    if lost:
        yield Finding(
            "losses",
            "warning",
            f"{sum(lost.values())} spans could not be stored, the last at {last}",
            "The history has gaps there; the timeline has a row for each (event loss).",
            "See what was in the way then: disk, locks, permissions. The rows go with age.",
            count=sum(lost.values()),
            items=some(f"{reason}: {spans}" for reason, spans in lost.most_common()),
        )


def check_dropped(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Spans that the SDK has cut before they came here."""
    spans, parts = connection.execute(
        "SELECT count(*), sum(dropped_attributes + dropped_events + dropped_links) FROM _spans"
        " WHERE dropped_attributes > 0 OR dropped_events > 0 OR dropped_links > 0"
    ).fetchone()
    if spans:
        tasks = connection.execute(
            "SELECT task_id, dropped FROM tasks WHERE dropped > 0 ORDER BY id DESC LIMIT 20"
        )
        yield Finding(
            "dropped",
            "warning",
            f"limits of the SDK have dropped {parts} attributes, events or links of {spans} spans",
            "The oldest of a span are dropped first, and those are the goal and the prompt.",
            "Let otel_taskhistory.configure() make the provider, or unset the limits"
            " (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, OTEL_SPAN_EVENT_COUNT_LIMIT).",
            count=spans,
            items=some(f"task {task}: {number}" for task, number in tasks),
        )


def check_marks(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Spans that could not be stored, or understood, as they came."""
    marks: Counter[str] = Counter()
    for text, number in connection.execute(
        "SELECT marks, count(*) FROM _spans WHERE marks IS NOT NULL GROUP BY marks"
    ):
        for mark in _list(text):
            marks[mark] += number
    whole = {name: marks.pop(name, 0) for name in ("reduced", "meaning")}
    if whole["reduced"]:
        yield Finding(
            "reduced",
            "warning",
            f"of {whole['reduced']} spans only a reduced form could be stored",
            "Their identity, place and times are there, their content is not.",
            "This is a fault of otel-taskhistory: please report it with the log of the agent.",
            count=whole["reduced"],
        )
    if whole["meaning"]:
        yield Finding(
            "reduced",
            "warning",
            f"{whole['meaning']} spans are stored whole, but could not be understood",
            "They are missing among steps and calls.",
            "A newer version may understand them: otel-taskhistory reproject.",
            count=whole["meaning"],
        )
    if marks:
        yield Finding(
            "reduced",
            "note",
            f"{sum(marks.values())} values had no exact representation and are marked",
            "Half an emoji is escaped and comes back exactly; a cycle, or an object that refuses to"
            " be shown, has a marker in its place.",
            count=sum(marks.values()),
            items=some(f"{name}: {number}" for name, number in marks.most_common()),
        )


def check_running(connection: sqlite3.Connection, gone: Gone) -> Iterator[Finding]:
    """Tasks that look as if they were running, but whose process is gone."""
    dead = gone(connection)
    running = connection.execute(
        "SELECT task.task_id, group_concat(DISTINCT own.process) FROM tasks AS task"
        " LEFT JOIN _spans AS own ON own.task = task.id AND own.end_ns IS NULL"
        " WHERE task.status = 'running' GROUP BY task.id ORDER BY task.id DESC"
    ).fetchall()
    left = [
        task
        for task, processes in running
        if processes is not None and all(int(row) in dead for row in processes.split(","))
    ]
    if left:
        yield Finding(
            "running",
            "warning",
            "tables call tasks running whose process is gone",
            "Their steps up to then are there. `show` says interrupted already; the next start of"
            " an agent notes it, so that SQL and Datasette say so too.",
            "otel-taskhistory doctor --fix does so now.",
            count=len(left),
            items=some(left),
            fixable=True,
        )


def processes_gone(connection: sqlite3.Connection) -> set[int]:
    """Rows of ``_processes`` whose process has ended, in order or not; see `processes`."""
    database = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    ended = connection.execute("SELECT id FROM _processes WHERE ended_ns IS NOT NULL")
    return {row[0] for row in ended} | set(dead(connection, database))


def _object(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _list(text: Any) -> list[str]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return ["unreadable mark"]
    return [str(item) for item in value] if isinstance(value, list) else ["unreadable mark"]
