# SPDX-License-Identifier: Apache-2.0
"""A history read again by the rules of this version: tasks, steps, calls made anew from the ledger.

Trace by trace, the newest first, in short transactions between which agents write. How far it has
come is noted with each, see `otel_taskhistory.store.rules`: whoever goes on after an interruption,
or at the same time, does the rest. A trace of many spans takes several transactions, and is begun
again when it is interrupted.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store import faults, rules
from otel_taskhistory.store.commit import StoreAway
from otel_taskhistory.store.session import Session

SPANS: Final = 200
"""Spans per transaction at most; a task of 60 steps has about as many."""

BYTES: Final = 8 * 2**20
"""And about this much of what they hold, unless one alone holds more."""

_PARTS: Final = 8
"""A trace of very many spans takes about so many transactions."""

_TRIES: Final = 20
"""How often a transaction that finds the history locked is tried before giving up."""

Tell = Callable[[int, int], None]
"""Called with how many bytes of how many have been read."""


@dataclass(frozen=True, slots=True)
class Reprojected:
    """What was done."""

    traces: int = 0
    spans: int = 0
    failed: int = 0
    """Spans that could not be read, and traces that could not be made out: they stay as they were
    before."""
    errors: tuple[str, ...] = ()
    """The kinds of errors of those, each once."""
    older_writer: bool = False
    """Whether a process with an older version wrote meanwhile: what it wrote is to be read again,
    when it has been restarted."""


@dataclass(frozen=True, slots=True)
class _Place:
    """How far one has come: all traces after `trace` are done.

    Of `trace` itself, that its spans up to `span` are, when that is not 0.
    """

    trace: int
    span: int = 0


@dataclass(slots=True)
class _Step:
    """What one transaction does, as far as it is known before its commit."""

    rows: list[int]
    place: _Place
    traces: int = 0
    size: int = 0
    older_writer: bool = False


def reproject(
    settings: Settings,
    *,
    everything: bool = False,
    tell: Tell | None = None,
    clock: Callable[[], int] = time.time_ns,
    pause: Callable[[float], None] = time.sleep,
) -> Reprojected:
    """Read what was read by older rules again.

    Args:
        settings: of which history.
        everything: also what was read by the present rules. What is left of it when this is
            interrupted is then due like all else.
        tell: hears how far it has come.
        clock: ns since 1970.
        pause: sleeps for so many seconds.

    Raises:
        TaskHistoryError: the history must not or cannot be written, or a newer version has read
            it; what was done before is done.
    """
    session = Session(settings, None, clock)
    try:
        return _Run(session, settings, tell, pause).all(everything=everything)
    except StoreAway as error:
        raise TaskHistoryError(
            f"{settings.database} cannot be written ({error}): run it again, it goes on where it is"
        ) from error
    finally:
        session.close()


class _Run:
    def __init__(
        self,
        session: Session,
        settings: Settings,
        tell: Tell | None,
        pause: Callable[[float], None],
    ) -> None:
        self._session = session
        self._wait = settings.busy_timeout
        self._tell = tell
        self._pause = pause
        self._kinds: dict[str, None] = {}

    def all(self, *, everything: bool) -> Reprojected:
        done = Reprojected()
        place, total = self._begin(everything)
        size = 0
        while place.trace > 0:
            began = time.monotonic()
            step, errors = self._step(place)
            faults.point("reproject.committed")
            place, size = step.place, size + step.size
            self._kinds.update(dict.fromkeys(type(error).__name__ for error in errors))
            done = replace(
                done,
                traces=done.traces + step.traces,
                spans=done.spans + len(step.rows),
                failed=done.failed + len(errors),
                errors=tuple(self._kinds),
                older_writer=done.older_writer or step.older_writer,
            )
            if self._tell is not None:
                self._tell(min(size, total), total)
            # SQLite's lock is not fair: who waits for it looks again only every now and then.
            self._pause(min(max(time.monotonic() - began, 0.005), 0.2))
        return done

    def _begin(self, everything: bool) -> tuple[_Place, int]:
        """Where to begin, and how much there is to be read."""
        found: list[tuple[int, int]] = []

        def choose(connection: sqlite3.Connection) -> Sequence[int]:
            newest = connection.execute("SELECT coalesce(max(id), 0) FROM _traces").fetchone()[0]
            last = newest if everything else min(rules.older_up_to(connection), newest)
            rules.set_older_up_to(connection, last)
            size = connection.execute(
                "SELECT coalesce(sum(size), 0) FROM _spans WHERE trace <= ?", (last,)
            ).fetchone()[0]
            found[:] = [(last, size)]
            return ()

        self._session.read_again(choose, wait=self._wait)
        ((last, size),) = found
        return _Place(last), size

    def _step(self, place: _Place) -> tuple[_Step, list[Exception]]:
        steps: list[_Step] = []

        def choose(connection: sqlite3.Connection) -> Sequence[int]:
            steps[:] = [_choose(connection, place)]
            return steps[0].rows

        for left in reversed(range(_TRIES)):
            try:
                errors = self._session.read_again(choose, wait=self._wait)
                break
            except StoreAway:
                if not left:
                    raise
                self._pause(0.1)
        return steps[0], errors


def _choose(connection: sqlite3.Connection, place: _Place) -> _Step:
    """The next spans, and a note of what is done when the transaction is committed."""
    due = rules.older_up_to(connection)
    if due < place.trace:  # somebody else does the same
        place = _Place(due)
    step = _Step([], place, older_writer=due > place.trace)
    while step.place.trace > 0 and len(step.rows) < SPANS and step.size < BYTES:
        step.place = _some_of_trace(connection, step)
        if step.place.span:
            break
    if not step.older_writer:  # else all is due again, in the end
        rules.set_older_up_to(connection, step.place.trace)
    return step


def _some_of_trace(connection: sqlite3.Connection, step: _Step) -> _Place:
    """Add spans of the trace that is next; where to go on after them."""
    trace = step.place.trace
    spans = connection.execute(
        "SELECT id, size FROM _spans WHERE trace = ? AND id > ? ORDER BY id",
        (trace, step.place.span),
    ).fetchall()
    # A trace is assembled anew with each transaction: not too often.
    most = max(SPANS - len(step.rows), len(spans) // _PARTS)
    last = step.place.span
    for position, (span, size) in enumerate(spans):
        if position >= most or (step.rows and step.size >= BYTES):
            return _Place(trace, last)
        step.rows.append(last := span)
        step.size += size
    step.traces += bool(spans)
    before = connection.execute("SELECT max(id) FROM _traces WHERE id < ?", (trace,)).fetchone()[0]
    return _Place(before or 0)
