# SPDX-License-Identifier: Apache-2.0
"""Which of Datasette's databases are histories: those are read by our rules, others left alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from datasette.utils import tilde_encode

from otel_taskhistory.datasette_plugin.database import HistoryDatabase, path_of
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.pages.html import Url
from otel_taskhistory.pages.links import Links
from otel_taskhistory.settings import ARTIFACTS_NAME, Settings
from otel_taskhistory.store.header import read_header
from otel_taskhistory.store.schema import APPLICATION_ID

ELSEWHERE = "-/taskhistories/"
"""Where a history is that is not the first: ``/-/taskhistories/NAME/-/taskhistory/``."""


def adopt(datasette: Any) -> None:
    """Exchange those of Datasette's databases that are histories; again is no change."""
    for name, database in list(datasette.databases.items()):
        settings = None if isinstance(database, HistoryDatabase) else _settings(path_of(database))
        if settings is None:
            continue
        ours = HistoryDatabase(datasette, settings)
        ours.name, ours.route = database.name, database.route
        # A new dict, as Datasette does it; at the same place in the order.
        datasette.databases = type(datasette.databases)(
            (other, ours if other == name else own) for other, own in datasette.databases.items()
        )


def histories(datasette: Any) -> list[HistoryDatabase]:
    """The histories among Datasette's databases, in their order."""
    return [own for own in datasette.databases.values() if isinstance(own, HistoryDatabase)]


def history_called(datasette: Any, name: str | None) -> HistoryDatabase | None:
    """A history by the name of its database, or None when that is none."""
    database = datasette.databases.get(name) if name else None
    return database if isinstance(database, HistoryDatabase) else None


def links_of(datasette: Any, database: HistoryDatabase) -> Links:
    """The addresses of a history's pages."""
    root = datasette.urls.instance()
    route = tilde_encode(database.route or database.name)
    if histories(datasette)[0] is database:
        return Links(str(root), route)
    return _OtherLinks(str(root), route)


class _OtherLinks(Links):
    """Those of a history that is not the first: our pages lie deeper, Datasette's do not."""

    def __init__(self, root: str, database: str) -> None:
        self._root = Links(root, database)
        super().__init__(f"{self._root.base}{ELSEWHERE}{database}/", database)

    def table(self, name: str, **filters: str) -> Url:
        """Datasette's own page of a table or view."""
        return self._root.table(name, **filters)


def _settings(path: Path | None) -> Settings | None:
    """Where the parts of the history at `path` are; None when there is no history."""
    if path is None or not path.is_file():
        return None
    try:
        header = read_header(path)
        if header is None or header.application_id != APPLICATION_ID:
            return None
        here = Settings.resolve(
            directory=path.parent,
            database=path,
            artifacts=path.parent / ARTIFACTS_NAME,
            environ={},
        )
    except (OSError, TaskHistoryError):  # not to be read, or not where a history can be: not ours
        return None
    try:
        usual = Settings.resolve()
        if usual.database.samefile(path):  # its pictures may have been put elsewhere
            return replace(usual, owner_explicit=False)
    except (OSError, TaskHistoryError):
        pass
    return here
