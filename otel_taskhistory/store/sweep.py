# SPDX-License-Identifier: Apache-2.0
"""Finds what a crash has left, bit by bit: files that no row knows, rows that nothing needs.

Files: when a history is opened, and each ten minutes after that, those older than ten minutes.
Rows: once a day. A row of ``_contents``, ``_nodes`` or ``_artifacts`` that nothing refers to after
a commit is needed by nobody: writers look for it again before they use it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Final

from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.removal import Remover
from otel_taskhistory.store.unlinks import GRACE_NS, Unlinks

FILES_EACH_NS: Final = GRACE_NS
ROWS_EACH_NS: Final = 24 * 3600 * 10**9

AT_A_TIME: Final = 200
"""Files or rows that are looked at in a bit of work: about a millisecond."""
_END: Final = object()
_TABLES: Final = ("_nodes", "_contents", "_artifacts")


class Sweep:
    """Over the writer's connection."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        folder: ArtifactFolder,
        remover: Remover,
        unlinks: Unlinks,
        clock: Callable[[], int],
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._remover = remover
        self._unlinks = unlinks
        self._clock = clock
        self._begun_ns: int | None = None
        self._files: Iterator[tuple[str, int] | None] | None = None
        self._found: list[tuple[str, int]] = []
        self._rows: Iterator[None] | None = None

    @property
    def is_new(self) -> bool:
        """Whether nothing was looked at since the history was opened."""
        return self._begun_ns is None

    @property
    def due(self) -> bool:
        """Whether there is something to look through."""
        if self.in_files or self._rows is not None or self._begun_ns is None:
            return True
        return abs(self._clock() - self._begun_ns) >= FILES_EACH_NS

    @property
    def in_files(self) -> bool:
        """Whether files are being looked through."""
        return self._files is not None or bool(self._found)

    def begin(self) -> None:
        """Begin to look through everything, from the start."""
        now = self._clock()
        self._begun_ns = now
        self._folder.sweep_temporaries(GRACE_NS / 10**9, now / 10**9)
        self._files = self._old_files(now - GRACE_NS)
        self._found.clear()
        self._rows = self._through_rows()

    def look(self) -> bool:
        """Look at a few files, in no transaction; whether `clear` has something to do."""
        if not self.in_files and self._rows is None:
            self.begin()
        if self._files is not None and not self._found:
            looked_at = list(islice(self._files, AT_A_TIME))
            if not looked_at:
                self._files = None
            self._found = [file for file in looked_at if file and not self._unlinks.knows(file[0])]
        return bool(self._found) or self._files is None

    def clear(self) -> None:
        """Within a transaction, see to what `look` has found, or to a few rows."""
        if self._found:
            self._unlinks.adopt(self._found)
            self._found.clear()
        elif self._rows is not None and next(self._rows, _END) is _END:
            self._rows = None

    def _old_files(self, before_ns: int) -> Iterator[tuple[str, int] | None]:
        """Path and size of files that were last touched before then; None for each other one."""
        for path, info in self._folder.walk():
            yield (path, info.st_size) if info.st_mtime_ns < before_ns else None

    def _is_day_over(self) -> bool:
        now = self._clock()
        meta = dict(
            self._connection.execute(
                "SELECT key, value FROM _meta WHERE key IN ('swept_ns', 'created_at')"
            )
        )
        # A history is whole when it is made.
        last = int(meta["swept_ns"]) if "swept_ns" in meta else _ns(meta.get("created_at"))
        if abs(now - last) < ROWS_EACH_NS:
            return False
        self._connection.execute(
            "INSERT INTO _meta (key, value) VALUES ('swept_ns', ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (str(now),),
        )
        return True

    def _through_rows(self) -> Iterator[None]:
        """Looks through a few rows each time it is asked to go on."""
        if not self._is_day_over():
            return
        for table in _TABLES:
            last = 0
            while rows := self._connection.execute(
                f"SELECT id FROM {table} WHERE id > ? ORDER BY id LIMIT ?", (last, AT_A_TIME)
            ).fetchall():
                found = [row[0] for row in rows]
                last = found[-1]
                self._remover.drop_unneeded(*(found if table == other else () for other in _TABLES))
                yield


def _ns(at: str | None) -> int:
    return 0 if at is None else int(datetime.fromisoformat(at).timestamp()) * 10**9
