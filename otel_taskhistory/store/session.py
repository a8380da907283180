# SPDX-License-Identifier: Apache-2.0
"""One open history, to write spans into: each `Session.write` is one transaction.

A session is opened anew when the database was replaced under it, or in a forked child. What it
remembers of rows belongs to its connection and ends with it.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from otel_taskhistory.conventions.facts import Screenshot, SpanFacts
from otel_taskhistory.images import inspect
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.record import SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.commit import StoreAway
from otel_taskhistory.store.contents import Contents, compact
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.ledger import Ledger
from otel_taskhistory.store.orphans import OrphanSweep
from otel_taskhistory.store.pictures import Found
from otel_taskhistory.store.processes import Registration
from otel_taskhistory.store.projection import Projection
from otel_taskhistory.store.recovery import enter, leave, revive
from otel_taskhistory.store.retainer import Retainer
from otel_taskhistory.store.stamp import Stamp

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

_NOT_STORED: Final = "not_stored"
_LEAVE_WAIT: Final = 0.5
"""Seconds to wait for the lock at the end: others find out by themselves who has gone."""

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class Entry:
    """One span to be written, as it is or as it was at a checkpoint."""

    record: SpanRecord
    facts: SpanFacts
    seen_ns: int
    marks: frozenset[str] = frozenset()

    @property
    def ended(self) -> bool:
        """Whether it is the span itself and not what it was while it ran."""
        return self.record.end_ns is not None


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a group that was committed."""

    reduced: tuple[Exception, ...] = ()
    """Of each span of which only a reduced form could be stored: what was in its way."""
    lost: int = 0
    """Spans that could not be stored even so."""
    not_understood: tuple[Exception, ...] = ()
    """Of each trace whose tasks and steps could not be made out: what was in the way. Its spans
    are stored; they are looked at again when the next one of them comes."""


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
        self._contents = Contents(connection, self._keep_picture)
        self._ledger = Ledger(connection, self._contents)
        self._projection = Projection(connection, self._contents, clock)
        self._registration = Registration(self._database.path, service=service, clock=clock)
        try:
            with self._database.transaction(wait=wait) as connection:
                enter(connection, self._database.path, self._registration, clock())
        except sqlite3.Error as error:
            # The next write signs in; what the dead left is looked for at the next open.
            _logger.warning(
                "otel-taskhistory: what dead processes left running was not looked for (%s)",
                type(error).__name__,
            )
        self._orphans = OrphanSweep(self._database, self._artifacts)
        self._orphans.step()
        self.late = 0
        """Ended spans of the last group that were dropped: their task was removed before."""
        self.retainer = Retainer(self._database, self._artifacts, settings, clock, problem)

    @property
    def stamp(self) -> Stamp:
        """Owner, history id and service of the history."""
        return self._database.stamp

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
            if not self.moved:
                with (
                    suppress(sqlite3.Error),
                    self._database.transaction(wait=_LEAVE_WAIT) as connection,
                ):
                    leave(connection, self._registration, self._clock())
        finally:
            self._registration.release()
            self._database.close()

    def write(
        self,
        entries: list[Entry],
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
                self._projection.finish()
            self._database.keep_stamp(stamp)
            self._database.fold_log()
            self._orphans.step()
            return Outcome()
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
            self._database.keep_stamp(stamp)
            return outcome
        except BaseException as error:
            self._forget()
            if isinstance(error, sqlite3.Error | OSError):
                raise away(error) from error
            raise

    def _begin(self, gaps: list[dict[str, Any]], service: str | None) -> Stamp:
        self._registration.service = self._service
        if self._registration.sign(self._database.connection):
            revive(self._database.connection, self._registration.row, self._clock())
        self._projection.process = self._registration.row
        self.late = 0
        self._projection.begin()
        stamp = self._database.claim_service(service)
        for gap in gaps:
            self._tell_gap(gap)
        return stamp

    def _tell_gap(self, detail: dict[str, Any]) -> None:
        self._database.connection.execute(
            "INSERT INTO _timeline (at_ns, event, detail) VALUES (?, 'loss', ?)",
            (self._clock(), compact(detail)),
        )

    def _write_each(self, entries: list[Entry]) -> Outcome:
        """Write entry by entry: one that cannot be written costs no other, it is reduced."""
        reduced: list[Exception] = []
        lost = 0
        for entry in entries:
            error = self._tried(entry) and self._tried(entry)  # the second time nothing is stale
            if error is not None:
                reduced.append(error)
                lost += self._tried(_reduced(entry)) is not None
        return Outcome(tuple(reduced), lost, tuple(self._projection.finish_each()))

    def _tried(self, entry: Entry) -> Exception | None:
        """Write one entry whole or not at all; what was in the way."""
        connection = self._database.connection
        before = self._projection.mark()
        connection.execute("SAVEPOINT entry")
        try:
            self._apply(entry)
        except Exception as error:
            if is_away(error):
                raise
            connection.execute("ROLLBACK TO entry")
            connection.execute("RELEASE entry")
            self._contents.forget()
            self._projection.forget(before)
            return error
        connection.execute("RELEASE entry")
        return None

    def _apply(self, entry: Entry) -> None:
        facts = entry.facts
        for shot in facts.screenshots:
            self._know_file(shot)
        written = self._ledger.write(
            entry.record,
            facts,
            process=None if entry.ended else self._registration.row,
            seen_ns=entry.seen_ns,
            marks=entry.marks,
        )
        if written is None:
            self.late += entry.ended
            return
        self._projection.apply(entry.record, facts, written)

    def _forget(self) -> None:
        self._contents.forget()
        self._projection.forget()

    # --- files ---

    def _know_file(self, shot: Screenshot) -> None:
        """The row of a screenshot's file, which is there before its span is."""
        known = self._artifact(shot.sha256)
        if shot.path is None or (known is not None and known[1] != _NOT_STORED):
            return
        try:
            there = self._artifacts.path(shot.path).is_file()
        except ValueError:  # no path of ours
            there = False
        if not there:  # a span of another machine: no row without a file
            return
        file = StoredFile(
            shot.sha256,
            shot.path,
            shot.media_type,
            shot.width,
            shot.height,
            shot.bytes,
            shot.status,
        )
        self._put_artifact(known, file)

    def _keep_picture(self, picture: Found) -> int:
        """The row of a picture that was found in a text, which becomes a file."""
        known = self._artifact(picture.sha256)
        if known is not None and known[1] != _NOT_STORED:
            return known[0]
        try:
            stored = store_file(self._artifacts, picture.data)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise  # the database cannot grow either; both wait
            # One picture must not hold up the steps of all tasks.
            info = inspect(picture.data)
            stored = StoredFile(
                picture.sha256,
                f"{picture.sha256[:2]}/{picture.sha256}.{info.extension}",
                info.media_type,
                info.width,
                info.height,
                len(picture.data),
                _NOT_STORED,
            )
        return self._put_artifact(known, stored)

    def _artifact(self, sha256: str) -> tuple[int, str] | None:
        found: tuple[int, str] | None = self._database.connection.execute(
            "SELECT id, status FROM _artifacts WHERE sha256 = ?", (sha256,)
        ).fetchone()
        return found

    def _put_artifact(self, known: tuple[int, str] | None, file: StoredFile) -> int:
        """Add the row of a file, or correct the one of a file that could not be written before."""
        if known is not None:
            self._database.connection.execute(
                "UPDATE _artifacts SET status = ? WHERE id = ?", (file.status, known[0])
            )
            return known[0]
        row = self._database.connection.execute(
            "INSERT INTO _artifacts (sha256, path, media_type, width, height, bytes, status)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
            astuple(file),
        ).fetchone()
        return int(row[0])


def store_file(folder: ArtifactFolder, data: bytes) -> StoredFile:
    """Write a picture as a file and fsync it.

    Raises:
        OSError: it cannot be written.
    """
    info = inspect(data)
    put = folder.put(data, info.extension)
    return StoredFile(
        put.sha256, put.path, info.media_type, info.width, info.height, put.size, info.status
    )


def is_away(error: Exception) -> bool:
    """Whether an error is about the store, and not about what is to be written."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _AWAY
    return isinstance(error, OSError)


def away(error: Exception) -> StoreAway:
    """The error as `StoreAway`; messages of SQLite and of the system hold no content."""
    return StoreAway(f"{type(error).__name__}: {error}")


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
