# SPDX-License-Identifier: Apache-2.0
"""By which rules the traces of a history were read, so that one can tell what is due to be redone.

The rules are those of the dialects (`otel_taskhistory.conventions.VERSION`) and those by which
tasks and steps follow from what they say (`PROJECTION`). ``_meta`` holds, under ``rules``, the
newest rules that ever wrote here, and under ``older_rules_up_to`` the number of the last trace of
which anything was read by older ones. So a writer pays one look per transaction, and `reproject`
works its way down from that number.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from otel_taskhistory.errors import SchemaTooNew

PROJECTION: Final = 1
"""Rises whenever the same facts may make other tasks, steps, calls or pictures than before."""

_ALL: Final = 2**62
"""More than any trace's number: an older writer is at work, its next traces count too."""

_RULES: Final = "rules"
_OLDER: Final = "older_rules_up_to"


def current() -> str:
    """The rules of this version."""
    from otel_taskhistory import conventions  # all dialects: most readers need none

    return f"{conventions.VERSION}.{PROJECTION}"


def sign(connection: sqlite3.Connection) -> None:
    """Note the rules of who is about to write; call it first in every write transaction."""
    mine, last = current(), _get(connection, _RULES)
    if last == mine:
        return
    if last is None or _order(last) < _order(mine):
        newest = connection.execute("SELECT coalesce(max(id), 0) FROM _traces").fetchone()[0]
        _put(connection, _OLDER, newest)
        _put(connection, _RULES, mine)
    else:
        _put(connection, _OLDER, _ALL)


def older_up_to(connection: sqlite3.Connection) -> int:
    """The number of the last trace that is due; 0 when none is. After `sign`.

    Raises:
        SchemaTooNew: a newer version has read the history by rules that this one does not know.
    """
    last = _get(connection, _RULES)
    if last is not None and _order(last) > _order(current()):
        raise SchemaTooNew(
            f"a newer version of otel-taskhistory (rules {last}) has read this history, this one"
            f" has rules {current()}: upgrade otel-taskhistory"
        )
    return _number(_get(connection, _OLDER))


def set_older_up_to(connection: sqlite3.Connection, trace: int) -> None:
    """All traces with greater numbers have been read by the present rules."""
    _put(connection, _OLDER, trace)


def older_traces(connection: sqlite3.Connection) -> int:
    """How many traces with tasks were read, wholly or in part, by older rules than are known here.

    For readers; `otel-taskhistory reproject` brings it to 0.
    """
    last = _get(connection, _RULES)
    if last is None or _order(last) < _order(current()):
        upto = _ALL
    else:
        upto = _number(_get(connection, _OLDER))
    found = connection.execute("SELECT count(DISTINCT trace) FROM tasks WHERE trace <= ?", (upto,))
    return int(found.fetchone()[0])


def _order(rules: str) -> tuple[int, ...]:
    return tuple(_number(part) for part in rules.split("."))


def _number(text: str | None) -> int:
    """A number that somebody may have damaged by hand: everything is due then."""
    if text is None:
        return 0
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else _ALL


def _get(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT value FROM _meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def _put(connection: sqlite3.Connection, key: str, value: str | int) -> None:
    connection.execute(
        "INSERT INTO _meta (key, value) VALUES (?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, str(value)),
    )
