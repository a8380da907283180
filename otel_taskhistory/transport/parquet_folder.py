# SPDX-License-Identifier: Apache-2.0
"""The folder that an export to Parquet fills: ours or refused, one writer a history, safe names."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote

from otel_taskhistory.errors import TaskHistoryError

MARK: Final = "_otel_taskhistory.json"
"""The file that says that a folder is ours; readers of Parquet pass over names that begin so."""

FORMAT: Final = {"format": "otel-taskhistory parquet", "version": 1}
NO_AGENT: Final = "__HIVE_DEFAULT_PARTITION__"
"""How Hive writes a partition without a value."""

_NAME_MOST: Final = 180
"""Bytes of a name; file systems take 255, and ``agent=`` and a suffix come to it."""


def claim(directory: Path) -> None:
    """Make a folder ours, or see that it is.

    Raises:
        TaskHistoryError: something else is there.
    """
    if _is_ours(directory):
        return
    if directory.exists() and not directory.is_dir():
        raise TaskHistoryError(f"{directory} is a file: name a folder")
    make_folder(directory)
    if any(not path.name.startswith(f".{MARK}.") for path in directory.iterdir()):
        if _is_ours(directory):  # another history has come first, just now
            return
        raise TaskHistoryError(
            f"{directory} is not empty and was not written by `export`: name a new folder"
        )
    with replacing(directory / MARK) as file:
        file.write((json.dumps(FORMAT) + "\n").encode())


def _is_ours(directory: Path) -> bool:
    mark = directory / MARK
    try:
        known = json.loads(mark.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (ValueError, RecursionError):
        known = None
    if known != FORMAT:
        raise TaskHistoryError(
            f"{directory} was written by another version of otel-taskhistory: name a new folder"
        )
    return True


@contextmanager
def only_writer(directory: Path, history_id: str) -> Iterator[None]:
    """Be the only one who writes this history's files there; the kernel gives it up for the dead.

    Raises:
        TaskHistoryError: somebody else is at it.
    """
    name = f"_{partition_name(history_id)}.lock"
    descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(descriptor, directory)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TaskHistoryError(
            f"another export of this history writes into {directory}: wait until it is done"
        ) from None
    except OSError:  # a file system without locks
        return


def partition_name(value: str | None) -> str:
    """A value as a part of a path, from which readers of Hive's partitions get it back.

    What is not plain is percent-encoded. What is too long is cut and ends in ``~`` and a digest,
    so that two do not become one.
    """
    if value is None:
        return NO_AGENT
    value = value.encode(errors="replace").decode()
    if value == NO_AGENT:
        return value.replace("_", "%5F", 1)
    name = quote(value, safe=" -_")
    if len(name) <= _NAME_MOST:
        return name
    digest = f"~{hashlib.sha256(value.encode()).hexdigest()[:16]}"
    kept = ""
    for character in value:
        more = quote(character, safe=" -_")
        if len(kept) + len(more) > _NAME_MOST - len(digest):
            break
        kept += more
    return kept + digest


def make_folder(directory: Path) -> None:
    """Make a folder and those above it that are missing, for their user only."""
    if directory.is_dir():
        return
    make_folder(directory.parent)
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """Opens a file, for its user only, that takes its place once it is whole and on disk."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(6)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(beside, file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def files_named(table: Path, name: str) -> Iterator[tuple[str, Path]]:
    """(``day=…/agent=…``, file) of the files of one name in a table's folder.

    What a killed export has left beside them is removed; so only the only writer may ask.
    """
    for day in _folders(table, "day="):
        for agent in _folders(day, "agent="):
            for left in sorted(agent.iterdir()):
                if left.name.startswith(f".{name}."):
                    left.unlink(missing_ok=True)
            if (agent / name).is_file():
                yield f"{day.name}/{agent.name}", agent / name


def _folders(parent: Path, prefix: str) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.name.startswith(prefix))
    except (FileNotFoundError, NotADirectoryError):
        return []
