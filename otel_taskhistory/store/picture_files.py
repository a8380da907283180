# SPDX-License-Identifier: Apache-2.0
"""The files of pictures and their rows: each picture once, its file there before its row."""

from __future__ import annotations

import errno
import logging
import sqlite3
from dataclasses import astuple, dataclass
from typing import Final

from otel_taskhistory.conventions.facts import Screenshot, SpanFacts
from otel_taskhistory.images import inspect
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.pictures import Found

_logger = logging.getLogger("otel_taskhistory")

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
        self._told = False

    def know(self, facts: SpanFacts) -> None:
        """Rows of the files of screenshots, which are there before their span is."""
        for shot in facts.screenshots:
            self._know_file(shot)

    def _know_file(self, shot: Screenshot) -> None:
        if shot.path is None or self._artifact(shot.sha256) is not None:
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
        self._put_artifact(file)

    def keep(self, picture: Found) -> int | None:
        """The row of a picture that was found in a text, which becomes a file if it can."""
        known = self._artifact(picture.sha256)
        if known is not None:
            return known
        try:
            stored = store_file(self._folder, picture.data)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise  # the database cannot grow either; both wait
            # One picture must not hold up the steps of all tasks: it stays where it is.
            if not self._told:
                self._told = True
                _logger.warning(
                    "otel-taskhistory: pictures in prompts cannot be written as files, they are"
                    " kept within the text (%s at %s)",
                    type(error).__name__,
                    self._folder.root,
                )
            return None
        return self._put_artifact(stored)

    def _artifact(self, sha256: str) -> int | None:
        found = self._connection.execute(
            "SELECT id FROM _artifacts WHERE sha256 = ?", (sha256,)
        ).fetchone()
        return None if found is None else int(found[0])

    def _put_artifact(self, file: StoredFile) -> int:
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
