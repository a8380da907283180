# SPDX-License-Identifier: Apache-2.0
"""Keeps a history within its limits, a bounded bit of work at a time.

`Retainer.step` is called after each commit. It removes what is past a limit, gives space back and
removes files, each within its bound; where nothing is to be done, that costs a few look-ups.
`Retainer.rest` does what is not urgent, while nobody waits.

Whatever it does is decided and done within one write transaction, so any number of processes may
do this to the same history at the same time.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings
from otel_taskhistory.store import faults, records, wall
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.database import Database
from otel_taskhistory.store.holdings import Look, choice, look
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.log import COMMIT_SECONDS, is_busy
from otel_taskhistory.store.passes import Pass, Stuck, Work
from otel_taskhistory.store.removal import Remover
from otel_taskhistory.store.retention import Limits, is_stale
from otel_taskhistory.store.running import RunningPictures
from otel_taskhistory.store.search.index import Indexer
from otel_taskhistory.store.search.upkeep import Upkeep
from otel_taskhistory.store.space import Space, content_bytes
from otel_taskhistory.store.sweep import Sweep
from otel_taskhistory.store.unlinks import Undeletable, Unlinks, undeletable

_logger = logging.getLogger("otel_taskhistory")

ROWS: Final = 100
"""Rows that one step removes at most, while an agent may wait: 6 to 12 ms of computing."""

ROWS_AT_ONCE: Final = 500
"""Rows that one step of `Retainer.run` removes, between which others write: about 25 ms."""

ROWS_PER_ENTRY: Final = 20
"""And so many for each span that was written: more than it has, so that a limit is kept to."""

_CALM_NS: Final = 10**9
"""For so long nothing is looked for where nothing was found, while tasks only run."""

WAITING: Final = 200
"""Rows that wait until indexing them is worth a transaction; searches look at them meanwhile."""

BEHIND: Final = 2_000
"""And so many where an agent leaves no quiet moment: then it is done after a commit."""

SHORT_WAIT: Final = 0.1
"""Seconds that a step waits for another writer: it can be done later."""

_PATIENCE: Final = 3
"""How often `Retainer.run` waits for a lock, each time as long as the busy timeout."""

_TICKS: Final = 3
"""How often `Retainer.run` waits for files that somebody touched a moment ago."""

_NOTE_AGAIN_NS: Final = 3600 * 10**9
_EXPLAINED: Final = {
    "blocked": "a program reads the history at {0.directory} in one transaction that does not end"
    " (or several read without a pause): space is given back when that is over",
    "too_large": "the history at {0.directory} takes more than max_bytes though all that may go is"
    " gone: what is left is running or pinned. Raise OTEL_TASKHISTORY_MAX_BYTES, or unpin tasks",
}


@dataclass(frozen=True, slots=True)
class _Calm:
    """When there was nothing to be done, and until when that holds while tasks only run."""

    at_ns: int
    until_ns: int


class Retainer:
    """Over the writer's connection; no transaction is open whenever a method is called.

    Args:
        database: the writer's.
        folder: the artifacts.
        settings: of which history, and the limits.
        clock: ns since 1970.
        problem: told once of a task that cannot be removed (a bug), and each hour of a history
            that cannot be kept within its limits.
    """

    def __init__(
        self,
        database: Database,
        folder: ArtifactFolder,
        settings: Settings,
        clock: Callable[[], int] = time.time_ns,
        problem: Callable[[Exception], None] | None = None,
    ) -> None:
        connection = database.connection
        self.limits = Limits.of(settings.retention)
        self.space = Space(
            connection, database.log, settings.database, settings.retention.max_bytes
        )
        self.log = database.log
        self._database = database
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._problem = problem
        self._stuck = Stuck(problem)
        self._unlinks = Unlinks(connection, folder, clock)
        indexer = Indexer(connection)
        self.upkeep = Upkeep(database, self.space, indexer)
        self._remover = Remover(connection, self._unlinks, indexer.forget_content)
        self._running = RunningPictures(connection, self._remover)
        self._sweep = Sweep(connection, folder, self._remover, self._unlinks, clock)
        self._removed = False
        """Whether texts may wait in the index that are gone elsewhere."""
        self._noted_ns: dict[str, int] = {}
        self._calm: _Calm | None = None
        # A file goes after the commit that deletes its row: power loss must not bring that back.
        self._durable = settings.durability == "full"

    # --- steps ---

    def is_calm(self, content: int | None) -> bool:
        """Whether a step that has just been recorded leaves nothing to be done.

        To be asked when nothing but running tasks has changed since the last `step`.

        Args:
            content: bytes of the history.
        """
        calm, limit = self._calm, self.limits.content
        if calm is None or self.log.blocked or self._sweep.is_new:
            return False
        if limit is not None and (content is None or content > limit):
            return False
        return calm.at_ns <= self._clock() < calm.until_ns and not self.space.has_spare()

    def step(
        self, rows: int = ROWS, *, now_ns: int | None = None, wait: float = SHORT_WAIT
    ) -> Pass:
        """Do a bounded bit of what there is to be done.

        Args:
            rows: how many rows may be removed; more than are written between two steps, or the
                history grows.
            now_ns: the time from which ages count; the same for all steps of a pass.
            wait: seconds to wait for another writer.

        Raises:
            sqlite3.Error: the store fails; what was removed before stays removed.
        """
        now = self._clock() if now_ns is None else now_ns
        self._calm = None
        try:
            return self._step(rows, now, wait)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return Pass(more=True, busy=True)

    def run(
        self,
        progress: Callable[[Pass], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> Pass:
        """Do all there is to be done, in steps between which others can write.

        Args:
            progress: called after each step with what was done so far.
            pause: sleeps for so many seconds.

        Raises:
            sqlite3.Error: the store fails, or somebody holds its lock for long; what was removed
                before stays removed.
        """
        now = self._clock()
        total = self._run(now, progress, pause)
        if self.upkeep.finish(pause):  # what the index says of what is kept takes room too
            total += self._run(now, progress, pause)
        while not self.log.blocked and self.space.has_spare(all_of_it=True):
            if not self.space.give_back(all_of_it=True):
                break
            pause(0.005)
        folded = self.log.fold(COMMIT_SECONDS)
        return replace(total, blocked=not folded and self.log.wants_fold)

    def _run(
        self, now: int, progress: Callable[[Pass], None] | None, pause: Callable[[float], None]
    ) -> Pass:
        """Remove all that is past a limit."""
        total = Pass(more=True)
        waits = busy = 0
        while total.more or (waits < _TICKS and self._unlinks.wait_for_tick(pause)):
            waits += not total.more
            began = time.monotonic()
            try:
                total += self._step(ROWS_AT_ONCE, now, self._settings.busy_timeout)
                busy = 0
            except sqlite3.OperationalError as error:
                busy += 1
                if not is_busy(error) or busy >= _PATIENCE:
                    raise
            if progress is not None:
                progress(total)
            # SQLite's lock is not fair: who waits for it looks again only every now and then.
            pause(min(max(time.monotonic() - began, 0.005), 0.2))
        return total

    def rest(self) -> bool:
        """Do a bounded bit of what nobody waits for; whether there is more."""
        done = self.step()
        if done.busy:
            return False
        if done.more:
            return True
        try:
            if self.upkeep.index(1 if self._removed else WAITING):
                return True
            self._removed = False
            if self.upkeep.rest():
                return True
            if self._sweep.due:
                self._sweep_some(SHORT_WAIT)
                return True
            if self.log.wants_fold and not self.log.blocked:
                self.log.fold(COMMIT_SECONDS)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        return False

    def sweep_files(self) -> int:
        """Look through all files now, and remove those that no row knows; how many these are."""
        before = self._unlinks.added
        self._sweep.begin()
        while self._sweep.in_files:
            self._sweep_some(self._settings.busy_timeout)
        found = self._unlinks.added - before
        while found and self._unlink(self._settings.busy_timeout):
            pass
        return found

    def retry_files(self) -> tuple[int, list[Undeletable]]:
        """Try now to remove the files that could not be; how many went, and those that stay."""
        before = len(undeletable(self._connection))
        wait = self._settings.busy_timeout
        with self._database.transaction(wait=wait):
            self._unlinks.retry()
        while self._unlink(wait):
            pass
        left = undeletable(self._connection)
        return before - len(left), left

    def make_room(self) -> bool:
        """The disk is full: give back what can be given back; whether there was anything.

        The log is emptied, a commit needs no more than that. A bit of what is past the limits goes,
        and files that wait to be deleted; nothing that is within the limits. Raises nothing.
        """
        log = self.log.size
        made = False
        try:
            made = self.log.fold() and log > 0
            done = self.step()
            made |= bool(done.tasks or done.files or done.bytes)
        except sqlite3.Error as error:
            # To fold the log in, and to remove what frees space later, may take space as well.
            _logger.debug("otel-taskhistory: no room could be made (%s)", type(error).__name__)
        return made

    def remove(self, text: str) -> tuple[str, Pass]:
        """Remove one task, whatever the limits say, at once from everything people query.

        Args:
            text: its id, or what `find_task` takes for it.

        Returns:
            Its id, and what was done; rows that it owned may be left to later steps.

        Raises:
            TaskNotFound: there is none, or several.
            TaskHistoryError: it runs, or is pinned.
        """
        now = self._clock()
        with self._database.transaction(durable=self._durable) as connection:
            task_id = find_task(connection, text)
            task, status, pinned, root, committed = connection.execute(
                "SELECT id, status, pinned, root, committed_ns FROM tasks WHERE task_id = ?",
                (task_id,),
            ).fetchone()
            if pinned:
                raise TaskHistoryError(f"task {task_id} is pinned: unpin it first")
            if status == "running" and (root is not None or not is_stale(committed, now)):
                raise TaskHistoryError(f"task {task_id} is running: it can go when it has ended")
            work = self._work(ROWS_AT_ONCE, now)
            if not work.hide(task, "asked"):
                raise TaskHistoryError(f"task {task_id} cannot be removed: run doctor")
            while work.goes_on and work.work_off():
                pass
            done = work.finish()
        faults.point("removal.committed")
        self._removed = True
        self.log.deleted()
        return task_id, done

    # --- one step ---

    def _step(self, rows: int, now: int, wait: float) -> Pass:
        if self._sweep.is_new:
            self._sweep_some(wait)
        more = too_large = False
        if not self.log.blocked and 2 * self.upkeep.garbage > self.space.division.garbage:
            more = self.upkeep.merge()
        seen = look(self._connection, now)
        due = self._is_due(seen)
        done = Pass()
        if not self._is_paused(seen):
            if due or seen.doubt is not None:
                done = self._remove(rows, now, wait, durable=seen.artifacts > 0)
                seen = look(self._connection, now)
                due = self._is_due(seen)
            if not due and self._is_too_large(seen):
                done += self._thin_out(rows, now, wait)
                seen = look(self._connection, now)
                too_large = self._is_too_large(seen)
        if seen.unlink_ns is not None and seen.unlink_ns <= self._clock():
            more |= self._unlink(wait)
        if not due and not self.log.blocked and self.space.has_spare():
            more |= self.space.give_back() and self.space.has_spare()
        self.space.keep_small()
        more |= due and not self._is_paused(seen)
        self._note("blocked", now, told=self.log.is_stuck)
        self._note("too_large", now, told=too_large)
        if not (more or due or too_large or done.tasks or done.files):
            until = now + _CALM_NS
            if seen.unlink_ns is not None:
                until = min(until, seen.unlink_ns)
            self._calm = _Calm(now, until)
        return replace(done, more=more, blocked=self.log.blocked, too_large=too_large)

    def _is_due(self, seen: Look) -> bool:
        """Whether there is something to be removed."""
        if seen.loose:
            return True
        if seen.owner is not None and self._remover.waiting(self._stuck.tasks) is not None:
            return True
        holding = self._stuck.passed_over(self._connection, seen.holding)
        limits = self._limits_now()
        return choice(self._connection, limits, holding, self._stuck.tasks) is not None

    def _is_too_large(self, seen: Look) -> bool:
        limit = self._limits_now().content
        return limit is not None and seen.holding.content > limit

    def _is_full(self) -> bool:
        """Whether so much of the index is about removed tasks that it is to be merged first.

        To remove more tasks instead would take those that are within the limit.
        """
        return self.upkeep.garbage > self.space.division.garbage

    def _limits_now(self) -> Limits:
        """What of the index is about removed tasks has room of its own."""
        if self.limits.content is None:
            return self.limits
        more = min(self.upkeep.garbage, self.space.division.garbage)
        return replace(self.limits, content=self.limits.content + more)

    def _is_paused(self, seen: Look) -> bool:
        """Whether removing would only make the files larger.

        While a reader keeps the log from being folded in, each deletion is written to the log and
        frees nothing but artifacts.
        """
        return self.log.blocked and 2 * seen.artifacts < seen.holding.content

    def _work(self, rows: int, now: int) -> Work:
        return Work(
            self._connection, self._remover, self._unlinks, self._stuck, rows=rows, now_ns=now
        )

    def _remove(self, rows: int, now: int, wait: float, *, durable: bool) -> Pass:
        with self._database.transaction(durable=durable and self._durable, wait=wait):
            unsure = look(self._connection, now).doubt
            if unsure is not None:
                wall.settle(self._connection, unsure, now)
            work = self._work(rows, now)
            while work.goes_on and (
                work.work_off() or (not self._is_full() and work.hide_next(self._limits_now()))
            ):
                pass
            done = work.finish()
            faults.point("removal.uncommitted")
        faults.point("removal.committed")
        self._removed = True
        self.log.deleted()
        return done

    def _thin_out(self, rows: int, now: int, wait: float) -> Pass:
        """All that may go is gone: take pictures of running tasks, the oldest first."""
        limit = self.limits.content
        if limit is None or not self._running.has_any():
            return Pass()
        with self._database.transaction(durable=self._durable, wait=wait):
            work = self._work(rows, now)
            while work.goes_on and content_bytes(self._connection) > limit:
                if not self._running.drop_some():
                    break
                work.record("too_large")
            done = work.finish()
        if done.files:
            self.log.deleted()
        return done

    def _sweep_some(self, wait: float) -> None:
        """Look for a few of the files and rows that a crash has left."""
        if self._sweep.look():
            with self._database.transaction(durable=self._durable, wait=wait):
                self._remover.left = ROWS
                self._sweep.clear()

    def _unlink(self, wait: float) -> bool:
        """Remove files that are due; whether there are more."""
        with self._database.transaction(wait=wait):
            self._unlinks.work_off()
        faults.point("unlink.committed")
        due = self._connection.execute("SELECT min(due_ns) FROM _unlinks").fetchone()[0]
        return due is not None and due <= self._clock()

    def _note(self, reason: str, now: int, *, told: bool) -> None:
        """Leave a record of a state when it begins, and each hour while it lasts."""
        if not told:
            self._noted_ns.pop(reason, None)
            return
        noted = self._noted_ns.get(reason)
        if noted is not None and abs(now - noted) < _NOTE_AGAIN_NS:
            return
        self._noted_ns[reason] = now
        with self._database.transaction(wait=SHORT_WAIT) as connection:
            records.tell(connection, records.begin(connection, reason, now))
        if self._problem is not None:
            self._problem(TaskHistoryError(_EXPLAINED[reason].format(self._settings)))
