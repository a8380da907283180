# SPDX-License-Identifier: Apache-2.0
"""Pruning, pinning and purging on request, from any process, while agents write.

Each of these opens the history for writing for as long as it takes; `plan_pruning` only reads.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.holdings import all_candidates, look
from otel_taskhistory.store.ids import find_task
from otel_taskhistory.store.log import COMMIT_SECONDS, is_busy
from otel_taskhistory.store.passes import Pass
from otel_taskhistory.store.processes import dead
from otel_taskhistory.store.recovery import LEFT_RUNNING, recover
from otel_taskhistory.store.retention import Candidate, Kind, Limits, Planned, plan
from otel_taskhistory.store.search.index import Indexer
from otel_taskhistory.units import format_size

if TYPE_CHECKING:
    from otel_taskhistory.store.database import Database
    from otel_taskhistory.store.retainer import Retainer

_IN_MEMORY: Final = 64 * 2**20
"""Up to this size a history is rewritten by way of memory, a larger one by way of a file."""

_LOOK_SECONDS: Final = 0.002
"""Between two looks at a lock that others take for a moment, again and again."""

NO_LIMITS: Final = Retention(max_age=None, max_tasks=None, max_bytes=None)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, or would be."""

    planned: tuple[Planned, ...] = ()
    """In a dry run: the tasks that would go, in that order."""
    agent_tasks: int = 0
    other_tasks: int = 0
    files: int = 0
    """Pictures whose files went; not known in a dry run."""
    bytes: int = 0
    """By how much live pages and artifacts became smaller; in a dry run, about."""
    too_large: bool = False
    """Whether the history is still larger than ``max_bytes``: what is left may not go."""
    blocked: bool = False
    """Whether a reader kept space from being given back; that is made good when it ends."""

    @property
    def tasks(self) -> int:
        """Of both kinds."""
        return self.agent_tasks + self.other_tasks


def plan_pruning(
    connection: sqlite3.Connection,
    settings: Settings,
    clock: Callable[[], int] = time.time_ns,
) -> Pruned:
    """What `prune` would remove; changes not a byte."""
    now = clock()
    limits = Limits.of(settings.retention)
    holding = look(connection, now).holding
    waiting: dict[Kind, Iterable[Candidate]] = dict(all_candidates(connection, now))
    for task in _left_running(connection, settings, now):
        kept = holding.of(task.kind)
        more = replace(kept, tasks=kept.tasks + 1, bytes=kept.bytes + task.bytes)
        holding = holding.with_(task.kind, more)
        waiting[task.kind] = chain(waiting[task.kind], [task])
    planned = tuple(plan(limits, holding, waiting))
    size = sum(one.candidate.bytes for one in planned)
    agents = sum(one.candidate.kind == "agent" for one in planned)
    return Pruned(
        planned,
        agents,
        len(planned) - agents,
        bytes=size,
        too_large=limits.content is not None and holding.content - size > limits.content,
    )


def _left_running(
    connection: sqlite3.Connection, settings: Settings, now: int
) -> Iterator[Candidate]:
    """Tasks of dead processes, which count like any other once somebody opens the history."""
    for process in dead(connection, settings.database):
        rows = connection.execute(LEFT_RUNNING, {"process": process}).fetchall()
        for task_id, kind, goal, size in rows:
            yield Candidate(task_id, kind, goal, now, size)


def prune(
    settings: Settings,
    progress: Callable[[Pass], None] | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Pruned:
    """Remove all that is past the limits of `settings`, in steps between which others write.

    Raises:
        TaskHistoryError: the history must not or cannot be written.
    """
    with keeping(settings, clock) as (database, retainer):
        _recover(database, clock)
        return _pruned(retainer.run(progress))


def remove_task(
    settings: Settings, text: str, clock: Callable[[], int] = time.time_ns
) -> tuple[str, Pruned]:
    """Remove one task, whatever the limits say.

    Args:
        settings: of which history.
        text: its id, or what `find_task` takes for it.

    Returns:
        Its id, and what was removed.

    Raises:
        TaskNotFound: there is none, or several.
        TaskHistoryError: it runs or is pinned, or the history cannot be written.
    """
    with keeping(replace(settings, retention=NO_LIMITS), clock) as (database, retainer):
        _recover(database, clock)
        task_id, done = retainer.remove(text)
        return task_id, _pruned(done + retainer.run())


def set_pinned(
    settings: Settings, text: str, pinned: bool, clock: Callable[[], int] = time.time_ns
) -> str:
    """Let a task be kept whatever the limits say, or no longer; returns its id.

    Raises:
        TaskNotFound: there is none, or several.
        TaskHistoryError: the history cannot be written.
    """
    with keeping(replace(settings, retention=NO_LIMITS), clock) as (database, _):
        with database.transaction() as connection:
            task_id = find_task(connection, text)
            if pinned:
                connection.execute(
                    "INSERT INTO _pins (task_id, at_ns) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    (task_id, clock()),
                )
            else:
                connection.execute("DELETE FROM _pins WHERE task_id = ?", (task_id,))
            connection.execute("UPDATE tasks SET pinned = ? WHERE task_id = ?", (pinned, task_id))
        return task_id


def purge(settings: Settings, clock: Callable[[], int] = time.time_ns) -> bool:
    """Rewrite the database, so that nothing of what was deleted is left anywhere in it.

    Deleting overwrites what is deleted; but where SQLite had moved rows between pages before, a
    piece of an earlier copy may be left in the unused part of a page. Takes a moment during which
    agents wait, and for that time as much room on the disk again as the database has.

    Returns:
        False when a reader with an old snapshot keeps the write-ahead log, with what is in it.

    Raises:
        TaskHistoryError: there is not enough room, or others write all the time.
    """
    with keeping(replace(settings, retention=NO_LIMITS), clock) as (database, retainer):
        size = retainer.space.usage().live
        free = shutil.disk_usage(settings.database.parent).free
        if free < 2 * size:  # once in the log, and once more when that is folded in
            raise TaskHistoryError(
                f"purging needs {format_size(2 * size)} free beside {settings.database} and there"
                f" are {format_size(free)}: make room, or prune more first"
            )
        connection = database.connection
        connection.execute(f"PRAGMA temp_store = {'MEMORY' if size <= _IN_MEMORY else 'FILE'}")
        with database.transaction():
            Indexer(connection).optimize()
        until = time.monotonic() + settings.busy_timeout
        while True:
            try:
                connection.execute("VACUUM")
                break
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() >= until:
                    raise
            time.sleep(_LOOK_SECONDS)
        until = time.monotonic() + settings.busy_timeout
        while not (done := retainer.log.fold(COMMIT_SECONDS)) and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        return done


def _recover(database: Database, clock: Callable[[], int]) -> None:
    """What dead processes left running is interrupted, and may go: no agent has started since."""
    if dead(database.connection, database.path):
        with database.transaction() as connection:
            recover(connection, dead(connection, database.path), clock())


def _pruned(done: Pass) -> Pruned:
    return Pruned(
        (),
        done.agent_tasks,
        done.other_tasks,
        done.files,
        done.bytes,
        done.too_large,
        done.blocked,
    )


@contextmanager
def keeping(
    settings: Settings, clock: Callable[[], int] = time.time_ns
) -> Iterator[tuple[Database, Retainer]]:
    """The history, open for writing by somebody who tidies up and records nothing.

    Raises:
        TaskHistoryError: it must not or cannot be written.
    """
    # Only who writes needs sqlite-utils.
    from otel_taskhistory.store.database import Database, cannot_use
    from otel_taskhistory.store.retainer import Retainer

    database = Database(settings)
    try:
        folder = ArtifactFolder(settings.artifacts)
        yield database, Retainer(database, folder, settings, clock)
    except (OSError, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.OperationalError) and is_busy(error):
            raise TaskHistoryError(
                f"another program writes to {settings.database} all the time, or holds its lock:"
                " try again later"
            ) from error
        raise cannot_use(settings.database, error) from error
    finally:
        database.close()
