# SPDX-License-Identifier: Apache-2.0
"""Limits: what is past them and why it stays, removals that are not finished, files that stay."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import Final

from otel_taskhistory.settings import Retention, Settings
from otel_taskhistory.store import records
from otel_taskhistory.store.doctor.findings import Finding, some
from otel_taskhistory.store.holdings import all_candidates, look
from otel_taskhistory.store.retention import Limits, plan
from otel_taskhistory.store.space import Usage, usage
from otel_taskhistory.store.unlinks import GRACE_NS, undeletable
from otel_taskhistory.units import format_size

_LEFT: Final = """
SELECT (SELECT count(*) FROM _owners WHERE removed_ns < :before),
    (SELECT count(*) FROM _unlinks WHERE failures = 0 AND due_ns < :before),
    (SELECT count(*) FROM _loose_nodes) + (SELECT count(*) FROM _loose_artifacts)
"""

_STAYS: Final = """
SELECT sum(pinned), sum(iif(pinned, bytes, 0)),
    sum(NOT pinned), sum(iif(pinned, 0, bytes))
FROM tasks WHERE pinned OR status = 'running'
"""


def check_limits(connection: sqlite3.Connection, settings: Settings) -> Iterator[Finding]:
    """All about retention that can be seen in the database."""
    now = time.time_ns()
    yield from _unfinished(connection, now)
    yield from _undeletable(connection)
    yield from _over(connection, settings, now)


def _unfinished(connection: sqlite3.Connection, now: int) -> Iterator[Finding]:
    owners, unlinks, loose = connection.execute(_LEFT, {"before": now - GRACE_NS}).fetchone()
    left = {
        "tasks": owners,
        "files": unlinks,
        "shared messages or pictures": loose if owners else 0,
    }
    if owners or unlinks:
        yield Finding(
            "removal",
            "warning",
            "removals were begun and not finished",
            "What was removed is not shown any more, but is in the files still and takes room.",
            "The next start of an agent goes on, and so does otel-taskhistory doctor --fix.",
            count=owners + unlinks,
            items=some(f"{what}: {number}" for what, number in left.items() if number),
            fixable=True,
        )


def _undeletable(connection: sqlite3.Connection) -> Iterator[Finding]:
    files = undeletable(connection)
    if files:
        size = format_size(sum(file.bytes for file in files))
        yield Finding(
            "undeletable files",
            "warning",
            f"pictures of removed tasks cannot be deleted and take {size}",
            "Their tasks are gone; the files are tried again, up to once an hour.",
            "See to their permissions, or to the program that uses them;"
            " otel-taskhistory doctor --fix tries again now.",
            count=len(files),
            items=some(f"{file.path}: {file.error}, tried {file.failures} times" for file in files),
            fixable=True,
        )


def _over(connection: sqlite3.Connection, settings: Settings, now: int) -> Iterator[Finding]:
    limits = Limits.of(settings.retention)
    holding = look(connection, now).holding
    planned = list(plan(limits, holding, dict(all_candidates(connection, now))))
    used = usage(connection, settings.database)
    freed = sum(one.candidate.bytes for one in planned)
    since = records.lately(connection, "blocked", now)
    blocked = (
        f"At {since} a program read in one transaction that did not end: space cannot be given"
        " back while it does."
        if since
        else ""
    )
    if planned:
        reasons = sorted({one.reason for one in planned})
        yield Finding(
            "limits",
            "warning" if blocked else "note",
            f"{len(planned)} tasks are past the limits ({', '.join(reasons)})",
            blocked or "Nothing is removed while no agent records.",
            "otel-taskhistory prune removes them now."
            if not blocked
            else "End that reader (an open sqlite3 shell, a database browser, a stuck query).",
            count=len(planned),
            items=some(one.candidate.task_id for one in planned),
        )
    if limits.content is not None and holding.content - freed > limits.content:
        yield _too_large(connection, settings.retention, used)
    elif settings.retention.max_bytes is not None and used.files > settings.retention.max_bytes:
        yield Finding(
            "limits",
            "warning",
            f"the files take {format_size(used.files)}, more than max_bytes"
            f" ({format_size(settings.retention.max_bytes)}), their content does not",
            blocked
            or f"The write-ahead log takes {format_size(used.log_file)}, free pages"
            f" {format_size(used.free)}.",
            "otel-taskhistory doctor --fix gives the room back, unless a reader is in the way.",
            fixable=True,
        )


def _too_large(connection: sqlite3.Connection, retention: Retention, used: Usage) -> Finding:
    pinned, pinned_bytes, running, running_bytes = connection.execute(_STAYS).fetchone()
    stays = []
    if pinned:
        stays.append(f"{pinned} pinned tasks (about {format_size(pinned_bytes)})")
    if running:
        stays.append(f"{running} running tasks (about {format_size(running_bytes)})")
    assert retention.max_bytes is not None
    return Finding(
        "limits",
        "warning",
        f"the history takes {format_size(used.content)}, more than max_bytes"
        f" ({format_size(retention.max_bytes)}) allows",
        f"All that may go goes; what stays: {' and '.join(stays)}."
        if stays
        else "Even an empty history takes more than that.",
        "Unpin tasks (otel-taskhistory unpin), end those that run, or raise"
        " OTEL_TASKHISTORY_MAX_BYTES.",
        items=tuple(stays),
    )
