# SPDX-License-Identifier: Apache-2.0
"""The Datasette plugin: what it adds concerns histories only, other databases stay as they are.

Works with Datasette 0.65 and 1.0: hooks that one of them does not have are not called there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from markupsafe import Markup
from pluggy import HookimplMarker

from otel_taskhistory.datasette_plugin import access, tables
from otel_taskhistory.datasette_plugin.answers import TABLE_CSS_VERSION
from otel_taskhistory.datasette_plugin.asgi import App
from otel_taskhistory.datasette_plugin.cells import cell
from otel_taskhistory.datasette_plugin.csv_cells import SafeCsv
from otel_taskhistory.datasette_plugin.histories import (
    adopt,
    histories,
    history_called,
    links_of,
)
from otel_taskhistory.datasette_plugin.own_pages import OwnPages
from otel_taskhistory.datasette_plugin.queries import QUERIES
from otel_taskhistory.datasette_plugin.routes import failed, our_routes
from otel_taskhistory.errors import TaskHistoryError

__all__: list[str] = []

hookimpl = HookimplMarker("datasette")
"""Datasette's own marker, with types."""


@hookimpl
def register_output_renderer(datasette: Any) -> list[Any]:
    """No renderer: this is the one hook that is called before Datasette opens a database."""
    adopt(datasette)
    return []


@hookimpl
def startup(datasette: Any) -> Callable[[], Any]:
    """Once more, for databases that were added since; and what Datasette 1.0 is told by call."""

    async def prepare() -> None:
        adopt(datasette)
        names = [own.name for own in histories(datasette)]
        if not names or not hasattr(datasette, "add_query"):
            return
        datasette.config = tables.add_to_config(datasette.config, names)
        for name in names:
            for table, settings in tables.TABLES.items():
                said = await datasette.get_resource_metadata(name, table)
                if "description" not in said:
                    await datasette.set_resource_metadata(
                        name, table, "description", settings.description
                    )
            for query in QUERIES:
                await datasette.add_query(
                    name,
                    query.name,
                    query.sql.strip(),
                    title=query.title,
                    description=query.description,
                    source="taskhistory",
                )

    return prepare


@hookimpl
def shutdown(datasette: Any) -> None:
    """Close the histories (Datasette 1.0)."""
    for own in histories(datasette):
        own.served.close()


@hookimpl
def register_routes(datasette: Any) -> list[tuple[str, Callable[..., Any]]]:
    """Our pages."""
    return our_routes()


@hookimpl
def handle_exception(
    datasette: Any, request: Any, exception: Exception
) -> Callable[[], Any] | None:
    """Say what is the matter when a history cannot be read for one of Datasette's own pages."""
    if not isinstance(exception, TaskHistoryError):
        return None

    async def respond() -> Any:
        return await failed(datasette, request, exception)

    return respond


@hookimpl
def asgi_wrapper(datasette: Any) -> Callable[[App], App]:
    """Keep formulas out of CSV, and what cannot be seen or is not for show out of pages."""
    return lambda app: OwnPages(SafeCsv(app, datasette), datasette)


@hookimpl
def get_metadata(datasette: Any) -> dict[str, Any]:
    """Descriptions, facets and page sizes (Datasette 0.65); what somebody has set stays."""
    return tables.metadata_of([own.name for own in histories(datasette)])


@hookimpl
def canned_queries(datasette: Any, database: str) -> dict[str, dict[str, str]]:
    """The questions (Datasette 0.65)."""
    if history_called(datasette, database) is None:
        return {}
    return {
        query.name: {
            "sql": query.sql.strip(),
            "title": query.title,
            "description": query.description,
        }
        for query in QUERIES
    }


@hookimpl
def render_cell(row: Any, value: Any, column: str, database: str, datasette: Any) -> Markup | None:
    """Ids as links, pictures, long text folded."""
    own = history_called(datasette, database)
    if own is None or not isinstance(value, str | dict):
        return None
    columns = row.keys() if hasattr(row, "keys") else ()

    def other(name: str) -> Any:
        there = row[name] if name in columns else None
        return there.get("value") if isinstance(there, dict) else there

    made = cell(links_of(datasette, own), column, value, other)
    return None if made is None else Markup(made.markup)


@hookimpl
def extra_css_urls(database: str | None, datasette: Any) -> list[str]:
    """The look of those cells."""
    if history_called(datasette, database) is None:
        return []
    path = datasette.urls.path(f"/-/taskhistory/assets/table.css?v={TABLE_CSS_VERSION}")
    return [str(path)]


@hookimpl
def menu_links(datasette: Any, actor: Any) -> Callable[[], Any]:
    """The way to the task lists."""

    async def links() -> list[dict[str, str]]:
        found = []
        for own in histories(datasette):
            # Every page of every database has this menu: it must not fail with a history.
            with suppress(TaskHistoryError):
                if await access.allowed(datasette, actor, own.name):
                    found.append(own)
        return [
            {
                "href": str(links_of(datasette, own).task_list()),
                "label": "Task history" if len(found) == 1 else f"Task history: {own.name}",
            }
            for own in found
        ]

    return links


@hookimpl
def database_actions(datasette: Any, database: str) -> list[dict[str, str]]:
    """The same from the page of the database."""
    return _to_the_tasks(datasette, database)


@hookimpl
def table_actions(datasette: Any, database: str) -> list[dict[str, str]]:
    """The same from the page of a table."""
    return _to_the_tasks(datasette, database)


@hookimpl
def view_actions(datasette: Any, database: str) -> list[dict[str, str]]:
    """The same from the page of a view (Datasette 1.0)."""
    return _to_the_tasks(datasette, database)


def _to_the_tasks(datasette: Any, database: str) -> list[dict[str, str]]:
    own = history_called(datasette, database)
    if own is None:
        return []
    return [{"href": str(links_of(datasette, own).task_list()), "label": "Tasks on one page each"}]
