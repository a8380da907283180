# SPDX-License-Identifier: Apache-2.0
"""Folders and files of a history: made for their user only, durable, atomically replaced."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path
from typing import Final

SIDECARS: Final = ("-wal", "-shm", "-journal")
"""What SQLite puts beside a database, by what is added to its name."""


def make_folder(folder: Path) -> None:
    """Make a folder and those above it for their user only; those that exist keep their mode."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:  # another process made it; not ours to change then
            continue
        path.chmod(0o700)  # whatever the umask took away


def make_file(path: Path) -> None:
    """Make an empty file for its user only.

    Raises:
        FileExistsError: it is there.
    """
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Write a file for its user only: it is there whole and durably, or as it was."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    make_file(temporary)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive power loss, where the system can."""
    if os.name != "posix":  # a folder cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:  # some network and FUSE file systems cannot; an I/O error is one
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def tree_size(folder: Path) -> int:
    """Bytes of all files in a folder and below; what goes meanwhile does not count."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total
