# SPDX-License-Identifier: Apache-2.0
"""The reading API: what agents did, from any process, while they do it.

Opening is read-only: nothing is created or changed, and no writer ever waits for a reader.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.store import details, pruning, reader, records, space, standing
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.backup import BackupReport, backup
from otel_taskhistory.store.changes import prompt_changes
from otel_taskhistory.store.filters import KINDS, STATUSES, row_limit, task_filter
from otel_taskhistory.store.ids import find_task, short_ids
from otel_taskhistory.store.passes import Pass
from otel_taskhistory.store.pruning import Pruned
from otel_taskhistory.store.reading import Identity, Reading
from otel_taskhistory.store.records import RetentionRecord
from otel_taskhistory.store.search.find import Hit, Hits, search
from otel_taskhistory.store.space import Usage
from otel_taskhistory.store.standing import Standing
from otel_taskhistory.store.views import (
    ModelCall,
    Page,
    PromptChange,
    PromptMessage,
    Screenshot,
    Stats,
    Step,
    Task,
    TimelineRecord,
    ToolCall,
)
from otel_taskhistory.store.watching import end_of
from otel_taskhistory.watch import Watch

__all__ = [
    "KINDS",
    "STATUSES",
    "BackupReport",
    "Hit",
    "Hits",
    "Identity",
    "ModelCall",
    "Page",
    "PromptChange",
    "PromptMessage",
    "Pruned",
    "RetentionRecord",
    "Screenshot",
    "Standing",
    "Stats",
    "Step",
    "Task",
    "TaskHistory",
    "TimelineRecord",
    "ToolCall",
    "Usage",
    "Watch",
]

T = TypeVar("T")


class TaskHistory:
    """A history, opened for reading; may be used from any thread, and as a context manager.

    Statuses are as of now: what a process of this machine left running when it died is
    ``interrupted``, also before the next writer has noted it in the database.

    Args:
        directory: the history itself; None for what environment and defaults say.
        owner: refuse the history of another owner; None takes the owner from the history.

    Raises:
        HistoryNotFound: there is no history in that place.
        HistoryRefused: what is there is no history, or another owner's.
        SchemaTooNew: only a newer version can read it.
        TaskHistoryError: it is damaged or cannot be read.
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, owner: str | None = None
    ) -> None:
        self._open(Settings.resolve(directory=directory, owner=owner))

    @classmethod
    def at(cls, settings: Settings) -> Self:
        """The history that a writer with these settings writes."""
        history = cls.__new__(cls)
        history._open(settings)
        return history

    def _open(self, settings: Settings) -> None:
        self.settings = settings
        self._reading = Reading(
            self.settings.database,
            owner=self.settings.owner if self.settings.owner_explicit else None,
            busy_timeout=self.settings.busy_timeout,
        )

    @property
    def identity(self) -> Identity:
        """Owner, id and schema version of the history, as they were when it was opened."""
        return self._reading.identity

    def tasks(
        self,
        status: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        agent: str | None = None,
        kind: str | None = "agent",
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Task]:
        """Tasks, newest first.

        Args:
            status: ``running``, ``succeeded``, ``failed``, ``cancelled`` or ``interrupted``.
            since: begun at this time or later: a datetime with a zone, or ISO 8601 with one.
            until: begun before this time.
            agent: of the agent with exactly this name.
            kind: ``agent``; ``other`` for traces without agent or model; None for both.
            limit: rows per page.
            cursor: `Page.next` of the page before.

        Raises:
            SettingsError: an argument makes no sense.
        """
        which = task_filter(status, since, until, agent, kind)
        return self._reading.read(lambda c: reader.tasks(c, which, row_limit(limit), cursor))

    def count_tasks(
        self,
        status: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        agent: str | None = None,
        kind: str | None = "agent",
    ) -> int:
        """How many tasks `tasks` gives on all its pages together."""
        which = task_filter(status, since, until, agent, kind)
        return self._reading.read(lambda c: reader.count_tasks(c, which))

    def task(self, task_id: str) -> Task:
        """One task.

        Args:
            task_id: its id, the beginning of it when no other begins so, or ``latest``.

        Raises:
            TaskNotFound: there is none, or several; the message names near ones.
        """
        return self._reading.read(lambda c: reader.task(c, task_id))

    def steps(
        self,
        task_id: str,
        limit: int = 200,
        cursor: str | None = None,
        *,
        without: Collection[str] = (),
    ) -> Page[Step]:
        """The steps of a task, in their order.

        Args:
            task_id: as for `task`.
            limit: rows per page.
            cursor: `Page.next` of the page before.
            without: ``prompt``, ``decision`` or both, to be left None and unread; of a long
                conversation the prompts of all steps together are large.

        Raises:
            TaskNotFound: there is no such task, or several.
        """
        return self._reading.read(
            lambda c: reader.steps(c, task_id, row_limit(limit), cursor, without)
        )

    def step(self, step_id: str, *, task_id: str | None = None) -> Step:
        """One step, whole.

        Args:
            step_id: its id, or the beginning of it when no other begins so.
            task_id: of which task (a whole id), where several have steps of this id.

        Raises:
            TaskNotFound: there is none, or several.
        """
        return self._reading.read(lambda c: reader.step(c, step_id, task_id))

    def steps_with_index(self, task_id: str, index: int) -> list[Step]:
        """The steps of a task with this number, whole; more than one when it was given twice."""
        return self._reading.read(
            lambda c: reader.steps_with_index(c, find_task(c, task_id), index)
        )

    def step_outcomes(self, task_id: str) -> tuple[dict[str, int], list[Step]]:
        """(number of steps by status, the failed and interrupted ones without their content)."""
        return self._reading.read(lambda c: reader.step_outcomes(c, find_task(c, task_id)))

    def model_calls(
        self, task_id: str, step_id: str | None = None, *, without: Collection[str] = ()
    ) -> list[ModelCall]:
        """The model calls of a task, or of one of its steps, in the order of their start.

        `without` as for `steps`.
        """
        return self._reading.read(
            lambda c: details.model_calls(c, find_task(c, task_id), step_id, without)
        )

    def tool_calls(self, task_id: str, step_id: str | None = None) -> list[ToolCall]:
        """The tool calls of a task, or of one of its steps, in the order of their start."""
        return self._reading.read(lambda c: details.tool_calls(c, find_task(c, task_id), step_id))

    def screenshots(self, task_id: str, step_id: str | None = None) -> list[Screenshot]:
        """The pictures of a task, or of one of its steps, in the order they were taken."""
        return self._reading.read(lambda c: details.screenshots(c, find_task(c, task_id), step_id))

    def prompt_changes(
        self, task_id: str, step_ids: Collection[str]
    ) -> dict[str, list[PromptChange]]:
        """For each of these steps, what its prompts added and dropped against those before."""
        return self._reading.read(lambda c: prompt_changes(c, find_task(c, task_id), step_ids))

    def stack_traces(self, task_id: str, step_id: str) -> list[tuple[str, str]]:
        """(name of the span, stack trace) of each exception that was recorded in a step."""
        return self._reading.read(lambda c: details.stack_traces(c, find_task(c, task_id), step_id))

    def short_ids(self, task_ids: Collection[str]) -> dict[str, str]:
        """Beginnings of task ids, of 8 digits or more, that no other task has."""
        return self._reading.read(lambda c: short_ids(c, task_ids))

    def artifact(self, relative: str) -> Path:
        """Where the file of a picture is, given its `Screenshot.path`.

        Raises:
            ValueError: that is not the path of an artifact.
        """
        return ArtifactFolder(self.settings.artifacts).path(relative)

    def search(self, text: str, limit: int = 20) -> Hits:
        """Find words in goals, prompts, decisions, tool arguments and results, and errors.

        Each stored value is one hit, however often it was sent; the value that was recorded last
        comes first. Tasks of every kind are searched.

        Args:
            text: as typed: words that must all be in one value, in any order; several in quotation
                marks in this order; ``book*`` for any ending. Nothing in it is an error.
            limit: hits at most; `Hits.more` tells whether there are more.
        """
        return self._reading.read(lambda c: search(c, text, row_limit(limit)))

    def watch(self, after: str | int | None = None, task_id: str | None = None) -> Watch:
        """Follow the timeline: what is there, then what comes; for ``for`` and ``async for``.

        Args:
            after: `TimelineRecord.cursor` of the last record that was seen, or its ``seq``; None
                for all there is.
            task_id: only what happens to this task; as for `task`.

        Raises:
            SettingsError: `after` is no place in a timeline.
            TaskNotFound: there is no such task, or several.
        """
        return Watch(self._reading, after, task_id)

    def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run SQL of your own within one short read transaction, and return what `query` returns.

        Args:
            query: gets a read-only connection. It must fetch all it needs before it returns, and
                may be called more than once: the history may be replaced meanwhile.

        Raises:
            TaskHistoryError: the history is gone, damaged, or cannot be read now.
        """
        return self._reading.read(query)

    def timeline_end(self) -> str:
        """Where the timeline ends now: `watch` from there on gives only what comes."""
        return str(self._reading.read(end_of))

    def stats(self) -> Stats:
        """What the history holds."""
        return self._reading.read(reader.stats)

    def backup(self, directory: str | os.PathLike[str]) -> BackupReport:
        """Copy the history, in use or not, to a new folder, and verify the copy.

        Args:
            directory: what does not exist yet, or is an empty folder; a history afterwards.

        Raises:
            TaskHistoryError: the history is damaged, or the target cannot be used.
            OSError: the target cannot be written. Nothing is left there in either case.
        """
        return backup(self.settings, Path(directory))

    def usage(self) -> Usage:
        """What the history takes, in bytes."""
        return self._reading.read(lambda c: space.usage(c, self.settings.database))

    def standing(self) -> Standing:
        """How the history stands to its limits, and what is in the way."""
        return self._reading.read(standing.standing)

    def retention_records(self, limit: int = 20) -> list[RetentionRecord]:
        """What was removed, when and because of which limit, the latest first."""
        return self._reading.read(lambda c: records.records(c, row_limit(limit)))

    # --- these open the history for writing ---

    def prune(
        self,
        retention: Retention | None = None,
        dry_run: bool = False,
        *,
        progress: Callable[[Pass], None] | None = None,
    ) -> Pruned:
        """Remove tasks that are past the limits, whole and oldest first.

        Safe while agents write: it works in short steps.

        Args:
            retention: the limits; None for those of the environment.
            dry_run: say what would go, and change not a byte.
            progress: called after each step with what was done so far.

        Raises:
            TaskHistoryError: the history must not or cannot be written.
        """
        settings = replace(self._to_write(), retention=retention or self.settings.retention)
        if dry_run:
            return self._reading.read(lambda c: pruning.plan_pruning(c, settings))
        return pruning.prune(settings, progress)

    def remove(self, task_id: str) -> Pruned:
        """Remove one task, whatever the limits say.

        Args:
            task_id: as for `task`.

        Raises:
            TaskNotFound: there is no such task, or several.
            TaskHistoryError: it runs or is pinned, or the history cannot be written.
        """
        return pruning.remove_task(self._to_write(), task_id)[1]

    def pin(self, task_id: str) -> Task:
        """Keep a task whatever the limits say; it does not count for them either.

        Args:
            task_id: as for `task`.

        Raises:
            TaskNotFound: there is no such task, or several.
            TaskHistoryError: the history cannot be written.
        """
        return self.task(pruning.set_pinned(self._to_write(), task_id, True))

    def unpin(self, task_id: str) -> Task:
        """Let the limits apply to a task again; see `pin`."""
        return self.task(pruning.set_pinned(self._to_write(), task_id, False))

    def purge(self) -> bool:
        """Rewrite the database, so that nothing of what was deleted is left in its files.

        Agents wait while it does.

        Returns:
            False when a reader with an old snapshot keeps the write-ahead log as it is.

        Raises:
            TaskHistoryError: there is not enough room for it, or others write all the time.
        """
        return pruning.purge(self._to_write())

    def _to_write(self) -> Settings:
        """This very history, whoever owns it."""
        return replace(self.settings, owner=self.identity.owner, owner_explicit=True)

    def close(self) -> None:
        """Give back the file handles; a later call opens them again."""
        self._reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
