# SPDX-License-Identifier: Apache-2.0
"""The page of the database: every public table and view with its columns, from a new history."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from docs.site.reference.markdown import table
from otel_taskhistory import TaskHistoryExporter
from otel_taskhistory.store.meanings import DESCRIPTIONS, MEANINGS
from otel_taskhistory.store.schema import APPLICATION_ID, SCHEMA_VERSION

_INTRODUCTION: Final = f"""\
`history.db` is an ordinary SQLite database (application id `0x{APPLICATION_ID:08X}`, schema version
{SCHEMA_VERSION}). The tables and views below are its public interface; names that begin with an
underscore are not. Questions to ask of them: [querying](../querying.md).
"""


def page() -> str:
    """Every table and column; types as SQLite reports them of tables, and finds them in views."""
    parts = [
        "# Tables and columns",
        _INTRODUCTION,
    ]
    with tempfile.TemporaryDirectory() as folder:
        TaskHistoryExporter(Path(folder) / "history").shutdown()
        with closing(sqlite3.connect(Path(folder) / "history" / "history.db")) as connection:
            parts += [_section(connection, name) for name in MEANINGS]
    return "\n\n".join(parts)


def _section(connection: sqlite3.Connection, name: str) -> str:
    (kind,) = connection.execute(
        "SELECT type FROM sqlite_schema WHERE name = ?", (name,)
    ).fetchone()
    columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
    found = {column[1]: column[2] for column in columns}
    if list(found) != list(MEANINGS[name]):
        raise ValueError(f"the columns of {name} are not those that are described: {list(found)}")
    rows = [
        (f"`{column}`", (type_ or "text or number").lower(), MEANINGS[name][column])
        for column, type_ in found.items()
    ]
    return "\n\n".join(
        [
            f"## {name}",
            f"A {kind}. {DESCRIPTIONS[name]}",
            table(("column", "type", "meaning"), rows),
        ]
    )
