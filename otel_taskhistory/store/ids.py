# SPDX-License-Identifier: Apache-2.0
"""Which task or step somebody means who typed an id, or the beginning of one."""

from __future__ import annotations

import difflib
import sqlite3
from collections.abc import Iterable
from typing import Final

from otel_taskhistory.errors import TaskNotFound

SHORT_ID: Final = 8
"""Digits of an id that people type, when they are enough."""

_NEAR: Final = 3
"""Ids that are named when one is not found."""
_NEWEST: Final = 500
"""Tasks among which a mistyped id is looked for."""


def find_task(connection: sqlite3.Connection, text: str) -> str:
    """The id of the task that `text` means: an id, the unique beginning of one, or ``latest``.

    Raises:
        TaskNotFound: there is none, or several; names them or near ones.
    """
    text = text.strip()
    if text == "latest":
        row = connection.execute(
            "SELECT task_id FROM tasks ORDER BY kind <> 'agent', started_ns DESC, id DESC LIMIT 1"
        ).fetchone()
        if row is None:
            raise TaskNotFound("there is no task in this history yet")
        return str(row[0])
    wanted = text.lower()
    found = _beginning_with(connection, "tasks", "task_id", wanted) if wanted else []
    if wanted in found or len(found) == 1:
        return wanted if wanted in found else found[0]
    if found:
        raise TaskNotFound(f"{_several(connection, found, 'tasks')} begin with {text!r}: give more")
    raise TaskNotFound(f"there is no task {text!r}{_near(connection, wanted)}")


def find_step(
    connection: sqlite3.Connection, text: str, task_id: str | None = None
) -> tuple[str, str]:
    """(task id, step id) of the step that `text` means."""
    wanted = text.strip().lower()
    found = connection.execute(
        "SELECT task.task_id, own.span_id FROM _steps AS step"
        " JOIN _spans AS own ON own.id = step.span JOIN tasks AS task ON task.id = step.task"
        " WHERE own.span_id >= :first AND own.span_id < :behind"
        " AND (:task IS NULL OR task.task_id = :task)"
        " LIMIT 10",
        {"first": wanted, "behind": _after(wanted), "task": task_id},
    ).fetchall()
    exact = [row for row in found if row[1] == wanted]
    if len(exact or found) == 1:
        owner, step_id = (exact or found)[0]
        return owner, step_id
    where = f" in task {task_id}" if task_id else ""
    if not found:
        raise TaskNotFound(f"there is no step {text!r}{where}")
    named = ", ".join(f"{step_id} of task {owner}" for owner, step_id in found[:_NEAR])
    raise TaskNotFound(f"several steps{where} have the id {text!r}, or begin so: {named}")


def short_ids(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, str]:
    """The shortest beginning of each task id that no other id has, of at least 8 digits."""
    short = {}
    for own in ids:
        neighbours = connection.execute(
            "SELECT (SELECT max(task_id) FROM tasks WHERE task_id < :own),"
            " (SELECT min(task_id) FROM tasks WHERE task_id > :own)",
            {"own": own},
        ).fetchone()
        shared = max((_shared(own, other) for other in neighbours if other), default=0)
        # A whole id is found although it begins others: TRACE_ID-SPAN_ID.
        short[own] = own[: max(SHORT_ID, shared + 1)]
    return short


def _after(prefix: str) -> str:
    """The least text that is greater than every text that begins with `prefix`."""
    return f"{prefix}\U0010ffff"


def _shared(one: str, other: str) -> int:
    """How many characters two texts share at their beginning."""
    for position, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            return position
    return min(len(one), len(other))


def _beginning_with(
    connection: sqlite3.Connection, table: str, column: str, prefix: str
) -> list[str]:
    rows = connection.execute(
        f"SELECT {column} FROM {table} WHERE {column} >= ? AND {column} < ? ORDER BY 1 LIMIT 1000",
        (prefix, _after(prefix)),
    )
    return [row[0] for row in rows]


def _several(connection: sqlite3.Connection, found: list[str], what: str) -> str:
    short = short_ids(connection, found[:_NEAR])
    named = ", ".join(short.values()) + (", …" if len(found) > _NEAR else "")
    return f"{len(found)} {what} ({named})"


def _near(connection: sqlite3.Connection, wanted: str) -> str:
    """What is said about an id that is not there."""
    span = connection.execute(
        "SELECT task.task_id FROM _spans AS own JOIN tasks AS task ON task.trace = own.trace"
        " WHERE own.span_id = ? LIMIT 1",
        (wanted,),
    ).fetchone()
    if span is not None:
        return f", but a span of task {span[0]} has this id"
    newest = [
        row[0]
        for row in connection.execute(
            "SELECT task_id FROM tasks ORDER BY kind <> 'agent', started_ns DESC, id DESC LIMIT ?",
            (_NEWEST,),
        )
    ]
    if not newest:
        return ": there is no task in this history yet"
    # Compared over the digits that were given: eight typed wrong resemble no whole id.
    heads = {own[: max(len(wanted), 4)]: own for own in reversed(newest)}
    near = [heads[head] for head in difflib.get_close_matches(wanted, heads, n=_NEAR, cutoff=0.7)]
    named = short_ids(connection, near or newest[:_NEAR])
    return f"; {'near' if near else 'the newest'}: {', '.join(named.values())}"
