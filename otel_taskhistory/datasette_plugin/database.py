# SPDX-License-Identifier: Apache-2.0
"""A history as one of Datasette's databases: read by our own rules, and never written to.

Datasette opens a database once per thread and keeps it. That makes files beside a database that was
closed, fails where one may not write, goes on showing a history that was replaced, and with
``--immutable`` shows garbage while an agent writes. `store.reading` knows better, so every function
that Datasette wants to run on a connection runs through it.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from datasette.database import Database, Results

from otel_taskhistory.datasette_plugin.pool import Pool
from otel_taskhistory.datasette_plugin.served import Served
from otel_taskhistory.errors import TaskHistoryError
from otel_taskhistory.settings import Settings

T = TypeVar("T")

READERS: Final = 3
"""As many as Datasette has threads by default."""

_SCHEMA_VERSION: Final = "PRAGMA schema_version"
_COUNT: Final = re.compile(
    r"(select count\(\*\) from \(select )\*( from .+ limit \d+\))", re.IGNORECASE | re.DOTALL
)
_UNCOUNTABLE: Final = re.compile(
    r"(^select count\(\*\) from (?:\(select (?:\*|1) from )?)(?:\[_words\]|_words)(?=\s|$)",
    re.IGNORECASE,
)
_OF_THE_FILE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_SCHEMA,
    }
)
"""What the state of the files may explain, and another look may cure. All else is the fault of the
statement, and belongs to whoever wrote it."""


class HistoryDatabase(Database):  # type: ignore[misc]  # Datasette has no types
    """One history.

    Args:
        ds: the Datasette instance.
        settings: where the history is.
    """

    def __init__(self, ds: Any, settings: Settings) -> None:
        super().__init__(ds, path=str(settings.database), is_mutable=True)
        self.settings = settings
        self.served = Served(settings)
        self._pool = Pool(settings, READERS)
        self._schema_version = 0

    async def _execute_fn(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn` on a connection, in one short read transaction; it may be run again.

        Raises:
            TaskHistoryError: the history cannot be read.
            sqlite3.Error: what `fn` has raised.
        """
        if getattr(self, "_closed", False):
            self._check_not_closed()
        if self.ds.executor is None:
            return self._read(fn)
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self.ds.executor, context.run, self._read, fn
        )

    if not hasattr(Database, "_execute_fn"):  # Datasette 0.65 has one function for it
        execute_fn = _execute_fn

    async def execute_isolated_fn(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn`, which may leave the connection changed: an authorizer is taken off again."""

        def alone(connection: sqlite3.Connection) -> T:
            try:
                return fn(connection)
            finally:
                connection.set_authorizer(None)

        return await self._execute_fn(alone)

    async def execute(self, sql: str, *args: Any, **kwargs: Any) -> Any:
        """As Datasette's; but what it asks of every database before each page always has an answer.

        A history that is gone must not take the pages of other databases with it.
        """
        if sql.strip().rstrip(";") != _SCHEMA_VERSION:
            return await super().execute(count_cheaply(sql), *args, **kwargs)
        try:
            found = await super().execute(sql, *args, **kwargs)
            self._schema_version = found.first()[0]
            return found
        except TaskHistoryError:
            return Results([(self._schema_version,)], False, (("schema_version",),))

    def connect(self, write: bool = False) -> NoReturn:
        """Refused: whatever would open the file by itself, above all to write.

        Raises:
            sqlite3.OperationalError: always.
        """
        raise sqlite3.OperationalError("a task history is only read here")

    def close(self) -> None:
        """Close the files."""
        super().close()
        self.served.close()
        self._pool.close()

    @property
    def size(self) -> int:
        """Bytes of the main file; 0 when it is gone."""
        try:
            return os.stat(self.settings.database).st_size
        except OSError:
            return 0

    @property
    def mtime_ns(self) -> int:
        """When it was last changed, ns since 1970; 0 when it is gone."""
        try:
            return os.stat(self.settings.database).st_mtime_ns
        except OSError:
            return 0

    async def hidden_table_names(self) -> list[str]:
        """The tables behind the public names."""
        hidden = set(await super().hidden_table_names())
        names = await self.table_names()
        return [name for name in names if name in hidden or name.startswith(("_", "sqlite_"))]

    def _read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        def run(connection: sqlite3.Connection) -> T | _Raised:
            # The snapshot is taken here: what goes wrong with the files goes wrong now.
            connection.execute(_SCHEMA_VERSION).fetchone()
            if connection.row_factory is None:
                self.ds._prepare_connection(connection, self.name)
            try:
                return fn(connection)
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
                if code in _OF_THE_FILE:
                    raise
                return _Raised(error)

        with self._pool.borrow() as history:
            result = history.read(run)
        if isinstance(result, _Raised):
            raise result.error
        return result


def count_cheaply(sql: str) -> str:
    """The same count as that with which Datasette 1.0 begins a page, without what is not counted.

    It counts ``select *`` up to a limit, for which SQLite puts every prompt together. (10,001 steps
    took 2.8 s, and take 7 ms.)
    """
    if _UNCOUNTABLE.search(sql):
        # The index of words has no rows to be read, but one for each document.
        sql = _UNCOUNTABLE.sub(r"\1_documents", sql)
    found = _COUNT.fullmatch(sql.strip())
    return sql if found is None else f"{found[1]}1{found[2]}"


class _Raised:
    """What a function has raised on its own account."""

    def __init__(self, error: sqlite3.Error) -> None:
        self.error = error


def path_of(database: Any) -> Path | None:
    """The file of one of Datasette's databases; None for one in memory."""
    if database.path is None or database.is_memory:
        return None
    return Path(os.path.abspath(database.path))
