# SPDX-License-Identifier: Apache-2.0
"""Tasks as Parquet, for DuckDB, ClickHouse, Spark and whatever else reads it.

A folder with ``tasks``, ``steps``, ``model_calls`` and ``tool_calls``, each partitioned in Hive's
way by the ``day`` (UTC) on which the task began and its ``agent``, as a query over many machines
wants them. In each partition a history has one file of its own, so any number of Host Agents can
write into one folder, and whoever exports again replaces what it wrote of the same tasks and keeps
the others, those that its history has removed since included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.text import count
from otel_taskhistory.transport.otlp_lines import all_tasks
from otel_taskhistory.transport.parquet_folder import (
    claim,
    files_named,
    make_folder,
    only_writer,
    partition_name,
    replacing,
)
from otel_taskhistory.transport.parquet_tables import (
    TABLES,
    Row,
    Table,
    origin_of,
    places_of,
    rows_of,
    size_of,
)

_ROWS: Final = 2_000
"""Rows that are read at a time."""

_GROUP_ROWS: Final = 20_000
_GROUP_BYTES: Final = 16 * 2**20
"""A row group ends when it has as many rows, or as much text; that much is held in memory."""

Tell = Callable[[int, int], None]


@dataclass(slots=True)
class Written:
    """What became of an export."""

    tasks: int = 0
    files: set[str] = field(default_factory=set)

    @property
    def notes(self) -> list[str]:
        """What there is to say about it."""
        return [f"{count(self.tasks, 'task')} in {count(len(self.files), 'file')}"]


def write_parquet(
    history: TaskHistory,
    task_ids: Sequence[str] | None,
    directory: Path,
    tell: Tell,
    *,
    prompts: bool = False,
) -> Written:
    """Write tasks into a folder of Parquet files.

    Each file takes its place when it is whole. Files of a table follow each other, and so do the
    tables: who ends it in between has old and new files, and goes on by exporting again.

    Args:
        task_ids: whole ids; None for all tasks.
        directory: what does not exist, is empty, or was written by this.
        tell: called with how many tasks are written, and how many there are.
        prompts: with the prompt of each model call, which repeats the conversation each time.

    Raises:
        TaskHistoryError: the folder holds something else, another export of this history is
            writing there, or the extra ``parquet`` is missing.
    """
    arrow = _packages()
    names = all_tasks(history) if task_ids is None else sorted(set(task_ids))
    claim(directory)
    with only_writer(directory, history.identity.history_id):
        return _Export(arrow, history, directory, tell, prompts=prompts).of(names)


def _packages() -> Any:
    try:
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise TaskHistoryError(
            "Parquet needs one more package: pip install 'otel-taskhistory[parquet]'"
        ) from error
    return pyarrow


class _Export:
    """One run; `arrow` is the package pyarrow."""

    def __init__(
        self, arrow: Any, history: TaskHistory, directory: Path, tell: Tell, *, prompts: bool
    ) -> None:
        self._arrow = arrow
        self._history = history
        self._directory = directory
        self._tell = tell
        self._prompts = prompts
        identity = history.identity
        self._whose = {"history_id": identity.history_id, "owner": identity.owner}
        self._name = f"{partition_name(identity.history_id)}.parquet"
        self._done = Written()
        self._total = 0

    def of(self, names: Sequence[str]) -> Written:
        """Write these tasks."""
        places = self._history.read(partial(places_of, task_ids=names))
        fresh: dict[str, list[str]] = {}
        for task, (day, agent) in places.items():
            fresh.setdefault(f"day={day}/agent={partition_name(agent)}", []).append(task)
        self._total = len(places)
        for number, table in enumerate(TABLES):
            before = number * self._total
            for place, tasks in sorted(fresh.items()):
                self._write(table, place, tasks, before)
                before += len(tasks)
            self._leave(table, fresh)
        self._tell(self._total, self._total)
        self._done.tasks = self._total
        return self._done

    def _write(self, table: Table, place: str, tasks: Sequence[str], before: int) -> None:
        """Write the file of a partition: these tasks, and what it has of others."""
        file = self._directory / table.name / place / self._name
        wanted = list(tasks)
        while True:
            try:
                self._replace(table, file, self._fresh(table, wanted, before), set(wanted))
            except _TaskGoneError:
                # Retention has removed some: what an earlier export has of them stays.
                wanted = list(self._history.read(partial(places_of, task_ids=wanted)))
            else:
                return

    def _leave(self, table: Table, fresh: dict[str, list[str]]) -> None:
        """Take tasks out of files where they no longer belong: agent or start became known."""
        belongs = {task: place for place, tasks in fresh.items() for task in tasks}
        for place, file in files_named(self._directory / table.name, self._name):
            there = self._tasks_in(file)
            moved = {task for task in there if belongs.get(task, place) != place}
            if moved:
                self._replace(table, file, iter(()), moved)

    def _replace(self, table: Table, file: Path, rows: Iterator[Any], replaced: set[str]) -> None:
        """Put a file in its place: `rows`, then those it has of tasks that are not replaced."""
        schema = table.schema(self._arrow)
        groups = chain(rows, self._kept(file, schema, replaced))
        first = next(groups, None)
        if first is None:
            file.unlink(missing_ok=True)
            self._done.files.discard(str(file))
            return
        make_folder(file.parent)
        with (
            replacing(file) as sink,
            self._arrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer,
        ):
            for group in chain((first,), groups):
                writer.write_table(group)
        self._done.files.add(str(file))

    def _fresh(self, table: Table, tasks: Sequence[str], before: int) -> Iterator[Any]:
        """The rows of tasks, in tables of about a row group's size."""
        schema = table.schema(self._arrow)
        group: list[Row] = []
        size = 0
        for number, task in enumerate(tasks):
            self._tell((before + number) // len(TABLES), self._total)
            for row in self._rows(table, task):
                group.append(row)
                size += size_of(row)
                if size >= _GROUP_BYTES or len(group) >= _GROUP_ROWS:
                    yield self._arrow.Table.from_pylist(group, schema=schema)
                    group, size = [], 0
        if group:
            yield self._arrow.Table.from_pylist(group, schema=schema)

    def _rows(self, table: Table, task: str) -> Iterator[Row]:
        read = self._history.read
        origin = self._origin(task) | self._whose
        after: int | None = 0
        while after is not None:
            rows, after = read(
                partial(
                    rows_of,
                    table=table,
                    task_id=task,
                    after=after,
                    limit=_ROWS,
                    prompts=self._prompts,
                )
            )
            for row in rows:
                yield row | origin
        self._origin(task)  # all pages were of a task that was there

    def _origin(self, task: str) -> Row:
        origin = self._history.read(partial(origin_of, task_id=task))
        if not origin:
            raise _TaskGoneError
        return origin

    # --- what an earlier export has written ---

    def _kept(self, file: Path, schema: Any, replaced: set[str]) -> Iterator[Any]:
        """What a file has of other tasks, a row group at a time."""
        if not file.exists():
            return
        arrow = self._arrow
        names = arrow.array(sorted(replaced), arrow.string())
        try:
            with arrow.parquet.ParquetFile(file) as known:
                for number in range(known.num_row_groups):
                    group = known.read_row_group(number)
                    ours = arrow.compute.is_in(group.column("task_id"), value_set=names)
                    group = group.filter(arrow.compute.invert(ours))
                    if group.num_rows:
                        yield group.select(schema.names).cast(schema)
        except (KeyError, ValueError, OSError) as error:
            raise _unreadable(file, error) from error

    def _tasks_in(self, file: Path) -> set[str]:
        found: set[str] = set()
        try:
            with self._arrow.parquet.ParquetFile(file) as known:
                for number in range(known.num_row_groups):
                    group = known.read_row_group(number, columns=["task_id"])
                    found.update(group.column("task_id").unique().to_pylist())
        except (KeyError, ValueError, OSError) as error:
            raise _unreadable(file, error) from error
        return found


class _TaskGoneError(Exception):
    """A task was removed while it was read."""


def _unreadable(file: Path, error: Exception) -> TaskHistoryError:
    return TaskHistoryError(f"{file} cannot be read ({error}): move it elsewhere, and export again")
