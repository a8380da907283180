# SPDX-License-Identifier: Apache-2.0
"""Imports an archive: all of it is looked at before anything is written.

An archive is as hostile as any file: names are only ever compared with what they must be, nothing
is unpacked, and each member is read in pieces.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Final

from otel_taskhistory.errors import HistoryNotFound, TaskHistoryError
from otel_taskhistory.history import TaskHistory
from otel_taskhistory.spans.otlp import Given
from otel_taskhistory.spans.otlp_file import read_file
from otel_taskhistory.store.importing import Importer
from otel_taskhistory.transport.archive import (
    ARTIFACTS,
    FORMAT,
    MANIFEST,
    TASKS,
    VERSION,
    digest_of,
)
from otel_taskhistory.transport.copies import Copies

_STARTS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_TASK: Final = re.compile(r"tasks/([0-9a-f]{32}(?:-[0-9a-f]{16})?)\.jsonl\Z")
_ARTIFACT: Final = re.compile(r"artifacts/([0-9a-f]{64})(?:\.[a-z0-9]{1,8})?\Z")
_PIECE: Final = 2**20
_MANIFEST_MOST: Final = 64 * 2**20
_PICTURE_MOST: Final = 256 * 2**20
_MOST: Final = 256 * 2**30
"""Bytes that all members together may say they are."""

Tell = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ArchiveImported:
    """What became of an archive."""

    tasks: int
    """Tasks that are in the history now."""
    known: int
    """Of these, tasks that were there before, the same."""
    pictures: int


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    sha256: str
    bytes: int


def is_archive(file: BinaryIO) -> bool:
    """Whether a file is a zip, by its first bytes; afterwards it is at its start again."""
    if not file.seekable():
        return False
    start = file.read(4)
    file.seek(-len(start), io.SEEK_CUR)
    return start in _STARTS


def import_archive(
    file: BinaryIO, importer: Importer, *, as_new: bool, tell: Tell
) -> ArchiveImported:
    """Import all tasks of an archive, or nothing.

    Args:
        file: seekable.
        importer: writes to the history, and counts.
        as_new: give the tasks new ids, with links to the originals.
        tell: called with how many members are done, and how many there are.

    Raises:
        TaskHistoryError: it is no archive, or damaged, or made by a newer version; or the history
            has one of its tasks already and that is another one. Nothing was written then.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            return _Run(archive, importer, tell).all(as_new=as_new)
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise TaskHistoryError(
            f"this archive is damaged or cut ({error}): export it again"
        ) from error


class _Run:
    def __init__(self, archive: zipfile.ZipFile, importer: Importer, tell: Tell) -> None:
        self._archive = archive
        self._importer = importer
        self._writer = importer.writer
        self._tell = tell
        self._done = 0

    def all(self, *, as_new: bool) -> ArchiveImported:
        tasks, pictures = self._verified()
        self._total = 2 * (len(tasks) + len(pictures))
        for member in (*tasks, *pictures):
            self._check(member)
        known = set() if as_new else self._known(tasks)
        wanted = [member for member in tasks if member.name not in known]
        for member in pictures:
            self._keep_picture(member)
        self._import(wanted, Copies() if as_new else None)
        return ArchiveImported(len(tasks), len(known), len(pictures))

    # --- look ---

    def _verified(self) -> tuple[list[_Member], list[_Member]]:
        """The members for tasks and for pictures, as manifest and directory agree on them."""
        infos = self._archive.infolist()
        there = {info.filename: info for info in infos}
        if len(there) < len(infos):
            raise _wrong("two members have the same name")
        if MANIFEST not in there or there[MANIFEST].file_size > _MANIFEST_MOST:
            raise TaskHistoryError(
                "this zip is no archive of otel-taskhistory: it has no manifest.json of ours"
            )
        said = self._manifest()
        if sum(info.file_size for info in infos) > _MOST:
            raise _wrong("it says that it is larger than 256 GiB")
        members = said.get("members")
        members = members if isinstance(members, dict) else {}
        if set(members) != set(there) - {MANIFEST}:
            raise _wrong("what is in it is not what its manifest lists")
        tasks: list[_Member] = []
        pictures: list[_Member] = []
        for name, about in sorted(members.items()):
            info = there[name]
            if info.flag_bits & 1:
                raise _wrong(f"{name!r} is encrypted")
            is_task, picture = _TASK.match(name), _ARTIFACT.match(name)
            if not is_task and not picture:
                raise _wrong(f"{name[:200]!r} has no place in an archive")
            member = _member(name, about)
            if info.file_size != member.bytes:
                raise _wrong(f"{name} is not as large as its manifest says")
            if picture and (picture[1] != member.sha256 or member.bytes > _PICTURE_MOST):
                raise _wrong(f"{name} is not named after what is in it, or too large")
            (tasks if is_task else pictures).append(member)
        if said.get("tasks") != [member.name[len(TASKS) : -len(".jsonl")] for member in tasks]:
            raise _wrong("the tasks that its manifest names are not those in it")
        return tasks, pictures

    def _manifest(self) -> dict[str, Any]:
        try:
            said = json.loads(self._archive.read(MANIFEST))
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or said.get("format") != FORMAT:
            raise TaskHistoryError("this zip is no archive of otel-taskhistory")
        version = said.get("version")
        if not isinstance(version, int) or version < 1:
            raise _wrong("its version is no number")
        if version > VERSION:
            raise TaskHistoryError(
                f"this archive has format {version}, and this version of otel-taskhistory reads"
                f" {VERSION}: pip install --upgrade otel-taskhistory"
            )
        return said

    def _check(self, member: _Member) -> None:
        hashed, size = hashlib.sha256(), 0
        with self._archive.open(member.name) as file:
            while piece := file.read(_PIECE):
                hashed.update(piece)
                size += len(piece)
                if size > member.bytes:
                    break
        if size != member.bytes or hashed.hexdigest() != member.sha256:
            raise _wrong(f"{member.name} is not what its manifest says (its sha256 differs)")
        if member.name.startswith(TASKS):
            self._check_lines(member)
        self._advance()

    def _check_lines(self, member: _Member) -> None:
        """Each line must be one of ours, about the trace that the name says."""
        trace_id = member.name[len(TASKS) :][:32]
        with self._archive.open(member.name) as file:
            for placed in read_file(file):  # type: ignore[arg-type]
                if not isinstance(placed.item, Given):
                    raise _wrong(f"{member.name}, line {placed.line}, cannot be read")
                if placed.item.record.trace_id != trace_id:
                    raise _wrong(f"{member.name}, line {placed.line}, is of another trace")

    def _known(self, tasks: list[_Member]) -> set[str]:
        """Names of the tasks that are in the history, the same.

        Raises:
            TaskHistoryError: some are there and differ.
        """
        same, others = set(), []
        try:
            with TaskHistory.at(self._writer.settings) as history:
                for member in tasks:
                    task_id = member.name[len(TASKS) : -len(".jsonl")]
                    if not history.read(partial(_has, task_id=task_id)):
                        continue
                    if digest_of(history, task_id) == member.sha256:
                        same.add(member.name)
                    else:
                        others.append(task_id)
        except HistoryNotFound:
            return set()
        if others:
            shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if others[3:] else "")
            raise TaskHistoryError(
                f"nothing was imported: the history has another version of {shown};"
                " import with --as-new for a copy beside it, or into a new --directory"
            )
        return same

    # --- write ---

    def _keep_picture(self, member: _Member) -> None:
        stored = self._writer.store_picture(self._archive.read(member.name))
        if stored.sha256 != member.sha256:
            raise _wrong(f"{ARTIFACTS} changed while it was read")
        self._advance()

    def _import(self, tasks: list[_Member], copies: Copies | None) -> None:
        importer = self._importer
        if copies is not None:
            for member in tasks:
                for given in self._records(member):
                    copies.know(given.record)
        for member in tasks:
            for given in self._records(member):
                importer.take(given if copies is None else copies.of(given))
            self._advance()
        importer.finish()

    def _records(self, member: _Member) -> Any:
        with self._archive.open(member.name) as file:
            for placed in read_file(file):  # type: ignore[arg-type]
                if isinstance(placed.item, Given):
                    yield placed.item

    def _advance(self) -> None:
        self._done += 1
        self._tell(self._done, self._total)


def _has(connection: Any, task_id: str) -> bool:
    found = connection.execute("SELECT 1 FROM tasks WHERE task_id = ?", (task_id,))
    return found.fetchone() is not None


def _member(name: str, about: Any) -> _Member:
    about = about if isinstance(about, dict) else {}
    sha256, size = about.get("sha256"), about.get("bytes")
    if not isinstance(sha256, str) or not isinstance(size, int):
        raise _wrong(f"its manifest says nothing of {name}")
    return _Member(name, sha256, size)


def _wrong(what: str) -> TaskHistoryError:
    return TaskHistoryError(f"nothing was imported, the archive is damaged: {what}")
