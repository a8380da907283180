# SPDX-License-Identifier: Apache-2.0
"""Tasks of agents elsewhere that have fallen silent become ``interrupted``, until news come.

The spans of such agents are written by a process that only passes them on (``receive``), and that
lives on when an agent dies. Nobody can look whether the agent is there; that nothing has come of a
task for a long time is all there is to go by. What such tasks have open is then handed over to a
row of ``_processes`` that has ended, which is the same fact in the ledger as that of a process that
died (see `recovery`), so that `reproject` comes to the same. When news come of such a task it is
handed back, and runs again; likewise one that was interrupted because an earlier receiver ended.

Everything is bounded by what is silent, and looked for on a connection of its own: the writer's
remembers rows of its transaction.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Final

from otel_taskhistory.settings import Settings
from otel_taskhistory.store.database import connect, connect_to_read
from otel_taskhistory.store.processes import _birth, _host
from otel_taskhistory.store.recovery import recover, revive

_OURS: Final = """
SELECT id FROM _processes
WHERE pid = :pid AND host = :host AND birth IS :birth AND (ended_ns IS NOT NULL) = :ended
"""
"""Rows of this very process: those that live, or those that were made here."""

_SILENT: Final = """
SELECT id, committed_ns FROM tasks AS task
WHERE status = 'running' AND committed_ns < :before
    AND coalesce((SELECT process FROM _spans WHERE id = task.root), process)
        IN (SELECT value FROM json_each(:living))
"""

_HEARD: Final = """
SELECT task.id, task.process FROM tasks AS task LEFT JOIN _spans AS root ON root.id = task.root
WHERE task.status = 'interrupted' AND task.process IN (SELECT value FROM json_each(:living))
    AND (root.id IS NULL OR root.process IN (SELECT value FROM json_each(:silent)))
"""

_NEW_ROW: Final = """
INSERT INTO _processes (pid, host, birth, started_ns, seen_ns) VALUES (?, ?, ?, ?, ?)
"""


def interrupt_silent(settings: Settings, now_ns: int, silent_ns: int | None) -> int:
    """Interrupt what this process has written and nothing has come of for `silent_ns`.

    Args:
        settings: where the history is.
        now_ns: ns since 1970.
        silent_ns: how long is long; None interrupts nothing, and only hands back.

    Returns:
        How many tasks were interrupted.

    Raises:
        sqlite3.Error: the history cannot be read or written now; nothing was changed.
    """
    before = None if silent_ns is None else now_ns - silent_ns
    # Without a lock, and without making a database where there is none: mostly nothing is to do.
    with closing(connect_to_read(settings)) as connection:
        who = _Who(connection)
        if not (who.silent(before) or who.heard()):
            return 0
    with closing(connect(settings.database, settings.busy_timeout)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        who = _Who(connection)
        _hand_back(connection, who, now_ns)
        interrupted = _hand_over(connection, who, who.silent(before), now_ns)
        connection.execute("COMMIT")
    return interrupted


class _Who:
    """The rows of this process, and what they have to do with tasks."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.values = {"pid": os.getpid(), "host": _host(), "birth": _birth(os.getpid())}
        self.living = self._rows(ended=False)
        self.ended = self._rows(ended=True)

    def silent(self, before_ns: int | None) -> list[tuple[int, int]]:
        """(row, last commit) of the running tasks that were last heard of before that."""
        if before_ns is None:
            return []
        return self._connection.execute(
            _SILENT, {"before": before_ns, "living": _json(self.living)}
        ).fetchall()

    def heard(self) -> list[tuple[int, int]]:
        """(row, who wrote it) of the interrupted tasks that go on: more has come, but no end."""
        return self._connection.execute(
            _HEARD, {"silent": _json(self.ended), "living": _json(self.living)}
        ).fetchall()

    def _rows(self, *, ended: bool) -> list[int]:
        found = self._connection.execute(_OURS, {**self.values, "ended": ended})
        return [row[0] for row in found]


def _hand_over(
    connection: sqlite3.Connection, who: _Who, silent: list[tuple[int, int]], now_ns: int
) -> int:
    if not silent:
        return 0
    last_ns = max(committed for _, committed in silent)
    row = connection.execute(_NEW_ROW, (*who.values.values(), last_ns, last_ns)).lastrowid
    assert row is not None
    for task, _ in silent:
        connection.execute("UPDATE tasks SET process = ? WHERE id = ?", (row, task))
        _give(connection, task, who.living, row)
    return recover(connection, [row], now_ns).tasks


def _hand_back(connection: sqlite3.Connection, who: _Who, now_ns: int) -> None:
    heard = who.heard()
    for task, process in heard:
        _give(connection, task, who.ended, process)
    for process in {process for _, process in heard}:
        revive(connection, process, now_ns)


def _give(connection: sqlite3.Connection, task: int, givers: list[int], taker: int) -> None:
    """The open spans of a task are another process's from now on."""
    connection.execute(
        "UPDATE _spans SET process = ? WHERE task = ?"
        " AND process IN (SELECT value FROM json_each(?))",
        (taker, task, _json(givers)),
    )


def _json(rows: list[int]) -> str:
    return str(rows)
