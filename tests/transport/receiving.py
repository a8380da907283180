# SPDX-License-Identifier: Apache-2.0
"""``otel-taskhistory receive`` in a process of its own, and what is sent to it."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which a server is taken to hang; nothing is measured by it."""
JSON = "application/json"
PROTOBUF = "application/x-protobuf"

PROGRAM = """
from otel_taskhistory.cli import cli
from otel_taskhistory.cli.receive import receive_command
from otel_taskhistory.cli.serve import serve_command
cli.add_command(receive_command)
cli.add_command(serve_command)
cli()
"""


@dataclass(frozen=True)
class Answer:
    """What a server has answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """A running receiver; ended on leaving.

    Args:
        directory: the history.
        options: of the command.
        command: ``receive``, or ``serve`` with its option.
        port: where; 0 takes any that is free.
        environ: further environment variables.
        tells: how many addresses it prints.
    """

    def __init__(
        self,
        directory: Path,
        *options: str,
        command: tuple[str, ...] = ("receive",),
        port: int = 0,
        environ: dict[str, str] | None = None,
        tells: int = 1,
    ) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            # By the module, for it also works where the command is not installed.
            [
                *(sys.executable, "-c", PROGRAM, *command, "--directory", str(directory)),
                *("--port", str(port), *options),
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
        self.port = urlsplit(self.addresses[0]).port or 0

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
                self.process.terminate()
            self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, body: bytes | Any, path: str = "/v1/traces", **headers: str) -> Answer:
        """Send a request, by default JSON; what is not bytes is made so."""
        return post(self.port, body, path, **headers)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """(exit status, what it said on stderr) when it is told to stop."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def memory(self, name: str = "VmHWM") -> int:
        """Bytes of memory that it has ever needed at once (VmHWM), or needs now (VmRSS)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024

    def forget_peak(self) -> None:
        """Count `memory` from now on."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


def post(port: int, body: bytes | Any, path: str = "/v1/traces", **headers: str) -> Answer:
    """Send a request to a port of this machine."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    own = {name.rstrip("_").replace("_", "-"): value for name, value in headers.items()}
    own.setdefault("Content-Type", JSON)
    method = own.pop("Method", "POST")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, body=data, headers=own)
        return answer_of(connection.getresponse())
    finally:
        connection.close()


def answer_of(response: http.client.HTTPResponse) -> Answer:
    """What was answered, read to its end."""
    found = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, found, response.read())


@contextmanager
def connected(port: int, sent: bytes = b"") -> Iterator[socket.socket]:
    """A connection by which something was sent, perhaps not all of it."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(sent)
        yield connection


def answered(connection: socket.socket) -> Answer:
    """What comes back by a connection."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return answer_of(response)


def head(length: int | str, **headers: str) -> bytes:
    """The head of a request whose body has a length, or comes in chunks."""
    size = "Transfer-Encoding: chunked" if length == "chunked" else f"Content-Length: {length}"
    own = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return (
        f"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
        f"{size}\r\n{own}\r\n"
    ).encode()


def trace_id() -> str:
    """A new one."""
    return secrets.token_hex(16)


def span(trace: str, number: int = 1, parent: int = 0, **changes: Any) -> dict[str, Any]:
    """A span in OTLP/JSON, of number `number`, below that of number `parent`."""
    made = {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "name": f"span {number}",
        "kind": 1,
        "startTimeUnixNano": str(1_760_000_000_000_000_000 + number),
        "endTimeUnixNano": str(1_760_000_001_000_000_000 + number),
        "attributes": [],
        **changes,
    }
    return {**made, "parentSpanId": f"{parent:016x}"} if parent else made


def request(*spans: Any, service: str = "tests") -> dict[str, Any]:
    """An export request."""
    name = {"key": "service.name", "value": {"stringValue": service}}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [name]},
                "scopeSpans": [{"scope": {"name": "tests"}, "spans": list(spans)}],
            }
        ]
    }


def text(key: str, value: str) -> dict[str, Any]:
    """An attribute."""
    return {"key": key, "value": {"stringValue": value}}


def known(directory: Path) -> set[tuple[str, str]]:
    """(trace id, span id) of the spans that are in a history."""
    from tests.processes import rows

    return set(rows(directory, "SELECT trace_id, span_id FROM spans"))
