# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory serve`` in a process of its own, and plain HTTP requests to it."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which a server is taken to hang; nothing is measured by it."""


@dataclass(frozen=True)
class Answer:
    """What a server has answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Server:
    """A running server; ended on leaving.

    Args:
        directory: the history.
        options: of the command.
        environ: further environment variables.
        tells: how many addresses it prints.
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        environ: dict[str, str] | None = None,
        tells: int = 1,
    ) -> None:
        self.process = subprocess.Popen(
            # By the module, for it also works where the command is not installed.
            [
                *(sys.executable, "-c", PROGRAM, "serve", "--directory", str(directory)),
                *("--port", "0", *options),
            ],
            cwd=ROOT,
            env={**os.environ, **(environ or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.addresses = [self.process.stdout.readline().rstrip("\n") for _ in range(tells)]
        if not self.addresses[0]:
            _, errors = self.process.communicate(timeout=PATIENCE)
            raise AssertionError(f"it ended with {self.process.returncode}:\n{errors}")
        self.port = urlsplit(self.addresses[0]).port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self.process.poll() is None:
                self.process.terminate()  # it has temporary files to remove
            self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Send a request; ``Host_`` stands for the header that says where to."""
        assert self.port is not None
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        own = {name.rstrip("_").replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, headers=own)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """(exit status, what it said on stderr) when it is told to stop."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


PROGRAM = """
from otel_taskhistory.cli import cli
from otel_taskhistory.cli.serve import serve_command
cli.add_command(serve_command)
cli()
"""
