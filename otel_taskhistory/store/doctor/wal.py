# SPDX-License-Identifier: Apache-2.0
"""The write-ahead log: how much of it is not folded in yet, and who is in the way.

The log's index (``-shm``) says how far it goes and up to where each reader of the moment needs it;
the system says who those readers are. Nothing is written, and no lock is taken.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_taskhistory.store.doctor.findings import Finding, some
from otel_taskhistory.store.holders import Holder, holders
from otel_taskhistory.units import format_size

LARGE: Final = 32 * 2**20
"""A log of this size is worth a word: SQLite folds it in at 4 MiB when nobody is in the way."""

_LENGTH: Final = 136
_READERS: Final = range(123, 128)
"""Bytes of the index that readers lock, by https://sqlite.org/walformat.html: each stands for one
of the five marks, up to which its readers need the log."""


@dataclass(frozen=True, slots=True)
class Wal:
    """The state of a write-ahead log."""

    size: int
    """Of its file, in bytes."""
    frames: int | None
    """Pages that are in it and count; None when the index does not say."""
    folded: int | None
    """How many of those are in the database too."""
    readers: tuple[Holder, ...]
    """Who is within a read transaction, as far as the system says."""


def look_at_wal(database: Path) -> Wal | None:
    """The log of a database, None when there is none.

    Must not be called while this process has the database open: it opens and closes the index,
    which gives up the locks that SQLite has on it.
    """
    real = os.path.realpath(database)
    try:
        size = os.stat(f"{real}-wal").st_size
    except OSError:
        return None
    frames, folded = _index(Path(f"{real}-shm"))
    reading = {
        holder.pid: holder
        for holder in holders(Path(f"{real}-shm"))
        if any(holder.first <= byte <= holder.last for byte in _READERS)
    }
    return Wal(size, frames, folded, tuple(reading.values()))


def _index(shm: Path) -> tuple[int | None, int | None]:
    try:
        with shm.open("rb") as file:
            head = file.read(_LENGTH)
    except OSError:
        return None, None
    # The header is there twice, and valid only when both are the same.
    if len(head) < _LENGTH or head[:48] != head[48:96] or not head[12]:
        return None, None
    (frames,) = struct.unpack("=I", head[16:20])
    (folded,) = struct.unpack("=I", head[96:100])
    return frames, min(folded, frames)


def check_wal(wal: Wal | None) -> Iterator[Finding]:
    """Whether the log has grown, and why."""
    if wal is None or wal.size < LARGE:
        return
    far = ""
    if wal.frames is not None:
        far = f"; {wal.folded} of its {wal.frames} pages are in the database"
    who = ", ".join(sorted(str(reader) for reader in wal.readers))
    yield Finding(
        "write-ahead log",
        "warning",
        f"the write-ahead log takes {format_size(wal.size)}{far}",
        f"A reader that stays in one transaction keeps it from being folded in: {who}."
        if who
        else "It grows while a reader stays in one transaction, or after a very large one.",
        "End that reader (an open sqlite3 shell, a database browser, a stuck query)."
        if who
        else "otel-taskhistory doctor --fix folds it in and gives the room back.",
        items=some(sorted(str(reader) for reader in wal.readers)),
        fixable=True,
    )
