# SPDX-License-Identifier: Apache-2.0
"""The files of pictures and their rows: each picture once, its file there before its row."""

from __future__ import annotations

import errno
import sqlite3
from dataclasses import astuple, dataclass
from typing import Final

from otel_taskhistory.conventions.facts import Screenshot, SpanFacts
from otel_taskhistory.images import inspect
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.pictures import Found

_NOT_STORED: Final = "not_stored"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A picture that was stored, with what its header says."""

    sha256: str
    path: str
    media_type: str
    width: int | None
    height: int | None
    bytes: int
    status: str


class PictureFiles:
    """Over one connection and its artifact folder; a transaction is open whenever a method runs."""

    def __init__(self, connection: sqlite3.Connection, folder: ArtifactFolder) -> None:
        self._connection = connection
        self._folder = folder

    def know(self, facts: SpanFacts) -> None:
        """Rows of the files of screenshots, which are there before their span is."""
        for shot in facts.screenshots:
            self._know_file(shot)

    def _know_file(self, shot: Screenshot) -> None:
        known = self._artifact(shot.sha256)
        if shot.path is None or (known is not None and known[1] != _NOT_STORED):
            return
        try:
            there = self._folder.path(shot.path).is_file()
        except ValueError:  # no path of ours
            there = False
        if not there:  # a span of another machine: no row without a file
            return
        file = StoredFile(
            shot.sha256,
            shot.path,
            shot.media_type,
            shot.width,
            shot.height,
            shot.bytes,
            shot.status,
        )
        self._put_artifact(known, file)

    def keep(self, picture: Found) -> int:
        """The row of a picture that was found in a text, which becomes a file."""
        known = self._artifact(picture.sha256)
        if known is not None and known[1] != _NOT_STORED:
            return known[0]
        try:
            stored = store_file(self._folder, picture.data)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise  # the database cannot grow either; both wait
            # One picture must not hold up the steps of all tasks.
            info = inspect(picture.data)
            stored = StoredFile(
                picture.sha256,
                f"{picture.sha256[:2]}/{picture.sha256}.{info.extension}",
                info.media_type,
                info.width,
                info.height,
                len(picture.data),
                _NOT_STORED,
            )
        return self._put_artifact(known, stored)

    def _artifact(self, sha256: str) -> tuple[int, str] | None:
        found: tuple[int, str] | None = self._connection.execute(
            "SELECT id, status FROM _artifacts WHERE sha256 = ?", (sha256,)
        ).fetchone()
        return found

    def _put_artifact(self, known: tuple[int, str] | None, file: StoredFile) -> int:
        """Add the row of a file, or correct the one of a file that could not be written before."""
        if known is not None:
            self._connection.execute(
                "UPDATE _artifacts SET status = ? WHERE id = ?", (file.status, known[0])
            )
            return known[0]
        row = self._connection.execute(
            "INSERT INTO _artifacts (sha256, path, media_type, width, height, bytes, status)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
            astuple(file),
        ).fetchone()
        return int(row[0])


def store_file(folder: ArtifactFolder, data: bytes) -> StoredFile:
    """Write a picture as a file and fsync it.

    Raises:
        OSError: it cannot be written.
    """
    info = inspect(data)
    put = folder.put(data, info.extension)
    return StoredFile(
        put.sha256, put.path, info.media_type, info.width, info.height, put.size, info.status
    )
