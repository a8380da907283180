# SPDX-License-Identifier: Apache-2.0
"""The pictures of a history by their hash: as they are, and small; nothing else is ever given out.

A picture is given out when a row of the history names it, and the file in the artifact folder is
what the hash says. Small ones are made when first asked for, by two threads at most, each once
however many ask at the same time, and kept in a bounded memory; nothing is written anywhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sqlite3
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from otel_taskhistory.datasette_plugin.pool import Pool
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.images import inspect
from otel_taskhistory.settings import Settings
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.thumbnails import Thumbnail, make_thumbnail

HASH: Final = re.compile(r"[0-9a-f]{64}")

SHOWN: Final = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/bmp": "bmp",
    "image/avif": "avif",
}
"""What a browser may show: raster pictures, which cannot run anything. SVG is none."""

_KEPT_BYTES: Final = 32 * 2**20
"""About 3,000 thumbnails of screens in the default size."""

_MAKERS: Final = 2

_PATH: Final = "SELECT path FROM screenshots WHERE sha256 = ? AND path IS NOT NULL LIMIT 1"


@dataclass(frozen=True, slots=True)
class Picture:
    """A file of the artifact folder, typed by its content."""

    data: bytes
    media_type: str | None
    """One of `SHOWN`; None for whatever is to be saved, not shown."""
    file_name: str


class Pictures:
    """The pictures of one history.

    Args:
        settings: where they are.
        pool: readers of the history.
    """

    def __init__(self, settings: Settings, pool: Pool) -> None:
        self._folder = ArtifactFolder(settings.artifacts)
        self._pool = pool
        self._lock = threading.Lock()
        self._makers: ThreadPoolExecutor | None = None
        self._making: dict[tuple[str, int], Future[Thumbnail | None]] = {}
        self._kept: OrderedDict[tuple[str, int], Thumbnail] = OrderedDict()
        self._kept_bytes = 0

    def picture(self, sha256: str, history: TaskHistory) -> Picture | None:
        """A picture, or None when the history has none of this hash.

        Raises:
            TaskHistoryError: the history cannot be read.
        """
        path = history.read(lambda connection: _path(connection, sha256))
        data = None if path is None else self._content(path, sha256)
        if data is None:
            return None
        media_type = inspect(data).media_type
        extension = SHOWN.get(media_type)
        name = f"{sha256}.{extension or 'bin'}"
        return Picture(data, media_type if extension else None, name)

    async def thumbnail(self, sha256: str, width: int) -> Thumbnail | None:
        """A small picture, or None when the history has none of this hash.

        Args:
            sha256: 64 hex digits.
            width: one of `otel_taskhistory.thumbnails.SIZES`.

        Raises:
            TaskHistoryError: the history cannot be read.
        """
        key = (sha256, width)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            making = self._making.get(key)
            if making is None:
                if self._makers is None:
                    self._makers = ThreadPoolExecutor(_MAKERS, "taskhistory-thumbnail")
                making = self._makers.submit(self._make, sha256, width)
                self._making[key] = making
        # Shielded: one who goes away must not take it from the others.
        return await asyncio.shield(asyncio.wrap_future(making))

    def close(self) -> None:
        """End the threads that make thumbnails; asking for one begins anew."""
        with self._lock:
            makers, self._makers = self._makers, None
        if makers is not None:
            makers.shutdown(cancel_futures=True)
        with self._lock:
            self._making.clear()

    def _make(self, sha256: str, width: int) -> Thumbnail | None:
        key = (sha256, width)
        made: Thumbnail | None = None
        try:
            # Not before a thread is free for it: who waits in the queue holds no picture.
            with self._pool.borrow() as history:
                path = history.read(lambda connection: _path(connection, sha256))
            data = None if path is None else self._content(path, sha256)
            made = None if data is None else make_thumbnail(data, width)
            return made
        finally:
            with self._lock:
                self._making.pop(key, None)
                if made is not None:
                    self._keep(key, made)

    def _keep(self, key: tuple[str, int], made: Thumbnail) -> None:
        replaced = self._kept.pop(key, None)
        self._kept_bytes -= len(replaced.data) if replaced else 0
        self._kept[key] = made
        self._kept_bytes += len(made.data)
        while self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.data)

    def _content(self, path: str, sha256: str) -> bytes | None:
        """The file; None when it is not there, or is another than was recorded."""
        try:
            data = self._folder.read(path)
        except (OSError, ValueError):
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None


def _path(connection: sqlite3.Connection, sha256: str) -> str | None:
    row = connection.execute(_PATH, (sha256,)).fetchone()
    return None if row is None else str(row[0])
