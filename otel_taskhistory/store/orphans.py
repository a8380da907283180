# SPDX-License-Identifier: Apache-2.0
"""Files that no row knows: what a crash between writing a picture and its row has left.

Looked for when a history is opened, a few names at a time, so that nobody waits for a large folder.
A file counts as left behind after ten minutes; a picture that is used again is touched, so that
it is young again. Whether a row knows it is asked, and the file removed, under the write lock: no
other process can commit a row for it in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.store.database import Database

_logger = logging.getLogger("otel_taskhistory")

GRACE_SECONDS: Final = 600.0
AT_A_TIME: Final = 500
"""How many files are looked at after a commit: about a millisecond of `lstat`."""


class OrphanSweep:
    """Looks through the artifact folder once, in steps.

    Args:
        database: the writer's; no transaction is open when `step` is called.
        folder: its pictures.
    """

    def __init__(self, database: Database, folder: ArtifactFolder) -> None:
        self._database = database
        self._folder = folder
        self._names: Iterator[str] | None = self._old_files()
        self.removed = 0

    def step(self) -> None:
        """Look at the next few files; returns at once when all were looked at.

        Whatever goes wrong is logged and ends the sweep: `doctor` finds what is left then, and so
        does the next open.
        """
        if self._names is None:
            return
        try:
            names = list(islice(self._names, AT_A_TIME))
            if names:
                self._remove_unknown([name for name in names if name])
            else:
                self._names = None
        except Exception as error:
            self._names = None
            _logger.warning(
                "otel-taskhistory: files that no row knows could not be looked for (%s)",
                type(error).__name__,
            )

    def _old_files(self) -> Iterator[str]:
        """Paths of files past the grace time; an empty text for each that is younger."""
        now = time.time()
        self._folder.sweep_temporaries(GRACE_SECONDS, now)
        for name, info in self._folder.walk():
            yield name if now - info.st_mtime > GRACE_SECONDS else ""

    def _remove_unknown(self, names: list[str]) -> None:
        unknown = [name for name in names if not self._is_known(name)]
        if not unknown:
            return
        with self._database.transaction(wait=0):
            for name in unknown:
                if self._is_known(name) or not self._is_still_old(name):
                    continue
                self.removed += self._folder.remove(name)

    def _is_known(self, name: str) -> bool:
        sha256 = name.partition("/")[2].partition(".")[0]
        found = self._database.connection.execute(
            "SELECT 1 FROM _artifacts WHERE sha256 = ? AND path = ?", (sha256, name)
        )
        return found.fetchone() is not None

    def _is_still_old(self, name: str) -> bool:
        try:
            touched = self._folder.path(name).lstat().st_mtime
        except FileNotFoundError:
            return False
        return time.time() - touched > GRACE_SECONDS
