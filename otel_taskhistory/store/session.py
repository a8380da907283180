# SPDX-License-Identifier: Apache-2.0
"""One open history, to write spans into: each `Session.write` is one transaction.

A session is opened anew when the database was replaced under it, or in a forked child. What it
remembers of rows belongs to its connection and ends with it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from otel_taskhistory.settings import Settings
from otel_taskhistory.store import rules
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.commit import StoreAway
from otel_taskhistory.store.contents import Contents, compact
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.entries import AnyEntry, Entry, LogEntry, Outcome, reduced
from otel_taskhistory.store.ledger import Ledger
from otel_taskhistory.store.log_owners import LogOwners
from otel_taskhistory.store.log_sweep import LogSweep
from otel_taskhistory.store.logs import Logs
from otel_taskhistory.store.picture_files import PictureFiles
from otel_taskhistory.store.processes import Registration
from otel_taskhistory.store.projection import Projection
from otel_taskhistory.store.readback import Readback
from otel_taskhistory.store.recovery import enter, leave, revive
from otel_taskhistory.store.rereading import NOT_UNDERSTOOD, Kept, Rereader, read
from otel_taskhistory.store.retainer import Retainer
from otel_taskhistory.store.stamp import Stamp
from otel_taskhistory.store.still import Stillness

_logger = logging.getLogger("otel_taskhistory")

_AWAY: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
"""SQLite's errors that are about the store; all others are about what is to be written."""

_LEAVE_WAIT: Final = 0.5
"""Seconds to wait for the lock at the end: others find out by themselves who has gone."""


_LAST_INDEXING: Final = 8
"""How many bits of what is said are indexed at the end; each takes some milliseconds."""


class Session:
    """Writes to an open history; for one thread at a time.

    Args:
        settings: where the history is.
        service: the explicit ``service.name`` of this process, if it is known.
        clock: ns since 1970.
        wait: seconds to wait for others who open or write; see `Database`.
        problem: told of what keeps the history from staying within its limits.

    Raises:
        TaskHistoryError: the history must not or cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        service: str | None,
        clock: Callable[[], int],
        wait: float | None = None,
        problem: Callable[[Exception], None] | None = None,
    ) -> None:
        self._database = Database(settings, service_name=service, wait=wait)
        self._artifacts = ArtifactFolder(settings.artifacts)
        self._service = service
        self._clock = clock
        connection = self._database.connection
        self._still = Stillness(connection)
        self._is_calm = False
        self._files = PictureFiles(connection, self._artifacts)
        self._contents = Contents(connection, self._files.keep)
        self._ledger = Ledger(connection, self._contents)
        self._projection = Projection(connection, self._contents, clock)
        self._logs = Logs(connection, self._contents, self._ledger)
        self._rereader = Rereader(
            connection,
            self._ledger,
            self._logs,
            self._projection,
            self._artifacts.read,
            self._files.know,
        )
        self._again: set[int] = set()
        """Rows of spans to be read again before the commit: log records of theirs have come."""
        self._misread: list[Exception] = []
        self._registration = Registration(self._database.path, service=service, clock=clock)
        self.entered = False
        """Whether it has signed in. A process that has not said which service it is might be
        another component: its first span tells, and until then it changes nothing here."""
        if settings.owner_explicit or service is not None or self.stamp.service_name is None:
            self._enter(wait)
        self._log_sweep = LogSweep(self._database, self._artifacts, clock, self._tell_gap)
        self._waiting = 0
        """Log records of this transaction whose span has not come."""
        self.late = 0
        """Ended spans and log records of the last group that were dropped: their task was removed
        before."""
        self.marked = 0
        """Ended spans of the last group in which some value has no exact representation."""
        self.retainer = Retainer(self._database, self._artifacts, settings, clock, problem)

    def _enter(self, wait: float | None) -> None:
        try:
            with self._database.transaction(wait=wait) as connection:
                enter(connection, self._database.path, self._registration, self._clock())
        except sqlite3.Error as error:
            # Then the first write does so.
            _logger.warning(
                "otel-taskhistory: what dead processes left running was not looked for yet (%s)",
                type(error).__name__,
            )
            return
        self.entered = True

    @property
    def stamp(self) -> Stamp:
        """Owner, history id and service of the history."""
        return self._database.stamp

    @property
    def is_calm(self) -> bool:
        """Whether the last group was about running tasks only, and nobody else wrote before it."""
        return self._is_calm

    @property
    def content(self) -> int | None:
        """Bytes of the history after the last group, if that is known."""
        return self._projection.content

    @property
    def moved(self) -> bool:
        """Whether its files were deleted or replaced: what is written goes nowhere then."""
        return self._database.moved()

    def abandon(self) -> None:
        """In a forked child: neither use nor close what is the parent's."""
        self._database.abandon()

    def leave(self) -> None:
        """Close a session that has `moved`."""
        self._registration.release()
        self._database.leave()

    def close(self) -> None:
        """Close the database; what was never ended is interrupted now, else at the next open."""
        try:
            if self.entered and not self.moved:
                with (
                    suppress(sqlite3.Error),
                    self._database.transaction(wait=_LEAVE_WAIT) as connection,
                ):
                    leave(connection, self._registration, self._clock())
                with suppress(sqlite3.Error):  # what is not indexed now is by the next writer
                    for _ in range(_LAST_INDEXING):
                        if not self.retainer.upkeep.index():
                            break
        finally:
            self._registration.release()
            self._database.close()

    def write(
        self,
        entries: Sequence[AnyEntry],
        *,
        durable: bool,
        wait: float,
        gaps: list[dict[str, Any]],
        service: str | None,
    ) -> Outcome:
        """Commit entries in one transaction.

        Args:
            durable: survive power loss.
            wait: seconds to wait for the lock at most.
            gaps: details of ``loss`` rows for the timeline, written before the entries.
            service: the ``service.name`` to stamp the history with if it has none.

        Raises:
            StoreAway: nothing was written; try again later.
            HistoryRefused: the history has become another service's meanwhile.
        """
        self._service = service or self._service
        try:
            with self._database.transaction(durable=durable, wait=wait):
                stamp = self._begin(gaps, service)
                for entry in entries:
                    self._apply(entry)
                self._misread += self._rereader.spans(sorted(self._again))
                self._projection.finish()
            self._committed(stamp)
            self._database.fold_log()
            self._log_sweep.step(self._waiting)
            return Outcome(not_understood=tuple(self._misread))
        except BaseException as error:
            self._forget()
            if not isinstance(error, Exception):
                raise
            if is_away(error):
                raise away(error) from error
        # It is about one of the entries, or about rows that we remembered and that retention
        # has removed in another process.
        try:
            with self._database.transaction(durable=durable, wait=wait):
                stamp = self._begin(gaps, service)
                outcome = self._write_each(entries)
                if outcome.lost:
                    self._tell_gap({"reason": "not storable", "spans": outcome.lost})
            self._committed(stamp)
            return outcome
        except BaseException as error:
            self._forget()
            if isinstance(error, sqlite3.Error | OSError):
                raise away(error) from error
            raise

    def read_again(
        self, choose: Callable[[sqlite3.Connection], Sequence[int]], *, wait: float
    ) -> list[Exception]:
        """Read spans of the ledger again, and what follows from them, in one transaction.

        When a task was committed last, and by whom, stays as it was: its age counts from that.

        Args:
            choose: picks the rows of spans, of whole traces or parts of them, and may note in the
                same transaction how far one has come. Called again when the first try fails.
            wait: seconds to wait for the lock at most.

        Returns:
            What was in the way of each span that could not be read, and of each trace that could
            not be made out: those stay as they were.

        Raises:
            StoreAway: nothing was changed; try again later.
        """
        try:
            with self._database.transaction(wait=wait) as connection:
                self._begin([], None)
                rows = choose(connection)
                kept = Kept(connection, rows)
                failed = self._rereader.spans(rows)
                self._projection.finish()
                kept.put_back()
            self._database.fold_log()
            return failed
        except BaseException as error:
            self._forget()
            if not isinstance(error, Exception):
                raise
            if is_away(error):
                raise away(error) from error
        try:
            with self._database.transaction(wait=wait) as connection:
                self._begin([], None)
                rows = choose(connection)
                kept = Kept(connection, rows)
                failed = self._read_each(rows)
                failed += self._projection.finish_each()
                kept.put_back()
            return failed
        except BaseException as error:
            self._forget()
            if isinstance(error, sqlite3.Error | OSError):
                raise away(error) from error
            raise

    def _read_each(self, rows: Iterable[int]) -> list[Exception]:
        """Read span by span again: one that cannot be costs no other, it stays as it was."""
        source = self._rereader.readback()

        def read_one(row: int) -> None:
            error = self._rereader.span(row, source)
            if error is not None:
                raise error

        tries = [self._once(partial(read_one, row)) for row in rows]
        return [error for error in tries if error is not None]

    def _begin(self, gaps: list[dict[str, Any]], service: str | None) -> Stamp:
        connection, now = self._database.connection, self._clock()
        still = self._still.look()
        self._is_calm = False
        self._registration.service = self._service
        if not self.entered:
            enter(connection, self._database.path, self._registration, now)
        elif self._registration.sign(connection):
            revive(connection, self._registration.row, now)
        self._projection.process = self._registration.row
        if not still:
            rules.sign(connection)
        self.late = self.marked = 0
        self._waiting = 0
        self._again.clear()
        self._misread.clear()
        self._contents.begin(still=still)
        self._ledger.begin(still=still)
        self._logs.begin(still=still)
        self._projection.begin(still=still)
        stamp = self._database.claim_service(service)
        for gap in gaps:
            self._tell_gap(gap)
        return stamp

    def _committed(self, stamp: Stamp) -> None:
        self._still.keep()
        self._is_calm = self._projection.is_calm
        self._database.keep_stamp(stamp)
        self.entered = True

    def _tell_gap(self, detail: dict[str, Any]) -> None:
        self._database.connection.execute(
            "INSERT INTO _timeline (at_ns, event, detail) VALUES (?, 'loss', ?)",
            (self._clock(), compact(detail)),
        )

    def _write_each(self, entries: Sequence[AnyEntry]) -> Outcome:
        """Write entry by entry: one that cannot be written costs no other, it is reduced."""
        cut: list[Exception] = []
        lost = 0
        for entry in entries:
            error = self._tried(entry) and self._tried(entry)  # the second time nothing is stale
            if error is not None:
                cut.append(error)
                lost += self._tried(reduced(entry)) is not None
        self._misread += self._read_each(sorted(self._again))
        self._misread += self._projection.finish_each()
        return Outcome(tuple(cut), lost, tuple(self._misread))

    def _tried(self, entry: AnyEntry) -> Exception | None:
        again = set(self._again)
        error = self._once(partial(self._apply, entry))
        if error is not None:
            self._again = again
        return error

    def _once(self, do: Callable[[], None]) -> Exception | None:
        """Do something whole or not at all; what was in the way."""
        connection = self._database.connection
        before = self._projection.mark()
        connection.execute("SAVEPOINT entry")
        try:
            do()
        except Exception as error:
            if is_away(error):
                raise
            connection.execute("ROLLBACK TO entry")
            connection.execute("RELEASE entry")
            self._contents.forget()
            self._ledger.forget()
            self._projection.forget(before)
            return error
        connection.execute("RELEASE entry")
        return None

    def _apply(self, entry: AnyEntry) -> None:
        if isinstance(entry, LogEntry):
            self._apply_log(entry)
            return
        entry = self._with_logs(entry)
        self._files.know(entry.facts)
        written = self._ledger.write(
            entry.record,
            entry.facts,
            # What a pending span announces runs as long as the process that does it.
            process=None
            if entry.ended and entry.facts.role != "pending"
            else self._registration.row,
            seen_ns=entry.seen_ns,
            marks=entry.marks,
        )
        if written is None:
            self.late += entry.ended
            return
        self.marked += entry.ended and written.marked
        if written.new:
            self._logs.claim(written.trace, entry.record.span_id, written.row)
        if written.changed:
            self._again.discard(written.row)
            if self._logs.any:
                self._again.update(self._owners().robbed_by(entry.record))
        self._projection.apply(entry.record, entry.facts, written)

    def _with_logs(self, entry: Entry) -> Entry:
        """The entry, read with the log records of its span that are here already."""
        if not self._logs.any or entry.facts.own:
            return entry
        record = entry.record
        logs = self._owners().logs_of(record)
        if not logs:
            return entry
        reading = read(record, logs)
        if reading.error is not None:
            self._misread.append(reading.error)
            return entry
        return replace(entry, facts=reading.facts, marks=entry.marks - {NOT_UNDERSTOOD})

    def _owners(self) -> LogOwners:
        connection = self._database.connection
        return LogOwners(connection, Readback(connection, self._artifacts.read))

    def _apply_log(self, entry: LogEntry) -> None:
        written = self._logs.write(entry.record, entry.seen_ns, entry.marks)
        if written is None:
            self.late += 1
            return
        self._waiting += written.span is None
        if written.news and written.span is not None:
            self._again.add(written.span)
        if written.new and entry.record.event_name:
            self._again.update(self._owners().spans_of(entry.record))

    def _forget(self) -> None:
        self._contents.forget()
        self._ledger.forget()
        self._projection.forget()


def is_away(error: Exception) -> bool:
    """Whether an error is about the store, and not about what is to be written."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _AWAY
    return isinstance(error, OSError)


def away(error: Exception) -> StoreAway:
    """The error as `StoreAway`; messages of SQLite and of the system hold no content."""
    return StoreAway(f"{type(error).__name__}: {error}")
