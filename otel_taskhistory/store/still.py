# SPDX-License-Identifier: Apache-2.0
"""Whether anything has changed in a history between two transactions of its writer.

Most of the time an agent is the only one that writes, and what it has looked up in its last commit
still holds in the next. Only when somebody else has committed, or something else was done over the
same connection (retention, indexing), is it to be looked up again.
"""

from __future__ import annotations

import sqlite3


class Stillness:
    """Of one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._others: int | None = None
        """What SQLite counts up with the commits of other connections, at the last look."""
        self._ours: int | None = None
        """Rows that this connection had changed when its last transaction was committed."""

    def look(self) -> bool:
        """Within a transaction that has just begun: whether nothing changed since `keep`."""
        others = self._connection.execute("PRAGMA data_version").fetchone()[0]
        still = others == self._others and self._connection.total_changes == self._ours
        self._others = others
        self._ours = None
        return still

    def keep(self) -> None:
        """The transaction in which one has looked is committed."""
        self._ours = self._connection.total_changes
