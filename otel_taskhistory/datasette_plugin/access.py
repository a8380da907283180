# SPDX-License-Identifier: Apache-2.0
"""Whether somebody may see a history: as Datasette's own permissions say.

Our pages show what is in the public tables, so whoever may not see one of those sees no page.
"""

from __future__ import annotations

from typing import Any, Final

from datasette.utils.asgi import Forbidden

try:
    from datasette.resources import DatabaseResource, TableResource
except ImportError:  # Datasette 0.65
    DatabaseResource = TableResource = None

TABLES: Final = (
    "tasks",
    "steps",
    "model_calls",
    "tool_calls",
    "screenshots",
    "timeline",
    "spans",
    "logs",
)
"""The public tables and views."""

PICTURES: Final = ("screenshots",)


async def require(
    datasette: Any, actor: Any, database: str, tables: tuple[str, ...] = TABLES
) -> None:
    """Make sure that the actor may see these tables; with none of them, the database.

    Raises:
        datasette.utils.asgi.Forbidden: not all of them.
        TaskHistoryError: the history cannot be read, and Datasette needs to, to tell.
    """
    if not await allowed(datasette, actor, database, tables):
        raise Forbidden("no permission to view this task history")


async def allowed(
    datasette: Any, actor: Any, database: str, tables: tuple[str, ...] = TABLES
) -> bool:
    """Whether the actor may see these tables of a database."""
    if TableResource is None:
        return await _allowed_in_0_65(datasette, actor, database, tables)
    if not await datasette.allowed(
        action="view-database", resource=DatabaseResource(database), actor=actor
    ):
        return False
    for table in tables:
        resource = TableResource(database=database, table=table)
        if not await datasette.allowed(action="view-table", resource=resource, actor=actor):
            return False
    return True


async def _allowed_in_0_65(
    datasette: Any, actor: Any, database: str, tables: tuple[str, ...]
) -> bool:
    # The first that says anything decides, as for Datasette's own table pages.
    above = [("view-database", database), "view-instance"]
    try:
        for table in tables:
            await datasette.ensure_permissions(actor, [("view-table", (database, table)), *above])
        if not tables:
            await datasette.ensure_permissions(actor, above)
    except Forbidden:
        return False
    return True
