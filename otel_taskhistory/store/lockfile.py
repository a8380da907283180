# SPDX-License-Identifier: Apache-2.0
"""Numbered locks that a process holds until it dies, as locked bytes of one small file.

POSIX record locks, because of what they are tied to: the process. A forked child does not inherit
them (a ``flock`` would live on in it), the kernel drops them however the process dies, and nothing
has to be written to give them up. Two of their habits decide how this module looks:

* They are all dropped when the process closes *any* descriptor of the file. So a process opens a
  lock file once, keeps it for life, and everybody in the process shares it. Nothing else of ours
  opens the file; should a program do so all the same, `processes` has a second look.
* The locks of one process do not conflict with each other. So what this process holds is looked
  up, never probed.

The file's content is a random id: who finds another id than was noted with a lock knows that the
file was replaced and that the lock cannot be asked about here.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import threading
from pathlib import Path
from typing import Final

_FIRST: Final = 4096
"""Where the numbered bytes begin, behind the content: some systems forbid reading locked bytes."""

_ID: Final = re.compile(rb"[0-9a-f]{16}")

_TAKEN: Final = frozenset({errno.EACCES, errno.EAGAIN, errno.EDEADLK})
"""What the systems say when somebody else has the lock. (Windows: EACCES, and EDEADLK.)"""


class LockFile:
    """An open lock file; get it from `lock_file`. Safe to use from any thread.

    Attributes:
        id: 16 hex digits that tell this file from one that takes its place.
    """

    def __init__(
        self, handle: int, identity: tuple[int, int], file_id: str, *, writable: bool = True
    ) -> None:
        self.id = file_id
        self._handle = handle
        self._writable = writable
        self._identity = identity
        self._held: set[int] = set()

    def hold(self, number: int) -> bool:
        """Hold a lock for the life of the process; False when another process has it.

        Holding it again is no error, and takes it back should it have been dropped.

        Raises:
            OSError: the file system has no locks.
        """
        with _guard:
            if not _lock(self._handle, _FIRST + number, shared=False):
                return False
            self._held.add(number)
            return True

    def holds(self, number: int) -> bool:
        """Whether this process holds the lock."""
        return number in self._held

    def release(self, number: int) -> None:
        """Give up a lock; one that is not held is no error."""
        with _guard:
            if number in self._held:
                self._held.discard(number)
                if self._is_open():
                    _unlock(self._handle, _FIRST + number)

    def is_free(self, number: int) -> bool:
        """Whether no process holds the lock.

        Raises:
            OSError: the file system has no locks.
        """
        with _guard:
            if number in self._held:
                return False
            # Shared, so that two who ask at once do not take each other for the holder.
            if not _lock(self._handle, _FIRST + number, shared=True):
                return False
            _unlock(self._handle, _FIRST + number)
            return True

    def _is_open(self) -> bool:
        """Whether the descriptor is still ours: programs that become daemons close them all."""
        try:
            return _identity(os.fstat(self._handle)) == self._identity
        except OSError:
            return False


_guard = threading.RLock()  # a signal handler that records may come while its thread has it
_files: dict[tuple[int, int], LockFile] = {}
_kept: list[int] = []
"""Descriptors that must not be closed, see `_opened`."""


def lock_file(path: Path, *, create: bool) -> LockFile | None:
    """The lock file at `path`, opened once per process; None when there is none.

    Args:
        create: make it, 0600, if it is missing. The caller must keep other processes from doing
            the same at the same time (by a write transaction in the history).

    Raises:
        OSError: it cannot be used.
    """
    with _guard:
        try:
            known = _files.get(_identity(path.stat()))
        except FileNotFoundError:
            if not create:
                return None
            known = None
        if known is not None and known._is_open() and (known._writable or not create):
            return known
        file = _opened(path, create=create)
        if file is None or file is known:
            return file
        if known is not None and known._identity == file._identity:
            # Its descriptor was closed, and all its locks went with it.
            known._handle = file._handle
            for number in tuple(known._held):
                known.hold(number)
            return known
        _files[file._identity] = file
        return file


def _opened(path: Path, *, create: bool) -> LockFile | None:
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NOFOLLOW", 0) | (os.O_CREAT if create else 0)
    writable = True
    try:
        handle = os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    except OSError:
        if create:
            raise
        # To ask about locks it is enough to read: a mount may be read-only.
        handle, writable = os.open(path, flags & ~os.O_RDWR | os.O_RDONLY), False
    found = os.fstat(handle)
    other = _files.get(_identity(found))
    if other is not None and other._is_open():
        # We know it: it came in place of another between our look and our open, or it could only
        # be read until now. Closing either descriptor would give up its locks.
        if writable and not other._writable:
            handle, other._handle, other._writable = other._handle, handle, True
        _kept.append(handle)
        return other
    try:
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        content = os.read(handle, 64)
        if _ID.fullmatch(content):
            return LockFile(handle, _identity(found), content.decode(), writable=writable)
        if not create:
            os.close(handle)
            return None
        return LockFile(handle, _identity(found), _written_id(handle))
    except BaseException:
        os.close(handle)
        raise


def _written_id(handle: int) -> str:
    """Put a new id into an empty (or spoilt) file."""
    file_id = secrets.token_hex(8)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, 0o600)  # whatever the umask was, or who made the file
    os.ftruncate(handle, 0)
    os.lseek(handle, 0, os.SEEK_SET)
    if os.write(handle, file_id.encode()) != len(file_id):
        os.ftruncate(handle, 0)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return file_id


def _identity(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)


def _after_fork_in_child() -> None:
    """The child has the descriptors, and may use them for locks of its own, but no lock."""
    global _guard
    _guard = threading.RLock()
    for file in _files.values():
        file._held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# --- the two kinds of systems; imported where they are used, for neither has the other's ---


def _lock(handle: int, position: int, *, shared: bool) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt  # knows no shared locks

            os.lseek(handle, position, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.lockf(handle, kind | fcntl.LOCK_NB, 1, position)
    except OverflowError:  # no number of a row of ours
        raise OSError(errno.EINVAL, "no such lock") from None
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def _unlock(handle: int, position: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, position, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.lockf(handle, fcntl.LOCK_UN, 1, position)
