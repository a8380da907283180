# SPDX-License-Identifier: Apache-2.0
"""What the first bytes of a database say, read without harm to whoever has it open.

On POSIX systems, closing any descriptor of a file gives up all locks that the process holds on it.
A process that opens and closes its own database behind SQLite's back therefore loses its place
among the users of the write-ahead log: the next one to leave takes itself for the last and removes
the log, with the steps that are written into it after that. So SQLite itself is asked, which knows
about this; and where it cannot read the file, the descriptor stays open.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAGIC: Final = b"SQLite format 3\0"
_LENGTH: Final = 100

_descriptors: dict[tuple[int, int], int] = {}
"""Descriptors that stay open, by device and inode."""


@dataclass(frozen=True, slots=True)
class Header:
    """The two numbers by which applications recognise their databases."""

    application_id: int
    user_version: int


def read_header(database: Path) -> Header | None:
    """The header of a database file; None when it is none, or shorter than a header.

    What the write-ahead log holds does not count; nothing is made beside the file.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with closing(immutable(database)) as connection:
            numbers = [
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("application_id", "user_version")
            ]
        return Header(*numbers)
    except sqlite3.DatabaseError:
        # Destroyed, or a writer was killed while it folded its log in: then only the log knows.
        return _parsed(first_bytes(database, _LENGTH))


def immutable(database: Path) -> sqlite3.Connection:
    """A connection that sees the main file only, and leaves no trace."""
    # The class itself: instrumentations patch sqlite3.connect.
    return sqlite3.Connection(f"{database.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def whole(database: Path) -> sqlite3.Connection:
    """A connection that sees what is in the write-ahead log too, and leaves both files as is."""
    real = os.path.realpath(database)
    if not any(os.path.exists(real + suffix) for suffix in ("-wal", "-journal")):
        return immutable(database)
    # Read-only: closing any other connection would fold the log in, and remove it.
    return sqlite3.Connection(f"{database.absolute().as_uri()}?mode=ro", uri=True)


def first_bytes(database: Path, length: int) -> bytes:
    """The beginning of a file that may be a database; for one that SQLite cannot read only.

    Raises:
        OSError: it cannot be read.
    """
    found = os.stat(database)
    key = (found.st_dev, found.st_ino)
    if key not in _descriptors:
        _descriptors[key] = os.open(database, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    descriptor = _descriptors[key]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, length)


def _parsed(header: bytes) -> Header | None:
    if not header.startswith(_MAGIC) or len(header) < _LENGTH:
        return None
    user_version, application_id = struct.unpack(">i4xi", header[60:72])
    return Header(application_id, user_version)
