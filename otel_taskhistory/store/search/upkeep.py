# SPDX-License-Identifier: Apache-2.0
"""Keeps the search index up to date, one short transaction at a time.

Others write to the history between two of these, so whoever wants all of it done (`finish`) gets
what there was to do when it began: what comes meanwhile is left to those who write it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Final

from otel_taskhistory.store.database import Database
from otel_taskhistory.store.search.documents import FIELDS, PART
from otel_taskhistory.store.search.index import CHARACTERS, MERGE_PAGES, Indexer
from otel_taskhistory.store.space import Space

SHORT_WAIT: Final = 0.1
"""Seconds to wait for another writer: indexing can be done later."""

_PAUSE: Final = 0.005
"""Seconds between two transactions, so that others get the lock."""

_WRITES: Final = 8
"""How often merging may write each page of the index: more than it has levels by itself."""

LEVELS: Final = 500
"""Levels from which on the index is made anew.

Each time that all of it is merged FTS5 puts it one level higher, and from 2,000 on it calls its own
index malformed.
"""

SHARE: Final = 100
"""Merging all of the index is begun again after so many times the seconds that it last took.

Every page is written for it, so a history that removes a task every few minutes would otherwise
write its whole index as often.
"""


_SECOND_FORM: Final = b"\xff\x00\x00\x01"


class Upkeep:
    """Over the writer's connection; no transaction is open whenever a method is called."""

    def __init__(
        self,
        database: Database,
        space: Space,
        indexer: Indexer,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._connection: sqlite3.Connection = database.connection
        self._space = space
        self._indexer = indexer
        self._monotonic = monotonic
        self._spent = 0.0
        """Seconds that merging has taken since it was begun."""
        self._not_before = float("-inf")

    @property
    def garbage(self) -> int:
        """Bytes of the index that vanish by merging, about."""
        return self._indexer.garbage

    def index(self, waiting: int = 1) -> bool:
        """Index a bit of what is said, where so many rows wait for it; whether any did."""
        if not self._indexer.waits_for(waiting):
            return False
        # It must fit into the log's part of the room beside what steps have written meanwhile.
        self._database.log.keep_small(at_once=True)
        try:
            with self._database.transaction(wait=SHORT_WAIT):
                self._indexer.step(min(CHARACTERS, self._space.division.log // 4))
        except BaseException:
            self._indexer.forget()
            raise
        if self._indexer.has_dropped:
            self._database.log.deleted()
        self._space.keep_small()
        return True

    def rest(self) -> bool:
        """Merge a bit, unless that was all done a short while ago; whether there is more."""
        if self._monotonic() < self._not_before:
            return False
        return self.merge()

    def merge(self) -> bool:
        """Let words of removed texts vanish from the index, a bit; whether there is more."""
        if not self._indexer.has_dropped:
            return False
        began = self._monotonic()
        with self._database.transaction(wait=SHORT_WAIT):
            if levels(self._connection) >= LEVELS:
                self._indexer.rebuild()  # `index` does it
            more = self._indexer.merge()
        self._database.log.deleted()
        now = self._monotonic()
        self._spent += now - began
        if not more:
            self._not_before = now + SHARE * self._spent
            self._spent = 0.0
        return more

    def finish(self, pause: Callable[[float], None]) -> bool:
        """Index all that waits now, then let all words of removed texts vanish.

        Args:
            pause: sleeps for so many seconds between two transactions.

        Returns:
            Whether anything was indexed.
        """
        indexed = False
        for _ in range(self._turns()):
            if not self.index():
                break
            indexed = True
            pause(_PAUSE)
        for _ in range(self._merges()):
            if not self.merge():
                break
            pause(_PAUSE)
        return indexed

    def _turns(self) -> int:
        """In so many turns all is indexed that waits: one for each row and each part of a value."""
        waiting = self._indexer.rows_to_come()
        (size,) = self._connection.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        ).fetchone()
        return 2 * len(FIELDS) + waiting + int(size) // PART if waiting else 0

    def _merges(self) -> int:
        (pages,) = self._connection.execute("SELECT count(*) FROM _words_data").fetchone()
        return _WRITES * (1 + int(pages) // MERGE_PAGES)


def levels(connection: sqlite3.Connection) -> int:
    """How many levels FTS5 has in the index, as the head of its structure record says.

    The record is described in SQLite's source, ``fts5_index.c``: a cookie of four bytes, in newer
    indexes four more that are always the same, then the number as SQLite's variable-length integer.
    """
    (block,) = connection.execute("SELECT block FROM _words_data WHERE id = 10").fetchone()
    number = 0
    for byte in block[8 if block[4:8] == _SECOND_FORM else 4 :]:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return number
