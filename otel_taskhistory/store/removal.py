# SPDX-License-Identifier: Apache-2.0
"""Removing a task whole, in bounded batches, and all that nothing else uses.

`Remover.hide` takes the task out of everything people query, in one go. What it owned is then
worked off by `Remover.work_off`, batch by batch, in the same transaction or in later ones, of
whatever process; a crash in between changes nothing about that.

Spans go newest first: the last prompt of a conversation holds the messages of those before it, so
that each batch frees what it alone used. Contents, messages and files go with the last row that
refers to them, in the same transaction; that is looked up by index for each. Foreign keys are
enforced, so that a mistake here is an error and not a hole.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from otel_taskhistory.store import faults, log_removal
from otel_taskhistory.store.unlinks import Unlinks

BATCH: Final = 200
"""Spans, or other rows, that are removed at a time; a task of 60 steps has about as many."""

REMEMBERED: Final = 10_000
"""Removed traces and spans that are remembered, so that their late spans can be told."""

_AMONG: Final = "IN (SELECT value FROM json_each(?))"

_ITS_OWN: Final = {
    "_contents": {("_content_parts", "content"), ("_content_pictures", "content")},
    "_nodes": set[tuple[str, str]](),
    "_artifacts": set[tuple[str, str]](),
}
"""Rows that refer to a row because they are part of it, and go with it."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A task that was just taken out of everything people query."""

    kind: str
    committed_ns: int
    alone: bool
    """Whether its trace goes with it."""


@dataclass(slots=True)
class Owner:
    """A removed task of which rows are left."""

    id: int
    trace: int | None
    record: int | None


class Remover:
    """Over the writer's connection; a transaction is open whenever a method runs.

    Args:
        connection: foreign keys are on.
        unlinks: gets the files whose rows are gone.
        forget_content: called with a row of ``_contents`` before it is deleted, for whatever else
            is kept of its text.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        unlinks: Unlinks,
        forget_content: Callable[[int], None] | None = None,
    ) -> None:
        self._connection = connection
        self._unlinks = unlinks
        self._forget_content = forget_content
        self._refers = {table: references(connection, table) for table in _ITS_OWN}
        self._in_use = {table: in_use(refers) for table, refers in self._refers.items()}
        self.left = 0
        """How many rows may still be removed in this transaction."""

    # --- the task ---

    def hide(self, task: int, record: int | None, now_ns: int) -> Hidden:
        """Take a task out of everything people query; costs in proportion to its pictures.

        Args:
            task: its row; below zero for the trace of that number, which makes no task.
            record: what is removed is put on this one.
            now_ns: ns since 1970.
        """
        if task < 0:
            return self._hide_side(-task, record, now_ns)
        execute = self._connection.execute
        task_id, trace_id, trace, kind, committed = execute(
            "SELECT task_id, trace_id, trace, kind, committed_ns FROM tasks WHERE id = ?", (task,)
        ).fetchone()
        alone = (
            execute("SELECT 1 FROM tasks WHERE trace = ? AND id <> ?", (trace, task)).fetchone()
            is None
        )
        execute(
            "UPDATE _owners SET removed_ns = ?, trace = ?, record = ? WHERE id = ?",
            (now_ns, trace if alone else None, record, task),
        )
        execute(
            "INSERT OR IGNORE INTO _loose_artifacts (artifact)"
            " SELECT artifact FROM screenshots INDEXED BY screenshots_kept"
            " WHERE task_id = ? AND artifact IS NOT NULL",
            (task_id,),
        )
        execute(
            "UPDATE _steps SET screenshot = NULL WHERE task = ? AND screenshot IS NOT NULL", (task,)
        )
        execute("DELETE FROM screenshots WHERE task_id = ?", (task_id,))
        self._note_gap(task)
        execute("DELETE FROM tasks WHERE id = ?", (task,))
        execute("DELETE FROM _pins WHERE task_id = ?", (task_id,))
        if alone:
            self._hide_trace(trace, trace_id, now_ns)
        else:
            spans = execute("SELECT span_id FROM _spans WHERE task = ?", (task,))
            self._remember(trace_id, [row[0] for row in spans], now_ns)
            if task_id == trace_id:
                # Its id is not to go to the next task of the trace.
                execute("INSERT OR IGNORE INTO _headless (trace) VALUES (?)", (trace,))
        faults.point("removal.hidden")
        return Hidden(kind, committed, alone)

    def _hide_side(self, trace: int, record: int | None, now_ns: int) -> Hidden:
        execute = self._connection.execute
        committed, trace_id = execute(
            "SELECT side.committed_ns, own.trace_id FROM _sides AS side"
            " JOIN _traces AS own ON own.id = side.trace WHERE side.trace = ?",
            (trace,),
        ).fetchone()
        execute(
            "UPDATE _owners SET removed_ns = ?, record = ? WHERE id = -?", (now_ns, record, trace)
        )
        execute("DELETE FROM _sides WHERE trace = ?", (trace,))
        # Hidden from now on, and worked off as those of a task are. Such traces are small.
        execute("UPDATE _spans SET task = -trace WHERE trace = ? AND task IS NULL", (trace,))
        self._hide_trace(trace, trace_id, now_ns)
        faults.point("removal.hidden")
        return Hidden("other", committed, alone=True)

    def _hide_trace(self, trace: int, trace_id: str, now_ns: int) -> None:
        """Late spans find no trace then, and are told by ``_removed``."""
        self._remember(trace_id, [""], now_ns)
        self._connection.execute(
            "UPDATE _traces SET trace_id = 'removed-' || id WHERE id = ?", (trace,)
        )

    def _note_gap(self, task: int) -> None:
        """Who reads the timeline from an earlier record on is to be told that some are gone."""
        self._connection.execute(
            "INSERT INTO _meta (key, value) SELECT 'pruned_seq', max(seq) FROM _timeline"
            " WHERE task = ? HAVING max(seq) IS NOT NULL"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            " WHERE CAST(excluded.value AS INTEGER) > CAST(value AS INTEGER)",
            (task,),
        )

    def _remember(self, trace_id: str, span_ids: Collection[str], now_ns: int) -> None:
        self._connection.executemany(
            "INSERT INTO _removed (trace_id, span_id, at_ns) VALUES (?, ?, ?)"
            " ON CONFLICT (trace_id, span_id) DO UPDATE SET at_ns = excluded.at_ns",
            [(trace_id, span_id, now_ns) for span_id in span_ids],
        )
        self._connection.execute(
            "DELETE FROM _removed WHERE id <= (SELECT max(id) FROM _removed) - ?", (REMEMBERED,)
        )

    # --- what it owned ---

    def waiting(self, without: Collection[int] = ()) -> Owner | None:
        """A removed task of which rows are left; `without` are those that cannot be removed."""
        found = self._connection.execute(
            "SELECT id, trace, record FROM _owners WHERE removed_ns IS NOT NULL"
            " ORDER BY id LIMIT ?",
            (len(without) + 1,),
        ).fetchall()
        return next((Owner(*row) for row in found if row[0] not in without), None)

    def work_off(self, owner: Owner, *, whole: bool = False) -> bool:
        """Remove a batch of what a removed task owned; whether that was the last of it.

        Args:
            whole: all of it.
        """
        done = False
        while not done and (whole or self.left > 0):
            done = self._batch(owner, BATCH if whole else min(self.left, BATCH))
            faults.point("removal.batch")
            if not whole:
                break
        return done

    def _batch(self, owner: Owner, size: int) -> bool:
        execute = self._connection.execute
        told = execute(
            "DELETE FROM _timeline WHERE seq IN"
            " (SELECT seq FROM _timeline WHERE task = ? ORDER BY seq LIMIT ?)",
            (owner.id, size),
        ).rowcount
        self.left -= told
        size -= told
        if size <= 0:
            return False
        spans = self._ids(
            "SELECT id FROM _spans WHERE task = ? ORDER BY id DESC LIMIT ?", owner.id, size
        )
        if not spans and owner.trace is not None:
            spans = self._ids(
                "SELECT id FROM _spans WHERE trace = ? AND task IS NULL LIMIT ?", owner.trace, size
            )
        if spans:
            self._drop_spans(spans)
            return False
        if owner.trace is not None and self._drop_waiting_logs(owner.trace, size):
            return False
        self._forget(owner)
        return True

    def _forget(self, owner: Owner) -> None:
        execute = self._connection.execute
        # Of spans that belong to other tasks by now; none is known to happen.
        execute("UPDATE _model_calls SET task = NULL WHERE task = ?", (owner.id,))
        execute("UPDATE _tool_calls SET task = NULL WHERE task = ?", (owner.id,))
        if owner.trace is not None:
            execute("DELETE FROM _headless WHERE trace = ?", (owner.trace,))
            execute("DELETE FROM _traces WHERE id = ?", (owner.trace,))
        execute("DELETE FROM _owners WHERE id = ?", (owner.id,))
        self.left -= 1

    def _drop_spans(self, spans: list[int]) -> None:
        execute = self._connection.execute
        these = json.dumps(spans)
        calls = json.dumps(self._ids(f"SELECT id FROM _model_calls WHERE span {_AMONG}", these))
        tools = json.dumps(self._ids(f"SELECT id FROM _tool_calls WHERE span {_AMONG}", these))
        steps = json.dumps(self._ids(f"SELECT id FROM _steps WHERE span {_AMONG}", these))
        shots = json.dumps(self._ids(f"SELECT id FROM screenshots WHERE span {_AMONG}", these))
        nodes = self._used("_nodes", these)
        contents = self._used("_contents", these)
        artifacts = self._used("_artifacts", these)
        execute(f"UPDATE _steps SET last_call = NULL WHERE last_call {_AMONG}", (calls,))
        execute(f"UPDATE _steps SET first_tool = NULL WHERE first_tool {_AMONG}", (tools,))
        execute(f"UPDATE _steps SET screenshot = NULL WHERE screenshot {_AMONG}", (shots,))
        execute(f"UPDATE _model_calls SET twin_of = NULL WHERE twin_of {_AMONG}", (calls,))
        execute(f"UPDATE _tool_calls SET twin_of = NULL WHERE twin_of {_AMONG}", (tools,))
        execute(f"UPDATE _model_calls SET step = NULL WHERE step {_AMONG}", (steps,))
        execute(f"UPDATE _tool_calls SET step = NULL WHERE step {_AMONG}", (steps,))
        for table in (
            *("screenshots", "_model_calls", "_tool_calls", "_steps", "_timeline"),
            *("_span_contents", "_span_nodes"),
        ):
            execute(f"DELETE FROM {table} WHERE span {_AMONG}", (these,))
        log_removal.drop_of_spans(self._connection, these)
        execute(f"DELETE FROM _spans WHERE id {_AMONG}", (these,))
        self.left -= len(spans)
        self.drop_unneeded(nodes, contents, artifacts)

    def _drop_waiting_logs(self, trace: int, size: int) -> bool:
        """Remove log records of the trace whose span never came; whether there were any."""
        taken = log_removal.take_waiting(self._connection, trace, size)
        self.left -= taken.logs
        self.drop_unneeded(taken.nodes, taken.contents, ())
        return taken.logs > 0

    def _used(self, table: str, spans: str) -> set[int]:
        """Rows of `table` that rows of these spans refer to."""
        found: set[int] = set()
        for source, column in self._refers[table]:
            key = {"_spans": "id", "_nodes": None, "_content_parts": None}.get(source, "span")
            if key is not None and source != "_content_pictures":
                found.update(
                    self._ids(
                        f"SELECT {column} FROM {source}"
                        f" WHERE {key} {_AMONG} AND {column} IS NOT NULL",
                        spans,
                    )
                )
        return found

    # --- what nothing else uses ---

    def drop_loose(self) -> bool:
        """Look at a batch of what was left to be looked at; whether there was any."""
        nodes = self._taken("_loose_nodes", "node", min(self.left, BATCH))
        artifacts = [] if nodes else self._taken("_loose_artifacts", "artifact", self.left)
        self.left -= len(nodes) + len(artifacts)
        self.drop_unneeded(nodes, (), artifacts)
        return bool(nodes or artifacts)

    def _taken(self, table: str, column: str, size: int) -> list[int]:
        found = self._ids(f"SELECT {column} FROM {table} ORDER BY {column} DESC LIMIT ?", size)
        self._connection.execute(
            f"DELETE FROM {table} WHERE {column} {_AMONG}", (json.dumps(found),)
        )
        return found

    def drop_unneeded(
        self, nodes: Iterable[int], contents: Iterable[int], artifacts: Iterable[int]
    ) -> None:
        """Remove those of these rows that nothing refers to, and what only they used."""
        freed = set(contents)
        for node in nodes:
            self._drop_chain(node, freed)
        loose = set(artifacts)
        while freed:
            self._drop_content(freed.pop(), freed, loose)
        for artifact in loose:
            self._drop_artifact(artifact)

    def _drop_chain(self, node: int | None, contents: set[int]) -> None:
        """Remove a message after the others, and those before it as far as nothing uses them."""
        while node is not None and not self._is_used("_nodes", node):
            if self.left <= 0:
                self._connection.execute(
                    "INSERT OR IGNORE INTO _loose_nodes (node) VALUES (?)", (node,)
                )
                return
            row = self._connection.execute(
                "DELETE FROM _nodes WHERE id = ? RETURNING parent, content", (node,)
            ).fetchone()
            if row is None:
                return
            self.left -= 1
            node, content = row
            contents.add(content)

    def _drop_content(self, content: int, contents: set[int], artifacts: set[int]) -> None:
        if self._is_used("_contents", content):
            return
        if self._forget_content is not None:
            self._forget_content(content)
        execute = self._connection.execute
        parts = self._ids("SELECT child FROM _content_parts WHERE content = ?", content)
        pictures = self._ids("SELECT artifact FROM _content_pictures WHERE content = ?", content)
        execute("DELETE FROM _content_parts WHERE content = ?", (content,))
        execute("DELETE FROM _content_pictures WHERE content = ?", (content,))
        execute("DELETE FROM _contents WHERE id = ?", (content,))
        self.left -= 1
        contents.update(parts)
        artifacts.update(pictures)

    def _drop_artifact(self, artifact: int) -> None:
        if self._is_used("_artifacts", artifact):
            return
        row = self._connection.execute(
            "DELETE FROM _artifacts WHERE id = ? RETURNING path, bytes", (artifact,)
        ).fetchone()
        if row is not None:
            self.left -= 1
            self._unlinks.add(*row)

    def is_only_used_by(self, artifact: int, screenshot: int) -> bool:
        """Whether a file would go if this screenshot did not refer to it."""
        return not any(
            self._connection.execute(
                f"SELECT 1 FROM {table} WHERE {column} = :artifact"
                + (" AND id <> :screenshot" if table == "screenshots" else ""),
                {"artifact": artifact, "screenshot": screenshot},
            ).fetchone()
            for table, column in self._refers["_artifacts"]
        )

    def _is_used(self, table: str, row: int) -> bool:
        return bool(self._connection.execute(self._in_use[table], {"row": row}).fetchone()[0])

    def _ids(self, sql: str, *values: Any) -> list[int]:
        return [row[0] for row in self._connection.execute(sql, values).fetchall()]


def references(connection: sqlite3.Connection, table: str) -> list[tuple[str, str]]:
    """(table, column) of each foreign key to `table`; not those of rows that are part of it.

    Asked of the schema, so that a table of a later migration cannot be forgotten here.
    """
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    found = [
        (source, column)
        for (source,) in tables
        for _, _, target, column, *_ in connection.execute(
            f"SELECT * FROM pragma_foreign_key_list('{source}')"
        ).fetchall()
        if target == table
    ]
    return [reference for reference in found if reference not in _ITS_OWN[table]]


def in_use(refers: Iterable[tuple[str, str]]) -> str:
    """SQL that tells whether any of these columns holds ``:row``; each looked up by its index."""
    lookups = (f"EXISTS (SELECT 1 FROM {table} WHERE {column} = :row)" for table, column in refers)
    return f"SELECT {' OR '.join(lookups)}"
