# SPDX-License-Identifier: Apache-2.0
"""Which processes hold locks on a file, as far as the system tells.

Linux says so in ``/proc/locks``, of the processes that share our view of the system (a container
hides those outside). Elsewhere nothing is known, and nothing is said.

The file itself is never opened: closing it again would give up every lock that SQLite holds on it
in this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_ENDLESS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, and the range of bytes that it has locked."""

    pid: int
    command: str
    """Its name as ``ps`` shows it; empty when it is not told."""
    writes: bool | None
    """Whether it has opened the file for writing; None when it is not told."""
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.command} (pid {self.pid})" if self.command else f"pid {self.pid}"


def holders(path: Path, *, proc: Path = _PROC) -> tuple[Holder, ...]:
    """The locks that other processes hold on the file, in the system's order."""
    try:
        found = os.stat(path)
        lines = (proc / "locks").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return ()
    which = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    return tuple(
        Holder(pid, _command(proc, pid), _writes(proc, pid, found), first, last)
        for pid, file, first, last in map(_lock, lines)
        if file == which and pid not in (os.getpid(), 0)
    )


def _lock(line: str) -> tuple[int, str, int, int]:
    """(pid, device and inode, first byte, last byte) of a line of ``/proc/locks``."""
    words = line.split()
    try:  # "3: POSIX ADVISORY READ 930 fe:00:2162851 123 EOF"; who waits has "->" before POSIX
        last = _ENDLESS if words[7] == "EOF" else int(words[7])
        return int(words[4]), words[5], int(words[6]), last
    except (IndexError, ValueError):
        return 0, "", 0, 0


def _command(proc: Path, pid: int) -> str:
    try:
        return (proc / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _writes(proc: Path, pid: int, file: os.stat_result) -> bool | None:
    try:
        modes = list(_modes(proc / str(pid), file))
    except OSError:  # another user's process, or it has ended
        return None
    return any(mode != os.O_RDONLY for mode in modes) if modes else None


def _modes(process: Path, file: os.stat_result) -> Iterator[int]:
    """How the process has opened the file, once for each time."""
    for name in os.listdir(process / "fd"):
        try:
            if not os.path.samestat(os.stat(process / "fd" / name), file):
                continue
            text = (process / "fdinfo" / name).read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:  # closed meanwhile
            continue
        for line in text.splitlines():
            if line.startswith("flags:"):
                yield int(line.split()[1], 8) & os.O_ACCMODE
