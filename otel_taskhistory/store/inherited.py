# SPDX-License-Identifier: Apache-2.0
"""Connections that a forked child has inherited: never used there, nor closed, not even at exit.

Closing could fold the write-ahead log that the parent still writes to, would give up the locks that
the child itself has on the file by then, and waits for ever if another thread of the parent was
inside SQLite when it forked.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress

_connections: list[sqlite3.Connection] = []


def abandon(connection: sqlite3.Connection) -> None:
    """Keep a connection of the parent process as it is until this one is gone."""
    _connections.append(connection)
    with suppress(ImportError):  # a Python built without it
        import ctypes

        # Not even the end of the interpreter, which empties the list, then closes it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
