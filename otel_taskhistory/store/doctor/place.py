# SPDX-License-Identifier: Apache-2.0
"""Where a history lies: SQLite, file system, room, who may read it. Looks at no content."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from otel_taskhistory.settings import Settings
from otel_taskhistory.store.aside import histories_aside
from otel_taskhistory.store.doctor.findings import Finding, some
from otel_taskhistory.store.files import SIDECARS, tree_size
from otel_taskhistory.store.schema import OLDEST_SQLITE
from otel_taskhistory.units import format_size

_NETWORK: Final = frozenset(
    {
        *("9p", "drvfs", "prl_fs", "vboxsf", "virtiofs", "vmhgfs", "fuse.vmhgfs-fuse"),
        *("afs", "cifs", "coda", "davfs", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"),
        *("ceph", "glusterfs", "gfs2", "gpfs", "lustre", "ocfs2"),
        *("fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    }
)
"""File systems that other machines (or the host of a virtual one) may use at the same time."""
_PASSING: Final = {
    "tmpfs": "its content is gone after a restart of the machine",
    "ramfs": "its content is gone after a restart of the machine",
    "overlay": "in a container its content is gone with the container",
}
_LITTLE: Final = 64 * 2**20
_FEW_FILES: Final = 1000
_FIXED_WAL_RESET: Final = ((3, 44, 6), (3, 50, 7), (3, 51, 3))


def check_sqlite(
    version: tuple[int, ...] = sqlite3.sqlite_version_info, options: frozenset[str] | None = None
) -> Iterator[Finding]:
    """The SQLite of this Python."""
    if version < OLDEST_SQLITE:
        yield Finding(
            "sqlite",
            "error",
            f"SQLite {_dotted(version)} is too old",
            "",
            f"Use a Python that is built with SQLite {_dotted(OLDEST_SQLITE)} or newer.",
        )
    if options is None:
        with closing(sqlite3.Connection(":memory:")) as connection:
            options = frozenset(row[0] for row in connection.execute("PRAGMA compile_options"))
    for option, what in (("ENABLE_FTS5", "full-text search (FTS5)"), ("THREADSAFE=0", "")):
        if what and option not in options:
            yield Finding(
                "sqlite",
                "error",
                f"SQLite {_dotted(version)} was built without {what}",
                "",
                "Use a Python whose SQLite has it; those of python.org and of distributions do.",
            )
        elif not what and option in options:
            yield Finding(
                "sqlite",
                "error",
                f"SQLite {_dotted(version)} was built for a single thread",
                "Two threads that use it at once may damage the database.",
                "Use a Python whose SQLite is built with THREADSAFE=1 or 2.",
            )
    if version >= OLDEST_SQLITE and not _wal_reset_fixed(version):
        yield Finding(
            "sqlite",
            "note",
            f"SQLite {_dotted(version)} may have the WAL-reset bug",
            "In rare moments, when two processes fold in the write-ahead log of one history at the"
            " same time, a commit could get lost. A distribution may have repaired it.",
            "Use SQLite 3.51.3, 3.50.7, 3.44.6 or newer where several processes write one history"
            " (https://sqlite.org/wal.html#walresetbug).",
        )


def _wal_reset_fixed(version: tuple[int, ...]) -> bool:
    return version >= _FIXED_WAL_RESET[-1] or any(
        version[:2] == fixed[:2] and version >= fixed for fixed in _FIXED_WAL_RESET
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


# --- file system and room -----------------------------------------------------------------------


def check_file_system(settings: Settings, mounts: Path = Path("/proc/mounts")) -> Iterator[Finding]:
    """On which kind of file system database and artifacts are, where the system says so (Linux)."""
    kind = file_system(settings.database, mounts)
    if kind in _NETWORK:
        yield Finding(
            "file system",
            "error",
            f"the database is on a network file system ({kind})",
            "A write-ahead log needs memory that all processes share, and locks that work; without"
            " them the database can be damaged.",
            "Put the history on a local disk (OTEL_TASKHISTORY_DIRECTORY).",
        )
    for what, path in (("database", settings.database), ("artifact folder", settings.artifacts)):
        kind = file_system(path, mounts)
        if kind in _PASSING:
            yield Finding(
                "file system",
                "note",
                f"the {what} is on {kind}: {_PASSING[kind]}",
                "",
                "Put the history on a disk or volume that stays, if it is to be kept.",
            )


def file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The type of the file system that a path is on, None where it is not told."""
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return None
    real = os.fsencode(os.path.realpath(path))
    best, kind = b"", None
    for line in lines:
        words = line.split(b" ")
        if len(words) < 3:
            continue
        point = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), words[1])
        inside = real == point or real.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= len(best):  # the later mount hides the earlier one
            best, kind = point, words[2].decode("ascii", "replace")
    return kind


def check_room(settings: Settings) -> Iterator[Finding]:
    """Whether there is room for what the limits allow."""
    limit = settings.retention.max_bytes
    used = tree_size(settings.artifacts) + sum(
        _size(Path(f"{settings.database}{suffix}")) for suffix in ("", *SIDECARS)
    )
    for what, path in (("database", settings.database), ("artifacts", settings.artifacts)):
        place = next(folder for folder in (path, *path.parents) if folder.is_dir())
        free = shutil.disk_usage(place).free
        to_come = max(limit - used, 0) if limit is not None else 0
        if free < _LITTLE:
            yield Finding(
                "room",
                "error",
                f"the disk of the {what} is full ({format_size(free)} free)",
                "Steps wait in memory when they cannot be written; the oldest are lost in time.",
                "Free some room, or lower OTEL_TASKHISTORY_MAX_BYTES.",
            )
        elif free < to_come:
            yield Finding(
                "room",
                "warning",
                f"the disk of the {what} has {format_size(free)} free, but the history may grow by"
                f" {format_size(to_come)}",
                "The disk will be full before the history removes anything by its size.",
                "Free some room, or lower OTEL_TASKHISTORY_MAX_BYTES.",
            )
        if hasattr(os, "statvfs"):
            files = os.statvfs(place)
            if files.f_files and files.f_favail < _FEW_FILES:
                yield Finding(
                    "room",
                    "warning",
                    f"the disk of the {what} has room for {files.f_favail} more files (inodes)",
                    "Each picture is a file.",
                    "Remove files, or put the history elsewhere.",
                )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# --- who may read it ----------------------------------------------------------------------------


def check_access(settings: Settings) -> Iterator[Finding]:
    """Files and folders that others may enter or read, or that belong to another user."""
    if os.name != "posix":
        return
    loose = list(loose_paths(settings))
    put_away = is_put_away(settings)
    if loose and put_away:
        yield Finding(
            "access",
            "warning",
            "other users of this machine can read the history, which nobody may write to",
            "Reading works, and an agent cannot record here: so it is when a history was put away"
            " for others to look at. It holds prompts, results and screenshots.",
            "If they are not to see it, otel-taskhistory doctor --fix takes the permission away"
            " (folders 0500, files 0400).",
            count=len(loose),
            items=some(f"{path} ({mode:04o})" for path, mode, _ in loose),
            fixable=True,
        )
    elif loose:
        yield Finding(
            "access",
            "error",
            "other users of this machine may get at the history",
            "It holds prompts, results and screenshots.",
            "otel-taskhistory doctor --fix takes the permissions away (folders 0700, files 0600).",
            count=len(loose),
            items=some(f"{path} ({mode:04o})" for path, mode, _ in loose),
            fixable=True,
        )
    me = os.geteuid()
    others = [path for path, found in _paths(settings) if found.st_uid != me]
    if others and me != 0 and put_away:
        yield Finding(
            "access",
            "note",
            "the history belongs to another user, and nobody may write to it",
            "Reading works.",
            "",
        )
    elif others and me != 0:
        yield Finding(
            "access",
            "error",
            "files of the history belong to another user",
            "An agent of this user may not be able to write; a program that another user ran on the"
            " history has left them.",
            "Run agent and readers as the same user, and give the files back with chown.",
            count=len(others),
            items=some(map(str, others)),
        )


def is_put_away(settings: Settings) -> bool:
    """Whether the folder of a history is one that nobody may write to, as its mode says."""
    try:
        return not settings.directory.stat().st_mode & 0o222
    except OSError:
        return False


def loose_paths(settings: Settings) -> Iterator[tuple[Path, int, int]]:
    """(path, its mode, the mode it should have) of what others may get at."""
    put_away = is_put_away(settings)
    for path, found in _paths(settings):
        mode = stat.S_IMODE(found.st_mode)
        if mode & 0o077:
            own = 0o700 if stat.S_ISDIR(found.st_mode) else 0o600
            yield path, mode, own & ~0o222 if put_away else own


def _paths(settings: Settings) -> Iterator[tuple[Path, os.stat_result]]:
    """What a history is made of; no link is followed but the places that were set."""
    real = Path(os.path.realpath(settings.database))
    files = [Path(f"{real}{suffix}") for suffix in ("", *SIDECARS)]
    # The folder of a database that was put elsewhere may be for others on purpose.
    for path in (settings.directory, *files, settings.artifacts):
        with suppress(OSError):
            yield path, path.stat()
    roots = [settings.artifacts, *(aside.directory for aside in histories_aside(real))]
    for root in roots:
        for folder, folders, names in os.walk(root):
            for name in (*folders, *names):
                path = Path(folder, name)
                with suppress(OSError):
                    found = path.lstat()
                    if not stat.S_ISLNK(found.st_mode):
                        yield path, found


def check_aside(settings: Settings) -> Iterator[Finding]:
    """Damaged histories that were set aside."""
    for aside in histories_aside(settings.database):
        when = f"{aside.at:%Y-%m-%d %H:%M} UTC"
        yield Finding(
            "set aside",
            "warning",
            f"a damaged history was set aside at {aside.directory} ({when}): {aside.why}",
            "The history that is here began after that."
            if aside.finished
            else "The move was interrupted; the next start of an agent finishes it.",
            f"Look into it with --directory {aside.directory}, copy what you need, then remove"
            " that folder. Damage comes from failing disks, network file systems, and programs"
            " that write or copy database files on their own.",
        )
