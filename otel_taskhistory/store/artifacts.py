# SPDX-License-Identifier: Apache-2.0
"""Files outside the database, each named by the SHA-256 of its content.

``ab/abcd….png`` under the folder's root, 256 directories at most. What `ArtifactFolder.put` has
returned survives power loss; a crash before that leaves at most a temporary file. Files are 0600,
directories 0700, whatever the umask. Nothing is ever written or read through a symbolic link below
the root, and files that are not ours are left alone.

Every failure is an OSError. There is no lock and no state: any number of threads and processes may
use the same folder. Who removes files must know which are still wanted: looking for rows that use
one and removing it belong into one write transaction, and who adds a row must make sure in *its*
transaction that the file is (still) there.

Systems without ``dir_fd`` (Windows): paths instead of held directories, so a directory exchanged
at the very moment of use is not noticed; no directory fsync; modes are what the system makes of
them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OURS: Final = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}\.[a-z0-9]{1,8}")
_FAN_OUT: Final = re.compile(r"[0-9a-f]{2}")
_TEMPORARY: Final = re.compile(r"[0-9a-f]{2}/taskhistory-[0-9a-f]{32}\.tmp")

_ATTEMPTS: Final = 20
# Each attempt is lost only when another process removes the directory (or a sweep our temporary
# file) within the same millisecond: more than one in a row takes some doing.

_HAS_DIR_FD: Final = {os.open, os.mkdir, os.stat, os.utime, os.unlink, os.rmdir, os.rename} <= (
    os.supports_dir_fd
)
# Flags that some systems lack. O_NONBLOCK: opening a named pipe must not wait for its other end.
_NO_FOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_COMMON: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_OPEN_DIRECTORY: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _COMMON
_OPEN_TO_READ: Final[int] = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NO_FOLLOW | _COMMON
_OPEN_NEW: Final[int] = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _COMMON


@dataclass(frozen=True, slots=True)
class PutResult:
    """Where `ArtifactFolder.put` has left a file."""

    sha256: str
    """64 hex digits."""
    path: str
    """Relative to the folder, POSIX style: ``ab/abcd….png``; shorter than 80 characters."""
    size: int
    """In bytes."""
    created: bool
    """False when the file was there. Of several writers at the same moment each may say True."""


class ArtifactFolder:
    """The artifacts of one history; the directory is made when the first one arrives."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))  # an agent may change its working directory

    def put(self, data: bytes, extension: str) -> PutResult:
        """Store `data` durably and return where; what is there already is not written again.

        Args:
            data: the whole content.
            extension: without the dot, as `images.inspect` gives it: 1 to 8 of ``a-z0-9``.

        Raises:
            OSError: it could not be stored; no temporary file is left.
            ValueError: `extension` is not of that form.
        """
        digest = hashlib.sha256(data).hexdigest()
        fan_out, name = digest[:2], f"{digest}.{extension}"
        relative = f"{fan_out}/{name}"
        if not _OURS.fullmatch(relative):
            raise ValueError(f"not an extension for an artifact: {extension!r}")
        attempts_left = _ATTEMPTS
        while True:
            try:
                with self._opened_or_made(fan_out) as directory:
                    created = _settle(directory, name, data)
                return PutResult(digest, relative, len(data), created)
            except FileNotFoundError:  # emptied and removed by another process meanwhile
                attempts_left -= 1
                if not attempts_left:
                    raise

    def path(self, relative: str) -> Path:
        """The absolute path of an artifact, whether or not it exists.

        Raises:
            ValueError: `relative` is not the path of an artifact, or a symbolic link is in its way.
        """
        fan_out, name = _split(relative)
        directory = self.root / fan_out
        if directory.is_symlink() or (directory / name).is_symlink():
            raise ValueError(f"artifact {relative!r} is behind a symbolic link")
        return directory / name

    def read(self, relative: str) -> bytes:
        """The content of an artifact.

        Raises:
            OSError: it is not there (FileNotFoundError), not a regular file, or not readable.
            ValueError: `relative` is not the path of an artifact.
        """
        fan_out, name = _split(relative)
        with self._opened(fan_out) as directory:
            if not stat.S_ISREG(directory.stat(name).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", directory.full(name))
            descriptor = os.open(directory.at(name), _OPEN_TO_READ, dir_fd=directory.descriptor)
            with os.fdopen(descriptor, "rb") as file:
                return file.read()

    def remove(self, relative: str) -> bool:
        """Remove an artifact, and its directory when that is left empty.

        Not fsynced: after power loss the file may be back, as one that no row knows.

        Returns:
            False when it was not there.

        Raises:
            OSError: it could not be removed.
            ValueError: `relative` is not the path of an artifact.
        """
        fan_out, name = _split(relative)
        try:
            with self._opened(fan_out) as directory:
                os.unlink(directory.at(name), dir_fd=directory.descriptor)
        except FileNotFoundError:
            return False
        self._remove_if_empty(fan_out)
        return True

    def sweep_temporaries(self, older_than: float, now: float) -> int:
        """Remove temporary files that a crash has left; returns how many.

        Args:
            older_than: seconds since the last write to one. A writer that slept longer than that
                (a suspended machine) notices and starts again.
            now: the time, in seconds since the epoch.
        """
        removed = 0
        for relative, info in self._files(_TEMPORARY):
            if info.st_mtime > now - older_than:
                continue
            fan_out, _, name = relative.partition("/")
            with suppress(FileNotFoundError), self._opened(fan_out) as directory:
                os.unlink(directory.at(name), dir_fd=directory.descriptor)
                removed += 1
            self._remove_if_empty(fan_out)
        return removed

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Each artifact's relative path and lstat, in no order; foreign files are passed over.

        Files may be added and removed meanwhile. No directory is held open between two items.
        """
        return self._files(_OURS)

    def _files(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, os.stat_result]]:
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return
        for fan_out in filter(_FAN_OUT.fullmatch, names):
            found = []
            # Not a directory: a file or a link that happens to have such a name.
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                self._opened(fan_out) as directory,
            ):
                for name in directory.names():
                    if pattern.fullmatch(f"{fan_out}/{name}"):
                        with suppress(FileNotFoundError):
                            found.append((f"{fan_out}/{name}", directory.stat(name)))
            yield from (entry for entry in found if stat.S_ISREG(entry[1].st_mode))

    @contextmanager
    def _opened(self, fan_out: str) -> Iterator[_Directory]:
        # The root itself may be a link: where the history lies is the user's choice.
        with _open_directory(self.root, None) as root, _open_directory(fan_out, root) as directory:
            yield directory

    @contextmanager
    def _opened_or_made(self, fan_out: str) -> Iterator[_Directory]:
        try:
            os.stat(self.root)
        except FileNotFoundError:
            self._make_root()
        with _open_directory(self.root, None) as root:
            try:
                os.stat(root.at(fan_out), dir_fd=root.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                _make_directory(root, fan_out)
            with _open_directory(fan_out, root) as directory:
                yield directory

    def _make_root(self) -> None:
        missing = [self.root]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for path in reversed(missing):
            with _open_directory(path.parent, None) as parent:
                _make_directory(parent, path.name)

    def _remove_if_empty(self, fan_out: str) -> None:
        # rmdir itself is the check, so no file that arrives meanwhile is lost; that it is not empty
        # is the usual answer. Whatever else hinders it, an empty directory does no harm.
        with suppress(OSError), _open_directory(self.root, None) as root:
            os.rmdir(root.at(fan_out), dir_fd=root.descriptor)


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory held open, so that the names in it stay in it whatever happens to its path."""

    path: str
    descriptor: int | None
    """None where the system has no ``dir_fd``: then `at` gives whole paths."""

    def at(self, name: str) -> str:
        return self.full(name) if self.descriptor is None else name

    def full(self, name: str) -> str:
        return os.path.join(self.path, name)

    def names(self) -> list[str]:
        return os.listdir(self.path if self.descriptor is None else self.descriptor)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(self.at(name), dir_fd=self.descriptor, follow_symlinks=False)

    def sync(self) -> None:
        """Make names durable that were added to it."""
        if self.descriptor is None:
            return
        try:
            os.fsync(self.descriptor)
        except OSError as error:
            # Some network and FUSE file systems cannot sync a directory. That is no failure of
            # this file; an I/O error is.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise


@contextmanager
def _open_directory(name: str | Path, parent: _Directory | None) -> Iterator[_Directory]:
    """Open a directory: any path without `parent`, within it a real directory only."""
    path = str(name) if parent is None else parent.full(str(name))
    if not _HAS_DIR_FD:
        info = os.stat(path, follow_symlinks=parent is None)
        if not stat.S_ISDIR(info.st_mode):
            raise _not_a_directory(path)
        yield _Directory(path, None)
        return
    try:
        if parent is None:
            descriptor = os.open(path, _OPEN_DIRECTORY)
        else:
            descriptor = os.open(name, _OPEN_DIRECTORY | _NO_FOLLOW, dir_fd=parent.descriptor)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _not_a_directory(path) from error
        raise
    try:
        yield _Directory(path, descriptor)
    finally:
        os.close(descriptor)


def _not_a_directory(path: str) -> NotADirectoryError:
    return NotADirectoryError(
        errno.ENOTDIR, "a file or a symbolic link is where a directory of artifacts should be", path
    )


def _make_directory(parent: _Directory, name: str) -> None:
    """Make a directory (0700) durably; that another process was faster is no error."""
    try:
        os.mkdir(parent.at(name), 0o700, dir_fd=parent.descriptor)
    except FileExistsError:
        return
    if stat.S_IMODE(parent.stat(name).st_mode) & 0o700 != 0o700:  # a umask that takes even ours
        os.chmod(parent.at(name), 0o700, dir_fd=parent.descriptor)
    # Here and not after the first file: whoever else finds the directory meanwhile relies on it.
    parent.sync()


def _settle(directory: _Directory, name: str, data: bytes) -> bool:
    """Make sure that `name` holds `data` durably; False when it did."""
    if _is_there(directory, name, len(data)):
        # Its writer may not have come to this yet, or was killed before it. Without news in the
        # directory it costs little (here 0.02 ms).
        directory.sync()
        return False
    # 128 random bits: the name is ours alone, so that removing it on failure is safe even when an
    # interrupt comes before the result of open() is seen. A forked child has other ones.
    temporary = f"taskhistory-{secrets.token_hex(16)}.tmp"
    try:
        _write(directory, temporary, data)
        # Atomic, and replaces a file of a wrong size or a link (not what it points to).
        os.replace(
            directory.at(temporary),
            directory.at(name),
            src_dir_fd=directory.descriptor,
            dst_dir_fd=directory.descriptor,
        )
    except BaseException:
        with suppress(OSError):
            os.unlink(directory.at(temporary), dir_fd=directory.descriptor)
        raise
    # Two syncs per new file and no way around: the content before the name (else power loss leaves
    # the name with zeros), then the name. Only a new directory costs a third, see above.
    directory.sync()
    return True


def _is_there(directory: _Directory, name: str, size: int) -> bool:
    try:
        info = directory.stat(name)
        if not stat.S_ISREG(info.st_mode) or info.st_size != size:
            return False  # a link, or a file cut by something other than us: written anew
        # In use again: a sweep of files without a row goes by age and must not take it now.
        os.utime(
            directory.at(name),
            dir_fd=directory.descriptor,
            follow_symlinks=os.utime not in os.supports_follow_symlinks,
        )
    except FileNotFoundError:
        return False
    return True


def _write(directory: _Directory, name: str, data: bytes) -> None:
    descriptor = os.open(directory.at(name), _OPEN_NEW, 0o600, dir_fd=directory.descriptor)
    try:
        if hasattr(os, "fchmod"):
            os.fchmod(descriptor, 0o600)  # a umask may have taken our own bits
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _split(relative: str) -> tuple[str, str]:
    if not _OURS.fullmatch(relative):
        raise ValueError(f"not the path of an artifact: {relative!r}")
    fan_out, _, name = relative.partition("/")
    return fan_out, name
