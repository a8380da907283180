# SPDX-License-Identifier: Apache-2.0
"""Agents that run in processes of their own, and what a test sees of them from outside.

A program of ``tests/programs`` says where it is by a line on its standard output and waits for a
line on its standard input before it goes on: tests are ordered by that, never by time.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAMS = Path(__file__).parent / "programs"
SOUND_PNG = (PROGRAMS.parent / "data" / "pictures" / "png_ok.png").read_bytes()
"""A sound PNG."""
PATIENCE = 120.0
"""Seconds after which a program is taken to hang; nothing is measured by it."""


class Program:
    """A running program, to be talked to line by line.

    Args:
        name: of the file in ``tests/programs``, without ``.py``.
        args: its arguments.
        environ: further environment variables.
    """

    def __init__(self, name: str, *args: object, environ: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / f"{name}.py"), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def line(self) -> str:
        """The next line it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=PATIENCE)
            raise AssertionError(f"it ended with {self.process.returncode}:\n{errors}")
        return line.rstrip("\n")

    def until(self, wanted: str) -> None:
        """Read on until it says `wanted`."""
        while self.line() != wanted:
            pass

    def go_on(self) -> None:
        """Let it go on from where it waits."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=PATIENCE)

    def end(self) -> str:
        """Let it run to its end, which must be a good one; what it said until then."""
        out, errors = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, errors
        return out


def run(name: str, *args: object, environ: dict[str, str] | None = None) -> str:
    """Run a program to its good end; what it said."""
    with Program(name, *args, environ=environ) as program:
        return program.end()


def run_badly(name: str, *args: object, environ: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a program to whatever end; its status and what it said on standard error."""
    with Program(name, *args, environ=environ) as program:
        _, errors = program.process.communicate(timeout=PATIENCE)
        return program.process.returncode, errors


def rows(directory: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """What a query gives now, by a connection of its own that can only read."""
    uri = f"{(directory / 'history.db').as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        return connection.execute(sql, values).fetchall()


def one(directory: Path, sql: str, *values: object) -> Any:
    """The only value of the only row of a query."""
    ((value,),) = rows(directory, sql, *values)
    return value


def check(directory: Path) -> None:
    """The database is whole, every picture's row has its file, and the file is what it says."""
    assert rows(directory, "PRAGMA integrity_check") == [("ok",)]
    assert rows(directory, "PRAGMA foreign_key_check") == []
    for path, sha256 in rows(directory, "SELECT path, sha256 FROM screenshots WHERE status = 'ok'"):
        assert hashlib.sha256((directory / "artifacts" / path).read_bytes()).hexdigest() == sha256


def listing(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Every file and folder below: mode, size, time of last change, and hash of the content."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        info = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        digest = hashlib.sha256(content).hexdigest()
        found[str(path.relative_to(folder))] = (
            info.st_mode,
            info.st_ino,
            info.st_mtime_ns,
            info.st_size if path.is_file() else 0,
            digest,
        )
    return found
