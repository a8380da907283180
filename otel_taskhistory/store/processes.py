# SPDX-License-Identifier: Apache-2.0
"""Who writes a history, and who of them is alive.

Each writer has a row in ``_processes`` and holds a lock with the row's number until its process
dies (`lockfile`). Whether a writer is alive is judged in this order; when in doubt it is:

* This very process knows what it holds.
* The lock is held: alive, in whatever container or under whatever name its host now runs.
* The lock is free: dead, unless the very process that wrote the row is seen to exist. It dropped
  the lock then by closing the file, and will take it back. ("The very process" is the same pid on
  the same host that began at the same moment, told by ``/proc`` in ticks since boot: a pid used
  again or a clock that was set does not pass for it. Elsewhere than on Linux nothing does.)
* The lock cannot be asked about (there was no room for the file, it was deleted or replaced, the
  file system has no locks): dead only if its process is seen not to exist; the pid alone decides
  where ``/proc`` is missing. A process of another host or container counts as alive.

Recording never depends on the file: without it there is the second look only.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_taskhistory.store.lockfile import LockFile, lock_file

LOOK_AFTER_NS: Final = 10 * 10**9
"""How often a process that writes makes sure that it still has its lock."""

_KEPT: Final = 100
"""Rows of ended processes that no span refers to; for people who look at what was going on."""

_ENDED_AND_UNUSED: Final = """
DELETE FROM _processes WHERE id IN (
    SELECT own.id FROM _processes AS own
    WHERE own.ended_ns IS NOT NULL AND own.id <= (SELECT max(id) FROM _processes) - ?
        AND NOT EXISTS (SELECT 1 FROM _spans WHERE process = own.id)
        AND own.id NOT IN (SELECT process FROM tasks WHERE root IS NULL AND process IS NOT NULL)
    ORDER BY own.id LIMIT 500)
"""


@dataclass(frozen=True, slots=True)
class Process:
    """A writer of a history that has not ended in order, as its row says."""

    alive: bool
    row: int
    pid: int
    host: str
    birth: str | None
    """What tells its process from others with its pid; None where that is not known."""
    lock: str | None
    """Id of the lock file in which it holds its lock; None when it could get none."""
    service: str | None
    started_ns: int
    seen_ns: int


class Registration:
    """The row of one writer; alive until its process dies or `release`.

    Args:
        database: the file of the history; the lock file is beside it.
        service: the ``service.name`` of this process, if it is known.
        clock: ns since 1970.

    Attributes:
        row: the id in ``_processes``; may become another one, if the row was removed.
        service: may be set later; the next `sign` writes it.
    """

    __slots__ = (
        *("_clock", "_database", "_locks", "_looked_after", "_pid", "_started"),
        *("row", "service"),
    )

    def __init__(self, database: Path, *, service: str | None, clock: Callable[[], int]) -> None:
        self.row = 0
        self.service = service
        self._database = database
        self._clock = clock
        self._pid = os.getpid()
        self._started = self._looked_after = clock()
        self._locks: set[int] = set()

    def sign(self, connection: sqlite3.Connection) -> bool:
        """See to it that the row is there and says "alive"; call first in every write transaction.

        So ``seen_ns`` is the time of the last commit. Every `LOOK_AFTER_NS` the lock is looked
        after, too. Nothing here depends on earlier calls: they may have been rolled back.

        Returns:
            Whether the row had been marked as ended: this process was taken for dead, and what it
            runs is to be called running again (`recovery.revive`).
        """
        now = self._clock()
        if abs(now - self._looked_after) < LOOK_AFTER_NS:
            # The usual way: nothing but the time is new.
            signed = connection.execute(
                "UPDATE _processes SET seen_ns = ? WHERE id = ? AND started_ns = ?"
                " AND ended_ns IS NULL AND service IS ?",
                (now, self.row, self._started, self.service),
            ).rowcount
            if signed:
                return False
        found = connection.execute(
            "SELECT ended_ns FROM _processes WHERE id = ? AND started_ns = ?",
            (self.row, self._started),
        ).fetchone()
        if found is None:
            self._insert(connection, now)
            return False
        self._looked_after = now
        connection.execute(
            "UPDATE _processes SET seen_ns = ?, ended_ns = NULL, service = ?, lock = ?"
            " WHERE id = ?",
            (now, self.service, self._lock()[1], self.row),
        )
        return found[0] is not None

    def release(self) -> None:
        """Give up the lock; the row is left as it is. Does nothing in a forked child."""
        if self._pid != os.getpid():
            return
        file = _lock_file(self._database, create=False)
        if file is not None:
            for row in self._locks:
                file.release(row)
        self._locks.clear()

    def _insert(self, connection: sqlite3.Connection, now: int) -> None:
        while True:
            row = connection.execute(
                "INSERT INTO _processes (pid, host, service, started_ns, seen_ns, birth)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (self._pid, _host(), self.service, self._started, now, _birth(self._pid)),
            ).lastrowid
            assert row is not None
            self.row = row
            taken, lock = self._lock()
            if not taken:
                break
            # Held by a process that writes to a database that was here before: the next number.
            connection.execute("DELETE FROM _processes WHERE id = ?", (row,))
        connection.execute("UPDATE _processes SET lock = ? WHERE id = ?", (lock, self.row))

    def _lock(self) -> tuple[bool, str | None]:
        """Hold the lock; (whether another process does, the id of the file it is held in)."""
        file = _lock_file(self._database, create=True)
        if file is None:
            return (False, None)
        try:
            if not file.hold(self.row):
                return (True, None)
        except OSError:
            return (False, None)
        self._locks.add(self.row)
        return (False, file.id)


def processes(connection: sqlite3.Connection, database: Path) -> list[Process]:
    """The writers that have not ended in order, oldest first. Reads only, files too."""
    rows = connection.execute(
        "SELECT id, pid, host, birth, lock, service, started_ns, seen_ns FROM _processes"
        " WHERE ended_ns IS NULL ORDER BY id"
    ).fetchall()
    file = _lock_file(database, create=False)
    return [Process(_is_alive(file, *row[:5]), *row) for row in rows]


def dead(connection: sqlite3.Connection, database: Path) -> list[int]:
    """The rows of writers that are gone without having said so.

    Call it in the write transaction that marks them as ended: nobody comes to life in between.
    """
    return [process.row for process in processes(connection, database) if not process.alive]


def certainly_gone(connection: sqlite3.Connection, database: Path) -> set[int]:
    """The rows of writers of which even a reader may say that they are gone.

    As `dead`, but only those of this machine: where two machines share a folder, a lock that one
    of them holds may look free to the other. (A writer does not ask for as much: it may be the
    successor, on a new machine, of one that died with its machine.)
    """
    return {
        process.row
        for process in processes(connection, database)
        if not process.alive and _is_of_this_machine(process.host, process.birth)
    }


def forget_ended(connection: sqlite3.Connection) -> int:
    """Remove old rows of ended writers that no span refers to, at most 500; how many."""
    return connection.execute(_ENDED_AND_UNUSED, (_KEPT,)).rowcount


def lock_path(database: Path) -> Path:
    """The lock file of a history: ``history.db.writers.lock``, beside the file a link leads to."""
    return Path(f"{os.path.realpath(database)}.writers.lock")


def _lock_file(database: Path, *, create: bool) -> LockFile | None:
    try:
        return lock_file(lock_path(database), create=create)
    except OSError:
        return None  # the row says so: its `lock` is NULL


def _is_alive(
    file: LockFile | None, row: int, pid: int, host: str, birth: str | None, lock: str | None
) -> bool:
    if file is None or file.id != lock:
        return not _is_gone(pid, host, birth)
    if file.holds(row):
        return True
    try:
        if not file.is_free(row):
            return True
    except OSError:
        return not _is_gone(pid, host, birth)
    return _is_there(pid, host, birth)


def _is_there(pid: int, host: str, birth: str | None) -> bool:
    """Whether the very process, another than this one, is seen to exist."""
    if birth is None or host != _host() or pid == os.getpid():
        return False
    return birth == _birth(pid)


def _is_gone(pid: int, host: str, birth: str | None) -> bool:
    """Whether the process is seen not to exist."""
    here = _parts(_birth(os.getpid()))
    if host != _host():
        return False
    said = _parts(birth)
    if said is not None and here is not None:
        if said[0] != here[0]:  # an earlier boot
            return True
        if said[1] != here[1]:  # another container: its pids mean nothing here
            return False
        if _birth(pid) not in (birth, None):
            return True
    return not _answers(pid)


def _is_of_this_machine(host: str, birth: str | None) -> bool:
    """Whether a process runs or ran here, in whatever container: its locks are seen here."""
    said, here = _parts(birth), _parts(_birth(os.getpid()))
    if said is not None and here is not None and said[0] == here[0]:
        return True
    return host == _host()


def _parts(birth: str | None) -> tuple[str, str, str] | None:
    """Boot, namespace and tick of what `_birth` returned; None for anything else."""
    if not isinstance(birth, str) or birth.count(" ") != 2:
        return None
    boot, namespace, tick = birth.split(" ")
    return boot, namespace, tick


def _answers(pid: int) -> bool:
    """Whether some process may have this pid."""
    if os.name != "posix":  # elsewhere os.kill does kill
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # there and not ours to signal, or no pid of this system
        return True
    return True


def _host() -> str:
    return socket.gethostname()


def _birth(pid: int) -> str | None:
    """Boot, pid namespace, and the tick of that boot at which a living process began.

    None when there is no such process, when it is dead and only waits for its parent to notice,
    and where ``/proc`` does not tell.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        said = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *fields = said.rpartition(b")")[2].split()  # the name before may hold anything
    if state in (b"Z", b"X"):
        return None
    return f"{boot} {namespace} {fields[18].decode()}"
