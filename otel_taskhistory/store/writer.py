# SPDX-License-Identifier: Apache-2.0
"""The writing side of a history: entries in, rows and files out, one transaction a group."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final

from otel_taskhistory.conventions.facts import SpanFacts
from otel_taskhistory.images import inspect
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.encode import encode
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.commit import GroupCommit, Job, StoreAway
from otel_taskhistory.store.contents import Contents, compact
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.ledger import Ledger
from otel_taskhistory.store.pictures import Found
from otel_taskhistory.store.projection import Projection

_logger = logging.getLogger("otel_taskhistory")

_LOG_EVERY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One span to be written, as it is or as it was at a checkpoint."""

    record: SpanRecord
    facts: SpanFacts
    seen_ns: int
    marks: frozenset[str] = frozenset()


@dataclass(slots=True)
class Counters:
    """What happened to what was handed over; never reset."""

    spans: int = 0
    commits: int = 0
    reduced: int = 0
    """Spans of which only a reduced form could be stored."""
    lost: int = 0
    """Spans that were given up on."""
    away: int = 0
    """How often the store could not be written."""
    last_error: str | None = None
    by_error: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A picture that was stored, with what its header says."""

    sha256: str
    path: str
    media_type: str
    width: int | None
    height: int | None
    bytes: int
    status: str


class Writer:
    """Writes one history from one process; safe to use from any thread.

    Args:
        settings: where the history is and how durable it is to be.
        service_name: the explicit ``service.name`` of this process, if it is known already.
        on_error: called with each kind of failure; must not raise, and its errors are logged.

    Raises:
        TaskHistoryError: the history must not or cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        service_name: str | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.settings = settings
        self.counters = Counters()
        self._service_name = service_name
        self._on_error = on_error
        self._clock = clock
        self._artifacts = ArtifactFolder(settings.artifacts)
        self._lost_since = 0
        self._logged_at: dict[str, float] = {}
        self._open()

    def _open(self) -> None:
        self._database = Database(self.settings, service_name=self._service_name)
        connection = self._database.connection
        self._contents = Contents(connection, self._keep_picture)
        self._ledger = Ledger(connection, self._contents)
        self._projection = Projection(connection, self._contents, self._clock)
        self._process: int | None = None
        self._commit = GroupCommit(self._write, self._went_away, self._gave_up)
        self._reading = threading.Lock()
        self.closed = False

    @property
    def stamp(self) -> Any:
        """Owner, history id and service of the history."""
        return self._database.stamp

    # --- handing over ---

    def submit(
        self,
        entries: list[Entry],
        *,
        durable: bool,
        wait: bool = True,
        lead: bool = True,
    ) -> Job:
        """Hand entries over; see `GroupCommit.submit`. `job.stored` tells after the wait."""
        size = sum(_size(entry.record) for entry in entries)
        job = Job(list(entries), durable=durable, size=size)
        self._commit.submit(job, wait=wait, lead=lead)
        return job

    def claim_service(self, service_name: str) -> None:
        """Stamp the history with this process's service, if it has none yet.

        Raises:
            StoreAway: not now.
        """
        self._service_name = service_name
        self._commit.alone(lambda: self._database.claim_service(service_name))

    def flush(self, seconds: float) -> bool:
        """Whether everything that was handed over is committed, within about `seconds`."""
        return self._commit.flush(seconds)

    def close(self, seconds: float = 5.0) -> None:
        """Commit what waits and close; later calls do nothing."""
        if self.closed:
            return
        if not self.flush(seconds):
            entries, _ = self._commit.waiting
            self._gave_up(entries)
        self.closed = True
        self._commit.close()
        self._database.close()

    def abandon(self) -> None:
        """In a forked child: the connection, locks and queue are the parent's; begin anew.

        The inherited connection is neither used nor closed: closing it would release the
        parent's locks on the file.
        """
        _inherited.append(self._database)
        self._open()

    def store_picture(self, data: bytes) -> StoredFile:
        """Write a picture as a file and fsync it; its row comes with the span that shows it.

        Raises:
            OSError: it cannot be written.
        """
        info = inspect(data)
        put = self._artifacts.put(data, info.extension)
        return StoredFile(
            put.sha256, put.path, info.media_type, info.width, info.height, put.size, info.status
        )

    @property
    def waiting(self) -> tuple[int, int]:
        """How many entries wait for the store to come back, and about how many bytes."""
        return self._commit.waiting

    def task_by(
        self, *, task_id: str | None, key: str | None
    ) -> tuple[str, str, str, int, int] | None:
        """(trace id, first root's span id, status, attempts, last step index) of a task."""
        column, value = ("task_id", task_id) if task_id is not None else ("key", key)
        row = self._database.connection.execute(
            "SELECT task.trace_id, coalesce((SELECT span_id FROM _spans WHERE trace = task.trace"
            "  AND role = 'task' ORDER BY start_ns LIMIT 1), ''), task.status, task.attempt,"
            " coalesce((SELECT max(step_index) FROM _steps WHERE task = task.id), 0)"
            f" FROM tasks AS task WHERE task.{column} = ? ORDER BY task.id DESC LIMIT 1",
            (value,),
        ).fetchone()
        return tuple(row) if row else None

    # --- writing; only ever one thread is in here ---

    def _write(self, entries: list[Entry], durable: bool) -> None:
        durable = durable and self.settings.durability == "full"
        try:
            self._write_all(entries, durable)
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError):
            # Rows that we remembered may be gone (retention, in another process): look afresh.
            self._write_each(entries, durable)
        except sqlite3.Error as error:
            raise StoreAway(_words(error)) from error
        except OSError as error:
            raise StoreAway(_words(error)) from error
        except Exception as error:
            self._report(error)
            self._write_each(entries, durable)
        self.counters.commits += 1
        self.counters.spans += len(entries)

    def _write_all(self, entries: list[Entry], durable: bool) -> None:
        try:
            with self._database.transaction(durable=durable):
                for entry in entries:
                    self._apply(entry)
                self._finish()
        except BaseException:
            self._forget()
            raise

    def _write_each(self, entries: list[Entry], durable: bool) -> None:
        """As `_write_all`, but an entry that cannot be written costs no other: it is reduced."""
        try:
            with self._database.transaction(durable=durable) as connection:
                for entry in entries:
                    self._apply_or_reduce(connection, entry)
                self._finish()
        except sqlite3.Error as error:
            self._forget()
            raise StoreAway(_words(error)) from error
        except BaseException:
            self._forget()
            raise

    def _apply_or_reduce(self, connection: sqlite3.Connection, entry: Entry) -> None:
        for attempt in (entry, entry, _reduced(entry)):
            connection.execute("SAVEPOINT entry")
            try:
                self._apply(attempt)
                connection.execute("RELEASE entry")
                return
            except sqlite3.OperationalError:
                raise
            except Exception as error:
                connection.execute("ROLLBACK TO entry")
                connection.execute("RELEASE entry")
                self._forget()
                self._report(error)
            if attempt is not entry:
                self.counters.lost += 1
                self._lost_since += 1
            self.counters.reduced += attempt is not entry

    def _apply(self, entry: Entry) -> None:
        facts = entry.facts
        written = self._ledger.write(
            entry.record,
            role=facts.role,
            facts=_facts_text(facts),
            process=self._process_row() if entry.record.end_ns is None else None,
            seen_ns=entry.seen_ns,
            marks=set(entry.marks),
        )
        self._projection.apply(entry.record, facts, written)

    def _finish(self) -> None:
        self._projection.finish()
        if self._lost_since:
            self._database.connection.execute(
                "INSERT INTO _timeline (at_ns, event, detail) VALUES (?, 'loss', ?)",
                (self._clock(), compact({"spans": self._lost_since})),
            )
            self._lost_since = 0

    def _forget(self) -> None:
        self._contents.forget()
        self._projection.forget()
        self._process = None

    def _process_row(self) -> int:
        if self._process is None:
            now = self._clock()
            self._process = self._database.connection.execute(
                "INSERT INTO _processes (pid, host, service, started_ns, seen_ns)"
                " VALUES (?, ?, ?, ?, ?)",
                (os.getpid(), socket.gethostname(), self._service_name, now, now),
            ).lastrowid
        assert self._process is not None
        return self._process

    def _keep_picture(self, picture: Found) -> int:
        connection = self._database.connection
        row = connection.execute(
            "SELECT id FROM _artifacts WHERE sha256 = ?", (picture.sha256,)
        ).fetchone()
        if row:
            return int(row[0])
        stored = self.store_picture(picture.data)
        row = connection.execute(
            "INSERT INTO _artifacts (sha256, path, media_type, width, height, bytes, status)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
            astuple(stored),
        ).fetchone()
        return int(row[0])

    # --- failures ---

    def _went_away(self, reason: Exception) -> None:
        self.counters.away += 1
        self._report(reason, "the history cannot be written now; steps wait in memory")

    def _gave_up(self, entries: int) -> None:
        if entries:
            self.counters.lost += entries
            self._lost_since += entries
            self._report(
                StoreAway(f"{entries} spans were lost"), "the history could not be written in time"
            )

    def _report(self, error: BaseException, what: str = "a span could not be stored whole") -> None:
        kind = type(error).__name__
        self.counters.last_error = f"{kind}: {error}" if isinstance(error, StoreAway) else kind
        self.counters.by_error[kind] = self.counters.by_error.get(kind, 0) + 1
        report(what, error, self._on_error, self._logged_at)


def report(
    what: str,
    error: BaseException,
    on_error: Callable[[BaseException], None] | None,
    logged_at: dict[str, float],
) -> None:
    """Tell `on_error`, and the log at most once a minute per kind; never with content."""
    kind = f"{what}: {type(error).__name__}"
    now = time.monotonic()
    if now - logged_at.get(kind, -_LOG_EVERY_SECONDS) >= _LOG_EVERY_SECONDS:
        logged_at[kind] = now
        # The text of a foreign exception may quote what was being stored: only ours is shown.
        shown = error if isinstance(error, StoreAway) else type(error).__name__
        _logger.warning("otel-taskhistory: %s (%s)", what, shown)
    if on_error is not None:
        try:
            on_error(error)
        except Exception:
            _logger.exception("otel-taskhistory: the on_error callback itself failed")


_inherited: list[Database] = []
"""Connections of a parent process, kept from being closed in this one."""


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _size(record: SpanRecord) -> int:
    """About how many bytes a record holds: its strings, one level deep, plus its rows."""
    size = 1024
    for attributes in (record.attributes, *(event.attributes for event in record.events)):
        for value in attributes.values():
            size += len(value) if isinstance(value, str | bytes) else 64
    return size


def _reduced(entry: Entry) -> Entry:
    """What can surely be stored of an entry: identity, structure and times."""
    record = replace(entry.record, attributes={}, events=(), links=(), status_message=None)
    facts = SpanFacts(
        role=entry.facts.role if entry.facts.role != "tool" else "other",
        own=entry.facts.own and entry.facts.role != "tool",
        status=entry.facts.status,
        attempt=entry.facts.attempt,
        step_index=entry.facts.step_index,
    )
    return Entry(record, facts, entry.seen_ns, entry.marks | {"reduced"})


def _facts_text(facts: SpanFacts) -> str:
    """What assembly needs of the span when others of its trace come later."""
    said = {
        "own": facts.own or None,
        "status": facts.status,
        "error": facts.error,
        "error_type": facts.error_type,
        "agent": facts.agent,
        "conversation_id": facts.conversation_id,
        "goal": facts.goal,
        "result": facts.result,
        "attempt": facts.attempt if facts.attempt != 1 else None,
        "key": facts.key,
        "parent_task_id": facts.parent_task_id,
        "step_index": facts.step_index,
    }
    return encode({key: value for key, value in said.items() if value is not None}).text
