# SPDX-License-Identifier: Apache-2.0
"""The writing side of a history: entries in, rows and files out, one transaction a group.

Entries may come from any thread; one thread writes them (see `commit`). Nothing here raises for
what the store, the disk or a value does, except the constructor.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from otel_taskhistory.errors import HistoryRefused, TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.spans.record import LogRecord, SpanRecord
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.aside import set_aside
from otel_taskhistory.store.commit import GroupCommit, Job, StoreAway, Wait
from otel_taskhistory.store.damage import is_damage
from otel_taskhistory.store.database import connect, connect_to_read
from otel_taskhistory.store.entries import AnyEntry, Entry, LogEntry
from otel_taskhistory.store.picture_files import StoredFile, store_file
from otel_taskhistory.store.recovery import recover_task
from otel_taskhistory.store.retainer import BEHIND, ROWS, ROWS_PER_ENTRY
from otel_taskhistory.store.session import Session
from otel_taskhistory.store.space import is_full
from otel_taskhistory.store.stamp import Stamp

__all__ = ["AnyEntry", "Entry", "Job", "LogEntry", "StoredFile", "Wait", "Writer", "report"]

_logger = logging.getLogger("otel_taskhistory")

_INDEX_EVERY: Final = 16  # commits: to count what waits takes longer the more that is
_LOG_EVERY_SECONDS: Final = 60.0
_LONG: Final = 1024  # bytes from which on a string is worth being told from its likes
_RETRY_WAIT: Final = 0.1  # for a lock, while nobody waits for us but the retries to come


@dataclass(slots=True)
class Counters:
    """What happened to what was handed over; never reset."""

    spans: int = 0
    """Ended spans that were committed."""
    checkpoints: int = 0
    """Starts and checkpoints of running spans that were committed."""
    logs: int = 0
    """Log records that were committed, or were there already."""
    commits: int = 0
    reduced: int = 0
    """Spans and log records of which only a reduced form could be stored."""
    marked: int = 0
    """Spans that are whole but for values without an exact representation; ``spans.marks``."""
    lost: int = 0
    """Spans, checkpoints and log records that were given up on."""
    late: int = 0
    """Spans and log records that came after their task was removed, and were dropped."""
    away: int = 0
    """How often the store could not be written."""
    last_error: str | None = None
    by_error: dict[str, int] = field(default_factory=dict)


class Writer:
    """Writes one history from one process; safe to use from any thread and signal handler.

    Args:
        settings: where the history is and how durable it is to be.
        service_name: the explicit ``service.name`` of this process, if it is known already.
        on_error: called with each kind of failure; must not raise, and its errors are logged.
        clock: ns since 1970.

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
        self.closed = False
        self._service = service_name
        self._on_error = on_error
        self._clock = clock
        self._artifacts = ArtifactFolder(settings.artifacts)
        self._damaged = False
        self._logged_at: dict[str, float] = {}
        self._gaps: dict[str, dict[str, Any]] = {}
        """By reason, what the timeline is still to be told."""
        self._session: Session | None = Session(
            settings, service_name, clock, problem=self._limit_trouble
        )
        self.stamp: Stamp = self._session.stamp
        """Owner, history id and service of the history, as last seen."""
        self._commit = GroupCommit(_Work(self))
        if self._keep_within_limits(self._session):
            self._commit.wake()

    # --- handing over ---

    def submit(self, entries: Sequence[AnyEntry], *, durable: bool, wait: Wait = Wait.DONE) -> Job:
        """Hand entries over and wait as told; `job.stored` says what came of it."""
        texts: dict[int, int] = {}
        size = sum(size_of(entry.record, texts) for entry in entries)
        job = Job(list(entries), durable=durable, size=size, texts=texts)
        self._commit.submit(job, wait)
        return job

    def claim_service(self, name: str) -> None:
        """Stamp the history with this process's service, with the next entries, if it has none.

        When another process was faster, `stamp` says so after that, and those entries are lost.
        """
        self._service = name

    def flush(self, seconds: float) -> bool:
        """Whether everything that was handed over is committed, within `seconds`."""
        return self._commit.flush(seconds)

    def close(self, seconds: float = 5.0) -> None:
        """Commit what waits, within about `seconds`, and close; later calls do nothing."""
        if self.closed:
            return
        self.closed = True
        deadline = time.monotonic() + seconds
        self._commit.flush(seconds)
        self._commit.close(deadline - time.monotonic())

    def abandon(self) -> None:
        """In a forked child: queue, locks and connection are the parent's.

        The child opens the history when it first records.
        """
        if self._session is not None:
            self._session.abandon()
            self._session = None
        self._gaps = {}
        self._commit = GroupCommit(_Work(self))

    def store_picture(self, data: bytes) -> StoredFile:
        """Write a picture as a file and fsync it; its row comes with the span that shows it.

        Raises:
            OSError: it cannot be written.
        """
        return store_file(self._artifacts, data)

    @property
    def waiting(self) -> tuple[int, int]:
        """How many entries wait for the store to come back, and about how many bytes."""
        return self._commit.waiting

    def task_by(
        self, *, task_id: str | None, key: str | None
    ) -> tuple[str, str, str, int, int] | None:
        """(trace id, first root's span id, status, attempts, last step index) of a task.

        Raises:
            sqlite3.Error: the history cannot be read.
        """
        if not self._commit.away:  # then the agent has waited already
            self._commit.flush(self.settings.busy_timeout)  # what this process has just recorded
        found = self._look_up(task_id=task_id, key=key)
        if found is None or found[2] != "running":
            return found
        # Its process may have died after we opened. If that cannot be noted now, it "runs".
        with suppress(sqlite3.Error):
            self._recover(task_id or found[0])
        return self._look_up(task_id=task_id, key=key)

    def _recover(self, task_id: str) -> None:
        with closing(connect(self.settings.database, self.settings.busy_timeout)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            recover_task(connection, self.settings.database, task_id, self._clock())
            connection.execute("COMMIT")

    def _look_up(
        self, *, task_id: str | None, key: str | None
    ) -> tuple[str, str, str, int, int] | None:
        column, value = ("task_id", task_id) if task_id is not None else ("key", key)
        # A connection of its own: on the writer's one would see rows before they are committed.
        with closing(connect_to_read(self.settings)) as connection:
            row = connection.execute(
                "SELECT task.trace_id, coalesce((SELECT span_id FROM _spans"
                "  WHERE trace = task.trace AND role = 'task' ORDER BY start_ns LIMIT 1), ''),"
                " task.status, task.attempt,"
                " coalesce((SELECT max(step_index) FROM _steps WHERE task = task.id), 0)"
                f" FROM tasks AS task WHERE task.{column} = ? ORDER BY task.id DESC LIMIT 1",
                (value,),
            ).fetchone()
        return tuple(row) if row else None

    # --- writing; only ever one thread is in here ---

    def _write(self, entries: list[AnyEntry], durable: bool, patient: bool) -> bool:
        durable = durable and self.settings.durability == "full"
        wait = self.settings.busy_timeout
        wait = wait if patient else min(wait, _RETRY_WAIT)
        session = self._opened(wait)
        write = partial(
            session.write,
            entries,
            durable=durable,
            wait=wait,
            gaps=list(self._gaps.values()),
            service=self._service,
        )
        try:
            try:
                outcome = write()
            except StoreAway as reason:
                if not (is_full(reason.__cause__) and session.retainer.make_room()):
                    raise
                outcome = write()
        except StoreAway as reason:
            # Set aside at the next try, when nobody waits for this one any more.
            self._damaged = reason.__cause__ is not None and is_damage(reason.__cause__)
            raise
        except HistoryRefused as error:
            # Another process has given the history to another service in the meantime.
            self._service = None
            self.stamp = session.stamp
            self.counters.lost += len(entries)
            self._trouble(error, "spans of another service were refused")
            return False
        self.stamp = session.stamp
        self._gaps.clear()
        self.counters.commits += 1
        ended, checkpoints, logs = _kinds(entries)
        self.counters.spans += ended
        self.counters.checkpoints += checkpoints
        self.counters.logs += logs
        for trouble in outcome.reduced:
            self.counters.reduced += 1
            self._trouble(trouble, "a span could not be stored whole")
        for trouble in outcome.not_understood:
            self._trouble(trouble, "what the spans of a trace mean could not be found out")
        if outcome.lost:
            self.counters.lost += outcome.lost
            self._trouble(StoreAway(f"{outcome.lost} spans were lost"), "spans were not storable")
        self.counters.late += session.late
        self.counters.marked += session.marked
        self._keep_within_limits(session, len(entries))
        self._keep_up_index(session)
        return True

    def _keep_within_limits(self, session: Session, entries: int = 0) -> bool:
        """Do a bounded bit of it; whether there is more to be done."""
        if not session.entered:
            return False
        retainer = session.retainer
        try:
            if session.is_calm and retainer.is_calm(session.content):
                retainer.space.keep_small(session.content)
                return False
            return retainer.step(ROWS + ROWS_PER_ENTRY * entries).more
        except Exception as error:
            self._limit_trouble(error)
            return False

    def _keep_up_index(self, session: Session) -> None:
        """Index a bit of what is said where a busy agent leaves no quiet moment for it."""
        if self.counters.commits % _INDEX_EVERY:
            return
        try:
            session.retainer.upkeep.index(BEHIND)
        except Exception as error:
            self._trouble(error, "what is said cannot be indexed now")

    def _rest(self) -> bool:
        """Do a bounded bit of what can wait; whether there is more."""
        if self._session is None or not self._session.entered:
            return False
        try:
            return self._session.retainer.rest()
        except Exception as error:
            self._limit_trouble(error)
            return False

    def _limit_trouble(self, error: Exception) -> None:
        self._trouble(error, "the history cannot be kept within its limits now")

    def _opened(self, wait: float) -> Session:
        """The session; opened anew when there is none or its files are not the history any more.

        Raises:
            StoreAway: it cannot be opened now.
        """
        if self._damaged:
            self._set_aside()
        session = self._session
        if session is not None and session.moved:
            self._session = None
            session.leave()
            session = None
            self._gap("the database was deleted or replaced")
            self._trouble(
                StoreAway(f"{self.settings.database} was deleted or replaced"),
                "what was recorded before is not in the history any more",
            )
        if session is None:
            try:
                session = Session(
                    self.settings, self._service, self._clock, wait, self._limit_trouble
                )
            except TaskHistoryError as error:
                raise StoreAway(str(error)) from error
            self._session = session
            self.stamp = session.stamp
        return session

    def _set_aside(self) -> None:
        """Begin a new history if this one is damaged indeed.

        Raises:
            StoreAway: it is, but cannot be set aside now.
        """
        self._shut()
        try:
            if set_aside(self.settings) is not None:
                self._gap("the database was damaged and set aside")
        except TaskHistoryError as error:
            raise StoreAway(str(error)) from error
        self._damaged = False

    def _gave_up(self, entries: list[AnyEntry]) -> None:
        """Entries are lost; the timeline is told with the next ones that are stored."""
        ended, checkpoints, logs = _kinds(entries)
        self.counters.lost += len(entries)
        self._gap("the history could not be written in time", ended, checkpoints, logs)
        records = f" and {logs} log records" if logs else ""
        self._trouble(
            StoreAway(f"{ended} spans and {checkpoints} checkpoints{records} were lost"),
            "the history could not be written in time",
        )

    def _gap(self, reason: str, spans: int = 0, checkpoints: int = 0, logs: int = 0) -> None:
        known = self._gaps.setdefault(reason, {"reason": reason, "spans": 0, "checkpoints": 0})
        known["spans"] += spans
        known["checkpoints"] += checkpoints
        if logs:
            known["logs"] = known.get("logs", 0) + logs

    def _shut(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # --- failures ---

    def _trouble(self, error: BaseException, what: str) -> None:
        kind = type(error).__name__
        self.counters.last_error = f"{kind}: {error}" if _is_ours(error) else kind
        self.counters.by_error[kind] = self.counters.by_error.get(kind, 0) + 1
        report(what, error, self._on_error, self._logged_at)


class _Work:
    """What `GroupCommit` calls, in the writing thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def write(self, entries: list[Any], durable: bool, patient: bool) -> bool:
        return self._writer._write(entries, durable, patient)

    def rest(self) -> bool:
        return self._writer._rest()

    def went_away(self, reason: Exception) -> None:
        self._writer.counters.away += 1
        self._writer._trouble(reason, "the history cannot be written now; steps wait in memory")

    def gave_up(self, entries: list[Any]) -> None:
        self._writer._gave_up(entries)

    def close(self) -> None:
        self._writer._shut()


_telling = threading.local()


def report(
    what: str,
    error: BaseException,
    on_error: Callable[[BaseException], None] | None,
    logged_at: dict[str, float],
) -> None:
    """Tell `on_error`, and the log at most once a minute per kind; never with content.

    What a log handler or `on_error` does may itself fail to be recorded: that is not told again.
    """
    if getattr(_telling, "now", False):
        return
    _telling.now = True
    try:
        kind = f"{what}: {type(error).__name__}"
        now = time.monotonic()
        if now - logged_at.get(kind, -_LOG_EVERY_SECONDS) >= _LOG_EVERY_SECONDS:
            logged_at[kind] = now
            # The text of a foreign exception may quote what was being stored: only ours is shown.
            shown = error if _is_ours(error) else type(error).__name__
            _logger.warning("otel-taskhistory: %s (%s)", what, shown)
        if on_error is not None:
            try:
                on_error(error)
            except Exception:
                _logger.exception("otel-taskhistory: the on_error callback itself failed")
    finally:
        _telling.now = False


def _is_ours(error: BaseException) -> bool:
    return isinstance(error, StoreAway | TaskHistoryError)


def _kinds(entries: Sequence[AnyEntry]) -> tuple[int, int, int]:
    """How many are (ended spans, spans as they were while they ran, log records)."""
    spans = [entry for entry in entries if isinstance(entry, Entry)]
    ended = sum(entry.ended for entry in spans)
    return ended, len(spans) - ended, len(entries) - len(spans)


def size_of(record: SpanRecord | LogRecord, texts: dict[int, int] | None = None) -> int:
    """About how many bytes a record holds.

    Args:
        texts: gets the sizes of long strings by their identity, which are left out then: a
            checkpoint of a span holds the same strings as the one before.
    """
    size = 1024 + _size_of(record.attributes, texts)
    if isinstance(record, LogRecord):
        return size + _size_of(record.body, texts, 8)
    for event in record.events:
        size += 256 + _size_of(event.attributes, texts)
    for link in record.links:
        size += 256 + _size_of(link.attributes, texts)
    return size


def _size_of(value: Any, texts: dict[int, int] | None, levels: int = 4) -> int:
    # Exact for strings, whatever characters they hold, and as fast as len().
    if isinstance(value, str | bytes):
        size = sys.getsizeof(value)
        if texts is None or size < _LONG:
            return size
        texts[id(value)] = size
        return 0
    if levels and isinstance(value, Mapping):
        return sum(64 + _size_of(item, texts, levels - 1) for item in value.values())
    if levels and isinstance(value, list | tuple):
        return sum(_size_of(item, texts, levels - 1) for item in value)
    return 64
