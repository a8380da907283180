# SPDX-License-Identifier: Apache-2.0
"""The part of the schema that retention needs: what is counted, what waits to be removed.

* ``_owners`` has a row for each task, to which all rows of the task refer. When a task is removed
  its row in ``tasks`` goes at once, and with it the task from every table and view that people
  query; the row here stays, with ``removed_ns``, until the last of what it owned is gone. A trace
  that makes no task (a row of ``_sides``) has one too, of the negative number: for the limits it
  counts as a task of kind ``other`` and goes with those.
* ``_headless`` are traces whose first task, the one with the id of the trace, was removed while
  another stayed.
* ``_loose_nodes`` and ``_loose_artifacts`` are what nobody may need any more, to be looked at.
* ``_unlinks`` are files whose rows are gone: the file itself goes after that commit.
* ``_removed`` are the traces (or spans of a trace that had more than one task) whose late spans
  are not to bring half a task back.
* ``_totals`` are sums that would cost a scan; triggers keep them true whoever writes.
* ``_retention`` says what was removed, when and why; ``_pins`` what may not be.
"""

from __future__ import annotations

from typing import Final


def counted(row: str) -> str:
    """SQL: whether a task counts for the limits (SQL cannot name a condition).

    Not one that runs and not a pinned one. A task whose root never came says ``running`` for ever
    and counts; that it may be one that runs is seen to by `otel_taskhistory.store.retention`.
    """
    return f"({row}.pinned = 0 AND ({row}.status <> 'running' OR {row}.root IS NULL))"


FINISHED: Final = "pinned = 0 AND status <> 'running'"
ROOTLESS: Final = "pinned = 0 AND status = 'running' AND root IS NULL"
"""The two halves of what is counted, word for word as in the indexes of them."""

TABLES: Final = (
    """
CREATE TABLE _owners (
    id INTEGER PRIMARY KEY,
    removed_ns INTEGER,
    trace INTEGER,
    record INTEGER,
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT
""",
    "CREATE INDEX _owners_removed ON _owners (id) WHERE removed_ns IS NOT NULL",
    """
CREATE TABLE _headless (
    trace INTEGER PRIMARY KEY REFERENCES _traces(id)
) STRICT, WITHOUT ROWID
""",
    "CREATE TABLE _loose_nodes (node INTEGER PRIMARY KEY) STRICT",
    "CREATE TABLE _loose_artifacts (artifact INTEGER PRIMARY KEY) STRICT",
    """
CREATE TABLE _unlinks (
    path TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    due_ns INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    error TEXT
) STRICT, WITHOUT ROWID
""",
    "CREATE INDEX _unlinks_due ON _unlinks (due_ns)",
    """
CREATE TABLE _removed (
    id INTEGER PRIMARY KEY,
    trace_id TEXT NOT NULL,
    span_id TEXT NOT NULL DEFAULT '',
    at_ns INTEGER NOT NULL,
    UNIQUE (trace_id, span_id)
) STRICT
""",
    """
CREATE TABLE _totals (
    name TEXT PRIMARY KEY,
    number INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID
""",
    "INSERT INTO _totals (name) VALUES ('agent'), ('other'), ('artifacts'), ('unlinks'), ('late')",
    """
CREATE TABLE _retention (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ns INTEGER NOT NULL,
    reason TEXT NOT NULL,
    agent_tasks INTEGER NOT NULL DEFAULT 0,
    other_tasks INTEGER NOT NULL DEFAULT 0,
    files INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    oldest_ns INTEGER,
    newest_ns INTEGER,
    seq INTEGER
) STRICT
""",
    """
CREATE TABLE _pins (
    task_id TEXT PRIMARY KEY,
    at_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID
""",
)

INDEXES: Final = (
    f"CREATE INDEX tasks_finished ON tasks (kind, committed_ns, id) WHERE {FINISHED}",
    f"CREATE INDEX tasks_rootless ON tasks (kind, committed_ns, id) WHERE {ROOTLESS}",
    "CREATE INDEX screenshots_kept ON screenshots (task_id, id) WHERE artifact IS NOT NULL",
)

_ADD_NEW: Final = f"""
    UPDATE _totals SET number = number + 1, bytes = bytes + new.bytes
    WHERE name = new.kind AND {counted("new")};"""
_TAKE_OLD: Final = f"""
    UPDATE _totals SET number = number - 1, bytes = bytes - old.bytes
    WHERE name = old.kind AND {counted("old")};"""


_SAID: Final = "coalesce((SELECT sum(size) FROM _spans WHERE trace = {0}.trace), 0)"

# A picture that could not be written has a row, but no file.
_HAS_FILE: Final = "status <> 'not_stored'"


def _side(row: str) -> str:
    """SQL: whether an owner is that of a trace that makes no task, and not removed."""
    return f"({row}.id < 0 AND {row}.removed_ns IS NULL)"


def _sum_of(table: str, name: str, counts: str = "") -> tuple[str, str]:
    """Triggers that keep the number and bytes of the rows of a table that count."""
    new, old = (f"WHEN {row}.{counts}" if counts else "" for row in ("new", "old"))
    return (
        f"""
CREATE TRIGGER {table}_added AFTER INSERT ON {table} {new} BEGIN
    UPDATE _totals SET number = number + 1, bytes = bytes + new.bytes WHERE name = '{name}';
END
""",
        f"""
CREATE TRIGGER {table}_taken AFTER DELETE ON {table} {old} BEGIN
    UPDATE _totals SET number = number - 1, bytes = bytes - old.bytes WHERE name = '{name}';
END
""",
    )


TRIGGERS: Final = (
    f"""
CREATE TRIGGER tasks_added AFTER INSERT ON tasks BEGIN
    INSERT INTO _owners (id) VALUES (new.id);{_ADD_NEW}
    UPDATE tasks SET pinned = 1
    WHERE id = new.id AND EXISTS (SELECT 1 FROM _pins WHERE task_id = new.task_id);
END
""",
    f"""
CREATE TRIGGER tasks_changed AFTER UPDATE OF kind, status, root, pinned, bytes ON tasks
WHEN {counted("old")} <> {counted("new")}
    OR (old.kind <> new.kind OR old.bytes <> new.bytes) AND {counted("new")}
BEGIN{_TAKE_OLD}{_ADD_NEW}
END
""",
    # An owner whose task was not removed but found to be none must own nothing: if it does, this
    # fails, as it should.
    f"""
CREATE TRIGGER tasks_taken AFTER DELETE ON tasks BEGIN{_TAKE_OLD}
    DELETE FROM _owners WHERE id = old.id AND removed_ns IS NULL;
END
""",
    *_sum_of("_artifacts", "artifacts", _HAS_FILE),
    f"""
CREATE TRIGGER _artifacts_changed AFTER UPDATE OF status, bytes ON _artifacts BEGIN
    UPDATE _totals SET number = number - 1, bytes = bytes - old.bytes
    WHERE name = 'artifacts' AND old.{_HAS_FILE};
    UPDATE _totals SET number = number + 1, bytes = bytes + new.bytes
    WHERE name = 'artifacts' AND new.{_HAS_FILE};
END
""",
    *_sum_of("_unlinks", "unlinks"),
    # What such a trace takes is about what its spans say.
    f"""
CREATE TRIGGER _sides_added AFTER INSERT ON _sides BEGIN
    INSERT INTO _owners (id, trace, bytes)
    VALUES (-new.trace, new.trace, {_SAID.format("new")});
END
""",
    f"""
CREATE TRIGGER _sides_changed AFTER UPDATE ON _sides BEGIN
    UPDATE _owners SET bytes = {_SAID.format("new")} WHERE id = -new.trace;
END
""",
    """
CREATE TRIGGER _sides_taken AFTER DELETE ON _sides BEGIN
    DELETE FROM _owners WHERE id = -old.trace AND removed_ns IS NULL;
END
""",
    f"""
CREATE TRIGGER _owners_added AFTER INSERT ON _owners WHEN {_side("new")} BEGIN
    UPDATE _totals SET number = number + 1, bytes = bytes + new.bytes WHERE name = 'other';
END
""",
    f"""
CREATE TRIGGER _owners_changed AFTER UPDATE OF removed_ns, bytes ON _owners
WHEN {_side("old")} OR {_side("new")}
BEGIN
    UPDATE _totals SET number = number + {_side("new")} - {_side("old")},
        bytes = bytes + {_side("new")} * new.bytes - {_side("old")} * old.bytes
    WHERE name = 'other';
END
""",
    f"""
CREATE TRIGGER _owners_taken AFTER DELETE ON _owners WHEN {_side("old")} BEGIN
    UPDATE _totals SET number = number - 1, bytes = bytes - old.bytes WHERE name = 'other';
END
""",
)

STATEMENTS: Final = tuple(map(str.strip, (*TABLES, *INDEXES, *TRIGGERS)))
"""To be executed one by one, after the tables that they are about are there."""
