# SPDX-License-Identifier: Apache-2.0
"""Archives: tasks with their pictures in one zip, the same bytes for the same tasks.

=========================  ========================================================================
``tasks/TASK_ID.jsonl``    the spans of a task and their log records, as `otlp_lines` writes them
``artifacts/SHA256.EXT``   the screenshots; pictures within messages stand in their messages
``manifest.json``          ``format``, ``version``, the ids of the ``tasks``, and of each of the
                           ``members`` above its ``sha256`` and its ``bytes``; comes last
=========================  ========================================================================
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Final

from otel_taskhistory.history import TaskHistory
from otel_taskhistory.store.artifacts import ArtifactFolder
from otel_taskhistory.text import count
from otel_taskhistory.transport.otlp_lines import all_tasks, lines_of

FORMAT: Final = "otel-taskhistory archive"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
TASKS: Final = "tasks/"
ARTIFACTS: Final = "artifacts/"

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip can name: when it was written is no part of an archive."""

_SHOTS: Final = """
SELECT DISTINCT sha256, path FROM screenshots
WHERE task_id = ? AND role = 'screenshot' AND path IS NOT NULL ORDER BY sha256
"""

Tell = Callable[[int, int], None]


@dataclass(slots=True)
class Written:
    """What became of an export."""

    tasks: int = 0
    pictures: int = 0
    missing: list[str] = field(default_factory=list)
    """Paths of pictures whose files are not there."""

    @property
    def notes(self) -> list[str]:
        """What there is to say about it."""
        said = [f"{count(self.tasks, 'task')}, {count(self.pictures, 'picture')}"]
        if self.missing:
            said.append(f"{count(len(self.missing), 'picture')} left out: no file is there")
        return said


def write_archive(
    history: TaskHistory, task_ids: Sequence[str] | None, file: BinaryIO, tell: Tell
) -> Written:
    """Write tasks as an archive.

    Args:
        task_ids: whole ids; None for all tasks.
        file: gets the archive; need not be seekable.
        tell: called with how many tasks are written, and how many there are.

    Raises:
        TaskHistoryError: the history cannot be read.
    """
    tasks = sorted(set(all_tasks(history) if task_ids is None else task_ids))
    folder = ArtifactFolder(history.settings.artifacts)
    done = Written()
    members: dict[str, dict[str, Any]] = {}
    pictures: dict[str, str] = {}
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for number, task in enumerate(tasks):
            tell(number, len(tasks))
            lines = (line.text for line in lines_of(history, folder.read, task, is_task=True))
            name = f"{TASKS}{task}.jsonl"
            members[name] = _put(archive, name, lines, compressed=True)
            pictures |= dict(history.read(partial(_shots, task=task)))
            done.tasks += 1
        for _, path in sorted(pictures.items()):
            try:
                data = folder.read(path)
            except (OSError, ValueError):
                done.missing.append(path)
                continue
            name = ARTIFACTS + path.rpartition("/")[2]
            members[name] = _put(archive, name, [data], compressed=False)
            done.pictures += 1
        manifest = {"format": FORMAT, "version": VERSION, "tasks": tasks, "members": members}
        text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
        _put(archive, MANIFEST, [text.encode()], compressed=True)
    tell(len(tasks), len(tasks))
    return done


def _shots(connection: sqlite3.Connection, task: str) -> list[tuple[str, str]]:
    return connection.execute(_SHOTS, (task,)).fetchall()


def _put(
    archive: zipfile.ZipFile, name: str, pieces: Iterable[bytes], *, compressed: bool
) -> dict[str, Any]:
    """Write a member, and return what the manifest says of it."""
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    info.create_system = 3
    info.external_attr = 0o600 << 16
    hashed, size = hashlib.sha256(), 0
    with archive.open(info, "w", force_zip64=True) as member:
        for piece in pieces:
            member.write(piece)
            hashed.update(piece)
            size += len(piece)
    return {"sha256": hashed.hexdigest(), "bytes": size}


def digest_of(history: TaskHistory, task: str) -> str:
    """The ``sha256`` that an archive of this history has for a task."""
    hashed = hashlib.sha256()
    for text in _texts(history, task):
        hashed.update(text)
    return hashed.hexdigest()


def _texts(history: TaskHistory, task: str) -> Iterator[bytes]:
    folder = ArtifactFolder(history.settings.artifacts)
    return (line.text for line in lines_of(history, folder.read, task, is_task=True))
