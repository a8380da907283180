# SPDX-License-Identifier: Apache-2.0
"""What is removed within one transaction, counted, measured and put on record."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from otel_taskhistory.store import records
from otel_taskhistory.store.holdings import choice, look, oldest
from otel_taskhistory.store.removal import Owner, Remover
from otel_taskhistory.store.retention import Holding, Kept, Kind, Limits
from otel_taskhistory.store.space import content_bytes
from otel_taskhistory.store.unlinks import Unlinks


@dataclass(frozen=True, slots=True)
class Pass:
    """What one step of `otel_taskhistory.store.retainer.Retainer` did, or several together."""

    agent_tasks: int = 0
    other_tasks: int = 0
    files: int = 0
    bytes: int = 0
    """By how much live pages and artifacts became smaller."""
    more: bool = False
    """Whether there is more to be done now."""
    blocked: bool = False
    """Whether a reader keeps space from being given back."""
    too_large: bool = False
    """Whether all that may go is gone, and the history is still larger than allowed."""
    busy: bool = False
    """Whether another writer was in the way."""

    @property
    def tasks(self) -> int:
        """Of both kinds."""
        return self.agent_tasks + self.other_tasks

    def __add__(self, later: Pass) -> Pass:
        return Pass(
            self.agent_tasks + later.agent_tasks,
            self.other_tasks + later.other_tasks,
            self.files + later.files,
            self.bytes + later.bytes,
            later.more,
            later.blocked,
            later.too_large,
            later.busy,
        )


class Stuck:
    """Tasks that cannot be removed, which is a bug: told once, then passed over."""

    def __init__(self, tell: Callable[[Exception], None] | None) -> None:
        self.tasks: set[int] = set()
        self._tell = tell

    def add(self, task: int, error: Exception) -> None:
        """Pass this one over from now on, in this process."""
        self.tasks.add(task)
        if self._tell is not None:
            self._tell(error)

    def passed_over(self, connection: sqlite3.Connection, holding: Holding) -> Holding:
        """What there is besides them."""
        if not self.tasks:
            return holding

        def kept(kind: Kind) -> Kept:
            head = oldest(connection, kind, holding.now_ns, self.tasks)
            return replace(holding.of(kind), oldest_ns=None if head is None else head[1])

        return replace(holding, other=kept("other"), agent=kept("agent"))


class Work:
    """Removes within one transaction, which is open from its making to `finish`.

    Args:
        rows: how many rows may be removed.
        now_ns: the time from which ages count.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        remover: Remover,
        unlinks: Unlinks,
        stuck: Stuck,
        *,
        rows: int,
        now_ns: int,
    ) -> None:
        self._connection = connection
        self._remover = remover
        self._unlinks = unlinks
        self._stuck = stuck
        self._now = now_ns
        self._records: dict[str, int] = {}
        self._tasks = {"agent": 0, "other": 0}
        self._content_before = self._content = content_bytes(connection)
        self._files_before = self._files = unlinks.added
        remover.left = rows

    @property
    def goes_on(self) -> bool:
        """Whether more may be removed in this transaction."""
        return self._remover.left > 0

    def work_off(self) -> bool:
        """Remove a batch of what waits to be removed; whether there was any."""
        if self._remover.drop_loose():
            return True
        owner = self._remover.waiting(self._stuck.tasks)
        if owner is None:
            return False
        self._guarded(owner.id, lambda: self._remover.work_off(owner))
        self._measure(owner.record)
        return True

    def hide_next(self, limits: Limits) -> bool:
        """Take the next task that is past a limit out; whether there was one."""
        holding = self._stuck.passed_over(self._connection, self._holding())
        chosen = choice(self._connection, limits, holding, self._stuck.tasks)
        if chosen is None:
            return False
        head = oldest(self._connection, chosen.kind, self._now, self._stuck.tasks)
        assert head is not None
        self.hide(head[0], chosen.reason)
        return True

    def hide(self, task: int, reason: str) -> bool:
        """Take a task out of everything people query; False when it cannot be removed."""
        record = self.record(reason)

        def hide() -> None:
            hidden = self._remover.hide(task, record, self._now)
            if not hidden.alone:
                # The rest of its trace is put together anew from all spans that are there.
                self._remover.work_off(Owner(task, None, record), whole=True)
            records.add_task(self._connection, record, hidden.kind, hidden.committed_ns)
            self._tasks[hidden.kind] += 1

        self._remover.left -= 1
        done = self._guarded(task, hide)
        self._measure(record)
        return done

    def record(self, reason: str) -> int:
        """The record of what is removed for this reason."""
        if reason not in self._records:
            self._records[reason] = records.begin(self._connection, reason, self._now)
        return self._records[reason]

    def finish(self) -> Pass:
        """Complete the records; the transaction is committed after that."""
        for record in self._records.values():
            self._measure(record)
            records.tell(self._connection, record)
        return Pass(
            self._tasks["agent"],
            self._tasks["other"],
            self._unlinks.added - self._files_before,
            max(self._content_before - content_bytes(self._connection), 0),
        )

    def _holding(self) -> Holding:
        return look(self._connection, self._now).holding

    def _guarded(self, task: int, work: Callable[[], Any]) -> bool:
        """Do it whole or not at all."""
        self._connection.execute("SAVEPOINT task")
        try:
            work()
        except sqlite3.IntegrityError as error:
            self._connection.execute("ROLLBACK TO task")
            self._connection.execute("RELEASE task")
            self._stuck.add(task, error)
            return False
        self._connection.execute("RELEASE task")
        return True

    def _measure(self, record: int | None) -> None:
        """Put what became free since the last time on this record."""
        content, files = content_bytes(self._connection), self._unlinks.added
        if record is not None and (content, files) != (self._content, self._files):
            freed = self._content - content
            records.add_space(self._connection, record, files - self._files, freed)
        self._content, self._files = content, files
